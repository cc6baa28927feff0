"""Test batches made by the client or by the server from concurrent requests, and a bad request among good ones."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import models
import numpy as np
import pytest
from backend_testing.crowd import together
from backend_testing.repository import Port, config, parameters
from backend_testing.server import Service
from backend_testing.wire import Client, InferenceServerException, Value, same, texts

MANY = 48
GATHER = "dynamic_batching { max_queue_delay_microseconds: 50000 }"


def serve(
    service: Service,
    name: str,
    model: bytes,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    extra: str = GATHER,
    batch: int = 16,
) -> None:
    """Write and load a model once."""
    if name not in service.loaded:
        text = config("onnxruntime", inputs, outputs, batch=batch, extra=extra)
        service.repository.add(name, {"1/model.onnx": model}, text)
        service.load(name)


def serve_squares(service: Service, name: str, extra: str = GATHER, batch: int = 16) -> None:
    """Load the model that squares whole numbers below 100 and fails at others."""
    ports = [Port("x", "INT64", [-1])], [Port("y", "FP32", [-1])]
    serve(service, name, models.lookup(), *ports, extra, batch)


def rows(*sizes: int, width: int = 4) -> list[dict[str, Value]]:
    """Return requests of that many rows, each with different numbers."""
    return [
        {"x": (np.arange(size * width, dtype=np.int64).reshape(size, width) + 7 * index) % 100}
        for index, size in enumerate(sizes)
    ]


def squares(request: dict[str, Value]) -> Value:
    """Return the right answer to a request of `serve_squares`."""
    return (request["x"] ** 2).astype(np.float32)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_concurrent_requests_are_batched_and_get_their_rows(service: Service, protocol: str) -> None:
    name = f"gathered_{protocol}"
    serve_squares(service, name)
    requests = rows(*[1 + index % 4 for index in range(MANY)])
    for request, answer in zip(requests, together(service, protocol, name, requests), strict=True):
        assert isinstance(answer, dict), answer
        assert same(answer["y"], squares(request))
    expected = sum(len(request["x"]) for request in requests)
    answered, executions, failed = service.client().counts(name, expected)
    assert (answered, failed) == (expected, 0)
    assert executions < MANY / 2


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_bad_requests_in_a_batch_fail_alone(service: Service, protocol: str) -> None:
    name = f"mixed_{protocol}"
    serve_squares(service, name)
    requests = rows(*[1 + index % 3 for index in range(MANY)])
    for request in requests[::5]:
        request["x"][-1, 0] = 100
    answers = together(service, protocol, name, requests)
    for index, (request, answer) in enumerate(zip(requests, answers, strict=True)):
        if index % 5 == 0:
            assert isinstance(answer, str)
            assert "out of data bounds, idx=100" in answer
        else:
            assert isinstance(answer, dict), answer
            assert same(answer["y"], squares(request))
    good = sum(len(request["x"]) for index, request in enumerate(requests) if index % 5)
    expected = good, len(requests[::5])
    answered, _, failed = service.client().counts(name, *expected)
    assert (answered, failed) == expected


def test_requests_of_different_widths_are_answered_separately(service: Service) -> None:
    serve_squares(service, "widths")
    requests = [rows(1 + index % 2, width=index % 5)[0] for index in range(MANY)]
    for request, answer in zip(requests, together(service, "grpc", "widths", requests), strict=True):
        assert isinstance(answer, dict), answer
        assert same(answer["y"], squares(request))


def test_requests_with_and_without_optional_inputs_share_a_server(service: Service) -> None:
    port = Port("x", "FP32", [4])
    optional = [port._replace(name=name, extra="optional: true") for name in ("bias", "scale")]
    model = models.optional_inputs()
    serve(service, "options", model, [port, *optional], [port._replace(name="y")])
    requests: list[dict[str, Value]] = []
    for index in range(MANY):
        names = [["x"], ["x", "bias"], ["x", "scale"], ["x", "bias", "scale"]][index % 4]
        shape = [1 + index % 2, 4]
        requests.append({name: np.full(shape, index + place, np.float32) for place, name in enumerate(names)})
    for request, answer in zip(requests, together(service, "grpc", "options", requests), strict=True):
        assert isinstance(answer, dict), answer
        assert same(answer["y"], models.answer(model, request)["y"])


SPLIT = [Port("more", "FP32", [3]), Port("sums", "FP32", [1], "reshape: { shape: [] }"), Port("above", "BOOL", [3])]


def test_several_outputs_are_split_alike(service: Service) -> None:
    model = models.several_outputs()
    serve(service, "split", model, [Port("x", "FP32", [3])], SPLIT)
    requests: list[dict[str, Value]] = [
        {"x": np.arange(3 * size, dtype=np.float32).reshape(size, 3) - index}
        for index, size in enumerate([1, 2, 3] * 8)
    ]
    for request, answer in zip(requests, together(service, "http", "split", requests), strict=True):
        assert isinstance(answer, dict), answer
        expected = models.answer(model, request)
        assert same(answer["more"], expected["more"])
        assert same(answer["sums"], expected["sums"][:, None])
        assert same(answer["above"], expected["above"])


def test_requests_of_a_batch_may_choose_different_outputs(service: Service, client: Client) -> None:
    name = f"wanted_{client.protocol}"
    serve(service, name, models.several_outputs(), [Port("x", "FP32", [3])], SPLIT)
    choices = [["more"], ["sums"], ["above", "more"], None]

    def ask(index: int) -> dict[str, Value]:
        own = service.connect(client.protocol)
        try:
            return own.infer(name, {"x": np.full((1 + index % 3, 3), index, np.float32)}, choices[index % 4])
        finally:
            own.close()

    with ThreadPoolExecutor(24) as pool:
        for index, answer in enumerate(pool.map(ask, range(24))):
            assert sorted(answer) == sorted(choices[index % 4] or ["more", "sums", "above"])
            shape = (1 + index % 3, 3)
            expected = {
                "more": np.full(shape, index + 1, np.float32),
                "sums": np.full((shape[0], 1), 3 * index, np.float32),
                "above": np.full(shape, index > 0),
            }
            assert all(same(value, expected[name]) for name, value in answer.items())
    rows_in_all = sum(1 + index % 3 for index in range(24))
    assert client.counts(name, rows_in_all)[1] < 24


@pytest.mark.parametrize("size", [1, 7, 8])
def test_a_batch_of_the_client_is_answered_as_one(service: Service, client: Client, size: int) -> None:
    name = f"batch_of_{size}_{client.protocol}"
    serve_squares(service, name, extra="", batch=8)
    request = rows(size)[0]
    assert same(client.infer(name, request)["y"], squares(request))
    assert client.counts(name, size) == (size, 1, 0)


def test_a_too_large_batch_is_an_error_and_the_next_is_served(service: Service, client: Client) -> None:
    serve_squares(service, "batch_of_8", extra="", batch=8)
    with pytest.raises(InferenceServerException, match=r"batch.size must be <= 8"):
        client.infer("batch_of_8", rows(9)[0])
    assert len(client.infer("batch_of_8", rows(8)[0])["y"]) == 8


@pytest.mark.parametrize("shared", ["false", "true"])
def test_several_instances_answer_at_the_same_time(service: Service, shared: str) -> None:
    name = f"instances_{shared}"
    extra = "instance_group { kind: KIND_CPU count: 3 }\n" + parameters({"share_session_between_instances": shared})
    ports = [Port("rounds", "INT64", [1])], [Port("y", "FP32", [1])]
    serve(service, name, models.slow(), *ports, extra, batch=4)
    requests: list[dict[str, Value]] = [
        {"rounds": np.array([[3000 + index], [index]], np.int64)} for index in range(MANY)
    ]
    for request, answer in zip(requests, together(service, "grpc", name, requests), strict=True):
        assert isinstance(answer, dict), answer
        assert same(answer["y"], request["rounds"].astype(np.float32))


def test_too_few_rows_of_a_model_fail_that_request_only(service: Service, client: Client) -> None:
    name = f"rows_{client.protocol}"
    port = Port("x", "FP32", [1], "reshape: { shape: [] }")
    serve(service, name, models.kept(), [port], [port._replace(name="y")], batch=8)
    good, bad = np.ones((2, 1), np.float32), -np.ones((2, 1), np.float32)
    answers = together(service, client.protocol, name, [{"x": good}, {"x": bad}, {"x": good * 2}])
    assert isinstance(answers[1], str)
    assert "'y'" in answers[1]
    for answer, expected in ((answers[0], good), (answers[2], good * 2)):
        assert isinstance(answer, dict), answer
        assert same(answer["y"], expected)


def test_ragged_batches_are_refused_at_load(service: Service) -> None:
    port = Port("x", "INT64", [-1], "allow_ragged_batch: true")
    text = config("onnxruntime", [port], [Port("y", "FP32", [-1])], batch=4, extra=GATHER)
    service.repository.add("ragged", {"1/model.onnx": models.lookup()}, text)
    assert "ragged" in service.refusal("ragged")


@pytest.mark.parametrize("sizes", [[1, 1, 1], [2, 3, 1]])
def test_texts_are_split_among_the_requests_of_a_batch(service: Service, client: Client, sizes: list[int]) -> None:
    name = f"batched_words_{len(set(sizes))}_{client.protocol}"
    serve(service, name, models.shouted(), [Port("words", "BYTES", [2])], [Port("loud", "BYTES", [2])])
    requests: list[dict[str, Value]] = [
        {"words": texts([f"{index} {place}\0{'größer' * place}" for place in range(2 * size)], size, 2)}
        for index, size in enumerate(sizes)
    ]
    for request, answer in zip(requests, together(service, client.protocol, name, requests), strict=True):
        assert isinstance(answer, dict), answer
        words = request["words"]
        assert same(answer["loud"], texts([word + b"!" for word in words.reshape(-1)], *words.shape))
    assert client.counts(name, sum(sizes))[1] < len(sizes)


def test_an_empty_batch_gives_no_rows_or_a_server_error(service: Service, client: Client) -> None:
    serve_squares(service, "batch_of_8", extra="", batch=8)
    try:
        answer = client.infer("batch_of_8", {"x": np.ones((0, 3), np.int64)})["y"]
    except InferenceServerException as error:
        assert "batch" in str(error.message())
    else:
        assert same(answer, np.ones((0, 3), np.float32))
    assert len(client.infer("batch_of_8", rows(8)[0])["y"]) == 8
