"""Test system shared memory: keys of any length, windows at any page of 4 KiB, and errors that do no harm."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.http
from backend_testing.service import Service
from backend_testing.wire import TYPES, Client, InferenceServerException, same
from models import SLOW_SECONDS, samples
from regions import SIZE, keys_left, made, new_key, region

HALF = SIZE // 2
ITEM = np.arange(24, dtype=np.float32).reshape(2, 12)


def refused(call: Callable[[], object], *, worst: int = 499) -> str:
    """Return the message with which a call is refused."""
    with pytest.raises(InferenceServerException) as caught:
        call()
    assert 400 <= int(caught.value.status()) <= worst, caught.value
    return str(caught.value.message())


def infer_refused(client: Client, tensor: object, output: object = None) -> str:
    """Return the message with which a request is refused."""
    return refused(lambda: client.raw.infer("identity", [tensor], outputs=[output] if output else None))


def unopened(client: Client, key: str) -> str:
    """Return the message with which a key is refused; releases differ in whether the status is 400 or 500."""
    return refused(lambda: client.raw.register_system_shared_memory("nothing", key, SIZE), worst=500)


def status(client: Client, name: str = "") -> list[dict[str, Any]]:
    """Return the regions that the server knows."""
    return list(client.raw.get_system_shared_memory_status(name))


@pytest.mark.parametrize("length", [8, 30, 31, 32, 33, 64, 250])
def test_keys_of_any_length_are_regions(client: Client, length: int) -> None:
    key = new_key(length)
    with region(client, key) as shared:
        assert status(client, shared.name)[0]["key"] == key
        client.raw.infer("identity", [shared.input(ITEM)], outputs=[shared.output(HALF, ITEM.nbytes)])
        assert same(shared.read("FP32", ITEM.shape, HALF), ITEM)
    assert keys_left() == []


def test_long_keys_that_differ_in_the_last_byte_are_two_regions(client: Client) -> None:
    key = new_key(120)[:-1]
    with region(client, key + "a") as left, region(client, key + "b") as right:
        left.write(ITEM)
        right.write(-ITEM)
        for shared, wanted in ((left, ITEM), (right, -ITEM)):
            answer = client.raw.infer("identity", [shared.input(shared.read("FP32", ITEM.shape))])
            assert same(np.array(answer.as_numpy("OUTPUT0")), wanted)


@pytest.mark.parametrize("datatype", TYPES)
def test_every_type_is_read_from_and_written_to_memory(client: Client, datatype: str) -> None:
    item = samples(datatype, 35).reshape(5, 7)
    with region(client) as shared:
        outputs = [shared.output(HALF, HALF)]
        client.raw.infer(f"identity_{datatype.lower()}", [shared.input(item)], outputs=outputs)
        assert same(shared.read(datatype, item.shape, HALF), item)


@pytest.mark.parametrize("start", [4096, 8192, 12288, 16384, 20480])
def test_windows_begin_at_any_page_of_4_kib(client: Client, start: int) -> None:
    size = 2 * start + 8192
    with region(client, size=size, start=start) as shared:
        (found,) = status(client, shared.name)
        assert (found["name"], int(found["offset"]), int(found["byte_size"])) == (shared.name, start, size - start)
        # Triton 2.51 and older start at twice the offset: they map the window, and add its start to the address again.
        places = (0, start)
        for place in places:
            shared.write(ITEM, place + 4)
        client.raw.infer("identity", [shared.input(ITEM, 4)], outputs=[shared.output(1000, ITEM.nbytes)])
        assert [same(shared.read("FP32", ITEM.shape, place + 1000), ITEM) for place in places].count(True) == 1


def test_an_input_may_be_at_an_odd_offset(client: Client) -> None:
    with region(client) as shared:
        answer = client.raw.infer("identity", [shared.input(ITEM, 3)])
        assert same(np.array(answer.as_numpy("OUTPUT0")), ITEM)


def test_the_whole_region_is_usable_to_the_last_byte(client: Client) -> None:
    item = np.arange(SIZE // 4, dtype=np.float32).reshape(1, SIZE // 4)
    with region(client) as shared, region(client) as other:
        client.raw.infer("identity", [shared.input(item)], outputs=[other.output(0, SIZE)])
        assert same(other.read("FP32", item.shape), item)


def test_one_output_may_be_in_memory_and_one_in_the_answer(client: Client) -> None:
    numbers = np.arange(6, dtype=np.int32).reshape(2, 3)
    with region(client) as shared:
        inputs = [shared.input(ITEM), shared.input(numbers, 1024, name="INPUT1")]
        outputs = [shared.output(HALF, HALF), tritonclient.http.InferRequestedOutput("OUTPUT1")]
        answer = client.raw.infer("pair", inputs, outputs=outputs)
        assert same(np.array(answer.as_numpy("OUTPUT1")), numbers)
        assert same(shared.read("FP32", ITEM.shape, HALF), ITEM)


def test_regions_are_unregistered_one_by_one_or_all(client: Client) -> None:
    with region(client) as left, region(client) as right:
        assert {each["name"] for each in status(client)} == {left.name, right.name}
        client.raw.unregister_system_shared_memory(left.name)
        assert [each["name"] for each in status(client)] == [right.name]
        assert left.name in infer_refused(client, left.input(ITEM))
        client.raw.infer("identity", [right.input(ITEM)])
        client.raw.unregister_system_shared_memory()
        assert status(client) == []
        assert right.name in infer_refused(client, right.input(ITEM))
        client.raw.register_system_shared_memory(left.name, left.key, SIZE)
        client.raw.infer("identity", [left.input(ITEM)])


def test_a_removed_region_works_until_it_is_unregistered(client: Client) -> None:
    key = new_key()
    with made(key, SIZE):
        client.raw.register_system_shared_memory("orphan", key, SIZE)
    assert keys_left() == []
    tensor = tritonclient.http.InferInput("INPUT0", [1, 3], "FP32")
    tensor.set_shared_memory("orphan", 12)
    answer = client.raw.infer("identity", [tensor])
    assert same(np.array(answer.as_numpy("OUTPUT0")), np.zeros((1, 3), np.float32))
    client.raw.unregister_system_shared_memory("orphan")
    assert key in unopened(client, key)


def test_a_missing_key_is_named(client: Client) -> None:
    for length in (20, 200):
        key = new_key(length)
        assert key in unopened(client, key)
    assert status(client) == []


def test_a_name_can_be_registered_once(client: Client) -> None:
    with region(client) as shared:
        again = lambda: client.raw.register_system_shared_memory(shared.name, shared.key, SIZE)
        assert shared.name in refused(again)
        client.raw.infer("identity", [shared.input(ITEM)])


@pytest.mark.parametrize(("start", "size"), [(0, SIZE + 1), (0, 1 << 40), (4096, SIZE), (SIZE * 2, 4096)])
def test_a_window_beyond_the_region_is_refused(client: Client, start: int, size: int) -> None:
    key = new_key()
    # Whole pages of macOS, so that there is no room after the region on any system.
    with made(key, SIZE):
        assert "beyond" in refused(lambda: client.raw.register_system_shared_memory("beyond", key, size, start))
    assert status(client) == []


def test_keys_of_the_servers_own_regions_are_refused(client: Client) -> None:
    assert "triton_python_backend_shm_region_1" in unopened(client, "/triton_python_backend_shm_region_1")


@pytest.mark.parametrize("kind", ["input", "output"])
def test_a_region_that_the_server_does_not_know_is_named(client: Client, kind: str) -> None:
    tensor = tritonclient.http.InferInput("INPUT0", list(ITEM.shape), "FP32").set_data_from_numpy(ITEM)
    wanted = tritonclient.http.InferRequestedOutput("OUTPUT0")
    (tensor if kind == "input" else wanted).set_shared_memory("nowhere", ITEM.nbytes)
    assert "nowhere" in infer_refused(client, tensor, wanted)


@pytest.mark.parametrize(
    ("offset", "size"), [(SIZE, 96), (SIZE - 95, 96), (SIZE * 2, 96), (0, SIZE + 1), (1, SIZE), (2**63, 96)]
)
@pytest.mark.parametrize("kind", ["input", "output"])
def test_data_outside_the_region_is_refused(client: Client, kind: str, offset: int, size: int) -> None:
    with region(client) as shared:
        tensor, wanted = shared.input(ITEM), shared.output(HALF, ITEM.nbytes)
        (tensor if kind == "input" else wanted).set_shared_memory(shared.name, size, offset)
        assert shared.name in infer_refused(client, tensor, wanted)
        client.raw.infer("identity", [shared.input(ITEM)], outputs=[shared.output(HALF, ITEM.nbytes)])
        assert same(shared.read("FP32", ITEM.shape, HALF), ITEM)


@pytest.mark.parametrize("size", [ITEM.nbytes - 4, ITEM.nbytes + 4, 1])
def test_an_input_whose_size_differs_from_its_shape_is_refused(client: Client, size: int) -> None:
    with region(client) as shared:
        assert "INPUT0" in infer_refused(client, shared.input(ITEM, size=size))


def test_a_too_small_output_is_an_error_and_nothing_is_written(client: Client) -> None:
    with region(client) as shared:
        with pytest.raises(InferenceServerException, match="OUTPUT0"):
            client.raw.infer("identity", [shared.input(ITEM)], outputs=[shared.output(HALF, ITEM.nbytes - 4)])
        assert not shared.read("FP32", ITEM.shape, HALF).any()
        client.raw.infer("identity", [shared.input(ITEM)], outputs=[shared.output(HALF, ITEM.nbytes)])
        assert same(shared.read("FP32", ITEM.shape, HALF), ITEM)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"key": 7}', b'{"key": "/x", "byte_size": "much"}', b"[", b'{"key": ""}']
)
def test_a_registration_that_cannot_be_read_is_an_error(service: Service, client: Client, body: bytes) -> None:
    found = service.ask("POST", "/v2/systemsharedmemory/region/odd/register", body)
    assert 400 <= found.status <= 500
    assert status(client) == []


def test_unregistering_a_region_in_use_does_no_harm(service: Service) -> None:
    client, slow = service.connect(), service.connect()
    with region(client) as shared:
        outputs = [shared.output(HALF, ITEM.nbytes)]
        waiting = slow.raw.async_infer("slow", [shared.input(ITEM)], outputs=outputs)
        time.sleep(SLOW_SECONDS / 3)
        try:
            client.raw.unregister_system_shared_memory(shared.name)
        except InferenceServerException as error:
            assert "in use" in str(error.message())
        waiting.get_result()
        assert same(shared.read("FP32", ITEM.shape, HALF), ITEM)
    assert client.raw.is_server_live()
