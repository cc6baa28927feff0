"""Whether our edits still fit upstream: bring the few files that they touch, and look, without a build."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from macbuild.errors import MacbuildError, PatchError, PlanError, UnreachableError
from macbuild.events import Emit, Progress, counted
from macbuild.fetch.download import Pin
from macbuild.fetch.git import fetch_git_files, git_commit
from macbuild.fetch.providers import LIMIT, fetch
from macbuild.fetch.sources import GitSource, Source, UrlSource
from macbuild.fetch.unpack import unpack
from macbuild.files import os_errors
from macbuild.graph import filled
from macbuild.lock import Pinned, SourceRef, resolved, source_refs
from macbuild.patching import Report, check_edits, load_edits
from macbuild.project import Project
from macbuild.recipe import ANY, Candidate, Recipe, Release
from macbuild.stage import install
from macbuild.target import parse_version

__all__ = ["Look", "look_upstream", "verdict"]

PLATFORM = "macos"


@dataclass(frozen=True, slots=True)
class Look:
    """What the edits of one component find upstream.

    Parameters
    ----------
    component, version
        Which release of the recipe.
    source
        Where the files are from, with the commit; the sources that failed if there is a problem.
    pinned
        Whether a build would use the same.
    reports
        One for each edit.
    problem
        Why nothing could be looked at.
    """

    component: str
    version: str
    source: str
    pinned: bool
    reports: Sequence[Report] = ()
    problem: MacbuildError | None = None


def look_upstream(project: Project, version: str | None, emit: Emit) -> list[Look]:
    """Look at every component that has edits, and a source from git or the web or a folder of the user's own.

    Of a git source the pinned commit counts; one that is not pinned is looked at as it is now.

    Parameters
    ----------
    project
        Recipes, lock, edits beside the recipes, and settings.
    version
        Which release; the newest of each component if None.
    emit
        Receives progress.

    Raises
    ------
    PlanError
        No component has such a release, or such a source.
    PatchError, StoreError
        The edits are not valid data, or files cannot be written.
    """
    folder = project.recipes_folder.parent / "patches"
    recipes = [recipe for name, recipe in project.recipes.items() if (folder / name).is_dir()]
    pairs = [(recipe, release) for recipe in recipes if (release := _release(project, recipe, version))]
    if not pairs:
        where = f"version {version}" if version else project.recipes_folder
        raise PlanError("no component with edits has a source from git or the web", where=where)
    return [_look(project, recipe, release, emit) for recipe, release in pairs]


def _release(project: Project, recipe: Recipe, version: str | None) -> Release | None:
    """Return the release to look at, if the component has one from upstream."""
    own = recipe.name in project.source_folders
    possible = [release for release in recipe.releases if own or any(map(_is_upstream, release.source))]
    if version is not None:
        return next((release for release in possible if release.version == version), None)
    return max(possible, key=lambda release: parse_version(release.version), default=None)


def _is_upstream(candidate: Candidate) -> bool:
    return isinstance(candidate.fetch, GitSource | UrlSource)


def verdict(looks: Sequence[Look]) -> MacbuildError | None:
    """Return the error that a command ends with, or None if every edit of every component was seen to fit.

    What could not be looked at is an error, too, since nothing is known of it; a bad edit is the graver one.
    """
    bad = [f"{look.component} {report.edit.name}" for look in looks for report in look.reports if report.is_bad]
    if bad:
        hint = "'macbuild patch explain COMPONENT' tells what an edit is for"
        return PatchError(f"upstream does not fit {counted(len(bad), 'edit')}: {', '.join(bad)}", hint=hint)
    problems = {look.component: look.problem for look in looks if look.problem}
    if not problems:
        return None
    first = min(problems.values(), key=lambda problem: isinstance(problem, UnreachableError))
    message = f"{len(problems)} of {counted(len(looks), 'component')} could not be looked at: {', '.join(problems)}"
    return type(first)(message, hint=first.hint)


def _look(project: Project, recipe: Recipe, release: Release, emit: Emit) -> Look:
    edits = load_edits(project.recipes_folder.parent / "patches" / recipe.name)
    own = project.source_folders.get(recipe.name)
    try:
        if own is not None:
            reports = check_edits(own, edits, PLATFORM)
            return Look(recipe.name, release.version, str(own), pinned=False, reports=reports)
        with tempfile.TemporaryDirectory(prefix="macbuild-upstream-") as folder:
            tree = _Tree(project, recipe, release, Path(folder), emit)
            source, pinned = tree.bring({edit.file for file in edits for edit in file.edits})
            reports = check_edits(tree.stage, edits, PLATFORM)
            return Look(recipe.name, release.version, source, pinned=pinned, reports=reports)
    except MacbuildError as error:
        tried = str(own) if own else ", ".join(candidate.fetch.describe() for candidate in release.source)
        return Look(recipe.name, release.version, tried, pinned=False, problem=error)


@dataclass(frozen=True, slots=True)
class _Tree:
    """The source of one release in a folder of its own, as far as it is needed."""

    project: Project
    recipe: Recipe
    release: Release
    folder: Path
    emit: Emit

    @property
    def stage(self) -> Path:
        return self.folder / "stage"

    def bring(self, files: Collection[str]) -> tuple[str, bool]:
        """Fill the stage with at least these files; return what from, and whether that is pinned."""
        errors: list[UnreachableError] = []
        for ref, candidate in source_refs(self.recipe):
            if (ref.version, ref.arch) == (self.release.version, ANY):
                try:
                    return self._brought(ref, candidate, files)
                except UnreachableError as error:
                    errors.append(error)
        raise UnreachableError("; ".join(map(str, errors)), hint=errors[0].hint)

    def _brought(self, ref: SourceRef, candidate: Candidate, files: Collection[str]) -> tuple[str, bool]:
        settings = self.project.settings
        pinned = self.project.lock.pin(ref)
        if pinned is not None and not pinned.fits(candidate.fetch):
            pinned = None
        source = resolved(candidate, pinned).fetch if pinned else candidate.fetch
        if isinstance(source, GitSource) and not settings.offline and not (pinned and settings.mirrors):
            source = GitSource(url=source.url, commit=git_commit(source, self.folder, self._progress))
            self._some(source, candidate, files)
        else:
            self._all(source, candidate, pinned)
        name = f" ({candidate.fetch.ref})" if isinstance(candidate.fetch, GitSource) and candidate.fetch.ref else ""
        return source.describe() + name, pinned is not None

    def _some(self, source: GitSource, candidate: Candidate, files: Collection[str]) -> None:
        """Fetch only these files. The others of the stage hold their own path, to be found when one was moved."""
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

    def _all(self, source: Source, candidate: Candidate, pinned: Pinned | None) -> None:
        settings = self.project.settings
        fetch(
            source,
            Pin(pinned.file, pinned.size, pinned.sha256) if pinned else None,
            self.folder / "archive",
            work=self.folder / "work",
            base=self.project.recipes_folder / self.recipe.name,
            offline=settings.offline,
            mirrors=settings.mirrors,
            progress=self._progress,
        )
        unpack(self.folder / "archive", self.folder / "tree")
        self._arrange(candidate)

    def _arrange(self, candidate: Candidate) -> None:
        names = {"version": self.release.version, "arch": ANY}
        rules = filled(self.recipe.layouts[candidate.layout], names)
        install(self.folder / "tree", self.stage, rules, filled(self.recipe.links, names))

    def _progress(self, done: int, total: int | None) -> None:
        self.emit(Progress(f"{self.recipe.name} {self.release.version}", "downloading", done, total))


def _is_plain(path: str) -> bool:
    """Whether a path from outside can be made inside a folder."""
    return path.isprintable() and not {"", ".", ".."} & set(path.split("/"))
