"""Make trees of small signed dylibs and audit them, for the tests of the rules."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from macbuild.audit import AuditReport, Exemption, ExportRule, Finding, audit_tree, load_policy
from macbuild.macho.sign import sign_bytes
from tests.support import machobytes

SYSTEM = "/usr/lib/libSystem.B.dylib"
TRIE, CHAINED, ID_DYLIB, BUILD_VERSION, LOAD_DYLIB = 0x80000033, 0x80000034, 0xD, 0x32, 0xC


def dylib(
    name: str = "libx.dylib",
    *,
    arch: str = "arm64",
    id: str | None = None,
    dylibs: Sequence[str] = (SYSTEM,),
    rpaths: Sequence[str] = (),
    minos: str = "11.0",
    room: int = 4096,
    exports: Sequence[str] = ("_f",),
) -> bytes:
    """Return a signed dylib."""
    plain = machobytes.dylib(
        arch, id=id or f"@rpath/{name}", dylibs=dylibs, rpaths=rpaths, minos=minos, room=room, exports=exports
    )
    return sign_bytes(plain, name)


def put(root: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def record_hash(data: bytes, name: str = "sha256") -> str:
    """Return a hash as RECORD has it."""
    return f"{name}=" + base64.urlsafe_b64encode(hashlib.new(name, data).digest()).rstrip(b"=").decode()


def record(files: Mapping[str, bytes], info: str) -> bytes:
    """Return the RECORD of a wheel with these files, which need no quotes."""
    rows = [f"{name},{record_hash(data)},{len(data)}\n" for name, data in files.items()]
    return "".join([*rows, f"{info}/RECORD,,\n"]).encode()


def wheel_files(name: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return these files and the metadata of a wheel with this file name."""
    distribution, version, tag = name.removesuffix(".whl").split("-", 2)
    info = f"{distribution}-{version}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": wheel.encode(),
    }
    return {**content, f"{info}/RECORD": record(content, info)}


def audit(
    root: Path,
    policy: str = "release",
    *,
    archs: frozenset[str] | None = None,
    exemptions: Sequence[Exemption] = (),
    exports: Mapping[str, ExportRule] | None = None,
    minimum_macos: str | None = None,
) -> AuditReport:
    return audit_tree(
        root,
        load_policy(policy),
        archs=archs,
        exemptions=exemptions,
        exports=exports,
        minimum_macos=minimum_macos,
    )


def only(report: AuditReport, rule: str) -> Finding:
    """Return the only finding, which must be of this rule."""
    assert [finding.rule for finding in report.findings] == [rule], report.findings
    return report.findings[0]


def one(root: Path, rule: str, policy: str = "release") -> Finding:
    return only(audit(root, policy), rule)


def with_imports(data: bytes, imports: Sequence[tuple[str, int, bool]]) -> bytes:
    """Append chained fixups with these imports to an unsigned image."""
    names, table = b"\0", b""
    for name, ordinal, weak in imports:
        table += struct.pack("<I", ordinal & 0xFF | weak << 8 | len(names) << 9)
        names += name.encode() + b"\0"
    payload = struct.pack("<7I", 0, 28, 32, 32 + len(table), len(imports), 1, 0) + bytes(4) + table + names
    count, size = struct.unpack_from("<2I", data, 16)
    command = struct.pack("<4I", CHAINED, 16, len(data), len(payload))
    out = bytearray(data + payload)
    struct.pack_into("<2I", out, 16, count + 1, size + 16)
    out[32 + size : 48 + size] = command
    return bytes(out)


def patch_command(data: bytes, kind: int, offset: int, value: int) -> bytes:
    """Write a 32-bit field of the first command of a kind."""
    out, at = bytearray(data), 32
    while struct.unpack_from("<I", out, at)[0] != kind:
        at += struct.unpack_from("<I", out, at + 4)[0]
    struct.pack_into("<I", out, at + offset, value)
    return bytes(out)
