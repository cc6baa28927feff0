"""Find the file that each dependency leads to, as dyld does, and the files that are loaded together."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from macbuild.audit.system import find_system_library
from macbuild.audit.tree import AuditedSlice, AuditedTree
from macbuild.macho.image import Dylib
from macbuild.macho.system import is_system

__all__ = ["ExternalImage", "Kind", "LoadEdge", "LoadGraph", "Node", "build_graph", "expand"]

Kind: TypeAlias = Literal["system", "inside", "external", "outside", "absolute", "missing"]
Node: TypeAlias = tuple[str, str]

_LOADER = "@loader_path"
_EXECUTABLE = "@executable_path"
_RPATH = "@rpath/"


@dataclass(frozen=True, slots=True)
class ExternalImage:
    """Dependencies that other packages provide.

    `globs` match the name of a dependency, or the path in the tree that it leads to. `folders` are the normalized names
    of the top-level folders of packages that a wheel requires; once installed, they are beside those of the tree.
    """

    globs: tuple[str, ...] = ()
    folders: frozenset[str] = frozenset()

    def has(self, tree: AuditedTree, name: str, places: Iterable[str]) -> bool:
        """Tell whether a dependency comes from another package; `places` are the paths where it is looked for."""
        places = list(places)
        if any(fnmatchcase(text, glob) for glob in self.globs for text in (name, *places)):
            return True
        tops = {place.partition("/")[0] for place in places if "/" in place and not place.startswith(("/", "../"))}
        return any(
            re.sub(r"[-_.]+", "-", top).lower() in self.folders and tree.resolve(top)[0] == "missing" for top in tops
        )


@dataclass(frozen=True, slots=True)
class LoadEdge:
    """The file that a dependency leads to.

    `place` is the path in the tree, or the path of the system library. `lender` is the file whose rpaths lead there,
    if those of the file itself do not. `tried` are the places where nothing was found.
    """

    dylib: Dylib
    kind: Kind
    place: str | None = None
    tried: tuple[str, ...] = ()
    lender: str | None = None


def expand(path: str, owner: AuditedSlice, executables: Iterable[str]) -> list[str]:
    """Return the folders or files that a path with `@loader_path` or `@executable_path` means.

    Parameters
    ----------
    path
        From a load command of `owner`.
    executables
        Folders of the executables that may have loaded it, relative to the tree.

    Returns
    -------
    list[str]
        Paths relative to the tree, or absolute ones; nothing for a path relative to the working directory.
    """
    for word, folders in ((_LOADER, [owner.folder]), (_EXECUTABLE, list(executables))):
        if path == word or path.startswith(f"{word}/"):
            return [posixpath.join(folder, path[len(word) + 1 :]) for folder in folders]
    return [path] if path.startswith("/") else []


@dataclass
class LoadGraph:
    """The dependencies of all slices, also of those that are only reached from the audited ones.

    `closures` has the nodes that are loaded with each node.
    """

    tree: AuditedTree
    links: dict[Node, tuple[LoadEdge, ...]]
    closures: dict[Node, frozenset[Node]] = field(default_factory=dict)

    def slice(self, node: Node) -> AuditedSlice | None:
        """Return the slice of a node."""
        macho = self.tree.macho(node[0])
        return None if macho is None else macho.slice(node[1])

    def following(self, node: Node) -> Iterator[Node]:
        """Yield the nodes inside the tree that a node loads."""
        for link in self.links.get(node, ()):
            target = (link.place or "", node[1])
            if link.kind == "inside" and target in self.links:
                yield target

    def closure(self, node: Node) -> frozenset[Node]:
        """Return a node and everything inside the tree that is loaded with it."""
        seen = {node}
        todo = [node]
        while todo:
            for target in self.following(todo.pop()):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return frozenset(seen)

    def systems(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Return the system libraries that nodes load directly."""
        return frozenset(link.place or "" for node in nodes for link in self.links[node] if link.kind == "system")

    def loaders(self) -> dict[Node, frozenset[Node]]:
        """Return for each node those that load it, directly or not."""
        found: dict[Node, set[Node]] = {node: set() for node in self.links}
        for node in self.links:
            for target in self.closure(node) - {node}:
                found[target].add(node)
        return {node: frozenset(above) for node, above in found.items()}


def build_graph(tree: AuditedTree, external: ExternalImage) -> LoadGraph:
    """Follow every dependency of the audited slices.

    Parameters
    ----------
    tree
        The scanned tree.
    external
        Dependencies that other packages provide.
    """
    graph = LoadGraph(tree, {})
    todo = [entry for entry in tree.slices() if entry.linked]
    while todo:
        owner = todo.pop()
        node = (owner.path, owner.arch)
        if node in graph.links:
            continue
        graph.links[node] = tuple(_find(tree, dylib, [owner], external) for dylib in owner.dylibs)
        for link in graph.links[node]:
            target = graph.slice((link.place or "", owner.arch)) if link.kind == "inside" else None
            if target is not None:
                todo.append(target)
    _borrow(graph, external)
    graph.closures = {node: graph.closure(node) for node in graph.links}
    return graph


def _borrow(graph: LoadGraph, external: ExternalImage) -> None:
    """Look again for missing dependencies, with the rpaths of the files that load each file, until nothing changes."""
    lacking = {node for node, links in graph.links.items() if any(_borrows(link) for link in links)}
    changed = bool(lacking)
    while changed:
        changed = False
        loaders = graph.loaders()
        for node in sorted(lacking):
            owner = graph.slice(node)
            above = [found for above in sorted(loaders[node]) if (found := graph.slice(above)) is not None]
            if owner is None or not above:
                continue
            links = tuple(_lend(graph.tree, owner, link, above, external) for link in graph.links[node])
            changed = changed or links != graph.links[node]
            graph.links[node] = links


def _borrows(link: LoadEdge) -> bool:
    return link.kind in {"missing", "outside"} and link.dylib.name.startswith((_RPATH, _EXECUTABLE))


def _lend(
    tree: AuditedTree, owner: AuditedSlice, link: LoadEdge, above: list[AuditedSlice], external: ExternalImage
) -> LoadEdge:
    if not _borrows(link):
        return link
    for loader in above:
        found = _find(tree, link.dylib, [owner, loader], external)
        if found.kind in {"inside", "external", "system"}:
            return replace(found, lender=None if loader.kind == "EXECUTE" else loader.path)
    return link


def _find(tree: AuditedTree, dylib: Dylib, chain: list[AuditedSlice], external: ExternalImage) -> LoadEdge:
    """Look for a dependency of the first slice of a chain, in which each is loaded by the next."""
    if is_system(dylib.name):
        return LoadEdge(dylib, "system", dylib.name)
    tried: list[str] = []
    kind: Kind = "missing"
    for candidate in _candidates(dylib.name, chain):
        if candidate.startswith("/"):
            if find_system_library(candidate) is not None:
                return LoadEdge(dylib, "system", candidate)
            tried.append(candidate)
            continue
        where, place = tree.resolve(candidate)
        if where == "inside" and tree.macho(place) is not None:
            return LoadEdge(dylib, "inside", place)
        kind = "outside" if where == "outside" else kind
        tried.append(tree.label(posixpath.normpath(candidate)))
    # A program is the first image of its process, so nobody has loaded the library before: an rpath must lead to it.
    homeless = chain[0].kind == "EXECUTE" and dylib.name.startswith(_RPATH) and not tried
    if not homeless and external.has(tree, dylib.name, tried):
        return LoadEdge(dylib, "external", tried=tuple(tried))
    if dylib.name.startswith("/"):
        return LoadEdge(dylib, "absolute", tried=tuple(tried))
    return LoadEdge(dylib, kind, tried=tuple(tried))


def _candidates(name: str, chain: list[AuditedSlice]) -> Iterator[str]:
    executables = [entry.folder for entry in chain if entry.kind == "EXECUTE"]
    if not name.startswith(_RPATH):
        yield from expand(name, chain[0], executables)
        return
    for lender in chain:
        for rpath in lender.rpaths:
            for folder in expand(rpath, lender, executables):
                yield posixpath.join(folder, name[len(_RPATH) :])
