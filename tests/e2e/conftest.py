"""Run the main job once for each architecture as a user runs it, on the real inputs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from filelock import FileLock

from tests.conftest import cache_folder, quick_compilers, shared_store
from tests.support.installed import install

ROOT = Path(__file__).parents[2]
PYTORCH = "tritonserver-backend-pytorch-0.1.0-macos"
ONNXRUNTIME = "tritonserver-backend-onnxruntime-0.1.0-macos"
COMPONENTS = ("libtorch", "onnxruntime", "pytorch", "onnxruntime_backend")
ARTIFACTS = {
    "arm64": (
        "libtorch-2.13.0-macos-arm64.tar.gz",
        "onnxruntime-1.30.0-macos-arm64.tar.gz",
        f"{PYTORCH}-arm64.tar.gz",
        "tritonserver_backend_pytorch-0.1.0-py3-none-macosx_14_0_arm64.whl",
        f"{ONNXRUNTIME}-arm64.tar.gz",
        "tritonserver_backend_onnxruntime-0.1.0-py3-none-macosx_11_0_arm64.whl",
    ),
    "x86_64": (
        "libtorch-2.2.2-macos-x86_64.tar.gz",
        "onnxruntime-1.23.2-macos-x86_64.tar.gz",
        f"{PYTORCH}-x86_64.tar.gz",
        "tritonserver_backend_pytorch-0.1.0-py3-none-macosx_11_0_x86_64.whl",
        f"{ONNXRUNTIME}-x86_64.tar.gz",
        "tritonserver_backend_onnxruntime-0.1.0-py3-none-macosx_11_0_x86_64.whl",
    ),
    "universal2": (
        "libtorch-2.2.2-macos-universal2.tar.gz",
        "onnxruntime-1.23.2-macos-universal2.tar.gz",
        f"{PYTORCH}-universal2.tar.gz",
        "tritonserver_backend_pytorch-0.1.0-py3-none-macosx_14_0_universal2.whl",
        f"{ONNXRUNTIME}-universal2.tar.gz",
        "tritonserver_backend_onnxruntime-0.1.0-py3-none-macosx_11_0_universal2.whl",
    ),
}


@dataclass
class Macbuild:
    """The installed command with a store.

    Parameters
    ----------
    cache
        Folder of the store.
    environ
        Variables besides those of the tests.
    """

    cache: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    def quick(self) -> Macbuild:
        """Return the command with compilers for this machine that do not optimize, for third-party libraries."""
        return Macbuild(self.cache, {**self.environ, **quick_compilers()})

    def under_load(self, seconds: int) -> Macbuild:
        """Return the command with a duration in seconds for the load tests of backends."""
        return Macbuild(self.cache, {**self.environ, "MACBUILD_TEST_LOAD_SECONDS": str(seconds)})

    def start(self, *arguments: str, cwd: Path = ROOT) -> subprocess.Popen[str]:
        """Start the command and return the running process."""
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("macbuild")), *arguments],
            cwd=cwd,
            env={**os.environ, "MACBUILD_CACHE_DIR": str(self.cache), **self.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, cwd: Path = ROOT, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run the command to its end and check its exit code."""
        process = self.start(*arguments, cwd=cwd)
        out, err = process.communicate()
        assert process.returncode == code, f"exit {process.returncode}, not {code}\n{out}\n{err}"
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of a new environment with the installed wheel."""
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="session")
def macbuild() -> Macbuild:
    """Return the command with the shared store; it keeps downloads, so each registry is contacted only once."""
    return Macbuild(shared_store())


@pytest.fixture(scope="session")
def dist(macbuild: Macbuild, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the artifacts of all three architectures."""
    folder = tmp_path_factory.mktemp("dist")
    with FileLock(cache_folder() / "dist.lock"):
        for arch in ARTIFACTS:
            # All libraries for one architecture; tests/e2e/test_libraries.py builds some for the other.
            line = ["all", "--skip-unreachable"] if arch == "arm64" else ["build", *COMPONENTS]
            macbuild.quick()(*line, "--arch", arch, "--dist", str(folder))
    return folder


@pytest.fixture(scope="session")
def mirror(macbuild: Macbuild, dist: Path) -> Path:
    """Return a mirror folder with every pinned wheel, so that runs with an empty store contact no registry."""
    del dist
    folder = cache_folder() / "mirror"
    folder.mkdir(exist_ok=True)
    for path in macbuild.cache.glob("results/*/*/*.whl"):
        with contextlib.suppress(FileExistsError):
            (folder / path.name).hardlink_to(path)
    return folder
