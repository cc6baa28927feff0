"""Test the project's edits: each is well formed and applies to a text of ours, and every known blocker is addressed."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import jsonschema
import pytest

from macbuild.data import parse_toml
from macbuild.errors import PatchError
from macbuild.recipe.schema import edits_schema
from macbuild.source.patch.apply import apply_edits, check_edits
from macbuild.source.patch.model import Edit, EditFile, load_edits
from macbuild.source.patch.record import revert_edits

ROOT = Path(__file__).parents[3]
PATCHES = ROOT / "patches"
# Repositories of Triton. Recipes of other components explain why those are edited.
UPSTREAM = ("backend", "common", "core", "onnxruntime_backend", "python_backend", "pytorch_backend", "tritonserver")
COMPONENTS = sorted(path.name for path in PATCHES.iterdir() if path.is_dir())
FILES = sorted(PATCHES.glob("*/*.toml"))
EDITS = {(name, edit.name): edit for name in COMPONENTS for file in load_edits(PATCHES / name) for edit in file.edits}
BLOCKED = ROOT / "tests/integration/upstream/blockers.toml"
BLOCKERS = parse_toml(BLOCKED.read_text(), BLOCKED, PatchError)["blockers"]


def identify(path: Path) -> str:
    return path.relative_to(PATCHES).as_posix()


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_edit_files_follow_the_schema(path: Path) -> None:
    jsonschema.validate(parse_toml(path.read_text(), path, PatchError), edits_schema())


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    data = parse_toml(FILES[0].read_text(), FILES[0], PatchError)
    changes: list[dict[str, object]] = [{"schema": 2}, {"edits": []}, {"component": "Core"}, {"more": 1}]
    for change in changes:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**data, **change}, edits_schema())


@pytest.mark.parametrize(("component", "name"), EDITS)
def test_an_edit_quotes_at_most_one_line_of_upstream(component: str, name: str) -> None:
    edit = EDITS[component, name]
    for anchor in (edit.anchor, edit.after, edit.until):
        assert anchor is None or (len(anchor) <= 80 and "\n" not in anchor)
    assert edit.text.count("\n") <= 3
    assert all(re.fullmatch(r"2026-\d\d-\d\d", check.date) for check in edit.checked)


def snippet(edit: Edit) -> str:
    """Return a text of ours with the anchors of an edit, on separate lines and split where white space may be."""
    anchor = (edit.anchor or "").replace(" ", "\n    ")
    once = f"  {anchor}" + (f"\n  middle\n  {edit.until})" if edit.until else "")
    return "\n".join(["ours", *([f"{edit.after} x"] if edit.after else []), *([once] * edit.matches), "ours"]) + "\n"


def texts(files: list[EditFile]) -> dict[str, str]:
    parts: dict[str, str] = defaultdict(str)
    for file in files:
        for edit in file.edits:
            parts[edit.file] += snippet(edit)
    return parts


@pytest.mark.parametrize("component", COMPONENTS)
def test_all_edits_of_a_component_apply_and_revert(component: str, tmp_path: Path) -> None:
    files = load_edits(PATCHES / component)
    before = texts(files)
    for path, text in before.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert {report.state for report in check_edits(tmp_path, files, "macos")} == {"applied"}
    apply_edits(tmp_path, files, "macos")
    for file in files:
        for edit in file.edits:
            for line in edit.text.splitlines():
                assert line in (tmp_path / edit.file).read_text()
    assert {report.state for report in check_edits(tmp_path, files, "macos")} == {"already-applied"}
    revert_edits(tmp_path)
    assert {path: (tmp_path / path).read_text() for path in before} == before


CACHE = """Status CacheEntry::SetBufferSize(Response* response) {
  uint64_t packed_output_byte_size = 0;
  GetByteSize(output, &packed_output_byte_size);
}
Status CacheEntry::SerializeResponses(List responses) {}
Status CacheEntry::SerializeResponse(Response* response, Buffer& buffer) {
  uint64_t packed_output_byte_size = 0;
  SerializeResponseOutput(output, &packed_output_byte_size);
}
"""


def one(component: str, name: str) -> list[EditFile]:
    return [EditFile(schema=1, component=component, edits=[EDITS[component, name]])]


def put(tree: Path, edit: Edit, text: str) -> Path:
    path = tree / edit.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_size_in_core_changes_only_where_size_t_is_needed(tmp_path: Path) -> None:
    path = put(tmp_path, EDITS["core", "cache-entry-size"], CACHE)
    apply_edits(tmp_path, one("core", "cache-entry-size"), "macos")
    lines = path.read_text().splitlines()
    assert (lines[1].strip(), lines[6].strip()) == (
        "uint64_t packed_output_byte_size = 0;",
        "size_t packed_output_byte_size = 0;",
    )


def test_the_size_in_core_is_not_needed_when_upstream_casts(tmp_path: Path) -> None:
    put(
        tmp_path,
        EDITS["core", "cache-entry-size"],
        CACHE.replace("Output(output, &packed_output", "Output(output, reinterpret_cast<size_t*>(&packed_output"),
    )
    (report,) = check_edits(tmp_path, one("core", "cache-entry-size"), "macos")
    assert report.state == "not-needed"


def test_boost_becomes_a_package_for_every_form_of_download(tmp_path: Path) -> None:
    text = """include(ExternalProject)
ExternalProject_Add(
  boostorg
  URL https://example.org/boost.tar.gz
  INSTALL_COMMAND ""
)
set(boostorg_INCLUDE_DIRS "${CMAKE_BINARY_DIR}/boost/")
find_package(ZLIB REQUIRED)
"""
    path = put(tmp_path, EDITS["python_backend", "boost-is-a-package"], text)
    apply_edits(tmp_path, one("python_backend", "boost-is-a-package"), "linux")
    assert path.read_text().splitlines() == [
        "include(ExternalProject)",
        "find_package(Boost 1.78 REQUIRED CONFIG)",
        "link_libraries(Boost::headers)",
        "add_custom_target(boostorg)",
        "find_package(ZLIB REQUIRED)",
    ]


def test_loops_of_the_docker_branch_are_left_alone(tmp_path: Path) -> None:
    text = """  FOREACH(plib ${PT_LIBS} ${LIBTORCH_LIBS})
  ENDFOREACH(plib)
else()
  FOREACH(plib ${PT_LIBS})
  ENDFOREACH(plib)
  FOREACH(plib ${PT_LIBS})
  ENDFOREACH(plib)
"""
    path = put(tmp_path, EDITS["pytorch_backend", "install-no-libtorch"], text)
    apply_edits(tmp_path, one("pytorch_backend", "install-no-libtorch"), "macos")
    assert path.read_text().count('set(PT_LIBS "")\n  FOREACH(plib ${PT_LIBS})\n') == 2


def test_every_edit_addresses_a_blocker() -> None:
    named = {name for blocker in BLOCKERS if blocker["by"] == "edit" for name in blocker["names"]}
    assert named == {f"{component}/{name}" for component, name in EDITS if component in UPSTREAM}


@pytest.mark.parametrize("blocker", BLOCKERS, ids=lambda blocker: blocker["what"])
def test_everything_that_addresses_a_blocker_exists(blocker: dict[str, object]) -> None:
    assert set(blocker) == {"what", "by", "names"}
    flags = {
        rule["flag"]
        for rule in parse_toml((ROOT / "macbuild/build/toolchain/flags.toml").read_text(), "flags", PatchError)["rule"]
    }
    names = blocker["names"]
    assert isinstance(names, list)
    assert names
    for name in names:
        match blocker["by"]:
            case "edit":
                assert tuple(name.split("/")) in EDITS
            case "driver":
                assert name in flags
            case "compat":
                assert (ROOT / "recipes/libraries/macbuild_compat" / name).is_file()
            case other:
                assert other in {"option", "driving"}
