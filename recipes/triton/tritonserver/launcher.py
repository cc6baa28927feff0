"""Run the command `tritonserver` of the wheel: replace this process with the server beside this file."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Execute the server with the arguments of this process.

    The server replaces this process, so that signals, exit code and standard streams are its own. Its default folders
    for backends, repository agents and caches are those beside it.
    """
    program = Path(__file__).resolve().parent / "bin" / "tritonserver"
    try:
        os.execv(program, ["tritonserver", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tritonserver: {program} cannot be executed: {error.strerror}")
