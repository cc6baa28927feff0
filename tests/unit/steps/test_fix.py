from __future__ import annotations

import struct
from pathlib import Path

import pytest

from macbuild.errors import FixError, MachOError, SignatureError
from macbuild.macho.file import open_macho
from macbuild.macho.system import is_system
from macbuild.macho.verify import verify_file
from macbuild.recipe.model import Dependency, FixRules, Identity
from macbuild.steps.fix import FileFix, fix
from tests.support import machobytes

SYSTEM = "/usr/lib/libSystem.B.dylib"


class Tree:
    """A staged tree before and after the fix."""

    def __init__(self, root: Path) -> None:
        self.source = root / "source"
        self.stage = root / "stage"

    def put(self, path: str, data: bytes) -> None:
        target = self.source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def dylib(self, path: str, *dylibs: str, arch: str = "arm64", **more: object) -> None:
        data = machobytes.dylib(arch, dylibs=[*dylibs, SYSTEM], **{"id": f"/build/{Path(path).name}", **more})  # type: ignore[arg-type]
        self.put(path, data)

    def fix(self, rules: FixRules | None = None, arch: str = "arm64") -> list[FileFix]:
        return fix(self.source, self.stage, rules or FixRules(), arch)

    def facts(self, path: str) -> tuple[str | None, list[str], list[str]]:
        with open_macho(self.stage / path) as file:
            (image,) = file.images
            identity = image.id.name if image.id else None
            return identity, [dylib.name for dylib in image.dylibs], list(image.rpaths)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def kind(data: bytes, filetype: int) -> bytes:
    return data[:12] + struct.pack("<I", filetype) + data[16:]


def test_ids_and_dependencies_in_the_tree_become_relocatable(tree: Tree) -> None:
    tree.dylib("lib/liba.dylib", "/opt/llvm-openmp/lib/libomp.dylib", "@rpath/libb.dylib", "/Users/x/libc.dylib")
    for name in ("libomp", "libb", "libc"):
        tree.dylib(f"lib/{name}.dylib")
    tree.fix()
    expected = ["@rpath/libomp.dylib", "@rpath/libb.dylib", "@rpath/libc.dylib", SYSTEM]
    assert tree.facts("lib/liba.dylib") == ("@rpath/liba.dylib", expected, ["@loader_path"])
    assert tree.facts("lib/libomp.dylib") == ("@rpath/libomp.dylib", [SYSTEM], [])


def test_rpaths_are_relative_needed_and_without_duplicates(tree: Tree) -> None:
    rpaths = ["/Users/x/lib", "@loader_path", "@loader_path", "@loader_path/../unused", "/opt/lib"]
    tree.dylib("lib/liba.dylib", "@rpath/libb.dylib", "@rpath/libc.dylib", "@rpath/libd.dylib", rpaths=rpaths)
    tree.dylib("lib/libb.dylib")
    tree.dylib("lib/deep/libc.dylib", "@rpath/libb.dylib")
    tree.dylib("other/libd.dylib")
    tree.dylib("lib/libe.dylib", rpaths=["/opt/lib"])
    tree.fix()
    assert tree.facts("lib/liba.dylib")[2] == ["@loader_path", "@loader_path/deep", "@loader_path/../other"]
    assert tree.facts("lib/deep/libc.dylib")[2] == ["@loader_path/.."]
    assert tree.facts("lib/libe.dylib")[2] == []


def test_an_unknown_dependency_is_refused_with_file_and_name(tree: Tree) -> None:
    tree.dylib("lib/liba.dylib", "/opt/llvm-openmp/lib/libomp.dylib")
    with pytest.raises(FixError, match=r"depends on /opt/llvm-openmp/lib/libomp\.dylib") as caught:
        tree.fix()
    assert caught.value.where == "lib/liba.dylib"
    assert "fix.dependencies" in str(caught.value.hint)


@pytest.mark.parametrize(
    "name", ["/usr/lib/../local/lib/libx.dylib", "/usr/local/lib/libx.dylib", "@rpath/libx.dylib", "libx"]
)
def test_a_path_that_only_resembles_a_system_library_is_refused(tree: Tree, name: str) -> None:
    assert not is_system(name)
    tree.dylib("lib/liba.dylib", name)
    with pytest.raises(FixError):
        tree.fix()


def test_a_link_in_the_tree_satisfies_its_name(tree: Tree) -> None:
    tree.dylib("lib/liba.1.2.dylib")
    (tree.source / "lib/liba.1.dylib").symlink_to("liba.1.2.dylib")
    tree.dylib("lib/libb.dylib", "/build/liba.1.dylib")
    tree.fix()
    assert tree.facts("lib/libb.dylib")[1:] == (["@rpath/liba.1.dylib", SYSTEM], ["@loader_path"])
    assert (tree.stage / "lib/liba.1.dylib").is_symlink()


def test_a_name_at_two_places_is_ambiguous_unless_one_is_beside(tree: Tree) -> None:
    tree.dylib("a/libx.dylib")
    tree.dylib("b/libx.dylib")
    tree.dylib("a/liby.dylib", "@rpath/libx.dylib")
    tree.fix()
    assert tree.facts("a/liby.dylib")[2] == ["@loader_path"]
    tree.dylib("c/libz.dylib", "@rpath/libx.dylib")
    tree.stage = tree.stage.with_name("again")
    with pytest.raises(FixError, match=r"a/libx\.dylib and b/libx\.dylib") as caught:
        tree.fix()
    assert caught.value.where == "c/libz.dylib"


def test_exceptions_of_the_recipe_are_followed(tree: Tree) -> None:
    tree.dylib("lib/liba.1.0.dylib", "/opt/lib/libc++.1.dylib", "/DLC/torch/libold.dylib")
    tree.dylib("lib/libnew.dylib")
    identity = Identity(file="lib/liba.*", id="@rpath/liba.1.dylib", reason="r")
    renames = [
        Dependency(match="/opt/*/libc++.1.dylib", to="/usr/lib/libc++.1.dylib", reason="r"),
        Dependency(match="*/libold.dylib", to="@rpath/libnew.dylib", reason="r"),
    ]
    tree.fix(FixRules(ids=[identity], dependencies=renames))
    expected = ["/usr/lib/libc++.1.dylib", "@rpath/libnew.dylib", SYSTEM]
    assert tree.facts("lib/liba.1.0.dylib") == ("@rpath/liba.1.dylib", expected, ["@loader_path"])


def test_an_exception_without_a_target_is_refused(tree: Tree) -> None:
    tree.dylib("lib/liba.dylib", "/opt/x.dylib")
    with pytest.raises(FixError, match="nowhere"):
        tree.fix(FixRules(dependencies=[Dependency(match="/opt/*", to="@rpath/gone.dylib", reason="r")]))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_every_file_is_signed_and_valid_afterwards(tree: Tree, arch: str, *, signed: bool) -> None:
    tree.dylib("lib/liba.dylib", "/x/libb.dylib", arch=arch, signed=signed)
    tree.dylib("lib/libb.dylib", arch=arch, signed=signed)
    changes = tree.fix(arch=arch)
    assert [change.signed for change in changes] == [not signed] * 2
    for path in (tree.stage / "lib").iterdir():
        verify_file(path)


def test_a_universal_file_is_reduced_to_the_slice(tree: Tree) -> None:
    tree.put(
        "lib/liba.dylib", machobytes.fat(*(machobytes.dylib(arch, id="/x/liba.dylib") for arch in ("x86_64", "arm64")))
    )
    tree.fix(arch="x86_64")
    with open_macho(tree.stage / "lib/liba.dylib") as file:
        assert (file.archs, file.is_fat) == (("x86_64",), False)


def test_a_missing_architecture_is_refused_with_the_path(tree: Tree) -> None:
    tree.dylib("lib/deep/liba.dylib", arch="x86_64")
    with pytest.raises(FixError, match="has x86_64, not arm64") as caught:
        tree.fix()
    assert caught.value.where == "lib/deep/liba.dylib"


@pytest.mark.parametrize("filetype", [2, 8])
def test_executables_and_bundles_are_fixed_and_get_no_id(tree: Tree, filetype: int) -> None:
    tree.dylib("lib/liba.dylib")
    data = machobytes.dylib(id="/x/tool", dylibs=["/x/liba.dylib", SYSTEM], rpaths=["/opt/lib"])
    # The load command of an install name is replaced by an unknown one, so that nothing has to move.
    with_id = kind(data, filetype)
    at = with_id.index(struct.pack("<I", 0xD), 32)
    tree.put("bin/tool", with_id[:at] + struct.pack("<I", 0x2A) + with_id[at + 4 :])
    tree.fix()
    assert tree.facts("bin/tool") == (None, ["@rpath/liba.dylib", SYSTEM], ["@loader_path/../lib"])
    verify_file(tree.stage / "bin/tool")


def test_objects_archives_and_other_files_are_left_alone(tree: Tree) -> None:
    ar = b"!<arch>\n" + bytes(100)
    tree.put("lib/a.o", kind(machobytes.dylib(), 1))
    tree.put("lib/a.dSYM", kind(machobytes.dylib(arch="x86_64"), 10))
    tree.put("lib/liba.a", ar)
    tree.put(
        "lib/libfat.a", struct.pack(">7I", 0xCAFEBABE, 1, 0x0100000C, 0, 0x4000, len(ar), 14).ljust(0x4000, b"\0") + ar
    )
    tree.put("share/readme", b"/opt/llvm-openmp/lib/libomp.dylib")
    tree.put("share/empty", b"")
    assert tree.fix() == []
    for path in tree.source.rglob("*.*"):
        assert (tree.stage / path.relative_to(tree.source)).samefile(path)


def test_a_dylib_without_an_install_name_is_refused_with_its_path(tree: Tree) -> None:
    data = machobytes.dylib()
    at = data.index(struct.pack("<I", 0xD), 32)
    tree.put("lib/liba.dylib", data[:at] + struct.pack("<I", 0x2A) + data[at + 4 :])
    with pytest.raises(MachOError, match="install name") as caught:
        tree.fix()
    assert caught.value.where == "lib/liba.dylib"


def test_the_installed_stage_is_not_changed(tree: Tree) -> None:
    tree.dylib("lib/liba.dylib", rpaths=["/opt"])
    before = (tree.source / "lib/liba.dylib").read_bytes()
    tree.fix()
    assert (tree.source / "lib/liba.dylib").read_bytes() == before
    assert not (tree.stage / "lib/liba.dylib").samefile(tree.source / "lib/liba.dylib")


def test_a_second_fix_changes_nothing(tree: Tree) -> None:
    tree.dylib("lib/liba.dylib", "/x/libb.dylib", rpaths=["/opt"])
    tree.dylib("lib/libb.dylib")
    tree.fix()
    again = Tree(tree.stage.parent / "again")
    again.source = tree.stage
    again.stage.parent.mkdir()
    again.fix()
    for path in (tree.stage / "lib").iterdir():
        assert (again.stage / "lib" / path.name).read_bytes() == path.read_bytes()


def test_mode_bits_are_kept(tree: Tree) -> None:
    tree.dylib("lib/liba.dylib")
    (tree.source / "lib/liba.dylib").chmod(0o755)
    tree.fix()
    assert (tree.stage / "lib/liba.dylib").stat().st_mode & 0o777 == 0o755


def test_a_signature_broken_by_the_vendor_is_replaced(tree: Tree) -> None:
    data = bytearray(machobytes.dylib(id="@rpath/libx.dylib", signed=True))
    data[8000] ^= 1
    tree.put("lib/libx.dylib", bytes(data))
    with pytest.raises(SignatureError):
        verify_file(tree.source / "lib/libx.dylib")
    (change,) = tree.fix()
    assert change.signed
    verify_file(tree.stage / "lib/libx.dylib")


def test_a_good_signature_is_kept(tree: Tree) -> None:
    data = machobytes.dylib(id="@rpath/libx.dylib", signed=True)
    tree.put("lib/libx.dylib", data)
    (change,) = tree.fix()
    assert not change.signed
    assert (tree.stage / "lib/libx.dylib").read_bytes() == data
