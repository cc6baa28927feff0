from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from macbuild.errors import MachOError
from macbuild.macho import symbols
from macbuild.macho.file import parse_macho
from macbuild.macho.image import Image
from macbuild.macho.symbols import (
    FLAT_LOOKUP,
    MAIN_EXECUTABLE,
    SELF,
    WEAK_LOOKUP,
    Exports,
    Import,
    defined_names,
    read_exports,
    read_imports,
    read_symbols,
    read_trie,
)
from tests.support import machobytes

TRIE, CHAINED, DYLD_INFO, SYMTAB = 0x80000033, 0x80000034, 0x80000022, 0x2


def uleb(value: int, width: int = 0) -> bytes:
    """Encode a number, padded to `width` bytes as linkers do when they lay out a trie."""
    out = bytearray()
    while value > 0x7F or len(out) + 1 < width:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_trie(terminals: Mapping[bytes, bytes]) -> bytes:
    """Write a trie with one edge per byte; `terminals` maps names to their flags and the bytes after these."""
    prefixes = sorted({name[:size] for name in terminals for size in range(len(name) + 1)} | {b""})
    children = {prefix: [p for p in prefixes if len(p) == len(prefix) + 1 and p[:-1] == prefix] for prefix in prefixes}

    def node(prefix: bytes, places: Mapping[bytes, int]) -> bytes:
        body = terminals.get(prefix, b"")
        edges = b"".join(child[-1:] + b"\0" + uleb(places[child], 4) for child in children[prefix])
        return uleb(len(body)) + body + bytes([len(children[prefix])]) + edges

    places, at = {}, 0
    for prefix in prefixes:
        places[prefix] = at
        at += len(node(prefix, dict.fromkeys(prefixes, 0)))
    return b"".join(node(prefix, places) for prefix in prefixes)


def image(data: bytes) -> Image:
    return parse_macho(data).images[0]


def replace_command(data: bytes, old: int, command: bytes) -> bytes:
    """Replace the only command of a kind with another one, in the header room."""
    at, count = 32, struct.unpack_from("<I", data, 16)[0]
    for _ in range(count):
        cmd, size = struct.unpack_from("<2I", data, at)
        if cmd == old:
            end = 32 + struct.unpack_from("<I", data, 20)[0]
            moved = data[:at] + command + data[at + size : end]
            assert len(moved) <= end + 4096
            room = bytes(max(0, end - len(moved)))
            rest = data[max(end, len(moved)) :]
            header = struct.pack("<I", struct.unpack_from("<I", data, 20)[0] + len(command) - size)
            return moved[:20] + header + moved[24:] + room + rest
        at += size
    raise AssertionError(f"no command {old:#x}")


def with_payload(kind: int, payload: bytes) -> Image:
    """Return an image whose export trie command became a linkedit_data_command of another kind."""
    data = machobytes.dylib()
    command = struct.pack("<4I", kind, 16, len(data), len(payload))
    return image(replace_command(data, TRIE, command) + payload)


def with_dyld_info(bind: bytes = b"", lazy: bytes = b"", exports: bytes = b"") -> Image:
    data = machobytes.dylib()
    at = len(data)
    fields = (0, 0, at, len(bind), 0, 0, at + len(bind), len(lazy), at + len(bind) + len(lazy), len(exports))
    command = struct.pack("<2I10I", DYLD_INFO, 48, *fields)
    return image(replace_command(data, TRIE, command) + bind + lazy + exports)


def with_symbols(entries: Sequence[tuple[bytes, int, int, int, int]], *, trie: bool = False) -> Image:
    strings = b" \0"
    table = b""
    for name, kind, section, desc, value in entries:
        table += struct.pack("<IBBHQ", len(strings), kind, section, desc, value)
        strings += name + b"\0"
    data = machobytes.dylib()
    if not trie:
        data = replace_command(data, TRIE, struct.pack("<4I", 0x26, 16, 0, 0))
    at = len(data)
    command = struct.pack("<6I", SYMTAB, 24, at, len(entries), at + len(table), len(strings))
    return image(replace_command(data, SYMTAB, command) + table + strings)


def chained(kind: int, imports: Sequence[tuple[bytes, int, bool]]) -> bytes:
    names, table = b"\0", b""
    for name, ordinal, weak in imports:
        if kind == 3:
            table += struct.pack("<QQ", ordinal & 0xFFFF | weak << 16 | len(names) << 32, 7)
        else:
            table += struct.pack("<I", ordinal & 0xFF | weak << 8 | len(names) << 9)
            table += struct.pack("<i", -7) if kind == 2 else b""
        names += name + b"\0"
    header = struct.pack("<7I", 0, 28, 32, 32 + len(table), len(imports), kind, 0)
    return header + bytes(4) + table + names


NAMES = st.binary(min_size=1, max_size=6).filter(lambda name: 0 not in name)


@given(st.dictionaries(NAMES, st.integers(0, 3), max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_trie_returns_the_names_and_flags_written_to_it(flags: dict[bytes, int]) -> None:
    # Bit 0: thread-local, bit 1: weak.
    terminals = {
        name: uleb(value & 1 | (value & 2) << 1) + uleb(0x4000 + index)
        for index, (name, value) in enumerate(flags.items())
    }
    found = read_trie(write_trie(terminals))
    assert found == Exports(
        frozenset(flags),
        frozenset(name for name, value in flags.items() if value & 2),
        frozenset(name for name, value in flags.items() if value & 1),
    )


@given(st.binary(max_size=64))
@example(b"\x00\x01a\x00\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")
@example(b"\x00\xff")
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_exports_or_an_error(data: bytes) -> None:
    with contextlib.suppress(MachOError):
        assert read_trie(data).weak <= read_trie(data).names


def test_every_truncation_of_a_trie_is_an_error() -> None:
    trie = write_trie({b"_alpha": b"\x00\x10", b"_beta": b"\x04\x20", b"_z": b"\x08\x01_other\x00"})
    for size in range(1, len(trie)):
        with pytest.raises(MachOError, match="export trie"):
            read_trie(trie[:size])


def test_a_trie_without_bytes_is_empty() -> None:
    assert read_trie(b"") == Exports()


@pytest.mark.parametrize(
    "trie",
    [
        pytest.param(b"\x00\x01a\x00\x00", id="root is its own child"),
        pytest.param(b"\x00\x01a\x00\x05\x00\x01b\x00\x00", id="child leads back to the root"),
        pytest.param(b"\x00\x02a\x00\x08b\x00\x08\x02\x00\x00\x00", id="two edges to one node"),
    ],
)
def test_a_trie_that_loops_is_an_error(trie: bytes) -> None:
    with pytest.raises(MachOError, match="to the same node twice"):
        read_trie(trie)


def test_exploding_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # A long edge above many nodes makes names far larger than the file; the true limit is too large for a test.
    monkeypatch.setattr(symbols, "MAX_NAME_BYTES", 10_000)
    names = {b"a" * 100 + bytes([65 + index]): b"\x00\x10" for index in range(50)}
    with pytest.raises(MachOError, match="more than 10000 bytes"):
        read_trie(write_trie(names))


def test_reexports_have_a_library_and_its_name_there() -> None:
    found = read_trie(write_trie({b"_new": b"\x08\x02_old\0", b"_same": b"\x08\x01\0"}))
    assert found.names == {b"_new", b"_same"}
    assert found.reexports == {b"_new": (2, b"_old"), b"_same": (1, b"_same")}


def test_exports_come_from_the_trie_command() -> None:
    assert read_exports(image(machobytes.dylib(exports=["_a", "_b"]))).names == {b"_a", b"_b"}


def test_exports_come_from_dyld_info() -> None:
    trie = write_trie({b"_old_style": b"\x04\x10"})
    found = read_exports(with_dyld_info(exports=trie))
    assert found.names == found.weak == {b"_old_style"}


def test_without_a_trie_exports_come_from_the_symbol_table() -> None:
    entries = [
        (b"_public", 0x0F, 1, 0, 8),
        (b"_weak", 0x0F, 1, 0x80, 8),
        (b"_private_extern", 0x1F, 1, 0, 8),
        (b"_local", 0x0E, 1, 0, 8),
        (b"_undefined", 0x01, 0, 0x100, 0),
        (b"_debug", 0x24, 1, 0, 8),
    ]
    found = read_exports(with_symbols(entries))
    assert found.names == {b"_public", b"_weak"}
    assert found.weak == {b"_weak"}


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_chained_fixups_name_their_imports(kind: int) -> None:
    wanted = [
        (b"_a", 1, False),
        (b"_b", 2, True),
        (b"_flat", FLAT_LOOKUP, False),
        (b"_main", MAIN_EXECUTABLE, False),
        (b"_self", SELF, False),
        (b"_weak", WEAK_LOOKUP, False),
        (b"_last", 0xF0 if kind < 3 else 0xFFF0, False),
    ]
    found = read_imports(with_payload(CHAINED, chained(kind, wanted)))
    assert found == tuple(sorted(Import(*entry) for entry in wanted))


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"\0" * 20, "cut off"),
        (struct.pack("<7I", 1, 28, 32, 36, 0, 1, 0), "version 1"),
        (struct.pack("<7I", 0, 28, 32, 36, 0, 4, 0), "import format 4"),
        (struct.pack("<7I", 0, 28, 32, 36, 0, 1, 1), "compression 1"),
        (struct.pack("<7I", 0, 28, 28, 28, 1 << 31, 1, 0), "end past their command"),
        (struct.pack("<8I", 0, 28, 28, 32, 1, 1, 0, 1 | 4 << 9), "no end"),
    ],
)
def test_broken_chained_fixups_are_an_error(payload: bytes, words: str) -> None:
    with pytest.raises(MachOError, match=words):
        read_imports(with_payload(CHAINED, payload))


def test_names_of_chained_fixups_that_overlap_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "MAX_NAME_BYTES", 1000)
    header = struct.pack("<7I", 0, 28, 28, 28 + 400, 100, 1, 0)
    table = b"".join(struct.pack("<I", 1 | index << 9) for index in range(100))
    with pytest.raises(MachOError, match="too long"):
        read_imports(with_payload(CHAINED, header + table + b"x" * 500 + b"\0"))


def test_bind_opcodes_name_their_imports() -> None:
    bind = (
        b"\x11\x40_one\0\x51\x72\x10\x90"  # ordinal 1, type, segment and offset, bind
        b"\x20\x90\x01\x41_weak\0\xa0\x08"  # ordinal 144 as ULEB, weak import, bind and advance
        b"\x3e\x40_flat\0\xb1"  # ordinal -2, bind and advance scaled
        b"\x30\x40_self\0\x60\x7f\x80\x10\xc0\x03\x08"  # self, addend, advance, bind several times
        b"\x40_never_bound\0\x00\x00"
    )
    lazy = b"\x72\x18\x12\x40_lazy\0\x90\x00\x72\x20\x12\x40_lazy2\0\x90\x00"
    assert set(read_imports(with_dyld_info(bind, lazy))) == {
        Import(b"_one", 1, weak=False),
        Import(b"_weak", 144, weak=True),
        Import(b"_flat", FLAT_LOOKUP, weak=False),
        Import(b"_self", SELF, weak=False),
        Import(b"_lazy", 2, weak=False),
        Import(b"_lazy2", 2, weak=False),
    }


def test_threaded_bind_opcodes_name_their_imports() -> None:
    bind = b"\xd0\x02\x11\x40_a\0\x90\x12\x40_b\0\x90\x72\x00\xd1\x00"
    assert read_imports(with_dyld_info(bind)) == (Import(b"_a", 1, weak=False), Import(b"_b", 2, weak=False))


@pytest.mark.parametrize(
    ("bind", "words"),
    [(b"\x40_no_end", "cut off"), (b"\x20\x80", "cut off"), (b"\x70", "cut off"), (b"\xe0", "unknown opcode 0xe0")],
)
def test_broken_bind_opcodes_are_an_error(bind: bytes, words: str) -> None:
    with pytest.raises(MachOError, match=words):
        read_imports(with_dyld_info(bind))


@given(st.binary(max_size=48))
@settings(max_examples=200, deadline=None)
def test_any_opcodes_or_fixups_give_imports_or_an_error(data: bytes) -> None:
    for hostile in (with_dyld_info(bind=data), with_payload(CHAINED, data)):
        with contextlib.suppress(MachOError):
            assert len(read_imports(hostile)) <= len(data)


def test_without_bindings_imports_come_from_the_symbol_table() -> None:
    entries = [(b"_one", 0x01, 0, 0x100, 0), (b"_weak", 0x01, 0, 0x240, 0), (b"_flat", 0x01, 0, 0xFE00, 0)]
    found = read_imports(with_symbols([*entries, (b"_own", 0x0F, 1, 0, 8)], trie=True))
    assert found == (
        Import(b"_flat", FLAT_LOOKUP, weak=False),
        Import(b"_one", 1, weak=False),
        Import(b"_weak", 2, weak=True),
    )


def test_symbols_come_in_file_order() -> None:
    entries = [(b"_b", 0x0F, 1, 0, 8), (b"_a", 0x0E, 2, 3, 9)]
    assert [tuple(symbol) for symbol in read_symbols(with_symbols(entries))] == entries


def test_a_symbol_whose_name_is_outside_is_an_error() -> None:
    data = machobytes.dylib()
    entry = struct.pack("<IBBHQ", 99, 0x0F, 1, 0, 8)
    command = struct.pack("<6I", SYMTAB, 24, len(data), 1, len(data) + 16, 4)
    broken = image(replace_command(data, SYMTAB, command) + entry + b"abc\0")
    with pytest.raises(MachOError, match="name at byte 99"):
        list(read_symbols(broken))


def test_a_symbol_table_past_the_end_is_an_error() -> None:
    data = machobytes.dylib()
    broken = image(replace_command(data, SYMTAB, struct.pack("<6I", SYMTAB, 24, len(data), 1000, 0, 0)))
    for read in (lambda: list(read_symbols(broken)), lambda: defined_names(broken, [b"_f"])):
        with pytest.raises(MachOError, match="past the end"):
            read()


def test_defined_names_matches_whole_names_of_defined_symbols() -> None:
    entries = [
        (b"_debug_first", 0x24, 1, 0, 8),
        (b"_local", 0x0E, 1, 0, 8),
        (b"_undefined", 0x01, 0, 0x100, 0),
        (b"_longer_name", 0x0F, 1, 0, 8),
        (b"_debug_first", 0x0E, 1, 0, 8),
        (b"_debug_only", 0x24, 1, 0, 8),
    ]
    wanted = [b"_local", b"_undefined", b"_longer", b"_name", b"_debug_first", b"_debug_only", b"_absent"]
    assert defined_names(with_symbols(entries), wanted) == {b"_local", b"_debug_first"}
