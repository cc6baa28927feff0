"""Test the client's helper for shared memory on macOS: names, records, and tritonclient itself."""

from __future__ import annotations

import importlib.util
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tritonclient.utils.shared_memory as client
from hypothesis import given
from hypothesis import strategies as st

SOURCE = Path(__file__).parents[2] / "recipes/libraries/macbuild_compat" / "python" / "triton_shm_names.py"
LONG = " is a key much longer than what macOS takes/and has a slash"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("triton_shm_names", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


names = load()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for the records of this test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / f"macbuild-shm-{os.geteuid()}"


@pytest.fixture
def key() -> str:
    return f"/mbtest-{os.getpid()}{LONG}"


@pytest.mark.parametrize(
    ("given_key", "name"),
    [
        ("/input_data", "/input_data"),
        ("input_data", "/input_data"),
        ("//input_data", "/input_data"),
        ("a" * 30, "/" + "a" * 30),
        ("é" * 15, "/" + "é" * 15),  # 30 bytes
        ("a" * 31, "/tsm-mhdawsd5dkjb4c6mtp4fhxna7m"),
        ("é" * 16, "/tsm-kc7trtj2jtkqeu6odiiryvr5ea"),
        ("a/b", "/tsm-yfgn3qbt6zfz32ua5jtvz4uaua"),
    ],
)
def test_a_key_has_the_expected_name(given_key: str, name: str) -> None:
    assert names.shm_name(given_key) == name


@given(st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=80))
def test_every_name_is_valid_on_macos_and_is_its_own_key(text: str) -> None:
    if not text.strip("/"):
        return
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        return
    name = names.shm_name(text)
    assert len(os.fsencode(name)) <= names.LONGEST_NAME
    assert name.rfind("/") == 0
    assert names.shm_name(name) == names.shm_name("/" + text) == name
    assert len(encoded.lstrip(b"/")) > 30 or "/" in text.lstrip("/") or name == "/" + text.lstrip("/")


@pytest.mark.parametrize("no_key", ["", "/", "///", "a\0b"])
def test_invalid_keys_are_refused(no_key: str) -> None:
    with pytest.raises(ValueError, match="no name for shared memory"):
        names.shm_name(no_key)


def test_region_is_listed_by_its_key_until_unlink(folder: Path, key: str) -> None:
    block = names.SharedMemory(key, create=True, size=8192)
    try:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (region,) = names.list_regions()
        assert (region.key, region.name, region.pid) == (key[1:], names.shm_name(key), os.getpid())
        assert region.size >= 8192
        same = names.SharedMemory("/" + key)
        block.buf[8191] = 7
        assert same.buf[8191] == 7
        same.close()
        with pytest.raises(FileExistsError):
            names.SharedMemory(key, create=True, size=8192)
    finally:
        block.close()
        block.unlink()
    assert names.list_regions() == []
    assert not list(folder.glob("*.region"))


def test_name_of_another_key_is_not_a_region(folder: Path, key: str) -> None:
    block = names.SharedMemory(key, create=True, size=10)
    try:
        (record,) = folder.glob("*.region")
        text = record.read_text()
        record.write_text(text.replace(f"key {os.fsencode(key[1:]).hex()}", f"key {b'another'.hex()}"))
        with pytest.raises(FileNotFoundError, match="another key"):
            names.SharedMemory(key)
        names.SharedMemory(names.shm_name(key)).close()
    finally:
        block.close()
        block.unlink()


def test_folder_that_others_can_enter_is_refused(folder: Path, key: str) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(PermissionError, match="private folder"):
        names.SharedMemory(key, create=True, size=10)
    assert names.clean() == []


def test_record_that_others_could_have_written_is_ignored(folder: Path, key: str) -> None:
    block = names.SharedMemory(key, create=True, size=10)
    try:
        (record,) = folder.glob("*.region")
        record.write_text(record.read_text().partition("started")[0] + "started 1\n")
        folder.chmod(0o777)
        assert (names.list_regions(), names.clean()) == ([], [])
        folder.chmod(0o700)
        assert names.clean() == [key[1:]]
    finally:
        block.close()
        resource_tracker.unregister(block._name, "shared_memory")


@pytest.fixture
def left_by_a_crash(folder: Path, key: str) -> Iterator[str]:
    """Yield the key of a region whose process was killed."""
    program = (
        "import importlib.util, multiprocessing.resource_tracker as t, os, signal, sys\n"
        "t.register = lambda *a: None\n"  # it would clean up, unlike a crash of the whole session
        f"spec = importlib.util.spec_from_file_location('triton_shm_names', {str(SOURCE)!r})\n"
        "module = importlib.util.module_from_spec(spec); sys.modules[spec.name] = module\n"
        "spec.loader.exec_module(module)\n"
        f"module.SharedMemory({key!r}, create=True, size=10)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert folder.is_dir()
    yield key
    assert names.clean() == []


@pytest.mark.usefixtures("left_by_a_crash")
def test_only_regions_of_dead_processes_are_cleaned(key: str) -> None:
    alive = names.SharedMemory(f"mbtest-{os.getpid()}-alive", create=True, size=10)
    try:
        assert names.clean("/no such prefix") == []
        assert len(names.list_regions()) == 2
        assert names.clean() == [key[1:]]
        assert [region.key for region in names.list_regions()] == [f"mbtest-{os.getpid()}-alive"]
        with pytest.raises(FileNotFoundError):
            names.SharedMemory(key)
    finally:
        alive.close()
        alive.unlink()


def test_program_lists_and_cleans(left_by_a_crash: str) -> None:
    def run(*words: str) -> str:
        return subprocess.run([sys.executable, SOURCE, *words], capture_output=True, text=True, check=True).stdout

    assert names.shm_name(left_by_a_crash) in run("list")
    assert left_by_a_crash[1:] in run("clean", "/mbtest")
    assert run("list") == ""
    wrong = subprocess.run([sys.executable, SOURCE, "remove"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr.startswith("usage:")) == (2, True)


def test_tritonclient_uses_the_names_once_installed(folder: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "mpshm", client.mpshm)
    assert names.install() is (sys.platform == "darwin")
    assert names.install(everywhere=True)
    values = np.arange(16, dtype=np.float32)
    region = client.create_shared_memory_region("input", key, values.nbytes)
    try:
        client.set_shared_memory_region(region, [values])
        assert [found.key for found in names.list_regions()] == [key[1:]]
        block = names.SharedMemory(names.shm_name(key))
        assert bytes(block.buf[: values.nbytes]) == values.tobytes()
        block.close()
        again = client.create_shared_memory_region("input", key, values.nbytes)
        assert (client.get_contents_as_numpy(again, np.float32, [16]) == values).all()
        client.destroy_shared_memory_region(again)
    finally:
        client.destroy_shared_memory_region(region)
    assert names.list_regions() == []
    assert folder.is_dir()
