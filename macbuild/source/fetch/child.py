"""Run a program that fetches: watch it, and end it together with everything it started."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from macbuild.errors import ToolError, UnreachableError
from macbuild.events import BEAT
from macbuild.files import tree_size

__all__ = ["Finished", "run"]

_GRACE = 3.0  # seconds between two signals
_KEPT = 200  # lines
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Finished:
    """Exit code, and the last lines of output and messages in the order in which they came."""

    code: int
    lines: tuple[str, ...]


def run(
    command: Sequence[str],
    folder: Path,
    *,
    beat: Callable[[], None],
    on_line: Callable[[str], None] | None = None,
    environment: Mapping[str, str] | None = None,
    silence: float = 600.0,
) -> Finished:
    """Run a program without a terminal and wait for its end.

    Parameters
    ----------
    command
        Program and arguments.
    folder
        Where it runs; growth of the files in it counts as a sign of life.
    beat
        Called about ten times a second; what it raises ends the program.
    on_line
        Called with each line of output; lines end with a line feed or a carriage return.
    environment
        Environment of the program; by default that of macbuild.
    silence
        Seconds without output and growth after which the program is ended.

    Raises
    ------
    ToolError
        The program is not installed.
    UnreachableError
        It was silent for too long.
    """
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ToolError(f"'{command[0]}' is not installed") from error
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read_lines, args=(process, lines), daemon=True)
    try:
        reader.start()
        kept = _watch(command[0], folder, lines, beat=beat, on_line=on_line, silence=silence)
        return Finished(process.wait(_GRACE), tuple(kept))
    except subprocess.TimeoutExpired:
        raise ToolError(f"'{command[0]}' closed its output but does not end") from None
    finally:
        _end(process)
        reader.join(_GRACE)
        if process.stdout is not None and not reader.is_alive():
            process.stdout.close()


def _watch(
    name: str,
    folder: Path,
    lines: queue.Queue[str | None],
    *,
    beat: Callable[[], None],
    on_line: Callable[[str], None] | None,
    silence: float,
) -> deque[str]:
    kept: deque[str] = deque(maxlen=_KEPT)
    alive = time.monotonic()
    size = -1
    while True:
        beat()
        with contextlib.suppress(queue.Empty):
            line = lines.get(timeout=BEAT)
            if line is None:
                return kept
            alive = time.monotonic()
            kept.append(line)
            if on_line is not None:
                on_line(line)
        if time.monotonic() - alive > silence:
            now = tree_size(folder)
            if now == size:
                raise UnreachableError(f"'{Path(name).name}' gave no sign of life for {silence:g} seconds")
            size, alive = now, time.monotonic()


def _read_lines(process: subprocess.Popen[bytes], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    rest = b""
    with contextlib.suppress(OSError, ValueError):
        while piece := os.read(process.stdout.fileno(), 1 << 16):
            *whole, rest = re.split(rb"[\r\n]+", rest + piece)
            for line in whole:
                lines.put(line.decode("utf-8", "replace"))
            rest = rest[-(1 << 16) :]
    if rest:
        lines.put(rest.decode("utf-8", "replace"))
    lines.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group; if the program ended by itself, this does nothing."""
    for number in _SIGNALS:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
            return
