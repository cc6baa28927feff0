"""Write Triton model repositories: folders of models with their configuration."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

__all__ = ["File", "Port", "Repository", "config", "parameters"]

File: TypeAlias = bytes | Path | Callable[[Path], None]
"""A file of a model: its bytes, a file or folder to copy, or a function that writes to the given path."""


class Port(NamedTuple):
    """An input or output of a configuration: name, type such as `FP32`, dimensions without the batch, more fields."""

    name: str
    datatype: str
    dims: Sequence[int]
    extra: str = ""

    def text(self) -> str:
        """Return the entry as written in config.pbtxt."""
        kind = "TYPE_STRING" if self.datatype == "BYTES" else f"TYPE_{self.datatype}"
        return f'{{ name: "{self.name}" data_type: {kind} dims: {list(self.dims)} {self.extra} }}'


def parameters(values: Mapping[str, str]) -> str:
    """Return `parameters` entries."""
    return "".join(
        f'parameters {{ key: "{key}" value: {{ string_value: "{text}" }} }}\n' for key, text in values.items()
    )


def config(backend: str, inputs: Sequence[Port], outputs: Sequence[Port], *, batch: int = 0, extra: str = "") -> str:
    """Return a config.pbtxt for a backend by name."""
    lines = [f'backend: "{backend}"', f"max_batch_size: {batch}"]
    lines += [f"input {port.text()}" for port in inputs]
    lines += [f"output {port.text()}" for port in outputs]
    return "\n".join([*lines, extra, ""])


@dataclass(frozen=True)
class Repository:
    """A model repository that tests add models to."""

    folder: Path

    def add(self, name: str, files: Mapping[str, File], text: str | None = None) -> Path:
        """Write a model, replacing any old one, and return its folder.

        Parameters
        ----------
        name
            Name of the model.
        files
            Contents by path below the model's folder, such as `1/model.onnx`.
        text
            The config.pbtxt; if omitted, the model has none.
        """
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "1").mkdir(parents=True)
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                target.write_bytes(content)
            elif not isinstance(content, Path):
                content(target)
            elif content.is_dir():
                shutil.copytree(content, target)
            else:
                shutil.copyfile(content, target)
        if text is not None:
            (folder / "config.pbtxt").write_text(text, encoding="utf-8")
        return folder

    def remove(self, name: str) -> None:
        """Remove a model's folder."""
        shutil.rmtree(self.folder / name)
