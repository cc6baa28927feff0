"""Hash the pages of code, large code in two processes at once."""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import suppress
from typing import NoReturn

from macbuild.macho.codesign import HashType

__all__ = ["hash_pages"]

# A fork and its pages cost some milliseconds; threads gain nothing: hashlib keeps the GIL for data as short as a page.
_WORTH_A_PROCESS = 1 << 25


def hash_pages(code: memoryview, page_size: int, hash_type: HashType) -> bytes:
    """Hash each page of the code; the last one may be short. Return the hashes one after the other.

    A second process helps with code of 32 MiB or more, but only if there is no other thread, so that a fork is safe.
    """
    if len(code) >= _WORTH_A_PROCESS and hasattr(os, "fork") and threading.active_count() == 1:
        return _hash_in_two(code, page_size, hash_type)
    return _hash(code, page_size, hash_type)


def _hash(code: memoryview, page_size: int, hash_type: HashType) -> bytes:
    digest = getattr(hashlib, hash_type.algorithm)
    size = hash_type.size
    starts = range(0, len(code), page_size)
    return b"".join([digest(code[at : at + page_size], usedforsecurity=False).digest()[:size] for at in starts])


def _hash_in_two(code: memoryview, page_size: int, hash_type: HashType) -> bytes:
    middle = len(code) // 2 // page_size * page_size
    with code[:middle] as first, code[middle:] as second:
        reader, writer = os.pipe()
        try:
            child = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            return _hash(code, page_size, hash_type)
        if child == 0:
            os.close(reader)
            _answer(writer, second, page_size, hash_type)
        try:
            with os.fdopen(reader, "rb") as pipe:
                os.close(writer)
                hashes = _hash(first, page_size, hash_type)
                rest = pipe.read()
        finally:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)
        if len(rest) != -(-len(second) // page_size) * hash_type.size:
            rest = _hash(second, page_size, hash_type)
        return hashes + rest


def _answer(writer: int, code: memoryview, page_size: int, hash_type: HashType) -> NoReturn:
    """Act as the second process: write the hashes, and end without the exit handlers of the first."""
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(_hash(code, page_size, hash_type))
    finally:
        os._exit(0)
