from __future__ import annotations

from pathlib import Path

import pytest

from macbuild.audit import ExportRule
from tests.support import machobytes
from tests.support.audits import (
    LOAD_DYLIB,
    SYSTEM,
    audit,
    dylib,
    one,
    only,
    patch_command,
    put,
    with_imports,
)


def test_component_rules_define_allowed_and_required_exports(tmp_path: Path) -> None:
    put(tmp_path, {"lib/libx.dylib": dylib(exports=["_TRITONBACKEND_Init", "_other"])})
    allow = {"libx.dylib": ExportRule(allow=["_TRITONBACKEND_*"], require=["_TRITONBACKEND_Init"])}
    assert "exports _other," in only(audit(tmp_path, exports=allow), "unexpected-export").message
    forbid = {"lib/*": ExportRule(forbid=["_oth*"])}
    assert "exports _other," in only(audit(tmp_path, exports=forbid), "unexpected-export").message
    require = {"lib/*": ExportRule(require=["_TRITONBACKEND_Fini*"])}
    assert "_TRITONBACKEND_Fini*" in only(audit(tmp_path, exports=require), "missing-export").message
    assert audit(tmp_path, exports={"liby.dylib": ExportRule(forbid=["*"])}).ok


@pytest.mark.parametrize("name", ["__Znwm", "__ZdlPv", "__ZTISt9exception", "___cxa_throw"])
def test_symbols_of_the_runtime_must_not_be_exported(tmp_path: Path, name: str) -> None:
    put(tmp_path, {"libx.dylib": dylib(exports=[name, "_f"])})
    assert f"exports {name}," in one(tmp_path, "banned-export").message


def test_symbols_bound_to_a_library_of_the_tree_must_exist(tmp_path: Path, unsigned_is_fine: str) -> None:
    user = machobytes.dylib(id="@rpath/user.dylib", dylibs=[SYSTEM, "@loader_path/libx.dylib"], exports=[])
    imports = [("_printf", 1, False), ("_f", 2, False), ("_gone", 2, False), ("_maybe", 2, True)]
    root = put(tmp_path / "t", {"user.dylib": with_imports(user, imports), "libx.dylib": machobytes.dylib()})
    finding = one(root, "undefined-symbol", unsigned_is_fine)
    assert (finding.file, finding.message) == ("user.dylib", "@loader_path/libx.dylib does not export _gone")
    put(root, {"user.dylib": with_imports(user, [("_f", 3, False)])})
    assert "bound to dependency 3 of 2" in one(root, "undefined-symbol", unsigned_is_fine).message


def test_a_reexported_library_provides_its_symbols_too(tmp_path: Path, unsigned_is_fine: str) -> None:
    user = machobytes.dylib(id="@rpath/user.dylib", dylibs=["@loader_path/shell.dylib"], exports=[])
    shell = machobytes.dylib(id="@rpath/shell.dylib", dylibs=["@loader_path/libx.dylib"], exports=[])
    user = with_imports(user, [("_f", 1, False)])
    root = put(tmp_path / "t", {"user.dylib": user, "shell.dylib": shell, "libx.dylib": machobytes.dylib()})
    one(root, "undefined-symbol", unsigned_is_fine)
    put(root, {"shell.dylib": patch_command(shell, LOAD_DYLIB, 0, 0x8000001F)})
    assert audit(root, unsigned_is_fine).findings == ()


def test_flat_lookup_is_only_for_symbols_of_python(tmp_path: Path, unsigned_is_fine: str) -> None:
    data = with_imports(machobytes.dylib(), [("_PyList_New", -2, False), ("_mystery", -2, False)])
    finding = one(put(tmp_path / "t", {"libx.dylib": data}), "flat-lookup", unsigned_is_fine)
    assert finding.message.startswith("_mystery looked up")


def test_two_openmp_are_an_error_in_a_closure_a_warning_in_a_tree(tmp_path: Path) -> None:
    names = ["@loader_path/libomp.dylib", "@loader_path/libiomp5.dylib"]
    runtimes = {
        "libomp.dylib": dylib("libomp.dylib", exports=["_a"]),
        "libiomp5.dylib": dylib("libiomp5.dylib", exports=["_b"]),
    }
    put(tmp_path, runtimes)
    assert one(tmp_path, "spare-runtime").severity.value == "warning"
    put(tmp_path, {"user.dylib": dylib("user.dylib", dylibs=names)})
    finding = one(tmp_path, "duplicate-runtime")
    assert finding.file == "user.dylib"
    assert "libiomp5.dylib, libomp.dylib" in finding.message


def test_two_protobuf_that_export_their_registry_are_an_error(tmp_path: Path) -> None:
    marker = ["__ZN6google8protobuf14DescriptorPool14generated_poolEv"]
    put(tmp_path, {"a.dylib": dylib("a.dylib", exports=marker, dylibs=["@loader_path/b.dylib"])})
    put(tmp_path, {"b.dylib": dylib("b.dylib", exports=marker)})
    assert "2 copies of protobuf" in one(tmp_path, "duplicate-runtime").message


def weak_exports(data: bytes) -> bytes:
    """Mark every export of an image as a weak definition."""
    assert b"\x02\x00\x10\x00" in data
    return data.replace(b"\x02\x00\x10\x00", b"\x02\x04\x10\x00")


def test_weak_definitions_of_strangers_warn_of_relatives_inform(tmp_path: Path, unsigned_is_fine: str) -> None:
    names = ["_a", "_b", "_c", "_d"]
    left = weak_exports(machobytes.dylib(id="@rpath/left.dylib", exports=names))
    right = machobytes.dylib(id="@rpath/right.dylib", exports=[*names, "_e"])
    root = put(tmp_path / "t", {"left.dylib": left, "right.dylib": right})
    assert audit(root, unsigned_is_fine).findings == ()
    top = machobytes.dylib(id="@rpath/top.dylib", dylibs=["@loader_path/left.dylib", "@loader_path/right.dylib"])
    put(root, {"top.dylib": top})
    finding = one(root, "weak-coalesced", unsigned_is_fine)
    assert finding.message.startswith("4 weak definitions are also in right.dylib")
    assert finding.message.endswith("_a, _b, _c and 1 more")
    related = machobytes.dylib(id="@rpath/right.dylib", exports=names, dylibs=["@loader_path/left.dylib"])
    put(root, {"right.dylib": related})
    assert one(root, "weak-shared", unsigned_is_fine).severity.value == "info"
