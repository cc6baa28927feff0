"""Test edits derived from a changed tree: the shortest anchors, the new text, and nothing else of the original."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macbuild.data import parse_toml
from macbuild.errors import FileError, PatchError
from macbuild.source.patch.apply import edit_text
from macbuild.source.patch.model import EditCheck, EditFile, load_edits
from macbuild.source.patch.new import changed_files, derive, make_edits, to_toml

CHECK = EditCheck(version="r1", file="demo", date="2026-11-21", how="read")
OLD = """#include <thing.h>

int
first(int count)
{
  std::ifstream input("/proc/stat");
  return 0;
}

int
second(int count)
{
  size_t amount = 0;
  return 0;
}
"""


def made(new: str, old: str = OLD) -> EditFile:
    return make_edits({"a.cc": (old.encode(), new.encode())}, "demo", "mine", "so", CHECK)


def only(new: str, old: str = OLD) -> dict[str, object]:
    (plain,) = derive("a.cc", old.encode(), new.encode())
    return plain


def test_a_changed_word_becomes_a_short_anchor_in_its_line() -> None:
    assert only(OLD.replace("size_t amount", "uint64_t amount")) == {
        "anchor": "size_t amount",
        "action": "replace",
        "text": "uint64_t amount",
    }


def test_a_new_line_is_inserted_beside_a_unique_line() -> None:
    assert only(OLD.replace("<thing.h>\n", "<thing.h>\n#include <ours.h>\n")) == {
        "anchor": "#include",
        "action": "insert-after",
        "text": "#include <ours.h>\n",
    }


def test_a_repeated_line_is_found_after_a_unique_one() -> None:
    changed = OLD[: OLD.rindex("0;")] + "1;\n}\n"
    plain = only(changed)
    assert (plain["after"], plain["anchor"], plain["text"]) == ("amount =", "return 0;", "return 1;")


def test_removed_lines_are_named_by_the_first_and_the_last() -> None:
    assert only(OLD.replace("int\nfirst(int count)\n{\n", "long first() {\n")) == {
        "after": "#include",
        "anchor": "int",
        "until": "{",
        "action": "replace",
        "scope": "line",
        "text": "long first() {",
    }
    assert only(OLD.replace("first(int count)\n{\n", "")) == {
        "anchor": "first(int",
        "until": "{",
        "action": "delete",
    }


def test_a_change_without_an_identifying_line_is_refused() -> None:
    old = "a;\n" * 60
    with pytest.raises(PatchError, match="no text on its line identifies this place") as caught:
        made("a;\n" * 30 + "b;\n" + "a;\n" * 30, old)
    assert "a.cc:31" in str(caught.value)


def test_lines_of_the_original_do_not_become_part_of_an_edit() -> None:
    with pytest.raises(PatchError, match="holds a line of the original: 'std::ifstream input"):
        made(OLD + '  std::ifstream input("/proc/stat");\n')


def test_a_file_that_is_not_text_is_refused() -> None:
    with pytest.raises(PatchError, match="not UTF-8"):
        derive("a.cc", b"\xff", b"x")


def test_derived_edits_are_readable_and_make_the_change(tmp_path: Path) -> None:
    new = OLD.replace("size_t amount", "uint64_t amount").replace(
        "#include <thing.h>", '#include <thing.h>\n// "q" \'\\'
    )
    file = made(new)
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(file))
    assert load_edits(path) == [file]
    assert list(parse_toml(path.read_text(), path, PatchError)["edits"][0])[:3] == ["name", "file", "anchor"]
    assert [edit.name for edit in file.edits] == ["mine-1", "mine-2"]
    assert file.edits[0].checked[0].file == "demo a.cc"
    assert edit_text(OLD.encode(), file.edits)[1] == new.encode()


LINES = st.sampled_from([f"  line_{name}({name});" for name in "abcdefgh"] + ["{", "}", "", "same_line_here();"])


@settings(max_examples=150, deadline=None)
@given(old=st.lists(LINES, min_size=1, max_size=12), data=st.data())
def test_any_derived_edit_makes_the_change_or_is_refused(old: list[str], data: st.DataObject) -> None:
    new = list(old)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(new)))
        ours = data.draw(st.sampled_from(["ours_1();", "ours_2(x);", "  line_a(ours);"]))
        match data.draw(st.sampled_from(["insert", "delete", "change"])):
            case "insert":
                new.insert(place, ours)
            case "delete":
                del new[place : place + 2]
            case _:
                new[place : place + 1] = [ours]
    before, after = ("\n".join(lines).encode() + b"\n" for lines in (old, new))
    if before == after:
        return
    try:
        file = make_edits({"a.cc": (before, after)}, "demo", "mine", "so", CHECK)
    except PatchError:
        return
    assert edit_text(before, file.edits)[1] == after
    assert edit_text(after, file.edits)[1] == after


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(folder), *words],
        check=True,
        capture_output=True,
    )


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src/a b.cc").write_text(OLD)
    (folder / "same.cc").write_text(OLD)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_git_reports_changes_in_a_subfolder_too(work_tree: Path) -> None:
    (work_tree / "src/a b.cc").write_text("new")
    assert changed_files(work_tree) == {"src/a b.cc": (OLD.encode(), b"new")}
    git(work_tree, "add", ".")
    assert changed_files(work_tree / "src") == {"a b.cc": (OLD.encode(), b"new")}


def test_a_pristine_folder_reports_changes_too(work_tree: Path, tmp_path: Path) -> None:
    pristine = tmp_path / "pristine"
    (pristine / "src").mkdir(parents=True)
    (pristine / "same.cc").write_text(OLD)
    (pristine / "src/a b.cc").write_text("old")
    assert changed_files(work_tree, pristine) == {"src/a b.cc": (b"old", OLD.encode())}


def test_changes_that_edits_cannot_express_are_refused(work_tree: Path, tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="nothing was changed"):
        changed_files(work_tree)
    (work_tree / "same.cc").unlink()
    with pytest.raises(PatchError, match="added, removed"):
        changed_files(work_tree)
    with pytest.raises(FileError, match="none"):
        changed_files(work_tree, tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PatchError, match="was added"):
        changed_files(work_tree, tmp_path / "empty")
    with pytest.raises(PatchError, match="git"):
        changed_files(tmp_path)
