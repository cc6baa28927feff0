"""Wheels that tests need the files of, without installing them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import platformdirs
from filelock import FileLock

__all__ = ["download", "unpacked"]


def _cache() -> Path:
    return Path(os.environ.get("MACBUILD_TEST_CACHE") or platformdirs.user_cache_path("macbuild-tests"))


def download(name: str, release: str) -> Path:
    """Return the wheel of a package for this machine; pip downloads it once into a folder that outlives the tests."""
    folder = _cache() / f"{name}-{release}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not list(folder.glob("*.whl")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
            subprocess.run([*command, f"{name}=={release}"], check=True)
    return next(folder.glob("*.whl"))


def unpacked(name: str, release: str, target: Path) -> Path:
    """Unpack the wheel of a package for this machine into a folder and return the folder."""
    with zipfile.ZipFile(download(name, release)) as wheel:
        wheel.extractall(target)
    return target
