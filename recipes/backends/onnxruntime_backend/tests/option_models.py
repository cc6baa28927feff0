"""Provide models for the tests of configuration and options, as bytes of their files, and helpers of these tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from backend_testing.repository import File, Port
from backend_testing.repository import config as any_config
from backend_testing.server import Service
from backend_testing.wire import Client, same
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper, parser, save_model

__all__ = [
    "DOUBLING",
    "HEADER",
    "NOTHING",
    "RANKLESS",
    "ROWS",
    "SPREADING",
    "TWICE",
    "X",
    "bundled",
    "config",
    "heavy",
    "ladder",
    "model",
    "parsed",
    "ports",
    "removed",
    "serve",
    "times",
    "weighted",
]

# Versions that the oldest supported ONNX Runtime accepts.
HEADER = 'ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]'

config = partial(any_config, "onnxruntime")
"""A config.pbtxt for the backend: inputs, outputs, `batch`, `extra`."""


NOTHING = 'backend: "onnxruntime"\n'
"""A config.pbtxt that leaves everything to completion."""

X = np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)
ROWS = ([Port("x", "FP32", [4])], [Port("y", "FP32", [4])])
"""Two rows of four, and the ports of a model of such rows."""


def parsed(inputs: str, outputs: str, body: str, header: str = HEADER) -> ModelProto:
    """Return a model from ONNX's text form: `float[n,4] x`, `float[n,4] y`, `y = Add(x, x)`."""
    return parser.parse_model(f"<{header}> graph ({inputs}) => ({outputs}) {{ {body} }}")


def model(inputs: str, outputs: str, body: str, header: str = HEADER) -> bytes:
    """Return the file of a model in ONNX's text form."""
    return _file(parsed(inputs, outputs, body, header))


def _file(made: ModelProto, **constants: NDArray[Any]) -> bytes:
    """Return the file of a model with more constants."""
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    return bytes(made.SerializeToString())


DOUBLING = model("float[n,4] x", "float[n,4] y", "y = Add(x, x)")
"""x (rows of four) to y = 2 x."""

TWICE = model(
    "float[n,4] x", "float[n,4] y", "y = macbuild.test.Twice(x)", 'ir_version: 8, opset_import: ["macbuild.test": 1]'
)
"""The same with the operator of tests/custom_op."""

SPREADING = model(
    "float[1] x, int64[1] count", "float y", "a = Expand(x, count) b = Neg(a) y = ReduceSum<keepdims = 0>(b)"
)
"""x to y = -count x, through two tensors of `count` elements."""


def _rankless() -> bytes:
    made = parsed("float x", "float y", "y = Neg(x)")
    for port in (made.graph.input[0], made.graph.output[0]):
        port.type.tensor_type.ClearField("shape")
    return _file(made)


RANKLESS = _rankless()
"""x to y = -x; the model does not declare their number of dimensions."""


def weighted(weight: float) -> bytes:
    """Return a model of x (rows of four) to y = weight x."""
    body = "y = Mul(x, weight)"
    return _file(parsed("float[n,4] x", "float[n,4] y", body), weight=np.array(weight, np.float32))


def heavy(elements: int) -> bytes:
    """Return a model that adds x, one number, to the numbers 0 to elements - 1."""
    made = parsed("float[1] x", f"float[{elements}] y", "y = Add(x, table)")
    return _file(made, table=np.arange(elements, dtype=np.float32))


def ladder() -> bytes:
    """Return a model of x to y, both n x 16 x 8 x 8, that each level of graph optimization changes differently.

    The basic level removes a node, the extended one fuses five, and all of them change the layout between two nodes.
    """
    body = """
        same = Identity(x)
        first = Conv<pads = [1, 1, 1, 1]>(same, weight)
        scaled = Div(first, root)
        erf = Erf(scaled)
        shifted = Add(erf, one)
        product = Mul(first, shifted)
        gelu = Mul(product, half)
        y = Conv<pads = [1, 1, 1, 1]>(gelu, weight)
    """
    made = parsed("float[n,16,8,8] x", "float[n,16,8,8] y", body)
    weight = np.random.default_rng(7).standard_normal((16, 16, 3, 3), np.float32)
    numbers = {name: np.array(value, np.float32) for name, value in {"root": 2**0.5, "one": 1, "half": 0.5}.items()}
    return _file(made, weight=weight, **numbers)


def bundled(weights: NDArray[np.float32], name: str = "model.onnx") -> Callable[[Path], None]:
    """Return a function that writes a folder with a model that multiplies by weights, and the file of the weights."""

    def write(folder: Path) -> None:
        made = parsed(f"float[n,{weights.size}] x", f"float[n,{weights.size}] y", "y = Mul(x, weight)")
        made.graph.initializer.append(numpy_helper.from_array(weights, "weight"))
        folder.mkdir(exist_ok=True)
        save_model(made, folder / name, save_as_external_data=True, location="weights.bin", size_threshold=0)

    return write


def ports(entries: Sequence[dict[str, Any]]) -> list[tuple[str, str, list[int]]]:
    """Return name, type and dimensions of the inputs or outputs of a completed configuration."""
    return [(each["name"], each["data_type"], [int(size) for size in each["dims"]]) for each in entries]


def removed(service: Service, name: str) -> None:
    """Unload a model and wait until its sessions are gone too, which happens after it stops being ready."""
    service.unload(name)
    end = time.monotonic() + 60
    while f"successfully unloaded '{name}'" not in service.log():
        assert time.monotonic() < end, f"{name} is not removed after a minute"
        time.sleep(0.02)


def serve(service: Service, name: str, files: Mapping[str, File] | bytes, text: str | None = NOTHING) -> None:
    """Write and load a model."""
    paths = {"1/model.onnx": files} if isinstance(files, bytes) else files
    service.repository.add(name, paths, text)
    service.load(name)


def times(client: Client, name: str, weight: float, version: str = "") -> bool:
    """Return whether a model multiplies by a weight."""
    return same(client.infer(name, {"x": X}, version=version)["y"], X * np.float32(weight))
