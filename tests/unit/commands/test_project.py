from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from macbuild import config
from macbuild.commands.project import Project
from macbuild.config import Settings, bundled, is_installed, project_root
from macbuild.errors import ConfigError, LockError, RecipeError, UsageError
from macbuild.recipe.lock import source_refs
from tests.support.sample import Sample


def test_the_project_is_found_from_any_folder_below_it(tmp_path: Path) -> None:
    Sample(tmp_path).add("alpha")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert project_root(below) == tmp_path
    assert list(Project(Settings(), {}, below).recipes.own) == ["alpha"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("recipes", None), ("macbuild.toml", ""), ("pyproject.toml", "[tool.macbuild]\n")],
)
def test_recipes_or_settings_alone_make_a_project(tmp_path: Path, name: str, text: str | None) -> None:
    (tmp_path / "below").mkdir()
    assert project_root(tmp_path / "below") is None
    if text is None:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text(text)
    assert project_root(tmp_path / "below") == tmp_path


def test_other_tools_settings_do_not_make_a_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "macbuild-user"\n[tool.ruff]\n')
    assert project_root(tmp_path) is None


def test_elsewhere_the_recipes_of_the_package_are_used(tmp_path: Path) -> None:
    assert project_root(tmp_path) is None
    project = Project(Settings(), {}, tmp_path)
    assert project.recipes_folder == bundled("recipes")
    assert (project.recipes.folder("libtorch") / "recipe.toml").is_file()
    assert project.lock_path == bundled("macbuild.lock")


def test_own_recipes_are_added_to_those_of_macbuild(tmp_path: Path) -> None:
    Sample(tmp_path).add("alpha")
    project = Project(Settings(), {}, tmp_path)
    assert {"alpha", "libtorch", "zlib"} <= set(project.recipes)
    assert project.recipes.folder("alpha") == tmp_path / "recipes/alpha"
    assert project.recipes.root_of("zlib") == bundled("recipes")
    assert project.recipes.edits("alpha") == tmp_path / "patches/alpha"
    assert project.recipes.edits("core") == bundled("patches") / "core"
    assert project.request([]).components == (("alpha", None),)
    assert project.request(["zlib"]).components == (("zlib", None),)


def test_own_recipe_replaces_one_of_macbuild_with_its_pins(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add("zlib")
    project = sample.project()
    assert [release.version for release in project.recipes["zlib"].releases] == ["1.0"]
    assert len(project.recipes) == len({*project.recipes, "zlib"})
    assert {entry.version for entry in project.lock.pinned if entry.component == "zlib"} == {"1.0"}


def test_pins_of_macbuild_serve_its_recipes_in_a_project(tmp_path: Path) -> None:
    Sample(tmp_path).add("alpha")
    project = Project(Settings(), {}, tmp_path)
    for name in ("alpha", "zlib"):
        assert all(project.lock.pin(ref) for ref, _ in source_refs(project.recipes[name])), name


def test_project_without_a_lock_uses_pins_of_macbuild(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add("alpha")
    sample.serve_only("alpha", "http://127.0.0.1:9")
    (tmp_path / "macbuild.lock").unlink()
    assert sample.project().own_lock.pinned == []
    assert {entry.component for entry in sample.project().lock.pinned} >= {"zlib", "libtorch"}
    with pytest.raises(LockError, match="no source is pinned") as caught:
        sample.plan("alpha")
    assert caught.value.hint == "run: macbuild lock alpha"


def test_all_means_those_of_macbuild_if_a_project_has_none(tmp_path: Path) -> None:
    (tmp_path / "macbuild.toml").touch()
    names = [name for name, _ in Project(Settings(), {}, tmp_path).request([]).components]
    assert {"libtorch", "zlib"} <= set(names)


def test_a_named_folder_without_recipes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecipeError, match="there is no recipe") as caught:
        _ = Project(Settings(recipes="empty"), {}, tmp_path).recipes
    assert "--recipes" in str(caught.value.hint)


def test_own_components_build_although_macbuild_has_others(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add("alpha")
    (tmp_path / "macbuild.toml").touch()
    assert not sample.make().failed
    assert "alpha-1.0-macos-arm64.tar.gz" in sample.content()


def test_lock_is_refused_outside_projects_and_in_installations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages/macbuild"
    shutil.copytree(bundled("recipes") / "libraries/zlib", package / "_data/recipes/libraries/zlib")
    shutil.copyfile(bundled("macbuild.lock"), package / "_data/macbuild.lock")
    monkeypatch.setattr(config, "_PACKAGE", package)
    inside = package / "_data/recipes/libraries"
    assert is_installed(inside)
    assert project_root(inside) is None
    for start in (inside, tmp_path):
        with pytest.raises(UsageError, match="not in a project") as caught:
            Project(Settings(), {}, start).check_writable(start)
        assert caught.value.hint == "make a project with: macbuild init"
    with pytest.raises(UsageError, match="never changed"):
        Project(Settings(recipes=str(package / "_data/recipes")), {}, tmp_path).check_writable(inside)
    (tmp_path / "recipes").mkdir()
    Project(Settings(), {}, tmp_path).check_writable(tmp_path / "macbuild.lock")


def test_checkout_of_macbuild_without_its_lock_is_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(bundled("recipes") / "libraries/zlib", checkout / "recipes/libraries/zlib")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(config, "_PACKAGE", checkout / "macbuild")
    project = Project(Settings(), {}, checkout)
    project.check_writable(project.lock_path)
    assert (project.lock_path, list(project.recipes.own)) == (checkout / "macbuild.lock", ["zlib"])
    assert project.lock.pinned == []
    assert project.lock_command("zlib") == "macbuild lock zlib"
    with pytest.raises(UsageError, match="not in a project"):
        Project(Settings(), {}, tmp_path / "elsewhere").check_writable(project.lock_path)


def test_own_component_is_built_with_one_of_macbuild(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add_built("plug", {"CMakeLists.txt": "project(plug)\n"}, facts={"needs": ["zlib"]})
    steps = sample.plan(toolchain="zig").steps
    assert {"plug-1.0-macos-arm64/build", "zlib-1.3.1.1-macos-arm64/build"} <= steps.keys()
    assert sample.plan("zlib", toolchain="zig").goals[0] == "zlib-1.3.1.1-macos-arm64/build"


def test_hints_outside_projects_and_with_places_name_all_it_takes(tmp_path: Path) -> None:
    assert Project(Settings(), {}, tmp_path).lock_command("core") == "macbuild init && macbuild lock core"
    assert Project(Settings(lock="my lock"), {}, tmp_path).lock_command("x") == "macbuild lock x --lock 'my lock'"


def test_the_lock_is_beside_the_recipes_unless_given(tmp_path: Path) -> None:
    assert Project(Settings(recipes="other/recipes"), {}, tmp_path).lock_path == tmp_path / "other" / "macbuild.lock"
    assert Project(Settings(lock="x.lock"), {}, tmp_path).lock_path == tmp_path / "x.lock"


def test_dist_is_relative_to_the_working_directory(tmp_path: Path) -> None:
    assert Project(Settings(), {}, tmp_path).dist == tmp_path / "dist"
    assert Project(Settings(dist="/x/y"), {}, tmp_path).dist == Path("/x/y")


def test_source_date_epoch_is_honoured_and_a_bad_one_refused(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add("alpha")
    for text, epoch in (("1700000000", 1700000000), ("0", 0)):
        assert Project(Settings(), {"SOURCE_DATE_EPOCH": text}, tmp_path).request([]).epoch == epoch
    with pytest.raises(ConfigError):
        Project(Settings(), {"SOURCE_DATE_EPOCH": "yesterday"}, tmp_path).request([])


def test_no_component_means_all(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add("beta")
    sample.add("alpha")
    assert sample.project().request([]).components == (("alpha", None), ("beta", None))
