"""Test events that end the server and events that do not: signals, a port in use, clients that disconnect."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from backend_testing.service import Service, free_port, running
from backend_testing.wire import same
from models import SLOW_SECONDS, add
from regions import SIZE, Region, keys_left, made, new_key

ITEM = np.arange(6, dtype=np.float32).reshape(2, 3)
NUMBERS = ITEM.flatten().tolist()
BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [2, 3], "datatype": "FP32", "data": NUMBERS}]}).encode()


@contextmanager
def flying(service: Service) -> Iterator[http.client.HTTPConnection]:
    """Send a request that takes long, and yield the connection of its answer."""
    connection = http.client.HTTPConnection(service.http, timeout=60)
    try:
        connection.request("POST", "/v2/models/slow/infer", BODY)
        time.sleep(SLOW_SECONDS / 3)
        yield connection
    finally:
        connection.close()


def answer(connection: http.client.HTTPConnection) -> object:
    """Return the numbers of the answer to the request in flight."""
    found = connection.getresponse()
    assert found.status == 200
    return json.loads(found.read())["outputs"][0]["data"]


def taken(service: Service) -> bool:
    """Return whether the server accepts a request over a new connection."""
    try:
        return service.ask("POST", "/v2/models/identity/infer", BODY).status == 200
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_flight_is_answered_before_the_server_ends(
    tmp_path: Path, repository: Path, number: signal.Signals
) -> None:
    with running(tmp_path, repository) as service:
        with flying(service) as connection:
            service.process.send_signal(number)
            end = time.monotonic() + SLOW_SECONDS
            while taken(service):
                assert time.monotonic() < end, "it still accepts new requests"
            assert answer(connection) == NUMBERS
        assert service.process.wait(30) == 0
        assert f"Signal ({number.value}) received" in service.words()
        assert not taken(service)


def test_a_request_in_flight_writes_its_shared_memory(tmp_path: Path, repository: Path) -> None:
    key = new_key()
    with running(tmp_path, repository) as service, made(key, SIZE) as handle:
        client, shared = service.connect(), Region("flight", key, handle, 0)
        client.raw.register_system_shared_memory(shared.name, key, SIZE)
        waiting = client.raw.async_infer("slow", [shared.input(ITEM)], outputs=[shared.output(4096, ITEM.nbytes)])
        time.sleep(SLOW_SECONDS / 3)
        service.process.send_signal(signal.SIGTERM)
        waiting.get_result()
        client.close()
        assert service.process.wait(30) == 0
        assert same(shared.read("FP32", ITEM.shape, 4096), ITEM)
    assert keys_left() == []


def test_an_idle_server_ends_at_once_and_its_port_is_free(tmp_path: Path, repository: Path) -> None:
    port = free_port()
    for _ in range(3):
        with running(tmp_path, repository, port=port) as service:
            assert service.connect().raw.is_server_ready()
            start = time.monotonic()
            assert service.end() == 0
            assert time.monotonic() - start < 10


def test_repeated_signals_end_the_server_once(tmp_path: Path, repository: Path) -> None:
    with running(tmp_path, repository) as service:
        with flying(service) as connection:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                service.process.send_signal(number)
                time.sleep(0.05)
            assert answer(connection) == NUMBERS
        assert service.process.wait(30) == 0


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_logs_a_trace_and_ends_by_its_signal(tmp_path: Path, repository: Path, number: signal.Signals) -> None:
    with running(tmp_path, repository) as service:
        before = len(service.words())
        service.code = -number
        assert service.end(number) == -number
    words = service.words()[before:]
    assert str(number.value) in words
    assert len(re.findall(r"0x[0-9a-fA-F]{6,}", words)) > 2, words


@pytest.mark.parametrize("taken", ["--http-port", "--metrics-port"])
def test_a_port_in_use_is_reported_and_the_first_server_stays(
    tmp_path: Path, service: Service, repository: Path, taken: str
) -> None:
    port = service.port if taken == "--http-port" else service.metrics_port
    with (
        pytest.raises(AssertionError, match=f"{port}' already in use") as caught,
        running(tmp_path, repository, f"{taken}={port}"),
    ):
        pass
    assert re.match("ended with 1:", str(caught.value))
    assert same(service.connect().infer("identity", {"INPUT0": ITEM})["OUTPUT0"], ITEM)


def binary(size: int) -> tuple[bytes, dict[str, str]]:
    """Return the body of a request with that many bytes of data, and its headers; the answer is in binary, too."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, size // 4], "parameters": {"binary_data_size": size}}
    head = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [tensor]}).encode()
    return head + bytes(range(256)) * (size // 256), {"Inference-Header-Content-Length": str(len(head))}


def test_an_answer_read_slowly_is_completed_before_the_end(tmp_path: Path, repository: Path) -> None:
    # More than the socket buffers hold.
    size = 1 << 24
    body, headers = binary(size)
    with running(tmp_path, repository) as service:
        connection = http.client.HTTPConnection(service.http, timeout=60)
        connection.request("POST", "/v2/models/identity/infer", body, headers)
        found = connection.getresponse()
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert found.read()[-size:] == body[-size:]
        connection.close()
        assert service.process.wait(30) == 0


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_clients_that_disconnect_early_do_not_end_the_server(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, how: str
) -> None:
    models = tmp_path_factory.mktemp("repository")
    add(models, "slow", delay=0.05, extra="dynamic_batching { }\n")
    # More than a socket's buffer holds, so that the server is writing when its client has gone.
    body, headers = binary(1 << 22)
    with running(tmp_path, models) as service:
        for index in range(20):
            connection = http.client.HTTPConnection(service.http, timeout=60)
            connection.request("POST", "/v2/models/slow/infer", body, headers)
            assert connection.sock
            if index % 2:
                connection.sock.recv(1000)
            if how == "reset":
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        assert same(service.connect().infer("slow", {"INPUT0": ITEM})["OUTPUT0"], ITEM)
        assert service.end() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model-repository=/nowhere/models"], "nowhere"),
        (["--no-such-option=1"], "no-such-option"),
        (["--http-port=word"], "word|http-port"),
    ],
)
def test_wrong_arguments_are_named_and_end_the_server(
    tmp_path: Path, repository: Path, arguments: list[str], words: str
) -> None:
    with pytest.raises(AssertionError, match=words), running(tmp_path, repository, *arguments):
        pass
