from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from macbuild.audit import audit_tree, load_policy
from macbuild.macho.edit import Edits, edit_private
from macbuild.macho.file import open_macho
from macbuild.macho.sign import sign_private
from macbuild.macho.symbols import read_exports, read_imports
from macbuild.macho.tbd import Stub, read_stub, read_stubs, stub_of, write_stub
from tests.conftest import Wheels, Zig

TARGETS = {"arm64": "aarch64-macos.14.0", "x86_64": "x86_64-macos.11.0"}
WHEELS = ("torch-2.13.0-arm64", "torch-2.2.2-x86_64", "torch-2.2.2-arm64")
LIBRARIES = ("libtorch", "libtorch_cpu", "libc10")
USER = """
#include <cstdio>
namespace c10 { struct Error { Error(); virtual ~Error(); }; int device_count(); }
struct Library { virtual int run(); virtual ~Library(); };
extern thread_local int level;
int plain(int);
inline Library *make() { return new Library; }
extern "C" int TRITONBACKEND_Run(int x) {
  Library *library = make();
  level += library->run();
  delete library;
  try { return plain(x) + level; } catch (const int &) { return 0; }
}
"""
LIBRARY = """
struct Library { virtual int run(); virtual ~Library(); };
template <class T> struct Shared { static T value; };
template <class T> T Shared<T>::value = 3;
thread_local int level = 2;
int plain(int x) { if (x > 3) throw x; return Shared<int>::value; }
int Library::run() { return 1; }
Library::~Library() {}
"""
CXX = "__ZdlPv __ZdlPvm __Znwm __ZTIi ___cxa_allocate_exception ___cxa_begin_catch ___cxa_end_catch ___cxa_throw"
CXX += " ___gxx_personality_v0 __ZSt9terminatev __ZTVN10__cxxabiv117__class_type_infoE ___cxa_pure_virtual"


def zig(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ziglang", *arguments]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def compile_cpp(folder: Path, arch: str, name: str, source: str) -> str:
    (folder / f"{name}.cpp").write_text(source)
    done = zig(folder, "c++", "-target", TARGETS[arch], "-g0", "-O1", "-c", f"{name}.cpp", "-o", f"{name}.o")
    assert done.returncode == 0, done.stderr
    return f"{name}.o"


def link(folder: Path, arch: str, name: str, *inputs: str) -> subprocess.CompletedProcess[str]:
    named = ("-install_name", f"@rpath/{name}", "-Wl,-headerpad,0x1000", "-Wl,-dead_strip", "-Wl,-S")
    return zig(folder, "cc", "-target", TARGETS[arch], "-shared", "-o", name, *inputs, *named)


def cxx(folder: Path, arch: str) -> str:
    names = CXX.split()
    weak = frozenset(name for name in names if name.startswith(("__Zd", "__Zn")))
    stub = Stub(install_name="/usr/lib/libc++.1.dylib", arch=arch, symbols=frozenset(names), weak=weak)
    (folder / "cxx.tbd").write_text(write_stub(stub))
    return "cxx.tbd"


def write_stub_of(path: Path, output: Path) -> Stub:
    with open_macho(path) as file:
        stub = stub_of(file.images[0])
    output.write_text(write_stub(stub))
    return stub


@pytest.mark.parametrize("arch", TARGETS)
def test_a_stub_links_like_its_dylib(tmp_path: Path, arch: str) -> None:
    runtime = cxx(tmp_path, arch)
    done = link(tmp_path, arch, "liblib.dylib", compile_cpp(tmp_path, arch, "lib", LIBRARY), runtime)
    assert done.returncode == 0, done.stderr
    stub = write_stub_of(tmp_path / "liblib.dylib", tmp_path / "lib.tbd")
    assert "__ZN6SharedIiE5valueE" in stub.weak
    user = compile_cpp(tmp_path, arch, "user", USER)
    for name, library in (("by_stub.so", "lib.tbd"), ("by_dylib.so", "liblib.dylib")):
        done = link(tmp_path, arch, name, user, runtime, library)
        assert done.returncode == 0, done.stderr
    facts = []
    for name in ("by_stub.so", "by_dylib.so"):
        with open_macho(tmp_path / name) as file:
            found = file.images[0]
            names = [dylib.name for dylib in found.dylibs]
            imports = {(name, names[ordinal - 1]) for name, ordinal, _ in read_imports(found) if ordinal > 0}
            facts.append((set(names), imports))
    assert facts[0] == facts[1]
    assert (b"__Z5plaini", "@rpath/liblib.dylib") in facts[0][1]
    assert "/usr/lib/libc++.1.dylib" in facts[0][0]


def test_a_symbol_that_the_stub_lacks_fails_the_link_by_name(tmp_path: Path) -> None:
    stub = Stub(install_name="@rpath/liblib.dylib", arch="arm64", symbols=frozenset({"_other"}))
    (tmp_path / "lib.tbd").write_text(write_stub(stub))
    user = compile_cpp(tmp_path, "arm64", "user", "int plain(int); int x(int y) { return plain(y); }")
    done = link(tmp_path, "arm64", "user.so", user, "lib.tbd")
    assert done.returncode != 0
    assert "__Z5plaini" in done.stderr


@pytest.mark.parametrize("name", WHEELS)
def test_the_stubs_of_libtorch_survive_a_round_trip(wheels: Wheels, name: str) -> None:
    for library in LIBRARIES:
        path = wheels.file(name, f"torch/lib/{library}.dylib")
        with open_macho(path) as file:
            stub = stub_of(file.images[0])
            assert read_stub(write_stub(stub), str(path)) == stub
            names = read_exports(file.images[0]).names
        assert {symbol.encode() for symbol in stub.symbols} == names
        assert (not names) == (library == "libtorch")


@pytest.mark.parametrize("name", ["torch-2.13.0-arm64", "torch-2.2.2-x86_64"])
def test_a_backend_links_with_stubs_and_is_checked_with_libtorch(wheels: Wheels, tmp_path: Path, name: str) -> None:
    arch = name.rpartition("-")[2]
    for library in LIBRARIES:
        write_stub_of(wheels.file(name, f"torch/lib/{library}.dylib"), tmp_path / f"{library}.tbd")
    source = """
    namespace at { int get_num_threads(); }
    extern "C" __attribute__((visibility("default"))) int TRITONBACKEND_Run() { return at::get_num_threads(); }
    """
    user = compile_cpp(tmp_path, arch, "user", source)
    done = link(tmp_path, arch, "libtriton_x.so", user, *(f"{library}.tbd" for library in LIBRARIES))
    assert done.returncode == 0, done.stderr
    place = tmp_path / "tree/tritonserver/backends/x"
    place.mkdir(parents=True)
    backend = (tmp_path / "libtriton_x.so").rename(place / "libtriton_x.so")
    edit_private(backend, Edits(rpaths=("@loader_path/../../../torch/lib",)))
    sign_private(backend)
    metadata = tmp_path / "tree/x-1.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: x\nVersion: 1\nRequires-Dist: torch\n\n")
    policy = load_policy("wheel")
    real = [wheels.file(name, f"torch/lib/{library}.dylib") for library in LIBRARIES]
    assert audit_tree(tmp_path / "tree", policy, providers=real).findings == ()
    other = [tmp_path / "libtorch.tbd", tmp_path / "libc10.tbd", tmp_path / "gone.tbd"]
    whole = read_stub((tmp_path / "libtorch_cpu.tbd").read_text())
    less = whole.symbols - {"__ZN2at15get_num_threadsEv"}
    other[2].write_text(write_stub(Stub(install_name=whole.install_name, arch=arch, symbols=less)))
    (finding,) = audit_tree(tmp_path / "tree", policy, providers=other).findings
    assert finding.message == "@rpath/libtorch_cpu.dylib does not export __ZN2at15get_num_threadsEv"


def test_zigs_own_stub_is_read_and_provides_for_zigs_dylibs(zig: Zig, tmp_path: Path) -> None:
    package = importlib.util.find_spec("ziglang")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "lib/libc/darwin/libSystem.tbd"
    stubs = read_stubs(path.read_text("utf-8"), str(path))
    system = [stub for stub in stubs if stub.arch == "arm64e"]
    assert system[0].install_name == "/usr/lib/libSystem.B.dylib"
    assert set(system[0].reexports) <= {stub.install_name for stub in system}
    names = frozenset[str]().union(*(stub.symbols for stub in system))
    assert {"_puts", "_malloc", "_pthread_create", "dyld_stub_binder"} <= names
    dylib = zig.dylib(tmp_path, '#include <stdio.h>\nint f(void) { return puts("f"); }\n')
    with open_macho(dylib) as file:
        imported = {entry.name.decode() for entry in read_imports(file.images[0])}
    assert imported
    assert imported <= names
