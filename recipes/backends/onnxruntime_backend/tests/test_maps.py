"""Test outputs that are sequences of maps, as classifiers of scikit-learn have them: two tensors for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from backend_testing.crowd import together
from backend_testing.repository import Port
from backend_testing.server import Service
from backend_testing.wire import Client, InferenceServerException, Value, same, texts
from onnx import ModelProto, TensorProto
from onnx.helper import (
    make_graph,
    make_map_type_proto,
    make_model,
    make_node,
    make_opsetid,
    make_sequence_type_proto,
    make_tensor_type_proto,
    make_tensor_value_info,
    make_value_info,
)
from option_models import NOTHING, config, model, ports, serve

LABELS: dict[str, Any] = {"INT64": [30, 10, 20], "BYTES": ["dog", "", "größer"]}
ONNX = {"INT64": TensorProto.INT64, "BYTES": TensorProto.STRING}


def classifier(kind: str, *, more: bool = False) -> bytes:
    """Return a linear classifier of rows of four, in the form that conversions from scikit-learn have."""
    labels = {"INT64": "classlabels_ints", "BYTES": "classlabels_strings"}[kind]
    zipped = {"INT64": "classlabels_int64s", "BYTES": "classlabels_strings"}[kind]
    chance = np.random.default_rng(3)
    nodes = [
        make_node(
            "LinearClassifier",
            ["x"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            coefficients=chance.standard_normal(12).tolist(),
            intercepts=[0.1, 0.2, 0.3],
            multi_class=0,
            post_transform="SOFTMAX",
            **{labels: LABELS[kind]},
        ),
        make_node("ZipMap", ["scores"], ["probability"], domain="ai.onnx.ml", **{zipped: LABELS[kind]}),
    ]
    maps = make_sequence_type_proto(make_map_type_proto(ONNX[kind], make_tensor_type_proto(TensorProto.FLOAT, None)))
    outputs = [make_tensor_value_info("label", ONNX[kind], ["n"]), make_value_info("probability", maps)]
    if more:
        nodes.append(make_node("Neg", ["x"], ["probability_keys"]))
        outputs.append(make_tensor_value_info("probability_keys", TensorProto.FLOAT, ["n", 4]))
    graph = make_graph(nodes, "classifier", [make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])], outputs)
    made: ModelProto = make_model(
        graph, ir_version=8, opset_imports=[make_opsetid("", 17), make_opsetid("ai.onnx.ml", 1)]
    )
    content: bytes = made.SerializeToString()
    return content


def expected(file: bytes, x: Value) -> tuple[Value, Value, Value]:
    """Return labels, keys and values of ONNX Runtime in this process."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    label, maps = session.run(["label", "probability"], {"x": x})
    keys = [list(each) for each in maps]
    values = np.array([list(each.values()) for each in maps], np.float32)
    if isinstance(keys[0][0], str):
        return texts(list(label)), texts([word for row in keys for word in row], len(keys), 3), values
    return label, np.array(keys, np.int64), values


def rows(count: int, seed: int = 0) -> Value:
    """Return rows of four numbers."""
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


def ported(kind: str, name: str = "probability") -> list[Port]:
    """Return the outputs for the parts of the maps."""
    return [Port(f"{name}_keys", kind, [3]), Port(f"{name}_values", "FP32", [-1])]


@pytest.mark.parametrize("kind", LABELS)
def test_keys_and_values_are_two_outputs(service: Service, client: Client, kind: str) -> None:
    name = f"maps_{kind}_{client.protocol}"
    file = classifier(kind)
    outputs = [*ported(kind), Port("label", kind, [1], "reshape: { shape: [] }")]
    serve(service, name, file, config([Port("x", "FP32", [4])], outputs, batch=8, extra="dynamic_batching { }"))
    for count in (1, 3, 8):
        x = rows(count, count)
        label, keys, values = expected(file, x)
        answer = client.infer(name, {"x": x})
        assert same(answer["label"].ravel(), label)
        assert same(answer["probability_keys"], keys)
        assert same(answer["probability_values"], values)
        for part, right in (("keys", keys), ("values", values)):
            alone = client.infer(name, {"x": x}, [f"probability_{part}"])
            assert list(alone) == [f"probability_{part}"]
            assert same(alone[f"probability_{part}"], right)


@pytest.mark.parametrize("kind", LABELS)
def test_requests_with_maps_run_as_one_batch(service: Service, kind: str) -> None:
    name = f"maps_batch_{kind}"
    file = classifier(kind)
    delay = "dynamic_batching { max_queue_delay_microseconds: 200000 preferred_batch_size: [8] }"
    one = "instance_group { kind: KIND_CPU count: 1 }"
    serve(service, name, file, config([Port("x", "FP32", [4])], ported(kind), batch=8, extra=delay + one))
    requests = [rows(1 + each % 3, each) for each in range(4)]
    answers = together(service, "grpc", name, [{"x": x} for x in requests])
    for x, answer in zip(requests, answers, strict=True):
        assert not isinstance(answer, str), answer
        _, keys, values = expected(file, x)
        assert same(answer["probability_keys"], keys)
        assert np.allclose(answer["probability_values"], values, rtol=1e-5)  # the size of a batch changes the last bit
    assert service.client().counts(name, rows=7)[1] < 4


@pytest.mark.parametrize("kind", LABELS)
def test_a_model_with_maps_is_completed(service: Service, client: Client, kind: str) -> None:
    name = f"maps_completed_{kind}_{client.protocol}"
    file = classifier(kind)
    serve(service, name, file, NOTHING)
    type_name = "TYPE_INT64" if kind == "INT64" else "TYPE_STRING"
    found = client.config(name)
    assert ports(found["output"]) == [
        ("label", type_name, [1]),
        ("probability_keys", type_name, [-1]),
        ("probability_values", "TYPE_FP32", [-1]),
    ]
    assert int(found["max_batch_size"]) == 4
    x = rows(2)
    _, keys, values = expected(file, x)
    answer = client.infer(name, {"x": x})
    assert same(answer["probability_keys"], keys)
    assert same(answer["probability_values"], values)


@pytest.mark.parametrize("kind", LABELS)
def test_no_rows_are_no_maps(service: Service, kind: str) -> None:
    name = f"maps_none_{kind}"
    outputs = [Port("y_keys", kind, [-1, 3]), Port("y_values", "FP32", [-1, -1])]
    labels = "classlabels_int64s = [3, 1, 2]" if kind == "INT64" else 'classlabels_strings = ["a", "b", "c"]'
    key = "int64" if kind == "INT64" else "string"
    file = model("float[n,3] x", f"seq(map({key},float)) y", f"y = ai.onnx.ml.ZipMap<{labels}>(x)")
    serve(service, name, file, config([Port("x", "FP32", [-1, 3])], outputs))
    answer = service.client("grpc").infer(name, {"x": np.zeros((0, 3), np.float32)})
    assert answer["y_keys"].shape == (0, 3)
    assert answer["y_values"].shape == (0, 0)
    assert service.client().infer(name, {"x": np.ones((2, 3), np.float32)})["y_keys"].shape == (2, 3)


def test_an_output_of_the_model_wins_over_a_part_of_its_name(service: Service) -> None:
    file = classifier("INT64", more=True)
    serve(
        service, "maps_named", file, config([Port("x", "FP32", [4])], [Port("probability_keys", "FP32", [4])], batch=8)
    )
    x = rows(2)
    assert same(service.client().infer("maps_named", {"x": x})["probability_keys"], -x)


REFUSED = {
    "whole": (
        Port("probability", "FP32", [3]),
        "output 'probability' of model {}: is a sequence, which Triton does not support; configure probability_keys ",
    ),
    "type": (
        Port("probability_keys", "BYTES", [3]),
        "output 'probability_keys' of model {}: the configuration has type TYPE_STRING, the model TYPE_INT64",
    ),
    "rank": (
        Port("probability_values", "FP32", [3, 1]),
        "'probability_values' of model {}: the configuration has the shape [-1,3,1] with the batch dimension",
    ),
    "name": (
        Port("probability_key", "INT64", [3]),
        "the model has none of that name; it has label, probability, probability_keys, probability_values",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_contradiction_to_the_maps_is_a_load_error(service: Service, kind: str) -> None:
    port, words = REFUSED[kind]
    name = f"maps_refused_{kind}"
    service.repository.add(
        name, {"1/model.onnx": classifier("INT64")}, config([Port("x", "FP32", [4])], [port], batch=8)
    )
    assert words.format(name) in service.refusal(name)


def test_another_number_of_entries_than_configured_is_an_error(service: Service) -> None:
    wrong = [Port("probability_keys", "INT64", [4])]
    serve(service, "maps_wrong", classifier("INT64"), config([Port("x", "FP32", [4])], wrong, batch=8))
    with pytest.raises(InferenceServerException, match=r"the model gives shape \[2,3\], expected \[2,4\]"):
        service.client().infer("maps_wrong", {"x": rows(2)})
