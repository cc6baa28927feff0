from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from macbuild.errors import NoSpaceError, StoreError
from macbuild.files import atomic_path, copy_file, hash_file, os_errors, remove_tree, translate_oserror


def test_a_file_appears_whole_and_alone(tmp_path: Path) -> None:
    destination = tmp_path / "new" / "file"
    with atomic_path(destination) as temporary:
        temporary.write_bytes(b"half")
        assert not destination.exists()
        assert temporary.parent == destination.parent
    assert destination.read_bytes() == b"half"
    assert list(destination.parent.iterdir()) == [destination]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
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


def test_a_copy_is_another_inode_with_the_same_bytes_mode_and_time(tmp_path: Path) -> None:
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


def test_a_missing_source_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        copy_file(tmp_path / "missing", tmp_path / "copy")
    with pytest.raises(StoreError):
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


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EIO])
def test_every_other_error_of_the_system_is_a_store_error(number: int) -> None:
    with pytest.raises(StoreError) as caught, os_errors("there"):
        raise OSError(number, os.strerror(number))
    assert type(caught.value) is StoreError
    assert os.strerror(number) in str(caught.value)


def test_a_real_full_disk_leaves_nothing(tmp_path: Path) -> None:
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


def test_trees_without_write_permission_go_too(tmp_path: Path) -> None:
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
