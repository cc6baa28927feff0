"""Test execution providers: chosen by name, refused with a list of those available, and the number of their nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest
from backend_testing.server import Service
from backend_testing.wire import same
from option_models import DOUBLING, NOTHING, ROWS, X, config, model

ONE = "instance_group { kind: KIND_CPU count: 1 }\n"  # without it the server makes two for this backend


def accelerator(name: str, options: Mapping[str, str] | None = None) -> str:
    """Return the entry of an accelerator."""
    pairs = [f'parameters {{ key: "{key}" value: "{text}" }}' for key, text in (options or {}).items()]
    return f'{{ name: "{name}" {" ".join(pairs)} }}'


def accelerators(entries: Sequence[str], kind: str = "cpu") -> str:
    """Return the field of a configuration that lists accelerators."""
    listed = ", ".join(entries)
    return f"optimization {{ execution_accelerators {{ {kind}_execution_accelerator: [ {listed} ] }} }}"


def placed(service: Service, name: str) -> list[dict[str, int]]:
    """Return the nodes of each provider according to the log, for each session of a model."""
    found = re.findall(rf"model {name}: nodes on (.*)", service.log())
    return [{key: int(count) for key, count in re.findall(r"(\w+): (\d+)", line)} for line in found]


def serve(service: Service, name: str, extra: str, file: bytes = DOUBLING) -> None:
    """Write, load and ask a model."""
    service.repository.add(name, {"1/model.onnx": file}, config(*ROWS, batch=8, extra=ONE + extra))
    service.load(name)
    assert same(service.client().infer(name, {"x": X})["y"], X + X)


def refused(service: Service, name: str, extra: str) -> str:
    """Write a model and return the message with which it is refused."""
    service.repository.add(name, {"1/model.onnx": DOUBLING}, config(*ROWS, batch=8, extra=ONE + extra))
    return service.refusal(name)


CPU = {"CPUExecutionProvider": 1}
BOTH = {"CPUExecutionProvider": 1, "AzureExecutionProvider": 0}
GOOD: dict[str, tuple[list[str], dict[str, int]]] = {
    "none": ([], CPU),
    "cpu": ([accelerator("cpu")], CPU),
    "CPU": ([accelerator("CPU")], CPU),
    "azure": ([accelerator("azure")], BOTH),
    "AZURE": ([accelerator("AZURE")], BOTH),
    "full name": ([accelerator("AzureExecutionProvider")], BOTH),
    "two": ([accelerator("azure"), accelerator("cpu")], BOTH),
}


@pytest.mark.parametrize("kind", GOOD)
def test_providers_of_the_library_are_chosen_by_name(service: Service, kind: str) -> None:
    entries, nodes = GOOD[kind]
    name = f"provider_{kind.replace(' ', '_')}"
    serve(service, name, accelerators(entries) if entries else "")
    assert placed(service, name) == [nodes]


def test_the_nodes_of_a_larger_graph_are_counted(service: Service) -> None:
    body = "a = Exp(x) b = Log(a) c = Neg(b) d = Neg(c) y = Add(x, d)"
    file = model("float[n,4] x", "float[n,4] y", body)
    service.repository.add("provider_count", {"1/model.onnx": file}, NOTHING + ONE)
    service.load("provider_count")
    assert placed(service, "provider_count") == [{"CPUExecutionProvider": 5}]


def test_a_graph_without_nodes_is_logged_and_served(service: Service) -> None:
    file = model("float[n,4] x", "float[n,4] y", "y = Identity(x)")
    service.repository.add("provider_empty", {"1/model.onnx": file}, NOTHING + ONE)
    service.load("provider_empty")
    assert len(re.findall("model provider_empty: nodes on", service.log())) == 1
    assert same(service.client().infer("provider_empty", {"x": X})["y"], X)


@pytest.mark.parametrize("name", ["coreml", "CoreML", "xnnpack", "cuda", "tensorrt", "quantum"])
def test_a_missing_provider_is_a_load_error_listing_the_others(service: Service, name: str) -> None:
    options = {"MLComputeUnits": "ALL"} if name == "coreml" else {}
    refusal = refused(service, f"provider_lacking_{name}", accelerators([accelerator(name, options)]))
    assert f"has no execution provider '{name}'; available: azure, cpu" in refusal


REFUSED = {
    "an empty value": (accelerator("azure", {"region": ""}), "execution provider azure: "),
    "options of the cpu": (accelerator("cpu", {"threads": "2"}), "the execution provider cpu takes no options"),
    "no name": (accelerator(""), "has no execution provider ''; available: azure, cpu"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_an_option_that_the_provider_refuses_is_a_load_error(service: Service, kind: str) -> None:
    entry, words = REFUSED[kind]
    name = f"provider_refused_{kind.replace(' ', '_')}"
    refusal = refused(service, name, accelerators([entry]))
    assert f"model {name}: " in refusal
    assert words in refusal


def test_gpu_accelerators_are_refused_with_the_right_key(service: Service) -> None:
    refusal = refused(service, "provider_gpu", accelerators([accelerator("tensorrt")], "gpu"))
    assert "tensorrt" in refusal
    assert "cpu_execution_accelerator" in refusal


def test_a_bad_provider_after_a_good_one_is_a_load_error(service: Service) -> None:
    refusal = refused(service, "provider_second", accelerators([accelerator("azure"), accelerator("warp")]))
    assert "has no execution provider 'warp'" in refusal
