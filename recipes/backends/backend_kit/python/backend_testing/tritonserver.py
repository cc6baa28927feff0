"""Run a backend inside a real tritonserver on loopback ports."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from macbuild.errors import ToolError

__all__ = ["Server"]

_LOOPBACK = "127.0.0.1"
_LOG_LINES = 20
_LOG_TAIL = 65536
_STOP_SECONDS = 45.0
_POLL_SECONDS = 0.02
# Message in the log when another program took a port between our choice and the server's start.
_TAKEN = re.compile(r"[Aa]ddress already in use|already in use|[Ff]ailed to bind")
# An error in the log, in glog's form (level, month and day), or of getopt, before the help text.
_ERROR = re.compile(r"E\d{4} |\S*tritonserver: ")
_TRIES = 3


class Server:
    """A running tritonserver with one backend folder; use it as a context manager.

    Parameters
    ----------
    tree
        Folder with `bin/tritonserver`, or the unpacked wheel `nvidia-pytriton`.
    repository
        Model repository.
    backends
        Folder with one folder for each backend, such as `pytorch/libtriton_pytorch.so`.
    log
        File that receives everything the server writes.
    arguments
        More arguments of tritonserver, such as `--backend-config=pytorch,device=cpu`.
    environ
        More environment variables; they override inherited ones.
    preload
        Libraries to load before all others, such as a sanitizer's runtime.
    control
        Model control mode: `none` loads all models at the start, and one failure is an error; `explicit` loads on
        request.
    timeout
        Seconds until the server must be ready.

    Attributes
    ----------
    http, grpc, metrics
        Addresses such as `127.0.0.1:8000`, known once the server runs.

    Raises
    ------
    ToolError
        There is no server in `tree`, it does not become ready, it ends by itself, or it does not stop cleanly;
        the message has the last lines of the log.
    """

    def __init__(
        self,
        tree: Path,
        repository: Path,
        backends: Path,
        *,
        log: Path,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        preload: Sequence[Path] = (),
        control: Literal["none", "explicit"] = "none",
        timeout: float = 60.0,
    ) -> None:
        self.program = _program(tree)
        self.tree = tree
        self.log = log
        self.timeout = timeout
        self.http = self.grpc = self.metrics = ""
        self._arguments = [
            f"--model-repository={repository.absolute()}",
            f"--backend-directory={backends.absolute()}",
            f"--model-control-mode={control}",
            *arguments,
        ]
        self._environ = dict(environ or {})
        self._preload = [str(path) for path in preload]
        self._scratch: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        """Start the server and wait until it is ready."""
        try:
            self._start_on_free_ports()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server; raise its crash, if any, because other errors follow from it."""
        crashed = not self.running
        code = self.stop()
        if crashed:
            raise self._failure(f"the server ended by itself {_ending(code)}") from error
        if error is None and code != 0:
            raise self._failure(f"the server was told to stop and ended {_ending(code)}")

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._running_process().pid

    @property
    def running(self) -> bool:
        """True while the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code, the negative signal number after a signal, None while the server runs."""
        return None if self._process is None else self._process.poll()

    def resident(self) -> int:
        """Return the memory that the server holds (resident set), in bytes.

        Raises
        ------
        ToolError
            The server does not run.
        """
        pid = self.pid
        self.check()
        pages_file = Path(f"/proc/{pid}/statm")
        if pages_file.exists():
            pages = int(pages_file.read_text(encoding="ascii").split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        output = subprocess.run(["/bin/ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False).stdout
        return int(output) * 1024

    def check(self) -> None:
        """Raise an error with the end of the log if the server is no longer there.

        Raises
        ------
        ToolError
            The server ended.
        """
        if not self.running:
            raise self._failure(f"the server ended by itself {_ending(self.exit_code)}")

    def ready(self) -> bool:
        """Return the server's own answer at /v2/health/ready."""
        return self.http != "" and _get(self.http, "/v2/health/ready") == http.HTTPStatus.OK

    def wait_ready(self) -> None:
        """Wait until the server is ready.

        Raises
        ------
        ToolError
            It ended, or `timeout` seconds passed.
        """
        end = time.monotonic() + self.timeout
        # The metrics start last, after the server says that it is ready.
        while not (self.ready() and _get(self.metrics, "/metrics")):
            self.check()
            if time.monotonic() > end:
                raise self._failure(f"the server is not ready after {self.timeout:g} s")
            time.sleep(_POLL_SECONDS)
        self.check()

    def stop(self) -> int:
        """Ask the server to stop, kill it with its children if it does not, and return its exit code."""
        process = self._running_process()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._kill()
        code = process.wait()
        self._kill()
        return code

    def _start_on_free_ports(self) -> None:
        for _ in range(_TRIES):
            if self._start():
                return
        raise self._failure(f"another program took the server's ports, {_TRIES} times")

    def _start(self) -> bool:
        """Start once; return False if another program took one of the ports."""
        ports = _free_ports(3)
        self.http, self.grpc, self.metrics = (f"{_LOOPBACK}:{port}" for port in ports)
        command = [str(self.program)]
        for service, port in zip(("http", "grpc", "metrics"), ports, strict=True):
            command += [f"--{service}-address={_LOOPBACK}", f"--{service}-port={port}"]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*command, *self._arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment(),
                    start_new_session=True,
                )
        except OSError as error:
            raise ToolError(f"the server does not start: {error.strerror}", where=self.program) from error
        try:
            self.wait_ready()
        except ToolError:
            if self.running or not _TAKEN.search(self._last_lines()):
                raise
            return False
        return True

    def _environment(self) -> dict[str, str]:
        darwin = sys.platform == "darwin"
        variable, preload = (
            ("DYLD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES") if darwin else ("LD_LIBRARY_PATH", "LD_PRELOAD")
        )
        environ = {**os.environ, **self._environ}
        environ[variable] = os.pathsep.join(filter(None, [str(self._libraries()), environ.get(variable)]))
        if self._preload:
            environ[preload] = ":".join([*self._preload, *filter(None, [environ.get(preload)])])
        return environ

    def _libraries(self) -> Path:
        """Return a folder where a backend finds libtritonserver under the name of its own builds.

        A fixed wheel names it `libtritonserver-<hash>.so`; through a link the loader recognizes that the file is
        already loaded (it compares device and inode).
        """
        suffix = "dylib" if sys.platform == "darwin" else "so"
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="macbuild-server-"))
            found = sorted(self.tree.glob(f"*/libtritonserver*.{suffix}"))
            if found:
                (self._scratch / f"libtritonserver.{suffix}").symlink_to(found[0].absolute())
        return self._scratch

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ToolError("the server was not started", where=self.program)
        return self._process

    def _kill(self) -> None:
        """End the rest of the process group, and remove the folder of links."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def _failure(self, message: str) -> ToolError:
        lines = self._last_lines()
        return ToolError(
            f"{message}; its last words:\n{lines}" if lines else f"{message} and wrote nothing",
            where=self.program,
            hint=f"read the whole log: {self.log}",
        )

    def _last_lines(self) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL))
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        lines = text.splitlines()
        early = [line for line in lines[:-_LOG_LINES] if _ERROR.match(line)]
        return "\n".join([*early[-_LOG_LINES:], *lines[-_LOG_LINES:]])


def _program(tree: Path) -> Path:
    """Return the server's program in a tree."""
    for folder in ("bin", "pytriton/tritonserver/bin"):
        program = tree / folder / "tritonserver"
        if program.is_file():
            if not os.access(program, os.X_OK):
                raise ToolError("the server is not executable", where=program, hint=f"chmod +x {program}")
            return program.absolute()
    raise ToolError(
        "there is no server: neither bin/tritonserver nor pytriton/tritonserver/bin/tritonserver",
        where=tree,
        hint="on Linux unpack the wheel nvidia-pytriton there",
    )


def _free_ports(count: int) -> list[int]:
    """Return different ports of the loopback address on which nobody listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((_LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _get(address: str, path: str) -> int:
    """Return the status of a GET request without proxies, 0 if nobody answers."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _ending(code: int | None) -> str:
    """Describe how a process ended."""
    if code is not None and code < 0:
        return f"by signal {-code} ({signal.strsignal(-code)})"
    return f"with exit code {code}"
