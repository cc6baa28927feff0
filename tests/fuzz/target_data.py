"""Fuzz the loaders of recipes, locks, settings and policies; the first byte chooses one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from macbuild.audit.policy import NameSet, load_policy
from macbuild.config import load_settings
from macbuild.errors import ConfigError, LockError, PlanError, RecipeError
from macbuild.recipe.load import load_recipe, load_recipes
from macbuild.recipe.lock import drift, load_lock, save_lock
from macbuild.target import Arch
from tests.fuzz.common import scratch

_ARCHS: tuple[Arch, ...] = ("arm64", "x86_64", "universal2")


def check(data: bytes) -> None:
    """Load the text with the loader chosen by the first byte, and use the result."""
    kind, content = data[:1], data[1:]
    with scratch() as folder:
        _KINDS.get(kind, _recipe)(folder, content)


def _recipe(folder: Path, content: bytes) -> None:
    path = folder / "demo" / "recipe.toml"
    path.parent.mkdir()
    path.write_bytes(content)
    try:
        recipe = load_recipe(path)
    except RecipeError:
        return
    for arch in _ARCHS:
        for version in (None, "2.2.2", recipe.summary):
            with contextlib.suppress(PlanError):
                assert recipe.release(version, arch).serves(arch)
    save_lock(folder / "macbuild.lock", load_lock(_write(folder / "empty.lock", b"version = 1\n")))
    recipes = load_recipes(folder)
    assert drift(recipes, load_lock(folder / "macbuild.lock"), recipes.folder)


def _lock(folder: Path, content: bytes) -> None:
    try:
        lock = load_lock(_write(folder / "macbuild.lock", content))
    except LockError:
        return
    for entry in lock.pinned:
        assert lock.pin(entry) is not None
        assert Path(entry.file).name == entry.file != ".."
    save_lock(folder / "again.lock", lock)
    again = load_lock(folder / "again.lock")
    key = lambda entry: (entry.component, entry.version, entry.arch, entry.source)
    assert sorted(again.pinned, key=key) == sorted(lock.pinned, key=key)
    assert drift({}, again, Path) == drift({}, lock, Path)


def _settings(name: str) -> Callable[[Path, bytes], None]:
    def load(folder: Path, content: bytes) -> None:
        _write(folder / name, content)
        _load_settings({}, folder)

    return load


def _environment(folder: Path, content: bytes) -> None:
    lines = [line.partition("=") for line in content.decode("utf-8", "surrogateescape").splitlines()]
    _write(folder / "macbuild.toml", b"")
    _load_settings({name: value for name, _, value in lines if name}, folder)


def _load_settings(environ: dict[str, str], folder: Path) -> None:
    try:
        settings = load_settings({}, environ, folder)
    except ConfigError:
        return
    for text in (settings.dist, settings.cache_dir, settings.recipes, settings.lock):
        if text is not None:
            with contextlib.suppress(OSError):
                os.lstat(folder / Path(text).expanduser())


def _policy(folder: Path, content: bytes) -> None:
    mine, _, base = content.partition(b"\n---\n")
    _write(folder / "base.toml", base)
    try:
        policy = load_policy(str(_write(folder / "mine.toml", mine)))
    except ConfigError:
        return
    parameters = policy.parameters
    for globs in (parameters.banned_exports, parameters.flat_lookup, parameters.banned_strong_exports):
        NameSet(globs).select(frozenset({b"_f", b"__Znwm", b"\xff"}))


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


_KINDS: dict[bytes, Callable[[Path, bytes], None]] = {
    b"R": _recipe,
    b"L": _lock,
    b"S": _settings("macbuild.toml"),
    b"P": _settings("pyproject.toml"),
    b"E": _environment,
    b"A": _policy,
}
