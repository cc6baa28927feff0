"""Read the artifacts of the main job back with other tools."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import lief
import pytest

from macbuild.macho.tools.path import tool_folder
from tests.e2e.backends import wheel
from tests.e2e.conftest import ARTIFACTS, COMPONENTS, ONNXRUNTIME, PYTORCH, Macbuild
from tests.integration.test_delocate import Delocate

FILES = [(arch, file) for arch, files in ARTIFACTS.items() for file in files]
# Dependencies of an artifact: the server that loads a backend, and for the wheel the package torch.
SERVER = "@rpath/libtritonserver.dylib"


@dataclass(frozen=True)
class Artifact:
    """One artifact in dist/ and what it holds, unpacked; a tarball without its top folder, by GNU tar."""

    arch: str
    file: Path
    content: Path


@pytest.fixture(scope="module", params=FILES, ids=[file for _, file in FILES])
def artifact(
    request: pytest.FixtureRequest, dist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Artifact]:
    """Yield one artifact after the other; unpacked, all of them together would take 3 GB."""
    arch, name = request.param
    folder = tmp_path_factory.mktemp("unpacked")
    if name.endswith(".whl"):
        shutil.unpack_archive(dist / name, folder, "zip")
    else:
        subprocess.run(["tar", "-C", folder, "--strip-components=1", "-xzf", dist / name], check=True)
    yield Artifact(arch, dist / name, folder)
    shutil.rmtree(folder)


def only(start: str) -> pytest.MarkDecorator:
    """Mark a test that is about the artifacts whose names start so."""
    files = [(arch, file) for arch, file in FILES if file.startswith(start)]
    return pytest.mark.parametrize("artifact", files, ids=[file for _, file in files], indirect=True, scope="module")


def slices(root: Path) -> Iterator[tuple[Path, lief.MachO.Binary]]:
    """Yield every slice of every Mach-O file below a folder, as read by LIEF."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and lief.is_macho(str(path)):
            parsed = lief.MachO.parse(str(path))
            assert parsed is not None
            for index in range(parsed.size):
                binary = parsed.at(index)
                assert binary is not None
                yield path, binary


def code_hashes_match(content: bytes, start: int, size: int) -> bool:
    """Compute the page hashes of a signature from the format alone, without macbuild's code."""
    blob = content[start : start + size]
    count = struct.unpack_from(">I", blob, 8)[0]
    directories = 0
    for index in range(count):
        at = struct.unpack_from(">I", blob, 16 + 8 * index)[0]
        if struct.unpack_from(">I", blob, at)[0] != 0xFADE0C02:
            continue
        directories += 1
        hash_offset, _, special, code, limit = struct.unpack_from(">5I", blob, at + 16)
        hash_size, hash_type, _, page = struct.unpack_from(">4B", blob, at + 36)
        hasher = {1: hashlib.sha1, 2: hashlib.sha256}[hash_type]
        assert limit == start
        assert code == -(-limit // (1 << page))
        for number in range(code):
            stop = min((number + 1) << page, limit)
            slot = at + hash_offset + number * hash_size
            if hasher(content[number << page : stop]).digest() != blob[slot : slot + hash_size]:
                return False
        del special
    return directories > 0


def test_no_id_dependency_or_rpath_leaves_the_artifact(artifact: Artifact) -> None:
    found = list(slices(artifact.content))
    assert found
    for path, binary in found:
        for library in binary.libraries:
            assert library.name.startswith(("@rpath/", "/usr/lib/", "/System/Library/")), (path, library.name)
        rpaths = [command.path for command in binary.rpaths]
        assert len(rpaths) == len(set(rpaths)), (path, rpaths)
        assert all(rpath.startswith("@loader_path") for rpath in rpaths), (path, rpaths)
        for library in binary.libraries:
            if library.name.startswith("@rpath/") and library.command != lief.MachO.LoadCommand.TYPE.ID_DYLIB:
                places = [path.parent / rpath.replace("@loader_path", ".") / library.name[7:] for rpath in rpaths]
                inside = [os.path.relpath(place, artifact.content) for place in places]
                expected = library.name == SERVER or (
                    artifact.file.suffix == ".whl" and f"torch/lib/{library.name[7:]}" in inside
                )
                assert expected or any(place.exists() for place in places), (path, library.name)
    types = {"arm64": {"ARM64"}, "x86_64": {"X86_64"}, "universal2": {"ARM64", "X86_64"}}[artifact.arch]
    assert {binary.header.cpu_type.name for _, binary in found} == types


def test_every_slice_is_signed_by_an_independent_computation(artifact: Artifact) -> None:
    for path, binary in slices(artifact.content):
        signature = binary.code_signature
        assert signature is not None, path
        content = path.read_bytes()[binary.fat_offset :]
        assert signature.data_offset % 16 == 0
        assert code_hashes_match(content, signature.data_offset, signature.data_size), path


def test_manifest_agrees_with_the_artifact(artifact: Artifact) -> None:
    file, content = artifact.file, artifact.content
    manifest = json.loads((file.parent / "manifest.json").read_text())
    schema = json.loads((Path(__file__).parents[2] / "macbuild/package/manifest.schema.json").read_text())
    jsonschema.validate(manifest, schema)
    (entry,) = [row for row in manifest["artifacts"] if row["file"] == file.name]
    assert entry["target"]["arch"] == artifact.arch
    assert entry["audit"]["ok"] is True
    assert entry["size"] == file.stat().st_size
    assert entry["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    listed = {row["path"]: row for row in entry["files"]}
    below = {str(path.relative_to(content)) for path in content.rglob("*") if not path.is_dir()}
    # The manifest describes the stage; the wheel's own RECORD covers the rest of the wheel.
    below = {path for path in below if ".dist-info/" not in path}
    assert set(listed) == below
    for path, row in listed.items():
        if "sha256" in row:
            assert hashlib.sha256((content / path).read_bytes()).hexdigest() == row["sha256"]
    binaries = {row["path"]: row for row in entry["binaries"]}
    needs: dict[str, set[str]] = {path: set() for path in binaries}
    for path, binary in slices(content):
        own = lief.MachO.LoadCommand.TYPE.ID_DYLIB
        needs[str(path.relative_to(content))] |= {
            library.name for library in binary.libraries if library.command != own
        }
    assert {path: set(row["needs"]) for path, row in binaries.items()} == needs
    oldest = max(minos(binary) for _, binary in slices(content))
    assert oldest == (*map(int, entry["minimum_macos"].split(".")), 0, 0)[:3]


def minos(binary: lief.MachO.Binary) -> tuple[int, int, int]:
    """Return the minimum macOS of a slice according to LIEF."""
    build = binary.build_version
    if build is None:
        assert binary.version_min is not None
        major, minor, patch = binary.version_min.version
    else:
        major, minor, patch = build.minos
    return major, minor, patch


def test_checksums_are_those_of_sha256sum(dist: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True, capture_output=True)
    for path in dist.glob("*.sha256"):
        subprocess.run(["sha256sum", "--check", "--strict", path.name], cwd=dist, check=True, capture_output=True)


def test_artifact_passes_the_release_policy_by_the_command(macbuild: Macbuild, artifact: Artifact) -> None:
    # Some libraries inside are thin, which the recipes exempt; the command does not know the recipe.
    exempted = artifact.arch == "universal2" and artifact.file.name.startswith(("libtorch", PYTORCH, ONNXRUNTIME))
    policy = "wheel" if artifact.file.suffix == ".whl" else "release"
    answer = macbuild("audit", "--json", "--policy", policy, str(artifact.file), code=15 if exempted else 0)
    report = json.loads(answer.stdout)
    rules = {found["rule"] for found in report["findings"] if found["severity"] == "error"}
    assert rules == ({"arch-missing"} if exempted else set())


def test_second_run_does_nothing_and_says_so(macbuild: Macbuild, dist: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in dist.iterdir()}
    answer = macbuild.quick()("all", "--skip-unreachable", "--arch", "arm64", "--dist", str(dist))
    assert "Nothing to do" in answer.stderr
    assert {path.name: path.stat().st_mtime_ns for path in dist.iterdir()} == before


@only("libtorch-")
def test_cmake_finds_the_libraries_of_the_artifact(artifact: Artifact, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\n"
        "project(use LANGUAGES NONE)\n"
        "find_package(Torch REQUIRED)\n"
        "get_target_property(place torch IMPORTED_LOCATION_RELEASE)\n"
        'file(WRITE "${CMAKE_BINARY_DIR}/found" "${place};${TORCH_INCLUDE_DIRS}")\n'
    )
    cmake = [sys.executable, "-m", "cmake", "-G", "Ninja", "-S", str(tmp_path), "-B", str(tmp_path / "build")]
    cmake += ["-DCMAKE_SYSTEM_NAME=Darwin", f"-DCMAKE_PREFIX_PATH={artifact.content}"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(cmake, check=True, capture_output=True, env={**os.environ, "PATH": path})
    found = (tmp_path / "build/found").read_text().split(";")
    assert Path(found[0]) == artifact.content / "lib/libtorch.dylib"
    for folder in found[1:]:
        assert (Path(folder) / "torch").is_dir()


@only("libtorch-2.2.2-macos-universal2")
def test_compiler_chooses_headers_that_differ_between_slices(artifact: Artifact) -> None:
    include = artifact.content / "include/ATen"
    for arch, enabled in (("arm64", 0), ("x86_64", 1)):
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{arch.replace('arm64', 'aarch64')}-macos.11.0"]
        line = [*zig, "-E", "-dM", str(include / "Config.h")]
        macros = subprocess.run(line, check=True, capture_output=True, text=True).stdout
        assert f"#define AT_MKLDNN_ENABLED() {enabled}" in macros.splitlines()


def test_other_folders_and_job_counts_give_identical_bytes(dist: Path, mirror: Path, tmp_path: Path) -> None:
    # With one job only the small components, because everything takes minutes with one.
    for jobs, line in (("1", ["build", "onnxruntime"]), ("5", ["build", *COMPONENTS])):
        folder = tmp_path / f"somewhere else {jobs}"
        (folder / "work").mkdir(parents=True)
        out = folder / "out"
        line += ["--arch", "arm64", "-j", jobs, "--dist", str(out), "--mirror", str(mirror)]
        Macbuild(folder / "cache")(*line, cwd=folder / "work")
        made = [path.name for path in out.iterdir() if path.name not in {"manifest.json", "SHA256SUMS"}]
        assert [name for name in made if (out / name).read_bytes() != (dist / name).read_bytes()] == []
        assert set(ARTIFACTS["arm64"]) <= set(made) or jobs == "1"
    lines = set((dist / "SHA256SUMS").read_text().splitlines())
    assert set((out / "SHA256SUMS").read_text().splitlines()) <= lines


@pytest.mark.parametrize("component", ["pytorch", "onnxruntime"])
def test_delocate_finds_nothing_to_do_and_agrees_on_the_tag(dist: Path, tmp_path: Path, component: str) -> None:
    delocate = Delocate(tool_folder(tmp_path / "tools"))
    for arch in ("arm64", "x86_64"):
        made = dist / wheel(component, arch)
        options = ("--ignore-missing-dependencies", "--require-archs", arch)
        delocate.run("delocate-wheel", *options, "-w", tmp_path / arch, made)
        (result,) = (tmp_path / arch).iterdir()
        assert result.name == made.name
        place = f"tritonserver/backends/{component}/libtriton_{component}.so"
        with zipfile.ZipFile(made) as before, zipfile.ZipFile(result) as after:
            assert before.read(place) == after.read(place)
