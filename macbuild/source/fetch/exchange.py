"""Run one HTTP request in its own thread, so that a silent or slow server never blocks the caller."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from macbuild import __version__
from macbuild.events import BEAT

if TYPE_CHECKING:
    import requests

__all__ = ["Exchange", "Patience", "TransientError"]

_PIECE = 1 << 17
_QUEUED = 32
_DONE = b""


@dataclass(frozen=True, slots=True)
class Patience:
    """Limit how long to wait, in seconds, and how often to try again.

    Parameters
    ----------
    connect, read
        For a connection, and for the next bytes on it.
    window, minimum
        An answer must begin within one `window`, and bring at least `minimum` bytes in each later one.
    retries
        Retries in a row that bring no progress.
    backoff, longest
        The first pause, which doubles each time, and the longest one, also if the server asks for more.
    """

    connect: float = 10.0
    read: float = 30.0
    window: float = 60.0
    minimum: int = 1 << 16
    retries: int = 4
    backoff: float = 0.5
    longest: float = 30.0


class TransientError(Exception):
    """A request failed for a reason that may pass.

    Parameters
    ----------
    reason
        Why, without the address.
    hopeless
        An immediate retry would fail as well: no such host, connection refused.
    wait
        Seconds that the server asked to wait.
    """

    def __init__(self, reason: str, *, hopeless: bool = False, wait: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hopeless = hopeless
        self.wait = wait


class Exchange:
    """A GET request under way.

    Parameters
    ----------
    url
        What to ask for; redirects are not followed.
    headers
        Sent besides our own.
    patience
        How long to wait.
    beat
        Called several times a second in the caller's thread while waiting; what it raises ends the wait.
    """

    def __init__(self, url: str, headers: Mapping[str, str], patience: Patience, beat: Callable[[], None]) -> None:
        self._url = url
        # The bytes must arrive as they are stored, so compression in transit is declined.
        self._send = {"User-Agent": f"macbuild/{__version__}", "Accept-Encoding": "identity", **headers}
        self._patience = patience
        self._beat = beat
        self._stop = threading.Event()
        self._response: requests.Response | None = None
        self._items: queue.Queue[bytes | Exception | tuple[int, Mapping[str, str]]] = queue.Queue(_QUEUED)
        self._thread = threading.Thread(target=self._run, daemon=True, name="macbuild-download")
        self._thread.start()

    def close(self) -> None:
        """End the request, also one that the server does not answer."""
        self._stop.set()
        if self._response is not None:
            with contextlib.suppress(Exception):
                self._response.raw.shutdown()

    def reply(self) -> tuple[int, Mapping[str, str]]:
        """Wait for the status and the headers (their names ignore case).

        Raises
        ------
        TransientError
            There is no connection, or no answer in time.
        """
        item = self._next(time.monotonic() + self._patience.window)
        assert isinstance(item, tuple)
        return item

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives.

        Raises
        ------
        TransientError
            The connection broke, or is too slow.
        """
        window = self._patience.window
        began = time.monotonic()
        received = 0
        while True:
            item = self._next(began + window)
            assert isinstance(item, bytes)
            if item == _DONE:
                return
            received += len(item)
            yield item
            if received >= self._patience.minimum:
                began, received = time.monotonic(), 0
            elif time.monotonic() > began + window:
                raise TransientError(f"only {received} bytes arrived in {window:g} seconds")

    def _next(self, deadline: float) -> bytes | tuple[int, Mapping[str, str]]:
        while True:
            self._beat()
            with contextlib.suppress(queue.Empty):
                item = self._items.get(timeout=BEAT)
                if isinstance(item, Exception):
                    raise _explain(item) from item
                return item
            if time.monotonic() > deadline:
                raise TransientError(f"nothing arrived for {self._patience.window:g} seconds")

    def _run(self) -> None:
        try:
            import requests

            with requests.Session() as session:
                # Session.get would read the whole body of a redirect into memory, also when it does not follow it.
                request = session.prepare_request(requests.Request("GET", self._url, headers=self._send))
                settings = session.merge_environment_settings(request.url, {}, stream=True, verify=None, cert=None)
                response = session.get_adapter(self._url).send(
                    request,
                    stream=True,
                    timeout=(self._patience.connect, self._patience.read),
                    verify=True if settings["verify"] is None else settings["verify"],
                    cert=settings["cert"],
                    proxies=settings["proxies"],
                )
                with response:
                    self._response = response
                    self._put((response.status_code, response.headers))
                    while not self._stop.is_set() and (piece := response.raw.read1(_PIECE, decode_content=False)):
                        self._put(piece)
                self._put(_DONE)
        except Exception as error:  # the caller's thread raises it
            self._put(error)

    def _put(self, item: bytes | Exception | tuple[int, Mapping[str, str]]) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._items.put(item, timeout=BEAT)
                return


def _explain(error: Exception) -> TransientError:
    """Say why a request failed; texts of the HTTP library are not shown, because they carry the whole address."""
    chain = _chain(error)
    lasting = next(filter(None, map(_lasting, chain)), None)
    if lasting is not None:
        return TransientError(lasting, hopeless=True)
    if any(isinstance(link, TimeoutError) or "Timeout" in type(link).__name__ for link in chain):
        return TransientError("no answer in time")
    return TransientError(f"the connection broke ({type(chain[-1]).__name__})")


def _lasting(error: BaseException) -> str | None:
    """Return the reason if an immediate retry would fail the same way."""
    if isinstance(error, socket.gaierror) or type(error).__name__ == "NameResolutionError":
        return "the name of the host cannot be resolved"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, OSError) and str(error).startswith("Tunnel connection failed"):
        return f"the proxy refused ({error})"
    if isinstance(error, ValueError) and type(error).__name__ in {"InvalidURL", "LocationParseError"}:
        return "not a valid address"
    return None


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        link = waiting.pop(0)
        if isinstance(link, BaseException) and link not in found and len(found) < 20:
            found.append(link)
            waiting += [getattr(link, "reason", None), *link.args, link.__cause__, link.__context__]
    return found
