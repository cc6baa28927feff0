"""Make Python environments, and models that report which Python runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend_testing.repository import Port, Repository, config, parameters

__all__ = ["Python", "add_model", "alive", "environment", "here", "packed", "report", "until", "wanted"]

# Writes a report beside itself; doubles its input, except for two numbers that cause errors.
MODEL = """
import json, os, sys
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        seen = {
            "pid": os.getpid(),
            "version": "%d.%d" % sys.version_info[:2],
            "prefix": sys.prefix,
            "base": sys.base_prefix,
            "loader": sorted(name for name in os.environ if name.startswith(("DYLD_", "LD_LIBRARY"))),
            "instance": args["model_instance_name"],
        }
        with open(os.path.join(os.path.dirname(__file__), "seen.json"), "w") as file:
            json.dump(seen, file)
        self.name = pb_utils.get_output_config_by_name(args["model_config"], "OUTPUT0")["name"]

    def execute(self, requests):
        responses = []
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            if value.size and value.flat[0] == -1:
                error = pb_utils.TritonError("minus one is not doubled")
                responses.append(pb_utils.InferenceResponse(output_tensors=[], error=error))
            elif value.size and value.flat[0] == -2:
                raise ValueError("minus two is an exception")
            else:
                tensor = pb_utils.Tensor(self.name, value * 2)
                responses.append(pb_utils.InferenceResponse(output_tensors=[tensor]))
        return responses
"""


@dataclass(frozen=True)
class Python:
    """An installation: its folder, and its version such as `3.12`."""

    prefix: Path
    version: str

    @property
    def library(self) -> Path:
        """Folder of its shared library."""
        return self.prefix / "lib"


def here() -> Python:
    """Return the Python that runs this, or the base of its environment."""
    assert sysconfig.get_config_var("Py_ENABLE_SHARED"), f"{sys.base_prefix} has no shared library for the stub to load"
    return Python(Path(sys.base_prefix), f"{sys.version_info.major}.{sys.version_info.minor}")


def wanted() -> list[Python]:
    """Return the Python of the tests, and those in the folders of PYTHON_BACKEND_TEST_PYTHONS, a list like PATH."""
    found = [here()]
    for prefix in filter(None, os.environ.get("PYTHON_BACKEND_TEST_PYTHONS", "").split(os.pathsep)):
        command = [
            str(Path(prefix) / "bin" / "python3"),
            "-I",
            "-c",
            "import sys; print('%d.%d' % sys.version_info[:2])",
        ]
        version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if version not in {python.version for python in found}:
            found.append(Python(Path(prefix), version))
    return found


def environment(folder: Path, python: Python) -> Path:
    """Make an environment with the layout of conda-pack: its own bin, lib and activate, which may be anywhere."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "bin" / "python3").symlink_to(python.prefix / "bin" / f"python{python.version}")
    for library in python.library.glob(f"libpython{python.version}.*"):
        (folder / "lib" / library.name).symlink_to(library)
    activate = 'here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\nexport PATH="$here:$PATH"\n'
    (folder / "bin" / "activate").write_text(activate)
    return folder


def packed(archive: Path, folder: Path) -> Path:
    """Pack an environment."""
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, ".")
    return archive


def add_model(folder: Path, name: str, *, execution: Path | None = None, count: int = 1) -> Path:
    """Write a model into a repository, and return its folder."""
    extra = parameters({"EXECUTION_ENV_PATH": str(execution)} if execution else {})
    extra += f"instance_group {{ kind: KIND_CPU count: {count} }}"
    text = config("python", [Port("INPUT0", "FP32", [-1])], [Port("OUTPUT0", "FP32", [-1])], extra=extra)
    return Repository(folder).add(name, {"1/model.py": MODEL.encode()}, text)


def report(model: Path) -> dict[str, Any]:
    """Return the report that a model's process writes at its start."""
    found: dict[str, Any] = json.loads((model / "1" / "seen.json").read_text())
    return found


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    """Wait for a condition, and return whether it became true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
