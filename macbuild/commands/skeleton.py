"""Make skeletons: a project, and a component that can be built at once and then replaced by one's own."""

from __future__ import annotations

import re
from pathlib import Path

from macbuild.commands.project import Project
from macbuild.errors import UsageError
from macbuild.files import os_errors
from macbuild.recipe.load import recipe_paths
from macbuild.recipe.release import NAME

__all__ = ["make_project", "make_recipe"]

_SETTINGS = """\
# Settings of macbuild for this project; `macbuild build --help` lists them. For instance:
# arch = "arm64"
# deployment_target = "14.0"
"""

# The artifacts, and what macbuild writes for editors beside each project that it builds.
_IGNORED = "/dist/\nCMakeUserPresets.json\n"
_PLACE = "@name@"
_FILES = {
    "recipe.toml": """\
schema = 1
name = "@name@"
summary = "The @name@ library"
homepage = "https://example.org/@name@"
license = "MIT"

# It is built for both architectures and macOS 11.0; `archs` and `minimum_macos` change that. `needs = ["zlib"]` builds
# it with a component of this project or of macbuild.
[[releases]]
version = "0.1.0"

# All files that the result depends on. A change of one of them builds it again.
[build]
inputs = ["CMakeLists.txt", "LICENSE", "src/*"]

[audit.exports."lib/lib@name@.dylib"]
allow = ["_@name@_*"]
require = ["_@name@_answer"]
""",
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.21...4.0)
project(@name@ VERSION 0.1.0 LANGUAGES C)

add_library(@name@ SHARED src/@name@.c)
target_include_directories(@name@ PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/src")
install(TARGETS @name@ LIBRARY DESTINATION lib)
install(FILES src/@name@.h DESTINATION include)
install(FILES LICENSE DESTINATION .)

# `macbuild test @name@` builds and runs this on the machine that macbuild runs on.
include(CTest)
if(BUILD_TESTING)
  add_executable(@name@_check src/check.c)
  target_link_libraries(@name@_check PRIVATE @name@)
  add_test(NAME @name@ COMMAND @name@_check)
endif()
""",
    "LICENSE": "Replace this by the text of the licence that recipe.toml names.\n",
    "src/@name@.h": "int @name@_answer(void);\n",
    "src/@name@.c": """\
#include "@name@.h"

__attribute__((visibility("default"))) int @name@_answer(void) { return 42; }
""",
    "src/check.c": """\
#include "@name@.h"

int main(void) { return @name@_answer() == 42 ? 0 : 1; }
""",
}


def make_project(folder: Path) -> list[Path]:
    """Make a folder a project: a place for recipes, a file for settings, and `.gitignore` if there is none.

    Parameters
    ----------
    folder
        The folder, which need not be there.

    Returns
    -------
    list of Path
        All that was made.

    Raises
    ------
    UsageError
        If one of them is there already; nothing is overwritten.
    FileError
        If they cannot be written.
    """
    settings, recipes = folder / "macbuild.toml", folder / "recipes"
    for path in (settings, recipes):
        if path.exists() or path.is_symlink():
            hint = "add a component with: macbuild recipes new NAME"
            raise UsageError(f"{path.name} is there already, so this is a project", where=folder, hint=hint)
    with os_errors(folder):
        recipes.mkdir(parents=True)
    _write(settings, _SETTINGS)
    ignored = folder / ".gitignore"
    if ignored.exists():
        return [settings, recipes]
    _write(ignored, _IGNORED)
    return [settings, recipes, ignored]


def make_recipe(project: Project, name: str) -> Path:
    """Write a component that builds: a library in C with a test, a header and a licence.

    Parameters
    ----------
    project
        Receives the component.
    name
        Its name.

    Returns
    -------
    Path
        The folder of the component.

    Raises
    ------
    UsageError
        If it is not a name, the project has such a component, or there is no project.
    FileError
        If the files cannot be written.
    """
    if not re.search(NAME, name):
        hint = "use small letters, digits and underscores, with a letter first"
        raise UsageError(f"{name!r} cannot be the name of a component", hint=hint)
    project.check_writable(project.recipes_folder)
    folder = project.recipes_folder / name
    same = [path.parent for path in recipe_paths(project.recipes_folder) if path.parent.name == name]
    if same or folder.exists():
        raise UsageError("is there already", where=[*same, folder][0], hint="choose another name")
    for file, text in _FILES.items():
        _write(folder / file.replace(_PLACE, name), text.replace(_PLACE, name))
    return folder


def _write(path: Path, text: str) -> None:
    with os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
