from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest
from msgspec import structs

from macbuild.errors import IntegrityError, UnreachableError
from macbuild.source.archive.unpack import unpack
from macbuild.source.fetch.download import Pin
from macbuild.source.fetch.providers import fetch
from macbuild.source.fetch.sources import NpmSource, Source, WheelSource
from tests.conftest import Wheels

WHEEL = WheelSource(package="markupsafe", version="3.0.2", platform="macosx_14_0_arm64")
NPM = NpmSource(package="is-odd", version="3.0.1")
SCOPED = NpmSource(package="@types/ms", version="0.7.31")


@pytest.mark.parametrize(
    ("source", "member"),
    [(WHEEL, "markupsafe/__init__.py"), (NPM, "package/package.json"), (SCOPED, "ms/package.json")],
    ids=["wheel", "npm", "npm-scoped"],
)
def test_a_package_is_the_same_twice_and_unpacks(tmp_path: Path, source: Source, member: str) -> None:
    calls: list[int] = []
    work = tmp_path / "work"
    pin = fetch(source, None, tmp_path / "one", work=work, base=tmp_path, progress=lambda done, _: calls.append(done))
    assert fetch(source, pin, tmp_path / "two", work=work, base=tmp_path) == pin
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert calls[-1] == pin.size
    assert list(work.iterdir()) == []
    unpack(tmp_path / "one", tmp_path / "out")
    assert (tmp_path / "out" / member).exists()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (structs.replace(WHEEL, version="999"), "No matching distribution found"),
        (structs.replace(NPM, version="999.0.0"), "No matching version found for is-odd@999.0.0"),
    ],
)
def test_a_missing_version_is_unreachable(tmp_path: Path, source: Source, reason: str) -> None:
    with pytest.raises(UnreachableError, match=reason):
        fetch(source, None, tmp_path / "x", work=tmp_path / "work", base=tmp_path)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("source", "variable"), [(WHEEL, "PIP_INDEX_URL"), (NPM, "npm_config_registry")])
def test_a_registry_that_does_not_answer_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Source, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1"):
        fetch(source, None, tmp_path / "x", work=tmp_path / "work", base=tmp_path)


def test_pip_uses_the_users_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "demo-1.0-cp312-cp312-macosx_11_0_arm64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    source = WheelSource(package="demo", version="1.0", platform="macosx_14_0_arm64")
    pin = fetch(source, None, tmp_path / "x", work=tmp_path / "work", base=tmp_path)
    assert pin == Pin(wheel.name, wheel.stat().st_size, hashlib.sha256(wheel.read_bytes()).hexdigest())
    with pytest.raises(IntegrityError):
        fetch(source, Pin(wheel.name, 1, "0" * 64), tmp_path / "y", work=tmp_path / "work", base=tmp_path)
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize("name", ["torch-2.13.0-arm64", "onnxruntime-1.23.2-arm64"])
def test_real_wheels_unpack_to_the_files_in_their_directory(tmp_path: Path, wheels: Wheels, name: str) -> None:
    unpack(wheels.path(name), tmp_path / "out")
    with zipfile.ZipFile(wheels.path(name)) as archive:
        files = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        found = {
            path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()
        }
        assert found == set(files)
        for info in files.values():
            if info.file_size < 100_000_000:
                assert (tmp_path / "out" / info.filename).read_bytes() == archive.read(info)
