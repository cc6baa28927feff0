from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from macbuild.commands.doctor import DoctorCheck, check_machine
from tests.support.sample import Sample


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    sample = Sample(tmp_path)
    sample.add("alpha")
    return sample


def checks(sample: Sample) -> dict[str, DoctorCheck]:
    return {check.name: check for check in check_machine(sample.project())}


def test_a_complete_machine_passes(sample: Sample) -> None:
    found = checks(sample)
    assert all(check.ok for check in found.values() if check.needed)
    assert found["recipes"].found.startswith("1 in ")
    assert found["lock"].found.startswith("1 sources pinned in ")


def test_a_missing_program_is_named_with_a_fix(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    found = checks(sample)
    assert not found["npm"].ok
    assert not found["npm"].needed
    assert found["npm"].hint == "install Node.js"


def test_damaged_recipe_and_lock_are_reported_not_raised(sample: Sample) -> None:
    sample.recipe_path("alpha").write_text("schema = ")
    (sample.root / "macbuild.lock").write_text("version = 2")
    found = checks(sample)
    assert [name for name, check in found.items() if not check.ok and check.needed] == ["recipes", "lock"]
    assert "not valid TOML" in found["recipes"].found
    assert "macbuild lock" in found["lock"].hint


def test_an_impossible_store_is_reported(sample: Sample) -> None:
    sample.cache.write_text("a file in its place")
    assert not checks(sample)["store"].ok
