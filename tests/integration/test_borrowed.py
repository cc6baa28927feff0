"""Test that a component that borrows the sources of another one is built and tested on this machine."""

from __future__ import annotations

from pathlib import Path

from macbuild.commands.test import prepare_tests
from tests.support.sample import Sample

KIT = {
    "CMakeLists.txt": "project(kit LANGUAGES C)\nadd_library(kit STATIC src/kit.c)\n",
    "src/kit.c": "int answer(void) { return 42; }\n",
}
TINY = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.21)
project(tiny LANGUAGES C)
add_subdirectory(${KIT} kit EXCLUDE_FROM_ALL)
add_executable(tiny main.c)
target_link_libraries(tiny PRIVATE kit)
install(TARGETS tiny)
enable_testing()
add_test(NAME answer COMMAND tiny)
""",
    "main.c": "int answer(void);\nint main(void) { return answer() - 42; }\n",
}


def test_borrowed_sources_are_found_when_a_component_is_tested(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add_built("kit", KIT, packages=[])
    build = {"inputs": [*TINY, "{kit}"], "definitions": {"KIT": "{kit}"}}
    sample.add_built("tiny", TINY, packages=[], build=build)
    (suite,) = prepare_tests(sample.project(), "tiny", lambda _: None, sanitize="", server=None, arguments=())
    suite.run()
