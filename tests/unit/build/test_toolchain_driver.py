"""Test the driver's scripts and the toolchains around them, with compilers that only record their calls.

Apple's clang cannot run here, so `xcrun` and `clang` are such programs, too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from macbuild.build.toolchain import PrepareContext, Prepared, find_toolchain
from macbuild.build.toolchain.driver import Driver, install_driver
from macbuild.build.toolchain.flags import System, load_rules
from macbuild.build.toolchain.link import explain
from macbuild.build.toolchain.model import cmake_text, prefix_maps
from macbuild.errors import ToolError
from macbuild.target import Target

RECORD = """#!/bin/sh
for word do printf '%s\\n' "$word" >> "$RECORD"; done
printf '%s\\n' -- >> "$RECORD"
{extra}
exit {status}
"""


class Compiler:
    """A driver over a compiler that records its arguments."""

    def __init__(self, folder: Path, *, status: int = 0, extra: str = ":", foreign: bool = False) -> None:
        self.record = folder / "record"
        program = folder / "the compiler"
        program.write_text(RECORD.format(status=status, extra=extra))
        program.chmod(0o755)
        self.c, self.cxx = install_driver(
            folder / "bin",
            Driver(
                title="a test",
                c=[str(program), "C"],
                cxx=[str(program), "CXX"],
                link=[str(program), "LINK"],
                link_cxx=[str(program), "LINKXX"],
                environ={"RECORD": str(self.record), "ODD": "it's $HOME"},
                rules=load_rules("zig", foreign=foreign),
                system=System("arm64", "/stubs/libc++.1.tbd", {}, {}),
                deployment="14.0",
            ),
        )

    def run(self, *words: str, cxx: bool = False, shell: str | None = None) -> subprocess.CompletedProcess[str]:
        start = [shell] if shell else []
        line = [*start, str(self.cxx if cxx else self.c), *words]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    @property
    def calls(self) -> list[list[str]]:
        text = self.record.read_text() if self.record.exists() else ""
        return [call.splitlines() for call in text.split("--\n") if call]


SHELLS = [shell for shell in ("dash", "bash", "sh") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_compile_call_gets_the_targets_flags_first(tmp_path: Path, shell: str) -> None:
    compiler = Compiler(tmp_path)
    odd = ["-DX=a b", "-DY='", '-DZ="$HOME"', "-D*", "-c", "a.cpp"]
    assert compiler.run(*odd, shell=shell, cxx=True).returncode == 0
    assert compiler.calls == [["CXX", "-g0", *odd]]


@pytest.mark.parametrize("flag", ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version", "-print-search-dirs"])
def test_calls_that_do_not_link_are_passed_on(tmp_path: Path, flag: str) -> None:
    compiler = Compiler(tmp_path)
    compiler.run(flag, "a.c")
    assert compiler.calls == [["C", "-g0", flag, "a.c"]]


@pytest.mark.parametrize("flag", ["-g", "-ggdb"])
def test_requested_debug_information_stays(tmp_path: Path, flag: str) -> None:
    compiler = Compiler(tmp_path)
    compiler.run(flag, "-c", "a.c")
    compiler.run(flag, "-arch", "arm64", "-c", "a.c")
    assert compiler.calls == [["C", flag, "-c", "a.c"], ["C", flag, "-c", "a.c"]]


def test_plain_link_is_passed_on_and_cxx_gets_the_systems_libcxx(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path)
    line = ["-dynamiclib", "-Wl,-headerpad_max_install_names", "-install_name", "@rpath/a", "a.o", "-o", "a"]
    compiler.run(*line)
    compiler.run(*line, cxx=True)
    assert compiler.calls == [["LINK", *line], ["LINKXX", *line, "/stubs/libc++.1.tbd"]]


def test_link_with_a_flag_of_the_table_is_translated(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path)
    done = compiler.run("-shared", "-Wl,-soname,libx.so", "a.o", "-lm", "-o", "libx.so", cxx=True)
    wanted = ["LINKXX", "-shared", "-install_name", "@rpath/libx.so", "a.o", "-o", "libx.so", "/stubs/libc++.1.tbd"]
    assert compiler.calls == [wanted]
    assert done.stderr == "macbuild: note: -lm left out: libSystem has it\n"


def test_dylib_without_a_name_gets_one(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path)
    compiler.run("-shared", "a.o", "-o", f"{tmp_path}/liba.dylib")
    assert compiler.calls[0][-2:] == ["-install_name", "@rpath/liba.dylib"]


@pytest.mark.parametrize("word", ["-Wl,-rpath,@loader_path,--frobnicate", "-Wl,-rpath,@loader_path:@loader_path/x"])
def test_rpath_word_with_more_content_is_translated(tmp_path: Path, word: str) -> None:
    compiler = Compiler(tmp_path)
    compiler.run("a.o", word, "-o", "a")
    compiler.run("a.o", "-Wl,-rpath,@loader_path", "-o", "a")
    *first, plain = compiler.calls
    assert plain == ["LINK", "a.o", "-Wl,-rpath,@loader_path", "-o", "a"]
    assert word not in [other for call in first for other in call]


def test_refused_flag_ends_the_call_before_the_compiler_starts(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path)
    done = compiler.run("-shared", "a.o", "-Wl,--frobnicate", "-o", "a")
    assert done.returncode == 1
    assert "macbuild: error: flags: the linker flag --frobnicate is not known" in done.stderr
    assert "macbuild: hint: " in done.stderr
    assert compiler.calls == []


def test_werror_of_a_foreign_project_is_dropped_in_compile_calls(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path, foreign=True)
    compiler.run("-Werror", "-Werror=format", "-c", "a.c")
    assert compiler.calls == [["C", "-g0", "-c", "a.c"]]


def test_failed_link_shows_its_error_once_and_explains(tmp_path: Path) -> None:
    extra = "echo 'error: undefined symbol: __ZNSt3__18to_charsEPcS0_d' >&2"
    compiler = Compiler(tmp_path, status=1, extra=extra)
    done = compiler.run("a.o", "-o", "a")
    assert done.returncode == 1
    assert done.stderr.count("error: undefined symbol") == 1
    assert "macbuild: __ZNSt3__18to_charsEPcS0_d: " in done.stderr


def test_exit_status_of_the_compiler_is_that_of_the_call(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path, status=3)
    assert compiler.run("-c", "a.c").returncode == 3
    assert compiler.run("-arch", "arm64", "-c", "a.c").returncode == 3


def test_sources_in_a_link_are_compiled_first(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path)
    compiler.run("-O2", "-I", "inc", "a.cpp", "b.o", "-framework", "X", "-o", "out", "-lm", "-x", "c++", cxx=True)
    done = compiler.run("-O2", "-I", "inc", "a.cpp", "b.o", "-o", "out", "-lm", cxx=True)
    assert done.returncode == 0
    compile_call, link_call = compiler.calls[-2:]
    assert compile_call[:7] == ["CXX", "-g0", "-Wno-unused-command-line-argument", "-O2", "-I", "inc", "-c"]
    assert compile_call[7] == "a.cpp"
    assert link_call[:2] == ["LINKXX", "-O2"]
    assert link_call[2] == compile_call[-1]
    assert link_call[3:] == ["b.o", "-o", "out", "/stubs/libc++.1.tbd"]


def test_environment_is_in_the_script(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path, extra='test "$ODD" = "it\'s \\$HOME" || exit 9')
    assert compiler.run("-c", "a.c").returncode == 0


def test_unchanged_scripts_are_left_alone(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path)
    before = compiler.c.stat().st_mtime_ns, compiler.c.stat().st_ino
    assert (Compiler(tmp_path).c.stat().st_mtime_ns, compiler.c.stat().st_ino) == before


def test_undefined_symbols_are_explained() -> None:
    text = "error: undefined symbol: _printf_nowhere\n    note: referenced by a.o\n"
    assert explain(text, "arm64", "14.0") == [
        "_printf_nowhere: no library of macOS is known to have it; link the library that defines it"
    ]
    apple = 'Undefined symbols for architecture arm64:\n  "_CFRelease", referenced from:\n      _f in a.o\n'
    (line,) = explain(apple, "arm64", "14.0")
    assert line.startswith("_CFRelease: /System/Library/Frameworks/CoreFoundation.framework/")
    assert line.endswith("has it, and is not linked")
    assert explain("error: no such file", "arm64", "14.0") == []
    many = "\n".join(f"undefined symbol: _x{number}" for number in range(30))
    assert explain(many, "arm64", "14.0")[-1] == "and 10 more"


def test_text_for_cmake_is_passed_on_literally() -> None:
    assert cmake_text('a;b ${c} "d"') == '[=[a;b ${c} "d"]=]'
    assert cmake_text("a]=]b") == "[==[a]=]b]==]"
    assert cmake_text("a]=") == "[==[a]=]==]"


def test_nested_folder_comes_last() -> None:
    assert prefix_maps({"/a/b": "b", "/a": "a"}) == ["-ffile-prefix-map=/a=a", "-ffile-prefix-map=/a/b=b"]


def test_toolchains_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target("arm64", "14.0")
    assert find_toolchain("zig", target, {}).name == "zig"
    assert find_toolchain("apple", target, {}).name == "apple"
    assert find_toolchain(None, None, {}).name == "host"
    assert find_toolchain("zig", None, {}).name == "host"
    monkeypatch.setattr(sys, "platform", "linux")
    assert find_toolchain(None, target, {}).name == "zig"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert find_toolchain(None, target, {}).name == "apple"
    with pytest.raises(ToolError, match="there is no toolchain 'gcc' for macOS"):
        find_toolchain("gcc", target, {})
    with pytest.raises(ToolError, match="one architecture at a time"):
        find_toolchain("zig", Target("universal2", "14.0"), {})


def test_host_compilers_are_those_of_the_environment(tmp_path: Path) -> None:
    program = tmp_path / "mycc"
    program.write_text("#!/bin/sh\necho 'mycc 1.2'\n")
    program.chmod(0o755)
    toolchain = find_toolchain("host", None, {"CC": f"{program} -m64", "CXX": str(program), "PATH": "/usr/bin:/bin"})
    assert toolchain.identity == "-m64 mycc 1.2 | mycc 1.2"
    assert toolchain.describe() == "mycc 1.2"
    prepared = toolchain.prepare(tmp_path / "tools", PrepareContext(tmp_path / "cache"))
    assert prepared.c == program
    assert Prepared.load(tmp_path / "tools") == prepared
    text = prepared.toolchain_file.read_text()
    assert f"set(CMAKE_C_COMPILER [=[{program};-m64]=])" in text


@pytest.mark.parametrize("text", [None, "{", "[]", "{}", '{"c": 1, "cxx": 2, "toolchain_file": 3}'])
def test_a_toolchain_that_was_not_prepared_cannot_be_loaded(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "prepared.json").write_text(text)
    with pytest.raises(ToolError, match="no toolchain was prepared here"):
        Prepared.load(tmp_path)


def test_missing_host_compiler_is_an_error() -> None:
    with pytest.raises(ToolError, match="no compiler: nothing-there"):
        _ = find_toolchain("host", None, {"CC": "nothing-there", "PATH": "/usr/bin"}).identity


def test_flags_of_a_host_compiler_are_part_of_its_identity() -> None:
    plain, quick = (find_toolchain("host", None, {**os.environ, "CXX": text}) for text in ("c++", "c++ -O0"))
    assert plain.identity != quick.identity


class Mac:
    """Programs that answer like Apple's."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "usr" / "bin"
        self.bin.mkdir(parents=True)
        self.sdk = folder / "MacOSX15.4.sdk"
        self.sdk.mkdir()
        settings = {"CanonicalName": "macosx15.4", "Version": "15.4"}
        (self.sdk / "SDKSettings.json").write_text(json.dumps(settings))
        self.record = folder / "record"
        self.program("xcrun", f'case "$*" in *--show-sdk-path*) echo "{self.sdk}" ;; *) echo "{self.bin}/$4" ;; esac')
        for name in ("clang", "clang++"):
            self.program(name, 'test "$1" = --version && echo "Apple clang version 17.0.0 (clang-1700.0.13.3)"')
        self.environ = {"PATH": f"{self.bin}:/usr/bin:/bin", "DEVELOPER_DIR": "/Applications/Xcode.app"}

    def program(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f'#!/bin/sh\necho "{name} $DEVELOPER_DIR" "$@" >> "{self.record}"\n{body}\nexit 0\n')
        path.chmod(0o755)


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mac:
    # A ccache of this machine passes on all calls.
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    return Mac(tmp_path / "mac")


def test_apple_identity_has_compiler_and_sdk(mac: Mac) -> None:
    toolchain = find_toolchain("apple", Target("arm64", "14.0"), mac.environ)
    assert toolchain.identity == "Apple clang version 17.0.0 (clang-1700.0.13.3) SDK macosx15.4 15.4 macos-arm64-14.0"
    assert toolchain.describe().startswith("Apple clang version 17.0.0")
    assert "xcrun /Applications/Xcode.app --sdk macosx --find clang" in mac.record.read_text()


def test_ccache_gets_the_final_flags_of_compile_calls(mac: Mac, tmp_path: Path) -> None:
    mac.program("ccache", 'echo "$CCACHE_COMPILERTYPE $CCACHE_COMPILERCHECK" >> "$0.check"; exec "$@"')
    toolchain = find_toolchain("apple", Target("arm64", "14.0"), mac.environ)
    maps = {"/src": "source", "/other": "other"}
    prepared = toolchain.prepare(tmp_path / "tools", PrepareContext(tmp_path / "cache", maps))
    mac.record.unlink()
    subprocess.run([prepared.cxx, "-c", "a.cpp"], check=True)
    # A flag that the table drops, so that the call goes through Python.
    subprocess.run([prepared.cxx, "-march=native", "-c", "a.cpp"], check=True)
    subprocess.run([prepared.cxx, "-dynamiclib", "-install_name", "@rpath/a", "a.o", "-o", "a"], check=True)
    (plain, first), (table, second), (link,) = _calls(mac)
    script = tmp_path / "tools" / "bin" / "clang++"
    assert plain.startswith(f"ccache /Applications/Xcode.app {script} -arch arm64")
    assert plain == table
    flags = plain.removeprefix(f"ccache /Applications/Xcode.app {script}")
    assert first == second == f"clang++ /Applications/Xcode.app{flags}"
    assert link.startswith("clang++ ")
    (check,) = set((mac.bin / "ccache.check").read_text().splitlines())
    assert check == f"clang string:{toolchain.identity} other sdk source"


def _calls(mac: Mac) -> list[list[str]]:
    """Return the started programs: for each call ccache, if it was started, and the compiler."""
    found: list[list[str]] = []
    for line in mac.record.read_text().splitlines():
        if not found or not found[-1][-1].startswith("ccache "):
            found.append([])
        found[-1].append(line)
    return found


def test_without_ccache_there_are_no_scripts_for_it(mac: Mac, tmp_path: Path) -> None:
    mac.environ["PATH"] = str(mac.bin)
    prepared = find_toolchain("apple", Target("arm64", "14.0"), mac.environ).prepare(
        tmp_path / "tools", PrepareContext(tmp_path / "cache")
    )
    assert "CCACHE" not in prepared.c.read_text()
    assert {path.name for path in prepared.c.parent.iterdir()} == {"cc", "c++", "driver.json"}


def test_apple_honours_sdkroot(mac: Mac, tmp_path: Path) -> None:
    other = tmp_path / "Other.sdk"
    shutil.copytree(mac.sdk, other)
    (other / "SDKSettings.json").write_text('{"CanonicalName": "macosx14.2", "Version": "14.2"}')
    by_path = find_toolchain("apple", Target("arm64", "14.0"), mac.environ | {"SDKROOT": str(other)})
    assert "SDK macosx14.2 14.2" in by_path.identity
    by_name = find_toolchain("apple", Target("arm64", "14.0"), mac.environ | {"SDKROOT": "macosx15.4"})
    assert "SDK macosx15.4 15.4" in by_name.identity
    assert "--sdk macosx15.4 --show-sdk-path" in mac.record.read_text()


def test_apple_driver_calls_clang_with_sdk_and_target(mac: Mac, tmp_path: Path) -> None:
    toolchain = find_toolchain("apple", Target("x86_64", "11.0"), mac.environ)
    prepared = toolchain.prepare(tmp_path / "tools", PrepareContext(tmp_path / "cache", {"/src": "source"}))
    mac.record.unlink()
    subprocess.run([prepared.cxx, "-c", "a.cpp"], check=True)
    link = ["-dynamiclib", "-install_name", "@rpath/a", "a.o", "-framework", "AppKit", "-Wl,-z,now", "-lc++", "-o", "a"]
    subprocess.run([prepared.cxx, *link], check=True)
    compiled, linked = mac.record.read_text().splitlines()
    base = f"clang++ /Applications/Xcode.app -arch x86_64 -isysroot {mac.sdk} -mmacosx-version-min=11.0"
    assert compiled.startswith(base)
    assert f" -ffile-prefix-map={mac.sdk}=sdk " in compiled
    assert " -ffile-prefix-map=/src=source " in compiled
    assert compiled.endswith(" -g0 -c a.cpp")
    assert linked.startswith(f"{base} -Wl,-headerpad,0x1000 -Wl,-dead_strip")
    assert linked.endswith("-dynamiclib -install_name @rpath/a a.o -framework AppKit -lc++ -o a")
    assert prepared.environ["DEVELOPER_DIR"] == "/Applications/Xcode.app"
    assert f"set(MACBUILD_SDK [=[{mac.sdk}]=])" in prepared.toolchain_file.read_text()


def test_apple_without_tools_says_what_to_install(mac: Mac) -> None:
    mac.program("xcrun", "echo 'xcrun: error: missing DEVELOPER_DIR path' >&2; exit 1")
    with pytest.raises(ToolError, match="missing DEVELOPER_DIR path") as caught:
        _ = find_toolchain("apple", Target("arm64", "14.0"), mac.environ).identity
    assert "xcode-select --install" in str(caught.value.hint)
    with pytest.raises(ToolError, match="cannot be run"):
        _ = find_toolchain("apple", Target("arm64", "14.0"), {"PATH": "/nowhere"}).identity


def test_sdk_without_a_version_is_an_error(mac: Mac) -> None:
    (mac.sdk / "SDKSettings.json").write_text("{}")
    with pytest.raises(ToolError, match="does not state the SDK's version"):
        _ = find_toolchain("apple", Target("arm64", "14.0"), mac.environ).identity


def test_hidden_programs_fail_and_stand_in_tools_work(mac: Mac, tmp_path: Path) -> None:
    toolchain = find_toolchain("apple", Target("arm64", "14.0"), mac.environ)
    prepared = toolchain.prepare(tmp_path / "tools", PrepareContext(tmp_path / "cache"))
    tools = Path(prepared.environ["PATH"])
    assert subprocess.run([tools / "brew", "--prefix"], capture_output=True, check=False).returncode == 1
    done = subprocess.run([tools / "lipo", "-info", os.devnull], capture_output=True, text=True, check=False)
    assert "lipo" in done.stderr
