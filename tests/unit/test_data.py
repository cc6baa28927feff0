from __future__ import annotations

from pathlib import Path

import pytest

from macbuild.data import convert, load_toml
from macbuild.errors import LockError, MacbuildError, RecipeError, nearest
from macbuild.recipe.model import Recipe

RECIPE = """
schema = 1
name = "alpha"
summary = "s"
homepage = "h"
license = "MIT"
[[releases]]
version = "1.0"
[releases.arm64]
minimum_macos = "11.0"
[[releases.arm64.sources]]
name = "archive"
layout = "archive"
fetch = { type = "url", urls = ["https://example.org/a.zip"] }
[layouts]
archive = [{ from = "lib/*", to = "lib/" }]
"""


def failure(folder: Path, old: str, new: str) -> MacbuildError:
    assert old in RECIPE
    path = folder / "recipe.toml"
    path.write_text(RECIPE.replace(old, new))
    with pytest.raises(RecipeError) as caught:
        load_toml(path, Recipe, RecipeError)
    assert caught.value.where == str(path)
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ('summary = "s"', 'sumary = "s"', "unknown key 'sumary'", "did you mean 'summary'?"),
        ('version = "1.0"', 'verson = "1.0"', "unknown key 'verson' in releases[0]", "did you mean 'version'?"),
        ('layout = "', 'layuot = "', "unknown key 'layuot' in releases[0].arm64.sources[0]", "did you mean 'layout'?"),
        ("urls = ", "url = ", "unknown key 'url' in releases[0].arm64.sources[0].fetch", "did you mean 'urls'?"),
        ("from = ", "form = ", "unknown key 'form' in layouts.archive[0]", "did you mean 'from'?"),
    ],
)
def test_unknown_keys_are_named_with_place_and_nearest_key(
    tmp_path: Path, old: str, new: str, message: str, hint: str
) -> None:
    error = failure(tmp_path, old, new)
    assert (error.message, error.hint) == (message, hint)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("schema = 1", "schema = 2", "schema"),
        ("schema = 1", 'schema = "1"', "schema"),
        ('license = "MIT"', "license = 3", "license"),
        ('minimum_macos = "11.0"', "minimum_macos = 11.0", "releases[0].arm64.minimum_macos"),
        ("[releases.arm64]", "[releases.arm64.x]", "releases[0].arm64"),
        ('type = "url"', 'type = "ulr"', "releases[0].arm64.sources[0].fetch.type"),
        ('type = "url", ', "", "releases[0].arm64.sources[0].fetch"),
        (
            'fetch = { type = "url", urls = ["https://example.org/a.zip"] }',
            "fetch = 3",
            "releases[0].arm64.sources[0].fetch",
        ),
        ('"https://example.org/a.zip"', "7", "releases[0].arm64.sources[0].fetch.urls[0]"),
        ('from = "lib/*"', "from = true", "layouts.archive[0].from"),
        ('to = "lib/"', "to = []", "layouts.archive[0].to"),
        ('[{ from = "lib/*", to = "lib/" }]', '"lib"', "layouts.archive"),
    ],
)
def test_wrong_types_and_values_are_named_with_their_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    error = failure(tmp_path, old, new)
    assert f"'{place}'" in error.message or f"unknown key 'x' in {place}" in error.message


def test_a_wrong_tag_names_the_nearest_kind(tmp_path: Path) -> None:
    assert failure(tmp_path, 'type = "url"', 'type = "weel"').hint == "did you mean 'wheel'?"


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    assert "`license`" in failure(tmp_path, 'license = "MIT"\n', "").message


def test_syntax_errors_name_line_and_column(tmp_path: Path) -> None:
    assert "line 2" in failure(tmp_path, "schema = 1", "schema = ").message


@pytest.mark.parametrize("data", [[], "text", 3, None])
def test_a_document_that_is_not_a_table_is_refused(data: object) -> None:
    with pytest.raises(LockError):
        convert(data, Recipe, "file", LockError)


def test_an_unreadable_file_is_the_requested_error(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe4"')
    for name in ("missing.toml", "latin.toml", "."):
        with pytest.raises(RecipeError):
            load_toml(tmp_path / name, Recipe, RecipeError)


def test_deep_nesting_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    failure(tmp_path, "schema = 1", f"schema = {'[' * 5000}{']' * 5000}")


def test_nearest_lists_all_choices_when_none_is_near() -> None:
    assert nearest("zzz", ["beta", "alpha"]) == "known: alpha, beta"
