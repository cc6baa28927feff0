"""Derive which of macbuild's own files decide the result of each kind of step, and write them to `code_closures.json`.

The files of a kind are the import closure of the modules that its handler in `steps/dispatch.py` calls, with imports
inside functions and inside generated programs, and with the data files that those modules read. The closure stops at
the modules in `EVERYWHERE` and `EXCLUDED`, each of which has its reason.

`macbuild.plan.keys` reads the file that `python -m macbuild.plan.code_closures` writes, because parsing the code takes
longer than a run with nothing to do. A unit test fails if the file is out of date.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

__all__ = ["DATA_SUFFIXES", "EVERYWHERE", "EXCLUDED", "FOLDERS", "PINNED", "Source", "render"]

ROOT = Path(__file__).parents[1]
# Folders that `macbuild.config.bundled` finds beside the package or, once it is installed, inside of it.
FOLDERS = ("cmake",)
DATA_SUFFIXES = frozenset({".cmake", ".css", ".json", ".toml"})
# Kinds whose results do not depend on code, with the reason.
PINNED: Mapping[str, str] = {
    "fetch": "the pin states the size and the sha256 of the bytes, and fetching fails if they differ",
}
# What else needs the identity of code: remembered signature checks, and the toolchains, each an ingredient of `build`.
_OTHER_ROOTS: Mapping[str, str] = {
    "verify": "macbuild.macho.verify",
    "zig": "macbuild.build.toolchain.zig",
    "apple": "macbuild.build.toolchain.apple",
    "host": "macbuild.build.toolchain.host",
}
# What handlers of all kinds use of `steps/dispatch.py`.
_DISPATCH = ("_Job", "run_step")
_TYPES = "declares types; their values are ingredients of the key"
# Modules that no step's result depends on, with the reason.
EVERYWHERE: Mapping[str, str] = {
    "macbuild.errors": "a step that fails has no result",
    "macbuild.events": "reports what happens",
    "macbuild.config": "finds folders; the files in them are ingredients",
    "macbuild.store": "keeps results as they are; what it remembers for steps is filed under the digest of their code",
    "macbuild.steps.context": "hands a step the store, the number of jobs and where to report",
    "macbuild.plan.keys": "computes keys; what decides them cannot change the result under a key",
    "macbuild.plan.model": _TYPES,
    "macbuild.recipe.load": "finds the folders of recipes; the files in them are ingredients",
    "macbuild.recipe.model": _TYPES,
}
_TOOLCHAIN = "is part of the ingredient `toolchain`"
# Modules that the result of one kind does not depend on, with the reason.
EXCLUDED: Mapping[str, Mapping[str, str]] = {
    "build": {
        "macbuild.build.file_api": "reads a finished configuration back, for checks",
        "macbuild.build.presets": "writes presets for editors, which are not part of the result",
        "macbuild.build.programs": "finds cmake and ninja, whose versions are ingredients",
        "macbuild.build.toolchain.apple": _TOOLCHAIN,
        "macbuild.build.toolchain.host": _TOOLCHAIN,
        "macbuild.build.toolchain.model": _TOOLCHAIN,
        "macbuild.build.toolchain.zig": _TOOLCHAIN,
    },
}


class Source:
    """The modules of a package, parsed.

    Parameters
    ----------
    package
        Folder of the package `macbuild`. The folders of `FOLDERS` are beside it, or in its `_data` once installed.
    """

    def __init__(self, package: Path = ROOT) -> None:
        self.package = package
        self.imports = cache(self._imports)
        self.kinds = cache(self._kinds)
        self._tree = cache(self._parsed)

    def _kinds(self) -> dict[str, set[str]]:
        """Return the modules that each kind of step begins with."""
        tree = self._tree("macbuild.steps.dispatch")
        found = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and any("register" in ast.dump(mark) for mark in node.decorator_list):
                found[node.name.lstrip("_")] = set(self._named(node))
        return found | {kind: {root} for kind, root in _OTHER_ROOTS.items()}

    def closures(self) -> dict[str, list[str]]:
        """Return the files of each kind: relative to the package, or to its parent for the folders of `FOLDERS`.

        A folder, which ends in `/`, stands for all data files in it, and `FILE#NAME` for one function or class.
        """
        found = {kind: {*self._files(self.modules(kind)), *self._handler(kind)} for kind in self.kinds()}
        return {kind: sorted(() if kind in PINNED else files) for kind, files in sorted(found.items())}

    def modules(self, kind: str, excluded: Mapping[str, object] | None = None) -> set[str]:
        """Return the modules whose code decides the result of a kind of step.

        Parameters
        ----------
        kind
            The kind.
        excluded
            Where the closure stops, by default what `EVERYWHERE` and `EXCLUDED` say.
        """
        stop = {**EVERYWHERE, **EXCLUDED.get(kind, {})} if excluded is None else excluded
        found: set[str] = set()
        waiting = [name for name in self.kinds()[kind] if name not in stop]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += [each for each in self.imports(name) if each not in stop]
        return found

    def path(self, module: str) -> Path | None:
        """Return the file of a module, None if there is no such module."""
        base = self.package.parent.joinpath(*module.split("."))
        places = (base / "__init__.py", base.with_suffix(".py"))
        return next((place for place in places if place.is_file()), None)

    def names(self) -> list[str]:
        """Return the names of all modules."""
        places = (path.relative_to(self.package.parent).with_suffix("") for path in self.package.rglob("*.py"))
        return sorted(".".join(place.parts).removesuffix(".__init__") for place in places if "_data" not in place.parts)

    def generated(self, module: str) -> set[str]:
        """Return the modules that the programs in a module's strings import."""
        return {name for text in _strings(self._tree(module)) for name in self._in_program(text)}

    def _parsed(self, module: str) -> ast.Module:
        path = self.path(module)
        assert path is not None, module
        return ast.parse(path.read_text("utf-8"))

    def _imports(self, module: str) -> frozenset[str]:
        return frozenset({*self._named(self._tree(module)), *self.generated(module)} - {module})

    def _named(self, tree: ast.AST) -> Iterator[str]:
        """Yield the modules that code imports when it runs."""
        for node in _executed(tree):
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names if self._is_own(each.name))
            elif isinstance(node, ast.ImportFrom) and node.module and self._is_own(node.module):
                yield from (name for each in node.names for name in self._member(node.module, each.name))

    def _is_own(self, module: str) -> bool:
        return module.split(".", maxsplit=1)[0] == "macbuild"

    def _member(self, module: str, name: str) -> set[str]:
        """Return the modules that give a module its member: a submodule, or what its `__getattr__` imports."""
        if name and self.path(f"{module}.{name}") is not None:
            return {f"{module}.{name}"}
        tree = self._tree(module)
        if not any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body):
            return {module}
        # What type checkers see is what `__getattr__` imports.
        lazy = {
            str(node.module)
            for block in tree.body
            if isinstance(block, ast.If)
            for node in block.body
            if isinstance(node, ast.ImportFrom) and any(each.name == name for each in node.names)
        }
        return {module, *lazy}

    def _in_program(self, text: str) -> Iterator[str]:
        for match in re.finditer(r"\b(?:from|import) (macbuild(?:\.\w+)*)(?: import (\w+))?", text):
            if self.path(match[1]) is not None:
                yield from self._member(match[1], match[2] or "")

    def _handler(self, kind: str) -> Iterator[str]:
        if kind not in _OTHER_ROOTS:
            yield from (f"steps/dispatch.py#{name}" for name in (f"_{kind}", *_DISPATCH))

    def _files(self, modules: set[str]) -> Iterator[str]:
        for module in modules:
            path = self.path(module)
            assert path is not None, module
            yield path.relative_to(self.package).as_posix()
            yield from self._data(module, path)

    def _data(self, module: str, path: Path) -> Iterator[str]:
        """Yield the data files and folders that a module names, beside it or in the folders of `FOLDERS`."""
        tree = self._tree(module)
        names = {text for text in _strings(tree) if re.fullmatch(r"[\w.-]+", text)}
        words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if "__file__" in words:
            for place in (path.parent / name for name in names):
                if place.suffix in DATA_SUFFIXES and place.is_file():
                    yield place.relative_to(self.package).as_posix()
                elif place.is_dir() and not (place / "__init__.py").exists():
                    yield place.relative_to(self.package).as_posix() + "/"
        if "bundled" in words:
            for folder in (name for name in FOLDERS if name in names):
                places = (self.package / "_data" / folder, self.package.parent / folder)
                inside = [name for name in names if any((place / name).is_dir() for place in places)]
                yield from (f"{folder}/{name}/" for name in inside)
                if not inside:
                    yield f"{folder}/"


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree but those that only type checkers look at."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and _is_for_types(node):
            continue
        yield node
        yield from _executed(node)


def _is_for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _strings(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a program but its docstrings; the values in an f-string are left out."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def render(package: Path = ROOT) -> str:
    """Return the text of `code_closures.json` for a package."""
    return json.dumps(Source(package).closures(), indent=1) + "\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(render(), "utf-8")
