"""Modules that keep something from call to call, or write to what they hold."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["STATEFUL"]


class Counter(nn.Module):
    """Replaces an attribute: answers with the number of the call, and the same from a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.calls = torch.zeros(1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.count = self.count + 1
        self.calls = self.calls + 1
        return torch.full_like(x, float(self.count)), self.calls.expand_as(x) + x * 0


class Accumulator(nn.Module):
    """Writes to a buffer in place and answers with a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full([4], 3.0))
        self.total = nn.Buffer(torch.zeros(2, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.total[0].add_(x[0] * self.weight)
        self.total[1].add_(1)
        return self.total[0:1], self.total[1:2]


class TiedBuffers(nn.Module):
    """Writes to a buffer, and answers with another that is a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.Buffer(torch.zeros(3, 4))
        self.part = nn.Buffer(self.whole[1:2])

    def forward(self, x: Tensor) -> Tensor:
        self.whole.add_(x)
        return self.part.clone()


class Journal(nn.Module):
    """Appends to a list."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = [torch.zeros(1, 4)]

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return torch.cat(self.seen[-4:], dim=1)[:, :16]


class Dictionary(nn.Module):
    """Keeps a view of its input in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = {"last": torch.zeros(1, 4)}

    def forward(self, x: Tensor) -> Tensor:
        last = self.seen["last"]
        self.seen["last"] = x.view(1, 4)
        return last


class Previous(nn.Module):
    """Keeps its input and answers with the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.previous = torch.zeros(1, 4)

    def forward(self, x: Tensor) -> Tensor:
        last = self.previous
        self.previous = x
        return last


class PreviousView(nn.Module):
    """Keeps a view of its input, chosen in a branch, inside a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.previous = (torch.zeros(1, 4), 0)

    def forward(self, x: Tensor) -> Tensor:
        last, count = self.previous
        part = x[:, :2] if bool(x[0, 0] < 0) else x.view(-1).view(1, 4)
        self.previous = (part, count + 1)
        return last


class PreviousOptional(nn.Module):
    """Keeps an optional input."""

    def __init__(self) -> None:
        super().__init__()
        self.previous = torch.zeros(1, 4)

    def forward(self, x: Tensor | None = None) -> Tensor:
        last = self.previous
        if x is not None:
            self.previous = x
        return last


class PreviousOfList(nn.Module):
    """Keeps one of the tensors of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.previous = torch.zeros(1, 4)

    def forward(self, tensors: list[Tensor]) -> Tensor:
        last = self.previous
        self.previous = tensors[0]
        return last


class Inner(nn.Module):
    """The part of Outer that keeps something."""

    def __init__(self) -> None:
        super().__init__()
        self.previous = torch.zeros(1, 4)

    def swap(self, x: Tensor) -> Tensor:
        """Keep a tensor and return the one before."""
        last = self.previous
        self.previous = x
        return last


class Outer(nn.Module):
    """Keeps its input in a submodule, through a method."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner.swap(x)


class Forked(nn.Module):
    """Leaves a task running that keeps its input, and answers with what is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = nn.Buffer(torch.zeros(1, 4))

    def later(self, x: Tensor) -> Tensor:
        """Take a while, and keep a tensor."""
        y = torch.ones(160, 160)
        for _ in range(40):
            y = (y @ y) / 160
        self.kept.copy_(x * y[0, 0])
        return x

    def forward(self, x: Tensor) -> Tensor:
        kept = self.kept.clone()
        task = torch.jit.fork(self.later, x)  # type: ignore[no-untyped-call]
        if bool(x[0, 0] > 1e6):
            kept = torch.jit.wait(task)  # type: ignore[no-untyped-call]
        return kept


class HeavyCounter(nn.Module):
    """Counts, beside weights that it only reads."""

    def __init__(self, extent: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full([extent], 2.0))
        self.count = nn.Buffer(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * self.weight[:4] * 0 + self.count


class Normalized(nn.Module):
    """Would write to its statistics if it were trained; holds weights."""

    def __init__(self, extent: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full([extent], 2.0))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y: Tensor = self.norm(x) * self.weight[:4]
        pieces = [y]
        pieces.append(y + 1)
        return pieces[0]


STATEFUL = {
    each.__name__: each
    for each in (
        Counter,
        Accumulator,
        TiedBuffers,
        Journal,
        Dictionary,
        Previous,
        PreviousView,
        PreviousOptional,
        PreviousOfList,
        Outer,
        Forked,
        HeavyCounter,
        Normalized,
    )
}
