"""Test that the server's traces have the times and tensors of this backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from backend_testing.server import Service
from backend_testing.trace import arguments, check_trace
from option_models import DOUBLING, NOTHING, serve


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the traces are written."""
    return tmp_path_factory.mktemp("trace") / "trace.json"


@pytest.fixture(scope="module")
def traced(start_service: Callable[..., Service], file: Path) -> Service:
    """Provide a server that traces everything."""
    return start_service(*arguments(file))


@pytest.mark.parametrize("rows", [1, 500])
def test_a_trace_has_the_times_and_tensors_of_each_request(traced: Service, file: Path, rows: int) -> None:
    name = f"traced_{rows}"
    serve(traced, name, DOUBLING, f"{NOTHING}max_batch_size: 500\n")
    requests = [{"x": np.arange(rows * 4, dtype=np.float32).reshape(rows, 4) + number} for number in range(4)]
    check_trace(traced, file, name, requests, {"y": [each["x"] * 2 for each in requests]})
