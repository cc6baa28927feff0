from __future__ import annotations

import os
from pathlib import Path

import pytest

from macbuild.config import Settings, load_settings, settings_table
from macbuild.errors import ConfigError, UsageError


def load(folder: Path, text: str = "", *, name: str = "macbuild.toml", **environ: str) -> Settings:
    if text:
        (folder / name).write_text(text)
    return load_settings({}, environ, folder)


def test_flags_beat_environment_beats_file(tmp_path: Path) -> None:
    (tmp_path / "macbuild.toml").write_text("jobs = 1\narch = 'arm64'\npolicy = 'wheel'")
    environ = {"MACBUILD_JOBS": "2", "MACBUILD_ARCH": "x86_64"}
    settings = load_settings({"jobs": 3, "arch": None}, environ, tmp_path)
    assert (settings.jobs, settings.arch, settings.policy) == (3, "x86_64", "wheel")


@pytest.mark.parametrize(
    "text",
    [
        "[tool.macbuild]\njobs = 7",
        "[tool]\nmacbuild = { jobs = 7 }",
        "[ tool . 'macbuild' ]\njobs = 7",
        "tool.macbuild.jobs = 7",
        '[tool."macbuild"]\njobs = 7',
    ],
)
def test_every_form_of_the_table_in_pyproject_is_found(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text, name="pyproject.toml").jobs == 7


def test_a_table_below_ours_in_pyproject_is_an_unknown_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key 'sub'"):
        load(tmp_path, "[tool.macbuild.sub]\njobs = 7", name="pyproject.toml")


@pytest.mark.parametrize("text", ["tool.macbuild = 3", "[tool]\nmacbuild = [1]"])
def test_a_setting_that_is_not_a_table_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="table"):
        load(tmp_path, text, name="pyproject.toml")


@pytest.mark.parametrize("text", ["# see [tool.macbuild]\n", "tool = 3 # macbuild", "[project]\nname = 'macbuild'"])
def test_a_pyproject_of_others_is_skipped(tmp_path: Path, text: str) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "pyproject.toml").write_text(text)
    (tmp_path / "macbuild.toml").write_text("jobs = 5")
    assert load_settings({}, {}, tmp_path / "inner").jobs == 5


def test_unknown_keys_and_wrong_types_in_a_file_name_file_and_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "jbos = 3")
    assert caught.value.where == f"{tmp_path / 'macbuild.toml'}:1"
    assert caught.value.hint == "did you mean 'jobs'?"
    for text, key in (("jobs = 'many'", "jobs"), ("mirrors = 'x'", "mirrors"), ("offline = 1", "offline")):
        with pytest.raises(ConfigError, match=f"'{key}'"):
            load(tmp_path, text)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("yes", True), ("OFF", False), ("0", False)])
def test_variables_accept_booleans_in_every_form(tmp_path: Path, text: str, value: bool) -> None:
    assert load(tmp_path, "offline = true", MACBUILD_OFFLINE=text).offline is value


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    assert load(tmp_path, "jobs = 4", MACBUILD_JOBS="").jobs == 4


@pytest.mark.parametrize(
    ("flags", "flag"),
    [({"jobs": 0}, "--jobs"), ({"dist": ""}, "--dist"), ({"arch": "x"}, "--arch"), ({"color": "x"}, "--color")],
)
def test_a_bad_flag_is_not_mistaken_for_a_missing_one(tmp_path: Path, flags: dict[str, object], flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_settings(flags, {}, tmp_path)
    assert caught.value.where == flag


def test_our_deployment_target_overrides_the_platforms(tmp_path: Path) -> None:
    assert load(tmp_path, MACOSX_DEPLOYMENT_TARGET="12.0").deployment_target == "12.0"
    both = load(tmp_path, MACOSX_DEPLOYMENT_TARGET="12.0", MACBUILD_DEPLOYMENT_TARGET="13.0")
    assert both.deployment_target == "13.0"


def test_lists_in_variables_are_paths_or_addresses(tmp_path: Path) -> None:
    assert load(tmp_path, MACBUILD_MIRRORS=f"/a{os.pathsep}{os.pathsep}b").mirrors == ["/a", "b"]
    assert load(tmp_path, MACBUILD_MIRRORS="https://a/x  https://b/y").mirrors == ["https://a/x", "https://b/y"]


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "macbuild.toml").write_text(
        "dist = 'out'\nmirrors = ['m', 'https://x/y']\npolicy = 'p.toml'\nlock = '/l'"
    )
    (tmp_path / "p.toml").touch()
    settings = load_settings({}, {}, tmp_path / "inner")
    assert settings.dist == str(tmp_path / "out")
    assert settings.mirrors == [str(tmp_path / "m"), "https://x/y"]
    assert settings.policy == str(tmp_path / "p.toml")
    assert settings.lock == "/l"


def test_every_setting_has_help_a_flag_and_a_variable() -> None:
    table = settings_table()
    assert {entry.name for entry in table} == set(Settings.__struct_fields__)
    assert all(entry.help.endswith(".") for entry in table)
    assert len({entry.flag for entry in table}) == len({entry.variable for entry in table}) == len(table)
