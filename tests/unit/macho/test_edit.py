from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from macbuild.errors import FileError, HeaderRoomError, MacbuildError, MachOError
from macbuild.macho.edit import Edits, edit_file, edit_private
from macbuild.macho.verify import verify_file
from tests.support import machobytes

ID, LOAD, WEAK, REEXPORT, RPATH = 0xD, 0xC, 0x80000018, 0x8000001F, 0x8000001C
SEGMENT, SIGNATURE, BUILD, VERSION_MIN, SYMTAB = 0x19, 0x1D, 0x32, 0x24, 0x2
DEPS = ("@rpath/liba.dylib", "/opt/libb.dylib", "/usr/lib/libSystem.B.dylib")
Write = Callable[[bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(data: bytes) -> Path:
        path = tmp_path / "libx.dylib"
        path.write_bytes(data)
        return path

    return write


def commands(data: bytes) -> list[bytes]:
    """Split the load commands of a thin image without macbuild."""
    count, size = struct.unpack_from("<2I", data, 16)
    found, at = [], 32
    for _ in range(count):
        length = struct.unpack_from("<I", data, at + 4)[0]
        found.append(data[at : at + length])
        at += length
    assert at == 32 + size
    return found


def of_kind(data: bytes, *kinds: int) -> list[bytes]:
    return [command for command in commands(data) if struct.unpack_from("<I", command)[0] in kinds]


def name(command: bytes) -> str:
    at = struct.unpack_from("<I", command, 8)[0]
    return command[at:].split(b"\0")[0].decode()


def names(data: bytes, *kinds: int) -> list[str]:
    return [name(command) for command in of_kind(data, *kinds)]


def others(data: bytes, *kinds: int) -> list[bytes]:
    return [command for command in commands(data) if struct.unpack_from("<I", command)[0] not in kinds]


def with_command(data: bytes, *added: bytes) -> bytes:
    """Append load commands inside the room of a thin image."""
    count, size = struct.unpack_from("<2I", data, 16)
    body = b"".join(added)
    header = data[:16] + struct.pack("<2I", count + len(added), size + len(body)) + data[24 : 32 + size] + body
    return header + data[len(header) :]


def edited(path: Path, edits: Edits) -> bytes:
    assert edit_private(path, edits)
    return path.read_bytes()


def test_a_new_id_changes_only_the_id_command(write: Write) -> None:
    before = machobytes.dylib(dylibs=DEPS, rpaths=["/a"])
    after = edited(write(before), Edits(id="@rpath/a/much/longer/name/libx.dylib"))
    assert names(after, ID) == ["@rpath/a/much/longer/name/libx.dylib"]
    assert of_kind(after, ID)[0][12:24] == of_kind(before, ID)[0][12:24]
    assert others(after, ID) == others(before, ID)
    assert [command[:4] for command in commands(after)] == [command[:4] for command in commands(before)]
    end = 32 + struct.unpack_from("<I", after, 20)[0]
    assert after[end:] == before[end:]


@pytest.mark.parametrize("length", range(1, 20))
def test_a_name_ends_with_zero_and_its_command_is_a_multiple_of_eight(write: Write, length: int) -> None:
    after = edited(write(machobytes.dylib(id="@rpath/libx.dylib")), Edits(id="i" * length))
    command = of_kind(after, ID)[0]
    assert len(command) == (24 + length + 1 + 7) // 8 * 8
    assert command[24:] == (b"i" * length).ljust(len(command) - 24, b"\0")


def test_a_changed_dependency_keeps_its_place_and_versions(write: Write) -> None:
    before = machobytes.dylib(dylibs=DEPS)
    after = edited(write(before), Edits(change={DEPS[1]: "@rpath/libb.dylib"}))
    assert names(after, LOAD) == [DEPS[0], "@rpath/libb.dylib", DEPS[2]]
    assert of_kind(after, LOAD)[1][8:24] == of_kind(before, LOAD)[1][8:24]
    assert others(after, LOAD) == others(before, LOAD)


def test_two_names_can_be_swapped_in_one_edit(write: Write) -> None:
    after = edited(write(machobytes.dylib(dylibs=DEPS)), Edits(change={DEPS[0]: DEPS[1], DEPS[1]: DEPS[0]}))
    assert names(after, LOAD) == [DEPS[1], DEPS[0], DEPS[2]]


def test_freed_bytes_are_zero(write: Write) -> None:
    before = machobytes.dylib(id="@rpath/" + "x" * 200)
    after = edited(write(before), Edits(id="x"))
    end = 32 + struct.unpack_from("<I", after, 20)[0]
    old_end = 32 + struct.unpack_from("<I", before, 20)[0]
    assert old_end - end == 200
    assert after[end:old_end] == bytes(200)


def test_a_weakened_dependency_may_be_missing(write: Write) -> None:
    before = machobytes.dylib(dylibs=DEPS)
    after = edited(write(before), Edits(weaken=frozenset({DEPS[1]}), change={DEPS[1]: "/new"}))
    assert names(after, LOAD) == [DEPS[0], DEPS[2]]
    assert names(after, WEAK) == ["/new"]


def test_a_weakened_dependency_of_the_new_form_gets_the_flag_too(write: Write) -> None:
    new_form = struct.pack("<7I", LOAD, 40, 28, 0x1A741800, 0x10000, 0x10000, 8) + b"/n.dylib\0\0\0\0"
    path = write(with_command(machobytes.dylib(), new_form))
    after = edited(path, Edits(weaken=frozenset({"/n.dylib"}), change={"/n.dylib": "/name"}))
    expected = struct.pack("<7I", WEAK, 40, 28, 0x1A741800, 0x10000, 0x10000, 9) + b"/name".ljust(12, b"\0")
    assert of_kind(after, WEAK) == [expected]


def test_a_re_export_cannot_be_weakened(write: Write) -> None:
    path = write(with_command(machobytes.dylib(), machobytes._dylib(REEXPORT, "/r.dylib")))
    with pytest.raises(MachOError, match=r"/r\.dylib is a LC_REEXPORT_DYLIB"):
        edit_private(path, Edits(weaken=frozenset({"/r.dylib"})))


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        (Edits(add_rpaths=("/n", "/m")), ["/a", "/b", "/a", "/n", "/m"]),
        (Edits(delete_rpaths=("/a",)), ["/b"]),
        (Edits(replace_rpaths={"/b": "/long/one"}), ["/a", "/long/one", "/a"]),
        (Edits(deduplicate_rpaths=True), ["/a", "/b"]),
        (Edits(deduplicate_rpaths=True, replace_rpaths={"/b": "/a"}), ["/a"]),
        (Edits(delete_rpaths=("/b",), add_rpaths=("/b",)), ["/a", "/a", "/b"]),
        (Edits(rpaths=()), []),
        (Edits(rpaths=("/b", "/a")), ["/b", "/a"]),
        (Edits(rpaths=("/1", "/2", "/3", "/4", "/a")), ["/1", "/2", "/3", "/4", "/a"]),
    ],
)
def test_rpaths_are_edited_in_place(write: Write, edits: Edits, expected: list[str]) -> None:
    before = machobytes.dylib(rpaths=["/a", "/b", "/a"])
    uuid = struct.pack("<2I", 0x2A, 16) + bytes(8)
    before = with_command(before, uuid)
    after = edited(write(before), edits)
    assert names(after, RPATH) == expected
    assert others(after, RPATH) == others(before, RPATH)
    assert commands(after)[-1] == uuid


def test_the_first_rpath_of_an_unsigned_file_goes_to_the_end(write: Write) -> None:
    before = machobytes.dylib()
    after = edited(write(before), Edits(add_rpaths=("@loader_path",)))
    assert len(after) == len(before)
    assert commands(after)[:-1] == commands(before)
    assert commands(after)[-1] == struct.pack("<3I", RPATH, 32, 12) + b"@loader_path".ljust(20, b"\0")


def test_a_kept_rpath_keeps_its_bytes(write: Write) -> None:
    padded = struct.pack("<3I", RPATH, 64, 12) + b"/b".ljust(52, b"\0")
    path = write(with_command(machobytes.dylib(rpaths=["/a"]), padded))
    after = edited(path, Edits(rpaths=("/b", "/a")))
    assert of_kind(after, RPATH)[0] == padded


def test_minimum_os_and_sdk_are_set(write: Write) -> None:
    before = machobytes.dylib(minos="11.0", sdk="14.0")
    after = edited(write(before), Edits(minos=machobytes.version("12.3.1")))
    assert struct.unpack_from("<4I", of_kind(after, BUILD)[0], 8) == (1, 0x000C0301, 0x000E0000, 0)
    assert others(after, BUILD) == others(before, BUILD)


def test_the_older_version_command_is_set_and_other_platforms_stay(write: Write) -> None:
    older = struct.pack("<4I", VERSION_MIN, 16, 0x000A0900, 0x000A0900)
    catalyst = struct.pack("<6I", BUILD, 24, 6, 0x000D0000, 0x000D0000, 0)
    path = write(with_command(machobytes.dylib(), older, catalyst))
    after = edited(path, Edits(minos=0x000A0F00, sdk=0x000B0000))
    assert of_kind(after, VERSION_MIN) == [struct.pack("<4I", VERSION_MIN, 16, 0x000A0F00, 0x000B0000)]
    assert [struct.unpack_from("<3I", command, 8) for command in of_kind(after, BUILD)] == [
        (1, 0x000A0F00, 0x000B0000),
        (6, 0x000D0000, 0x000D0000),
    ]


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (Edits(change={"/none": "/x"}), r"has no dependency /none; it has @rpath/liba.dylib, /opt/libb.dylib, "),
        (Edits(remove=frozenset({"/none"})), "has no dependency /none; it has "),
        (Edits(weaken=frozenset({"/none"})), "has no dependency /none; it has "),
        (Edits(delete_rpaths=("/none",)), "has no rpath /none; it has /a, /b"),
        (Edits(replace_rpaths={"/none": "/x"}), "has no rpath /none; it has /a, /b"),
        (Edits(add_rpaths=("/a",)), "has the rpath /a already"),
        (Edits(add_rpaths=("/x", "/x")), "the rpath /x is given twice"),
        (Edits(rpaths=("/x", "/x")), "the rpath /x is given twice"),
        (Edits(rpaths=("/x",), add_rpaths=("/y",)), "excludes all other edits"),
        (Edits(replace_rpaths={"/a": "/b"}), "replacing the rpath /a would give /b twice"),
        (Edits(replace_rpaths={"/a": "/n", "/b": "/n"}), "would give /n twice"),
        (Edits(delete_rpaths=("/a",), replace_rpaths={"/a": "/n"}), "delete and also replace"),
        (Edits(change={DEPS[0]: DEPS[1]}), "would depend on /opt/libb.dylib twice"),
        (Edits(change={DEPS[0]: "/x"}, remove=frozenset({DEPS[0]})), "remove and also change"),
        (Edits(id=""), "cannot be written to a load command"),
        (Edits(id="a\0b"), "cannot be written to a load command"),
        (Edits(id="\ud800"), "cannot be written to a load command"),
        (Edits(minos=1 << 32), "not a packed version"),
        (Edits(sdk=-1), "not a packed version"),
    ],
)
def test_an_impossible_edit_is_an_error_and_nothing_is_written(write: Write, edits: Edits, message: str) -> None:
    before = machobytes.dylib(dylibs=DEPS, rpaths=["/a", "/b"], signed=True)
    path = write(before)
    with pytest.raises(MachOError, match=message) as caught:
        edit_private(path, edits)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_only_a_dylib_has_an_id(write: Write) -> None:
    data = bytearray(machobytes.dylib())
    at = data.index(of_kind(bytes(data), ID)[0])
    struct.pack_into("<I", data, at, LOAD)
    struct.pack_into("<I", data, 12, 8)
    with pytest.raises(MachOError, match=r"has no id to set; it has BUNDLE"):
        edit_private(write(bytes(data)), Edits(id="x"))


def test_a_file_without_a_version_command_cannot_get_a_minimum_os(write: Write) -> None:
    data = bytearray(machobytes.dylib())
    struct.pack_into("<I", data, data.index(of_kind(bytes(data), BUILD)[0]) + 8, 2)
    with pytest.raises(MachOError, match=r"no LC_BUILD_VERSION for macOS .* it has LC_SEGMENT_64, LC_ID_DYLIB"):
        edit_private(write(bytes(data)), Edits(minos=0xB0000))


@pytest.mark.parametrize("signed", [False, True])
def test_the_header_room_can_be_used_up_to_its_last_byte(write: Write, *, signed: bool) -> None:
    before = machobytes.dylib(room=64, signed=signed)
    room = 64 if signed else 80
    fits = "r" * (room - 12 - 1)
    path = write(before)
    with pytest.raises(HeaderRoomError, match=f"need {room + 8} more bytes, {room} bytes are free"):
        edit_private(path, Edits(add_rpaths=(fits + "r",)))
    assert path.read_bytes() == before
    after = edited(path, Edits(add_rpaths=(fits,)))
    end = 32 + struct.unpack_from("<I", after, 20)[0]
    text_at = struct.unpack_from("<I", of_kind(after, SEGMENT)[0], 72 + 48)[0]
    assert end == text_at
    assert after[end : end + 64] == before[end : end + 64]


def test_commands_overlapped_by_content_are_not_resized(write: Write) -> None:
    data = bytearray(machobytes.dylib())
    struct.pack_into("<I", data, 32 + 72 + 48, 64)
    with pytest.raises(MachOError, match="content overlaps the load commands"):
        edit_private(write(bytes(data)), Edits(id="short"))


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_the_signature_matches_the_edited_content(write: Write, arch: str) -> None:
    path = write(machobytes.dylib(arch, rpaths=["/a"], signed=True))
    after = edited(path, Edits(id="@rpath/new.dylib", rpaths=("/b", "/c"), minos=0xC0000))
    limit, size = struct.unpack_from("<2I", of_kind(after, SIGNATURE)[0], 8)
    text_size = struct.unpack_from("<Q", of_kind(after, SEGMENT)[0], 32)[0]
    assert after[limit:] == machobytes.code_directory(after[:limit], "libx.dylib", text_size)
    assert len(after) == limit + size
    verify_file(path)


def test_a_signature_that_is_not_ad_hoc_is_replaced(write: Write) -> None:
    data = machobytes.dylib(signed=True, minos="11.0")
    limit, size = struct.unpack_from("<2I", of_kind(data, SIGNATURE)[0], 8)
    directory = data[limit + 20 :]
    directory = directory[: struct.unpack_from(">I", directory, 4)[0]]
    cms = struct.pack(">2I", 0xFADE0B01, 24) + b"not a real one!!"
    blob = struct.pack(">7I", 0xFADE0CC0, 28 + len(directory) + len(cms), 2, 0, 28, 0x10000, 28 + len(directory))
    blob += directory + cms
    grown = len(blob) + -len(blob) % 16
    header = bytearray(data[:limit] + blob.ljust(grown, b"\0"))
    struct.pack_into("<I", header, header.index(of_kind(data, SIGNATURE)[0]) + 12, grown)
    linkedit = of_kind(data, SEGMENT)[1]
    filesize = struct.unpack_from("<Q", linkedit, 48)[0] - size + grown
    struct.pack_into("<Q", header, header.index(linkedit) + 48, filesize)
    path = write(bytes(header))
    edited(path, Edits(id="@rpath/new.dylib"))
    verify_file(path)
    assert b"not a real one" not in path.read_bytes()


def test_stripping_a_signature_removes_its_bytes(write: Write) -> None:
    before = machobytes.dylib(signed=True)
    limit = struct.unpack_from("<I", of_kind(before, SIGNATURE)[0], 8)[0]
    after = edited(write(before), Edits(strip_signature=True))
    assert len(after) == limit
    assert not of_kind(after, SIGNATURE)
    assert others(after, SEGMENT) == others(before, SEGMENT, SIGNATURE)
    vmsize, fileoff, filesize = struct.unpack_from("<3Q", of_kind(after, SEGMENT)[1], 32)
    assert fileoff + filesize == limit
    assert vmsize == 0x4000
    assert not edit_private(write(after), Edits(strip_signature=True))


def test_a_signature_before_other_bytes_only_loses_its_command(write: Write) -> None:
    before = machobytes.dylib(signed=True) + bytes(32)
    after = edited(write(before), Edits(strip_signature=True))
    assert len(after) == len(before)
    assert not of_kind(after, SIGNATURE)
    assert of_kind(after, SEGMENT) == of_kind(before, SEGMENT)


@pytest.mark.parametrize(
    "edits",
    [
        Edits(),
        Edits(id="@rpath/libx.dylib"),
        Edits(rpaths=("/a",)),
        Edits(change={DEPS[0]: DEPS[0]}),
        Edits(replace_rpaths={"/a": "/a"}),
        Edits(deduplicate_rpaths=True),
        Edits(minos=0xB0000, sdk=0xE0000),
    ],
)
def test_an_edit_without_effect_writes_nothing(write: Write, edits: Edits) -> None:
    path = write(machobytes.dylib(dylibs=DEPS, rpaths=["/a"], signed=True))
    path.chmod(0o444)
    os.utime(path, (1, 1))
    before = path.stat()
    assert not edit_private(path, edits)
    assert not edit_file(path, edits)
    after = path.stat()
    assert (after.st_ino, after.st_mtime) == (before.st_ino, 1)


def test_a_new_file_replaces_the_old_one_and_keeps_its_permissions(write: Write) -> None:
    before = machobytes.dylib(signed=True)
    path = write(before)
    path.chmod(0o754)
    inode = path.stat().st_ino
    with path.open("rb") as running:
        assert edit_file(path, Edits(id="/new"))
        assert running.read() == before
    assert path.stat().st_ino != inode
    assert stat.S_IMODE(path.stat().st_mode) == 0o754
    assert names(path.read_bytes(), ID) == ["/new"]
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    verify_file(path)


def test_an_output_is_written_even_if_nothing_changes(write: Write) -> None:
    before = machobytes.dylib()
    path = write(before)
    output = path.with_name("out.dylib")
    assert not edit_file(path, Edits(), output=output)
    assert output.read_bytes() == before
    assert edit_file(path, Edits(id="/new"), output=output)
    assert path.read_bytes() == before
    assert names(output.read_bytes(), ID) == ["/new"]


def test_a_link_stays_a_link(write: Write) -> None:
    path = write(machobytes.dylib())
    link = path.with_name("liby.dylib")
    link.symlink_to(path.name)
    assert edit_file(link, Edits(id="/new"))
    assert link.is_symlink()
    assert names(path.read_bytes(), ID) == ["/new"]


def test_an_error_leaves_no_file_behind(write: Write) -> None:
    path = write(machobytes.dylib(room=0))
    with pytest.raises(HeaderRoomError):
        edit_file(path, Edits(id="x" * 100), output=path.with_name("out"))
    with pytest.raises(FileError):
        edit_file(path, Edits(minos=0xC0000), output=path.parent / "none" / "out")
    assert [each.name for each in path.parent.iterdir()] == [path.name]


TEXT = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), arch=st.sampled_from(["arm64", "x86_64"]), signed=st.booleans())
def test_any_series_of_edits_matches_a_simple_model(
    write: Write, data: st.DataObject, arch: str, *, signed: bool
) -> None:
    dylibs = data.draw(st.lists(TEXT, min_size=1, max_size=4, unique=True))
    rpaths = data.draw(st.lists(TEXT, max_size=4))
    before = machobytes.dylib(arch, dylibs=dylibs, rpaths=rpaths, signed=signed)
    path = write(before)
    for step in range(data.draw(st.integers(1, 4))):
        new = f"{step} {data.draw(TEXT)}"
        old_dylib = data.draw(st.sampled_from([*dylibs, None]))
        old_rpath = data.draw(st.sampled_from([*rpaths, None]))
        exact = data.draw(st.lists(TEXT, max_size=5, unique=True))
        wish = data.draw(st.sampled_from(["change", "remove", "exact", "add", "delete", "replace"]))
        edits = Edits(id=new, minos=0xC0000)
        if wish == "change" and old_dylib:
            dylibs = [new if each == old_dylib else each for each in dylibs]
            edits = Edits(change={old_dylib: new})
        elif wish == "remove" and old_dylib:
            dylibs = [each for each in dylibs if each != old_dylib]
            edits = Edits(remove=frozenset({old_dylib}))
        elif wish == "exact":
            rpaths = exact
            edits = Edits(rpaths=tuple(exact))
        elif wish == "add":
            rpaths = [*dict.fromkeys(rpaths), new]
            edits = Edits(add_rpaths=(new,), deduplicate_rpaths=True)
        elif wish == "delete" and old_rpath:
            rpaths = [each for each in rpaths if each != old_rpath]
            edits = Edits(delete_rpaths=(old_rpath,))
        elif wish == "replace" and old_rpath:
            rpaths = [new if each == old_rpath else each for each in rpaths]
            edits = Edits(replace_rpaths={old_rpath: new})
        edit_private(path, edits)
        after = path.read_bytes()
        assert names(after, LOAD) == dylibs
        assert names(after, RPATH) == rpaths
        kinds = (ID, LOAD, RPATH, BUILD)
        assert others(after, *kinds) == others(before, *kinds)
        text_at = struct.unpack_from("<I", of_kind(after, SEGMENT)[0], 72 + 48)[0]
        end = struct.unpack_from("<I", of_kind(after, SIGNATURE)[0], 8)[0] if signed else len(before)
        assert after[text_at:end] == before[text_at:end]
        assert not any(after[32 + struct.unpack_from("<I", after, 20)[0] : text_at])
        if signed:
            verify_file(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    flips=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 400),
    fat=st.booleans(),
)
def test_damaged_files_are_edited_or_refused_but_never_half_written(
    write: Write, flips: Sequence[tuple[int, int]], cut: int, *, fat: bool
) -> None:
    image = bytearray(machobytes.dylib(dylibs=DEPS, rpaths=["/a"], signed=True))
    for at, value in flips:
        image[at] = value
    data = bytes(image[: len(image) - cut])
    if fat:
        data = machobytes.fat(data, machobytes.dylib("x86_64"))
    path = write(data)
    edits = Edits(id="/n", remove=frozenset({DEPS[0]}), add_rpaths=("/b",), strip_signature=cut % 2 == 0)
    try:
        edit_file(path, edits)
    except MacbuildError:
        assert path.read_bytes() == data
    assert [each.name for each in path.parent.iterdir()] == [path.name]
