"""Test that pip fetches sdists and runs none of their code, with any version of pip and any build backend."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from filelock import FileLock

from macbuild.errors import FetchError, UnreachableError
from macbuild.source.archive.unpack import unpack
from macbuild.source.fetch.download import Pin
from macbuild.source.fetch.providers import fetch
from macbuild.source.fetch.sources import SdistSource
from tests.conftest import cache_folder

REAL = SdistSource(package="python-rapidjson", version="1.25")
EVIL = SdistSource(package="evil", version="1.0")
INFO = "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\nRequires-Python: >=4\nRequires-Dist: nothing-like-this\n"
BACKEND = """
import pathlib
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = pathlib.Path(folder, "evil-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: evil\\nVersion: 1.0\\n")
    return info.name
"""
PROJECTS = {
    "setup.py": "",
    "setuptools": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
    "in the sdist": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "with requirements": '[build-system]\nrequires = ["evil"]\nbuild-backend = "no.such:thing"\n',
}


def evil_sdist(folder: Path, project: str, info: str | None = INFO) -> Path:
    """Write an sdist in which every file that Python might run leaves a mark."""
    mark = f"open({str(folder / 'ran')!r}, 'w').close()\n"
    names = ("setup.py", "json.py", "email/__init__.py", "sitecustomize.py", "runpy.py", "setuptools/__init__.py")
    files = {**dict.fromkeys(names, mark), "setuptools/build_meta.py": mark, "backend.py": mark + BACKEND}
    if project:
        files["pyproject.toml"] = project
    if info is not None:
        files["PKG-INFO"] = info
    path = folder / "evil-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"evil-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def local_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def other_pip(version: str) -> Path:
    """Return the wheel of another version of pip, which Python runs as it is."""
    folder = cache_folder() / f"pip-{version}"
    with FileLock(cache_folder() / f"pip-{version}.lock"):
        if not list(folder.glob("*.whl")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), f"pip=={version}"]
            subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def test_a_real_sdist_is_the_same_twice_and_unpacks(tmp_path: Path) -> None:
    calls: list[int] = []
    work = tmp_path / "work"
    pin = fetch(REAL, None, tmp_path / "one", work=work, base=tmp_path, progress=lambda done, _: calls.append(done))
    assert fetch(REAL, pin, tmp_path / "two", work=work, base=tmp_path) == pin
    assert pin.file == "python_rapidjson-1.25.tar.gz"
    assert calls[-1] == pin.size
    assert list(work.iterdir()) == []
    unpack(tmp_path / "two", tmp_path / "tree")
    assert (tmp_path / "tree/python_rapidjson-1.25/rapidjson/include/rapidjson/document.h").exists()


@pytest.mark.parametrize("version", [None, "24.1"])
@pytest.mark.parametrize("project", PROJECTS)
def test_no_code_of_an_sdist_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str, version: str | None
) -> None:
    if version is not None:
        monkeypatch.setenv("PYTHONPATH", str(other_pip(version)))
        said = subprocess.check_output([sys.executable, "-m", "pip", "--version"], text=True, cwd=tmp_path)
        assert said.startswith(f"pip {version} ")
    local_only(tmp_path, monkeypatch)
    sdist = evil_sdist(tmp_path, PROJECTS[project])
    pin = fetch(EVIL, None, tmp_path / "out", work=tmp_path / "work", base=tmp_path)
    assert pin == Pin(sdist.name, sdist.stat().st_size, hashlib.sha256(sdist.read_bytes()).hexdigest())
    assert not (tmp_path / "ran").exists()


def test_pip_alone_would_run_code_of_the_sdist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_only(tmp_path, monkeypatch)
    evil_sdist(tmp_path, PROJECTS["in the sdist"], INFO.replace(">=4", ">=3"))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "evil==1.0"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("settings", ["variable", "file"])
def test_settings_that_name_another_python_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    local_only(tmp_path, monkeypatch)
    evil_sdist(tmp_path, PROJECTS["in the sdist"])
    if settings == "file":
        (tmp_path / "pip.conf").write_text(f"[global]\npython = {sys.executable}\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    else:
        monkeypatch.setenv("PIP_PYTHON", sys.executable)
    fetch(EVIL, None, tmp_path / "out", work=tmp_path / "work", base=tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("info", "error", "message"),
    [
        (None, FetchError, "PKG-INFO cannot be read"),
        ("Name: evil\n", FetchError, "PKG-INFO names 'evil', version 'None'"),
        ("Name: ../evil\nVersion: 1.0\n", FetchError, r"PKG-INFO names '\.\./evil'"),
        ("Name: other\nVersion: 1.0\n", UnreachableError, "inconsistent|No matching"),
        ("Name: evil\nVersion: 2.0\n", UnreachableError, "inconsistent|No matching"),
    ],
)
def test_an_sdist_without_name_and_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, info: str | None, error: type[FetchError], message: str
) -> None:
    local_only(tmp_path, monkeypatch)
    evil_sdist(tmp_path, "", info)
    with pytest.raises(error, match=message):
        fetch(EVIL, None, tmp_path / "out", work=tmp_path / "work", base=tmp_path)
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "work").iterdir()) == []
    assert not (tmp_path / "ran").exists()


def test_a_missing_version_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="No matching distribution found"):
        fetch(SdistSource(package="markupsafe", version="999"), None, tmp_path / "x", work=tmp_path, base=tmp_path)


def test_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="larger than the limit of 100000 bytes"):
        fetch(REAL, None, tmp_path / "x", work=tmp_path / "work", base=tmp_path, limit=100_000)
    assert list((tmp_path / "work").iterdir()) == []
