"""Define the networks that the tests serve, as code for TorchScript, and write model files of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from backend_testing import repository
from torch import Tensor, nn

__all__ = ["config", "file", "fresh", "saved", "scripted", "traced"]

config = partial(repository.config, "pytorch")


class Arithmetic(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Negation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return ~x


class Transposed(nn.Module):
    """The result is a view that is not contiguous."""

    def forward(self, x: Tensor) -> Tensor:
        return x.t()


class Subtract(nn.Module):
    """The order of the arguments matters."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left - right * 2


class ByName(nn.Module):
    def forward(self, tensors: dict[str, Tensor]) -> Tensor:
        return tensors["minuend"] - tensors["subtrahend"] * 2


class ByList(nn.Module):
    def forward(self, tensors: list[Tensor]) -> Tensor:
        total = tensors[0] * len(tensors)
        for each in tensors[1:]:
            total = total - each * 2
        return total


class Optionals(nn.Module):
    def forward(self, x: Tensor, bias: Tensor | None = None, scale: Tensor | None = None, times: int = 3) -> Tensor:
        y = x * times
        if scale is not None:
            y = y * scale
        if bias is not None:
            y = y + bias
        return y


class Numbers(nn.Module):
    def forward(self, x: Tensor, count: int, factor: float, negate: bool = False) -> Tensor:
        y = x * factor + count
        return -y if negate else y


class TensorAndList(nn.Module):
    def forward(self, x: Tensor, rest: list[Tensor]) -> Tensor:
        for each in rest:
            x = x - each * 2
        return x


class Shout(nn.Module):
    def forward(self, words: list[str]) -> list[str]:
        return [word.upper() + "!" for word in words]


class Lengths(nn.Module):
    def forward(self, words: list[str], factor: Tensor) -> Tensor:
        return torch.tensor([len(word) for word in words], dtype=torch.int64) * factor


class Describe(nn.Module):
    def forward(self, x: Tensor) -> tuple[list[str], Tensor]:
        return ["negative" if bool(each < 0) else "positive" for each in x], x.abs()


class Tuple(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x + 1, x.sum(dim=1), x > 0


class ListOut(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [x + 1, x * 2, x - 3]


class DictOut(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"zebra": x + 1, "apple": x * 2}


class Pair(NamedTuple):
    """Fields in other than alphabetical order."""

    total: Tensor
    largest: Tensor


class NamedOut(nn.Module):
    def forward(self, x: Tensor) -> Pair:
        return Pair(x.sum(dim=1), x.amax(dim=1))


class IntOut(nn.Module):
    def forward(self, x: Tensor) -> int:
        return int(x.sum()) * 3


class FloatOut(nn.Module):
    def forward(self, x: Tensor) -> float:
        return float(x.sum()) / 3


class BoolOut(nn.Module):
    def forward(self, x: Tensor) -> bool:
        return bool(x.sum() > 0)


class Scalars(nn.Module):
    def forward(self, x: Tensor) -> tuple[int, float, bool, Tensor]:
        return x.numel(), float(x.sum()), bool(x.sum() > 0), x + 1


class ZeroRank(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum()


class Outer(NamedTuple):
    """A structure in a structure."""

    inner: Pair
    plain: Tensor


class Nested(nn.Module):
    def forward(self, x: Tensor) -> Outer:
        return Outer(Pair(x.sum(dim=1), x.amax(dim=1)), -x)


class NestedTuple(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, tuple[list[Tensor], Tensor]]:
        return x, ([x + 1, x + 2], x + 3)


class IntList(nn.Module):
    def forward(self, x: Tensor) -> tuple[list[int], list[float]]:
        return [int(each) for each in x], [float(each) / 3 for each in x]


class Echo(nn.Module):
    """Texts and numbers only: the signature is enough."""

    def forward(self, words: list[str], number: int) -> list[str]:
        return [word + str(number) for word in words]


class Mlp(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4), nn.Softmax(dim=-1))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )

    def forward(self, image: Tensor) -> Tensor:
        y: Tensor = self.layers(image)
        return y


class Dropout(nn.Module):
    """Gives its input only in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


class Recurrent(nn.Module):
    """Runs a loop whose length depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 6)

    def forward(self, steps: Tensor, count: Tensor) -> Tensor:
        state = torch.zeros(steps.size(0), 6)
        for index in range(int(count)):
            state = self.cell(steps[:, index], state)
        return state


class RowSums(nn.Module):
    """Works on batches; fails if a row begins with a negative number."""

    def forward(self, x: Tensor) -> Tensor:
        if bool((x[:, 0] < 0).any()):
            raise ValueError("a first number is negative")
        return x.sum(dim=1, keepdim=True)


class Failing(nn.Module):
    """Fails in different ways, chosen by the input."""

    def forward(self, x: Tensor) -> Tensor:
        kind = int(x[0])
        if kind == 1:
            raise ValueError("the first number is one")
        if kind == 2:
            return torch.zeros(3) @ torch.zeros(4)
        if kind == 3:
            return torch.empty([1 << 40, 1 << 20])
        if kind == 4:
            assert x.numel() > 100, "too few numbers"
        if kind == 5:
            return torch.zeros([2])[x.to(torch.int64)]
        return x


class InPlace(nn.Module):
    """Writes to its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1)


class WrongType(nn.Module):
    """Returns a type other than the configured one, if the input asks for it."""

    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float64) if bool(x[0] > 0) else x


class WrongCount(nn.Module):
    """Returns fewer rows than it gets, which breaks a batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:1] if bool((x < 0).any()) else x


class SecondWrong(nn.Module):
    """Returns a good first output, and a second one like WrongCount."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x[:1] if bool((x < 0).any()) else x * 2


class Weighted(nn.Module):
    def __init__(self, weight: float, extent: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full([extent], weight))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class GradMode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight
        return torch.tensor([float(y.requires_grad), float(torch.is_grad_enabled())])


class Methods(nn.Module):
    """Has more methods than forward(), of which one keeps something."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        return x + 1

    @torch.jit.export
    def encode(self, x: Tensor, bias: Tensor) -> tuple[Tensor, int]:
        """Take other arguments, and give other results."""
        return x * 2 - bias, x.numel()

    @torch.jit.export
    def remember(self, x: Tensor) -> Tensor:
        """Keep the input, and answer with the one before."""
        last = self.last
        self.last = x
        return last


class Slow(nn.Module):
    """Takes its time, so that requests queue behind it."""

    def __init__(self, rounds: int = 20) -> None:
        super().__init__()
        self.rounds = rounds

    def forward(self, x: Tensor) -> Tensor:
        y = torch.ones(160, 160)
        for _ in range(self.rounds):
            y = (y @ y) / 160
        return x * y[0, 0]


def fresh(name: str, *args: float) -> nn.Module:
    """Return a module by class name in eval mode, its weights the same in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(20261121)
        module: nn.Module = globals()[name](*args)
    return module.eval()


def scripted(name: str, *args: float) -> torch.jit.ScriptModule:
    """Return a module as TorchScript, made from its source."""
    module: torch.jit.ScriptModule = torch.jit.script(fresh(name, *args))
    return module


def traced(name: str, *example: Tensor) -> torch.jit.ScriptModule:
    """Return a module as TorchScript, made by tracing one call."""
    module: torch.jit.ScriptModule = torch.jit.trace(fresh(name), example)  # type: ignore[no-untyped-call]
    return module


def saved(module: torch.jit.ScriptModule) -> Callable[[Path], None]:
    """Return a function that writes a module to a file of a model repository."""
    return lambda path: torch.jit.save(module, str(path))


def file(name: str, *args: float) -> Callable[[Path], None]:
    """Return a function that writes a module by class name to a file of a model repository."""
    return saved(scripted(name, *args))
