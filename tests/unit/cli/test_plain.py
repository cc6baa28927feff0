"""Test that plain command lines are read without Typer's parser, to the same values."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from macbuild.cli import app as module
from macbuild.cli.options import COMMANDS
from macbuild.cli.plain import read_words
from tests.support import machobytes


def declared(
    first: Annotated[str, typer.Argument()],
    rest: Annotated[list[Path] | None, typer.Argument()] = None,
    *,
    name: Annotated[str | None, typer.Option("--name", "-n", metavar="NAME")] = None,
    path: Annotated[Path | None, typer.Option()] = None,
    many: Annotated[list[str] | None, typer.Option("--many")] = None,
    count: Annotated[int, typer.Option("--count", "-c", count=True)] = 0,
    jobs: Annotated[int | None, typer.Option("--jobs")] = None,
    keep: Annotated[bool, typer.Option("--keep/--no-keep")] = True,
    pair: Annotated[list[str] | None, typer.Option("--pair", metavar="OLD NEW")] = None,
    limit: Annotated[int, typer.Option("--limit", min=3)] = 5,
) -> None:
    """Take one of each kind."""


SIGNATURE = inspect.signature(declared, eval_str=True)

PLAIN = [
    ["a"],
    ["a", "b", "c"],
    ["--name", "x", "a"],
    ["-n", "x", "a", "--path", "p/q"],
    ["a", "--name=x=y", "--many", "1", "--many=2"],
    ["--count", "a", "-c", "-c"],
    ["a", "--jobs", "12", "--no-keep"],
    ["a", "--keep", "--no-keep", "--name", ""],
    ["a", "--name", "1", "--name", "2"],
]
NOT_PLAIN = [
    [],
    ["--help"],
    ["a", "--unknown"],
    ["a", "--name"],
    ["a", "-nx"],
    ["a", "-cc"],
    ["a", "--jobs", "many"],
    ["a", "--jobs", "-1"],
    ["a", "--name", "-x"],
    ["a", "--keep=yes"],
    ["a", "--pair", "x"],
    ["a", "--limit", "4"],
    ["a", "--", "--name"],
    ["a", "-"],
]


def by_typer(words: list[str]) -> dict[str, Any]:
    """Return how Typer parses the words."""
    found: dict[str, Any] = {}

    def take(**values: Any) -> None:
        found.update(values)

    vars(take)["__signature__"] = SIGNATURE
    take.__annotations__ = {name: entry.annotation for name, entry in SIGNATURE.parameters.items()}
    app = typer.Typer()
    app.command()(take)
    app(words, standalone_mode=False)
    return found


@pytest.mark.parametrize("words", PLAIN)
def test_plain_words_parse_as_in_typer(words: list[str]) -> None:
    values = read_words(SIGNATURE, words)
    assert values is not None
    expected = by_typer(words)
    # Typer gives an empty list if none was given and the default is None.
    assert {name: value or None for name, value in values.items()} == {
        name: value or None for name, value in expected.items()
    }
    assert {name: type(value) for name, value in values.items() if value} == {
        name: type(value) for name, value in expected.items() if value
    }


@pytest.mark.parametrize("words", NOT_PLAIN)
def test_everything_else_is_left_to_typer(words: list[str]) -> None:
    assert read_words(SIGNATURE, words) is None


def test_a_list_before_another_argument_is_left_to_typer() -> None:
    def two(many: Annotated[list[str], typer.Argument()], one: Annotated[str, typer.Argument()]) -> None:
        """Take a list first."""

    assert read_words(inspect.signature(two, eval_str=True), ["a", "b"]) is None


def test_most_commands_are_read_without_typer() -> None:
    app = module.application("")
    owners = {id(app), *(id(group.typer_instance) for group in app.registered_groups)}
    commands = {name: function for (owner, name), function in COMMANDS.items() if owner in owners}
    calls = [[], ["x"], ["x", "--output", "y"], ["x", "y", "--output", "z"]]
    left = [
        name
        for name, function in commands.items()
        if all(read_words(inspect.signature(function), words) is None for words in calls)
    ]
    assert len(left) < len(commands) / 4, left
    assert not {"all", "build", "plan", "lock", "init", "audit", "verify", "edit", "sign", "list"} & set(left)


def test_a_plain_command_loads_no_pydantic(tmp_path: Path) -> None:
    path = tmp_path / "libx.dylib"
    path.write_bytes(machobytes.dylib(signed=True))
    code = (
        "import sys; from macbuild.cli.app import run; "
        "code = run(['macho', 'edit', '--id', '/new', sys.argv[1]]) or run(['macho', 'verify', sys.argv[1]]); "
        "sys.exit(code or 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert "valid" in done.stdout
