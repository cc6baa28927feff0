from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import shutil
import stat
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from macbuild.epoch import DEFAULT_EPOCH, source_date_epoch
from macbuild.errors import ArchiveError, ConfigError, FileError, IntegrityError
from macbuild.package.gunzip import GzipReader
from macbuild.package.gzip import BLOCK, WINDOW, gzip_stream
from macbuild.package.manifest import FileRecord, record_tree
from macbuild.package.tarball import pack, verify_tarball

TOP = "libx-1.0-macos-arm64"


def make_tree(root: Path, *, backwards: bool = False) -> Path:
    files: dict[str, tuple[bytes, int]] = {
        "lib/libx.1.dylib": (random.Random(1).randbytes(100_000) + bytes(2 * BLOCK), 0o755),
        "include/x.h": (b"#pragma once\n" * 100, 0o644),
        "include/x/deep.h": (b"", 0o600),
        "include/x-more.h": (b"int x;\n", 0o664),
        "bin/tool": (b"#!/bin/sh\n", 0o711),
        "a/" + "long/" * 30 + "name.h": (b"deep", 0o644),
        "b/" + "n" * 120: (b"no place to cut", 0o644),
        "doc/größe.txt": ("größe".encode(), 0o644),
        "block": (bytes(512), 0o644),
    }
    for path, (data, mode) in sorted(files.items(), reverse=backwards):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        (root / path).chmod(mode)
        os.utime(root / path, (1, random.Random(path + str(backwards)).randrange(2**31)))
    (root / "lib/libx.dylib").symlink_to("libx.1.dylib")
    (root / "lib/headers").symlink_to("../include")
    (root / "empty").mkdir(mode=0o700)
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


def pack_bytes(tree: Path, output: Path, jobs: int = 2, epoch: int = DEFAULT_EPOCH) -> bytes:
    pack(tree, output, top=TOP, epoch=epoch, jobs=jobs)
    return output.read_bytes()


def records(tree: Path) -> dict[str, FileRecord]:
    return {record.path: record for record in record_tree(tree, 2)}


def test_bytes_do_not_depend_on_the_number_of_threads(tree: Path, tmp_path: Path) -> None:
    assert len({pack_bytes(tree, tmp_path / f"{jobs}.tar.gz", jobs) for jobs in (1, 2, 5)}) == 1


def test_bytes_do_not_depend_on_how_the_tree_was_made(tree: Path, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        other = make_tree(tmp_path / "elsewhere" / "other", backwards=True)
        data = pack_bytes(other, tmp_path / "b.tar.gz")
    finally:
        os.umask(old)
    (tmp_path / "outside").hardlink_to(other / "block")
    assert pack_bytes(tree, tmp_path / "a.tar.gz") == data
    assert pack_bytes(other, tmp_path / "b.tar.gz") == data


def test_hard_links_become_separate_files(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_bytes(b"same")
    (tmp_path / "tree/b").hardlink_to(tmp_path / "tree/a")
    pack(tmp_path / "tree", tmp_path / "x.tar.gz", top=TOP, epoch=0, jobs=1)
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        assert [(item.name, item.isreg(), item.size) for item in archive][1:] == [
            (f"{TOP}/a", True, 4),
            (f"{TOP}/b", True, 4),
        ]


def test_tarfile_reads_the_packed_tree(tree: Path, tmp_path: Path) -> None:
    pack_bytes(tree, tmp_path / "x.tar.gz", epoch=1700000000)
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        members = archive.getmembers()
        names = [member.name for member in members]
        for member in members:
            source = tree / member.name[len(TOP) + 1 :]
            info = source.lstat()
            assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", 1700000000)
            if member.issym():
                assert member.linkname == str(source.readlink())
            elif member.isreg():
                content = archive.extractfile(member)
                assert content is not None
                assert content.read() == source.read_bytes()
                assert member.mode == (0o755 if info.st_mode & stat.S_IXUSR else 0o644)
            else:
                assert member.isdir()
                assert member.mode == 0o755
    below = {str(path.relative_to(tree.parent)).replace("tree", TOP, 1) for path in tree.rglob("*")}
    assert set(names) == below | {TOP}
    assert [name.encode() for name in names] == sorted(name.encode() for name in names)
    assert names.index(f"{TOP}/include/x-more.h") < names.index(f"{TOP}/include/x/deep.h")


def test_pax_headers_are_written_only_where_needed(tree: Path, tmp_path: Path) -> None:
    pack_bytes(tree, tmp_path / "x.tar.gz")
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        extended = {member.name for member in archive if member.pax_headers}
    assert extended == {f"{TOP}/b/" + "n" * 120, f"{TOP}/doc/größe.txt"}


@pytest.mark.parametrize("length", [*range(95, 105), 120, 153, 154, 155, 156, 157, 240, 254, 255, 256, 257, 300])
def test_paths_and_links_of_every_critical_length_survive(tmp_path: Path, length: int) -> None:
    tree = tmp_path / "tree"
    rest = length - len(TOP) - 1
    flat = "f" * min(rest, 200)
    deep = ("d" * 49 + "/") * (rest // 50) + "e" * (rest % 50)
    for path in {flat, deep.rstrip("/")}:
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text("x")
    target = "./" * ((length - len(flat)) // 2) + flat
    os.symlink(target, tree / "link")
    (tree / ("folder" + "g" * max(0, min(rest, 200) - 6))).mkdir(exist_ok=True)
    pack(tree, tmp_path / "x.tar.gz", top=TOP, epoch=0, jobs=1)
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        names = {member.name for member in archive}
        links = {member.linkname for member in archive if member.issym()}
    assert names == {TOP} | {f"{TOP}/{path.relative_to(tree)}" for path in tree.rglob("*")}
    assert links == {target}
    verify_tarball(tmp_path / "x.tar.gz", records(tree), top=TOP)


def test_gnu_tar_and_gzip_accept_it_without_a_warning(tree: Path, tmp_path: Path) -> None:
    pack_bytes(tree, tmp_path / "x.tar.gz")
    assert subprocess.run(["gzip", "-t", tmp_path / "x.tar.gz"], check=True, capture_output=True).stderr == b""
    out = tmp_path / "out"
    out.mkdir()
    done = subprocess.run(["tar", "xzf", tmp_path / "x.tar.gz", "-C", out], check=True, capture_output=True)
    assert done.stderr == b""
    assert records(out / TOP) == records(tree)


@pytest.mark.parametrize("size", [0, 1, WINDOW, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + WINDOW + 3])
def test_gzip_stream_is_one_plain_member_for_every_size(tmp_path: Path, size: int) -> None:
    data = (b"macbuild " * (size // 9 + 1))[:size]
    with (tmp_path / "x.gz").open("wb") as file, gzip_stream(file, 2) as stream:
        for at in range(0, size, 700_001):
            stream.write(data[at : at + 700_001])
    packed = (tmp_path / "x.gz").read_bytes()
    assert packed[:10] == bytes.fromhex("1f8b08000000000000ff")
    decoder = zlib.decompressobj(31)
    assert decoder.decompress(packed) == data
    assert decoder.eof
    assert decoder.unused_data == b""
    with (tmp_path / "x.gz").open("rb") as source:
        reader = GzipReader(source)
        assert b"".join(iter(lambda: reader.read(100_000), b"")) == data


def test_blocks_are_compressed_with_the_window_before_them(tmp_path: Path) -> None:
    noise = random.Random(3).randbytes(WINDOW // 2)
    with (tmp_path / "x.gz").open("wb") as file, gzip_stream(file, 2) as stream:
        stream.write(noise * (2 * BLOCK // len(noise)))
    assert (tmp_path / "x.gz").stat().st_size < 2 * len(noise)


def refused(tree: Path, output: Path) -> str:
    with pytest.raises(ArchiveError) as caught:
        pack(tree, output, top=TOP, epoch=0, jobs=1)
    assert not output.exists()
    assert list(output.parent.glob(".*.tmp")) == []
    with pytest.raises(ArchiveError):
        record_tree(tree, 1)
    return str(caught.value)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/etc/passwd", "not a relative path"),
        ("../../outside", "leads out"),
        ("../tree-beside", "leads out"),
        ("lib/../../outside", "leads out"),
        ("lib/deep/../../../tree-beside", "leads out"),
        ("nothing", "does not exist"),
        ("link", "does not exist"),
        ("new\nline", "not a relative path"),
    ],
)
def test_links_that_leave_the_tree_or_are_broken_are_refused(
    tree: Path, tmp_path: Path, target: str, reason: str
) -> None:
    (tmp_path / "tree-beside").mkdir()
    (tmp_path.parent / "outside").touch()
    (tree / "lib/deep").symlink_to("../include/x", target_is_directory=True)
    (tree / "link").symlink_to(target)
    message = refused(tree, tmp_path / "x.tar.gz")
    assert message.startswith("link: ")
    assert reason in message


def test_special_files_are_refused(tree: Path, tmp_path: Path) -> None:
    os.mkfifo(tree / "special")
    assert refused(tree, tmp_path / "x.tar.gz") == "special: is neither a file, a folder nor a link"


@pytest.mark.parametrize("name", [b"new\nline", b"latin\xe9", b"bell\x07"])
def test_unprintable_names_are_refused(tree: Path, tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).touch()
    assert "not printable UTF-8" in refused(tree, tmp_path / "x.tar.gz")


@pytest.mark.parametrize(("first", "second"), [("Read.me", "read.me"), ("a\u0308", "\u00e4"), ("Lib2/a", "lib2/b")])
def test_names_that_are_one_on_macos_are_refused(tree: Path, tmp_path: Path, first: str, second: str) -> None:
    for name in (first, second):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).touch()
    assert "where case does not count" in refused(tree, tmp_path / "x.tar.gz")


def test_file_that_changes_its_size_during_packing_is_noticed(tree: Path, tmp_path: Path) -> None:
    library = tree / "lib/libx.1.dylib"
    for size in (BLOCK, 9 * BLOCK):

        def change(done: int, total: int | None, size: int = size) -> None:
            del total
            if done < BLOCK:
                os.truncate(library, size)

        with pytest.raises(IntegrityError, match="changed while it was packed"):
            pack(tree, tmp_path / "x.tar.gz", top=TOP, epoch=0, jobs=1, progress=change)
        assert [path.name for path in tmp_path.iterdir()] == ["tree"]
        shutil.rmtree(tree)
        make_tree(tree)


def test_progress_ends_at_the_sum_of_the_sizes(tree: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    pack(tree, tmp_path / "x.tar.gz", top=TOP, epoch=0, jobs=2, progress=lambda done, total: seen.append((done, total)))
    size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file() and "headers" not in path.parts)
    size -= (tree / "lib/libx.dylib").stat().st_size
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_failed_pack_keeps_the_old_artifact(tree: Path, tmp_path: Path) -> None:
    old = pack_bytes(tree, tmp_path / "x.tar.gz")
    os.mkfifo(tree / "special")
    with pytest.raises(ArchiveError):
        pack_bytes(tree, tmp_path / "x.tar.gz")
    assert (tmp_path / "x.tar.gz").read_bytes() == old


def test_missing_tree_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="missing"):
        pack(tmp_path / "missing", tmp_path / "x.tar.gz", top=TOP, epoch=0, jobs=1)


def test_verify_accepts_the_packed_tree(tree: Path, tmp_path: Path) -> None:
    pack_bytes(tree, tmp_path / "x.tar.gz")
    verify_tarball(tmp_path / "x.tar.gz", records(tree), top=TOP)


def repack(source: Path, change: Callable[[tarfile.TarFile, tarfile.TarInfo, bytes], None]) -> None:
    with tarfile.open(source) as archive:
        members = [(item, f.read() if (f := archive.extractfile(item)) and item.isreg() else b"") for item in archive]
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for member, data in members:
            change(archive, member, data)
    compress(source, plain.getvalue())


def compress(path: Path, data: bytes) -> None:
    with path.open("wb") as file, gzip_stream(file, 1) as stream:
        stream.write(data)


def add(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def changed_content(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    add(archive, member, data.replace(b"pragma", b"Pragma", 1) if member.name.endswith("include/x.h") else data)


def changed_size(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    add(archive, member, data + b" " if member.name.endswith("include/x.h") else data)


def changed_mode(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    member.mode = 0o755 if member.name.endswith("include/x.h") else member.mode
    add(archive, member, data)


def changed_link(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    member.linkname = "other" if member.name.endswith("libx.dylib") else member.linkname
    add(archive, member, data)


def file_for_link(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    member.type = tarfile.REGTYPE if member.name.endswith("libx.dylib") else member.type
    add(archive, member, data)


def device(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    member.type = tarfile.CHRTYPE if member.name.endswith("include/x.h") else member.type
    add(archive, member, data)


def open_folder(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    member.mode = 0o777 if member.isdir() else member.mode
    add(archive, member, data)


def missing(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    if not member.name.endswith("include/x.h"):
        add(archive, member, data)


def twice(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    add(archive, member, data)
    if member.name.endswith("include/x.h"):
        add(archive, member, data)


def unexpected(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    add(archive, member, data)
    if member.name.endswith("include/x.h"):
        member.name += "x"
        add(archive, member, data)


def outside(archive: tarfile.TarFile, member: tarfile.TarInfo, data: bytes) -> None:
    member.name = "../x.h" if member.name.endswith("include/x.h") else member.name
    add(archive, member, data)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed_content, r"include/x\.h: differs from what was packed in sha256$"),
        (changed_size, r"include/x\.h: differs from what was packed in size, sha256$"),
        (changed_mode, r"include/x\.h: differs from what was packed in mode$"),
        (changed_link, r"libx\.dylib: differs from what was packed in link$"),
        (file_for_link, r"libx\.dylib: differs from what was packed in"),
        (device, r"include/x\.h: is neither a file"),
        (open_folder, r"is a folder of mode 0777$"),
        (missing, r"include/x\.h: is missing$"),
        (twice, r"include/x\.h: is listed twice$"),
        (unexpected, r"include/x\.hx: is not one of the files that were packed$"),
        (outside, r"\.\./x\.h: does not lie in"),
    ],
)
def test_verify_names_what_differs(
    tree: Path, tmp_path: Path, change: Callable[[tarfile.TarFile, tarfile.TarInfo, bytes], None], reason: str
) -> None:
    pack_bytes(tree, tmp_path / "x.tar.gz")
    repack(tmp_path / "x.tar.gz", change)
    with pytest.raises(IntegrityError, match=reason):
        verify_tarball(tmp_path / "x.tar.gz", records(tree), top=TOP)


def test_verify_rejects_every_truncation_and_relevant_change(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/f").write_bytes(b"the content of a small file " * 20)
    data = pack_bytes(tmp_path / "tree", tmp_path / "x.tar.gz")
    expected = records(tmp_path / "tree")
    path = tmp_path / "x.tar.gz"
    changed = [data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :] for at in range(len(data)) for bit in (1, 128)]
    # A few bits of deflate data have no meaning; Python's own zlib decides. The header is always the same.
    harmless = [item for item in changed if item[:10] == data[:10] and inflates_to(item, gzip.decompress(data))]
    assert len(harmless) < len(changed) / 20
    for damaged in [data[:size] for size in range(len(data))] + [data + b"\0", data + data]:
        path.write_bytes(damaged)
        with pytest.raises(IntegrityError):
            verify_tarball(path, expected, top=TOP)
    for damaged in changed:
        path.write_bytes(damaged)
        with contextlib.nullcontext() if damaged in harmless else pytest.raises(IntegrityError):
            verify_tarball(path, expected, top=TOP)


def inflates_to(data: bytes, expected: bytes) -> bool:
    try:
        return gzip.decompress(data) == expected
    except (OSError, EOFError, zlib.error):
        return False


def test_verify_rejects_a_file_that_is_not_a_tar(tmp_path: Path) -> None:
    compress(tmp_path / "x.tar.gz", b"no tar archive " * 100)
    with pytest.raises(IntegrityError, match="not a well-formed tar archive"):
        verify_tarball(tmp_path / "x.tar.gz", {}, top=TOP)


def test_epoch_has_a_fixed_default_and_is_in_whole_seconds() -> None:
    assert source_date_epoch({}) == 315532800
    assert source_date_epoch({"SOURCE_DATE_EPOCH": "0"}) == 0
    assert source_date_epoch({"SOURCE_DATE_EPOCH": "1700000000"}) == 1700000000
    assert source_date_epoch({"SOURCE_DATE_EPOCH": "4354819199"}) == 4354819199


@pytest.mark.parametrize("text", ["", " ", "-1", "1.5", "0x10", "1e9", "\u0661", " 1", "4354819200", "9" * 30, "today"])
def test_bad_epoch_is_an_error_that_names_the_variable(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        source_date_epoch({"SOURCE_DATE_EPOCH": text})
    assert caught.value.where == "SOURCE_DATE_EPOCH"
    assert repr(text[:40]) in caught.value.message
