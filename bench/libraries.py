"""Building all third-party libraries for one architecture: from nothing, with a warm compiler cache, and once more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.inputs import macbuild, work_folder
from bench.timing import Row, duration

__all__ = ["rows"]

# gRPC's source is at an address that not every machine reaches.
_LEFT_OUT = {"grpc"}
_COLD = 900.0
_WARM = 60.0


@dataclass(frozen=True)
class Workshop:
    """A store and a compiler cache of their own.

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
        """Return where the results of fetch and unpack steps lie in a store, as far as they are there."""
        line = macbuild("plan", *self.names, "--arch", "arm64", "--json")
        plan = json.loads(subprocess.run(line, check=True, capture_output=True, env=environ).stdout)
        kinds = {"fetch", "unpack"}
        keys = [step["key"] for step in plan["steps"] if step["kind"] in kinds and step["state"] == "in store"]
        return {key: Path("results", key[:2], key) for key in keys}

    def seed(self) -> None:
        """Take sources from the user's store, so that no download is timed."""
        line = macbuild("build", *self.names, "--arch", "arm64")
        subprocess.run(line, check=True, capture_output=True)
        root = Path(subprocess.run(macbuild("cache", "dir"), check=True, capture_output=True, text=True).stdout.strip())
        for path in self.steps(os.environ).values():
            shutil.copytree(root / path, self.store / path, symlinks=True)

    def build(self) -> tuple[float, bool]:
        """Build all; return the seconds and whether there was nothing to do."""
        line = macbuild("build", *self.names, "--arch", "arm64", "--json")
        start = time.perf_counter()
        done = subprocess.run(line, capture_output=True, text=True, env=self.environ, check=False)
        seconds = time.perf_counter() - start
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
            raise SystemExit("macbuild build failed")
        return seconds, json.loads(done.stdout)["idle"]

    def forget(self) -> None:
        """Leave the sources and the compiler cache alone."""
        kept = {path.name for path in self.steps(self.environ).values()}
        for result in self.store.glob("results/*/*"):
            if result.name not in kept:
                shutil.rmtree(result)
        shutil.rmtree(self.store / "build")

    def calls(self) -> int:
        """Return how often the compiler cache was asked, whatever it answered."""
        line = ["ccache", "--print-stats"]
        text = subprocess.run(line, check=True, capture_output=True, text=True, env=self.environ).stdout
        counts = dict(row.split("\t") for row in text.splitlines())
        return sum(int(number) for name, number in counts.items() if name.endswith(("_hit", "_miss")))


def _libraries() -> tuple[str, ...]:
    from macbuild.config import data_root  # noqa: PLC0415 - only here
    from macbuild.recipe import load_recipes  # noqa: PLC0415 - likewise

    recipes = load_recipes(data_root(Path.cwd()) / "recipes")
    return tuple(name for name, each in recipes.items() if each.build and each.build.consumer and name not in _LEFT_OUT)


def rows() -> list[Row]:
    """Measure once: a cold run takes minutes."""
    folder = work_folder("libraries")
    shutil.rmtree(folder)
    workshop = Workshop(folder, _libraries())
    workshop.seed()
    cold, _ = workshop.build()
    workshop.forget()
    warm, _ = workshop.build()
    before = workshop.calls()
    again, idle = workshop.build()
    if not idle or workshop.calls() != before:
        raise SystemExit("a run with no change started a compiler")
    what = f"all {len(workshop.names)} libraries for arm64"
    return [
        Row(f"{what}, nothing compiled before", f"the {duration(_COLD)} that it may take", cold, _COLD, 1),
        Row(f"{what}, compiler cache warm", f"the {duration(_WARM)} that it may take", warm, _WARM, 1),
        Row(f"{what}, no change: no compiler starts", f"the {duration(_WARM)} of the row before", again, _WARM, 1),
    ]
