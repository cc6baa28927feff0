"""Test the patch engine: what an edit matches, what it writes, and that nothing is left half-written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import macbuild.source.patch.record
from macbuild.errors import FileError, PatchError
from macbuild.source.patch.apply import apply_edits, check_edits, edit_text
from macbuild.source.patch.model import Edit, edits_digest
from macbuild.source.patch.record import RECORD, revert_edits
from tests.support.edits import CHECKED, Plain, applied, edit, files, tree


def state_of(tmp_path: Path, text: str, one: Plain) -> tuple[str, str]:
    (report,) = check_edits(tree(tmp_path, a_cc=text), files(one), "macos")
    return report.state, report.message


# Matches of anchors.


@pytest.mark.parametrize(
    "text",
    ["call(a, b);", "call( a,\n     b );", "call(a,\tb)", "call (a, b)"],
)
def test_white_space_in_an_anchor_matches_any_white_space(tmp_path: Path, text: str) -> None:
    assert state_of(tmp_path, text, edit(anchor="call ( a, b", text="x"))[0] == "applied"


def test_white_space_between_words_is_required(tmp_path: Path) -> None:
    assert state_of(tmp_path, "sizetx", edit(anchor="size tx", text="x"))[0] == "missing"


def test_an_anchor_matches_whole_words_only(tmp_path: Path) -> None:
    text = "st.st_mtime st.st_mtim st.st_mtimespec xst_mtim"
    assert applied(tmp_path, text, edit(anchor="st_mtim", text="new")) == b"st.st_mtime st.new st.st_mtimespec xst_mtim"


def test_a_pattern_is_a_regular_expression(tmp_path: Path) -> None:
    assert applied(tmp_path, "a = 12;\nb = 3;\n", edit(pattern=r"^b = \d+", text="c")) == b"a = 12;\nc;\n"


def test_after_starts_the_search_and_the_first_matches_count(tmp_path: Path) -> None:
    text = "int x;\nf()\nint x;\nint x;\n"
    assert applied(tmp_path, text, edit(anchor="int x", after="f()", text="long x")) == (
        b"int x;\nf()\nlong x;\nint x;\n"
    )


def test_after_that_matches_twice_is_an_error(tmp_path: Path) -> None:
    state, message = state_of(tmp_path, "f()\nf()\nx1\n", edit(anchor="x1", after="f()", text="y1"))
    assert state == "missing"
    assert "matches 2 times" in message


# Written text.


def test_replacing_the_text_leaves_the_line(tmp_path: Path) -> None:
    assert applied(tmp_path, "  a(size_t x); // b\n", edit(anchor="size_t", text="long")) == b"  a(long x); // b\n"


def test_replacing_lines_keeps_the_margin_and_the_line_end(tmp_path: Path) -> None:
    one = edit(anchor="old", scope="line", text="new {\n}")
    assert applied(tmp_path, "a\r\n  x old y\r\nb\r\n", one) == b"a\r\n  new {\r\n}\r\nb\r\n"


def test_until_extends_the_match_to_a_region(tmp_path: Path) -> None:
    one = edit(anchor="begin(", until="c)", scope="line", text="ours")
    assert applied(tmp_path, "a\nbegin(\n b\n c)\nd\n", one) == b"a\nours\nd\n"


@pytest.mark.parametrize(
    ("action", "result"),
    [("insert-before", b"a\nnew\n  hit\nb"), ("insert-after", b"a\n  hit\nnew\nb"), ("delete", b"a\nb")],
)
def test_other_actions_apply_to_whole_lines(tmp_path: Path, action: str, result: bytes) -> None:
    text = {} if action == "delete" else {"text": "new"}
    assert applied(tmp_path, "a\n  hit\nb", edit(anchor="hit", action=action, **text)) == result


def test_text_is_inserted_into_a_line(tmp_path: Path) -> None:
    before = edit(name="b", anchor="hit", action="insert-before", scope="text", text="<")
    after = edit(name="a", anchor="hit", action="insert-after", scope="text", text=">")
    assert applied(tmp_path, "x hit y\n", before, after) == b"x <hit> y\n"


def test_a_guard_is_written_for_code_and_for_cmake(tmp_path: Path) -> None:
    code = edit(anchor="hit", action="guard", text="!defined(__APPLE__)")
    assert applied(tmp_path, "a\n  hit\nb\n", code) == b"a\n#if !defined(__APPLE__)\n  hit\n#endif\nb\n"
    cmake = edit(file="CMakeLists.txt", anchor="add_subdirectory(test", action="guard", text="NOT APPLE")
    folder = tree(tmp_path, CMakeLists_txt="  add_subdirectory(test test)\n")
    apply_edits(folder, files(cmake), "macos")
    assert (folder / "CMakeLists.txt").read_text() == "if(NOT APPLE)\n  add_subdirectory(test test)\nendif()\n"


def test_neighbouring_lines_can_be_guarded_by_two_edits(tmp_path: Path) -> None:
    first = edit(name="a", anchor="hit1", action="guard", text="A")
    second = edit(name="b", anchor="hit2", action="guard", text="B")
    assert applied(tmp_path, "hit1\nhit2\n", second, first) == b"#if A\nhit1\n#endif\n#if B\nhit2\n#endif\n"


def test_the_last_line_may_lack_its_end(tmp_path: Path) -> None:
    assert applied(tmp_path, "a\nhit", edit(anchor="hit", action="insert-after", text="new")) == b"a\nhit\nnew"


def test_bytes_that_are_not_utf8_stay_unchanged(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf// caf\xe9 \xff\r\nhit;\r\n"
    assert applied(tmp_path, text, edit(anchor="hit", text="new")) == text.replace(b"hit", b"new")


def test_permissions_stay_and_the_inode_is_new(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="hit")
    path = folder / "a.cc"
    path.chmod(0o755)
    os.link(path, tmp_path / "other")
    apply_edits(folder, files(edit(anchor="hit", text="new")), "macos")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert (tmp_path / "other").read_text() == "hit"


# States.


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ("x hit y", "applied", "line 1"),
        ("x new y", "already-applied", "already"),
        ("x mended y", "not-needed", "'mended' in line 1"),
        ("hit\nhit", "ambiguous", "must match 1 times and matches 2 times, in lines 1, 2"),
        ("nothing", "missing", "not found"),
    ],
)
def test_every_state_says_what_was_found(tmp_path: Path, text: str, state: str, words: str) -> None:
    found, message = state_of(tmp_path, text, edit(anchor="hit", text="new", gone="mended"))
    assert found == state
    assert words in message


def test_a_partly_applied_edit_is_ambiguous(tmp_path: Path) -> None:
    state, message = state_of(tmp_path, "hit new", edit(anchor="hit", matches=2, text="new"))
    assert state == "ambiguous"
    assert "already applied 1 times" in message


def test_new_text_elsewhere_does_not_count_as_applied(tmp_path: Path) -> None:
    state, message = state_of(tmp_path, 'a " " b " "', edit(anchor=':"x "', text='" "'))
    assert state == "missing"
    assert "its new text is there 2 times instead of 1" in message
    assert state_of(tmp_path, "news", edit(anchor="hit", text="new"))[0] == "missing"


def test_a_missing_anchor_shows_similar_lines(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="int main()\nsize_t src_byte_sizes;\n")
    (report,) = check_edits(folder, files(edit(anchor="size_t src_byte_size;", text="x")), "macos")
    assert report.near == ("2: size_t src_byte_sizes;",)


def test_a_missing_file_shows_files_of_the_same_name(tmp_path: Path) -> None:
    (report,) = check_edits(tree(tmp_path, src__a_cc="hit"), files(edit(anchor="hit", text="x")), "macos")
    assert (report.state, report.near) == ("missing", ("src/a.cc",))


def test_the_new_text_may_contain_the_anchor(tmp_path: Path) -> None:
    one = edit(anchor='"/opt/x"', text='ours("/opt/x")')
    assert applied(tmp_path, 'f("/opt/x")', one) == b'f(ours("/opt/x"))'
    (report,) = check_edits(tmp_path / "tree", files(one), "macos")
    assert report.state == "already-applied"
    (tmp_path / "tree" / RECORD).unlink()
    (report,) = check_edits(tmp_path / "tree", files(one), "macos")
    assert report.state == "already-applied"


# All edits or none.


def test_nothing_is_written_if_one_edit_is_bad(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="hit", b_cc="hit")
    good, bad = edit(anchor="hit", text="new"), edit(name="two", file="b.cc", anchor="other", text="new")
    with pytest.raises(PatchError, match=r"1 edits do not fit: two \(b.cc\) is missing") as caught:
        apply_edits(folder, files(good, bad), "macos")
    assert caught.value.exit_code == 21
    assert (folder / "a.cc").read_text() == "hit"
    assert sorted(path.name for path in folder.iterdir()) == ["a.cc", "b.cc"]


def test_a_file_that_cannot_be_written_reverts_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tree(tmp_path, a_cc="hit", b_cc="hit")
    edits = files(edit(anchor="hit", text="new"), edit(name="two", file="b.cc", anchor="hit", text="new"))
    real = Path.replace
    calls = []

    def replace(path: Path, target: Path) -> Path:
        calls.append(target.name)
        if (
            calls.count("a.cc") == 1 and target.name == "a.cc"
        ):  # the second of the two: they are renamed in reverse order
            raise OSError(5, "Input/output error")
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(FileError):
        apply_edits(folder, edits, "macos")
    assert (folder / "a.cc").read_text() == (folder / "b.cc").read_text() == "hit"
    assert "b.cc" in calls
    assert not (folder / RECORD).exists()
    monkeypatch.undo()
    apply_edits(folder, edits, "macos")
    assert (folder / "a.cc").read_text() == (folder / "b.cc").read_text() == "new"


def test_the_next_run_finishes_an_interrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tree(tmp_path, a_cc="hit", b_cc="hit")
    edits = files(edit(anchor="hit", text="new"), edit(name="two", file="b.cc", anchor="hit", text="new"))

    def die(*_: object) -> None:
        (folder / "b.cc").write_text("new")  # one of two files was renamed before a power failure
        raise SystemExit

    monkeypatch.setattr(macbuild.source.patch.apply, "write_members", die)
    with pytest.raises(SystemExit):
        apply_edits(folder, edits, "macos")
    monkeypatch.undo()
    assert [report.state for report in check_edits(folder, edits, "macos")] == ["applied", "already-applied"]
    apply_edits(folder, edits, "macos")
    assert (folder / "a.cc").read_text() == "new"
    revert_edits(folder)
    assert (folder / "a.cc").read_text() == (folder / "b.cc").read_text() == "hit"


def test_two_edits_of_one_place_are_refused(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="a hit b")
    edits = files(edit(anchor="a hit", text="x"), edit(name="two", anchor="hit b", text="y"))
    with pytest.raises(PatchError, match="'one' and 'two' change the same place"):
        check_edits(folder, edits, "macos")


def test_an_edit_that_would_edit_its_own_result_is_refused(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="hit\n")
    edits = files(edit(anchor="hit", text="x\n"), edit(name="two", anchor="hit", action="insert-before", text="hit"))
    with pytest.raises(PatchError, match="after the edit 'one' its anchor is found again"):
        apply_edits(folder, edits, "macos")


# Reapplied and reverted.


def test_the_second_run_changes_nothing(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="a\nhit\nold\n")
    edits = files(edit(anchor="hit", text="new"), edit(name="two", anchor="old", action="delete"))
    record = apply_edits(folder, edits, "macos")
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir()}
    assert apply_edits(folder, edits, "macos") == record
    assert {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir()} == before
    assert [report.state for report in check_edits(folder, edits, "macos")] == ["already-applied"] * 2


def test_more_edits_can_follow_and_all_are_reverted(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="a\nhit\nold\n")
    apply_edits(folder, files(edit(anchor="hit", text="new")), "macos")
    record = apply_edits(folder, files(edit(name="two", anchor="old", action="delete")), "macos")
    assert [done.name for done in record.edits] == ["one", "two"]
    revert_edits(folder)
    assert (folder / "a.cc").read_text() == "a\nhit\nold\n"
    assert not (folder / RECORD).exists()


def test_the_record_has_the_digests_before_and_after(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="hit")
    apply_edits(folder, files(edit(anchor="hit", text="new")), "macos")
    record = json.loads((folder / RECORD).read_text())
    (layer,) = record["files"][0]["layers"]
    assert layer["before"] == macbuild.source.patch.record.sha256(b"hit")
    assert layer["after"] == macbuild.source.patch.record.sha256(b"new")
    assert record["edits"][0]["state"] == "applied"


def test_a_file_changed_since_prevents_any_reverting(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="hit", b_cc="hit")
    apply_edits(
        folder, files(edit(anchor="hit", text="new"), edit(name="two", file="b.cc", anchor="hit", text="new")), "macos"
    )
    (folder / "b.cc").write_text("mine")
    with pytest.raises(PatchError, match=r"changed since the edits were applied: b.cc"):
        revert_edits(folder)
    assert (folder / "a.cc").read_text() == "new"


def test_a_file_changed_since_is_not_edited_further(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="hit old")
    apply_edits(folder, files(edit(anchor="hit", text="new")), "macos")
    (folder / "a.cc").write_text("new old mine")
    with pytest.raises(PatchError, match="changed since edits were applied to it"):
        apply_edits(folder, files(edit(name="two", anchor="old", text="x")), "macos")


def test_a_tree_without_a_record_is_not_reverted(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="no edits were applied"):
        revert_edits(tree(tmp_path, a_cc=""))


WORDS = st.sampled_from(
    ["alpha", "beta", "gamma", "(", ")", ";", " ", "  ", "\t", "\n", "\r\n", "caf\u00e9", "alpha_x"]
)
TEXTS = st.lists(WORDS, max_size=40).map("".join)
ANCHORS = st.sampled_from(["alpha", "beta", "gamma", "alpha beta", "beta (", "gamma ;", "( alpha", ") ;", "alpha_x"])
ACTIONS = st.sampled_from(["replace", "insert-before", "insert-after", "delete", "guard"])


@st.composite
def some_edits(draw: st.DrawFn) -> list[Plain]:
    made = []
    for number in range(draw(st.integers(1, 3))):
        action = draw(ACTIONS)
        keys: Plain = {
            "name": f"e{number}",
            "anchor": draw(ANCHORS),
            "action": action,
            "matches": draw(st.integers(1, 3)),
        }
        if action != "delete":
            keys["text"] = draw(st.sampled_from([f"NEW{number}", f"alpha{number}", f"({number} alpha)", f"x{number};"]))
        if action in {"replace", "insert-before", "insert-after", "delete"}:
            keys["scope"] = draw(st.sampled_from(["text", "line"]))
        if draw(st.booleans()) and action in {"replace", "delete"}:
            keys["until"] = draw(ANCHORS)
        made.append(edit(**keys))
    return made


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS, edits=some_edits())
def test_revert_undoes_apply_and_a_second_apply_does_nothing(text: str, edits: list[Plain], tmp_path: Path) -> None:
    data = text.encode()
    folder = tree(tmp_path, a_cc=data)
    (folder / RECORD).unlink(missing_ok=True)
    try:
        apply_edits(folder, files(*edits), "macos")
    except PatchError:
        assert (folder / "a.cc").read_bytes() == data
        assert not (folder / RECORD).exists()
        return
    once = (folder / "a.cc").read_bytes()
    apply_edits(folder, files(*edits), "macos")
    assert (folder / "a.cc").read_bytes() == once
    if all(one["action"] != "delete" for one in edits):  # whose result leaves no trace
        reports, again = edit_text(once, [msgspec.convert(one, Edit) for one in edits])
        assert {report.state for report in reports} <= {"already-applied", "missing"}
        assert again == once
    revert_edits(folder)
    assert (folder / "a.cc").read_bytes() == data


# Platforms and keys.


def test_edits_for_macos_are_left_out_for_linux(tmp_path: Path) -> None:
    folder = tree(tmp_path, a_cc="hit old")
    edits = files(edit(anchor="hit", text="new"), edit(name="two", anchor="old", text="x", platform="any"))
    apply_edits(folder, edits, "linux")
    assert (folder / "a.cc").read_text() == "hit x"
    with pytest.raises(PatchError, match="unknown platform"):
        apply_edits(folder, edits, "windows")


def test_the_digest_covers_only_what_affects_the_result() -> None:
    one = edit(anchor="hit", text="new")
    base = edits_digest(files(one), "macos")
    assert edits_digest(files({**one, "reason": "other", "checked": [*CHECKED, *CHECKED]}), "macos") == base
    for change in ({"text": "x"}, {"anchor": "hits"}, {"matches": 2}, {"gone": "xy"}, {"file": "b.cc"}):
        assert edits_digest(files({**one, **change}), "macos") != base
    assert edits_digest(files(one, edit(name="two", anchor="x1", text="y")), "linux") == edits_digest([], "linux")
