"""`macbuild patch`: check, apply, take back, explain and write the edits of foreign sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import PatchError, UsageError

if TYPE_CHECKING:
    from macbuild.patching import Edit, EditFile, Record, Report

__all__ = ["app"]

REPORT_VERSION = 1

app = typer.Typer(no_args_is_help=True, help="Edits of foreign sources, as data: check, apply, revert, explain, new.")

_Edits = Annotated[
    str, typer.Argument(metavar="EDITS", help="A component in patches/, a folder of edit files, or one such file.")
]
_Tree = Annotated[Path, typer.Argument(metavar="TREE", help="The sources, unpacked.")]
_Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
_Platform = Annotated[
    str, typer.Option("--platform", metavar="NAME", help="What is built for: macos, or linux for this machine.")
]


@command(app, "check", ("recipes",))
def check(session: Session, edits: _Edits, tree: _Tree, *, platform: _Platform = "macos", json: _Json = False) -> None:
    """Say of each edit what applying it would do. Nothing is written.

    Ends with exit code 21 if one is ambiguous or missing.
    """
    from macbuild.patching import check_edits  # noqa: PLC0415 - `macbuild --help` needs it not
    from macbuild.patching.apply import failure  # noqa: PLC0415 - as above

    reports = check_edits(tree, _load(session, edits), platform)
    if json:
        session.print_json({"version": REPORT_VERSION, "edits": [_report_facts(report) for report in reports]})
    else:
        for report in reports:
            _print_report(report, "applies")
    if any(report.is_bad for report in reports):
        raise failure(reports, tree)


@command(app, "apply", ("recipes",))
def apply(session: Session, edits: _Edits, tree: _Tree, *, platform: _Platform = "macos", json: _Json = False) -> None:
    """Apply all edits, or none if one is ambiguous or missing; .macbuild-edits.json in TREE tells what was done."""
    from macbuild.patching import apply_edits, check_edits  # noqa: PLC0415 - as above

    files = _load(session, edits)
    reports = check_edits(tree, files, platform)
    record = apply_edits(tree, files, platform)
    if json:
        rows = [_report_facts(report) for report in reports]
        session.print_json({"version": REPORT_VERSION, "edits": rows, "files": _file_facts(record)})
        return
    for report in reports:
        _print_report(report, "applied")
    done = sum(report.state == "applied" for report in reports)
    session.say(f"{tree}: {done} edits applied" if done else f"{tree}: nothing to do")


@command(app, "revert")
def revert(session: Session, tree: _Tree, *, json: _Json = False) -> None:
    """Give every file of TREE the bytes it had before its first edit; refused if one was changed since."""
    from macbuild.patching import revert_edits  # noqa: PLC0415 - as above

    record = revert_edits(tree)
    if json:
        session.print_json({"version": REPORT_VERSION, "files": _file_facts(record)})
        return
    for file in record.files:
        typer.echo(file.path)
    session.say(f"{tree}: {len(record.files)} files as they were before")


@command(app, "explain", ("recipes",))
def explain(
    session: Session,
    edits: _Edits,
    tree: Annotated[Path | None, typer.Argument(metavar="[TREE]", help="Sources to say the state in.")] = None,
    *,
    platform: _Platform = "macos",
    json: _Json = False,
) -> None:
    """Say of each edit what it does, why, for whom and with what it was compared; with TREE also its state there."""
    from macbuild.patching import check_edits  # noqa: PLC0415 - as above
    from macbuild.patching.model import wanted_on  # noqa: PLC0415 - as above

    files = _load(session, edits)
    wanted_on(files, platform)
    reports = {report.edit.name: report for report in check_edits(tree, files, platform)} if tree else {}
    every = [edit for file in files for edit in file.edits]
    if json:
        rows = [{**_edit_facts(edit), **_state_facts(reports.get(edit.name))} for edit in every]
        session.print_json({"version": REPORT_VERSION, "edits": rows})
        return
    for edit in every:
        for line in _edit_lines(edit):
            typer.echo(line)
        if edit.name in reports:
            _print_report(reports[edit.name], "applies", margin="  state: ")


@command(app, "new")
def new(
    session: Session,
    component: Annotated[str, typer.Argument(metavar="COMPONENT", help="The folder in patches/ that it belongs to.")],
    tree: Annotated[Path, typer.Argument(metavar="TREE", help="The changed sources.")],
    *,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the edit.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, in a sentence.")],
    version: Annotated[str, typer.Option("--version", metavar="NAME", help="Branch, tag or commit of the sources.")],
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FOLDER", help="The sources unchanged (default: git's HEAD).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to standard output.")
    ] = None,
) -> None:
    """Write the edits that say what was changed in TREE: for each change the shortest anchor that finds its place.

    The anchor is all that they hold of the original.
    """
    import datetime as dt  # noqa: PLC0415 - as above

    from macbuild.files import atomic_path  # noqa: PLC0415 - as above
    from macbuild.patching.model import Check  # noqa: PLC0415 - as above
    from macbuild.patching.new import changed_files, make_edits, to_toml  # noqa: PLC0415 - as above

    files = changed_files(tree, against)
    day = dt.datetime.now(dt.timezone.utc).date().isoformat()
    text = to_toml(
        make_edits(files, component, name, reason, Check(version=version, file=component, date=day, how="read"))
    )
    if output is None:
        typer.echo(text, nl=False)
        return
    if output.exists():
        raise UsageError("exists already", where=output, hint="choose another name, or remove it")
    with atomic_path(output) as path:
        path.write_text(text, "utf-8")
    session.say(f"{output}: edits of {len(files)} files")


@command(app, "schema")
def schema(session: Session) -> None:
    """Print the JSON schema of edit files, for editors."""
    from macbuild.schema import edits_schema  # noqa: PLC0415 - as above

    session.print_json(edits_schema())


def _load(session: Session, edits: str) -> list[EditFile]:
    from macbuild.data import nearest  # noqa: PLC0415 - as above
    from macbuild.patching import load_edits  # noqa: PLC0415 - as above

    if "/" in edits or edits.endswith(".toml") or edits in {".", ".."}:
        return load_edits(Path(edits))
    folder = session.project.recipes_folder.parent / "patches"
    if not (folder / edits).is_dir():
        known = sorted(entry.name for entry in folder.glob("*") if entry.is_dir())
        raise PatchError(
            f"there are no edits of {edits!r}", where=folder, hint=nearest(edits, known) if known else None
        )
    return load_edits(folder / edits)


def _state_facts(report: Report | None) -> dict[str, Any]:
    if report is None:
        return {}
    return {"state": report.state, "message": report.message, "lines": list(report.lines), "near": list(report.near)}


def _report_facts(report: Report) -> dict[str, Any]:
    return {"name": report.edit.name, "file": report.edit.file, **_state_facts(report)}


def _edit_facts(edit: Edit) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 - as above

    facts: dict[str, Any] = msgspec.to_builtins(edit)
    return {**facts, "platform": edit.platform, "matches": edit.matches}


def _edit_lines(edit: Edit) -> list[str]:
    place = f"pattern {edit.pattern}" if edit.pattern else f"anchor {edit.anchor}"
    times = "" if edit.matches == 1 else f", {edit.matches} times"
    text = edit.text.rstrip("\n").replace("\n", "\n          ")
    lines = [f"{edit.name}: {edit.file}", f"  why: {edit.reason}", f"  for: {edit.platform}"]
    lines.append(f"  {edit.action} at {place}{times}")
    lines += [f"  after: {edit.after}"] if edit.after else []
    lines += [f"  until: {edit.until}"] if edit.until else []
    lines += [f"  text:   {text}"] if text else []
    lines += [f"  not needed any more if: {edit.gone}"] if edit.gone else []
    words: dict[Literal["read", "facts"], str] = {"read": "read", "facts": "known by a description only"}
    for entry in edit.checked:
        found = f"; {entry.found}" if entry.found else ""
        lines.append(f"  checked: {entry.date}, {entry.file} at {entry.version}, {words[entry.how]}{found}")
    return lines


def _print_report(report: Report, applied: str, margin: str = "") -> None:
    state = applied if report.state == "applied" else report.state.replace("-", " ")
    place = "" if margin else f"{report.edit.name} ({report.edit.file}): "
    typer.echo(f"{margin}{place}{state}: {report.message}")
    for line in report.near:
        typer.echo(f"    like it: {line}")


def _file_facts(record: Record) -> list[dict[str, str]]:
    return [
        {"path": file.path, "before": file.layers[0].before, "after": file.layers[-1].after} for file in record.files
    ]
