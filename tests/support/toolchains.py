"""Provide a small C and C++ project, zig prepared for it, and build folders that outlive a run of the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from macbuild.build.cmake import CMakeProject
from macbuild.build.toolchain import PrepareContext, Prepared, find_toolchain
from macbuild.build.toolchain.zig import find_zig
from macbuild.store import digest
from macbuild.target import Arch, Target
from tests.conftest import cache_folder, zig_cache

__all__ = ["DEPLOYMENT", "kept_folder", "prepare", "project", "write_sample"]

DEPLOYMENT: dict[str, str] = {"arm64": "14.0", "x86_64": "11.0"}
_FILES = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.28)
project(sample VERSION 1.2.3 LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 20)
add_library(part STATIC part.c)
add_library(sample SHARED sample.cpp)
target_link_libraries(sample PRIVATE part)
add_library(plug MODULE sample.cpp)
target_link_libraries(plug PRIVATE part)
if(NOT MSVC)
  target_link_options(plug PRIVATE LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/plug.ver LINKER:-z,relro)
endif()
add_executable(tool main.c)
target_link_libraries(tool PRIVATE sample)
install(TARGETS sample plug tool LIBRARY DESTINATION lib)
""",
    "part.c": "int part(void) { return 4; }\n",
    "sample.cpp": """\
#include <stdexcept>
#include <string>
#include <vector>
extern "C" int part(void);
#define SHOWN extern "C" __attribute__((visibility("default")))
SHOWN int other(int x) { return x; }
SHOWN int sample(int x) {
  try {
    if (x < 0) throw std::runtime_error(__FILE__);
    std::vector<std::string> v(x);
    v.emplace_back("a string too long to be kept in place");
    return static_cast<int>(v.size()) + part();
  } catch (const std::exception &e) {
    return static_cast<int>(std::string(e.what()).size());
  }
}
""",
    "main.c": "int sample(int);\nint main(int count, char **words) { (void)words; return sample(count); }\n",
    "plug.ver": "{ global: sam*; local: *; };\n",
}


@contextmanager
def kept_folder(name: str) -> Iterator[Path]:
    """Yield a build folder that outlives a run, so that the next one compiles only what has changed.

    Other checkouts and compilers have other folders. One process uses it at a time.

    Parameters
    ----------
    name
        Name of the build.
    """
    compilers = [find_toolchain("host", None, os.environ).identity, *map(str, find_zig())]
    place = cache_folder() / "kept" / f"{name}-{digest([str(Path(__file__).parents[2]), *compilers])[:12]}"
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        yield place


def write_sample(folder: Path) -> Path:
    """Write the project and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    return folder


def prepare(folder: Path, arch: Arch | None, source: Path | None = None, *, foreign: bool = False) -> Prepared:
    """Return zig for an architecture, or the host's compiler, prepared in a folder; its cache outlives the tests."""
    target = Target(arch, DEPLOYMENT[arch]) if arch else None
    paths = {str(folder / "build"): "build"} | ({str(source): "source"} if source else {})
    context = PrepareContext(zig_cache(), paths, foreign=foreign)
    return find_toolchain("zig" if arch else "host", target, os.environ).prepare(folder / "toolchain", context)


def project(folder: Path, arch: Arch | None, source: Path, **definitions: str) -> CMakeProject:
    """Return a project that is ready to be configured."""
    return CMakeProject(source, folder, prepare(folder, arch, source), definitions, {}, "sample")
