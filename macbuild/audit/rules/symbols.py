"""Check symbols: what is exported, and that imports exist. Also check paths in strings."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase

from macbuild.audit.context import AuditContext, Check, Hit, examples
from macbuild.audit.graph import LoadEdge, Node
from macbuild.audit.policy import NameSet
from macbuild.audit.tree import AuditedSlice
from macbuild.build.toolchain.evidence import Evidence, load_evidence
from macbuild.macho.constants import LC
from macbuild.macho.symbols import FLAT_LOOKUP, MAIN_EXECUTABLE
from macbuild.target import format_version, pack_version

__all__ = ["CHECKS"]

_LIST_HINT = "hide it with an exported symbols list or -fvisibility=hidden"


def _component_exports(context: AuditContext) -> Iterator[Hit]:
    rules = [
        (glob, NameSet(rule.allow), NameSet(rule.forbid), [(text, NameSet([text])) for text in rule.require], rule)
        for glob, rule in context.exports.items()
    ]
    for entry in context.linked():
        for glob, allowed, forbidden, required, rule in rules:
            if not (fnmatchcase(entry.path, glob) or fnmatchcase(posixpath.basename(entry.path), glob)):
                continue
            names = entry.exports.names
            bad = forbidden.select(names) | (names - allowed.select(names) if rule.allow else frozenset())
            if bad:
                message = f"exports {examples(bad)}, not allowed by the rule for {glob}"
                yield Hit("unexpected-export", entry.path, entry.arch, message, _LIST_HINT)
            for text, wanted in required:
                if not wanted.select(names):
                    message = f"exports nothing that matches {text}, which the rule for {glob} requires"
                    hint = "check the exported symbols list and the visibility of the function"
                    yield Hit("missing-export", entry.path, entry.arch, message, hint)


def _banned_exports(context: AuditContext) -> Iterator[Hit]:
    banned = NameSet(context.parameters.banned_exports)
    strong = NameSet(context.parameters.banned_strong_exports)
    for entry in context.linked():
        names = entry.exports.names
        if entry.kind == "EXECUTE" or not names or _is_runtime(context, entry):
            continue
        found = banned.select(names) | (strong.select(names) - entry.exports.weak)
        if found:
            message = f"exports {examples(found)}, which belong to the C++ runtime of the system"
            yield Hit("banned-export", entry.path, entry.arch, message, _LIST_HINT)


def _is_runtime(context: AuditContext, entry: AuditedSlice) -> bool:
    """Tell whether the file is itself a C++ runtime, which must export them; another rule covers that."""
    leaf = posixpath.basename(entry.path)
    return any(fnmatchcase(leaf, glob) for runtime in context.parameters.runtimes for glob in runtime.files)


def _undefined(context: AuditContext) -> Iterator[Hit]:
    offers: dict[Node, frozenset[bytes] | None] = {}
    for entry in context.linked():
        links = context.graph.links[entry.path, entry.arch]
        for ordinal, names in sorted(_wanted(entry).items()):
            if ordinal > len(links):
                message = f"{examples(names)} bound to dependency {ordinal} of {len(links)}"
                yield Hit("undefined-symbol", entry.path, entry.arch, message, "link the file again")
                continue
            link = links[ordinal - 1]
            offered = None if link.dylib.weak else _linked(context, link, entry.arch, offers)
            lacking = names - offered if offered is not None else set()
            if lacking:
                message = f"{link.dylib.name} does not export {examples(lacking)}"
                where = "in the tree" if link.kind == "inside" else "that will be loaded"
                yield Hit("undefined-symbol", entry.path, entry.arch, message, f"link against the library {where}")


def _wanted(entry: AuditedSlice) -> dict[int, set[bytes]]:
    """Return the symbols that must exist, by the number of the dependency that they are bound to."""
    wanted: dict[int, set[bytes]] = defaultdict(set)
    for name, ordinal, weak in entry.imports:
        if ordinal > 0 and not weak:
            wanted[ordinal].add(name)
    return wanted


def _linked(
    context: AuditContext, link: LoadEdge, arch: str, known: dict[Node, frozenset[bytes] | None]
) -> frozenset[bytes] | None:
    """Return the exports of a dependency; None if they are not known."""
    if link.kind == "inside":
        return _offered(context, (link.place or "", arch), known)
    provider = context.providers.get(link.dylib.name, arch) if link.kind == "external" else None
    return None if provider is None else context.providers.offers(provider)


def _offered(context: AuditContext, node: Node, known: dict[Node, frozenset[bytes] | None]) -> frozenset[bytes] | None:
    """Return the exports of a library and those that it re-exports; None if one of them cannot be read."""
    if node in known:
        return known[node]
    known[node] = frozenset()  # Stops at libraries that re-export each other.
    entry = context.graph.slice(node)
    names: frozenset[bytes] | None = None if entry is None else entry.exports.names
    for link in context.graph.links.get(node, ()):
        if names is not None and link.dylib.cmd == LC.REEXPORT_DYLIB:
            more = _linked(context, link, node[1], known)
            names = None if more is None else names | more
    known[node] = names
    return names


def _system(context: AuditContext) -> Iterator[Hit]:
    evidence = load_evidence()
    for entry in context.linked():
        links = context.graph.links[entry.path, entry.arch]
        for ordinal, names in sorted(_wanted(entry).items()):
            link = links[ordinal - 1] if ordinal <= len(links) else None
            if link is None or link.kind != "system" or link.dylib.weak or entry.build is None:
                continue
            library = evidence.get(link.place or "")
            if library is not None:
                yield from _newer(entry, library, names, entry.build.minos)


def _newer(entry: AuditedSlice, library: Evidence, names: set[bytes], minimum: int) -> Iterator[Hit]:
    """Find the symbols of a system library that the minimum macOS may lack, by the macOS that certainly has them."""
    found: dict[str, set[bytes]] = defaultdict(set)
    for name in names:
        lowest = library.lowest(name.decode("utf-8", "surrogateescape"), entry.arch)
        if lowest is None or pack_version(lowest) > minimum:
            found[lowest or ""].add(name)
    hint = "avoid it, or raise the deployment target; see the evidence with: macbuild stubs show SYMBOL"
    for lowest, lacking in sorted(found.items()):
        since = f" before macOS {lowest}; the file says {format_version(minimum)}" if lowest else ""
        have = "has" if len(lacking) == 1 else "have"
        message = f"{examples(lacking)} {have} no evidence in {library.install_name}{since}"
        yield Hit("system-symbol", entry.path, entry.arch, message, hint)


def _flat(context: AuditContext) -> Iterator[Hit]:
    allowed = NameSet(context.parameters.flat_lookup)
    for entry in context.linked():
        names = {name for name, ordinal, _ in entry.imports if ordinal in {FLAT_LOOKUP, MAIN_EXECUTABLE}}
        lacking = {name for name in names if name not in allowed}
        if lacking:
            message = f"{examples(lacking)} looked up in all images (-undefined dynamic_lookup)"
            yield Hit("flat-lookup", entry.path, entry.arch, message, "link against the library that has it")


def _build_paths(context: AuditContext) -> Iterator[Hit]:
    shown = context.parameters.build_path_examples
    for entry in context.linked():
        if entry.build_paths:
            listed = ", ".join(entry.build_paths[:shown])
            more = len(entry.build_paths) - shown
            message = f"strings name folders of a build machine: {listed}" + (f" and {more} more" if more > 0 else "")
            yield Hit("build-path", entry.path, entry.arch, message, "compile with -ffile-prefix-map=OLD=NEW")


CHECKS: tuple[Check, ...] = (_component_exports, _banned_exports, _undefined, _system, _flat, _build_paths)
