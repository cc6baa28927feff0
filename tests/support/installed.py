"""Install macbuild as users do: its wheel, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install(folder: Path) -> Path:
    """Build the wheel, install it into a new environment in a folder, and return the folder of its programs."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(pip, check=True, capture_output=True)
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    (wheel,) = folder.glob("*.whl")
    subprocess.run([programs / "python", "-m", "pip", "install", "-q", wheel], check=True, capture_output=True)
    return programs


def clean_environment() -> dict[str, str]:
    """Return the environment without settings of macbuild and of Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MACBUILD_", "PYTHON"))}
