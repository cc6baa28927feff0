"""Test every data type and form of inputs and outputs: the server's answers equal ONNX Runtime's, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import models
import numpy as np
import pytest
from backend_testing.repository import Port, config
from backend_testing.server import Service
from backend_testing.wire import TYPES, Client, InferenceServerException, Value, same, texts
from models import answer, numbers

Request: TypeAlias = Mapping[str, Value]

# Types that ONNX Runtime's Python interface does not support are compared with numpy.
WITHOUT_PYTHON = ("BF16", "BYTES")
PLANE = (-1, -1)
# By default the server makes two instances for a backend of this name.
ONE = "instance_group { kind: KIND_CPU count: 1 }"


@dataclass(frozen=True)
class Sample:
    """A model with its configuration and requests; `expect` gives the right answer if ONNX Runtime is not asked."""

    name: str
    model: bytes
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    requests: Sequence[Request]
    expect: Callable[[Request], dict[str, Value]] | None = None
    batch: int = 0

    def expected(self, request: Request) -> dict[str, Value]:
        """Return the right answer, by output name."""
        if self.expect is not None:
            return self.expect(request)
        return answer(self.model, request, [port.name for port in self.outputs])

    def serve(self, service: Service) -> None:
        """Write and load the model once."""
        if self.name not in service.loaded:
            text = config("onnxruntime", self.inputs, self.outputs, batch=self.batch, extra=ONE)
            service.repository.add(self.name, {"1/model.onnx": self.model}, text)
            service.load(self.name)


def port(name: str, *dims: int, datatype: str = "FP32", extra: str = "") -> Port:
    """Return a port, FP32 by default."""
    return Port(name, datatype, dims, extra)


def typed(datatype: str) -> list[Sample]:
    """Return samples of a data type: moved, reordered, moved into memory of another size, and computed with."""
    name = datatype.lower()
    ports = [port("x", *PLANE, datatype=datatype)], [port("y", *PLANE, datatype=datatype)]
    requests = [{"x": numbers(datatype, *shape)} for shape in ((3, 5), (1, 1), (0, 4), (64, 33))]
    samples = [
        Sample(f"same_{name}", models.identity(datatype), *ports, requests, lambda request: {"y": request["x"]}),
        Sample(f"turned_{name}", models.turned(datatype), *ports, requests, lambda request: {"y": request["x"].T}),
        Sample(
            f"joined_{name}",
            models.joined(datatype),
            *ports,
            requests,
            lambda request: {"y": np.concatenate([request["x"], request["x"]])},
        ),
    ]
    if datatype not in WITHOUT_PYTHON:
        samples.append(Sample(f"computed_{name}", models.elementwise(datatype), *ports, requests))
    return samples


def scalars(datatype: str) -> list[Sample]:
    """Return samples of a number without dimensions, one for each request and one for each row of a batch."""
    one = Port("x", datatype, [1])
    row = one._replace(extra="reshape: { shape: [] }")
    name = datatype.lower()

    def same_value(request: Request) -> dict[str, Value]:
        return {"y": request["x"]}

    request = {"x": numbers(datatype, 4)[-1:]}
    rows = [{"x": numbers(datatype, size, 1)} for size in (1, 3)]
    return [
        Sample(f"scalar_{name}", models.identity(datatype, []), [one], [one._replace(name="y")], [request], same_value),
        Sample(
            f"scalars_{name}",
            models.identity(datatype, ["N"]),
            [row],
            [row._replace(name="y")],
            rows,
            same_value,
            batch=8,
        ),
    ]


def shouted(request: Request) -> dict[str, Value]:
    """Return the expected answer of the model of that name."""
    words = request["words"]
    return {"loud": texts([word + b"!" for word in words.reshape(-1)], *words.shape)}


def pair(*shape: int) -> Request:
    """Return two inputs of a shape."""
    return {"left": numbers("FP32", *shape), "right": numbers("FP32", *shape, seed=1)}


WORDS = ["one", "", "größer", "two words", "日本語 \N{GRINNING FACE}", "x" * 5000]
X = numbers("FP32", 3, 4)
# Sums of these do not depend on the order, which depends on the alignment of the memory.
WHOLE = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
ROW = np.arange(4, dtype=np.float32)[None] - 1

FORMS = [
    Sample(
        "inputs_in_another_order",
        models.subtract(),
        [port("right", *PLANE), port("left", *PLANE)],
        [port("difference", *PLANE)],
        [pair(2, 3), pair(1, 1), pair(0, 3), pair(3, 0)],
    ),
    Sample(
        "inputs_large",
        models.subtract(),
        [port("left", *PLANE), port("right", *PLANE)],
        [port("difference", *PLANE)],
        [pair(1500, 1000)],
    ),
    Sample(
        "inputs_fixed",
        models.subtract([2, 3]),
        [port("left", 2, 3), port("right", 2, 3)],
        [port("difference", 2, 3)],
        [pair(2, 3)],
    ),
    Sample(
        "inputs_fixed_by_the_configuration",
        models.subtract(),
        [port("left", 2, 3), port("right", 2, 3)],
        [port("difference", 2, 3)],
        [pair(2, 3)],
    ),
    Sample(
        "inputs_without_names_of_dimensions",
        models.subtract([None, None]),
        [port("left", *PLANE), port("right", *PLANE)],
        [port("difference", *PLANE)],
        [pair(2, 3), pair(0, 1)],
    ),
    Sample(
        "inputs_reshaped",
        models.subtract([2, 3]),
        [port(name, 6, extra="reshape: { shape: [2, 3] }") for name in ("left", "right")],
        [port("difference", 6, extra="reshape: { shape: [2, 3] }")],
        [{"left": np.arange(6, dtype=np.float32), "right": np.ones(6, np.float32)}],
        lambda request: {"difference": request["left"] - 2 * request["right"]},
    ),
    Sample(
        "inputs_of_many_dimensions",
        models.identity("INT16", ["A", 2, "B", 1, "C", 3]),
        [port("x", -1, 2, -1, 1, -1, 3, datatype="INT16")],
        [port("y", -1, 2, -1, 1, -1, 3, datatype="INT16")],
        [{"x": numbers("INT16", 2, 2, 3, 1, 4, 3)}, {"x": numbers("INT16", 2, 2, 0, 1, 4, 3)}],
    ),
    Sample(
        "outputs_several",
        models.several_outputs(),
        [port("x", *PLANE)],
        [port("more", *PLANE), port("sums", -1), port("above", *PLANE, datatype="BOOL"), port("one", 1)],
        [{"x": WHOLE}, {"x": WHOLE[:0]}, {"x": WHOLE[:, :0]}, {"x": WHOLE}],
    ),
    Sample(
        "outputs_in_part_and_another_order",
        models.several_outputs(),
        [port("x", *PLANE)],
        [port("above", *PLANE, datatype="BOOL"), port("more", *PLANE)],
        [{"x": X}],
    ),
    Sample(
        "output_that_is_the_input",
        models.passed_through(),
        [port("x", *PLANE)],
        [port("x", *PLANE), port("y", *PLANE)],
        [{"x": X}, {"x": X[:0]}],
    ),
    Sample(
        "optional_inputs",
        models.optional_inputs(),
        [port("x", -1, 4), *(port(name, -1, 4, extra="optional: true") for name in ("bias", "scale"))],
        [port("y", -1, 4)],
        [
            {"x": X},
            {"x": X, "bias": ROW},
            {"scale": ROW, "x": X},
            {"x": X, "bias": ROW, "scale": X},
        ],
    ),
    Sample(
        "optional_inputs_left_out_of_the_configuration",
        models.optional_inputs(),
        [port("x", -1, 4)],
        [port("y", -1, 4)],
        [{"x": X}],
    ),
    Sample(
        "optional_input_that_gives_a_size",
        models.default_of_a_size(),
        [port("more", -1, extra="optional: true"), port("x", -1)],
        [port("z", -1), port("y", -1)],
        [{"x": X[0]}, {"x": X[1], "more": X[0, :2]}, {"x": X[0]}],
    ),
    Sample(
        "network",
        models.network(),
        [port("x", 8)],
        [port("y", 4)],
        [{"x": np.linspace(-2, 2, size * 8, dtype=np.float32).reshape(size, 8)} for size in (1, 2, 8)],
        batch=8,
    ),
    Sample(
        "words",
        models.shouted(),
        [port("words", *PLANE, datatype="BYTES")],
        [port("loud", *PLANE, datatype="BYTES")],
        [
            {"words": texts(WORDS, 2, 3)},
            {"words": texts(["nul\0inside", "\0", "\0\0"], 3, 1)},
            {"words": texts([b"\xff\xfe no UTF-8 \x80"], 1, 1)},
            {"words": texts([b"a" * (3 << 20), b"", b"b" * 70000], 1, 3)},
            {"words": texts([], 0, 4)},
        ],
        shouted,
    ),
    Sample(
        "words_and_numbers",
        models.same_words(),
        [port("right", -1, datatype="BYTES"), port("x", -1), port("left", -1, datatype="BYTES")],
        [port("equal", -1, datatype="BOOL"), port("y", -1)],
        [{"left": texts(["one", "two", "a\0b", ""]), "right": texts(["one", "zwei", "a\0c", ""]), "x": X[0]}],
        lambda request: {"equal": request["left"] == request["right"], "y": request["x"] * 2},
    ),
]

POSITIVE = np.array([1, 2, 3, 4], np.float32)
SOME = np.array([-1, 2, -3, 4, 5, -6], np.float32)
# The declaration is already wrong for the first request; the test below covers one that is right for all.
LIES = [
    Sample("fewer_than_said", models.kept(), [port("x", -1)], [port("y", -1)], [{"x": SOME}, {"x": POSITIVE}]),
    Sample("none_where_some_are_said", models.kept(), [port("x", -1)], [port("y", -1)], [{"x": -POSITIVE}]),
    Sample("fewer_than_fixed", models.kept(rows=4), [port("x", -1)], [port("y", -1)], [{"x": SOME}, {"x": POSITIVE}]),
    Sample(
        "more_than_said",
        models.joined("FP64", rows="N"),
        [port("x", *PLANE, datatype="FP64")],
        [port("y", *PLANE, datatype="FP64")],
        [{"x": numbers("FP64", 3, 4)}, {"x": numbers("FP64", 0, 4)}],
    ),
    *(
        Sample(
            f"sizes_that_are_not_the_same_{operator.lower()}",
            models.dimensions_disagree(operator),
            [port("left", -1), port("right", -1)],
            [port("minus", -1), port("other", -1)],
            [{"left": SOME, "right": POSITIVE}, {"left": SOME, "right": SOME}, {"left": SOME[:1], "right": SOME}],
        )
        for operator in ("Neg", "Identity")
    ),
]

TYPED = [sample for datatype in TYPES for sample in [*typed(datatype), *scalars(datatype)]]
CASES = [
    pytest.param(sample, index, id=f"{sample.name}-{index}")
    for sample in [*TYPED, *FORMS, *LIES]
    for index in range(len(sample.requests))
]


@pytest.mark.parametrize(("sample", "index"), CASES)
def test_the_server_answers_what_onnx_runtime_answers(
    service: Service, client: Client, sample: Sample, index: int
) -> None:
    sample.serve(service)
    request = sample.requests[index]
    expected = sample.expected(request)
    # The first time outputs are copied; later they are computed into the response, if the model declares their shape.
    for _ in range(2):
        found = client.infer(sample.name, request)
        assert set(found) == {each.name for each in sample.outputs}
        for name in found:
            assert same(found[name], expected[name]), f"{name}: {found[name]} is not {expected[name]}"


@pytest.mark.parametrize("wanted", [["sums"], ["above", "more"], ["one"]], ids=" ".join)
def test_only_requested_outputs_are_returned(service: Service, client: Client, wanted: list[str]) -> None:
    sample = next(each for each in FORMS if each.name == "outputs_several")
    sample.serve(service)
    found = client.infer(sample.name, {"x": WHOLE}, wanted)
    assert sorted(found) == sorted(wanted)
    for name, value in sample.expected({"x": WHOLE}).items():
        assert name not in wanted or same(found[name], value)


def serve_liar(service: Service, client: Client, name: str, truth: Value) -> None:
    """Load a model whose output has the declared shape for numbers above zero, and send it these twice."""
    text = config("onnxruntime", [port("x", -1)], [port("y", -1)])
    service.repository.add(name, {"1/model.onnx": models.kept()}, text)
    service.load(name)
    for x in [truth, truth * 2]:
        assert same(client.infer(name, {"x": x})["y"], x)


def test_a_large_output_of_a_wrong_shape_costs_one_request(service: Service, client: Client) -> None:
    name = f"liar_{client.protocol}"
    positive, some = np.tile(POSITIVE, 200), np.tile(SOME, 200)
    serve_liar(service, client, name, positive)
    shapes = r"\[1200\] and gave \[600\]"
    words = rf"output 'y' of model {name}: the model declares the shape {shapes}; send the request again"
    with pytest.raises(InferenceServerException, match=words) as caught:
        client.infer(name, {"x": some})
    assert caught.value.status() in ("503", "StatusCode.UNAVAILABLE")
    for x in [some, positive, some[:3], -positive, positive]:
        assert same(client.infer(name, {"x": x})["y"], x[x > 0])


def test_a_small_output_of_a_wrong_shape_costs_nothing(service: Service, client: Client) -> None:
    name = f"small_liar_{client.protocol}"
    serve_liar(service, client, name, POSITIVE)
    for x in [POSITIVE[:2], SOME, POSITIVE, SOME[:3], -POSITIVE, POSITIVE]:
        assert same(client.infer(name, {"x": x})["y"], x[x > 0])


def test_tensors_around_the_limit_of_kept_bindings_are_right(service: Service, client: Client) -> None:
    name = f"around_{client.protocol}"
    service.repository.add(
        name,
        {"1/model.onnx": models.elementwise("FP32", ["N"])},
        config("onnxruntime", [port("x", -1)], [port("y", -1)]),
    )
    service.load(name)
    for size in [1024, 1024, 1025, 1023, 1025, 1024, 0, 1, 0, 1024, 5000, 1]:
        x = numbers("FP32", size)
        assert same(client.infer(name, {"x": x})["y"], x + x), size


def test_answers_do_not_depend_on_earlier_shapes(service: Service, client: Client) -> None:
    sample = next(each for each in FORMS if each.name == "inputs_in_another_order")
    sample.serve(service)
    for shape in [(2, 3), (3, 2), (1, 6), (100, 100), (2, 3), (0, 5), (6, 1), (2, 3)]:
        request = pair(*shape)
        found = client.infer(sample.name, request)["difference"]
        assert same(found, sample.expected(request)["difference"])
