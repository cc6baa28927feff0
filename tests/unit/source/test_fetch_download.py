from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import filelock
import pytest

from macbuild.errors import FetchError, IntegrityError, NoSpaceError, UnreachableError
from macbuild.source.fetch.download import Patience, Pin, download

BODY = random.Random(1).randbytes(300_000)
PIN = Pin("file.bin", len(BODY), hashlib.sha256(BODY).hexdigest())
CALM = Patience(connect=5, read=5, window=5, minimum=1000, retries=2, backoff=0.01, longest=0.05)
HASTY = Patience(connect=1, read=0.15, window=0.2, minimum=1000, retries=1, backoff=0.01, longest=0.05)
SLOW = {"/stall", "/drip", "/silent", "/drip-head"}


class Server(ThreadingHTTPServer):
    """Serve on the loopback interface; each path behaves differently."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.stop = threading.Event()

    def url(self, path: str, userinfo: str = "") -> str:
        return f"http://{userinfo}127.0.0.1:{self.server_port}{path}"

    def count(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.requests)

    def ranges(self) -> list[str]:
        return [headers.get("Range", "") for _, headers in self.requests]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect: the tests cause this."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    special: ClassVar[dict[str, str]] = {}

    def log_message(self, *args: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append((path, dict(self.headers)))
        self.close_connection = True
        getattr(self, "do_" + path.strip("/").replace("-", "_").split("/")[0])()

    def head(self, status: int = 200, size: int | None = None, **headers: str) -> None:
        self.send_response(status)
        if size is not None:
            self.send_header("Content-Length", str(size))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def ranged(self, body: bytes, until: int | None = None, etag: str = '"one"') -> None:
        """Answer with the requested range; stop at `until`."""
        asked = self.headers.get("Range")
        if asked and self.headers.get("If-Range", etag) == etag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                return self.head(416, 0, Content_Range=f"bytes */{len(body)}")
            span = f"bytes {start}-{len(body) - 1}/{len(body)}"
            self.head(206, len(body) - start, Content_Range=span, ETag=etag)
        else:
            start = 0
            self.head(200, len(body), ETag=etag)
        self.wfile.write(body[start:until])
        return None

    def do_good(self) -> None:
        self.ranged(BODY)

    def do_broken(self) -> None:
        done = self.server.count("/broken")
        self.ranged(BODY, until=100_000 * done)

    def do_always_broken(self) -> None:
        self.head(200, len(BODY))
        self.wfile.write(BODY[:1000])

    def do_no_range(self) -> None:
        self.head(200, len(BODY))
        self.wfile.write(BODY[: 200_000 if self.server.count("/no-range") == 1 else None])

    def do_changed(self) -> None:
        first = self.server.count("/changed") == 1
        self.ranged(bytes(len(BODY)) if first else BODY, 150_000 if first else None, '"old"' if first else '"new"')

    def do_wrong_offset(self) -> None:
        if "Range" in self.headers:
            self.head(206, 10, Content_Range=f"bytes 0-9/{len(BODY)}")
            self.wfile.write(BODY[:10])
        else:
            self.head(200, len(BODY))
            self.wfile.write(BODY[: 100_000 if self.server.count("/wrong-offset") == 1 else None])

    def do_wrong(self) -> None:
        self.ranged(bytes(len(BODY)))

    def do_short(self) -> None:
        self.ranged(BODY[:1000])

    def do_long(self) -> None:
        self.ranged(BODY + b"x")

    def do_chunked(self) -> None:
        self.head(200, Transfer_Encoding="chunked")
        for at in range(0, len(BODY), 70_000):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(BODY[at : at + 70_000]), BODY[at : at + 70_000]))
        self.wfile.write(b"0\r\n\r\n")

    def do_cut_chunk(self) -> None:
        self.head(200, Transfer_Encoding="chunked")
        self.wfile.write(b"ffff\r\nabc")

    def do_until_close(self) -> None:
        self.head(200)
        self.wfile.write(BODY)

    def do_endless(self) -> None:
        self.head(200)
        while not self.server.stop.is_set():
            self.wfile.write(bytes(100_000))

    def do_stall(self) -> None:
        self.head(200, len(BODY))
        self.wfile.write(BODY[:5000])
        self.server.stop.wait(20)

    def do_drip(self) -> None:
        self.head(200, len(BODY))
        while not self.server.stop.wait(0.05):
            self.wfile.write(b"x")

    def do_silent(self) -> None:
        self.server.stop.wait(20)

    def do_drip_head(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not self.server.stop.wait(0.05):
            self.wfile.write(b"x")

    def do_missing(self) -> None:
        self.head(404, 0)

    def do_gone(self) -> None:
        self.head(410, 0)

    def do_forbidden(self) -> None:
        self.head(403, 0)

    def do_busy(self) -> None:
        if self.server.count("/busy") < 3:
            return self.head(503, 0, Retry_After="0")
        return self.ranged(BODY)

    def do_always_busy(self) -> None:
        self.head(429, 0, Retry_After="86400")

    def do_loop(self) -> None:
        self.head(302, 0, Location="/loop")

    def do_moved(self) -> None:
        self.head(301, 0, Location="/good?token=secret")

    def do_moved_endless(self) -> None:
        self.head(307, Location="/good")
        while not self.server.stop.is_set():
            self.wfile.write(bytes(100_000))

    def do_elsewhere(self) -> None:
        self.head(302, 0, Location="ftp://user:secret@example.org/file")

    def do_nowhere(self) -> None:
        self.head(302, 0, Location="http://[bad/")

    def do_zipped(self) -> None:
        body = gzip.compress(BODY)
        self.head(200, len(body), Content_Encoding="gzip")
        self.wfile.write(body)

    def do_header(self) -> None:
        if self.headers.get("Accept-Encoding") == "identity":
            self.ranged(BODY)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=lambda: server.serve_forever(0.01))
        thread.start()
        yield server
        server.stop.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def get(tmp_path: Path, server: Server) -> Callable[..., bytes]:
    """Download paths of the server and return the bytes; check that nothing else is left."""

    def call(*paths: str, pin: Pin | None = PIN, limit: int = 1 << 30) -> bytes:
        urls = [path if "://" in path else server.url(path) for path in paths]
        destination = tmp_path / "out" / "file.bin"
        patience = HASTY if SLOW & set(paths) else CALM
        came = download(urls, pin, destination, partial=tmp_path / "part", limit=limit, patience=patience)
        data = destination.read_bytes()
        assert (came.size, came.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert list(destination.parent.iterdir()) == [destination]
        assert not (tmp_path / "part").exists()
        return data

    return call


def failure(
    get: Callable[..., bytes], tmp_path: Path, kind: type[FetchError], *paths: str, pin: Pin | None = PIN
) -> str:
    with pytest.raises(kind) as caught:
        get(*paths, pin=pin, limit=100_000)
    assert type(caught.value) is kind
    assert not (tmp_path / "out" / "file.bin").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    "path",
    ["/good", "/chunked", "/until-close", "/busy", "/moved", "/moved-endless", "/header", "/broken", "/no-range",
     "/changed", "/wrong-offset"],
)  # fmt: skip
def test_the_pinned_bytes_arrive_despite_any_disturbance(get: Callable[..., bytes], path: str) -> None:
    assert get(path) == BODY


def test_a_broken_download_is_resumed_where_it_ended(get: Callable[..., bytes], server: Server) -> None:
    get("/broken")
    assert server.ranges() == ["", "bytes=100000-", "bytes=200000-"]
    assert server.requests[1][1]["If-Range"] == '"one"'


def test_the_next_run_resumes_an_interrupted_download(
    get: Callable[..., bytes], server: Server, tmp_path: Path
) -> None:
    def interrupt(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt(total)

    with pytest.raises(KeyboardInterrupt):
        download(
            [server.url("/stall")], PIN, tmp_path / "x", partial=tmp_path / "part", limit=0,
            progress=interrupt, patience=HASTY,
        )  # fmt: skip
    assert (tmp_path / "part").read_bytes() == BODY[:5000]
    assert get("/good") == BODY
    assert server.ranges()[-1] == "bytes=5000-"


def test_a_finished_partial_needs_no_request(get: Callable[..., bytes], server: Server, tmp_path: Path) -> None:
    failure(get, tmp_path, UnreachableError, "/always-broken")
    (tmp_path / "part").write_bytes(BODY)
    asked = len(server.requests)
    assert get("/good") == BODY
    assert len(server.requests) == asked


@pytest.mark.parametrize("left", [b"wrong" * 1000, bytes(len(BODY)), BODY + b"more", b""])
def test_a_partial_with_other_bytes_does_no_harm(get: Callable[..., bytes], tmp_path: Path, left: bytes) -> None:
    failure(get, tmp_path, UnreachableError, "/always-broken")
    (tmp_path / "part").write_bytes(left)
    assert get("/good") == BODY


def test_a_partial_of_another_pin_is_not_used(get: Callable[..., bytes], server: Server, tmp_path: Path) -> None:
    failure(get, tmp_path, UnreachableError, "/always-broken", pin=Pin("file.bin", len(BODY), "0" * 64))
    server.requests.clear()
    assert get("/good") == BODY
    assert server.ranges() == [""]


def test_without_a_pin_only_an_unchanged_file_is_resumed(get: Callable[..., bytes], server: Server) -> None:
    assert get("/broken", pin=None) == BODY
    assert server.requests[1][1]["If-Range"] == '"one"'
    server.requests.clear()
    assert get("/no-range", pin=None) == BODY
    assert server.ranges() == ["", ""]


def test_two_downloads_at_once_do_not_share_a_partial(get: Callable[..., bytes], tmp_path: Path) -> None:
    with filelock.FileLock(tmp_path / "part.lock"):
        assert get("/good") == BODY
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "part.lock") == ["out"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/wrong", "sha256"), ("/short", "has 1000 bytes"), ("/long", "300001 bytes"), ("/endless", "or more")],
)
def test_other_bytes_are_an_integrity_error_and_are_not_kept(
    get: Callable[..., bytes], tmp_path: Path, path: str, reason: str
) -> None:
    message = failure(get, tmp_path, IntegrityError, path)
    assert reason in message
    assert str(PIN.size) in message or PIN.sha256 in message
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/missing", "404 Not Found"),
        ("/gone", "410 Gone"),
        ("/forbidden", "403 Forbidden"),
        ("/always-busy", "429 Too Many Requests"),
        ("/always-broken", "connection broke"),
        ("/cut-chunk", "connection broke"),
        ("/stall", "no answer in time"),
        ("/drip", "bytes arrived in 0.2 seconds"),
        ("/silent", "nothing arrived|no answer in time"),
        ("/drip-head", "nothing arrived"),
        ("http://name.invalid/file", "cannot be resolved"),
    ],
)
def test_an_unusable_server_is_unreachable_in_bounded_time(
    get: Callable[..., bytes], tmp_path: Path, path: str, reason: str
) -> None:
    start = time.monotonic()
    message = failure(get, tmp_path, UnreachableError, path)
    assert any(part in message for part in reason.split("|"))
    assert time.monotonic() - start < 40


def test_a_refused_connection_is_unreachable(get: Callable[..., bytes], tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as unused:
        port = unused.getsockname()[1]
    assert "connection refused" in failure(get, tmp_path, UnreachableError, f"http://127.0.0.1:{port}/file")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/zipped", "Content-Encoding: gzip"),
        ("/loop", "more than 10 redirects"),
        ("/elsewhere", "from http to ftp://example.org/file"),
        ("/nowhere", "not an address"),
    ],
)
def test_an_unusable_answer_is_a_fetch_error(get: Callable[..., bytes], tmp_path: Path, path: str, reason: str) -> None:
    assert reason in failure(get, tmp_path, FetchError, path)


@pytest.mark.parametrize("path", ["/good", "/chunked", "/endless"])
def test_without_a_pin_the_limit_holds(get: Callable[..., bytes], tmp_path: Path, path: str) -> None:
    assert "limit of 100000 bytes" in failure(get, tmp_path, FetchError, path, pin=None)
    assert not (tmp_path / "part").exists()


def test_the_next_mirror_is_used_and_the_error_names_all(get: Callable[..., bytes], tmp_path: Path) -> None:
    assert get("/missing", "/wrong", "/loop", "/good") == BODY
    (tmp_path / "out/file.bin").unlink()
    message = failure(get, tmp_path, UnreachableError, "/missing", "/gone")
    assert "/missing: 404" in message
    assert "/gone: 410" in message
    failure(get, tmp_path, IntegrityError, "/missing", "/wrong")


def test_another_mirror_continues_a_broken_download(get: Callable[..., bytes], server: Server) -> None:
    assert get("/stall", "/good") == BODY
    assert server.ranges()[-1] == "bytes=5000-"


def test_passwords_and_tokens_are_not_shown(get: Callable[..., bytes], tmp_path: Path, server: Server) -> None:
    urls = [server.url(f"{path}?token=hidden", "user:hidden@") for path in ("/missing", "/loop", "/always-broken")]
    assert "hidden" not in failure(get, tmp_path, FetchError, *urls)


def test_going_from_https_to_http_is_refused() -> None:
    from macbuild.source.fetch.download import _redirected

    with pytest.raises(FetchError, match="from https to http"):
        _redirected("https://example.org/a", "http://example.org/a")
    assert _redirected("http://example.org/a", "https://example.org/b") == "https://example.org/b"


def test_no_address_is_unreachable(get: Callable[..., bytes], tmp_path: Path) -> None:
    failure(get, tmp_path, UnreachableError)


def test_progress_is_reported_without_data_and_ends_at_the_total(server: Server, tmp_path: Path) -> None:
    calls: list[tuple[int, int | None]] = []
    download(
        [server.url("/stall"), server.url("/good")], PIN, tmp_path / "x", partial=tmp_path / "part", limit=0,
        progress=lambda done, total: calls.append((done, total)), patience=HASTY,
    )  # fmt: skip
    assert calls.count((5000, PIN.size)) >= 2
    assert calls[-1] == (PIN.size, PIN.size)


def test_a_full_disk_is_no_space_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys; from pathlib import Path; from macbuild.errors import NoSpaceError\n"
        "from macbuild.source.fetch.download import Pin, download\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "url, folder, size, sha256 = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]\n"
        "try: download([url], Pin('f', size, sha256), folder / 'x', partial=folder / 'part', limit=0)\n"
        "except NoSpaceError as error: sys.exit(error.exit_code)\n"
    )
    command = [sys.executable, "-B", "-c", program, server.url("/good"), str(tmp_path), str(PIN.size), PIN.sha256]
    assert subprocess.run(command, env=dict(os.environ), check=False).returncode == NoSpaceError.exit_code
    assert [path.name for path in tmp_path.iterdir() if path.name != "part.lock"] == []
