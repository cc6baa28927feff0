"""Test that `macbuild doctor --upstream` checks whether edits fit, from the few files that they touch."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from macbuild.cli import app
from macbuild.commands.check_edits import ComponentCheck, check_upstream, error_of
from macbuild.commands.lock import write_lock
from macbuild.commands.project import Project
from macbuild.config import Settings
from macbuild.errors import IntegrityError, PatchError, PlanError, UnreachableError
from macbuild.events import discard, silent
from macbuild.recipe.lock import Lock, save_lock
from macbuild.source.fetch.git import fetch_git
from macbuild.source.fetch.sources import GitSource
from macbuild.source.patch.apply import apply_edits
from macbuild.source.patch.model import load_edits
from tests.support.gitrepo import Repository
from tests.support.sample import server

ROOT = Path(__file__).parents[3]
# The synthetic repositories, which have every place that the edits change.
REPOSITORIES = {
    "backend": "backend",
    "common": "common",
    "core": "core",
    "python_backend": "python_backend",
    "tritonserver": "server",
}


class Upstream:
    """A project with edits of components whose sources are git repositories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repositories: dict[str, Repository] = {}
        (root / "recipes").mkdir(parents=True)
        save_lock(root / "macbuild.lock", Lock())

    def add(self, name: str, *sources: dict[str, Any], version: str = "2.73.0", layout: str = "**/*") -> None:
        """Add a component, or a release to one, with these sources; the layout takes the matching files."""
        path = self.root / f"recipes/{name}/recipe.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            tomli_w.dumps(
                {
                    "schema": 1,
                    "name": name,
                    "summary": f"The {name} sources",
                    "homepage": "https://example.org",
                    "license": "MIT",
                    "packages": [],
                    "releases": [
                        {
                            "version": version,
                            "source": [
                                {"name": f"source{index}", "layout": "tree", "fetch": fetch}
                                for index, fetch in enumerate(sources)
                            ],
                        }
                    ],
                    "layouts": {"tree": [{"from": layout, "to": ""}]},
                }
            )
        )

    def add_repository(self, name: str, files: dict[str, str], *, partial: bool = True, layout: str = "**/*") -> None:
        """Add a component whose source is the branch main of a new repository."""
        repository = Repository(self.root / "git" / name, partial=partial)
        repository.commit(files)
        self.repositories[name] = repository
        self.add(name, {"type": "git", "url": repository.url, "ref": "main"}, layout=layout)

    def edits(self, name: str, *edits: dict[str, Any]) -> None:
        """Write the edits of a component."""
        check = {"version": "v1", "file": "x", "date": "2026-11-21", "how": "read"}
        rows = [{"action": "replace", "reason": "a test", "checked": [check], **edit} for edit in edits]
        path = self.root / f"patches/{name}/edits.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tomli_w.dumps({"schema": 1, "component": name, "edits": rows}))

    def project(self, **settings: Any) -> Project:
        return Project(Settings(recipes="recipes", cache_dir="cache", **settings), os.environ, self.root)

    def look(self, version: str | None = None, **settings: Any) -> dict[str, ComponentCheck]:
        """Return the result for each component, by its name."""
        return {look.component: look for look in check_upstream(self.project(**settings), version, discard)}

    def pin(self) -> None:
        """Write the lock like `macbuild lock`."""
        project = self.project()
        save_lock(project.lock_path, write_lock(project, Lock(), discard, update=False))


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "project")


ONE = {"name": "one", "file": "src/a.c", "anchor": "old_name", "text": "new_name"}


def states(look: ComponentCheck) -> dict[str, str]:
    return {report.edit.name: report.state for report in look.reports}


@pytest.mark.parametrize("partial", [True, False])
def test_every_edit_is_needed_by_the_synthetic_repositories(upstream: Upstream, *, partial: bool) -> None:
    for name, folder in REPOSITORIES.items():
        shutil.copytree(ROOT / "tests/integration/upstream/repos" / folder, upstream.root / "git" / name)
        shutil.copytree(ROOT / "patches" / name, upstream.root / "patches" / name)
        upstream.add_repository(name, {}, partial=partial)
    looks = upstream.look()
    assert error_of(list(looks.values())) is None
    for name, look in looks.items():
        wanted = {edit.name for file in load_edits(ROOT / "patches" / name) for edit in file.edits}
        assert set(states(look)) == wanted
        assert set(states(look).values()) == {"applied"}
        assert look.source.startswith(f"git file://{upstream.root}/git/{name} at ")
        assert look.source.endswith("(main)")
        assert not look.pinned


def test_the_states_are_those_of_a_whole_tree(upstream: Upstream) -> None:
    text = "old_name one\ntwice twice\nnew_two\nvoid modern();\n"
    upstream.edits(
        "alpha",
        ONE,
        {"name": "two", "file": "src/a.c", "anchor": "old_two", "text": "new_two"},
        {"name": "three", "file": "src/a.c", "anchor": "ancient", "gone": "modern", "text": "x"},
        {"name": "four", "file": "src/a.c", "anchor": "twice", "text": "x"},
        {"name": "five", "file": "src/a.c", "anchor": "old_nome", "text": "x"},
        {"name": "six", "file": "src/moved.c", "anchor": "old_name", "text": "x"},
    )
    upstream.add_repository("alpha", {"src/a.c": text, "lib/moved.c": "old_name\n"})
    look = upstream.look()["alpha"]
    assert states(look) == {
        "one": "applied",
        "two": "already-applied",
        "three": "not-needed",
        "four": "ambiguous",
        "five": "missing",
        "six": "missing",
    }
    near = {report.edit.name: report.near for report in look.reports}
    assert near["five"] == ("1: old_name one",)
    assert near["six"] == ("lib/moved.c",)
    error = error_of([look])
    assert isinstance(error, PatchError)
    assert str(error) == "upstream does not fit 3 edits: alpha four, alpha five, alpha six"


def test_paths_are_those_after_the_layout(upstream: Upstream) -> None:
    upstream.edits("alpha", ONE)
    upstream.add_repository("alpha", {"inner/src/a.c": "old_name\n", "src/a.c": "else\n"}, layout="inner/**/*")
    assert states(upstream.look()["alpha"]) == {"one": "applied"}
    upstream.add_repository("alpha", {}, layout="nowhere/**/*")
    look = upstream.look()["alpha"]
    assert look.problem is not None
    assert "'nowhere/**/*' matches nothing" in str(look.problem)


def test_a_link_in_place_of_a_file_is_an_error_as_in_a_build(upstream: Upstream) -> None:
    upstream.edits("alpha", ONE)
    upstream.add_repository("alpha", {"src/b.c": "old_name\n"})
    (upstream.repositories["alpha"].path / "src/a.c").symlink_to("b.c")
    upstream.repositories["alpha"].commit()
    problem = upstream.look()["alpha"].problem
    assert isinstance(problem, PatchError)
    assert "is a link" in str(problem)
    assert isinstance(error_of([upstream.look()["alpha"]]), PatchError)


def test_paths_that_no_folder_can_hold_are_left_out(upstream: Upstream) -> None:
    upstream.edits("alpha", ONE)
    upstream.add_repository("alpha", {"src/a.c": "old_name\n", "src/a\nb\x01.c": "old_name\n"})
    assert states(upstream.look()["alpha"]) == {"one": "applied"}


def test_pinned_commit_is_checked_else_the_current_branch(upstream: Upstream) -> None:
    upstream.edits("alpha", ONE)
    upstream.add_repository("alpha", {"src/a.c": "old_name\n"})
    upstream.pin()
    upstream.repositories["alpha"].commit({"src/a.c": "other\n"})
    pinned = upstream.look()["alpha"]
    assert pinned.pinned
    assert states(pinned) == {"one": "applied"}
    save_lock(upstream.root / "macbuild.lock", Lock())
    assert states(upstream.look()["alpha"]) == {"one": "missing"}


def test_a_users_own_folder_is_checked_in_place(upstream: Upstream, tmp_path: Path) -> None:
    upstream.edits("alpha", ONE)
    upstream.add("alpha", {"type": "git", "url": "https://name.invalid/x.git", "ref": "main"})
    (tmp_path / "own/src").mkdir(parents=True)
    (tmp_path / "own/src/a.c").write_text("old_name\n")
    own = [f"alpha={tmp_path / 'own'}"]
    assert states(upstream.look(sources=own)["alpha"]) == {"one": "applied"}
    assert (tmp_path / "own/src/a.c").read_text() == "old_name\n"
    apply_edits(tmp_path / "own", load_edits(upstream.root / "patches/alpha"), "macos")
    look = upstream.look(sources=own)["alpha"]
    assert (states(look), look.source) == ({"one": "already-applied"}, str(tmp_path / "own"))


def archive(path: Path, files: dict[str, str], tmp_path: Path) -> bytes:
    for name, text in files.items():
        place = tmp_path / "content" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(tmp_path / "content", "alpha-1")
    return path.read_bytes()


def test_an_archive_is_used_if_git_does_not_answer(upstream: Upstream, tmp_path: Path) -> None:
    upstream.edits("alpha", ONE)
    data = archive(tmp_path / "a.tar.gz", {"src/a.c": "old_name\n"}, tmp_path)
    with server({"alpha.tar.gz": data}) as url:
        git = {"type": "git", "url": f"file://{tmp_path}/missing", "ref": "main"}
        upstream.add("alpha", git, {"type": "url", "urls": [f"{url}/alpha.tar.gz"]}, layout="alpha-1/**/*")
        look = upstream.look()["alpha"]
        assert (states(look), look.source, look.pinned) == ({"one": "applied"}, f"{url}/alpha.tar.gz", False)
        upstream.pin()
        assert upstream.look()["alpha"].pinned
    with server({"alpha.tar.gz": data + b"x"}) as other:
        text = (upstream.root / "macbuild.lock").read_text()
        (upstream.root / "macbuild.lock").write_text(text.replace(url, other))
        upstream.add("alpha", git, {"type": "url", "urls": [f"{other}/alpha.tar.gz"]}, layout="alpha-1/**/*")
        look = upstream.look()["alpha"]
    assert isinstance(look.problem, IntegrityError)
    assert isinstance(error_of([look]), IntegrityError)


def test_a_mirror_provides_pinned_sources_offline(upstream: Upstream, tmp_path: Path) -> None:
    upstream.edits("alpha", ONE)
    upstream.add_repository("alpha", {"src/a.c": "old_name\n"})
    upstream.pin()
    problem = upstream.look(offline=True)["alpha"].problem
    assert isinstance(problem, UnreachableError)
    assert "offline" in str(problem)
    (entry,) = upstream.project().own_lock.pinned
    (tmp_path / "mirror").mkdir()
    source = GitSource(url=upstream.repositories["alpha"].url, commit=entry.commit)
    fetch_git(source, tmp_path / "mirror", silent, 1 << 30)
    upstream.repositories["alpha"].path.rename(tmp_path / "gone")
    look = upstream.look(offline=True, mirrors=[str(tmp_path / "mirror")])["alpha"]
    assert (states(look), look.pinned) == ({"one": "applied"}, True)


def test_only_components_with_edits_and_a_source_are_checked(upstream: Upstream) -> None:
    upstream.edits("alpha", ONE)
    upstream.edits("local", ONE)
    upstream.add_repository("alpha", {"src/a.c": "old_name\n"})
    upstream.add_repository("plain", {"src/a.c": "old_name\n"})
    upstream.add("local", {"type": "file", "path": "x"})
    assert list(upstream.look()) == ["alpha"]
    assert list(upstream.look("2.73.0")) == ["alpha"]
    for unknown in ("9.9", "main"):
        with pytest.raises(PlanError, match=f"version {unknown}: no component"):
            upstream.look(unknown)


def test_unreachable_component_fails_and_bad_edit_precedes_it(upstream: Upstream) -> None:
    upstream.edits("alpha", ONE)
    upstream.edits("beta", ONE)
    upstream.add_repository("alpha", {"src/a.c": "old_name\n"})
    upstream.add("beta", {"type": "git", "url": f"file://{upstream.root}/missing", "ref": "main"})
    looks = upstream.look()
    error = error_of(list(looks.values()))
    assert isinstance(error, UnreachableError)
    assert "1 of 2 components could not be checked: beta" in str(error)
    upstream.repositories["alpha"].commit({"src/a.c": "other\n"})
    assert isinstance(error_of(list(upstream.look().values())), PatchError)


def run(upstream: Upstream, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    monkeypatch.chdir(upstream.root)
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        code = app.run(["doctor", *arguments])
    return code, written.getvalue()


def test_upstream_check_writes_lines_or_json_and_an_exit_code(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.edits("alpha", ONE)
    upstream.add_repository("alpha", {"src/a.c": "old_name\n"})
    code, text = run(upstream, monkeypatch, "--upstream")
    assert code == 0
    assert "alpha 2.73.0: git file://" in text
    assert "needed" in text
    assert "one (src/a.c): matches in line 1" in text
    code, text = run(upstream, monkeypatch, "--upstream", "--json", "--version", "2.73.0")
    (row,) = json.loads(text)["components"]
    assert (code, row["component"], row["version"], row["problem"]) == (0, "alpha", "2.73.0", None)
    assert [(edit["name"], edit["state"], edit["lines"]) for edit in row["edits"]] == [("one", "applied", [1])]
    upstream.repositories["alpha"].commit({"src/a.c": "old_nome\n"})
    code, text = run(upstream, monkeypatch, "--upstream")
    assert code == PatchError.exit_code
    assert "MISSING" in text
    assert "similar: 1: old_nome" in text
    upstream.repositories["alpha"].path.rename(upstream.root / "gone")
    code, text = run(upstream, monkeypatch, "--upstream")
    assert code == UnreachableError.exit_code
    assert "not checked:" in text
    assert run(upstream, monkeypatch, "--version", "2.73.0")[0] == 2
