"""Test networks of real size: the server gives the answers of the same ONNX Runtime in this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from backend_testing.repository import config, parameters
from backend_testing.server import Service
from backend_testing.wire import Client, same
from networks import NETWORKS, Array, Network

LARGEST = 8
BATCHING = "dynamic_batching { max_queue_delay_microseconds: 20000 }\n"
# One thread in both: the distribution of the work among threads may affect the last bits.
THREADS = parameters({"intra_op_thread_count": "1"})
CLIENTS = 8
REQUESTS = 5


@dataclass
class Served:
    """A network with its session in this process, loaded by the server under the same name.

    `rows` is the number of rows requested from the server.
    """

    network: Network
    session: Any
    rows: int = 0

    def expected(self, request: dict[str, Array]) -> dict[str, Array]:
        """Return ONNX Runtime's own answer."""
        return dict(zip(self.network.outputs, self.session.run(list(self.network.outputs), request), strict=True))


@pytest.fixture(scope="module", params=NETWORKS, ids=lambda network: network.name)
def served(request: pytest.FixtureRequest, service: Service, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Each network in turn, batched by the server, its inputs and outputs left to the backend to complete."""
    network: Network = request.param
    path: Path = tmp_path_factory.mktemp("networks") / f"{network.name}.onnx"
    network.save(path)
    text = config("onnxruntime", [], [], batch=LARGEST, extra=BATCHING + THREADS)
    service.repository.add(network.name, {"1/model.onnx": path}, text)
    service.load(network.name)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return Served(network, onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]))


def test_a_single_request_has_the_bits_of_onnx_runtime(served: Served, client: Client) -> None:
    for batch, length in product([1, 2, LARGEST], served.network.lengths):
        request = served.network.request(batch, length, batch + length)
        expected = served.expected(request)
        answer = client.infer(served.network.name, request)
        served.rows += batch
        assert set(answer) == set(expected)
        for name, array in answer.items():
            assert same(array, expected[name]), f"{name} of {batch} rows, length {length}"


def requests(network: Network, first: int) -> Iterator[dict[str, Array]]:
    """Yield requests endlessly, of one or two rows and each length, no two with the same numbers."""
    seed = first * 1000
    while True:
        for length in network.lengths:
            seed += 1
            yield network.request(1 + seed % 2, length, seed)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_requests_that_are_batched_get_their_own_rows(service: Service, served: Served, protocol: str) -> None:
    network = served.network
    crowd = [list(islice(requests(network, client), REQUESTS)) for client in range(CLIENTS)]

    def ask(mine: list[dict[str, Array]]) -> list[dict[str, Array]]:
        own = service.connect(protocol)
        try:
            return [own.infer(network.name, request) for request in mine]
        finally:
            own.close()

    before = service.client().counts(network.name, served.rows)
    served.rows += sum(len(next(iter(request.values()))) for mine in crowd for request in mine)
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(ask, crowd))

    for mine, found in zip(crowd, answers, strict=True):
        for request, answer in zip(mine, found, strict=True):
            for name, array in served.expected(request).items():
                # A batch of another size may use another kernel; other rows differ a hundred times more.
                np.testing.assert_allclose(answer[name], array, rtol=1e-5, atol=1e-5)
    after = service.client().counts(network.name, served.rows)
    assert after[0] == served.rows
    assert after[1] - before[1] < CLIENTS * REQUESTS
    assert after[2] == before[2]
