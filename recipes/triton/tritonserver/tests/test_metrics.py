"""Test the metrics endpoint, in Prometheus' text format."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from backend_testing.service import Service, ask
from backend_testing.wire import Client, InferenceServerException

LINE = re.compile(r"([a-z_]+)(?:\{([^}]*)\})? (\S+)")
_PATIENCE = 60.0


def metrics(service: Service) -> dict[tuple[str, str], float]:
    """Return each metric by its name and the value of its label `model`."""
    found = ask(service.metrics, "GET", "/metrics")
    assert found.status == 200
    assert found.headers["Content-Type"].startswith("text/plain")
    values = {}
    for line in found.body.decode().splitlines():
        if line.startswith("#") or not line:
            continue
        match = LINE.fullmatch(line)
        assert match, line
        model = re.search(r'model="([^"]*)"', match[2] or "")
        values[match[1], model[1] if model else ""] = float(match[3])
    return values


def counted(service: Service, name: str, model: str, wanted: float) -> float:
    """Return a count, which the server increments after it has answered."""
    end = time.monotonic() + _PATIENCE
    while (found := metrics(service).get((name, model), 0)) < wanted and time.monotonic() < end:
        time.sleep(0.05)
    return found


def test_good_and_bad_requests_are_counted(service: Service, client: Client) -> None:
    name, model = "nv_inference_request_success", "plane"
    before = metrics(service).get((name, model), 0)
    good = np.ones((2, 3), np.float32)
    for _ in range(7):
        client.infer(model, {"INPUT0": good})
    with pytest.raises(InferenceServerException):
        client.infer(model, {"INPUT0": np.ones((2, 4), np.float32)})
    assert counted(service, name, model, before + 7) == before + 7


def test_each_metric_has_its_kind(service: Service) -> None:
    lines = ask(service.metrics, "GET", "/metrics").body.decode().splitlines()
    kinds = dict(line.split()[2:] for line in lines if line.startswith("# TYPE"))
    assert kinds["nv_inference_request_success"] == "counter"
    assert {name for name, _ in metrics(service)} <= {
        *kinds,
        *(f"{name}_{end}" for name in kinds for end in ("sum", "count")),
    }


def test_metrics_of_the_machine_are_plausible(service: Service) -> None:
    found = {name: value for (name, _), value in metrics(service).items() if name.startswith("nv_cpu_")}
    assert found.keys() == {"nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"}
    assert 0 <= found["nv_cpu_utilization"] <= 1
    assert 1 << 28 < found["nv_cpu_memory_used_bytes"] <= found["nv_cpu_memory_total_bytes"] < 1 << 45


def test_metrics_have_a_port_of_their_own(service: Service) -> None:
    assert b"nv_" in ask(service.metrics, "GET", "/metrics").body
    assert b"triton" not in ask(service.metrics, "GET", "/v2").body
    assert service.ask("GET", "/metrics").refused
