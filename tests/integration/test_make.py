"""Run the main job as users start it: with an installed command and real signals."""

from __future__ import annotations

import http.server
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed import clean_environment, install
from tests.support.sample import Sample

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of a new environment with the installed wheel."""
    return install(tmp_path_factory.mktemp("installed"))


def test_an_installed_macbuild_finds_its_recipes_from_any_folder(installed: Path, tmp_path: Path) -> None:
    environ = {**clean_environment(), "MACBUILD_CACHE_DIR": str(tmp_path / "cache")}

    def answer(*arguments: str) -> str:
        command = [str(installed / "macbuild"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environ, check=True, capture_output=True, text=True)
        return str(done.stdout)

    names = {row["name"] for row in json.loads(answer("recipes", "list", "--json"))["recipes"]}
    assert {"libtorch", "onnxruntime"} <= names
    assert "recipes are sound" not in answer("recipes", "lint")
    plan = json.loads(answer("plan", "--skip-unreachable", "--arch", "arm64", "--json"))
    assert {"libtorch", "onnxruntime"} <= {row["component"] for row in plan["artifacts"]}
    assert not (tmp_path / "cache").exists()
    checks = {check["name"]: check for check in json.loads(answer("doctor", "--json"))["checks"]}
    assert str(installed.parent) in checks["recipes"]["found"]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_an_installed_macbuild_never_writes_into_itself(installed: Path, tmp_path: Path) -> None:
    (data,) = installed.parent.glob("lib/python*/site-packages/macbuild/_data")
    before = contents(data)
    environ = {**clean_environment(), "MACBUILD_CACHE_DIR": str(tmp_path / "cache")}

    def answer(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(installed / "macbuild"), *arguments]
        return subprocess.run(command, cwd=folder, env=environ, check=False, capture_output=True, text=True)

    work = tmp_path / "work"
    (work / "recipes").mkdir(parents=True)
    for folder in (tmp_path, data, data / "recipes/libraries/zlib"):
        for words in (["lock"], ["lock", "zlib", "--offline"], ["recipes", "new", "hello"]):
            refused = answer(folder, *words)
            assert (refused.returncode, refused.stdout) == (2, ""), (folder, words)
            assert "hint: make a project with: macbuild init" in refused.stderr
    for words in (["recipes", "new", "hello"], ["lock"], ["lock", "zlib", "--offline"], ["recipes", "lint"]):
        done = answer(work, *words)
        assert done.returncode == 0, done.stderr
    assert (work / "macbuild.lock").is_file()
    assert contents(data) == before
    assert answer(work, "plan", "hello", "zlib", "--arch", "arm64").returncode == 0
    assert contents(data) == before


def test_installed_macbuild_builds_a_project_and_starts_tools(installed: Path, tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.add("alpha")
    command = [str(installed / "macbuild"), "all", "--arch", "arm64", "--cache-dir", str(sample.cache)]
    subprocess.run(command, cwd=tmp_path, env=clean_environment(), check=True, capture_output=True)
    in_process = Sample(tmp_path / "other")
    in_process.add("alpha")
    in_process.make()
    assert sample.content() == in_process.content()
    for name in ("otool", "install-name-tool", "lipo", "codesign"):
        assert (installed / f"macbuild-{name}").is_file()


@pytest.fixture
def stalled() -> Iterator[tuple[str, threading.Event]]:
    """Yield a server that starts to answer and then stalls, and the event that is set by a request."""
    asked, over = threading.Event(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(bytes(10))
            self.wfile.flush()
            asked.set()
            over.wait(60)

        def log_message(self, *_: object) -> None:
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{web.server_address[1]}", asked
    over.set()
    web.shutdown()
    web.server_close()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_signal_during_download_leaves_dist_and_next_run_works(
    tmp_path: Path, stalled: tuple[str, threading.Event], sign: signal.Signals
) -> None:
    url, asked = stalled
    sample = Sample(tmp_path)
    sample.add("alpha")
    sample.make()
    before = sample.content()
    sample.add("beta")
    sample.serve_first("beta", url)
    command = [sys.executable, "-m", "macbuild", "all", "--arch", "arm64", "--cache-dir", str(sample.cache)]
    environ = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert asked.wait(120)
    process.send_signal(sign)
    _, err = process.communicate(timeout=120)
    assert process.returncode == (-signal.SIGKILL if sign is signal.SIGKILL else 128 + sign), err
    assert b"Traceback" not in err
    if sign is not signal.SIGKILL:
        assert err.endswith(b"; run the same command again to continue\n")
    assert sample.content() == before
    sample.sources("beta").pop(0)
    sample.write()
    assert not sample.make().failed
    fresh = Sample(tmp_path / "fresh")
    fresh.add("alpha")
    fresh.add("beta")
    fresh.make()
    assert sample.content() == fresh.content()
