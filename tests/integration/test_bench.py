"""Run the commands of the benchmarks; the measured values are never asserted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import shared_store

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    environ = {**os.environ, "MACBUILD_CACHE_DIR": str(shared_store())}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environ)


def test_a_row_is_measured_and_put_between_a_pages_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench -->\nlast year\n<!-- end -->\nafter\n")
    ran = bench("version", "--rounds", "1", "--write", str(page))
    times = r"[\d.]+ m?s \| [\d.]+ m?s \| [\d.]+ \| 0.3"
    row = rf"\| `macbuild --version` \| `python -c \"import typer\"` \| {times} \| .*hold"
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


@pytest.mark.parametrize(("backend", "runtime"), [("pytorch", "LibTorch"), ("onnxruntime", "ONNX Runtime")])
def test_a_backend_is_measured_in_a_real_server(backend: str, runtime: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    before = f"<!-- bench -->\nkept\n<!-- end -->\n<!-- bench backend {backend} -->"
    page.write_text(f"{before}\n<!-- end -->\n")
    ran = bench("backend", backend, "--rounds", "1", "--write", str(page))
    assert ran.returncode in {0, 1}, ran.stderr
    text = page.read_text()
    assert text.startswith(f"{before}\n| what |")
    time = r"-?[\d.]+ [mµ]?s"
    python, call = "Triton's Python backend", f"direct call of {runtime}"
    for clients in ("1 client", "4 clients", "16 clients"):
        limited = f"| small model, {clients}: mean latency | empty backend that calls {runtime} | "
        assert (limited in text) == (backend == "onnxruntime")
    for model in ("small", "large"):
        for clients in ("1 client", "4 clients", "16 clients"):
            assert f"| {model} model, {clients}: latency added | {python} | " in text
        assert f"| {model} model, 16 clients: time for each request | {python} | " in text
        for name in ("this backend", "empty backend", python):
            assert re.search(rf"\| {model} \| 16 \| {name} \| {time} \| {time} \| \d+ \|", text)
        assert re.search(rf"\| {model} \| 1 \| {call} \| {time} \| {time} \|  \|", text)
        assert re.search(rf"\| {model} \| {time} \| {time} \| -?\d+ µs \| ", text)


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    ran = bench("backend", "nothing")
    assert ran.returncode == 2
    assert "choose from pytorch, onnxruntime" in ran.stderr


def test_a_page_without_a_place_for_the_table_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- bench -->\nno end\n")
    ran = bench("version", "--rounds", "1", "--write", str(page))
    assert "lacks the markers of the table" in ran.stderr
    assert page.read_text() == "<!-- bench -->\nno end\n"
