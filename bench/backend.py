"""The PyTorch backend in a real server, against Triton's Python backend with the same TorchScript files.

All is measured in one run of one server. A third backend that computes nothing shows what the server and the client
cost; what a backend adds to its latency is counted. A program without a server shows what LibTorch itself costs.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

import torch
from torch import Tensor

from bench import python_backend
from bench.client import Segment, connect, request
from bench.inputs import work_folder
from bench.networks import NETWORKS, Network
from bench.python_backend import PythonBackend
from bench.timing import Row, duration
from macbuild.compile import build_for_host
from macbuild.config import load_settings
from macbuild.events import discard
from macbuild.hosttest import prepare_tests
from macbuild.project import Project
from macbuild.smoke import Server

__all__ = ["Report", "measure"]

CLIENTS = (1, 4, 16)
BACKENDS = ("ours", "empty", "python")
# The same for the server, the stub of the Python backend and the direct calls: LibTorch in all three looks here.
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
BUDGETS = {"small": 0.5, "large": 1.0}
_SMALL_REQUESTS = 400
_TITLES = {"ours": "this backend", "empty": "empty backend", "python": "Triton's Python backend"}


@dataclass
class Series:
    """The segments of one backend with one number of clients, one for each round."""

    segments: list[Segment] = field(default_factory=list)

    @property
    def medians(self) -> list[float]:
        """The median latency of each round, in seconds."""
        return [statistics.median(segment.latencies) for segment in self.segments]

    @property
    def median(self) -> float:
        """The median of the rounds' medians, in seconds."""
        return statistics.median(self.medians)

    @property
    def p95(self) -> float:
        """The latency that 95 % of all requests do not exceed, in seconds."""
        every = sorted(value for segment in self.segments for value in segment.latencies)
        return every[ceil(0.95 * len(every)) - 1]

    @property
    def throughput(self) -> float:
        """Requests a second, the median of the rounds."""
        return statistics.median(len(segment.latencies) / segment.seconds for segment in self.segments)

    def added(self, empty: Series) -> float:
        """Median latency more than the empty backend's: the median of the rounds' differences, in seconds."""
        return statistics.median(a - b for a, b in zip(self.medians, empty.medians, strict=True))


@dataclass
class Report:
    """All numbers: series by network, clients and backend, and direct calls by network, in seconds."""

    series: dict[tuple[str, int, str], Series] = field(default_factory=dict)
    direct: dict[str, list[float]] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """Return what has a limit."""
        rows = []
        for network in NETWORKS:
            for clients in CLIENTS:
                ours, empty, other = (self.series[network.name, clients, name] for name in BACKENDS)
                title = f"{network.name} model, {clients} client{'s' if clients > 1 else ''}: latency added"
                rows.append(Row(title, _TITLES["python"], ours.added(empty), other.added(empty), BUDGETS[network.name]))
            ours, other = (self.series[network.name, CLIENTS[-1], name] for name in ("ours", "python"))
            title = f"{network.name} model, {CLIENTS[-1]} clients: time for each request"
            rows.append(Row(title, _TITLES["python"], 1 / ours.throughput, 1 / other.throughput, 1))
        return rows

    def details(self) -> str:
        """Return all series as a Markdown table, and below it what is added to a direct call."""
        lines = [
            "| model | clients | backend | median | 95 % within | requests a second |",
            "|---|---|---|---|---|---|",
        ]
        for (network, clients, backend), each in self.series.items():
            cells = [network, str(clients), _TITLES[backend], duration(each.median), duration(each.p95)]
            lines.append(f"| {' | '.join(cells)} | {each.throughput:.0f} |")
        lines += [
            "",
            "| model | direct call of LibTorch | added by this backend | more | share |",
            "|---|---|---|---|---|",
        ]
        for network, times in self.direct.items():
            direct = statistics.median(times)
            added = self.series[network, 1, "ours"].added(self.series[network, 1, "empty"])
            more = f"{(added - direct) * 1e6:.0f} µs | {(added - direct) / direct:.1%}"
            lines.append(f"| {network} | {duration(direct)} | {duration(added)} | {more} |")
        return "\n".join(lines)


def measure(rounds: int) -> Report:
    """Build, serve and measure.

    Parameters
    ----------
    rounds
        How often each backend has its turn with each number of clients, the large model with one client four times as
        often. A turn of the small model is 400 requests, of the large one two for each client and at least 4.
    """
    project = Project(load_settings({}, os.environ, Path.cwd()), os.environ, Path.cwd())
    *_, suite = prepare_tests(project, "pytorch", discard, sanitize="", server=None, arguments=[])
    tree, ours = (Path(suite.environ[f"MACBUILD_TEST_{name}"]) for name in ("SERVER", "BACKENDS"))
    roots = {"libtorch": Path(torch.__file__).parent}
    native = build_for_host("bench", Path(__file__).parent / "native", roots, {}, project.context(discard)).stage
    work = work_folder("backend")
    python = python_backend.prepare(tree, work)
    with tempfile.TemporaryDirectory(prefix="macbuild-bench-") as name:
        models, backends = Path(name) / "models", Path(name) / "backends"
        backends.mkdir()
        for folder in (ours / "pytorch", native / "backends/empty", python.backends / "python"):
            (backends / folder.name).symlink_to(folder)
        references = {network.name: _add(models, network, python) for network in NETWORKS}
        environ = {**python.environ, **THREADS}
        report = Report()
        with Server(tree, models, backends, log=work / "server.log", environ=environ, timeout=120) as server:
            for network in NETWORKS:
                with _direct(native / "bin/direct", models / f"{network.name}-ours/1/model.pt", network) as call:
                    _measure(network, server.http, references[network.name], call, rounds, report)
    return report


def _add(models: Path, network: Network, python: PythonBackend) -> Tensor:
    """Add a network to the model repository once for each backend, and return what it gives for its sample."""
    for backend, name in (("ours", "pytorch"), ("empty", "empty")):
        folder = models / f"{network.name}-{backend}"
        (folder / "1").mkdir(parents=True)
        text = "\n".join([f'backend: "{name}"', *network.config(), ""])
        (folder / "config.pbtxt").write_text(text, encoding="utf-8")
    module = models / f"{network.name}-ours" / "1" / "model.pt"
    reference = network.save(module)
    python.add_model(models, f"{network.name}-python", module, network.config())
    return reference


@contextmanager
def _direct(program: Path, module: Path, network: Network) -> Iterator[Callable[[int], list[float]]]:
    """Yield a function that calls LibTorch in a process of its own so many times and returns the seconds of each."""
    command = [str(program), str(module), "1", *map(str, network.input)]
    environ = {**os.environ, **THREADS}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        source, target = process.stdout, process.stdin

        def call(count: int) -> list[float]:
            target.write(f"{count}\n")
            target.flush()
            return [int(word) / 1e9 for word in source.readline().split()]

        yield call
        target.close()


def _measure(
    network: Network, address: str, reference: Tensor, direct: Callable[[int], list[float]], rounds: int, report: Report
) -> None:
    """Give each backend its turns, in an order that is reversed each time, after a warm-up that checks the answers."""
    sample = network.sample()
    message = {
        name: request(f"{network.name}-{name}", tuple(sample.shape), sample.numpy().tobytes(), ["OUTPUT__0"])
        for name in BACKENDS
    }
    small = network.name == "small"
    direct(_SMALL_REQUESTS if small else 4)
    times = report.direct.setdefault(network.name, [])
    for clients in CLIENTS:
        count = _SMALL_REQUESTS if small else max(4, 2 * clients)
        with connect(address, clients) as client:
            for name in BACKENDS:
                report.series[network.name, clients, name] = Series()
                body = client.run(message[name], max(20, clients)).body
                _check(body, reference if name != "empty" else torch.zeros_like(reference))
            # A drift of the machine's speed shows most where an answer takes long: turns are short and many there.
            for turn in range(rounds if small else rounds * max(1, 4 // clients)):
                if clients == 1:
                    times += direct(count)
                for name in BACKENDS if turn % 2 == 0 else BACKENDS[::-1]:
                    report.series[network.name, clients, name].segments.append(client.run(message[name], count))


def _check(body: bytes, reference: Tensor) -> None:
    """Refuse numbers that are no answers."""
    answer = torch.frombuffer(bytearray(body[-4 * reference.numel() :]), dtype=torch.float32)
    torch.testing.assert_close(answer, reference.flatten())
