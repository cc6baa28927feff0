"""`macbuild patch`: check, apply, revert, explain and write edits of foreign sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import PatchError, UsageError

if TYPE_CHECKING:
    from macbuild.source.patch.match import EditReport
    from macbuild.source.patch.model import Edit, EditFile
    from macbuild.source.patch.record import Record

__all__ = ["app"]

REPORT_VERSION = 1
_CODE = "  text: "  # begins the lines that show code, which keep their form

app = typer.Typer(no_args_is_help=True, help="Check, apply, revert, explain and write edits of foreign sources.")

_Edits = Annotated[
    str, typer.Argument(metavar="EDITS", help="A component in patches/, a folder of edit files, or one such file.")
]
_Tree = Annotated[Path, typer.Argument(metavar="TREE", help="The sources, unpacked.")]
_Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
_Platform = Annotated[
    str, typer.Option("--platform", metavar="NAME", help="Platform to build for: macos, or linux for this machine.")
]


@command(app, "check", ("recipes",))
def check(session: Session, edits: _Edits, tree: _Tree, *, platform: _Platform = "macos", json: _Json = False) -> None:
    """Show what applying each edit would do. Nothing is written.

    The exit code is 21 if an edit is ambiguous or missing.
    """
    from macbuild.source.patch.apply import check_edits, failure

    reports = check_edits(tree, _load(session, edits), platform)
    if json:
        session.print_json({"version": REPORT_VERSION, "edits": [_report_facts(report) for report in reports]})
    else:
        for report in reports:
            _print_report(session, report, "applies")
    if any(report.is_bad for report in reports):
        raise failure(reports, tree)


@command(app, "apply", ("recipes",))
def apply(session: Session, edits: _Edits, tree: _Tree, *, platform: _Platform = "macos", json: _Json = False) -> None:
    """Apply all edits, or none if one is ambiguous or missing.

    The file .macbuild-edits.json in TREE records what was done.
    """
    from macbuild.source.patch.apply import apply_edits, check_edits

    files = _load(session, edits)
    reports = check_edits(tree, files, platform)
    record = apply_edits(tree, files, platform)
    if json:
        rows = [_report_facts(report) for report in reports]
        session.print_json({"version": REPORT_VERSION, "edits": rows, "files": _file_facts(record)})
        return
    for report in reports:
        _print_report(session, report, "applied")
    done = sum(report.state == "applied" for report in reports)
    session.say(f"{tree}: {done} edits applied" if done else f"{tree}: nothing to do")


@command(app, "revert")
def revert(session: Session, tree: _Tree, *, json: _Json = False) -> None:
    """Restore every edited file of TREE.

    This is refused if one of them was changed since.
    """
    from macbuild.source.patch.record import revert_edits

    record = revert_edits(tree)
    if json:
        session.print_json({"version": REPORT_VERSION, "files": _file_facts(record)})
        return
    for file in record.files:
        typer.echo(file.path)
    session.say(f"{tree}: {len(record.files)} files restored")


@command(app, "explain", ("recipes",))
def explain(
    session: Session,
    edits: _Edits,
    tree: Annotated[
        Path | None, typer.Argument(metavar="[TREE]", help="Sources to show the state of the edits in.")
    ] = None,
    *,
    platform: _Platform = "macos",
    json: _Json = False,
) -> None:
    """Show what each edit does and why.

    The platform and the last check of each are shown, too. With TREE, show also the state of the edit there.
    """
    from macbuild.source.patch.apply import check_edits
    from macbuild.source.patch.model import wanted_on

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
            if line.startswith(_CODE):
                typer.echo(line)
            else:
                session.print_line(line, 4)
        if edit.name in reports:
            _print_report(session, reports[edit.name], "applies", margin="  state: ")


@command(app, "new")
def new(
    session: Session,
    component: Annotated[
        str,
        typer.Argument(metavar="COMPONENT", help="Component that it belongs to: the name of its folder in patches/."),
    ],
    tree: Annotated[Path, typer.Argument(metavar="TREE", help="The changed sources.")],
    *,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the edit.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, in one sentence.")],
    version: Annotated[str, typer.Option("--version", metavar="NAME", help="Branch, tag or commit of the sources.")],
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FOLDER", help="The unchanged sources (default: git's HEAD).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write, instead of standard output.")
    ] = None,
) -> None:
    """Write edits for what was changed in TREE.

    Each change gets the shortest anchor that finds its place. The anchor is all that an edit holds of the original.
    """
    import datetime as dt

    from macbuild.files import atomic_path
    from macbuild.source.patch.model import EditCheck
    from macbuild.source.patch.new import changed_files, make_edits, to_toml

    files = changed_files(tree, against)
    day = dt.datetime.now(dt.timezone.utc).date().isoformat()
    text = to_toml(
        make_edits(files, component, name, reason, EditCheck(version=version, file=component, date=day, how="read"))
    )
    if output is None:
        typer.echo(text, nl=False)
        return
    if output.exists():
        raise UsageError("already exists", where=output, hint="choose another name, or remove it")
    with atomic_path(output) as path:
        path.write_text(text, "utf-8")
    session.say(f"{output}: edits of {len(files)} files")


@command(app, "schema")
def schema(session: Session) -> None:
    """Print the JSON schema of edit files, for editors."""
    from macbuild.recipe.schema import edits_schema

    session.print_json(edits_schema())


def _load(session: Session, edits: str) -> list[EditFile]:
    from macbuild.config import bundled
    from macbuild.errors import nearest
    from macbuild.source.patch.model import load_edits

    if "/" in edits or edits.endswith(".toml") or edits in {".", ".."}:
        return load_edits(Path(edits))
    places = [session.project.recipes_folder.parent / "patches", bundled("patches")]
    for folder in places:
        if (folder / edits).is_dir():
            return load_edits(folder / edits)
    known = sorted({entry.name for folder in places for entry in folder.glob("*") if entry.is_dir()})
    raise PatchError(f"there are no edits for {edits!r}", where=places[0], hint=nearest(edits, known))


def _state_facts(report: EditReport | None) -> dict[str, Any]:
    if report is None:
        return {}
    return {"state": report.state, "message": report.message, "lines": list(report.lines), "near": list(report.near)}


def _report_facts(report: EditReport) -> dict[str, Any]:
    return {"name": report.edit.name, "file": report.edit.file, **_state_facts(report)}


def _edit_facts(edit: Edit) -> dict[str, Any]:
    import msgspec

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
    lines += [f"{_CODE}  {text}"] if text else []
    lines += [f"  no longer needed if: {edit.gone}"] if edit.gone else []
    words: dict[Literal["read", "facts"], str] = {"read": "read", "facts": "known only from a description"}
    for entry in edit.checked:
        found = f"; {entry.found}" if entry.found else ""
        lines.append(f"  checked: {entry.date}, {entry.file} at {entry.version}, {words[entry.how]}{found}")
    return lines


def _print_report(session: Session, report: EditReport, applied: str, margin: str = "") -> None:
    state = applied if report.state == "applied" else report.state.replace("-", " ")
    place = "" if margin else f"{report.edit.name} ({report.edit.file}): "
    session.print_line(f"{margin}{place}{state}: {report.message}", 4)
    for line in report.near:
        typer.echo(f"    similar: {line}")


def _file_facts(record: Record) -> list[dict[str, str]]:
    return [
        {"path": file.path, "before": file.layers[0].before, "after": file.layers[-1].after} for file in record.files
    ]
