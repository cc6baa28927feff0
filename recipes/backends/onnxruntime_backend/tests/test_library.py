"""Test which ONNX Runtime is loaded: the newest usable one of the first folder among the rpaths that has one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from backend_testing.repository import Port, config
from backend_testing.server import library, running, variable
from conftest import LEAKS, assemble
from libraries import LINUX_VERSIONS, TOO_OLD, linux_library
from models import identity

PROGRAMS = "onnxruntime/onnx_api_check", "onnxruntime/libonnx_search_check.so"
OLDEST, NEWEST = LINUX_VERSIONS[0], LINUX_VERSIONS[-1]


def programs() -> list[Path]:
    """Return the checking program, and the library that looks for ONNX Runtime by rpaths of its own."""
    backends = Path(variable("MACBUILD_TEST_BACKENDS", "onnxruntime_backend"))
    return [backends / name for name in PROGRAMS]


def check(*arguments: str | Path, code: int = 0) -> str:
    """Run the checking program and return its output."""
    done = subprocess.run([programs()[0], *arguments], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


class Place:
    """Provide the searching library in its own folder, with rpaths `$ORIGIN/first`, `$ORIGIN/second`, `$ORIGIN`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = Path(shutil.copy(programs()[1], folder))

    def put(self, name: str, release: str) -> Path:
        """Store a released library under a name."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(linux_library(release))
        return path

    def broken(self, name: str, content: bytes) -> Path:
        """Store a file that is not a library under a name."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path

    def search(self) -> tuple[list[str], tuple[Path, str]]:
        """Return the skipped files, and the path and version of the library found."""
        *passed, found = check("search", self.module).splitlines()
        word, path, release = found.split()
        assert word == "found"
        assert all(line.startswith("skipped ") for line in passed)
        return [line.removeprefix("skipped ") for line in passed], (Path(path), release)

    def failure(self) -> str:
        """Return the error of a search that finds nothing."""
        return check("search", self.module, code=2).strip()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Provide a place without any ONNX Runtime."""
    return Place(tmp_path)


def test_the_newest_library_of_a_folder_is_used(place: Place) -> None:
    for release in LINUX_VERSIONS:
        place.put(f"libonnxruntime.so.{release}", release)
    place.put("libonnxruntime.so", OLDEST)
    passed, found = place.search()
    assert found == (place.folder / f"libonnxruntime.so.{NEWEST}", NEWEST)
    assert passed == [f"{place.folder / folder}: No such file or directory" for folder in ("first", "second")]


@pytest.mark.parametrize("release", LINUX_VERSIONS)
def test_each_version_is_used(place: Place, release: str) -> None:
    file = place.put(f"first/libonnxruntime.so.{release}", release)
    assert place.search() == ([], (file, release))


def test_a_library_without_a_version_in_its_name_is_used(place: Place) -> None:
    file = place.put("first/libonnxruntime.so", OLDEST)
    assert place.search() == ([], (file, OLDEST))


def test_an_earlier_folder_wins_over_a_newer_version(place: Place) -> None:
    place.put(f"libonnxruntime.so.{NEWEST}", NEWEST)
    file = place.put(f"second/libonnxruntime.so.{OLDEST}", OLDEST)
    (place.folder / "first").mkdir()
    passed, found = place.search()
    assert found == (file, OLDEST)
    assert passed == [f"{place.folder / 'first'}: no libonnxruntime.so*"]


def test_a_library_that_is_too_old_is_skipped(place: Place) -> None:
    old = place.put("first/libonnxruntime.so.1.99.0", TOO_OLD)
    file = place.put(f"first/libonnxruntime.so.{OLDEST}", OLDEST)
    reason = f"ONNX Runtime {TOO_OLD} does not have version 20 of the API"
    assert place.search() == ([f"{old}: {reason}"], (file, OLDEST))


def test_a_library_that_cannot_be_loaded_is_skipped(place: Place) -> None:
    text = place.broken("first/libonnxruntime.so.9", b"no library at all" * 100)
    short = place.broken("first/libonnxruntime.so.8", linux_library(OLDEST).read_bytes()[:40])
    other = library("int f(void) { return 1; }", place.folder / "first/libonnxruntime.so.7")
    gone = place.folder / "first/libonnxruntime.so.6"
    gone.symlink_to("nowhere")
    folder = place.folder / "first/libonnxruntime.so.5"
    folder.mkdir()
    file = place.put("second/libonnxruntime.so.1", OLDEST)
    passed, found = place.search()
    assert found == (file, OLDEST)
    reasons = [
        "invalid ELF header",
        "file too short",
        "OrtGetApiBase",
        "No such file",
        "is not a file",
        "no libonnxruntime.so*",
    ]
    places = [text, short, other, gone, folder]
    assert [line.split(": ")[0] for line in passed] == [str(path) for path in places]
    assert all(reason in line for line, reason in zip(passed, reasons, strict=False))


def test_links_to_one_file_are_tried_once(place: Place) -> None:
    file = place.broken("first/libonnxruntime.so.2.0.0", b"")
    for name in ["first/libonnxruntime.so.2", "first/libonnxruntime.so"]:
        (place.folder / name).symlink_to(file.name)
    (place.folder / "libonnxruntime.so.3").hardlink_to(file)
    (place.folder / "second").symlink_to("first")
    assert place.failure().count("file too short") == 1


def test_the_failure_lists_the_places_and_what_to_do(place: Place) -> None:
    (place.folder / "first").mkdir()
    old = place.put("second/libonnxruntime.so.1", TOO_OLD)
    looked, advice = place.failure().split(". Install it ")
    assert looked.split("; ") == [
        "no ONNX Runtime 1.20 or later was found",
        f"{place.folder / 'first'}: no libonnxruntime.so*",
        f"{old}: ONNX Runtime {TOO_OLD} does not have version 20 of the API",
        f"{place.folder}: no libonnxruntime.so*",
    ]
    assert advice == f'(pip install "onnxruntime>=1.20,<2") or put the library beside the backend, {place.module}'


def test_a_folder_named_by_a_relative_rpath_is_not_searched(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.folder / "not").mkdir()
    place.put("not/absolute/libonnxruntime.so", OLDEST)
    monkeypatch.chdir(place.folder)
    assert "absolute" not in place.failure()


def test_the_library_path_of_the_process_is_not_searched(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(linux_library(OLDEST).parent))
    assert "no ONNX Runtime" in place.failure()


@pytest.mark.parametrize(
    ("system", "before", "after"), [("linux", "libonnxruntime.so", ""), ("macos", "libonnxruntime", ".dylib")]
)
def test_names_are_ordered_by_the_numbers_of_their_version(
    tmp_path: Path, system: str, before: str, after: str
) -> None:
    versions = ["10.0.0", "1.100.0", "1.30.1", "1.30.0", "1.30", "1.9.0", "1.04.2", "1", "0.9"]
    expected = [f"{before}.{version}{after}" for version in versions] + [f"{before}{after}"]
    others = ["libonnxruntime_providers_shared.so", "libonnxruntime_providers_shared.dylib", "libonnxruntime4j_jni.so"]
    others += ["libonnxruntime-genai.dylib", "libonnxruntime.a", "xlibonnxruntime.so", f"{before}", "onnxruntime.dylib"]
    for name in sorted({*expected, *others}):
        (tmp_path / name).touch()
    assert check("names", tmp_path, system).splitlines() == expected


def dylib(folder: Path, arch: str, rpaths: Iterable[str]) -> Path:
    """Build a library for macOS with rpaths."""
    path = folder / f"libx_{arch}.dylib"
    code = folder / "x.c"
    code.write_text("int f(void) { return 1; }\n")
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        f"{arch}-macos.11.0",
        "-shared",
        "-o",
        str(path),
        str(code),
    ]
    subprocess.run([*command, *(f"-Wl,-rpath,{rpath}" for rpath in rpaths)], check=True, capture_output=True)
    return path


@pytest.mark.parametrize("arch", ["aarch64", "x86_64"])
def test_rpaths_are_read_out_of_a_library_for_macos(tmp_path: Path, arch: str) -> None:
    rpaths = ["@loader_path/../../../onnxruntime/capi", "@loader_path", "/opt/a b", "@executable_path/../lib", "x" * 5]
    file = dylib(tmp_path, arch, rpaths)
    assert check("rpaths", file).splitlines() == rpaths
    trials, most = check("spoil", file).split(" trials, at most ")
    assert int(trials) > 4000
    assert most == f"{len(rpaths)} rpaths\n"


def test_files_without_rpaths_have_none(tmp_path: Path) -> None:
    assert not check("rpaths", dylib(tmp_path, "aarch64", []))
    assert not check("rpaths", linux_library(OLDEST))
    (tmp_path / "empty").touch()
    assert not check("rpaths", tmp_path / "empty")


@pytest.mark.parametrize(
    ("release", "reason"),
    [(None, "no libonnxruntime.so*"), (TOO_OLD, f"ONNX Runtime {TOO_OLD} does not have version 20")],
)
def test_the_server_says_why_the_backend_is_missing(tmp_path: Path, release: str | None, reason: str) -> None:
    folder = tmp_path / "backends"
    assemble(folder, linux_library(release or OLDEST))
    if release is None:
        next((folder / "onnxruntime").glob("libonnxruntime.so*")).unlink()
    with running(tmp_path, backends=folder, suppressions=LEAKS) as service:
        text = config("onnxruntime", [Port("x", "FP32", [1])], [Port("y", "FP32", [1])])
        service.repository.add("model", {"1/model.onnx": b"anything"}, text)
        refusal = service.refusal("model")
    assert reason in refusal
    assert str(folder / "onnxruntime") in refusal
    assert 'pip install "onnxruntime>=1.20,<2"' in refusal


def test_onnx_runtime_collects_nothing_about_its_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # With telemetry it creates a device id and a database there when it starts.
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    home = tmp_path / "home"
    home.mkdir()
    folder = assemble(tmp_path / "backends", linux_library(NEWEST))
    environ = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "TMPDIR": str(home)}
    with running(tmp_path, backends=folder, suppressions=LEAKS, environ=environ) as service:
        text = config("onnxruntime", [Port("x", "FP32", [-1, -1])], [Port("y", "FP32", [-1, -1])])
        service.repository.add("model", {"1/model.onnx": identity("FP32")}, text)
        service.load("model")
    assert not list(home.rglob("*"))
