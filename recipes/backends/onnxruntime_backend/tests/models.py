"""Make small ONNX models that the tests serve, and get ONNX Runtime's answers in this process.

Every model has a form that the oldest supported ONNX Runtime accepts: IR version 10, operators of set 21 at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import onnxruntime
from backend_testing.wire import TYPES, Value
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array

__all__ = [
    "ONNX_TYPES",
    "Tensor",
    "answer",
    "build",
    "default_of_a_size",
    "dimensions_disagree",
    "elementwise",
    "failing",
    "identity",
    "joined",
    "kept",
    "lookup",
    "network",
    "numbers",
    "optional_inputs",
    "passed_through",
    "same_words",
    "several_outputs",
    "shouted",
    "slow",
    "subtract",
    "turned",
]

ONNX_TYPES: dict[str, int] = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}
"""Triton's types with the element type of ONNX for each."""

Dims: TypeAlias = Sequence[int | str | None]
PLANE: Dims = ("N", "M")


class Tensor(NamedTuple):
    """An input or output of a model: name, type such as `FP32`, dimensions as numbers, names or None."""

    name: str
    datatype: str
    dims: Dims

    def info(self) -> ValueInfoProto:
        """Return its entry in the model's file."""
        return make_tensor_value_info(self.name, ONNX_TYPES[self.datatype], list(self.dims))


def build(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    constants: Mapping[str, Value] | None = None,
) -> bytes:
    """Return the bytes of a model file; a constant with the name of an input is the default of that input."""
    initializers = [from_array(array, name) for name, array in (constants or {}).items()]
    graph = make_graph(
        nodes, "tested", [each.info() for each in inputs], [each.info() for each in outputs], initializers
    )
    content: bytes = _model(graph).SerializeToString()
    return content


def _model(graph: GraphProto) -> ModelProto:
    return make_model(graph, ir_version=10, opset_imports=[make_opsetid("", 21)])


@lru_cache(maxsize=64)
def _session(model: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def answer(model: bytes, request: Mapping[str, Value], outputs: Sequence[str] | None = None) -> dict[str, Value]:
    """Return ONNX Runtime's answer in this process; its Python interface does not support BYTES and BF16."""
    session = _session(model)
    names = list(outputs or [each.name for each in session.get_outputs()])
    return dict(zip(names, session.run(names, dict(request)), strict=True))


def numbers(datatype: str, *shape: int, seed: int = 0) -> Value:
    """Return values of the whole range of a type; real types include infinities, NaN and -0, BYTES any bytes."""
    chance = np.random.default_rng(seed + sum(shape))
    dtype = TYPES[datatype]
    if datatype == "BOOL":
        return chance.integers(0, 2, shape).astype(dtype)
    count = int(np.prod(shape))
    if datatype == "BYTES":
        result = np.empty(count, np.object_)
        result[:] = [chance.bytes(int(size)) for size in chance.integers(0, 40, count)]
        return result.reshape(shape)
    if datatype not in ("BF16", "FP16", "FP32", "FP64"):
        return np.frombuffer(chance.bytes(count * dtype.itemsize), dtype).reshape(shape)
    real = chance.standard_normal(count).astype(dtype)
    special = np.array([np.nan, -np.inf, -0.0, np.inf, np.finfo(np.float16).smallest_subnormal, 1.5]).astype(dtype)
    real[: min(count // 2, 6)] = special[: min(count // 2, 6)]
    return real.reshape(shape)


def identity(datatype: str, dims: Dims = PLANE) -> bytes:
    """Return y = x."""
    return build([make_node("Identity", ["x"], ["y"])], [Tensor("x", datatype, dims)], [Tensor("y", datatype, dims)])


def turned(datatype: str) -> bytes:
    """Return the transposed matrix."""
    x, y = Tensor("x", datatype, PLANE), Tensor("y", datatype, ["M", "N"])
    return build([make_node("Transpose", ["x"], ["y"])], [x], [y])


def joined(datatype: str, *, rows: str | int = "K", dims: Dims = PLANE) -> bytes:
    """Return x after x; `rows` names the rows of the result, correctly or not."""
    x, y = Tensor("x", datatype, dims), Tensor("y", datatype, [rows, *dims[1:]])
    return build([make_node("Concat", ["x", "x"], ["y"], axis=0)], [x], [y])


def elementwise(datatype: str, dims: Dims = PLANE) -> bytes:
    """Return a computation that ONNX Runtime has for the type: x + x, or all bits inverted for integers."""
    operator = "Not" if datatype == "BOOL" else "BitwiseNot" if "INT" in datatype else "Add"
    node = make_node(operator, ["x", "x"] if operator == "Add" else ["x"], ["y"])
    return build([node], [Tensor("x", datatype, dims)], [Tensor("y", datatype, dims)])


def subtract(dims: Dims = PLANE) -> bytes:
    """Return left - 2 * right: the order matters."""
    nodes = [make_node("Add", ["right", "right"], ["twice"]), make_node("Sub", ["left", "twice"], ["difference"])]
    inputs = [Tensor("left", "FP32", dims), Tensor("right", "FP32", dims)]
    return build(nodes, inputs, [Tensor("difference", "FP32", dims)])


def several_outputs() -> bytes:
    """Return outputs of three types and two ranks: x + 1, row sums, which numbers are positive, and a constant."""
    nodes = [
        make_node("Add", ["x", "one"], ["more"]),
        make_node("ReduceSum", ["x", "last"], ["sums"], keepdims=0),
        make_node("Greater", ["x", "zero"], ["above"]),
    ]
    outputs = [
        Tensor("more", "FP32", PLANE),
        Tensor("sums", "FP32", ["N"]),
        Tensor("above", "BOOL", PLANE),
        Tensor("one", "FP32", [1]),
    ]
    constants: dict[str, Value] = {
        "one": np.ones(1, np.float32),
        "zero": np.zeros(1, np.float32),
        "last": np.array([1], np.int64),
    }
    return build(nodes, [Tensor("x", "FP32", PLANE)], outputs, constants)


def optional_inputs() -> bytes:
    """Return x * scale + bias; only x has no default."""
    nodes = [make_node("Mul", ["x", "scale"], ["scaled"]), make_node("Add", ["scaled", "bias"], ["y"])]
    row: Dims = ["B", 4]
    inputs = [Tensor("x", "FP32", ["N", 4]), Tensor("bias", "FP32", row), Tensor("scale", "FP32", row)]
    constants = {"bias": np.full((1, 4), 0.5, np.float32), "scale": np.full((1, 4), 3, np.float32)}
    return build(nodes, inputs, [Tensor("y", "FP32", ["N", 4])], constants)


def default_of_a_size() -> bytes:
    """Return both inputs negated; one has a default, whose size is that of an output if it is not given."""
    nodes = [make_node("Neg", ["x"], ["y"]), make_node("Neg", ["more"], ["z"])]
    inputs = [Tensor("x", "FP32", ["N"]), Tensor("more", "FP32", ["K"])]
    outputs = [Tensor("y", "FP32", ["N"]), Tensor("z", "FP32", ["K"])]
    return build(nodes, inputs, outputs, {"more": np.array([1, 2, 3], np.float32)})


def shouted(dims: Dims = PLANE) -> bytes:
    """Return each text with an exclamation mark."""
    node = make_node("StringConcat", ["words", "mark"], ["loud"])
    constants: dict[str, Value] = {"mark": np.array(["!"], np.object_)}
    return build([node], [Tensor("words", "BYTES", dims)], [Tensor("loud", "BYTES", dims)], constants)


def same_words() -> bytes:
    """Return which strings are equal, and double a number for each: strings and numbers in one model."""
    nodes = [make_node("Equal", ["left", "right"], ["equal"]), make_node("Add", ["x", "x"], ["y"])]
    inputs = [Tensor("left", "BYTES", ["N"]), Tensor("x", "FP32", ["M"]), Tensor("right", "BYTES", ["N"])]
    return build(nodes, inputs, [Tensor("y", "FP32", ["M"]), Tensor("equal", "BOOL", ["N"])])


def kept(datatype: str = "FP32", rows: str | int = "N") -> bytes:
    """Return the numbers above zero; the model declares as many as came in, or a fixed number."""
    nodes = [
        make_node("Greater", ["x", "zero"], ["above"]),
        make_node("Compress", ["x", "above"], ["y"], axis=0),
    ]
    zero = np.zeros(1, TYPES[datatype])
    return build(nodes, [Tensor("x", datatype, ["N"])], [Tensor("y", datatype, [rows])], {"zero": zero})


def dimensions_disagree(operator: str = "Neg") -> bytes:
    """Return an operator of each input; the model declares that they have the same size."""
    nodes = [make_node(operator, ["left"], ["minus"]), make_node(operator, ["right"], ["other"])]
    inputs = [Tensor("left", "FP32", ["N"]), Tensor("right", "FP32", ["N"])]
    return build(nodes, inputs, [Tensor("minus", "FP32", ["N"]), Tensor("other", "FP32", ["N"])])


def slow() -> bytes:
    """Return `rounds` of each row as FP32, counted one by one in a loop as long as the longest row needs."""
    body = make_graph(
        [
            make_node("Less", ["round", "rounds"], ["going"]),
            make_node("Cast", ["going"], ["step"], to=TensorProto.FLOAT),
            make_node("Add", ["count", "step"], ["counted"]),
            make_node("Identity", ["goes"], ["goes_on"]),
        ],
        "body",
        [
            make_tensor_value_info("round", TensorProto.INT64, []),
            make_tensor_value_info("goes", TensorProto.BOOL, []),
            make_tensor_value_info("count", TensorProto.FLOAT, ["N", 1]),
        ],
        [
            make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            make_tensor_value_info("counted", TensorProto.FLOAT, ["N", 1]),
        ],
    )
    nodes = [
        make_node("ReduceMax", ["rounds"], ["longest"], keepdims=0),
        make_node("Shape", ["rounds"], ["shape"]),
        make_node("ConstantOfShape", ["shape"], ["zeros"]),
        make_node("Loop", ["longest", "", "zeros"], ["counted_all"], body=body),
        make_node("Identity", ["counted_all"], ["y"]),
    ]
    return build(nodes, [Tensor("rounds", "INT64", ["N", 1])], [Tensor("y", "FP32", ["N", 1])])


def lookup() -> bytes:
    """Return the squares of whole numbers below 100 from a table; any other number makes it fail."""
    table = np.arange(100, dtype=np.float32) ** 2
    node = make_node("Gather", ["table", "x"], ["y"])
    return build([node], [Tensor("x", "INT64", PLANE)], [Tensor("y", "FP32", PLANE)], {"table": table})


def failing() -> bytes:
    """Return zeros of one shape in another shape; fail if the shapes do not match or there are too many zeros."""
    nodes = [make_node("ConstantOfShape", ["shape"], ["zeros"]), make_node("Reshape", ["zeros", "other"], ["y"])]
    inputs = [Tensor("shape", "INT64", ["R"]), Tensor("other", "INT64", ["S"])]
    return build(nodes, inputs, [Tensor("y", "FP32", [None, None])])


def network(seed: int = 1) -> bytes:
    """Return a network of two layers, 8 numbers in and 4 that add up to 1 out."""
    chance = np.random.default_rng(seed)
    constants = {
        "weight": chance.standard_normal((8, 16)).astype(np.float32),
        "bias": chance.standard_normal(16).astype(np.float32),
        "last": chance.standard_normal((16, 4)).astype(np.float32),
    }
    nodes = [
        make_node("Gemm", ["x", "weight", "bias"], ["hidden"]),
        make_node("Relu", ["hidden"], ["active"]),
        make_node("MatMul", ["active", "last"], ["scores"]),
        make_node("Softmax", ["scores"], ["y"], axis=-1),
    ]
    return build(nodes, [Tensor("x", "FP32", ["N", 8])], [Tensor("y", "FP32", ["N", 4])], constants)


def passed_through() -> bytes:
    """Return x unchanged and a computation with it: the output is the input itself."""
    x = Tensor("x", "FP32", PLANE)
    return build([make_node("Neg", ["x"], ["y"])], [x], [x, Tensor("y", "FP32", PLANE)])
