"""Test the kept build folder of a component: stable name and paths, and emptied when its history does not match."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from macbuild.plan import components, keys
from macbuild.plan.model import BuildSpec, Need
from macbuild.steps import build
from macbuild.steps.build import _Needs, _start_over_if_other, is_configured
from tests.support.libraries import libraries
from tests.support.sample import Sample


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "kept"
    folder.mkdir()
    _start_over_if_other(folder, "one")
    for name in ("build/a.o", "toolchain/cc", "needs/zlib-library", "source/zlib/a.c", "configured.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_folder_used_for_the_same_build_is_left_alone(kept: Path) -> None:
    _start_over_if_other(kept, "one")
    assert names(kept) == {"build", "toolchain", "needs", "source", "configured.json", "settled"}


def test_folder_used_for_something_else_keeps_only_sources(kept: Path) -> None:
    _start_over_if_other(kept, "two")
    assert names(kept) == {"source", "settled"}


def test_folder_half_emptied_by_a_killed_run_is_emptied_fully(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(build, "remove_tree", killed)
        with pytest.raises(KeyboardInterrupt):
            _start_over_if_other(kept, "two")
    assert "settled" not in names(kept)
    for settled in ("one", "two"):
        (kept / "build").mkdir(exist_ok=True)
        (kept / "settled").unlink(missing_ok=True)
        _start_over_if_other(kept, settled)
        assert names(kept) == {"source", "settled"}


def test_needed_stage_keeps_its_path_when_its_key_changes(tmp_path: Path) -> None:
    places = []
    for key in ("one", "two", "two"):
        stage = tmp_path / "results" / key / "stage"
        stage.mkdir(parents=True, exist_ok=True)
        needs = _Needs(tmp_path / "kept", {})
        (tmp_path / "kept").mkdir(exist_ok=True)
        needs.add(Need("zlib", "library"), stage, foreign=True, stubs=False)
        place = Path(needs.definitions["ZLIB_ROOT"])
        assert place.resolve() == stage
        assert needs.paths == {str(stage): "zlib", str(place): "zlib"}
        assert needs.filled("{zlib}/include") == f"{place}/include"
        places.append(place)
    assert len(set(places)) == 1


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return libraries(tmp_path)


def spec(sample: Sample) -> BuildSpec:
    found = sample.plan("fourfold", toolchain="zig").steps["fourfold-1.0-macos-arm64/build"].spec
    assert isinstance(found, BuildSpec)
    return found


def test_changed_driver_keeps_the_folders_name(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    before = spec(sample)
    monkeypatch.setattr(components, "tool_digest", lambda kind: f"changed {keys.tool_digest(kind)}")
    after = spec(sample)
    assert after.folder == before.folder
    assert after.settled != before.settled


def test_settings_change_keeps_the_name_and_starts_over(sample: Sample) -> None:
    before = spec(sample)
    sample.recipes["fourfold"]["build"]["definitions"] = {"FOURFOLD": "ON"}
    sample.write()
    after = spec(sample)
    assert after.folder == before.folder
    assert after.settled != before.settled


def test_folder_is_configured_only_for_the_same_settings(sample: Sample, tmp_path: Path) -> None:
    one = spec(sample)
    folder = tmp_path / "kept"
    folder.mkdir()
    _start_over_if_other(folder, one.settled)
    assert not is_configured(one, folder)
    (folder / "configured.json").touch()
    assert is_configured(one, folder)
    assert not is_configured(msgspec.structs.replace(one, settled="other"), folder)
