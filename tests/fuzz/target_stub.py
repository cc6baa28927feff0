"""Fuzz the reader of text stubs: what it accepts must survive a round trip through the writer."""

from __future__ import annotations

import contextlib

from macbuild.errors import MachOError
from macbuild.macho.tbd import read_stub, read_stubs, write_stub


def check(data: bytes) -> None:
    """Read a text, then write and read back each stub in it."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        stubs = read_stubs(text)
    except MachOError:
        return
    for stub in stubs[:8]:
        assert stub.weak | stub.thread_local <= stub.symbols
        with contextlib.suppress(MachOError):
            again = read_stub(write_stub(stub))
            assert (again.symbols, again.reexports) == (stub.symbols, stub.reexports)
