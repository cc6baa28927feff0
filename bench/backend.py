"""Measure our backends in a real server, each against Triton's Python backend with the same model files.

Everything is measured in one run of one server. A third backend that computes nothing shows the cost of the server and
the client; the latency that a backend adds to it is counted. A fourth also makes a bare call of the runtime, with its
own tensors: no backend can serve a model in less time. A program without a server shows the cost of the runtime itself.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path

import torch
from backend_testing.tritonserver import Server
from torch import Tensor

from bench import python_backend
from bench.client import Segment, connect, request
from bench.inputs import work_folder
from bench.networks import NETWORKS, Network
from bench.python_backend import PythonBackend
from bench.subjects import SUBJECTS, Subject
from bench.timing import Row, duration
from macbuild.commands.project import Project
from macbuild.commands.test import prepare_tests
from macbuild.config import load_settings
from macbuild.events import discard
from macbuild.steps.build import build_for_host

__all__ = ["Report", "measure"]

CLIENTS = (1, 4, 16)
BACKENDS = ("ours", "empty", "python")
CALLING = "calling"
DIRECT = "direct"
# The same for the server, the stub of the Python backend and the direct calls: LibTorch reads these variables in all
# three; ONNX Runtime gets options of the session.
ENVIRON = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
BUDGETS = {"small": 0.5, "large": 1.0}
# Maximum ratio to the latency of an empty backend that makes the bare call in process, small model.
IN_PROCESS = 1.1
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
    def means(self) -> list[float]:
        """The mean latency of each round, in seconds."""
        return [statistics.fmean(segment.latencies) for segment in self.segments]

    @property
    def throughput(self) -> float:
        """Requests per second, the median of the rounds."""
        return statistics.median(len(segment.latencies) / segment.seconds for segment in self.segments)

    def added(self, empty: Series) -> float:
        """Median latency above the empty backend's: the median of the rounds' differences, in seconds."""
        return statistics.median(a - b for a, b in zip(self.medians, empty.medians, strict=True))


@dataclass
class Report:
    """All series of a backend by network, clients, and the answering side: ours, empty, python, calling or direct."""

    subject: Subject
    series: dict[tuple[str, int, str], Series] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """Return the rows that have a limit."""
        rows = []
        for network in NETWORKS:
            for clients in CLIENTS:
                ours, empty, other = (self.series[network.name, clients, name] for name in BACKENDS)
                title = f"{network.name} model, {clients} client{'s' if clients > 1 else ''}"
                if network.name == "small" and self.subject.calling:
                    least = self.series[network.name, clients, CALLING]
                    means = statistics.median(ours.means), statistics.median(least.means)
                    rows.append(Row(f"{title}: mean latency", self._title(CALLING), *means, IN_PROCESS))
                times = ours.added(empty), other.added(empty)
                rows.append(Row(f"{title}: latency added", _TITLES["python"], *times, BUDGETS[network.name]))
            ours, other = (self.series[network.name, CLIENTS[-1], name] for name in ("ours", "python"))
            title = f"{network.name} model, {CLIENTS[-1]} clients: time for each request"
            rows.append(Row(title, _TITLES["python"], 1 / ours.throughput, 1 / other.throughput, 1))
        return rows

    def details(self) -> str:
        """Return all series as a Markdown table, followed by the time added to a direct call."""
        lines = [
            "| model | clients | answered by | median | 95 % within | requests a second |",
            "|---|---|---|---|---|---|",
        ]
        for (model, clients, name), each in self.series.items():
            cells = [model, str(clients), self._title(name), duration(each.median), duration(each.p95)]
            rate = "" if name == DIRECT else f"{each.throughput:.0f}"  # that of direct calls follows from their pauses
            lines.append(f"| {' | '.join(cells)} | {rate} |")
        lines += [
            "",
            f"| model, 1 client | {self._title(DIRECT)} | added by this backend | more | share |",
            "|---|---|---|---|---|",
        ]
        for network in NETWORKS:
            ours, empty, call = (self.series[network.name, 1, name] for name in ("ours", "empty", DIRECT))
            direct, added = call.median, ours.added(empty)
            more = f"{(added - direct) * 1e6:.0f} µs | {(added - direct) / direct:.1%}"
            lines.append(f"| {network.name} | {duration(direct)} | {duration(added)} | {more} |")
        return "\n".join(lines)

    def _title(self, name: str) -> str:
        runtime = self.subject.runtime
        own = {DIRECT: f"direct call of {runtime}", CALLING: f"empty backend that calls {runtime}"}
        return own.get(name) or _TITLES[name]


def measure(backend: str, rounds: int) -> Report:
    """Build, serve and measure a backend.

    Parameters
    ----------
    backend
        Name of the backend.
    rounds
        How many turns each gets with the large model and 4 or 16 clients; four times as many with one client,
        sixteen times with the small model. A turn is 400 requests of the small model, or two per client and at least 4
        of the large one.
    """
    subject = SUBJECTS[backend]
    project = Project(load_settings({}, os.environ, Path.cwd()), os.environ, Path.cwd())
    *_, suite = prepare_tests(project, subject.component, discard, sanitize="", server=None, arguments=[])
    tree, ours = (Path(suite.environ[f"MACBUILD_TEST_{name}"]) for name in ("SERVER", "BACKENDS"))
    roots = {"libtorch": SUBJECTS["pytorch"].folder, "onnxruntime": SUBJECTS["onnxruntime"].folder}
    native = build_for_host("bench", Path(__file__).parent / "native", roots, {}, project.context(discard)).stage
    work = work_folder("backend")
    python = python_backend.prepare(tree, work, subject)
    with tempfile.TemporaryDirectory(prefix="macbuild-bench-") as name:
        models, backends = Path(name) / "models", Path(name) / "backends"
        _place(subject, ours, backends)
        for folder in (*(native / "backends").iterdir(), python.backends / "python"):
            (backends / folder.name).symlink_to(folder)
        references = {network.name: _add(models, network, subject, python) for network in NETWORKS}
        environ = {**python.environ, **ENVIRON}
        report = Report(subject)
        with Server(tree, models, backends, log=work / "server.log", environ=environ, timeout=120) as server:
            for network in NETWORKS:
                program = native / "bin" / f"direct_{subject.backend}"
                with _direct(program, models / f"{network.name}-ours/1" / subject.model, network) as call:
                    _measure(network, server.http, references[network.name], call, rounds=rounds, report=report)
    return report


def _place(subject: Subject, built: Path, backends: Path) -> None:
    """Put the backend into a folder of backends, with the files that belong beside it."""
    folder = backends / subject.backend
    shutil.copytree(built / subject.backend, folder)
    for file in subject.folder.glob(subject.beside) if subject.beside else ():
        (folder / file.name).symlink_to(file)


def _add(models: Path, network: Network, subject: Subject, python: PythonBackend) -> Tensor:
    """Add a network to the model repository once for each backend, and return its answer to its sample."""
    names = {"ours": subject.backend, "empty": "empty"} | ({CALLING: subject.calling} if subject.calling else {})
    for backend, name in names.items():
        folder = models / f"{network.name}-{backend}"
        (folder / "1").mkdir(parents=True)
        lines = [f'backend: "{name}"', *network.config()]
        if backend == "ours":
            pairs = subject.parameters.items()
            lines += [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in pairs]
        (folder / "config.pbtxt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    file = models / f"{network.name}-ours" / "1" / subject.model
    reference = network.save(file)
    if subject.calling:
        (models / f"{network.name}-{CALLING}" / "1" / subject.model).symlink_to(file)
    python.add_model(models, f"{network.name}-python", file, network.config())
    return reference


@contextmanager
def _direct(program: Path, model: Path, network: Network) -> Iterator[Callable[[int, float], Segment]]:
    """Yield a function that calls the runtime that many times, each after a pause (seconds)."""
    command = [str(program), str(model), "1", *map(str, network.input)]
    environ = {**os.environ, **ENVIRON}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        source, target = process.stdout, process.stdin

        def call(count: int, pause: float) -> Segment:
            target.write(f"{count} {round(pause * 1e9)}\n")
            target.flush()
            seconds, *latencies = (int(word) / 1e9 for word in source.readline().split())
            return Segment(latencies, seconds)

        yield call
        target.close()


def _measure(
    network: Network,
    address: str,
    reference: Tensor,
    direct: Callable[[int, float], Segment],
    *,
    rounds: int,
    report: Report,
) -> None:
    """Give each its turns, in an order that is reversed each time, after a warm-up that checks the answers."""
    sample = network.sample()
    served = [*BACKENDS, *([CALLING] if report.subject.calling else [])]
    message = {
        name: request(f"{network.name}-{name}", tuple(sample.shape), sample.numpy().tobytes(), ["OUTPUT__0"])
        for name in served
    }
    small = network.name == "small"
    direct(_SMALL_REQUESTS if small else 4, 0)
    for clients in CLIENTS:
        count = _SMALL_REQUESTS if small else max(4, 2 * clients)
        with connect(address, clients) as client:
            pause = 0.0
            for name in served:
                first = client.run(message[name], max(20, clients))
                _check(first.body, reference if name in ("ours", "python") else torch.zeros_like(reference))
                if name == "empty":
                    pause = statistics.median(first.latencies)
            turns: dict[str, Callable[[], Segment]] = {
                name: partial(client.run, message[name], count) for name in served
            }
            if clients == 1:
                turns[DIRECT] = partial(direct, count, pause)
            every = {name: report.series.setdefault((network.name, clients, name), Series()) for name in turns}
            # Drift of the machine's speed matters most for slow answers: their turns are short and many.
            for turn in range(rounds * (16 if small else max(1, 4 // clients))):
                for name in list(turns) if turn % 2 == 0 else reversed(turns):
                    every[name].segments.append(turns[name]())


def _check(body: bytes, reference: Tensor) -> None:
    """Refuse numbers that are not answers."""
    answer = torch.frombuffer(bytearray(body[-4 * reference.numel() :]), dtype=torch.float32)
    torch.testing.assert_close(answer, reference.flatten(), rtol=1e-3, atol=1e-4)
