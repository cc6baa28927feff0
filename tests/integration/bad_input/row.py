"""Say what a row of the table of bad inputs is, and make inputs bad."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from macbuild.data import parse_toml
from macbuild.errors import LockError
from tests.support.sample import Sample, files, server, tarball

Spoil = Callable[[Sample], "AbstractContextManager[object] | object"]
"""Makes an input bad; if it returns a context, the command runs in it."""
RECIPE, LOCK, SETTINGS = "recipes/alpha/recipe.toml", "macbuild.lock", "macbuild.toml"
ARCHIVE = "archives/alpha-2.0-arm64.tar.gz"
COMMAND, CONFIG, RECIPES, LOCKS, PLAN = 2, 3, 4, 5, 6


@dataclass(frozen=True)
class Row:
    """One bad input of a project with the component `alpha`, releases 1.0 and 2.0.

    Parameters
    ----------
    group, name
        The kind of input, and which one.
    spoil
        Makes the input bad.
    command
        What is run, in the project's folder.
    code
        The exit code.
    says
        What the error must name.
    hint
        What the hint must name; empty if there need be none.
    environ
        Variables.
    folder
        Name of the project's folder.
    start
        A program that starts macbuild, with its arguments.
    """

    group: str
    name: str
    spoil: Spoil
    command: str
    code: int
    says: tuple[str, ...]
    hint: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    folder: str = "project"
    start: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.group}: {self.name}"


def nothing(sample: Sample) -> None:
    """Leave the project as it is."""
    del sample


def recipe(change: Callable[[dict[str, Any]], object]) -> Spoil:
    """Return what changes the data of the recipe."""

    def spoil(sample: Sample) -> None:
        change(sample.recipes["alpha"])
        sample.recipe_path("alpha").write_text(tomli_w.dumps(sample.recipes["alpha"]))

    return spoil


def pinned(change: Callable[[list[dict[str, Any]]], object]) -> Spoil:
    """Return what changes the pins of the lock."""

    def spoil(sample: Sample) -> None:
        path = sample.root / LOCK
        data = parse_toml(path.read_text(), path, LockError)
        change(data["pinned"])
        path.write_text(tomli_w.dumps(data))

    return spoil


def pin(key: str, value: object) -> Spoil:
    return pinned(lambda rows: rows[1].update({key: value}))


def text(path: str, content: str | bytes) -> Spoil:
    """Return what writes a file."""
    data = content.encode() if isinstance(content, str) else content

    def spoil(sample: Sample) -> None:
        (sample.root / path).write_bytes(data)

    return spoil


def encoded(path: str, encoding: str) -> Spoil:
    """Return what stores a file, which may be missing, in another encoding."""

    def spoil(sample: Sample) -> None:
        file = sample.root / path
        old = file.read_text() if file.exists() else "jobs = 2\n"
        file.write_bytes(old.encode(encoding))

    return spoil


def special(path: str, kind: str) -> Spoil:
    """Return what replaces a file by something that is none."""

    def spoil(sample: Sample) -> None:
        place = sample.root / path
        place.unlink(missing_ok=True)
        if kind == "a FIFO":
            os.mkfifo(place)
        elif kind == "a folder":
            place.mkdir()
        elif kind == "a socket":
            here = Path.cwd()
            os.chdir(place.parent)  # the path of a socket is short
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(place.name)
            os.chdir(here)
        else:
            place.symlink_to("/dev/zero")

    return spoil


def source(data: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = data["releases"][index]["arm64"]["sources"][0]
    return found


def release(data: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = data["releases"][index]
    return found


def archive(content: bytes) -> Spoil:
    """Return what replaces the archive of 2.0, and pins it."""

    def spoil(sample: Sample) -> None:
        (sample.root / ARCHIVE).write_bytes(content)
        sample.write()

    return spoil


def whole() -> bytes:
    return tarball(files("alpha", "arm64"))


KINDS = ("a FIFO", "a socket", "a device", "a folder")


def served(answer: bytes | int) -> Spoil:
    """Return what replaces the local source of 2.0 by a server that answers like this."""

    @contextmanager
    def running(sample: Sample) -> Iterator[None]:
        with server({"alpha-2.0-arm64.tar.gz": answer}) as url:
            fetch = {"type": "url", "urls": [f"{url}/alpha-2.0-arm64.tar.gz"]}
            sample.sources("alpha", release=1)[0]["fetch"] = fetch
            sample.write()
            yield

    return running


def nobody(sample: Sample) -> None:
    """Replace the local source of 2.0 by an address at which nothing listens."""
    fetch = {"type": "url", "urls": ["http://127.0.0.1:9/alpha-2.0-arm64.tar.gz"]}
    sample.sources("alpha", release=1)[0]["fetch"] = fetch
    sample.write()


def built(sample: Sample) -> None:
    """Add a component that is compiled."""
    sample.add_built("beta", {"CMakeLists.txt": "project(beta)\n"})
