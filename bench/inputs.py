"""Find the files to measure: the real LibTorch, which macbuild itself downloads into its store."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import platformdirs

__all__ = ["PYTHON", "libtorch_dylib", "libtorch_stage", "macbuild", "tool", "work_folder"]

PYTHON = sys.executable


def macbuild(*arguments: str) -> list[str]:
    """Return the command line of the installed `macbuild`, as a user starts it."""
    return [str(Path(PYTHON).with_name("macbuild")), *arguments]


def tool(name: str) -> str:
    """Return the path of a program to compare with, or exit with the command that installs it."""
    for candidate in (name, *(f"{name}-{version}" for version in range(25, 13, -1))):
        found = shutil.which(candidate)
        if found:
            return found
    raise SystemExit(f"{name} is not on the PATH; on Debian: apt-get install llvm")


def work_folder(name: str) -> Path:
    """Return a folder in the user's cache that is kept between runs."""
    folder = platformdirs.user_cache_path("macbuild-bench") / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@lru_cache
def _results() -> dict[str, Path]:
    subprocess.run(
        macbuild("build", "libtorch@2.13.0", "--arch", "arm64", "--dist", "dist"), check=True, capture_output=True
    )
    answer = subprocess.run(macbuild("cache", "list", "--json"), check=True, capture_output=True, text=True)
    return {row["step"]: Path(row["path"]) for row in json.loads(answer.stdout)["results"]}


def libtorch_dylib() -> Path:
    """Return libtorch_cpu.dylib of LibTorch 2.13.0 for arm64 as built by its vendor: 338 MB, linker-signed."""
    return _results()["libtorch-2.13.0-macos-arm64/unpack"] / "tree/torch/lib/libtorch_cpu.dylib"


def libtorch_stage() -> Path:
    """Return the fixed tree of LibTorch 2.13.0 for arm64."""
    return _results()["libtorch-2.13.0-macos-arm64/fix"] / "stage"
