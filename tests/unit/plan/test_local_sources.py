"""Test that a build follows the files of its project, whatever the lock says of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from macbuild.commands.lock import write_lock
from macbuild.errors import FetchError
from macbuild.recipe.lock import drift, save_lock
from macbuild.source.fetch.download import Pin
from macbuild.source.fetch.local import local_pin
from macbuild.source.fetch.providers import fetch
from macbuild.source.fetch.sources import FileSource
from tests.support.sample import Sample, files, tarball

ARCHIVE = "alpha-1.0-arm64.tar.gz"


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    made = Sample(tmp_path / "project")
    made.add("alpha")
    return made


def change(sample: Sample) -> None:
    content = {**files("alpha", "arm64"), "include/new.h": b"// new\n"}
    (sample.archives / ARCHIVE).write_bytes(tarball(content))


def test_a_changed_local_file_is_built_again(sample: Sample) -> None:
    sample.make("alpha")
    before = sample.content()
    change(sample)
    result = sample.make("alpha")
    assert result.seconds != {}
    assert sample.content() != before
    assert result.plan.remarks == ("alpha 1.0 arm64 local is used as it is now: macbuild lock alpha pins it",)


def test_only_a_changed_file_is_remarked_on(sample: Sample) -> None:
    assert sample.plan("alpha").remarks == ()


def test_a_local_file_needs_no_pin(sample: Sample) -> None:
    (sample.root / "macbuild.lock").write_text("version = 1\n")
    (remark,) = sample.make("alpha").plan.remarks
    assert remark.startswith("alpha 1.0 arm64 local is used as it is now")


def test_a_missing_local_file_still_comes_from_the_store(sample: Sample) -> None:
    sample.make("alpha")
    (sample.archives / ARCHIVE).unlink()
    assert sample.make("alpha").seconds == {}


def test_the_lock_disagrees_until_it_is_written_again(sample: Sample) -> None:
    change(sample)
    project = sample.project()
    assert drift(project.recipes.own, project.own_lock, project.recipes.folder) == [
        "alpha 1.0 arm64 local: has changed since it was pinned (file ../../archives/alpha-1.0-arm64.tar.gz)"
    ]
    lock = write_lock(project, project.own_lock, lambda _: None, update=False)
    save_lock(project.lock_path, lock)
    assert drift(project.recipes.own, lock, project.recipes.folder) == []
    assert sample.plan("alpha").remarks == ()


def test_a_pin_of_a_missing_file_is_kept(sample: Sample) -> None:
    project = sample.project()
    (sample.archives / ARCHIVE).unlink()
    assert write_lock(project, project.own_lock, lambda _: None, update=False).pinned == project.own_lock.pinned
    assert drift(project.recipes.own, project.own_lock, project.recipes.folder) == []


def test_the_pin_is_that_of_what_is_fetched(tmp_path: Path) -> None:
    folder = tmp_path / "vendor"
    (folder / "src").mkdir(parents=True)
    (folder / "src/a.c").write_text("int a;\n")
    (folder / "b").symlink_to("src/a.c")
    (folder / "large").write_bytes(bytes(3 << 20))
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    for path in ("vendor", "vendor/src/a.c"):
        arrived = fetch(FileSource(path=path), None, tmp_path / "out", work=tmp_path / "work", base=tmp_path)
        assert local_pin(tmp_path / path) == arrived
    assert local_pin(tmp_path / "none") is None
    assert isinstance(local_pin(folder), Pin)
    with pytest.raises(FetchError, match="neither a file nor a folder"):
        local_pin(Path("/dev/null"))


def test_of_several_sources_only_the_chosen_one_is_remarked_on(sample: Sample) -> None:
    sample.serve_first("alpha", "http://name.invalid")
    change(sample)
    plan = sample.plan("alpha")
    (step,) = (step for step in plan.steps.values() if step.kind == "fetch")
    assert msgspec.to_builtins(step.spec)["ref"]["source"] == "remote"
    assert plan.remarks == ()
