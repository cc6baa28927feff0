"""Test system shared memory: inputs read from it, outputs computed into it, for HTTP and gRPC."""

from __future__ import annotations

import models
import numpy as np
import pytest
from backend_testing.memory import SIZE, region
from backend_testing.repository import Port, config
from backend_testing.server import Service
from backend_testing.wire import TYPES, Client, InferenceServerException, same, texts

HALF = SIZE // 2


def serve(service: Service, name: str, model: bytes, *ports: Port) -> None:
    """Write and load a model of one input and one output once."""
    if name not in service.loaded:
        service.repository.add(name, {"1/model.onnx": model}, config("onnxruntime", ports[:1], ports[1:]))
        service.load(name)


def serve_line(service: Service, name: str, model: bytes, datatype: str = "FP32") -> None:
    """Write and load a model of one row in and out once."""
    serve(service, name, model, Port("x", datatype, [-1]), Port("y", datatype, [-1]))


@pytest.mark.parametrize("datatype", [name for name in TYPES if name != "BYTES"])
def test_tensors_of_every_type_go_through_shared_memory(service: Service, client: Client, datatype: str) -> None:
    model = f"memory_{datatype.lower()}"
    serve(service, model, models.turned(datatype), Port("x", datatype, [-1, -1]), Port("y", datatype, [-1, -1]))
    x = models.numbers(datatype, 5, 7)
    with region(client) as shared:
        for _ in range(2):
            shared.write(np.zeros(HALF, np.uint8), HALF)
            client.raw.infer(model, [shared.input("x", x)], outputs=[shared.output("y")])
            assert same(shared.read(datatype, [7, 5], HALF), x.T)
        assert same(shared.read(datatype, [5, 7]), x)


@pytest.mark.parametrize("offset", [3, 4, 12])
def test_an_input_that_is_not_aligned_is_read(service: Service, client: Client, offset: int) -> None:
    model = models.elementwise("FP64", ["N"])
    serve_line(service, "memory_odd", model, "FP64")
    x = np.linspace(0, 1, 9)
    with region(client) as shared:
        answer = client.raw.infer("memory_odd", [shared.input("x", x, offset)])
        assert same(answer.as_numpy("y"), x * 2)
        assert same(shared.read("FP64", [9], offset), x)


@pytest.mark.parametrize("offset", [1, 4, 12])
def test_an_unaligned_output_is_written_and_nothing_else(service: Service, client: Client, offset: int) -> None:
    serve_line(service, "memory_odd", models.elementwise("FP64", ["N"]), "FP64")
    x = np.linspace(0, 1, 1001)
    place = HALF + offset
    with region(client) as shared:
        shared.write(np.full(SIZE, 0xAB, np.uint8))
        client.raw.infer("memory_odd", [shared.input("x", x)], outputs=[shared.output("y", place, x.nbytes)])
        assert same(shared.read("FP64", [1001], place), x * 2)
        around = shared.read("UINT8", [SIZE])
        assert set(around[x.nbytes : place]) == set(around[place + x.nbytes :]) == {0xAB}


def test_an_output_of_an_undeclared_size_is_written(service: Service, client: Client) -> None:
    name = f"memory_lie_{client.protocol}"
    serve_line(service, name, models.kept())
    x = np.array([1, -1, 2, -2, 3], np.float32)
    with region(client) as shared:
        for _ in range(2):
            shared.write(np.zeros(SIZE // 4, np.float32))
            answer = client.raw.infer(name, [shared.input("x", x)], outputs=[shared.output("y")])
            head = answer.get_output("y")
            assert list(head["shape"] if client.protocol == "http" else head.shape) == [3]
            assert same(shared.read("FP32", [3], HALF), x[x > 0])


def test_strings_go_through_shared_memory(service: Service, client: Client) -> None:
    serve(service, "memory_words", models.shouted(["N"]), Port("words", "BYTES", [-1]), Port("loud", "BYTES", [-1]))
    words = texts(["one", "", "größer", "nul\0inside"])
    with region(client) as shared:
        client.raw.infer("memory_words", [shared.input("words", words)], outputs=[shared.output("loud")])
        assert same(shared.read("BYTES", [4], HALF), texts([word + b"!" for word in words]))


@pytest.mark.parametrize("kind", ["output region", "input region"])
def test_a_too_small_region_is_an_error_and_the_server_continues(service: Service, client: Client, kind: str) -> None:
    serve_line(service, "memory_small", models.elementwise("FP32", ["N"]))
    x = np.arange(64, dtype=np.float32)
    with region(client) as shared:
        outputs = [shared.output("y", size=100)]
        tensor = shared.input("x", x, size=256 if kind == "output region" else 128)
        with pytest.raises(InferenceServerException, match=r"size|memory"):
            client.raw.infer("memory_small", [tensor], outputs=outputs)
        client.raw.infer("memory_small", [shared.input("x", x)], outputs=[shared.output("y")])
        assert same(shared.read("FP32", [64], HALF), x * 2)


def test_strings_that_do_not_fit_into_the_region_are_an_error(service: Service, client: Client) -> None:
    serve(service, "memory_words", models.shouted(["N"]), Port("words", "BYTES", [-1]), Port("loud", "BYTES", [-1]))
    words = texts(["long" * 100] * 3)
    with region(client) as shared:
        tensor = shared.input("words", words)
        with pytest.raises(InferenceServerException, match=r"size|memory"):
            client.raw.infer("memory_words", [tensor], outputs=[shared.output("loud", size=1000)])
        client.raw.infer("memory_words", [tensor], outputs=[shared.output("loud")])
        assert same(shared.read("BYTES", [3], HALF), texts([word + b"!" for word in words]))
