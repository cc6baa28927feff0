from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from macbuild.errors import MacbuildError, MachOError
from macbuild.macho.constants import LC, HeaderFlag
from macbuild.macho.exports import build_trie, restrict_exports
from macbuild.macho.file import open_macho, parse_macho
from macbuild.macho.image import Image
from macbuild.macho.sign import sign_bytes
from macbuild.macho.symbols import read_exports, read_symbols, read_trie
from macbuild.macho.verify import verify_file
from tests.fuzz.machos import attach, exporting, kind, slot_offset
from tests.support import machobytes

Write = Callable[[bytes], Path]
NAMES = {"_TRITONBACKEND_A": False, "_other": False, "_weak": True, "_TRITONBACKEND_B": False, "_zweak": True}
PLAIN_WEAK = b"\x51\x70\x00\x40_weak\0\x90\x40_zweak\0\x90"  # Their slots are the first two words.
BOTH = {"_weak": True, "_zweak": True}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(data: bytes) -> Path:
        path = tmp_path / "libx.so"
        path.write_bytes(data)
        return path

    return write


def image(data: bytes) -> Image:
    return parse_macho(data).images[0]


def partitions(found: Image) -> list[list[str]]:
    """Return the names of local, defined and undefined symbols, as divided by LC_DYSYMTAB."""
    command = found.command(LC.DYSYMTAB)
    assert command is not None
    fields = struct.unpack_from("<6I", command.data, 8)
    names = [symbol.name.decode() for symbol in read_symbols(found)]
    return [names[start : start + count] for start, count in zip(fields[::2], fields[1::2], strict=True)]


def indirect(found: Image) -> list[str]:
    command = found.command(LC.DYSYMTAB)
    assert command is not None
    offset, count = struct.unpack_from("<2I", command.data, 8 + 48)
    names = [symbol.name.decode() for symbol in read_symbols(found)]
    values = struct.unpack(f"<{count}I", found.read(offset, 4 * count))
    return [names[value] if value < 0x40000000 else f"{value:#x}" for value in values]


def number(data: Iterator[int]) -> int:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value


def run(opcode: int, data: Iterator[int]) -> tuple[int, int]:
    """Return how many words an opcode binds, and the distance from each to the next."""
    if opcode >> 4 == 0xC:
        return number(data), 8 + number(data)
    return 1, 8 + (number(data) if opcode >> 4 == 0xA else 8 * (opcode & 0x0F))


def weak_binds(found: Image) -> list[tuple[str, int, int, int]]:
    """Return name, segment, offset and addend of each weak binding, with an independent decoder."""
    command = found.command(LC.DYLD_INFO_ONLY)
    assert command is not None
    data = iter(found.read(*struct.unpack_from("<2I", command.data, 8 + 16)))
    binds: list[tuple[str, int, int, int]] = []
    name, segment, at, addend = "", -1, 0, 0
    for byte in iter(lambda: next(data, 0), 0):
        opcode = byte & 0xF0
        if opcode == 0x40:
            name = bytes(iter(lambda: next(data), 0)).decode()
        elif opcode == 0x60:
            addend = number(data)
        elif opcode in {0x70, 0x80}:
            segment, at = (byte & 0x0F, number(data)) if opcode == 0x70 else (segment, at + number(data))
        elif opcode >= 0x90:
            count, step = run(byte, data)
            binds += [(name, segment, (at + step * index) % (1 << 64), addend) for index in range(count)]
            at += step * count
    return binds


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_an_unmatched_name_is_removed_from_trie_and_symbols(write: Write, arch: str) -> None:
    data = exporting(NAMES, slots=["_weak", "_zweak"], weak=PLAIN_WEAK, arch=arch)
    path = write(data)
    assert restrict_exports(path, ["_TRITONBACKEND_*"]) == ["_other", "_weak", "_zweak"]
    after = path.read_bytes()
    found = image(after)
    assert len(after) == len(data)
    assert read_exports(found).names == {b"_TRITONBACKEND_A", b"_TRITONBACKEND_B"}
    kept = ["_TRITONBACKEND_A", "_TRITONBACKEND_B"]
    assert partitions(found) == [["_local", "_other", "_weak", "_zweak"], kept, ["_puts"]]
    types = {symbol.name.decode(): (symbol.type, symbol.desc) for symbol in read_symbols(found)}
    assert types == {
        "_local": (0x0E, 0),
        "_puts": (0x01, 0x100),
        **dict.fromkeys(kept, (0x0F, 0)),
        **dict.fromkeys(["_other", "_weak", "_zweak"], (0x1E, 0)),
    }
    assert weak_binds(found) == []


def test_addresses_and_the_flags_of_kept_names_stay(write: Write) -> None:
    data = exporting(NAMES, slots=["_weak", "_zweak"], weak=PLAIN_WEAK)
    path = write(data)
    restrict_exports(path, ["_zweak", "*_A"])
    found = image(path.read_bytes())
    assert read_exports(found).weak == {b"_zweak"}
    before = {symbol.name: symbol.value for symbol in read_symbols(image(data))}
    assert {symbol.name: symbol.value for symbol in read_symbols(found)} == before
    command = found.command(LC.DYLD_INFO_ONLY)
    assert command is not None
    trie = found.read(*struct.unpack_from("<2I", command.data, 8 + 32))
    assert b"\x04\xc0\x02" in trie  # _zweak: weak, at address 0x140


def test_an_indirect_symbol_keeps_its_name(write: Write) -> None:
    data = exporting(NAMES)
    path = write(data)
    restrict_exports(path, ["_TRITONBACKEND_*"])
    before = indirect(image(data))
    assert before[-1] == "0x80000000"
    assert indirect(image(path.read_bytes())) == before


def test_only_what_must_change_changes(write: Write) -> None:
    data = exporting(NAMES, slots=["_weak", "_zweak"], weak=PLAIN_WEAK)
    path = write(data)
    restrict_exports(path, ["_TRITONBACKEND_*", "_*weak"])
    after = path.read_bytes()
    start = image(data).segments[1].fileoff
    assert after[image(data).commands_end : start] == data[image(data).commands_end : start]
    assert weak_binds(image(after)) == weak_binds(image(data))
    assert image(after).flags == image(data).flags


def test_a_signature_is_renewed_and_an_unsigned_file_stays_so(write: Write) -> None:
    plain = exporting(NAMES, arch="arm64")
    path = write(sign_bytes(plain, "libx.so"))
    restrict_exports(path, ["_TRITONBACKEND_*"])
    assert verify_file(path)[0].kind == "adhoc"
    path = write(machobytes.dylib(exports=["_a", "_b"], signed=True))
    assert restrict_exports(path, ["_a"]) == ["_b"]
    assert verify_file(path)[0].kind == "linker-signed"
    path = write(plain)
    restrict_exports(path, ["_TRITONBACKEND_*"])
    assert image(path.read_bytes()).signature_range is None


def test_a_file_with_nothing_to_remove_is_not_written(write: Write) -> None:
    path = write(exporting(NAMES))
    path.chmod(0o444)
    before = path.stat().st_mtime_ns
    assert restrict_exports(path, ["_*"]) == []
    assert path.stat().st_mtime_ns == before


def test_without_globs_no_export_is_left(write: Write) -> None:
    path = write(machobytes.dylib(exports=["_a", "_b"]))
    assert restrict_exports(path, []) == ["_a", "_b"]
    assert read_exports(image(path.read_bytes())).names == frozenset()


def test_each_slice_of_a_universal_file_is_restricted(write: Write) -> None:
    one, other = exporting(NAMES), exporting({"_TRITONBACKEND_C": False, "_only_here": False}, arch="arm64")
    path = write(machobytes.fat(one, other))
    assert restrict_exports(path, ["_TRITONBACKEND_*"]) == ["_only_here", "_other", "_weak", "_zweak"]
    with open_macho(path) as file:
        names = [read_exports(found).names for found in file.images]
    assert names == [{b"_TRITONBACKEND_A", b"_TRITONBACKEND_B"}, {b"_TRITONBACKEND_C"}]


WEAK = {
    "one group after another": b"\x51\x70\x00\x40_weak\0\x90\x40_zweak\0\x90",
    "a run": b"\x51\x40_weak\0\x70\x00\xc0\x02\x00\x40_zweak\0\x90",
    "steps": b"\x51\x70\x00\x40_weak\0\xa0\x08\x40_zweak\0\xb1\x90",
    "the state is set before the name": b"\x51\x70\x00\x40_weak\0\x90\x60\x08\x80\x08\x40_zweak\0\x90",
    "back to the start": b"\x51\x70\x00\x80\x08\x40_weak\0\x90\x80\xf0" + b"\xff" * 8 + b"\x01\x40_zweak\0\x90",
    "a strong definition is told": b"\x51\x70\x00\x48_weak\0\x40_zweak\0\x90",
}


@pytest.mark.parametrize("opcodes", [pytest.param(value, id=name) for name, value in WEAK.items()])
@pytest.mark.parametrize("gone", ["_weak", "_zweak"])
def test_weak_bindings_of_other_names_stay_in_place(write: Write, opcodes: bytes, gone: str) -> None:
    slots = [0x100, 0x110, 0x110, 0x110]
    plain = exporting(BOTH, slots=["_weak"] * 4, weak=opcodes)
    binds = weak_binds(image(plain))
    data = bytearray(plain)
    for name, _, offset, addend in binds:  # The words have the values given by the bindings.
        struct.pack_into("<Q", data, offset, slots[list(BOTH).index(name)] + addend)
    path = write(bytes(data))
    keep = next(name for name in BOTH if name != gone)
    assert restrict_exports(path, [keep]) == [gone]
    found = image(path.read_bytes())
    assert weak_binds(found) == [bind for bind in binds if bind[0] == keep]
    assert found.flags & HeaderFlag.TWOLEVEL


def test_flags_are_cleared_with_the_last_weak_name(write: Write) -> None:
    data = bytearray(exporting(NAMES, slots=["_weak", "_zweak"], weak=PLAIN_WEAK))
    flags = 0x800000 | HeaderFlag.WEAK_DEFINES | HeaderFlag.BINDS_TO_WEAK | 0x85
    struct.pack_into("<I", data, 24, flags)
    path = write(bytes(data))
    restrict_exports(path, ["_zweak"])
    assert image(path.read_bytes()).flags == flags
    restrict_exports(path, ["_TRITON*"])
    assert image(path.read_bytes()).flags == 0x800085


def refused(path: Path, keep: list[str], message: str) -> None:
    before = path.read_bytes()
    with pytest.raises(MachOError, match=message):
        restrict_exports(path, keep)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"rebase": b"\x11\x20\x00\x51\x00"}, "_zweak cannot be undone", id="no rebase"),
        pytest.param({"rebase": b""}, "_weak cannot be undone", id="no rebases at all"),
        pytest.param({"slots": ["_weak", "_weak"]}, "_zweak cannot be undone", id="another address"),
        pytest.param({"weak": PLAIN_WEAK.replace(b"\x51", b"\x52")}, "cannot be undone", id="no pointer"),
        pytest.param(
            {"rebase": b"\x11\x25\x08\x51\x00", "weak": b"\x51\x75\x08\x40_weak\0\x90"},
            "segment 5",
            id="no such segment",
        ),
        pytest.param({"weak": b"\x51\x70\x00\x40_weak\0\xc0\xff\xff\xff\x7f\x00"}, "more slots", id="endless run"),
        pytest.param({"weak": b"\x51\x70\x00\x40_weak\0\xd0\x01"}, "opcode 0xd0", id="threaded"),
        pytest.param({"weak": b"\x51\x70\x00\x40_weak\0\xa0\x80\x80\x80\x80"}, "weak bind .* cut off", id="cut off"),
        pytest.param({"rebase": b"\x11\x20\x00\x60\x80\x80\x80"}, "rebase .* cut off", id="rebases cut off"),
        pytest.param({"rebase": b"\x11\x20\x00\x60\xff\xff\x7f\0"}, "more slots", id="endless rebases"),
        pytest.param({"rebase": b"\x12\x20\x00\x60\xff\xff\x7f\0"}, "belong", id="rebases of another type"),
        pytest.param({"bind": b"\x10\x40_weak\0\x51\x70\x00\x90"}, "by name.*: _weak", id="bound to itself"),
        pytest.param({"bind": b"\x3e\x40_zweak\0\x51\x70\x00\x90"}, "by name.*: _zweak", id="flat lookup"),
    ],
)
def test_removing_names_needed_at_load_time_is_refused(write: Write, change: dict[str, object], message: str) -> None:
    settings_ = {"slots": ["_weak", "_zweak"], "weak": PLAIN_WEAK, **change}
    refused(write(exporting(BOTH, **settings_)), ["_none"], message)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ordinal", "fails"), [(-3, True), (0, True), (-2, True), (1, False)])
def test_chained_fixups_that_look_up_a_removed_name_are_refused(write: Write, ordinal: int, fails: bool) -> None:
    names = b"\0_f\0\0\0\0\0"
    fixups = struct.pack("<9I", 0, 28, 32, 36, 1, 1, 0, 0, ordinal & 0xFF | 1 << 9) + names
    path = write(attach(machobytes.dylib(exports=["_f"]), fixups, (0x80000034, -1, len(fixups))))
    if fails:
        refused(path, ["_g"], "binds to its own exports by name")
    else:
        assert restrict_exports(path, ["_g"]) == ["_f"]


def test_a_file_that_is_not_a_library_is_refused(write: Write) -> None:
    refused(write(kind(exporting(NAMES), 2)), ["_a"], "EXECUTE has no exports to restrict")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (1, 0, "unusual order"),
        (3, 2, "unusual order"),
        (7, 1, "older systems"),
        (15, 1, "older systems"),
        (12, 1 << 20, "outside"),
        (12, 40, "overlap the load commands"),
    ],
)
def test_a_malformed_symbol_table_is_refused(write: Write, field: int, value: int, message: str) -> None:
    data = bytearray(exporting(NAMES))
    command = image(bytes(data)).command(LC.DYSYMTAB)
    assert command is not None
    if (field, value) == (1, 0):
        struct.pack_into("<2I", data, command.offset + 16, 3, 3)
    else:
        struct.pack_into("<I", data, command.offset + 8 + 4 * field, value)
    refused(write(bytes(data)), ["_TRITONBACKEND_*"], message)


def test_overlapping_tables_are_refused(write: Write) -> None:
    data = bytearray(exporting(NAMES))
    found = image(bytes(data))
    info, dynamic = found.command(LC.DYLD_INFO_ONLY), found.command(LC.DYSYMTAB)
    assert info is not None
    assert dynamic is not None
    data[dynamic.offset + 8 + 48 : dynamic.offset + 8 + 52] = data[info.offset + 40 : info.offset + 44]
    refused(write(bytes(data)), ["_TRITONBACKEND_*"], "overlap each other|does not exist")


def test_a_file_that_is_not_mach_o_is_an_error(write: Write) -> None:
    with pytest.raises(MacbuildError):
        restrict_exports(write(b"ELF" * 40), ["*"])


NAME = st.text("ab_\xe9", min_size=1, max_size=6).map(lambda text: text.encode("latin-1"))


@given(st.dictionaries(NAME, st.binary(min_size=1, max_size=4).map(lambda tail: b"\0" + tail[:1])))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_trie_has_exactly_the_names_it_was_made_from(terminals: dict[bytes, bytes]) -> None:
    trie = build_trie(terminals)
    assert read_trie(trie).names == terminals.keys()
    assert all(payload in trie for payload in terminals.values())


@given(st.sets(NAME, max_size=12), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_choice_of_names_can_be_kept(
    tmp_path_factory: pytest.TempPathFactory, names: set[bytes], data: st.DataObject
) -> None:
    texts = sorted(name.decode("latin-1") for name in names if name.isascii())
    keep = data.draw(st.sets(st.sampled_from(texts))) if texts else set()
    path = tmp_path_factory.mktemp("any") / "libx.so"
    path.write_bytes(sign_bytes(exporting(dict.fromkeys(texts, False)), "libx.so"))
    removed = restrict_exports(path, sorted(keep))
    assert removed == sorted(set(texts) - keep)
    with open_macho(path) as file:
        found = file.images[0]
        assert read_exports(found).names == {name.encode() for name in keep}
        assert [name for name in partitions(found)[1] if name in removed] == []
        assert set(partitions(found)[1]) == keep
    verify_file(path)


def test_slots_are_in_the_section_of_the_test_images() -> None:
    data = exporting(NAMES, slots=["_other"], weak=PLAIN_WEAK)
    assert struct.unpack_from("<Q", data, slot_offset(data)) == (0x110,)
    assert [bind[:3] for bind in weak_binds(image(data))] == [
        ("_weak", 0, slot_offset(data)),
        ("_zweak", 0, slot_offset(data) + 8),
    ]
