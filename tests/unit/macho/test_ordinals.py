from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from macbuild.errors import MacbuildError, MachOError
from macbuild.macho.edit import Edits, edit_private
from macbuild.macho.verify import verify_file
from tests.support import machobytes

DEPS = ("/a", "/b", "/c", "/d")
DROP_B = Edits(remove=frozenset({"/b"}))
Write = Callable[[bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(data: bytes) -> Path:
        path = tmp_path / "libx.dylib"
        path.write_bytes(data)
        return path

    return write


def attach(content: bytes, *command: int) -> tuple[bytes, int]:
    """Append link-edit content to a dylib and a load command, in which -1 is replaced by the offset of the content."""
    data = bytearray(machobytes.dylib(dylibs=DEPS, exports=()))
    at = len(data)
    data += content
    filesize_at = 32 + 152 + 48
    filesize = struct.unpack_from("<Q", data, filesize_at)[0] + len(content)
    struct.pack_into("<Q", data, filesize_at, filesize)
    if command:
        count, size = struct.unpack_from("<2I", data, 16)
        fields = [at if value == -1 else value for value in command]
        body = struct.pack(f"<{1 + len(fields)}I", fields[0], 8 + 4 * len(fields[1:]), *fields[1:])
        data[32 + size : 32 + size + len(body)] = body
        struct.pack_into("<2I", data, 16, count + 1, size + len(body))
    return bytes(data), at


def drop_b(write: Write, data: bytes) -> bytes:
    path = write(data)
    assert edit_private(path, DROP_B)
    after = path.read_bytes()
    assert len(after) == len(data)
    return after


def dyld_info(binds: bytes = b"", weak: bytes = b"", lazy: bytes = b"") -> tuple[bytes, int]:
    """Attach bind streams with LC_DYLD_INFO_ONLY, one after the other."""
    start = len(machobytes.dylib(dylibs=DEPS, exports=()))
    weak_at, lazy_at = start + len(binds), start + len(binds) + len(weak)
    fields = (0x80000022, 0, 0, -1, len(binds), weak_at, len(weak), lazy_at, len(lazy), 0, 0)
    data, at = attach(binds + weak + lazy, *fields)
    assert at == start
    return data, at


def symbol(desc: int, kind: int = 0x01) -> bytes:
    return struct.pack("<IBBHQ", 1, kind, 0, desc, 0)


def symbols(*entries: bytes) -> tuple[bytes, int]:
    plain, at = attach(b"\0_used\0\0" + b"".join(entries))
    data = bytearray(plain)
    command = data.index(struct.pack("<2I", 0x2, 24))
    struct.pack_into("<4I", data, command + 8, at + 8, len(entries), at, 8)
    return bytes(data), at + 8


def test_only_undefined_symbols_are_renumbered(write: Write) -> None:
    before = [
        symbol(0x0100),
        symbol(0x0300),
        symbol(0x0440),
        symbol(0xFE00),
        symbol(0xFF00),
        symbol(0x0000),
        symbol(0x0400, kind=0x0F),
        symbol(0x0400, kind=0x24),
    ]
    data, at = symbols(*before)
    after = drop_b(write, data)
    expected = [before[0], symbol(0x0200), symbol(0x0340), *before[3:]]
    assert after[at:] == b"".join(expected)


def test_an_undefined_symbol_of_the_removed_library_is_named(write: Write) -> None:
    data, _ = symbols(symbol(0x0100), symbol(0x0200))
    path = write(data)
    with pytest.raises(MachOError, match=r"still bind to a dependency that is to be removed: _used$"):
        edit_private(path, DROP_B)
    assert path.read_bytes() == data


def test_a_flat_namespace_has_no_ordinals_in_its_symbols(write: Write) -> None:
    data, at = symbols(symbol(0x0300))
    flat = bytearray(data)
    struct.pack_into("<I", flat, 24, 0x5)
    assert drop_b(write, bytes(flat))[at:] == symbol(0x0300)


def test_bind_opcodes_are_renumbered_in_place(write: Write) -> None:
    def stream(c: int, d: int) -> bytes:
        return (
            bytes([0x11]) + b"\x40_x\0\x51\x72\x80\x13\x90"  # ordinal 1, name, type, segment and offset, bind
            + bytes([0x10 | c]) + b"\x41_\x13\x14\0\x60\x7d\x80\x93\x01\x90\xa0\x13\xb3\xc0\x13\x14"
            + bytes([0x20, 0x80 | d, 0x00]) + b"\x40_y\0\x90"  # a number in two bytes
            + b"\x3e\x40_z\0\x90\x10\x40_self\0\x90"  # flat lookup, itself
            + b"\xd0\x13\xd1\x00\x13\x14"  # a table size, apply; after the end nothing is an opcode
        )  # fmt: skip

    data, at = dyld_info(binds=stream(3, 4))
    assert drop_b(write, data)[at:] == stream(2, 3)


def test_each_lazy_bind_is_renumbered(write: Write) -> None:
    def stream(c: int, d: int) -> bytes:
        binds = [b"\x72\x08" + bytes([0x10 | ordinal]) + b"\x40_f\0\x90\0" for ordinal in (1, c, d)]
        return b"".join(binds)

    weak = b"\x40_w\0\x51\x72\x08\x90\0"
    data, at = dyld_info(weak=weak, lazy=stream(3, 4))
    assert drop_b(write, data)[at:] == weak + stream(2, 3)


def test_an_unused_ordinal_does_not_keep_a_library(write: Write) -> None:
    data, at = dyld_info(binds=b"\x12\x13\x40_x\0\x90\0")
    assert drop_b(write, data)[at:] == b"\x12\x12\x40_x\0\x90\0"


@pytest.mark.parametrize("stream", ["binds", "lazy"])
def test_a_bind_to_the_removed_library_is_named(write: Write, stream: str) -> None:
    opcodes = b"".join(b"\x12\x40_f%d\0\x90\0" % number for number in range(5 if stream == "lazy" else 1))
    data, _ = dyld_info(**{stream: opcodes})
    path = write(data)
    listed = "_f0, _f1, _f2 and more" if stream == "lazy" else "_f0"
    with pytest.raises(MachOError, match=f"is to be removed: {listed}$"):
        edit_private(path, DROP_B)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("opcodes", "message"),
    [
        (b"\x15\x40_x\0\x90\0", "a library ordinal is 5, there are 4 dependencies"),
        (b"\x20\xff\xff\xff", "cut off|does not end"),
        (b"\x11\x40_x", "cut off|does not end"),
        (b"\xe0", "unknown"),
        (b"\xd7", "unknown"),
    ],
)
def test_malformed_bind_opcodes_are_refused(write: Write, opcodes: bytes, message: str) -> None:
    data, _ = dyld_info(lazy=opcodes)
    path = write(data)
    with pytest.raises(MachOError, match=message):
        edit_private(path, DROP_B)
    assert path.read_bytes() == data


def chained(form: int, ordinals: tuple[int, ...], *, compression: int = 0) -> bytes:
    layout, bits, shift = {1: ("<I", 0xFF, 9), 2: ("<Ii", 0xFF, 9), 3: ("<QQ", 0xFFFF, 32)}[form]
    imports = b""
    for ordinal in ordinals:
        first = (ordinal & bits) | 1 << shift | 1 << (8 if form < 3 else 16)
        imports += struct.pack(layout, first, *([-7] if form == 2 else [7] if form == 3 else []))
    header = struct.pack("<7I", 0, 32, 32, 32 + len(imports), len(ordinals), form, compression)
    return header + bytes(4) + imports + b"\0_name\0\0"


@pytest.mark.parametrize("form", [1, 2, 3])
def test_the_imports_of_chained_fixups_are_renumbered(write: Write, form: int) -> None:
    before, expected = (1, 3, 4, 0, -1, -2, -3, 3), (1, 2, 3, 0, -1, -2, -3, 2)
    data, at = attach(chained(form, before), 0x80000034, -1, len(chained(form, before)))
    assert drop_b(write, data)[at:] == chained(form, expected)


def test_an_import_of_the_removed_library_is_named(write: Write) -> None:
    content = chained(1, (1, 2))
    data, _ = attach(content, 0x80000034, -1, len(content))
    with pytest.raises(MachOError, match=r"is to be removed: _name$"):
        edit_private(write(data), DROP_B)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (chained(1, (1,), compression=1), "compression 1"),
        (chained(1, (1,))[:20] + struct.pack("<I", 9) + chained(1, (1,))[24:], "format 9"),
        (chained(1, (1,))[:16] + struct.pack("<I", 1 << 31) + chained(1, (1,))[20:], "end past"),
        (chained(1, (9,)), "a library ordinal is 9, there are 4"),
        (chained(1, (1,))[:24], "cut off"),
    ],
)
def test_chained_fixups_of_other_forms_are_refused(write: Write, content: bytes, message: str) -> None:
    data, _ = attach(content, 0x80000034, -1, len(content))
    path = write(data)
    with pytest.raises(MachOError, match=message):
        edit_private(path, DROP_B)
    assert path.read_bytes() == data


@pytest.mark.parametrize(("ordinal", "refused"), [(1, False), (2, True), (3, True)])
def test_a_re_export_that_needs_another_number_is_refused(write: Write, ordinal: int, *, refused: bool) -> None:
    trie = b"\x00\x01_r\0\x06" + bytes([0x03, 0x08, ordinal, 0x00, 0x00])
    start = len(machobytes.dylib(dylibs=DEPS, exports=()))
    data, _ = attach(trie, 0x80000022, 0, 0, 0, 0, 0, 0, 0, 0, start, len(trie))
    data = data.replace(struct.pack("<2I", 0x80000033, 16), struct.pack("<2I", 0x2A, 16))
    path = write(data)
    if refused:
        with pytest.raises(MachOError, match="re-exports _r by the number of a dependency"):
            edit_private(path, DROP_B)
    else:
        assert edit_private(path, DROP_B)


def test_link_edit_data_over_the_load_commands_is_refused(write: Write) -> None:
    data, _ = attach(b"", 0x80000022, 0, 0, 28, 4, 0, 0, 0, 0, 0, 0)
    with pytest.raises(MachOError, match="overlap the load commands"):
        edit_private(write(data), DROP_B)


def test_more_dependencies_than_ordinals_are_refused(write: Write) -> None:
    data = machobytes.dylib(dylibs=[f"/{number}" for number in range(254)])
    with pytest.raises(MachOError, match="253 is the limit"):
        edit_private(write(data), Edits(remove=frozenset({"/7"})))


def test_the_pages_of_renumbered_symbols_are_signed_again(write: Write) -> None:
    data = bytearray(machobytes.dylib(dylibs=DEPS, signed=True, text=symbol(0x0300) * 500 + b"\0_f\0"))
    text_at = struct.unpack_from("<I", data, 32 + 72 + 48)[0]
    struct.pack_into("<4I", data, data.index(struct.pack("<2I", 0x2, 24)) + 8, text_at, 500, text_at + 8000, 4)
    limit = struct.unpack_from("<I", data, data.index(struct.pack("<2I", 0x1D, 16)) + 8)[0]
    data[limit:] = machobytes.code_directory(bytes(data[:limit]), "libx.dylib", 0x4000)
    path = write(bytes(data))
    verify_file(path)
    assert edit_private(path, DROP_B)
    assert path.read_bytes()[text_at : text_at + 8000] == symbol(0x0200) * 500
    verify_file(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(min_size=1, max_size=60), kind=st.sampled_from(["binds", "lazy", "chained", "symbols"]))
def test_any_link_edit_data_is_renumbered_or_refused(write: Write, content: bytes, kind: str) -> None:
    if kind == "chained":
        content = struct.pack("<7I", 0, 28, 28, 28, len(content) // 4, 1, 0) + content
        data, _ = attach(content, 0x80000034, -1, len(content))
    elif kind == "symbols":
        data, _ = symbols(content.ljust(64, b"\0"))
    else:
        data, _ = dyld_info(**{kind: content})
    path = write(data)
    try:
        edit_private(path, DROP_B)
    except MacbuildError:
        assert path.read_bytes() == data
