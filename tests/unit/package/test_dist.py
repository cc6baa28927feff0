from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from macbuild.errors import ArchiveError, FileError, IntegrityError, NoSpaceError
from macbuild.files import hash_file, sync
from macbuild.package import manifest as manifest_module
from macbuild.package.dist import publish, published
from macbuild.package.manifest import (
    ArtifactContents,
    ArtifactEntry,
    AuditRecord,
    DependencyRecord,
    ExemptedRecord,
    FileRecord,
    FindingRecord,
    Manifest,
    PlatformRecord,
    SourceFile,
    complete,
    encode,
    load_manifest,
    sbom_name,
    schema,
)

SHIPPED_SCHEMA = Path(manifest_module.__file__).with_name("manifest.schema.json")
SUMS = "SHA256SUMS"


def make_contents(name: str, data: bytes) -> ArtifactContents:
    finding = {"rule": "build-path", "severity": "warning", "file": "lib/libx.dylib", "message": "has one"}
    return ArtifactContents(
        file=f"{name}.tar.gz",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        component=name.partition("-")[0],
        distribution=name.partition("-")[0],
        component_version="1.2.3",
        target=PlatformRecord(os="macos", arch="arm64", deployment="14.0"),
        minimum_macos="14.0",
        files=[
            FileRecord(path="lib/libx.dylib", size=3, sha256="ab" * 32, mode="0755"),
            FileRecord(path="lib/libx.so", link="libx.dylib"),
        ],
        binaries=[],
        dependencies=[
            DependencyRecord(name="/usr/lib/libSystem.B.dylib", kind="system"),
            DependencyRecord(name="libtorch", kind="component", version="2.13.0"),
        ],
        sources=[
            SourceFile(
                name="arm64 wheel",
                provider="wheel",
                request="wheel x==1.2.3 cp3.12-any-macosx_14_0_arm64",
                file="x-1.2.3-cp312-cp312-macosx_14_0_arm64.whl",
                size=10,
                sha256="cd" * 32,
            )
        ],
        tools={"zlib-ng": "1.1.0", "macbuild": "0.1"},
        audit=AuditRecord(
            policy="release",
            ok=True,
            findings=[FindingRecord(**finding, slice="arm64", hint="do")],
            exempted=[ExemptedRecord(**finding, reason="known")],
        ),
    )


class Made:
    """An artifact with its SBOM in a folder that replaces the store."""

    def __init__(self, store: Path, name: str, data: bytes, sbom: str | None = None) -> None:
        store.mkdir(exist_ok=True)
        self.artifact = store / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}"
        self.artifact.write_bytes(data)
        self.sbom = sbom or f'{{"sbom of": "{name}"}}\n'
        self.entry = complete(make_contents(name, data), self.sbom)
        self.stamp = store / f"{name}.stamp"

    def publish(self, dist: Path) -> None:
        publish(dist, self.artifact, self.sbom, self.entry, self.stamp)

    def published(self, dist: Path) -> bool:
        return published(dist, self.entry, self.stamp)


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    return tmp_path / "dist"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def x(store: Path) -> Made:
    return Made(store, "x-1.2.3-macos-arm64", b"artifact x" * 1000)


@pytest.fixture
def y(store: Path) -> Made:
    return Made(store, "y-1.2.3-macos-arm64", b"artifact y" * 1000)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_consistent(dist: Path, *names: str) -> None:
    listed = json.loads((dist / "manifest.json").read_bytes())["artifacts"]
    assert [entry["file"] for entry in listed] == [f"{name}.tar.gz" for name in names]
    done = subprocess.run(["sha256sum", "--strict", "-c", SUMS], cwd=dist, check=True, capture_output=True, text=True)
    files = sorted([f"{name}.tar.gz" for name in names] + [f"{name}.cdx.json" for name in names])
    assert done.stdout.splitlines() == [f"{file}: OK" for file in files]
    for name in names:
        subprocess.run(["sha256sum", "--strict", "-c", f"{name}.tar.gz.sha256"], cwd=dist, check=True)
    expected = {"manifest.json", SUMS, *files, *(f"{name}.tar.gz.sha256" for name in names)}
    assert {path.name for path in dist.iterdir()} == expected


def test_two_artifacts_are_published_with_all_their_files(dist: Path, x: Made, y: Made) -> None:
    y.publish(dist)
    assert_consistent(dist, "y-1.2.3-macos-arm64")
    x.publish(dist)
    assert_consistent(dist, "x-1.2.3-macos-arm64", "y-1.2.3-macos-arm64")
    assert (dist / "x-1.2.3-macos-arm64.tar.gz").read_bytes() == x.artifact.read_bytes()
    assert (dist / "x-1.2.3-macos-arm64.cdx.json").read_text() == x.sbom
    assert x.published(dist)
    assert y.published(dist)


def test_order_of_publishing_does_not_matter(tmp_path: Path, x: Made, y: Made) -> None:
    for folder, order in (("a", (x, y)), ("b", (y, x))):
        for made in order:
            made.publish(tmp_path / folder)
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")


def test_artifact_is_a_separate_file_that_others_may_read(dist: Path, x: Made) -> None:
    x.artifact.chmod(0o400)
    x.publish(dist)
    info = (dist / x.entry.file).stat()
    assert info.st_nlink == 1
    assert info.st_ino != x.artifact.stat().st_ino
    assert info.st_mode & 0o777 == (dist / SUMS).stat().st_mode & 0o777


def test_same_content_is_not_written_again(dist: Path, x: Made, y: Made) -> None:
    x.publish(dist)
    y.publish(dist)
    for path in dist.iterdir():
        os.utime(path, (5, 5))
    x.publish(dist)
    assert {path.stat().st_mtime for path in dist.iterdir()} == {5.0}


def test_new_content_replaces_the_old_one(dist: Path, store: Path, x: Made, y: Made) -> None:
    x.publish(dist)
    y.publish(dist)
    newer = Made(store, "x-1.2.3-macos-arm64", b"newer", "newer sbom")
    assert not newer.published(dist)
    newer.publish(dist)
    assert_consistent(dist, "x-1.2.3-macos-arm64", "y-1.2.3-macos-arm64")
    assert newer.published(dist)
    assert not x.published(dist)
    assert y.published(dist)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.gz.sha256", ".cdx.json"])
def test_entry_with_a_missing_file_is_dropped_and_comes_back(dist: Path, x: Made, y: Made, suffix: str) -> None:
    x.publish(dist)
    y.publish(dist)
    (dist / f"y-1.2.3-macos-arm64{suffix}").unlink()
    assert not y.published(dist)
    x.publish(dist)
    assert "y-1.2.3-macos-arm64.tar.gz" not in (dist / SUMS).read_text()
    assert [entry.file for entry in load_manifest(dist / "manifest.json").artifacts] == [x.entry.file]
    y.publish(dist)
    assert_consistent(dist, "x-1.2.3-macos-arm64", "y-1.2.3-macos-arm64")


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "name", ["x-1.2.3-macos-arm64.tar.gz", "x-1.2.3-macos-arm64.tar.gz.sha256", "x-1.2.3-macos-arm64.cdx.json", SUMS]
)
@pytest.mark.parametrize("harm", [damage, Path.unlink, lambda path: os.truncate(path, 3)])
def test_damage_is_found_and_fixed(dist: Path, x: Made, name: str, harm: Callable[[Path], None]) -> None:
    x.publish(dist)
    before = snapshot(dist)
    harm(dist / name)
    assert not x.published(dist)
    x.publish(dist)
    assert snapshot(dist) == before
    assert x.published(dist)


def test_damage_with_the_old_time_is_found(dist: Path, x: Made) -> None:
    x.publish(dist)
    info = (dist / x.entry.file).stat()
    damage(dist / x.entry.file)
    os.utime(dist / x.entry.file, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert not x.published(dist)


def test_artifact_is_hashed_only_when_it_may_have_changed(dist: Path, x: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def count(path: Path) -> tuple[int, str]:
        hashed.append(path.name)
        return hash_file(path)

    x.publish(dist)
    monkeypatch.setattr("macbuild.package.dist.hash_file", count)
    assert x.published(dist)
    assert x.entry.file not in hashed
    os.utime(dist / x.entry.file, (7, 7))
    assert x.published(dist)
    assert hashed.count(x.entry.file) == 1
    assert x.published(dist)
    assert hashed.count(x.entry.file) == 1
    x.stamp.unlink()
    assert x.published(dist)
    assert hashed.count(x.entry.file) == 2


def test_stamp_that_cannot_be_written_costs_only_time(dist: Path, x: Made) -> None:
    x.publish(dist)
    x.stamp.unlink()
    x.stamp.mkdir()
    assert x.published(dist)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b'{"version": 1}', "is damaged"),
        (b'{"version": 1, "artifacts": [], "more": 1}', "is damaged"),
        (b'{"version": 2, "artifacts": []}', "is of version 2"),
        (b"{}", "is of version None"),
        (b"null", "is damaged"),
    ],
)
def test_damaged_manifest_is_an_error_and_nothing_is_touched(dist: Path, x: Made, text: bytes, reason: str) -> None:
    dist.mkdir()
    (dist / "manifest.json").write_bytes(text)
    assert not x.published(dist)
    with pytest.raises(FileError) as caught:
        x.publish(dist)
    assert reason in caught.value.message
    assert caught.value.where == str(dist / "manifest.json")
    assert "delete it" in str(caught.value.hint)
    assert snapshot(dist) == {"manifest.json": text}


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", ".hidden", "a/b", "a b", "", "a\nb"])
def test_manifest_cannot_name_files_elsewhere(dist: Path, x: Made, name: str) -> None:
    x.publish(dist)
    data = json.loads((dist / "manifest.json").read_bytes())
    data["artifacts"][0]["sbom"]["file"] = name
    (dist / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(FileError, match="is damaged"):
        load_manifest(dist / "manifest.json")


def test_wrong_artifact_or_sbom_is_refused_and_the_old_one_stays(dist: Path, x: Made) -> None:
    x.publish(dist)
    before = snapshot(dist)
    damage(x.artifact)
    (dist / x.entry.file).unlink()
    with pytest.raises(IntegrityError, match="that was packed"):
        x.publish(dist)
    with pytest.raises(IntegrityError, match="SBOM"):
        publish(dist, x.artifact, "another", x.entry, x.stamp)
    del before[x.entry.file]
    assert snapshot(dist) == before


def test_dist_that_is_a_file_is_a_file_error(dist: Path, x: Made) -> None:
    dist.touch()
    with pytest.raises(FileError, match="dist") as caught:
        x.publish(dist)
    assert "--dist" in str(caught.value.hint)


def test_unwritable_dist_is_a_file_error_that_names_the_option(
    dist: Path, x: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Permissions do not bind root, who may run this.
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(FileError, match="Permission denied") as caught:
        x.publish(dist)
    assert type(caught.value) is FileError
    assert "--dist" in str(caught.value.hint)
    assert not dist.exists()


def test_publish_waits_for_the_lock_on_the_folder(dist: Path, x: Made) -> None:
    dist.mkdir()
    descriptor = os.open(dist, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    thread = threading.Thread(target=x.publish, args=(dist,))
    thread.start()
    time.sleep(0.1)
    assert list(dist.iterdir()) == []
    os.close(descriptor)
    thread.join()
    assert_consistent(dist, "x-1.2.3-macos-arm64")


def test_publishing_many_at_once_loses_nothing(dist: Path, store: Path) -> None:
    names = [f"{letter}-1.2.3-macos-arm64" for letter in "abcdefgh"]
    made = [Made(store, name, name.encode()) for name in names]
    threads = [threading.Thread(target=item.publish, args=(dist,)) for item in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_consistent(dist, *names)


@pytest.mark.parametrize("moment", range(5))
def test_full_disk_changes_nothing(tmp_path: Path, x: Made, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dist = tmp_path / "dist"
    x.publish(dist)
    before = snapshot(dist)
    newer = Made(tmp_path / "store", "x-1.2.3-macos-arm64", b"newer content", "newer sbom")
    calls = iter(range(100))

    def full(path: Path) -> None:
        if next(calls) == moment:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(path)

    monkeypatch.setattr("macbuild.package.dist.sync", full)
    with pytest.raises(NoSpaceError):
        newer.publish(dist)
    assert snapshot(dist) == before


class Killed(BaseException):
    """Simulate kill -9, which no code of ours handles."""


@pytest.mark.parametrize("moment", range(1, 13))
def test_killed_run_leaves_whole_files_and_the_next_completes(
    tmp_path: Path, x: Made, y: Made, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = tmp_path / "dist"
    y.publish(dist)
    x.publish(dist)
    old = snapshot(dist)
    newer = Made(tmp_path / "store", "x-1.2.3-macos-arm64", b"newer content", "newer sbom")
    calls = 0
    replace = Path.replace
    unlink = Path.unlink

    def die(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == (moment + 1) // 2:
            monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
            if moment % 2 == 0:
                replace(self, target)
            raise Killed
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(Killed):
        newer.publish(dist)
    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "unlink", unlink)

    left = {name: data for name, data in snapshot(dist).items() if not name.startswith(".")}
    y.publish(dist)
    subprocess.run(["sha256sum", "--strict", "--quiet", "-c", SUMS], cwd=dist, check=True)
    newer.publish(dist)
    assert_consistent(dist, "x-1.2.3-macos-arm64", "y-1.2.3-macos-arm64")
    new = snapshot(dist)
    assert all(data in {old[name], new[name]} for name, data in left.items())


def test_leftovers_of_other_programs_stay(dist: Path, x: Made) -> None:
    dist.mkdir()
    digits = "0123456789abcdef"
    names = [f".notes.{digits}.tmp", f".z-1.tar.gz.{digits}.tmp", "README", f".{x.entry.file[:9]}.{digits}.tmp"]
    for name in names:
        (dist / name).touch()
    x.publish(dist)
    assert [name for name in names if (dist / name).exists()] == names[:3]


def test_manifest_text_is_the_same_for_any_order(x: Made, y: Made) -> None:
    text = encode(Manifest(version=1, artifacts=[y.entry, x.entry]))
    assert text == encode(Manifest(version=1, artifacts=[x.entry, y.entry]))
    assert text.endswith(b"}\n")
    data = json.loads(text)
    assert text.decode() == json.dumps(data, indent=2, sort_keys=True) + "\n"
    assert [item["file"] for item in data["artifacts"]] == [x.entry.file, y.entry.file]
    assert data["artifacts"][0]["files"] == [
        {"mode": "0755", "path": "lib/libx.dylib", "sha256": "ab" * 32, "size": 3},
        {"link": "libx.dylib", "path": "lib/libx.so"},
    ]


def test_manifest_survives_writing_and_reading(tmp_path: Path, x: Made, y: Made) -> None:
    manifest = Manifest(version=1, artifacts=[x.entry, y.entry])
    (tmp_path / "manifest.json").write_bytes(encode(manifest))
    assert load_manifest(tmp_path / "manifest.json") == manifest


def test_missing_manifest_is_empty(tmp_path: Path) -> None:
    assert load_manifest(tmp_path / "manifest.json") == Manifest(version=1, artifacts=[])


def test_shipped_schema_matches_the_code() -> None:
    assert SHIPPED_SCHEMA.read_text() == schema()


def without_hash(data: dict[str, Any]) -> None:
    del data["artifacts"][0]["sha256"]


def other_version(data: dict[str, Any]) -> None:
    data["version"] = 2


def time_stamp(data: dict[str, Any]) -> None:
    data["artifacts"][0]["time"] = 0


def short_hash(data: dict[str, Any]) -> None:
    data["artifacts"][0]["files"][0]["sha256"] = "ab"


def test_schema_accepts_the_manifest_and_rejects_others(x: Made) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SHIPPED_SCHEMA.read_text()))
    validator.check_schema(validator.schema)
    text = encode(Manifest(version=1, artifacts=[x.entry]))
    validator.validate(json.loads(text))
    for change in (without_hash, other_version, time_stamp, short_hash):
        data = json.loads(text)
        change(data)
        assert not validator.is_valid(data), change.__name__
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(data, Manifest)


def test_values_that_the_schema_forbids_never_reach_a_manifest() -> None:
    contents = make_contents("x-1.2.3-macos-arm64", b"x")
    for bad in ({"file": "../x.tar.gz"}, {"minimum_macos": None}, {"sha256": "0"}):
        with pytest.raises(ArchiveError, match="cannot be described"):
            complete(msgspec.structs.replace(contents, **bad), "sbom")


def test_completed_entry_keeps_the_contents_and_knows_the_sbom() -> None:
    contents = make_contents("x-1.2.3-macos-arm64", b"x")
    entry = complete(contents, "größe")
    assert entry.sbom.file == "x-1.2.3-macos-arm64.cdx.json"
    assert entry.sbom.size == 7
    assert entry.sbom.sha256 == hashlib.sha256("größe".encode()).hexdigest()
    assert {name: getattr(entry, name) for name in ArtifactContents.__struct_fields__} == msgspec.structs.asdict(
        contents
    )
    assert isinstance(entry, ArtifactEntry)


def test_sbom_is_named_after_the_artifact_without_its_suffix() -> None:
    assert sbom_name("libtorch-2.13.0-macos-arm64.tar.gz") == "libtorch-2.13.0-macos-arm64.cdx.json"
    assert sbom_name("x-1-py3-none-any.whl") == "x-1-py3-none-any.cdx.json"
