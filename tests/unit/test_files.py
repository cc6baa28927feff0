from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from macbuild.cli.app import run
from macbuild.errors import FileError, NoSpaceError, StoreError
from macbuild.files import (
    atomic_path,
    copy_file,
    files_below,
    hash_file,
    os_errors,
    remove_tree,
    translate_oserror,
    tree_size,
    walk,
)
from macbuild.store import Store
from tests.support import machobytes


def test_a_file_appears_whole_and_alone(tmp_path: Path) -> None:
    destination = tmp_path / "new" / "file"
    with atomic_path(destination) as temporary:
        temporary.write_bytes(b"half")
        assert not destination.exists()
        assert temporary.parent == destination.parent
    assert destination.read_bytes() == b"half"
    assert list(destination.parent.iterdir()) == [destination]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    destination = tmp_path / "file"
    destination.write_bytes(b"old")

    def write() -> None:
        with atomic_path(destination) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert destination.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [destination]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with atomic_path(tmp_path / "file"):
            pass
    finally:
        os.umask(old)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_copy_is_a_new_inode_with_the_same_bytes_mode_and_time(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_000))
    source.chmod(0o755)
    os.utime(source, (1_000_000_000, 1_000_000_000))
    (tmp_path / "copy").write_bytes(b"old")
    copy_file(source, tmp_path / "copy")
    before, after = source.stat(), (tmp_path / "copy").stat()
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)
    assert after.st_ino != before.st_ino


def test_missing_source_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        copy_file(tmp_path / "missing", tmp_path / "copy")
    with pytest.raises(FileError):
        hash_file(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_size_and_hash_are_those_of_the_file(tmp_path: Path) -> None:
    data = os.urandom(2_500_000)
    (tmp_path / "file").write_bytes(data)
    calls: list[tuple[int, int | None]] = []
    found = hash_file(tmp_path / "file", lambda done, total: calls.append((done, total)))
    assert found == (len(data), hashlib.sha256(data).hexdigest())
    assert calls[-1] == (len(data), len(data))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_no_space(number: int) -> None:
    error = translate_oserror(OSError(number, os.strerror(number)), "there")
    assert type(error) is NoSpaceError
    assert error.where == "there"
    assert "MACBUILD_CACHE_DIR" not in str(error.hint)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EIO])
def test_every_other_system_error_is_a_file_error(number: int) -> None:
    with pytest.raises(FileError) as caught, os_errors("there"):
        raise OSError(number, os.strerror(number))
    assert type(caught.value) is FileError
    assert os.strerror(number) in str(caught.value)


def test_a_real_full_disk_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(500_000))
    program = (
        "import resource, signal, sys; from pathlib import Path; from macbuild.errors import NoSpaceError\n"
        "from macbuild.files import copy_file\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "try: copy_file(Path(sys.argv[1], 'source'), Path(sys.argv[1], 'copy'))\n"
        "except NoSpaceError as error: sys.exit(error.exit_code)\n"
    )
    done = subprocess.run([sys.executable, "-B", "-c", program, str(tmp_path)], check=False)
    assert done.returncode in {0, NoSpaceError.exit_code}  # 0: the file system shares the blocks and writes nothing
    assert sorted(path.name for path in tmp_path.iterdir()) in (["source"], ["copy", "source"])


def test_trees_without_write_permission_are_removed(tmp_path: Path) -> None:
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/deep/file").touch()
    (tmp_path / "tree/link").symlink_to(tmp_path)
    (tmp_path / "tree/deep").chmod(0o500)
    (tmp_path / "tree").chmod(0o500)
    remove_tree(tmp_path / "tree")
    remove_tree(tmp_path / "tree")
    (tmp_path / "link").symlink_to(tmp_path)
    remove_tree(tmp_path / "link")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [("none/x", "mkdir -p '{folder}/none'"), ("file/x", "use another path")],
)
def test_unwritable_output_is_a_file_error_with_a_remedy(
    tmp_path: Path, name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my work"
    folder.mkdir()
    (folder / "file").touch()
    (folder / "libx.dylib").write_bytes(machobytes.dylib())
    answer = run(["macho", "edit", "--id", "/x", "-o", str(folder / name), str(folder / "libx.dylib")])
    errors = capsys.readouterr().err
    assert answer == FileError.exit_code
    assert str(folder / name) in errors.replace("\n", "")
    assert hint.format(folder=folder) in errors
    assert "MACBUILD_CACHE_DIR" not in errors


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR])
def test_hint_for_files_never_names_the_store(number: int) -> None:
    error = translate_oserror(OSError(number, os.strerror(number)), "there")
    assert "another path" in str(error.hint)
    assert "MACBUILD_CACHE_DIR" not in str(error.hint)


def test_file_errors_inside_the_store_are_store_errors(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    with pytest.raises(StoreError) as caught, store.building("0" * 64, "step") as work:
        hash_file(work / "missing")
    assert "MACBUILD_CACHE_DIR" in str(caught.value.hint)
    with pytest.raises(FileError) as other, store.building("0" * 64, "step"):
        hash_file(tmp_path / "missing")
    assert type(other.value) is FileError


def test_full_disk_inside_the_store_hints_at_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    with pytest.raises(NoSpaceError) as caught, store.building("0" * 64, "step") as work, os_errors(work / "x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "macbuild cache prune" in str(caught.value.hint)


def make_tree(root: Path) -> None:
    for name in ("b/c/deep", "b-b", "a/z", "b/a", "Z"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "empty").mkdir()
    (root / "l").symlink_to("b")
    os.mkfifo(root / "pipe")


def test_walk_sorts_names_and_does_not_follow_links(tmp_path: Path) -> None:
    make_tree(tmp_path)
    found = [(entry.path, entry.kind) for entry in walk(tmp_path)]
    assert found == [
        ("Z", "file"),
        ("a", "folder"),
        ("a/z", "file"),
        ("b", "folder"),
        ("b/a", "file"),
        ("b/c", "folder"),
        ("b/c/deep", "file"),
        ("b-b", "file"),
        ("empty", "folder"),
        ("l", "link"),
        ("pipe", "other"),
    ]
    names = [path.relative_to(tmp_path).as_posix() for path in files_below(tmp_path)]
    assert names == [path for path, kind in found if kind in {"file", "link"}]
    assert tree_size(tmp_path) == sum(len(name) for name, kind in found if kind == "file")


def test_walk_sorts_names_by_their_bytes(tmp_path: Path) -> None:
    # As text, U+1F600 comes after the lone surrogate that represents the byte 0xFF.
    for name in (b"\xff", "\U0001f600".encode()):
        (tmp_path / os.fsdecode(name)).touch()
    assert [os.fsencode(entry.path) for entry in walk(tmp_path)] == ["\U0001f600".encode(), b"\xff"]


def test_walk_skips_names_at_every_depth(tmp_path: Path) -> None:
    make_tree(tmp_path)
    assert [entry.path for entry in walk(tmp_path, skip={"a", "c", "pipe"})] == ["Z", "b", "b-b", "empty", "l"]


def test_walk_of_a_missing_folder_is_an_error_unless_it_changes(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="missing"):
        list(walk(tmp_path / "missing"))
    assert list(walk(tmp_path / "missing", changing=True)) == []
    assert tree_size(tmp_path / "missing") == 0


def test_tree_size_ignores_files_that_disappear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").write_text("12345")
    (tmp_path / "here").write_text("123")
    entries = list(walk(tmp_path))
    (tmp_path / "gone").unlink()
    monkeypatch.setattr("macbuild.files.walk", lambda *_, **__: iter(entries))
    assert tree_size(tmp_path) == 3
