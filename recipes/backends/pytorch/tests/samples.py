"""Define models with their configuration and requests; PyTorch's answer in this process is the expected result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch
from backend_testing.repository import Port, parameters
from modules import config, scripted, traced
from torch import Tensor
from torch.jit import ScriptModule
from wire import TYPES, Value

__all__ = ["FORMS", "TYPED", "Sample", "numbers"]

Request: TypeAlias = Mapping[str, Value]


def numbers(datatype: str, *shape: int, seed: int = 0) -> Tensor:
    """Return a tensor with numbers of the whole range of its type; real types include infinities, NaN and -0."""
    dtype = TYPES[datatype]
    generator = torch.Generator().manual_seed(seed + sum(shape))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point:
        result = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        special = torch.tensor([float("nan"), float("-inf"), -0.0, float("inf"), 1e-41, 1.5], dtype=dtype)
        flat = result.view(-1)
        flat[: min(flat.numel() // 2, 6)] = special[: min(flat.numel() // 2, 6)]
        return result
    size = torch.empty(0, dtype=dtype).element_size()
    some = torch.randint(0, 256, (*shape, size), generator=generator, dtype=torch.uint8)
    return some.view(dtype).squeeze(-1)


@dataclass(frozen=True)
class Sample:
    """One model for the comparison with PyTorch.

    `call` runs the module on a request as a Python program would and returns the outputs by name; the default
    passes the inputs in the order of `arguments` (default: of the configuration).
    """

    name: str
    build: Callable[[], ScriptModule]
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    requests: Sequence[Request]
    call: Callable[[Any, Request], Any] | None = None
    batch: int = 0
    extra: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()

    @cached_property
    def module(self) -> ScriptModule:
        """The module as TorchScript."""
        return self.build()

    def text(self) -> str:
        """Return the configuration."""
        return config(self.inputs, self.outputs, batch=self.batch, extra=self.extra + parameters(self.settings))

    def expected(self, request: Request) -> dict[str, Value]:
        """Return PyTorch's own answer, by output name."""
        names = [port.name for port in self.outputs]
        with torch.inference_mode():
            if self.call is not None:
                result = self.call(self.module, request)
            else:
                result = self.module(*[request[name] for name in self.arguments or [port.name for port in self.inputs]])
        if isinstance(result, dict):
            return result
        several = isinstance(result, tuple) or (isinstance(result, list) and not isinstance(result[0], str))
        return dict(zip(names, result if several else [result], strict=True))


def _typed(datatype: str) -> list[Sample]:
    name = datatype.lower()
    port = Port("x", datatype, [-1, -1])
    shapes = [numbers(datatype, *shape) for shape in ((3, 5), (1, 1), (0, 4), (64, 33))]
    module = "Negation" if datatype == "BOOL" else "Arithmetic"
    turned = [numbers(datatype, *shape) for shape in ((3, 5), (2, 0))]
    return [
        Sample(
            f"type_{name}",
            lambda: scripted(module),
            [port],
            [port._replace(name="y")],
            [{"x": tensor} for tensor in shapes],
        ),
        Sample(
            f"turned_{name}",
            lambda: scripted("Transposed"),
            [port],
            [port._replace(name="y")],
            [{"x": tensor} for tensor in turned],
        ),
    ]


TYPED = [sample for datatype in TYPES for sample in _typed(datatype)]
"""Every data type through a computation and through a non-contiguous view."""

_WORDS = ["one", "", "größer", "two words", "日本語 \N{GRINNING FACE}", "x" * 5000]


def _pairs(left: str, right: str) -> list[Request]:
    return [
        {left: numbers("FP32", *shape), right: numbers("FP32", *shape, seed=1)} for shape in ((2, 3), (1, 1), (0, 3))
    ]


def _reals(name: str, *shape: int, count: int = 2, batch: bool = False) -> list[Request]:
    """Return requests with ordinary numbers; the first dimension grows if it is a batch."""
    generator = torch.Generator().manual_seed(sum(shape))
    sizes = [(index + 1 if batch else shape[0], *shape[1:]) for index in range(count)]
    return [{name: torch.randn(size, generator=generator)} for size in sizes]


def _port(name: str, *dims: int, datatype: str = "FP32", extra: str = "") -> Port:
    return Port(name, datatype, dims, extra)


_PLANE = (-1, -1)

INPUT_FORMS = [
    Sample(
        "input_arguments",
        lambda: scripted("Subtract"),
        [_port("right", *_PLANE), _port("left", *_PLANE)],
        [_port("difference", *_PLANE)],
        _pairs("left", "right"),
        arguments=["left", "right"],
    ),
    Sample(
        "input_numbered",
        lambda: scripted("Subtract"),
        [_port("INPUT__1", *_PLANE), _port("INPUT__0", *_PLANE)],
        [_port("OUTPUT__0", *_PLANE)],
        _pairs("INPUT__0", "INPUT__1"),
        arguments=["INPUT__0", "INPUT__1"],
    ),
    Sample(
        "input_traced",
        lambda: traced("Subtract", torch.ones(2, 2), torch.ones(2, 2)),
        [_port("right", *_PLANE), _port("left", *_PLANE)],
        [_port("difference", *_PLANE)],
        _pairs("left", "right"),
        arguments=["left", "right"],
    ),
    Sample(
        "input_dictionary",
        lambda: scripted("ByName"),
        [_port("subtrahend", *_PLANE), _port("minuend", *_PLANE)],
        [_port("difference", *_PLANE)],
        _pairs("minuend", "subtrahend"),
        call=lambda module, request: module(dict(request)),
    ),
    Sample(
        "input_list",
        lambda: scripted("ByList"),
        [_port("INPUT__2", *_PLANE), _port("INPUT__0", *_PLANE), _port("INPUT__1", *_PLANE)],
        [_port("OUTPUT__0", *_PLANE)],
        [{f"INPUT__{index}": numbers("FP32", 2, 3, seed=index) for index in range(3)}],
        call=lambda module, request: module([request[f"INPUT__{index}"] for index in range(3)]),
    ),
    Sample(
        "input_optional",
        lambda: scripted("Optionals"),
        [
            _port("x", *_PLANE),
            _port("bias", *_PLANE, extra="optional: true"),
            _port("scale", *_PLANE, extra="optional: true"),
        ],
        [_port("y", *_PLANE)],
        [
            {name: numbers("FP32", 2, 3, seed=index) for index, name in enumerate(names)}
            for names in (["x"], ["x", "bias"], ["x", "scale"], ["scale", "bias", "x"])
        ],
        call=lambda module, request: module(**request),
    ),
    Sample(
        "input_numbers",
        lambda: scripted("Numbers"),
        [
            _port("x", -1),
            _port("count", 1, datatype="INT32"),
            _port("factor", 1, datatype="FP64"),
            _port("negate", 1, datatype="BOOL", extra="optional: true"),
        ],
        [_port("y", -1)],
        [
            {
                "x": numbers("FP32", 4),
                "count": torch.tensor([3], dtype=torch.int32),
                "factor": torch.tensor([0.1]).double(),
            },
            {
                "x": numbers("FP32", 4),
                "count": torch.tensor([-1], dtype=torch.int32),
                "factor": torch.tensor([2.0]).double(),
                "negate": torch.tensor([True]),
            },
        ],
        call=lambda module, request: module(
            **{name: given if name == "x" else given.item() for name, given in request.items()}  # type: ignore[union-attr]
        ),
    ),
    Sample(
        "input_tensor_and_list",
        lambda: scripted("TensorAndList"),
        [_port("rest__1", -1), _port("x", -1), _port("rest__0", -1)],
        [_port("y", -1)],
        [{name: numbers("FP32", 4, seed=seed) for seed, name in enumerate(["x", "rest__0", "rest__1"])}],
        call=lambda module, request: module(request["x"], [request["rest__0"], request["rest__1"]]),
    ),
    Sample(
        "input_by_order",
        lambda: scripted("Subtract"),
        [_port("first", *_PLANE), _port("second", *_PLANE)],
        [_port("difference", *_PLANE)],
        _pairs("first", "second"),
    ),
    Sample(
        "input_large",
        lambda: scripted("Subtract"),
        [_port("left", *_PLANE), _port("right", *_PLANE)],
        [_port("difference", *_PLANE)],
        [{"left": numbers("FP32", 1500, 1000), "right": numbers("FP32", 1500, 1000, seed=1)}],
    ),
    Sample(
        "input_left_out_of_the_configuration",
        lambda: scripted("Optionals"),
        [_port("x", *_PLANE)],
        [_port("y", *_PLANE)],
        [{"x": numbers("FP32", 2, 3)}],
    ),
    Sample(
        "input_fixed",
        lambda: scripted("Subtract"),
        [_port("left", 2, 3), _port("right", 2, 3)],
        [_port("difference", 2, 3)],
        [{"left": numbers("FP32", 2, 3), "right": numbers("FP32", 2, 3, seed=1)}],
    ),
    Sample(
        "input_reshape",
        lambda: scripted("Arithmetic"),
        [_port("x", 6, extra="reshape: { shape: [2, 3] }")],
        [_port("y", 2, 3)],
        [{"x": numbers("FP32", 6)}],
        call=lambda module, request: module(request["x"].reshape(2, 3)),  # type: ignore[union-attr]
    ),
    Sample(
        "input_words",
        lambda: scripted("Shout"),
        [_port("words", -1, datatype="BYTES")],
        [_port("loud", -1, datatype="BYTES")],
        [{"words": _WORDS}, {"words": ["single"]}, {"words": [""]}],
    ),
    Sample(
        "input_words_and_tensor",
        lambda: scripted("Lengths"),
        [_port("factor", 1, datatype="INT64"), _port("words", -1, datatype="BYTES")],
        [_port("lengths", -1, datatype="INT64")],
        [{"words": _WORDS, "factor": torch.tensor([7])}],
        arguments=["words", "factor"],
    ),
    Sample(
        "input_two_kinds",
        lambda: scripted("Recurrent"),
        [_port("steps", -1, -1, 4), _port("count", 1, datatype="INT32")],
        [_port("state", -1, 6)],
        [
            {"steps": torch.linspace(-1, 1, 40).reshape(2, 5, 4), "count": torch.tensor([count], dtype=torch.int32)}
            for count in (0, 1, 5)
        ],
    ),
]

OUTPUT_FORMS = [
    Sample(
        "output_tuple",
        lambda: scripted("Tuple"),
        [_port("x", *_PLANE)],
        [_port("OUTPUT__0", *_PLANE), _port("OUTPUT__1", -1), _port("OUTPUT__2", *_PLANE, datatype="BOOL")],
        _reals("x", 3, 4),
    ),
    Sample(
        "output_tuple_by_order",
        lambda: scripted("Tuple"),
        [_port("x", *_PLANE)],
        [_port("more", *_PLANE), _port("sums", -1), _port("above", *_PLANE, datatype="BOOL")],
        _reals("x", 3, 4),
    ),
    Sample(
        "output_numbered_out_of_order",
        lambda: scripted("Tuple"),
        [_port("x", *_PLANE)],
        [_port("OUTPUT__2", *_PLANE, datatype="BOOL"), _port("OUTPUT__0", *_PLANE)],
        _reals("x", 3, 4),
        call=lambda module, request: dict(zip(["OUTPUT__0", "gone", "OUTPUT__2"], module(request["x"]), strict=True)),
    ),
    Sample(
        "output_list",
        lambda: scripted("ListOut"),
        [_port("x", *_PLANE)],
        [_port(f"OUTPUT__{index}", *_PLANE) for index in range(3)],
        _reals("x", 3, 4),
    ),
    Sample(
        "output_dictionary",
        lambda: scripted("DictOut"),
        [_port("x", *_PLANE)],
        [_port("apple", *_PLANE), _port("zebra", *_PLANE)],
        _reals("x", 3, 4),
    ),
    Sample(
        "output_named",
        lambda: scripted("NamedOut"),
        [_port("x", *_PLANE)],
        [_port("largest", -1), _port("total", -1)],
        _reals("x", 3, 4),
        call=lambda module, request: module(request["x"])._asdict(),
    ),
    Sample(
        "output_int",
        lambda: scripted("IntOut"),
        [_port("x", -1, datatype="INT64")],
        [_port("y", 1, datatype="INT64")],
        [{"x": torch.tensor([1, 2, 3])}, {"x": torch.tensor([-(2**61)])}],
        call=lambda module, request: torch.tensor([module(request["x"])]),
    ),
    Sample(
        "output_float",
        lambda: scripted("FloatOut"),
        [_port("x", -1)],
        [_port("y", 1, datatype="FP64")],
        _reals("x", 5),
        call=lambda module, request: torch.tensor([module(request["x"])], dtype=torch.float64),
    ),
    Sample(
        "output_bool",
        lambda: scripted("BoolOut"),
        [_port("x", -1)],
        [_port("y", 1, datatype="BOOL")],
        [{"x": torch.ones(2)}, {"x": -torch.ones(2)}],
        call=lambda module, request: torch.tensor([module(request["x"])]),
    ),
    Sample(
        "output_scalars",
        lambda: scripted("Scalars"),
        [_port("x", -1)],
        [
            _port("count", 1, datatype="INT64"),
            _port("sum", 1, datatype="FP64"),
            _port("above", 1, datatype="BOOL"),
            _port("more", -1),
        ],
        _reals("x", 5),
        call=lambda module, request: _scalars(*module(request["x"])),
    ),
    Sample(
        "output_without_dimensions",
        lambda: scripted("ZeroRank"),
        [_port("x", -1)],
        [_port("y", 1)],
        _reals("x", 5),
        call=lambda module, request: module(request["x"]).reshape(1),
    ),
    Sample(
        "output_nested_names",
        lambda: scripted("Nested"),
        [_port("x", *_PLANE)],
        [_port("plain", *_PLANE), _port("inner.largest", -1), _port("inner.total", -1)],
        _reals("x", 3, 4),
        call=lambda module, request: _nested(module(request["x"])),
    ),
    Sample(
        "output_nested_in_order",
        lambda: scripted("NestedTuple"),
        [_port("x", -1)],
        [_port(f"OUTPUT__{index}", -1) for index in (3, 2, 1, 0)],
        _reals("x", 4),
        call=lambda _module, request: {
            f"OUTPUT__{index}": request["x"] + index  # type: ignore[operator]
            for index in range(4)
        },
    ),
    Sample(
        "output_number_lists",
        lambda: scripted("IntList"),
        [_port("x", -1, datatype="INT32")],
        [_port("whole", -1, datatype="INT64"), _port("real", -1, datatype="FP64")],
        [{"x": torch.tensor([1, -7, 2**31 - 1], dtype=torch.int32)}, {"x": torch.tensor([], dtype=torch.int32)}],
        call=lambda module, request: _lists(*module(request["x"])),
    ),
    Sample(
        "output_words",
        lambda: scripted("Describe"),
        [_port("x", -1)],
        [_port("words", -1, datatype="BYTES"), _port("absolute", -1)],
        _reals("x", 5),
    ),
]


def _scalars(count: int, total: float, above: bool, more: Tensor) -> dict[str, Value]:
    return {
        "count": torch.tensor([count]),
        "sum": torch.tensor([total], dtype=torch.float64),
        "above": torch.tensor([above]),
        "more": more,
    }


def _nested(result: Any) -> dict[str, Value]:
    return {"plain": result.plain, "inner.total": result.inner.total, "inner.largest": result.inner.largest}


def _lists(whole: list[int], real: list[float]) -> dict[str, Value]:
    return {"whole": torch.tensor(whole, dtype=torch.int64), "real": torch.tensor(real, dtype=torch.float64)}


NETWORKS = [
    Sample(
        "network_mlp",
        lambda: scripted("Mlp"),
        [_port("x", 8)],
        [_port("y", 4)],
        _reals("x", 1, 8, count=4, batch=True),
        batch=8,
    ),
    Sample(
        "network_convolution",
        lambda: traced("Convolution", torch.zeros(1, 3, 8, 8)),
        [_port("image", 3, -1, -1)],
        [_port("y", 32)],
        [*_reals("image", 1, 3, 8, 8, count=2, batch=True), *_reals("image", 1, 3, 13, 7, count=1, batch=True)],
        batch=4,
    ),
    Sample(
        "network_eval_mode",
        lambda: scripted("Dropout").train(),
        [_port("x", -1)],
        [_port("y", -1)],
        _reals("x", 100),
        call=lambda _module, request: request["x"],
    ),
    Sample(
        "network_no_gradients",
        lambda: scripted("GradMode"),
        [_port("x", 4)],
        [_port("y", 2)],
        [{"x": torch.ones(4)}],
    ),
]

FORMS = [*INPUT_FORMS, *OUTPUT_FORMS, *NETWORKS]
"""Every form of inputs and outputs, and ordinary networks."""
