"""Talk to the server in torch tensors, as backend_testing does in numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import ml_dtypes
import numpy as np
import torch
from backend_testing import crowd, wire
from backend_testing.server import Service
from backend_testing.wire import Client, InferenceServerException, texts
from torch import Tensor

__all__ = [
    "TYPES",
    "Client",
    "InferenceServerException",
    "Value",
    "array",
    "arrays",
    "ask",
    "same",
    "together",
    "value",
]

Value: TypeAlias = Tensor | list[str]
"""Input or output of a model: a tensor, or the strings of a BYTES tensor."""

TYPES: dict[str, torch.dtype] = {
    name: torch.bfloat16 if name == "BF16" else getattr(torch, dtype.name)
    for name, dtype in wire.TYPES.items()
    if name != "BYTES"
}


def array(item: Value) -> wire.Value:
    """Return the array of a value."""
    if isinstance(item, list):
        return texts(item)
    item = item.contiguous()
    if item.dtype == torch.bfloat16:
        return item.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return item.numpy()


def value(data: wire.Value) -> Value:
    """Return the value of an array."""
    if data.dtype == np.object_:
        return [item.decode() for item in data.reshape(-1)]
    if data.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(data.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(data.copy())


def arrays(request: Mapping[str, Value]) -> dict[str, wire.Value]:
    """Return the arrays of values by name."""
    return {name: array(item) for name, item in request.items()}


def same(left: Value, right: Value) -> bool:
    """Return whether two values agree in type, shape and every bit."""
    return wire.same(array(left), array(right))


def ask(
    client: Client, model: str, request: Mapping[str, Value], outputs: Sequence[str] | None = None, version: str = ""
) -> dict[str, Value]:
    """Send one request and return the outputs by name."""
    return {name: value(data) for name, data in client.infer(model, arrays(request), outputs, version).items()}


def together(
    service: Service, protocol: str, model: str, requests: Sequence[Mapping[str, Value]]
) -> list[dict[str, Value] | str]:
    """Send all requests at once, each from its own client; an error is returned as its text."""
    answers = crowd.together(service, protocol, model, [arrays(request) for request in requests])
    return [
        answer if isinstance(answer, str) else {name: value(data) for name, data in answer.items()}
        for answer in answers
    ]
