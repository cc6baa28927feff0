"""Test backend_testing.tritonserver with the real tritonserver from the wheel nvidia-pytriton."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from backend_testing import tritonserver as smoke
from backend_testing.tritonserver import Server
from filelock import FileLock

from macbuild.errors import ToolError
from macbuild.source.archive.unpack import unpack
from tests.conftest import cache_folder

REQUEST = "nvidia-pytriton==0.7.0"


@pytest.fixture(scope="session")
def tree() -> Path:
    """Return the unpacked wheel, downloaded once by pip."""
    folder = cache_folder() / "nvidia-pytriton-0.7.0"
    with FileLock(f"{folder}.lock"):
        if not (folder / "tree").exists():
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
            command += ["--platform", "manylinux_2_35_x86_64", "-d", str(folder), REQUEST]
            subprocess.run(command, check=True)
            unpack(next(folder.glob("*.whl")), folder / "partial")
            (folder / "partial").rename(folder / "tree")
    return folder / "tree"


@pytest.fixture
def server(tree: Path, tmp_path: Path) -> Server:
    """Return a server without models and backends, not started."""
    (tmp_path / "models").mkdir()
    (tmp_path / "backends").mkdir()
    return Server(tree, tmp_path / "models", tmp_path / "backends", log=tmp_path / "log/server.log", timeout=30)


def get(address: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_server_of_the_wheel_runs_and_ends_with_0(server: Server) -> None:
    with server:
        pid = server.pid
        assert server.ready()
        status, body = get(server.http, "/v2")
        assert status == 200
        assert b'"version":"2.51.0"' in body
        assert b"nv_cpu_utilization" in get(server.metrics, "/metrics")[1]
        host, port = server.grpc.split(":")
        socket.create_connection((host, int(port)), timeout=10).close()
        assert 1 << 20 < server.resident() < 1 << 30
        assert alive(pid)
    assert server.exit_code == 0
    assert not alive(pid)
    assert not server.ready()
    assert "Started HTTPService" in server.log.read_text(encoding="utf-8")


def test_two_servers_run_at_once_on_their_own_ports(tree: Path, tmp_path: Path) -> None:
    def other(name: str) -> Server:
        (tmp_path / name).mkdir()
        return Server(tree, tmp_path / name, tmp_path / name, log=tmp_path / f"{name}.log")

    with other("one") as one, other("two") as two:
        addresses = {one.http, one.grpc, one.metrics, two.http, two.grpc, two.metrics}
        assert len(addresses) == 6
        assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_arguments_and_environment_reach_the_server(tree: Path, tmp_path: Path) -> None:
    server = Server(
        tree,
        tmp_path,
        tmp_path,
        log=tmp_path / "log",
        arguments=["--id=of-the-test"],
        environ={"MACBUILD_SEEN": "yes"},
        control="explicit",
    )
    with server:
        assert b"of-the-test" in get(server.http, "/v2")[1]
        assert b"MACBUILD_SEEN=yes" in Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
        assert "MODE_EXPLICIT" in server.log.read_text(encoding="utf-8")


def test_a_library_can_be_loaded_first(tree: Path, tmp_path: Path) -> None:
    code = tmp_path / "first.c"
    code.write_text(
        '#include <stdio.h>\n__attribute__((constructor)) static void hello(void) { puts("loaded first"); }\n'
    )
    library = tmp_path / "libfirst.so"
    subprocess.run([sys.executable, "-m", "ziglang", "cc", "-shared", "-o", str(library), str(code)], check=True)
    with Server(tree, tmp_path, tmp_path, log=tmp_path / "log", preload=[library]):
        pass
    assert "loaded first" in (tmp_path / "log").read_text(encoding="utf-8")


def test_a_model_that_does_not_load_is_an_error_with_the_reason(server: Server, tmp_path: Path) -> None:
    (tmp_path / "models/m/1").mkdir(parents=True)
    (tmp_path / "models/m/config.pbtxt").write_text('backend: "nowhere"\n')
    with pytest.raises(ToolError, match="ended by itself with exit code 1") as caught, server:
        pass
    assert "unable to find backend library for backend 'nowhere'" in caught.value.message
    assert caught.value.where == str(server.program)
    assert caught.value.hint == f"read the whole log: {server.log}"
    assert not server.running


def test_with_explicit_control_a_bad_model_does_not_matter(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "models/m/1").mkdir(parents=True)
    (tmp_path / "models/m/config.pbtxt").write_text('backend: "nowhere"\n')
    with Server(tree, tmp_path / "models", tmp_path, log=tmp_path / "log", control="explicit") as server:
        assert server.ready()


def test_an_unknown_argument_is_an_error_with_the_servers_message(tree: Path, tmp_path: Path) -> None:
    server = Server(tree, tmp_path, tmp_path, log=tmp_path / "log", arguments=["--no-such-option=1"])
    with pytest.raises(ToolError, match="no-such-option"), server:
        pass


def test_crash_is_an_error_even_if_the_block_failed_first(server: Server) -> None:
    with pytest.raises(ToolError, match=r"ended by itself by signal 9 \(Killed\)") as caught, server:
        os.kill(server.pid, signal.SIGKILL)
        while server.running:
            time.sleep(0.01)
        for ask in (server.check, server.resident):
            with pytest.raises(ToolError, match="signal 9"):
                ask()
        get(server.http, "/v2")
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_an_error_of_the_block_is_not_replaced(server: Server) -> None:
    with pytest.raises(ZeroDivisionError), server:
        raise ZeroDivisionError
    assert server.exit_code == 0


def test_a_server_that_does_not_end_is_killed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "_STOP_SECONDS", 0.5)
    with pytest.raises(ToolError, match="told to stop and ended by signal 9"), server:
        os.kill(server.pid, signal.SIGSTOP)


def test_ports_taken_meanwhile_are_chosen_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    free = smoke._free_ports
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        choices = [[port, *free(2)], [*free(2), port], free(3)]
        monkeypatch.setattr(smoke, "_free_ports", lambda _count: choices.pop(0))
        with server:
            assert choices == []
            assert str(port) not in server.http + server.metrics


def test_ports_that_are_always_taken_are_an_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    free = smoke._free_ports
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(smoke, "_free_ports", lambda _count: [taken.getsockname()[1], *free(2)])
        monkeypatch.setattr(smoke, "_TRIES", 1)
        with pytest.raises(ToolError, match="another program took the server's ports, 1 times"), server:
            pass


def fake(folder: Path, script: str) -> Path:
    """Write a program that replaces the server."""
    program = folder / "bin/tritonserver"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder


def test_server_that_is_never_ready_is_ended_with_its_children(tmp_path: Path) -> None:
    tree = fake(tmp_path / "tree", "sleep 600 & echo child $!\nwait")
    server = Server(tree, tmp_path, tmp_path, log=tmp_path / "log", timeout=0.5)
    with pytest.raises(ToolError, match=r"not ready after 0.5 s; its last words:\nchild"), server:
        pass
    child = int(re.findall(r"child (\d+)", server.log.read_text())[0])
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_a_backend_finds_the_servers_library_by_its_plain_name(tmp_path: Path) -> None:
    tree = fake(tmp_path / "tree", 'for f in ${LD_LIBRARY_PATH%%:*}/*; do echo "$f is $(readlink $f)"; done; exit 3')
    (tree / "any.libs").mkdir()
    (tree / "any.libs/libtritonserver-0123abcd.so").touch()
    server = Server(tree, tmp_path, tmp_path, log=tmp_path / "log")
    with pytest.raises(ToolError, match="exit code 3"), server:
        pass
    found = re.fullmatch(r"(.*)/libtritonserver.so is (.*)\n", server.log.read_text())
    assert found is not None
    assert Path(found[2]) == tree / "any.libs/libtritonserver-0123abcd.so"
    assert not Path(found[1]).exists()


@pytest.mark.parametrize(
    ("kind", "words"), [("none", "there is no server"), ("mode", "is not executable"), ("content", "does not start")]
)
def test_a_tree_without_a_usable_server_is_an_error(tmp_path: Path, kind: str, words: str) -> None:
    program = tmp_path / "bin/tritonserver"
    if kind != "none":
        program.parent.mkdir()
        program.write_bytes(b"\x7fELF no program")
        program.chmod(0o755 if kind == "content" else 0o644)
    with pytest.raises(ToolError, match=words), Server(tmp_path, tmp_path, tmp_path, log=tmp_path / "log"):
        pass


def test_a_server_that_was_not_started_has_no_process(server: Server) -> None:
    assert server.exit_code is None
    with pytest.raises(ToolError, match="was not started"):
        server.resident()
