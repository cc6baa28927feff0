from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from macbuild.errors import RecipeError
from macbuild.files import files_below
from macbuild.recipe.model import LayoutRule, Link
from macbuild.steps.layout import lay_out


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for name in ("lib/a.dylib", "lib/b.dylib", "lib/sub/c.dylib", "include/x/y.h", "include/z.h", "LICENSE"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "lib/link.dylib").symlink_to("a.dylib")
    (root / "lib/up.dylib").symlink_to("../LICENSE")
    return root


def staged(source: Path, *rules: LayoutRule, links: Sequence[Link] = ()) -> list[str]:
    stage = source.parent / "stage"
    lay_out(source, stage, rules, links)
    return sorted(path.relative_to(stage).as_posix() for path in files_below(stage))


def rule(pattern: str, to: str, *exclude: str) -> LayoutRule:
    return LayoutRule(source=pattern, to=to, exclude=list(exclude))


def link(path: str, target: str) -> Link:
    return Link(path=path, target=target, reason="r")


def test_a_star_stays_in_its_folder_and_two_cross_folders(source: Path) -> None:
    assert staged(source, rule("lib/?.dylib", "one/"), rule("lib/**/c*", "two/")) == [
        "one/a.dylib",
        "one/b.dylib",
        "two/sub/c.dylib",
    ]


def test_matches_keep_their_path_below_the_fixed_part(source: Path) -> None:
    assert staged(source, rule("include/**/*", "inc/")) == ["inc/x/y.h", "inc/z.h"]


def test_a_file_can_be_renamed_and_put_at_the_top(source: Path) -> None:
    assert staged(source, rule("LICENSE", "doc/COPYING"), rule("include/z.h", "")) == ["doc/COPYING", "z.h"]


def test_excluded_files_are_left_out(source: Path) -> None:
    assert staged(source, rule("lib/**/*.dylib", "lib/", "b.dylib", "sub/*", "up*")) == [
        "lib/a.dylib",
        "lib/link.dylib",
    ]


def test_links_stay_links_and_files_share_their_inode(source: Path) -> None:
    staged(source, rule("lib/*", "lib/", "up*"))
    stage = source.parent / "stage"
    assert (stage / "lib/link.dylib").readlink() == Path("a.dylib")
    assert (stage / "lib/a.dylib").samefile(source / "lib/a.dylib")


def test_links_of_the_recipe_are_created(source: Path) -> None:
    found = staged(source, rule("lib/a.dylib", "lib/"), links=[link("x/new.dylib", "../lib/a.dylib")])
    assert found == ["lib/a.dylib", "x/new.dylib"]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([rule("missing/*", "x/")], "matches nothing"),
        ([rule("lib/*", "x/", "*")], "matches nothing"),
        ([rule("lib", "x/")], "matches nothing"),
        ([rule("lib/a.dylib", "x"), rule("lib/b.dylib", "x")], "installed twice"),
        ([rule("lib/?.dylib", "x")], "installed twice"),
        ([rule("lib/a.dylib", "x"), rule("lib/b.dylib", "x/")], "which is not a folder"),
        ([rule("lib/a.dylib", "x/y"), rule("lib/b.dylib", "x")], "installed twice"),
        ([rule("lib/a.dylib", "../x")], "goes upwards"),
        ([rule("lib/a.dylib", "x/../../y/")], "goes upwards"),
        ([rule("lib/a.dylib", "/tmp/")], "absolute"),
        ([rule("lib/a.dylib", ".")], "empty"),
        ([rule("../source/lib/*", "x/")], "goes upwards"),
        ([rule("/etc/passwd", "x/")], "absolute"),
        ([rule(".", "x/")], "empty"),
        ([rule("lib/up.dylib", "x/")], "does not exist"),
    ],
)
def test_impossible_rules_are_recipe_errors(source: Path, rules: list[LayoutRule], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        staged(source, *rules)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (link("lib/x", "nothing"), "does not exist"),
        (link("lib/x", "x"), "not "),
        (link("lib/x", "/etc/passwd"), "not inside the stage"),
        (link("lib/x", "../../source/LICENSE"), "not inside the stage"),
        (link("../x", "lib/a.dylib"), "goes upwards"),
        (link("/x", "lib/a.dylib"), "absolute"),
        (link("lib/a.dylib", "b.dylib"), "installed twice"),
        (link("lib/a.dylib/x", "../a.dylib"), "not a folder"),
    ],
)
def test_impossible_links_are_recipe_errors(source: Path, wanted: Link, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        staged(source, rule("lib/?.dylib", "lib/"), links=[wanted])


def test_nothing_is_written_through_a_link_of_the_source(source: Path) -> None:
    outside = source.parent / "outside"
    outside.mkdir()
    (source / "lib/folder").symlink_to("../../outside")
    with pytest.raises(RecipeError):
        staged(source, rule("lib/folder", "x/"), rule("LICENSE", "x/folder/"))
    assert list(outside.iterdir()) == []


def test_the_source_is_not_changed(source: Path) -> None:
    before = {path: path.lstat().st_mtime_ns for path in files_below(source)}
    staged(source, rule("lib/*", "lib/", "up*"))
    assert {path: path.lstat().st_mtime_ns for path in files_below(source)} == before
