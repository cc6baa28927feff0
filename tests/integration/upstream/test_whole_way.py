"""Build, audit and pack the synthetic upstream for macOS, and serve models with it on this machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lief
import pytest
from filelock import FileLock

from macbuild.macho.verify import verify_file
from tests.conftest import cache_folder, shared_store
from tests.e2e.conftest import ROOT, Macbuild

REPOSITORIES = {
    "common": "common",
    "core": "core",
    "backend": "backend",
    "tritonserver": "server",
    "identity_backend": "identity_backend",
    "python_backend": "python_backend",
}
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PROGRAMS = {
    "bin/tritonserver",
    "lib/libtritonserver.dylib",
    "backends/identity/libtriton_identity.so",
    "backends/python/libtriton_python.so",
    "backends/python/triton_python_backend_stub",
    *(f"backends/python/libtriton_python_backend_stub-{version}.so" for version in PYTHONS),
}
# The libraries for Intel Macs take five minutes to compile; tests/e2e/test_libraries.py compiles the most different.
ARCHS = ("arm64", pytest.param("x86_64", marks=pytest.mark.soak))
VERSION = "2.73.0"
# Our own backends are the same here as in their own tarballs, which other tests read.
BESIDE = ("backends/onnxruntime/", "backends/pytorch/")


def sources(repositories: Path) -> list[str]:
    """Return the flags that use repositories as the sources of upstream's components."""
    return [f"--source={component}={repositories / name}" for component, name in REPOSITORIES.items()]


REPOS = Path(__file__).parent / "repos"
SYNTHETIC = sources(REPOS)


@dataclass(frozen=True)
class Artifacts:
    """The artifacts of one architecture."""

    arch: str
    dist: Path

    @property
    def tarball(self) -> Path:
        return self.dist / f"tritonserver-{VERSION}-macos-{self.arch}.tar.gz"

    @property
    def wheel(self) -> Path:
        return self.dist / f"tritonserver-{VERSION}-py3-none-macosx_11_0_{self.arch}.whl"


@pytest.fixture(scope="module")
def macbuild() -> Macbuild:
    """Return the command with the shared store."""
    return Macbuild(shared_store()).quick()


@pytest.fixture(scope="module", params=ARCHS)
def made(request: pytest.FixtureRequest, macbuild: Macbuild, tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    """Return the artifacts of the synthetic server for one architecture."""
    dist = tmp_path_factory.mktemp(request.param)
    with FileLock(cache_folder() / "dist.lock"):
        macbuild("build", "tritonserver", "--arch", request.param, "--dist", str(dist), *SYNTHETIC)
    return Artifacts(request.param, dist)


@pytest.fixture(scope="module")
def unpacked(made: Artifacts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the tarball as unpacked by GNU tar."""
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["tar", "-C", str(folder), "-xzf", str(made.tarball)], check=True)
    (top,) = folder.iterdir()
    yield top
    shutil.rmtree(folder)


def machos(folder: Path) -> dict[str, lief.MachO.Binary]:
    """Return the Mach-O files below a folder as read by LIEF, by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and lief.is_macho(str(path)):
            binary = lief.parse(path)
            assert isinstance(binary, lief.MachO.Binary)
            found[path.relative_to(folder).as_posix()] = binary
    return found


def test_tarball_holds_server_backends_headers_and_licences(unpacked: Path) -> None:
    assert unpacked.name.startswith(f"tritonserver-{VERSION}-macos-")
    found = set(machos(unpacked))
    assert found > PROGRAMS
    backends = {path.name for path in (unpacked / "backends").iterdir()}
    assert backends == {"identity", "onnxruntime", "python", "pytorch"}
    assert {name for name in found - PROGRAMS if not name.startswith(BESIDE)} == set()
    assert (unpacked / "backends/python/triton_python_backend_utils.py").is_file()
    assert (unpacked / "python/triton_shm_names.py").is_file()
    assert (unpacked / "TRITON_VERSION").read_text().strip() == VERSION
    assert (unpacked / "LICENSE").is_file()
    assert (unpacked / "include/triton/core/tritonserver.h").is_file()
    assert (unpacked / "lib/cmake/TritonCore/TritonCoreConfig.cmake").is_file()
    licences = {path.name for path in (unpacked / "licenses").iterdir()}
    assert licences >= {
        "abseil",
        "boost",
        "core",
        "libb64",
        "libevent",
        "libevhtp",
        "protobuf",
        "re2",
        "zlib",
    }


def test_dependency_of_a_backend_keeps_its_licence(unpacked: Path) -> None:
    assert (unpacked / "backends/python/licenses/pybind11").is_dir()
    assert list((unpacked / "backends/onnxruntime/licenses").rglob("LICENSE"))


def test_links_stay_inside_and_only_the_api_is_exported(made: Artifacts, unpacked: Path) -> None:
    allowed = {
        "tritonserver": ("__mh_execute_header", "___dso_handle"),
        "triton_python_backend_stub": ("__mh_execute_header", "___dso_handle"),
        "libtritonserver.dylib": ("_TRITONSERVER_", "_TRITONBACKEND_", "_TRITONREPOAGENT_", "_TRITONCACHE_"),
        "libtriton_identity.so": ("_TRITONBACKEND_",),
        "libtriton_python.so": ("_TRITONBACKEND_",),
    }
    stub = ("_macbuild_python_stub",)
    cpu = {"arm64": "ARM64", "x86_64": "X86_64"}[made.arch]
    for name, binary in machos(unpacked).items():
        assert binary.header.cpu_type.name == cpu
        verify_file(unpacked / name)
        if name in PROGRAMS:
            assert binary.build_version is not None
            assert binary.build_version.minos[:2] == [11, 0]
        rpaths = [command.path for command in binary.rpaths]
        assert all(rpath.startswith("@loader_path") for rpath in rpaths), name
        for library in binary.libraries:
            if library.name.startswith("@rpath/") and library.command != lief.MachO.LoadCommand.TYPE.ID_DYLIB:
                leaf = library.name.removeprefix("@rpath/")
                places = [(unpacked / name).parent / rpath.replace("@loader_path", ".") / leaf for rpath in rpaths]
                assert any(place.exists() for place in places), (name, library.name, rpaths)
            else:
                assert library.name.startswith(("@rpath/", "/usr/lib/", "/System/Library/")), (name, library.name)
        if name.startswith(BESIDE):
            continue
        exported = [str(symbol.name) for symbol in binary.exported_symbols]
        file = name.rsplit("/", 1)[-1]
        assert exported or "." not in file
        assert [symbol for symbol in exported if not symbol.startswith(allowed.get(file, stub))] == [], name


def test_both_artifacts_pass_the_release_policy(macbuild: Macbuild, made: Artifacts) -> None:
    for artifact in (made.tarball, made.wheel):
        macbuild("audit", str(artifact), "--policy", "release")


def test_no_file_contains_its_build_path(unpacked: Path) -> None:
    places = [str(place).encode() for place in (cache_folder(), ROOT, Path.home())]
    for path in unpacked.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert [place for place in places if place in content] == [], path


def test_manifest_names_the_source_folder_without_its_path(made: Artifacts) -> None:
    manifest = json.loads((made.dist / "manifest.json").read_text())
    entry = next(row for row in manifest["artifacts"] if row["file"] == made.tarball.name)
    requests = {row["request"] for row in entry["sources"]}
    assert {f"checkout {component}" for component in REPOSITORIES} <= requests
    assert "sdist grpcio-tools==1.81.1" in requests
    assert str(ROOT) not in json.dumps(manifest)


def test_pip_installs_the_wheel_for_a_mac_with_its_command(made: Artifacts, tmp_path: Path) -> None:
    target = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "--target",
        str(target),
    ]
    subprocess.run([*command, "--platform", f"macosx_11_0_{made.arch}", str(made.wheel)], check=True)
    package = target / "tritonserver"
    assert set(machos(package)) == PROGRAMS
    for program in ("bin/tritonserver", "backends/python/triton_python_backend_stub"):
        assert os.access(package / program, os.X_OK)
    (found,) = importlib.metadata.distributions(path=[str(target)])
    (script,) = found.entry_points.select(group="console_scripts", name="tritonserver")
    environ = {**os.environ, "PYTHONPATH": str(target)}
    code = f"from {script.module} import {script.attr}; {script.attr}()"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "bin/tritonserver cannot be executed: Exec format error" in done.stderr


def test_a_second_run_has_nothing_to_do(macbuild: Macbuild, made: Artifacts) -> None:
    line = ["build", "tritonserver", "--arch", made.arch, "--dist", str(made.dist), *SYNTHETIC]
    assert json.loads(macbuild(*line, "--json").stdout)["idle"] is True


@pytest.mark.parametrize("made", ["arm64"], indirect=True)
@pytest.mark.parametrize("component", ["core", pytest.param("tritonserver", marks=pytest.mark.soak)])
def test_other_folders_without_network_give_the_same_bytes(
    macbuild: Macbuild, made: Artifacts, tmp_path: Path, component: str
) -> None:
    """Build in a network namespace without a route, with only the results that upstream depends on."""
    shutil.copytree(REPOS, tmp_path / "repos")
    plan = json.loads(macbuild("plan", component, "--arch", made.arch, *SYNTHETIC, "--json").stdout)
    steps = [step for step in plan["steps"] if not step["id"].startswith(tuple(REPOSITORIES))]
    for key in {step["key"] for step in steps if step["state"] == "in store"}:
        result = Path("results", key[:2], key)
        shutil.copytree(macbuild.cache / result, tmp_path / "store" / result, symlinks=True, copy_function=os.link)
    line = ["build", component, "--arch", made.arch, "--json"]
    command = ["unshare", "--net", str(Path(sys.executable).with_name("macbuild")), *line]
    command += ["--dist", str(tmp_path / "dist"), *sources(tmp_path / "repos")]
    environ = {**os.environ, "MACBUILD_CACHE_DIR": str(tmp_path / "store")}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"core-{VERSION}-macos-{made.arch}/build: done" in done.stderr
    if component == "tritonserver":
        for artifact in (made.tarball, made.wheel):
            assert (tmp_path / "dist" / artifact.name).read_bytes() == artifact.read_bytes()
        return
    again = macbuild(*line, "--dist", str(tmp_path / "again"), *SYNTHETIC)
    here, there = (
        next(Path(path) for step, path in json.loads(text)["stages"].items() if step.startswith(f"{component}-"))
        for text in (again.stdout, done.stdout)
    )
    assert contents(here) == contents(there)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files below a folder; there must be some."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found
    return found


@pytest.mark.soak
def test_both_architectures_become_one(macbuild: Macbuild, tmp_path: Path) -> None:
    line = ["build", "tritonserver", "--arch", "universal2", "--dist", str(tmp_path), *SYNTHETIC]
    macbuild(*line, "--without", "pytorch", "--without", "onnxruntime")
    tarball = tmp_path / f"tritonserver-{VERSION}-macos-universal2.tar.gz"
    subprocess.run(["tar", "-C", str(tmp_path), "-xzf", str(tarball)], check=True)
    for name in PROGRAMS:
        found = lief.MachO.parse(str(tmp_path / tarball.name.removesuffix(".tar.gz") / name))
        assert found is not None
        assert {binary.header.cpu_type.name for binary in found} == {"ARM64", "X86_64"}, name


def test_options_change_the_build(macbuild: Macbuild) -> None:
    def definitions(*flags: str) -> dict[str, str]:
        plan = json.loads(macbuild("plan", "tritonserver", "--arch", "arm64", *SYNTHETIC, *flags, "--json").stdout)
        return {step["id"]: step["key"] for step in plan["steps"]}

    usual, other = definitions(), definitions("--without", "cpu_metrics")
    changed = {step for step in usual if usual[step] != other[step]}
    assert "core-2.73.0-macos-arm64/build" in changed
    assert "protobuf-33.5-macos-arm64/build" not in changed
    refused = macbuild("plan", "tritonserver", *SYNTHETIC, "--with", "s3", code=6)
    assert "cannot be built with s3: it needs the AWS SDK for C++" in refused.stderr
    unmet = macbuild("plan", "tritonserver", *SYNTHETIC, "--without", "statistics", code=6)
    assert "metrics requires statistics, which is off" in unmet.stderr


def test_unpinned_upstream_is_left_out_with_the_pinning_command(macbuild: Macbuild) -> None:
    answer = macbuild("plan", "--arch", "arm64", "--skip-unreachable")
    for name in ("tritonserver", "python_backend", "identity_backend"):
        assert f"left out: {name}: not pinned; run: macbuild lock " in answer.stderr
    refused = macbuild("build", "tritonserver", "--arch", "arm64", code=5)
    assert "macbuild lock" in refused.stderr
    assert "--source tritonserver=FOLDER" in refused.stderr


def test_the_tree_for_this_machine_answers_its_clients(macbuild: Macbuild) -> None:
    answer = macbuild("test", "tritonserver", *SYNTHETIC, "--", "-q", "-p", "no:cacheprovider")
    assert " passed" in answer.stdout
    assert "failed" not in answer.stdout


def test_models_in_python_are_served_from_the_same_tree(macbuild: Macbuild) -> None:
    answer = macbuild("test", "python_backend", *SYNTHETIC, "--", "-q", "-p", "no:cacheprovider")
    assert " passed" in answer.stdout
    assert "failed" not in answer.stdout
