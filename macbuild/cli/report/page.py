"""Write the page as one self-contained file that can be mailed, kept and opened anywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import macbuild
from macbuild.cli.report.contents import artifact
from macbuild.cli.report.findings import SEVERITIES, findings
from macbuild.cli.report.graph import step_graph
from macbuild.cli.report.markup import Html, clip, count, el, join
from macbuild.cli.report.timeline import State, states, timeline, total
from macbuild.commands.build import BuildResult
from macbuild.errors import MacbuildError
from macbuild.events import StepFinished
from macbuild.files import atomic_path, os_errors
from macbuild.units import duration, size

__all__ = ["render", "write_report"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_LONGEST = 6000
_NAMED = 3  # components in the title


def write_report(path: Path, result: BuildResult, steps: Sequence[StepFinished]) -> None:
    """Write the page about a run, whole or not at all.

    Parameters
    ----------
    path
        The HTML file.
    result
        How the run ended.
    steps
        The ends of its steps, in any order.

    Raises
    ------
    NoSpaceError
        The disk is full.
    FileError
        The file cannot be written, or what the store has about an artifact cannot be read.
    """
    page = render(result, steps)
    with atomic_path(path) as partial, os_errors(path):
        partial.write_text(page, "utf-8")


def render(result: BuildResult, steps: Sequence[StepFinished]) -> str:
    """Return the page about a run as HTML."""
    ended = states(result.plan, steps)
    sections = [
        ("problems", "Problems", _problems(result)),
        ("artifacts", "Artifacts", _artifacts(result)),
        ("audit", "Audit", join(findings(made) for made in result.published)),
        ("timeline", "Time line", timeline(result.plan, steps)),
        ("graph", "Graph of the steps", step_graph(result.plan, ended)),
    ]
    shown = [(anchor, title, content) for anchor, title, content in sections if content]
    title = _title(result)
    body = el(
        "body",
        el("a", "Skip to the content", href="#content", class_="skip"),
        el("header", _header(title, result, ended, steps), _navigation(shown)),
        el("main", *(_section(*part) for part in shown), id="content"),
        el("footer", el("p", f"Written by macbuild {macbuild.__version__}. Sizes are in units of 1000 bytes.")),
    )
    return "<!doctype html>\n" + el("html", _head(title), body, lang="en") + "\n"


def _head(title: str) -> Html:
    style = files("macbuild.cli.report").joinpath("page.css").read_text("utf-8")
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"macbuild: {title}"),
        el("link", rel="icon", href="data:,"),
        el("style", Html(style)),
    )


def _title(result: BuildResult) -> str:
    plan = result.plan
    names = [f"{artifact.component} {artifact.version}" for artifact in plan.artifacts]
    names = names or [plan.steps[stage].component for stage in plan.stages]
    names = list(dict.fromkeys([*names, *(refusal.component for refusal in plan.refused)]))
    of_artifacts: set[str] = {artifact.target.arch for artifact in plan.artifacts}
    archs = sorted(of_artifacts or {plan.steps[stage].arch or "" for stage in plan.stages})
    others = len(names) - _NAMED
    named = ", ".join(names[:_NAMED]) + f" and {count(others, 'other')}" if others > 1 else ", ".join(names)
    return (named or "nothing") + (f" for macOS {', '.join(archs)}" if archs else "")


def _header(title: str, result: BuildResult, ended: dict[str, State], steps: Sequence[StepFinished]) -> Html:
    found = [row for made in result.published for row in made.entry.audit.findings]
    said = ", ".join(count(sum(row.severity == name for row in found), _noun(name)) for name in SEVERITIES)
    status = [state.status for state in ended.values()]
    words = {
        "built": "built",
        "cached": "in store",
        "failed": "failed",
        "skipped": "not run",
        "unneeded": "not needed",
    }
    detail = ", ".join(f"{status.count(name)} {word}" for name, word in words.items() if name in status)
    tiles = [
        (
            "Artifacts",
            f"{len(result.published)} of {len(result.plan.artifacts) + len(result.plan.refused)}",
            _sizes(result),
        ),
        ("Wall time", duration(total(steps)), f"{duration(sum(step.seconds for step in steps))} of work"),
        ("Steps", str(len(ended)), detail or "none"),
        ("Findings", str(len(found)), said if result.published else "no audit has finished"),
    ]
    rows = [el("div", el("dt", name), el("dd", value, el("small", note))) for name, value, note in tiles]
    return join(
        [
            el("p", "macbuild report", class_="brand"),
            el("h1", title),
            el("p", _verdict(result)),
            el("dl", *rows, class_="tiles"),
        ]
    )


def _verdict(result: BuildResult) -> Html:
    if result.failed:
        return el("span", "Failed", class_="key failed verdict")
    if result.unreachable:
        words = (
            "Built, without some components" if result.published else "Nothing was built: every component was left out"
        )
        return el("span", words, class_="key warning verdict")
    return el("span", "Nothing to do: up to date" if result.idle else "Built", class_="key built verdict")


def _sizes(result: BuildResult) -> str:
    libraries = f", {count(len(result.stages), 'library')} in the store" if result.stages else ""
    return f"{size(sum(made.entry.size for made in result.published))} in dist{libraries}"


def _noun(severity: str) -> str:
    return "remark" if severity == "info" else severity


def _navigation(shown: Sequence[tuple[str, str, Html]]) -> Html:
    items = [el("li", el("a", title, href=f"#{anchor}")) for anchor, title, _ in shown]
    return el("nav", el("ul", *items), aria_label="Sections")


def _section(anchor: str, title: str, content: Html) -> Html:
    return el("section", el("h2", title, id=f"{anchor}-title"), content, id=anchor, aria_labelledby=f"{anchor}-title")


def _artifacts(result: BuildResult) -> Html:
    made = [artifact(row, f"artifact-{index}") for index, row in enumerate(result.published, 1)]
    there = {row.plan.name for row in result.published}
    missing = [
        el("li", el("code", row.name), f" for {row.target.arch}")
        for row in result.plan.artifacts
        if row.name not in there
    ]
    if missing:
        made.append(el("article", el("h3", "Not built"), el("ul", *missing), class_="card"))
    return join(made) if made else el("p", "No artifact was built.", class_="quiet")


def _problems(result: BuildResult) -> Html:
    failed = [_problem(name, error, "failed", "Failed") for name, error in result.failed.items()]
    left = [_problem(name, error, "warning", "Left out") for name, error in result.unreachable.items()]
    return join([*failed, *left])


def _problem(name: str, error: MacbuildError, style: str, word: str) -> Html:
    parts = [el("h3", el("span", word, class_=f"key {style}"), f" {name}")]
    if error.where is not None and error.where != name:
        parts.append(el("p", el("code", _private(error.where))))
    parts.append(el("p", clip(_private(error.message), _LONGEST), class_="said"))
    if error.hint:
        parts.append(el("p", el("strong", "What to do: "), clip(_private(error.hint), _LONGEST), class_="said"))
    return el("article", *parts, class_=f"card problem {style}")


def _private(text: str) -> str:
    """Return a text with `~` for the home folder, which has the user's name."""
    home = Path.home()
    return re.sub(rf"{re.escape(str(home))}(?![\w.-])", "~", text) if len(home.parts) > 1 else text
