"""Write networks of real size as ONNX files with PyTorch: ResNet-18, an encoder like BERT's, a recurrent network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["NETWORKS", "Array", "Network"]

Array: TypeAlias = NDArray[Any]

WORDS = 30_000
WIDTH = 256
HEADS = 4
LAYERS = 4
LONGEST = 512


@dataclass(frozen=True)
class Network:
    """A network whose inputs and outputs have a batch dimension first.

    `request` makes inputs by name from a batch size, a sequence length (which images ignore) and a seed. `axes` are the
    open dimensions after the batch, by input or output and then by position.
    """

    name: str
    build: Callable[[], nn.Module]
    request: Callable[[int, int, int], dict[str, Array]]
    outputs: Sequence[str]
    lengths: Sequence[int]
    axes: Mapping[str, Mapping[int, str]]

    def save(self, path: Path) -> None:
        """Write the network as an ONNX file, its weights always the same.

        PyTorch calls this exporter deprecated; the new one needs more packages.
        """
        torch.manual_seed(0)
        module = self.build().eval()
        inputs = self.request(2, self.lengths[0], 0)
        names = [*inputs, *self.outputs]
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                tuple(torch.from_numpy(array) for array in inputs.values()),
                str(path),
                input_names=list(inputs),
                output_names=list(self.outputs),
                dynamic_axes={name: {0: "batch", **self.axes.get(name, {})} for name in names},
                dynamo=False,
            )


class Block(nn.Module):
    """Two convolutions with a shortcut around them, as in "Deep Residual Learning for Image Recognition", figure 2."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *convolution(inputs, outputs, 3, stride), nn.ReLU(), *convolution(outputs, outputs, 3, 1)
        )
        same = stride == 1 and inputs == outputs
        self.around = nn.Identity() if same else nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.around(x))


def convolution(inputs: int, outputs: int, size: int, stride: int) -> tuple[nn.Module, nn.Module]:
    """Make a convolution with its normalization."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)


def residual() -> nn.Module:
    """Make ResNet-18: 11.7 million weights, 1.8 billion multiplications for an image."""
    layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    widths = [64, 64, 128, 256, 512]
    for before, width in pairwise(widths):
        layers += [Block(before, width, 1 if before == width else 2), Block(width, width, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Layer(nn.Module):
    """Attention to all words, then two linear layers for each word, with normalization after each, as in BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.joined = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        weights = (query @ key.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5 + mask).softmax(-1)
        x = self.first(x + self.joined((weights @ value).transpose(1, 2).flatten(2)))
        result: Tensor = self.second(x + self.narrow(nn.functional.gelu(self.wide(x))))
        return result


class Encoder(nn.Module):
    """BERT with fewer, narrower layers and 11 million weights: from words and their mask to states and one vector."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.normal = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.pool = nn.Linear(WIDTH, WIDTH)

    def forward(self, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(words.shape[1])
        x = self.normal(self.words(words) + self.places(places))
        hidden = (1 - mask[:, None, None, :].float()) * -1e4
        for layer in self.layers:
            x = layer(x, hidden)
        return x, torch.tanh(self.pool(x[:, 0]))


class Recurrent(nn.Module):
    """A gated recurrent network in both directions, two layers: 1.7 million weights."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.GRU(64, 256, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        states, last = self.network(x)
        return states, last.transpose(0, 1)


def image(batch: int, length: int, seed: int) -> dict[str, Array]:
    """Return noise in the range of normalized images."""
    del length
    return {"image": np.random.default_rng(seed).standard_normal((batch, 3, 224, 224), np.float32)}


def sentences(batch: int, length: int, seed: int) -> dict[str, Array]:
    """Return words and a mask that hides the end of each sentence but the first."""
    random = np.random.default_rng(seed)
    ends = np.maximum(1, length - np.arange(batch))
    mask = (np.arange(length) < ends[:, None]).astype(np.int64)
    return {"words": random.integers(0, WORDS, (batch, length)), "mask": mask}


def series(batch: int, length: int, seed: int) -> dict[str, Array]:
    """Return noise."""
    return {"x": np.random.default_rng(seed).standard_normal((batch, length, 64), np.float32)}


NETWORKS = (
    Network("resnet18", residual, image, ["scores"], [0], {}),
    Network(
        "encoder",
        Encoder,
        sentences,
        ["states", "pooled"],
        [16, 7, 128, 1],
        {"words": {1: "length"}, "mask": {1: "length"}, "states": {1: "length"}},
    ),
    Network(
        "gru",
        Recurrent,
        series,
        ["states", "last"],
        [12, 1, 50],
        {"x": {1: "length"}, "states": {1: "length"}},
    ),
)
