"""Test that errors belong to their request: an exact message, and the model keeps working."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from backend_testing.repository import Port
from backend_testing.server import Service
from modules import config, file, saved, scripted
from torch import Tensor
from wire import Client, InferenceServerException, Value, array, ask, same

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture(scope="module")
def pair(service: Service) -> str:
    """Load the model that subtracts."""
    ports = [Port("left", "FP32", [-1, 3]), Port("right", "FP32", [-1, 3])]
    text = config(ports, [Port("difference", "FP32", [-1, 3])])
    service.repository.add("errors_pair", {"1/model.pt": file("Subtract")}, text)
    service.load("errors_pair")
    return "errors_pair"


def refused(client: Client, model: str, inputs: Mapping[str, Value], outputs: list[str] | None = None) -> str:
    """Return the message with which a request is refused."""
    with pytest.raises(InferenceServerException) as caught:
        ask(client, model, inputs, outputs)
    return str(caught.value.message())


def sent(
    client: Client, name: str, item: Tensor = X, datatype: str | None = None, shape: list[int] | None = None
) -> object:
    """Return an input; `datatype` and `shape` may be wrong."""
    return client.tensor(name, array(item), datatype, shape)


Bad = Callable[[Client], list[object]]
BAD: dict[str, tuple[Bad, str]] = {
    "type": (lambda c: [sent(c, "left"), sent(c, "right", X.to(torch.float64))], "data-?type"),
    "rank": (lambda c: [sent(c, "left"), sent(c, "right", torch.ones(3))], "shape"),
    "dimension": (lambda c: [sent(c, "left"), sent(c, "right", torch.ones(2, 4))], "shape"),
    "missing": (lambda c: [sent(c, "left")], "expected 2 inputs but got 1|right"),
    "unknown": (lambda c: [sent(c, name) for name in ("left", "right", "middle")], "inputs|middle"),
    "twice": (lambda c: [sent(c, "left"), sent(c, "left")], "left|right|inputs"),
    "lying type": (lambda c: [sent(c, "left"), sent(c, "right", datatype="INT64")], "data-?type|byte size"),
    "lying shape": (lambda c: [sent(c, "left"), sent(c, "right", shape=[5, 3])], "byte|size"),
    "shapes that do not fit": (lambda c: [sent(c, "left"), sent(c, "right", torch.ones(5, 3))], "size of tensor"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_request_is_refused_and_the_model_keeps_working(pair: str, client: Client, kind: str) -> None:
    make, words = BAD[kind]
    with pytest.raises(InferenceServerException, match=words):
        client.infer(pair, make(client))
    assert same(ask(client, pair, {"left": X, "right": X})["difference"], X - X * 2)


def test_an_unknown_output_is_refused(pair: str, client: Client) -> None:
    assert "sum" in refused(client, pair, {"left": X, "right": X}, ["sum"])


FAILURES = {
    1: "the first number is one",
    2: "inconsistent tensor size",
    3: "memory|storage size|allocate",
    4: "too few numbers",
    5: "out of (range|bounds)",
}


@pytest.mark.parametrize("kind", FAILURES)
def test_an_exception_in_the_model_is_the_error_of_its_request(service: Service, client: Client, kind: int) -> None:
    port = Port("x", "FP32", [-1])
    if "errors_failing" not in service.loaded:
        service.repository.add(
            "errors_failing", {"1/model.pt": file("Failing")}, config([port], [port._replace(name="y")])
        )
        service.load("errors_failing")
    with pytest.raises(InferenceServerException, match=FAILURES[kind]) as caught:
        ask(client, "errors_failing", {"x": torch.full([7], float(kind))})
    assert "frame #" not in str(caught.value.message()), "a C++ backtrace in the message"
    assert same(ask(client, "errors_failing", {"x": torch.zeros(2)})["y"], torch.zeros(2))


def test_a_result_of_an_unconfigured_type_is_an_error(service: Service, client: Client) -> None:
    port = Port("x", "FP32", [-1])
    if "errors_type" not in service.loaded:
        text = config([port], [port._replace(name="y")])
        service.repository.add("errors_type", {"1/model.pt": file("WrongType")}, text)
        service.load("errors_type")
    words = refused(client, "errors_type", {"x": torch.ones(2)})
    assert "y" in words
    assert "FP64" in words
    assert "FP32" in words
    assert same(ask(client, "errors_type", {"x": torch.zeros(2)})["y"], torch.zeros(2))


@pytest.mark.parametrize(
    ("module", "outputs", "words"),
    [
        ("Tuple", [Port("a", "FP32", [-1, -1])], "a"),
        ("Arithmetic", [Port("a", "FP32", [-1, -1]), Port("b", "FP32", [-1, -1])], "b"),
        ("DictOut", [Port("missing", "FP32", [-1, -1])], "missing"),
        ("NamedOut", [Port("missing", "FP32", [-1])], "missing"),
        ("Arithmetic", [Port("words", "BYTES", [-1])], "words"),
        ("Tuple", [Port("OUTPUT__3", "FP32", [-1, -1])], "OUTPUT__3"),
    ],
)
def test_outputs_that_the_model_does_not_have_are_named(
    service: Service, module: str, outputs: list[Port], words: str
) -> None:
    name = f"errors_outputs_{module.lower()}_{outputs[-1].name.lower()}"
    service.repository.add(name, {"1/model.pt": file(module)}, config([Port("x", "FP32", [-1, -1])], outputs))

    def load_and_ask() -> None:
        service.load(name)
        ask(service.client(), name, {"x": X})

    with pytest.raises(InferenceServerException, match=words):
        load_and_ask()


@pytest.mark.parametrize(
    ("module", "inputs", "words"),
    [
        ("Subtract", ["left"], "right"),
        ("Subtract", ["left", "middle"], "middle"),
        ("Subtract", ["INPUT__0", "INPUT__2"], "INPUT__2"),
        ("Arithmetic", ["x", "y"], "y"),
    ],
)
def test_inputs_that_the_model_does_not_have_are_a_load_error(
    service: Service, module: str, inputs: list[str], words: str
) -> None:
    name = f"errors_inputs_{module.lower()}_{inputs[-1].lower()}"
    ports = [Port(each, "FP32", [-1, -1]) for each in inputs]
    service.repository.add(name, {"1/model.pt": file(module)}, config(ports, [Port("out", "FP32", [-1, -1])]))
    assert words in service.refusal(name)


def test_a_client_that_gives_up_does_not_disturb_the_others(service: Service) -> None:
    port = Port("x", "FP32", [-1])
    slow = scripted("Slow", 500)
    service.repository.add("errors_slow", {"1/model.pt": saved(slow)}, config([port], [port._replace(name="y")]))
    service.load("errors_slow")
    client = service.client("grpc")
    for _ in range(10):
        with pytest.raises(InferenceServerException, match="Deadline"):
            client.raw.infer("errors_slow", [sent(client, "x", torch.ones(2))], client_timeout=0.005)
    answer = ask(client, "errors_slow", {"x": torch.ones(2)})["y"]
    assert same(answer, slow(torch.ones(2)))
