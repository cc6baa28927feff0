"""Measure with a client that disturbs little: one thread, requests prepared in advance, plain sockets."""

from __future__ import annotations

import json
import re
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

__all__ = ["Client", "Segment", "connect", "request"]

_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")
_TIMEOUT = 60.0


def request(model: str, shape: Sequence[int], data: bytes, outputs: Sequence[str]) -> bytes:
    """Return an HTTP request for one FP32 input INPUT__0, tensors in binary both ways.

    The format is the binary tensor data extension of the inference protocol, documented by Triton.
    """
    head = {
        "inputs": [
            {"name": "INPUT__0", "shape": shape, "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}
        ],
        "outputs": [{"name": name, "parameters": {"binary_data": True}} for name in outputs],
    }
    text = json.dumps(head).encode()
    lines = [
        f"POST /v2/models/{model}/infer HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/octet-stream",
        f"Inference-Header-Content-Length: {len(text)}",
        f"Content-Length: {len(text) + len(data)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + text + data


@dataclass
class Segment:
    """Consecutive requests: the latency of each and the total time, in seconds, and the body of the last answer."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    body: bytes = b""


@dataclass(frozen=True)
class Client:
    """Open connections, each with one request under way at any time."""

    connections: Sequence[socket.socket]

    def run(self, message: bytes, count: int) -> Segment:
        """Send a request `count` times over all connections and wait for the answers.

        Raises
        ------
        RuntimeError
            If an answer is not 200.
        """
        segment = Segment()
        starts: dict[socket.socket, float] = {}
        started = time.perf_counter()
        with selectors.DefaultSelector() as selector:
            for connection in self.connections[:count]:
                selector.register(connection, selectors.EVENT_READ, connection)
                starts[connection] = time.perf_counter()
                connection.sendall(message)
            left = count - len(starts)
            while len(segment.latencies) < count:
                for key, _ in selector.select(_TIMEOUT):
                    connection = key.data
                    segment.body = _answer(connection)
                    now = time.perf_counter()
                    segment.latencies.append(now - starts[connection])
                    if left > 0:
                        left -= 1
                        starts[connection] = now
                        connection.sendall(message)
        segment.seconds = time.perf_counter() - started
        return segment


@contextmanager
def connect(address: str, count: int) -> Iterator[Client]:
    """Yield a client with this many connections to `host:port`."""
    host, port = address.rsplit(":", 1)
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=_TIMEOUT))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections.append(connection)
        yield Client(connections)


def _answer(connection: socket.socket) -> bytes:
    """Read one complete answer and return its body."""
    data = connection.recv(1 << 16)
    while b"\r\n\r\n" not in data:
        data += _more(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head + b"\r\n")
    if not head.startswith(b"HTTP/1.1 200 ") or length is None:
        raise RuntimeError(data.decode(errors="replace"))
    while len(body) < int(length[1]):
        body += _more(connection)
    return body


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise RuntimeError("the server closed the connection")
    return data
