"""Models that keep state: each instance has its own, and nothing that is kept is the memory of a request."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from backend_testing.repository import Port, parameters
from backend_testing.server import Service
from modules import config, saved
from stateful import STATEFUL
from torch import Tensor
from torch.utils.bundled_inputs import bundle_inputs
from wire import Value, ask, same, together

MANY = 96
ROW = Port("x", "FP32", [1, 4])


def module(name: str, *args: int) -> torch.jit.ScriptModule:
    """Return a stateful module as TorchScript."""
    result: torch.jit.ScriptModule = torch.jit.script(STATEFUL[name](*args).eval())
    return result


def serve(
    service: Service, model: str, name: str, outputs: list[Port], *args: int, count: int = 1, extra: str = ""
) -> None:
    """Write and load a stateful model with a number of instances."""
    text = config([ROW], outputs, extra=f"instance_group {{ kind: KIND_CPU count: {count} }}\n{extra}")
    service.repository.add(model, {"1/model.pt": saved(module(name, *args))}, text)
    service.load(model)


def first(answer: dict[str, Value] | str, name: str) -> int:
    """Return the first number of an output, which all its numbers are equal to."""
    assert isinstance(answer, dict), answer
    item = answer[name]
    assert isinstance(item, Tensor)
    assert bool((item == item.reshape(-1)[0]).all()), item
    return int(item.reshape(-1)[0])


def check_counts(counts: list[int], instances: int) -> None:
    """Check that the numbers are what so many counters give: none is skipped, and none is there too often."""
    found = Counter(counts)
    often = [found[number] for number in range(1, max(found) + 1)]
    assert sum(often) == len(counts)
    assert max(often) <= instances
    assert often == sorted(often, reverse=True)


@pytest.mark.parametrize("setting", ["", "true", "false"])
@pytest.mark.parametrize("count", [1, 4])
def test_each_instance_has_its_own_attributes(service: Service, count: int, setting: str) -> None:
    name = f"counter_{count}_{setting}"
    extra = parameters({"ENABLE_WEIGHT_SHARING": setting}) if setting else ""
    outputs = [ROW._replace(name="OUTPUT__0"), ROW._replace(name="OUTPUT__1")]
    serve(service, name, "Counter", outputs, count=count, extra=extra)
    requests: list[dict[str, Value]] = [{"x": torch.zeros(1, 4)}] * MANY
    answers = [each for _ in range(4) for each in together(service, "grpc", name, requests)]
    for output in ("OUTPUT__0", "OUTPUT__1"):
        check_counts([first(answer, output) for answer in answers], count)


@pytest.mark.parametrize("count", [1, 4])
def test_an_answer_that_is_a_view_of_state_is_not_overwritten(service: Service, count: int) -> None:
    name = f"accumulator_{count}"
    outputs = [ROW._replace(name="OUTPUT__0"), ROW._replace(name="OUTPUT__1")]
    serve(service, name, "Accumulator", outputs, count=count)
    requests: list[dict[str, Value]] = [{"x": torch.ones(1, 4)}] * MANY
    answers = together(service, "grpc", name, requests)
    counts = [first(answer, "OUTPUT__1") for answer in answers]
    check_counts(counts, count)
    assert [first(answer, "OUTPUT__0") for answer in answers] == [3 * each for each in counts]


def test_state_moves_on_when_only_some_outputs_are_wanted(service: Service) -> None:
    serve(service, "wanted", "Accumulator", [ROW._replace(name="OUTPUT__0"), ROW._replace(name="OUTPUT__1")])
    client = service.client()
    for number in range(1, 7):
        output = f"OUTPUT__{number % 2}"
        answer = ask(client, "wanted", {"x": torch.ones(1, 4)}, [output])
        assert list(answer) == [output]
        assert first(answer, output) == (number if number % 2 else 3 * number)


def test_buffers_that_share_memory_share_it_in_each_instance(service: Service) -> None:
    serve(service, "tied", "TiedBuffers", [ROW._replace(name="y")], count=3)
    requests: list[dict[str, Value]] = [{"x": torch.ones(1, 4)}] * MANY
    check_counts([first(answer, "y") for answer in together(service, "grpc", "tied", requests)], 3)


@pytest.mark.parametrize(
    "name", ["Previous", "PreviousView", "PreviousOptional", "Outer", "Dictionary", "PreviousOfList"]
)
def test_a_kept_input_is_not_the_memory_of_the_request(service: Service, name: str) -> None:
    model = f"kept_{name.lower()}"
    serve(service, model, name, [ROW._replace(name="y")])
    client = service.client()
    before = torch.zeros(1, 4)
    for number in range(1, 20):
        x = torch.full([1, 4], float(number))
        assert same(ask(client, model, {"x": x})["y"], before), number
        before = x
        # Other requests take the memory that the server has given back.
        noise: list[dict[str, Value]] = [{"x": torch.full([1, 4], -1.0)}] * 4
        serve_noise(service, noise)


def test_a_task_that_outlives_its_run_reads_the_input_it_was_given(service: Service) -> None:
    serve(service, "forked", "Forked", [ROW._replace(name="y")])
    client = service.client()
    before = torch.zeros(1, 4)
    for number in range(1, 8):
        x = torch.full([1, 4], float(number))
        end = time.monotonic() + 60
        while not same(answer := ask(client, "forked", {"x": x})["y"], x):
            assert same(answer, before)
            assert time.monotonic() < end
            serve_noise(service, [{"x": torch.full([1, 4], -1.0)}] * 4)
        before = x


def serve_noise(service: Service, requests: list[dict[str, Value]]) -> None:
    """Send requests to a model that keeps nothing."""
    if "noise" not in service.loaded:
        serve(service, "noise", "Normalized", [ROW._replace(name="y")], 4)
    together(service, "grpc", "noise", requests)


def test_a_list_of_kept_inputs_stays_as_it_was(service: Service) -> None:
    serve(service, "journal", "Journal", [Port("y", "FP32", [1, -1])])
    client = service.client()
    expected = [torch.zeros(1, 4)]
    for number in range(1, 20):
        expected.append(torch.full([1, 4], float(number)))
        answer = ask(client, "journal", {"x": expected[-1]})["y"]
        assert same(answer, torch.cat(expected[-4:], dim=1))
        serve_noise(service, [{"x": torch.full([1, 4], -1.0)}] * 4)


def test_example_calls_do_not_change_the_state(service: Service) -> None:
    bundled = bundle_inputs(module("Counter"), inputs=[(torch.ones(1, 4),), (torch.ones(1, 4),)])
    service.repository.add("counted_examples", {"1/model.pt": saved(bundled)}, 'backend: "pytorch"\n')
    service.load("counted_examples")
    answer = ask(service.client(), "counted_examples", {"x": torch.ones(1, 4)})
    assert first(answer, "OUTPUT__0") == first(answer, "OUTPUT__1") == 1


EXTENT = 32 << 20
WEIGHTS = EXTENT * 4


@pytest.mark.parametrize("name", ["HeavyCounter", "Normalized"])
@pytest.mark.parametrize("setting", ["", "true"])
def test_weights_are_shared_by_instances_of_any_model(
    start_service: Callable[..., Service], name: str, setting: str
) -> None:
    quiet = start_service()
    before = quiet.server.resident()
    extra = parameters({"ENABLE_WEIGHT_SHARING": setting}) if setting else ""
    serve(quiet, "heavy", name, [ROW._replace(name="y")], EXTENT, count=6, extra=extra)
    grown = quiet.server.resident() - before
    assert WEIGHTS <= grown < 3.5 * WEIGHTS, f"{grown >> 20} MiB for weights of {WEIGHTS >> 20} MiB"


def test_without_sharing_each_instance_has_its_weights(start_service: Callable[..., Service]) -> None:
    quiet = start_service()
    before = quiet.server.resident()
    extra = parameters({"ENABLE_WEIGHT_SHARING": "false"})
    serve(quiet, "heavy", "Normalized", [ROW._replace(name="y")], EXTENT, count=6, extra=extra)
    grown = quiet.server.resident() - before
    assert grown >= 6 * WEIGHTS, f"{grown >> 20} MiB for 6 weights of {WEIGHTS >> 20} MiB"
    assert "y" in ask(quiet.client(), "heavy", {"x": torch.ones(1, 4)})
