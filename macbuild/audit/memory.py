"""Facts that cost seconds to find, kept under a hash of the bytes that decide them and found again at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from macbuild.macho.image import Image
from macbuild.macho.symbols import Exports, export_trie, read_exports, read_trie

__all__ = ["Contents", "Memory", "contents_key", "known_contents", "known_exports", "remember_contents"]

_WORTH_KEEPING = 1 << 16  # bytes of a trie; a smaller one is read in less than 4 ms
_PART = 1 << 24  # bytes


class Memory(Protocol):
    """Keeps bytes under keys, for code of one state: what was kept with other code is not found."""

    def get(self, key: str) -> bytes | None:
        """Return what was kept, whole, or None."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Keep bytes if that is possible."""
        ...


class Contents(msgspec.Struct, frozen=True, array_like=True):
    """What only a look at all bytes of an image tells: the fields of these names of `Slice`."""

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
    """Return what an image exports, as `read_exports` does, remembered by the bytes of its trie.

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
    """Return the key of what `Contents` says about an image.

    Parameters
    ----------
    image
        Each of its bytes counts.
    question
        What else decides the answer, as plain data.
    """
    asked = msgspec.json.encode(question)
    return f"contents-{hashlib.sha256(asked + _hash_in_parts(image)).hexdigest()}"


def _hash_in_parts(image: Image) -> bytes:
    """Return the sha256 of each 16 MiB of an image, one behind the other: hashing them shares out among the cores."""
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


def known_contents(key: str, memory: Memory) -> Contents | None:
    """Return what is remembered about an image, or None."""
    data = memory.get(key)
    try:
        return None if data is None else msgspec.msgpack.decode(data, type=Contents)
    except msgspec.MsgspecError:
        return None


def remember_contents(key: str, memory: Memory, contents: Contents) -> None:
    """Keep what was found in an image."""
    memory.put(key, msgspec.msgpack.encode(contents))
