"""System shared memory: inputs read from it, outputs written to it, for HTTP and gRPC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import torch
import tritonclient.utils.shared_memory as shm
from conftest import Service
from modules import scripted
from repository import Port, config
from tritonclient.utils import serialize_byte_tensor
from wire import NAMES, TYPES, Client, InferenceServerException, array, same, value

SIZE = 1 << 16


@contextmanager
def region(client: Client, size: int = SIZE) -> Iterator[tuple[str, Any]]:
    """Make a region of shared memory, known to the server while the block runs."""
    name = f"macbuild-{uuid4().hex}"
    handle = shm.create_shared_memory_region(name, f"/{name}", size)
    try:
        client.raw.register_system_shared_memory(name, f"/{name}", size)
        yield name, handle
    finally:
        unregister(client, name)
        shm.destroy_shared_memory_region(handle)


def unregister(client: Client, name: str) -> None:
    """Make the server forget a region; it may use it for a moment after it has answered."""
    for _ in range(100):
        try:
            client.raw.unregister_system_shared_memory(name)
        except InferenceServerException as error:
            if "in use" not in str(error.message()):
                raise
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the server uses {name} for ever")


def ask(client: Client, model: str, tensor: Any, output: str, name: str, size: int = SIZE // 2) -> Any:  # noqa: ANN401
    """Send a request whose output goes to the second half of a region."""
    wanted = client.module.InferRequestedOutput(output)
    wanted.set_shared_memory(name, size, offset=SIZE // 2)
    return client.raw.infer(model, [tensor], outputs=[wanted])


@pytest.mark.parametrize("datatype", TYPES)
def test_tensors_of_every_type_go_through_shared_memory(service: Service, client: Client, datatype: str) -> None:
    model = f"memory_{datatype.lower()}"
    port = Port("x", datatype, [-1, -1])
    module = scripted("Negation" if datatype == "BOOL" else "Arithmetic")
    if model not in service.loaded:
        service.repository.add(model, {"1/model.pt": module}, config([port], [port._replace(name="y")]))
        service.load(model)
    x = torch.arange(35).reshape(5, 7).to(TYPES[datatype])
    expected = module(x)
    with region(client) as (name, handle):
        shm.set_shared_memory_region(handle, [array(x)])
        tensor = client.module.InferInput("x", [5, 7], NAMES[x.dtype])
        tensor.set_shared_memory(name, array(x).nbytes)
        ask(client, model, tensor, "y", name)
        found = shm.get_contents_as_numpy(handle, array(x).dtype, [5, 7], offset=SIZE // 2)
        assert same(value(found), expected)


def test_an_input_that_is_not_aligned_is_read(service: Service, client: Client) -> None:
    port = Port("x", "FP64", [-1])
    if "memory_odd" not in service.loaded:
        text = config([port], [port._replace(name="y")])
        service.repository.add("memory_odd", {"1/model.pt": scripted("Arithmetic")}, text)
        service.load("memory_odd")
    x = torch.linspace(0, 1, 9, dtype=torch.float64)
    with region(client) as (name, handle):
        shm.set_shared_memory_region(handle, [np.frombuffer(b"\0" * 3 + array(x).tobytes(), np.uint8)])
        tensor = client.module.InferInput("x", [9], "FP64")
        tensor.set_shared_memory(name, 72, offset=3)
        answer = client.raw.infer("memory_odd", [tensor])
        assert same(value(answer.as_numpy("y")), x * 2)
        assert shm.get_contents_as_numpy(handle, np.uint8, [75]).tobytes()[3:] == array(x).tobytes()


def test_a_model_that_writes_to_its_input_does_not_change_the_clients_memory(service: Service, client: Client) -> None:
    port = Port("x", "FP32", [-1])
    if "memory_inplace" not in service.loaded:
        text = config([port], [port._replace(name="y")])
        service.repository.add("memory_inplace", {"1/model.pt": scripted("InPlace")}, text)
        service.load("memory_inplace")
    x = torch.arange(16.0)
    with region(client) as (name, handle):
        shm.set_shared_memory_region(handle, [array(x)])
        tensor = client.module.InferInput("x", [16], "FP32")
        tensor.set_shared_memory(name, 64)
        for _ in range(2):
            answer = client.raw.infer("memory_inplace", [tensor])
            assert same(value(answer.as_numpy("y")), x + 1)
        assert same(value(shm.get_contents_as_numpy(handle, np.float32, [16])), x)


def test_strings_go_through_shared_memory(service: Service, client: Client) -> None:
    if "memory_words" not in service.loaded:
        ports = [Port("words", "BYTES", [-1])], [Port("loud", "BYTES", [-1])]
        service.repository.add("memory_words", {"1/model.pt": scripted("Shout")}, config(*ports))
        service.load("memory_words")
    words = ["one", "", "größer"]
    packed = serialize_byte_tensor(array(words))
    with region(client) as (name, handle):
        shm.set_shared_memory_region(handle, [packed])
        tensor = client.module.InferInput("words", [3], "BYTES")
        tensor.set_shared_memory(name, len(packed.item()))
        ask(client, "memory_words", tensor, "loud", name)
        found = shm.get_contents_as_numpy(handle, np.object_, [3], offset=SIZE // 2)
        assert value(found) == scripted("Shout")(words)


@pytest.mark.parametrize("kind", ["output region", "input region"])
def test_a_region_that_is_too_small_is_an_error_and_the_next_request_is_served(
    service: Service, client: Client, kind: str
) -> None:
    port = Port("x", "FP32", [-1])
    if "memory_small" not in service.loaded:
        text = config([port], [port._replace(name="y")])
        service.repository.add("memory_small", {"1/model.pt": scripted("Arithmetic")}, text)
        service.load("memory_small")
    x = torch.arange(64.0)
    with region(client) as (name, handle):
        shm.set_shared_memory_region(handle, [array(x)])
        tensor = client.module.InferInput("x", [64], "FP32")
        tensor.set_shared_memory(name, 256 if kind == "output region" else 128)
        with pytest.raises(InferenceServerException, match=r"size|memory"):
            ask(client, "memory_small", tensor, "y", name, size=100)
        tensor.set_shared_memory(name, 256)
        ask(client, "memory_small", tensor, "y", name)
        found = shm.get_contents_as_numpy(handle, np.float32, [64], offset=SIZE // 2)
        assert same(value(found), x * 2)
