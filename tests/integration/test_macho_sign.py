from __future__ import annotations

import hashlib
import mmap
import shutil
import struct
from pathlib import Path

import lief
import pytest
from macholib.MachO import MachO

from macbuild.errors import SignatureError
from macbuild.macho.file import open_macho, parse_macho
from macbuild.macho.sign import SignOptions, refresh, sign_file, sign_private
from macbuild.macho.verify import read_signature, verify_file
from tests.conftest import Wheels, Zig
from tests.support import machobytes

SOURCE = "int answer(void) { return 42; } static char big[70000] = {1}; char *get(int i) { return big + i; }"

# Wheel, member, kind of signature, tool that made it.
SIGNED = [
    ("torch-2.13.0-arm64", "torch/lib/libc10.dylib", "linker-signed"),
    ("torch-2.13.0-arm64", "torch/lib/libtorch_global_deps.dylib", "linker-signed"),
    ("torch-2.13.0-arm64", "torch/lib/libtorch_python.dylib", "linker-signed"),
    ("torch-2.13.0-arm64", "torch/bin/protoc", "linker-signed"),
    ("torch-2.13.0-arm64", "torch/lib/libomp.dylib", "adhoc"),
    ("torch-2.2.2-arm64", "torch/lib/libc10.dylib", "linker-signed"),
    ("torch-2.2.2-arm64", "torch/bin/torch_shm_manager", "adhoc"),
    ("torch-2.2.2-x86_64", "torch/bin/torch_shm_manager", "adhoc"),
    ("torch-2.2.2-x86_64", "torch/lib/libtorch_python.dylib", "adhoc"),
    ("torch-2.2.2-x86_64", "torch/lib/libiomp5.dylib", "cms"),
    ("onnxruntime-1.23.2-arm64", "onnxruntime/capi/libonnxruntime.1.23.2.dylib", "linker-signed"),
    ("onnxruntime-1.30.0-arm64", "onnxruntime/capi/onnxruntime_pybind11_state.so", "linker-signed"),
]
AD_HOC = [each for each in SIGNED if each[2] != "cms"]
UNSIGNED = [
    ("torch-2.2.2-x86_64", "torch/lib/libc10.dylib"),
    ("torch-2.2.2-x86_64", "torch/bin/protoc"),
    ("onnxruntime-1.23.2-x86_64", "onnxruntime/capi/libonnxruntime.1.23.2.dylib"),
]


def lief_signature(path: Path) -> tuple[int, bytes]:
    """Return code limit and bytes of the signature as read by LIEF."""
    binaries = lief.MachO.parse(str(path))
    assert binaries is not None
    binary = binaries.at(0)
    assert binary is not None
    signature = binary.code_signature
    assert signature is not None
    start, size = signature.data_offset, signature.data_size
    with path.open("rb") as file:
        file.seek(start)
        return start, file.read(size)


def assert_pages(data: bytes, start: int, signature: bytes) -> str:
    """Compute all hashes of the first code directory with hashlib, and return its cdhash."""
    (offset,) = struct.unpack_from(">I", signature, 16)
    directory = signature[offset : offset + struct.unpack_from(">I", signature, offset + 4)[0]]
    (hash_offset,) = struct.unpack_from(">I", directory, 16)
    page = 1 << directory[39]
    assert directory[36:38] == bytes([32, 2])
    assert struct.unpack_from(">I", directory, 32)[0] == start
    pages = (hashlib.sha256(data[at : min(at + page, start)]).digest() for at in range(0, start, page))
    assert directory[hash_offset:] == b"".join(pages)
    return hashlib.sha256(directory).hexdigest()[:40]


@pytest.mark.parametrize(("wheel", "member", "kind"), SIGNED)
def test_real_signatures_are_valid_and_recalculated_alike(wheels: Wheels, wheel: str, member: str, kind: str) -> None:
    path = wheels.file(wheel, member)
    (facts,) = verify_file(path)
    start, signature = lief_signature(path)
    assert facts.kind == kind
    assert facts.code_limit == start
    assert facts.cdhash == assert_pages(path.read_bytes(), start, signature)


@pytest.mark.parametrize(("wheel", "member", "kind"), AD_HOC)
def test_signing_again_gives_the_code_directory_of_apples_tools(
    wheels: Wheels, tmp_path: Path, wheel: str, member: str, kind: str
) -> None:
    path = wheels.file(wheel, member)
    output = tmp_path / path.name
    sign_file(path, output=output)
    assert verify_file(output) == verify_file(path)
    start, signature = lief_signature(output)
    before = lief_signature(path)[1]
    length = struct.unpack_from(">I", signature, 4)[0]
    assert signature[:length] == before[:length]
    if kind == "linker-signed":
        assert output.read_bytes()[:start] == path.read_bytes()[:start]


@pytest.mark.parametrize(("wheel", "member", "kind"), [each for each in SIGNED if each[2] == "adhoc"])
def test_identifier_is_the_one_of_apples_codesign(
    wheels: Wheels, tmp_path: Path, wheel: str, member: str, kind: str
) -> None:
    path = wheels.file(wheel, member)
    output = tmp_path / path.name
    sign_file(path, SignOptions(preserve=False), output=output)
    (facts,) = verify_file(output)
    assert facts.kind == kind
    assert facts.identifier == verify_file(path)[0].identifier


def test_identity_signature_becomes_ad_hoc(wheels: Wheels, tmp_path: Path) -> None:
    path = tmp_path / "libiomp5.dylib"
    shutil.copyfile(wheels.file("torch-2.2.2-x86_64", "torch/lib/libiomp5.dylib"), path)
    sign_private(path)
    (facts,) = verify_file(path)
    assert (facts.kind, facts.identifier, facts.runtime_version) == ("adhoc", "libiomp5.dylib", "10.14.0")
    start, signature = lief_signature(path)
    assert facts.cdhash == assert_pages(path.read_bytes(), start, signature)


@pytest.mark.parametrize(("wheel", "member"), UNSIGNED)
def test_signing_real_files_changes_nothing_else(wheels: Wheels, tmp_path: Path, wheel: str, member: str) -> None:
    path = wheels.file(wheel, member)
    output = tmp_path / path.name
    with pytest.raises(SignatureError, match="not signed"):
        verify_file(path)
    sign_file(path, output=output)
    (facts,) = verify_file(output)
    data, before = output.read_bytes(), path.read_bytes()
    start, signature = lief_signature(output)
    assert start % 16 == 0
    assert start + len(signature) == len(data)
    assert facts.cdhash == assert_pages(data, start, signature)
    (header,) = MachO(str(output)).headers
    (old,) = MachO(str(path)).headers
    assert [load.cmd for load, _, _ in header.commands] == [load.cmd for load, _, _ in old.commands] + [0x1D]
    changed = [
        fields.segname.rstrip(b"\0")
        for (load, fields, _), (_, old_fields, _) in zip(header.commands, old.commands, strict=False)
        if load.cmd == 0x19 and bytes(fields.to_str()) != bytes(old_fields.to_str())
    ]
    assert changed == [b"__LINKEDIT"]
    end = 32 + header.header.sizeofcmds
    assert data[end : len(before)] == before[end:]


def test_largest_file_is_verified_and_its_first_bad_page_found(wheels: Wheels, tmp_path: Path) -> None:
    path = tmp_path / "libtorch_cpu.dylib"
    shutil.copyfile(wheels.file("torch-2.13.0-arm64", "torch/lib/libtorch_cpu.dylib"), path)
    (facts,) = verify_file(path)
    assert facts.pages == 81859
    with path.open("r+b") as file:
        for position in (300_000_123, 200_000_123):
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ 0x10]))
    page = 200_000_123 // 4096
    with pytest.raises(SignatureError, match=rf"page {page} \(bytes {page * 4096} to {(page + 1) * 4096}\)"):
        verify_file(path)


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_file_of_zigs_linker_gets_the_same_code_directory(zig: Zig, tmp_path: Path, arch: str) -> None:
    path = zig.dylib(tmp_path, SOURCE, arch)
    with open_macho(path) as macho:
        before = read_signature(macho.images[0])
    output = tmp_path / "signed" / path.name
    output.parent.mkdir()
    sign_file(path, output=output)
    (facts,) = verify_file(output)
    start, signature = lief_signature(output)
    assert facts.cdhash == assert_pages(output.read_bytes(), start, signature)
    if arch == "x86_64":
        # zig does not sign x86_64: ziglang/zig issue 17000.
        assert before is None
    else:
        assert before == facts
        assert output.read_bytes() == path.read_bytes()


def test_stripped_zig_file_gets_the_same_page_hashes(zig: Zig, tmp_path: Path) -> None:
    path = zig.dylib(tmp_path, SOURCE)
    (before,) = verify_file(path)
    sign_private(path, SignOptions(preserve=False, identifier=before.identifier, flags=0x20002))
    (facts,) = verify_file(path)
    assert (facts.kind, facts.identifier, facts.flags) == (before.kind, before.identifier, before.flags)
    assert facts.page_size == 4096


def test_refresh_after_an_edit_equals_signing_again(wheels: Wheels, tmp_path: Path) -> None:
    path, again = tmp_path / "a.dylib", tmp_path / "b.dylib"
    shutil.copyfile(wheels.file("torch-2.13.0-arm64", "torch/lib/libtorch_python.dylib"), path)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        at = data.find(b"@rpath/libtorch_python.dylib")
        data[at : at + 28] = b"@rpath/libtorch_snake!.dylib"
        shutil.copyfile(path, again)
        assert refresh(parse_macho(data).images[0], [(at, at + 28)])
    verify_file(path)
    with pytest.raises(SignatureError, match="page 0 "):
        verify_file(again)
    sign_private(again)
    assert path.read_bytes() == again.read_bytes()


def test_real_universal_file_is_signed_slice_by_slice(wheels: Wheels, tmp_path: Path) -> None:
    member = "onnxruntime/capi/libonnxruntime.1.23.2.dylib"
    slices = [wheels.file(f"onnxruntime-1.23.2-{arch}", member).read_bytes() for arch in ("x86_64", "arm64")]
    path = tmp_path / "libonnxruntime.1.23.2.dylib"
    path.write_bytes(machobytes.fat(*slices))
    sign_file(path)
    facts = verify_file(path)
    assert [(each.arch, each.kind) for each in facts] == [("x86_64", "adhoc"), ("arm64", "linker-signed")]
    binaries = lief.MachO.parse(str(path))
    assert binaries is not None
    assert binaries.size == 2
    data = path.read_bytes()
    for header, each in zip(MachO(str(path)).headers, facts, strict=True):
        (place,) = [fields for load, fields, _ in header.commands if load.cmd == 0x1D]
        thin = data[header.offset : header.offset + header.size]
        signature = thin[place.dataoff : place.dataoff + place.datasize]
        assert each.cdhash == assert_pages(thin, place.dataoff, signature)
