"""Test the rules on the metadata of a wheel; pip, delocate and the library `wheel` judge the same wheels."""

from __future__ import annotations

import csv
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from delocate.wheeltools import rewrite_record
from wheel.wheelfile import WheelError, WheelFile

from macbuild.audit import audit_path, load_policy
from tests.support.audits import dylib, record, record_hash, wheel_files

NAME = "pkg-1.0-py3-none-macosx_11_0_arm64.whl"
INFO = "pkg-1.0.dist-info"
LIBRARY = "pkg/libx.dylib"
Files = dict[str, bytes]


def sound() -> Files:
    return wheel_files(NAME, {LIBRARY: dylib(), "pkg/__init__.py": b"x = 1\n"})


def write(folder: Path, files: Mapping[str, bytes], name: str = NAME) -> Path:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        for member, data in files.items():
            archive.writestr(member, data)
    return folder / name


def without(name: str) -> Callable[[Files], object]:
    return lambda files: files.pop(f"{INFO}/{name}")


def changed(old: bytes, new: bytes, name: str = "RECORD") -> Callable[[Files], object]:
    def change(files: Files) -> None:
        data = files[f"{INFO}/{name}"]
        assert old in data
        files[f"{INFO}/{name}"] = data.replace(old, new)

    return change


def changed_with_record(old: bytes, new: bytes) -> Callable[[Files], object]:
    """Change METADATA, and RECORD so that it agrees."""

    def change(files: Files) -> None:
        changed(old, new, "METADATA")(files)
        del files[f"{INFO}/RECORD"]
        files[f"{INFO}/RECORD"] = record(files, INFO)

    return change


def renamed(info: str) -> Callable[[Files], object]:
    def change(files: Files) -> None:
        moved = {name.replace(INFO, info): data for name, data in files.items() if not name.endswith("/RECORD")}
        files.clear()
        files.update(moved)
        files[f"{info}/RECORD"] = record(moved, info)

    return change


def no_info(files: Files) -> None:
    for name in [name for name in files if name.startswith(INFO)]:
        del files[name]


def second_info(files: Files) -> None:
    files["zother-1.dist-info/METADATA"] = b""
    del files[f"{INFO}/RECORD"]
    files[f"{INFO}/RECORD"] = record(files, INFO)


def line(name: str) -> bytes:
    return next(row + b"\n" for row in sound()[f"{INFO}/RECORD"].splitlines() if row.startswith(name.encode()))


X_DIGEST = record_hash(b"x = 1\n").encode()
# What pip refuses to install.
STRUCTURE: dict[str, tuple[Callable[[Files], object], str, str]] = {
    "no .dist-info": (no_info, ".", "has no .dist-info folder"),
    "two .dist-info": (second_info, "zother-1.dist-info", "is a second .dist-info folder"),
    "another name": (renamed("other-1.0.dist-info"), "other-1.0.dist-info", "is not that of pkg 1.0"),
    "no METADATA": (without("METADATA"), INFO, "has no METADATA"),
    "no WHEEL": (without("WHEEL"), INFO, "has no WHEEL"),
    "no RECORD": (without("RECORD"), INFO, "has no RECORD"),
    "METADATA of another name": (
        changed_with_record(b"Name: pkg", b"Name: gkp"),
        f"{INFO}/METADATA",
        "is about gkp 1.0, not pkg 1.0",
    ),
    "METADATA of another version": (
        changed_with_record(b"Version: 1.0\n", b"Version: 2.0\n"),
        f"{INFO}/METADATA",
        "is about pkg 2.0, not pkg 1.0",
    ),
}
# What delocate would write differently.
RECORDS: dict[str, tuple[Callable[[Files], object], str, str]] = {
    "missing entry": (changed(line("pkg/__init__.py"), b""), "pkg/__init__.py", "is not listed in RECORD"),
    "extra entry": (
        changed(line("pkg/__init__.py"), line("pkg/__init__.py") + b"pkg/gone.py,sha256=abc,3\n"),
        "pkg/gone.py",
        "is listed in RECORD, and is not in the wheel",
    ),
    "entry twice": (
        changed(line("pkg/__init__.py"), line("pkg/__init__.py") * 2),
        "pkg/__init__.py",
        "is listed twice in RECORD",
    ),
    "wrong digest": (
        changed(X_DIGEST, record_hash(b"x = 2\n").encode()),
        "pkg/__init__.py",
        "has another sha256 in RECORD",
    ),
    "no digest": (changed(X_DIGEST, b""), "pkg/__init__.py", "has no hash in RECORD"),
    "weak digest": (
        changed(X_DIGEST, record_hash(b"x = 1\n", "sha1").encode()),
        "pkg/__init__.py",
        "has a hash in RECORD that is weaker than sha256",
    ),
    "unknown digest": (changed(b"sha256=", b"sha257="), LIBRARY, "has a hash in RECORD that is weaker than sha256"),
    "wrong size": (changed(X_DIGEST + b",6\n", X_DIGEST + b",7\n"), "pkg/__init__.py", "has another size in RECORD"),
    "size that is no number": (
        changed(X_DIGEST + b",6\n", X_DIGEST + b",six\n"),
        "pkg/__init__.py",
        "has another size in RECORD",
    ),
    "not UTF-8": (changed(b"__init__", b"\xff"), f"{INFO}/RECORD", "cannot be read"),
    "a row of two": (changed(X_DIGEST + b",6\n", X_DIGEST + b"\n"), f"{INFO}/RECORD", "cannot be read"),
}
DAMAGE = {**STRUCTURE, **RECORDS}
UNREADABLE = {"not UTF-8", "a row of two"}


def spoiled(damage: str, folder: Path) -> Path:
    files = sound()
    DAMAGE[damage][0](files)
    return write(folder, files)


def installs(wheel: Path, folder: Path) -> bool:
    options = ("--target", folder, "--no-deps", "--no-index", "--only-binary=:all:", "--platform", "macosx_11_0_arm64")
    # By name: a wheel that is given by its path may be of another version than its file name says.
    name, *_ = wheel.name.split("-")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        *map(str, options),
        "--find-links",
        str(wheel.parent),
        name,
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def delocate_agrees(wheel: Path, folder: Path) -> bool:
    """Tell whether delocate writes a RECORD with the same rows."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    path = folder / INFO / "RECORD"
    before = sorted(path.read_text().splitlines())
    rewrite_record(folder)
    return sorted(path.read_text().splitlines()) == before


def test_a_sound_wheel_has_no_finding(tmp_path: Path) -> None:
    path = write(tmp_path / "wheel", sound())
    assert audit_path(path, load_policy("wheel")).findings == ()
    assert installs(path, tmp_path / "site")
    assert delocate_agrees(path, tmp_path / "unpacked")
    with WheelFile(path) as wheel:
        assert [wheel.read(name) for name in wheel.namelist()] == list(sound().values())


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_wheel_with_wrong_metadata_fails(damage: str, tmp_path: Path) -> None:
    _, place, message = DAMAGE[damage]
    wheel = spoiled(damage, tmp_path)
    for policy in ("wheel", "release"):
        report = audit_path(wheel, load_policy(policy))
        rule = "wheel-metadata" if damage in STRUCTURE else "wheel-record"
        found = {each.file: each.message for each in report.findings if each.rule == rule}
        assert message in found[place], report.findings
        assert not report.ok
        assert {each.rule for each in report.findings} <= {rule, "wheel-record"}
    assert audit_path(wheel, load_policy("permissive")).ok


@pytest.mark.parametrize("damage", STRUCTURE)
def test_pip_refuses_what_the_audit_refuses(damage: str, tmp_path: Path) -> None:
    assert not installs(spoiled(damage, tmp_path), tmp_path / "site")


@pytest.mark.parametrize("damage", [name for name in RECORDS if name not in UNREADABLE])
def test_delocate_writes_another_record_where_the_audit_finds_one_wrong(damage: str, tmp_path: Path) -> None:
    assert not delocate_agrees(spoiled(damage, tmp_path), tmp_path / "unpacked")


@pytest.mark.parametrize("damage", ["missing entry", "wrong digest", "no digest", "weak digest", "unknown digest"])
def test_the_library_wheel_refuses_the_same_digests(damage: str, tmp_path: Path) -> None:
    with pytest.raises(WheelError), WheelFile(spoiled(damage, tmp_path)) as wheel:
        for name in wheel.namelist():
            wheel.read(name)


def test_what_a_record_may_leave_out_is_no_finding(tmp_path: Path) -> None:
    files = sound()
    changed(X_DIGEST + b",6\n", record_hash(b"x = 1\n", "sha512").encode() + b",\n")(files)
    files |= {f"{INFO}/RECORD.jws": b"{}", f"{INFO}/RECORD.p7s": b"", "pkg/folder/": b""}
    path = write(tmp_path, files)
    assert audit_path(path, load_policy("wheel")).findings == ()


def test_quoted_names_and_other_spellings_are_understood(tmp_path: Path) -> None:
    name = "pk_g-1.0-py3-none-macosx_11_0_arm64.whl"
    files = wheel_files(name.capitalize(), {"a,b/c.txt": b"c", LIBRARY: dylib()})
    text = files["Pk_g-1.0.dist-info/RECORD"].replace(b"a,b/c.txt", b'"a,b/c.txt"')
    assert next(csv.reader(text.decode().splitlines()))[0] == "a,b/c.txt"
    path = write(tmp_path, files | {"Pk_g-1.0.dist-info/RECORD": text}, name)
    assert audit_path(path, load_policy("wheel")).findings == ()
    assert installs(path, tmp_path / "site")


def test_an_unpacked_wheel_is_a_folder_like_others(tmp_path: Path) -> None:
    files = sound()
    del files[f"{INFO}/RECORD"]
    path = write(tmp_path, files)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "unpacked")
    assert audit_path(tmp_path / "unpacked", load_policy("wheel")).findings == ()
