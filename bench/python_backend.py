"""Serve models through Triton's own Python backend, against which our backends are measured."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from bench.subjects import Subject

__all__ = ["PythonBackend", "prepare"]

_PACKAGE = Path("pytriton/tritonserver")
_STUB = "triton_python_backend_stub"

# Careful user code: one call for all requests of an execution, and no copy that the API does not make.
_MODEL = Template("""\
import json
import sys
from pathlib import Path

sys.path[:0] = $modules  # the stub's Python takes nothing from the environment

$runtime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.inputs = [each["name"] for each in config["input"]]
        self.outputs = [each["name"] for each in config["output"]]
        self.batched = config["max_batch_size"] > 0
        self.run = load(Path(args["model_repository"]) / args["model_version"] / "$model", self.inputs, self.outputs)

    def execute(self, requests):
        columns = [
            [tensor_in(pb_utils.get_input_tensor_by_name(request, name)) for request in requests]
            for name in self.inputs
        ]
        if len(requests) == 1:
            rows = [self.run([column[0] for column in columns])]
        elif self.batched:
            sizes = [tensor.shape[0] for tensor in columns[0]]
            rows = list(zip(*(split(result, sizes) for result in self.run([join(column) for column in columns]))))
        else:
            rows = [self.run(row) for row in zip(*columns)]
        return [self.response(row) for row in rows]

    def response(self, row):
        return pb_utils.InferenceResponse([tensor_out(name, part) for name, part in zip(self.outputs, row)])
""")

_RUNTIMES = {
    "torch": """\
import torch
from torch import cat as join, split
from torch.utils.dlpack import from_dlpack, to_dlpack


def load(path, inputs, outputs):
    module = torch.jit.load(str(path)).eval()

    def run(tensors):
        with torch.inference_mode():
            result = module(*tensors)
        return result if isinstance(result, tuple) else (result,)

    return run


def tensor_in(tensor):
    return from_dlpack(tensor.to_dlpack())


def tensor_out(name, tensor):
    return pb_utils.Tensor.from_dlpack(name, to_dlpack(tensor.contiguous()))
""",
    "onnxruntime": """\
import numpy
import onnxruntime
from numpy import concatenate as join


def load(path, inputs, outputs):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda arrays: session.run(outputs, dict(zip(inputs, arrays)))


def split(array, sizes):
    return numpy.split(array, numpy.cumsum(sizes)[:-1])


def tensor_in(tensor):
    return tensor.as_numpy()


def tensor_out(name, array):
    return pb_utils.Tensor(name, array)
""",
}


@dataclass(frozen=True)
class PythonBackend:
    """The needs of a server that runs it, and the way models for it are written.

    Parameters
    ----------
    backends
        Backend directory of the server; other backends may be added to it.
    environ
        Environment variables of the server.
    package
        The package that runs the models.
    modules
        Folders where its Python finds numpy and this package.
    """

    backends: Path
    environ: dict[str, str]
    package: str
    modules: tuple[str, ...]

    def add_model(self, repository: Path, name: str, file: Path, config: Sequence[str]) -> None:
        """Add a model file to a model repository as a model of the Python backend.

        Parameters
        ----------
        repository
            Model repository.
        name
            Name of the model.
        file
            A file for the package: TorchScript, arguments and outputs in the order of the configuration, or ONNX.
        config
            Lines of config.pbtxt without the backend.
        """
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        shutil.copyfile(file, folder / file.name)
        text = _MODEL.substitute(runtime=_RUNTIMES[self.package], modules=list(self.modules), model=file.name)
        (folder / "model.py").write_text(text, encoding="utf-8")
        text = "\n".join(['backend: "python"', *config, ""])
        (repository / name / "config.pbtxt").write_text(text, encoding="utf-8")


def prepare(server: Path, folder: Path, subject: Subject) -> PythonBackend:
    """Set up the Python backend of the unpacked wheel nvidia-pytriton for the running Python and a package of it.

    Its stub is linked with libpython and built for numpy before 2, which pip installs into `folder`.

    Parameters
    ----------
    server
        The unpacked wheel.
    folder
        Receives the backend and numpy; existing contents are reused.
    subject
        The backend to compare, which names the package.
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
    modules = (str(numpy), str(subject.folder.parent))
    libraries = [str(server / "nvidia_pytriton.libs"), f"{sys.base_prefix}/lib", os.environ.get("LD_LIBRARY_PATH", "")]
    environ = {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}
    return PythonBackend(folder / "backends", environ, subject.package, modules)
