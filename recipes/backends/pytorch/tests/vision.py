"""The package torchvision, as a library of operators for the server and for this process."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import lief
import torch
from backend_testing import wheels

__all__ = ["libraries", "load"]

RELEASE = "0.28.0"
"""The release for the LibTorch of the tests, which its metadata demands exactly."""
IMAGES = "13.0.0"
"""A release of pillow, which the package imports."""
ABSENT = ("libtorch_python.so", "libcudart.so.13", "libc10_cuda.so", "libtorch_cuda.so")
"""What the library in the wheel is linked with, but neither the server nor LibTorch for the CPU has."""


def libraries(folder: Path) -> list[Path]:
    """Unpack the package and return the libraries in the order to load them.

    The wheel for Linux is linked with CUDA and with Python's part of LibTorch. Nothing of either is called on the CPU,
    except what registers its code. Libraries of the same names, made here, have the missing functions.
    """
    unpacked = wheels.unpacked("torchvision", RELEASE, folder)
    operators = unpacked / "torchvision/_C.so"
    parsed = lief.parse(str(operators))
    assert isinstance(parsed, lief.ELF.Binary)
    missing = sorted({str(symbol.name).split("@")[0] for symbol in parsed.imported_symbols if "cuda" in symbol.name})
    return [*(_stand_in(folder / name, missing if name == ABSENT[-1] else []) for name in ABSENT), operators]


def _stand_in(path: Path, functions: Sequence[str]) -> Path:
    """Compile a library whose functions do nothing."""
    lines = [
        f'void *f{number}(void) __asm__("{name}");\nvoid *f{number}(void) {{ return 0; }}'
        for number, name in enumerate(functions)
    ]
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), f"-Wl,-soname,{path.name}"]
    subprocess.run(command, input="\n".join(lines).encode(), check=True)
    return path


def load(paths: Sequence[Path]) -> None:
    """Load the libraries into this process, which has Python's part of LibTorch, and make the package importable."""
    for path in paths[1:-1]:
        ctypes.CDLL(str(path))
    torch.ops.load_library(str(paths[-1]))  # type: ignore[no-untyped-call]
    folder = paths[0].parent
    sys.path[:0] = [str(folder), str(wheels.unpacked("pillow", IMAGES, folder / "pillow"))]
