"""64 clients at once with good and bad requests: every answer checked, none lost, memory flat, a clean end."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from conftest import Service, preload, start
from modules import scripted
from repository import Port, Repository, config
from wire import Client, InferenceServerException, Value, same

CLIENTS = 64
SECONDS = float(os.environ.get("MACBUILD_TEST_LOAD_SECONDS") or 10)
# What the server may hold more after the warm-up: the allocator's arenas fill while 64 connections take turns.
GROWTH = 16 << 20


@dataclass(frozen=True)
class Question:
    """A request with its only right answer: outputs, or words of the error."""

    model: str
    inputs: Mapping[str, Value]
    answer: Mapping[str, Value] | str


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
        service.repository.add(name, {"1/model.pt": module}, text)
        service.load(name)
    generator = torch.Generator().manual_seed(3)
    questions = []
    for index in range(24):
        x = torch.randn(1 + index % 8, 8, generator=generator)
        with torch.inference_mode():
            questions.append(Question("mlp", {"x": x}, {"y": models["mlp"][0](x)}))
        # Whole numbers, so that the sum does not depend on the batch that the request ends in.
        x = torch.randint(0, 1000, (1 + index % 3, 2 + index % 4), generator=generator).float()
        questions.append(Question("rows", {"x": x}, {"sum": x.sum(dim=1, keepdim=True)}))
        x = torch.zeros(1 + 1000 * (index % 5))
        questions.append(Question("failing", {"x": x}, {"y": x}))
        said = [f"{index} größer"] * (index % 4 + 1)
        questions.append(Question("shout", {"words": said}, {"loud": models["shout"][0](said)}))
    for index in range(6):
        bad = torch.full([1 + index % 3, 4], -1.0)
        questions.append(Question("rows", {"x": bad}, "a first number is negative"))
        questions.append(Question("failing", {"x": torch.ones(3)}, "the first number is one"))
        questions.append(Question("mlp", {"x": torch.ones(1, 9)}, "shape"))
        questions.append(Question("mlp", {"x": torch.ones(1, 8, dtype=torch.int64)}, "type"))
        questions.append(Question("nowhere", {"x": torch.ones(1)}, "nowhere"))
    return questions


def wrong(client: Client, question: Question) -> str:
    """Ask and return what is wrong with the answer, nothing if it is right."""
    try:
        answer = client.infer(question.model, question.inputs)
    except InferenceServerException as error:
        words = str(error.message())
        return "" if isinstance(question.answer, str) and question.answer in words else f"error: {words}"
    if isinstance(question.answer, str):
        return f"no error, but {answer}"
    if set(answer) != set(question.answer):
        return f"outputs {sorted(answer)}"
    differing = [name for name in answer if not same(answer[name], question.answer[name])]
    return f"{differing} differ: {answer}" if differing else ""


class Crowd:
    """Clients that ask until the end, each with a connection of its own."""

    def __init__(self, service: Service, questions: list[Question], end: float) -> None:
        self.service = service
        self.questions = questions
        self.end = end
        self.problems: list[str] = []
        self.asked: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(index,)) for index in range(CLIENTS)]

    def run(self, number: int) -> None:
        """Ask until the end as one client."""
        chance = random.Random(number)
        client = self.service.connect("http" if number % 2 else "grpc")
        asked: Counter[str] = Counter()
        try:
            while time.monotonic() < self.end:
                question = chance.choice(self.questions)
                problem = wrong(client, question)
                asked["bad" if isinstance(question.answer, str) else "good"] += 1
                if problem:
                    self.problems.append(f"{client.protocol} {question.model}: {problem}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the request had no answer
            self.problems.append(f"{client.protocol}: no answer: {error!r}")
        finally:
            client.close()
            with self.lock:
                self.asked += asked


def watched(crowd: Crowd) -> list[int]:
    """Run the crowd and return the server's memory at each tenth of a second."""
    sizes = []
    for thread in crowd.threads:
        thread.start()
    while any(thread.is_alive() for thread in crowd.threads):
        sizes.append(crowd.service.server.resident())
        time.sleep(0.1)
    return sizes


def test_64_clients_get_every_answer_right_and_the_memory_stays(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with start(tmp_path / "models", tmp_path / "server.log") as server:
        service = Service(server, Repository(tmp_path / "models"))
        questions = prepare(service)
        crowd = Crowd(service, questions, time.monotonic() + SECONDS)
        sizes = watched(crowd)
        assert not crowd.problems, crowd.problems[:10]
        assert min(crowd.asked["good"], crowd.asked["bad"]) > CLIENTS
        # The server's own count agrees: no good request is missing and none was run for another.
        succeeded = sum(
            int(service.client().statistics(name)["inference_stats"]["success"]["count"]) for name in service.loaded
        )
        assert succeeded == crowd.asked["good"]
        warm = max(sizes[: len(sizes) // 3])
        growth = max(sizes[len(sizes) // 3 :]) - warm
        # A sanitizer keeps freed memory back on purpose.
        assert preload() or growth < GROWTH, f"{growth >> 20} MiB more after {warm >> 20} MiB"
        for name in service.loaded:
            service.client().unload(name)
        for name in service.loaded:
            while service.client().ready(name):
                time.sleep(0.05)
        service.close()
        print(f"{dict(crowd.asked)} requests in {SECONDS:g} s, {warm >> 20} MiB, {growth / (1 << 20):+.1f} MiB")  # noqa: T201
    assert server.exit_code == 0
