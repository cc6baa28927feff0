"""Write a small project for scikit-build-core and a stage for it, like those of the backends' recipes."""

from __future__ import annotations

from pathlib import Path

from macbuild.package.wheel import build_wheel
from macbuild.target import Target

NAME, VERSION = "tritonserver-backend-tiny", "0.1.0"
INFO = "tritonserver_backend_tiny-0.1.0.dist-info"
LIBRARY = "tritonserver/backends/tiny/libtriton_tiny.so"
TARGET = Target("arm64", "14.0")

PYPROJECT = """\
[build-system]
requires = ["scikit-build-core>=1.1"]
build-backend = "scikit_build_core.build"

[project]
name = "tritonserver-backend-tiny"
version = "0.1.0"
description = "A backend for tests"
readme = "README.md"
license = "BSD-3-Clause"
license-files = ["LICENSE"]
requires-python = ">=3.10"
dependencies = ["numpy>=1", "torch"]

[tool.scikit-build]
wheel.py-api = "py3"
wheel.packages = []
"""

CMAKELISTS = """\
cmake_minimum_required(VERSION 3.26)
if(MACBUILD_STAGE)
  project(tiny LANGUAGES NONE)
  install(DIRECTORY "${MACBUILD_STAGE}/" DESTINATION ".")
else()
  project(tiny LANGUAGES C)
endif()
"""


def make_project(folder: Path, pyproject: str = PYPROJECT, cmakelists: str = CMAKELISTS) -> Path:
    """Write the project into a new folder."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(pyproject)
    (folder / "CMakeLists.txt").write_text(cmakelists)
    (folder / "LICENSE").write_text("Do what you like.\n")
    (folder / "README.md").write_text("# tiny\n\nName: other\nVersion: 9\nRequires-Dist: torch==9\n")
    return folder


def make_stage(folder: Path, library: bytes = b"\xcf\xfa\xed\xfe" + bytes(5000)) -> Path:
    """Write the files into a new folder."""
    (folder / LIBRARY).parent.mkdir(parents=True)
    (folder / LIBRARY).write_bytes(library)
    (folder / LIBRARY).chmod(0o755)
    (folder / 'tritonserver/backends/tiny/größe, a "name".txt').write_text("x")
    return folder


def make_wheel(project: Path, stage: Path, output: Path, *, target: Target = TARGET, epoch: int = 315532800) -> Path:
    """Build the wheel."""
    return build_wheel(
        project,
        stage,
        output,
        name=NAME,
        version=VERSION,
        target=target,
        epoch=epoch,
        sbom='{"bomFormat": "CycloneDX"}\n',
        jobs=2,
        requires=["torch==2.13.0"],
    )
