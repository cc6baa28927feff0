"""Make small archives for the seeds: valid ones of each kind, and hand-made hostile ones."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Sequence

Entry = tuple[str, bytes | str, int]
FILE, LINK, FOLDER = stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777, stat.S_IFDIR | 0o755
SOUND: Sequence[Entry] = (("a/", b"", FOLDER), ("a/b", b"hello" * 9, FILE), ("a/c", "b", LINK), ("ü", b"", FILE))


def make_zip(entries: Sequence[Entry], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Write a zip archive."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
        warnings.simplefilter("ignore")  # about a duplicate name
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name, (2020, 2, 3, 4, 5, 6))
            info.external_attr, info.create_system, info.compress_type = mode << 16, 3, method
            archive.writestr(info, content)
    return stream.getvalue()


def make_tar(entries: Sequence[Entry], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Write a tar archive, without the padding to 10 kB."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for name, content, mode in entries:
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = stat.S_IMODE(mode), 1580702706
            if stat.S_ISLNK(mode):
                info.type, info.linkname = tarfile.SYMTYPE, str(content)
            elif stat.S_ISDIR(mode):
                info.type = tarfile.DIRTYPE
            elif isinstance(content, bytes):
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
        end = archive.offset
    return stream.getvalue()[: end + 1024]


def raw_tar(*entries: tuple[str, bytes, str, int]) -> bytes:
    """Write headers of any type: name, type flag, link target, size that the header claims (no content follows)."""
    data = b""
    for name, flag, target, size in entries:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = flag, target, size
        data += info.tobuf(tarfile.GNU_FORMAT)
    return data + bytes(1024)


def patched(data: bytes, magic: bytes, offset: int, value: bytes) -> bytes:
    """Overwrite bytes after the first occurrence of a magic number."""
    at = data.index(magic) + offset
    return data[:at] + value + data[at + len(value) :]


def archives() -> dict[str, bytes]:
    """Return all archives by descriptive names."""
    tar, plain = make_tar(SOUND), make_zip(SOUND)
    stored = make_zip([("a", b"x" * 40, FILE)], zipfile.ZIP_STORED)
    bomb = bytes(8 << 20)
    return {
        "sound.zip": plain,
        "sound-stored.zip": stored,
        "sound.tar": tar,
        "sound.tar.gz": gzip.compress(tar, mtime=0),
        "sound.tar.xz": lzma.compress(tar),
        "sound.tar.bz2": bz2.compress(tar),
        "sound-in-two-members.tar.gz": gzip.compress(tar[:700], mtime=0) + gzip.compress(tar[700:], mtime=0),
        "sound-long-names.tar": make_tar([("n" * 120, b"x", FILE), ("l", "t" * 120, LINK)], tarfile.GNU_FORMAT),
        "sound-pax.tar": make_tar([("ü" * 60, b"x", FILE)]),
        "hard-link.tar": make_tar([("a", b"x", FILE)])[:-1024] + raw_tar(("b", b"1", "a", 0)),
        "parent.zip": make_zip([("../x", b"x", FILE)]),
        "parent.tar": make_tar([("a/../../x", b"x", FILE)]),
        "absolute.tar": make_tar([("/x", b"x", FILE)]),
        "link-outside.zip": make_zip([("a", "../x", LINK)]),
        "link-then-file.tar": make_tar([("a", "..", LINK), ("a/b", b"x", FILE)]),
        "links-in-a-circle.tar": make_tar([("a", "b", LINK), ("b", "a", LINK)]),
        "hard-link-outside.tar": raw_tar(("b", b"1", "../../archive", 0)),
        "device.tar": raw_tar(("d", b"3", "", 0)),
        "fifo.tar": raw_tar(("d", b"6", "", 0)),
        "twice.tar": make_tar([("a", b"x", FILE), ("A", b"y", FILE)]),
        "claims-8-gib.tar": raw_tar(("a", b"0", "", (8 << 30) - 1)),
        "bomb.tar.gz": gzip.compress(make_tar([("a", bomb, FILE)]), mtime=0),
        "bomb.tar.xz": lzma.compress(make_tar([("a", bomb, FILE)])),
        "bomb.tar.bz2": bz2.compress(make_tar([("a", bomb, FILE)])),
        "bomb.zip": make_zip([("a", bomb, FILE)]),
        "lying-size.zip": patched(plain, b"PK\x01\x02", 24, struct.pack("<L", 1 << 30)),
        "truncated.zip": plain[:-30],
        "truncated.tar.gz": gzip.compress(tar, mtime=0)[:-9],
        "encrypted.zip": patched(stored, b"PK\x01\x02", 8, b"\1\0"),
        "zstd": b"\x28\xb5\x2f\xfd" + bytes(20),
        "nothing": b"",
    }
