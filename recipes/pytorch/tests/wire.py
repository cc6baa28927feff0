"""Talk to the server through tritonclient in torch tensors, over HTTP and gRPC alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import torch
import tritonclient.grpc
import tritonclient.http
from torch import Tensor
from tritonclient.utils import InferenceServerException

__all__ = ["NAMES", "TYPES", "Client", "InferenceServerException", "Value", "array", "raw", "same", "value"]

Value: TypeAlias = Tensor | list[str]
"""What a model takes and gives: a tensor, or the strings of a BYTES tensor."""

TYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "UINT8": torch.uint8,
    "UINT16": torch.uint16,
    "UINT32": torch.uint32,
    "UINT64": torch.uint64,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "FP16": torch.float16,
    "BF16": torch.bfloat16,
    "FP32": torch.float32,
    "FP64": torch.float64,
}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def array(item: Value) -> np.ndarray[Any, Any]:
    """Return the array that tritonclient sends for a value."""
    if isinstance(item, list):
        return np.array([text.encode() for text in item], dtype=np.object_)
    item = item.contiguous()
    if item.dtype == torch.bfloat16:
        return item.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return item.numpy()


def value(data: np.ndarray[Any, Any]) -> Value:
    """Return the value of an array that tritonclient received."""
    if data.dtype == np.object_:
        return [item.decode() if isinstance(item, bytes) else str(item) for item in data.reshape(-1)]
    if data.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(data.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(data))


def raw(item: Tensor) -> bytes:
    """Return the bytes of a tensor in C order, so that NaN equals NaN and -0 differs from 0."""
    return array(item).tobytes()


def same(left: Value, right: Value) -> bool:
    """Whether two values agree in type, shape and every bit."""
    if isinstance(left, list) or isinstance(right, list):
        return left == right
    return left.dtype == right.dtype and left.shape == right.shape and raw(left) == raw(right)


class Client:
    """One connection; HTTP and gRPC answer to the same calls.

    Parameters
    ----------
    protocol
        `http` or `grpc`.
    address
        Host and port.
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
        """Return an input with its data; `datatype` and `shape` may lie."""
        data = array(item)
        kind = "BYTES" if isinstance(item, list) else NAMES[item.dtype]
        result = self.module.InferInput(name, list(data.shape), kind)
        result.set_data_from_numpy(data)
        if shape is not None:
            result.set_shape(list(shape))
        if datatype is not None:
            # The public way checks the array against the type; a wrong client does not.
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
    ) -> dict[str, Value]:
        """Send one request and return what came back, by name."""
        tensors = [self.tensor(name, item) for name, item in inputs.items()] if isinstance(inputs, Mapping) else inputs
        wanted = None if outputs is None else [self.module.InferRequestedOutput(name) for name in outputs]
        answer = self.raw.infer(model, tensors, model_version=version, outputs=wanted)
        head = answer.get_response()
        names = (
            [each["name"] for each in head["outputs"]] if self.protocol == "http" else [o.name for o in head.outputs]
        )
        return {name: value(answer.as_numpy(name)) for name in names}

    def shapes(self, model: str, inputs: Sequence[object]) -> dict[str, list[int]]:
        """Send one request and return the shapes of its outputs, those of BYTES too."""
        answer = self.raw.infer(model, inputs)
        head = answer.get_response()
        found = head["outputs"] if self.protocol == "http" else head.outputs
        pairs = [(o["name"], o["shape"]) if self.protocol == "http" else (o.name, o.shape) for o in found]
        return {name: [int(size) for size in shape] for name, shape in pairs}

    def load(self, model: str) -> None:
        """Load a model, or load it again."""
        self.raw.load_model(model)

    def unload(self, model: str) -> None:
        """Ask for a model to be unloaded."""
        self.raw.unload_model(model)

    def ready(self, model: str, version: str = "") -> bool:
        """Whether the model answers requests."""
        return bool(self.raw.is_model_ready(model, version))

    def config(self, model: str) -> dict[str, Any]:
        """Return the configuration that the server completed, in the words of config.pbtxt."""
        if self.protocol == "http":
            return dict(self.raw.get_model_config(model))
        return dict(self.raw.get_model_config(model, as_json=True)["config"])

    def statistics(self, model: str) -> dict[str, Any]:
        """Return the statistics of the first version of a model."""
        if self.protocol == "http":
            return dict(self.raw.get_inference_statistics(model)["model_stats"][0])
        return dict(self.raw.get_inference_statistics(model, as_json=True)["model_stats"][0])
