"""Define the backends that are measured in a real server, with all their differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

__all__ = ["SUBJECTS", "Subject"]


@dataclass(frozen=True)
class Subject:
    """A backend that is measured.

    Parameters
    ----------
    backend
        Its name in Triton.
    component
        The recipe that builds it.
    runtime
        The common name of the library that runs its models.
    package
        The Python package that contains this runtime.
    model
        Name of the model file that it and Triton's Python backend serve.
    parameters
        Parameters of its models, which set the number of threads; without any, OMP_NUM_THREADS does.
    beside
        Pattern of files in the package that belong beside the backend.
    calling
        Name of the backend that only calls the runtime and answers with zeros, if there is one.
    """

    backend: str
    component: str
    runtime: str
    package: str
    model: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    beside: str = ""
    calling: str = ""

    @property
    def folder(self) -> Path:
        """The folder of the installed package."""
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(self.package)
        return Path(spec.origin).parent


_ALL = (
    Subject("pytorch", "pytorch", "LibTorch", "torch", "model.pt"),
    Subject(
        "onnxruntime",
        "onnxruntime_backend",
        "ONNX Runtime",
        "onnxruntime",
        "model.onnx",
        {"intra_op_thread_count": "1"},
        "capi/libonnxruntime.*",
        "calling_onnxruntime",
    ),
)
SUBJECTS = {subject.backend: subject for subject in _ALL}
