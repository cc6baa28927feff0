"""Run clients with shared memory that keep sending requests while one server ends and the next starts."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
from backend_testing.service import ask
from backend_testing.wire import Client, InferenceServerException, Value, same
from geventhttpclient.response import HTTPConnectionClosed, HTTPProtocolViolationError
from regions import SIZE, Region, made, new_key

__all__ = ["CLIENTS", "Crowd"]

CLIENTS = 64
_HALF = SIZE // 2
# Connections that end without an answer.
_CLOSED = (
    OSError,
    HTTPConnectionClosed,
    HTTPProtocolViolationError,
)
_OUTSIDE = 1 << 40
_LONGER = 3
_PATIENCE = 60.0
_NOTHING = np.zeros(0, np.float32)


class _Asker(threading.Thread):
    """One client with its own region, under a long key."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        super().__init__()
        self.crowd = crowd
        self.number = number
        self.chance = random.Random(number)
        self.counts: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.item: Value = _NOTHING  # of the request that has no answer yet

    def run(self) -> None:
        key = new_key(40 + self.number)
        try:
            with made(key, SIZE) as handle:
                region = Region(f"region-{self.number}", key, handle, 0)
                while self.crowd.asks:
                    self.visit(region)
        except Exception as error:
            self.crowd.problems.append(f"client {self.number} ended: {error!r}")

    def visit(self, region: Region) -> None:
        """Send requests over one connection until its server is told to stop and a bit longer; then try another one.

        A real server serves its open connections until they are closed, and waits for that.
        """
        era = self.crowd.era
        client = Client("http", self.crowd.address)
        try:
            client.raw.register_system_shared_memory(region.name, region.key, SIZE)
            while self.crowd.asks and era == self.crowd.era:
                self.ask(client, region)
            for _ in range(_LONGER):
                self.ask(client, region)
                self.counts["good or bad while the server ends"] += 1
        except InferenceServerException as error:
            self.counts["refused"] += 1
            self.crowd.ended(era, f"client {self.number}: {error}")
        except _CLOSED as error:
            self.closed(region, error)
            self.crowd.ended(era, f"client {self.number}: {error!r}")
        finally:
            client.close()
        if era != self.crowd.era:
            self.knock()
        self.crowd.up.wait()

    def knock(self) -> None:
        """Open new connections to a server that was told to stop, which accepts them only until it notices."""
        end = time.monotonic() + _PATIENCE
        while not self.crowd.up.is_set():
            try:
                taken = ask(self.crowd.address, "GET", "/v2/health/ready", wait=_PATIENCE).status == 200
            except OSError:
                taken = False
            if not taken:
                self.counts["new connection refused"] += 1
                return
            if time.monotonic() > end:
                self.crowd.problems.append("still ready although it was told to end")
                return
            time.sleep(0.05)

    def closed(self, region: Region, error: BaseException) -> None:
        """Record a connection without an answer: an executed request should have got one."""
        self.counts["closed before it was accepted"] += 1
        if self.item.size and same(region.read("FP32", self.item.shape, _HALF), self.item):
            self.crowd.problems.append(f"executed, but not answered: {error!r}")

    def ask(self, client: Client, region: Region) -> None:
        """Send one request, one in eight of which is outside the region, and check its answer."""
        shape = (self.chance.randint(1, 8), self.chance.randint(1, 500))
        self.item = np.full(shape, self.chance.randint(1, 1 << 20), np.float32)
        region.write(np.zeros_like(self.item), _HALF)
        good = self.chance.random() > 1 / 8
        tensor = region.input(self.item)
        if not good:
            tensor.set_shared_memory(region.name, self.item.nbytes, _OUTSIDE)
        begin = time.perf_counter()
        try:
            client.raw.infer("identity", [tensor], outputs=[region.output(_HALF, _HALF)])
        except InferenceServerException as error:
            if good or region.name not in str(error.message()):
                raise
            self.counts["bad"] += 1
            self.item = _NOTHING
            return
        self.latencies.append(time.perf_counter() - begin)
        self.counts["good"] += 1
        if not good or not same(region.read("FP32", shape, _HALF), self.item):
            self.crowd.problems.append(f"wrong answer to client {self.number}")
        self.item = _NOTHING


class Crowd:
    """Clients that send requests until `end`, to servers that start and stop.

    Parameters
    ----------
    address
        Address of each server in turn.

    Attributes
    ----------
    problems
        Descriptions of what went wrong.
    up
        Whether a server is running that was not told to end. Clients wait for it.
    era
        How many servers were told to end.
    asks
        Whether the clients continue.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.problems: list[str] = []
        self.up = threading.Event()
        self.era = 0
        self.asks = True
        self._askers = [_Asker(self, number) for number in range(CLIENTS)]

    def start(self) -> None:
        """Start all clients, when the first server is running."""
        self.up.set()
        for asker in self._askers:
            asker.start()

    def leave(self) -> None:
        """Record that the server stops from now on."""
        self.era += 1
        self.up.clear()

    def end(self) -> None:
        """Let the clients end, and wait for them."""
        self.asks = False
        self.up.set()
        for asker in self._askers:
            asker.join()

    def ended(self, era: int, words: str) -> None:
        """Record a connection that ended, which is wrong unless the server of its era stops."""
        if era == self.era and self.up.is_set():
            self.problems.append(words)

    def counts(self) -> Counter[str]:
        """Return how many requests had which outcome."""
        return sum((asker.counts for asker in self._askers), Counter())

    def latencies(self) -> Sequence[float]:
        """Return the seconds that each good answer took, in ascending order."""
        return sorted(seconds for asker in self._askers for seconds in asker.latencies)
