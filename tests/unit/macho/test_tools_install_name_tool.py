from __future__ import annotations

from pathlib import Path

import pytest
from delocate.tools import _parse_otool_install_names, _parse_otool_listing, _parse_otool_rpaths

from macbuild.macho.sign import sign_bytes
from macbuild.macho.tools.install_name_tool import main
from macbuild.macho.tools.otool import main as otool
from macbuild.macho.verify import verify_file
from tests.support import machobytes

DYLIBS = ("@rpath/liba.dylib", "/usr/lib/libSystem.B.dylib")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "libx.dylib"
    content = machobytes.dylib(dylibs=DYLIBS, rpaths=["/old", "@loader_path"])
    target.write_bytes(sign_bytes(content, target.name))
    return target


def facts(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[str], list[str]]:
    """Return id, dependencies and rpaths as delocate reads them from our otool."""
    out = []
    for option in ("-D", "-L", "-l"):
        assert otool(["-arch", "all", "-m", option, str(path)]) == 0
        out.append(capsys.readouterr().out)
    ids = _parse_otool_listing(out[0])[""]
    names = [name for name, _, _ in _parse_otool_install_names(out[1])[""]]
    return ids, names[len(ids) :], _parse_otool_rpaths(out[2])[""]


def fails(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("error: install_name_tool: ")
    return err


def test_all_edits_in_one_call_keep_the_signature_valid(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inode = path.stat().st_ino
    arguments = ["-id", "@rpath/new.dylib", "-change", DYLIBS[0], "@rpath/b.dylib", "-rpath", "/old", "@loader_path/.."]
    arguments += ["-add_rpath", "@loader_path/more", "-delete_rpath", "@loader_path", str(path)]
    assert main(arguments) == 0
    assert capsys.readouterr() == ("", "")
    assert facts(path, capsys) == (
        ["@rpath/new.dylib"],
        ["@rpath/b.dylib", DYLIBS[1]],
        ["@loader_path/..", "@loader_path/more"],
    )
    verify_file(path)
    assert path.stat().st_ino != inode


def test_missing_names_are_ignored_as_in_the_manual(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    assert main(["-change", "/not/there.dylib", "@rpath/b.dylib", str(path)]) == 0
    assert path.read_bytes() == before
    bundle = bytearray(machobytes.dylib())
    bundle[12] = 8
    bundle = bundle.replace(b"\x0d\0\0\0", b"\x0c\0\0\0", 1)
    path.write_bytes(bundle)
    assert main(["-id", "@rpath/new", str(path)]) == 0
    assert path.read_bytes() == bundle
    assert capsys.readouterr() == ("", "")


def test_a_duplicate_rpath_is_removed_in_both_places(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(machobytes.dylib(rpaths=["/old", "@loader_path", "/old"]))
    assert main(["-delete_rpath", "/old", str(path)]) == 0
    assert facts(path, capsys)[2] == ["@loader_path"]


def test_one_slice_that_has_the_rpath_is_enough(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = [machobytes.dylib("x86_64", rpaths=["/intel", "/both"]), machobytes.dylib("arm64", rpaths=["/both"])]
    path.write_bytes(machobytes.fat(*images))
    assert main(["-delete_rpath", "/intel", str(path)]) == 0
    assert otool(["-l", str(path)]) == 0
    assert _parse_otool_rpaths(capsys.readouterr().out) == {"x86_64": ["/both"], "arm64": ["/both"]}


def test_a_link_stays_a_link(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = path.with_name("link.dylib")
    link.symlink_to(path.name)
    assert main(["-id", "@rpath/new.dylib", str(link)]) == 0
    assert link.is_symlink()
    assert facts(path, capsys)[0] == ["@rpath/new.dylib"]


def test_usage_names_the_flag_that_bundle_utilities_looks_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert "-delete_rpath" in fails(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-delete_rpath", "/no"], 'path: /no found in: {}, required for specified option "-delete_rpath /no"'),
        (["-rpath", "/no", "/x"], 'path: /no found in: {}, required for specified option "-rpath /no /x"'),
        (["-add_rpath", "/old"], 'for: {} option "-add_rpath /old" would duplicate path, file already has'),
        (["-id", "x" * 5000], "can't be redone for: {} because larger updated load commands do not fit"),
        (["-id", "a", "-id", "b"], "more than one: -id option specified"),
        (["-change", "a", "b", "-change", "a", "c"], '"-change a b" and "-change a c" can\'t both be specified'),
        (["-delete_rpath", "/old", "-rpath", "/old", "/new"], "can't both be specified"),
        (["-delete_rpath", "/old", "-add_rpath", "/old"], "can't both be specified"),
        (["-add_rpath", "/a", "-add_rpath", "/a"], '"-add_rpath /a" specified more than once'),
        (["-headerpad", "/a"], "unknown option: -headerpad"),
        ([], "no options specified"),
        (["-id", "a", "second.dylib"], "more than one input file specified (second.dylib and {})"),
    ],
)  # fmt: skip
def test_an_impossible_call_says_why_and_changes_nothing(
    arguments: list[str], message: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = path.read_bytes(), path.stat().st_ino
    error = fails(capsys, *arguments, path)
    assert message.format(path) in error
    assert (path.read_bytes(), path.stat().st_ino) == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-id", "a"], "no input file specified"),
        (["x", "-change", "a"], "missing argument(s) to: -change option"),
        (["-id", "a", "missing.dylib"], "missing.dylib: cannot be read: No such file or directory"),
    ],
)
def test_a_call_without_a_usable_file_says_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in fails(capsys, *arguments)


def test_a_file_that_is_not_macho_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "script.sh"
    text.write_text("#!/bin/sh\nexit 0\n" * 9)
    assert "not a Mach-O file" in fails(capsys, "-id", "a", text)
