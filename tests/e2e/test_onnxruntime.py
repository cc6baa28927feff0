"""Read the cross-compiled ONNX Runtime backend with each supported library; test its source in a server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import lief
import pytest

from tests.e2e.backends import CPU, LOADS, check_exports, check_imports, check_load, install, needs, read, wheel
from tests.e2e.conftest import ARTIFACTS, ONNXRUNTIME, ROOT, Macbuild

BACKEND = "backends/onnxruntime/libtriton_onnxruntime.so"
SERVER = "@rpath/libtritonserver.dylib"
SYSTEM = {"/usr/lib/libc++.1.dylib", "/usr/lib/libSystem.B.dylib"}
RPATHS = {
    "tar.gz": ["@loader_path", "@loader_path/../../lib"],
    "whl": ["@loader_path/../../../onnxruntime/capi", "@loader_path/../../lib"],
}
SLICES = [("arm64", "arm64"), ("x86_64", "x86_64"), ("universal2", "arm64"), ("universal2", "x86_64")]
INSIDE = {"arm64": "1.30.0", "x86_64": "1.23.2"}
# The wheel, the Mac, and the ONNX Runtime: the oldest and the newest supported versions, and some between them.
SERVED = [
    ("arm64", "arm64", "1.20.0"),
    ("arm64", "arm64", "1.23.2"),
    ("arm64", "arm64", "1.30.0"),
    ("arm64", "arm64", "1.31.1"),
    ("x86_64", "x86_64", "1.20.0"),
    ("x86_64", "x86_64", "1.23.2"),
    ("universal2", "arm64", "1.31.1"),
    ("universal2", "x86_64", "1.23.2"),
]
NO_COREML_BY_NAME = {"1.20.0"}


@pytest.fixture(scope="module")
def unpacked(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder with each tarball and wheel unpacked below the end of its name; wheels by pip, alone."""
    folder = tmp_path_factory.mktemp("unpacked")
    found = {}
    for arch in ARTIFACTS:
        found[f"{arch}.tar.gz"] = folder / f"{ONNXRUNTIME}-{arch}"
        subprocess.run(["tar", "-C", folder, "-xzf", dist / f"{ONNXRUNTIME}-{arch}.tar.gz"], check=True)
        found[f"{arch}.whl"] = install(dist, "onnxruntime", arch, folder / f"site-{arch}")
    return found


def folders(backend: Path, arch: str) -> list[Path]:
    """Return the folders of the backend's rpaths, in which it searches for ONNX Runtime, in order."""
    image = read(backend, arch)
    paths = [str(command.path) for command in image.rpaths]
    assert all(path.startswith("@loader_path") for path in paths)
    return [Path(path.replace("@loader_path", str(backend.parent), 1)).resolve() for path in paths]


def libraries(folder: Path) -> list[Path]:
    """Return the files that the backend tries in a folder, the newest first."""
    found = [(re.fullmatch(r"libonnxruntime((?:\.\d+)*)\.dylib", path.name), path) for path in folder.iterdir()]
    versions = {path: [int(number) for number in match[1].split(".")[1:]] for match, path in found if match}
    return sorted(versions, key=lambda path: versions[path], reverse=True)


def architectures(path: Path) -> set[str]:
    """Return the architectures of a Mach-O file."""
    parsed = lief.MachO.parse(path)
    assert parsed is not None
    return {arch for arch, cpu in CPU.items() if parsed.take(cpu) is not None}


def loaded(backend: Path, arch: str) -> Path:
    """Return the library that the backend uses on a Mac of the architecture."""
    tried = [path for folder in folders(backend, arch) if folder.is_dir() for path in libraries(folder)]
    return next(path for path in tried if arch in architectures(path))


@pytest.mark.parametrize("kind", ["tar.gz", "whl"])
@pytest.mark.parametrize(("artifact", "arch"), SLICES)
def test_backend_links_only_server_and_system(unpacked: dict[str, Path], artifact: str, arch: str, kind: str) -> None:
    (path,) = unpacked[f"{artifact}.{kind}"].rglob("libtriton_onnxruntime.so")
    image = read(path, arch)
    check_exports(image)
    check_imports(image, arch, {})
    assert needs(image) == {SERVER, *SYSTEM}
    assert [str(command.path) for command in image.rpaths] == RPATHS[kind]
    assert image.build_version is not None
    assert tuple(image.build_version.minos)[:2] == (11, 0)


@pytest.mark.parametrize(("artifact", "arch"), SLICES)
def test_the_tarball_has_the_library_and_its_license(unpacked: dict[str, Path], artifact: str, arch: str) -> None:
    root = unpacked[f"{artifact}.tar.gz"]
    library = loaded(root / BACKEND, arch)
    assert library == (root / BACKEND).parent.resolve() / f"libonnxruntime.{INSIDE[arch]}.dylib"
    image = read(library, arch)
    assert "_OrtGetApiBase" in {str(symbol.name) for symbol in image.exported_symbols}
    licenses = (root / BACKEND).parent / "licenses" / f"onnxruntime-{arch}"
    assert {path.name for path in licenses.iterdir()} >= {"LICENSE", "ThirdPartyNotices.txt"}
    assert "Microsoft" in (licenses / "LICENSE").read_text("utf-8")


def test_the_manifest_has_the_minimum_macos_of_the_contents(dist: Path) -> None:
    artifacts = {row["file"]: row for row in json.loads((dist / "manifest.json").read_text())["artifacts"]}
    for arch, minimum in (("arm64", "14.0"), ("x86_64", "13.4"), ("universal2", "14.0")):
        tarball, made = artifacts[f"{ONNXRUNTIME}-{arch}.tar.gz"], artifacts[wheel("onnxruntime", arch)]
        assert (tarball["minimum_macos"], made["minimum_macos"]) == (minimum, "11.0")
        releases = [INSIDE[each] for each in (("arm64", "x86_64") if arch == "universal2" else (arch,))]
        own, *others = sorted((source["file"] for source in tarball["sources"]), key=lambda file: file.endswith(".whl"))
        assert sorted(file.split("-")[1] for file in others) == sorted(releases)
        assert [own] == [source["file"] for source in made["sources"]] == ["onnxruntime_backend"]


@pytest.mark.parametrize("arch", ARTIFACTS)
def test_the_wheel_requires_a_range_of_onnx_runtime(unpacked: dict[str, Path], arch: str) -> None:
    site = unpacked[f"{arch}.whl"]
    (metadata,) = site.glob("*.dist-info/METADATA")
    assert re.findall(r"^Requires-Dist: (.*)$", metadata.read_text("utf-8"), re.MULTILINE) == ["onnxruntime<2,>=1.20"]
    assert "# The ONNX Runtime backend" in metadata.read_text("utf-8")
    (tag,) = re.findall(r"^Tag: (.*)$", (metadata.parent / "WHEEL").read_text("utf-8"), re.MULTILINE)
    assert tag == f"py3-none-macosx_11_0_{arch}"
    assert list(site.glob("*.dist-info/sboms/*.cdx.json"))


def pip(made: Path, arch: str, release: str, target: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Install the wheel and a release of onnxruntime with pip, as for a Mac with macOS 14."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--only-binary=:all:"]
    command += ["--platform", f"macosx_14_0_{arch}", "--python-version", "3.12", "--target", str(target), *options]
    line = [*command, str(made), f"onnxruntime=={release}"]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("artifact", "arch", "release"), SERVED)
def test_pip_resolves_the_wheel_with_each_supported_release(
    dist: Path, tmp_path: Path, artifact: str, arch: str, release: str
) -> None:
    report = tmp_path / "report.json"
    done = pip(dist / wheel("onnxruntime", artifact), arch, release, tmp_path, "--dry-run", "--report", str(report))
    assert done.returncode == 0, done.stderr
    chosen = [row["metadata"] for row in json.loads(report.read_text("utf-8"))["install"]]
    versions = {row["name"]: row["version"] for row in chosen}
    assert versions["tritonserver-backend-onnxruntime"] == "0.1.0"
    assert versions["onnxruntime"] == release


def test_pip_refuses_the_wheel_with_an_older_release(dist: Path, tmp_path: Path) -> None:
    done = pip(dist / wheel("onnxruntime", "arm64"), "arm64", "1.19.2", tmp_path, "--dry-run")
    assert done.returncode != 0
    assert "depends on onnxruntime<2" in done.stdout + done.stderr


@pytest.mark.parametrize(("artifact", "arch", "release"), SERVED)
def test_installed_wheel_finds_library_of_each_supported_release(
    dist: Path, tmp_path: Path, artifact: str, arch: str, release: str
) -> None:
    done = pip(dist / wheel("onnxruntime", artifact), arch, release, tmp_path, "-q", "--no-deps")
    assert done.returncode == 0, done.stderr
    library = loaded(tmp_path / "tritonserver" / BACKEND, arch)
    assert library.relative_to(tmp_path.resolve()) == Path("onnxruntime/capi") / f"libonnxruntime.{release}.dylib"
    image = read(library, arch)
    assert "_OrtGetApiBase" in {str(symbol.name) for symbol in image.exported_symbols}
    # The README names the CoreML options of the release that introduced them.
    readme = (ROOT / "recipes/backends/onnxruntime_backend/README.md").read_text("utf-8")
    section = readme.split("### CoreML", 1)[1].split("\n#", 1)[0]
    options = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert len(options) == 8
    content = library.read_bytes()
    known = [option for option in options if option.encode() in content]
    assert known == ([] if release in NO_COREML_BY_NAME else options)


def test_at_least_1000_cases_pass_in_the_real_server(macbuild: Macbuild) -> None:
    answer = macbuild.under_load(4)("test", "onnxruntime_backend", "--", "-q", "-p", "no:cacheprovider")
    passed = re.search(r"(\d+) passed", answer.stdout)
    assert passed is not None
    assert int(passed[1]) >= 1000
    assert not re.search(r"failed|skipped|xfailed|error", answer.stdout.splitlines()[-1])


@pytest.mark.parametrize(("sanitizers", "seconds"), LOADS)
def test_the_load_is_clean_under_sanitizers(macbuild: Macbuild, sanitizers: str, seconds: int) -> None:
    check_load(macbuild, "onnxruntime_backend", sanitizers, seconds)
