from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lief
import pytest
from macholib.MachO import MachO
from macholib.SymbolTable import SymbolTable

from macbuild.macho.exports import restrict_exports
from macbuild.macho.fat import merge
from macbuild.macho.file import open_macho
from macbuild.macho.sign import sign_private
from macbuild.macho.symbols import read_exports
from macbuild.macho.verify import verify_file
from tests.conftest import Wheels, program

TARGETS = {"arm64": "aarch64-macos.14.0", "x86_64": "x86_64-macos.11.0"}
KEEP = ["_TRITONBACKEND_*"]
KEPT = {"_TRITONBACKEND_First", "_TRITONBACKEND_Second"}
LEAKED = {"___dso_handle", "__mh_dylib_header"}
SOURCE = """
template <class T> struct Count { static T value; __attribute__((noinline)) T get() { return value++; } };
template <class T> T Count<T>::value = 7;
inline int inlined() { static int count = 4; return ++count; }
extern "C" {
int puts(const char *);
int other(int x) { return x + inlined(); }
int TRITONBACKEND_First(int x) { Count<int> c; return c.get() + x; }
int TRITONBACKEND_Second(int x) { puts("second"); return other(x) + TRITONBACKEND_First(x); }
int (*table[])(int) = {other, TRITONBACKEND_First};
}
int (*calls[])() = {inlined};
"""

Build = Callable[..., Path]
parse: Callable[[str], Any] = lief.MachO.parse


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that compiles C++ with zig and links it as C, without a C++ library."""

    def build(arch: str, source: str = SOURCE, *flags: str) -> Path:
        folder = tmp_path_factory.mktemp(arch)
        (folder / "x.cpp").write_text(source)
        zig = [sys.executable, "-m", "ziglang"]
        options = ("-target", TARGETS[arch], "-g0", "-O1")
        run(*zig, "c++", *options, "-fno-exceptions", *flags, "-c", folder / "x.cpp", "-o", folder / "x.o")
        named = ("-install_name", "@rpath/libx.so", "-Wl,-headerpad,0x1000")
        run(*zig, "cc", *options, "-shared", folder / "x.o", "-o", folder / "libx.so", *named)
        return folder / "libx.so"

    return build


def exports_by_others(path: Path) -> list[set[str]]:
    """Return the exports according to LIEF's trie, LIEF's and LLVM's symbol table, and macholib."""
    image = parse(str(path))
    found = image.at(0)
    trie = {str(info.symbol.name) for info in found.dyld_info.exports}
    table = {str(symbol.name) for symbol in found.symbols if symbol.raw_type & 0xEF == 0x0F}
    nm = run(program("llvm-nm", "llvm"), "--extern-only", "--defined-only", "--format=just-symbols", path)
    defined = {name.decode() for _, name in SymbolTable(MachO(str(path))).extdefsyms}
    return [trie, table, set(nm.split()), defined]


@pytest.mark.parametrize("arch", TARGETS)
def test_other_tools_see_only_the_kept_exports_of_a_dylib(build: Build, arch: str) -> None:
    path = build(arch)
    before = path.read_bytes()
    removed = restrict_exports(path, KEEP)
    assert exports_by_others(path) == [KEPT] * 4
    assert {*removed} >= LEAKED | {"_other", "_table", "__ZN5CountIiE5valueE"}
    after = path.read_bytes()
    assert len(after) == len(before)
    with open_macho(path) as file:
        found = file.images[0]
        data = next(segment for segment in found.segments if segment.name == "__LINKEDIT").fileoff
        assert after[found.commands_end : data] == before[found.commands_end : data]
        assert not found.flags & 0x18000
        assert (found.signature_range is not None) == (arch == "arm64")
    if arch == "arm64":
        assert verify_file(path)[0].kind == "linker-signed"
    else:
        sign_private(path)
        verify_file(path)
    assert "pointer" not in run(program("llvm-objdump", "llvm"), "--macho", "--weak-bind", path)


@pytest.mark.parametrize("arch", TARGETS)
def test_a_symbol_keeps_its_address_and_a_stub_its_name(build: Build, arch: str) -> None:
    path = build(arch)
    nm, objdump = program("llvm-nm", "llvm"), program("llvm-objdump", "llvm")

    def addresses() -> set[str]:
        lines = run(nm, "--defined-only", "--format=posix", path).splitlines()
        return {f"{line.split()[0]} {line.split()[2]}" for line in lines}

    def stubs() -> list[tuple[str, str]]:
        lines = [line.split() for line in run(objdump, "--macho", "--indirect-symbols", path).splitlines()]
        return [(words[0], words[-1]) for words in lines if words and words[0].startswith("0x")]

    before = addresses(), stubs()
    assert any(name == "_puts" for _, name in before[1])
    restrict_exports(path, KEEP)
    assert (addresses(), stubs()) == before


@pytest.mark.parametrize("arch", TARGETS)
def test_weak_bindings_of_kept_names_stay(build: Build, arch: str) -> None:
    path = build(arch)

    def bound() -> set[tuple[str, int]]:
        image = parse(str(path))
        return {
            (str(binding.symbol.name), int(binding.address))
            for binding in image.at(0).dyld_info.bindings
            if binding.binding_class == lief.MachO.DyldBindingInfo.CLASS.WEAK
        }

    before = bound()
    assert {"__ZN5CountIiE5valueE", "__Z7inlinedv"} <= {name for name, _ in before}
    removed = restrict_exports(path, [*KEEP, "__ZN5Count*"])
    assert "__Z7inlinedv" in removed
    assert bound() == {entry for entry in before if entry[0].startswith("__ZN5Count")}
    with open_macho(path) as file:
        assert read_exports(file.images[0]).weak == {b"__ZN5CountIiE5valueE"}


def test_hidden_visibility_leaves_two_names_to_remove(build: Build) -> None:
    visible = SOURCE.replace("int TRITON", '__attribute__((visibility("default"))) int TRITON')
    for arch in TARGETS:
        path = build(arch, visible, "-fvisibility=hidden", "-fvisibility-inlines-hidden")
        assert {*restrict_exports(path, KEEP)} == LEAKED
        assert exports_by_others(path) == [KEPT] * 4


def test_a_universal_dylib_is_restricted_in_both_slices(build: Build, tmp_path: Path) -> None:
    both = tmp_path / "libx.so"
    merge([build(arch) for arch in TARGETS], both)
    sign_private(both)
    restrict_exports(both, KEEP)
    assert len(verify_file(both)) == 2
    fat = parse(str(both))
    assert [{str(info.symbol.name) for info in image.dyld_info.exports} for image in fat] == [KEPT] * 2


@pytest.mark.parametrize("name", ["torch-2.13.0-arm64", "torch-2.2.2-x86_64", "torch-2.2.2-arm64"])
def test_real_dylibs_are_restricted_or_refused_with_a_reason(wheels: Wheels, tmp_path: Path, name: str) -> None:
    path = tmp_path / "libshm.dylib"
    shutil.copyfile(wheels.file(name, "torch/lib/libshm.dylib"), path)
    with open_macho(path) as file:
        names = sorted(symbol.decode() for symbol in read_exports(file.images[0]).names)
    assert restrict_exports(path, names[:1]) == names[1:]
    with open_macho(path) as file:
        assert read_exports(file.images[0]).names == {names[0].encode()}
    defined = run(program("llvm-nm", "llvm"), "--extern-only", "--defined-only", "--format=just-symbols", path)
    assert defined.split() == names[:1]
