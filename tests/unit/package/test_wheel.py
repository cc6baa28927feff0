from __future__ import annotations

import csv
import email
import os
import zipfile
from pathlib import Path

import pytest
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

import macbuild
from macbuild.errors import ArchiveError, BuildError, FileError, IntegrityError
from macbuild.package.manifest import FileRecord, record_tree
from macbuild.package.wheel import build_wheel, platform_tag, verify_wheel, wheel_name
from macbuild.package.zip import ZipMember, read_zip, write_zip
from macbuild.target import Arch, Target
from tests.support.wheels import (
    INFO,
    LIBRARY,
    NAME,
    TARGET,
    VERSION,
    make_project,
    make_stage,
    make_wheel,
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stage(tmp_path_factory.mktemp("stage") / "stage")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project") / "tiny")


@pytest.fixture(scope="module")
def wheel(project: Path, stage: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    before = sorted(project.rglob("*"))
    path = make_wheel(project, stage, tmp_path_factory.mktemp("out"))
    assert sorted(project.rglob("*")) == before
    return path


def records(stage: Path) -> dict[str, FileRecord]:
    return {record.path: record for record in record_tree(stage, 1)}


def test_wheel_has_the_name_and_tag_of_its_target(wheel: Path) -> None:
    name, version, build, tags = parse_wheel_filename(wheel.name)
    assert (name, str(version), build) == (NAME, VERSION, ())
    assert tags == {Tag("py3", "none", "macosx_14_0_arm64")}
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"{INFO}/WHEEL").decode()
    assert text.splitlines() == [
        "Wheel-Version: 1.0",
        f"Generator: macbuild {macbuild.__version__}",
        "Root-Is-Purelib: false",
        "Tag: py3-none-macosx_14_0_arm64",
    ]


def test_wheel_members_are_sorted_with_fixed_times_and_modes(wheel: Path, stage: Path) -> None:
    members = list(read_zip(wheel))
    names = [member.name for member in members]
    inside = sorted(records(stage), key=str.encode)
    files = ["METADATA", "WHEEL", "licenses/LICENSE", "sboms/tritonserver_backend_tiny.cdx.json", "RECORD"]
    assert names == [*inside, *(f"{INFO}/{name}" for name in files)]
    for member in members:
        assert member.mode == (0o755 if member.name == LIBRARY else 0o644)
        if member.name in inside:
            assert member.data == (stage / member.name).read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_metadata_requires_the_linked_version(wheel: Path, project: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.message_from_string(archive.read(f"{INFO}/METADATA").decode())
        assert archive.read(f"{INFO}/sboms/tritonserver_backend_tiny.cdx.json") == b'{"bomFormat": "CycloneDX"}\n'
        assert archive.read(f"{INFO}/licenses/LICENSE") == (project / "LICENSE").read_bytes()
    assert (metadata["Name"], metadata["Version"]) == (NAME, VERSION)
    assert metadata.get_all("Requires-Dist") == ["numpy>=1", "torch==2.13.0"]
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata.get_payload() == (project / "README.md").read_text()


def test_record_lists_every_member_with_its_hash(wheel: Path, stage: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        rows = list(csv.reader(archive.read(f"{INFO}/RECORD").decode().splitlines()))
        assert [row[0] for row in rows] == archive.namelist()
    assert rows[-1] == [f"{INFO}/RECORD", "", ""]
    assert all(row[1].startswith("sha256=") and len(row[1]) == 50 for row in rows[:-1])
    verify_wheel(wheel, records(stage))


def test_bytes_do_not_depend_on_the_environment(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "SOURCE_DATE_EPOCH": "1",
        "SKBUILD_WHEEL_BUILD_TAG": "7",
        "CMAKE_GENERATOR": "no such thing",
        "_PYTHON_HOST_PLATFORM": "linux-riscv64",
        "ARCHFLAGS": "-arch ppc",
    }.items():
        monkeypatch.setenv(key, value)
    old = os.umask(0o077)
    try:
        project, stage = make_project(tmp_path / "a b;c/tiny"), make_stage(tmp_path / "other $x/stage")
        other = make_wheel(project, stage, tmp_path / "out")
    finally:
        os.umask(old)
    assert other.name == wheel.name
    assert other.read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize(
    ("arch", "deployment", "tag"),
    [
        ("arm64", "14.0", "macosx_14_0_arm64"),
        ("arm64", "11.0", "macosx_11_0_arm64"),
        ("arm64", "11.1", "macosx_12_0_arm64"),
        ("arm64", "13.4.1", "macosx_14_0_arm64"),
        ("arm64", "10.15", "macosx_11_0_arm64"),
        ("x86_64", "10.13", "macosx_10_13_x86_64"),
        ("x86_64", "10.13.6", "macosx_10_14_x86_64"),
        ("x86_64", "11.0", "macosx_11_0_x86_64"),
        ("x86_64", "26.0", "macosx_26_0_x86_64"),
        ("universal2", "11.0", "macosx_11_0_universal2"),
    ],
)
def test_tag_is_the_lowest_that_no_older_macos_accepts(arch: Arch, deployment: str, tag: str) -> None:
    assert platform_tag(Target(arch, deployment)) == tag
    assert wheel_name("A.b-c", "1.0.0", TARGET) == "a_b_c-1.0.0-py3-none-macosx_14_0_arm64.whl"


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a/b", "1"), ("-a", "1"), ("a", "one"), ("a", "")])
def test_impossible_names_and_versions_are_refused(name: str, version: str) -> None:
    with pytest.raises(ArchiveError, match="cannot be the name and version"):
        wheel_name(name, version, TARGET)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("LICENSE", "outside of any package"),
        ("x-1.dist-info/METADATA", "means something else"),
        ("x-1.data/scripts/sh", "means something else"),
        ("tritonserver/a\\b", "means something else"),
        ("tritonserver/Backends/tiny/libtriton_tiny.so", "where case does not count"),
    ],
)
def test_stage_that_a_wheel_cannot_hold_is_refused(project: Path, tmp_path: Path, path: str, reason: str) -> None:
    stage = make_stage(tmp_path / "stage")
    (stage / path).parent.mkdir(parents=True, exist_ok=True)
    (stage / path).write_text("x")
    with pytest.raises(ArchiveError, match=reason):
        make_wheel(project, stage, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_and_empty_stages_are_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "stage").mkdir()
    with pytest.raises(ArchiveError, match="holds no files"):
        make_wheel(project, tmp_path / "stage", tmp_path / "out")
    stage = make_stage(tmp_path / "stage/x")
    (stage / "tritonserver/link").symlink_to("backends")
    with pytest.raises(ArchiveError, match="is a link"):
        make_wheel(project, stage, tmp_path / "out")


def test_missing_project_and_missing_stage_are_expected_errors(project: Path, stage: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"no pyproject\.toml"):
        make_wheel(tmp_path, stage, tmp_path / "out")
    with pytest.raises(FileError):
        make_wheel(project, tmp_path / "missing", tmp_path / "out")


def test_bad_requirement_is_an_expected_error(project: Path, stage: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="bad requirement 'torch=='"):
        build_wheel(
            project,
            stage,
            tmp_path,
            name=NAME,
            version=VERSION,
            target=TARGET,
            epoch=0,
            sbom="",
            jobs=1,
            requires=["torch=="],
        )


def rewritten(wheel: Path, path: Path, members: list[ZipMember]) -> Path:
    write_zip(path / wheel.name, members, epoch=0, jobs=1)
    return path / wheel.name


def test_verify_names_what_differs(wheel: Path, stage: Path, tmp_path: Path) -> None:
    members = list(read_zip(wheel))
    expected = records(stage)
    at, library = next((at, member) for at, member in enumerate(members) if member.name == LIBRARY)
    before, after = members[:at], members[at + 1 :]
    cases = [
        ([*before, ZipMember(LIBRARY, library.data + b"x", 0o755), *after], "RECORD: does not match"),
        (
            [*before, ZipMember(LIBRARY, library.data, 0o644), *after],
            r"libtriton_tiny\.so: differs from what was packed",
        ),
        ([*before, *after], "RECORD: does not match"),
        ([ZipMember("new", b""), *members], "RECORD: does not match"),
        (members[:-1], "has no RECORD"),
        ([*members[:-1], ZipMember(members[-1].name, b"\xff")], "RECORD: is damaged"),
    ]
    for changed, reason in cases:
        with pytest.raises(IntegrityError, match=reason):
            verify_wheel(rewritten(wheel, tmp_path, changed), expected)
    with pytest.raises(IntegrityError, match=r"libtriton_tiny\.so: is not one of the files"):
        verify_wheel(wheel, {path: record for path, record in expected.items() if path != LIBRARY})
    data = wheel.read_bytes()
    for size in (0, 100, len(data) - 1):
        (tmp_path / wheel.name).write_bytes(data[:size])
        with pytest.raises(IntegrityError):
            verify_wheel(tmp_path / wheel.name, expected)
