"""Test 64 clients at once with good and bad requests: right answers, none lost, memory flat, a clean end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from backend_testing.crowd import Question, check_crowd
from backend_testing.repository import Port
from backend_testing.server import Service
from conftest import begin
from modules import config, saved, scripted
from wire import Value, arrays


def question(model: str, inputs: Mapping[str, Value], answer: Mapping[str, Value] | str) -> Question:
    """Return a question with arrays."""
    return Question(model, arrays(inputs), answer if isinstance(answer, str) else arrays(answer))


def prepare(service: Service) -> list[Question]:
    """Load the models and compute what PyTorch answers."""
    gather = "dynamic_batching { max_queue_delay_microseconds: 500 } instance_group { kind: KIND_CPU count: 2 }"
    rows = [Port("x", "FP32", [-1])], [Port("sum", "FP32", [1])]
    plane = Port("x", "FP32", [-1])
    words = [Port("words", "BYTES", [-1])], [Port("loud", "BYTES", [-1])]
    models = {
        "mlp": (scripted("Mlp"), config([Port("x", "FP32", [8])], [Port("y", "FP32", [4])], batch=8)),
        "rows": (scripted("RowSums"), config(*rows, batch=32, extra=gather)),
        "failing": (scripted("Failing"), config([plane], [plane._replace(name="y")])),
        "shout": (scripted("Shout"), config(*words, extra="instance_group { kind: KIND_MODEL count: 2 }")),
    }
    for name, (module, text) in models.items():
        service.repository.add(name, {"1/model.pt": saved(module)}, text)
        service.load(name)
    generator = torch.Generator().manual_seed(3)
    questions = []
    for index in range(24):
        x = torch.randn(1 + index % 8, 8, generator=generator)
        with torch.inference_mode():
            questions.append(question("mlp", {"x": x}, {"y": models["mlp"][0](x)}))
        # Whole numbers, so that the sum does not depend on the batch in which the request runs.
        x = torch.randint(0, 1000, (1 + index % 3, 2 + index % 4), generator=generator).float()
        questions.append(question("rows", {"x": x}, {"sum": x.sum(dim=1, keepdim=True)}))
        x = torch.zeros(1 + 1000 * (index % 5))
        questions.append(question("failing", {"x": x}, {"y": x}))
        said = [f"{index} größer"] * (index % 4 + 1)
        questions.append(question("shout", {"words": said}, {"loud": models["shout"][0](said)}))
    for index in range(6):
        bad = torch.full([1 + index % 3, 4], -1.0)
        questions.append(question("rows", {"x": bad}, "a first number is negative"))
        questions.append(question("failing", {"x": torch.ones(3)}, "the first number is one"))
        questions.append(question("mlp", {"x": torch.ones(1, 9)}, "shape"))
        questions.append(question("mlp", {"x": torch.ones(1, 8, dtype=torch.int64)}, "type"))
        questions.append(question("nowhere", {"x": torch.ones(1)}, "nowhere"))
    return questions


def test_64_clients_get_right_answers_and_memory_stays_flat(tmp_path: Path) -> None:
    with begin(tmp_path) as service:
        check_crowd(service, prepare(service))
    assert service.server.exit_code == 0
