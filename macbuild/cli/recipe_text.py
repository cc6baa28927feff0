"""Describe a recipe in lines of text: releases, options, packages and sources, and what can be built here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from macbuild.commands.recipes import Buildable, KnownSource
from macbuild.errors import MacbuildError
from macbuild.recipe.model import Build, Recipe
from macbuild.recipe.options import Option
from macbuild.recipe.release import SLICES, Release, references
from macbuild.units import size

__all__ = ["build_row", "describe", "list_lines", "list_row", "source_row"]

_FACTS = ("needs", "trees", "carries", "tools")


def list_lines(recipe: Recipe, builds: Sequence[Buildable]) -> list[str]:
    """Return a heading with the releases, the summary, and why what is published cannot be built here."""
    published = [row for row in builds if row.published]
    reasons: dict[str, list[Buildable]] = {}
    for row in published:
        if row.problem is not None:
            reasons.setdefault(_said(row.problem, short=True), []).append(row)
    lines = [f"{recipe.name}: {_releases(recipe)}", recipe.summary]
    for reason, rows in reasons.items():
        which = "" if len(rows) == len(published) else f" ({_among(rows, published)})"
        lines.append(f"cannot be built here{which}: {reason}")
    return lines


def _among(rows: Sequence[Buildable], all_rows: Sequence[Buildable]) -> str:
    """Return the versions of rows, each with its architectures if these are not all of them."""
    texts = []
    for version in dict.fromkeys(row.version for row in rows):
        archs = [row.arch for row in rows if row.version == version]
        whole = len(archs) == sum(row.version == version for row in all_rows)
        texts.append(version if whole else f"{version} {' and '.join(archs)}")
    return ", ".join(texts)


def list_row(recipe: Recipe, builds: Sequence[Buildable]) -> dict[str, object]:
    """Return plain data about a component and its releases."""
    releases = [
        {
            "version": release.version,
            "archs": [arch for arch in SLICES if release.slice(arch)],
            "builds": [build_row(row) for row in builds if row.version == release.version],
        }
        for release in recipe.releases
    ]
    return {"name": recipe.name, "summary": recipe.summary, "releases": releases}


def _releases(recipe: Recipe) -> str:
    """Return the versions of a component, each with a note if it does not have both architectures."""
    texts = []
    for release in recipe.releases:
        archs = [arch for arch in SLICES if release.slice(arch)]
        note = (
            ""
            if len(archs) > 1
            else f" ({archs[0]} only)"
            if archs
            else " (for tests on Linux)"
            if release.linux_x86_64
            else " (source only)"
        )
        texts.append(release.version + note)
    return ", ".join(texts)


def describe(recipe: Recipe, builds: Sequence[Buildable], sources: Sequence[KnownSource]) -> Iterator[str]:
    """Yield the lines that describe a recipe."""
    yield f"{recipe.name}: {recipe.summary}"
    yield f"{recipe.homepage}, {recipe.license}"
    for release in recipe.releases:
        yield ""
        yield from _release(release, [row for row in builds if row.version == release.version])
    if recipe.build is not None and recipe.build.options:
        yield ""
        yield "options, for --with and --without"
        yield from _options(recipe.build)
    yield ""
    yield from _packages(recipe)
    yield ""
    yield "sources" if sources else "no sources: it is built from files of the recipe's folder"
    for source in sources:
        yield f"  {source.ref.version} {source.ref.arch} {source.ref.source}: {source.candidate.fetch.describe()}"
        yield from (f"    {line}" for line in _pin(source))


def build_row(row: Buildable) -> dict[str, object]:
    """Return plain data about what can be built."""
    return {
        "version": row.version,
        "arch": row.arch,
        "problem": str(row.problem) if row.problem else None,
        "hint": row.problem.hint if row.problem else None,
        "remarks": list(row.remarks),
    }


def source_row(source: KnownSource) -> dict[str, object]:
    """Return plain data about a source."""
    pin = source.pin
    return {
        "version": source.ref.version,
        "arch": source.ref.arch,
        "name": source.ref.source,
        "request": source.ref.request,
        "local": source.local,
        "pin": {"file": pin.file, "size": pin.size, "sha256": pin.sha256, "commit": pin.commit} if pin else None,
        "reason": source.reason,
    }


def _release(release: Release, builds: Sequence[Buildable]) -> Iterator[str]:
    parts = {arch: part for arch in SLICES if (part := release.slice(arch))}
    minima = {arch: part.minimum_macos for arch, part in parts.items()}
    same = len(set(minima.values())) == 1
    stated = ", ".join(set(minima.values()) if same else (f"{macos} ({arch})" for arch, macos in minima.items()))
    yield f"release {release.version}{f', macOS {stated}' if stated else ''}"
    tables: list[tuple[str, dict[str, dict[str, str]]]]
    tables = [(arch, {word: getattr(part, word) for word in _FACTS}) for arch, part in parts.items()]
    tables = tables or [("source", {word: references(getattr(release, word)) for word in _FACTS})]
    for word in _FACTS:
        texts = {arch: _references(table[word]) for arch, table in tables if table[word]}
        if len(texts) == len(tables) and len(set(texts.values())) == 1:
            yield f"  {word} {next(iter(texts.values()))}"
        else:
            yield from (f"  {word} {text} ({arch})" for arch, text in texts.items())
    if release.linux_x86_64 is not None:
        yield "  for tests on Linux, too" if parts else "  for tests on Linux"
    elif not parts:
        yield "  a source that others are built from"
    answers: dict[tuple[str, ...], list[str]] = {}
    for row in builds:
        answer = (_said(row.problem) if row.problem else "can be built", *row.remarks)
        answers.setdefault(answer, []).append(row.arch)
    for (first, *remarks), archs in answers.items():
        yield f"  {', '.join(archs)}: {first}"
        yield from (f"    {remark}" for remark in remarks)


def _said(error: MacbuildError, *, short: bool = False) -> str:
    """Return an error and its hint in one line; in short, without its place and what follows a colon or semicolon."""
    message, hint = error.message, error.hint or ""
    where = f"{error.where}: " if error.where and not short else ""
    if short:
        message, hint = message.partition(": ")[0], hint.partition("; ")[0]
    return f"{where}{message}; {hint}" if hint else f"{where}{message}"


def _references(table: Mapping[str, str]) -> str:
    return ", ".join(f"{name}@{version}" if version else name for name, version in table.items())


def _options(build: Build) -> Iterator[str]:
    for name, option in build.options.items():
        yield f"  {name}: {option.summary} ({'on' if option.default and not option.refused else 'off'})"
        if option.refused:
            yield f"    not available: {option.refused}"
        if option.requires:
            yield f"    requires {', '.join(option.requires)}"
        for words, texts in (("with it", _effects(option)), ("without it", _values(option.off))):
            if texts:
                yield f"    {words}: {', '.join(texts)}"


def _effects(option: Option) -> list[str]:
    brought = [
        f"{word} {', '.join(names)}" for word, names in (("needs", option.needs), ("carries", option.carries)) if names
    ]
    return [*_values(option.on), *brought]


def _values(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in variables.items()]


def _packages(recipe: Recipe) -> Iterator[str]:
    if not recipe.artifacts:
        compiled = any(release.source for release in recipe.releases)
        used = (
            f"other components are built {'with' if recipe.build else 'from'} it"
            if compiled or recipe.build
            else "tests use it"
        )
        yield f"no packages: {used}"
        return
    yield "packages"
    for package in recipe.artifacts:
        below = f", files below {package.prefix}" if package.prefix else ""
        yield f"  {package.kind} {package.name or recipe.name}{below}"
        for include in package.include:
            yield f"    {include.source} of {include.component}"


def _pin(source: KnownSource) -> Iterator[str]:
    if source.pin is not None:
        commit = f", commit {source.pin.commit}" if source.pin.commit else ""
        yield f"{source.pin.file}, {size(source.pin.size)}{commit}"
        yield f"sha256 {source.pin.sha256}"
    if source.local:
        yield "used as it is now" if source.pin is None else "used as it is now, also if it differs from the pin"
    elif source.pin is None:
        yield f"not pinned, so never used{f': {source.reason}' if source.reason else ''}"
