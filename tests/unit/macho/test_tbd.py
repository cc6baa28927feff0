from __future__ import annotations

import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macbuild.errors import MachOError
from macbuild.macho.file import parse_macho
from macbuild.macho.tbd import Stub, read_stub, read_stubs, stub_of, write_stub
from tests.fuzz.machos import exporting, kind
from tests.support import machobytes
from tests.support.audits import LOAD_DYLIB, patch_command

TWO = """\
# made by hand
--- !tapi-tbd
tbd-version:     4
targets:         [ x86_64-macos, arm64-macos,
                   arm64-maccatalyst ]
uuids:
  - target:          x86_64-macos
    value:           00000000-0000-0000-0000-000000000000
flags:           [ not_app_extension_safe ]
install-name:    '/usr/lib/liba''b.dylib'
current-version: 1359.2
compatibility-version: 1
swift-abi-version: 7
parent-umbrella:
  - targets:         [ x86_64-macos ]
    umbrella:        System
allowable-clients:
  - targets:         [ x86_64-macos ]
    clients:         [ one, two ]
reexported-libraries:
  - targets:         [ arm64-macos ]
    libraries:       [ '/usr/lib/libinner.dylib' ]
exports:
  - targets:         [ x86_64-macos, arm64-macos ]
    symbols:         [ _one, 'R8289209$_close',
                       "_two" ]
    objc-classes:    [ Thing ]
    objc-eh-types:   [ Thing ]
    objc-ivars:      [ Thing._x ]
    weak-symbols:    [ __Znwm ]
    thread-local-symbols: [ _tls ]
  - targets:         [ x86_64-macos ]
    symbols:         [ '_intel$only' ]
  - targets:         [ arm64-maccatalyst ]
    symbols:         [ _pad ]
reexports:
  - targets:         [ arm64-macos ]
    symbols:         [ _again ]
undefineds:
  - targets:         [ arm64-macos ]
    symbols:         [ _wanted ]
--- !tapi-tbd
tbd-version:     4
targets:         [ x86_64-macos ]
install-name:    '/usr/lib/libinner.dylib'
...
"""
COMMON = {
    *("_one", "R8289209$_close", "_two", "__Znwm", "_tls"),
    *("_OBJC_CLASS_$_Thing", "_OBJC_METACLASS_$_Thing", "_OBJC_EHTYPE_$_Thing", "_OBJC_IVAR_$_Thing._x"),
}
SMALL = "--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\ninstall-name: '/a'\n"


def test_a_file_gives_a_stub_for_each_document_and_architecture() -> None:
    arm, intel, inner = read_stubs(TWO)
    assert arm == Stub(
        install_name="/usr/lib/liba'b.dylib",
        arch="arm64",
        symbols=frozenset({*COMMON, "_again"}),
        weak=frozenset({"__Znwm"}),
        thread_local=frozenset({"_tls"}),
        reexports=("/usr/lib/libinner.dylib",),
        current="1359.2",
        compatibility="1",
    )
    assert intel.symbols == {*COMMON, "_intel$only"}
    assert intel.reexports == ()
    assert (inner.install_name, inner.arch, inner.symbols) == ("/usr/lib/libinner.dylib", "x86_64", frozenset())


def test_reading_one_stub_gives_the_first_library() -> None:
    assert read_stub(TWO).arch == "arm64"
    assert read_stub(TWO, arch="x86_64").install_name == "/usr/lib/liba'b.dylib"
    with pytest.raises(MachOError, match="not a stub for macOS on arm64e"):
        read_stub(TWO, arch="arm64e")
    with pytest.raises(MachOError, match="not a stub for macOS"):
        read_stub(SMALL.replace("-macos", "-ios"))
    with pytest.raises(MachOError, match="not a stub for macOS on arm64"):
        read_stub(TWO[TWO.rindex("--- ") :], arch="arm64")


def test_windows_line_ends_and_a_missing_last_one_are_accepted() -> None:
    assert read_stubs(TWO.replace("\n", "\r\n")) == read_stubs(TWO)
    assert read_stubs(TWO.removesuffix("...\n")) == read_stubs(TWO.removesuffix("\n")) == read_stubs(TWO)


def test_a_stub_of_a_dylib_has_its_name_versions_and_exports() -> None:
    data = exporting({"_a": False, "_w": True}, arch="arm64")
    stub = stub_of(parse_macho(data).images[0])
    assert stub == Stub(
        install_name="@rpath/libx.dylib",
        arch="arm64",
        symbols=frozenset({"_a", "_w"}),
        weak=frozenset({"_w"}),
        current="1.2.3",
        compatibility="1.0.0",
    )


def test_a_stub_lists_the_reexports_of_the_dylib() -> None:
    plain = machobytes.dylib(dylibs=["@rpath/libinner.dylib", *machobytes.SYSTEM], exports=())
    stub = stub_of(parse_macho(patch_command(plain, LOAD_DYLIB, 0, 0x8000001F)).images[0])
    assert (stub.reexports, stub.symbols) == (("@rpath/libinner.dylib",), frozenset())
    assert read_stub(write_stub(stub)) == stub


def test_a_file_without_an_install_name_has_no_stub() -> None:
    data = bytearray(kind(machobytes.dylib(), 8))
    at = data.index(struct.pack("<I", 0xD), 32)
    struct.pack_into("<I", data, at, 0x2A)
    with pytest.raises(MachOError, match="BUNDLE without an install name"):
        stub_of(parse_macho(bytes(data)).images[0])


def test_equal_stubs_have_the_text_that_other_tools_write() -> None:
    stub = Stub(
        install_name="@rpath/libx.dylib",
        arch="x86_64",
        symbols=frozenset({"_b", "_a", "_OBJC_CLASS_$_A", "_OBJC_METACLASS_$_A", "_OBJC_CLASS_$_Half"}),
        weak=frozenset({"__Znwm"}),
    )
    assert (
        write_stub(stub)
        == """\
--- !tapi-tbd
tbd-version:     4
targets:         [ x86_64-macos ]
install-name:    '@rpath/libx.dylib'
current-version: 1
compatibility-version: 1
exports:
  - targets:         [ x86_64-macos ]
    symbols:         [ '_OBJC_CLASS_$_Half',
                       _a,
                       _b ]
    objc-classes:    [ 'A' ]
    weak-symbols:    [ __Znwm ]
...
"""
    )


SYMBOL = st.text("_a$.'\" ,[]{}#:-&\\\xe9", min_size=1, max_size=8)
SYMBOLS = st.frozensets(
    st.one_of(SYMBOL, st.sampled_from(["_OBJC_CLASS_$_A", "_OBJC_METACLASS_$_A", "null", "a b", "#"]))
)


@given(SYMBOLS, st.data(), st.sampled_from(["arm64", "arm64e", "x86_64"]), st.lists(SYMBOL, unique=True))
@settings(max_examples=80, deadline=None)
def test_a_written_stub_is_read_back(
    names: frozenset[str], data: st.DataObject, arch: str, libraries: list[str]
) -> None:
    some = st.frozensets(st.sampled_from(sorted(names))) if names else st.just(frozenset[str]())
    weak = data.draw(some)
    stub = Stub(
        install_name="/x",
        arch=arch,
        symbols=names,
        weak=weak,
        thread_local=data.draw(some) - weak,
        reexports=tuple(libraries),
        current="65535.255.255",
        compatibility="0.1",
    )
    assert read_stub(write_stub(stub)) == stub


@pytest.mark.parametrize(
    "stub",
    [
        Stub(install_name="", arch="arm64"),
        Stub(install_name="a\nb", arch="arm64"),
        Stub(install_name="a", arch="arm64", symbols=frozenset({"a\0"})),
        Stub(install_name="a", arch="arm64", symbols=frozenset({"\udcff"})),
        Stub(install_name="a", arch="arm64", weak=frozenset({""})),
        Stub(install_name="a", arch="arm64", current="1.2.3.4"),
        Stub(install_name="a", arch="arm64", compatibility="1.256"),
    ],
)
def test_values_that_a_stub_cannot_hold_are_refused(stub: Stub) -> None:
    with pytest.raises(MachOError, match=r"cannot be written to a stub|is not a version"):
        write_stub(stub)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "an empty stub"),
        ("\n\n# nothing\n", None, "an empty stub"),
        ("{}", 1, "a document of a text stub"),
        ("---\narchs: []\n", 1, "a document of a text stub"),
        ("--- !tapi-tbd-v3\narchs: []\n", 1, "a document of a text stub"),
        ("--- !tapi-tbd\ntbd-version: 5\n", 1, "tbd-version is 5, not 4"),
        ("--- !tapi-tbd\n", 1, "tbd-version is None"),
        ("--- !tapi-tbd\ntbd-version: 4\n", 1, "without install-name or without targets"),
        (SMALL.replace("[ arm64-macos ]", "[ ]"), 1, "no targets"),
        (SMALL.replace("[ arm64-macos ]", "[ '' ]") + "exports:\n  - symbols: [ _a ]\n", 1, "no targets"),
        (f"{SMALL}targets: [ a ]\n", 5, "targets is listed twice"),
        (f"{SMALL}colour: red\n", 5, "unknown key colour"),
        (f"{SMALL}flags: x\n", 5, "flags is not a list"),
        (f"{SMALL}current-version: [ 1 ]\n", 5, "current-version is a list"),
        (f"{SMALL}current-version: 1 # one\n", 5, "not one plain or quoted text"),
        (f"{SMALL}current-version: 1.2.3.4\n", 1, "'1.2.3.4' is not a version"),
        (f"{SMALL}current-version: &x 1\n", 5, "not one plain or quoted text"),
        (f"{SMALL}exports: [ ]\n", 5, "on the following lines"),
        (f"{SMALL}exports:\n  - symbols: [ _a ]\n", 1, "has no targets"),
        (f"{SMALL}exports:\n  - targets: [ ]\n", 1, "has no targets"),
        (f"{SMALL}exports:\n  - targets: [ x86_64-macos ]\n", 1, "one that the document does not have"),
        (f"{SMALL}exports:\n  - targets: [ arm64-macos ]\n    libraries: [ a ]\n", 7, "does not belong here"),
        (f"{SMALL}exports:\n  - targets: [ arm64-macos ]\n    targets: [ a ]\n", 7, "is listed twice"),
        (f"{SMALL}exports:\n  - targets: [ arm64-macos ]\n   symbols: [ a ]\n", 7, "a key is expected here"),
        (f"{SMALL}exports:\n  - targets: [ arm64-macos ]\n    symbols: [ a, b\n", 7, "malformed or does not end"),
        (f"{SMALL}exports:\n  - targets: [ arm64-macos ]\n    symbols: [ a,,b ]\n", 7, "malformed or does not end"),
        (f"{SMALL}exports:\n  - targets: [ arm64-macos ]\n    symbols: [ a,\n\n  b ] c\n", 9, "follows a list"),
        (f"{SMALL}exports:\n  - targets: [ arm64-macos ]\n    symbols: [ [ a ] ]\n", 7, "malformed or does not end"),
        (f"{SMALL}exports:\n  - targets: [ arm64-macos ]\n    symbols: [ *a ]\n", 7, "malformed or does not end"),
        (f"{SMALL}\tflags: [ a ]\n", 5, "a key is expected here"),
        (f"{SMALL}...\nmore", 6, "a document of a text stub"),
        (SMALL * 1001, 4001, "more than 1000 documents"),
    ],
)
def test_malformed_text_is_an_error_with_its_line(text: str, line: int | None, message: str) -> None:
    with pytest.raises(MachOError, match=message) as caught:
        read_stubs(text, "libx.tbd")
    assert caught.value.where == ("libx.tbd" if line is None else f"libx.tbd:{line}")


def test_a_huge_text_is_refused_and_long_ones_are_read_fast() -> None:
    with pytest.raises(MachOError, match="too many for a stub"):
        read_stubs(" " * ((1 << 26) + 1))
    entry = "  - targets: [ arm64-macos ]\n    symbols: [ _a ]\n"
    start = time.process_time()
    assert read_stub(f"{SMALL}exports:\n{entry * 20_000}").symbols == {"_a"}
    with pytest.raises(MachOError, match="a key is expected"):
        read_stub(f"{SMALL}exports:\n{entry * 20_000}  ?")
    assert time.process_time() - start < 2
