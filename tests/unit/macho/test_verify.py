from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from macbuild.errors import MacbuildError, SignatureError
from macbuild.macho.codesign import CodeFlag
from macbuild.macho.image import Image
from macbuild.macho.sign import SignOptions, sign_bytes
from macbuild.macho.verify import SignatureFacts, verify_file, verify_image
from tests.support import machobytes

ENTITLEMENTS = b'<plist version="1.0"><dict><key>com.apple.security.cs.allow-jit</key><true/></dict></plist>'
LINKER = SignOptions(identifier="libx.dylib", flags=CodeFlag.LINKER_SIGNED)
RUNTIME = SignOptions(identifier="com.example.x", flags=CodeFlag.RUNTIME, entitlements=ENTITLEMENTS)


def dylib(options: SignOptions = LINKER, minos: str = "11.0", room: int = 2000) -> bytes:
    return sign_bytes(machobytes.dylib("x86_64", minos=minos, room=room), "libx.dylib", options)


def verify(data: bytes | bytearray) -> SignatureFacts:
    return verify_image(Image(data, 0, len(data), "libx"))


def place(data: bytes) -> tuple[int, int]:
    """Return where the signature starts and where its blobs end; the bytes after that are not covered by anything."""
    start = Image(data, 0, len(data), "libx").signature_range
    assert start is not None
    return start[0], start[0] + struct.unpack_from(">I", data, start[0] + 4)[0]


def directories(data: bytes) -> list[int]:
    """Return the offsets of all code directories in the file."""
    start, _ = place(data)
    count = struct.unpack_from(">I", data, start + 8)[0]
    index = [struct.unpack_from(">2I", data, start + 12 + 8 * number) for number in range(count)]
    return [start + offset for slot, offset in index if slot in {0, 0x1000}]


def accepted(data: bytes, positions: range, values: Callable[[int], list[int]]) -> set[int]:
    """Return the positions at which another value of the byte is not detected."""
    found = set()
    edited = bytearray(data)
    for position in positions:
        for value in values(data[position]):
            edited[position] = value
            try:
                verify(edited)
            except MacbuildError:
                continue
            found.add(position)
        edited[position] = data[position]
    return found


def all_others(byte: int) -> list[int]:
    return [value for value in range(256) if value != byte]


def some_others(byte: int) -> list[int]:
    return [byte ^ 1 << bit for bit in range(8)] + [value for value in (0x00, 0x41, 0xFF) if value != byte]


def free_bytes(data: bytes) -> set[int]:
    """Return the bytes of an ad hoc code directory that nothing seals, so that they only alter its hash, the cdhash.

    These are the upper three bytes with defined flags, the letters of the identifier, and the version of the hardened
    runtime. A signature with two code directories has none, because they must agree.
    """
    (at,) = directories(data)
    version, flags_at, ident = struct.unpack_from(">I", data, at + 8)[0], at + 12, at + data[at + 23]
    assert data[at + 20 : at + 23] == bytes(3)
    free = {*range(flags_at + 1, flags_at + 4), *range(ident, data.index(b"\0", ident))}
    return free | set(range(at + 88, at + 92)) if version == 0x20500 else free


@pytest.mark.parametrize("options", [LINKER, SignOptions(), RUNTIME])
def test_each_changed_byte_of_the_code_is_detected(options: SignOptions) -> None:
    data = dylib(options)
    start, _ = place(data)
    assert start > 4096
    assert accepted(data, range(start), lambda byte: [byte ^ 0x01]) == set()


def test_any_change_of_the_load_commands_is_detected() -> None:
    data = dylib(room=0)
    end = Image(data, 0, len(data), "libx").commands_end
    edited = bytearray(data)
    flips = random.Random(0)
    assert accepted(data, range(end), lambda byte: [byte ^ flips.randrange(1, 256), byte ^ 0xFF, byte ^ 0x80]) == set()
    assert edited == data


@pytest.mark.parametrize("options", [LINKER, SignOptions(), RUNTIME])
def test_any_change_of_a_signature_except_free_bytes_is_detected(options: SignOptions) -> None:
    data = dylib(options)
    start, end = place(data)
    (at,) = directories(data)
    hashes = at + struct.unpack_from(">I", data, at + 16)[0] - struct.unpack_from(">I", data, at + 24)[0] * 32
    values = all_others if options is LINKER else some_others
    assert accepted(data, range(start, hashes), values) == free_bytes(data)
    assert accepted(data, range(hashes, end), lambda byte: [byte ^ 0x01, byte ^ 0xFF]) == set()


@pytest.mark.parametrize("options", [LINKER, SignOptions(), RUNTIME])
def test_a_change_of_the_free_bytes_alters_the_cdhash(options: SignOptions) -> None:
    data = dylib(options)
    cdhash = verify(data).cdhash
    for position in free_bytes(data):
        edited = bytearray(data)
        edited[position] = next(value for value in some_others(data[position]) if is_accepted(data, position, value))
        assert verify(edited).cdhash != cdhash


def is_accepted(data: bytes, position: int, value: int) -> bool:
    return bool(accepted(data, range(position, position + 1), lambda _: [value]))


def test_two_code_directories_leave_no_byte_free() -> None:
    data = dylib(SignOptions(), minos="10.9")
    assert accepted(data, range(*place(data)), lambda byte: [byte ^ 0x01, byte ^ 0x20, byte ^ 0xFF]) == set()


def test_first_bad_page_is_named_with_its_range() -> None:
    data = bytearray(sign_bytes(machobytes.dylib(text=b"x" * 40000), "libx.dylib"))
    data[0x3010] ^= 1
    data[0x5010] ^= 1
    with pytest.raises(SignatureError, match=r"page 3 \(bytes 12288 to 16384\) does not match its SHA-256 hash"):
        verify(data)


def test_short_last_page_is_named_with_its_range() -> None:
    data = bytearray(dylib())
    start, _ = place(bytes(data))
    data[start - 1] ^= 1
    with pytest.raises(SignatureError, match=rf"page {start // 4096} \(bytes {start // 4096 * 4096} to {start}\)"):
        verify(data)


def test_all_slices_of_a_universal_file_are_verified(tmp_path: Path) -> None:
    thin = [sign_bytes(machobytes.dylib(arch), "libx.dylib") for arch in ("x86_64", "arm64")]
    path = tmp_path / "libx.dylib"
    path.write_bytes(machobytes.fat(*thin))
    facts = verify_file(path)
    assert [each.arch for each in facts] == ["x86_64", "arm64"]
    data = bytearray(path.read_bytes())
    data[len(data) - len(thin[1]) + 0x3000] ^= 1
    path.write_bytes(data)
    with pytest.raises(SignatureError, match=r"libx.dylib \(arm64\): page 3 "):
        verify_file(path)


def test_facts_are_those_of_the_signature() -> None:
    data = dylib(RUNTIME)
    start, end = place(data)
    (at,) = directories(data)
    length = struct.unpack_from(">I", data, at + 4)[0]
    assert end <= len(data)
    assert verify(data) == SignatureFacts(
        arch="x86_64",
        identifier="com.example.x",
        flags=("adhoc", "runtime"),
        cdhash=hashlib.sha256(data[at : at + length]).hexdigest()[:40],
        hashes=("SHA-256",),
        page_size=4096,
        pages=-(-start // 4096),
        code_limit=start,
        kind="adhoc",
        entitlements=ENTITLEMENTS.decode(),
        team_id=None,
        runtime_version="14.0.0",
        unchecked=(),
    )


def test_cdhash_is_that_of_the_strongest_code_directory() -> None:
    data = dylib(SignOptions(), minos="10.9")
    at = directories(data)[1]
    assert data[at + 37] == 2
    length = struct.unpack_from(">I", data, at + 4)[0]
    assert verify(data).cdhash == hashlib.sha256(data[at : at + length]).hexdigest()[:40]


def test_unsigned_file_is_an_error() -> None:
    with pytest.raises(SignatureError, match="not signed"):
        verify(machobytes.dylib())


def test_code_limit_of_64_bits_is_accepted() -> None:
    data = bytearray(dylib())
    start, _ = place(bytes(data))
    (at,) = directories(bytes(data))
    struct.pack_into(">I", data, at + 32, 0xFFFFFFFF)
    struct.pack_into(">Q", data, at + 56, start)
    assert verify(data).code_limit == start


def test_executable_segment_may_be_the_text_section_only_for_linkers() -> None:
    for options, valid in ((LINKER, True), (SignOptions(), False)):
        data = bytearray(dylib(options))
        (at,) = directories(bytes(data))
        section = data.index(b"__text")
        struct.pack_into(">Q", data, at + 72, struct.unpack_from("<Q", data, section + 40)[0])
        if valid:
            verify(data)
        else:
            with pytest.raises(SignatureError, match="does not match __TEXT"):
                verify(data)


def at_directory(offset: int, layout: str, value: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        struct.pack_into(layout, data, directories(bytes(data))[0] + offset, value)

    return change


def at_signature(offset: int, layout: str, value: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        struct.pack_into(layout, data, place(bytes(data))[0] + offset, value)

    return change


def append(data: bytearray) -> None:
    data += b"more"


def rename_linkedit(data: bytearray) -> None:
    data[:] = data.replace(b"__LINKEDIT", b"__LINKWHAT")


def grow_linkedit(data: bytearray) -> None:
    struct.pack_into("<Q", data, data.index(b"__LINKEDIT") + 40, 16)


def shrink_linkedit_memory(data: bytearray) -> None:
    struct.pack_into("<Q", data, data.index(b"__LINKEDIT") + 24, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at_signature(0, ">I", 0xFADE0CC1), "has the magic 0xfade0cc1"),
        (at_signature(4, ">I", 1 << 30), "claims 3 blobs in 1073741824 bytes"),
        (at_signature(8, ">I", 0), "claims 0 blobs"),
        (at_signature(8, ">I", 1 << 20), "claims 1048576 blobs"),
        (at_signature(12, ">I", 0x1005), "unknown slot 0x1005"),
        (at_signature(12, ">I", 0x1000), "no code directory"),
        (at_signature(20, ">I", 0), "two blobs in one slot|has the magic"),
        (at_signature(20, ">I", 5), "has the magic 0xfade0c01"),
        (at_signature(16, ">I", 1 << 31), "starts past the end"),
        (at_signature(16, ">I", 12), "slot 0x0 has"),
        (at_directory(4, ">I", 3), "impossible length 3"),
        (at_directory(8, ">I", 0x20600), "version 0x20600"),
        (at_directory(12, ">I", 0x80000002), "unknown flags"),
        (at_directory(12, ">I", 0), "neither ad hoc nor made with an identity"),
        (at_directory(20, ">I", 40), "identifier of a code directory is not where"),
        (at_directory(24, ">I", 1 << 20), "do not end at its"),
        (at_directory(28, ">I", 1), "has 1 pages for"),
        (at_directory(32, ">I", 4200), "covers 4200 bytes"),
        (at_directory(36, ">B", 20), "hashes of type 2 and 20 bytes"),
        (at_directory(37, ">B", 9), "hashes of type 9"),
        (at_directory(38, ">B", 1), "claims to be of the platform"),
        (at_directory(39, ">B", 30), "pages of 2"),
        (at_directory(40, ">I", 1), "reserved field"),
        (at_directory(44, ">I", 64), "scatter"),
        (at_directory(48, ">I", 90), "team of a code directory is not where"),
        (at_directory(52, ">I", 1), "reserved field"),
        (at_directory(56, ">Q", 4112), "two code limits"),
        (at_directory(64, ">Q", 16), "executable segment 16"),
        (at_directory(80, ">Q", 1), "main binary flag"),
        (at_directory(80, ">Q", 0x40), "flags without the entitlements"),
        (append, "4 bytes follow the signature|does not end where"),
        (rename_linkedit, "not inside __LINKEDIT"),
        (grow_linkedit, "does not end where __LINKEDIT ends"),
        (shrink_linkedit_memory, "larger in the file than in memory"),
    ],
)
def test_each_kind_of_damage_is_named(change: Callable[[bytearray], None], message: str) -> None:
    data = bytearray(dylib(SignOptions()))
    assert place(bytes(data))[0] == 4112
    verify(data)
    change(data)
    with pytest.raises(SignatureError, match=message):
        verify(data)


def test_pages_larger_than_4096_bytes_are_refused_for_intel() -> None:
    data = bytearray(dylib())
    (at,) = directories(bytes(data))
    start, end = place(bytes(data))
    code = bytes(data[:start])
    struct.pack_into(">I", data, at + 28, 1)
    data[at + 39] = 14
    hashes = at + struct.unpack_from(">I", data, at + 16)[0]
    data[hashes:] = hashlib.sha256(code).digest().ljust(len(data) - hashes, b"\0")
    lost = end - hashes - 32
    struct.pack_into(">I", data, at + 4, struct.unpack_from(">I", data, at + 4)[0] - lost)
    struct.pack_into(">I", data, start + 4, struct.unpack_from(">I", data, start + 4)[0] - lost)
    with pytest.raises(SignatureError, match="pages of 16384 bytes, which Intel Macs refuse"):
        verify(data)


def test_requirements_and_entitlements_must_match_their_hash() -> None:
    data = dylib(RUNTIME)
    for text, name in ((ENTITLEMENTS, "special slot 5"), (b"\x01\x01\xff", "special slot 7")):
        edited = data.replace(text, text[:-1] + b"\0")
        assert edited != data
        with pytest.raises(SignatureError, match=name):
            verify(edited)


def test_sealed_blob_that_is_missing_is_named() -> None:
    data = bytearray(dylib(SignOptions()))
    (at,) = directories(bytes(data))
    hashes = at + struct.unpack_from(">I", data, at + 16)[0]
    start, _ = place(bytes(data))
    requirements = data.index(bytes.fromhex("fade0c01"))
    del data[requirements : requirements + 12]
    data += bytes(12)
    struct.pack_into(">I", data, start + 4, struct.unpack_from(">I", data, start + 4)[0] - 12)
    struct.pack_into(">4I", data, start + 20, 0x10000, struct.unpack_from(">I", data, start + 32)[0] - 12, 0, 0)
    struct.pack_into(">I", data, start + 8, 2)
    assert any(data[hashes - 64 : hashes])
    with pytest.raises(SignatureError, match=r"special slot 2 \(requirements\) is sealed but missing"):
        verify(data)


def test_code_directories_that_contradict_each_other_are_refused() -> None:
    data = bytearray(dylib(SignOptions(), minos="10.9"))
    at = directories(bytes(data))[1]
    struct.pack_into(">I", data, at + 12, CodeFlag.ADHOC | CodeFlag.RESTRICT)
    with pytest.raises(SignatureError, match="contradict each other"):
        verify(data)


def test_random_damage_raises_only_errors_of_macbuild() -> None:
    chance = random.Random(1)
    base = dylib(SignOptions(entitlements=ENTITLEMENTS), minos="10.9", room=0)
    start, end = place(base)
    for _ in range(1500):
        data = bytearray(base)
        for _ in range(chance.randrange(1, 4)):
            low, high = chance.choice([(0, 700), (start, end)])
            struct.pack_into(chance.choice([">I", "<I"]), data, chance.randrange(low, high - 4), chance.getrandbits(32))
        try:
            verify(data[: chance.choice([len(data), chance.randrange(32, len(data))])])
        except MacbuildError:
            continue
