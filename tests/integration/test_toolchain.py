"""Test zig as the compiler for macOS: build real code and read back the results."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from macbuild.build.cmake import CMakeProject, build, configure, install, model
from macbuild.build.toolchain import PrepareContext, Prepared, find_toolchain
from macbuild.events import Event
from macbuild.files import hash_file
from macbuild.macho.file import open_macho
from macbuild.macho.image import Image
from macbuild.macho.symbols import read_exports, read_imports
from macbuild.macho.verify import verify_file
from macbuild.target import Arch, Target, format_version
from tests.support.toolchains import DEPLOYMENT, prepare, project, write_sample

ARCHS: tuple[Arch, ...] = ("arm64", "x86_64")
LIBCXX = "/usr/lib/libc++.1.dylib"
LIBSYSTEM = "/usr/lib/libSystem.B.dylib"


@pytest.fixture(scope="module", params=ARCHS)
def arch(request: pytest.FixtureRequest) -> Arch:
    found: Arch = request.param
    return found


@pytest.fixture(scope="module")
def zig_cc(arch: Arch, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp(f"zig-{arch}"), arch)


@pytest.fixture(scope="module")
def stage(arch: Arch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stage(tmp_path_factory.mktemp(f"built-{arch}"), arch)


def make_stage(folder: Path, arch: Arch) -> Path:
    """Build the sample project in its own folder and return its stage."""
    sample = project(folder / "kept", arch, write_sample(folder / "source"))
    configure(sample)
    build(sample)
    install(sample, folder / "stage")
    return folder / "stage"


def image(path: Path) -> Iterator[Image]:
    with open_macho(path) as file:
        (found,) = file.images
        yield found


def run(*command: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)


def exports(path: Path) -> set[str]:
    return {name.decode() for found in image(path) for name in read_exports(found).names}


def test_dylib_depends_only_on_system_cxx_library(stage: Path, arch: Arch) -> None:
    for found in image(stage / "lib" / "libsample.dylib"):
        assert found.arch == arch
        assert [dylib.name for dylib in found.dylibs] == [LIBSYSTEM, LIBCXX]
        assert found.id is not None
        assert found.id.name == "@rpath/libsample.dylib"
        assert found.rpaths == ()
        assert found.build_version is not None
        assert format_version(found.build_version.minos) == DEPLOYMENT[arch]
        assert found.header_room >= 0x1000


def test_stage_contains_no_second_cxx_library(stage: Path) -> None:
    names = exports(stage / "lib" / "libsample.dylib")
    assert {"_sample", "_other"} <= names
    assert not any(name.startswith(("__Zn", "__Zd", "__ZT", "__ZNSt")) for name in names)


def test_version_script_decides_what_a_module_exports(stage: Path) -> None:
    path = stage / "lib" / "libplug.so"
    assert exports(path) == {"_sample"}
    for found in image(path):
        assert found.kind == "DYLIB"
        assert found.id is not None
        assert found.id.name == "@rpath/libplug.so"


def test_signatures_made_at_the_link_are_valid(stage: Path, arch: Arch) -> None:
    if arch == "arm64":
        for path in (stage / "lib" / "libplug.so", stage / "lib" / "libsample.dylib"):
            verify_file(path)
    else:
        assert all(found.signature_range is None for found in image(stage / "lib" / "libplug.so"))


def test_two_folders_give_the_same_bytes_without_host_paths(stage: Path, arch: Arch, tmp_path: Path) -> None:
    other = make_stage(tmp_path / "a much longer name of a folder", arch)
    for name in ("lib/libsample.dylib", "lib/libplug.so", "bin/tool"):
        assert hash_file(stage / name) == hash_file(other / name)
        content = (stage / name).read_bytes()
        assert str(Path.home()).encode() + b"/" not in content
        assert str(stage.parent).encode() not in content
    assert b"source/sample.cpp" in (stage / "lib" / "libsample.dylib").read_bytes()


def test_cmake_knows_compiler_and_target(arch: Arch, tmp_path: Path) -> None:
    sample = project(tmp_path / "kept", arch, write_sample(tmp_path / "source"))
    configure(sample)
    found = model(sample)
    assert found.compilers["CXX"].id == "Clang"
    assert found.compilers["CXX"].path == sample.toolchain.cxx
    assert found.targets["plug"].kind == "MODULE_LIBRARY"
    assert found.cache["CMAKE_OSX_DEPLOYMENT_TARGET"] == DEPLOYMENT[arch]
    assert Path(found.cache["CMAKE_OSX_SYSROOT"]).is_relative_to(tmp_path)


def test_nothing_depends_on_this_machine(arch: Arch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spies = tmp_path / "spies"
    spies.mkdir()
    for name in ("brew", "sw_vers", "xcode-select", "xcrun", "xcodebuild"):
        spy = spies / name
        spy.write_text(f"#!/bin/sh\ntouch '{tmp_path}/asked-{name}'\necho /\n")
        spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{spies}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CXXFLAGS", "--not-a-flag")
    monkeypatch.setenv("CPATH", "/usr/include")
    configure(project(tmp_path / "kept", arch, write_sample(tmp_path / "source")))
    assert list(tmp_path.glob("asked-*")) == []


def test_frameworks_are_found_and_linked_by_their_stubs(arch: Arch, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.28)\nproject(f LANGUAGES C)\nadd_library(f SHARED f.c)\n"
        "find_library(FOUNDATION CoreFoundation REQUIRED)\ntarget_link_libraries(f PRIVATE ${FOUNDATION} objc)\n"
    )
    (source / "f.c").write_text(
        "void CFRelease(const void *); void *objc_getClass(const char *);\n"
        '__attribute__((visibility("default"))) void f(void) { CFRelease(objc_getClass("NSObject")); }\n'
    )
    sample = project(tmp_path / "kept", arch, source)
    configure(sample)
    build(sample)
    names = [dylib.name for found in image(sample.build_folder / "libf.dylib") for dylib in found.dylibs]
    assert any("/CoreFoundation.framework/" in name for name in names)
    assert "/usr/lib/libobjc.A.dylib" in names


def test_framework_without_evidence_is_an_error_with_a_hint(zig_cc: Prepared, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int a(void) { return 1; }\n")
    done = run(zig_cc.c, "-shared", "a.c", "-o", "liba.dylib", "-framework", "Nothing", cwd=tmp_path)
    assert done.returncode == 1
    assert "no evidence stub for framework Nothing" in done.stderr
    assert "macbuild stubs collect" in done.stderr
    assert not (tmp_path / "liba.dylib").exists()


def test_undefined_symbol_error_names_the_first_macos_with_it(tmp_path: Path) -> None:
    cc = prepare(tmp_path / "tools", "x86_64")
    # std::to_chars(char*, char*, double), available in libc++ since macOS 13.3.
    text = 'char *late(char *, char *, double) __asm__("__ZNSt3__18to_charsEPcS0_d");\n'
    text += "int nowhere(void);\nchar *g(char *b) { nowhere(); return late(b, b, 1.5); }\n"
    (tmp_path / "a.cpp").write_text(text)
    assert run(cc.cxx, "-c", "a.cpp", "-o", "a.o", cwd=tmp_path).returncode == 0
    done = run(cc.cxx, "-shared", "-install_name", "@rpath/a", "a.o", "-o", "liba.dylib", cwd=tmp_path)
    assert done.returncode == 1
    assert f"__ZNSt3__18to_charsEPcS0_d: {LIBCXX} has it since macOS 13." in done.stderr
    assert "the target is 11.0" in done.stderr
    assert "__Z7nowherev: no library of macOS is known to have it" in done.stderr


def test_only_pythons_symbols_may_be_resolved_at_run_time(zig_cc: Prepared, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        "int PyLong_Check2(void); extern int _Py_Flag; int stray(void);\n"
        '__attribute__((visibility("default"))) int run(void) { return PyLong_Check2() + _Py_Flag; }\n'
        "#ifdef MORE\n"
        '__attribute__((visibility("default"))) int more(void) { return stray(); }\n'
        "#endif\n"
    )
    line = ["-shared", "a.c", "-o", "liba.so", "-Wl,-undefined,dynamic_lookup"]
    done = run(zig_cc.c, *line, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    flat = {each.name for found in image(tmp_path / "liba.so") for each in read_imports(found) if each.ordinal < 0}
    assert flat == {b"_PyLong_Check2", b"__Py_Flag"}
    before = (tmp_path / "liba.so").read_bytes()
    done = run(zig_cc.c, "-DMORE", *line, cwd=tmp_path)
    assert done.returncode == 1
    assert "undefined symbols: _stray" in done.stderr
    assert (tmp_path / "liba.so").read_bytes() == before


def test_libcxx_symbol_newer_than_target_is_a_compiler_error(tmp_path: Path) -> None:
    cc = prepare(tmp_path / "tools", "x86_64")
    (tmp_path / "a.cpp").write_text("#include <charconv>\nauto f(char *b) { return std::to_chars(b, b + 9, 1.5); }\n")
    done = run(cc.cxx, "-std=c++20", "-c", "a.cpp", "-o", "a.o", cwd=tmp_path)
    assert done.returncode == 1
    assert "unavailable: introduced in macOS 13.3" in done.stderr


def test_compiling_adds_no_output(zig_cc: Prepared, tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("#include <string>\nstd::string f() { return {}; }\n")
    done = run(zig_cc.cxx, "-std=c++20", "-Wall", "-Wextra", "-Wno-gcc-only", "-c", "a.cpp", "-o", "a.o", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_one_call_compiles_and_links(zig_cc: Prepared, arch: Arch, tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("#include <string>\nint *f(const std::string &s) { return new int(s.size()); }\n")
    (tmp_path / "b.c").write_text("int b(void) { return 1; }\n")
    done = run(zig_cc.cxx, "-O2", "-DX=1", "-shared", "a.cpp", "b.c", "-o", "out.dylib", "-lm", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "-lm left out" in done.stderr
    for found in image(tmp_path / "out.dylib"):
        assert found.arch == arch
        assert [dylib.name for dylib in found.dylibs] == [LIBSYSTEM, LIBCXX]
        assert found.id is not None
        assert found.id.name == "@rpath/out.dylib"


def test_failed_link_with_an_export_list_leaves_the_old_output(zig_cc: Prepared, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int missing(void); int a(void) { return missing(); }\n")
    (tmp_path / "list.exp").write_text("_a\n")
    (tmp_path / "liba.dylib").write_text("old")
    line = ["-shared", "a.c", "-o", "liba.dylib", "-Wl,-exported_symbols_list,list.exp"]
    assert run(zig_cc.c, *line, cwd=tmp_path).returncode == 1
    assert (tmp_path / "liba.dylib").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.c", "liba.dylib", "list.exp"]


def test_export_list_is_enforced_through_a_response_file(zig_cc: Prepared, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int a(void) { return 1; } int b(void) { return 2; }\n")
    (tmp_path / "line.rsp").write_text("-shared a.c -o liba.dylib -Wl,-exported_symbol,_b\n")
    done = run(zig_cc.c, "@line.rsp", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert exports(tmp_path / "liba.dylib") == {"_b"}


def test_dylib_without_exports_is_linked_although_zig_crashes(zig_cc: Prepared, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int a(void) { return 1; }\n")
    assert run(zig_cc.c, "-fvisibility=hidden", "-c", "a.c", "-o", "a.o", cwd=tmp_path).returncode == 0
    done = run(zig_cc.c, "-shared", "-install_name", "@rpath/a", "a.o", "-o", "liba.dylib", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "_a" not in exports(tmp_path / "liba.dylib")


def test_debug_information_exists_only_if_requested(zig_cc: Prepared, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int a(int x) { return x << 31; }\n")
    sections = {}
    for flags in ("-O0", "-g", "-fsanitize=undefined"):
        assert run(zig_cc.c, flags, "-c", "a.c", "-o", "a.o", cwd=tmp_path).returncode == 0
        sections[flags] = (tmp_path / "a.o").read_bytes()
    assert b"__debug_info" not in sections["-O0"]
    assert b"__debug_info" in sections["-g"]
    assert b"ubsan" not in sections["-O0"]
    assert b"ubsan" in sections["-fsanitize=undefined"]


def test_nested_folder_gives_its_name(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "a.c").write_text("const char *f(void) { return __FILE__; }\n")
    paths = {str(tmp_path / "outer"): "out", str(inner): "in"}
    toolchain = find_toolchain("zig", Target("arm64", "14.0"), os.environ)
    context = PrepareContext(prepare_cache(), paths)
    cc = toolchain.prepare(tmp_path / "tools", context).c
    assert run(cc, "-c", inner / "a.c", "-o", tmp_path / "a.o").returncode == 0
    content = (tmp_path / "a.o").read_bytes()
    assert b"in/a.c" in content
    assert b"out/inner" not in content


def prepare_cache() -> Path:
    from tests.conftest import zig_cache

    return zig_cache()


def test_parallel_preparations_warm_up_once(tmp_path: Path) -> None:
    events: list[Event] = []
    toolchain = find_toolchain("zig", Target("arm64", "12.0"), os.environ)

    def ready(number: int) -> Prepared:
        context = PrepareContext(tmp_path / "cache", emit=events.append)
        return toolchain.prepare(tmp_path / str(number), context)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ready, range(4)))
    assert len(events) == 1
    assert len({prepared.c for prepared in found}) == 4
    assert [path.name for path in (tmp_path / "cache").glob("macbuild-warm-*-*")] == []
    ready(9)
    assert len(events) == 1


def test_identity_has_compiler_target_and_data() -> None:
    one = find_toolchain("zig", Target("arm64", "14.0"), os.environ).identity
    two = find_toolchain("zig", Target("arm64", "13.0"), os.environ).identity
    assert one.startswith("zig 0.")
    assert one != two
    assert one == find_toolchain("zig", Target("arm64", "14.0"), os.environ).identity


def test_cmake_check_finds_target_functions_not_header_only_ones(arch: Arch, tmp_path: Path) -> None:
    prepared = prepare(tmp_path / "tools", arch)
    source = tmp_path / "checks"
    source.mkdir()
    # zig's headers are those of macOS 27, which introduced pipe2; kqueue is old.
    (source / "CMakeLists.txt").write_text("""\
cmake_minimum_required(VERSION 3.28)
project(checks LANGUAGES C)
include(CheckFunctionExists)
include(CheckSymbolExists)
check_function_exists(kqueue HAVE_KQUEUE)
check_symbol_exists(kqueue sys/event.h HAVE_KQUEUE_SYMBOL)
check_function_exists(pipe2 HAVE_PIPE2)
check_symbol_exists(pipe2 unistd.h HAVE_PIPE2_SYMBOL)
foreach(name KQUEUE KQUEUE_SYMBOL PIPE2 PIPE2_SYMBOL)
  file(APPEND "${CMAKE_BINARY_DIR}/found" "${name}=${HAVE_${name}}\\n")
endforeach()
""")
    configure(CMakeProject(source, tmp_path / "build", prepared))
    found = (tmp_path / "build/build/found").read_text().split()
    assert found == ["KQUEUE=1", "KQUEUE_SYMBOL=1", "PIPE2=", "PIPE2_SYMBOL="]


def test_unguarded_function_newer_than_target_is_an_error(zig_cc: Prepared, tmp_path: Path) -> None:
    guarded = "if (__builtin_available(macOS 27.0, *)) return pipe2(f, 0);"
    for body, status in (("return pipe2(f, 0);", 1), (f"{guarded} return pipe(f);", 0)):
        (tmp_path / "a.c").write_text(f"#include <unistd.h>\nint a(int *f) {{ {body} }}\n")
        done = run(zig_cc.c, "-Wno-error", "-c", "a.c", "-o", "a.o", cwd=tmp_path)
        assert done.returncode == status, done.stderr
        assert ("'pipe2' is only available on macOS 27" in done.stderr) == bool(status)


def test_float_limits_exist_in_any_order_of_headers(zig_cc: Prepared, tmp_path: Path) -> None:
    for first in ("cmath", "mutex", "locale", "math.h"):
        text = f"#include <{first}>\n#include <cmath>\n#include <float.h>\n"
        text += "static_assert(DBL_MAX > FLT_MAX && INFINITY > FLT_EPSILON);\n"
        (tmp_path / "a.cpp").write_text(text)
        done = run(zig_cc.cxx, "-std=c++20", "-c", "a.cpp", "-o", "a.o", cwd=tmp_path)
        assert done.returncode == 0, f"{first}: {done.stderr}"
