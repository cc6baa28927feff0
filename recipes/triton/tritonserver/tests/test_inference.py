"""Test inference over HTTP: every type, in JSON and in binary, shapes, batches, and options of the request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.http
from backend_testing.service import Service
from backend_testing.wire import NAMES, TYPES, Client, Value, same
from models import BATCH, samples

# Types that JSON cannot represent.
BINARY_ONLY = {"FP16", "BF16"}


def tensor(item: Value, *, binary: bool = True, name: str = "INPUT0") -> Any:
    """Return an input with its data."""
    result = tritonclient.http.InferInput(name, list(item.shape), NAMES[item.dtype])
    return result.set_data_from_numpy(item, binary_data=binary)


def echoed(client: Client, item: Value, model: str, *, binary_in: bool = True, binary_out: bool = True) -> Value:
    """Return the identity of a tensor."""
    wanted = tritonclient.http.InferRequestedOutput("OUTPUT0", binary_data=binary_out)
    answer = client.raw.infer(model, [tensor(item, binary=binary_in)], outputs=[wanted])
    assert answer.get_output("OUTPUT0")["datatype"] == NAMES[item.dtype]
    return np.array(answer.as_numpy("OUTPUT0"))


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (BATCH, 33), (2, 4096)])
@pytest.mark.parametrize("datatype", TYPES)
def test_every_type_is_returned_in_binary(client: Client, datatype: str, shape: tuple[int, int]) -> None:
    item = samples(datatype, shape[0] * shape[1]).reshape(shape)
    assert same(echoed(client, item, f"identity_{datatype.lower()}"), item)


@pytest.mark.parametrize("ways", [(False, False), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("datatype", sorted(set(TYPES) - BINARY_ONLY))
def test_every_type_is_returned_in_json(client: Client, datatype: str, ways: tuple[bool, bool]) -> None:
    item = samples(datatype, 12).reshape(2, 6)
    found = echoed(client, item, f"identity_{datatype.lower()}", binary_in=ways[0], binary_out=ways[1])
    # With JSON, strings are returned as str.
    strings = found.dtype == np.object_ and not ways[1]
    assert same(np.char.encode(found.astype(str)).astype(object) if strings else found, item)


def infer(service: Service, model: str, head: object) -> dict[str, Any]:
    """Return the answer to a request in JSON alone."""
    found = service.ask("POST", f"/v2/models/{model}/infer", json.dumps(head).encode())
    assert found.status == 200, found.body
    assert found.headers["Content-Type"] == "application/json"
    answer: dict[str, Any] = json.loads(found.body)
    return answer


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]]], ids=str)
def test_json_may_be_flat_or_nested_and_has_version_and_id(service: Service, data: Sequence[Any]) -> None:
    head = {"id": "größer 7", "inputs": [{"name": "INPUT0", "shape": [2, 2], "datatype": "FP32", "data": data}]}
    found = infer(service, "identity", head)
    assert (found["id"], found["model_name"], found["model_version"]) == ("größer 7", "identity", "1")
    assert found["outputs"] == [{"name": "OUTPUT0", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]


def test_booleans_of_json_are_booleans(service: Service) -> None:
    data = [True, False, True]
    head = {"inputs": [{"name": "INPUT0", "shape": [1, 3], "datatype": "BOOL", "data": data}]}
    found = infer(service, "identity_bool", head)["outputs"][0]["data"]
    assert [(type(each), each) for each in found] == [(bool, each) for each in data]


def test_whole_numbers_of_json_keep_every_bit(service: Service) -> None:
    for datatype, data in (("UINT64", [2**64 - 1, 2**53 + 1]), ("INT64", [-(2**63), 2**63 - 1])):
        head = {"inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": datatype, "data": data}]}
        assert infer(service, f"identity_{datatype.lower()}", head)["outputs"][0]["data"] == data


def test_all_outputs_are_binary_if_the_request_says_so(service: Service) -> None:
    head = {
        "parameters": {"binary_data_output": True},
        "inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "data": [1.5, -2]}],
    }
    found = service.ask("POST", "/v2/models/identity/infer", json.dumps(head).encode())
    size = int(found.headers["Inference-Header-Content-Length"])
    output = json.loads(found.body[:size])["outputs"][0]
    assert output["parameters"]["binary_data_size"] == 8
    assert "data" not in output
    assert found.body[size:] == np.array([1.5, -2], np.float32).tobytes()


def test_inputs_differ_in_type_and_outputs_are_chosen(client: Client) -> None:
    left, right = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(10, dtype=np.int32).reshape(2, 5)
    found = client.infer("pair", {"INPUT0": left, "INPUT1": right})
    assert same(found["OUTPUT0"], left)
    assert same(found["OUTPUT1"], right)
    found = client.infer("pair", {"INPUT1": right, "INPUT0": left}, ["OUTPUT1"])
    assert list(found) == ["OUTPUT1"]
    assert same(found["OUTPUT1"], right)


def test_a_request_may_mix_json_and_binary_inputs(client: Client) -> None:
    left, right = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(10, dtype=np.int32).reshape(2, 5)
    for ways in ((True, False), (False, True)):
        inputs = [tensor(left, binary=ways[0]), tensor(right, binary=ways[1], name="INPUT1")]
        found = client.infer("pair", inputs)
        assert same(found["OUTPUT0"], left)
        assert same(found["OUTPUT1"], right)


def test_a_model_without_batches_takes_its_whole_shape(client: Client) -> None:
    item = np.arange(15, dtype=np.float32).reshape(5, 3)
    assert same(echoed(client, item, "plane"), item)


def test_a_tensor_of_16_mib_is_returned(client: Client) -> None:
    item = np.random.default_rng(5).random((4, 1 << 20), np.float32)
    assert same(echoed(client, item, "identity"), item)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_requests_and_answers_may_be_compressed(client: Client, algorithm: str) -> None:
    item = np.arange(5000, dtype=np.float32).reshape(1, 5000)
    answer = client.raw.infer(
        "identity",
        [tensor(item)],
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    assert same(np.array(answer.as_numpy("OUTPUT0")), item)


def test_one_connection_serves_many_requests(client: Client) -> None:
    for index in range(200):
        item = np.full((1 + index % BATCH, 1 + index), index, np.float32)
        assert same(echoed(client, item, "identity"), item)


def test_waiting_requests_are_batched_and_get_their_own_rows(service: Service) -> None:
    before = service.connect().statistics("gathering")
    items = [np.full((1, 3), index, np.float32) for index in range(16)]

    def echo(item: Value) -> Value:
        client = Client("http", service.http)
        try:
            return echoed(client, item, "gathering")
        finally:
            client.close()

    with ThreadPoolExecutor(len(items)) as pool:
        found = list(pool.map(echo, items))
    assert all(map(same, found, items))
    wanted = int(before.get("inference_count", 0)) + len(items)
    rows, executions, _ = service.connect().counts("gathering", wanted)
    assert rows == wanted
    assert executions - int(before.get("execution_count", 0)) < len(items) / 2
