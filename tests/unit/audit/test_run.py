from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import pytest

import macbuild.audit.run as module
from macbuild.audit import Exemption, audit_path, load_policy
from macbuild.audit.run import claim_of
from macbuild.errors import ArchiveError, UsageError
from macbuild.macho.sign import sign_bytes
from tests.support import machobytes
from tests.support.audits import wheel_files

RELEASE = load_policy("release")
SCHEMA = json.loads((Path(module.__file__).parent / "report.schema.json").read_text())


def dylib(name: str = "libx.dylib") -> bytes:
    return sign_bytes(machobytes.dylib(id=f"@rpath/{name}", minos="13.4"), name)


def tarball(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def wheel(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in wheel_files(path.name, files).items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("name", "archs", "minimum"),
    [
        ("libtorch-2.13.0-macos-arm64.tar.gz", {"arm64"}, {}),
        ("a-1-macos-universal2.tgz", {"arm64", "x86_64"}, {}),
        ("plain.tar.gz", None, {}),
        ("libx.dylib", None, {}),
        ("p-1.0-cp312-cp312-macosx_14_0_arm64.whl", {"arm64"}, {"arm64": 14 << 16}),
        ("p-1.0-py3-none-macosx_10_9_x86_64.whl", {"x86_64"}, {"x86_64": 10 << 16 | 9 << 8}),
        (
            "p-1.0-py3-none-macosx_10_9_universal2.whl",
            {"arm64", "x86_64"},
            {"arm64": 11 << 16, "x86_64": 10 << 16 | 9 << 8},
        ),
        (
            "p-1.0-py3-none-macosx_10_13_x86_64.macosx_12_0_arm64.macosx_11_0_arm64.whl",
            {"arm64", "x86_64"},
            {"arm64": 11 << 16, "x86_64": 10 << 16 | 13 << 8},
        ),
        ("p-1.0-py3-none-any.whl", None, {}),
    ],
)
def test_file_names_claim_architectures_and_minimum(name: str, archs: set[str] | None, minimum: dict[str, int]) -> None:
    claim = claim_of(name)
    assert claim.archs == archs
    assert claim.minimum == minimum


def test_an_invalid_wheel_name_is_an_error() -> None:
    with pytest.raises(ArchiveError, match="not a valid wheel name"):
        claim_of("torch.whl")


def test_a_tarball_is_audited_below_its_top_folder_and_by_its_claim(tmp_path: Path) -> None:
    path = tarball(tmp_path / "x-1-macos-arm64.tar.gz", {"x-1-macos-arm64/lib/libx.dylib": dylib()})
    report = audit_path(path, RELEASE)
    assert report.findings == ()
    assert (report.path, report.files, report.minimum_macos) == (str(path), 1, "13.4")
    other = path.rename(tmp_path / "x-1-macos-universal2.tar.gz")
    assert [(finding.rule, finding.file) for finding in audit_path(other, RELEASE).findings] == [
        ("arch-missing", "lib/libx.dylib")
    ]


def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    path = tarball(tmp_path / "x-1-macos-arm64.tar.gz", {"x/libx.dylib": dylib()})
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(ArchiveError):
        audit_path(path, RELEASE)


def test_a_wheel_is_judged_by_its_tag(tmp_path: Path) -> None:
    policy = load_policy("wheel")
    files = {"pkg/libx.dylib": dylib(), "pkg/__init__.py": b""}
    exact = wheel(tmp_path / "p-1.0-py3-none-macosx_13_0_arm64.whl", files)
    assert [finding.rule for finding in audit_path(exact, policy).findings] == ["minimum-os-finer"]
    old = wheel(tmp_path / "p-1.0-py3-none-macosx_12_0_arm64.whl", files)
    assert [finding.rule for finding in audit_path(old, policy).findings] == ["minimum-os"]
    assert audit_path(old, policy, minimum_macos="13.4").findings == ()


def test_a_single_file_is_judged_with_its_dependencies(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    user = machobytes.dylib(
        id="@rpath/a.dylib", dylibs=["@rpath/libx.dylib"], rpaths=["@loader_path/../lib"], exports=[]
    )
    (tmp_path / "lib/a.dylib").write_bytes(sign_bytes(user, "a.dylib"))
    (tmp_path / "lib/libx.dylib").write_bytes(machobytes.dylib())
    report = audit_path(tmp_path / "lib/a.dylib", RELEASE)
    assert report.findings == ()
    assert report.files == 1
    (tmp_path / "lib/libx.dylib").unlink()
    finding = audit_path(tmp_path / "lib/a.dylib", RELEASE).findings[0]
    assert (finding.rule, finding.file) == ("missing-dependency", "a.dylib")
    assert "looked at libx.dylib" in finding.message


def test_a_single_file_behind_a_link_is_judged_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libx.dylib").write_bytes(dylib())
    (tmp_path / "link.dylib").symlink_to("lib/libx.dylib")
    assert audit_path(tmp_path / "link.dylib", RELEASE).findings == ()


def test_other_files_are_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for name, words in (("text", "neither a Mach-O file"), ("none", "no such file")):
        with pytest.raises(UsageError, match=words):
            audit_path(tmp_path / name, RELEASE)


def test_the_report_as_json_fits_its_schema(tmp_path: Path) -> None:
    (tmp_path / "libx.dylib").write_bytes(machobytes.dylib())
    (tmp_path / "b.dylib").write_bytes(dylib("b.dylib"))
    (tmp_path / "a.a").write_bytes(b"!<arch>\n")
    exemption = Exemption(rule="static-archive", file="*", reason="for linking")
    report = audit_path(tmp_path, RELEASE, exemptions=[exemption])
    data = json.loads(json.dumps(report.to_json()))
    jsonschema.validate(data, SCHEMA)
    assert data["version"] == 1
    assert data["ok"] is False
    assert data["summary"] == {"error": 1, "warning": 0, "info": 0}
    assert data["findings"][0]["rule"] == "unsigned-arm64"
    assert data["exempted"][0]["reason"] == "for linking"
    for broken in ({**data, "extra": 1}, {**data, "minimum_macos": "14"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, SCHEMA)


def test_findings_are_worst_first_and_in_a_stable_order(tmp_path: Path) -> None:
    for name in ("b.dylib", "a.dylib"):
        (tmp_path / name).write_bytes(machobytes.dylib(id="/opt/x", rpaths=["/opt/x", "/opt/x"]))
    (tmp_path / "a.a").write_bytes(b"!<arch>\n")
    found = [(finding.rule, finding.file) for finding in audit_path(tmp_path, RELEASE).findings]
    assert found == [
        (rule, name)
        for rule in ("absolute-rpath", "duplicate-rpath", "install-name", "unsigned-arm64")
        for name in ("a.dylib", "b.dylib")
    ] + [("static-archive", "a.a")]
