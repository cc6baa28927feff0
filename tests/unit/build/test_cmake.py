"""Test the CMake driver on a project without a language: reruns, results that are read back, and failures."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import sysconfig
import threading
import time
from pathlib import Path

import pytest

from macbuild.build import cmake, programs
from macbuild.build.cmake import CMakeProject, build, child_environment, configure, install, model, settings
from macbuild.build.file_api import read_model
from macbuild.build.presets import write_presets
from macbuild.build.toolchain import Prepared
from macbuild.errors import BuildError, FileError, ToolError

LISTS = """\
cmake_minimum_required(VERSION 3.28)
project(plain LANGUAGES NONE)
add_custom_command(OUTPUT made.txt COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/in.txt made.txt DEPENDS in.txt)
add_custom_target(made ALL DEPENDS made.txt)
install(FILES ${CMAKE_BINARY_DIR}/made.txt DESTINATION share)
"""


def prepared(folder: Path, identity: str = "compiler 1", **environ: str) -> Prepared:
    """Return a toolchain of files that no project without a language uses."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("toolchain.cmake", "cc", "c++")]
    for path in paths:
        if not path.exists():
            path.write_text("# nothing\n")
    return Prepared("host", identity, paths[0], environ, paths[1], paths[2])


@pytest.fixture
def plain(tmp_path: Path) -> CMakeProject:
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(LISTS)
    (source / "in.txt").write_text("one")
    return CMakeProject(source, tmp_path / "kept", prepared(tmp_path / "tools"), name="plain")


def alive(number: int) -> bool:
    """Return whether a process still exists after half a minute."""
    for _ in range(1500):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.02)
    return True


def variant(project: CMakeProject, **changes: object) -> CMakeProject:
    """Return the project with other fields."""
    return CMakeProject(**{**project.__dict__, **changes})


def test_configure_build_install_and_the_output_of_cmake(plain: CMakeProject, tmp_path: Path) -> None:
    lines: list[str] = []
    steps: list[tuple[int, int | None]] = []
    assert configure(plain, lines.append)
    build(plain, lines.append, lambda done, total: steps.append((done, total)))
    install(plain, tmp_path / "stage", lines.append)
    assert (tmp_path / "stage" / "share" / "made.txt").read_text() == "one"
    assert any("Configuring done" in line for line in lines)
    assert (1, 1) in steps
    found = model(plain)
    assert found.targets["made"].kind == "UTILITY"
    assert found.cache["CMAKE_BUILD_TYPE"] == "Release"
    assert plain.source / "CMakeLists.txt" in found.inputs
    assert plain.toolchain.toolchain_file in found.inputs
    assert (plain.folder / "log" / "build.log").read_text().count("Generating made.txt") == 1


def test_configure_runs_only_when_something_changed(plain: CMakeProject) -> None:
    assert configure(plain)
    assert not configure(plain)
    lists = plain.source / "CMakeLists.txt"
    os.utime(lists, (time.time(), time.time() + 5))
    assert configure(plain)
    assert not configure(plain)
    assert configure(variant(plain, definitions={"X": "1"}))
    assert model(plain).cache["X"] == "1"
    assert configure(plain)
    assert "X" not in model(plain).cache
    (plain.build_folder / "build.ninja").unlink()
    assert configure(plain)


def test_another_toolchain_empties_the_build_folder(plain: CMakeProject, tmp_path: Path) -> None:
    configure(plain)
    build(plain)
    made = plain.build_folder / "made.txt"
    configure(variant(plain, definitions={"X": "1"}))
    assert made.exists()
    configure(variant(plain, toolchain=prepared(tmp_path / "tools", "compiler 2")))
    assert not made.exists()
    build(plain)
    plain.toolchain.cxx.write_text("# another driver\n")
    assert configure(variant(plain, toolchain=prepared(tmp_path / "tools", "compiler 2")))
    assert not made.exists()


def test_failed_configure_does_not_count_as_done(plain: CMakeProject) -> None:
    configure(plain)
    lists = plain.source / "CMakeLists.txt"
    lists.write_text(LISTS + 'message(FATAL_ERROR "not like this")\n')
    for _ in range(2):
        with pytest.raises(BuildError, match="not like this"):
            configure(plain)
    lists.write_text(LISTS)
    assert configure(plain)


def test_failure_shows_the_last_lines_and_all_paths(plain: CMakeProject) -> None:
    text = "".join(f"message(STATUS line{number})\n" for number in range(100))
    (plain.source / "CMakeLists.txt").write_text(LISTS + text + "message(FATAL_ERROR broken)\n")
    with pytest.raises(BuildError) as caught:
        configure(plain)
    message = caught.value.message
    assert message.startswith("configure failed (exit code 1):\n")
    assert len(message.splitlines()) == 31
    assert "line99" in message
    assert "line50" not in message
    assert str(plain.folder) in str(caught.value.hint)
    assert "macbuild shell" not in str(caught.value.hint)  # only for builds for macOS
    assert caught.value.where == "plain"
    assert "line0\n" in (plain.folder / "log" / "configure.log").read_text()


def test_failed_step_of_the_build_is_an_error(plain: CMakeProject) -> None:
    configure(plain)
    (plain.source / "in.txt").unlink()
    with pytest.raises(BuildError, match=r"(?s)build failed \(exit code 1\):.*in\.txt"):
        build(plain)


def test_an_exception_in_progress_ends_the_child(plain: CMakeProject, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    (plain.source / "CMakeLists.txt").write_text(
        LISTS + f'execute_process(COMMAND sh -c "echo $$ > {mark}; exec sleep 60")\n'
    )
    stop = threading.Event()

    def progress(done: int, total: int | None) -> None:
        del done, total
        if mark.exists() and mark.read_text():
            stop.set()
            raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        configure(plain, progress=progress)
    assert stop.is_set()
    assert time.monotonic() - begin < 40
    assert not alive(int(mark.read_text()))


def test_environment_of_children_is_clean(plain: CMakeProject, tmp_path: Path) -> None:
    user = {
        "PATH": "/usr/bin",
        "HOME": "/home/me",
        "CXXFLAGS": "-march=native",
        "CPATH": "/opt/include",
        "SDKROOT": "/sdk",
        "CMAKE_PREFIX_PATH": "/opt",
        "MAKEFLAGS": "-j99",
        "LANG": "de_DE.UTF-8",
        "CCACHE_DIR": "/cache",
    }
    project = variant(plain, toolchain=prepared(tmp_path / "tools", PATH="/tools", ZIG="1"), environ={"OWN": "2"})
    found = child_environment(project, user)
    assert found == {
        "PATH": "/tools:/usr/bin",
        "HOME": "/home/me",
        "CCACHE_DIR": "/cache",
        "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime",
        "LC_ALL": "C",
        "NINJA_STATUS": "[%f/%t] ",
        "SOURCE_DATE_EPOCH": "315532800",
        "ZERO_AR_DATE": "1",
        "ZIG": "1",
        "OWN": "2",
    }
    later = {**user, "SOURCE_DATE_EPOCH": "1700000000"}
    assert child_environment(project, later) == found  # the user's time does not enter the key
    assert child_environment(project, {"CCACHE_SLOPPINESS": "none"})["CCACHE_SLOPPINESS"] == "none"


def test_ccache_is_the_launcher_of_host_compilers(plain: CMakeProject, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "ccache"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    found = settings(plain, {"PATH": str(program.parent)})
    assert found["CMAKE_CXX_COMPILER_LAUNCHER"] == str(program)
    assert found["CMAKE_OBJCXX_COMPILER_LAUNCHER"] == str(program)
    assert "CMAKE_C_COMPILER_LAUNCHER" not in settings(plain, {"PATH": "/nowhere"})
    own = variant(plain, definitions={"CMAKE_C_COMPILER_LAUNCHER": ""})
    assert settings(own, {"PATH": str(program.parent)})["CMAKE_C_COMPILER_LAUNCHER"] == ""
    driver = variant(plain, toolchain=dataclasses.replace(plain.toolchain, name="zig"))
    assert "CMAKE_C_COMPILER_LAUNCHER" not in settings(driver, {"PATH": str(program.parent)})


def test_missing_programs_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find_spec", lambda _: None)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolError, match="the program cmake is missing") as caught:
        programs.find_cmake()
    assert caught.value.hint == "python -m pip install cmake"
    with pytest.raises(ToolError, match="the program ninja is missing"):
        programs.find_ninja()


def test_program_that_cannot_be_started_is_an_error(
    plain: CMakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cmake, "find_cmake", lambda: tmp_path)
    with pytest.raises(ToolError, match="cannot be started"):
        configure(plain)


def test_missing_toolchain_file_is_an_error(plain: CMakeProject) -> None:
    plain.toolchain.toolchain_file.unlink()
    with pytest.raises(FileError, match="No such file"):
        configure(plain)


def test_a_missing_answer_of_cmake_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="left no description"):
        read_model(tmp_path, tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"reply": {}}', '{"reply": {"client-macbuild": 3}}', '{"reply": {"client-macbuild": {}}}'],
)
def test_answer_in_another_form_is_an_error(tmp_path: Path, text: str) -> None:
    reply = tmp_path / ".cmake" / "api" / "v1" / "reply"
    reply.mkdir(parents=True)
    (reply / "index-2026.json").write_text(text)
    with pytest.raises(BuildError):
        read_model(tmp_path, tmp_path)


@pytest.fixture
def checkout(plain: CMakeProject, tmp_path: Path) -> CMakeProject:
    """The project inside a checkout of a macbuild project."""
    (tmp_path / "macbuild.lock").touch()
    (tmp_path / "recipes").mkdir()
    return plain


def test_presets_are_merged_and_stable(checkout: CMakeProject) -> None:
    path = checkout.source / "CMakeUserPresets.json"
    mine = {"name": "mine", "generator": "Ninja"}
    path.write_text(json.dumps({"version": 6, "include": ["x.json"], "configurePresets": [mine]}))
    assert write_presets(checkout, "plain-arm64") == path
    assert write_presets(checkout, "plain-x86_64") == path
    before = path.stat().st_mtime_ns
    assert write_presets(checkout, "plain-arm64") == path
    assert path.stat().st_mtime_ns == before
    data = json.loads(path.read_text())
    assert data["include"] == ["x.json"]
    assert [preset["name"] for preset in data["configurePresets"]] == ["mine", "plain-arm64", "plain-x86_64"]
    assert [preset["configurePreset"] for preset in data["buildPresets"]] == ["plain-arm64", "plain-x86_64"]
    assert mine in data["configurePresets"]
    (preset,) = (preset for preset in data["configurePresets"] if preset["name"] == "plain-arm64")
    assert preset["environment"]["CXXFLAGS"] is None
    assert preset["environment"]["PATH"].endswith("$penv{PATH}")


def test_presets_are_written_only_into_a_checkout(plain: CMakeProject) -> None:
    assert write_presets(plain, "x") is None
    assert not (plain.source / "CMakeUserPresets.json").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"configurePresets": [3]}', '{"configurePresets": {"a": 1}}', "\xff"])
def test_presets_of_a_user_that_cannot_be_read_are_left_alone(checkout: CMakeProject, text: str) -> None:
    path = checkout.source / "CMakeUserPresets.json"
    path.write_text(text, "latin-1")
    with pytest.raises(BuildError, match=r"CMakeUserPresets\.json"):
        write_presets(checkout, "x")
    assert path.read_text("latin-1") == text
