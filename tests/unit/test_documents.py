"""Test that errors in files that people write name the line, and that only regular files are read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from macbuild.documents import Keys, line_of, load_document, place, read_document
from macbuild.errors import LockError, RecipeError
from macbuild.recipe.model import Recipe

TEXT = '''\
schema = 1 # [releases]
"name" = "alpha"
description = """
[releases]
layout = 1
"""
build.options.fast = { summary = "a \\" # ]" }

[[ releases ]]
version = "1.0"
[releases."arm64"]
sources = [
  # { name = "no" },
  { name = "one", layout = "a" },

  { name = "two", urls = [
    "https://example.org/[x]",
    "b",
  ], layout = "b" },
]
[releases.x86_64]
minimum_macos = "11.0"
[[releases]]
version = "2.0"
arm64.sources = [{ name = "three" },
  { name = "four" }]
[layouts]
"a.b" = [
  "x",
]
[deep.er.table]
'''


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ((), 1),
        (["schema"], 1),
        (["name"], 2),
        (["description"], 3),
        (["build"], 7),
        (["build", "options", "fast", "summary"], 7),
        (["releases"], 9),
        (["releases", 0], 9),
        (["releases", 0, "version"], 10),
        (["releases", 0, "arm64"], 11),
        (["releases", 0, "arm64", "sources"], 12),
        (["releases", 0, "arm64", "sources", 0], 14),
        (["releases", 0, "arm64", "sources", 1, "name"], 16),
        (["releases", 0, "arm64", "sources", 1, "urls", 1], 18),
        (["releases", 0, "arm64", "sources", 1, "layout"], 19),
        (["releases", 0, "x86_64", "minimum_macos"], 22),
        (["releases", 1], 23),
        (["releases", 1, "arm64", "sources", 0, "name"], 25),
        (["releases", 1, "arm64", "sources", 1], 26),
        (["layouts", "a.b", 0], 29),
        (["deep", "er"], 31),
        (["releases", 1, "no such", "key"], 23),
        (["no such key"], 1),
    ],
)
def test_line_of_a_key_is_found_in_every_form_of_toml(keys: Keys, line: int) -> None:
    assert line_of(TEXT, keys) == line


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("schema = 1\nname = ", 2, "Invalid value (the file ends too early)"),
        ("schema = [\n\n", 2, "the file ends too early"),
        ("schema = 1\n\nsumary = 'x'\n", 3, "unknown key 'sumary'"),
        ("schema = 1\nname = 'a'\nsummary = 3\n", 3, "'summary'"),
        ("[[releases]]\nversion = '1'\n[[releases]]\nverson = '2'\n", 4, "unknown key 'verson' in releases[1]"),
        ("schema = 1 1\n", 1, "(column 12)"),
        ("schema = 1\n[build.definitions]\n'a.b' = [{ from = 1 }]\n", 3, "build.definitions.a.b"),
        ("schema = 1\n", 1, "missing required field"),
    ],
)
def test_error_names_the_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        load_document(path, Recipe, RecipeError)
    assert caught.value.where == f"{path}:{line}"
    assert message in caught.value.message


def test_place_of_a_file_that_cannot_be_read_is_the_file(tmp_path: Path) -> None:
    assert place(tmp_path / "none.toml", "key") == str(tmp_path / "none.toml")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "latin-1"])
def test_other_encodings_are_refused_with_what_to_do(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "macbuild.lock"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    path.write_text(f"{mark}version = 1 # ä\n", encoding)
    with pytest.raises(LockError, match=r"is UTF-8 with a byte order mark|is UTF-16|is not UTF-8") as caught:
        read_document(path, LockError)
    assert encoding == "latin-1" or "without a byte order mark" in str(caught.value.hint)


def test_other_than_regular_files_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name, kind in (("fifo", "a FIFO"), ("zero", "a device"), ("socket", "a socket"), (".", "a folder")):
            with pytest.raises(LockError, match=f"is {kind}, not a file"):
                read_document(tmp_path / name, LockError)
