"""Test recipes as written and as completed for the planner: facts that are stated once for several tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from macbuild.errors import PlanError, RecipeError
from macbuild.recipe.load import load_recipe
from macbuild.recipe.model import Recipe
from macbuild.recipe.release import Candidate, merged, references
from tests.support.sample import Sample

Change = Callable[[dict[str, Any]], object]
GIT = {"name": "git", "layout": "all", "fetch": {"type": "git", "url": "{homepage}/{part}.git", "ref": "v{version}"}}


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    sample = Sample(tmp_path)
    sample.add_built("plug", {"CMakeLists.txt": "", "pyproject.toml": ""})
    recipe = sample.recipes["plug"]
    recipe["layouts"] = {"all": [{"from": "{folder}/{part}-{version}/*", "to": ""}]}
    recipe["every_release"] = {"minimum_macos": "12.0", "needs": ["zlib", "abseil"], "source": [GIT]}
    recipe["releases"] = [
        {"version": "1.0", "placeholders": {"part": "old"}},
        {
            "version": "2.0",
            "placeholders": {"part": "new"},
            "needs": ["abseil@5"],
            "tools": ["protobuf"],
            "trees": ["plug@{version}"],
            "arm64": {"minimum_macos": "14.0", "needs": ["libtorch@2.13.0"]},
        },
    ]
    return sample


def loaded(sample: Sample) -> Recipe:
    path = sample.recipe_path("plug")
    path.write_text(tomli_w.dumps(sample.recipes["plug"]))
    return load_recipe(path)


def test_reference_is_a_name_with_an_optional_version() -> None:
    assert references(["zlib", "pybind11@3.0.4"]) == {"zlib": "", "pybind11": "3.0.4"}
    assert merged(["a", "b@1"], ["c", "b@2"]) == ["a", "b@2", "c"]


def test_slice_adds_to_its_release_which_adds_to_every_release(sample: Sample) -> None:
    release = loaded(sample).exact("2.0")
    arm64, x86_64 = release.slice("arm64"), release.slice("x86_64")
    assert arm64 is not None
    assert x86_64 is not None
    assert list(arm64.needs.items()) == [("zlib", ""), ("abseil", "5"), ("libtorch", "2.13.0")]
    assert list(x86_64.needs.items()) == [("zlib", ""), ("abseil", "5")]
    assert (arm64.minimum_macos, x86_64.minimum_macos) == ("14.0", "12.0")
    assert (arm64.tools, arm64.trees) == ({"protobuf": ""}, {"plug": "2.0"})


def test_release_without_own_facts_has_those_of_every_release(sample: Sample) -> None:
    part = loaded(sample).exact("1.0").slice("x86_64")
    assert part is not None
    assert (part.minimum_macos, part.needs, part.tools) == ("12.0", {"zlib": "", "abseil": ""}, {})


def test_build_without_minimum_macos_is_for_macos_11(sample: Sample) -> None:
    del sample.recipes["plug"]["every_release"]
    part = loaded(sample).exact("1.0").slice("arm64")
    assert part is not None
    assert part.minimum_macos == "11.0"


def test_archs_of_a_build_are_both_unless_stated(sample: Sample) -> None:
    assert loaded(sample).release(None, "universal2").version == "2.0"
    sample.recipes["plug"]["releases"][1]["archs"] = ["arm64"]
    assert loaded(sample).exact("2.0").slice("x86_64") is None
    assert loaded(sample).release(None, "universal2").version == "1.0"


def test_placeholders_are_replaced_in_sources_and_layouts(sample: Sample) -> None:
    recipe = loaded(sample)
    old, new = (release.source[0] for release in recipe.releases)
    assert old.fetch.request() == "git https://example.org/old.git ref=v1.0"
    assert new.fetch.request() == "git https://example.org/new.git ref=v2.0"
    names = {"version": "2.0", "part": "new"}
    assert [rule.source for rule in recipe.layout(new, names)] == ["/new-2.0/*"]


def test_package_version_is_that_of_the_fetched_source(sample: Sample) -> None:
    fetch = {"type": "sdist", "package": "plug", "version": "5.6"}
    source = {"name": "sdist", "layout": "all", "folder": "plug-{package_version}", "fetch": fetch}
    sample.recipes["plug"]["every_release"]["source"] = [source]
    recipe = loaded(sample)
    (rule,) = recipe.layout(recipe.releases[0].source[0], {"version": "1.0", "part": "old"})
    assert rule.source == "plug-5.6/old-1.0/*"


def test_layout_includes_the_rules_of_the_layouts_that_it_names(sample: Sample) -> None:
    layouts = sample.recipes["plug"]["layouts"]
    layouts["all"] = [{"from": "a", "to": "a"}, "rest", {"from": "z", "to": "z"}]
    layouts["rest"] = [{"from": "b", "to": "b"}]
    recipe = loaded(sample)
    assert [rule.source for rule in recipe.layout(recipe.releases[0].source[0], {})] == ["a", "b", "z"]


@pytest.mark.parametrize(("entry", "message"), [("all", "contains itself"), ("al", "there is no layout 'al'")])
def test_layout_that_cannot_be_resolved_is_refused(sample: Sample, entry: str, message: str) -> None:
    sample.recipes["plug"]["layouts"]["all"].append(entry)
    with pytest.raises(RecipeError, match=message):
        loaded(sample)


def test_a_version_is_needed_only_if_there_are_several_releases(sample: Sample) -> None:
    recipe = loaded(sample)
    with pytest.raises(PlanError, match="several releases, so the version must be given") as caught:
        recipe.exact("")
    assert caught.value.hint == "one of plug@1.0, plug@2.0"
    sample.recipes["plug"]["releases"].pop()
    assert loaded(sample).exact("").version == "1.0"


def test_package_gets_the_facts_of_every_package_with_its_prefix(sample: Sample) -> None:
    core = {"component": "core", "from": "**/*", "to": ""}
    sample.recipes["plug"] |= {
        "every_package": {"rpaths": ["@loader_path/../lib"], "include": [core], "files": [{"from": "x", "to": "y/"}]},
        "packages": [
            {"kind": "tarball", "rpaths": ["@loader_path"], "include": [{**core, "component": "extra", "to": "e/"}]},
            {"kind": "wheel", "prefix": "top/", "name": "plug-wheel"},
        ],
    }
    tarball, wheel = loaded(sample).artifacts
    assert (tarball.name, wheel.name) == ("plug", "plug-wheel")
    assert (tarball.licenses, wheel.licenses) == ("licenses/", "top/licenses/")
    assert tarball.rpaths == ["@loader_path", "@loader_path/../lib"]
    assert [(include.component, include.to) for include in tarball.include] == [("core", ""), ("extra", "e/")]
    assert [(include.component, include.to) for include in wheel.include] == [("core", "top/")]
    assert [rule.to for rule in (*tarball.files, *wheel.files)] == ["y/", "top/y/"]


def test_shared_file_provides_releases_layouts_and_sources(sample: Sample) -> None:
    recipe = sample.recipes["plug"]
    shared = {"every_release": {"source": [GIT]}, "releases": recipe.pop("releases"), "layouts": recipe.pop("layouts")}
    del recipe["every_release"]["source"]
    recipe["shared"] = "../shared.toml"
    (sample.root / "recipes/shared.toml").write_text(tomli_w.dumps(shared))
    found = loaded(sample)
    assert [release.version for release in found.releases] == ["1.0", "2.0"]
    assert isinstance(found.exact("2.0").source[0], Candidate)
    recipe["releases"] = [{"version": "3.0"}]
    with pytest.raises(RecipeError, match=r"the releases are also in \.\./shared\.toml"):
        loaded(sample)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("releases"), "there are no releases"),
        (lambda data: data["releases"][0].pop("placeholders"), r"the source 'git' has the unknown \{part\}"),
        (lambda data: data["releases"][0]["placeholders"].update(part="a b"), "the source 'git': .*url"),
        (lambda data: data["every_release"].update(needs=["zlib@newest"]), "every_release.needs"),
        (lambda data: data.update(every_package={"rpaths": ["x"]}), "there are no packages to have them"),
        (lambda data: data.update(build=None) or data.pop("build"), r"has needs, and the recipe has no \[build\]"),
    ],
)
def test_recipe_that_cannot_be_completed_is_refused(sample: Sample, change: Change, message: str) -> None:
    change(sample.recipes["plug"])
    with pytest.raises(RecipeError, match=message) as caught:
        loaded(sample)
    assert str(caught.value.where).startswith(f"{sample.recipe_path('plug')}:")


def test_repackaged_release_states_its_minimum_macos(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add("alpha")
    del sample.recipes["alpha"]["releases"][0]["arm64"]["minimum_macos"]
    with pytest.raises(RecipeError, match=r"releases 1\.0 arm64 has no minimum_macos"):
        sample.write()
    sample.recipes["alpha"]["releases"][0] |= {"minimum_macos": "12.0", "archs": ["arm64"]}
    with pytest.raises(RecipeError, match="archs is for what is built"):
        sample.write()
