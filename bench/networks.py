"""Write the served models: files of a small and a large network, and their configuration."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn

__all__ = ["NETWORKS", "Network"]


@dataclass(frozen=True)
class Network:
    """A network with one float input and one float output, each with a batch dimension first."""

    name: str
    make: Callable[[], nn.Module]
    input: tuple[int, ...]
    output: tuple[int, ...]

    def save(self, path: Path) -> Tensor:
        """Write a file, with weights always the same, and return the network's output for `sample()`.

        It is a TorchScript file if the name ends in `.pt`, an ONNX file if in `.onnx`. PyTorch calls both exporters
        deprecated; the new ones need more packages.
        """
        torch.manual_seed(0)
        module = self.make().eval()
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore", DeprecationWarning)
            if path.suffix == ".pt":
                torch.jit.save(torch.jit.script(module), str(path))
            else:
                torch.onnx.export(
                    module,
                    (self.sample(),),
                    path,
                    input_names=["INPUT__0"],
                    output_names=["OUTPUT__0"],
                    dynamic_axes={name: {0: "batch"} for name in ("INPUT__0", "OUTPUT__0")},
                    dynamo=False,
                )
            result: Tensor = module(self.sample())
        return result

    def sample(self) -> Tensor:
        """Return an input with a batch of one."""
        return torch.linspace(-1, 1, prod(self.input)).reshape(1, *self.input)

    def config(self) -> list[str]:
        """Return the lines of config.pbtxt without the backend."""
        ports = {"input": ("INPUT__0", self.input), "output": ("OUTPUT__0", self.output)}
        lines = [
            f'{port} {{ name: "{name}" data_type: TYPE_FP32 dims: {list(dims)} }}'
            for port, (name, dims) in ports.items()
        ]
        return ["max_batch_size: 8", *lines, "instance_group { kind: KIND_CPU count: 1 }"]


class Block(nn.Module):
    """Two convolutions with a shortcut around them, as in "Deep Residual Learning for Image Recognition", figure 2."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(inputs, outputs, 3, stride), nn.ReLU(), *_convolution(outputs, outputs, 3, 1)
        )
        same = stride == 1 and inputs == outputs
        self.around = nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both paths."""
        return torch.relu(self.body(x) + self.around(x))


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return convolution, nn.BatchNorm2d(outputs)


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def _residual() -> nn.Module:
    """Make ResNet-18: 11.7 million weights, 1.8 billion multiplications for an image."""
    layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    widths = [64, 64, 128, 256, 512]
    for before, width in pairwise(widths):
        layers += [Block(before, width, 1 if before == width else 2), Block(width, width, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


NETWORKS = (
    Network("small", _perceptron, (64,), (10,)),
    Network("large", _residual, (3, 224, 224), (1000,)),
)
