"""Provide for all tests: a folder that outlives a run, real macOS wheels, compilers, and the order of the run."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from filelock import FileLock

from macbuild.errors import StoreError
from macbuild.store import Store

REQUESTS = {
    "torch-2.13.0-arm64": ("torch==2.13.0", "macosx_14_0_arm64"),
    "torch-2.2.2-x86_64": ("torch==2.2.2", "macosx_10_9_x86_64"),
    "torch-2.2.2-arm64": ("torch==2.2.2", "macosx_11_0_arm64"),
    "onnxruntime-1.30.0-arm64": ("onnxruntime==1.30.0", "macosx_14_0_arm64"),
    "onnxruntime-1.23.2-x86_64": ("onnxruntime==1.23.2", "macosx_13_0_x86_64"),
    "onnxruntime-1.23.2-arm64": ("onnxruntime==1.23.2", "macosx_13_0_arm64"),
}


def cache_folder() -> Path:
    """Return the folder that outlives a test run: downloads from registries, and the store of all tests."""
    folder = Path(os.environ.get("MACBUILD_TEST_CACHE") or platformdirs.user_cache_path("macbuild-tests"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def shared_store() -> Path:
    """Return the store of all tests that build real components, so that each of them is compiled once for all."""
    return cache_folder() / "store"


def zig_cache() -> Path:
    """Return zig's own cache in the shared store, so that the C++ runtime is compiled once for all."""
    folder = shared_store() / "zig"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache  # because its own result may be in the environment at a second call
def quick_compilers() -> dict[str, str]:
    """Return `CC` and `CXX` for third-party libraries on this machine: its compilers, without optimization.

    Their results are used by tests and thrown away, and take half the time. Their version shows what they are, so a
    store does not confuse the results with those of the compilers themselves. Artifacts for macOS, and the code of
    macbuild's own backends, are compiled in tests as for users.
    """
    found = {}
    folder = cache_folder() / "quick"
    folder.mkdir(exist_ok=True)
    for variable, name in (("CC", "cc"), ("CXX", "c++")):
        compiler = os.environ.get(variable) or shutil.which(name)
        assert compiler is not None, "the tests need a C++ compiler for this machine"
        script = folder / f"{name}-{os.getpid()}"
        script.write_text(
            "#!/bin/sh\n"
            '[ "$1" = --version ] && echo "without optimization"\n'
            # The last option wins.
            f'exec {compiler} "$@" -O0\n'
        )
        script.chmod(0o755)
        script.replace(folder / name)
        found[variable] = str(folder / name)
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Let tests and their children be ended by signals, although a job in the background starts with some ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup
    if config.pluginmanager.has_plugin("xdist"):
        config.option.loadscopereorder = False  # tests/support/schedule.py orders them


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Hand out tests to workers by the rules of tests/support/schedule.py."""
    from tests.support.schedule import Schedule

    return Schedule(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the tests that run longest."""
    from tests.support.schedule import rank

    items.sort(key=lambda item: rank(item.nodeid))


_SESSION = contextlib.ExitStack()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Forget results of older code in the shared store, unless another run is using it; then use it until the end."""
    store = Store(shared_store())
    if hasattr(session.config, "workerinput"):
        return
    if store.root.exists():
        with contextlib.suppress(StoreError), store.in_use(alone=True):
            store.prune(1)
    with contextlib.suppress(StoreError):
        _SESSION.enter_context(store.in_use())


def pytest_sessionfinish() -> None:
    """Let other runs clean the shared store again."""
    _SESSION.close()


@dataclass(frozen=True)
class Wheels:
    """Real macOS wheels in a folder that outlives the test run, as pip's own cache does."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return the wheel, downloaded by pip if it does not exist yet."""
        folder = self.folder / name
        with FileLock(self.folder / f"{name}.lock"):
            if not (folder / ".complete").exists():
                requirement, platform = REQUESTS[name]
                command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
                command += ["--python-version", "3.12", "--platform", platform, "-d", str(folder), requirement]
                subprocess.run(command, check=True)
                (folder / ".complete").touch()
        return next(folder.glob("*.whl"))

    def file(self, name: str, member: str) -> Path:
        """Return one extracted member; shared by all tests, so copy it before editing."""
        wheel = self.path(name)
        target = wheel.parent / "members" / member
        with FileLock(self.folder / f"{name}.lock"):
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                with zipfile.ZipFile(wheel) as archive:
                    partial = target.with_name(target.name + ".partial")
                    partial.write_bytes(archive.read(member))
                    partial.replace(target)
        return target


@dataclass(frozen=True)
class Zig:
    """The compiler of the `ziglang` package."""

    def dylib(
        self, folder: Path, source: str, arch: str = "arm64", minos: str = "11.0", *args: str, name: str = "libx"
    ) -> Path:
        """Compile C source to a dylib for macOS, whose id is `@rpath/<name>.dylib` unless `args` say otherwise."""
        folder.mkdir(parents=True, exist_ok=True)
        code = folder / f"{name}.c"
        code.write_text(source)
        output = folder / f"{name}.dylib"
        target = f"{'aarch64' if arch == 'arm64' else arch}-macos.{minos}"
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-shared", "-o", str(output), str(code)]
        if not any("install_name" in arg for arg in args):
            command += [f"-Wl,-install_name,@rpath/{output.name}"]
        subprocess.run([*command, *args], check=True, capture_output=True)
        return output


@pytest.fixture(scope="session")
def wheels() -> Wheels:
    """Provide real macOS wheels by name, such as `torch-2.13.0-arm64`."""
    return Wheels(cache_folder())


def program(name: str, package: str) -> str:
    """Return the path of a program; on Debian as root, install its package if it is missing."""
    with FileLock(cache_folder() / "apt.lock"):
        if shutil.which(name) is None and shutil.which("apt-get"):
            environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", "update", "-q"], check=False, capture_output=True)
            install = ["apt-get", "install", "-q", "-y", "--no-install-recommends", package]
            subprocess.run(install, check=False, capture_output=True, env=environment)
    found = shutil.which(name)
    assert found is not None, f"the tests need {name}; install the package {package}"
    return found


@pytest.fixture(scope="session")
def zig() -> Zig:
    """Provide the zig compiler."""
    return Zig()
