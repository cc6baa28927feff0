"""Check the metadata of a wheel: its .dist-info folder, and that RECORD lists what the wheel holds.

The rules are those of the PyPA specifications "Binary distribution format" and "Recording installed projects".
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import stat
from collections.abc import Iterator
from email.parser import BytesHeaderParser

from macbuild.audit.context import AuditContext, Check, Hit
from macbuild.files import os_errors

__all__ = ["CHECKS"]

_SUFFIX = ".dist-info"
_FILES = ("METADATA", "WHEEL", "RECORD")
_UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")
_REPACK = "let the tool that builds the wheel write it; edit wheels only with one that updates RECORD"
_MAX_METADATA = 1 << 20  # bytes
_SHA256_SIZE = 32
_BLOCK = 1 << 20


def _metadata(context: AuditContext) -> Iterator[Hit]:
    """Find what pip refuses to install."""
    if context.wheel is None:
        return
    infos = _infos(context)
    if not infos:
        yield _wrong(".", f"has no {_SUFFIX} folder")
    for name in infos[1:]:
        yield _wrong(name, f"is a second {_SUFFIX} folder, beside {infos[0]}")
    for info in infos[:1]:
        wanted = context.wheel
        if _identity(*info.removesuffix(_SUFFIX).partition("-")[::2]) != _identity(*wanted):
            yield _wrong(info, f"is not that of {' '.join(wanted)}, which the file name promises")
        for name in _FILES:
            if not _is_file(context, f"{info}/{name}"):
                yield _wrong(info, f"has no {name}")
        if _is_file(context, f"{info}/METADATA"):
            yield from _name_and_version(context, f"{info}/METADATA", wanted)


def _name_and_version(context: AuditContext, path: str, wanted: tuple[str, str]) -> Iterator[Hit]:
    place = context.tree.root / path
    with os_errors(place), place.open("rb") as file:
        header = BytesHeaderParser().parsebytes(file.read(_MAX_METADATA))
    stated = str(header.get("Name", "no name")), str(header.get("Version", "without a version"))
    if _identity(*stated) != _identity(*wanted):
        yield _wrong(path, f"is about {' '.join(stated)}, not {' '.join(wanted)}")


def _wrong(path: str, message: str) -> Hit:
    return Hit("wheel-metadata", path, None, message, "build the wheel again with a tool that packs wheels")


def _identity(name: str, version: str) -> tuple[str, str]:
    """Return a name and a version in the form that all their spellings have in common."""
    from packaging.utils import canonicalize_name, canonicalize_version

    return canonicalize_name(name), canonicalize_version(version)


def _infos(context: AuditContext) -> list[str]:
    return sorted({top for path in context.tree.entries if (top := path.partition("/")[0]).endswith(_SUFFIX)})


def _is_file(context: AuditContext, path: str) -> bool:
    entry = context.tree.entries.get(path)
    return entry is not None and stat.S_ISREG(entry.mode)


def _record(context: AuditContext) -> Iterator[Hit]:
    """Compare RECORD with the files."""
    infos = _infos(context) if context.wheel is not None else []
    if len(infos) != 1 or not _is_file(context, f"{infos[0]}/RECORD"):
        return
    path = f"{infos[0]}/RECORD"
    place = context.tree.root / path
    rows: dict[str, tuple[str, str]] = {}
    try:
        with os_errors(place), place.open(encoding="utf-8", newline="") as file:
            for name, digest, size in csv.reader(file, strict=True):
                if name in rows:
                    yield _differs(name, "is listed twice in RECORD")
                rows[name] = digest, size
    except (ValueError, csv.Error) as error:
        yield _differs(path, f"cannot be read: {error}")
        return
    unlisted = {f"{infos[0]}/{name}" for name in _UNLISTED}
    present = {name for name, entry in context.tree.entries.items() if not stat.S_ISDIR(entry.mode)}
    for name in sorted(rows.keys() - present - unlisted):
        yield _differs(name, "is listed in RECORD, and is not in the wheel")
    for name in sorted(present - unlisted):
        fault = "is not listed in RECORD" if name not in rows else _fault(context, name, *rows[name])
        if fault is not None:
            yield _differs(name, fault)


def _differs(path: str, message: str) -> Hit:
    return Hit("wheel-record", path, None, message, _REPACK)


def _fault(context: AuditContext, path: str, digest: str, size: str) -> str | None:
    """Return what is wrong with a row of RECORD; the size may be left out, the hash may not."""
    algorithm, _, stated = digest.partition("=")
    if not digest:
        return "has no hash in RECORD"
    if algorithm not in hashlib.algorithms_guaranteed or hashlib.new(algorithm).digest_size < _SHA256_SIZE:
        return "has a hash in RECORD that is weaker than sha256"
    length, found = _hash(context, path, algorithm)
    if size not in {"", str(length)}:
        return f"has another size in RECORD: {size}, not {length}"
    return None if stated.rstrip("=") == found else f"has another {algorithm} in RECORD"


def _hash(context: AuditContext, path: str, algorithm: str) -> tuple[int, str]:
    """Return the size and the hash of a member as RECORD has it; a link holds its target."""
    entry = context.tree.entries[path]
    place = context.tree.root / path
    hasher = hashlib.new(algorithm)
    size = 0
    if entry.target is not None:
        hasher.update(os.fsencode(entry.target))
        size = len(os.fsencode(entry.target))
    elif stat.S_ISREG(entry.mode):
        with os_errors(place), place.open("rb") as file:
            while block := file.read(_BLOCK):
                hasher.update(block)
                size += len(block)
    return size, base64.urlsafe_b64encode(hasher.digest()).rstrip(b"=").decode()


CHECKS: tuple[Check, ...] = (_metadata, _record)
