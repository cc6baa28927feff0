"""The commands of the benches work; what they measure is never asserted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_row_is_measured_and_put_between_the_markers_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench -->\nlast year\n<!-- end -->\nafter\n")
    ran = bench("version", "--rounds", "1", "--write", str(page))
    row = r"\| `macbuild --version` \| `python -c \"import typer\"` \| [\d.]+ s \| [\d.]+ s \| [\d.]+ \| 1.5 \| .*hold"
    assert re.search(row, ran.stdout), ran.stderr
    text = page.read_text()
    assert text.startswith("before\n<!-- bench -->\n| what |")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "last year" not in text
    assert re.search(row, text)


def test_an_unknown_row_is_refused_with_the_known_ones() -> None:
    ran = bench("nothing")
    assert ran.returncode == 2
    assert "edit-command" in ran.stderr
