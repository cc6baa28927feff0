from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

from macbuild.macho.codesign import CodeFlag
from macbuild.macho.sign import SignOptions, sign_bytes
from macbuild.macho.tools.codesign import main
from macbuild.macho.verify import SignatureFacts, verify_file
from tests.support import machobytes

ENTITLEMENTS = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict><key>com.apple.security.cs.allow-jit</key><true/></dict></plist>
"""
SIGNED = SignOptions(identifier="org.example.x", flags=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "libx.dylib"
    target.write_bytes(machobytes.dylib())
    return target


def sign(path: Path, options: SignOptions = SIGNED, arch: str = "arm64") -> Path:
    path.write_bytes(sign_bytes(machobytes.dylib(arch), path.name, options))
    return path


def facts(path: Path) -> SignatureFacts:
    (found,) = verify_file(path)
    return found


def fails(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 1) -> str:
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    assert not out
    return err


def test_signs_an_unsigned_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inode = path.stat().st_ino
    assert main(["--force", "--sign", "-", str(path)]) == 0
    assert capsys.readouterr() == ("", "")
    assert facts(path).flags == ("adhoc",)
    assert path.stat().st_ino != inode


@pytest.mark.parametrize("arguments", [["-s", "-", "-f"], ["-fs", "-"], ["-f", "-s-"], ["--force", "--sign=-"]])
def test_replaces_a_signature_in_each_form_of_the_call(
    arguments: list[str], path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sign(path)
    assert main([*arguments, "-i", "org.example.new", "--timestamp=none", str(path)]) == 0
    assert capsys.readouterr().err == f"{path}: replacing existing signature\n"
    assert facts(path).identifier == "org.example.new"


def test_replaces_unasked_only_the_signature_of_a_linker(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sign(path).read_bytes()
    assert fails(capsys, "-s", "-", path) == f"{path}: is already signed\n"
    assert path.read_bytes() == before
    sign(path, SignOptions(flags=CodeFlag.LINKER_SIGNED))
    assert facts(path).kind == "linker-signed"
    assert main(["-s", "-", str(path)]) == 0
    assert facts(path).kind == "adhoc"


def test_signs_with_flags_and_entitlements(path: Path, tmp_path: Path) -> None:
    plist = tmp_path / "e.plist"
    plist.write_bytes(ENTITLEMENTS)
    assert main(["-fs-", "-o", "runtime,library", "--entitlements", str(plist), str(path)]) == 0
    found = facts(path)
    assert set(found.flags) == {"adhoc", "runtime", "library-validation"}
    assert found.entitlements == ENTITLEMENTS.decode()


def test_drops_the_old_metadata_unless_told_to_preserve_it(path: Path) -> None:
    old = SignOptions(identifier="org.example.old", flags=CodeFlag.RUNTIME, entitlements=ENTITLEMENTS)
    sign(path, old)
    assert main(["-fs-", "--preserve-metadata=identifier,entitlements", str(path)]) == 0
    found = facts(path)
    assert (found.identifier, found.flags) == ("org.example.old", ("adhoc",))
    assert found.entitlements == ENTITLEMENTS.decode()
    sign(path, old)
    assert main(["-fs-", "--preserve-metadata", str(path)]) == 0
    assert set(facts(path).flags) == {"adhoc", "runtime"}
    assert main(["-fs-", str(path)]) == 0
    found = facts(path)
    assert found.identifier != "org.example.old"
    assert (found.flags, found.entitlements) == (("adhoc",), None)


def test_verify_is_silent_about_a_valid_file_unless_verbose(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sign(path)
    for quiet in (["--verify"], ["-v"], ["--verify", "--strict", "--deep"], ["--verify", "--all-architectures"]):
        assert main([*quiet, str(path)]) == 0
        assert capsys.readouterr() == ("", "")
    for loud in (["--verify", "--verbose"], ["-vv"], ["--verify", "--verbose=4"]):
        assert main([*loud, str(path)]) == 0
        assert capsys.readouterr().err.splitlines()[0] == f"{path}: valid on disk"


def test_verify_prints_delocates_phrase_without_a_signature(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(capsys, "--verify", path) == f"{path}: code object is not signed at all\nIn architecture: arm64\n"


def test_verify_names_the_slice_and_the_first_bad_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = [bytearray(sign_bytes(machobytes.dylib(arch), "fat.dylib")) for arch in ("x86_64", "arm64")]
    images[1][0x2010] ^= 1
    path = tmp_path / "fat.dylib"
    path.write_bytes(machobytes.fat(*map(bytes, images)))
    lines = fails(capsys, "--verify", path).splitlines()
    assert lines[:2] == [
        f"{path}: invalid signature (code or signature have been modified)",
        "In architecture: arm64",
    ]
    assert "page 2 (bytes 8192 to 12288)" in lines[2]
    assert main(["--verify", "-a", "x86_64", str(path)]) == 0


def test_one_bad_file_does_not_hide_a_good_one(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = sign(tmp_path / "good.dylib")
    error = fails(capsys, "-vv", path, good)
    assert f"{path}: code object is not signed at all" in error
    assert f"{good}: valid on disk" in error


def test_display_prints_the_facts_of_the_code_directory(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sign(path)
    found = facts(path)
    assert main(["-dvvvv", str(path)]) == 0
    out, err = capsys.readouterr()
    assert not out
    lines = dict(line.split("=", 1) for line in err.splitlines() if not line.startswith(("CodeDirectory", "Internal")))
    assert lines["Executable"] == str(path.resolve())
    assert lines["Identifier"] == "org.example.x"
    assert lines["Format"] == "Mach-O thin (arm64)"
    assert lines["CDHash"] == lines["CandidateCDHash sha256"] == found.cdhash
    assert lines["CandidateCDHashFull sha256"].startswith(found.cdhash)
    assert lines["Page size"] == str(found.page_size)
    assert lines["Signature"] == "adhoc"
    assert lines["TeamIdentifier"] == "not set"
    directory = next(line for line in err.splitlines() if line.startswith("CodeDirectory"))
    pattern = rf"CodeDirectory v=20400 size=\d+ flags=0x2\(adhoc\) hashes={found.pages}\+2 location=embedded"
    assert re.fullmatch(pattern, directory)


def test_display_shows_less_with_less_verbosity(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sign(path, SignOptions(flags=CodeFlag.LINKER_SIGNED))
    assert main(["-d", str(path)]) == 0
    assert capsys.readouterr().err == f"Executable={path.resolve()}\n"
    assert main(["--display", "--verbose", str(path)]) == 0
    err = capsys.readouterr().err
    assert "flags=0x20002(adhoc,linker-signed)" in err
    assert "CDHash" not in err
    assert err.endswith("Internal requirements=none\n")


def test_display_prints_entitlements_on_stdout(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sign(path, SignOptions(entitlements=ENTITLEMENTS))
    assert main(["-d", "--entitlements", "-", "--xml", str(path)]) == 0
    assert capsys.readouterr().out == ENTITLEMENTS.decode()


def test_removes_the_signature(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sign(path)
    assert main(["--remove-signature", str(path)]) == 0
    assert "not signed at all" in fails(capsys, "--verify", path)


def test_an_identity_is_refused_with_codesigns_message(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    error = fails(capsys, "--sign", "Developer ID Application: X", path)
    assert error.startswith(f"{path}: Developer ID Application: X: no identity found")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of --sign, --verify, --display and --remove-signature"),
        (["FILE"], "give one of"),
        (["-s", "-", "-d", "FILE"], "give one of"),
        (["-v"], "no path given"),
        (["-s"], "option requires an argument: -s"),
        (["--verify", "--requirements=x", "FILE"], "unrecognized option: --requirements=x"),
        (["-dz", "FILE"], "unrecognized option: -dz"),
        (["--force=1", "FILE"], "unrecognized option: --force=1"),
        (["--verify", "--verbose=all", "FILE"], "not a number: --verbose=all"),
        (["-fs-", "-o", "sandboxed", "FILE"], "unknown signature flag: sandboxed"),
        (["-fs-", "--preserve-metadata=team", "FILE"], "unknown kind of metadata to preserve: team"),
        (["-fs-", "--timestamp=http://127.0.0.1", "FILE"], "an ad hoc signature has no timestamp"),
        (["-fs-", "-a", "arm64", "FILE"], "all architectures of a file are signed together"),
    ],
)
def test_a_wrong_call_exits_2_and_changes_nothing(
    arguments: list[str], message: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = path.read_bytes()
    error = fails(capsys, *(path if argument == "FILE" else argument for argument in arguments), code=2)
    assert message in error.splitlines()[0]
    assert path.read_bytes() == before


@pytest.mark.parametrize("operation", [["-fs-"], ["-v"], ["-d"], ["--remove-signature"]])
def test_other_files_are_an_error_of_each_operation(
    operation: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "script"
    text.write_text("#!/bin/sh\n" * 9)
    assert fails(capsys, *operation, text).startswith(f"{text}: not a Mach-O file")
    assert fails(capsys, *operation, tmp_path / "no") == f"{tmp_path / 'no'}: No such file or directory\n"
    assert "bundles are not supported" in fails(capsys, *operation, tmp_path)


def test_slices_that_disagree_about_preserved_metadata_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = [
        sign_bytes(machobytes.dylib(arch), arch, SignOptions(identifier=f"org.{arch}")) for arch in ("x86_64", "arm64")
    ]
    path = tmp_path / "fat.dylib"
    path.write_bytes(machobytes.fat(*images))
    assert "different metadata" in fails(capsys, "-fs-", "--preserve-metadata=identifier", path)
    assert main(["-fs-", str(path)]) == 0
    assert len(verify_file(path)) == 2


def test_force_replaces_a_damaged_signature(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(sign(path).read_bytes())
    at = content.index(struct.pack(">I", 0xFADE0CC0))
    content[at + 8 : at + 12] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    assert "claims" in fails(capsys, "-s", "-", path)
    assert main(["-fs-", str(path)]) == 0
    facts(path)


def test_an_unreadable_entitlements_file_is_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    missing = os.fspath(path.with_name("missing.plist"))
    assert f"cannot read entitlement data: {missing}: No such file" in fails(
        capsys, "-fs-", "--entitlements", missing, path
    )
    assert path.read_bytes() == before
