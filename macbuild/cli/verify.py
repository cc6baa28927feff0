"""`macbuild verify`: check artifacts that somebody else built."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import IntegrityError
from macbuild.events import counted

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "verify")(_verify)


def _verify(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder of the artifacts.")] = Path("dist"),
    *,
    json: Annotated[bool, typer.Option("--json", help="Write the result as JSON.")] = False,
) -> None:
    """Check artifacts that you received.

    Checksums, signatures, contents, SBOMs and the manifest must agree.

    Nothing in the folder is trusted, but who can change an artifact can change the manifest as well: compare
    SHA256SUMS with the one that was published.
    """
    from macbuild.commands.verify import verify_dist

    artifacts, strangers = verify_dist(folder)
    bad = [artifact for artifact in artifacts if artifact.problems]
    if json:
        rows = [{"file": each.file, "problems": list(each.problems)} for each in artifacts]
        session.print_json({"version": 1, "artifacts": rows, "others": strangers})
    else:
        for artifact in artifacts:
            typer.echo(f"{'wrong' if artifact.problems else 'right'}  {artifact.file}")
            for problem in artifact.problems:
                session.print_line(f"       {problem}", 7)
        for name in strangers:
            session.say(f"{name}: the manifest does not list it")
    if bad:
        hint = "get these files again from where they were published"
        raise IntegrityError(f"{counted(len(bad), 'artifact')} of {len(artifacts)} wrong", where=folder, hint=hint)
    session.say(f"{counted(len(artifacts), 'artifact')} verified")
