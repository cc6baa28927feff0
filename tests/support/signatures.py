"""Make signed dylibs for tests, and read their signatures without macbuild's code."""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib

from macbuild.macho.codesign import (
    CodeDirectoryFields,
    CodeFlag,
    HashType,
    Magic,
    Slot,
    build_blob,
    build_code_directory,
    build_signature,
)
from macbuild.macho.image import Image
from macbuild.macho.pages import hash_pages
from macbuild.macho.sign import SignOptions, sign_bytes
from tests.support import machobytes

# The output of ld64.lld 14 for `int answer(void) { return 42; }`, with
# -dylib -arch arm64 -platform_version macos 11.0 11.0 -install_name @rpath/libanswer.dylib
LLVM_DYLIB = zlib.decompress(
    base64.b64decode(
        "eNrt201oE0EUB/C3m0SLSe2CCClVWLQU/CCpPcXbHlJIaWhUUohInUaTmDTtpqSxjbVqEAqKouDJY0RBDxaq2IMHJSePai8qgh7Eg4KCH7eC"
        "1plkmt3UCEEvHv4/8si+2bczOzN7nWcrn396iBTiNvBw8xhVieZJE03UyeMDD8ai/bEo/c5onrtkqLKZsUKyWLDK1vdXloVttly19+ukkj1l"
        "7KQ5kzETLGOmck36uyMfDmhWrtKfiXmGqv2EB4YG+4MD0cb5PFea54qMNTuISr3UAt6PJtfHK8KorX+R/wfkPhygxrVU5B79jXYevXKshtfI"
        "T8YLaf945ljcnJpJ5n2JU/yaqEvWhsPBT8PD+4I3NobL02OPr/fxNr0+Z3c1xLWj+m6bqYdq89KM2l7ukrlXrtt2mS/yXFdaWCZX6VDFwV6I"
        "0m1yXF3e063vSxXfi1i3gH3v5Xt5+FMaAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/OcUVjv4TW4HlV3iV7WJR8JWJs6Cp0ihdJ+S"
        "FfluHt2KdW5fnMvuJuv8vsgTtvPdoqzDVq/T2rj+wsSkfypzwvTHfcftGYvnJ3y5el3NyltPhfeuk3Xs3ivbec9KG6lOMZgYJc0jJmv4rIxF"
        "XSVPa4ti1K/WH4zf8y2X3nkhe7lz8Gjk9L2ua2ffjI6YIef41h+RMeXV91sL5+7ej+WefExVnC+Xl7NqJOZanXswNzv/+tGl0MW9t//1/mrH"
        "wfNPz3y5Epleer/l68gsO3xzf/sRYynZU3y3MHT14S9SrrAL"
    )
)


def image_of(data: bytes | bytearray) -> Image:
    return Image(data, 0, len(data), "test")


def signature_place(data: bytes | bytearray) -> tuple[int, int]:
    """Find offset and size of the signature of a thin image, without macbuild's code."""
    position = 32
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        cmd, length, start, size = struct.unpack_from("<4I", data, position)
        if cmd == 0x1D:
            return start, size
        position += length
    raise AssertionError("not signed")


def blobs(data: bytes | bytearray) -> dict[int, bytes]:
    """Read the blobs of the signature of a thin image by slot, without macbuild's code."""
    start, _ = signature_place(data)
    found = {}
    for index in range(struct.unpack_from(">I", data, start + 8)[0]):
        slot, offset = struct.unpack_from(">2I", data, start + 12 + 8 * index)
        length = struct.unpack_from(">I", data, start + offset + 4)[0]
        found[slot] = bytes(data[start + offset : start + offset + length])
    return found


def directory(data: bytes, slot: int = 0) -> dict[str, int]:
    """Read the fields of a code directory, without macbuild's code."""
    names = "magic length version flags hashes ident specials pages limit hash_size hash_type platform shift spare2 "
    names += "scatter team spare3 limit64 base exec_limit exec_flags"
    blob = blobs(data)[slot]
    return dict(zip(names.split(), struct.unpack_from(">9I4B4I4Q", blob), strict=True)) | {
        "runtime": struct.unpack_from(">I", blob, 88)[0]
    }


def assert_hashes(data: bytes, slot: int = 0) -> None:
    """Recompute all page hashes and special slots of a code directory, without macbuild's code."""
    found = blobs(data)
    fields = directory(data, slot)
    algorithm, size = {1: (hashlib.sha1, 20), 2: (hashlib.sha256, 32)}[fields["hash_type"]]
    code = data[: signature_place(data)[0]]
    step = 1 << fields["shift"]
    pages = [algorithm(code[at : at + step]).digest() for at in range(0, len(code), step)]
    special = [
        algorithm(found[number]).digest() if number in found else bytes(size)
        for number in range(fields["specials"], 0, -1)
    ]
    begin = fields["hashes"] - fields["specials"] * size
    assert found[slot][begin:] == b"".join(special + pages)


def linker_signed(arch: str = "arm64", text: bytes = b"\x90" * 64) -> bytes:
    options = SignOptions(identifier="libx.dylib", flags=CodeFlag.LINKER_SIGNED)
    return sign_bytes(machobytes.dylib(arch, text=text), "libx.dylib", options)


def with_cms(data: bytes) -> bytes:
    """Give a signed dylib a signature that looks made with an identity, with a team and a requirement."""
    start, _ = signature_place(data)
    requirements = build_blob(Magic.REQUIREMENTS, b"anchor apple")
    fields = CodeDirectoryFields(
        identifier="com.example.x",
        team_id="TEAM123456",
        flags=CodeFlag.RUNTIME,
        code_limit=start,
        hash_type=HashType.SHA256,
        page_shift=12,
        exec_base=0,
        exec_limit=directory(data)["exec_limit"],
        exec_flags=0,
        runtime=0xD0100,
        special={2: hashlib.sha256(requirements).digest()},
        padded=False,
    )
    code = build_code_directory(fields, hash_pages(memoryview(data)[:start], 4096, HashType.SHA256))
    cms = build_blob(Magic.WRAPPER, b"chain" + hashlib.sha256(code).digest())
    signature = build_signature({0: code, 2: requirements, Slot.CMS: cms})
    size = signature_place(data)[1]
    return data[:start] + signature.ljust(size, b"\0")


def agile(text: bytes = b"\0" * 30000) -> bytes:
    return sign_bytes(machobytes.dylib("x86_64", minos="10.9", text=text), "libx.dylib")
