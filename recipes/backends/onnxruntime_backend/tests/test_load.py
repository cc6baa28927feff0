"""Test 64 clients at once with good and bad requests: right answers, none lost, memory flat, a clean end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import models
import numpy as np
from backend_testing.crowd import Question, check_crowd
from backend_testing.repository import Port, config
from backend_testing.server import Service, running
from backend_testing.wire import texts
from conftest import LEAKS

GATHER = "dynamic_batching { max_queue_delay_microseconds: 500 } instance_group { kind: KIND_CPU count: 2 }"


def load(service: Service) -> None:
    """Load the models."""
    plane = Port("x", "FP32", [-1])
    square = [Port("x", "INT64", [-1])], [Port("y", "FP32", [-1])]
    words = [Port("words", "BYTES", [-1])], [Port("loud", "BYTES", [-1])]
    served = {
        "network": (
            models.network(),
            config("onnxruntime", [Port("x", "FP32", [8])], [Port("y", "FP32", [4])], batch=8),
        ),
        "squares": (models.lookup(), config("onnxruntime", *square, batch=32, extra=GATHER)),
        "kept": (models.kept(), config("onnxruntime", [plane], [plane._replace(name="y")])),
        "shouted": (
            models.shouted(["N"]),
            config("onnxruntime", *words, extra="instance_group { kind: KIND_MODEL count: 2 }"),
        ),
    }
    for name, (model, text) in served.items():
        service.repository.add(name, {"1/model.onnx": model}, text)
        service.load(name)
    # The model declares a wrong shape, which shows in the first request, so that no request is lost.
    service.client().infer("kept", {"x": np.array([1, -1], np.float32)})


def questions() -> list[Question]:
    """Return good and bad questions with ONNX Runtime's answers."""
    chance = np.random.default_rng(3)
    result = []
    for index in range(24):
        x = chance.standard_normal((1 + index % 8, 8)).astype(np.float32)
        result.append(Question("network", {"x": x}, models.answer(models.network(), {"x": x})))
        whole = chance.integers(0, 100, (1 + index % 3, 2 + index % 4))
        result.append(Question("squares", {"x": whole}, {"y": (whole**2).astype(np.float32)}))
        x = chance.standard_normal(1 + 1000 * (index % 5)).astype(np.float32)
        result.append(Question("kept", {"x": x}, {"y": x[x > 0]}))
        said = texts([f"{index} größer\0"] * (index % 4 + 1))
        result.append(Question("shouted", {"words": said}, {"loud": texts([word + b"!" for word in said])}))
    for index in range(6):
        outside = np.full((1 + index % 3, 4), 100 + index, np.int64)
        result.append(Question("squares", {"x": outside}, f"idx={100 + index} must be within"))
        result.append(Question("network", {"x": np.ones((1, 9), np.float32)}, "shape"))
        result.append(Question("network", {"x": np.ones((1, 8), np.int64)}, "type"))
        result.append(Question("shouted", {"words": texts(["a", "b"], 1, 2)}, "shape"))
        result.append(Question("nowhere", {"x": np.ones(1, np.float32)}, "nowhere"))
    return result


def test_64_clients_get_right_answers_and_memory_stays_flat(tmp_path: Path, backends: Callable[..., Path]) -> None:
    with running(tmp_path, backends=backends(), suppressions=LEAKS) as service:
        load(service)
        check_crowd(service, questions())
    assert service.server.exit_code == 0
