"""Run delocate 0.13, unchanged, with macbuild's tools on PATH, on real macOS wheels."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from macbuild.audit import audit_path, load_policy
from macbuild.macho.file import has_macho_magic, open_macho
from macbuild.macho.tools.path import tool_folder
from macbuild.macho.verify import verify_file
from tests.conftest import Wheels, Zig

ARCHS = ("arm64", "x86_64")
TORCH = "torch-2.2.2-x86_64"
# The vendor built it for 10.13.6; delocate can only tag the wheel 10.13, since a wheel tag has no third number.


@dataclass(frozen=True)
class Delocate:
    """The programs of delocate, with macbuild's tools first on PATH."""

    tools: Path

    def run(self, name: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PATH": f"{self.tools}{os.pathsep}{os.environ['PATH']}"}
        environment.pop("MACOSX_DEPLOYMENT_TARGET", None)
        code = f"import sys; from delocate.cmd.{name.replace('-', '_')} import main; sys.exit(main())"
        command = [sys.executable, "-c", code, *map(str, arguments)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert not check or result.returncode == 0, result.stderr
        return result


@pytest.fixture
def delocate(tmp_path: Path) -> Delocate:
    return Delocate(tool_folder(tmp_path / "tools"))


def make_wheel(folder: Path, files: dict[str, Path], tag: str) -> Path:
    """Write a wheel of the package `pkg` with these files."""
    path = folder / f"pkg-1.0-cp312-cp312-{tag}.whl"
    info = "pkg-1.0.dist-info"
    content = {name: file.read_bytes() for name, file in files.items()}
    content["pkg/__init__.py"] = b""
    content[f"{info}/METADATA"] = b"Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n"
    wheel = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: cp312-cp312-{tag}\n"
    content[f"{info}/WHEEL"] = wheel.encode()
    record = ""
    for name, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def unpack(wheel: Path, folder: Path) -> dict[str, Path]:
    """Unpack a wheel and return its Mach-O files by name."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in files if has_macho_magic(path.read_bytes()[:8])}


def build(zig: Zig, folder: Path, arch: str, minos: str = "11.0") -> tuple[Path, Path]:
    """Compile an extension that needs, by absolute paths, a library that needs another one; return first and second."""
    inner = zig.dylib(folder, "int inner(void) { return 1; }", arch, minos, *id_of(folder, "libinner"), name="libinner")
    source = "int inner(void); int middle(void) { return inner(); }"
    middle = zig.dylib(folder, source, arch, minos, str(inner), *id_of(folder, "libmiddle"), name="libmiddle")
    source = "int middle(void); int PyInit_ext(void) { return middle(); }"
    extra = (str(middle), "-Wl,-rpath,/Users/builder/lib", "-Wl,-rpath,@loader_path/libs", *id_of(folder, "ext"))
    return zig.dylib(folder, source, arch, minos, *extra, name="ext"), middle


def id_of(folder: Path, name: str) -> tuple[str]:
    return (f"-Wl,-install_name,{folder / name}.dylib",)


def assert_passes_audit(wheel: Path) -> None:
    result = audit_path(wheel, load_policy("wheel"))
    assert result.ok, result.findings


@pytest.mark.parametrize("arch", ARCHS)
def test_delocate_wheel_copies_edits_and_signs(arch: str, zig: Zig, delocate: Delocate, tmp_path: Path) -> None:
    extension, middle = build(zig, tmp_path / "built", arch)
    wheel = make_wheel(tmp_path, {"pkg/ext.so": extension}, f"macosx_11_0_{arch}")
    listed = delocate.run("delocate-listdeps", "--all", wheel).stdout.split()
    assert {str(middle), str(middle.with_name("libinner.dylib")), "/usr/lib/libSystem.B.dylib"} <= set(listed)

    delocate.run("delocate-wheel", "--require-archs", arch, "-w", tmp_path / "fixed", wheel)
    (fixed,) = (tmp_path / "fixed").glob("*.whl")
    files = unpack(fixed, tmp_path / "unpacked")
    assert set(files) == {"pkg/.dylibs/libinner.dylib", "pkg/.dylibs/libmiddle.dylib", "pkg/ext.so"}
    wanted = {
        "pkg/ext.so": "@loader_path/.dylibs/libmiddle.dylib",
        "pkg/.dylibs/libmiddle.dylib": "@loader_path/libinner.dylib",
    }
    for name, dependency in wanted.items():
        with open_macho(files[name]) as macho:
            (image,) = macho.images
            assert dependency in [dylib.name for dylib in image.dylibs]
            assert "/Users/builder/lib" not in image.rpaths
    for path in files.values():
        (facts,) = verify_file(path)
        assert facts.kind == "adhoc"
    assert_passes_audit(fixed)


def test_delocate_merge_makes_a_universal_wheel(zig: Zig, delocate: Delocate, tmp_path: Path) -> None:
    fixed = []
    for arch in ARCHS:
        extension, _ = build(zig, tmp_path / arch, arch)
        wheel = make_wheel(tmp_path, {"pkg/ext.so": extension}, f"macosx_11_0_{arch}")
        delocate.run("delocate-wheel", wheel)
        fixed.append(wheel)
    delocate.run("delocate-merge", *fixed, "-w", tmp_path / "merged")
    (merged,) = (tmp_path / "merged").glob("*.whl")
    assert merged.name.endswith("macosx_11_0_universal2.whl")
    for path in unpack(merged, tmp_path / "unpacked").values():
        assert [facts.arch for facts in verify_file(path)] == ["x86_64", "arm64"]
    delocate.run("delocate-wheel", "--require-archs", "universal2", merged)
    assert_passes_audit(merged)


def test_delocate_refuses_a_wheel_that_lacks_an_architecture(zig: Zig, delocate: Delocate, tmp_path: Path) -> None:
    extension, _ = build(zig, tmp_path / "built", "arm64")
    wheel = make_wheel(tmp_path, {"pkg/ext.so": extension}, "macosx_11_0_arm64")
    result = delocate.run("delocate-wheel", "--require-archs", "x86_64,arm64", wheel, check=False)
    assert result.returncode != 0
    assert "DelocationError" in result.stderr
    assert "x86_64" in result.stderr


def test_delocate_reads_the_minimum_macos(zig: Zig, delocate: Delocate, tmp_path: Path) -> None:
    extension, _ = build(zig, tmp_path / "built", "arm64", minos="13.0")
    wheel = make_wheel(tmp_path, {"pkg/ext.so": extension}, "macosx_11_0_arm64")
    result = delocate.run("delocate-wheel", "--require-target-macos-version", "12.0", wheel, check=False)
    assert result.returncode != 0
    assert "has a minimum target of 13.0" in result.stderr
    delocate.run("delocate-wheel", "-w", tmp_path / "fixed", wheel)
    (fixed,) = (tmp_path / "fixed").glob("*.whl")
    assert fixed.name.endswith("macosx_13_0_arm64.whl")
    assert_passes_audit(fixed)


@pytest.mark.parametrize(
    ("name", "own", "system"),
    [
        ("onnxruntime-1.23.2-arm64", set(), "CoreML"),
        ("onnxruntime-1.23.2-x86_64", set(), "CoreML"),
        ("onnxruntime-1.30.0-arm64", set(), "Network"),
        (TORCH, {"torch/lib/libtorch_cpu.dylib", "functorch/.dylibs/libiomp5.dylib"}, "Metal"),
    ],
)
def test_delocate_lists_the_dependencies_of_a_real_wheel(
    name: str, own: set[str], system: str, wheels: Wheels, delocate: Delocate
) -> None:
    listed = set(delocate.run("delocate-listdeps", "--all", wheels.path(name)).stdout.split())
    assert own <= listed
    assert f"/System/Library/Frameworks/{system}.framework/Versions/A/{system}" in listed
    assert "/usr/lib/libSystem.B.dylib" in listed


@pytest.mark.parametrize(
    "name", ["onnxruntime-1.23.2-arm64", "onnxruntime-1.23.2-x86_64", "onnxruntime-1.30.0-arm64", TORCH]
)
def test_delocate_wheel_keeps_a_real_wheel_valid(name: str, wheels: Wheels, delocate: Delocate, tmp_path: Path) -> None:
    source = wheels.path(name)
    delocate.run("delocate-wheel", "-w", tmp_path / "fixed", source)
    (fixed,) = (tmp_path / "fixed").glob("*.whl")
    before = unpack(source, tmp_path / "before")
    after = unpack(fixed, tmp_path / "after")
    assert set(after) == set(before)
    for member, path in after.items():
        if path.read_bytes() == before[member].read_bytes() and not is_signed(before[member]):
            continue  # delocate signs only what it edits
        verify_file(path)
    assert_passes_audit(fixed)
    shutil.rmtree(tmp_path / "before")
    shutil.rmtree(tmp_path / "after")


def is_signed(path: Path) -> bool:
    with open_macho(path) as macho:
        return all(image.signature_range is not None for image in macho.images)
