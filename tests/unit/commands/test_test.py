"""Test that after an interrupt, running tests get time to stop everything they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

TESTS = """
import pathlib, sys, time
try:
    print("running", flush=True)
    time.sleep(300)
except KeyboardInterrupt:
    time.sleep(1)
    pathlib.Path(sys.argv[1]).write_text("ended")
"""

MACBUILD = """
import sys
from macbuild.commands.test import Suite
try:
    Suite("sample", [sys.executable, "-c", sys.argv[1], sys.argv[2]]).run()
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_interrupt_waits_for_the_tests_to_clean_up(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = [sys.executable, "-c", MACBUILD, TESTS, str(mark)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        os.killpg(process.pid, signal.SIGINT)  # like a terminal
        assert process.wait(120) == 130
    assert mark.read_text() == "ended"
