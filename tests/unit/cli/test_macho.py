from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import macbuild.cli.macho
from macbuild.cli.app import run
from macbuild.macho.file import open_macho
from macbuild.macho.sign import SignOptions, sign_bytes
from macbuild.macho.tools.path import tool_folder
from macbuild.macho.verify import verify_file
from tests.support import machobytes

DYLIBS = ("@rpath/liba.dylib", "/usr/lib/libSystem.B.dylib")
SCHEMA = json.loads(Path(macbuild.cli.macho.__file__).with_name("macho.schema.json").read_text())


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MACBUILD_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def fat(tmp_path: Path) -> Path:
    images = [
        sign_bytes(machobytes.dylib(arch, dylibs=DYLIBS, rpaths=["@loader_path", f"/{arch}"]), arch)
        for arch in ("x86_64", "arm64")
    ]
    path = tmp_path / "fat.dylib"
    path.write_bytes(machobytes.fat(*images))
    return path


def succeed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run(["macho", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def report(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(succeed(capsys, *arguments, "--json"))
    jsonschema.validate(data, SCHEMA)
    return data


def rpaths(path: Path) -> list[tuple[str, ...]]:
    with open_macho(path) as macho:
        return [image.rpaths for image in macho.images]


def test_show_reports_the_facts_of_both_slices(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = report(capsys, "show", fat)
    (shown,) = data["files"]
    assert data["version"] == 1
    assert shown["universal"] is True
    assert [facts["arch"] for facts in shown["slices"]] == ["x86_64", "arm64"]
    for facts in shown["slices"]:
        assert facts["id"]["name"] == "@rpath/libx.dylib"
        assert [dylib["name"] for dylib in facts["dependencies"]] == list(DYLIBS)
        assert facts["dependencies"][0]["current_version"] == "1.2.3"
        assert facts["rpaths"] == ["@loader_path", f"/{facts['arch']}"]
        assert (facts["platform"], facts["minimum_macos"], facts["sdk"]) == ("macos", "11.0", "14.0")
        assert facts["header_room"] == 4096
        assert facts["signature"]["kind"] == "adhoc"


def test_show_as_text_has_the_same_facts(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = succeed(capsys, "show", fat)
    for word in (str(fat), "x86_64 dylib", "arm64 dylib", "@rpath/liba.dylib (current 1.2.3", "/arm64", "4096 bytes"):
        assert word in text


def test_show_of_an_unsigned_file_says_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.dylib"
    path.write_bytes(machobytes.dylib())
    assert report(capsys, "show", path)["files"][0]["slices"][0]["signature"] is None


def test_control_sequences_in_names_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.dylib"
    content = machobytes.dylib(id="@rpath/EVIL_BYTES.dylib")
    path.write_bytes(content.replace(b"EVIL_BYTES", b"\x1b[31m\xff\n\tzz"))
    text = succeed(capsys, "show", path)
    assert "\x1b" not in text
    assert "@rpath/\\x1b[31m\\udcff\\n\\tzz.dylib" in text
    assert report(capsys, "show", path)["files"][0]["slices"][0]["id"]["name"] == "@rpath/\x1b[31m\udcff\n\tzz.dylib"


def test_verify_reports_each_slice(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slices = report(capsys, "verify", fat)["files"][0]["slices"]
    assert [(entry["arch"], entry["signature"]["cdhash"]) for entry in slices] == [
        (facts.arch, facts.cdhash) for facts in verify_file(fat)
    ]
    assert len(succeed(capsys, "verify", fat).splitlines()) == 2


def test_verify_exits_13_with_the_first_bad_page(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(fat.read_bytes())
    with open_macho(fat) as macho:
        content[macho.fat[1].offset + 0x2010] ^= 1
    fat.write_bytes(content)
    assert run(["macho", "verify", "--json", str(fat)]) == 13
    out, err = capsys.readouterr()
    assert not out
    assert f"{fat} (arm64): page 2 (bytes 8192 to 12288) does not match" in err


def test_verify_of_an_unsigned_file_exits_13_and_of_a_text_11(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    path.write_bytes(machobytes.dylib())
    assert run(["macho", "verify", str(path)]) == 13
    assert "macbuild macho sign" in capsys.readouterr().err
    path.write_text("not a Mach-O file at all, just a text")
    assert run(["macho", "verify", str(path)]) == 11


def test_edit_makes_all_changes_in_one_call(fat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = fat.read_bytes()
    output = tmp_path / "out.dylib"
    succeed(
        capsys, "edit", fat, "--id", "@rpath/new.dylib", "--change", DYLIBS[0], "@rpath/b.dylib",
        "--change", DYLIBS[1], "/usr/lib/libSystem.dylib", "--weaken", DYLIBS[0],
        "--replace-rpath", "@loader_path", "@loader_path/..", "--add-rpath", "@loader_path/a", "--add-rpath", "/b",
        "--minimum-macos", "12.3", "--output", output,
    )  # fmt: skip
    assert fat.read_bytes() == before
    for facts in report(capsys, "show", output)["files"][0]["slices"]:
        assert facts["id"]["name"] == "@rpath/new.dylib"
        assert [(dylib["name"], dylib["kind"]) for dylib in facts["dependencies"]] == [
            ("@rpath/b.dylib", "weak"),
            ("/usr/lib/libSystem.dylib", "load"),
        ]
        assert facts["rpaths"] == ["@loader_path/..", f"/{facts['arch']}", "@loader_path/a", "/b"]
        assert facts["minimum_macos"] == "12.3"
    assert len(verify_file(output)) == 2


def test_edit_replaces_all_rpaths_or_those_of_one_slice(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    succeed(capsys, "edit", fat, "--arch", "arm64", "--set-rpaths", "/1", "--set-rpaths", "/2")
    assert rpaths(fat) == [("@loader_path", "/x86_64"), ("/1", "/2")]
    succeed(capsys, "edit", fat, "--delete-rpath", "/x86_64", "--delete-rpath", "/2")
    assert rpaths(fat) == [("@loader_path",), ("/1",)]


def test_edit_removes_duplicate_rpaths_and_dependencies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.dylib"
    path.write_bytes(machobytes.dylib(dylibs=DYLIBS, rpaths=["/a", "/b", "/a"]))
    succeed(capsys, "edit", path, "--deduplicate-rpaths", "--remove", DYLIBS[0])
    assert rpaths(path) == [("/a", "/b")]
    with open_macho(path) as macho:
        assert [dylib.name for dylib in macho.images[0].dylibs] == [DYLIBS[1]]


def test_edit_strips_the_signature(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    succeed(capsys, "edit", fat, "--strip-signature")
    assert [facts["signature"] for facts in report(capsys, "show", fat)["files"][0]["slices"]] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "nothing to change"),
        (["--change", "only-one"], 2, "--change: takes two words"),
        (["--change", "a", "b", "--change", "a", "c"], 2, "--change: two different new names for a"),
        (["--minimum-macos", "eleven"], 2, "eleven"),
        (["--change", "/not/there", "b"], 11, "has no dependency /not/there"),
        (["--set-rpaths", "/1", "--add-rpath", "/2"], 11, "excludes"),
        (["--id", "x" * 5000], 12, "4096 bytes are free"),
    ],
)
def test_impossible_edit_exits_with_its_code_and_changes_nothing(
    arguments: list[str], code: int, message: str, fat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = fat.read_bytes()
    assert run(["macho", "edit", str(fat), *arguments]) == code
    assert message in capsys.readouterr().err
    assert fat.read_bytes() == before


def test_sign_keeps_or_drops_the_old_metadata(fat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.dylib"
    path.write_bytes(sign_bytes(machobytes.dylib(), "x", SignOptions(identifier="org.example.x", flags=0)))
    plist = tmp_path / "e.plist"
    plist.write_bytes(b'<plist version="1.0"><dict><key>a</key><true/></dict></plist>')
    succeed(capsys, "sign", path, "--runtime", "--entitlements", plist)
    (facts,) = verify_file(path)
    assert (facts.identifier, set(facts.flags)) == ("org.example.x", {"adhoc", "runtime"})
    assert facts.entitlements == plist.read_text()
    succeed(capsys, "sign", path, "--no-preserve", "--output", tmp_path / "new")
    (facts,) = verify_file(tmp_path / "new")
    assert facts.identifier != "org.example.x"
    assert (facts.flags, facts.entitlements) == (("adhoc",), None)
    succeed(capsys, "sign", fat, "--identifier", "org.example.fat")
    assert [facts.identifier for facts in verify_file(fat)] == ["org.example.fat", "org.example.fat"]


def test_a_missing_entitlements_file_is_named(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["macho", "sign", str(fat), "--entitlements", "no.plist"]) == 2
    assert "no.plist" in capsys.readouterr().err


def test_thin_and_merge_are_inverse(fat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arch in ("arm64", "x86_64"):
        succeed(capsys, "thin", fat, arch, "-o", tmp_path / arch)
    succeed(capsys, "merge", tmp_path / "arm64", tmp_path / "x86_64", "-o", tmp_path / "again")
    assert [facts.arch for facts in verify_file(tmp_path / "again")] == ["x86_64", "arm64"]
    assert run(["macho", "merge", str(fat), str(tmp_path / "arm64"), "-o", str(tmp_path / "no")]) == 11
    assert not (tmp_path / "no").exists()


def test_messages_go_to_stderr_and_quiet_silences_them(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["macho", "edit", str(fat), "--add-rpath", "/new"]) == 0
    assert capsys.readouterr() == ("", f"{fat}: edited\n")
    assert run(["macho", "edit", str(fat), "--add-rpath", "/newer", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_path_prints_a_folder_whose_tools_run_from_anywhere(
    fat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(succeed(capsys, "path").removesuffix("\n"))
    assert tmp_path / "cache" in folder.parents
    assert sorted(path.name for path in folder.iterdir()) == ["codesign", "install_name_tool", "lipo", "otool"]
    # A module in the folder where a tool is called must not be loaded in place of one of the standard library.
    (tmp_path / "struct.py").write_text("raise SystemExit('loaded from the current folder')")
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}

    def call(*command: str) -> str:
        result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        return result.stdout

    assert call("lipo", "-archs", "fat.dylib") == "x86_64 arm64\n"
    call("install_name_tool", "-id", "@rpath/with a blank.dylib", "fat.dylib")
    call("codesign", "--force", "--sign", "-", "fat.dylib")
    assert call("otool", "-arch", "arm64", "-D", "fat.dylib") == "fat.dylib:\n@rpath/with a blank.dylib\n"
    assert len(verify_file(fat)) == 2


def test_tool_folder_is_made_once_and_restored(tmp_path: Path) -> None:
    folder = tool_folder(tmp_path / "with a blank")
    before = (folder / "otool").stat().st_ino
    assert tool_folder(tmp_path / "with a blank") == folder
    assert (folder / "otool").stat().st_ino == before
    (folder / "otool").write_text("broken")
    tool_folder(tmp_path / "with a blank")
    result = subprocess.run([folder / "otool", "-L"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.splitlines()[0]) == (
        1,
        "error: otool: at least one file must be specified",
    )


def test_a_tool_prints_a_name_that_is_not_utf8_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "x.dylib"
    path.write_bytes(machobytes.dylib(id="@rpath/EVIL.dylib").replace(b"EVIL", b"\xff\xfez\x80"))
    command = [sys.executable, "-c", "from macbuild.macho.tools import otool; otool()", "-D", str(path)]
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(Path(macbuild.__file__).parents[1])}
    result = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert result.stdout.splitlines()[-1] == b"@rpath/\xff\xfez\x80.dylib"


@pytest.mark.parametrize("tool", ["codesign", "install_name_tool", "lipo", "otool"])
def test_a_tool_loads_neither_typer_nor_rich(tool: str) -> None:
    code = (
        "import sys\nfrom macbuild.macho.tools import " + tool + "\n"
        "try:\n    " + tool + "()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'typer', 'rich', 'msgspec', 'argparse'} & set(sys.modules)))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(macbuild.__file__).parents[1])}
    result = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert result.stdout == "[]\n"
