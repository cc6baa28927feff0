"""Test that a cancelled request frees its instance without an effect on others."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any, TypeAlias

import models
import numpy as np
import pytest
from backend_testing.crowd import together
from backend_testing.repository import Port, config, parameters
from backend_testing.server import Service
from backend_testing.wire import Client, InferenceServerException, Value, same

# A run of this many rounds takes two minutes or more, a long one a second, and a short one far less.
ENDLESS = 60_000_000
LONG = 500_000
SHORT = 5_000
# Seconds within which the server has to be free again; far less than the long run takes.
SOON = 30.0

Answer: TypeAlias = "Queue[dict[str, Value] | str]"


def serve(service: Service, name: str, batch: int = 1, extra: str = "", instances: int = 1) -> None:
    """Write and load the model that counts rounds, once."""
    if name not in service.loaded:
        # By default the server makes two instances for a backend of this name.
        extra = f"instance_group {{ kind: KIND_CPU count: {instances} }}\n{extra}"
        text = config("onnxruntime", [Port("rounds", "INT64", [1])], [Port("y", "FP32", [1])], batch=batch, extra=extra)
        service.repository.add(name, {"1/model.onnx": models.slow()}, text)
        service.load(name)


def rounds(*counts: int) -> Value:
    """Return the input, one row for each count."""
    return np.array(counts, np.int64).reshape(-1, 1)


def ask(client: Client, model: str, *counts: int) -> tuple[Any, Answer]:
    """Send a gRPC request without waiting; return the call, for cancelling it, and a queue that receives the answer."""
    answer: Answer = Queue()

    def take(result: Any, error: InferenceServerException | None) -> None:
        answer.put({"y": result.as_numpy("y")} if error is None else str(error.message()))

    return client.raw.async_infer(model, [client.tensor("rounds", rounds(*counts))], take), answer


def check_served(service: Service, model: str) -> None:
    """Check that the model answers correctly and soon."""
    begin = time.monotonic()
    assert same(service.client("grpc").infer(model, {"rounds": rounds(3)})["y"], np.full((1, 1), 3, np.float32))
    assert time.monotonic() - begin < SOON


def test_a_cancelled_request_stops_while_it_runs(service: Service) -> None:
    serve(service, "cancelled")
    call, answer = ask(service.client("grpc"), "cancelled", ENDLESS)
    time.sleep(0.5)
    assert answer.empty()
    call.cancel()
    check_served(service, "cancelled")
    assert "cancel" in str(answer.get(timeout=SOON)).lower()
    assert service.client().counts("cancelled", failures=1)[2] == 1


def test_a_request_whose_client_ran_out_of_time_stops(service: Service) -> None:
    serve(service, "deadline")
    client = service.client("grpc")
    for _ in range(3):
        with pytest.raises(InferenceServerException, match="Deadline"):
            client.raw.infer("deadline", [client.tensor("rounds", rounds(ENDLESS))], client_timeout=0.3)
        check_served(service, "deadline")


def test_a_request_that_is_cancelled_while_it_waits_is_not_run(service: Service) -> None:
    serve(service, "waiting")
    client = service.client("grpc")
    running, first = ask(client, "waiting", ENDLESS)
    time.sleep(0.3)
    waiting, second = ask(client, "waiting", ENDLESS)
    time.sleep(0.2)
    waiting.cancel()
    running.cancel()
    check_served(service, "waiting")
    for answer in (first, second):
        assert "cancel" in str(answer.get(timeout=SOON)).lower()
    # The server may drop the second on its own.
    assert service.client().counts("waiting", failures=1)[2] in (1, 2)


@pytest.mark.parametrize("place", [0, 1])
def test_the_other_request_of_a_batch_is_answered(service: Service, place: int) -> None:
    name = f"cancelled_batch_{place}"
    serve(service, name, 2, "dynamic_batching { preferred_batch_size: [2] max_queue_delay_microseconds: 5000000 }")
    client = service.client("grpc")
    # It takes a second or so and is cancelled within that time; the second request fills the batch, which then runs.
    calls = [ask(client, name, LONG + index) for index in range(2)]
    time.sleep(0.1)
    calls[place][0].cancel()
    assert "cancel" in str(calls[place][1].get(timeout=SOON)).lower()
    answer = calls[1 - place][1].get(timeout=60)
    assert isinstance(answer, dict), answer
    assert same(answer["y"], np.full((1, 1), LONG + (1 - place), np.float32))


def test_a_batch_stops_when_all_its_requests_are_cancelled(service: Service) -> None:
    name = "cancelled_together"
    serve(service, name, 2, "dynamic_batching { preferred_batch_size: [2] max_queue_delay_microseconds: 100000 }")
    client = service.client("grpc")
    calls = [ask(client, name, ENDLESS) for _ in range(2)]
    time.sleep(0.5)
    for call, _ in calls:
        call.cancel()
    check_served(service, name)
    for _, answer in calls:
        assert "cancel" in str(answer.get(timeout=SOON)).lower()


@pytest.mark.parametrize("shared", ["false", "true"])
def test_other_instances_keep_running(service: Service, shared: str) -> None:
    name = f"cancelled_beside_{shared}"
    serve(service, name, 1, parameters({"share_session_between_instances": shared}), instances=2)
    client = service.client("grpc")
    _, kept = ask(client, name, 300_000)
    call, given_up = ask(client, name, ENDLESS)
    time.sleep(0.2)
    call.cancel()
    assert "cancel" in str(given_up.get(timeout=SOON)).lower()
    answer = kept.get(timeout=60)
    assert isinstance(answer, dict), answer
    assert same(answer["y"], np.full((1, 1), 300_000, np.float32))
    check_served(service, name)


def test_many_cancelled_requests_leave_the_others_right(service: Service) -> None:
    name = "cancelled_often"
    serve(service, name, 2, instances=2)

    def give_up(number: int) -> None:
        client = service.connect("grpc")
        chance = random.Random(number)
        for _ in range(12):
            # Only requests that never end on their own: the server's gRPC front end crashes when a request is cancelled
            # just as it is answered (triton-inference-server/server, issue 8034).
            call, answer = ask(client, name, ENDLESS)
            time.sleep(chance.random() / 20)
            call.cancel()
            assert "cancel" in str(answer.get(timeout=SOON)).lower()
        client.close()

    good: list[dict[str, Value]] = [{"rounds": rounds(index, SHORT + index)} for index in range(40)]
    with ThreadPoolExecutor(4) as pool:
        leaving = [pool.submit(give_up, number) for number in range(4)]
        answers = together(service, "grpc", name, good)
        for each in leaving:
            each.result()
    for request, answer in zip(good, answers, strict=True):
        assert isinstance(answer, dict), answer
        assert same(answer["y"], request["rounds"].astype(np.float32))
    check_served(service, name)
