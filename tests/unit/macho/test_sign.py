from __future__ import annotations

import hashlib
import itertools
import struct
from pathlib import Path

import pytest

from macbuild.errors import FileError, HeaderRoomError, MacbuildError, MachOError, SignatureError, UsageError
from macbuild.macho.codesign import CodeFlag, HashType, Magic, build_blob
from macbuild.macho.file import parse_macho
from macbuild.macho.identifier import default_identifier
from macbuild.macho.pages import hash_pages
from macbuild.macho.sign import SignOptions, refresh, sign_bytes, sign_file, sign_private
from macbuild.macho.verify import read_signature, verify_file, verify_image
from tests.support import machobytes
from tests.support.signatures import (
    LLVM_DYLIB,
    agile,
    assert_hashes,
    blobs,
    directory,
    image_of,
    linker_signed,
    signature_place,
    with_cms,
)

ENTITLEMENTS = (
    b'<?xml version="1.0" encoding="UTF-8"?><plist version="1.0"><dict>'
    b"<key>com.apple.security.cs.allow-jit</key><true/><key>b</key><array><integer>-129</integer><string>x</string>"
    b"</array><key>a</key><dict><key>k</key><false/></dict></dict></plist>"
)
ENTITLEMENTS_DER = (
    bytes.fromhex("7048 020101 b043 300d 0c0161 b008 3006 0c016b 010100 300c 0c0162 3007 0202ff7f 0c0178 3024 0c1f")
    + b"com.apple.security.cs.allow-jit\x01\x01\xff"
)
EMPTY_REQUIREMENTS = bytes.fromhex("fade0c01 0000000c 00000000")


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_first_signature_is_that_of_codesign(arch: str) -> None:
    plain = machobytes.dylib(arch)
    data = sign_bytes(plain, "libx.dylib")
    start, size = signature_place(data)
    assert start % 16 == 0
    assert size % 16 == 0
    assert start + size == len(data)
    fields = directory(data)
    uuid = hashlib.sha256(b"@rpath/libx.dylib").hexdigest()[:32]
    assert blobs(data)[0][88:].split(b"\0")[0] == b"libx-55554944" + uuid.encode()
    assert sorted(blobs(data)) == [0, 2, 0x10000]
    assert blobs(data)[2] == EMPTY_REQUIREMENTS
    assert blobs(data)[0x10000] == bytes.fromhex("fade0b01 00000008")
    wanted = {"version": 0x20400, "flags": 2, "specials": 2, "limit": start, "hash_type": 2, "shift": 12, "base": 0}
    assert {name: fields[name] for name in wanted} == wanted
    assert fields["exec_limit"] == struct.unpack_from("<Q", plain, 32 + 48)[0]
    assert fields["exec_flags"] == 0
    assert_hashes(data)
    assert verify_image(image_of(data)).kind == "adhoc"


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_first_signature_changes_only_its_command_and_linkedit(arch: str) -> None:
    plain = machobytes.dylib(arch)
    data = sign_bytes(plain, "libx.dylib")
    old, new = image_of(plain), image_of(data)
    assert data[new.commands_end : len(plain)] == plain[new.commands_end :]
    changed = [command.name for command, before in zip(new.commands, old.commands, strict=False) if command != before]
    assert changed == ["LC_SEGMENT_64"]
    assert [command.name for command in new.commands[len(old.commands) :]] == ["LC_CODE_SIGNATURE"]
    before, after = old.segment("__LINKEDIT"), new.segment("__LINKEDIT")
    assert before is not None
    assert after is not None
    assert (after.vmaddr, after.fileoff) == (before.vmaddr, before.fileoff)
    assert after.filesize == len(data) - after.fileoff
    assert after.vmsize == -(-after.filesize // machobytes.PAGE[arch]) * machobytes.PAGE[arch]


def test_signing_again_gives_the_bytes_of_llvms_linker() -> None:
    first_page = hashlib.sha256(LLVM_DYLIB[:4096]).digest()
    assert LLVM_DYLIB.count(first_page) == 1
    assert sign_bytes(LLVM_DYLIB.replace(first_page, bytes(32)), "other.dylib") == LLVM_DYLIB


def test_signature_of_llvm_is_valid() -> None:
    facts = verify_image(image_of(LLVM_DYLIB))
    assert (facts.kind, facts.identifier, facts.flags) == (
        "linker-signed",
        "libanswer.dylib",
        ("adhoc", "linker-signed"),
    )
    assert_hashes(LLVM_DYLIB)


def test_linker_signed_flag_gives_an_unsigned_file_a_linkers_form() -> None:
    data = linker_signed()
    assert blobs(data).keys() == {0}
    start, _ = signature_place(data)
    fields = directory(data)
    assert fields["length"] == 88 + len("libx.dylib") + 1 + 32 * -(-start // 4096)
    assert (fields["flags"], fields["specials"], fields["ident"]) == (0x20002, 0, 88)
    assert_hashes(data)


@pytest.mark.parametrize(
    ("minos", "types"), [("10.9", [1, 2]), ("10.11.3", [1, 2]), ("10.11.4", [2]), ("10.12", [2]), ("11.0", [2])]
)
def test_sha1_is_added_only_for_systems_before_10_11_4(minos: str, types: list[int]) -> None:
    data = sign_bytes(machobytes.dylib("x86_64", minos=minos), "libx.dylib")
    slots = [0, 0x1000][: len(types)]
    assert [directory(data, slot)["hash_type"] for slot in slots] == types
    for slot in slots:
        assert_hashes(data, slot)
    assert verify_image(image_of(data)).hashes == tuple(HashType(kind).label for kind in types)
    assert sign_bytes(data, "y") == data


def test_sha1_is_added_if_the_minimum_system_is_unknown() -> None:
    plain = machobytes.dylib("x86_64").replace(struct.pack("<2I", 0x32, 24), struct.pack("<2I", 0x2A, 24))
    assert verify_image(image_of(sign_bytes(plain, "libx"))).hashes == ("SHA-1", "SHA-256")


def test_sha1_is_dropped_if_the_minimum_system_does_not_need_it() -> None:
    data = sign_bytes(machobytes.dylib("x86_64", minos="10.9"), "libx.dylib")
    newer = data.replace(struct.pack("<4I", 0x32, 24, 1, 0x0A0900), struct.pack("<4I", 0x32, 24, 1, 0x0B0000))
    assert newer != data
    assert verify_image(image_of(sign_bytes(newer, "libx"))).hashes == ("SHA-256",)


def test_hardened_runtime_keeps_its_version_from_the_sdk() -> None:
    data = sign_bytes(machobytes.dylib(sdk="14.2"), "x", SignOptions(flags=CodeFlag.RUNTIME))
    fields = directory(data)
    assert (fields["version"], fields["flags"], fields["runtime"]) == (0x20500, 0x10002, 0x0E0200)
    facts = verify_image(image_of(data))
    assert (facts.runtime_version, facts.flags) == ("14.2.0", ("adhoc", "runtime"))
    later = data.replace(struct.pack("<3I", 1, 0x0B0000, 0x0E0200), struct.pack("<3I", 1, 0x0B0000, 0x0F0000))
    assert later != data
    assert verify_image(image_of(sign_bytes(later, "x"))).runtime_version == "14.2.0"


def test_entitlements_are_written_as_xml_and_der_and_sealed() -> None:
    data = sign_bytes(linker_signed(), "x", SignOptions(entitlements=ENTITLEMENTS))
    found = blobs(data)
    assert found[5] == struct.pack(">2I", 0xFADE7171, 8 + len(ENTITLEMENTS)) + ENTITLEMENTS
    assert found[7] == struct.pack(">2I", 0xFADE7172, 8 + len(ENTITLEMENTS_DER)) + ENTITLEMENTS_DER
    assert directory(data)["specials"] == 7
    assert directory(data)["flags"] == 2
    assert_hashes(data)
    assert verify_image(image_of(data)).entitlements == ENTITLEMENTS.decode()


def test_entitlements_and_requirements_are_kept_replaced_and_removed() -> None:
    requirements = build_blob(Magic.REQUIREMENTS, struct.pack(">3I", 1, 3, 20) + bytes(12))
    first = sign_bytes(
        machobytes.dylib(), "x", SignOptions(entitlements=ENTITLEMENTS, requirements=requirements, flags=0x2000)
    )
    kept = sign_bytes(first, "y")
    assert kept == first
    other = sign_bytes(first, "y", SignOptions(entitlements=b'<plist version="1.0"><dict/></plist>'))
    assert blobs(other)[7][8:] == bytes.fromhex("7005020101b000")
    assert blobs(other)[2] == requirements
    removed = sign_bytes(first, "y", SignOptions(entitlements=b""))
    assert blobs(removed).keys() == {0, 2, 0x10000}
    assert directory(removed)["flags"] == 0x2002
    forgotten = sign_bytes(first, "y", SignOptions(preserve=False))
    assert blobs(forgotten)[2] == EMPTY_REQUIREMENTS
    assert directory(forgotten)["flags"] == 2
    assert blobs(forgotten)[0][88:].startswith(b"y-5555")


def test_signature_with_an_identity_becomes_ad_hoc() -> None:
    signed = with_cms(sign_bytes(machobytes.dylib(), "x", SignOptions(entitlements=ENTITLEMENTS)))
    facts = verify_image(image_of(signed))
    assert (facts.kind, facts.team_id, facts.unchecked) == ("cms", "TEAM123456", ("certificate chain",))
    data = sign_bytes(signed, "x")
    facts = verify_image(image_of(data))
    assert (facts.kind, facts.team_id, facts.identifier) == ("adhoc", None, "com.example.x")
    assert facts.runtime_version == "13.1.0"
    assert blobs(data)[2] == EMPTY_REQUIREMENTS


def test_main_binary_flag_is_set_only_for_executables() -> None:
    plain = bytearray(machobytes.dylib())
    struct.pack_into("<I", plain, 12, 2)
    data = sign_bytes(bytes(plain), "tool")
    assert directory(data)["exec_flags"] == 1
    verify_image(image_of(data))
    xml = b'<plist version="1.0"><dict><key>get-task-allow</key><true/></dict></plist>'
    data = sign_bytes(data, "tool", SignOptions(entitlements=xml))
    assert directory(data)["exec_flags"] == 0x11
    verify_image(image_of(data))
    assert sign_bytes(data, "tool") == data
    assert directory(sign_bytes(data, "tool", SignOptions(entitlements=b"")))["exec_flags"] == 1


def with_info_plist(arch: str, plist: bytes) -> bytes:
    return machobytes.dylib(arch, text=plist).replace(b"__text".ljust(16, b"\0"), b"__info_plist".ljust(16, b"\0"), 1)


def test_embedded_info_plist_names_and_seals_the_file() -> None:
    plist = b'<plist version="1.0"><dict><key>CFBundleIdentifier</key><string>com.example.tool</string></dict></plist>'
    data = sign_bytes(with_info_plist("arm64", plist), "x")
    facts = verify_image(image_of(data))
    assert (facts.identifier, facts.unchecked) == ("com.example.tool", ())
    hashes = directory(data)["hashes"]
    assert blobs(data)[0][hashes - 32 : hashes] == hashlib.sha256(plist).digest()
    edited = bytearray(data.replace(b"example", b"another"))
    assert not refresh(image_of(edited), [(data.index(b"example"), data.index(b"example") + 7)])
    again = sign_bytes(bytes(edited), "x")
    verify_image(image_of(again))
    assert sign_bytes(again, "x") == again


def test_damaged_info_plist_is_a_signature_error() -> None:
    with pytest.raises(SignatureError, match=r"Info\.plist is not an XML property list"):
        sign_bytes(with_info_plist("arm64", b"<plist>"), "x")


def test_no_room_for_the_load_command_is_an_error_with_numbers() -> None:
    plain = bytearray(machobytes.dylib(room=0))
    sign_bytes(bytes(plain), "x")
    section = plain.index(b"__text")
    offset = struct.unpack_from("<I", plain, section + 48)[0]
    struct.pack_into("<I", plain, section + 48, offset - 8)
    with pytest.raises(HeaderRoomError, match="needs 16 bytes for its load command, 8 are free"):
        sign_bytes(bytes(plain), "x")


def test_bytes_after_linkedit_are_an_error() -> None:
    with pytest.raises(MachOError, match="5 bytes follow __LINKEDIT"):
        sign_bytes(machobytes.dylib() + b"extra", "x")


def test_linkedit_must_exist_and_be_last() -> None:
    plain = machobytes.dylib()
    with pytest.raises(MachOError, match="no __LINKEDIT"):
        sign_bytes(plain.replace(b"__LINKEDIT", b"__LINKWHAT"), "x")
    moved = bytearray(plain)
    struct.pack_into("<Q", moved, plain.index(b"__TEXT") + 16, 1 << 40)
    with pytest.raises(MachOError, match="__TEXT comes after __LINKEDIT"):
        sign_bytes(bytes(moved), "x")


def test_object_file_is_refused() -> None:
    plain = bytearray(machobytes.dylib())
    struct.pack_into("<I", plain, 12, 1)
    with pytest.raises(MachOError, match="type OBJECT cannot be signed"):
        sign_bytes(bytes(plain), "x")


def test_misaligned_old_signature_is_moved_to_a_multiple_of_16() -> None:
    data = bytearray(sign_bytes(machobytes.dylib(), "x"))
    start, size = signature_place(data)
    command = data.index(struct.pack("<3I", 0x1D, 16, start))
    struct.pack_into("<2I", data, command + 8, start - 6, size + 6)
    moved = data[: start - 6] + data[start:] + bytes(6)
    with pytest.raises(SignatureError, match="not a multiple of 16"):
        verify_image(image_of(moved))
    again = sign_bytes(bytes(moved), "x")
    assert signature_place(again)[0] == start
    verify_image(image_of(again))


@pytest.mark.parametrize("magic", [0xCAFEBABE, 0xCAFEBABF])
def test_each_slice_of_a_universal_file_is_signed_and_stays_aligned(tmp_path: Path, magic: int) -> None:
    path = tmp_path / "libx.dylib"
    slices = [machobytes.dylib("x86_64", text=b"a" * 60000), machobytes.dylib("arm64", text=b"b" * 20000)]
    path.write_bytes(machobytes.fat(*slices, wide=magic == 0xCAFEBABF))
    sign_file(path)
    facts = verify_file(path)
    assert [each.arch for each in facts] == ["x86_64", "arm64"]
    assert len({each.identifier for each in facts}) == 1
    data = path.read_bytes()
    macho = parse_macho(data)
    assert struct.unpack_from(">I", data)[0] == magic
    for entry, plain in zip(macho.fat, slices, strict=True):
        assert entry.offset % 0x4000 == 0
        thin = data[entry.offset : entry.offset + entry.size]
        assert_hashes(thin)
        assert thin[0x1000 : len(plain)] == plain[0x1000:]
    assert macho.fat[-1].offset + macho.fat[-1].size == len(data)


def test_universal_file_signed_again_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "libx.dylib"
    path.write_bytes(machobytes.fat(machobytes.dylib("x86_64"), linker_signed()))
    sign_private(path)
    data = path.read_bytes()
    sign_private(path)
    assert path.read_bytes() == data


def test_sign_file_writes_a_new_inode_with_the_old_permissions(tmp_path: Path) -> None:
    path = tmp_path / "libx.dylib"
    path.write_bytes(machobytes.dylib())
    path.chmod(0o751)
    link = tmp_path / "link.dylib"
    link.symlink_to(path.name)
    inode = path.stat().st_ino
    sign_file(link)
    assert link.is_symlink()
    assert path.stat().st_ino != inode
    assert path.stat().st_mode & 0o777 == 0o751
    assert sorted(tmp_path.iterdir()) == [path, link]
    assert path.read_bytes() == sign_bytes(machobytes.dylib(), "link.dylib")


def test_sign_file_with_an_output_leaves_the_input(tmp_path: Path) -> None:
    path, output = tmp_path / "a.dylib", tmp_path / "libx.dylib"
    path.write_bytes(machobytes.dylib())
    sign_file(path, output=output)
    assert path.read_bytes() == machobytes.dylib()
    assert output.read_bytes() == sign_bytes(machobytes.dylib(), "libx.dylib")


def test_failed_sign_file_leaves_the_original_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "libx.dylib"
    path.write_bytes(machobytes.dylib() + b"extra")
    with pytest.raises(MachOError):
        sign_file(path)
    assert path.read_bytes() == machobytes.dylib() + b"extra"
    assert list(tmp_path.iterdir()) == [path]


def test_file_errors_are_errors_of_macbuild(tmp_path: Path) -> None:
    path = tmp_path / "libx.dylib"
    with pytest.raises(MachOError, match="cannot be read"):
        sign_file(path)
    path.write_bytes(machobytes.dylib())
    with pytest.raises(FileError, match="cannot be written"):
        sign_file(path, output=tmp_path / "missing" / "libx.dylib")


def test_sign_private_keeps_the_inode_of_a_thin_file(tmp_path: Path) -> None:
    path = tmp_path / "libx.dylib"
    path.write_bytes(machobytes.dylib())
    inode = path.stat().st_ino
    sign_private(path)
    assert path.stat().st_ino == inode
    assert path.read_bytes() == sign_bytes(machobytes.dylib(), "libx.dylib")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        # The examples in the comment of Apple's DiskRep::canonicalIdentifier, and edge cases.
        ("libfrotz7.3.5.dylib", "libfrotz7-"),
        ("mumble.77.plugin", "mumble.77"),
        ("rumble.rb", "rumble-"),
        ("foo.2.3.4", "foo.2"),
        ("foo2.3", "foo2-"),
        ("foo.9", "foo.9"),
        ("7zip.4.dylib", "7zip.4"),
        ("_C.cpython-312-darwin.so", "_C.cpython-312-darwin"),
        ("libtorch_cpu.dylib", "libtorch_cpu-"),
    ],
)
def test_identifier_is_derived_as_codesign_does(name: str, wanted: str) -> None:
    image = image_of(machobytes.dylib())
    suffix = f"55554944{image.uuid}" if wanted.endswith("-") else ""
    assert default_identifier(image, name) == wanted + suffix


def test_identifier_without_uuid_has_the_hash_of_the_commands() -> None:
    plain = machobytes.dylib().replace(struct.pack("<2I", 0x1B, 24), struct.pack("<2I", 0x2A, 24))
    image = image_of(plain)
    digest = hashlib.sha1(plain[:28] + plain[32 : image.commands_end]).hexdigest()
    assert default_identifier(image, "a.dylib") == f"a-{digest}"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (SignOptions(identifier=""), UsageError, "must not be empty"),
        (SignOptions(identifier="a\0b"), UsageError, "must not be empty"),
        (SignOptions(flags=0x8), UsageError, "unknown signature flags 0x8"),
        (SignOptions(entitlements=b"<plist>"), SignatureError, "not an XML property list"),
        (SignOptions(entitlements=b"<plist><array/></plist>"), SignatureError, "not a dictionary"),
        (
            SignOptions(entitlements=b"<plist><dict><key>a</key><real>1</real></dict></plist>"),
            SignatureError,
            "cannot hold a float",
        ),
        (
            SignOptions(
                entitlements=b"<plist><dict><key>a</key>" + b"<array>" * 999 + b"</array>" * 999 + b"</dict></plist>"
            ),
            SignatureError,
            "cannot hold a list here",
        ),
        (
            SignOptions(requirements=b"\xfa\xde\x0c\x01\0\0\0\x0d\0\0\0\0"),
            SignatureError,
            "requirements are not a blob",
        ),
    ],
)
def test_bad_options_are_errors(options: SignOptions, error: type[MacbuildError], message: str) -> None:
    with pytest.raises(error, match=message):
        sign_bytes(machobytes.dylib(), "x", options)


def test_malformed_old_signature_is_an_error_with_a_way_out() -> None:
    data = bytearray(linker_signed())
    data[signature_place(data)[0]] = 0
    with pytest.raises(SignatureError) as caught:
        sign_bytes(bytes(data), "x")
    assert caught.value.hint is not None
    assert "--no-preserve" in caught.value.hint
    verify_image(image_of(sign_bytes(bytes(data), "x", SignOptions(preserve=False))))


@pytest.mark.parametrize("data", [linker_signed(text=b"x" * 30000), LLVM_DYLIB, agile()])
def test_refresh_hashes_only_the_touched_pages(data: bytes) -> None:
    edited = bytearray(data)
    edited[4090:4100] = b"0123456789"
    edited[0x3001] ^= 0xFF
    expected = sign_bytes(bytes(edited), "x")
    assert refresh(image_of(edited), [(4090, 4100), (0x3000, 0x3000)])
    with pytest.raises(SignatureError, match="page 3 "):
        verify_image(image_of(edited))
    assert refresh(image_of(edited), [(0x3001, 0x3002)])
    assert bytes(edited) == expected
    verify_image(image_of(edited))


def test_refresh_works_inside_a_universal_file() -> None:
    data = bytearray(machobytes.fat(linker_signed("x86_64"), linker_signed()))
    image = parse_macho(data).images[1]
    data[image.offset + 0x3000] ^= 1
    assert refresh(image, [(0x3000, 0x3001)])
    for each in parse_macho(data).images:
        verify_image(each)


@pytest.mark.parametrize(
    ("data", "touched"),
    [
        (machobytes.dylib(), (0, 8)),
        (with_cms(agile()), (0, 8)),
        (linker_signed(), (0, 1 << 20)),
        (linker_signed(), (-1, 8)),
        (linker_signed().replace(b"__LINKEDIT", b"__LINKWHAT", 1), (0, 4096)),
    ],
)
def test_refresh_declines_and_changes_nothing(data: bytes, touched: tuple[int, int]) -> None:
    edited = bytearray(data)
    assert not refresh(image_of(edited), [touched])
    assert bytes(edited) == data


def test_two_processes_give_the_same_hashes_as_one() -> None:
    code = memoryview(b"".join(struct.pack("<I", number) * 1024 for number in range(8193)) + b"end")
    one = b"".join(hashlib.sha256(code[at : at + 4096]).digest() for at in range(0, len(code), 4096))
    assert hash_pages(code, 4096, HashType.SHA256) == one


def test_reading_a_signature_gives_its_facts_without_hashing() -> None:
    data = bytearray(linker_signed())
    data[0x3000] ^= 1
    facts = read_signature(image_of(data))
    assert facts is not None
    assert facts.cdhash == hashlib.sha256(blobs(data)[0]).hexdigest()[:40]
    assert read_signature(image_of(machobytes.dylib())) is None


def test_damaged_files_raise_only_errors_of_macbuild() -> None:
    base = agile(b"")
    start, _ = signature_place(base)
    spots = itertools.chain(range(image_of(base).commands_end), range(start, len(base)))
    for position, value in itertools.product(spots, (0xFF, 0x80)):
        data = bytearray(base)
        data[position] = value
        for options in (SignOptions(), SignOptions(preserve=False)):
            try:
                signed = sign_bytes(bytes(data), "x", options)
                read_signature(image_of(signed))
            except MacbuildError:
                continue
