"""Give the tests of the synthetic upstream the builds, and servers on this machine."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.integration.upstream.driver import ROOT, Kept, built, vendors_built

__all__ = ["World"]

_PATIENCE = 60.0
_LIBRARY_EDITS = {
    "backend-library-file": "src/backend_model.cc",
    "batch-strategy-file": "src/backend_model.cc",
    "cache-library-file": "src/cache_manager.cc",
    "agent-library-file": "src/repo_agent.cc",
}
_CONFIG = """\
name: "model"
backend: "identity"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }
"""
_AGENT = 'model_repository_agents { agents { name: "checksum" } }\n'
_PLUGINS = (
    "caches/local/libtritoncache_local",
    "repoagents/checksum/libtritonrepoagent_checksum",
    "models/model/batchstrategy",
)
# Registers a region by a key, like a client on the machine of the server.
_CLIENT = """\
import sys
import numpy, tritonclient.http, tritonclient.utils.shared_memory as memory
sys.path.insert(0, sys.argv[1])
import triton_shm_names
triton_shm_names.install(everywhere=True)
region = memory.create_shared_memory_region("region", sys.argv[3], 4096)
try:
    client = tritonclient.http.InferenceServerClient("127.0.0.1:" + sys.argv[2])
    client.register_system_shared_memory("region", sys.argv[3], 4096)
except tritonclient.http.InferenceServerException as error:
    print(error)
finally:
    memory.destroy_shared_memory_region(region)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class World:
    """All builds, each made when a test first asks for it.

    Parameters
    ----------
    folder
        An empty folder.
    """

    folder: Path
    _count: int = field(default=0, init=False)

    @cached_property
    def mac(self) -> dict[str, Kept]:
        """The components built for a Mac."""
        return built("arm64")

    @cached_property
    def vendors(self) -> dict[str, Kept]:
        """The backends that ours replace, built for a Mac."""
        return vendors_built()

    @cached_property
    def host(self) -> dict[str, Kept]:
        """The components built for this machine."""
        return built(None)

    @cached_property
    def tree(self) -> Path:
        """The server with its backends for this machine."""
        tree = self.fresh("host") / "tritonserver"
        for kept in self.host.values():
            shutil.copytree(kept.stage, tree, dirs_exist_ok=True)
        return tree

    @cached_property
    def core_without_library_edits(self) -> Path:
        """The server's library that searches only for names with .so."""
        core = self.host["core"].without_edits(*_LIBRARY_EDITS)
        objects = {f"/{Path(source).name}.o": core.compile(source).made() for source in set(_LIBRARY_EDITS.values())}
        return core.link("triton-core", objects).made()

    def fresh(self, name: str) -> Path:
        """Return a new empty folder."""
        self._count += 1
        folder = self.folder / f"{name}-{self._count}"
        folder.mkdir()
        return folder

    def run(
        self, command: Sequence[str | Path], *, fails: bool = False, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program that ends as expected; return its output."""
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout[-4000:]
        return done

    # Trees of the server.

    def copied(self) -> Path:
        """Return a copy of the server's tree."""
        tree = self.fresh("tree") / "tritonserver"
        shutil.copytree(self.tree, tree)
        return tree

    def with_main(self, objects: Mapping[str, Path]) -> Path:
        """Return a tree with a program that is linked with other objects."""
        tree = self.copied()
        shutil.copy2(self.host["tritonserver"].link("main", objects).made(), tree / "bin/tritonserver")
        return tree

    def plugins(self, name: str, suffix: str, core: Path | None = None) -> Path:
        """Return a tree with another core and a plug-in of each kind, of which one has another suffix."""
        tree = self.copied()
        if core is not None:
            shutil.copy2(core, tree / "lib/libtritonserver.so")
        self._model(tree / "models", _CONFIG + _AGENT)
        for plugin in _PLUGINS:
            (tree / plugin).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self._plugin, tree / f"{plugin}.so")
        (tree / f"{name}.so").rename(tree / f"{name}{suffix}")
        return tree

    def repository(self) -> Path:
        """Return a model repository with a model of the identity backend."""
        return self._model(self.fresh("models"), _CONFIG)

    @cached_property
    def _plugin(self) -> Path:
        folder = self.fresh("plugin")
        (folder / "plugin.c").write_text("int plugin(void) { return 0; }\n")
        self.run(["cc", "-shared", "-fPIC", "-o", folder / "plugin.so", folder / "plugin.c"])
        return folder / "plugin.so"

    @staticmethod
    def _model(repository: Path, config: str) -> Path:
        (repository / "model/1").mkdir(parents=True)
        (repository / "model/config.pbtxt").write_text(config)
        return repository

    # Servers.

    @contextmanager
    def serving(self, tree: Path, *arguments: str | Path) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
        """Start a server; yield the process, its HTTP port and the file with its output. It is ready or has ended."""
        if not arguments:
            arguments = ("--model-repository", tree / "models", "--cache-config", "local,size=1")
        port, log = free_port(), self.fresh("server") / "log"
        command: list[str | Path] = [
            tree / "bin/tritonserver",
            "--http-port",
            str(port),
            "--metrics-port",
            str(free_port()),
        ]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*command, "--allow-client-shm=true", *arguments], stdout=file, stderr=subprocess.STDOUT, cwd=log.parent
            )
        try:
            end = time.monotonic() + _PATIENCE
            while process.poll() is None and not _is_ready(port):
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.02)
            yield process, port, log
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def log(self, tree: Path, *arguments: str | Path) -> str:
        """Start a server, stop it when it is ready, and return its output."""
        with self.serving(tree, *arguments) as (process, _, log):
            process.send_signal(signal.SIGTERM)
            process.wait(_PATIENCE)
            return log.read_text()

    def start(self, tree: Path, *arguments: str | Path) -> str:
        """Start a server and stop it; return its output if it did not become ready."""
        with self.serving(tree, *arguments) as (process, _, log):
            return "" if process.poll() is None else log.read_text()

    def register(self, tree: Path, key: str) -> str:
        """Register a region of shared memory with a server, and return the error if there is one."""
        helper = ROOT / "recipes/libraries/macbuild_compat/python"
        with self.serving(tree, "--model-repository", self.repository()) as (_, port, _):
            return self.run([sys.executable, "-c", _CLIENT, helper, str(port), key]).stdout


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
