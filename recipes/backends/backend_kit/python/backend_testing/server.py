"""Start tritonserver with the backend under test, and keep its connections and models.

`macbuild test` sets these variables:

MACBUILD_TEST_BACKENDS
    Folder that has the backend, such as `pytorch/libtriton_pytorch.so`, built for this machine.
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
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backend_testing.repository import Repository
from backend_testing.tritonserver import Server
from backend_testing.wire import Client, InferenceServerException

__all__ = ["Service", "library", "preload", "running", "start", "variable"]

# glibc's dlerror(), called by the server for optional functions of a backend, unlocks the lock of the locale once too
# often under AddressSanitizer; a library of the server then waits for it forever in a destructor, before leaks are
# checked. The server works without that call. std::locale waits there too, for locales other than "C", so this library
# says that there are none.
_NO_LOCALES = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <string.h>
typedef locale_t make(int, const char *, locale_t);
void freelocale(locale_t locale) { (void)locale; }
locale_t __newlocale(int mask, const char *name, locale_t base) {
    if (strcmp(name, "C") == 0) return ((make *)dlsym(RTLD_NEXT, "__newlocale"))(mask, name, base);
    errno = ENOENT;
    return 0;
}
"""
# The HTTP server's record of an output buffer, for an output without bytes: it is never released.
_SERVER_LEAKS = "leak:HTTPAPIServer::InferResponseAlloc\n"


def variable(name: str, component: str = "COMPONENT") -> str:
    """Return an environment variable that the tests of a component need; end the tests if it is unset."""
    text = os.environ.get(name)
    if not text:
        pytest.exit(f"{name} is not set: run these tests with `macbuild test {component}`", returncode=4)
    return text


def preload() -> list[Path]:
    """Return the libraries that the server loads first; if there are any, it runs under a sanitizer."""
    return [Path(path) for path in os.environ.get("MACBUILD_TEST_PRELOAD", "").split(":") if path]


def library(source: str, path: Path) -> Path:
    """Compile C to a shared library for this machine."""
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source.encode(), check=True)
    return path


def _sanitizer_options(suppressions: Path) -> dict[str, str]:
    return {
        "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=8",
        "LSAN_OPTIONS": f"suppressions={suppressions}:print_suppressions=0",
        # The server and its libraries are not built for it, so it only knows what our code reads and writes.
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }


def start(
    repository: Path,
    log: Path,
    arguments: Sequence[str] = (),
    *,
    backends: Path,
    suppressions: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Server:
    """Return a server for a repository, not started yet, that loads models on request; use it as a context manager.

    Parameters
    ----------
    repository
        Existing folder of the models.
    log
        File that receives the server's output; other files that it needs are put beside it.
    arguments
        More arguments of tritonserver.
    backends
        Folder with the backend, as MACBUILD_TEST_BACKENDS names it.
    suppressions
        Leaks that are not the backend's, in LeakSanitizer's form, besides those of the server.
    environ
        More environment variables.
    """
    # Otherwise glibc keeps ever larger freed blocks, and the resident memory says nothing about leaks.
    variables = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    libraries = preload()
    if libraries:
        leaks = log.with_name("leaks.supp")
        leaks.write_text(_SERVER_LEAKS + (suppressions.read_text(encoding="utf-8") if suppressions else ""), "utf-8")
        variables |= _sanitizer_options(leaks)
        libraries.append(library(_NO_LOCALES, log.with_name("libnolocales.so")))
    return Server(
        Path(variable("MACBUILD_TEST_SERVER")),
        repository,
        backends,
        log=log,
        arguments=arguments,
        environ={**variables, **(environ or {})},
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
        """Open a new connection."""
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

    def unload(self, name: str) -> None:
        """Unload a model and wait until it is gone.

        Raises
        ------
        TimeoutError
            It is still there after ten seconds.
        """
        self.client().unload(name)
        self.loaded.discard(name)
        end = time.monotonic() + 10
        while self.client().ready(name):
            if time.monotonic() > end:
                raise TimeoutError(f"{name} is not unloaded after 10 s")
            time.sleep(0.05)

    def refusal(self, name: str) -> str:
        """Return the message with which the server refuses to load a model."""
        with pytest.raises(InferenceServerException) as caught:
            self.client().load(name)
        return str(caught.value.message())

    def log(self) -> str:
        """Return the server's output so far."""
        return self.server.log.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """Close the connections."""
        for client in self.clients.values():
            client.close()


@contextmanager
def running(
    folder: Path,
    arguments: Sequence[str] = (),
    *,
    backends: Path,
    suppressions: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Service]:
    """Run a server in a folder, with an empty repository `models` and `server.log`; see `start`.

    Raises
    ------
    ToolError
        The server does not start, ends by itself, or ends with an exit code other than 0, for example because of a
        sanitizer's finding.
    """
    models = folder / "models"
    models.mkdir()
    log = folder / "server.log"
    with start(models, log, arguments, backends=backends, suppressions=suppressions, environ=environ) as server:
        service = Service(server, Repository(models))
        try:
            yield service
        finally:
            service.close()
