from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import stat
import struct
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from macbuild.errors import ArchiveError, FileError, MacbuildError, NoSpaceError
from macbuild.source.archive.unpack import Limits, unpack

Entry = tuple[str, bytes | str, int]  # name, content or link target, mode with type bits

FILE, LINK, FOLDER = stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777, stat.S_IFDIR | 0o755
MOMENT = (2020, 2, 3, 4, 5, 6)
SECONDS = 1580702706


def make_zip(path: Path, entries: list[Entry], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", method) as archive:
        warnings.simplefilter("ignore")  # about duplicate names
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name, MOMENT)
            info.external_attr = mode << 16
            info.create_system = 3
            info.compress_type = method
            archive.writestr(info, content)
    return path


def make_tar(path: Path, entries: list[Entry], compress: Callable[[bytes], bytes] = bytes) -> Path:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content, mode in entries:
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = stat.S_IMODE(mode), SECONDS
            if stat.S_ISLNK(mode):
                info.type, info.linkname = tarfile.SYMTYPE, str(content)
            elif stat.S_ISDIR(mode):
                info.type = tarfile.DIRTYPE
            elif isinstance(content, bytes):
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    path.write_bytes(compress(stream.getvalue()))
    return path


def tar_of(path: Path, *infos: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for info in infos:
            archive.addfile(info, io.BytesIO(b"x" * info.size))
    return path


def info_of(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


MAKERS = [pytest.param(make_zip, id="zip"), pytest.param(make_tar, id="tar")]
Maker = Callable[[Path, list[Entry]], Path]

GOOD: list[Entry] = [
    ("top/", b"", FOLDER),
    ("top/plain.txt", b"hello\n" * 1000, FILE),
    ("top/run", b"#!/bin/sh\n", stat.S_IFREG | 0o4777),
    ("top/secret", b"s", stat.S_IFREG | 0o400),
    ("top/Versions/A/lib", bytes(range(256)) * 50, FILE),
    ("top/Versions/Current", "A", LINK),
    ("top/lib", "Versions/Current/lib", LINK),
    ("top/ünï.txt", b"", FILE),
]


def refused(archive: Path, tmp_path: Path, limits: Limits | None = None) -> str:
    """Unpack an archive that must be refused, and return the reason; nothing may be left beside it."""
    before = set(tmp_path.iterdir())
    with pytest.raises(ArchiveError) as caught:
        unpack(archive, tmp_path / "out", limits=limits)
    assert set(tmp_path.iterdir()) == before
    assert caught.value.where == str(archive)
    return caught.value.message


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make_zip, id="deflated"),
        pytest.param(lambda path, entries: make_zip(path, entries, zipfile.ZIP_STORED), id="stored"),
        pytest.param(make_tar, id="tar"),
        pytest.param(partial(make_tar, compress=gzip.compress), id="gzip"),
        pytest.param(partial(make_tar, compress=lzma.compress), id="xz"),
        pytest.param(partial(make_tar, compress=bz2.compress), id="bzip2"),
        pytest.param(
            lambda path, entries: make_tar(
                path, entries, lambda data: gzip.compress(data[:700]) + gzip.compress(data[700:])
            ),
            id="gzip in two members",
        ),
    ],
)
def test_all_kinds_of_archives_give_the_same_tree(tmp_path: Path, make: Maker) -> None:
    unpack(make(tmp_path / "name.says.nothing", GOOD), tmp_path / "out")
    top = tmp_path / "out" / "top"
    assert (top / "plain.txt").read_bytes() == b"hello\n" * 1000
    assert (top / "lib").read_bytes() == bytes(range(256)) * 50
    assert (top / "Versions/Current").readlink() == Path("A")
    assert (top / "ünï.txt").read_bytes() == b""
    assert len(list((tmp_path / "out").rglob("*"))) == 10
    modes = {name: stat.S_IMODE((top / name).stat().st_mode) for name in ("plain.txt", "run", "secret", "Versions")}
    assert modes == {"plain.txt": 0o644, "run": 0o755, "secret": 0o600, "Versions": 0o755}
    assert (top / "plain.txt").stat().st_mtime == SECONDS


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "name",
    [
        "../x", "a/../../x", "a/..", "/etc/x", "//x", "c:/x", "C:x", "a\\b", "a\nb", "a\x7fb", "a//b", "a/./b",
        "a/" * 65 + "x", "n" * 256, "d" * 200 + "/" + "/".join(["e" * 200] * 5),
    ],
)  # fmt: skip
def test_a_hostile_name_is_refused(tmp_path: Path, make: Maker, name: str) -> None:
    assert "entry '" in refused(make(tmp_path / "a", [("ok", b"1", FILE), (name, b"2", FILE)]), tmp_path)


def test_an_empty_name_is_refused(tmp_path: Path) -> None:
    assert "empty" in refused(make_zip(tmp_path / "z", [("", b"", FILE)]), tmp_path)
    assert "empty" in refused(tar_of(tmp_path / "t", info_of("")), tmp_path)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "z", [("ü", b"", FILE)])
    archive.write_bytes(archive.read_bytes().replace("ü".encode(), b"\xff\xfe"))
    assert "not UTF-8" in refused(archive, tmp_path)
    archive = tar_of(tmp_path / "t", info_of("abc"))
    data = bytearray(archive.read_bytes())
    data[0] = 0xFF
    data[148:156] = b"%06o\0 " % (sum(data[:148]) + 256 + sum(data[156:512]))
    archive.write_bytes(data)
    assert "not UTF-8" in refused(archive, tmp_path)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([("l", "/etc/passwd", LINK)], id="absolute"),
        pytest.param([("l", "../x", LINK)], id="parent"),
        pytest.param([("d/l", "../../x", LINK)], id="two up"),
        pytest.param([("d/e/here", ".", LINK), ("l", "d/e/here/../../../x", LINK)], id="through a link to itself"),
        pytest.param([("a/b/f", b"", FILE), ("s", "a/b", LINK), ("l", "a/../s/../../../x", LINK)], id="through a link"),
        pytest.param([("one", "two", LINK), ("two", "one", LINK)], id="circle"),
        pytest.param([("me", "me", LINK)], id="to itself"),
        pytest.param([("f", b"", FILE), ("l", "f/x", LINK)], id="through a file"),
        pytest.param([("l", "", LINK)], id="empty"),
        pytest.param([("l", "a\nb", LINK)], id="control character"),
        pytest.param([("d", ".", LINK), ("d/f", b"", FILE)], id="written through a link"),
        pytest.param([("d/f", b"", FILE), ("D", "/tmp", LINK)], id="folder replaced by a link"),
        pytest.param([("a", b"1", FILE), ("a", b"2", FILE)], id="twice"),
        pytest.param([("dir/Readme", b"1", FILE), ("dir/README", b"2", FILE)], id="case"),
        pytest.param([("Dir/a", b"1", FILE), ("dir/b", b"2", FILE)], id="case of a folder"),
        pytest.param([("caf\u00e9", b"1", FILE), ("cafe\u0301", b"2", FILE)], id="normalisation"),
        pytest.param([("\u212a", b"1", FILE), ("k", b"2", FILE)], id="folding to ASCII"),
        pytest.param([("a", b"1", FILE), ("a/b", b"2", FILE)], id="a file as folder"),
        pytest.param([("a/b", b"2", FILE), ("a", b"1", FILE)], id="a folder as file"),
        pytest.param([(".", "x", LINK)], id="the top as link"),
    ],
)  # fmt: skip
def test_contradictory_entries_are_refused(tmp_path: Path, make: Maker, entries: list[Entry]) -> None:
    if make is make_zip and entries[0][1] == "":
        entries = [(entries[0][0], b"", LINK)]
    refused(make(tmp_path / "a", entries), tmp_path)


@pytest.mark.parametrize("make", MAKERS)
def test_links_that_stay_inside_are_kept(tmp_path: Path, make: Maker) -> None:
    entries: list[Entry] = [
        ("a/b/up", "../../c", LINK),
        ("c/f", b"1", FILE),
        ("l", "a/b/up/../c/f", LINK),
        ("no", "not", LINK),
    ]
    unpack(make(tmp_path / "a", entries), tmp_path / "out")
    assert (tmp_path / "out/a/b/up/f").read_bytes() == b"1"
    assert (tmp_path / "out/l").read_bytes() == b"1"


@pytest.mark.parametrize(
    "kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE, b"V", b"Z"]
)
def test_devices_and_special_entries_are_refused(tmp_path: Path, kind: bytes) -> None:
    assert "not supported" in refused(tar_of(tmp_path / "t", info_of("odd", kind)), tmp_path)


def test_a_device_in_a_zip_is_refused(tmp_path: Path) -> None:
    assert "device" in refused(make_zip(tmp_path / "z", [("dev", b"", stat.S_IFCHR | 0o666)]), tmp_path)


def test_hard_links_become_copies_of_files_inside(tmp_path: Path) -> None:
    unpack(tar_of(tmp_path / "t", info_of("d/a", size=5), info_of("b", tarfile.LNKTYPE, "d/a")), tmp_path / "out")
    assert (tmp_path / "out/b").read_bytes() == b"xxxxx"
    assert (tmp_path / "out/b").stat().st_nlink == 1


@pytest.mark.parametrize("target", ["/etc/passwd", "../t", "missing", "link", "later"])
def test_a_hard_link_to_anything_else_is_refused(tmp_path: Path, target: str) -> None:
    link = info_of("link", tarfile.SYMTYPE, "file")
    archive = tar_of(tmp_path / "t", info_of("file"), link, info_of("hard", tarfile.LNKTYPE, target), info_of("later"))
    refused(archive, tmp_path)


def test_hard_links_count_as_bytes(tmp_path: Path) -> None:
    links = [info_of(f"l{number}", tarfile.LNKTYPE, "f") for number in range(30)]
    archive = tar_of(tmp_path / "t", info_of("f", size=10_000), *links)
    assert "more than 200000 bytes" in refused(archive, tmp_path, Limits(total=200_000))


@pytest.mark.parametrize("make", MAKERS)
def test_too_many_entries_are_refused(tmp_path: Path, make: Maker) -> None:
    entries: list[Entry] = [(f"f{number}", b"", FILE) for number in range(11)]
    refused(make(tmp_path / "a", entries), tmp_path, Limits(files=10))
    unpack(make(tmp_path / "b", entries), tmp_path / "out", limits=Limits(files=11))


def test_folders_implied_by_names_count_too(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "z", [(f"{number}/" * 50 + "f", b"", FILE) for number in range(5)])
    assert "more than 100" in refused(archive, tmp_path, Limits(files=100))


@pytest.mark.parametrize(
    "make", [make_zip, partial(make_tar, compress=gzip.compress),
             partial(make_tar, compress=lzma.compress)],
)  # fmt: skip
def test_a_bomb_is_refused(tmp_path: Path, make: Maker) -> None:
    archive = make(tmp_path / "a", [("zeros", bytes(3 << 20), FILE)])
    assert "times its size" in refused(archive, tmp_path, Limits(ratio_floor=1 << 20))
    unpack(archive, tmp_path / "out")


def test_a_bomb_after_the_end_of_a_tar_is_refused(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "a", [("f", b"1", FILE)], lambda data: gzip.compress(data + bytes(3 << 20)))
    refused(archive, tmp_path, Limits(ratio_floor=1 << 20))


@pytest.mark.parametrize("make", MAKERS)
def test_every_truncation_is_refused(tmp_path: Path, make: Maker) -> None:
    whole = make(tmp_path / "whole", GOOD).read_bytes()
    end = len(whole if make is make_zip else whole.rstrip(b"\0"))
    for size in [*range(0, end, 397), end - 1]:
        archive = tmp_path / "cut"
        archive.write_bytes(whole[:size])
        refused(archive, tmp_path)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_every_truncation_of_a_compressed_tar_is_refused(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    whole = make_tar(tmp_path / "whole", GOOD, compress).read_bytes()
    for size in [*range(0, len(whole), 61), len(whole) - 1]:
        (tmp_path / "cut").write_bytes(whole[:size])
        refused(tmp_path / "cut", tmp_path)


@pytest.mark.parametrize(
    "make",
    [make_zip, *(partial(make_tar, compress=c) for c in (bytes, gzip.compress, lzma.compress, bz2.compress))],
    ids=["zip", "tar", "gzip", "xz", "bzip2"],
)  # fmt: skip
def test_bytes_after_the_end_are_refused(tmp_path: Path, make: Maker) -> None:
    archive = make(tmp_path / "a", GOOD)
    archive.write_bytes(archive.read_bytes() + b"garbage")
    refused(archive, tmp_path)


@pytest.mark.parametrize("make", [make_zip, make_tar, partial(make_tar, compress=gzip.compress)])
def test_any_changed_byte_gives_only_our_error(tmp_path: Path, make: Maker) -> None:
    whole = make(tmp_path / "whole", GOOD).read_bytes()
    generator = random.Random(7)
    for number in range(60):
        data = bytearray(whole)
        for _ in range(generator.choice([1, 1, 3])):
            data[generator.randrange(len(data))] = generator.choice([0, 0xFF, 0x80, generator.randrange(256)])
        (tmp_path / "a").write_bytes(data)
        out = tmp_path / f"out{number}"
        try:
            unpack(tmp_path / "a", out)
        except MacbuildError:
            assert not out.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


def test_a_changed_byte_of_content_is_found_by_crc(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "z", [("f", b"content", FILE)], zipfile.ZIP_STORED)
    archive.write_bytes(archive.read_bytes().replace(b"content", b"cOntent"))
    assert "CRC-32" in refused(archive, tmp_path)


def test_a_wrong_size_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "z", [("f", b"a" * 1000, FILE)])
    for claimed in (999, 1001, 0):
        data = archive.read_bytes().replace(struct.pack("<L", 1000), struct.pack("<L", claimed))
        (tmp_path / "lie").write_bytes(data)
        assert "size" in refused(tmp_path / "lie", tmp_path) or claimed == 1001


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    data = bytearray(make_zip(tmp_path / "z", [("f", b"1", FILE)]).read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "z").write_bytes(data)
    assert "encrypted" in refused(tmp_path / "z", tmp_path)


def test_a_header_that_differs_from_the_directory_is_refused(tmp_path: Path) -> None:
    data = make_zip(tmp_path / "z", [("good", b"1", FILE)]).read_bytes().replace(b"good", b"evil", 1)
    (tmp_path / "z").write_bytes(data)
    assert "differs from the directory" in refused(tmp_path / "z", tmp_path)


def test_overlapping_entries_are_refused(tmp_path: Path) -> None:
    data = bytearray(make_zip(tmp_path / "z", [("a", b"same", FILE), ("b", b"same", FILE)]).read_bytes())
    second = data.rindex(b"PK\x01\x02")
    data[second + 42 : second + 46] = bytes(4)
    (tmp_path / "z").write_bytes(data)
    assert "overlaps" in refused(tmp_path / "z", tmp_path)


def test_sizes_beyond_4_gib_are_read_and_refused_by_the_limit(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z", "w") as archive, archive.open("f", "w", force_zip64=True) as file:
        file.write(b"1")
    unpack(tmp_path / "z", tmp_path / "small")
    info = tarfile.TarInfo("big")
    info.size = 20 << 30
    (tmp_path / "t").write_bytes(info.tobuf(tarfile.PAX_FORMAT) + bytes(1024))
    refused(tmp_path / "t", tmp_path)


def test_long_names_of_both_tar_dialects_are_read(tmp_path: Path) -> None:
    name = "d" * 120 + "/" + "f" * 150
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / f"t{form}", "w", format=form) as archive:
            archive.addfile(info_of(name, size=3), io.BytesIO(b"abc"))
            archive.addfile(info_of("l", tarfile.SYMTYPE, name))
        unpack(tmp_path / f"t{form}", tmp_path / f"out{form}")
        assert (tmp_path / f"out{form}" / "l").read_bytes() == b"abc"


def test_a_damaged_header_in_the_middle_is_not_taken_for_the_end(tmp_path: Path) -> None:
    data = bytearray(make_tar(tmp_path / "t", [("a", b"1", FILE), ("b", b"2", FILE)]).read_bytes())
    data[1024 + 3] ^= 1
    (tmp_path / "t").write_bytes(data)
    assert "checksum" in refused(tmp_path / "t", tmp_path)


def test_a_huge_extended_header_is_not_read(tmp_path: Path) -> None:
    info = info_of("x", tarfile.XHDTYPE)
    info.size = 1 << 40
    (tmp_path / "t").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert "too long" in refused(tmp_path / "t", tmp_path)


def test_only_selected_entries_are_unpacked(tmp_path: Path) -> None:
    for make in (make_zip, make_tar):
        entries: list[Entry] = [*GOOD, ("TOP/clash", b"", FILE)]
        unpack(make(tmp_path / "a", entries), tmp_path / make.__name__, select=lambda name: name.endswith("plain.txt"))
        files = [path for path in (tmp_path / make.__name__).rglob("*") if not path.is_dir()]
        assert [path.name for path in files] == ["plain.txt"]


def test_times_are_kept_between_1980_and_now(tmp_path: Path) -> None:
    old, new = info_of("old"), info_of("new")
    old.mtime, new.mtime = -5, 1 << 40
    unpack(tar_of(tmp_path / "t", old, new), tmp_path / "out")
    assert (tmp_path / "out/old").stat().st_mtime == 315532800
    assert (tmp_path / "out/new").stat().st_mtime <= (tmp_path / "t").stat().st_mtime + 60


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"x" * 2000, b"\x28\xb5\x2f\xfd" + bytes(600), gzip.compress(b"y" * 600)):
        (tmp_path / "a").write_bytes(content)
        refused(tmp_path / "a", tmp_path)


def test_an_existing_destination_is_left_alone(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "z", GOOD)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    with pytest.raises(FileError):
        unpack(archive, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_missing_archive_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        unpack(tmp_path / "missing", tmp_path / "out")


@pytest.mark.parametrize("make", MAKERS)
def test_an_exception_in_progress_leaves_nothing(tmp_path: Path, make: Maker) -> None:
    archive = make(tmp_path / "a", [("f", os.urandom(4 << 20), FILE)])

    def cancel(done: int, total: int | None) -> None:
        raise KeyboardInterrupt(done, total)

    with pytest.raises(KeyboardInterrupt):
        unpack(archive, tmp_path / "out", progress=cancel)
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize("make", MAKERS)
def test_progress_ends_at_the_total(tmp_path: Path, make: Maker) -> None:
    calls: list[tuple[int, int | None]] = []
    unpack(make(tmp_path / "a", GOOD), tmp_path / "out", progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1]


def test_a_full_disk_is_no_space_and_leaves_nothing(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "z", [("small", b"1", FILE), ("big", os.urandom(1 << 20), FILE)])
    program = (
        "import resource, signal, sys; from pathlib import Path; from macbuild.errors import NoSpaceError\n"
        "from macbuild.source.archive.unpack import unpack\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "try: unpack(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except NoSpaceError as error: sys.exit(error.exit_code)\n"
    )
    done = subprocess.run([sys.executable, "-B", "-c", program, archive, tmp_path / "out"], check=False)
    assert done.returncode == NoSpaceError.exit_code
    assert list(tmp_path.iterdir()) == [archive]
