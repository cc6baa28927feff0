"""Test sequences: controls, states kept by the server, both strategies, failures, refusals and completion."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import models
import numpy as np
import pytest
from backend_testing.repository import Port, config
from backend_testing.sequences import (
    STRATEGIES,
    Story,
    Telling,
    check_sequences,
    control,
    sequence_batching,
    state,
    zeros,
)
from backend_testing.server import Service, running
from backend_testing.wire import Client, Step, Value, same, texts
from conftest import LEAKS
from models import Tensor, build
from onnx.helper import make_node

PLAIN = "direct { }"
ID = 7
NAME = "a correlation ID"


def serve(service: Service, name: str, model: bytes, text: str) -> None:
    """Write and load a model once."""
    if name not in service.loaded:
        service.repository.add(name, {"1/model.onnx": model}, text)
        service.load(name)


def tell(client: Client, model: str, steps: list[dict[str, Value]], identity: int | str = ID) -> list[dict[str, Value]]:
    """Send a whole sequence and return the answers."""
    last = len(steps) - 1
    return [client.infer(model, step, step=Step(identity, at == 0, at == last)) for at, step in enumerate(steps)]


def echo(flags: str, identity: str, *, batched: bool) -> bytes:
    """Return a model that gives all its controls back."""
    dims: models.Dims = ["n", 1] if batched else [1]
    names = {"start": flags, "end": flags, "ready": flags, "id": identity}
    return build(
        [make_node("Identity", [name], [f"{name}_given"]) for name in names],
        [Tensor(name, datatype, dims) for name, datatype in names.items()],
        [Tensor(f"{name}_given", datatype, dims) for name, datatype in names.items()],
    )


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("flags", "identity"),
    [("INT32", "UINT64"), ("FP32", "INT64"), ("BOOL", "UINT32"), ("INT32", "INT32"), ("BOOL", "BYTES")],
)
def test_controls_reach_the_model(
    service: Service, client: Client, flags: str, identity: str, strategy: str, batch: int
) -> None:
    name = f"echo_{flags}_{identity}_{strategy}_{batch}"
    kinds = {"start": "START", "end": "END", "ready": "READY"}
    controls = [control(each, kind, flags) for each, kind in kinds.items()] + [control("id", "CORRID", identity)]
    outputs = [Port(f"{each}_given", flags, [1]) for each in kinds] + [Port("id_given", identity, [1])]
    extra = sequence_batching(STRATEGIES[strategy], *controls)
    serve(
        service,
        name,
        echo(flags, identity, batched=batch > 0),
        config("onnxruntime", [], outputs, batch=batch, extra=extra),
    )
    answers = tell(client, name, [{}] * 3, NAME if identity == "BYTES" else ID)
    for index, answer in enumerate(answers):
        assert all(value.shape == ((1, 1) if batch else (1,)) for value in answer.values())
        values = {key.removesuffix("_given"): value.item() for key, value in answer.items()}
        given = NAME.encode() if identity == "BYTES" else ID
        assert values == {"start": index == 0, "end": index == 2, "ready": 1, "id": given}


def total(*, batched: bool = True, limit: int = 0) -> bytes:
    """Return a model whose state h2 = h + x is y, too; above `limit` it fails."""
    dims: models.Dims = ["n", 4] if batched else [4]
    nodes = [make_node("Add", ["x", "h"], ["h2"]), make_node("Identity", ["h2"], ["y"])]
    constants = {}
    if limit:
        # Looks h2 up in a list that is too short for numbers above the limit.
        nodes[1:] = [
            make_node("Cast", ["h2"], ["whole"], to=models.ONNX_TYPES["INT64"]),
            make_node("Gather", ["list", "whole"], ["y"]),
        ]
        constants["list"] = np.arange(limit + 1, dtype=np.float32)
    ports = [Tensor(name, "FP32", dims) for name in ("x", "h", "y", "h2")]
    return build(nodes, ports[:2], ports[2:], constants)


TOTAL = [Port("x", "FP32", [4])], [Port("y", "FP32", [4])]
SAME_BUFFER = "use_same_buffer_for_input_output: true"
SUM = state(("h", "h2"), "FP32", [4], zeros("FP32", [4]))


def totals(xs: list[Value]) -> list[Value]:
    """Return the sums up to each of the numbers."""
    return list(np.cumsum(np.array(xs), axis=0, dtype=np.float32))


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_state_of_a_sequence_is_the_input_of_its_next_request(
    service: Service, client: Client, strategy: str, batch: int
) -> None:
    name = f"total_{strategy}_{batch}"
    text = config("onnxruntime", *TOTAL, batch=batch, extra=sequence_batching(STRATEGIES[strategy], SUM))
    serve(service, name, total(batched=batch > 0), text)
    xs = [np.full((1, 4) if batch else 4, index, np.float32) for index in (3, 5, -1, 2)]
    for _ in range(2):  # each sequence begins with the initial state
        for answer, expected in zip(tell(client, name, [{"x": x} for x in xs]), totals(xs), strict=True):
            assert set(answer) == {"y"}
            assert same(answer["y"], expected)


def counting() -> bytes:
    """Return a model that tells how many rows its batch has, and how many of them are of requests."""
    column: models.Dims = ["n", 1]
    return build(
        [
            make_node("Add", ["x", "h"], ["h2"]),
            make_node("Sub", ["x", "x"], ["zeros"]),
            make_node("Shape", ["x"], ["shape"], start=0, end=1),
            make_node("Cast", ["shape"], ["count"], to=models.ONNX_TYPES["FP32"]),
            make_node("Add", ["zeros", "count"], ["rows"]),
            make_node("ReduceSum", ["ready", "axes"], ["sum"], keepdims=1),
            make_node("Add", ["zeros", "sum"], ["requests"]),
        ],
        [Tensor(name, "FP32", column) for name in ("x", "h", "ready")],
        [Tensor(name, "FP32", column) for name in ("rows", "requests", "h2")],
        {"axes": np.array([0], np.int64)},
    )


def test_slots_without_a_request_are_run_and_not_answered(service: Service, client: Client) -> None:
    name = f"slots_{client.protocol}"
    ports = [Port("x", "FP32", [1])], [Port(each, "FP32", [1]) for each in ("rows", "requests", "h2")]
    parts = [control("ready", "READY", "FP32"), state(("h", "h2"), "FP32", [1], zeros("FP32", [1]))]
    extra = sequence_batching(PLAIN, *parts) + "\ninstance_group { kind: KIND_CPU count: 1 }"
    serve(service, name, counting(), config("onnxruntime", *ports, batch=4, extra=extra))
    x = np.ones((1, 1), np.float32)

    def ask(identity: int, *, start: bool = False, end: bool = False) -> list[float]:
        answer = client.infer(name, {"x": x}, step=Step(identity, start, end))
        return [float(answer[key].item()) for key in ("rows", "requests", "h2")]

    assert ask(1, start=True) == [1, 1, 1]
    assert ask(2, start=True) == [2, 1, 1]  # the first slot is empty
    assert ask(3, start=True) == [3, 1, 1]
    assert ask(2) == [2, 1, 2]
    assert ask(1) == [1, 1, 2]
    assert ask(1, end=True) == [1, 1, 3]
    assert ask(3) == [3, 1, 2]
    assert ask(2, end=True) == [2, 1, 3]
    assert ask(3, end=True) == [3, 1, 3]
    assert client.counts(name, 9) == (9, 9, 0)


def several() -> bytes:
    """Return a model with three states: a number, texts, and all numbers so far."""
    return build(
        [
            make_node("Add", ["count", "one"], ["count2"]),
            make_node("StringConcat", ["said", "word"], ["said2"]),
            make_node("Concat", ["all", "x"], ["all2"], axis=1),
            make_node("ReduceSum", ["all2", "axes"], ["sum"], keepdims=1),
        ],
        [
            Tensor("x", "FP64", ["n", "k"]),
            Tensor("word", "BYTES", ["n", 2]),
            Tensor("count", "INT16", ["n", 1]),
            Tensor("said", "BYTES", ["n", 2]),
            Tensor("all", "FP64", ["n", "m"]),
        ],
        [
            Tensor("sum", "FP64", ["n", 1]),
            Tensor("said2", "BYTES", ["n", 2]),
            Tensor("count2", "INT16", ["n", 1]),
            Tensor("all2", "FP64", ["n", "l"]),
        ],
        {"one": np.array(1, np.int16), "axes": np.array([1], np.int64)},
    )


@pytest.mark.parametrize("before", [0, 1, 3])
def test_states_have_types_and_sizes_of_their_own(service: Service, client: Client, before: int) -> None:
    name = f"several_{before}"
    states = [
        state(
            ("count", "count2"),
            "INT16",
            [1],
            'initial_state { name: "c" data_type: TYPE_INT16 dims: [1] data_file: "c" }',
        ),
        state(("said", "said2"), "BYTES", [2], zeros("BYTES", [2])),
        state(("all", "all2"), "FP64", [-1], zeros("FP64", [before])),
    ]
    inputs = [Port("x", "FP64", [-1]), Port("word", "BYTES", [2])]
    # Two of the states are outputs, too.
    outputs = [Port("sum", "FP64", [1]), Port("count2", "INT16", [1]), Port("all2", "FP64", [-1])]
    if name not in service.loaded:
        files = {"1/model.onnx": several(), "initial_state/c": np.array([40], np.int16).tobytes()}
        text = config("onnxruntime", inputs, outputs, batch=8, extra=sequence_batching(STRATEGIES["direct"], *states))
        service.repository.add(name, files, text)
        service.load(name)
    tellings = []
    for length in (1, 2, 5):
        all_numbers = np.zeros((1, before))
        requests: list[dict[str, Value]] = []
        answers: list[dict[str, Value]] = []
        for index in range(length):
            x = np.arange(index, dtype=np.float64)[None] + length
            all_numbers = np.concatenate([all_numbers, x], axis=1)
            requests.append({"x": x, "word": texts([f"{index}", "größer"], 1, 2)})
            answers.append(
                {
                    "sum": all_numbers.sum(1, keepdims=True),
                    "count2": np.array([[41 + index]], np.int16),
                    "all2": all_numbers,
                }
            )
        tellings.append(Telling(Story(name, requests, answers)))
    while tellings := [each for each in tellings if not each.over]:
        for each in tellings:
            assert each.advance(client) == ""


def test_a_state_of_texts_grows(service: Service, client: Client) -> None:
    name = "texts"
    model = build(
        [make_node("StringConcat", ["said", "word"], ["said2"])],
        [Tensor("word", "BYTES", ["n", 1]), Tensor("said", "BYTES", ["n", 1])],
        [Tensor("said2", "BYTES", ["n", 1])],
    )
    kept = state(("said", "said2"), "BYTES", [1])
    ports = [Port("word", "BYTES", [1])], [Port("said2", "BYTES", [1])]
    serve(service, name, model, config("onnxruntime", *ports, batch=2, extra=sequence_batching(PLAIN, kept)))
    answers = tell(client, name, [{"word": texts([word], 1, 1)} for word in ("a", "", "größer", "\0")])
    assert [answer["said2"].item().decode() for answer in answers] == ["a", "a", "agrößer", "agrößer\0"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_request_that_fails_leaves_the_state_as_it_was(service: Service, client: Client, strategy: str) -> None:
    name = f"failing_{strategy}"
    text = config("onnxruntime", *TOTAL, batch=4, extra=sequence_batching(STRATEGIES[strategy], SUM))
    serve(service, name, total(limit=100), text)
    numbers = [1, 200, 2, -300, 3, 4]
    kept = 0
    answers: list[dict[str, Value] | str] = []
    for number in numbers:
        failed = not 0 <= kept + number <= 100
        kept += 0 if failed else number
        answers.append("out of data bounds" if failed else {"y": np.full((1, 4), kept, np.float32)})
    story = Story(name, [{"x": np.full((1, 4), number, np.float32)} for number in numbers], answers)
    tellings = [Telling(story, spoken=bool(index)) for index in range(2)]
    for _ in numbers:
        for each in tellings:
            assert each.advance(client) == ""


def refusals() -> dict[str, tuple[str, str, str]]:
    """Return parts that do not go with the model `total`, with whom a refusal names and what it says."""
    other = "the configuration has"
    return {
        "control": (
            SUM + control("begin", "START", "FP32"),
            "control input 'begin'",
            "the model has none of that name",
        ),
        "control_type": (control("h", "START", "INT32"), "control input 'h'", f"{other} type TYPE_INT32, the model"),
        "control_dims": (control("h", "START", "FP32"), "control input 'h'", f"{other} the shape [-1,1]"),
        "missing": ("", "input 'h'", "the model needs it"),
        "input": (state(("g", "h2"), "FP32", [4]), "state input 'g'", "the model has none of that name"),
        "output": (state(("h", "h3"), "FP32", [4]), "state output 'h3'", "the model has none of that name"),
        "type": (state(("h", "h2"), "INT32", [4]), "state input 'h'", f"{other} type TYPE_INT32, the model"),
        "dims": (state(("h", "h2"), "FP32", [5]), "state input 'h'", f"{other} the shape [-1,5]"),
        "listed": (state(("x", "h2"), "FP32", [4]), "state input 'x'", "is listed twice, also as input"),
        "two_types": (state(("h", "y"), "INT32", [4]), "state 'h' (output 'y')", "the output has type TYPE_FP32"),
        "same_buffer": (state(("h", "h2"), "FP32", [4], SAME_BUFFER), "state 'h'", "use_same_buffer_for_input_output"),
        "iterative": (SUM + "iterative_sequence: true", "", "sequence_batching.iterative_sequence"),
    }


@pytest.mark.parametrize("case", refusals())
def test_sequences_that_do_not_go_with_the_model_are_refused(service: Service, case: str) -> None:
    parts, who, what = refusals()[case]
    name = f"bad_{case}"
    text = config("onnxruntime", *TOTAL, batch=4, extra=sequence_batching(PLAIN, parts))
    service.repository.add(name, {"1/model.onnx": total()}, text)
    words = service.refusal(name)
    assert f"{who} of model {name}" in words or not who
    assert what in words


def test_states_that_the_server_would_mix_up_are_refused(service: Service) -> None:
    names = ("a", "z2"), ("b", "y2")
    model = build(
        [make_node("Add", ["x", left], [right]) for left, right in names],
        [Tensor(name, "FP32", ["n", 1]) for name in "xab"],
        [Tensor(name, "FP32", ["n", 1]) for _, name in names],
    )
    states = [state(pair, "FP32", [1], zeros("FP32", [1])) for pair in names]
    ports = [Port("x", "FP32", [1])], [Port("z2", "FP32", [1])]
    text = config("onnxruntime", *ports, batch=4, extra=sequence_batching(PLAIN, *states))
    service.repository.add("mixed_up", {"1/model.onnx": model}, text)
    assert "Triton mixes up states" in service.refusal("mixed_up")


def test_completion_leaves_controls_and_states_alone(service: Service, client: Client) -> None:
    name = "completed"
    model = build(
        [
            make_node("Where", ["start", "zero", "h"], ["old"]),
            make_node("Add", ["x", "old"], ["h2"]),
            make_node("Identity", ["h2"], ["y"]),
        ],
        [Tensor("start", "BOOL", ["n", 1]), Tensor("x", "FP32", ["n", 4]), Tensor("h", "FP32", ["n", 4])],
        [Tensor("h2", "FP32", ["n", 4]), Tensor("y", "FP32", ["n", 4])],
        {"zero": np.zeros(1, np.float32)},
    )
    parts = [control("start", "START", "BOOL"), state(("h", "h2"), "FP32", [4])]
    serve(service, name, model, config("onnxruntime", [], [], extra=sequence_batching(PLAIN, *parts)))
    found = client.config(name)
    assert [each["name"] for each in found["input"]] == ["x"]
    assert [each["name"] for each in found["output"]] == ["y"]
    assert int(found["max_batch_size"]) == 4
    assert "dynamic_batching" not in found
    xs = [np.full((1, 4), number, np.float32) for number in (1, 2)]
    for answer, expected in zip(tell(client, name, [{"x": x} for x in xs]), totals(xs), strict=True):
        assert same(answer["y"], expected)


def load(service: Service) -> list[str]:
    """Load models that add up, which fail above a thousand, for each strategy and number of instances."""
    names = []
    for strategy, words in STRATEGIES.items():
        for instances in (1, 2, 4):
            name = f"sum_{strategy}_{instances}"
            extra = sequence_batching(words, SUM) + f"\ninstance_group {{ kind: KIND_CPU count: {instances} }}"
            serve(service, name, total(limit=1000), config("onnxruntime", *TOTAL, batch=32, extra=extra))
            names.append(name)
    return names


def story(chance: random.Random, names: list[str]) -> Story:
    """Make a sequence of sums, a few of them too large."""
    kept = np.zeros((1, 4), np.float32)
    requests: list[dict[str, Value]] = []
    answers: list[dict[str, Value] | str] = []
    for _ in range(chance.randint(1, 12)):
        x = np.array([[chance.randint(0, 40) for _ in range(4)]], np.float32)
        if chance.random() < 0.05:
            x += 2000
            answers.append("out of data bounds")
        else:
            kept = kept + x
            answers.append({"y": kept})
        requests.append({"x": x})
    return Story(chance.choice(names), requests, answers)


def test_sequences_of_16_clients_keep_apart(tmp_path: Path, backends: Callable[..., Path]) -> None:
    with running(tmp_path, backends=backends(), suppressions=LEAKS) as service:
        names = load(service)
        rows, batches = check_sequences(service, lambda chance: story(chance, names))
    assert batches < rows
    assert service.server.exit_code == 0
