"""Get released ONNX Runtime libraries from their wheels."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import platformdirs
from filelock import FileLock

__all__ = ["LINUX_VERSIONS", "MACOS_LIBRARIES", "TOO_OLD", "linux_library", "macos_library"]

LINUX_VERSIONS = ("1.20.0", "1.23.2", "1.30.0", "1.31.1")
"""The versions that the backend is tested with, the oldest supported first."""
TOO_OLD = "1.19.2"
"""The last version whose table of functions is too short for the backend."""

_MACOS_TAGS = {
    ("1.20.0", "arm64"): "macosx_13_0_universal2",
    ("1.20.0", "x86_64"): "macosx_13_0_universal2",
    ("1.23.2", "arm64"): "macosx_13_0_arm64",
    ("1.23.2", "x86_64"): "macosx_13_0_x86_64",
    ("1.30.0", "arm64"): "macosx_14_0_arm64",
    ("1.31.1", "arm64"): "macosx_14_0_arm64",
}
MACOS_LIBRARIES = tuple(_MACOS_TAGS)
"""Version and architecture of the libraries for macOS; there are none for x86_64 after 1.23.2."""


def _from_wheel(release: str, name: str, tags: list[str], file: str) -> Path:
    """Return a library from a wheel, which pip downloads once into a folder that outlives the tests."""
    cache = Path(os.environ.get("MACBUILD_TEST_CACHE") or platformdirs.user_cache_path("macbuild-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / name
    library = folder / "members/onnxruntime/capi" / file
    with FileLock(cache / f"{name}.lock"):
        if not (folder / ".complete").exists():
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
            command += ["--python-version", "3.12", *(f"--platform={tag}" for tag in tags), "-d", str(folder)]
            subprocess.run([*command, f"onnxruntime=={release}"], check=True)
            (folder / ".complete").touch()
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            partial = library.with_name(file + ".partial")
            with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
                partial.write_bytes(wheel.read(f"onnxruntime/capi/{file}"))
            partial.replace(library)
    return library


def linux_library(release: str) -> Path:
    """Return the shared library of a release for this machine; the installed package needs no download."""
    file = f"libonnxruntime.so.{release}"
    try:
        installed = version("onnxruntime") == release
    except PackageNotFoundError:
        installed = False
    if installed:
        found = find_spec("onnxruntime")
        assert found is not None
        assert found.origin is not None
        return Path(found.origin).parent / "capi" / file
    machine = platform.machine()
    tags = [f"manylinux_2_27_{machine}", f"manylinux_2_28_{machine}"]
    return _from_wheel(release, f"onnxruntime-{release}-linux-{machine}", tags, file)


def macos_library(release: str, arch: str) -> Path:
    """Return the shared library of a release for macOS; it may have other architectures, too."""
    tag = _MACOS_TAGS[release, arch]
    suffix = "universal2" if tag.endswith("universal2") else arch
    return _from_wheel(release, f"onnxruntime-{release}-{suffix}", [tag], f"libonnxruntime.{release}.dylib")
