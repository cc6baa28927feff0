"""Test AOTInductor packages: they answer as in PyTorch, and refuse inputs that they were not compiled for."""

from __future__ import annotations

import io
import json
import random
import struct
import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from backend_testing.repository import Port, parameters
from backend_testing.server import Service
from conftest import begin
from modules import config, fresh
from samples import numbers
from torch import nn
from wire import TYPES, Client, InferenceServerException, Value, ask, same, together

# The types that inductor compiles arithmetic for.
COMPILED = [name for name in TYPES if not name.startswith("UINT") or name == "UINT8"]
ROWS = torch.export.Dim("rows", min=1, max=64)
STORED = {
    "max_batch_size": 16,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [8]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}],
}


class EachType(nn.Module):
    """One input and one output of each type."""

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Double each tensor, or negate it."""
        return tuple(~each if each.dtype == torch.bool else each * 2 for each in tensors)


class Named(nn.Module):
    """Inputs of two types, results by name."""

    def forward(self, ids: torch.Tensor, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        """Combine numbers with weights."""
        return {"zebra": ids * 3, "apple": ids * weights}


def compile_package(
    folder: Path,
    module: nn.Module,
    positional: tuple[torch.Tensor, ...] = (),
    keywords: Mapping[str, torch.Tensor] | None = None,
    dynamic: object = None,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Compile a module with inductor into a package, from one call."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, positional, dict(keywords or {}), dynamic_shapes=dynamic)  # type: ignore[arg-type]
        path = torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(folder / "model.pt2"),
            inductor_configs={"aot_inductor.metadata": dict(metadata or {})},
        )
    return Path(path)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Provide a function that compiles each package once."""
    named = {"ids": torch.ones(2, 3, dtype=torch.int64), "weights": torch.ones(2, 3)}
    stored = {"triton_config": json.dumps(STORED)}
    recipes: dict[str, Callable[[Path], Path]] = {
        "mlp": lambda folder: compile_package(
            folder, fresh("Mlp"), (torch.ones(2, 8),), dynamic=({0: ROWS},), metadata=stored
        ),
        "types": lambda folder: compile_package(folder, EachType(), tuple(numbers(name, 3, 5) for name in COMPILED)),
        "named": lambda folder: compile_package(
            folder, Named(), keywords=named, dynamic={name: {0: ROWS} for name in named}
        ),
    }
    done: dict[str, Path] = {}

    def package(name: str) -> Path:
        if name not in done:
            done[name] = recipes[name](tmp_path_factory.mktemp(name))
        return done[name]

    return package


def loaded(path: Path) -> Callable[..., Any]:
    """Return a package as PyTorch runs it here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run: Callable[..., Any] = torch._inductor.aoti_load_package(str(path))
    return run


@pytest.fixture(scope="module")
def mlp(service: Service, packages: Callable[[str], Path]) -> tuple[str, Callable[..., torch.Tensor]]:
    """Load the compiled network."""
    path = packages("mlp")
    extra = "dynamic_batching { max_queue_delay_microseconds: 20000 } instance_group { kind: KIND_CPU count: 2 }"
    text = config([Port("INPUT__0", "FP32", [8])], [Port("OUTPUT__0", "FP32", [4])], batch=16, extra=extra)
    service.repository.add("compiled_mlp", {"1/model.pt2": path}, text)
    service.load("compiled_mlp")
    return "compiled_mlp", loaded(path)


@pytest.mark.parametrize("rows", [1, 2, 5, 16])
def test_a_compiled_network_answers_as_in_pytorch(
    mlp: tuple[str, Callable[..., torch.Tensor]], client: Client, rows: int
) -> None:
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows))
    answer = ask(client, mlp[0], {"INPUT__0": x})["OUTPUT__0"]
    assert isinstance(answer, torch.Tensor)
    with torch.no_grad():
        # A dynamic size is assumed to be at least 2: the backend runs one row as two.
        expected = mlp[1](x) if rows > 1 else mlp[1](torch.cat([x, x]))[:1]
        assert same(answer, expected)
        torch.testing.assert_close(answer, fresh("Mlp")(x))


def test_the_first_request_of_one_row_writes_no_alarm(packages: Callable[[str], Path], tmp_path: Path) -> None:
    with begin(tmp_path) as service:
        ports = [Port("INPUT__0", "FP32", [8])], [Port("OUTPUT__0", "FP32", [4])]
        service.repository.add("quiet", {"1/model.pt2": packages("mlp")}, config(*ports, batch=16))
        service.load("quiet")
        before = service.log()
        ask(service.client(), "quiet", {"INPUT__0": torch.ones(1, 8)})
        assert service.log() == before


def test_concurrent_requests_to_a_compiled_network(
    service: Service, mlp: tuple[str, Callable[..., torch.Tensor]]
) -> None:
    requests: list[dict[str, Value]] = [{"INPUT__0": torch.full([1 + index % 3, 8], index / 32)} for index in range(48)]
    for request, answer in zip(requests, together(service, "grpc", mlp[0], requests), strict=True):
        assert isinstance(answer, dict), answer
        # In another batch, another kernel may add in another order.
        with torch.no_grad():
            torch.testing.assert_close(answer["OUTPUT__0"], mlp[1](request["INPUT__0"]))


@pytest.mark.parametrize("datatype", COMPILED)
def test_a_compiled_model_takes_every_type(
    service: Service, packages: Callable[[str], Path], client: Client, datatype: str
) -> None:
    path = packages("types")
    inputs = {f"INPUT__{index}": numbers(name, 3, 5) for index, name in enumerate(COMPILED)}
    if "compiled_types" not in service.loaded:
        # In reverse order: the number in the name counts, not the place in the configuration.
        ports = [Port(f"INPUT__{index}", name, [-1, 5]) for index, name in enumerate(COMPILED)][::-1]
        outputs = [Port(f"OUTPUT__{index}", name, [-1, 5]) for index, name in enumerate(COMPILED)][::-1]
        service.repository.add("compiled_types", {"1/model.pt2": path}, config(ports, outputs))
        service.load("compiled_types")
    place = COMPILED.index(datatype)
    answer = ask(client, "compiled_types", inputs, [f"OUTPUT__{place}"])
    assert list(answer) == [f"OUTPUT__{place}"]
    assert same(answer[f"OUTPUT__{place}"], loaded(path)(*inputs.values())[place])


def test_a_compiled_model_has_its_argument_and_result_names(
    service: Service, packages: Callable[[str], Path], client: Client
) -> None:
    path = packages("named")
    if "compiled_named" not in service.loaded:
        ports = [Port("weights", "FP32", [-1, 3]), Port("ids", "INT64", [-1, 3])]
        outputs = [Port("apple", "FP32", [-1, 3]), Port("zebra", "INT64", [-1, 3])]
        service.repository.add("compiled_named", {"1/model.pt2": path}, config(ports, outputs))
        service.load("compiled_named")
    ids, weights = torch.arange(12).reshape(4, 3), torch.linspace(0, 1, 12).reshape(4, 3)
    expected = loaded(path)(ids=ids, weights=weights)
    answer = ask(client, "compiled_named", {"ids": ids, "weights": weights})
    assert {name: same(answer[name], expected[name]) for name in expected} == {"apple": True, "zebra": True}


def test_a_packaged_configuration_completes_an_empty_one(
    service: Service, packages: Callable[[str], Path], client: Client
) -> None:
    if "compiled_stored" not in service.loaded:
        service.repository.add("compiled_stored", {"1/model.pt2": packages("mlp")}, 'backend: "pytorch"\n')
        service.load("compiled_stored")
    found = client.config("compiled_stored")
    assert [(port["name"], port["data_type"]) for port in [*found["input"], *found["output"]]] == [
        ("x", "TYPE_FP32"),
        ("y", "TYPE_FP32"),
    ]
    x = torch.ones(3, 8)
    with torch.no_grad():
        assert same(ask(client, "compiled_stored", {"x": x})["y"], loaded(packages("mlp"))(x))


@pytest.mark.parametrize(
    ("shape", "datatype"),
    [((2, 9), "FP32"), ((2, 7), "FP32"), ((65, 8), "FP32"), ((1, 8), "FP32"), ((2, 8), "FP64"), ((2, 8), "FP16")],
)
def test_input_a_package_was_not_compiled_for_is_an_error(
    service: Service, packages: Callable[[str], Path], client: Client, shape: tuple[int, int], datatype: str
) -> None:
    name = f"compiled_free_{datatype.lower()}"
    if name not in service.loaded:
        text = config([Port("x", datatype, [-1, -1])], [Port("y", "FP32", [-1, -1])])
        service.repository.add(name, {"1/model.pt2": packages("mlp")}, text)
        service.load(name)
    with pytest.raises(InferenceServerException) as caught:
        ask(client, name, {"x": torch.ones(shape, dtype=TYPES[datatype])})
    assert "frame #" not in str(caught.value.message())
    if datatype == "FP32":
        x = torch.ones(2, 8)
        with torch.no_grad():
            assert same(ask(client, name, {"x": x})["y"], loaded(packages("mlp"))(x))


def test_a_package_for_the_cpu_is_not_served_as_mps(service: Service, packages: Callable[[str], Path]) -> None:
    ports = [Port("x", "FP32", [8])], [Port("y", "FP32", [4])]
    extra = "instance_group { kind: KIND_MODEL }" + parameters({"DEVICE": "mps"})
    text = config(*ports, batch=8, extra=extra)
    service.repository.add("compiled_mps", {"1/model.pt2": packages("mlp")}, text)
    refusal = service.refusal("compiled_mps")
    assert "mps" in refusal
    assert "cpu" in refusal


def damage(content: bytes, kind: str) -> bytes:
    """Return a package that is damaged in one place."""
    members = zipfile.ZipFile(io.BytesIO(content))
    data = bytearray(content)
    library = next(each for each in members.infolist() if each.filename.endswith(".so"))
    begin = content.index(b"\x7fELF" if sys.platform == "linux" else b"\xcf\xfa\xed\xfe", library.header_offset)
    if kind == "a byte of code":
        data[begin + library.file_size // 2] ^= 0x10
        return bytes(data)
    if kind == "the list of members":
        data[members.start_dir + 20 : members.start_dir + 28] = b"\xf0\xff\xff\xff" * 2
        return bytes(data)
    # The rest has right checksums: made by somebody, not by chance.
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED if kind == "compressed" else zipfile.ZIP_STORED) as made:
        for each in members.infolist():
            item = bytearray(members.read(each))
            name = each.filename
            if each.filename == library.filename:
                if kind == "a segment beyond the end":
                    item[64 + 32 : 64 + 40] = struct.pack("<Q", 1 << 40)
                elif kind == "the table of segments":
                    item[32:40] = struct.pack("<Q", len(item) - 8)
                elif kind == "cut short":
                    item = item[: len(item) // 2]
                elif kind == "no library":
                    item[:4] = b"none"
                elif kind == "a name that leaves":
                    name = "../" * 20 + "tmp/evil.so"
            made.writestr(name, bytes(item))
    return result.getvalue()


DAMAGES = {
    "a byte of code": "checksum",
    "the list of members": "damaged",
    "a segment beyond the end": "beyond the end",
    "the table of segments": "beyond the end",
    "cut short": "beyond the end",
    "no library": "neither an ELF nor a Mach-O library",
    "a name that leaves": "leaves the archive",
    "compressed": "compressed",
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_package_is_a_load_error(service: Service, packages: Callable[[str], Path], kind: str) -> None:
    name = f"compiled_{kind.replace(' ', '_')}"
    text = config([Port("x", "FP32", [8])], [Port("y", "FP32", [4])], batch=8)
    service.repository.add(name, {"1/model.pt2": damage(packages("mlp").read_bytes(), kind)}, text)
    assert DAMAGES[kind] in service.refusal(name)
    assert service.server.running


@pytest.mark.parametrize("seed", range(24))
def test_a_package_with_random_damage_never_ends_the_server(
    service: Service, packages: Callable[[str], Path], seed: int
) -> None:
    data = bytearray(packages("mlp").read_bytes())
    chance = random.Random(seed)
    tail = max(0, len(data) - 4096)
    for _ in range(4):
        place = chance.randrange(tail, len(data)) if chance.random() < 0.5 else chance.randrange(len(data))
        data[place] = chance.choice([0, 0xFF, chance.randrange(256)])
    text = config([Port("x", "FP32", [8])], [Port("y", "FP32", [4])], batch=8)
    service.repository.add("compiled_random", {"1/model.pt2": bytes(data)}, text)
    # What it hits may be padding, and then the package is whole.
    with suppress(InferenceServerException):
        service.client().load("compiled_random")
        service.client().unload("compiled_random")
    assert service.server.running


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"MODULE_METHOD_NAME": "encode"}, "one method"), ({"ENABLE_WEIGHT_SHARING": "false"}, "always share")],
)
def test_what_a_package_cannot_do_is_a_load_error(
    service: Service, packages: Callable[[str], Path], settings: dict[str, str], words: str
) -> None:
    text = config([Port("x", "FP32", [8])], [Port("y", "FP32", [4])], batch=8, extra=parameters(settings))
    service.repository.add("compiled_settings", {"1/model.pt2": packages("mlp")}, text)
    refusal = service.refusal("compiled_settings")
    assert words in refusal
    assert next(iter(settings)) in refusal


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_truncated_package_is_a_load_error(service: Service, packages: Callable[[str], Path], share: float) -> None:
    content = packages("mlp").read_bytes()
    name = f"compiled_truncated_{int(share * 10)}"
    text = config([Port("x", "FP32", [8])], [Port("y", "FP32", [4])], batch=8)
    service.repository.add(name, {"1/model.pt2": content[: int(len(content) * share)]}, text)
    assert "model.pt2" in service.refusal(name)
