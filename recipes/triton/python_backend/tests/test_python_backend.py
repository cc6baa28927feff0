"""Test models in Python, and the choice of the Python that runs them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from backend_testing.service import Service, running, tree
from backend_testing.wire import Client, InferenceServerException
from pythons import Python, add_model, alive, environment, here, packed, report, until, wanted

STUB = tree() / "backends" / "python" / "triton_python_backend_stub"


@pytest.fixture(autouse=True)
def own_python_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the Python of the tests, which has numpy, first on PATH, and unset all variables that name another."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "MACBUILD_PYTHON_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A model repository."""
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def service(tmp_path: Path, models: Path) -> Iterator[Service]:
    """Provide a server with a doubling model."""
    add_model(models, "double")
    with running(tmp_path, models) as service:
        yield service


def ask(client: Client, value: np.ndarray[tuple[int, ...], np.dtype[np.float32]], model: str = "double") -> bool:
    """Return whether a model doubles."""
    answer = client.infer(model, {"INPUT0": value})["OUTPUT0"]
    return bool((answer == 2 * value).all()) and answer.shape == value.shape


def regions() -> list[Path]:
    """Return the folders in which servers keep their substitute for shared memory."""
    return list(Path(tempfile.gettempdir(), f"macbuild-ipc-{os.geteuid()}").glob("*"))


def test_tensors_of_any_size_are_doubled(service: Service) -> None:
    client = service.connect()
    for size in (6, 0, 1, 4_000_000, 3, 6_000_000, 6):
        assert ask(client, np.arange(size, dtype=np.float32))


def test_an_error_of_a_model_is_the_error_of_the_request(service: Service) -> None:
    client = service.connect()
    for number, message in ((-1, "minus one is not doubled"), (-2, "minus two is an exception")):
        with pytest.raises(InferenceServerException, match=message):
            client.infer("double", {"INPUT0": np.asarray([number], np.float32)})
    assert ask(client, np.ones(3, np.float32))


def test_by_default_the_first_python_on_path_runs_the_model(service: Service, models: Path) -> None:
    seen = report(models / "double")
    assert (seen["version"], seen["prefix"], seen["base"]) == (here().version, sys.prefix, sys.base_prefix)
    assert seen["loader"] == []
    assert seen["pid"] != service.process.pid


def test_each_instance_is_a_process_and_ends_with_the_server(tmp_path: Path, models: Path) -> None:
    add_model(models, "double", count=3)
    with running(tmp_path, models) as service:
        stubs = children(service)
        assert len(stubs) == 3
        assert ask(service.connect(), np.ones(3, np.float32))
    assert until(lambda: not any(map(alive, stubs)))


def test_a_stub_that_is_killed_is_an_error_of_the_request(service: Service, models: Path) -> None:
    os.kill(report(models / "double")["pid"], signal.SIGKILL)
    with pytest.raises(InferenceServerException, match="not healthy"):
        service.connect().infer("double", {"INPUT0": np.ones(1, np.float32)})


def test_stubs_end_with_a_killed_server_and_the_next_cleans_up(tmp_path: Path, models: Path) -> None:
    add_model(models, "double")
    before = set(regions())
    with running(tmp_path, models) as service:
        (stub,) = children(service)
        service.code = -signal.SIGKILL
        service.end(signal.SIGKILL)
    assert until(lambda: not alive(stub))
    left = set(regions()) - before
    with running(tmp_path, models) as service:
        assert ask(service.connect(), np.ones(3, np.float32))
        assert not left & set(regions())
        assert all(path.stat().st_mode & 0o777 == 0o700 for path in regions())
    assert set(regions()) <= before


@pytest.mark.parametrize("python", wanted(), ids=lambda python: python.version)
def test_a_model_brings_its_python_as_a_folder(tmp_path: Path, models: Path, python: Python) -> None:
    model = add_model(models, "own", execution=environment(tmp_path / "env", python))
    with running(tmp_path, models):
        seen = report(model)
    assert (seen["version"], seen["base"], seen["loader"]) == (python.version, str(python.prefix), [])


def test_a_model_brings_its_python_as_an_archive(tmp_path: Path, models: Path) -> None:
    archive = packed(tmp_path / "env.tar.gz", environment(tmp_path / "env", here()))
    model = add_model(models, "own", execution=archive)
    before = set(Path("/tmp").glob("python_env_*"))
    with running(tmp_path, models):
        assert report(model)["version"] == here().version
        assert set(Path("/tmp").glob("python_env_*")) != before
    assert set(Path("/tmp").glob("python_env_*")) == before


def test_a_model_may_bring_a_copy_of_the_launcher(tmp_path: Path, models: Path) -> None:
    model = add_model(models, "double")
    shutil.copy(STUB, model)
    with running(tmp_path, models) as service:
        assert ask(service.connect(), np.ones(3, np.float32))
        command = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(children(service)[0])], capture_output=True, text=True, check=True
        ).stdout
    assert command.startswith(str(model / STUB.name))


def test_a_venv_runs_with_the_python_it_was_made_from(tmp_path: Path, models: Path) -> None:
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    model = add_model(models, "own", execution=folder)
    with running(tmp_path, models):
        seen = report(model)
    assert (seen["version"], seen["prefix"]) == (here().version, str(folder))


def test_an_active_environment_comes_before_path(tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    model = add_model(models, "own")
    with running(tmp_path, models):
        assert report(model)["prefix"] == str(folder)


def test_the_launcher_reports_which_python_it_uses() -> None:
    done = subprocess.run([STUB, "--python"], capture_output=True, text=True, check=True)
    version, library, program, stub = done.stdout.splitlines()
    assert version == here().version
    assert Path(library).resolve().is_relative_to(here().prefix.resolve())
    assert program == str(Path(sys.executable).with_name("python3"))
    assert stub == str(STUB.with_name(f"libtriton_python_backend_stub-{version}.so"))


def test_launcher_without_arguments_fails_as_the_server_expects() -> None:
    assert subprocess.run([STUB], capture_output=True, check=False).returncode == 1


def test_launcher_without_a_matching_python_lists_those_it_saw(tmp_path: Path) -> None:
    environment(tmp_path / "old", Python(here().prefix, here().version))
    (tmp_path / "old" / "lib" / "libpython3.9.so.1.0").touch()
    for name in (tmp_path / "old" / "lib").glob(f"libpython{here().version}.*"):
        name.unlink()
    variables = {"MACBUILD_PYTHON_LIBRARY_PATH": str(tmp_path / "old" / "lib"), "PATH": os.environ["PATH"]}
    done = subprocess.run([STUB, "--python"], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "there is no stub for Python 3.9" in done.stderr


def children(service: Service) -> list[int]:
    """Return the stubs of a server."""
    done = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in done.stdout.splitlines()]
    stubs = [int(pid) for pid, parent, text in rows if int(parent) == service.process.pid and STUB.name in text]
    assert stubs, done.stdout
    return stubs
