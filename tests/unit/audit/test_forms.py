"""Test that a defect is found in every form that an artifact comes in: file, folder, tarball and wheel."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from macbuild.audit import AuditReport, load_policy
from macbuild.audit.run import audit_path
from tests.support import machobytes
from tests.support.audits import SYSTEM, dylib, put, wheel_files

FORMS = ("file", "folder", "tarball", "wheel")
LIBRARY = "pkg/libx.dylib"
Spoil = Callable[[Path], object]


def as_file(tree: Path, out: Path) -> Path:
    del out
    return tree / LIBRARY


def as_folder(tree: Path, out: Path) -> Path:
    del out
    return tree


def as_tarball(tree: Path, out: Path) -> Path:
    path = out / "x-1-macos-arm64.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tree, "x-1-macos-arm64")
    return path


def as_wheel(tree: Path, out: Path) -> Path:
    path = out / "x-1-py3-none-macosx_13_4_arm64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(tree.rglob("*")):
            archive.write(file, file.relative_to(tree).as_posix())
        files = {file.relative_to(tree).as_posix(): file.read_bytes() for file in tree.rglob("*") if file.is_file()}
        for name, data in wheel_files(path.name, files).items():
            if name not in files:
                archive.writestr(name, data)
    return path


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


MAKE = {"file": as_file, "folder": as_folder, "tarball": as_tarball, "wheel": as_wheel}
DEFECTS: dict[str, tuple[str, bytes, Spoil]] = {
    "setuid": ("file-mode", dylib(), lambda path: path.chmod(0o4755)),
    "setgid": ("file-mode", dylib(), lambda path: path.chmod(0o2755)),
    "writable for everyone": ("file-mode", dylib(), lambda path: path.chmod(0o666)),
    "not signed": ("unsigned-arm64", machobytes.dylib(id="@rpath/libx.dylib", dylibs=[SYSTEM], exports=[]), bool),
    "damaged signature": ("signature", flipped(dylib(), 5000), bool),
    "absolute rpath": ("absolute-rpath", dylib(rpaths=["/opt/lib"]), bool),
    "absolute install name": ("install-name", dylib(id="/opt/lib/libx.dylib"), bool),
    "missing dependency": ("missing-dependency", dylib(dylibs=[SYSTEM, "@loader_path/liby.dylib"]), bool),
    "cut off": ("malformed", dylib()[:200], bool),
}


def audited(tmp_path: Path, form: str, data: bytes, spoil: Spoil) -> AuditReport:
    tree = put(tmp_path / "tree", {LIBRARY: data})
    spoil(tree / LIBRARY)
    return audit_path(MAKE[form](tree, tmp_path), load_policy("release"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found_in_every_form(tmp_path: Path, defect: str, form: str) -> None:
    rule, data, spoil = DEFECTS[defect]
    assert rule in {finding.rule for finding in audited(tmp_path, form, data, spoil).findings}


@pytest.mark.parametrize("form", FORMS)
def test_a_sound_library_has_no_finding_in_any_form(tmp_path: Path, form: str) -> None:
    assert audited(tmp_path, form, dylib(), bool).findings == ()


@pytest.mark.parametrize("prefix", ["LIBARCHIVE", "SCHILY"])
def test_the_quarantine_mark_of_a_tarball_is_found(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "x-1-macos-arm64.tar.gz"
    entry = tarfile.TarInfo(f"x/{LIBRARY}")
    entry.size = len(dylib())
    entry.pax_headers = {f"{prefix}.xattr.com.apple.quarantine": "0081"}
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(entry, io.BytesIO(dylib()))
    (finding,) = audit_path(path, load_policy("release")).findings
    assert (finding.rule, finding.file) == ("quarantine", LIBRARY)
