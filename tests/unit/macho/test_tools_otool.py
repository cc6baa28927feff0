from __future__ import annotations

import re
import struct
from pathlib import Path

import lief
import pytest
from delocate.tools import _parse_otool_install_names, _parse_otool_listing, _parse_otool_rpaths

from macbuild.macho.sign import sign_bytes
from macbuild.macho.tools.otool import main
from tests.support import machobytes

DYLIBS = ("@rpath/libz.dylib", "/usr/lib/libSystem.B.dylib")
RPATHS = ("@loader_path", "@loader_path/../a folder")

# CMake 3.25: cmBinUtilsMacOSMachOOToolGetRuntimeDependenciesTool and GetPrerequisites.cmake.
CMAKE_LOAD = re.compile(r"^ *cmd LC_LOAD(_WEAK)?_DYLIB$")
CMAKE_RPATH = re.compile(r"^ *cmd LC_RPATH$")
CMAKE_NAME = re.compile(r"^ *(?:name|path) (.*) \(offset [0-9]+\)$")
CMAKE_LIBRARY = re.compile(
    r"^\t([^\t]+) \(compatibility version ([0-9]+.[0-9]+.[0-9]+), current version ([0-9]+.[0-9]+.[0-9]+)(, weak)?\)$"
)


@pytest.fixture
def thin(tmp_path: Path) -> Path:
    path = tmp_path / "lib thin.dylib"
    content = machobytes.dylib(dylibs=DYLIBS, rpaths=RPATHS, minos="13.3", sdk="14.2.1")
    path.write_bytes(sign_bytes(content, path.name))
    return path


@pytest.fixture
def fat(tmp_path: Path) -> Path:
    path = tmp_path / "fat.dylib"
    images = [machobytes.dylib(arch, id=f"@rpath/{arch}.dylib", rpaths=[f"/{arch}"]) for arch in ("x86_64", "arm64")]
    path.write_bytes(machobytes.fat(*images))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    out, err = capsys.readouterr()
    assert not err
    return out


def test_libraries_have_the_form_of_the_manual(thin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        f"{thin}:",
        "\t@rpath/libx.dylib (compatibility version 1.0.0, current version 1.2.3)",
        "\t@rpath/libz.dylib (compatibility version 1.0.0, current version 1.2.3)",
        "\t/usr/lib/libSystem.B.dylib (compatibility version 1.0.0, current version 1.2.3)",
    ]
    assert run(capsys, "-L", thin).splitlines() == lines


@pytest.mark.parametrize(
    ("cmd", "suffix"), [(0x80000018, "weak"), (0x8000001F, "reexport"), (0x80000023, "upward"), (0x20, "lazy")]
)
def test_libraries_show_how_they_are_linked(
    cmd: int, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = machobytes.dylib()
    at = content.index(struct.pack("<I", 0xC), 32)
    path = tmp_path / "x.dylib"
    path.write_bytes(content[:at] + struct.pack("<I", cmd) + content[at + 4 :])
    assert run(capsys, "-L", path).splitlines()[-1].endswith(f", current version 1.2.3, {suffix})")


def test_delocate_parses_the_output_for_a_thin_file(thin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = _parse_otool_install_names(run(capsys, "-arch", "all", "-m", "-L", thin))
    assert names == {"": [(name, "1.0.0", "1.2.3") for name in ("@rpath/libx.dylib", *DYLIBS)]}
    assert _parse_otool_listing(run(capsys, "-arch", "all", "-m", "-D", thin)) == {"": ["@rpath/libx.dylib"]}
    assert _parse_otool_rpaths(run(capsys, "-arch", "all", "-m", "-l", thin)) == {"": list(RPATHS)}


def test_delocate_parses_each_slice_of_a_fat_file(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = _parse_otool_listing(run(capsys, "-arch", "all", "-m", "-D", fat))
    assert ids == {"x86_64": ["@rpath/x86_64.dylib"], "arm64": ["@rpath/arm64.dylib"]}
    rpaths = _parse_otool_rpaths(run(capsys, "-arch", "all", "-m", "-l", fat))
    assert rpaths == {"x86_64": ["/x86_64"], "arm64": ["/arm64"]}
    names = _parse_otool_install_names(run(capsys, "-arch", "all", "-m", "-L", fat))
    assert [name for name, _, _ in names["arm64"]] == ["@rpath/arm64.dylib", "/usr/lib/libSystem.B.dylib"]


def test_one_architecture_is_printed_without_a_label(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "-arch", "arm64", "-D", fat) == f"{fat}:\n@rpath/arm64.dylib\n"
    both = run(capsys, "-arch", "arm64", "-arch", "x86_64", "-D", fat).splitlines()
    assert both[::2] == [f"{fat} (architecture arm64):", f"{fat} (architecture x86_64):"]


def test_cmake_parses_the_load_commands(thin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "-l", thin).splitlines()
    found: dict[str, list[str]] = {"load": [], "rpath": []}
    for index, line in enumerate(lines):
        kind = "load" if CMAKE_LOAD.match(line) else "rpath" if CMAKE_RPATH.match(line) else None
        if kind is not None:
            match = CMAKE_NAME.match(lines[index + 2])
            assert match is not None
            found[kind].append(match[1])
    assert found == {"load": list(DYLIBS), "rpath": list(RPATHS)}


def test_cmake_parses_the_libraries(thin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "-L", thin).splitlines()
    assert [match[1] for match in map(CMAKE_LIBRARY.match, lines) if match] == ["@rpath/libx.dylib", *DYLIBS]


def blocks(text: str) -> list[dict[str, str]]:
    """Read the listing back: one dictionary per load command, the first of equal labels counts."""
    found: list[dict[str, str]] = []
    for line in text.splitlines():
        if line.startswith("Load command "):
            assert line == f"Load command {len(found)}"
            found.append({})
        elif found:
            key, _, value = line.strip().partition(" ")
            found[-1].setdefault(key, value)
    return found


def test_load_commands_agree_with_lief(thin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = {block["cmd"]: block for block in blocks(run(capsys, "-l", thin))}
    parsed = lief.MachO.parse(str(thin))
    assert parsed is not None
    binary = parsed.at(0)
    assert binary is not None
    assert len(blocks(run(capsys, "-l", thin))) == binary.header.nb_cmds
    assert binary.code_signature is not None
    assert binary.uuid is not None
    assert binary.build_version is not None
    signature = commands["LC_CODE_SIGNATURE"]
    assert int(signature["dataoff"]) == binary.code_signature.data_offset
    assert int(signature["datasize"]) == binary.code_signature.data_size
    assert bytes.fromhex(commands["LC_UUID"]["uuid"].replace("-", "")) == bytes(binary.uuid.uuid)
    version = commands["LC_BUILD_VERSION"]
    assert (version["platform"], version["minos"], version["sdk"]) == ("1", "13.3", "14.2.1")
    assert binary.build_version.minos == [13, 3, 0]
    linkedit = binary.get_segment("__LINKEDIT")
    assert linkedit is not None
    listed = commands["LC_SEGMENT_64"] | blocks(run(capsys, "-l", thin))[1]
    assert listed["segname"] == "__LINKEDIT"
    assert int(listed["fileoff"]) == linkedit.file_offset
    assert int(listed["vmsize"], 16) == linkedit.virtual_size
    text = blocks(run(capsys, "-l", thin))[0]
    section = binary.get_section("__text")
    assert section is not None
    assert text["sectname"] == "__text"
    assert int(text["offset"]) == section.offset
    assert int(text["size"], 16) == section.size


def test_an_unknown_load_command_is_shown_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = machobytes.dylib(rpaths=["/long/enough"])
    at = content.index(struct.pack("<I", 0x8000001C), 32)
    path = tmp_path / "x.dylib"
    path.write_bytes(content[:at] + struct.pack("<I", 0x7F) + content[at + 4 :])
    lines = run(capsys, "-l", path).splitlines()
    assert lines[-4].endswith("cmd ?(0x0000007f) Unknown load command")
    assert lines[-3].strip() == "cmdsize 32"
    words = [int(word, 16) for line in lines[-2:] for word in line.split()]
    assert struct.pack("<6I", *words) == struct.pack("<I", 12) + b"/long/enough".ljust(20, b"\0")


def test_header_and_fat_header_are_shown(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = run(capsys, "-arch", "arm64", "-h", fat).splitlines()
    assert header[2].split()[:5] == ["magic", "cputype", "cpusubtype", "caps", "filetype"]
    assert header[3].split()[:5] == ["0xfeedfacf", "16777228", "0", "0x00", "6"]
    lines = run(capsys, "-f", fat).splitlines()
    assert lines[:3] == ["Fat headers", "fat_magic 0xcafebabe", "nfat_arch 2"]
    assert lines[10:14] == ["architecture 1", "    cputype 16777228", "    cpusubtype 0", "    capabilities 0x0"]


def test_a_file_that_is_not_an_object_does_not_stop_the_others(
    thin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("text that is longer than a Mach-O header would be")
    java = tmp_path / "X.class"
    java.write_bytes(struct.pack(">2I", 0xCAFEBABE, 61) + bytes(64))
    out = run(capsys, "-D", text, java, thin)
    assert out == f"{text}: is not an object file\n{java}: is not an object file\n{thin}:\n@rpath/libx.dylib\n"


def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    thin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"
    assert main(["-D", str(missing), str(thin)]) == 1
    out, err = capsys.readouterr()
    assert err == f"error: otool: can't open file: {missing} (No such file or directory)\n"
    assert out.endswith("@rpath/libx.dylib\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-L", "-arch", "i386", "FILE"], "does not contain architecture: i386"),
        (["-tV", "FILE"], "unknown option: -tV"),
        (["--help"], "unknown option: --help"),
        (["-L"], "at least one file must be specified"),
        (["-m", "FILE"], "one of -fhlLD must be specified"),
        (["-L", "FILE", "-arch"], "missing argument to -arch option"),
    ],
)
def test_wrong_calls_exit_1_with_one_reason(
    arguments: list[str], message: str, thin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(thin) if argument == "FILE" else argument for argument in arguments]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert message in err.splitlines()[0]


@pytest.mark.parametrize("size", range(8, 700, 31))
def test_a_truncated_file_is_an_error_and_never_a_crash(
    size: int, thin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.dylib"
    path.write_bytes(thin.read_bytes()[:size])
    assert main(["-L", "-l", "-h", "-f", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"error: otool: {path}: ")
