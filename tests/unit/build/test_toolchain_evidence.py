from __future__ import annotations

import itertools
import re
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from macbuild.build.toolchain.evidence import ARCHS, load_evidence, write_stubs
from macbuild.build.toolchain.evidence_collect import SystemImport, collect, system_imports
from macbuild.cli.app import run
from macbuild.errors import ArchiveError, ConfigError, UsageError
from macbuild.macho.file import parse_macho
from macbuild.macho.tbd import read_stub
from macbuild.target import pack_version
from tests.support import machobytes

CXX, SYSTEM = "/usr/lib/libc++.1.dylib", "/usr/lib/libSystem.B.dylib"
METAL = "/System/Library/Frameworks/Metal.framework/Versions/A/Metal"
SYMTAB, CHAINED, LOAD_WEAK = 0x2, 0x80000034, 0x80000018
WEAK_REF, TO_WEAK, FLAT = 0x40, 0x80, 0xFE << 8
WHEEL = "demo-1.0-py3-none-macosx_11_0_arm64.whl"


def edit(data: bytes, kind: int, replacement: bytes) -> bytes:
    """Overwrite the first load command of a kind with one of the same size."""
    at = 32
    while struct.unpack_from("<I", data, at)[0] != kind:
        at += struct.unpack_from("<I", data, at + 4)[0]
    return data[:at] + replacement + data[at + len(replacement) :]


def image(
    symbols: Sequence[tuple[str, int]],
    *,
    chained: Sequence[tuple[str, int]] | None = None,
    arch: str = "arm64",
    dylibs: Sequence[str] = (CXX, SYSTEM),
    minos: str = "11.0",
    sdk: str = "14.0",
) -> bytes:
    """Return a dylib with undefined symbols by name and `n_desc`, and imports by name and ordinal.

    Without `chained` nothing is bound, so that only the symbol table lists the imports.
    """
    data = machobytes.dylib(arch, dylibs=dylibs, minos=minos, sdk=sdk)
    strings, table = b" \0", b""
    for name, desc in symbols:
        table += struct.pack("<IBBHQ", len(strings), 1, 0, desc, 0)
        strings += name.encode() + b"\0"
    at = len(data)
    fields = (at, len(symbols), at + len(table), len(strings))
    data = edit(data, SYMTAB, struct.pack("<6I", SYMTAB, 24, *fields)) + table + strings
    if chained is not None:
        names, imports = b"\0", b""
        for name, ordinal in chained:
            imports += struct.pack("<I", ordinal & 0xFF | len(names) << 9)
            names += name.encode() + b"\0"
        payload = struct.pack("<8I", 0, 28, 32, 32 + len(imports), len(chained), 1, 0, 0) + imports + names
        data = edit(data, 0x80000033, struct.pack("<4I", CHAINED, 16, len(data), len(payload))) + payload
    return data


def wheel(folder: Path, *members: bytes, name: str = WHEEL) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("demo/__init__.py", "")
        for index, data in enumerate(members):
            archive.writestr(f"demo/{index}.so", data)
    return folder / name


def imports(data: bytes) -> list[SystemImport]:
    return list(system_imports(parse_macho(data).images[0]))


def lowest(folder: Path, symbol: str, arch: str = "arm64", library: str = CXX) -> str | None:
    return load_evidence(folder)[library].lowest(symbol, arch)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_strong_imports_are_collected_with_their_library() -> None:
    data = image([("_a", 1 << 8), ("_b", 2 << 8), ("_c", 3 << 8)], dylibs=(CXX, SYSTEM, "@rpath/libother.dylib"))
    assert imports(data) == [
        SystemImport(CXX, "_a", weak_definition=False),
        SystemImport(SYSTEM, "_b", weak_definition=False),
    ]


@pytest.mark.parametrize("desc", [1 << 8 | WEAK_REF, FLAT, 0], ids=["weak", "flat", "self"])
def test_an_import_that_may_fail_or_names_no_library_proves_nothing(desc: int) -> None:
    assert imports(image([("_a", desc)])) == []


def test_a_library_that_may_be_missing_proves_nothing() -> None:
    data = image([("_a", 1 << 8), ("_b", 2 << 8)])
    at = data.index(struct.pack("<I", 0xC))
    assert imports(data[:at] + struct.pack("<I", LOAD_WEAK) + data[at + 4 :]) == [
        SystemImport(SYSTEM, "_b", weak_definition=False)
    ]


def test_a_reference_to_a_weak_definition_is_marked() -> None:
    assert imports(image([("__Znwm", 1 << 8 | TO_WEAK)])) == [SystemImport(CXX, "__Znwm", weak_definition=True)]


def test_a_weak_chained_lookup_finds_its_library_by_symbol_table() -> None:
    symbols = [("__Znwm", 1 << 8), ("__Zown", 0), ("__Zmay", 1 << 8 | WEAK_REF), ("_x", 2 << 8)]
    chained = [("__Znwm", -3), ("__Zown", -3), ("__Zmay", -3), ("_x", 2)]
    assert imports(image(symbols, chained=chained)) == [
        SystemImport(CXX, "__Znwm", weak_definition=True),
        SystemImport(SYSTEM, "_x", weak_definition=False),
    ]


def test_the_lowest_macos_of_all_wheels_counts_in_any_order(tmp_path: Path) -> None:
    wheels = [
        wheel(
            tmp_path / "w", image([("_a", 256), ("_b", 256)], minos="13.0"), name="a-1-py3-none-macosx_13_0_arm64.whl"
        ),
        wheel(tmp_path / "w", image([("_b", 256 | TO_WEAK)], minos="12.3"), name="b-1-py3-none-macosx_11_0_arm64.whl"),
        wheel(
            tmp_path / "w", image([("_b", 256)], sdk="13.0", minos="12.3"), name="c-1-py3-none-macosx_11_0_arm64.whl"
        ),
    ]
    collect([tmp_path / "w"], tmp_path / "all", [CXX, SYSTEM])
    expected = contents(tmp_path / "all")
    assert (lowest(tmp_path / "all", "_a"), lowest(tmp_path / "all", "_b")) == ("13.0", "12.3")
    claim = load_evidence(tmp_path / "all")[CXX].claim("_b", "arm64")
    assert claim == ("12.3", "13.0", "c-1-py3-none-macosx_11_0_arm64.whl"), "of two equal claims the older SDK wins"
    for index, order in enumerate(itertools.permutations(wheels)):
        for path in order:
            collect([path], tmp_path / str(index), [CXX, SYSTEM])
        assert contents(tmp_path / str(index)) == expected


def test_additions_of_a_collection_are_counted(tmp_path: Path) -> None:
    first = wheel(tmp_path / "1", image([("_a", 256), ("_b", 256)], minos="14.0"))
    second = wheel(tmp_path / "2", image([("_b", 256), ("_c", 256)], minos="12.0"), b"\xcf\xfa\xed\xfe" + bytes(60))
    assert collect([first], tmp_path / "e", [CXX]) == (1, 1, 0, 2, 0)
    assert collect([second], tmp_path / "e") == (1, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("name", "arch", "minos", "expected"),
    [
        ("a-1-py3-none-macosx_12_0_arm64.whl", "arm64", "11.0", "12.0"),
        ("a-1-py3-none-macosx_11_0_arm64.whl", "arm64", "13.5", "13.5"),
        ("a-1-py3-none-macosx_10_9_universal2.whl", "arm64", "10.9", "11.0"),
        ("a-1-py3-none-macosx_10_9_universal2.whl", "x86_64", "10.9", "10.9"),
        ("a-1-py3-none-macosx_10_15_x86_64.macosx_10_13_x86_64.whl", "x86_64", "10.7", "10.13"),
        ("a-1-py3-none-any.whl", "x86_64", "10.13", "10.13"),
        ("a-1-py3-none-any.whl", "arm64", "10.13", "11.0"),
        ("a-1-py3-none-macosx_11_0_arm64.whl", "x86_64", "11.0", None),
    ],
)
def test_a_file_cannot_claim_less_than_the_tag_of_its_wheel(
    tmp_path: Path, name: str, arch: str, minos: str, expected: str | None
) -> None:
    collect([wheel(tmp_path, image([("_a", 256)], arch=arch, minos=minos), name=name)], tmp_path / "e", [CXX])
    assert lowest(tmp_path / "e", "_a", arch) == expected


def damaged(kind: str) -> bytes:
    data = image([("_a", 256)])
    if kind == "flat namespace":
        return data[:24] + struct.pack("<I", 0x5) + data[28:]
    if kind == "other system":
        return edit(data, 0x32, struct.pack("<3I", 0x32, 24, 2))
    if kind == "no version":
        return edit(data, 0x32, struct.pack("<I", 0x7FFF))
    if kind == "symbols outside":
        return edit(data, SYMTAB, struct.pack("<4I", SYMTAB, 24, len(data), 9))
    return data[:200]


@pytest.mark.parametrize("kind", ["flat namespace", "other system", "no version", "symbols outside", "cut off"])
def test_an_image_that_proves_nothing_is_skipped(tmp_path: Path, kind: str) -> None:
    path = wheel(tmp_path, damaged(kind), image([("_b", 256)]))
    assert collect([path], tmp_path / "e", [CXX]) == (1, 1, 1, 1, 0)
    assert lowest(tmp_path / "e", "_a") is None


def test_all_slices_of_a_universal_file_are_read(tmp_path: Path) -> None:
    data = machobytes.fat(image([("_a", 256)], arch="x86_64", minos="10.13"), image([("_b", 256)]))
    path = wheel(tmp_path, data, name="a-1-py3-none-macosx_10_13_universal2.whl")
    assert collect([path], tmp_path / "e", [CXX]).images == 2
    assert (lowest(tmp_path / "e", "_a", "x86_64"), lowest(tmp_path / "e", "_b")) == ("10.13", "11.0")
    assert lowest(tmp_path / "e", "_a") is None


def test_only_requested_or_known_libraries_are_collected(tmp_path: Path) -> None:
    path = wheel(tmp_path, image([("_a", 256), ("_b", 512)]))
    collect([path], tmp_path / "e", [SYSTEM])
    assert list(load_evidence(tmp_path / "e")) == [SYSTEM]
    collect([path], tmp_path / "e", [CXX])
    assert set(load_evidence(tmp_path / "e")) == {CXX, SYSTEM}


def test_a_name_that_could_break_the_file_is_left_out(tmp_path: Path) -> None:
    path = wheel(tmp_path, image([("_a'''\nx = 1", 256), ("_b c", 256), ("_ü", 256), ("_d$1", 256)]))
    assert collect([path], tmp_path / "e", [CXX]).added == 1
    assert lowest(tmp_path / "e", "_d$1") == "11.0"


def test_a_file_that_is_not_a_wheel_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no wheel"):
        collect([tmp_path], tmp_path / "e")
    (tmp_path / WHEEL).write_bytes(b"PK")
    with pytest.raises(ArchiveError, match="not a readable wheel"):
        collect([tmp_path], tmp_path / "e")
    with pytest.raises(ArchiveError, match="cannot be read"):
        collect([tmp_path / "w" / WHEEL], tmp_path / "e")
    with pytest.raises(ArchiveError, match="not named"):
        collect([wheel(tmp_path / "x", name="demo.whl")], tmp_path / "e")


@pytest.mark.parametrize("name", ["libc++", "@rpath/libx.dylib", "/opt/lib/libx.dylib", '/usr/lib/"x.dylib'])
def test_only_libraries_of_macos_can_be_requested(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not a library of macOS"):
        collect([wheel(tmp_path)], tmp_path / "e", [name])


def test_the_version_of_an_unreleased_system_is_not_kept(tmp_path: Path) -> None:
    data = image([("_a", 256)])
    version = struct.pack("<I", 0x10203)
    unreleased = data.replace(version, struct.pack("<I", 999 << 16))
    assert unreleased != data
    collect([wheel(tmp_path, data, unreleased)], tmp_path / "e", [CXX])
    assert load_evidence(tmp_path / "e")[CXX].file.current_version == "1.2.3"


def test_two_libraries_cannot_share_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has the file name of"):
        collect([wheel(tmp_path)], tmp_path / "e", [CXX, "/usr/lib/other/libc++.1.dylib"])


def test_a_framework_is_found_with_and_without_its_version_folder(tmp_path: Path) -> None:
    short = METAL.replace("/Versions/A", "")
    path = wheel(tmp_path, image([("_a", 256)], dylibs=(METAL,)), image([("_b", 256)], dylibs=(short,)))
    collect([path], tmp_path / "e", [METAL])
    evidence = load_evidence(tmp_path / "e")
    assert evidence[short].install_name == evidence[METAL].install_name == METAL
    assert evidence[METAL].symbols("arm64", "11.0") == ["_a", "_b"]


@pytest.mark.parametrize(
    "name", ["", "/", "/usr/lib/..", "/usr/lib/\0", "/usr/lib/libc++.2.dylib", "/tmp/libc++.1.dylib", "x" * 5000]
)
def test_no_other_name_finds_evidence(name: str) -> None:
    assert load_evidence().get(name) is None


def test_arm64e_is_judged_by_arm64() -> None:
    assert load_evidence()[CXX].lowest("__Znwm", "arm64e") == "11.0"


@pytest.mark.parametrize("text", ["[", "install_name = 3", 'install_name = "x"\nnames = "y"'])
def test_a_malformed_file_of_evidence_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "libc++.1.toml").write_text(text)
    with pytest.raises(ConfigError):
        load_evidence(tmp_path)[CXX]


def test_stubs_have_the_symbols_of_the_deployment_target(tmp_path: Path) -> None:
    symbols = [("__Znwm", 256 | TO_WEAK), ("_a", 256)]
    new = image([("_new", 256)], minos="13.3")
    collect([wheel(tmp_path, image(symbols), new)], tmp_path / "e", [CXX])
    stubs = write_stubs(tmp_path / "s", "arm64", "13.2", tmp_path / "e")
    assert stubs == {CXX: tmp_path / "s" / "libc++.1.tbd"}
    stub = read_stub(stubs[CXX].read_text())
    assert stub.symbols == {"__Znwm", "_a"}
    assert stub.weak == {"__Znwm"}
    assert (stub.install_name, stub.arch, stub.current) == (CXX, "arm64", "1.2.3")
    later = write_stubs(tmp_path / "s", "arm64", "13.3", tmp_path / "e")
    assert read_stub(later[CXX].read_text()).symbols == {"__Znwm", "_a", "_new"}
    with pytest.raises(UsageError, match="universal2"):
        write_stubs(tmp_path / "s", "universal2", "13.3", tmp_path / "e")
    with pytest.raises(UsageError, match="not a version"):
        write_stubs(tmp_path / "s", "arm64", "new", tmp_path / "e")


def test_the_evidence_of_macbuild_is_in_order() -> None:
    libraries = load_evidence()
    assert {CXX, SYSTEM, METAL} < set(libraries)
    for name, library in libraries.items():
        for arch in ARCHS:
            names = [
                symbol for group in library.file.evidence if group.arch == arch for symbol in group.symbols.split()
            ]
            assert len(names) == len(set(names)), f"{name} lists a symbol twice"
            assert library.weak <= {symbol for claims in library.claims.values() for symbol in claims}
        for group in library.file.evidence:
            assert pack_version(group.macos) >= pack_version("11.0" if group.arch == "arm64" else "10.4")
            assert re.fullmatch(r"[\w.+!-]+\.whl|ziglang-[\d.]+: libc(xx)?/include/[\w./-]+", group.wheel)


# Symbols that libc++ documents in `__configuration/availability.h`, and the first macOS with std::filesystem.
INTRODUCED = {
    r"__ZNSt3__18to_charsEPcS0_[dfe].*": "13.3",
    r"__ZNSt3__122__libcpp_verbose_abort.*": "13.3",
    r"__ZT?[NVI][KN]?.*St3__13pmr.*": "14.0",
    r"__ZNSt3__1(?:19|20)__(?:is_posix_terminal|get_ostream_file).*": "15.0",
    r"__ZNSt3__117__from_chars_floating_point.*": "26.0",
    r".*NSt3__14__fs10filesystem.*": "10.15",
    r"_aligned_alloc": "10.15",
    r"_cblas_\w+\$NEWLAPACK": "13.3",
    r"_pthread_jit_write_protect_np": "11.0",
    r"___darwin_check_fd_set_overflow": "11.0",
    r"_preadv|_pwritev": "11.0",
    r"_clock_gettime|_clonefile|_os_unfair_lock_lock": "10.12",
}


def test_no_evidence_is_older_than_the_documentation() -> None:
    seen = set()
    for library in load_evidence().values():
        for claims in library.claims.values():
            for pattern, version in INTRODUCED.items():
                for symbol in filter(re.compile(pattern).fullmatch, claims):
                    seen.add(pattern)
                    assert pack_version(claims[symbol].macos) >= pack_version(version), (symbol, claims[symbol])
    assert len(seen) >= len(INTRODUCED) - 3, "the patterns no longer find anything"


def test_operator_new_and_delete_are_weak() -> None:
    weak = load_evidence()[CXX].weak
    assert {"__Znwm", "__Znam", "__ZdlPv", "__ZdaPv", "__ZTISt12out_of_range"} <= weak
    everything = {symbol for claims in load_evidence()[CXX].claims.values() for symbol in claims}
    assert {symbol for symbol in everything if re.match("__Zn[wa]|__Zd[la]P", symbol)} <= weak


def test_the_commands_collect_show_and_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, evidence = wheel(tmp_path, image([("__Znwm", 256 | TO_WEAK)])), tmp_path / "e"
    assert run(["stubs", "collect", str(path), "--evidence", str(evidence), "--library", CXX]) == 0
    assert "1 symbols added" in capsys.readouterr().err
    assert run(["stubs", "show", "__Znwm", "--evidence", str(evidence)]) == 0
    assert capsys.readouterr().out == f"{CXX}  arm64  macOS 11.0, weak  (SDK 14.0, {WHEEL})\n"
    write = ["stubs", "write", str(tmp_path / "s"), "--arch", "arm64", "--evidence", str(evidence)]
    assert run([*write, "--deployment-target", "14.0"]) == 0
    assert read_stub((tmp_path / "s" / "libc++.1.tbd").read_text()).weak == {"__Znwm"}


def test_the_commands_say_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stubs", "show", "_no_such_symbol"]) == UsageError.exit_code
    assert "no evidence for _no_such_symbol" in capsys.readouterr().err
    assert run(["stubs", "show", "___darwin_check_fd_set_overflow", "--arch", "x86_64"]) == 0
    assert "arm64" not in capsys.readouterr().out.partition("(")[0]
    assert run(["stubs", "write", str(tmp_path / "s")]) == UsageError.exit_code
    assert "no deployment target" in capsys.readouterr().err
