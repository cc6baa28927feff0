"""Test packages that are loaded again and again: memory, what is left on the disk, state, and changed weights."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from backend_testing.repository import Port
from backend_testing.server import Service
from conftest import begin
from modules import config
from test_packages import compile_package, damage
from torch import nn
from wire import ask, same

ROUNDS = 200
GROWTH = 50 << 20
"""Bytes by which the resident memory may grow in all rounds."""
SIZE = 1024
MARK = 0.7109375
"""The weight, which no other number in the library is."""
PORTS = [Port("INPUT__0", "FP32", [SIZE])], [Port("OUTPUT__0", "FP32", [SIZE]), Port("OUTPUT__1", "FP32", [2])]


class Counting(nn.Module):
    """Has 4 MiB of weights, and changes itself: it counts its runs."""

    def __init__(self) -> None:
        super().__init__()
        # The compiler takes a tensor of equal numbers for a constant, even if the code changes it.
        weight = torch.full([SIZE, SIZE], MARK)
        weight[0, 0] = 1
        self.weight = nn.Parameter(weight)
        self.count = nn.Buffer(torch.tensor([0.0, 5.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Multiply by the weight, and tell the number of the run."""
        self.count.add_(1)
        return x @ self.weight, self.count.clone()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the package once."""
    return compile_package(tmp_path_factory.mktemp("counting"), Counting(), (torch.ones(SIZE),))


def changed(package: Path, weight: float) -> bytes:
    """Return the package with another weight: a library of the same size."""
    result = io.BytesIO()
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(result, "w") as new:
        for member in old.infolist():
            data = old.read(member)
            if member.filename.endswith(".so"):
                before, after = struct.pack("<f", MARK) * 16, struct.pack("<f", weight) * 16
                assert data.count(before) == SIZE * SIZE // 16 - 1
                data = data.replace(before, after)
            new.writestr(member.filename, data)
    return result.getvalue()


def counts(service: Service, name: str, weight: float = MARK) -> list[float]:
    """Check the product in two requests, and return the numbers of the runs."""
    x = torch.zeros(SIZE)
    x[3] = 2
    answers = [ask(service.client(), name, {"INPUT__0": x}) for _ in range(2)]
    assert all(same(answer["OUTPUT__0"], torch.full([SIZE], weight * 2)) for answer in answers)
    return [float(answer["OUTPUT__1"][0]) for answer in answers]


def folders(temporary: Path) -> list[str]:
    """Return the names of the folders in a folder for temporary files."""
    return sorted(each.name for each in temporary.iterdir())


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Return a function that makes a folder for the temporary files of the next server."""

    def make() -> Path:
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        monkeypatch.setenv("TMPDIR", str(temporary))
        return temporary

    return make


def test_memory_stays_flat_in_200_loads_of_one_package(package: Path, tmp_path: Path) -> None:
    with begin(tmp_path) as service:
        service.repository.add("again", {"1/model.pt2": package}, config(*PORTS))
        sizes = []
        for _ in range(ROUNDS):
            service.load("again")
            assert counts(service, "again") == [1, 2]  # the state begins anew
            service.unload("again")
            sizes.append(service.server.resident())
            assert sizes[-1] - sizes[0] < GROWTH, [size >> 20 for size in sizes]


def test_packages_of_the_same_bytes_share_one_folder(package: Path, tmp_path: Path, alone: Callable[[], Path]) -> None:
    temporary = alone()
    with begin(tmp_path) as service:
        for name in ("first", "second"):
            service.repository.add(name, {"1/model.pt2": package}, config(*PORTS))
            service.load(name)
            assert len(folders(temporary)) == 1
        # Each has a state of its own.
        assert counts(service, "first") == [1, 2]
        assert counts(service, "second") == [1, 2]
        assert counts(service, "first") == [3, 4]
        service.unload("first")
        assert counts(service, "second") == [3, 4]
        service.unload("second")
        assert len(folders(temporary)) <= 1
    assert folders(temporary) == []


def test_a_package_with_other_weights_is_not_taken_for_the_same(package: Path, tmp_path: Path) -> None:
    with begin(tmp_path) as service:
        for weight in (0.5, 0.25, 0.5):
            service.repository.add("changing", {"1/model.pt2": changed(package, weight)}, config(*PORTS))
            service.load("changing")
            assert counts(service, "changing", weight) == [1, 2]
            service.unload("changing")


@pytest.mark.parametrize("kind", ["a byte of code", "cut short", "another system", "only source"])
def test_a_package_that_is_refused_leaves_no_files(
    package: Path, tmp_path: Path, alone: Callable[[], Path], kind: str
) -> None:
    temporary = alone()
    content = package.read_bytes()
    if kind == "another system":
        content = rewritten(package, "_metadata.json", b'"linux"', b'"beos5"')
    elif kind == "only source":
        content = rewritten(package, ".so", b"", b"", drop=True)
    else:
        content = damage(content, kind)
    with begin(tmp_path) as service:
        service.repository.add("refused", {"1/model.pt2": content}, config(*PORTS))
        refusal = service.refusal("refused")
        assert folders(temporary) == []
    if kind == "only source":
        assert "has no compiled library" in refusal


def rewritten(package: Path, suffix: str, before: bytes, after: bytes, *, drop: bool = False) -> bytes:
    """Return the package with a text replaced in some members, or without them."""
    result = io.BytesIO()
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(result, "w") as new:
        for member in old.infolist():
            if not member.filename.endswith(suffix):
                new.writestr(member.filename, old.read(member))
            elif not drop:
                new.writestr(member.filename, old.read(member).replace(before, after))
    return result.getvalue()
