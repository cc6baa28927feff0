"""Remember facts that take seconds to find, under a hash of the bytes that decide them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from macbuild.macho.image import Image
from macbuild.macho.symbols import Exports, export_trie, read_exports, read_trie

__all__ = ["Memory", "SymbolSummary", "contents_key", "known_contents", "known_exports", "remember_contents"]

_WORTH_KEEPING = 1 << 16  # bytes of a trie; a smaller one is read in less than 4 ms
_PART = 1 << 24  # bytes


class Memory(Protocol):
    """A memory of bytes by key, for one version of the code: what other code kept is not found."""

    def get(self, key: str) -> bytes | None:
        """Return the kept bytes, complete, or None."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Keep bytes if that is possible."""
        ...


class SymbolSummary(msgspec.Struct, frozen=True, array_like=True):
    """Facts that need all bytes of an image: the fields of the same names of `AuditedSlice`."""

    markers: tuple[bytes, ...]
    build_paths: tuple[str, ...]
    signature: str | None


class _Names(msgspec.Struct, frozen=True, array_like=True):
    """The exports of a trie: names with a zero byte after each, the `weak` first ones weak."""

    names: bytes
    weak: int
    thread_local: tuple[bytes, ...]
    reexports: tuple[tuple[bytes, int, bytes], ...]


def known_exports(image: Image, memory: Memory | None) -> Exports:
    """Return the exports of an image, as `read_exports` does, remembered by the bytes of its trie.

    Raises
    ------
    MachOError
        If they are malformed.
    """
    trie = None if memory is None else export_trie(image)
    if memory is None or trie is None or len(trie) < _WORTH_KEEPING:
        return read_exports(image)
    key = f"exports-{hashlib.sha256(trie).hexdigest()}"
    exports = _unpack_exports(memory.get(key))
    if exports is None:
        exports = read_trie(trie, image.where)
        memory.put(key, _pack_exports(exports))
    return exports


def _pack_exports(exports: Exports) -> bytes:
    ordered = [*sorted(exports.weak), *sorted(exports.names - exports.weak)]
    names = b"".join(name + b"\0" for name in ordered)
    reexports = tuple((name, ordinal, there) for name, (ordinal, there) in sorted(exports.reexports.items()))
    return msgspec.msgpack.encode(_Names(names, len(exports.weak), tuple(sorted(exports.thread_local)), reexports))


def _unpack_exports(data: bytes | None) -> Exports | None:
    if data is None:
        return None
    try:
        found = msgspec.msgpack.decode(data, type=_Names)
    except msgspec.MsgspecError:
        return None
    names = found.names.split(b"\0")[:-1]
    reexports = {name: (ordinal, there) for name, ordinal, there in found.reexports}
    return Exports(frozenset(names), frozenset(names[: found.weak]), frozenset(found.thread_local), reexports)


def contents_key(image: Image, question: Sequence[object]) -> str:
    """Return the key of the `SymbolSummary` of an image.

    Parameters
    ----------
    image
        Each of its bytes counts.
    question
        Everything else that decides the answer, as plain data.
    """
    asked = msgspec.json.encode(question)
    return f"contents-{hashlib.sha256(asked + _hash_in_parts(image)).hexdigest()}"


def _hash_in_parts(image: Image) -> bytes:
    """Return the sha256 of each 16 MiB of an image, one after the other; all cores take part in the hashing."""
    ends = image.offset + image.size
    with memoryview(image.data) as data:

        def digest(start: int) -> bytes:
            with data[start : min(start + _PART, ends)] as part:
                return hashlib.sha256(part).digest()

        starts = range(image.offset, ends, _PART)
        if len(starts) == 1:
            return digest(image.offset)
        with ThreadPoolExecutor(min(len(starts), os.cpu_count() or 1)) as pool:
            return b"".join(pool.map(digest, starts))


def known_contents(key: str, memory: Memory) -> SymbolSummary | None:
    """Return the remembered facts of an image, or None."""
    data = memory.get(key)
    try:
        return None if data is None else msgspec.msgpack.decode(data, type=SymbolSummary)
    except msgspec.MsgspecError:
        return None


def remember_contents(key: str, memory: Memory, contents: SymbolSummary) -> None:
    """Keep the facts of an image."""
    memory.put(key, msgspec.msgpack.encode(contents))
