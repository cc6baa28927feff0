"""Test batches made by the client or by the server from concurrent requests, and a bad request among good ones."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from backend_testing import wire
from backend_testing.repository import Port
from backend_testing.server import Service
from backend_testing.wire import texts
from modules import config, file, scripted
from numpy.typing import NDArray
from torch import Tensor
from wire import Client, InferenceServerException, Value, ask, same, together

MANY = 48
GATHER = "dynamic_batching { max_queue_delay_microseconds: 50000 }"


def rows(*sizes: int) -> list[dict[str, Value]]:
    """Return requests of whole numbers, so that a sum is exact in any order."""
    return [
        {"x": torch.arange(size * 4, dtype=torch.float32).reshape(size, 4) + index} for index, size in enumerate(sizes)
    ]


def serve_rows(service: Service, name: str, extra: str = GATHER, batch: int = 16) -> None:
    """Load a model that sums rows and fails at a negative number."""
    port = Port("x", "FP32", [-1])
    text = config([port], [Port("sum", "FP32", [1])], batch=batch, extra=extra)
    service.repository.add(name, {"1/model.pt": file("RowSums")}, text)
    service.load(name)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_concurrent_requests_are_batched_and_get_their_rows(service: Service, protocol: str) -> None:
    name = f"gathered_{protocol}"
    serve_rows(service, name)
    requests = rows(*[1 + index % 4 for index in range(MANY)])
    for request, answer in zip(requests, together(service, protocol, name, requests), strict=True):
        assert isinstance(answer, dict), answer
        assert same(answer["sum"], scripted("RowSums")(request["x"]))
    expected = sum(len(request["x"]) for request in requests)
    answered, executions, failed = service.client().counts(name, expected)
    assert (answered, failed) == (expected, 0)
    assert executions < MANY / 2


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_bad_requests_in_a_batch_fail_alone(service: Service, protocol: str) -> None:
    name = f"mixed_{protocol}"
    serve_rows(service, name)
    requests = rows(*[1 + index % 3 for index in range(MANY)])
    for request in requests[::5]:
        bad = request["x"]
        assert isinstance(bad, Tensor)
        bad[-1, 0] = -1
    answers = together(service, protocol, name, requests)
    for index, (request, answer) in enumerate(zip(requests, answers, strict=True)):
        if index % 5 == 0:
            assert isinstance(answer, str)
            assert "a first number is negative" in answer
        else:
            assert isinstance(answer, dict), answer
            assert same(answer["sum"], scripted("RowSums")(request["x"]))
    expected = sum(len(request["x"]) for index, request in enumerate(requests) if index % 5)
    answered, _, failed = service.client().counts(name, expected, len(requests[::5]))
    assert (answered, failed) == (expected, len(requests[::5]))


def test_requests_of_different_widths_are_answered_separately(service: Service) -> None:
    serve_rows(service, "widths")
    requests: list[dict[str, Value]] = [{"x": torch.ones(1 + index % 2, 2 + index % 5)} for index in range(MANY)]
    for request, answer in zip(requests, together(service, "grpc", "widths", requests), strict=True):
        assert isinstance(answer, dict), answer
        assert same(answer["sum"], scripted("RowSums")(request["x"]))


def test_requests_with_and_without_optional_input_share_a_server(service: Service) -> None:
    port = Port("x", "FP32", [4])
    optional = [port._replace(name=name, extra="optional: true") for name in ("bias", "scale")]
    text = config([port, *optional], [port._replace(name="y")], batch=16, extra=GATHER)
    service.repository.add("options", {"1/model.pt": file("Optionals")}, text)
    service.load("options")
    requests: list[dict[str, Value]] = []
    for index in range(MANY):
        names = [["x"], ["x", "bias"], ["x", "bias", "scale"]][index % 3]
        requests.append({name: torch.full([1, 4], float(index + place)) for place, name in enumerate(names)})
    for request, answer in zip(requests, together(service, "grpc", "options", requests), strict=True):
        assert isinstance(answer, dict), answer
        assert same(answer["y"], scripted("Optionals")(**request))


def test_several_outputs_are_split_alike(service: Service) -> None:
    port = Port("x", "FP32", [3])
    outputs = [
        port._replace(name="more"),
        Port("sums", "FP32", [1], "reshape: { shape: [] }"),
        Port("above", "BOOL", [3]),
    ]
    text = config([port], outputs, batch=16, extra=GATHER)
    service.repository.add("split", {"1/model.pt": file("Tuple")}, text)
    service.load("split")
    requests: list[dict[str, Value]] = [
        {"x": torch.arange(3.0 * size).reshape(size, 3) - index} for index, size in enumerate([1, 2, 3] * 8)
    ]
    for request, answer in zip(requests, together(service, "http", "split", requests), strict=True):
        assert isinstance(answer, dict), answer
        more, sums, above = scripted("Tuple")(request["x"])
        assert same(answer["more"], more)
        assert same(answer["sums"], sums.unsqueeze(1))
        assert same(answer["above"], above)


@pytest.mark.parametrize("size", [1, 7, 8])
def test_a_batch_of_the_client_is_answered_as_one(service: Service, client: Client, size: int) -> None:
    if "batch_of_8" not in service.loaded:
        serve_rows(service, "batch_of_8", extra="", batch=8)
    request = rows(size)[0]
    assert same(ask(client, "batch_of_8", request)["sum"], scripted("RowSums")(request["x"]))


def test_a_too_large_batch_is_an_error_and_the_next_is_served(service: Service, client: Client) -> None:
    if "batch_of_8" not in service.loaded:
        serve_rows(service, "batch_of_8", extra="", batch=8)
    with pytest.raises(InferenceServerException, match=r"batch.size must be <= 8"):
        ask(client, "batch_of_8", rows(9)[0])
    assert len(ask(client, "batch_of_8", rows(8)[0])["sum"]) == 8


def test_several_instances_answer_at_the_same_time(service: Service) -> None:
    port = Port("x", "FP32", [-1])
    extra = "instance_group { kind: KIND_CPU count: 3 }"
    text = config([port], [port._replace(name="y")], extra=extra)
    service.repository.add("instances", {"1/model.pt": file("Slow")}, text)
    service.load("instances")
    requests: list[dict[str, Value]] = [{"x": torch.full([3], float(index))} for index in range(MANY)]
    for request, answer in zip(requests, together(service, "grpc", "instances", requests), strict=True):
        assert isinstance(answer, dict), answer
        assert same(answer["y"], scripted("Slow")(request["x"]))


def test_instances_share_the_weights(start_service: Callable[..., Service]) -> None:
    extent = 32 << 20
    weights = extent * 4
    quiet = start_service()
    port = Port("x", "FP32", [1])
    text = config([port], [port._replace(name="y", dims=[-1])], extra="instance_group { kind: KIND_CPU count: 6 }")
    quiet.repository.add("heavy", {"1/model.pt": file("Weighted", 2.0, extent)}, text)
    before = quiet.server.resident()
    quiet.load("heavy")
    grown = quiet.server.resident() - before
    # One copy of the weights, the file read to load it, and LibTorch itself; six copies would be 768 MiB.
    assert weights <= grown < 3.5 * weights, f"{grown >> 20} MiB for weights of {weights >> 20} MiB"


def test_too_few_rows_of_a_model_fail_that_request_only(service: Service, client: Client) -> None:
    name = f"rows_{client.protocol}"
    port = Port("x", "FP32", [2])
    text = config([port], [port._replace(name="y")], batch=8, extra=GATHER)
    service.repository.add(name, {"1/model.pt": file("WrongCount")}, text)
    service.load(name)
    good, bad = torch.ones(3, 2), -torch.ones(3, 2)
    answers = together(service, client.protocol, name, [{"x": good}, {"x": bad}, {"x": good}])
    assert isinstance(answers[1], str)
    assert "y" in answers[1]
    for answer in (answers[0], answers[2]):
        assert isinstance(answer, dict), answer
        assert same(answer["y"], good)


def test_a_batch_that_fails_late_is_answered_one_by_one(service: Service, client: Client) -> None:
    # Memory for the first output was already requested: the server provides it once for each request.
    name = f"second_{client.protocol}"
    port = Port("x", "FP32", [2])
    outputs = [port._replace(name="more"), port._replace(name="twice")]
    extra = "dynamic_batching { max_queue_delay_microseconds: 5000000 }"  # the batch goes when it is full
    service.repository.add(name, {"1/model.pt": file("SecondWrong")}, config([port], outputs, batch=16, extra=extra))
    service.load(name)
    requests: list[dict[str, Value]] = [{"x": torch.full([2, 2], float(index))} for index in range(7)]
    requests.insert(3, {"x": -torch.ones(2, 2)})
    answers = together(service, client.protocol, name, requests)
    answered, executions, failed = client.counts(name, 14, 1)
    assert (answered, executions, failed) == (14, 7, 1), "the bad request was not in the batch of the others"
    for request, answer in zip(requests, answers, strict=True):
        x = request["x"]
        assert isinstance(x, Tensor)
        if bool((x < 0).any()):
            assert isinstance(answer, str)
            assert "twice" in answer
        else:
            assert isinstance(answer, dict), answer
            assert same(answer["more"], x + 1)
            assert same(answer["twice"], x * 2)


def test_ragged_batches_are_refused_at_load(service: Service) -> None:
    port = Port("x", "FP32", [-1], "allow_ragged_batch: true")
    text = config([port], [Port("y", "FP32", [-1])], batch=4, extra=GATHER)
    service.repository.add("ragged", {"1/model.pt": file("Arithmetic")}, text)
    assert "ragged" in service.refusal("ragged")


@pytest.mark.parametrize("sizes", [[1, 1, 1], [2, 3, 1]])
def test_texts_are_split_among_the_requests_of_a_batch(service: Service, client: Client, sizes: list[int]) -> None:
    if "batched_words" not in service.loaded:
        text = config([Port("words", "BYTES", [2])], [Port("loud", "BYTES", [2])], batch=16, extra=GATHER)
        service.repository.add("batched_words", {"1/model.pt": file("Shout")}, text)
        service.load("batched_words")

    def shout(size: int) -> tuple[list[str], NDArray[Any]]:
        words = [f"{size} {index} word" for index in range(2 * size)]
        own = service.connect(client.protocol)
        try:
            return words, own.infer("batched_words", {"words": texts(words, size, 2)})["loud"]
        finally:
            own.close()

    with ThreadPoolExecutor(len(sizes)) as pool:
        for size, (words, loud) in zip(sizes, pool.map(shout, sizes), strict=True):
            assert wire.same(loud, texts(scripted("Shout")(words), size, 2))


def test_an_empty_batch_gives_no_rows_or_a_server_error(service: Service, client: Client) -> None:
    if "batch_of_8" not in service.loaded:
        serve_rows(service, "batch_of_8", extra="", batch=8)
    try:
        answer = ask(client, "batch_of_8", {"x": torch.ones(0, 3)})["sum"]
    except InferenceServerException as error:
        assert "batch" in str(error.message())
    else:
        assert same(answer, torch.ones(0, 1))
    assert len(ask(client, "batch_of_8", rows(8)[0])["sum"]) == 8
