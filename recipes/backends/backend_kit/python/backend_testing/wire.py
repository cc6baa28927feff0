"""Talk to the server in numpy arrays through tritonclient, over HTTP and gRPC alike."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

__all__ = ["NAMES", "TYPES", "Client", "InferenceServerException", "Step", "Value", "same", "texts"]

Value: TypeAlias = NDArray[Any]
"""Input or output of a model; a BYTES tensor has dtype object and elements of type `bytes`."""

TYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
}
"""Triton's types with the numpy type of each."""

NAMES = {dtype: name for name, dtype in TYPES.items()}

_PATIENCE = 60.0
"""Seconds until the server must have counted its answers."""


class Step(NamedTuple):
    """The place of a request in a sequence: its correlation ID, and whether it is the first or the last."""

    sequence_id: int | str
    sequence_start: bool = False
    sequence_end: bool = False


def texts(words: Sequence[str | bytes], *shape: int) -> Value:
    """Return a BYTES tensor of words, in one row unless a shape is given."""
    result = np.empty(len(words), np.object_)
    result[:] = [word.encode() if isinstance(word, str) else word for word in words]
    return result.reshape(shape) if shape else result


def same(left: Value, right: Value) -> bool:
    """Return whether two arrays agree in type, shape and every bit: NaN equals the same NaN, and -0 differs from 0."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype == np.object_:
        return bool(left.tolist() == right.tolist())
    return left.tobytes() == right.tobytes()


class Client:
    """One connection; HTTP and gRPC have the same methods.

    Parameters
    ----------
    protocol
        `http` or `grpc`.
    address
        Host and port.

    Attributes
    ----------
    module
        `tritonclient.http` or `tritonclient.grpc`.
    raw
        The client of that module, for calls that are not wrapped here.
    """

    def __init__(self, protocol: str, address: str) -> None:
        self.protocol = protocol
        self.module: Any = tritonclient.http if protocol == "http" else tritonclient.grpc
        options = {"connection_timeout": 120.0, "network_timeout": 120.0} if protocol == "http" else {}
        self.raw: Any = self.module.InferenceServerClient(address, **options)

    def close(self) -> None:
        """Close the connection."""
        self.raw.close()

    def tensor(self, name: str, item: Value, datatype: str | None = None, shape: Sequence[int] | None = None) -> object:
        """Return an input with its data; `datatype` and `shape` may be wrong."""
        result = self.module.InferInput(name, list(item.shape), NAMES[item.dtype])
        result.set_data_from_numpy(item)
        if shape is not None:
            result.set_shape(list(shape))
        if datatype is not None:
            # The public API checks the array against the type; a wrong client does not.
            if self.protocol == "http":
                result._datatype = datatype
            else:
                result._input.datatype = datatype
        return result

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Value] | Sequence[object],
        outputs: Sequence[str] | None = None,
        version: str = "",
        step: Step | None = None,
    ) -> dict[str, Value]:
        """Send one request and return the outputs by name.

        Parameters
        ----------
        model
            Name of the model.
        inputs
            Arrays by name, or inputs made by `tensor`.
        outputs
            Names of the outputs to request; all by default.
        version
            Version of the model; the server chooses if it is empty.
        step
            Place in a sequence, if the request belongs to one.

        Raises
        ------
        InferenceServerException
            The server answered with an error.
        """
        tensors = [self.tensor(name, item) for name, item in inputs.items()] if isinstance(inputs, Mapping) else inputs
        wanted = None if outputs is None else [self.module.InferRequestedOutput(name) for name in outputs]
        options = step._asdict() if step else {}
        answer = self.raw.infer(model, tensors, model_version=version, outputs=wanted, **options)
        head = answer.get_response()
        names = (
            [each["name"] for each in head["outputs"]] if self.protocol == "http" else [o.name for o in head.outputs]
        )
        return {name: np.array(answer.as_numpy(name)) for name in names}

    def load(self, model: str) -> None:
        """Load a model, or load it again."""
        self.raw.load_model(model)

    def unload(self, model: str) -> None:
        """Request a model to be unloaded."""
        self.raw.unload_model(model)

    def ready(self, model: str, version: str = "") -> bool:
        """Return whether the model answers requests."""
        return bool(self.raw.is_model_ready(model, version))

    def config(self, model: str) -> dict[str, Any]:
        """Return the configuration that the server completed, with the keys of config.pbtxt."""
        if self.protocol == "http":
            return dict(self.raw.get_model_config(model))
        return dict(self.raw.get_model_config(model, as_json=True)["config"])

    def statistics(self, model: str) -> dict[str, Any]:
        """Return the statistics of the first version of a model."""
        if self.protocol == "http":
            return dict(self.raw.get_inference_statistics(model)["model_stats"][0])
        return dict(self.raw.get_inference_statistics(model, as_json=True)["model_stats"][0])

    def counts(self, model: str, rows: int = 0, failures: int = 0) -> tuple[int, int, int]:
        """Return how many rows were answered, in how many executions, and how many requests failed.

        A request is answered before it is counted, so this waits a short time until the expected number is counted.
        """
        end = time.monotonic() + _PATIENCE
        while True:
            found = self.statistics(model)
            failed = int(found["inference_stats"].get("fail", {}).get("count", 0))
            answered = int(found.get("inference_count", 0))
            if (answered >= rows and failed >= failures) or time.monotonic() > end:
                return answered, int(found.get("execution_count", 0)), failed
            time.sleep(0.02)
