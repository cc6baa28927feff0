"""Test what a person sees of a run while it runs: on a terminal of 80 columns, and in the log of a job."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from macbuild.cli import progress
from macbuild.cli.overview import Overview, amount
from macbuild.cli.progress import subscribe
from macbuild.cli.session import Session
from macbuild.config import Settings
from macbuild.events import Event, Progress, StepFinished, StepsPlanned, StepStarted
from tests.support.terminal import show

KEY = "0" * 64
LONG = "tritonserver_backend_onnxruntime-0.1.0-macos-universal2"
STEPS = tuple(f"{LONG}/{kind}" for kind in ("fetch", "unpack", "build", "fix", "pack"))


def started(step: str) -> StepStarted:
    return StepStarted(step, KEY, "first time")


def ended(step: str) -> StepFinished:
    return StepFinished(step, KEY, "built", 0.0, 1.0)


def wait_for(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return standard error as soon as a text is in it."""
    seen = ""
    end = time.monotonic() + 20
    while text not in seen:
        assert time.monotonic() < end, seen
        time.sleep(0.01)
        seen += capsys.readouterr().err
    return seen


def test_an_overview_counts_steps_and_estimates_the_rest() -> None:
    now = 100.0
    overview = Overview(lambda: now)
    overview(
        StepsPlanned(
            (
                "a-1/build",
                "b-1/build",
                "c-1/build",
                "d-1/pack wheel",
                "d-1/pack x",
                *(f"d-1/pack {i}" for i in range(4)),
            )
        )
    )
    assert overview.line() == "step 0 of 9"
    overview(started("a-1/build"))
    now = 220.0
    overview(ended("a-1/build"))
    overview(started("b-1/build"))
    assert overview.line() == "step 2 of 9, about 6 min left"
    overview(Progress("b-1/build", "compiling", 5, 10, counts=True))
    assert overview.share == pytest.approx(0.375)
    assert overview.line() == "step 2 of 9, about 3 min left"


def test_a_new_plan_keeps_what_is_done() -> None:
    overview = Overview()
    overview(StepsPlanned(("a-1/fetch", "a-1/unpack", "b-1/fetch")))
    overview(ended("b-1/fetch"))
    overview(StepsPlanned(("a-1/unpack", "c-1/fetch")))
    assert overview.line() == "step 1 of 3"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Progress("x", "compiling", 12, 158, counts=True), "12 of 158 files"),
        (Progress("x", "downloading", 1_200_000, 110_000_000), "1.2 of 110.0 MB"),
        (Progress("x", "downloading", 900_000, 110_000_000), "900.0 kB of 110.0 MB"),
        (Progress("x", "downloading", 900_000, None), "900.0 kB"),
        (Progress("x", "asking", 0, None), ""),
    ],
)
def test_amounts_have_fitting_units(event: Progress, text: str) -> None:
    assert amount(event) == text


def test_a_log_counts_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with subscribe(Session(Settings())) as emit:
        for event in (StepsPlanned(STEPS), started(STEPS[0]), ended(STEPS[0])):
            emit(event)
    assert capsys.readouterr().err.splitlines() == [
        f"{STEPS[0]}: first time",
        f"[1/5] {STEPS[0]}: done in 1.00 s",
    ]


def test_a_log_says_what_runs_after_some_time_without_news(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    with subscribe(Session(Settings())) as emit:
        for event in (StepsPlanned(STEPS), started(STEPS[2]), Progress(STEPS[2], "compiling", 3, 9, counts=True)):
            emit(event)
        seen = wait_for("still", capsys)
    line = next(line for line in seen.splitlines() if "still" in line)
    assert line.startswith(f"{STEPS[2]}: still compiling, 3 of 9 files, after ")
    assert line.endswith(" (step 1 of 5)")


def test_a_download_outside_of_a_step_is_reported_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    with subscribe(Session(Settings(log_format="json"))) as emit:
        emit(Progress("libtorch", "downloading", 1, 1_000_000))
        seen = wait_for("still", capsys)
    line = next(json.loads(line) for line in seen.splitlines() if "still" in line)
    assert line["message"].startswith("still downloading, 1 B of 1.0 MB, after ")
    assert (line["event"], line["step"]) == ("Note", "libtorch")


@pytest.mark.parametrize("silence", [-1, 0])
def test_silence_is_kept_where_asked_for_and_after_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], silence: int
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    events: list[Event] = [StepsPlanned(STEPS), started(STEPS[0]), ended(STEPS[0])]
    with subscribe(Session(Settings(), silence)) as emit:
        for event in events if silence == 0 else events[:2]:
            emit(event)
        time.sleep(0.1)
    assert "still" not in capsys.readouterr().err


LIVE = f"""
import os, time
from macbuild.cli.progress import subscribe
from macbuild.cli.session import Session
from macbuild.config import Settings
from macbuild.events import *
steps = {STEPS!r}
with subscribe(Session(Settings())) as emit:
    emit(StepsPlanned(steps))
    emit(StepStarted(steps[0], "", ""))
    emit(StepFinished(steps[0], "", "built", 0, 61.5, "served by https://files.example.org/a/very/long/path/torch.whl"))
    for step in steps[1:3]:
        emit(StepStarted(step, "", ""))
    emit(Progress(steps[1], "unpacking", 100_000_000, 338_000_000))
    emit(Progress(steps[2], "compiling", 12, 158, counts=True))
    time.sleep(0.5)
    os._exit(0)
"""


def test_bars_keep_one_line_each_at_80_columns(tmp_path: Path) -> None:
    lines, code = show([sys.executable, "-c", LIVE], tmp_path, {"NO_COLOR": "1", "PATH": ""})
    assert code == 0
    done, where, overall, unpacking, compiling = lines
    assert done == f"✓ [1/5] {STEPS[0]}: done in"
    assert where.startswith("  1 min 2 s, served by")
    assert "unpacking tritonserver_backend_on" in unpacking
    assert "100.0 of 338.0 MB" in unpacking
    assert "compiling tritonserver_backend_on" in compiling
    assert "12 of 158 files" in compiling
    assert "step 3 of 5" in overall
