from __future__ import annotations

from pathlib import Path

import pytest

from macbuild.commands.project import Project
from macbuild.config import Settings, data_root, project_root
from macbuild.errors import ConfigError
from tests.support.sample import Sample


def test_the_project_is_found_from_any_folder_below_it(tmp_path: Path) -> None:
    Sample(tmp_path).add("alpha")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert project_root(below) == tmp_path
    assert list(Project(Settings(), {}, below).recipes) == ["alpha"]


def test_elsewhere_the_recipes_of_the_package_are_used(tmp_path: Path) -> None:
    assert project_root(tmp_path) is None
    assert (data_root(tmp_path) / "recipes" / "prebuilt" / "libtorch" / "recipe.toml").is_file()


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
