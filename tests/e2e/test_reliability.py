"""Run the main job under bad conditions: killed, interrupted, twice at once, without space, permission or network."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Macbuild

LINE = ("build", "onnxruntime", "--arch", "arm64")
NAME = "onnxruntime-1.30.0-macos-arm64.tar.gz"


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def right(mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], float]:
    """Return the contents of dist/ after an undisturbed run, and its shortest time in seconds."""
    times = []
    for number in range(3):
        folder = tmp_path_factory.mktemp(f"right{number}")
        start = time.monotonic()
        Macbuild(folder / "cache")(*LINE, "--mirror", str(mirror), "--dist", str(folder / "dist"))
        times.append(time.monotonic() - start)
    return contents(folder / "dist"), min(times)


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.soak)])
def test_kill_at_any_moment_loses_nothing(
    mirror: Path, right: tuple[dict[str, bytes], float], tmp_path: Path, kills: int
) -> None:
    expected, seconds = right
    moments = random.Random(20261121)
    killed = 0
    for number in range(4 * kills):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = Macbuild(folder / "cache")
        line = (*LINE, "--mirror", str(mirror), "--dist", str(folder / "dist"))
        process = run.start(*line)
        begin = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=moments.uniform(0, seconds))
            seconds = min(seconds, time.monotonic() - begin)  # The machine is less busy than it was.
            continue
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        run(*line)
        assert contents(folder / "dist") == expected, f"moment {number}"
        run("cache", "prune")
        assert not list((folder / "cache/work").iterdir())
        shutil.rmtree(folder)
        if killed == kills:
            return
    raise AssertionError(f"only {killed} of {number + 1} runs were still running when they were killed")


def test_interrupt_exits_130_and_leaves_dist_alone(
    mirror: Path, right: tuple[dict[str, bytes], float], tmp_path: Path
) -> None:
    run = Macbuild(tmp_path / "cache")
    line = (*LINE, "--mirror", str(mirror), "--dist", str(tmp_path / "dist"))
    process = run.start(*line)
    assert process.stderr is not None
    while ": done" not in process.stderr.readline():  # the first step of several
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not (tmp_path / "dist").exists()
    run(*line)
    assert contents(tmp_path / "dist") == right[0]


def test_two_runs_at_once_share_the_work(mirror: Path, right: tuple[dict[str, bytes], float], tmp_path: Path) -> None:
    run = Macbuild(tmp_path / "cache")
    line = (*LINE, "--mirror", str(mirror), "--dist", str(tmp_path / "dist"))
    processes = [run.start(*line) for _ in range(3)]
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err
    assert contents(tmp_path / "dist") == right[0]


def test_a_deleted_artifact_is_the_only_one_restored(macbuild: Macbuild, dist: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dist"
    shutil.copytree(dist, folder)
    (folder / NAME).unlink()
    answer = macbuild.quick()("all", "--skip-unreachable", "--arch", "arm64", "--dist", str(folder))
    assert "restored" in answer.stdout
    assert "built" not in answer.stdout
    assert (folder / NAME).read_bytes() == (dist / NAME).read_bytes()


def test_without_the_packed_result_only_the_pack_step_runs(
    mirror: Path, right: tuple[dict[str, bytes], float], tmp_path: Path
) -> None:
    run = Macbuild(tmp_path / "cache")
    line = (*LINE, "--mirror", str(mirror), "--dist", str(tmp_path / "dist"))
    run(*line)
    (packed,) = (tmp_path / "cache/results").glob(f"*/*/{NAME}")
    shutil.rmtree(packed.parent)
    (tmp_path / "dist" / NAME).unlink()
    answer = run(*line)
    ran = {text.split(":")[0].rpartition("/")[2] for text in answer.stderr.splitlines() if ": done" in text}
    assert ran == {"pack"}
    assert contents(tmp_path / "dist") == right[0]


@pytest.mark.parametrize("limit", [0, 1 << 16, 1 << 20, 12 << 20, 24 << 20, 34 << 20])
def test_a_full_disk_is_one_clear_error_and_leaves_no_partial_file(mirror: Path, tmp_path: Path, limit: int) -> None:
    run = Macbuild(tmp_path / "cache")
    line = (*LINE, "--mirror", str(mirror), "--dist", str(tmp_path / "dist"))
    program = Path(sys.executable).with_name("macbuild")

    def no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    answer = subprocess.run(
        [str(program), *line],
        env={**os.environ, "MACBUILD_CACHE_DIR": str(run.cache)},
        preexec_fn=no_room,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode == 0:
        assert limit >= 34 << 20
        return
    assert answer.returncode == 17, answer.stderr
    assert answer.stderr.count("error:") == 1
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "dist").exists()
    for result in (run.cache / "results").glob("*/*"):
        assert (result / "meta.json").exists()
    run(*line)


def test_an_unreachable_network_is_one_clear_error(tmp_path: Path) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": "/dev/null"}
    nowhere |= {"PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1"}
    run = Macbuild(tmp_path / "cache", nowhere)
    answer = run(*LINE, "--dist", str(tmp_path / "dist"), code=8)
    assert answer.stderr.count("error:") == 1
    assert not (tmp_path / "dist").exists()
    answer = run(*LINE, "--skip-unreachable", "--dist", str(tmp_path / "dist"))
    assert "left out: onnxruntime" in answer.stderr


def test_offline_uses_only_mirror_folders_and_the_store(mirror: Path, tmp_path: Path) -> None:
    run = Macbuild(tmp_path / "cache")
    run(*LINE, "--offline", "--dist", str(tmp_path / "dist"), code=8)
    run(*LINE, "--offline", "--mirror", str(mirror), "--dist", str(tmp_path / "dist"))
    shutil.rmtree(tmp_path / "dist")
    run(*LINE, "--offline", "--dist", str(tmp_path / "dist"))


def test_wrong_bytes_in_a_mirror_are_never_used(mirror: Path, tmp_path: Path) -> None:
    bad = tmp_path / "mirror"
    bad.mkdir()
    (wheel,) = mirror.glob("onnxruntime-1.30.0*.whl")
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 1
    (bad / wheel.name).write_bytes(data)
    run = Macbuild(tmp_path / "cache")
    answer = run(*LINE, "--offline", "--mirror", str(bad), "--dist", str(tmp_path / "dist"), code=8)
    assert "sha256" in answer.stderr
    assert not (tmp_path / "dist").exists()
