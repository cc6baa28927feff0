"""One tritonserver with the built backend for the whole session, and connections to it.

`macbuild test pytorch` sets these variables:

MACBUILD_TEST_BACKENDS
    Folder that has `pytorch/libtriton_pytorch.so`, built for this machine.
MACBUILD_TEST_SERVER
    Folder of the server: the unpacked wheel nvidia-pytriton, or a folder with bin/tritonserver.
MACBUILD_TEST_PRELOAD
    Libraries that the server loads first, separated by `:`; a sanitizer's runtime. Optional.
MACBUILD_TEST_LOAD_SECONDS
    Duration of the load test (default 10). Optional.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# MKL's results depend on the alignment of the data unless it is told to be strict; the server inherits this.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

import pytest
from repository import Repository
from wire import Client, InferenceServerException

from macbuild.smoke import Server

# glibc's dlerror(), called by the server for optional functions of a backend, unlocks the lock of the locale once too
# often under AddressSanitizer; a library of the server then waits for it for ever in a destructor, before leaks are
# looked for. It can do without.
_NO_FREELOCALE = "void freelocale(void *locale) { (void)locale; }\n"
_SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=8",
    "LSAN_OPTIONS": f"suppressions={Path(__file__).with_name('leaks.supp')}:print_suppressions=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


def pytest_configure(config: pytest.Config) -> None:
    """Let the tests use TorchScript, which torch 2.9 and later call deprecated, and what torch itself still uses."""
    config.addinivalue_line("filterwarnings", "ignore:`torch.jit.*deprecated")
    config.addinivalue_line("filterwarnings", "ignore:TypedStorage is deprecated")


def variable(name: str) -> str:
    """Return an environment variable that the tests cannot do without."""
    text = os.environ.get(name)
    if not text:
        pytest.exit(f"{name} is not set: run these tests by `macbuild test pytorch`", returncode=4)
    return text


def preload() -> list[Path]:
    """Return the libraries that the server loads first."""
    return [Path(path) for path in os.environ.get("MACBUILD_TEST_PRELOAD", "").split(":") if path]


def library(source: str, path: Path) -> Path:
    """Compile a shared library."""
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source.encode(), check=True)
    return path


def start(repository: Path, log: Path, arguments: Sequence[str] = ()) -> Server:
    """Return a server for a repository, its models loaded on request, not started yet."""
    # Without it glibc keeps ever larger freed blocks back, and the memory held says nothing of leaks.
    environ = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    libraries = preload()
    if libraries:
        environ |= _SANITIZER_OPTIONS
        libraries.append(library(_NO_FREELOCALE, log.with_name("libnofreelocale.so")))
    return Server(
        Path(variable("MACBUILD_TEST_SERVER")),
        repository,
        Path(variable("MACBUILD_TEST_BACKENDS")),
        log=log,
        arguments=arguments,
        environ=environ,
        preload=libraries,
        control="explicit",
        timeout=120,
    )


@dataclass
class Service:
    """A running server with its repository and connections."""

    server: Server
    repository: Repository
    clients: dict[str, Client] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)

    def connect(self, protocol: str) -> Client:
        """Open a connection of one's own."""
        return Client(protocol, self.server.http if protocol == "http" else self.server.grpc)

    def client(self, protocol: str = "http") -> Client:
        """Return the shared connection of a protocol."""
        if protocol not in self.clients:
            self.clients[protocol] = self.connect(protocol)
        return self.clients[protocol]

    def load(self, name: str) -> None:
        """Load a model once."""
        if name not in self.loaded:
            self.client().load(name)
            self.loaded.add(name)

    def refusal(self, name: str) -> str:
        """Return the words with which the server refuses to load a model."""
        with pytest.raises(InferenceServerException) as caught:
            self.client().load(name)
        return str(caught.value.message())

    def close(self) -> None:
        """Close the connections."""
        for client in self.clients.values():
            client.close()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The server that most tests share; its exit code is checked at the end."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "models").mkdir()
    with start(folder / "models", folder / "server.log") as server:
        service = Service(server, Repository(folder / "models"))
        yield service
        service.close()


@pytest.fixture(scope="session")
def start_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Service]]:
    """Start further servers with other arguments; they end with the session."""
    running: list[Service] = []

    def begin(*arguments: str) -> Service:
        folder = tmp_path_factory.mktemp("service")
        (folder / "models").mkdir()
        server = start(folder / "models", folder / "server.log", arguments)
        running.append(Service(server.__enter__(), Repository(folder / "models")))
        return running[-1]

    yield begin
    for each in running:
        each.close()
        each.server.__exit__(None, None, None)


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, service: Service) -> Client:
    """A connection of each protocol in turn."""
    protocol: str = request.param
    return service.client(protocol)
