"""Run many clients at once with good and bad requests: check every answer, lose none, and keep memory flat."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from backend_testing.server import Service, preload
from backend_testing.wire import Client, InferenceServerException, Value, same

__all__ = ["CLIENTS", "GROWTH", "SECONDS", "Crowd", "Question", "check_crowd", "together", "watched", "wrong"]

CLIENTS = 64
SECONDS = float(os.environ.get("MACBUILD_TEST_LOAD_SECONDS") or 10)
# How much the server may grow after the warm-up: the allocator's arenas fill while 64 connections take turns.
GROWTH = 16 << 20
_PATIENCE = 60.0


def together(
    service: Service, protocol: str, model: str, requests: Sequence[Mapping[str, Value]]
) -> list[dict[str, Value] | str]:
    """Send all requests at once, each from its own client; an error is returned as its text."""

    def ask(request: Mapping[str, Value]) -> dict[str, Value] | str:
        client = service.connect(protocol)
        try:
            return client.infer(model, request)
        except InferenceServerException as error:
            return str(error.message())
        finally:
            client.close()

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(ask, requests))


@dataclass(frozen=True)
class Question:
    """A request with its only right answer: outputs, or part of the error text."""

    model: str
    inputs: Mapping[str, Value]
    answer: Mapping[str, Value] | str


def wrong(client: Client, question: Question) -> str:
    """Send the request and describe what is wrong with the answer; empty if it is right."""
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
    """Clients that send requests until the end, each on its own connection; half of them by HTTP, half by gRPC.

    Parameters
    ----------
    service
        Server with the models loaded.
    questions
        Questions that each client picks from at random.
    end
        When to stop, on the clock of `time.monotonic()`.

    Attributes
    ----------
    problems
        Descriptions of what went wrong.
    asked
        Numbers of `good` and `bad` questions that were answered.
    """

    def __init__(self, service: Service, questions: Sequence[Question], end: float) -> None:
        self.service = service
        self.questions = questions
        self.end = end
        self.problems: list[str] = []
        self.asked: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(index,)) for index in range(CLIENTS)]

    def run(self, number: int) -> None:
        """Send requests until the end as one client."""
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
        except Exception as error:
            self.problems.append(f"{client.protocol}: no answer: {error!r}")
        finally:
            client.close()
            with self.lock:
                self.asked += asked


def watched(crowd: Crowd) -> list[int]:
    """Run the crowd and return the server's memory in bytes at each tenth of a second."""
    sizes = []
    for thread in crowd.threads:
        thread.start()
    while any(thread.is_alive() for thread in crowd.threads):
        sizes.append(crowd.service.server.resident())
        time.sleep(0.1)
    return sizes


def _succeeded(service: Service) -> int:
    """Return how many requests the server has answered without an error, by its own count."""
    return sum(
        int(service.client().statistics(name)["inference_stats"]["success"].get("count", 0)) for name in service.loaded
    )


def check_crowd(
    service: Service, questions: Sequence[Question], *, seconds: float = SECONDS, growth: int = GROWTH
) -> None:
    """Run a crowd, check everything that can be known about it, and unload all models.

    Every answer must be right, the server must count as many good answers as the clients, and its memory must stay
    flat. The caller, who runs the server, checks that it ends cleanly.

    Parameters
    ----------
    service
        The caller's own server, with the models of the questions loaded by `Service.load`.
    questions
        Good and bad questions.
    seconds
        How long to send requests.
    growth
        Bytes by which the server may grow after the first third of the time.
    """
    before = _succeeded(service)
    crowd = Crowd(service, questions, time.monotonic() + seconds)
    sizes = watched(crowd)
    assert not crowd.problems, crowd.problems[:10]
    assert min(crowd.asked["good"], crowd.asked["bad"]) > CLIENTS
    # The server's own count agrees: no good request is missing and none was run twice. The server counts an answer
    # after sending it.
    end = time.monotonic() + _PATIENCE
    while (counted := _succeeded(service) - before) < crowd.asked["good"] and time.monotonic() < end:
        time.sleep(0.02)
    assert counted == crowd.asked["good"]
    warm = max(sizes[: len(sizes) // 3])
    grown = max(sizes[len(sizes) // 3 :]) - warm
    # A sanitizer withholds freed memory on purpose.
    assert preload() or grown < growth, f"{grown >> 20} MiB more after {warm >> 20} MiB"
    for name in sorted(service.loaded):
        service.unload(name)
    print(f"{dict(crowd.asked)} requests in {seconds:g} s, {warm >> 20} MiB, {grown / (1 << 20):+.1f} MiB")
