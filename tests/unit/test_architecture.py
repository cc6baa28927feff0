"""Test that the map of the source tree is right, and that docs and docstrings are in plain English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs/design/architecture.md"
MODULES = ROOT / "docs/reference/modules.md"
PACKAGE = ROOT / "macbuild"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Not the repositories of the synthetic upstream, which stand for other people's code.
SOURCES = sorted(
    path
    for folder in (PACKAGE, ROOT / "bench", ROOT / "recipes", ROOT / "tests")
    for path in folder.rglob("*.py")
    if "repos" not in path.parts
)
# Phrases that a technical writer would not use, with replacements.
PHRASES = {
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\b(to|can|could|cannot|not) be had\b": "available",
    r"\bpassed over\b": "skipped",
    r"\bat hand\b": "this machine",
    r"\blean(s|ed|ing)? on\b": "depends on",
    r"\bshall\b": "must",
    r"\bof no worth\b": "undefined",
    r"\bis no (folder|file|key|option|region|component|reason|number|name|path)\b": "is not a ...",
    r"\bstands? twice\b": "is listed twice",
    r"\btwice for (all|nothing)\b": "repeat for debug output",
    r"\bbring and pin\b": "download",
    r"the machines? (that )?this was written on": "what-is-proved-where.md",
    r"the facts about upstream": "no document that a reader does not have",
}
QUOTED = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
OPENING = re.compile(r"(What|Whether)\b")


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module with their lines."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def phrases(text: str) -> list[str]:
    """Return the phrases of the table that a text contains, each with its replacement."""
    return [
        f"{found[0]!r}: write {better!r}"
        for pattern, better in PHRASES.items()
        if (found := re.search(pattern, text, re.IGNORECASE))
    ]


def test_map_names_every_top_level_package_and_module() -> None:
    tree = MAP.read_text("utf-8").partition("```")[2].partition("```")[0]
    top = {entry for entry in PACKAGE.iterdir() if not entry.name.startswith("_")}
    folders = {f"{entry.name}/" for entry in top if (entry / "__init__.py").is_file()}
    files = {entry.name for entry in top if entry.suffix == ".py"}
    inside = tree.partition("macbuild/")[2].partition("recipes/")[0]
    assert set(re.findall(r"^  (\w+/) ", inside, re.MULTILINE)) == folders
    assert set(re.findall(r"\b\w+\.py\b", inside)) - {"checkout.py"} == files


def test_map_lists_the_layers_that_import_linter_enforces() -> None:
    config = msgspec.toml.decode((ROOT / "pyproject.toml").read_text("utf-8"))
    (contract, *_) = config["tool"]["importlinter"]["contracts"]
    layers = [layer.split(" | ") for layer in contract["layers"] if layer != "__main__"]
    rows = re.findall(r"^\d+\. (.+)$", MAP.read_text("utf-8"), re.MULTILINE)
    assert [re.findall(r"`(\w+)`", row) for row in rows] == layers


def test_every_module_has_one_sentence_in_the_list() -> None:
    text = MODULES.read_text("utf-8")
    sections = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    listed: dict[str, str] = {}
    for folder, rows in zip(sections[::2], sections[1::2], strict=True):
        found = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", rows, re.MULTILINE)
        listed |= {f"{folder}/{name}": line for name, line in found}
    assert set(listed) == {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")}
    assert [name for name, line in listed.items() if not line.strip().endswith(".")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_page_has_no_phrase_of_the_table(page: Path) -> None:
    assert phrases(QUOTED.sub("", page.read_text("utf-8"))) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_docstring_has_no_phrase_of_the_table(path: Path) -> None:
    found = [(line, phrase) for line, text in docstrings(path) for phrase in phrases(QUOTED.sub("", text))]
    found += [(line, text.split("\n")[0]) for line, text in docstrings(path) if OPENING.match(text)]
    assert found == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_modules_and_functions_are_short(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 500
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: length for name, length in lengths.items() if length > 60} == {}
