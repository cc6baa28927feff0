"""Test that the locations of external data are found wherever a model may have a tensor, and in damaged files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto
from test_api import check

LOCATION = "../else where/größer.bin"


def tensor() -> TensorProto:
    """Return a tensor with external data."""
    made = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, text in (("offset", "0"), ("location", LOCATION), ("length", "16")):
        made.external_data.add(key=key, value=text)
    return made


def node(**attribute: Any) -> NodeProto:
    """Return a node with one attribute."""
    return NodeProto(op_type="Any", attribute=[AttributeProto(name="a", **attribute)])


def graph(*nodes: NodeProto, **fields: Any) -> ModelProto:
    """Return a model with a graph."""
    return ModelProto(ir_version=10, graph=GraphProto(name="g", node=nodes, **fields))


def nested(depth: int) -> ModelProto:
    """Return a model with graphs in graphs."""
    inner = GraphProto(initializer=[tensor()])
    for _ in range(depth):
        inner = GraphProto(node=[node(g=inner)])
    return ModelProto(graph=inner)


def _training(field: str) -> ModelProto:
    made = ModelProto()
    getattr(made.training_info.add(), field).initializer.append(tensor())
    return made


SPARSE = SparseTensorProto(values=tensor(), dims=[4])
PLACES: dict[str, Callable[[], ModelProto]] = {
    "initializer": lambda: graph(initializer=[tensor()]),
    "sparse initializer": lambda: graph(sparse_initializer=[SPARSE]),
    "sparse indices": lambda: graph(sparse_initializer=[SparseTensorProto(indices=tensor())]),
    "attribute": lambda: graph(node(t=tensor())),
    "attribute with several": lambda: graph(node(tensors=[TensorProto(), tensor()])),
    "sparse attribute": lambda: graph(node(sparse_tensor=SPARSE)),
    "sparse attribute with several": lambda: graph(node(sparse_tensors=[SPARSE])),
    "inner graph": lambda: nested(5),
    "inner graphs": lambda: graph(node(graphs=[GraphProto(initializer=[tensor()])])),
    "function": lambda: ModelProto(functions=[FunctionProto(name="f", node=[node(t=tensor())])]),
    "default of a function": lambda: ModelProto(
        functions=[FunctionProto(attribute_proto=[AttributeProto(name="a", t=tensor())])]
    ),
    "training": lambda: _training("initialization"),
    "training algorithm": lambda: _training("algorithm"),
}


def locations(content: bytes, path: Path) -> list[str]:
    """Return the locations that the backend finds in a file."""
    path.write_bytes(content)
    return check("locations", path).splitlines()


@pytest.mark.parametrize("place", PLACES)
def test_a_location_is_found_in_each_place(tmp_path: Path, place: str) -> None:
    assert locations(PLACES[place]().SerializeToString(), tmp_path / "model.onnx") == [LOCATION]


def test_each_location_is_found_once_and_other_texts_are_not(tmp_path: Path) -> None:
    made = graph(initializer=[tensor(), tensor()], doc_string="location")
    made.metadata_props.add(key="location", value="no")
    other = tensor()
    other.external_data[1].value = "b.bin"
    made.graph.initializer.append(other)
    assert locations(made.SerializeToString(), tmp_path / "model.onnx") == [LOCATION, "b.bin"]


def test_large_weights_in_the_file_are_skipped(tmp_path: Path) -> None:
    made = graph(initializer=[TensorProto(raw_data=bytes(range(256)) * 40000), tensor()])
    assert locations(made.SerializeToString(), tmp_path / "model.onnx") == [LOCATION]


def test_damaged_files_are_read_without_harm(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for content in (b"", b"\x3a", b"\xff" * 40, b"\x3a\xff\xff\xff\xff\x0f\x00"):
        assert locations(content, path) == []
    path.write_bytes(PLACES["inner graph"]().SerializeToString())
    trials, found = check("damage", path).split()
    assert int(trials) > 1000
    assert 0 < int(found) < int(trials)


def test_a_graph_too_deep_for_the_library_is_not_followed(tmp_path: Path) -> None:
    assert locations(nested(30).SerializeToString(), tmp_path / "model.onnx") == [LOCATION]
    deep = b""
    for at in range(3000):
        size, rest = bytearray(), len(deep)
        while rest > 127:
            size.append(rest & 127 | 128)
            rest >>= 7
        size.append(rest)
        deep = (b"\x32" if at % 2 else b"\x0a") + bytes(size) + deep
    assert locations(deep, tmp_path / "model.onnx") == []
