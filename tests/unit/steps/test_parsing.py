"""Test that every step parses each version of a Mach-O file once."""

from __future__ import annotations

from pathlib import Path

import pytest

from macbuild.errors import SignatureError
from macbuild.macho.sign import sign_bytes
from macbuild.package.manifest import record_tree
from macbuild.recipe.model import FixRules, Package
from macbuild.steps.assemble import assemble
from macbuild.steps.fix import fix
from macbuild.steps.merge import merge_stages
from macbuild.steps.pack import _verified_binaries
from macbuild.store import Store
from tests.support import machobytes
from tests.support.counting import Counts, counting

SYSTEM = "/usr/lib/libSystem.B.dylib"
NAMES = ("liba.dylib", "libb.dylib", "libfat.dylib")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a tree with a signed file, an unsigned one, a universal one, a link and two that are not Mach-O."""
    folder = tmp_path / "source/lib"
    folder.mkdir(parents=True)
    dylibs = ["/build/libb.dylib", SYSTEM]
    folder.joinpath("liba.dylib").write_bytes(machobytes.dylib(id="/build/liba.dylib", dylibs=dylibs, signed=True))
    folder.joinpath("libb.dylib").write_bytes(machobytes.dylib(id="/build/libb.dylib", exports=("_f", "_g")))
    fat = machobytes.fat(*(machobytes.dylib(arch, id="/x/libfat.dylib", signed=True) for arch in ("x86_64", "arm64")))
    folder.joinpath("libfat.dylib").write_bytes(fat)
    folder.joinpath("liblink.dylib").symlink_to("libb.dylib")
    folder.joinpath("readme").write_text("Not Mach-O.")
    folder.joinpath("empty").touch()
    return tmp_path / "source"


def assert_parsed_once(counts: Counts, *names: str) -> None:
    assert {name: counts.parses_of(name) for name in names if max(counts.parses_of(name)) > 1} == {}


def test_fix_parses_each_version_of_a_file_once(tmp_path: Path, source: Path) -> None:
    with counting(tmp_path) as counts:
        changes = fix(source, tmp_path / "stage", FixRules(), "arm64", [("lib/libb.dylib", ["_f"])])
    assert [change.file for change in changes] == [f"lib/{name}" for name in NAMES]
    assert_parsed_once(counts, *NAMES)
    assert [len(counts.parses_of(name)) for name in NAMES] == [2, 2, 3]  # original and edited; two slices


def test_fix_opens_a_file_only_to_read_copy_and_edit(tmp_path: Path, source: Path) -> None:
    with counting(tmp_path) as counts:
        fix(source, tmp_path / "stage", FixRules(), "arm64", [("lib/libb.dylib", ["_f"])])
    assert {name: counts.opens[f"source/lib/{name}"] for name in NAMES} == dict.fromkeys(NAMES, 2)
    assert {name: counts.opens[f"stage/lib/{name}"] for name in NAMES} == dict.fromkeys(NAMES, 1)


def test_assemble_parses_each_version_of_a_file_once(tmp_path: Path, source: Path) -> None:
    package = Package(kind="tarball", name="x", rpaths=["@loader_path/../other"])
    with counting(tmp_path) as counts:
        assemble(source, package, [], tmp_path, tmp_path / "output")
    assert_parsed_once(counts, *NAMES)


def test_pack_parses_each_file_once_to_verify_and_describe_it(tmp_path: Path, source: Path) -> None:
    fix(source, tmp_path / "stage", FixRules(), "arm64")
    store = Store(tmp_path / "store")
    store.prepare()
    records = record_tree(tmp_path / "stage", 1)
    with counting(tmp_path) as counts:
        binaries = list(_verified_binaries(tmp_path / "stage", records, store))
    assert [binary.path for binary in binaries] == [f"lib/{name}" for name in NAMES]
    assert [counts.parses_of(name) for name in NAMES] == [[1], [1], [1]]


def test_pack_refuses_a_file_whose_signature_is_wrong(tmp_path: Path, source: Path) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    with pytest.raises(SignatureError, match="not signed"):
        list(_verified_binaries(source, record_tree(source, 1), store))


def test_merge_parses_each_version_of_a_file_once(tmp_path: Path) -> None:
    for arch in ("x86_64", "arm64"):
        (tmp_path / arch).mkdir()
        (tmp_path / arch / "libx.dylib").write_bytes(sign_bytes(machobytes.dylib(arch), "libx"))
    with counting(tmp_path) as counts:
        merge_stages({arch: tmp_path / arch for arch in ("x86_64", "arm64")}, tmp_path / "output", [])
    assert counts.parses_of("libx.dylib") == [1, 1]
