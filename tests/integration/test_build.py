"""Build a small plug-in that needs a small library with the real compiler, from recipe to artifact."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import lief
import pytest
from packaging.utils import parse_wheel_filename

from macbuild.build.programs import find_cmake
from macbuild.cli.app import run
from macbuild.commands.build import BuildResult
from macbuild.commands.test import prepare_tests
from macbuild.errors import BuildError, MacbuildError, RecipeError, UsageError
from macbuild.events import StepFinished
from tests.conftest import Zig, zig_cache
from tests.support.sample import Sample

CMAKE = """\
cmake_minimum_required(VERSION 3.28)
if(MACBUILD_STAGE)
  project(plug LANGUAGES NONE)
  install(DIRECTORY "${MACBUILD_STAGE}/" DESTINATION . USE_SOURCE_PERMISSIONS)
  return()
endif()
project(plug LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
add_library(plug SHARED src/plug.cpp src/other.cpp)
set_target_properties(plug PROPERTIES SUFFIX .so)
if(DEFINED BASE_LINK_DIR)
  target_link_libraries(plug PRIVATE "${BASE_LINK_DIR}/libbase.tbd")
endif()
install(TARGETS plug LIBRARY DESTINATION plugs)
include(CTest)
if(BUILD_TESTING)
  add_executable(check src/check.cpp src/other.cpp)
  add_test(NAME check COMMAND check)
endif()
"""
BASE = "int base(int x) { return 2 * x; }"
FILES = {
    "CMakeLists.txt": CMAKE,
    "pyproject.toml": """\
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"
[project]
name = "plug-in"
version = "1.0"
description = "A plug-in"
dependencies = ["base"]
[tool.scikit-build]
wheel.py-api = "py3"
wheel.install-dir = "top"
""",
    "src/plug.cpp": """\
#include <stdexcept>
#include <string>
#include "other.hpp"
extern "C" int base(int);
#define SHOWN extern "C" __attribute__((visibility("default")))
SHOWN int plug_run(int x) {
  if (x < 0) throw std::runtime_error(__FILE__ + std::to_string(x));
  return base(other(x));
}
SHOWN int hidden_by_the_recipe() { return 1; }
""",
    "src/other.cpp": '#include "other.hpp"\nint other(int x) { return x + 1; }\n',
    "src/other.hpp": "int other(int x);\n",
    "src/check.cpp": '#include "other.hpp"\nint main() { return other(1) == 2 ? 0 : 1; }\n',
}
PACKAGES = [
    {
        "kind": "tarball",
        "name": "plug-in",
        "rpaths": ["@loader_path"],
        "include": [{"component": "base", "from": "lib/*.dylib", "to": "plugs/"}],
    },
    {"kind": "wheel", "name": "plug-in", "prefix": "top/", "rpaths": ["@loader_path/../../base/lib"]},
]


def plugin(root: Path, zig: Zig) -> Sample:
    """Return a project with a library `base`, repackaged, and a plug-in that is built with it."""
    sample = Sample(root)
    for arch in ("arm64", "x86_64"):
        content = {"lib/libbase.dylib": base(zig, arch), "include/base.h": b"int base(int);\n"}
        sample.add("base", archs=[arch], content=content) if arch == "arm64" else add_slice(sample, arch, content)
    sample.add_built(
        "plug",
        FILES,
        facts={"needs": ["base"]},
        packages=PACKAGES,
        fix={"external": [{"match": "@rpath/libbase.dylib", "reason": "in the tarball, or the package base"}]},
        audit={"exports": {"*/libplug.so": {"allow": ["_plug_*"], "require": ["_plug_run"]}}},
    )
    sample.recipes["plug"]["build"]["python_packages"] = {"base": "base"}
    sample.write()
    share_zig_cache(sample)
    return sample


@cache
def base(zig: Zig, arch: str) -> bytes:
    """Return the library, compiled once: without `-g0`, zig writes a path of its cache into it."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("-O2", "-fno-sanitize=undefined")
        return zig.dylib(Path(folder), BASE, arch, "11.0", *options, name="libbase").read_bytes()


def add_slice(sample: Sample, arch: str, content: dict[str, bytes]) -> None:
    """Give the newest release of `base` another architecture."""
    other = Sample(sample.root / "other")
    other.add("base", archs=[arch], content=content)
    archive = next((sample.root / "other" / "archives").iterdir())
    shutil.move(archive, sample.archives / archive.name)
    sample.recipes["base"]["releases"][0][arch] = other.recipes["base"]["releases"][0][arch]
    sample.write()


def share_zig_cache(sample: Sample) -> None:
    """Keep the runtime that zig compiles for itself between tests, because compiling it takes half a minute."""
    sample.cache.mkdir(exist_ok=True)
    (sample.cache / "zig").symlink_to(zig_cache())


def make(sample: Sample, **settings: object) -> BuildResult:
    result = sample.make("plug", **settings)
    for error in result.failed.values():
        raise error
    return result


def built(sample: Sample) -> list[str]:
    """Return the steps that ran."""
    return [event.step for event in sample.events if isinstance(event, StepFinished) and event.status == "built"]


@pytest.fixture(scope="module")
def sample(zig: Zig, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """Return a project whose plug-in was built for arm64."""
    sample = plugin(tmp_path_factory.mktemp("project") / "here", zig)
    make(sample)
    return sample


def library(artifact: Path, folder: Path, arch: str = "ARM64") -> lief.MachO.Binary:
    """Return the plug-in from an artifact as LIEF reads it."""
    if artifact.suffix == ".whl":
        with zipfile.ZipFile(artifact) as archive:
            archive.extractall(folder)
    else:
        with tarfile.open(artifact) as archive:
            archive.extractall(folder, filter="data")
    (path,) = folder.rglob("libplug.so")
    found = lief.MachO.parse(path)
    assert found is not None
    image = found.take(getattr(lief.MachO.Header.CPU_TYPE, arch))
    assert image is not None
    return image


def artifact(sample: Sample, pattern: str) -> Path:
    (found,) = sample.dist.glob(pattern)
    return found


@pytest.mark.parametrize(
    ("pattern", "rpaths"),
    [("*.tar.gz", ["@loader_path"]), ("*.whl", ["@loader_path/../../base/lib"])],
)
def test_an_artifact_has_the_library_that_the_recipe_describes(
    sample: Sample, tmp_path: Path, pattern: str, rpaths: list[str]
) -> None:
    found = library(artifact(sample, pattern), tmp_path)
    assert [command.path for command in found.rpaths] == rpaths
    assert [symbol.name for symbol in found.exported_symbols] == ["_plug_run"]
    assert {dylib.name for dylib in found.libraries if dylib.command.name == "LOAD_DYLIB"} == {
        "@rpath/libbase.dylib",
        "/usr/lib/libc++.1.dylib",
        "/usr/lib/libSystem.B.dylib",
    }
    assert found.build_version is not None
    assert found.build_version.minos == [14, 0, 0]
    assert found.has_code_signature


def test_wheel_metadata_requires_the_linked_version(sample: Sample) -> None:
    wheel = artifact(sample, "*.whl")
    name, version, _, tags = parse_wheel_filename(wheel.name)
    assert (name, str(version), {str(tag) for tag in tags}) == ("plug-in", "1.0", {"py3-none-macosx_14_0_arm64"})
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("plug_in-1.0.dist-info/METADATA").decode()
        names = archive.namelist()
    assert "Requires-Dist: base==1.0" in metadata.splitlines()
    assert "top/plugs/libplug.so" in names
    assert not [name for name in names if "libbase" in name]
    assert [name for name in names if name.startswith("plug_in-1.0.dist-info/sboms/")]


def test_the_manifest_lists_the_dependencies_of_each_package(sample: Sample) -> None:
    manifest = json.loads((sample.dist / "manifest.json").read_text())
    needs = {
        entry["file"].rpartition(".")[2]: {(row["kind"], row["name"]) for row in entry["dependencies"]}
        for entry in manifest["artifacts"]
    }
    assert ("component", "base") in needs["whl"]
    assert ("external", "@rpath/libbase.dylib") in needs["whl"]
    assert {kind for kind, _ in needs["gz"]} == {"system"}
    assert all(entry["tools"]["zig"].startswith("zig 0.") for entry in manifest["artifacts"])


def test_a_second_run_does_nothing(sample: Sample) -> None:
    assert make(sample).idle
    assert built(sample) == []


def test_no_pack_stops_at_the_stage(sample: Sample) -> None:
    result = sample.project().planner().plan(sample.project().request(["plug"], pack=False))
    assert [step.rpartition("/")[2] for step in result.goals] == ["fix"]
    assert result.idle


def test_other_folders_and_jobs_give_the_same_bytes(sample: Sample, zig: Zig, tmp_path: Path) -> None:
    other = plugin(tmp_path / "quite another folder", zig)
    make(other, jobs=1)
    assert other.content() == sample.content()


def test_a_universal_artifact_has_both_architectures(sample: Sample, tmp_path: Path) -> None:
    make(sample, arch="universal2", dist=str(tmp_path / "dist"))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name == "plug_in-1.0-py3-none-macosx_14_0_universal2.whl"
    for arch in ("ARM64", "X86_64"):
        found = library(wheel, tmp_path / arch, arch)
        assert [symbol.name for symbol in found.exported_symbols] == ["_plug_run"]
        assert found.has_code_signature


@pytest.fixture
def changed(zig: Zig, tmp_path: Path) -> Sample:
    """Return a separate built project, for a test that changes its sources."""
    sample = plugin(tmp_path / "project", zig)
    make(sample)
    return sample


def log(sample: Sample) -> str:
    (path,) = sample.cache.glob("build/plug-*/log/build.log")
    return path.read_text()


def test_only_what_changed_is_compiled_again(changed: Sample) -> None:
    path = changed.root / "recipes" / "plug" / "src" / "other.cpp"
    before = artifact(changed, "*.whl").read_bytes()
    path.write_text(path.read_text().replace("x + 1", "x + 2"))
    make(changed)
    assert "other.cpp" in log(changed)
    assert "plug.cpp" not in log(changed)
    assert artifact(changed, "*.whl").read_bytes() != before
    assert not [step for step in built(changed) if step.startswith("base")]


def test_compile_error_quotes_the_compiler_and_the_kept_folder(changed: Sample) -> None:
    before = changed.content()
    path = changed.root / "recipes" / "plug" / "src" / "other.cpp"
    path.write_text("int other(int x) { return y; }\n")
    with pytest.raises(BuildError, match="undeclared identifier 'y'") as caught:
        make(changed)
    assert "macbuild shell plug" in str(caught.value.hint)
    assert changed.content() == before
    path.write_text(FILES["src/other.cpp"])
    assert make(changed).published[0].state == "up to date"


def test_a_file_that_the_recipe_does_not_name_is_refused(changed: Sample) -> None:
    folder = changed.root / "recipes" / "plug" / "src"
    (folder / "secret.hpp").write_text("#define STEP 1\n")
    (folder / "other.cpp").write_text('#include "secret.hpp"\nint other(int x) { return x + STEP; }\n')
    with pytest.raises(RecipeError, match=r"plug/src/secret\.hpp"):
        make(changed)


def test_symbol_without_provider_is_named_in_the_error(changed: Sample) -> None:
    path = changed.root / "recipes" / "plug" / "src" / "other.cpp"
    path.write_text('extern "C" int nobody_has_this(int);\nint other(int x) { return nobody_has_this(x); }\n')
    with pytest.raises(BuildError, match="nobody_has_this"):
        make(changed)


def test_ide_opens_the_build_by_preset_without_rebuilding(changed: Sample) -> None:
    folder = changed.root / "recipes" / "plug"
    presets = json.loads((folder / "CMakeUserPresets.json").read_text())
    (name,) = [preset["name"] for preset in presets["configurePresets"]]
    subprocess.run([find_cmake(), "--preset", name], cwd=folder, check=True, capture_output=True)
    done = subprocess.run(
        [find_cmake(), "--build", "--preset", name], cwd=folder, check=True, capture_output=True, text=True
    )
    assert "no work to do" in done.stdout
    commands = json.loads((Path(presets["configurePresets"][0]["binaryDir"]) / "compile_commands.json").read_text())
    assert {Path(row["file"]).name for row in commands} == {"plug.cpp", "other.cpp"}


def test_a_shell_has_the_environment_of_the_build(changed: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(changed.root)
    monkeypatch.setenv("CXXFLAGS", "-DWRONG")
    code = run(["shell", "plug", "--arch", "arm64", "--cache-dir", str(changed.cache), "--", "sh", "-c", PROBE])
    assert code == 0
    (folder,) = changed.cache.glob("build/plug-*/build")
    assert (folder / "seen").read_text().split() == ["plug", "none"]


def test_shell_prepares_the_folder_of_a_result_from_elsewhere(changed: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(changed.cache / "build")
    assert make(changed).idle
    monkeypatch.chdir(changed.root)
    assert run(["shell", "plug", "--arch", "arm64", "--cache-dir", str(changed.cache), "--", "ninja", "-n"]) == 0
    assert not list(changed.cache.glob("build/plug-*/build/libplug*"))


def test_shell_writes_the_presets_of_a_result_from_elsewhere(changed: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    path = changed.root / "recipes" / "plug" / "CMakeUserPresets.json"
    before = path.read_bytes()
    path.unlink()
    assert make(changed).idle
    monkeypatch.chdir(changed.root)
    assert run(["shell", "plug", "--arch", "arm64", "--cache-dir", str(changed.cache), "--", "true"]) == 0
    assert path.read_bytes() == before


PROBE = 'echo "$MACBUILD_SHELL ${CXXFLAGS:-none}" > seen && "$CXX" -x c++ -c -o seen.o /dev/null'


def test_a_build_for_this_machine_runs_its_tests(changed: Sample) -> None:
    changed.recipes["plug"]["build"]["python_packages"] = {}
    changed.write()
    project = changed.project()
    (suite,) = prepare_tests(project, "plug", lambda _: None, sanitize="address", server=None, arguments=[])
    suite.run()
    path = changed.root / "recipes" / "plug" / "src" / "other.cpp"
    path.write_text('#include "other.hpp"\nint other(int x) { return x + 2; }\n')
    (suite,) = prepare_tests(project, "plug", lambda _: None, sanitize="address", server=None, arguments=[])
    with pytest.raises(MacbuildError, match="ctest ended with"):
        suite.run()


def test_unknown_sanitizer_is_refused_before_building(changed: Sample) -> None:
    with pytest.raises(UsageError, match="unknown sanitizer 'adress'") as caught:
        prepare_tests(changed.project(), "plug", lambda _: None, sanitize="adress", server=None, arguments=[])
    assert caught.value.hint == "choose from address, undefined, thread"
    assert not list(changed.cache.glob("build/*host*"))
