"""Write presets with which an IDE or `cmake --preset` opens a build as macbuild configured it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from macbuild.build.cmake import CMakeProject, child_environment, settings
from macbuild.config import is_installed, project_root
from macbuild.errors import BuildError
from macbuild.files import atomic_path

__all__ = ["lacks_presets", "write_presets"]

_NAME = "CMakeUserPresets.json"
# Version 6 is that of CMake 3.25 (cmake-presets(7)).
_VERSION = 6
_MARK = "macbuild"
_LISTS = ("configurePresets", "buildPresets")
# Variables of the user's shell that CMake would read.
_UNSET = ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET", "DESTDIR")
_PASSED_ON = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TMP", "TEMP"})


def lacks_presets(project: CMakeProject, name: str) -> bool:
    """Return True if `write_presets` would write presets of this name or of this build folder for the first time.

    Parameters
    ----------
    project, name
        As for `write_presets`.

    Raises
    ------
    BuildError
        The file exists and is not a valid JSON object.
    """
    if not _is_written_to(project.source):
        return False
    presets = _read(project.source / _NAME).get("configurePresets", [])
    return not any((p.get("name"), p.get("binaryDir")) == (name, str(project.build_folder)) for p in presets)


def write_presets(project: CMakeProject, name: str) -> Path | None:
    """Write a configure and a build preset for a project into its `CMakeUserPresets.json`.

    Presets in that file that belong to the user or to another target stay.

    Parameters
    ----------
    project
        A project; nothing is written unless it is in a writable checkout of a macbuild project.
    name
        The name of both presets, as `pytorch-macos-arm64`.

    Returns
    -------
    Path or None
        The file, if the presets were written.

    Raises
    ------
    BuildError
        The file exists and is not a valid JSON object.
    """
    if not _is_written_to(project.source):
        return None
    path = project.source / _NAME
    old = _read(path)
    new = _merged(old, _configure_preset(project, name), {"name": name, "configurePreset": name, "vendor": {_MARK: 1}})
    if new != old:
        with atomic_path(path) as partial:
            partial.write_text(json.dumps(new, indent=2) + "\n", "utf-8")
            partial.chmod(0o644)
    return path


def _is_written_to(source: Path) -> bool:
    return not is_installed(source) and project_root(source) is not None and os.access(source, os.W_OK)


def _configure_preset(project: CMakeProject, name: str) -> dict[str, Any]:
    environ = child_environment(project)
    first = project.toolchain.environ.get("PATH")
    shown: dict[str, str | None] = dict.fromkeys(_UNSET)
    shown |= {key: value for key, value in environ.items() if key not in _PASSED_ON and not key.startswith("XDG_")}
    shown["PATH"] = f"{first}{os.pathsep}$penv{{PATH}}" if first else "$penv{PATH}"
    return {
        "name": name,
        "description": "Written by macbuild",
        "generator": "Ninja",
        "binaryDir": str(project.build_folder),
        "toolchainFile": str(project.toolchain.toolchain_file),
        "cacheVariables": settings(project),
        "environment": shown,
        "vendor": {_MARK: 1},
    }


def _merged(old: dict[str, Any], configure: dict[str, Any], build: dict[str, Any]) -> dict[str, Any]:
    new = {"version": _VERSION, **old}
    for key, preset in zip(_LISTS, (configure, build), strict=True):
        kept = [entry for entry in new.get(key, []) if entry.get("name") != preset["name"]]
        new[key] = sorted([*kept, preset], key=lambda entry: str(entry.get("name")))
    return new


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BuildError(f"cannot be read: {error}", where=path, hint="fix it or move it away") from error
    if not isinstance(data, dict) or not all(_is_list_of_objects(data.get(key, [])) for key in _LISTS):
        raise BuildError("is not a file of CMake presets", where=path, hint="fix it or move it away")
    return data


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)
