from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from macbuild.audit import audit_path, load_policy
from macbuild.errors import BuildError
from macbuild.macho.edit import Edits, edit_private
from macbuild.macho.tools.path import tool_folder
from macbuild.target import Target
from tests.conftest import Wheels, Zig
from tests.integration.test_delocate import Delocate
from tests.support.wheels import (
    CMAKELISTS,
    INFO,
    LIBRARY,
    NAME,
    PYPROJECT,
    TARGET,
    VERSION,
    make_project,
    make_stage,
    make_wheel,
)

CODE = "int TRITONBACKEND_Initialize(void *b) { return b == 0; }"


def pip(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True)


@pytest.fixture(scope="module")
def stage(zig: Zig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage")
    flags = ("-Wl,-install_name,@rpath/libtriton_tiny.so", "-Wl,-headerpad,0x1000", "-Wl,-dead_strip", "-Wl,-S")
    library = zig.dylib(folder / "code", CODE, "arm64", "14.0", *flags)
    edit_private(library, Edits(add_rpaths=("@loader_path/../../../torch/lib",)))
    return make_stage(folder / "stage", library.read_bytes())


@pytest.fixture(scope="module")
def wheel(stage: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return make_wheel(make_project(folder / "tiny"), stage, folder / "dist")


def test_pip_installs_it_for_a_mac_according_to_its_record(wheel: Path, stage: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    options = ("--no-deps", "--only-binary=:all:", "--platform", "macosx_14_0_arm64", "--python-version", "3.12")
    pip("install", "--target", target, *options, wheel)
    assert (target / LIBRARY).read_bytes() == (stage / LIBRARY).read_bytes()
    assert os.access(target / LIBRARY, os.X_OK)
    assert json.loads((target / INFO / "sboms/tritonserver_backend_tiny.cdx.json").read_text())
    rows = {row[0]: row for row in csv.reader((target / INFO / "RECORD").read_text().splitlines())}
    digest = hashlib.sha256((target / LIBRARY).read_bytes())
    assert rows[LIBRARY][1].startswith("sha256=")
    assert rows[LIBRARY][2] == str((stage / LIBRARY).stat().st_size)
    assert base64.urlsafe_b64decode(rows[LIBRARY][1].removeprefix("sha256=") + "=") == digest.digest()
    listed = json.loads(pip("inspect", "--path", target).stdout)["installed"]
    assert [(item["metadata"]["name"], item["metadata"]["requires_dist"]) for item in listed] == [
        (NAME, ["numpy>=1", "torch==2.13.0"])
    ]


@pytest.mark.parametrize(
    ("platform", "fits"),
    [
        ("macosx_14_0_arm64", True),
        ("macosx_26_0_arm64", True),
        ("macosx_13_0_arm64", False),
        ("macosx_14_0_x86_64", False),
        ("manylinux_2_28_x86_64", False),
    ],
)
def test_pip_finds_it_only_for_supported_macs(wheel: Path, tmp_path: Path, platform: str, *, fits: bool) -> None:
    options = ("--no-deps", "--no-index", "--find-links", wheel.parent, "--only-binary=:all:", "--platform", platform)
    for python in ("3.10", "3.14"):
        done = pip("download", *options, "--python-version", python, "-d", tmp_path, NAME, check=False)
        assert (done.returncode == 0) == fits, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ([wheel.name] if fits else [])


def test_pip_chooses_the_linked_version_of_torch(wheel: Path, wheels: Wheels, tmp_path: Path) -> None:
    # Without torch's own dependencies, because pip evaluates their markers for the machine that it runs on.
    report = tmp_path / "report.json"
    folders = [wheels.path(f"torch-{name}").parent for name in ("2.13.0-arm64", "2.2.2-arm64", "2.2.2-x86_64")]
    options = ["--no-deps", "--no-index", "--only-binary=:all:", "--platform", "macosx_14_0_arm64", "--dry-run"]
    options += [text for folder in folders for text in ("--find-links", str(folder))]
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"{INFO}/METADATA").decode()
    needed = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if "torch" in line and ":" in line]
    pip("install", *options, "--python-version", "3.12", "--target", tmp_path, "--report", report, wheel, needed[0])
    found = {item["metadata"]["name"]: item for item in json.loads(report.read_text())["install"]}
    assert found["torch"]["metadata"]["version"] == "2.13.0"
    assert "macosx_14_0_arm64" in found["torch"]["download_info"]["url"]
    assert found[NAME]["metadata"]["version"] == VERSION


def test_delocate_and_the_audit_find_nothing_wrong(wheel: Path, tmp_path: Path) -> None:
    delocate = Delocate(tool_folder(tmp_path / "tools"))
    assert delocate.run("delocate-listdeps", "--all", wheel).stdout.split() == ["/usr/lib/libSystem.B.dylib"]
    delocate.run("delocate-wheel", "--require-archs", "arm64", "-w", tmp_path / "out", wheel)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [wheel.name]
    report = audit_path(wheel, load_policy("wheel"))
    assert [finding for finding in report.findings if finding.severity == "error"] == []
    assert (report.archs, report.minimum_macos) == (("arm64",), "14.0")


def test_other_zip_tools_accept_it(wheel: Path, stage: Path, tmp_path: Path) -> None:
    assert (
        subprocess.run(
            [sys.executable, "-m", "zipfile", "-t", wheel], check=True, capture_output=True, text=True
        ).stdout
        == "Done testing\n"
    )
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, tmp_path], check=True)
    assert (tmp_path / LIBRARY).read_bytes() == (stage / LIBRARY).read_bytes()


def test_pip_wheel_makes_the_same_metadata(stage: Path, wheel: Path, tmp_path: Path) -> None:
    project = make_project(tmp_path / "tiny")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "-C", f"cmake.define.MACBUILD_STAGE={stage}")
    pip("wheel", *options, "-w", tmp_path / "plain", project)
    plain = next((tmp_path / "plain").glob("*.whl"))
    for path, folder in ((plain, "a"), (wheel, "b")):
        subprocess.run([sys.executable, "-m", "zipfile", "-e", path, tmp_path / folder], check=True)
    metadata = [(tmp_path / folder / INFO / "METADATA").read_text() for folder in ("a", "b")]
    assert metadata[0].replace("Requires-Dist: torch\n", "Requires-Dist: torch==2.13.0\n") == metadata[1]


def test_every_interpreter_setting_gives_the_same_bytes(wheel: Path, stage: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.support.wheels import make_wheel; "
        "make_wheel(*map(Path, sys.argv[1:]))"
    )
    project = make_project(tmp_path / "another name")
    copy = shutil.copytree(stage, tmp_path / "copy")
    for number, settings in enumerate(
        ({"PYTHONHASHSEED": "1", "LC_ALL": "C"}, {"TZ": "Asia/Tokyo", "PYTHONUTF8": "1"})
    ):
        output = tmp_path / str(number)
        command = [sys.executable, "-c", code, str(project), str(copy), str(output)]
        environment = {"PATH": os.environ["PATH"], **settings}
        subprocess.run(command, check=True, cwd=Path(__file__).parents[2], env=environment)
        assert (output / wheel.name).read_bytes() == wheel.read_bytes()


def test_another_target_changes_the_name_of_the_wheel(wheel: Path, stage: Path, tmp_path: Path) -> None:
    project = make_project(tmp_path / "tiny")
    assert make_wheel(project, stage, tmp_path, target=TARGET).read_bytes() == wheel.read_bytes()
    universal = make_wheel(project, stage, tmp_path, target=Target("universal2", "14.0"))
    assert universal.name.endswith("-py3-none-macosx_14_0_universal2.whl")


@pytest.mark.parametrize(
    ("pyproject", "cmakelists", "reason"),
    [
        (PYPROJECT.replace("0.1.0", "0.2.0"), CMAKELISTS, r"made .*-0\.2\.0-.*, not .*-0\.1\.0-"),
        (PYPROJECT.replace("backend-tiny", "backend-other"), CMAKELISTS, "made tritonserver_backend_other-"),
        (PYPROJECT.replace("dependencies", "dependancies"), CMAKELISTS, "made no wheel: .*dependancies"),
        ("[project", CMAKELISTS, "made no wheel: .*TOML"),
        (PYPROJECT, CMAKELISTS.replace("LANGUAGES NONE", "LANGUAGES C"), "made no wheel: .*no-compiler-may-run"),
        (PYPROJECT, CMAKELISTS.replace('DESTINATION "."', 'DESTINATION "else"'), "not in the stage"),
        (PYPROJECT, CMAKELISTS.replace("install(", "#"), "was not put into the wheel"),
    ],
)
def test_project_that_makes_no_or_another_wheel_is_an_error(
    stage: Path, tmp_path: Path, pyproject: str, cmakelists: str, reason: str
) -> None:
    project = make_project(tmp_path / "project", pyproject, cmakelists)
    with pytest.raises(BuildError, match=reason):
        make_wheel(project, stage, tmp_path / "out")
    assert not (tmp_path / "out").exists()
