"""Read back edits of real files with LIEF and macholib, which share no code with macbuild."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import lief
import pytest
from macholib.MachO import MachO
from macholib.SymbolTable import SymbolTable

from macbuild.errors import MachOError
from macbuild.macho.edit import Edits, edit_file, edit_private
from macbuild.macho.fat import merge, thin
from macbuild.macho.file import open_macho
from macbuild.macho.sign import SignOptions, sign_private
from macbuild.macho.verify import verify_file
from tests.conftest import Wheels, Zig

LIBC10 = {
    "arm64": ("torch-2.13.0-arm64", "torch/lib/libc10.dylib"),
    "x86_64": ("torch-2.2.2-x86_64", "torch/lib/libc10.dylib"),
}
PYTHON = ("torch-2.13.0-arm64", "torch/lib/libtorch_python.dylib")
ONNX = {
    "arm64": ("onnxruntime-1.23.2-arm64", "onnxruntime/capi/libonnxruntime.1.23.2.dylib"),
    "x86_64": ("onnxruntime-1.23.2-x86_64", "onnxruntime/capi/libonnxruntime.1.23.2.dylib"),
}
REAL = [*LIBC10.values(), *ONNX.values(), PYTHON]
ARCHS = ["arm64", "x86_64"]


def copy(source: Path, folder: Path) -> Path:
    return Path(shutil.copyfile(source, folder / source.name))


def parse(path: Path) -> lief.MachO.Binary:
    binary = lief.MachO.parse(str(path))
    assert binary is not None
    first = binary.at(0)
    assert first is not None
    return first


def rpaths(binary: lief.MachO.Binary) -> list[str]:
    return [command.path for command in binary.commands if isinstance(command, lief.MachO.RPathCommand)]


def libraries(path: Path) -> list[str]:
    """Return the id and the dependencies in load order."""
    binary = parse(path)
    return [library.name for library in binary.libraries]


def name_of(thing: object) -> str:
    return str(getattr(thing, "name", ""))


def bindings(path: Path) -> list[tuple[int, str, str]]:
    """Return address, symbol and library name of each binding, in file order."""
    binary = parse(path)
    return [(item.address, name_of(item.symbol), name_of(item.library)) for item in binary.bindings]


def undefined(path: Path) -> list[tuple[bytes, str]]:
    """Return each undefined symbol with the name of its library, from the symbol table, by macholib."""
    macho = MachO(str(path))
    load = {0xC, 0x80000018, 0x8000001F, 0x80000023, 0x20}
    names = [data.rstrip(b"\0").decode() for command, _, data in macho.headers[0].commands if command.cmd in load]
    ordinals = [(name, entry.n_desc >> 8 & 0xFF) for entry, name in SymbolTable(macho).undefsyms]
    return [(name, names[ordinal - 1] if 0 < ordinal < 0xFE else str(ordinal)) for name, ordinal in ordinals]


def unused(path: Path) -> list[str]:
    """Return the dependencies that neither a binding nor an undefined symbol names."""
    used = {library for _, _, library in bindings(path)} | {library for _, library in undefined(path)}
    return [name for name in libraries(path)[1:] if name not in used]


def load_commands(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    count, at = struct.unpack_from("<I", data, 16)[0], 32
    for _ in range(count):
        size = struct.unpack_from("<I", data, at + 4)[0]
        yield data[at : at + size]
        at += size


@pytest.mark.parametrize("arch", ARCHS)
def test_lief_reads_the_edits_of_a_zig_file(zig: Zig, tmp_path: Path, arch: str) -> None:
    liba = zig.dylib(tmp_path, "int a(void) { return 1; }", arch, name="liba")
    libb = zig.dylib(tmp_path, "int b(void) { return 2; }", arch, name="libb")
    source = "int a(void); int b(void); int f(void) { return a() + b(); }"
    extra = (str(liba), str(libb), "-Wl,-rpath,/one", "-Wl,-rpath,/two")
    path = zig.dylib(tmp_path, source, arch, "11.0", *extra)
    first, before = libraries(path), bindings(path)
    edits = Edits(
        id="@rpath/other.dylib",
        change={"@rpath/liba.dylib": "@loader_path/somewhere/else/liba.dylib"},
        weaken=frozenset({"@rpath/libb.dylib"}),
        replace_rpaths={"/one": "/1"},
        add_rpaths=("@loader_path/../lib",),
        minos=0x000C0000,
        sdk=0x000F0000,
    )
    assert edit_file(path, edits)
    binary = parse(path)
    names = {"@rpath/liba.dylib": "@loader_path/somewhere/else/liba.dylib"}
    assert libraries(path) == ["@rpath/other.dylib", *(names.get(name, name) for name in first[1:])]
    weak = binary.find_library("libb.dylib")
    assert weak is not None
    assert weak.command == lief.MachO.LoadCommand.TYPE.LOAD_WEAK_DYLIB
    assert rpaths(binary) == ["/1", "/two", "@loader_path/../lib"]
    assert binary.build_version is not None
    assert (binary.build_version.minos, binary.build_version.sdk) == ([12, 0, 0], [15, 0, 0])
    assert bindings(path) == [(at, symbol, names.get(library, library)) for at, symbol, library in before]
    if arch == "arm64":
        verify_file(path)


@pytest.mark.parametrize("arch", ARCHS)
def test_macholib_finds_all_commands_after_many_edits(zig: Zig, tmp_path: Path, arch: str) -> None:
    path = zig.dylib(tmp_path, "int f(void) { return 1; }", arch)
    before = list(load_commands(path))
    for number in range(20):
        assert edit_private(path, Edits(id=f"@rpath/{'n' * number}.dylib", add_rpaths=(f"/{number}",)))
    assert edit_private(path, Edits(id="@rpath/libx.dylib", rpaths=()))
    assert list(load_commands(path)) == before
    assert len(MachO(str(path)).headers[0].commands) == len(before)


@pytest.mark.parametrize("name", REAL, ids=lambda name: f"{name[0]}-{Path(name[1]).name}")
def test_removing_unused_dependencies_keeps_all_bindings(wheels: Wheels, tmp_path: Path, name: tuple[str, str]) -> None:
    path = copy(wheels.file(*name), tmp_path)
    removed = unused(path)
    assert removed
    before = bindings(path), undefined(path)
    signed = parse(path).has_code_signature
    first = path.stat().st_size
    assert edit_private(path, Edits(remove=frozenset(removed)))
    assert path.stat().st_size == first
    assert not set(libraries(path)) & set(removed)
    assert (bindings(path), undefined(path)) == before
    assert len(before[0]) > 50
    if signed:
        verify_file(path)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_dependency_in_use_is_not_removed(wheels: Wheels, tmp_path: Path, arch: str) -> None:
    path = copy(wheels.file(*LIBC10[arch]), tmp_path)
    before = path.read_bytes()
    with pytest.raises(MachOError, match="symbols still bind to a dependency that is to be removed: _"):
        edit_private(path, Edits(remove=frozenset({"/usr/lib/libc++.1.dylib"})))
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", REAL, ids=lambda name: f"{name[0]}-{Path(name[1]).name}")
def test_only_the_header_and_its_hash_change_in_a_real_file(
    wheels: Wheels, tmp_path: Path, name: tuple[str, str]
) -> None:
    source = wheels.file(*name)
    path = copy(source, tmp_path)
    assert edit_private(path, Edits(id="@rpath/a.dylib", rpaths=("@loader_path/x",)))
    before, after = source.read_bytes(), path.read_bytes()
    assert len(before) == len(after)
    with open_macho(path) as file:
        image = file.images[0]
        signature = image.signature_range
        content = image.room_end
    assert after[content : signature[0] if signature else None] == before[content : signature[0] if signature else None]
    if signature:
        assert sum(a != b for a, b in zip(before[signature[0] :], after[signature[0] :], strict=True)) <= 4 * 32
        verify_file(path)
    assert libraries(path)[0] == "@rpath/a.dylib"


def test_universal_files_are_read_and_split_into_their_slices(wheels: Wheels, tmp_path: Path) -> None:
    paths = [wheels.file(*ONNX[arch]) for arch in ARCHS]
    output = tmp_path / "both.dylib"
    merge(paths, output)
    binary = lief.MachO.parse(str(output))
    assert binary is not None
    assert [each.header.cpu_type for each in binary] == [
        lief.MachO.Header.CPU_TYPE.X86_64,
        lief.MachO.Header.CPU_TYPE.ARM64,
    ]
    assert [header.offset % (1 << bits) for header, bits in zip(MachO(str(output)).headers, (12, 14), strict=True)] == [
        0,
        0,
    ]
    assert edit_file(output, Edits(id="@rpath/libonnxruntime.dylib"))
    for arch in ARCHS:
        thin(output, arch, tmp_path / "thin.dylib")
        assert libraries(tmp_path / "thin.dylib")[0] == "@rpath/libonnxruntime.dylib"
    thin(output, "x86_64", tmp_path / "x86_64.dylib")
    edit_private(tmp_path / "x86_64.dylib", Edits(id=libraries(paths[1])[0]))
    assert (tmp_path / "x86_64.dylib").read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("arch", ARCHS)
def test_a_stripped_file_is_intact_and_unsigned(zig: Zig, tmp_path: Path, arch: str) -> None:
    path = zig.dylib(tmp_path, "int f(void) { return 1; }", arch)
    if arch == "x86_64":
        both = tmp_path / "both.dylib"
        merge([path, zig.dylib(tmp_path, "int f(void) { return 1; }", "arm64", name="liby")], both)
        assert edit_file(both, Edits(strip_signature=True))
        thin(both, "arm64", path)
    else:
        assert edit_file(path, Edits(strip_signature=True))
    binary = parse(path)
    assert not binary.has_code_signature
    linkedit = binary.get_segment("__LINKEDIT")
    assert linkedit is not None
    assert linkedit.file_offset + linkedit.file_size == path.stat().st_size
    sign_private(path, SignOptions(identifier="again"))
    verify_file(path)
