"""A tiny project of libraries for tests: `twice` is compiled from a source archive, `fourfold` is built with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sample import Sample, tarball

__all__ = ["libraries"]

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
    _add(sample, "fourfold", 12, "fourfold.c", "${CMAKE_CURRENT_SOURCE_DIR}", needs={"twice": "1.0"})
    return sample


def _add(sample: Sample, name: str, result: int, source: str, include: str, **part: Any) -> None:  # noqa: ANN401 - TOML
    needs = list(part.get("needs", {}))
    files = {
        "CMakeLists.txt": _LISTS.format(
            name=name,
            source=source,
            include=include,
            find="".join(f"find_package({need} REQUIRED CONFIG)" for need in needs),
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
    consumer = {
        "tests/consumer/CMakeLists.txt": _CONSUMER.format(name=name),
        "tests/consumer/main.c": _MAIN.format(name=name, result=result),
    }
    sample.add_built(
        name,
        {**files, **consumer},
        slice={"minimum_macos": "11.0", **part},
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
