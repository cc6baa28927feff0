"""Make tiny projects for tests.

`twice` is a library that is compiled from a source archive, and `fourfold` is built with it. `engine` is a foreign
project in a checkout, which reads the sources of two others.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tests.support.sample import Sample, tarball

__all__ = ["ENGINE", "libraries", "own", "with_engine"]

_LISTS = """\
cmake_minimum_required(VERSION 3.21...4.0)
project({name} VERSION 1.0 LANGUAGES C)
{find}
add_library({name} STATIC {source})
target_link_libraries({name} {links})
target_include_directories({name} PUBLIC $<INSTALL_INTERFACE:include> "$<BUILD_INTERFACE:{include}>")
install(TARGETS {name} EXPORT {name} DESTINATION lib)
install(FILES {include}/{name}.h DESTINATION include)
install(EXPORT {name} NAMESPACE {name}:: DESTINATION lib/cmake/{name} FILE {name}-targets.cmake)
install(FILES {name}-config.cmake DESTINATION lib/cmake/{name})
{license}
"""
_CONSUMER = """\
cmake_minimum_required(VERSION 3.21...4.0)
project({name}_consumer LANGUAGES C)
enable_testing()
find_package({name} REQUIRED CONFIG)
add_executable({name}_consumer main.c)
target_link_libraries({name}_consumer PRIVATE {name}::{name})
install(TARGETS {name}_consumer DESTINATION bin)
add_test(NAME {name} COMMAND {name}_consumer)
"""
_MAIN = '#include "{name}.h"\nint main(void) {{ return {name}(3) == {result} ? 0 : 1; }}\n'


def libraries(root: Path) -> Sample:
    """Return the project."""
    sample = Sample(root)
    _add(sample, "twice", 6, "${MACBUILD_SOURCE}/twice.c", "${MACBUILD_SOURCE}")
    _add(sample, "fourfold", 12, "fourfold.c", "${CMAKE_CURRENT_SOURCE_DIR}", needs=["twice"])
    return sample


def _add(sample: Sample, name: str, result: int, source: str, include: str, **facts: Any) -> None:
    needs = facts.get("needs", [])
    files = {
        "CMakeLists.txt": _LISTS.format(
            name=name,
            source=source,
            include=include,
            find="".join(f"find_package({need} REQUIRED CONFIG)" for need in needs),
            license="" if needs else f"install(FILES ${{MACBUILD_SOURCE}}/LICENSE DESTINATION share/licenses/{name})",
            links=" ".join(["PUBLIC", *(f"{need}::{need}" for need in needs)]),
        ),
        f"{name}-config.cmake": "include(CMakeFindDependencyMacro)\n"
        + "".join(f"find_dependency({need} CONFIG)\n" for need in needs)
        + f'include("${{CMAKE_CURRENT_LIST_DIR}}/{name}-targets.cmake")\n',
    }
    code = {f"{name}.h": f"int {name}(int);\n"}
    if needs:
        code[f"{name}.c"] = (
            f'#include "{name}.h"\n#include "twice.h"\nint {name}(int x) {{ return twice(twice(x)); }}\n'
        )
        files |= code
    else:
        code[f"{name}.c"] = f'#include "{name}.h"\nint {name}(int x) {{ return 2 * x; }}\n'
        code["LICENSE"] = f"The licence of {name}.\n"
    consumer = {
        "tests/consumer/CMakeLists.txt": _CONSUMER.format(name=name),
        "tests/consumer/main.c": _MAIN.format(name=name, result=result),
    }
    sample.add_built(
        name,
        {**files, **consumer},
        facts={"minimum_macos": "11.0", **facts},
        packages=[],
        layouts={"archive": [{"from": f"{name}-src/**/*", "to": ""}]},
    )
    recipe = sample.recipes[name]
    recipe["build"] = {"inputs": list(files), "consumer": "tests/consumer"}
    if not needs:
        sample.archives.mkdir(parents=True, exist_ok=True)
        content = {f"{name}-src/{path}": text.encode() for path, text in code.items()}
        (sample.archives / f"{name}.tar.gz").write_bytes(tarball(content))
        fetch = {"type": "file", "path": f"../../archives/{name}.tar.gz"}
        recipe["releases"][0]["source"] = [{"name": "local", "layout": "archive", "fetch": fetch}]
    sample.write()


_REPOSITORY = "https://github.com/example/{name}.git"
# Foreign projects in upstream's style: for Linux, for old versions of CMake, with repositories of the same owner.
_FOREIGN = {
    "shelf": {
        "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.1)
project(shelf LANGUAGES C)
add_library(shelf INTERFACE)
target_include_directories(shelf INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include)
""",
        "include/shelf.h": "#define SHELF 10\n",
        "LICENSE": "The licence of shelf.\n",
    },
    "motor": {
        "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.1)
project(motor LANGUAGES C)
file(GLOB sources *.c)
add_library(motor STATIC ${sources})
target_include_directories(motor PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(motor shelf)
""",
        "motor.c": '#include "motor.h"\n#include "shelf.h"\nint motor(int x) { return x + SHELF; }\n',
        "motor.h": "int motor(int);\n",
        "LICENSE": "The licence of motor.\n",
    },
    "engine": {
        "LICENSE": "The licence of engine.\n",
        "src/CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.1)
project(engine LANGUAGES C CXX)
include(FetchContent)
foreach(name IN ITEMS shelf motor)
  FetchContent_Declare(repo-${name} GIT_REPOSITORY https://github.com/example/${name}.git GIT_TAG main)
endforeach()
FetchContent_MakeAvailable(repo-shelf repo-motor)
option(ENGINE_TRACE "Tell every turn" ON)
add_library(engine SHARED engine.cc)
target_compile_definitions(engine PRIVATE ENGINE_VERSION="${ENGINE_VERSION}" ENGINE_TRACE=$<BOOL:${ENGINE_TRACE}>)
target_link_libraries(engine PRIVATE motor twice -lrt)
set_target_properties(engine PROPERTIES
  LINK_FLAGS "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/libengine.ldscript"
  LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/libengine.ldscript")
add_executable(engined main.c)
target_link_libraries(engined engine)
set_target_properties(engined PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
install(TARGETS engine DESTINATION ${CMAKE_INSTALL_PREFIX}/lib)
install(TARGETS engined DESTINATION ${CMAKE_INSTALL_PREFIX}/bin)
install(FILES engine.h DESTINATION ${CMAKE_INSTALL_PREFIX}/share)
""",
        "src/engine.h": "int engine_turn(int);\n",
        "src/engine.cc": """\
#include <string>
extern "C" {
#include <twice.h>
#include "engine.h"
#include "motor.h"
__attribute__((visibility("default"))) int hidden_by_the_script(int x) { return x; }
__attribute__((visibility("default"))) int engine_turn(int x) {
  return twice(motor(x)) + static_cast<int>(std::string(ENGINE_VERSION).size()) * ENGINE_TRACE;
}
}
""",
        "src/libengine.ldscript": "{ global: engine_*; local: *; };\n",
        "src/main.c": """\
#include "engine.h"
#include <stdio.h>
int main(void) { return printf("%d\\n", engine_turn(1)) < 0; }
""",
    },
}
ENGINE = {
    "project": "{engine}/src",
    "definitions": {
        "FETCHCONTENT_SOURCE_DIR_REPO-SHELF": "{shelf}",
        "FETCHCONTENT_SOURCE_DIR_REPO-MOTOR": "{motor}",
        "FETCHCONTENT_FULLY_DISCONNECTED": "ON",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        "ENGINE_VERSION": "{version}",
    },
    "install": [
        {"from": "lib/libengine.*", "to": "lib/"},
        {"from": "bin/engined", "to": "bin/"},
        {"from": "{engine}/LICENSE", "to": "licenses/engine/"},
        {"from": "{shelf}/LICENSE", "to": "licenses/shelf/"},
    ],
    "options": {
        "trace": {"summary": "tell turns", "on": {"ENGINE_TRACE": "ON"}, "off": {"ENGINE_TRACE": "OFF"}},
        "turbo": {"summary": "go faster", "off": {"ENGINE_TURBO": "OFF"}, "refused": "it burns"},
    },
}
"""The `[build]` of the foreign project."""


def with_engine(root: Path) -> Sample:
    """Return the libraries and, beside them, the foreign project with the sources that it reads; see `own`."""
    sample = libraries(root)
    for name in ("shelf", "motor", "engine"):
        sample.recipes[name] = {
            "schema": 1,
            "name": name,
            "summary": f"The {name}",
            "homepage": "https://example.org",
            "license": "MIT",
            "layouts": {"repository": [{"from": "**/*", "to": ""}]},
            "releases": [
                {
                    "version": "1.0",
                    "source": [
                        {
                            "name": "git",
                            "layout": "repository",
                            "fetch": {"type": "git", "url": _REPOSITORY.format(name=name), "ref": "r1"},
                        }
                    ],
                }
            ],
            "packages": [],
        }
        for path, text in _FOREIGN[name].items():
            target = root / "own" / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    engine = sample.recipes["engine"]
    del engine["packages"]
    engine["releases"][0] |= {"trees": ["shelf", "motor"], "needs": ["twice"]}
    engine["build"] = copy.deepcopy(ENGINE)
    sample.write()
    return sample


def own(root: Path) -> list[str]:
    """Return the setting `sources` for the checkouts of a folder."""
    return [f"{name}={root / 'own' / name}" for name in _FOREIGN]
