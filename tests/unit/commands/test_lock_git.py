"""Test git sources by branch or tag: the lock pins the commit, and nothing else is ever built."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w

from macbuild.commands.lock import write_lock
from macbuild.commands.project import Project
from macbuild.config import Settings
from macbuild.data import parse_toml
from macbuild.errors import FetchError, LockError, RecipeError, ToolError, UnreachableError
from macbuild.events import Note, discard, silent
from macbuild.plan.model import FetchSpec
from macbuild.recipe.load import load_recipe
from macbuild.recipe.lock import Lock, drift, load_lock, resolved, save_lock, source_refs
from macbuild.source.archive.unpack import unpack
from macbuild.source.fetch.git import fetch_git, fetch_git_files, git_commit
from macbuild.source.fetch.sources import GitSource
from tests.support.gitrepo import Repository
from tests.support.sample import Sample, files

LIMIT = 1 << 30


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "upstream")


def project(root: Path, fetch: dict[str, str], **settings: Any) -> Project:
    """Return a project whose only component is compiled from a git source."""
    recipe = {
        "schema": 1,
        "name": "alpha",
        "summary": "The alpha library",
        "homepage": "https://example.org",
        "license": "MIT",
        "packages": [],
        "releases": [
            {
                "version": "1.0",
                "source": [{"name": "git", "layout": "tree", "fetch": {"type": "git", **fetch}}],
                "arm64": {"minimum_macos": "11.0"},
            }
        ],
        "layouts": {"tree": [{"from": "**/*", "to": ""}]},
        "build": {"inputs": ["CMakeLists.txt"]},
    }
    folder = root / "recipes/alpha"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.toml").write_text(tomli_w.dumps(recipe))
    (folder / "CMakeLists.txt").write_text("project(alpha)\n")
    return Project(Settings(recipes="recipes", cache_dir="cache", **settings), {}, root)


def written(project: Project, old: Lock | None = None, *, update: bool = False) -> Lock:
    """Write the lock as the command does, and read it back."""
    save_lock(project.lock_path, write_lock(project, old or Lock(), discard, update=update))
    return load_lock(project.lock_path)


def test_the_lock_pins_the_commit_of_a_branch_and_the_bytes(tmp_path: Path, repository: Repository) -> None:
    commit = repository.commit({"a.c": "1"})
    repository.git("branch", "r26.09")
    (entry,) = written(project(tmp_path, {"url": repository.url, "ref": "r26.09"})).pinned
    assert entry.commit == commit
    assert entry.request == f"git {repository.url} ref=r26.09"
    assert entry.file == f"upstream-{commit[:12]}.tar"
    archive = fetch_git(GitSource(url=repository.url, commit=commit), folder(tmp_path / "direct"), silent, LIMIT)
    assert archive.stat().st_size == entry.size


def folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize("annotated", [False, True])
def test_a_tag_is_pinned_by_its_commit_not_its_own_id(
    tmp_path: Path, repository: Repository, *, annotated: bool
) -> None:
    commit = repository.commit({"a.c": "1"})
    repository.git("tag", *(["-a", "-m", "release"] if annotated else []), "v1.0")
    repository.commit({"a.c": "2"})
    lock = written(project(tmp_path, {"url": repository.url, "ref": "v1.0"}))
    assert [entry.commit for entry in lock.pinned] == [commit]


def test_build_uses_the_pin_after_the_branch_moved_or_vanished(tmp_path: Path, repository: Repository) -> None:
    first = repository.commit({"a.c": "1"})
    repository.git("branch", "release")
    here = project(tmp_path, {"url": repository.url, "ref": "release"})
    written(here)
    repository.commit({"a.c": "2"})
    repository.git("branch", "-f", "release")
    plan = project(tmp_path, {"url": repository.url, "ref": "release"}).planner().plan(here.request(["alpha"]))
    (spec,) = (step.spec for step in plan.steps.values() if isinstance(step.spec, FetchSpec))
    assert spec.candidate.fetch == GitSource(url=repository.url, commit=first)
    repository.git("branch", "-D", "release")
    assert isinstance(spec.candidate.fetch, GitSource)
    unpack(fetch_git(spec.candidate.fetch, folder(tmp_path / "git"), silent, LIMIT), tmp_path / "tree")
    assert (tmp_path / "tree/a.c").read_text() == "1"


def test_artifacts_of_a_branch_change_only_with_the_lock(tmp_path: Path, repository: Repository) -> None:
    sample = Sample(tmp_path / "sample")
    sample.add("alpha")
    content = files("alpha", "arm64")
    for name, data in content.items():
        (repository.path / name).parent.mkdir(exist_ok=True)
        (repository.path / name).write_bytes(data)
    repository.commit()
    sample.sources("alpha")[0]["fetch"] = {"type": "git", "url": repository.url, "ref": "main"}
    sample.recipe_path("alpha").write_text(tomli_w.dumps(sample.recipes["alpha"]))
    pinned = written(sample.project(), Lock())
    assert sample.make().failed == {}
    first = sample.content()
    repository.commit({"include/alpha.h": "int changed(void);\n"})
    shutil.rmtree(sample.cache)
    shutil.rmtree(sample.dist)
    assert sample.make().failed == {}
    assert sample.content() == first
    written(sample.project(), pinned, update=True)
    assert sample.make().failed == {}
    assert sample.content().keys() == first.keys()
    assert sample.content() != first


def test_only_an_update_follows_the_branch(tmp_path: Path, repository: Repository) -> None:
    first = repository.commit({"a.c": "1"})
    here = project(tmp_path, {"url": repository.url, "ref": "main"})
    old = written(here)
    second = repository.commit({"a.c": "2"})
    assert written(here, old) == old
    assert drift(here.recipes.own, old, here.recipes.folder) == []
    new = written(here, old, update=True)
    assert ([entry.commit for entry in old.pinned], [entry.commit for entry in new.pinned]) == ([first], [second])
    assert old.pinned[0].sha256 != new.pinned[0].sha256


def test_entry_without_a_commit_is_refused_and_pinned_again(tmp_path: Path, repository: Repository) -> None:
    commit = repository.commit({"a.c": "1"})
    here = project(tmp_path, {"url": repository.url, "ref": "main"})
    whole = written(here)
    bare = Lock(pinned=[msgspec.structs.replace(whole.pinned[0], commit=None)])
    save_lock(here.lock_path, bare)
    with pytest.raises(LockError, match="no commit for the branch or tag") as caught:
        project(tmp_path, {"url": repository.url, "ref": "main"}).planner().plan(here.request(["alpha"]))
    assert caught.value.hint == "run: macbuild lock alpha --recipes recipes"
    assert [
        line for line in drift(here.recipes.own, bare, here.recipes.folder) if "no commit for the branch or tag" in line
    ]
    assert written(here, bare).pinned[0].commit == commit


def test_entry_with_a_second_commit_is_refused(tmp_path: Path, repository: Repository) -> None:
    commit = repository.commit({"a.c": "1"})
    here = project(tmp_path, {"url": repository.url, "commit": commit})
    lock = written(here)
    assert lock.pinned[0].commit is None
    ((_, candidate),) = source_refs(here.recipes["alpha"])
    assert resolved(candidate, lock.pinned[0], "macbuild lock") is candidate
    with pytest.raises(LockError, match="asks for no branch or tag"):
        resolved(candidate, msgspec.structs.replace(lock.pinned[0], commit=commit), "macbuild lock")


def test_other_branch_in_the_recipe_differs_from_the_lock(tmp_path: Path, repository: Repository) -> None:
    repository.commit({"a.c": "1"})
    lock = written(project(tmp_path, {"url": repository.url, "ref": "main"}))
    recipes = project(tmp_path, {"url": repository.url, "ref": "other"}).recipes
    lines = drift(recipes.own, lock, recipes.folder)
    assert len(lines) == 2
    assert "ref=other" in "".join(lines)


@pytest.mark.parametrize("missing", ["repository", "branch"])
def test_unreachable_source_stays_unpinned_or_keeps_its_pin(
    tmp_path: Path, repository: Repository, missing: str
) -> None:
    repository.commit({"a.c": "1"})
    here = project(tmp_path, {"url": repository.url, "ref": "main"})
    old = written(here)
    if missing == "repository":
        repository.path.rename(tmp_path / "elsewhere")
    else:
        repository.git("branch", "-m", "main", "trunk")
    events: list[Note] = []
    fresh = write_lock(here, Lock(), events.append, update=False)  # type: ignore[arg-type]
    assert [entry.id for entry in fresh.unpinned] == ["alpha 1.0 any git"]
    assert any("stays unpinned" in str(event) for event in events)
    assert written(here, old, update=True) == old


def test_offline_contacts_no_repository(tmp_path: Path, repository: Repository) -> None:
    repository.commit({"a.c": "1"})
    lock = written(project(tmp_path, {"url": repository.url, "ref": "main"}, offline=True))
    assert (len(lock.pinned), len(lock.unpinned)) == (0, 1)


def test_a_branch_and_a_tag_of_one_name_must_be_distinguished(tmp_path: Path, repository: Repository) -> None:
    first = repository.commit({"a.c": "1"})
    repository.git("tag", "x")
    assert git_commit(GitSource(url=repository.url, ref="x"), tmp_path, silent) == first
    repository.git("branch", "x")
    assert git_commit(GitSource(url=repository.url, ref="x"), tmp_path, silent) == first
    second = repository.commit({"a.c": "2"})
    repository.git("branch", "-f", "x")
    with pytest.raises(FetchError, match="different commits") as caught:
        git_commit(GitSource(url=repository.url, ref="x"), tmp_path, silent)
    assert caught.value.hint == "write it as refs/heads/x or refs/tags/x"
    assert git_commit(GitSource(url=repository.url, ref="refs/heads/x"), tmp_path, silent) == second
    assert git_commit(GitSource(url=repository.url, ref="refs/tags/x"), tmp_path, silent) == first


def test_a_name_does_not_match_the_end_of_a_longer_one(tmp_path: Path, repository: Repository) -> None:
    repository.commit({"a.c": "1"})
    repository.git("branch", "refs/heads/r1")
    repository.git("branch", "old/r1")
    with pytest.raises(UnreachableError, match="no branch or tag r1"):
        git_commit(GitSource(url=repository.url, ref="r1"), tmp_path, silent)


def test_a_branch_or_tag_itself_is_never_fetched(tmp_path: Path, repository: Repository) -> None:
    repository.commit({"a.c": "1"})
    source = GitSource(url=repository.url, ref="main")
    for call in (fetch_git, lambda *rest: fetch_git_files(rest[0], rest[1], lambda paths: paths, *rest[2:])):
        with pytest.raises(FetchError, match="not pinned"):
            call(source, tmp_path, silent, LIMIT)


def test_without_git_the_error_says_so(tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="is not installed"):
        git_commit(GitSource(url=repository.url, ref="main"), tmp_path, silent)


@pytest.mark.parametrize(
    ("fetch", "problem"),
    [
        ({}, "neither `commit` nor `ref`"),
        ({"commit": "0" * 40, "ref": "main"}, "both `commit` and `ref`"),
        ({"ref": ""}, "`ref` is ''"),
        ({"ref": "--upload-pack=x"}, "`ref` is '--upload-pack=x'"),
        ({"ref": "r*"}, "`ref` is 'r*'"),
        ({"ref": "a b"}, "`ref` is 'a b'"),
        ({"ref": "0" * 40}, "`ref` is '0000"),
        ({"commit": "main"}, "`commit` is 'main'"),
        ({"tag": "main"}, "unknown key 'tag'"),
    ],
)
def test_a_malformed_git_source_is_a_recipe_error(tmp_path: Path, fetch: dict[str, str], problem: str) -> None:
    project(tmp_path, {"url": "https://example.org/x.git", **fetch})
    with pytest.raises(RecipeError, match=re.escape(problem)) as caught:
        load_recipe(tmp_path / "recipes/alpha/recipe.toml")
    assert str(caught.value.where).startswith(f"{tmp_path}/recipes/alpha/recipe.toml:")


@pytest.mark.parametrize("commit", ["0" * 39, "G" * 40, "0" * 40 + "\n", "main"])
def test_a_commit_in_the_lock_is_a_full_id(tmp_path: Path, repository: Repository, commit: str) -> None:
    repository.commit({"a.c": "1"})
    here = project(tmp_path, {"url": repository.url, "ref": "main"})
    written(here)
    data = parse_toml(here.lock_path.read_text(), "lock", LockError)
    data["pinned"][0]["commit"] = commit
    here.lock_path.write_text(tomli_w.dumps(data))
    with pytest.raises(LockError, match=r"pinned\[0\].commit"):
        load_lock(here.lock_path)


@pytest.mark.parametrize("partial", [True, False])
def test_only_the_chosen_files_are_fetched_if_supported(tmp_path: Path, *, partial: bool) -> None:
    repository = Repository(tmp_path / "upstream", partial=partial)
    (repository.path / "link").symlink_to("src/a.c")
    commit = repository.commit({"src/a.c": "a", "src/b.c": "b", "docs/c.md": "c"})
    git = folder(tmp_path / "git")
    seen: list[str] = []

    def choose(paths: object) -> list[str]:
        seen.extend(paths)  # type: ignore[arg-type]
        return ["src/b.c", "link"]

    nodes = fetch_git_files(GitSource(url=repository.url, commit=commit), git, choose, silent, LIMIT)
    assert sorted(seen) == ["docs/c.md", "link", "src/a.c", "src/b.c"]
    assert {node.name: node.open().read() or node.target for node in nodes} == {"src/b.c": b"b", "link": "src/a.c"}
    command = ["git", "cat-file", "--batch-check=%(objecttype)", "--batch-all-objects"]
    kinds = subprocess.check_output(command, cwd=git, text=True).split()
    assert kinds.count("blob") == (2 if partial else 4)
