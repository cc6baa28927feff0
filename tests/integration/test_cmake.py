"""Test the CMake driver with real compilers: nothing is built twice, and an IDE finds the build unchanged."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from macbuild.build.cmake import CMakeProject, build, child_environment, configure, install
from macbuild.build.presets import write_presets
from macbuild.build.programs import find_cmake, find_ninja
from macbuild.errors import BuildError
from macbuild.steps.jobserver import Jobserver
from tests.conftest import program
from tests.support.toolchains import prepare, project, write_sample


def built(sample: CMakeProject, **options: object) -> list[str]:
    """Build and return the steps that ninja ran."""
    lines: list[str] = []
    build(sample, lines.append, **options)  # type: ignore[arg-type] # passed through
    return [line.partition("] ")[2] for line in lines if line.startswith("[")]


@pytest.fixture
def sample(tmp_path: Path) -> CMakeProject:
    """Return the sample for arm64, inside a checkout of a macbuild project."""
    (tmp_path / "macbuild.lock").touch()
    source = write_sample(tmp_path / "recipes" / "sample")
    return project(tmp_path / "kept", "arm64", source)


def test_only_what_changed_is_built_again(sample: CMakeProject) -> None:
    configure(sample)
    assert len(built(sample)) == 8
    assert built(sample) == []
    assert not configure(sample)
    (sample.source / "part.c").write_text("int part(void) { return 5; }\n")
    again = built(sample)
    assert "Building C object CMakeFiles/part.dir/part.c.o" in again
    assert not any("sample.cpp" in step for step in again)
    assert built(sample) == []


def test_a_toolchain_prepared_again_rebuilds_nothing(sample: CMakeProject, tmp_path: Path) -> None:
    configure(sample)
    build(sample)
    prepare(tmp_path / "kept", "arm64", sample.source)
    assert not configure(sample)
    assert built(sample) == []


def test_preset_opens_the_build_unchanged(sample: CMakeProject) -> None:
    configure(sample)
    build(sample)
    assert write_presets(sample, "sample-arm64") is not None
    environ = os.environ | {"CXXFLAGS": "-DWRONG", "MACOSX_DEPLOYMENT_TARGET": "10.9"}
    done = subprocess.run(
        [find_cmake(), "--preset", "sample-arm64"],
        cwd=sample.source,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert "compiler identification" not in done.stdout
    assert built(sample) == []
    listed = subprocess.run(
        [find_cmake(), "--build", "--preset", "sample-arm64"],
        cwd=sample.source,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no work to do" in listed.stdout


def test_compile_commands_name_the_driver(sample: CMakeProject) -> None:
    configure(sample)
    commands = json.loads((sample.build_folder / "compile_commands.json").read_text())
    assert {Path(entry["file"]).name for entry in commands} == {"part.c", "sample.cpp", "main.c"}
    assert all(str(sample.folder / "toolchain" / "bin") in entry["command"] for entry in commands)


def test_ninja_uses_the_jobserver_and_returns_all_tokens(sample: CMakeProject) -> None:
    configure(sample)
    lines: list[str] = []
    with Jobserver(3, {}) as server:
        with server.token():
            build(sample, lines.append, environ=server.environ)
        assert any("Jobserver mode detected" in line for line in lines)
        with server.token() as one, server.token() as two, server.token() as three:
            assert one
            assert two
            assert three


def test_compile_error_is_in_the_message(sample: CMakeProject) -> None:
    configure(sample)
    (sample.source / "part.c").write_text("int part(void) { return undeclared; }\n")
    with pytest.raises(BuildError, match="undeclared") as caught:
        build(sample)
    assert "macbuild shell sample" in str(caught.value.hint)
    shell = subprocess.run(
        [find_ninja(), "-C", sample.build_folder],
        env=child_environment(sample),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "undeclared" in shell.stdout


def test_ccache_gives_another_folder_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ccache = program("ccache", "ccache")
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    monkeypatch.setenv("CCACHE_NOHASHDIR", "1")
    source = write_sample(tmp_path / "source")
    for name in ("one", "two"):
        sample = project(tmp_path / name, "arm64", source, BUILD_SHARED_LIBS="ON")
        configure(sample)
        build(sample)
        install(sample, tmp_path / name / "stage")
    done = subprocess.run([ccache, "--print-stats"], capture_output=True, text=True, check=True)
    counts = dict(line.split("\t")[:2] for line in done.stdout.splitlines())
    assert int(counts["cache_miss"]) > 0
    assert int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"]) >= 4
    for name in ("lib/libsample.dylib", "lib/libplug.so"):
        assert (tmp_path / "one" / "stage" / name).read_bytes() == (tmp_path / "two" / "stage" / name).read_bytes()


def test_host_project_runs_on_this_machine(tmp_path: Path) -> None:
    sample = project(tmp_path / "kept", None, write_sample(tmp_path / "source"))
    configure(sample)
    build(sample)
    done = subprocess.run([sample.build_folder / "tool"], check=False)
    assert done.returncode == 6
