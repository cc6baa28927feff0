"""Run a command in a terminal of 80 columns and 24 lines, and return what a person sees of it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

COLUMNS, LINES = 80, 24
_SCROLLED = 2000  # lines that are kept; a person scrolls back to them


def show(
    command: Sequence[str | Path], folder: Path, environ: Mapping[str, str], *, columns: int = COLUMNS
) -> tuple[list[str], int]:
    """Run a command in a folder and return the lines that it leaves in the terminal, and its exit code."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    environ = {"TERM": "xterm-256color", **environ}
    child = subprocess.Popen(
        [str(word) for word in command],
        cwd=folder,
        env=environ,
        stdin=side,
        stdout=side,
        stderr=side,
        start_new_session=True,
    )
    os.close(side)
    screen = pyte.Screen(columns, _SCROLLED)
    stream = pyte.ByteStream(screen)
    while data := _read(main):
        stream.feed(data)
    os.close(main)
    code = child.wait()
    return "\n".join(line.rstrip() for line in screen.display).rstrip().split("\n"), code


def _read(main: int) -> bytes:
    """Return what the terminal was sent, nothing at its end, which Linux reports as an error."""
    try:
        return os.read(main, 1 << 16)
    except OSError:
        return b""
