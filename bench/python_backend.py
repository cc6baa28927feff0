"""Serve TorchScript through Triton's own Python backend, the one that our backend is measured against."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

__all__ = ["PythonBackend", "prepare"]

_PACKAGE = Path("pytriton/tritonserver")
_STUB = "triton_python_backend_stub"

# What a careful user writes: one call for all requests of an execution, tensors handed over without numpy.
_MODEL = """\
import json
import sys
from pathlib import Path

sys.path[:0] = MODULES  # the stub's Python takes nothing from the environment

import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import from_dlpack, to_dlpack


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.inputs = [each["name"] for each in config["input"]]
        self.outputs = [each["name"] for each in config["output"]]
        self.batched = config["max_batch_size"] > 0
        path = Path(args["model_repository"]) / args["model_version"] / "model.pt"
        self.module = torch.jit.load(str(path)).eval()

    def execute(self, requests):
        columns = [[self.tensor(request, name) for request in requests] for name in self.inputs]
        with torch.inference_mode():
            if len(requests) == 1:
                rows = [self.run([column[0] for column in columns])]
            elif self.batched:
                sizes = [tensor.shape[0] for tensor in columns[0]]
                parts = [result.split(sizes) for result in self.run([torch.cat(column) for column in columns])]
                rows = list(zip(*parts))
            else:
                rows = [self.run(row) for row in zip(*columns)]
        return [self.response(row) for row in rows]

    def run(self, inputs):
        result = self.module(*inputs)
        return result if isinstance(result, tuple) else (result,)

    def tensor(self, request, name):
        return from_dlpack(pb_utils.get_input_tensor_by_name(request, name).to_dlpack())

    def response(self, row):
        tensors = [
            pb_utils.Tensor.from_dlpack(name, to_dlpack(part.contiguous())) for name, part in zip(self.outputs, row)
        ]
        return pb_utils.InferenceResponse(tensors)
"""


@dataclass(frozen=True)
class PythonBackend:
    """What a server needs to run it, and how models for it are written.

    Parameters
    ----------
    backends
        Folder to give as backend directory; other backends may be added to it.
    environ
        Environment variables of the server.
    modules
        Folders that its Python takes numpy and torch from.
    """

    backends: Path
    environ: dict[str, str]
    modules: tuple[str, ...]

    def add_model(self, repository: Path, name: str, module: Path, config: Sequence[str]) -> None:
        """Add a TorchScript file to a model repository as a model of the Python backend.

        Parameters
        ----------
        repository
            Model repository.
        name
            Name of the model.
        module
            The TorchScript file; arguments and outputs are in the order of the configuration.
        config
            Lines of config.pbtxt without the backend.
        """
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        shutil.copyfile(module, folder / "model.pt")
        (folder / "model.py").write_text(_MODEL.replace("MODULES", repr(list(self.modules))), encoding="utf-8")
        text = "\n".join(['backend: "python"', *config, ""])
        (repository / name / "config.pbtxt").write_text(text, encoding="utf-8")


def prepare(server: Path, folder: Path) -> PythonBackend:
    """Set up the Python backend of the unpacked wheel nvidia-pytriton for the running Python and its torch.

    Its stub is linked with libpython and made for numpy before 2, which is installed into `folder` by pip.

    Parameters
    ----------
    server
        The unpacked wheel.
    folder
        Receives the backend and numpy; what is there already is used again.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    backend = folder / "backends" / "python"
    if not backend.exists():
        shutil.copytree(server / _PACKAGE / "backends/python", backend)
        shutil.copy2(server / _PACKAGE / "python_backend_stubs" / version / _STUB, backend / _STUB)
        (backend / _STUB).chmod(0o755)
    numpy = folder / "numpy"
    if not numpy.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(numpy), "numpy<2"]
        subprocess.run(command, check=True)
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torch")
    modules = (str(numpy), str(Path(spec.origin).parents[1]))
    libraries = [str(server / "nvidia_pytriton.libs"), f"{sys.base_prefix}/lib", os.environ.get("LD_LIBRARY_PATH", "")]
    environ = {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}
    return PythonBackend(folder / "backends", environ, modules)
