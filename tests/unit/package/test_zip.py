from __future__ import annotations

import random
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from macbuild.errors import ArchiveError, IntegrityError
from macbuild.package.zip import ZipMember, read_zip, write_zip

MEMBERS = [
    ZipMember("a/lib.so", random.Random(1).randbytes(1000) + bytes(300_000), 0o755),
    ZipMember("a/noise.bin", random.Random(2).randbytes(5000)),
    ZipMember("a/größe.txt", b"text " * 100),
    ZipMember("empty.txt", b""),
]


def make(path: Path, members: list[ZipMember] = MEMBERS, *, epoch: int = 315532800, jobs: int = 2) -> bytes:
    write_zip(path, members, epoch=epoch, jobs=jobs)
    return path.read_bytes()


def test_zipfile_reads_all_members_in_the_written_order(tmp_path: Path) -> None:
    make(tmp_path / "x.zip", epoch=1700000001)
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.testzip() is None
        infos = archive.infolist()
        assert [(info.filename, archive.read(info), info.external_attr >> 16) for info in infos] == [
            (member.name, member.data, 0o100000 | member.mode) for member in MEMBERS
        ]
        assert {info.date_time for info in infos} == {(2023, 11, 14, 22, 13, 20)}
        methods = [info.compress_type for info in infos]
    assert methods == [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED]
    assert list(read_zip(tmp_path / "x.zip")) == MEMBERS


def test_zipfile_command_finds_no_error(tmp_path: Path) -> None:
    make(tmp_path / "x.zip")
    done = subprocess.run(
        [sys.executable, "-m", "zipfile", "-t", tmp_path / "x.zip"], check=True, capture_output=True, text=True
    )
    assert done.stdout == "Done testing\n"


def test_bytes_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    assert len({make(tmp_path / "x.zip", jobs=jobs) for jobs in (1, 2, 5)}) == 1


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (0, (1980, 1, 1, 0, 0, 0)),
        (315532799, (1980, 1, 1, 0, 0, 0)),
        (315532800, (1980, 1, 1, 0, 0, 0)),
        (4354819199, (2107, 12, 31, 23, 59, 58)),
    ],
)
def test_times_outside_the_format_become_the_nearest(tmp_path: Path, epoch: int, expected: tuple[int, ...]) -> None:
    make(tmp_path / "x.zip", epoch=epoch)
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert {info.date_time for info in archive.infolist()} == {expected}


def test_empty_archive_is_valid(tmp_path: Path) -> None:
    make(tmp_path / "x.zip", [])
    assert list(read_zip(tmp_path / "x.zip")) == []


def test_too_large_contents_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    for members in ([ZipMember("n" * 70_000, b"")], [ZipMember(str(number), b"") for number in range(0xFFFF)]):
        with pytest.raises(ArchiveError, match="more than fits"):
            write_zip(tmp_path / "x.zip", members, epoch=0, jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_always_an_expected_error(tmp_path: Path) -> None:
    data = make(tmp_path / "x.zip", [ZipMember("a.txt", b"some text " * 20), ZipMember("b.bin", b"stored")])
    for at in range(len(data)):
        (tmp_path / "x.zip").write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        try:
            found = list(read_zip(tmp_path / "x.zip"))
        except IntegrityError:
            continue
        # zipfile does not compare times, names, modes and the number of members. RECORD and the stage's records do.
        assert {member.data for member in found} <= {b"some text " * 20, b"stored"}
    for size in range(len(data)):
        (tmp_path / "x.zip").write_bytes(data[:size])
        with pytest.raises(IntegrityError):
            list(read_zip(tmp_path / "x.zip"))


def test_links_and_duplicate_names_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "x.zip", [ZipMember("a", b"1"), ZipMember("a", b"2")])
    with pytest.raises(IntegrityError, match="is listed twice"):
        list(read_zip(tmp_path / "x.zip"))
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "target")
    with pytest.raises(IntegrityError, match="not a plain file"):
        list(read_zip(tmp_path / "x.zip"))


def test_encrypted_member_is_an_expected_error(tmp_path: Path) -> None:
    data = bytearray(make(tmp_path / "x.zip", [ZipMember("a", b"1")]))
    for signature, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        struct.pack_into("<H", data, data.index(signature) + at, 1)
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(IntegrityError, match="encrypted"):
        list(read_zip(tmp_path / "x.zip"))
