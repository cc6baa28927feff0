"""Test a developer's own folder as a source: the files that count, and the build folder that follows it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import macbuild.source.checkout
from macbuild.errors import FileError, PlanError
from macbuild.files import files_below, mirror
from macbuild.source.checkout import checkout_digest, copy_checkout


def filled(folder: Path) -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / "src/a.cc").write_text("int a;\n")
    (folder / "run.sh").write_text("exit 0\n")
    (folder / "link").symlink_to("src/a.cc")
    return folder


def git(folder: Path, *words: str) -> None:
    settings = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *settings, *words], check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path / "one")


def test_same_files_have_one_digest_in_any_folder_at_any_time(folder: Path, tmp_path: Path) -> None:
    other = filled(tmp_path / "elsewhere/two")
    os.utime(other / "src/a.cc", (1, 1))
    assert checkout_digest(folder) == checkout_digest(other)
    assert checkout_digest(folder)[0] == len("int a;\n") + len("exit 0\n") + len("src/a.cc")


def content(folder: Path) -> None:
    (folder / "src/a.cc").write_text("int b;\n")


def mode(folder: Path) -> None:
    (folder / "run.sh").chmod(0o755)


def name(folder: Path) -> None:
    (folder / "src/a.cc").rename(folder / "src/b.cc")


def place(folder: Path) -> None:
    (folder / "src/a.cc").rename(folder / "a.cc")


def target(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to("run.sh")


def kind(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").write_text("src/a.cc")


def more(folder: Path) -> None:
    (folder / "new").touch()


@pytest.mark.parametrize("change", [content, mode, name, place, target, kind, more])
def test_everything_visible_to_a_build_changes_the_digest(folder: Path, change: Callable[[Path], None]) -> None:
    before = checkout_digest(folder)
    change(folder)
    assert checkout_digest(folder) != before


def test_two_files_differ_from_one_with_both_contents(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for each in (one, two):
        each.mkdir()
    (one / "a").write_text("xb\x000644\x001\x00y")
    (two / "a").write_text("x")
    (two / "b").write_text("y")
    assert checkout_digest(one)[1] != checkout_digest(two)[1]


def test_permissions_of_others_are_ignored(folder: Path) -> None:
    before = checkout_digest(folder)
    (folder / "run.sh").chmod(0o600)
    assert checkout_digest(folder) == before


def test_ignored_files_are_left_out_and_untracked_ones_count(folder: Path) -> None:
    plain = checkout_digest(folder)
    git(folder, "init", "-q")
    assert checkout_digest(folder) == plain
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
    assert checkout_digest(folder) == plain
    (folder / ".git/info/exclude").write_text("build/\n")
    (folder / "build").mkdir()
    (folder / "build/a.o").touch()
    assert checkout_digest(folder) == plain
    (folder / "src/new.cc").touch()
    assert checkout_digest(folder) != plain


def test_a_removed_tracked_file_is_left_out(folder: Path) -> None:
    (folder / "src/old.cc").touch()
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    (folder / "src/old.cc").unlink()
    assert checkout_digest(folder) == checkout_digest(filled(folder.with_name("two")))


def test_the_repository_of_a_running_hook_is_ignored(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = filled(tmp_path / "other")
    for each in (folder, other):
        git(each, "init", "-q")
    (folder / ".git/info/exclude").write_text("build/\n")
    before = checkout_digest(folder)
    (folder / "build").mkdir()
    (folder / "build/a.o").touch()
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert checkout_digest(folder) == before


def test_without_git_all_files_except_gits_own_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = checkout_digest(folder)
    git(folder, "init", "-q")
    (folder / ".git/info/exclude").write_text("src/ignored\n")
    (folder / "src/ignored").touch()
    assert checkout_digest(folder) == plain
    monkeypatch.setenv("PATH", str(folder))
    assert checkout_digest(folder) != plain
    (folder / "src/ignored").unlink()
    assert checkout_digest(folder) == plain


def test_a_missing_empty_or_huge_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = folder.with_name("empty")
    (empty / "src").mkdir(parents=True)
    for path, problem in (
        (folder / "missing", "is not a folder"),
        (folder / "run.sh", "is not a folder"),
        (empty, "is empty"),
    ):
        with pytest.raises(PlanError, match=problem) as caught:
            checkout_digest(path)
        assert caught.value.where == str(path)
        assert caught.value.hint == "give the top folder of the component's sources"
    monkeypatch.setattr(macbuild.source.checkout, "_MAX_FILES", 2)
    with pytest.raises(PlanError, match="has 3 files"):
        checkout_digest(folder)


def test_a_copy_has_contents_modes_and_links(folder: Path, tmp_path: Path) -> None:
    (folder / "run.sh").chmod(0o755)
    (folder / "src/__pycache__").mkdir()
    (folder / "src/__pycache__/a.pyc").touch()
    stage = tmp_path / "stage"
    copy_checkout(folder, stage, checkout_digest(folder)[1])
    assert [path.relative_to(stage).as_posix() for path in files_below(stage)] == ["link", "run.sh", "src/a.cc"]
    assert (stage / "link").readlink() == Path("src/a.cc")
    assert os.access(stage / "run.sh", os.X_OK)
    assert not (stage / "src/a.cc").samefile(folder / "src/a.cc")


def test_a_folder_changed_since_the_plan_is_an_error(folder: Path, tmp_path: Path) -> None:
    planned = checkout_digest(folder)[1]
    content(folder)
    with pytest.raises(FileError, match="changed while it was read") as caught:
        copy_checkout(folder, tmp_path / "stage", planned)
    assert (caught.value.where, caught.value.hint) == (str(folder), "run the same command again")


def times(folder: Path) -> dict[str, tuple[int, int]]:
    found = {path.relative_to(folder).as_posix(): path.stat() for path in files_below(folder)}
    return {name: (status.st_ino, status.st_mtime_ns) for name, status in found.items()}


def test_a_mirror_touches_only_files_that_differ(folder: Path, tmp_path: Path) -> None:
    (folder / "src/b.cc").write_text("int b;\n")
    copy = tmp_path / "copy"
    mirror(folder, copy)
    before = times(copy)
    mirror(folder, copy)
    assert times(copy) == before
    (tmp_path / "kept").hardlink_to(copy / "src/a.cc")
    (folder / "src/a.cc").write_text("int c;\n")
    # The source is older than the object compiled from the previous file, as after a return to an older branch.
    os.utime(folder / "src/a.cc", (1, 1))
    mode(folder)
    mirror(folder, copy)
    after = times(copy)
    assert {name for name in before if before[name] != after[name]} == {"src/a.cc", "run.sh", "link"}
    assert (tmp_path / "kept").read_text() == "int a;\n"
    assert after["src/a.cc"][1] > before["src/a.cc"][1]
    assert (copy / "src/a.cc").read_text() == "int c;\n"
    assert os.access(copy / "run.sh", os.X_OK)


def test_a_mirror_removes_files_that_its_original_lost(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    mirror(folder, copy)
    (folder / "src/a.cc").unlink()
    (folder / "src").rmdir()
    (folder / "link").unlink()
    mirror(folder, copy)
    assert [path.name for path in copy.rglob("*")] == ["run.sh"]


@pytest.mark.parametrize("turn", [0, 1])
def test_a_mirror_follows_a_file_that_becomes_a_folder_or_link(tmp_path: Path, turn: int) -> None:
    forms = []
    for index in range(3):
        form = tmp_path / str(index)
        form.mkdir()
        (form / "other").write_text("text")
        forms.append(form)
    (forms[0] / "x").write_text("text")
    (forms[1] / "x/y").mkdir(parents=True)
    (forms[1] / "x/y/z").write_text("text")
    (forms[2] / "x").symlink_to("other")
    copy = tmp_path / "copy"
    for form in (forms[0], *forms[:: (-1) ** turn], forms[0]):
        mirror(form, copy)
        assert {path.relative_to(copy): (path.is_symlink(), path.is_dir()) for path in copy.rglob("*")} == {
            path.relative_to(form): (path.is_symlink(), path.is_dir()) for path in form.rglob("*")
        }
