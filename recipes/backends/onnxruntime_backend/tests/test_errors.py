"""Test that errors belong to their request: an exact message, and the model keeps working."""

from __future__ import annotations

from collections.abc import Callable

import models
import numpy as np
import pytest
from backend_testing.repository import Port, config
from backend_testing.server import Service, preload
from backend_testing.wire import Client, InferenceServerException, Value, same, texts

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def serve(service: Service, name: str, model: bytes, inputs: list[Port], outputs: list[Port]) -> str:
    """Write and load a model once, and return its name."""
    if name not in service.loaded:
        service.repository.add(name, {"1/model.onnx": model}, config("onnxruntime", inputs, outputs))
        service.load(name)
    return name


@pytest.fixture(scope="module")
def pair(service: Service) -> str:
    """Load the model that subtracts."""
    ports = [Port("left", "FP32", [-1, 3]), Port("right", "FP32", [-1, 3])]
    return serve(service, "errors_pair", models.subtract(), ports, [Port("difference", "FP32", [-1, 3])])


def integers(*numbers: int) -> Value:
    """Return a row of INT64."""
    return np.array(numbers, np.int64)


Bad = Callable[[Client], list[object]]
BAD: dict[str, tuple[Bad, str]] = {
    "type": (lambda c: [c.tensor("left", X), c.tensor("right", X.astype(np.float64))], "data-?type|type is"),
    "rank": (lambda c: [c.tensor("left", X), c.tensor("right", X[0])], "shape"),
    "dimension": (lambda c: [c.tensor("left", X), c.tensor("right", X[:, :2].copy())], "shape"),
    "missing": (lambda c: [c.tensor("left", X)], "expected 2 inputs but got 1|right"),
    "unknown": (lambda c: [c.tensor(name, X) for name in ("left", "right", "middle")], "inputs|middle"),
    "twice": (lambda c: [c.tensor("left", X), c.tensor("left", X)], "left|right|inputs"),
    "lying type": (lambda c: [c.tensor("left", X), c.tensor("right", X, datatype="INT64")], "data-?type|byte size"),
    "lying shape": (lambda c: [c.tensor("left", X), c.tensor("right", X, shape=[5, 3])], "byte|size"),
    "texts": (lambda c: [c.tensor("left", X), c.tensor("right", texts(["a"] * 6, 2, 3))], "data-?type|type is"),
    "shapes that do not fit": (
        lambda c: [c.tensor("left", X), c.tensor("right", np.ones((5, 3), np.float32))],
        "running Sub node",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_request_is_refused_and_the_model_keeps_working(pair: str, client: Client, kind: str) -> None:
    make, words = BAD[kind]
    with pytest.raises(InferenceServerException, match=words):
        client.infer(pair, make(client))
    assert same(client.infer(pair, {"left": X, "right": X})["difference"], X - X * 2)


def test_an_unknown_output_is_refused(pair: str, client: Client) -> None:
    with pytest.raises(InferenceServerException, match="sum"):
        client.infer(pair, {"left": X, "right": X}, ["sum"])
    assert same(client.infer(pair, {"left": X, "right": X})["difference"], X - X * 2)


def test_an_output_of_the_model_that_is_not_configured_is_refused(service: Service, client: Client) -> None:
    name = serve(
        service,
        "errors_part",
        models.several_outputs(),
        [Port("x", "FP32", [-1, -1])],
        [Port("more", "FP32", [-1, -1])],
    )
    with pytest.raises(InferenceServerException, match="sums"):
        client.infer(name, {"x": X}, ["sums"])
    assert same(client.infer(name, {"x": X}, ["more"])["more"], X + 1)


FAILURES: dict[str, tuple[list[int], list[int], str]] = {
    "shape that does not fit": ([2, 3], [4, 2], "cannot be reshaped to the requested shape"),
    "more than can be counted": ([1 << 40, 1 << 40], [1, 1], "overflow"),
    "negative size": ([-2, 3], [1, 1], "running ConstantOfShape node"),
    "rank that is not configured": ([6], [6], r"output 'y'.*shape \[6\]"),
}
# AddressSanitizer ends the program when C++ asks for too much.
if not preload():
    FAILURES["too much memory"] = [1 << 25, 1 << 25], [1, 1], "allocate memory"


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_in_the_model_is_the_error_of_its_request(service: Service, client: Client, kind: str) -> None:
    shape, other, words = FAILURES[kind]
    ports = [Port("shape", "INT64", [-1]), Port("other", "INT64", [-1])]
    name = serve(service, "errors_failing", models.failing(), ports, [Port("y", "FP32", [-1, -1])])
    with pytest.raises(InferenceServerException, match=words):
        client.infer(name, {"shape": integers(*shape), "other": integers(*other)})
    good = client.infer(name, {"shape": integers(2, 3), "other": integers(3, 2)})["y"]
    assert same(good, np.zeros((3, 2), np.float32))


def test_a_result_of_an_unconfigured_size_is_an_error(service: Service, client: Client) -> None:
    model = models.joined("FP32", dims=["N"])
    name = serve(service, "errors_size", model, [Port("x", "FP32", [-1])], [Port("y", "FP32", [4])])
    two = np.ones(2, np.float32)
    assert same(client.infer(name, {"x": two})["y"], np.ones(4, np.float32))
    for wrong in (two[:1], two[:0], np.ones(3, np.float32)):
        with pytest.raises(InferenceServerException, match=rf"output 'y'.*\[{2 * len(wrong)}\], expected \[4\]"):
            client.infer(name, {"x": wrong})
    assert same(client.infer(name, {"x": two})["y"], np.ones(4, np.float32))


def test_failed_requests_are_not_written_to_the_log(service: Service) -> None:
    name = serve(service, "errors_log", models.lookup(), [Port("x", "INT64", [-1, -1])], [Port("y", "FP32", [-1, -1])])
    with pytest.raises(InferenceServerException, match="idx=7654321 must be within"):
        service.client().infer(name, {"x": integers(7654321)[None]})
    # The client has the message; anybody could fill the log with such messages.
    assert "7654321" not in service.log()


def test_onnx_runtime_warnings_have_the_format_of_the_log(service: Service) -> None:
    ports = [Port("x", "FP32", [-1, 4])], [Port("y", "FP32", [-1, 4])]
    serve(service, "errors_warning", models.optional_inputs(), *ports)
    lines = [line for line in service.log().splitlines() if "bias appears in graph inputs" in line]
    assert lines
    assert all(line.startswith("W") for line in lines), lines[0]
