"""Start tritonserver on free ports of the loopback address, and send it requests.

`macbuild test` sets these variables:

MACBUILD_TEST_SERVER
    The server's tree: bin/tritonserver, lib/libtritonserver.*, backends/identity/libtriton_identity.so.
MACBUILD_TEST_LOAD_SECONDS
    Duration of the load test (default 5). Optional.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from backend_testing.server import variable
from backend_testing.wire import Client

__all__ = ["LOOPBACK", "Answer", "Service", "ask", "free_port", "options", "resident", "running", "tree"]

LOOPBACK = "127.0.0.1"
_START_SECONDS = 60.0
_STOP_SECONDS = 45.0
# Below the ports that systems assign to clients, so that no client gets one of ours between two starts.
_PORTS = range(20000, 32000)


def tree() -> Path:
    """Return the folder of the server under test."""
    return Path(variable("MACBUILD_TEST_SERVER", "tritonserver")).absolute()


def free_port() -> int:
    """Return a port that nobody listens on now."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind((LOOPBACK, port))
            return port


@functools.cache
def options(program: Path) -> frozenset[str]:
    """Return the names of all options that a server knows; a part that it is built without has none."""
    done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=_START_SECONDS, check=False)
    return frozenset(re.findall(r"--([a-z][a-z-]+)", done.stdout + done.stderr))


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def refused(self) -> bool:
        """Return whether the client caused the error."""
        return 400 <= self.status < 500


def ask(
    address: str,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    wait: float = 60,
) -> Answer:
    """Send one request over a connection of its own, without a client's checks.

    Raises
    ------
    OSError
        Nobody listens, or the answer is incomplete.
    """
    connection = http.client.HTTPConnection(address, timeout=wait)
    try:
        connection.request(method, path, body, dict(headers or {}))
        found = connection.getresponse()
        return Answer(found.status, dict(found.getheaders()), found.read())
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error
    finally:
        connection.close()


def resident(pid: int) -> int:
    """Return the memory that a process holds (resident set), in bytes."""
    pages = Path(f"/proc/{pid}/statm")
    if pages.exists():
        return int(pages.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    done = subprocess.run(["/bin/ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True)
    return int(done.stdout) * 1024


@dataclass
class Service:
    """A server's process with its addresses and log, and the exit code that it must end with."""

    process: subprocess.Popen[bytes]
    port: int
    metrics_port: int
    log: Path
    code: int = 0
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def http(self) -> str:
        """Address of the inference protocol."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def metrics(self) -> str:
        """Address of the metrics."""
        return f"{LOOPBACK}:{self.metrics_port}"

    def connect(self) -> Client:
        """Open a connection that is closed when the server ends."""
        client = Client("http", self.http)
        self.stack.callback(client.close)
        return client

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request, see `ask`."""
        return ask(self.http, method, path, body, headers)

    def ready(self) -> bool:
        """Return whether the server answers, including the metrics, which start last."""
        try:
            answers = [ask(self.http, "GET", "/v2/health/ready", wait=5), ask(self.metrics, "GET", "/metrics", wait=5)]
        except OSError:
            return False
        return all(answer.status == 200 for answer in answers)

    def wait_ready(self) -> None:
        """Wait until the server is ready; fail with the end of its log if it ends or takes too long."""
        end = time.monotonic() + _START_SECONDS
        while not self.ready():
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.words()}"
            assert time.monotonic() < end, f"not ready after {_START_SECONDS:g} s: {self.words()}"
            time.sleep(0.02)

    def words(self) -> str:
        """Return its log."""
        return self.log.read_text("utf-8", "replace")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Close the connections, send a signal, and return the exit code.

        Triton also waits for open connections, and its exit code is 1 if they outlast its exit timeout.

        Raises
        ------
        subprocess.TimeoutExpired
            The server does not end.
        """
        self.stack.close()
        self.process.send_signal(number)
        return self.process.wait(_STOP_SECONDS)


def _command(program: Path, models: Path, port: int, metrics_port: int) -> list[str]:
    command = [
        str(program),
        f"--model-repository={models}",
        f"--http-address={LOOPBACK}",
        f"--http-port={port}",
        f"--metrics-port={metrics_port}",
        "--exit-timeout-secs=20",
    ]
    # From 26.04 on, shared memory must be enabled. A server without gRPC does not know its options.
    optional = {"allow-grpc": "false", "allow-client-shm": "true"}
    known = options(tree() / "bin" / "tritonserver")
    return command + [f"--{name}={value}" for name, value in optional.items() if name in known]


@contextmanager
def running(
    folder: Path,
    models: Path,
    *arguments: str,
    program: Path | None = None,
    working: Path | None = None,
    port: int = 0,
) -> Iterator[Service]:
    """Run a server for the length of the block, and check that it ends with the exit code `Service.code`.

    Parameters
    ----------
    folder
        Folder for the log.
    models
        Model repository.
    arguments
        More arguments of tritonserver.
    program
        A program to run instead of that of the tree; it must find its backends itself.
    working
        Working directory.
    port
        Port of the inference protocol; 0 chooses one.
    """
    port, metrics_port = port or free_port(), free_port()
    command = _command(program or tree() / "bin" / "tritonserver", models, port, metrics_port)
    if program is None:
        command.append(f"--backend-directory={tree() / 'backends'}")
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=working,
            # Otherwise glibc keeps ever larger freed blocks, and the resident memory says nothing about leaks.
            env={**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)},
            start_new_session=True,
        )
    service = Service(process, port, metrics_port, log)
    try:
        service.wait_ready()
        yield service
        if process.poll() is None:
            service.end()
        assert process.returncode == service.code, f"ended with {process.returncode}: {service.words()}"
    finally:
        service.stack.close()
        process.kill()
        process.wait()
