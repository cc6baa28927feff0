"""Test instances of a model: sessions and memory, right answers from all at once, warm-up, and statistics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend_testing.repository import Port, parameters
from backend_testing.server import Service, preload
from backend_testing.wire import Client, InferenceServerException, same
from models import lookup, network, slow
from option_models import DOUBLING, ROWS, X, config, heavy, removed

SHARED = {"share_session_between_instances": "true"}
NOT_SHARED = {"share_session_between_instances": "false"}


def instances(count: int, kind: str = "KIND_CPU") -> str:
    """Return an instance group."""
    return f"instance_group {{ kind: {kind} count: {count} }}\n"


def sessions(service: Service, name: str) -> int:
    """Return how many sessions of a model the log mentions."""
    return len(re.findall(f"model {name}: nodes on", service.log()))


SESSIONS = {
    "by default": ("", 2),  # the server's default for this backend on a CPU
    "one": (instances(1), 1),
    "three": (instances(3), 3),
    "three, not shared": (instances(3) + parameters(NOT_SHARED), 3),
    "three, shared": (instances(3) + parameters(SHARED), 1),
    "groups": (instances(2) + instances(1, "KIND_MODEL"), 3),
    "groups, shared": (instances(2) + instances(1, "KIND_MODEL") + parameters(SHARED), 1),
}


@pytest.mark.parametrize("kind", SESSIONS)
def test_each_instance_has_a_session_unless_they_share_one(service: Service, kind: str) -> None:
    extra, expected = SESSIONS[kind]
    name = f"sessions_{kind.replace(' ', '_').replace(',', '')}"
    service.repository.add(name, {"1/model.onnx": DOUBLING}, config(*ROWS, batch=8, extra=extra))
    service.load(name)
    assert sessions(service, name) == expected
    for _ in range(4):
        assert same(service.client().infer(name, {"x": X})["y"], X + X)


def test_shared_sessions_hold_the_weights_once(start_service: Callable[..., Service]) -> None:
    other = start_service()
    size = 64 << 20
    file = heavy(size // 4)
    ports = [Port("x", "FP32", [1])], [Port("y", "FP32", [size // 4])]
    grown = {}
    for name, options in (("first", NOT_SHARED), ("shared", SHARED), ("unshared", NOT_SHARED)):
        count = 1 if name == "first" else 4
        before = other.server.resident()
        text = config(*ports, extra=instances(count) + parameters(options))
        other.repository.add(name, {"1/model.onnx": file}, text)
        other.load(name)
        grown[name] = (other.server.resident() - before) / size
        print(f"{name}: {grown[name]:.2f} times the weights")
        removed(other, name)
    # Both totals include memory that exists once in any case, such as the buffer for the file. A sanitizer withholds
    # freed memory on purpose.
    assert preload() or grown["unshared"] - grown["shared"] > 2.5, grown
    assert preload() or abs(grown["shared"] - grown["first"]) < 1.5, grown


def ask_at_once(service: Service, name: str, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send requests from eight clients at the same time and return the answers in order."""

    def ask(part: Sequence[dict[str, Any]], protocol: str) -> list[dict[str, Any]]:
        client = service.connect(protocol)
        try:
            return [client.infer(name, request) for request in part]
        finally:
            client.close()

    parts = [requests[start::8] for start in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, parts, ["http", "grpc"] * 4))
    return [answers[index % 8][index // 8] for index in range(len(requests))]


@pytest.mark.parametrize("options", [SHARED, NOT_SHARED], ids=["shared", "not shared"])
def test_answers_are_right_while_all_instances_work(service: Service, options: dict[str, str]) -> None:
    name = f"crowded_{options['share_session_between_instances']}"
    text = config([Port("x", "FP32", [8])], [Port("y", "FP32", [4])], batch=4, extra=instances(4) + parameters(options))
    service.repository.add(name, {"1/model.onnx": network()}, text)
    service.load(name)
    chance = np.random.default_rng(3)
    requests = [{"x": chance.standard_normal((1 + index % 4, 8), np.float32)} for index in range(200)]
    # First one by one: the answer of the same library to the same rows, bit for bit.
    expected = [service.client().infer(name, request)["y"] for request in requests]
    answers = ask_at_once(service, name, requests)
    assert all(same(answer["y"], right) for answer, right in zip(answers, expected, strict=True))


@pytest.mark.parametrize("options", [SHARED, NOT_SHARED], ids=["shared", "not shared"])
def test_instances_run_at_the_same_time(service: Service, options: dict[str, str]) -> None:
    name = f"parallel_{options['share_session_between_instances']}"
    text = config([Port("rounds", "INT64", [1])], [Port("y", "FP32", [1])], batch=1, extra=instances(2))
    service.repository.add(name, {"1/model.onnx": slow()}, text + parameters(options))
    service.load(name)
    rounds = np.array([[100_000]])

    def ask(_: int) -> None:
        client = service.connect("http")
        assert client.infer(name, {"rounds": rounds})["y"] == rounds
        client.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(ask, range(2)))
    found = service.client().statistics(name)["inference_stats"]
    # One after the other, the second request would queue for as long as the first takes.
    assert found["queue"]["ns"] < found["compute_infer"]["ns"] / 8, found


def warmed(requests: Sequence[str], extra: str = "") -> str:
    """Return the configuration of a model with DOUBLING's ports and warm-up requests."""
    return config(*ROWS, batch=8, extra="".join(f"model_warmup {{ {each} }}\n" for each in requests) + extra)


def warm_up(values: str, *, count: int = 1, batch: int = 2) -> str:
    """Return the fields of a warm-up request."""
    data = f'key: "x" value {{ data_type: TYPE_FP32 dims: [4] {values} }}'
    return f'name: "warm" batch_size: {batch} count: {count} inputs {{ {data} }}'


def model_runs(path: Path) -> int:
    """Return how many runs a profile contains."""
    return [each["name"] for each in json.loads(path.read_text(encoding="utf-8"))].count("model_run")


def profile(service: Service, name: str) -> list[Path]:
    """Unload a model and return its profiles."""
    removed(service, name)
    return [Path(found) for found in re.findall(rf"model {name}: the profile is in ([^\s\"]+)", service.log())]


@pytest.mark.parametrize("count", [1, 3])
def test_a_warm_up_runs_the_model_before_it_is_ready(service: Service, count: int) -> None:
    name = f"warm_{count}"
    extra = instances(2) + parameters({"profile_file_prefix": "p", **SHARED})
    requests = [warm_up("zero_data: true", count=count), warm_up("random_data: true", batch=8)]
    service.repository.add(name, {"1/model.onnx": DOUBLING}, warmed(requests, extra))
    service.load(name)
    # The server counts a warm-up of a batch as that many requests, for each instance.
    assert service.client().counts(name) == (2 * (2 * count + 8), 2 * (count + 1), 0)
    (path,) = profile(service, name)
    assert model_runs(path) == 2 * (count + 1)


def test_a_warm_up_with_user_data_is_run(service: Service) -> None:
    extra = instances(1) + parameters({"profile_file_prefix": "p"})
    text = warmed([warm_up('input_data_file: "ones"', batch=1)], extra)
    data = np.ones(4, np.float32).tobytes()
    service.repository.add("warm_file", {"1/model.onnx": DOUBLING, "warmup/ones": data}, text)
    service.load("warm_file")
    assert same(service.client().infer("warm_file", {"x": X})["y"], X + X)
    (path,) = profile(service, "warm_file")
    assert model_runs(path) == 2


def number(found: dict[str, Any], *keys: str) -> int:
    """Return a number from the statistics; an absent one is 0, as in gRPC."""
    for key in keys[:-1]:
        found = found.get(key, {})
    return int(found.get(keys[-1], 0))


def test_statistics_count_requests_rows_runs_and_failures(service: Service, client: Client) -> None:
    name = f"counted_{client.protocol}"
    text = config([Port("x", "INT64", [1])], [Port("y", "FP32", [1])], batch=8, extra=instances(2))
    service.repository.add(name, {"1/model.onnx": lookup()}, text)
    service.load(name)
    for rows in (1, 3, 3):
        x = np.arange(rows).reshape(rows, 1)
        assert same(client.infer(name, {"x": x})["y"], (x**2).astype(np.float32))
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="out of data bounds"):
            client.infer(name, {"x": np.array([[1000]])})
    assert client.counts(name, 7, 2) == (7, 3, 2)
    found = client.statistics(name)
    assert number(found, "inference_stats", "success", "count") == 3
    for part in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert number(found, "inference_stats", part, "count") == 3
    assert number(found, "inference_stats", "compute_infer", "ns") > 0
    batches = {int(each["batch_size"]): number(each, "compute_infer", "count") for each in found["batch_stats"]}
    assert batches == {1: 1, 3: 2}
