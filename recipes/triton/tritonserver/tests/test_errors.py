"""Test that bad requests are refused with a 4xx, and the server keeps working."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

import numpy as np
import pytest
from backend_testing.service import LOOPBACK, Service
from backend_testing.wire import Client, same
from models import BATCH

HEADER = "Inference-Header-Content-Length"
GOOD: dict[str, Any] = {"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
BINARY: dict[str, Any] = {"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}


def head(*inputs: object, **more: object) -> bytes:
    """Return a request's JSON."""
    return json.dumps({"inputs": inputs, **more}).encode()


# Requests that the server understands and does not accept.
WRONG = {
    "type": head({**GOOD, "datatype": "INT32"}),
    "unknown type": head({**GOOD, "datatype": "FP31"}),
    "too many dimensions": head({**GOOD, "shape": [1, 1, 2]}),
    "too few dimensions": head({**GOOD, "shape": [2]}),
    "batch too large": head({**GOOD, "shape": [BATCH + 1, 1], "data": [0] * (BATCH + 1)}),
    "no data": head({key: GOOD[key] for key in ("name", "shape", "datatype")}),
    "no input": head(),
    "unknown input": head({**GOOD, "name": "INPUT1"}),
    "one input too many": head(GOOD, {**GOOD, "name": "INPUT1"}),
    "input twice": head(GOOD, GOOD),
    "unknown output": head(GOOD, outputs=[{"name": "OUTPUT1"}]),
    "binary without binary": head(BINARY),
}
# Requests that it cannot read. Releases differ in whether the status is 400 or 500.
UNREADABLE = {
    "too few numbers": head({**GOOD, "shape": [1, 3]}),
    "too many numbers": head({**GOOD, "shape": [1, 1]}),
    "negative shape": head({**GOOD, "shape": [1, -2]}),
    "shape is not a list": head({**GOOD, "shape": 2}),
    "shape of words": head({**GOOD, "shape": ["1", "2"]}),
    "a word for a number": head({**GOOD, "data": [1, "two"]}),
    "no name": head({key: GOOD[key] for key in ("shape", "datatype", "data")}),
    "no shape": head({key: GOOD[key] for key in ("name", "datatype", "data")}),
    "no type": head({key: GOOD[key] for key in ("name", "shape", "data")}),
    "inputs are not a list": b'{"inputs": 7}',
    "no inputs": b"{}",
    "not JSON": b"\xff\x00 hello",
    "JSON cut off": head(GOOD)[:-3],
    "more after the JSON": head(GOOD) + b"}",
    "not an object": b"[]",
    "binary size is a word": head({**BINARY, "parameters": {"binary_data_size": "8"}}),
}


def refused(service: Service, body: bytes, headers: dict[str, str] | None = None, *, worst: int = 499) -> str:
    """Return the message with which a request is refused."""
    found = service.ask("POST", "/v2/models/identity/infer", body, headers)
    assert 400 <= found.status <= worst, found
    words: str = json.loads(found.body)["error"]
    return words


def check(client: Client) -> None:
    """Check that the server still answers."""
    item = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert same(client.infer("identity", {"INPUT0": item})["OUTPUT0"], item)


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_request_is_refused_and_does_no_harm(service: Service, client: Client, kind: str) -> None:
    assert refused(service, WRONG[kind])
    check(client)


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_unreadable_request_is_an_error_and_does_no_harm(service: Service, client: Client, kind: str) -> None:
    assert refused(service, UNREADABLE[kind], worst=500)
    check(client)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("type", "INT32"),
        ("too many dimensions", "shape"),
        ("unknown input", "INPUT1"),
        ("unknown output", "OUTPUT1"),
        ("batch too large", "batch"),
    ],
)
def test_the_message_names_the_error(service: Service, kind: str, words: str) -> None:
    assert words in refused(service, WRONG[kind])


def test_one_missing_input_of_two_is_an_error(service: Service, client: Client) -> None:
    found = service.ask("POST", "/v2/models/pair/infer", head(GOOD))
    assert found.refused
    assert b"pair" in found.body
    check(client)


@pytest.mark.parametrize("change", ["data cut off", "data too long", "size too small", "header too long"])
def test_binary_data_that_does_not_fit_is_refused(service: Service, client: Client, change: str) -> None:
    said = dict(BINARY, parameters={"binary_data_size": 4}) if change == "size too small" else BINARY
    text = head(said)
    length = str(len(text) + (100 if change == "header too long" else 0))
    data = {"data cut off": b"1234567", "data too long": b"123456789"}.get(change, b"12345678")
    assert refused(service, text + data, {HEADER: length})
    check(client)


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v2/mod", b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\n", b"body"]
)
@pytest.mark.parametrize("how", ["closed", "reset", "half closed"])
def test_a_connection_closed_during_a_request_does_no_harm(
    service: Service, client: Client, sent: bytes, how: str
) -> None:
    if sent == b"body":
        body = head(GOOD)
        sent = (
            b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:-9]
        )
    for _ in range(5):
        with socket.create_connection((LOOPBACK, service.port), 10) as connection:
            connection.sendall(sent)
            if how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "half closed":
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(100)
                assert not answer or answer.startswith(b"HTTP/1.1 4")
    check(client)


@pytest.mark.parametrize("sent", [b"\0" * 9, b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])
def test_data_that_is_not_http_does_no_harm(service: Service, client: Client, sent: bytes) -> None:
    with socket.create_connection((LOOPBACK, service.port), 10) as connection:
        connection.sendall(sent)
        time.sleep(0.05)
    check(client)
