from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from macbuild.commands.lock import write_lock
from macbuild.errors import IntegrityError, LockError
from macbuild.events import Note, discard
from macbuild.recipe.lock import Lock, drift, load_lock, save_lock
from tests.support.sample import Sample, server


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    sample = Sample(tmp_path)
    sample.add("alpha", archs=("arm64", "x86_64"))
    return sample


def test_writing_pins_every_source_by_name_size_and_sha256(sample: Sample) -> None:
    by_hand = sample.project().own_lock
    assert write_lock(sample.project(), Lock(), discard, update=False) == by_hand


def test_a_lock_is_read_back_and_has_a_stable_order(sample: Sample, tmp_path: Path) -> None:
    lock = sample.project().own_lock
    paths = [tmp_path / "a.lock", tmp_path / "b.lock"]
    save_lock(paths[0], lock)
    save_lock(paths[1], Lock(pinned=lock.pinned[::-1]))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert load_lock(paths[0]) == lock


def test_pins_are_kept_unless_updated(sample: Sample) -> None:
    archive = next(sample.archives.glob("*arm64*"))
    with server({archive.name: b"changed by the vendor"}) as url:
        sample.serve_only("alpha", url)
        old = sample.project().own_lock
        assert write_lock(sample.project(), old, discard, update=False) == old
        new = write_lock(sample.project(), old, discard, update=True)
    assert {entry.size for entry in new.pinned} != {entry.size for entry in old.pinned}


def test_unreachable_source_is_listed_and_keeps_its_pin(sample: Sample) -> None:
    with server({}) as url:
        sample.serve_first("alpha", url)
        old = sample.project().own_lock
        events: list[Note] = []
        fresh = write_lock(sample.project(), Lock(), events.append, update=False)  # type: ignore[arg-type]
        updated = write_lock(sample.project(), old, discard, update=True)
    assert [entry.source for entry in fresh.unpinned] == ["remote"]
    assert url not in fresh.unpinned[0].reason
    assert any("alpha 1.0 arm64 remote stays unpinned" in str(event) for event in events)
    assert updated == old


def test_drift_lists_entries_that_only_one_of_both_has(sample: Sample) -> None:
    project = sample.project()
    lock = project.own_lock
    assert drift(project.recipes.own, lock, project.recipes.folder) == []
    sample.sources("alpha")[0]["name"] = "renamed"
    sample.write()
    lines = drift(sample.project().recipes.own, lock, project.recipes.folder)
    assert len(lines) == 2
    assert lines[0].startswith("alpha 1.0 arm64 local: in the lock, not in the recipe")
    assert lines[1].startswith("alpha 1.0 arm64 renamed: in the recipe, not in the lock")


def test_a_pin_for_another_request_does_not_count(sample: Sample) -> None:
    lock = sample.project().own_lock
    ref = lock.pinned[0]
    assert lock.pin(ref) is ref
    assert lock.pin(msgspec.structs.replace(ref, request="file other")) is None


def test_a_missing_lock_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(LockError) as caught:
        load_lock(tmp_path / "macbuild.lock")
    assert caught.value.hint == "run: macbuild lock"


@pytest.mark.parametrize("text", ["version = 2", "version = '1'", "version = true", "", "pinned = []"])
def test_a_lock_of_another_version_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "macbuild.lock"
    path.write_text(text)
    with pytest.raises(LockError):
        load_lock(path)


def test_bytes_that_differ_from_their_pin_are_never_used(sample: Sample) -> None:
    archive = next(sample.archives.glob("*arm64*"))
    with server({archive.name: archive.read_bytes() + b"x"}) as url:
        sample.serve_only("alpha", url)
        result = sample.make()
    assert [type(error) for error in result.failed.values()] == [IntegrityError]
    assert sample.content() == {}
