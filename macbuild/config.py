"""Define each setting once, as file format, environment variable, command-line flag, schema and documentation."""

from __future__ import annotations

import os
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from macbuild.data import Data, convert
from macbuild.documents import Keys, converted, parse_document, place, read_document
from macbuild.errors import ConfigError, MacbuildError, UsageError, nearest
from macbuild.target import parse_arch, parse_deployment

__all__ = [
    "Setting",
    "Settings",
    "bad_setting",
    "bundled",
    "is_installed",
    "load_settings",
    "project_root",
    "setting",
    "settings_table",
]

_PACKAGE = Path(__file__).parent
_PREFIX = "MACBUILD_"
_MAX_JOBS = 1024
_PATHS = ("dist", "cache_dir", "recipes", "lock")
# Variables that others define with the meaning of one of our settings, which takes precedence.
_FOREIGN = {"deployment_target": "MACOSX_DEPLOYMENT_TARGET"}
_FLAGS = {"wanted_options": "--with", "unwanted_options": "--without"}
# Variables that macbuild sets for shells and tests, in which it may be called again.
_NOT_SETTINGS = {
    "MACBUILD_COMPLETE",
    "MACBUILD_SHELL",
    "MACBUILD_TEST_BACKENDS",
    "MACBUILD_TEST_CACHE",
    "MACBUILD_TEST_LOAD_SECONDS",
    "MACBUILD_TEST_PRELOAD",
    "MACBUILD_TEST_SERVER",
}


class Settings(Data, frozen=True):
    """All settings with their defaults. None means that macbuild decides."""

    arch: Annotated[str | None, "Architecture to build for: arm64, x86_64 or universal2 (default: the Mac's own)."] = (
        None
    )
    deployment_target: Annotated[str | None, "Oldest macOS that must be able to run the result, as 14.0."] = None
    jobs: Annotated[int | None, "How many steps and threads run at once (default: the number of cores)."] = None
    toolchain: Annotated[
        Literal["auto", "zig", "apple"], "Compiler to build with; auto is apple on a Mac, zig elsewhere."
    ] = "auto"
    dist: Annotated[str, "Folder that receives the artifacts."] = "dist"
    cache_dir: Annotated[str | None, "Folder of the store (default: the user's cache folder)."] = None
    recipes: Annotated[str | None, "Folder of the project's recipes (default: recipes/ of the project)."] = None
    lock: Annotated[str | None, "The project's lock file (default: macbuild.lock beside its recipes)."] = None
    mirrors: Annotated[list[str], "Folders or URL prefixes tried before every source."] = []
    offline: Annotated[bool, "Use only the store and mirrors that are folders."] = False
    keep_going: Annotated[bool, "After a failure, continue with everything that does not depend on it."] = False
    skip_unreachable: Annotated[bool, "Build what is available, list what is not and why, and exit with 0."] = False
    sources: Annotated[list[str], "Take a component's source from a folder of your own: COMPONENT=FOLDER."] = []
    wanted_options: Annotated[list[str], "Build with this option of a component, or fail."] = []
    unwanted_options: Annotated[list[str], "Build without this option of a component."] = []
    policy: Annotated[str, "Audit policy that artifacts must pass: release, wheel, permissive, or a file."] = "release"
    color: Annotated[Literal["auto", "always", "never"], "When to use colour."] = "auto"
    log_format: Annotated[Literal["text", "json"], "Format of the log lines on stderr."] = "text"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as documentation, flags and environment variables need it."""

    name: str
    help: str
    default: Any
    kind: Any

    @property
    def variable(self) -> str:
        """The environment variable."""
        return _PREFIX + self.name.upper()

    @property
    def foreign(self) -> str | None:
        """A variable of the platform with the same meaning and lower precedence."""
        return _FOREIGN.get(self.name)

    @property
    def flag(self) -> str:
        """The command-line option."""
        name = self.name.rstrip("s") if self.is_list else self.name
        return _FLAGS.get(self.name, "--" + name.replace("_", "-"))

    @property
    def is_list(self) -> bool:
        """Return whether the option may be repeated."""
        return get_origin(self.kind) is list

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values, if they are limited."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()


@cache
def settings_table() -> tuple[Setting, ...]:
    """Return all settings in the order of their definition."""
    hints = get_type_hints(Settings, include_extras=True)
    table = []
    for field in msgspec.structs.fields(Settings):
        kind, text = get_args(hints[field.name])
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        table.append(Setting(field.name, text, default, kind))
    return tuple(table)


def setting(name: str) -> Setting:
    """Return one setting by name."""
    return next(entry for entry in settings_table() if entry.name == name)


def project_root(start: Path) -> Path | None:
    """Return the nearest folder, going up, that is a project, or None.

    A project has `recipes/`, or settings of its own: `macbuild.toml`, or `[tool.macbuild]` in `pyproject.toml`. The
    folders that are installed with macbuild are not a project.

    Raises
    ------
    ConfigError
        If a `pyproject.toml` on the way cannot be read.
    """
    for folder in (start, *start.parents):
        if not is_installed(folder) and ((folder / "recipes").is_dir() or _table_in(folder) is not None):
            return folder
    return None


def bundled(name: str) -> Path:
    """Return a file or folder of data that comes with macbuild: beside the package, or inside it once installed."""
    inside = _PACKAGE / "_data"
    return (inside if inside.is_dir() else _PACKAGE.parent) / name


def is_installed(path: Path) -> bool:
    """Tell if a path is in the data of an installed macbuild, which nothing writes to."""
    data = (_PACKAGE / "_data").resolve()
    return data in (path.resolve(), *path.resolve().parents)


def load_settings(flags: Mapping[str, object], environ: Mapping[str, str], start: Path) -> Settings:
    """Return the settings from flags, environment and file, in this order of precedence.

    Parameters
    ----------
    flags
        Values from the command line; None means not given.
    environ
        The environment.
    start
        Folder where the search for `macbuild.toml` or `pyproject.toml` begins, upwards.

    Raises
    ------
    ConfigError
        For an unknown key, an unknown `MACBUILD_` variable, or a bad value, with the nearest valid name.
    UsageError
        For a bad value on the command line.
    """
    values: dict[str, Any] = {}
    found = _file_table(start)
    if found is not None:
        path, below, table = found
        values.update(_from_file(path, below, table))
    values.update(_environment(environ))
    for key, value in flags.items():
        if value is not None:
            try:
                _check(key, value, setting(key).flag)
            except ConfigError as error:
                raise UsageError(error.message, where=error.where, hint=error.hint) from error
            values[key] = value
    return convert(values, Settings, "settings", ConfigError)


def origin(name: str, value: object, environ: Mapping[str, str], start: Path) -> str:
    """Return where a setting got its value: a variable, a line of a file, or the command line."""
    entry = setting(name)
    if environ.get(entry.variable) and _parse(entry, environ[entry.variable], "") == value:
        return entry.variable
    found = _file_table(start)
    if found is not None:
        path, below, table = found
        if name in table and _rebased(name, table[name], path.parent) == value:
            return f"{place(path, *below, name)}: {name}"
    return entry.flag


def bad_setting(name: str, problem: str, places: tuple[object, Mapping[str, str], Path], hint: str) -> MacbuildError:
    """Return the error about a setting that cannot be used.

    Parameters
    ----------
    name
        The setting.
    problem
        What is wrong with it.
    places
        Its value, the environment, and the folder where the search for a file begins.
    hint
        What to do.
    """
    where = origin(name, *places)
    kind = UsageError if where.startswith("--") else ConfigError
    return kind(problem, where=where, hint=hint)


def _from_file(path: Path, below: Keys, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a file, checked; a bad one is an error with its line."""
    texts = {key: value for key, value in table.items() if isinstance(value, str)}
    key = ""
    try:
        for key in texts.keys() & set(Settings.__struct_fields__):
            _check_choice(key, texts[key], key)
        converted(table, Settings, path, ConfigError, below)
        for key, value in table.items():
            rebased = _rebased(key, value, path.parent)
            _check(key, rebased if key == "policy" else value, key)
            yield key, rebased
    except ConfigError as error:
        if error.where != key:
            raise
        where = f"{place(path, *below, key)}: {key}"
        raise ConfigError(error.message, where=where, hint=error.hint) from error


def _check(name: str, value: object, where: str) -> None:
    """Refuse values that have the right type but cannot be right."""
    if value == "":
        raise ConfigError("is empty", where=where)
    if name == "jobs" and isinstance(value, int) and not 0 < value <= _MAX_JOBS:
        raise ConfigError(f"{value} is not a number of jobs", where=where, hint=f"give a number from 1 to {_MAX_JOBS}")
    _check_choice(name, value, where)
    if name == "policy":
        _check_policy(str(value), where)
    if name in _PATHS and isinstance(value, str):
        _expanded(where, value)
    if name == "sources" and isinstance(value, list):
        _check_sources(value, where)
    try:
        if name == "arch" and isinstance(value, str):
            parse_arch(value)
        if name == "deployment_target" and isinstance(value, str):
            parse_deployment(value)
    except MacbuildError as error:
        raise ConfigError(error.message, where=where, hint=error.hint) from error


def _check_sources(texts: Sequence[object], where: str) -> None:
    for text in texts:
        component, _, folder = str(text).partition("=")
        if not component or not folder:
            raise ConfigError(f"{text!r} is not a source", where=where, hint="write it as core=../core")
        _expanded(where, folder)


def _check_policy(value: str, where: str) -> None:
    """Refuse a policy that is neither built in nor a file; `macbuild.audit` reads it when it is needed."""
    folder = _PACKAGE / "audit" / "policies"
    if "\0" in value or not ((folder / f"{value}.toml").is_file() or os.path.lexists(value)):
        names = ", ".join(sorted(path.stem for path in folder.glob("*.toml")))
        hint = f"choose from {names}, or give the path of a TOML file"
        raise ConfigError(f"there is no policy {value!r}", where=where, hint=hint)


def _check_choice(name: str, value: object, where: str) -> None:
    """Refuse a value that is none of the words of a setting."""
    choices = setting(name).choices
    if choices and value not in choices:
        raise ConfigError(f"{value!r} is not possible", where=where, hint=f"choose from {', '.join(choices)}")


def _file_table(start: Path) -> tuple[Path, Keys, dict[str, Any]] | None:
    found = (_table_in(folder) for folder in (start, *start.parents))
    return next((each for each in found if each is not None), None)


def _table_in(folder: Path) -> tuple[Path, Keys, dict[str, Any]] | None:
    """Return the file of the settings in a folder, the keys that lead to their table, and it; None if it has none."""
    own = folder / "macbuild.toml"
    if os.path.lexists(own):
        return own, (), parse_document(read_document(own, ConfigError), own, ConfigError)
    project = folder / "pyproject.toml"
    if project.is_file() and "macbuild" in (text := read_document(project, ConfigError)):
        tools = parse_document(text, project, ConfigError).get("tool")
        if isinstance(tools, dict) and "macbuild" in tools:
            below = ("tool", "macbuild")
            if not isinstance(tools["macbuild"], dict):
                raise ConfigError("is not a table", where=f"{place(project, *below)}: tool.macbuild")
            return project, below, tools["macbuild"]
    return None


def _rebased(key: str, value: object, folder: Path) -> object:
    """Return a path of a file, which is relative to that file, as an absolute one."""
    if isinstance(value, list) and key == "mirrors":
        return [text if "://" in text else str(folder / _expanded(key, text)) for text in value]
    if isinstance(value, list) and key == "sources":
        pairs = [text.partition("=") for text in value]
        return [f"{component}={folder / _expanded(key, path)}" for component, _, path in pairs]
    is_path = key in _PATHS or (key == "policy" and str(value).endswith(".toml"))
    return str(folder / _expanded(key, value)) if is_path and isinstance(value, str) else value


def _expanded(key: str, text: str) -> Path:
    if "\0" in text:
        raise ConfigError("has a NUL character", where=key)
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{text!r} is in the home of a user who does not have one", where=key) from error


def _environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    table = {entry.variable: entry for entry in settings_table()}
    for name in sorted(environ):
        if name.startswith(_PREFIX) and name not in table and name not in _NOT_SETTINGS:
            raise ConfigError("unknown variable", where=name, hint=nearest(name, list(table)))
    for entry in table.values():
        for variable in (entry.foreign, entry.variable):
            if variable and environ.get(variable):
                value = _parse(entry, environ[variable], variable)
                _check(entry.name, value, variable)
                yield entry.name, value


def _parse(entry: Setting, text: str, where: str) -> object:
    kinds = get_args(entry.kind) if get_origin(entry.kind) in {Union, types.UnionType} else (entry.kind,)
    if entry.is_list:
        return [part for part in text.split(os.pathsep if "://" not in text else " ") if part]
    if int in kinds:
        if not re.fullmatch(r"\d{1,9}", text):
            raise ConfigError(f"{text!r} is not a whole number", where=where)
        return int(text)
    if bool in kinds:
        if text.lower() not in {"0", "1", "false", "true", "no", "yes", "off", "on"}:
            raise ConfigError(f"{text!r} is neither true nor false", where=where, hint="write 1 or 0")
        return text.lower() in {"1", "true", "yes", "on"}
    return text
