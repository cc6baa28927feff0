"""Test system shared memory: inputs read from it, outputs written to it, for HTTP and gRPC."""

from __future__ import annotations

import pytest
import torch
from backend_testing.memory import SIZE, region
from backend_testing.repository import Port
from backend_testing.server import Service
from modules import config, file, saved, scripted
from wire import TYPES, Client, InferenceServerException, array, same, value

HALF = SIZE // 2


@pytest.mark.parametrize("datatype", TYPES)
def test_tensors_of_every_type_go_through_shared_memory(service: Service, client: Client, datatype: str) -> None:
    model = f"memory_{datatype.lower()}"
    port = Port("x", datatype, [-1, -1])
    module = scripted("Negation" if datatype == "BOOL" else "Arithmetic")
    if model not in service.loaded:
        service.repository.add(model, {"1/model.pt": saved(module)}, config([port], [port._replace(name="y")]))
        service.load(model)
    x = torch.arange(35).reshape(5, 7).to(TYPES[datatype])
    expected = module(x)
    with region(client) as shared:
        client.raw.infer(model, [shared.input("x", array(x))], outputs=[shared.output("y")])
        assert same(value(shared.read(datatype, [5, 7], HALF)), expected)


def test_an_input_that_is_not_aligned_is_read(service: Service, client: Client) -> None:
    port = Port("x", "FP64", [-1])
    if "memory_odd" not in service.loaded:
        text = config([port], [port._replace(name="y")])
        service.repository.add("memory_odd", {"1/model.pt": file("Arithmetic")}, text)
        service.load("memory_odd")
    x = torch.linspace(0, 1, 9, dtype=torch.float64)
    with region(client) as shared:
        answer = client.raw.infer("memory_odd", [shared.input("x", array(x), 3)])
        assert same(value(answer.as_numpy("y")), x * 2)
        assert same(value(shared.read("FP64", [9], 3)), x)


def test_a_model_writing_to_its_input_leaves_client_memory_alone(service: Service, client: Client) -> None:
    port = Port("x", "FP32", [-1])
    if "memory_inplace" not in service.loaded:
        text = config([port], [port._replace(name="y")])
        service.repository.add("memory_inplace", {"1/model.pt": file("InPlace")}, text)
        service.load("memory_inplace")
    x = torch.arange(16.0)
    with region(client) as shared:
        tensor = shared.input("x", array(x))
        for _ in range(2):
            answer = client.raw.infer("memory_inplace", [tensor])
            assert same(value(answer.as_numpy("y")), x + 1)
        assert same(value(shared.read("FP32", [16])), x)


def test_strings_go_through_shared_memory(service: Service, client: Client) -> None:
    if "memory_words" not in service.loaded:
        ports = [Port("words", "BYTES", [-1])], [Port("loud", "BYTES", [-1])]
        service.repository.add("memory_words", {"1/model.pt": file("Shout")}, config(*ports))
        service.load("memory_words")
    words = ["one", "", "größer"]
    with region(client) as shared:
        client.raw.infer("memory_words", [shared.input("words", array(words))], outputs=[shared.output("loud")])
        assert value(shared.read("BYTES", [3], HALF)) == scripted("Shout")(words)


@pytest.mark.parametrize("kind", ["output region", "input region"])
def test_a_too_small_region_is_an_error_and_the_server_continues(service: Service, client: Client, kind: str) -> None:
    port = Port("x", "FP32", [-1])
    if "memory_small" not in service.loaded:
        text = config([port], [port._replace(name="y")])
        service.repository.add("memory_small", {"1/model.pt": file("Arithmetic")}, text)
        service.load("memory_small")
    x = torch.arange(64.0)
    with region(client) as shared:
        small = kind == "output region"
        tensor = shared.input("x", array(x), size=256 if small else 128)
        wanted = shared.output("y", size=100 if small else HALF)
        with pytest.raises(InferenceServerException, match=r"size|memory"):
            client.raw.infer("memory_small", [tensor], outputs=[wanted])
        client.raw.infer("memory_small", [shared.input("x", array(x))], outputs=[shared.output("y")])
        assert same(value(shared.read("FP32", [64], HALF)), x * 2)
