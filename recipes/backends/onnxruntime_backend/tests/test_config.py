"""Test configurations: what is completed from the model, and what is refused with which message."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from backend_testing.repository import Port, parameters
from backend_testing.server import Service
from backend_testing.wire import Client, InferenceServerException, same, texts
from option_models import DOUBLING, NOTHING, RANKLESS, ROWS, X, config, model, ports, serve, times

NEWER = 'ir_version: 10, opset_import: ["": 21]'


def refused(service: Service, name: str, file: bytes, text: str) -> str:
    """Write a model and return the message with which it is refused."""
    service.repository.add(name, {"1/model.onnx": file}, text)
    return service.refusal(name)


TYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float": "FP32",
    "double": "FP64",
    "string": "STRING",
}

Ports = list[tuple[str, str, list[int]]]
COMPLETED: dict[str, tuple[bytes, Ports, Ports, int]] = {
    "rows": (DOUBLING, [("x", "TYPE_FP32", [4])], [("y", "TYPE_FP32", [4])], 4),
    "all open": (
        model("float[n,m,3] x", "float[n,m,3] y", "y = Neg(x)"),
        [("x", "TYPE_FP32", [-1, 3])],
        [("y", "TYPE_FP32", [-1, 3])],
        4,
    ),
    "unnamed": (
        model("float[?,?] x", "float[?,?] y", "y = Neg(x)"),
        [("x", "TYPE_FP32", [-1])],
        [("y", "TYPE_FP32", [-1])],
        4,
    ),
    "fixed": (
        model("float[2,4] x", "float[2,4] y", "y = Neg(x)"),
        [("x", "TYPE_FP32", [2, 4])],
        [("y", "TYPE_FP32", [2, 4])],
        0,
    ),
    "open second": (
        model("float[2,n] x", "float[2,n] y", "y = Neg(x)"),
        [("x", "TYPE_FP32", [2, -1])],
        [("y", "TYPE_FP32", [2, -1])],
        0,
    ),
    "one input is fixed": (
        model("float[n,4] x, float[1,4] z", "float[n,4] y", "y = Add(x, z)"),
        [("x", "TYPE_FP32", [-1, 4]), ("z", "TYPE_FP32", [1, 4])],
        [("y", "TYPE_FP32", [-1, 4])],
        0,
    ),
    "the output is fixed": (
        model("float[n,4] x", "float[1,4] y", "axis = Constant<value_ints = [0]>() y = ReduceSum(x, axis)"),
        [("x", "TYPE_FP32", [-1, 4])],
        [("y", "TYPE_FP32", [1, 4])],
        0,
    ),
    "scalars": (
        model("float x, int64 z", "float y", "w = Cast<to = 1>(z) y = Add(x, w)"),
        [("x", "TYPE_FP32", [1]), ("z", "TYPE_INT64", [1])],
        [("y", "TYPE_FP32", [1])],
        0,
    ),
    "rows of scalars": (
        model("float[n] x", "float[n] y", "y = Neg(x)"),
        [("x", "TYPE_FP32", [1])],
        [("y", "TYPE_FP32", [1])],
        4,
    ),
    "defaults": (
        model("float[n,4] x, float[4] bias = {1, 2, 3, 4}", "float[n,4] y", "y = Add(x, bias)"),
        [("x", "TYPE_FP32", [4])],
        [("y", "TYPE_FP32", [4])],
        4,
    ),
    "types": (
        model(
            ", ".join(f"{name}[n,4] {name}_in" for name in TYPES),
            ", ".join(f"{name}[n,4] {name}_out" for name in TYPES),
            " ".join(f"{name}_out = Identity({name}_in)" for name in TYPES),
        ),
        [(f"{name}_in", f"TYPE_{kind}", [4]) for name, kind in TYPES.items()],
        [(f"{name}_out", f"TYPE_{kind}", [4]) for name, kind in TYPES.items()],
        4,
    ),
}


@pytest.mark.parametrize("kind", COMPLETED)
def test_an_empty_configuration_is_completed_from_the_model(service: Service, client: Client, kind: str) -> None:
    file, inputs, outputs, batch = COMPLETED[kind]
    name = f"completed_{kind.replace(' ', '_')}"
    if name not in service.loaded:
        serve(service, name, file)
    found = client.config(name)
    assert ports(found["input"]) == inputs
    assert ports(found["output"]) == outputs
    assert int(found.get("max_batch_size", 0)) == batch
    assert ("dynamic_batching" in found) == (batch > 1)


def test_a_model_needs_no_configuration_at_all(service: Service, client: Client) -> None:
    name = f"no_config_{client.protocol}"
    serve(service, name, DOUBLING, None)
    assert client.config(name)["backend"] == "onnxruntime"
    assert times(client, name, 2.0)


def test_the_platform_of_upstream_names_this_backend(service: Service) -> None:
    serve(service, "platform", DOUBLING, 'platform: "onnxruntime_onnx"\n')
    assert times(service.client(), "platform", 2.0)


def test_scalars_are_served_as_one_element(service: Service, client: Client) -> None:
    name = f"scalar_{client.protocol}"
    serve(service, name, COMPLETED["scalars"][0])
    answer = client.infer(name, {"x": np.array([1.5], np.float32), "z": np.array([2])})
    assert same(answer["y"], np.array([3.5], np.float32))


def test_rows_of_scalars_are_served_as_rows_of_one_element(service: Service, client: Client) -> None:
    name = f"scalar_rows_{client.protocol}"
    serve(service, name, COMPLETED["rows of scalars"][0])
    reshapes = [each["reshape"].get("shape", []) for key in ("input", "output") for each in client.config(name)[key]]
    assert reshapes == [[], []]
    x = np.array([[1.5], [2.5], [-1]], np.float32)
    assert same(client.infer(name, {"x": x})["y"], -x)


def test_an_input_with_a_default_may_be_given_or_left_out(service: Service, client: Client) -> None:
    name = f"optional_{client.protocol}"
    inputs = [Port("x", "FP32", [-1, 4]), Port("bias", "FP32", [4], "optional: true")]
    serve(service, name, COMPLETED["defaults"][0], config(inputs, [Port("y", "FP32", [-1, 4])]))
    assert same(client.infer(name, {"x": X})["y"], X + np.array([1, 2, 3, 4], np.float32))
    bias = np.array([4, 0, 0, -4], np.float32)
    assert same(client.infer(name, {"x": X, "bias": bias})["y"], X + bias)


def test_an_input_with_a_default_may_be_required(service: Service) -> None:
    inputs = [Port("x", "FP32", [-1, 4]), Port("bias", "FP32", [4])]
    serve(service, "required", COMPLETED["defaults"][0], config(inputs, [Port("y", "FP32", [-1, 4])]))
    with pytest.raises(InferenceServerException, match="expected 2 inputs but got 1"):
        service.client().infer("required", {"x": X})


TWO = model("float[n,4] x, int64[n,1] z", "float[n,4] y, int64[n,1] w", "y = Neg(x) w = Neg(z)")
OWN_BATCH = 'backend: "onnxruntime"\nmax_batch_size: 16\n'
PARTIAL: dict[str, tuple[str, Ports, Ports, int]] = {
    "batch size": (
        OWN_BATCH,
        [("x", "TYPE_FP32", [4]), ("z", "TYPE_INT64", [1])],
        [("y", "TYPE_FP32", [4]), ("w", "TYPE_INT64", [1])],
        16,
    ),
    "batch size 1": (
        'backend: "onnxruntime"\nmax_batch_size: 1\n',
        [("x", "TYPE_FP32", [4]), ("z", "TYPE_INT64", [1])],
        [("y", "TYPE_FP32", [4]), ("w", "TYPE_INT64", [1])],
        1,
    ),
    "inputs": (
        config([Port("x", "FP32", [-1, 4]), Port("z", "INT64", [2, 1])], []),
        [("x", "TYPE_FP32", [-1, 4]), ("z", "TYPE_INT64", [2, 1])],
        [("y", "TYPE_FP32", [-1, 4]), ("w", "TYPE_INT64", [-1, 1])],
        0,
    ),
    "inputs and batch size": (
        config([Port("x", "FP32", [4]), Port("z", "INT64", [1])], [], batch=3),
        [("x", "TYPE_FP32", [4]), ("z", "TYPE_INT64", [1])],
        [("y", "TYPE_FP32", [4]), ("w", "TYPE_INT64", [1])],
        3,
    ),
    "outputs": (
        config([], [Port("y", "FP32", [4])], batch=3),
        [("x", "TYPE_FP32", [4]), ("z", "TYPE_INT64", [1])],
        [("y", "TYPE_FP32", [4])],
        3,
    ),
}


@pytest.mark.parametrize("kind", PARTIAL)
def test_configured_values_stay_and_the_rest_is_completed(service: Service, kind: str) -> None:
    text, inputs, outputs, batch = PARTIAL[kind]
    name = f"partial_{kind.replace(' ', '_')}"
    serve(service, name, TWO, text)
    found = service.client().config(name)
    assert ports(found["input"]) == inputs
    assert ports(found["output"]) == outputs
    assert int(found["max_batch_size"]) == batch
    assert "dynamic_batching" not in found


def test_a_configured_scheduler_is_kept(service: Service) -> None:
    serve(service, "scheduler_own", DOUBLING, NOTHING + "dynamic_batching { max_queue_delay_microseconds: 7 }")
    found = service.client().config("scheduler_own")
    assert (found["max_batch_size"], found["dynamic_batching"]["max_queue_delay_microseconds"]) == (4, 7)
    serve(service, "scheduler_sequence", DOUBLING, NOTHING + "sequence_batching {}")
    found = service.client().config("scheduler_sequence")
    assert "sequence_batching" in found
    assert "dynamic_batching" not in found


@pytest.mark.parametrize("batch", [0, 1, 16])
def test_the_default_batch_size_is_the_servers(start_service: Callable[..., Service], batch: int) -> None:
    other = start_service(f"--backend-config=default-max-batch-size={batch}")
    serve(other, "m", DOUBLING)
    found = other.client().config("m")
    assert int(found["max_batch_size"]) == batch
    assert ports(found["input"]) == [("x", "TYPE_FP32", [4] if batch else [-1, 4])]
    assert ("dynamic_batching" in found) == (batch > 1)
    assert same(other.client().infer("m", {"x": X[:1]})["y"], X[:1] * 2)


@pytest.fixture(scope="module")
def strict(start_service: Callable[..., Service]) -> Service:
    """A server that completes no configuration."""
    return start_service("--disable-auto-complete-config")


def test_nothing_is_completed_when_the_server_forbids_it(strict: Service) -> None:
    serve(strict, "full", DOUBLING, config(*ROWS, batch=8))
    assert "dynamic_batching" not in strict.client().config("full")
    assert times(strict.client(), "full", 2.0)


def test_an_incomplete_configuration_is_refused_in_strict_mode(strict: Service) -> None:
    refusal = refused(strict, "inputs", DOUBLING, config([], [Port("y", "FP32", [-1, 4])]))
    assert "input 'x' of model inputs: the model needs it, the configuration lacks it" in refusal
    refusal = refused(strict, "outputs", DOUBLING, config([Port("x", "FP32", [-1, 4])], []))
    assert "the configuration of model outputs has no outputs" in refusal


Y = [Port("y", "FP32", [-1, 4])]
XS = [Port("x", "FP32", [-1, 4])]
SEQUENCE = model("seq(float[n]) x", "float[n] y", "y = ConcatFromSequence<axis = 0>(x)")
MAP = model("float[n,3] x", "seq(map(int64,float)) y", "y = ai.onnx.ml.ZipMap<classlabels_int64s = [1, 2, 3]>(x)")
MAP_IN = model("map(int64,float) x", "float[1,3] y", "y = ai.onnx.ml.DictVectorizer<int64_vocabulary = [1, 2, 3]>(x)")
OPTIONAL = model("optional(float[2]) x", "float[2] y", "y = OptionalGetElement(x)")
FLOAT8 = model("float8e4m3fn[n,4] x", "float[n,4] y", "y = Cast<to = 1>(x)", NEWER)
FLOAT8_OUT = model("float[n,4] x", "float8e4m3fn[n,4] y", "y = Cast<to = 17>(x)", NEWER)
FIXED = model("float[1,4] x", "float[1,4] y", "y = Neg(x)")

REFUSED: dict[str, tuple[bytes, str, str]] = {
    "unknown input": (
        DOUBLING,
        config([*XS, Port("z", "FP32", [4])], Y),
        "input 'z' of model {}: the model has none of that name; it has x",
    ),
    "unknown output": (
        DOUBLING,
        config(XS, [Port("z", "FP32", [4])]),
        "output 'z' of model {}: the model has none of that name; it has y",
    ),
    "missing input": (
        TWO,
        config(XS, Y, extra="# whole"),
        "input 'z' of model {}: the model needs it, the configuration lacks it",
    ),
    "input type": (
        DOUBLING,
        config([Port("x", "INT64", [-1, 4])], Y),
        "input 'x' of model {}: the configuration has type TYPE_INT64, the model TYPE_FP32",
    ),
    "output type": (
        DOUBLING,
        config(XS, [Port("y", "BYTES", [-1, 4])]),
        "output 'y' of model {}: the configuration has type TYPE_STRING, the model TYPE_FP32",
    ),
    "input rank": (
        DOUBLING,
        config([Port("x", "FP32", [4])], Y),
        "input 'x' of model {}: the configuration has the shape [4], the model [-1,4]",
    ),
    "output rank": (
        DOUBLING,
        config(XS, [Port("y", "FP32", [-1, 4, 1])]),
        "output 'y' of model {}: the configuration has the shape [-1,4,1], the model [-1,4]",
    ),
    "input dims": (
        DOUBLING,
        config([Port("x", "FP32", [-1, 5])], Y),
        "input 'x' of model {}: the configuration has the shape [-1,5], the model [-1,4]",
    ),
    "output dims": (
        DOUBLING,
        config([Port("x", "FP32", [4])], [Port("y", "FP32", [3])], batch=8),
        "output 'y' of model {}: the configuration has the shape [-1,3] with the batch dimension, the model [-1,4]",
    ),
    "batch rank": (
        DOUBLING,
        config([Port("x", "FP32", [2, 4])], Y, batch=8),
        "input 'x' of model {}: the configuration has the shape [-1,2,4] with the batch dimension, the model [-1,4]",
    ),
    "reshape": (
        DOUBLING,
        config([Port("x", "FP32", [4], "reshape: { shape: [2, 2] }")], Y, batch=8),
        "input 'x' of model {}: the configuration has the shape [-1,2,2] with the batch dimension, the model [-1,4]",
    ),
    "optional without a default": (
        DOUBLING,
        config([Port("x", "FP32", [-1, 4], "optional: true")], Y),
        "input 'x' of model {}: the configuration makes it optional, but the model has no default for it",
    ),
    "sequence": (
        SEQUENCE,
        config([Port("x", "FP32", [-1])], [Port("y", "FP32", [-1])]),
        "input 'x' of model {}: is a sequence, which Triton does not support",
    ),
    "sequence, completed": (SEQUENCE, NOTHING, "input 'x' of the model is a sequence, which Triton does not support"),
    "map": (MAP_IN, NOTHING, "input 'x' of the model is a map, which Triton does not support"),
    "sequence of maps": (
        MAP,
        config([Port("x", "FP32", [-1, 3])], [Port("y", "FP32", [-1, 3])]),
        "output 'y' of model {}: is a sequence, which Triton does not support; configure y_keys and y_values instead",
    ),
    "optional": (OPTIONAL, NOTHING, "input 'x' of the model is an optional, which Triton does not support"),
    "float8": (
        FLOAT8,
        NOTHING,
        "input 'x' of the model has the ONNX element type FLOAT8E4M3FN, which Triton does not support",
    ),
    "float8 output": (
        FLOAT8_OUT,
        config(XS, [Port("y", "UINT8", [-1, 4])]),
        "output 'y' of model {}: has the ONNX element type FLOAT8E4M3FN, which Triton does not support",
    ),
    "any rank, completed": (
        RANKLESS,
        NOTHING,
        "input 'x' of the model does not declare its shape; write inputs and outputs in config.pbtxt",
    ),
    "ragged": (
        DOUBLING,
        config([Port("x", "FP32", [4], "allow_ragged_batch: true")], [Port("y", "FP32", [4])], batch=8),
        "input 'x' of model {} has allow_ragged_batch, which this backend does not support",
    ),
    "batch input": (
        DOUBLING,
        config(
            *ROWS,
            batch=8,
            extra='batch_input { kind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_INT64 source_input: "x" }',
        ),
        "model {} has batch_input, which this backend does not support",
    ),
    "fixed batch": (
        FIXED,
        config(*ROWS, batch=8),
        "input 'x' of model {}: the configuration has the shape [-1,4] with the batch dimension, the model [1,4]",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_contradiction_to_the_model_is_an_exact_load_error(service: Service, kind: str) -> None:
    file, text, words = REFUSED[kind]
    name = f"refused_{kind.replace(' ', '_').replace(',', '')}"
    assert words.format(name) in refused(service, name, file, text)


def test_a_tensor_of_any_rank_has_the_configured_shape(service: Service) -> None:
    for x in (X.reshape(8), X, X.reshape(2, 2, 2)):
        name = f"rank_{x.ndim}"
        serve(service, name, RANKLESS, config([Port("x", "FP32", [-1] * x.ndim)], [Port("y", "FP32", [-1] * x.ndim)]))
        assert same(service.client().infer(name, {"x": x})["y"], -x)


def test_log_has_onnx_runtimes_messages_with_the_models_name(service: Service) -> None:
    serve(service, "warned", COMPLETED["defaults"][0])
    text = NOTHING + parameters({"session.disable_cpu_ep_fallback": "1"})
    refused(service, "blamed", DOUBLING, text)
    for level, name, words in (("W", "warned", "Initializer bias appears"), ("E", "blamed", "fallback to CPU EP")):
        found = [line for line in service.log().splitlines() if f"ONNX Runtime, {name} 1: " in line and words in line]
        assert {line[0] for line in found} == {level}


def test_instances_on_a_gpu_are_refused(service: Service) -> None:
    text = config(*ROWS, batch=8, extra="instance_group { kind: KIND_GPU }")
    assert "KIND_GPU" in refused(service, "gpu", DOUBLING, text)


@pytest.mark.parametrize("kind", ["KIND_CPU", "KIND_MODEL", "KIND_AUTO"])
def test_other_kinds_of_instances_are_served(service: Service, kind: str) -> None:
    name = f"kind_{kind.lower()}"
    serve(service, name, DOUBLING, config(*ROWS, batch=8, extra=f"instance_group {{ kind: {kind} count: 2 }}"))
    assert times(service.client(), name, 2.0)


def test_a_part_of_the_outputs_may_be_configured_in_another_order(service: Service, client: Client) -> None:
    name = f"part_{client.protocol}"
    file = model("float[n,4] x", "float[n,4] a, float[n,4] b, float[n,4] c", "a = Neg(x) b = Abs(x) c = Add(x, x)")
    serve(service, name, file, config(ROWS[0], [Port("c", "FP32", [4]), Port("a", "FP32", [4])], batch=8))
    answer = client.infer(name, {"x": X})
    assert sorted(answer) == ["a", "c"]
    assert same(answer["a"], -X)
    assert same(answer["c"], X + X)
    assert same(client.infer(name, {"x": X}, ["a"])["a"], -X)


def test_open_dims_may_be_fixed_and_fixed_ones_left_open(service: Service) -> None:
    serve(service, "narrowed", DOUBLING, config([Port("x", "FP32", [2, -1])], [Port("y", "FP32", [-1, -1])]))
    assert times(service.client(), "narrowed", 2.0)
    with pytest.raises(InferenceServerException, match=r"\[2,-1\]"):
        service.client().infer("narrowed", {"x": X[:1]})
    with pytest.raises(InferenceServerException, match="Got: 3 Expected: 4"):
        service.client().infer("narrowed", {"x": np.ones((2, 3), np.float32)})


def test_reshaped_dims_are_those_of_the_model(service: Service, client: Client) -> None:
    name = f"reshaped_{client.protocol}"
    square = "reshape: { shape: [4] }"
    serve(
        service,
        name,
        DOUBLING,
        config([Port("x", "FP32", [2, 2], square)], [Port("y", "FP32", [2, 2], square)], batch=8),
    )
    x = X.reshape(2, 2, 2)
    assert same(client.infer(name, {"x": x})["y"], x + x)


def test_texts_are_completed_and_answered(service: Service, client: Client) -> None:
    name = f"texts_{client.protocol}"
    serve(service, name, model("string[n,m] x", "string[n,m] y", "y = Identity(x)"))
    words = texts(["a", "größer", "", "nul\0inside"], 2, 2)
    assert same(client.infer(name, {"x": words})["y"], words)
