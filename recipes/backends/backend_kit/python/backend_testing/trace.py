"""Read the traces that the server writes of requests: the times of each step, and the tensors that went in and out."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from backend_testing.server import Service
from backend_testing.wire import TYPES, Value

__all__ = ["STEPS", "Trace", "arguments", "check_trace", "read"]

STEPS = (
    "REQUEST_START",
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
    "COMPUTE_END",
    "REQUEST_END",
)
"""The times of a request that its trace has, in their order; the four of COMPUTE come from the backend."""
_PATIENCE = 60.0


@dataclass
class Trace:
    """One request: the name of its model, times in nanoseconds by step, and tensors by activity and name."""

    model: str = ""
    times: dict[str, int] = field(default_factory=dict)
    tensors: dict[tuple[str, str], Value] = field(default_factory=dict)

    def add(self, event: Mapping[str, Any]) -> None:
        """Add an event of the server's file."""
        self.model = event.get("model_name", self.model)
        for each in event.get("timestamps", []):
            self.times[each["name"]] = int(each["ns"])
        if tensor := event.get("tensor"):
            self.tensors[event["activity"], tensor["name"]] = _array(tensor)


def _array(tensor: Mapping[str, str]) -> Value:
    values = tensor["data"].split(",") if tensor["data"] else []
    return (
        np.array([float(text) for text in values])
        .astype(TYPES[tensor["dtype"]])
        .reshape([int(size) for size in tensor["shape"].split(",")])
    )


def arguments(file: Path) -> list[str]:
    """Return the arguments of a server that traces each request at once, to files whose names begin with `file`."""
    settings = [f"triton,file={file}", "triton,log-frequency=1", "level=TIMESTAMPS", "level=TENSORS", "rate=1"]
    return [f"--trace-config={each}" for each in settings]


def read(file: Path, model: str, count: int) -> list[Trace]:
    """Return the traces of a model once there are as many as expected; the server writes them after its answers.

    Raises
    ------
    TimeoutError
        There are fewer after a minute.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        found: dict[int, Trace] = {}
        for path in file.parent.glob(f"{file.name}.*"):
            for event in _events(path):
                found.setdefault(int(event["id"]), Trace()).add(event)
        complete = [trace for trace in found.values() if trace.model == model and "REQUEST_END" in trace.times]
        if len(complete) >= count:
            return sorted(complete, key=lambda trace: trace.times["REQUEST_START"])
        if time.monotonic() > end:
            raise TimeoutError(f"{len(complete)} of {count} traces of {model}")
        time.sleep(0.05)


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        return list(json.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        return []  # The server is writing it.


def check_trace(
    service: Service,
    file: Path,
    model: str,
    requests: Sequence[Mapping[str, Value]],
    answers: Mapping[str, Sequence[Value]],
) -> None:
    """Send requests one by one, and compare their traces: the order of the times, and the bytes of each tensor.

    Parameters
    ----------
    service
        A server that runs with `arguments(file)`.
    file
        Beginning of the names of its files.
    model
        A loaded model whose tensors are numbers.
    requests
        Inputs of each request.
    answers
        The right values of each output, by request.
    """
    for request in requests:
        service.client().infer(model, request)
    traces = read(file, model, len(requests))
    assert len(traces) == len(requests)
    for at, (trace, request) in enumerate(zip(traces, requests, strict=True)):
        times = [trace.times[step] for step in STEPS]
        assert times == sorted(times), trace.times
        right = {("TENSOR_QUEUE_INPUT", name): item for name, item in request.items()}
        right |= {("TENSOR_BACKEND_OUTPUT", name): items[at] for name, items in answers.items()}
        assert right.keys() <= trace.tensors.keys()
        for key, item in right.items():
            assert np.array_equal(trace.tensors[key], item), (key, trace.tensors[key])
