"""Write models of the identity backend: OUTPUT<n> is INPUT<n>."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from backend_testing.repository import Port, Repository, config, parameters
from backend_testing.wire import TYPES, Value, texts

__all__ = ["BATCH", "SLOW_SECONDS", "add", "samples", "standard"]

BATCH = 8
SLOW_SECONDS = 1.5


def add(
    folder: Path,
    name: str,
    datatypes: Sequence[str] = ("FP32",),
    dims: Sequence[int] = (-1,),
    *,
    batch: int = BATCH,
    delay: float = 0,
    extra: str = "",
    backend: str = "identity",
) -> None:
    """Write a model with one input for each type; `delay` is the seconds that an execution takes."""
    inputs = [Port(f"INPUT{index}", datatype, list(dims)) for index, datatype in enumerate(datatypes)]
    outputs = [port._replace(name=port.name.replace("INPUT", "OUTPUT")) for port in inputs]
    if delay:
        extra += parameters({"execute_delay_ms": str(round(delay * 1000))})
    text = config(backend, inputs, outputs, batch=batch, extra=extra + "instance_group { kind: KIND_CPU }")
    Repository(folder).add(name, {}, text)


def standard(folder: Path) -> Path:
    """Write the models that most tests share into a new repository, and return it."""
    folder.mkdir()
    for datatype in TYPES:
        add(folder, f"identity_{datatype.lower()}", [datatype])
    add(folder, "identity")
    add(folder, "pair", ["FP32", "INT32"])
    add(folder, "plane", dims=[-1, 3], batch=0)
    add(folder, "slow", delay=SLOW_SECONDS)
    add(folder, "gathering", delay=0.1, extra="dynamic_batching { max_queue_delay_microseconds: 200000 }\n")
    return folder


def samples(datatype: str, count: int) -> Value:
    """Return values of a type, including its minimum and maximum."""
    dtype = TYPES[datatype]
    if datatype == "BYTES":
        words = ["", "one", "größer", '\0\x01\n"\\', "x" * 300]
        return texts([words[index % len(words)] for index in range(count)])
    if datatype == "BOOL":
        return np.asarray(np.arange(count) % 3 == 0)
    values: Value = np.arange(count).astype(dtype)
    if dtype.kind in "iu":
        values[0], values[-1] = np.iinfo(dtype).min, np.iinfo(dtype).max
    elif datatype == "BF16":
        values[0], values[-1] = -0.0, 2.0**100
    else:
        values[0], values[-1] = np.finfo(dtype).min, np.finfo(dtype).tiny
    return values
