"""Check without a build that the edits still fit upstream: fetch the few files that they touch and match them."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from macbuild.commands.project import Project
from macbuild.data import filled
from macbuild.errors import MacbuildError, PatchError, PlanError, UnreachableError
from macbuild.events import Emit, Progress, counted
from macbuild.files import os_errors
from macbuild.recipe.lock import Pinned, SourceRef, resolved, source_refs
from macbuild.recipe.model import Recipe
from macbuild.recipe.release import ANY, Candidate, Release
from macbuild.source.archive.unpack import unpack
from macbuild.source.fetch.download import Pin
from macbuild.source.fetch.git import fetch_git_files, git_commit
from macbuild.source.fetch.providers import LIMIT, fetch
from macbuild.source.fetch.sources import GitSource, Source, UrlSource
from macbuild.source.patch.apply import check_edits
from macbuild.source.patch.match import EditReport
from macbuild.source.patch.model import load_edits
from macbuild.steps.layout import lay_out
from macbuild.target import parse_version

__all__ = ["ComponentCheck", "check_upstream", "error_of"]

PLATFORM = "macos"


@dataclass(frozen=True, slots=True)
class ComponentCheck:
    """Result of matching the edits of one component with upstream.

    Parameters
    ----------
    component, version
        The release of the recipe.
    source
        Where the files are from, with the commit; the sources that failed if there is a problem.
    pinned
        True if a build would use the same.
    reports
        One for each edit.
    problem
        Why nothing could be checked.
    """

    component: str
    version: str
    source: str
    pinned: bool
    reports: Sequence[EditReport] = ()
    problem: MacbuildError | None = None


def check_upstream(project: Project, version: str | None, emit: Emit) -> list[ComponentCheck]:
    """Check every component that has edits and a source: from git, from the web, or a folder of the user's own.

    A pinned git source is checked at its commit, any other at the commit that its branch or tag has now.

    Parameters
    ----------
    project
        Recipes, lock, edits beside the recipes, and settings.
    version
        The release; the newest of each component if None.
    emit
        Receives progress.

    Raises
    ------
    PlanError
        No component has such a release, or such a source.
    PatchError, FileError
        The edits are not valid data, or files cannot be written.
    """
    own = _edited(project, project.recipes.own)
    recipes = own or _edited(project, project.recipes)
    pairs = [(recipe, release) for recipe in recipes if (release := _release(project, recipe, version))]
    if not pairs:
        where = f"version {version}" if version else project.recipes_folder
        raise PlanError("no component with edits has a source from git or the web", where=where)
    return [_check(project, recipe, release, emit) for recipe, release in pairs]


def _edited(project: Project, recipes: Mapping[str, Recipe]) -> list[Recipe]:
    return [recipe for name, recipe in recipes.items() if project.recipes.edits(name).is_dir()]


def _release(project: Project, recipe: Recipe, version: str | None) -> Release | None:
    """Return the release to check, if the component has one from upstream."""
    own = recipe.name in project.source_folders
    possible = [release for release in recipe.releases if own or any(map(_is_upstream, release.source))]
    if version is not None:
        return next((release for release in possible if release.version == version), None)
    return max(possible, key=lambda release: parse_version(release.version), default=None)


def _is_upstream(candidate: Candidate) -> bool:
    return isinstance(candidate.fetch, GitSource | UrlSource)


def error_of(checks: Sequence[ComponentCheck]) -> MacbuildError | None:
    """Return the error that the command ends with, or None if every edit of every component fits.

    A component that could not be checked is an error, too. A bad edit takes precedence over it.
    """
    bad = [f"{check.component} {report.edit.name}" for check in checks for report in check.reports if report.is_bad]
    if bad:
        hint = "'macbuild patch explain COMPONENT' shows what an edit is for"
        return PatchError(f"upstream does not fit {counted(len(bad), 'edit')}: {', '.join(bad)}", hint=hint)
    problems = {check.component: check.problem for check in checks if check.problem}
    if not problems:
        return None
    first = min(problems.values(), key=lambda problem: isinstance(problem, UnreachableError))
    message = f"{len(problems)} of {counted(len(checks), 'component')} could not be checked: {', '.join(problems)}"
    return type(first)(message, hint=first.hint)


def _check(project: Project, recipe: Recipe, release: Release, emit: Emit) -> ComponentCheck:
    edits = load_edits(project.recipes.edits(recipe.name))
    own = project.source_folders.get(recipe.name)
    try:
        if own is not None:
            reports = check_edits(own, edits, PLATFORM)
            return ComponentCheck(recipe.name, release.version, str(own), pinned=False, reports=reports)
        with tempfile.TemporaryDirectory(prefix="macbuild-upstream-") as folder:
            tree = _Tree(project, recipe, release, Path(folder), emit)
            source, pinned = tree.fetch({edit.file for file in edits for edit in file.edits})
            reports = check_edits(tree.stage, edits, PLATFORM)
            return ComponentCheck(recipe.name, release.version, source, pinned=pinned, reports=reports)
    except MacbuildError as error:
        tried = str(own) if own else ", ".join(candidate.fetch.describe() for candidate in release.source)
        return ComponentCheck(recipe.name, release.version, tried, pinned=False, problem=error)


@dataclass(frozen=True, slots=True)
class _Tree:
    """Hold the source of one release in a folder of its own, as far as it is needed."""

    project: Project
    recipe: Recipe
    release: Release
    folder: Path
    emit: Emit

    @property
    def stage(self) -> Path:
        return self.folder / "stage"

    def fetch(self, files: Collection[str]) -> tuple[str, bool]:
        """Fill the stage with at least these files; return their source, and True if it is pinned."""
        errors: list[UnreachableError] = []
        for ref, candidate in source_refs(self.recipe):
            if (ref.version, ref.arch) == (self.release.version, ANY):
                try:
                    return self._fetch_from(ref, candidate, files)
                except UnreachableError as error:
                    errors.append(error)
        raise UnreachableError("; ".join(map(str, errors)), hint=errors[0].hint)

    def _fetch_from(self, ref: SourceRef, candidate: Candidate, files: Collection[str]) -> tuple[str, bool]:
        settings = self.project.settings
        pinned = self.project.lock.pin(ref)
        if pinned is not None and not pinned.fits(candidate.fetch):
            pinned = None
        source = (
            resolved(candidate, pinned, self.project.lock_command(self.recipe.name)).fetch
            if pinned
            else candidate.fetch
        )
        if isinstance(source, GitSource) and not settings.offline and not (pinned and settings.mirrors):
            source = GitSource(url=source.url, commit=git_commit(source, self.folder, self._progress))
            self._fetch_some(source, candidate, files)
        else:
            self._fetch_all(source, candidate, pinned)
        name = f" ({candidate.fetch.ref})" if isinstance(candidate.fetch, GitSource) and candidate.fetch.ref else ""
        return source.describe() + name, pinned is not None

    def _fetch_some(self, source: GitSource, candidate: Candidate, files: Collection[str]) -> None:
        """Fetch only these files. The others hold their own path as content, so that a file that was moved is found."""
        tree, git = self.folder / "tree", self.folder / "git"
        origins: dict[str, str] = {}

        def choose(paths: Sequence[str]) -> Collection[str]:
            with os_errors(tree):
                for path in filter(_is_plain, paths):
                    place = tree / path
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_text(path, "utf-8")
            self._arrange(candidate)
            with os_errors(self.stage):
                origins.update(
                    {name: (self.stage / name).read_text("utf-8") for name in files if (self.stage / name).is_file()}
                )
            return set(origins.values())

        git.mkdir()
        nodes = {node.name: node for node in fetch_git_files(source, git, choose, self._progress, LIMIT)}
        with os_errors(self.stage):
            for name, origin in origins.items():
                place, node = self.stage / name, nodes[origin]
                place.unlink()
                if stat.S_ISLNK(node.mode):
                    place.symlink_to(node.target)
                else:
                    place.write_bytes(node.open().read())

    def _fetch_all(self, source: Source, candidate: Candidate, pinned: Pinned | None) -> None:
        settings = self.project.settings
        fetch(
            source,
            Pin(pinned.file, pinned.size, pinned.sha256) if pinned else None,
            self.folder / "archive",
            work=self.folder / "work",
            base=self.project.recipes.folder(self.recipe.name),
            offline=settings.offline,
            mirrors=settings.mirrors,
            progress=self._progress,
        )
        unpack(self.folder / "archive", self.folder / "tree")
        self._arrange(candidate)

    def _arrange(self, candidate: Candidate) -> None:
        names = {**self.release.placeholders, "version": self.release.version, "arch": ANY}
        rules = self.recipe.layout(candidate, names)
        lay_out(self.folder / "tree", self.stage, rules, filled(self.recipe.links, names))

    def _progress(self, done: int, total: int | None) -> None:
        self.emit(Progress(f"{self.recipe.name} {self.release.version}", "downloading", done, total))


def _is_plain(path: str) -> bool:
    """Tell if a path from outside can be created inside a folder."""
    return path.isprintable() and not {"", ".", ".."} & set(path.split("/"))
