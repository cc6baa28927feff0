"""Build all third-party libraries for one architecture: from nothing, with a warm compiler cache, with a new driver.

The last row is for macbuild's own developers: they change the driver's code without changing flags.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import macbuild as package
from bench.inputs import PYTHON, macbuild, work_folder
from bench.timing import Row, duration
from macbuild.files import files_below, hash_file
from macbuild.plan.code_closures import FOLDERS

__all__ = ["rows"]

# Some machines cannot reach the address of gRPC's source.
_LEFT_OUT = {"grpc"}
# A line in the driver's scripts that has no effect, and its replacement.
_NEUTRAL = ("Written by macbuild.", "Made by macbuild.")
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from macbuild.__main__ import main; sys.exit(main())"
_COLD = 900.0
_WARM = 60.0


@dataclass(frozen=True)
class Built:
    """A run of macbuild: its seconds, `idle` if there was nothing to do, and the stages of the libraries."""

    seconds: float
    idle: bool
    stages: Mapping[str, Path]

    def contents(self) -> dict[str, list[tuple[str, str]]]:
        """Return the names and digests of the files of each library."""
        return {name: _contents(stage) for name, stage in self.stages.items()}


@dataclass(frozen=True)
class Workshop:
    """A store and a compiler cache for the benchmark alone.

    Parameters
    ----------
    folder
        Emptied first.
    names
        The libraries.
    """

    folder: Path
    names: tuple[str, ...]

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def environ(self) -> Mapping[str, str]:
        return {**os.environ, "MACBUILD_CACHE_DIR": str(self.store), "CCACHE_DIR": str(self.folder / "ccache")}

    def steps(self, environ: Mapping[str, str]) -> dict[str, Path]:
        """Return the existing results of fetch and unpack steps in a store."""
        line = macbuild("plan", *self.names, "--arch", "arm64", "--json")
        plan = json.loads(subprocess.run(line, check=True, capture_output=True, env=environ).stdout)
        kinds = {"fetch", "unpack"}
        keys = [step["key"] for step in plan["steps"] if step["kind"] in kinds and step["state"] == "in store"]
        return {key: Path("results", key[:2], key) for key in keys}

    def seed(self) -> None:
        """Copy sources from the user's store, so that no download is timed."""
        line = macbuild("build", *self.names, "--arch", "arm64")
        subprocess.run(line, check=True, capture_output=True)
        root = Path(subprocess.run(macbuild("cache", "dir"), check=True, capture_output=True, text=True).stdout.strip())
        for path in self.steps(os.environ).values():
            shutil.copytree(root / path, self.store / path, symlinks=True)

    def build(self, program: Sequence[str] = ()) -> Built:
        """Build all libraries.

        Parameters
        ----------
        program
            How to start macbuild, by default the installed one.
        """
        line = [*(program or macbuild()), "build", *self.names, "--arch", "arm64", "--json"]
        start = time.perf_counter()
        done = subprocess.run(line, capture_output=True, text=True, env=self.environ, check=False)
        seconds = time.perf_counter() - start
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
            raise SystemExit("macbuild build failed")
        answer = json.loads(done.stdout)
        return Built(seconds, answer["idle"], {name: Path(stage) for name, stage in answer["stages"].items()})

    def forget(self) -> None:
        """Empty the store except for the sources; keep the compiler cache."""
        kept = {path.name for path in self.steps(self.environ).values()}
        for result in self.store.glob("results/*/*"):
            if result.name not in kept:
                shutil.rmtree(result)
        shutil.rmtree(self.store / "build")

    def changed_driver(self) -> list[str]:
        """Copy macbuild, change its driver without changing flags, and return the command that starts the copy."""
        source = Path(package.__file__).parent
        copy = self.folder / "changed"
        for name in (source.name, *FOLDERS):
            shutil.copytree(source.parent / name, copy / name)
        driver = copy / source.name / "build" / "toolchain" / "driver.py"
        text = driver.read_text("utf-8")
        if _NEUTRAL[0] not in text:
            raise SystemExit(f"the driver does not contain {_NEUTRAL[0]!r}")
        driver.write_text(text.replace(*_NEUTRAL), "utf-8")
        return [PYTHON, "-c", _START, str(copy)]

    def calls(self) -> int:
        """Return how often the compiler cache was queried, hits and misses together."""
        line = ["ccache", "--print-stats"]
        text = subprocess.run(line, check=True, capture_output=True, text=True, env=self.environ).stdout
        counts = dict(row.split("\t") for row in text.splitlines())
        return sum(int(number) for name, number in counts.items() if name.endswith(("_hit", "_miss")))


def _libraries() -> tuple[str, ...]:
    from macbuild.config import bundled
    from macbuild.recipe.load import load_recipes

    recipes = load_recipes(bundled("recipes"))
    return tuple(name for name, each in recipes.items() if each.build and each.build.consumer and name not in _LEFT_OUT)


def _contents(stage: Path) -> list[tuple[str, str]]:
    files = ((str(path.relative_to(stage)), path) for path in files_below(stage))
    return [(name, str(path.readlink()) if path.is_symlink() else hash_file(path)[1]) for name, path in files]


def rows() -> list[Row]:
    """Measure once, since a cold run takes minutes."""
    folder = work_folder("libraries")
    shutil.rmtree(folder)
    workshop = Workshop(folder, _libraries())
    workshop.seed()
    cold = workshop.build()
    workshop.forget()
    warm = workshop.build()
    before = workshop.calls()
    again = workshop.build()
    if not again.idle or workshop.calls() != before:
        raise SystemExit("a run with no change started a compiler")
    changed = workshop.build(workshop.changed_driver())
    if changed.idle or set(changed.stages.values()) & set(again.stages.values()):
        raise SystemExit("a changed driver did not change the keys")
    if changed.contents() != again.contents():
        raise SystemExit("a changed driver that leaves flags alone changed a library")
    what = f"all {len(workshop.names)} libraries for arm64"
    limit = f"the {duration(_WARM)} that it may take"
    same = f"the {duration(_WARM)} of the row before"
    return [
        Row(f"{what}, nothing compiled before", f"the {duration(_COLD)} that it may take", cold.seconds, _COLD, 1),
        Row(f"{what}, compiler cache warm", limit, warm.seconds, _WARM, 1),
        Row(
            f"{what}, no change: no compiler starts",
            same,
            again.seconds,
            _WARM,
            1,
        ),
        Row(f"{what}, after a neutral change of the driver, compiler cache warm", limit, changed.seconds, _WARM, 1),
    ]
