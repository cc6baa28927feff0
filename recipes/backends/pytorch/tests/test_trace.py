"""Test that the server's traces have the times and tensors of this backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from backend_testing.repository import Port
from backend_testing.server import Service
from backend_testing.trace import arguments, check_trace
from modules import config, file


def test_a_trace_has_the_times_and_tensors_of_each_request(
    start_service: Callable[..., Service], tmp_path: Path
) -> None:
    traced = start_service(*arguments(tmp_path / "trace.json"))
    ports = [Port("x", "FP32", [4])], [Port("y", "FP32", [4])]
    traced.repository.add("traced", {"1/model.pt": file("Arithmetic")}, config(*ports, batch=500))
    traced.load("traced")
    requests = [{"x": np.arange(2000, dtype=np.float32).reshape(500, 4) + number} for number in range(4)]
    check_trace(traced, tmp_path / "trace.json", "traced", requests, {"y": [each["x"] * 2 for each in requests]})
