"""Test how text is folded: between words, commands and paths whole, and only on a terminal."""

from __future__ import annotations

import io

import pytest

from macbuild.cli.messages import say, show_error
from macbuild.cli.tables import folded
from macbuild.errors import PlanError

ERROR = PlanError("no source is available for 4 components: grpc, identity_backend, python_backend, tritonserver")
COMMAND = "macbuild lock grpc identity_backend python_backend tritonserver some_other_one x"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal of 80 columns."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    return stream


def test_errors_fold_between_words_below_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    show_error(ERROR)
    assert stderr.getvalue().splitlines() == [
        "error: no source is available for 4 components: grpc, identity_backend,",
        "       python_backend, tritonserver",
    ]


def test_a_command_in_a_hint_is_never_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    show_error(PlanError("no", hint=f"build the others with --skip-unreachable; to pin sources, run: {COMMAND}; or x"))
    assert stderr.getvalue().splitlines()[1:] == [
        "hint: build the others with --skip-unreachable; to pin sources, run:",
        f"      {COMMAND};",
        "      or x",
    ]


def test_notes_fold_with_a_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    say(f"/home/someone/recipes/greeting: a component that builds; try: {COMMAND}")
    assert stderr.getvalue().splitlines()[1] == f"  {COMMAND}"


def test_errors_are_one_line_each_where_no_person_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("COLUMNS", "80")
    show_error(ERROR)
    assert stream.getvalue() == f"error: {ERROR}\n"


def test_only_the_first_line_of_a_message_is_folded() -> None:
    code = "    " + "x = call(a, b) " * 8
    assert folded(f"it failed:\n{code}", 80) == f"it failed:\n{code}"


def test_a_path_longer_than_the_terminal_has_a_line_of_its_own() -> None:
    path = "/store/" + "x-" * 60
    assert folded(f"alpha/build: done in {path}", 80, 2) == f"alpha/build: done in\n  {path}"


def test_columns_stay_apart_in_a_line_that_is_folded() -> None:
    assert (
        folded("ok       compiler  zig 0.17.0 for macos", 30, 19)
        == "ok       compiler  zig 0.17.0\n" + " " * 19 + "for macos"
    )
