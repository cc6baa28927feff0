"""Show an artifact: its facts, its sizes, what it was made from and what it needs at run time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from macbuild.cli.report.markup import Cell, Column, Html, clip, count, el, join, percent, share, table
from macbuild.cli.report.treemap import Part, by_folder, largest, treemap
from macbuild.commands.publish import PublishedArtifact
from macbuild.macho.system import is_system
from macbuild.package.manifest import ArtifactEntry, DependencyRecord, FileRecord
from macbuild.units import duration, size

__all__ = ["artifact", "unpacked"]

_FILES = 12
_FOLDERS = 12
_LIBRARIES = (".dylib", ".so")
_MOST_LIBRARIES = 60
_LONGEST_NAME = 300


def unpacked(entry: ArtifactEntry) -> int:
    """Return the bytes of all files in an artifact."""
    return sum(record.size or 0 for record in entry.files)


def artifact(made: PublishedArtifact, anchor: str) -> Html:
    """Return the section about an artifact.

    Parameters
    ----------
    made
        The artifact.
    anchor
        Id of the section in the page.
    """
    entry = made.entry
    return el(
        "article",
        el("h3", entry.file, id=anchor),
        _facts(made),
        el("h4", "Size by file"),
        treemap(entry.file, entry.files),
        el("div", _files(entry), _folders(entry), class_="pair"),
        el("h4", "What it needs at run time"),
        _needs(entry),
        _users(entry),
        el("h4", "What it was made from"),
        _sources(entry),
        class_="card",
    )


def _facts(made: PublishedArtifact) -> Html:
    entry = made.entry
    links = sum(record.link is not None for record in entry.files)
    files = count(len(entry.files) - links, "file") + (f" and {count(links, 'link')}" if links else "")
    spent = f", {duration(made.seconds)} of work in this run" if made.seconds else ""
    tools = ", ".join(
        version if version.startswith(name) else f"{name} {version}" for name, version in entry.tools.items()
    )
    facts = [
        ("Component", f"{entry.component} {entry.component_version}"),
        ("Architecture", entry.target.arch),
        ("Minimum macOS", entry.minimum_macos),
        ("Size", f"{size(entry.size)} packed, {size(unpacked(entry))} unpacked"),
        ("Content", files),
        ("State", f"{made.state}{spent}"),
        ("Audit", _audit(entry)),
        ("Built with", tools),
        ("SHA-256", el("code", entry.sha256)),
        ("SBOM", join([entry.sbom.file, " ", el("code", entry.sbom.sha256)])),
    ]
    wide = {"SHA-256", "SBOM"}
    rows = [
        el("div", el("dt", name), el("dd", value), class_="wide" if name in wide else None) for name, value in facts
    ]
    return el("dl", *rows, class_="facts")


def _audit(entry: ArtifactEntry) -> str:
    verdict = "passes" if entry.audit.ok else "fails"
    return f"{verdict} {entry.audit.policy}, {count(len(entry.audit.findings), 'finding')}"


def _files(entry: ArtifactEntry) -> Html:
    files = sum(record.link is None for record in entry.files)
    return _bars(f"The largest of {count(files, 'file')}", "File", largest(entry.files, _FILES), entry)


def _folders(entry: ArtifactEntry) -> Html:
    return _bars("By folder", "Folder", by_folder(entry.files, 2, _FOLDERS), entry)


def _bars(caption: str, name: str, found: Sequence[Part], entry: ArtifactEntry) -> Html:
    whole = unpacked(entry)
    most = max((part.size for part in found), default=0) or 1
    rows: list[list[str | Cell]] = []
    for part in found:
        bar = el("svg", el("rect", width=percent(part.size / most), height="100%", rx=2), aria_hidden="true")
        files = "" if part.files == 1 else el("span", f" {count(part.files, 'file')}", class_="quiet")
        label = join([clip(part.name, _LONGEST_NAME), files, bar])
        rows.append([Cell(label, "path"), size(part.size), share(part.size, whole)])
    columns = [Column(name), Column("Size", "number"), Column("Share", "number")]
    return el("div", table(caption, columns, [("", rows)]), class_="bars")


def _needs(entry: ArtifactEntry) -> Html:
    inside = [record for record in entry.files if record.link is None and record.path.endswith(_LIBRARIES)]
    system = [dependency for dependency in entry.dependencies if dependency.kind == "system"]
    components = [dependency for dependency in entry.dependencies if dependency.kind == "component"]
    frameworks = [dependency for dependency in system if ".framework/" in dependency.name]
    libraries = [dependency for dependency in system if ".framework/" not in dependency.name]
    names = _names(entry)
    needed = {name for binary in entry.binaries for name in binary.needs}
    others = sorted(name for name in needed if not is_system(name) and _short(name) not in names)
    groups = [
        ("Other components", components),
        ("Libraries from elsewhere", [DependencyRecord(name=name, kind="external") for name in others]),
        ("Frameworks of macOS", frameworks),
        ("Libraries of macOS", libraries),
    ]
    boxes = [_group(f"{name} ({len(found)})", list(map(_needed, found))) for name, found in groups if found]
    if not boxes:
        boxes = [el("p", "Nothing.", class_="quiet")]
    own = _group(f"Libraries in the artifact ({len(inside)})", list(map(_library, inside)))
    arrow = el("p", el("span", "need", class_="arrow"))
    return el("div", el("div", own), arrow, el("div", *boxes), class_="needs")


def _users(entry: ArtifactEntry) -> Html:
    """Return a table of what each library needs: from inside the artifact, of other packages, and of macOS."""
    names = _names(entry)
    rows: list[list[str | Cell]] = []
    for binary in entry.binaries[:_MOST_LIBRARIES]:
        system = [name for name in binary.needs if is_system(name)]
        rest = [name for name in binary.needs if not is_system(name)]
        inside = [name for name in rest if _short(name) in names]
        others = [name for name in rest if _short(name) not in names]
        cells = [", ".join(_short(name) for name in found) or "nothing" for found in (inside, others, system)]
        rows.append([Cell(clip(binary.path, _LONGEST_NAME), "path"), *cells])
    columns = [Column("Library"), Column("Inside"), Column("Elsewhere"), Column("macOS")]
    return el("div", table("Dependencies of each library", columns, [("", rows)]), class_="stack")


def _names(entry: ArtifactEntry) -> set[str]:
    """Return the names of the files in an artifact, as `_short` has them."""
    return {_short(record.path) for record in entry.files}


def _short(name: str) -> str:
    """Return the name of a framework, or the file name of a library."""
    path = PurePosixPath(name)
    framework = next((part for part in path.parts if part.endswith(".framework")), None)
    return framework.removesuffix(".framework") if framework else path.name


def _group(title: str, items: Sequence[Html]) -> Html:
    shown = items[:_MOST_LIBRARIES]
    more = [el("li", f"and {len(items) - len(shown):,} more", class_="quiet")] if len(items) > len(shown) else []
    return join([el("h5", title), el("ul", *shown, *more, class_="chips")])


def _library(record: FileRecord) -> Html:
    name = PurePosixPath(record.path).name
    small = el("span", f" {size(record.size or 0)}", class_="quiet")
    return el("li", clip(name, _LONGEST_NAME), small, title=clip(record.path, _LONGEST_NAME))


def _needed(dependency: DependencyRecord) -> Html:
    """Return a chip with the name of a framework, library or component, and the path as a tooltip."""
    version = el("span", f" {dependency.version}", class_="quiet") if dependency.version else ""
    return el("li", clip(_short(dependency.name), _LONGEST_NAME), version, title=clip(dependency.name, _LONGEST_NAME))


def _sources(entry: ArtifactEntry) -> Html:
    rows: list[list[str | Cell]] = [
        [
            source.name,
            Cell(clip(source.request, 4 * _LONGEST_NAME), "path"),
            Cell(source.file, "path"),
            size(source.size),
            el("code", source.sha256),
        ]
        for source in entry.sources
    ]
    columns = [
        Column("Source"),
        Column("Request"),
        Column("File"),
        Column("Size", "number"),
        Column("SHA-256"),
    ]
    return el("div", table("Sources", columns, [("", rows)]), class_="stack sources")
