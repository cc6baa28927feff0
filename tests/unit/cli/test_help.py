"""Test the help of every command: it shows what the reference shows, fits 80 columns, and lists choices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from macbuild.audit.policy import BUILT_IN
from macbuild.cli.app import application, run
from macbuild.config import settings_table

REFERENCE = Path(__file__).parents[3] / "docs/reference/commands.md"
# Types as Typer writes them, and braces around a required argument.
TYPES = re.compile(r"<[\w\[\]| ]+>|\{[A-Z]")
NEGATED = re.compile(r"--no-[\w-]+")


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(application())))


@pytest.fixture(params=COMMANDS, ids=" ".join)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv("COLUMNS", "80")
    found: tuple[str, ...] = request.param
    return found


def text_of(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    assert run([*path, "--help"]) == 0
    return capsys.readouterr().out


def test_help_has_no_types_and_fits(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(path, capsys)
    assert TYPES.findall(text) == []
    assert [line for line in text.splitlines() if len(line) > 80] == []
    # Flags that say "no" of their own accord: no command has one for a flag that is off by default.
    assert set(NEGATED.findall(text)) <= {"--no-pack", "--no-preserve"}


def test_help_begins_like_the_reference(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    usage = " ".join(text_of(path, capsys).partition("\n\n")[0].split()).removeprefix("Usage: ")
    if not getattr(COMMANDS[path], "commands", None):
        # The reference leaves out the common options.
        assert (
            f"\n`{usage}`\n" in REFERENCE.read_text()
            or f"\n`{usage.replace(' [OPTIONS]', '')}`\n" in REFERENCE.read_text()
        )


def test_each_argument_has_its_name_and_its_text(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(text_of(path, capsys).split())
    for entry in COMMANDS[path].params:
        if entry.param_type_name == "argument":
            assert f" {entry.metavar or entry.name.upper()} {' '.join(entry.help.split())}" in text


def test_choices_are_listed(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(path, capsys)
    for entry in COMMANDS[path].params:
        for choice in entry.type_descriptor.choices or ():
            assert re.search(rf"\b{choice}\b", text), (entry.name, choice)
    listed = {setting.flag: setting.choices for setting in settings_table() if setting.choices}
    listed |= {"--policy": BUILT_IN, "--arch": ("arm64", "x86_64")}
    for flag, choices in listed.items():
        if re.search(rf"{flag}\b", text):
            assert [choice for choice in choices if not re.search(rf"\b{choice}\b", text)] == [], flag
