from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macbuild.audit import Exemption, audit_tree, load_policy
from macbuild.errors import ConfigError, UsageError
from tests.support import machobytes
from tests.support.audits import (
    BUILD_VERSION,
    ID_DYLIB,
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


def test_a_sound_tree_has_no_finding(tmp_path: Path) -> None:
    put(
        tmp_path / "t",
        {
            "lib/libx.dylib": dylib(minos="13.4"),
            "lib/liby.dylib": dylib(
                "liby.dylib",
                dylibs=[SYSTEM, "@rpath/libx.dylib"],
                rpaths=["@loader_path"],
                minos="12.0.1",
                exports=["_g"],
            ),
            "include/x.h": b"",
        },
    )
    report = audit(tmp_path / "t", archs=frozenset({"arm64"}), minimum_macos="14.0")
    assert report.findings == ()
    assert report.ok
    assert (report.files, report.minimum_macos, report.archs) == (2, "13.4", ("arm64",))


def test_an_empty_tree_is_an_error_and_a_file_a_usage_error(tmp_path: Path) -> None:
    assert one(put(tmp_path / "t", {"README": b""}), "no-macho").file == "."
    with pytest.raises(UsageError, match="not a folder"):
        audit(tmp_path / "none")


def test_a_file_that_cannot_be_read_is_malformed(tmp_path: Path) -> None:
    root = put(tmp_path / "t", {"a.dylib": dylib()[:200]})
    assert "load commands end" in one(root, "malformed").message


def test_exports_that_loop_make_a_file_malformed(tmp_path: Path) -> None:
    data = dylib(exports=["_f"])
    at = data.index(b"_f\0", len(data) // 2)
    put(tmp_path, {"libx.dylib": data[: at + 3] + b"\x00" + data[at + 4 :]})
    assert "to the same node twice" in one(tmp_path, "malformed").message


def test_a_claimed_architecture_that_is_missing_is_named(tmp_path: Path) -> None:
    both = machobytes.fat(dylib(arch="x86_64"), dylib())
    put(tmp_path, {"libx.dylib": both, "liby.dylib": dylib("liby.dylib")})
    finding = only(audit(tmp_path, archs=frozenset({"arm64", "x86_64"})), "arch-missing")
    assert (finding.file, finding.slice) == ("liby.dylib", "x86_64")
    assert one(tmp_path, "arch-missing").message.endswith("which other files of the tree have")
    assert only(audit(tmp_path, archs=frozenset({"arm64"})), "arch-extra").slice == "x86_64"


def test_a_slice_that_needs_a_newer_macos_than_claimed_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, {"libx.dylib": dylib(minos="13.4")})
    assert only(audit(tmp_path, minimum_macos="13.3"), "minimum-os").message == "needs macOS 13.4, but 13.3 is claimed"
    assert audit(tmp_path, minimum_macos="13.4").ok


def test_platform_sdk_and_minimum_must_be_stated(tmp_path: Path, unsigned_is_fine: str) -> None:
    data = machobytes.dylib()
    foreign = put(tmp_path / "a", {"libx.dylib": patch_command(data, BUILD_VERSION, 8, 2)})
    assert one(foreign, "platform", unsigned_is_fine).message == "is for platform IOS"
    no_sdk = put(tmp_path / "b", {"libx.dylib": patch_command(data, BUILD_VERSION, 16, 0)})
    one(no_sdk, "sdk", unsigned_is_fine)
    none = put(tmp_path / "c", {"libx.dylib": patch_command(data, BUILD_VERSION, 0, 0x1B0)})
    assert "no LC_BUILD_VERSION" in one(none, "minimum-os", unsigned_is_fine).message


def test_too_little_header_room_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, {"libx.dylib": dylib(room=24)})
    assert one(tmp_path, "header-room").message.startswith("24 bytes are free")
    put(tmp_path, {"libx.dylib": dylib(room=32)})
    assert audit(tmp_path).findings == ()


def test_a_flat_namespace_is_an_error(tmp_path: Path, unsigned_is_fine: str) -> None:
    data = bytearray(machobytes.dylib())
    struct.pack_into("<I", data, 24, 0x5)
    one(put(tmp_path / "t", {"libx.dylib": bytes(data)}), "two-level", unsigned_is_fine)


@pytest.mark.parametrize("name", ["/opt/lib/libx.dylib", "libx.dylib", "@loader_path/libx.dylib", "/DLC/t/libx.dylib"])
def test_an_install_name_other_than_rpath_is_an_error(tmp_path: Path, name: str) -> None:
    put(tmp_path, {"libx.dylib": dylib(id=name)})
    finding = one(tmp_path, "install-name")
    assert name in finding.message
    assert "@rpath/libx.dylib" in finding.hint


def test_delocates_install_names_are_accepted_in_a_wheel(tmp_path: Path) -> None:
    put(tmp_path, {"pkg/.dylibs/libx.dylib": dylib(id="/DLC/pkg/.dylibs/libx.dylib")})
    assert audit(tmp_path, "wheel").findings == ()


def test_an_install_name_needs_a_file_or_link_of_that_name(tmp_path: Path) -> None:
    put(tmp_path, {"lib/libx.1.2.dylib": dylib("libx.1.dylib")})
    assert "no libx.1.dylib is beside it" in one(tmp_path, "install-name-file").message
    (tmp_path / "lib/libx.1.dylib").symlink_to("libx.1.2.dylib")
    assert audit(tmp_path).findings == ()


def test_rpaths_are_unique_relative_and_inside(tmp_path: Path) -> None:
    rpaths = [
        "@loader_path",
        "@loader_path",
        "/opt/lib",
        "lib",
        "@loader_path/../..",
        "@loader_path/..",
        "/usr/lib/swift",
    ]
    put(tmp_path, {"lib/libx.dylib": dylib(rpaths=rpaths)})
    found = {finding.rule: finding.message for finding in audit(tmp_path).findings}
    assert set(found) == {"duplicate-rpath", "absolute-rpath", "escaping-rpath"}
    assert "@loader_path is listed 2 times" in found["duplicate-rpath"]
    assert found["absolute-rpath"].endswith(": /opt/lib, lib")
    assert found["escaping-rpath"].endswith(": @loader_path/../..")


def test_dependencies_are_found_by_loader_path_rpath_and_links(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "lib/deep/libx.dylib": dylib(exports=[]),
            "a.dylib": dylib("a.dylib", dylibs=["@loader_path/lib/deep/libx.dylib"], exports=[]),
            "b.dylib": dylib(
                "b.dylib",
                dylibs=["@rpath/libx.dylib"],
                rpaths=["@loader_path/nowhere", "@loader_path/link"],
                exports=[],
            ),
            "c.dylib": dylib(
                "c.dylib", dylibs=["@rpath/deep/../libx.1.dylib"], rpaths=["@loader_path/lib"], exports=[]
            ),
        },
    )
    (tmp_path / "link").symlink_to("lib/deep")
    (tmp_path / "lib/libx.1.dylib").symlink_to("deep/libx.dylib")
    assert audit(tmp_path).findings == ()


@pytest.mark.parametrize(
    ("dependency", "rpaths", "rule", "words"),
    [
        ("@rpath/liby.dylib", ["@loader_path"], "missing-dependency", "looked at lib/liby.dylib"),
        ("@rpath/liby.dylib", [], "missing-dependency", "no rpath says where to look"),
        ("@loader_path/liby.dylib", [], "missing-dependency", "looked at lib/liby.dylib"),
        ("@executable_path/liby.dylib", [], "missing-dependency", "no rpath says where to look"),
        ("liby.dylib", [], "missing-dependency", "working directory"),
        ("/opt/llvm/liby.dylib", [], "absolute-dependency", "/opt/llvm/liby.dylib"),
        ("@loader_path/../../liby.dylib", [], "escaping-dependency", "outside the tree"),
        ("/usr/lib/libcrypto.44.dylib", [], "system-library", "not on the list"),
    ],
)
def test_dependencies_that_nothing_provides_are_errors(
    tmp_path: Path, dependency: str, rpaths: list[str], rule: str, words: str
) -> None:
    put(tmp_path, {"lib/libx.dylib": dylib(dylibs=[SYSTEM, dependency], rpaths=rpaths)})
    assert words in one(tmp_path, rule).message


def test_a_weak_dependency_may_be_missing(tmp_path: Path, unsigned_is_fine: str) -> None:
    data = machobytes.dylib(dylibs=["@loader_path/liby.dylib"])
    root = put(tmp_path / "t", {"libx.dylib": patch_command(data, LOAD_DYLIB, 0, 0x80000018)})
    assert one(root, "missing-weak-dependency", unsigned_is_fine).severity.value == "warning"


def test_a_dependency_found_only_by_the_loaders_rpath_is_a_warning(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "main.dylib": dylib("main.dylib", dylibs=["@rpath/mid.dylib"], rpaths=["@loader_path/lib"], exports=["_m"]),
            "lib/mid.dylib": dylib("mid.dylib", dylibs=["@rpath/low.dylib"], exports=["_n"]),
            "lib/low.dylib": dylib("low.dylib", dylibs=["@rpath/mid.dylib"], exports=["_o"]),
        },
    )
    findings = audit(tmp_path).findings
    assert {(finding.rule, finding.file) for finding in findings} == {
        ("borrowed-rpath", "lib/mid.dylib"),
        ("borrowed-rpath", "lib/low.dylib"),
    }


def executable(*dylibs: str) -> bytes:
    program = patch_command(machobytes.dylib(dylibs=dylibs, exports=[]), ID_DYLIB, 0, 0x1B1)
    return program[:12] + struct.pack("<I", 2) + program[16:]


def test_a_program_needs_an_rpath_even_to_the_servers_library(tmp_path: Path) -> None:
    server = "@rpath/libtritonserver.dylib"
    put(tmp_path, {"bin/program": executable(server), "lib/libx.dylib": dylib(dylibs=[SYSTEM, server])})
    found = [finding for finding in audit(tmp_path).findings if finding.rule == "missing-dependency"]
    assert [(finding.file, "no rpath says where to look" in finding.message) for finding in found] == [
        ("bin/program", True)
    ]


def test_executable_path_is_the_folder_of_the_loading_program(tmp_path: Path, unsigned_is_fine: str) -> None:
    program = executable("@executable_path/../lib/libx.dylib")
    library = machobytes.dylib(dylibs=["@executable_path/../lib/liby.dylib"])
    root = put(
        tmp_path / "t",
        {
            "bin/program": program,
            "lib/libx.dylib": library,
            "lib/liby.dylib": machobytes.dylib(id="@rpath/liby.dylib", exports=[]),
        },
    )
    assert audit(root, unsigned_is_fine).findings == ()


def test_a_dependency_needs_the_slice_and_compatibility_version(tmp_path: Path, unsigned_is_fine: str) -> None:
    needs = machobytes.dylib(id="@rpath/a.dylib", dylibs=["@loader_path/b.dylib"], exports=[])
    thin = put(tmp_path / "a", {"a.dylib": needs, "b.dylib": machobytes.dylib("x86_64", id="@rpath/b.dylib")})
    rules = {finding.rule: finding.message for finding in audit(thin, unsigned_is_fine).findings}
    assert rules["dependency-slice"] == "@loader_path/b.dylib has only x86_64"
    newer = patch_command(needs, LOAD_DYLIB, 20, 2 << 16)
    old = put(tmp_path / "b", {"a.dylib": newer, "b.dylib": machobytes.dylib(id="@rpath/b.dylib", exports=["_b"])})
    message = one(old, "dependency-version", unsigned_is_fine).message
    assert "version 2.0, the tree has 1.0" in message


def test_system_libraries_are_checked_by_version_and_macos(tmp_path: Path, unsigned_is_fine: str) -> None:
    newer = patch_command(machobytes.dylib(), LOAD_DYLIB, 20, 2 << 16)
    root = put(tmp_path / "a", {"libx.dylib": newer})
    assert "version 2.0, macOS has 1.0" in one(root, "system-version", unsigned_is_fine).message
    name = "MetalPerformanceShadersGraph"
    graph = f"/System/Library/Frameworks/{name}.framework/Versions/A/{name}"
    data = machobytes.dylib(dylibs=[graph], minos="10.15")
    root = put(tmp_path / "b", {"libx.dylib": data})
    assert "came with macOS 11.0" in one(root, "system-newer", unsigned_is_fine).message
    root = put(tmp_path / "c", {"libx.dylib": patch_command(data, LOAD_DYLIB, 0, 0x80000018)})
    assert audit(root, unsigned_is_fine).findings == ()


def test_libraries_of_other_wheels_are_external(tmp_path: Path) -> None:
    policy = tmp_path / "p.toml"
    policy.write_text('extends = "wheel"\nparameters.external = ["torch/lib/*", "@rpath/libother.dylib"]\n')
    names = ["@rpath/libtorch.dylib", "@rpath/libother.dylib"]
    put(tmp_path / "t", {"pkg/libx.dylib": dylib(dylibs=names, rpaths=["@loader_path/../torch/lib"])})
    assert [finding.rule for finding in audit(tmp_path / "t", str(policy)).findings] == ["unchecked-provider"] * 2


def test_each_path_of_a_build_machine_is_reported_once(tmp_path: Path, unsigned_is_fine: str) -> None:
    text = b"/Users/me/a.c\0at /opt/homebrew/x:\0/Users/me/a.c\0https://h.org/home/x\0-I/nfs/site/inc\0%s/Users/x\0/usr/lib\0"
    data = machobytes.dylib(text=text)
    data = data.replace(b"__text\0\0\0\0\0\0\0\0\0\0", b"__cstring\0\0\0\0\0\0\0", 1)
    finding = one(put(tmp_path / "t", {"libx.dylib": data}), "build-path", unsigned_is_fine)
    assert finding.message.endswith(": /Users/me/a.c, /opt/homebrew/x, /nfs/site/inc")


def test_signatures_must_exist_and_match(tmp_path: Path) -> None:
    put(tmp_path / "a", {"libx.dylib": machobytes.dylib()})
    assert one(tmp_path / "a", "unsigned-arm64").severity.value == "error"
    put(tmp_path / "b", {"libx.dylib": machobytes.dylib("x86_64")})
    assert one(tmp_path / "b", "unsigned").severity.value == "error"
    assert audit(tmp_path / "b", "permissive").ok
    data = bytearray(dylib())
    data[5000] ^= 1
    put(tmp_path / "c", {"libx.dylib": bytes(data)})
    one(tmp_path / "c", "signature")
    assert audit_tree(tmp_path / "c", load_policy("release"), verify_signatures=False).ok


def test_bad_modes_links_and_special_files_are_findings(tmp_path: Path) -> None:
    put(tmp_path / "t", {"libx.dylib": dylib(), "tool": b"#!", "open": b""})
    (tmp_path / "t/tool").chmod(0o4755)
    (tmp_path / "t/open").chmod(0o666)
    (tmp_path / "t/away").symlink_to("../outside")
    (tmp_path / "t/absolute").symlink_to("/etc/passwd")
    (tmp_path / "t/dangling").symlink_to("nothing")
    (tmp_path / "t/loop").symlink_to("loop")
    os.mkfifo(tmp_path / "t/pipe")
    assert {(finding.rule, finding.file) for finding in audit(tmp_path / "t").findings} == {
        ("file-mode", "tool"),
        ("file-mode", "open"),
        ("link-escape", "away"),
        ("link-escape", "absolute"),
        ("link-dangling", "dangling"),
        ("link-dangling", "loop"),
        ("special-file", "pipe"),
    }


def test_extended_attributes_of_a_mac_are_reported(tmp_path: Path) -> None:
    magic = b"\x00\x05\x16\x07"
    put(tmp_path, {"libx.dylib": dylib(), "._a": magic + b"..com.apple.quarantine\0", "._b": magic, "._c": b"plain"})
    found = {(finding.rule, finding.file) for finding in audit(tmp_path).findings}
    assert found == {("quarantine", "._a"), ("apple-double", "._b")}


def test_static_archives_are_only_counted(tmp_path: Path) -> None:
    put(
        tmp_path,
        {"libx.dylib": dylib(), "a.a": b"!<arch>\n", "b.a": struct.pack(">2I", 0xCAFEBABE, 2) + b"!<arch>\n" * 9},
    )
    finding = one(tmp_path, "static-archive")
    assert finding.message.startswith("2 static archives")
    assert finding.severity.value == "info"


def test_a_java_class_file_is_not_macho(tmp_path: Path) -> None:
    put(tmp_path, {"libx.dylib": dylib(), "A.class": struct.pack(">2I", 0xCAFEBABE, 52) + bytes(40)})
    assert audit(tmp_path).files == 1


def test_exemption_that_accepts_nothing_is_a_warning(tmp_path: Path) -> None:
    put(tmp_path, {"lib/libx.dylib": dylib(rpaths=["/build/lib"])})
    used = Exemption(rule="absolute-rpath", file="lib/libx.dylib", reason="needed")
    gone = Exemption(rule="absolute-rpath", file="lib/liby.dylib", reason="was needed")
    thin = Exemption(rule="arch-missing", file="lib/libx.dylib", reason="for universal2 alone")
    report = audit(tmp_path, archs=frozenset({"arm64"}), exemptions=[used, gone, thin])
    (finding,) = [found for found in report.findings if found.rule == "unused-exemption"]
    assert (finding.severity.value, finding.file) == ("warning", "lib/liby.dylib")
    assert "was needed" in finding.message
    assert report.ok


def test_exemptions_accept_findings_with_a_reason(tmp_path: Path) -> None:
    put(
        tmp_path, {"lib/libx.dylib": dylib(rpaths=["/opt/a"]), "lib/liby.dylib": dylib("liby.dylib", rpaths=["/opt/b"])}
    )
    exemption = Exemption(rule="absolute-rpath", file="*/libx.dylib", reason="needed by the vendor")
    report = audit(tmp_path, exemptions=[exemption])
    assert [finding.file for finding in report.findings] == ["lib/liby.dylib"]
    assert [(entry.finding.file, entry.reason) for entry in report.exempted] == [
        ("lib/libx.dylib", "needed by the vendor")
    ]
    with pytest.raises(ConfigError) as caught:
        audit(tmp_path, exemptions=[Exemption(rule="absolute-rpaths", file="*", reason="x")])
    assert "absolute-rpath" in (caught.value.hint or "")


def test_hostile_names_are_shown_in_printable_form(tmp_path: Path) -> None:
    put(tmp_path, {"libx.dylib": dylib(id="/opt/\x1b[31m" + "n" * 3500, room=0x100)})
    message = one(tmp_path, "install-name").message
    assert "\\x1b[31m" in message
    assert len(message) < 2100


def test_an_absurd_number_of_dependencies_is_refused(tmp_path: Path) -> None:
    put(tmp_path, {"libx.dylib": dylib(dylibs=[SYSTEM] * 1001)})
    assert "too many" in one(tmp_path, "malformed").message


@given(
    st.lists(st.tuples(st.integers(0, 1200), st.sampled_from([0, 1, 0x0F, 0x7F, 0x80, 0xFF])), min_size=1, max_size=6),
    st.integers(0, 200),
)
@settings(max_examples=120, deadline=None)
def test_damaged_files_give_a_report(damage: list[tuple[int, int]], cut: int) -> None:
    whole = with_imports(
        machobytes.dylib(dylibs=[SYSTEM, "@rpath/liby.dylib"], rpaths=["@loader_path"]), [("_g", 2, False)]
    )
    data = bytearray(whole[: len(whole) - cut])
    for place, value in damage:
        data[place] = value
    with tempfile.TemporaryDirectory() as folder:
        root = put(Path(folder), {"libx.dylib": bytes(data), "liby.dylib": machobytes.dylib(id="@rpath/liby.dylib")})
        assert not audit(root).ok
