"""`macbuild stubs`: collect evidence of which macOS has which symbol, show it, and write stubs to link against."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import UsageError
from macbuild.target import detect_host

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Make stubs of macOS libraries from what published wheels import.")

_Evidence = Annotated[
    Path | None,
    typer.Option("--evidence", metavar="FOLDER", help="Folder of the evidence (default: macbuild's own)."),
]


@command(app, "collect")
def collect(
    session: Session,
    wheels: Annotated[list[Path], typer.Argument(metavar="WHEEL...", help="Wheels for macOS, or folders with some.")],
    *,
    library: Annotated[
        list[str] | None,
        typer.Option("--library", metavar="NAME", help="Install name of another library to collect. Repeatable."),
    ] = None,
    evidence: _Evidence = None,
) -> None:
    """Read from published wheels which symbols macOS has.

    Each symbol is recorded with the lowest macOS on which a wheel needs it.
    """
    from macbuild.build.toolchain.evidence_collect import collect as run

    done = run(wheels, evidence, library or [])
    session.say(
        f"{done.images} images of {done.wheels} wheels read, {done.skipped} skipped: "
        f"{done.added} symbols added, {done.lowered} seen on a lower macOS"
    )


@command(app, "show", ("arch",))
def show(
    session: Session,
    symbol: Annotated[str, typer.Argument(help="Name as the linker has it, such as _malloc or __Znwm.")],
    *,
    evidence: _Evidence = None,
) -> None:
    """Show the evidence for a symbol.

    This is the library, architecture, lowest macOS, SDK and wheel.
    """
    from macbuild.build.toolchain.evidence import ARCHS, load_evidence

    archs = [session.settings.arch] if session.settings.arch in ARCHS else ARCHS
    found = False
    for name, library in load_evidence(evidence).items():
        for arch in archs:
            claim = library.claim(symbol, arch)
            if claim is not None:
                found = True
                weak = ", weak" if symbol in library.weak else ""
                sdk = "" if claim.sdk == "0.0" else f"SDK {claim.sdk}, "
                session.print_line(f"{name}  {arch}  macOS {claim.macos}{weak}  ({sdk}{claim.wheel})")
    if not found:
        raise UsageError(f"no evidence for {symbol}", hint="macbuild stubs collect WHEEL... adds what a wheel proves")


@command(app, "write", ("arch", "deployment_target"))
def write(
    session: Session,
    folder: Annotated[Path, typer.Argument(help="Folder for the stubs; created if missing.")],
    *,
    evidence: _Evidence = None,
) -> None:
    """Write a .tbd file per library, to link against.

    It has the symbols that the deployment target has.
    """
    from macbuild.build.toolchain.evidence import write_stubs

    deployment = session.settings.deployment_target
    if deployment is None:
        raise UsageError("no deployment target", hint="give one, as in --deployment-target 14.0")
    arch = session.settings.arch or detect_host().default_arch
    stubs = write_stubs(folder, arch, deployment, evidence)
    session.say(f"{folder}: {len(stubs)} stubs for {arch}, macOS {deployment}")
