"""Run many sequences at once over HTTP and gRPC: every answer is checked by what its own sequence has sent."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from backend_testing.crowd import GROWTH, SECONDS
from backend_testing.server import Service, preload
from backend_testing.wire import Client, InferenceServerException, Step, Value, same

__all__ = [
    "CLIENTS",
    "STRATEGIES",
    "Story",
    "Telling",
    "check_sequences",
    "control",
    "sequence_batching",
    "state",
    "tell_all",
    "zeros",
]

CLIENTS = 16
STRATEGIES = {
    # The server waits a little for other sequences, so that batches have several of them, and empty slots.
    "direct": "direct { max_queue_delay_microseconds: 500 minimum_slot_utilization: 0.5 }",
    "oldest": "oldest { max_candidate_sequences: 64 max_queue_delay_microseconds: 500 }",
}
_VALUES = {
    "INT32": "int32_false_true: [0, 1]",
    "FP32": "fp32_false_true: [0, 1]",
    "BOOL": "bool_false_true: [false, true]",
}


def _kind(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def control(name: str, kind: str, datatype: str) -> str:
    """Return a `control_input` of a kind as `START`; the type of a `CORRID` may be any that it can have."""
    what = f"data_type: {_kind(datatype)}" if kind == "CORRID" else _VALUES[datatype]
    return f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{kind} {what} }} }}'


def state(names: tuple[str, str], datatype: str, dims: Sequence[int], more: str = "") -> str:
    """Return a `state` by the names of its input and output, with more fields."""
    ports = f'input_name: "{names[0]}" output_name: "{names[1]}"'
    return f"state {{ {ports} data_type: {_kind(datatype)} dims: {list(dims)} {more} }}"


def zeros(datatype: str, dims: Sequence[int]) -> str:
    """Return an `initial_state` of zeros."""
    return f'initial_state {{ name: "zeros" data_type: {_kind(datatype)} dims: {list(dims)} zero_data: true }}'


def sequence_batching(strategy: str, *parts: str, idle_seconds: int = 60) -> str:
    """Return the entry of a configuration with a strategy as `direct { }`, controls and states."""
    return "\n".join(
        ["sequence_batching {", f"max_sequence_idle_microseconds: {idle_seconds * 1000000}", strategy, *parts, "}"]
    )


@dataclass(frozen=True)
class Story:
    """A whole sequence for a model: its requests with the only right answers, or part of the text of an error."""

    model: str
    requests: Sequence[Mapping[str, Value]]
    answers: Sequence[Mapping[str, Value] | str]


_numbers = itertools.count(1)


class Telling:
    """A sequence on its way.

    Parameters
    ----------
    story
        What to send.
    spoken
        Whether the correlation ID is a text.
    """

    def __init__(self, story: Story, *, spoken: bool = False) -> None:
        number = next(_numbers)
        self.story = story
        self.identity: int | str = f"sequence {number}" if spoken else number
        self.sent = 0

    @property
    def over(self) -> bool:
        """Return whether the last request was sent."""
        return self.sent == len(self.story.requests)

    def advance(self, client: Client) -> str:
        """Send the next request and describe what is wrong with the answer; empty if it is right."""
        index = self.sent
        self.sent += 1
        step = Step(self.identity, index == 0, self.over)
        expected = self.story.answers[index]
        where = f"{self.story.model}, {self.identity}, step {index}: "
        try:
            answer = client.infer(self.story.model, self.story.requests[index], step=step)
        except InferenceServerException as error:
            words = str(error.message())
            return "" if isinstance(expected, str) and expected in words else f"{where}error: {words}"
        if isinstance(expected, str):
            return f"{where}no error, but {answer}"
        if set(answer) != set(expected):
            return f"{where}outputs {sorted(answer)}"
        differing = {name: (value, expected[name]) for name, value in answer.items() if not same(value, expected[name])}
        return f"{where}{differing}" if differing else ""


def tell_all(service: Service, stories: Sequence[Story]) -> None:
    """Tell all stories at the same time, each as a client of its own, and check every answer."""

    def tell(number: int) -> list[str]:
        client = service.connect("http" if number % 2 else "grpc")
        telling = Telling(stories[number], spoken=number % 4 > 1)
        problems = []
        try:
            while not telling.over:
                problems.append(telling.advance(client))
        finally:
            client.close()
        return [each for each in problems if each]

    with ThreadPoolExecutor(len(stories)) as pool:
        problems = list(itertools.chain.from_iterable(pool.map(tell, range(len(stories)))))
    assert not problems, (len(problems), problems[:5])


class _Tellers:
    """Clients that tell stories until the end, some at a time by turns; half of them by HTTP, half by gRPC."""

    def __init__(
        self, service: Service, make: Callable[[random.Random], Story], end: float, *, clients: int, at_once: int
    ) -> None:
        self.service = service
        self.make = make
        self.end = end
        self.at_once = at_once
        self.problems: list[str] = []
        self.told: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(clients)]

    def run(self, number: int) -> None:
        """Tell stories until the end as one client, and each of them to its own end."""
        chance = random.Random(number)
        client = self.service.connect("http" if number % 2 else "grpc")
        told: Counter[str] = Counter()
        running: list[Telling] = []
        try:
            while running or time.monotonic() < self.end:
                while len(running) < self.at_once and time.monotonic() < self.end:
                    running.append(Telling(self.make(chance), spoken=chance.random() < 0.5))
                telling = chance.choice(running)
                problem = telling.advance(client)
                told["steps"] += 1
                if problem:
                    self.problems.append(f"{client.protocol} {problem}")
                if telling.over:
                    running.remove(telling)
                    told["sequences"] += 1
        except Exception as error:
            self.problems.append(f"{client.protocol}: no answer: {error!r}")
        finally:
            client.close()
            with self.lock:
                self.told += told


def check_sequences(
    service: Service,
    make: Callable[[random.Random], Story],
    *,
    seconds: float = SECONDS,
    clients: int = CLIENTS,
    at_once: int = 2,
    growth: int = GROWTH,
) -> tuple[int, int]:
    """Run sequences, check every answer and that the memory stays flat, and unload all models.

    Parameters
    ----------
    service
        Server of the caller's own. If clients have several sequences at once, each model has room for all of them.
    make
        Makes the next story.
    seconds
        How long to begin sequences.
    clients
        How many there are at the same time.
    at_once
        How many sequences each of them has at the same time.
    growth
        Bytes by which the server may grow after the first third of the time.

    Returns
    -------
    int
        How many rows all models have run.
    int
        In how many batches.
    """
    tellers = _Tellers(service, make, time.monotonic() + seconds, clients=clients, at_once=at_once)
    sizes = []
    for thread in tellers.threads:
        thread.start()
    while any(thread.is_alive() for thread in tellers.threads):
        sizes.append(service.server.resident())
        time.sleep(0.1)
    assert not tellers.problems, tellers.problems[:10]
    assert tellers.told["sequences"] >= clients
    warm = max(sizes[: len(sizes) // 3])
    grown = max(sizes[len(sizes) // 3 :]) - warm
    # A sanitizer withholds freed memory on purpose.
    assert preload() or grown < growth, f"{grown >> 20} MiB more after {warm >> 20} MiB"
    counts = [service.client().counts(name) for name in sorted(service.loaded)]
    rows, executions = sum(each[0] for each in counts), sum(each[1] for each in counts)
    for name in sorted(service.loaded):
        service.unload(name)
    memory = f"{warm >> 20} MiB, {grown / (1 << 20):+.1f} MiB"
    print(f"{rows} rows in {executions} batches, {dict(tellers.told)} in {seconds:g} s, {memory}")
    return rows, executions
