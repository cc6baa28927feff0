"""Compare the evidence with real wheels as read by LIEF, and link with the stubs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lief
import pytest

from macbuild.build.toolchain.evidence import load_evidence, write_stubs
from macbuild.build.toolchain.evidence_collect import collect, system_imports
from macbuild.macho.file import open_macho
from macbuild.macho.symbols import read_imports
from macbuild.target import format_version, pack_version
from tests.conftest import Wheels

LIBRARIES = [
    ("torch-2.13.0-arm64", "torch/lib/libtorch_cpu.dylib"),
    ("torch-2.2.2-x86_64", "torch/lib/libtorch_cpu.dylib"),
    ("torch-2.2.2-arm64", "torch/lib/libtorch_cpu.dylib"),
    ("onnxruntime-1.30.0-arm64", "onnxruntime/capi/libonnxruntime.1.30.0.dylib"),
    ("onnxruntime-1.23.2-x86_64", "onnxruntime/capi/libonnxruntime.1.23.2.dylib"),
    ("onnxruntime-1.23.2-arm64", "onnxruntime/capi/libonnxruntime.1.23.2.dylib"),
]
TARGETS = [("arm64", "14.0"), ("x86_64", "11.0")]
CXX = "/usr/lib/libc++.1.dylib"
N_WEAK_REF = 0x40

# A typical backend's use of C++: streams, threads, files, exceptions, memory, containers.
TYPICAL = """
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <regex>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <variant>
#include <vector>
struct Base { virtual ~Base() = default; };
struct Derived : Base { int value = 1; };
extern "C" __attribute__((visibility("default"))) int work(const char* name, Base* base, double number) {
  std::filesystem::path path(name);
  int sum = 0;
  for (auto& entry : std::filesystem::directory_iterator(path / "x")) sum += entry.path().filename().string().size();
  std::stringstream text;
  text << name << sum << number << std::hex << 3ULL << std::endl;
  std::ifstream file(path);
  std::string line, all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (std::getline(text, line)) all += line + "," + std::to_string(sum) + std::to_string(number);
  std::mutex mutex;
  std::shared_mutex shared;
  std::condition_variable condition;
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    std::unique_lock<std::mutex> lock(mutex);
    condition.wait_for(lock, std::chrono::milliseconds(5), [&] { return stop.load(); });
  });
  { std::shared_lock<std::shared_mutex> lock(shared); condition.notify_all(); }
  thread.join();
  sum += std::async(std::launch::async, [] { return 1; }).get();
  std::promise<int> promise;
  promise.set_value(std::stoi(all));
  sum += promise.get_future().get() + std::thread::hardware_concurrency();
  std::regex pattern("^(a|b)+$");
  sum += std::regex_match(all, pattern);
  std::mt19937 engine(std::random_device{}());
  sum += std::uniform_int_distribution<int>(0, 9)(engine);
  std::map<std::string, std::variant<int, std::string>> table{{all, 1}};
  std::function<int()> call = [&] { return std::get<int>(table.at(all)); };
  auto owner = std::make_shared<std::vector<std::string>>(3, all);
  std::optional<int> maybe;
  char buffer[32];
  sum += *std::to_chars(buffer, buffer + 32, sum).ptr;
  static const std::string constant(name);
  try {
    if (auto* derived = dynamic_cast<Derived*>(base)) sum += derived->value + call() + maybe.value() + owner->size();
    if (sum == 7) throw std::invalid_argument(constant);
    if (sum == 8) throw std::out_of_range("x");
    throw std::system_error(std::make_error_code(std::errc::io_error), "x");
  } catch (const std::filesystem::filesystem_error& error) {
    std::cerr << error.what() << error.path1();
  } catch (const std::exception& error) {
    auto pointer = std::current_exception();
    try { std::rethrow_exception(pointer); } catch (...) { sum += error.what()[0]; }
  }
  return sum;
}
"""
NEW = """
#include <charconv>
extern "C" __attribute__((visibility("default"))) int digits(char* out, double number) {
  return std::to_chars(out, out + 32, number).ptr - out;
}
"""
ANNOTATED = ("-U_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS", "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=1")


def zig(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ziglang", *arguments], capture_output=True, text=True, check=False)


def compile_cxx(
    source: str, folder: Path, arch: str, deployment: str, *extra: str
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Compile with zig's C++ headers; return the object file and the finished process."""
    code, output = folder / "code.cpp", folder / "code.o"
    code.write_text(source)
    target = f"{'aarch64' if arch == 'arm64' else arch}-macos.{deployment}"
    options = ["-target", target, "-std=c++20", "-O2", "-g0", "-fvisibility=hidden"]
    return output, zig("c++", *options, *extra, "-c", str(code), "-o", str(output))


def link(objects: Path, output: Path, arch: str, deployment: str, *stubs: Path) -> subprocess.CompletedProcess[str]:
    target = f"{'aarch64' if arch == 'arm64' else arch}-macos.{deployment}"
    return zig("cc", "-target", target, "-shared", str(objects), *map(str, stubs), "-o", str(output))


def strong_imports_by_lief(path: Path) -> Iterator[tuple[str, str]]:
    """Return library and name of the undefined symbols according to LIEF, except weak ones."""
    parsed: Any = lief.MachO.parse(str(path))
    binary, kinds = parsed.at(0), lief.MachO.LoadCommand.TYPE
    libraries = [library for library in binary.libraries if library.command != kinds.ID_DYLIB]
    for symbol in binary.imported_symbols:
        ordinal = symbol.description >> 8
        if 0 < ordinal <= len(libraries) and not symbol.description & N_WEAK_REF:
            library = libraries[ordinal - 1]
            if library.name.startswith(("/usr/lib/", "/System/")) and library.command != kinds.LOAD_WEAK_DYLIB:
                yield library.name, symbol.name


@pytest.mark.parametrize(("wheel", "member"), LIBRARIES)
def test_strong_imports_agree_with_lief(wheels: Wheels, wheel: str, member: str) -> None:
    path = wheels.file(wheel, member)
    with open_macho(path) as macho:
        (image,) = macho.images
        ours = {(entry.library, entry.name) for entry in system_imports(image)}
    theirs = set(strong_imports_by_lief(path))
    assert len(ours) > 300
    assert ours == theirs


@pytest.mark.parametrize(("wheel", "member"), LIBRARIES)
def test_every_strong_import_has_evidence_at_its_minimum_macos(wheels: Wheels, wheel: str, member: str) -> None:
    evidence = load_evidence()
    with open_macho(wheels.file(wheel, member)) as macho:
        (image,) = macho.images
        version = image.build_version
        assert version is not None
        judged = 0
        for entry in system_imports(image):
            library = evidence.get(entry.library)
            if library is None:
                continue
            judged += 1
            lowest = library.lowest(entry.name, image.arch)
            assert lowest is not None, entry
            assert pack_version(lowest) <= version.minos, (entry, lowest, format_version(version.minos))
    assert judged > 300


def test_collecting_a_wheel_again_adds_nothing(wheels: Wheels, tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    path = wheels.path("onnxruntime-1.23.2-arm64")
    first = collect([path], folder, [CXX])
    assert first.added > 250
    before = (folder / "libc++.1.toml").read_bytes()
    again = collect([path], folder)
    assert (again.added, again.lowered) == (0, 0)
    assert (folder / "libc++.1.toml").read_bytes() == before


@pytest.mark.parametrize(("arch", "deployment"), TARGETS)
def test_typical_code_links_with_stubs_and_binds_to_the_system(tmp_path: Path, arch: str, deployment: str) -> None:
    stubs = write_stubs(tmp_path / "stubs", arch, deployment)
    objects, compiled = compile_cxx(TYPICAL, tmp_path, arch, deployment, *ANNOTATED)
    assert (compiled.returncode, compiled.stderr) == (0, "")
    done = link(objects, tmp_path / "out.so", arch, deployment, stubs[CXX])
    assert done.returncode == 0, done.stderr
    with open_macho(tmp_path / "out.so") as macho:
        (image,) = macho.images
        assert {dylib.name for dylib in image.dylibs} == {CXX, "/usr/lib/libSystem.B.dylib"}
        entries = list(system_imports(image))
        for entry in entries:
            lowest = load_evidence()[entry.library].lowest(entry.name, arch)
            assert lowest is not None, entry
            assert pack_version(lowest) <= pack_version(deployment), entry
    replaceable = {entry.name for entry in entries if entry.weak_definition}
    assert "__Znwm" in replaceable
    assert replaceable == {entry.name for entry in entries if entry.name in load_evidence()[CXX].weak}


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_a_symbol_without_evidence_is_a_link_error_that_names_it(tmp_path: Path, arch: str) -> None:
    objects, _ = compile_cxx(NEW, tmp_path, arch, "11.0", "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0", "-w")
    stubs = write_stubs(tmp_path / "old", arch, "11.0")
    done = link(objects, tmp_path / "out.so", arch, "11.0", stubs[CXX])
    assert done.returncode != 0
    assert "__ZNSt3__18to_charsEPcS0_d" in done.stderr
    stubs = write_stubs(tmp_path / "new", arch, "14.0")
    assert link(objects, tmp_path / "out.so", arch, "11.0", stubs[CXX]).returncode == 0


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_the_compiler_refuses_functions_newer_than_the_target(tmp_path: Path, arch: str) -> None:
    _, compiled = compile_cxx(NEW, tmp_path, arch, "11.0", *ANNOTATED)
    assert compiled.returncode != 0
    assert "'to_chars' is unavailable: introduced in macOS 13.3" in compiled.stderr
    _, compiled = compile_cxx(NEW, tmp_path, arch, "13.3", *ANNOTATED)
    assert compiled.returncode == 0, compiled.stderr


def test_objective_c_links_with_the_stubs_of_frameworks(tmp_path: Path) -> None:
    source = tmp_path / "code.c"
    source.write_text(
        'extern void *NSString __asm__("_OBJC_CLASS_$_NSString");\n'
        "extern void *MTLCreateSystemDefaultDevice(void);\n"
        "extern void *objc_msgSend(void *, ...);\n"
        "void *both(void) { return objc_msgSend(&NSString, MTLCreateSystemDefaultDevice()); }\n"
    )
    stubs = write_stubs(tmp_path / "stubs", "arm64", "14.0")
    names = {
        "Foundation": "_OBJC_CLASS_$_NSString",
        "Metal": "_MTLCreateSystemDefaultDevice",
        "libobjc.A": "_objc_msgSend",
    }
    needed = [path for path in stubs.values() if path.stem in names]
    target = ("-target", "aarch64-macos.14.0")
    done = zig("cc", *target, "-shared", str(source), *map(str, needed), "-o", str(tmp_path / "out.dylib"))
    assert done.returncode == 0, done.stderr
    with open_macho(tmp_path / "out.dylib") as macho:
        (image,) = macho.images
        bound = {entry.name: entry.library for entry in system_imports(image)}
        assert read_imports(image)
    for leaf, name in names.items():
        assert Path(bound[name]).name.removesuffix(".dylib") == leaf
