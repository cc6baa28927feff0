"""Write archive_bytes.h: a tar.gz with every kind of member that conda-pack writes, packed by Python's tarfile."""

from __future__ import annotations

import gzip
import io
import tarfile
import textwrap
from pathlib import Path

TIME = 1_700_000_000


def member(name: str, kind: bytes = tarfile.REGTYPE, **values: object) -> tarfile.TarInfo:
    """Return a member with a fixed time and other values given by name."""
    info = tarfile.TarInfo(name)
    info.type, info.mtime, info.mode = kind, TIME, 0o644
    for key, value in values.items():
        setattr(info, key, value)
    return info


def archive() -> bytes:
    """Return the archive, compressed."""
    packed = io.BytesIO()
    script = b"#!/bin/sh\nexec true\n"
    large = bytes(i * i // 7 % 251 for i in range(50_000))
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member("env/", tarfile.DIRTYPE, mode=0o755))
        tar.addfile(member("env/bin/", tarfile.DIRTYPE, mode=0o755))
        tar.addfile(member("env/bin/activate", mode=0o755, size=len(script)), io.BytesIO(script))
        tar.addfile(member("env/bin/start", tarfile.SYMTYPE, linkname="activate"))
        tar.addfile(member("env/bin/again", tarfile.LNKTYPE, linkname="env/bin/activate"))
        tar.addfile(member("env/lib/large.bin", size=len(large)), io.BytesIO(large))
        tar.addfile(member("env/lib/" + "long/" * 30 + "name", size=4), io.BytesIO(b"deep"))
        tar.addfile(member("env/lib/\u00fcber.txt", size=3), io.BytesIO(b"uni"))
        tar.addfile(member("env/lib/empty"))
    return gzip.compress(packed.getvalue(), 9, mtime=0)


numbers = textwrap.fill(", ".join(map(str, archive())), 118, initial_indent="  ", subsequent_indent="  ")
text = f"// Written by make_archive.py.\nstatic const unsigned char archive_bytes[] = {{\n{numbers}}};\n"
Path(__file__).with_name("archive_bytes.h").write_text(text, "utf-8")
