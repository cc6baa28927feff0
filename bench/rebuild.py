"""Rebuild the PyTorch backend after a change of one source file, against ninja alone in the same build folder."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path

from bench.inputs import macbuild, work_folder
from bench.timing import Row, command, duration
from macbuild.build.programs import find_ninja
from macbuild.config import bundled

__all__ = ["build_step", "other_steps"]

_SOURCE = "recipes/backends/pytorch/src/settings.cpp"
_ARCH = ("--arch", "arm64")
_LIMIT = 2.0


@dataclass
class Workshop:
    """A copy of the recipes whose build is up to date, changed and rebuilt in turn.

    Parameters
    ----------
    folder
        Receives the copy; always the same one, so that only the first run compiles everything.
    """

    folder: Path
    numbers: count[int] = field(default_factory=lambda: count(time.time_ns()))

    def __post_init__(self) -> None:
        """Copy, build, and check that a second build runs nothing."""
        shutil.rmtree(self.folder)
        shutil.copytree(bundled("recipes"), self.folder / "recipes")
        shutil.copyfile(bundled("macbuild.lock"), self.folder / "macbuild.lock")
        self.text = (self.folder / _SOURCE).read_text("utf-8")
        self.recipes = ["--recipes", str(self.folder / "recipes")]
        self.build()
        if self.build() is not None:
            raise SystemExit("a second build of unchanged sources ran the compiler")
        shell = macbuild("shell", "pytorch", *_ARCH, *self.recipes, "--", "sh", "-c", "export PWD; env -0")
        done = subprocess.run(shell, check=True, capture_output=True, text=True)
        self.environ = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)

    def change(self) -> None:
        """Change a source to a text that no compiler cache has seen before."""
        added = f"\nnamespace torch_backend {{\nint changed_{next(self.numbers)}() {{ return 0; }}\n}}\n"
        (self.folder / _SOURCE).write_text(self.text + added, "utf-8")

    def build(self) -> tuple[float, float] | None:
        """Run macbuild; return the seconds of its build step and of the later steps, or None if it did not build."""
        words = ["build", "pytorch", *_ARCH, *self.recipes, "--dist", str(self.folder / "dist"), "--log-format", "json"]
        done = subprocess.run(macbuild(*words), capture_output=True, text=True, check=False)
        ended = time.time()
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
            raise SystemExit("macbuild build failed")
        for line in map(json.loads, done.stderr.splitlines()):
            if line["event"] == "StepFinished" and line["step"].endswith("/build") and line["status"] == "built":
                return line["seconds"], ended - line["time"]
        return None

    def changed_build(self) -> tuple[float, float]:
        """Change a source, run macbuild and return the seconds of its build step and of the later steps."""
        self.change()
        seconds = self.build()
        if seconds is None:
            raise SystemExit("a changed source was not built")
        return seconds

    def ninja(self) -> float:
        """Change a source and run ninja alone in macbuild's build folder; return its seconds."""
        return command([str(find_ninja())], self.change, cwd=Path(self.environ["PWD"]), environ=self.environ)()


@lru_cache
def _measured(rounds: int) -> tuple[float, float, float]:
    """Return the medians of the build step, of the later steps, and of ninja alone, in seconds."""
    workshop = Workshop(work_folder("rebuild"))
    workshop.changed_build()
    workshop.ninja()
    turns = [(*workshop.changed_build(), workshop.ninja()) for _ in range(max(rounds, 7))]
    step, rest, ninja = (statistics.median(column) for column in zip(*turns, strict=True))
    return step, rest, ninja


def build_step(rounds: int) -> Row:
    """Configure, compile and install after one source changed."""
    step, _, ninja = _measured(rounds)
    return Row("rebuild the PyTorch backend after one source changed, build step", "ninja alone", step, ninja, 1.1)


def other_steps(rounds: int) -> Row:
    """Measure everything after the build step, until the command ends."""
    _, rest, _ = _measured(rounds)
    against = f"the {duration(_LIMIT)} that it may take"
    return Row("the rest of that rebuild: fix, audit, wheel, tarball", against, rest, _LIMIT, 1)
