"""Test the fix of files made by real compilers and real vendors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from macbuild.macho.file import open_macho
from macbuild.macho.system import is_system
from macbuild.macho.verify import verify_file
from macbuild.recipe.model import FixRules
from macbuild.steps.fix import fix
from tests.conftest import Wheels, Zig


def assert_sound(stage: Path) -> None:
    """Check that every Mach-O file of the stage is relocatable, closed within the stage, and signed."""
    for path in (path for path in stage.rglob("*") if path.is_file() and not path.is_symlink()):
        verify_file(path)
        with open_macho(path) as file:
            (image,) = file.images
            assert image.id is None or image.id.name == f"@rpath/{path.name}"
            assert len(set(image.rpaths)) == len(image.rpaths)
            folders = [path.parent / rpath.replace("@loader_path", ".", 1) for rpath in image.rpaths]
            assert all(rpath.startswith("@loader_path") for rpath in image.rpaths)
            for dylib in image.dylibs:
                leaf = dylib.name.removeprefix("@rpath/")
                assert is_system(dylib.name) or any((folder / leaf).is_file() for folder in folders)


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_compiled_libraries_and_a_program_become_relocatable(tmp_path: Path, zig: Zig, arch: str) -> None:
    source = tmp_path / "source"
    room = "-Wl,-headerpad,0x1000"
    inner = zig.dylib(
        source / "lib",
        "int g(void) { return 2; }",
        arch,
        "11.0",
        room,
        "-Wl,-install_name,/opt/x/libg.dylib",
        name="libg",
    )
    zig.dylib(
        source / "lib" / "deep",
        "int g(void); int f(void) { return g(); }",
        arch,
        "11.0",
        room,
        str(inner),
        "-Wl,-rpath,/Users/builder/lib",
        name="libf",
    )
    code = source / "main.c"
    code.write_text("int f(void); int main(void) { return f(); }")
    (source / "bin").mkdir()
    target = f"{'aarch64' if arch == 'arm64' else arch}-macos.11.0"
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        target,
        room,
        "-o",
        str(source / "bin/tool"),
        str(code),
    ]
    libraries = [str(source / "lib/deep/libf.dylib"), str(inner)]
    subprocess.run([*command, *libraries], check=True, capture_output=True)
    for path in source.rglob("*.c"):
        path.unlink()
    changes = fix(source, tmp_path / "stage", FixRules(), arch)
    assert {change.file for change in changes} == {"bin/tool", "lib/libg.dylib", "lib/deep/libf.dylib"}
    assert_sound(tmp_path / "stage")


@pytest.mark.parametrize(
    ("wheel", "arch", "members"),
    [
        ("torch-2.13.0-arm64", "arm64", ("libc10.dylib", "libomp.dylib")),
        ("torch-2.2.2-x86_64", "x86_64", ("libc10.dylib", "libiomp5.dylib")),
    ],
)
def test_libraries_of_real_wheels_become_relocatable(
    tmp_path: Path, wheels: Wheels, wheel: str, arch: str, members: tuple[str, ...]
) -> None:
    source = tmp_path / "source"
    (source / "lib").mkdir(parents=True)
    for name in members:
        shutil.copyfile(wheels.file(wheel, f"torch/lib/{name}"), source / "lib" / name)
    fix(source, tmp_path / "stage", FixRules(), arch)
    assert_sound(tmp_path / "stage")
