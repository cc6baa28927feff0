"""Test that contradictions between a TorchScript model and its configuration are found when the model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from backend_testing.repository import Port, parameters
from backend_testing.sequences import sequence_batching, state, zeros
from backend_testing.server import Service
from modules import config, saved
from torch import Tensor, nn
from wire import Client, InferenceServerException, ask, same

ROW = [Port("x", "FP32", [8])]


class Place(nn.Module):
    """Gives whole numbers for floating-point ones."""

    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(dim=1, keepdim=True)


class Halves(nn.Module):
    """Gives its results by name, one in the precision of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4).half()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"large": x > 0, "half": self.layer(x.half())}


class Memory(nn.Module):
    """Keeps a state of 6 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 6)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = self.cell(x, h)
        return h.sum(dim=1, keepdim=True), h


class Mixing(nn.Module):
    """Adds the first number of its state to all it keeps."""

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(dim=1, keepdim=True), x[:, :6] + h[:, :1]


class ByData(nn.Module):
    """Gives a type that depends on the numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return x.long() if bool(x.sum() > 0) else x


class BySize(nn.Module):
    """Gives a type that depends on the size."""

    def forward(self, x: Tensor) -> Tensor:
        return x.long() if x.size(0) > 4 else x


class ByFlag(nn.Module):
    """Gives a type that depends on a number, and another without the second input."""

    def forward(self, x: Tensor, whole: int, scale: Tensor | None = None) -> Tensor:
        y = x.long() if whole > 0 else x
        return y if scale is None else y * scale


class Steps(nn.Module):
    """Pads to a multiple of 8."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x, [0, (8 - x.size(0) % 8) % 8])


class Methods(nn.Module):
    """Has a method with another type of result."""

    def forward(self, x: Tensor) -> Tensor:
        return x

    @torch.jit.export
    def positive(self, x: Tensor) -> Tensor:
        """Compare with zero."""
        return x > 0


def write(service: Service, name: str, module: nn.Module, text: str) -> None:
    """Write a model of this file."""
    service.repository.add(name, {"1/model.pt": saved(torch.jit.script(module.eval()))}, text)


@pytest.mark.parametrize(
    ("module", "outputs", "words"),
    [
        (Place, [Port("y", "FP32", [1])], "output 'y': the model gives INT64, the configuration says FP32"),
        (
            Halves,
            [Port("half", "FP32", [4]), Port("large", "BOOL", [8])],
            "output 'half': the model gives FP16, the configuration says FP32",
        ),
        (
            Halves,
            [Port("half", "FP16", [4]), Port("large", "UINT8", [8])],
            "output 'large': the model gives BOOL, the configuration says UINT8",
        ),
        (
            Halves,
            [Port("half", "FP16", [5])],
            "output 'half': the model gives [-1,4], the configuration says [-1,5]",
        ),
        (
            Halves,
            [Port("half", "FP16", [2, 2])],
            "output 'half': the model gives [-1,4], the configuration says [-1,2,2]",
        ),
    ],
)
def test_an_output_that_contradicts_the_model_is_a_load_error(
    service: Service, module: type[nn.Module], outputs: Sequence[Port], words: str
) -> None:
    write(service, "contradiction", module(), config(ROW, outputs, batch=4))
    assert words in service.refusal("contradiction")


@pytest.mark.parametrize(
    ("datatype", "dims", "words"),
    [
        ("FP32", [7], "output 'OUTPUT__1': the model gives [-1,6], the configuration says [-1,7]"),
        ("FP16", [6], "output 'OUTPUT__1': the model gives FP32, the configuration says FP16"),
    ],
)
def test_a_state_that_contradicts_the_model_is_a_load_error(
    service: Service, datatype: str, dims: list[int], words: str
) -> None:
    kept = state(("h", "OUTPUT__1"), datatype, dims, zeros(datatype, dims))
    text = config(ROW, [Port("OUTPUT__0", "FP32", [1])], batch=4, extra=sequence_batching("direct { }", kept))
    write(service, "contradiction", Mixing(), text)
    assert words in service.refusal("contradiction")


def test_a_state_that_fits_the_model_is_served(service: Service, client: Client) -> None:
    name = f"memory_state_{client.protocol}"
    kept = state(("h", "OUTPUT__1"), "FP32", [6], zeros("FP32", [6]))
    text = config(ROW, [Port("OUTPUT__0", "FP32", [1])], batch=4, extra=sequence_batching("direct { }", kept))
    write(service, name, Memory(), text)
    service.load(name)


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (ByData(), {"x": Port("x", "FP32", [-1])}),
        (BySize(), {"x": Port("x", "FP32", [-1])}),
        (ByFlag(), {"x": Port("x", "FP32", [-1]), "whole": Port("whole", "INT32", [1])}),
    ],
)
@pytest.mark.parametrize("datatype", ["FP32", "INT64"])
def test_a_type_that_only_a_run_tells_is_an_error_of_the_request(
    service: Service, client: Client, module: nn.Module, inputs: Mapping[str, Port], datatype: str
) -> None:
    name = f"{type(module).__name__.lower()}_{datatype.lower()}_{client.protocol}"
    write(service, name, module, config(list(inputs.values()), [Port("y", datatype, [-1])]))
    service.load(name)
    for size, sign in ((8, 1), (3, -1)):
        x = torch.full([size], float(sign))
        request = {"x": x} | ({"whole": torch.tensor([max(sign, 0)], dtype=torch.int32)} if "whole" in inputs else {})
        if (datatype == "INT64") == (sign > 0):
            assert same(ask(client, name, request)["y"], x.long() if sign > 0 else x)
        else:
            with pytest.raises(InferenceServerException, match="type"):
                ask(client, name, request)


def test_sizes_that_follow_from_open_ones_are_not_compared(service: Service, client: Client) -> None:
    name = f"steps_{client.protocol}"
    write(service, name, Steps(), config([Port("x", "FP32", [-1])], [Port("y", "FP32", [16])]))
    service.load(name)
    x = torch.ones(11)
    assert same(ask(client, name, {"x": x})["y"], nn.functional.pad(x, [0, 5]))


def test_the_types_are_compared_for_another_method(service: Service) -> None:
    text = config(ROW, [Port("y", "INT64", [8])], extra=parameters({"MODULE_METHOD_NAME": "positive"}))
    write(service, "method_type", Methods(), text)
    assert "output 'y': the model gives BOOL, the configuration says INT64" in service.refusal("method_type")
