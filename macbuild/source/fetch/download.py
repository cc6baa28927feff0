"""Download one file: from several mirrors, resumed, limited in size and time, hashed as it arrives."""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import http
import json
import random
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from macbuild.errors import FetchError, IntegrityError, NoSpaceError, UnreachableError
from macbuild.events import BEAT, Meter, silent, throttled
from macbuild.files import copy_file, os_errors, sync
from macbuild.source.fetch.addresses import file_name, redact
from macbuild.source.fetch.exchange import Exchange, Patience, TransientError

__all__ = ["Patience", "Pin", "check_pin", "download"]

_REDIRECTS = 10
_PROGRESS_THAT_COUNTS = 1 << 20  # bytes after which retries are counted from zero
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_HINT = "check the address and the network, add a mirror, or run again: the part that arrived is kept"


@dataclass(frozen=True, slots=True)
class Pin:
    """The expected file: its name, a size in bytes and a sha256 in lower-case hex."""

    file: str
    size: int
    sha256: str


def check_pin(actual: Pin, pin: Pin | None, where: object) -> Pin:
    """Return `actual` under the name of the pin.

    Raises
    ------
    IntegrityError
        Size or sha256 differ.
    """
    if pin is None:
        return actual
    if actual.size != pin.size:
        reason = f"{pin.file} has {actual.size} bytes, but {pin.size} are pinned"
    elif actual.sha256 != pin.sha256:
        reason = f"{pin.file} has sha256 {actual.sha256}, but {pin.sha256} is pinned"
    else:
        return pin
    raise IntegrityError(reason, where=where, hint="if the change is intended, update the pin")


def download(
    urls: Sequence[str],
    pin: Pin | None,
    destination: Path,
    *,
    partial: Path,
    limit: int,
    progress: Meter = silent,
    patience: Patience | None = None,
) -> Pin:
    """Download a file from the first mirror that has it, and return what arrived.

    Parameters
    ----------
    urls
        Addresses (http or https) of the same bytes, in order of preference.
    pin
        The expected file; None only when it is pinned for the first time.
    destination
        Where the file appears, whole and checked.
    partial
        Where the bytes are collected; kept when the download is interrupted, so that the next one resumes.
    limit
        Largest size in bytes, if there is no pin.
    progress
        Called about ten times a second in the caller's thread, even while nothing arrives, with the bytes done and the
        total, None while unknown. What it raises ends the download.
    patience
        Time limits and retries.

    Raises
    ------
    UnreachableError
        No mirror answered or had the file; the message lists each one and why.
    IntegrityError
        No mirror had the pinned bytes, and at least one had others.
    FetchError
        A mirror answered in a way that cannot be used: too large, compressed on the way, redirected to plain http.
    FileError, NoSpaceError
        The file cannot be written.
    """
    if not urls:
        raise UnreachableError("no address is given", where=destination)
    failures: list[FetchError] = []
    with os_errors(destination), _private(partial) as path, contextlib.closing(_Partial(path, pin, urls)) as collected:
        job = _DownloadJob(collected, pin, limit=limit, progress=progress, patience=patience or Patience())
        for url in [""] if collected.complete else urls:
            try:
                came = job.from_mirror(url)
            except NoSpaceError:
                collected.discard()
                raise
            except FetchError as error:
                failures.append(error)
                continue
            collected.deliver(destination)
            return came
    raise _verdict(failures)


def _verdict(failures: Sequence[FetchError]) -> FetchError:
    kinds = (IntegrityError, FetchError, UnreachableError)
    worst = next(error for kind in kinds for error in failures if type(error) is kind)
    if len(failures) == 1:
        return worst
    return type(worst)(f"no mirror has the file: {'; '.join(map(str, failures))}", hint=worst.hint)


class _DownloadJob:
    """Try to complete one file from one mirror after another."""

    def __init__(
        self, collected: _Partial, pin: Pin | None, *, limit: int, progress: Meter, patience: Patience
    ) -> None:
        self._collected = collected
        self._pin = pin
        self._limit = limit
        self._progress = throttled(progress)
        self._patience = patience
        self._total = pin.size if pin else None
        self._glued = collected.size > 0

    def from_mirror(self, url: str) -> Pin:
        """Return what arrived; the collected bytes are then complete and match the pin, if there is one."""
        collected = self._collected
        tries = 0
        mark = collected.size
        while not collected.complete:
            try:
                self._attempt(url)
            except TransientError as error:
                tries = 1 if collected.size >= mark + _PROGRESS_THAT_COUNTS else tries + 1
                mark = max(mark, collected.size)
                if tries > (1 if error.hopeless else self._patience.retries):
                    raise UnreachableError(error.reason, where=redact(url), hint=_HINT) from error
                self._pause(tries, error.wait)
                continue
            self._progress(collected.size, collected.size)
            came = Pin(self._pin.file if self._pin else file_name(url), collected.size, collected.sha256)
            try:
                return check_pin(came, self._pin, redact(url))
            except IntegrityError:
                collected.restart()
                if not self._glued:
                    raise
                self._glued = False
        assert self._pin is not None
        return self._pin

    def _attempt(self, url: str) -> None:
        condition = self._collected.condition(url)
        if not condition:
            self._collected.restart()
        for _ in range(_REDIRECTS):
            with contextlib.closing(Exchange(url, condition, self._patience, self._beat)) as exchange:
                status, headers = exchange.reply()
                if status in {301, 302, 303, 307, 308} and "Location" in headers:
                    url = _redirected(url, headers["Location"])
                    continue
                self._take(url, exchange, status, headers, ranged=bool(condition))
                return
        raise FetchError(f"more than {_REDIRECTS} redirects", where=redact(url))

    def _take(self, url: str, exchange: Exchange, status: int, headers: Mapping[str, str], *, ranged: bool) -> None:
        collected = self._collected
        self._check_status(url, status, headers, ranged=ranged)
        encoding = headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in {"", "identity"}:
            raise FetchError(f"the server changes the bytes (Content-Encoding: {encoding[:40]})", where=redact(url))
        if status == http.HTTPStatus.PARTIAL_CONTENT:
            self._glued = True
        else:
            collected.restart()
        length = headers.get("Content-Length", "")
        expected = collected.size + int(length) if length.isascii() and length.isdigit() else None
        self._total = expected or self._total
        self._check_size(url, expected or 0)
        collected.begin(url, headers)
        for piece in exchange.pieces():
            self._check_size(url, collected.size + len(piece))
            collected.write(piece)
        whole = expected if expected is not None or "Transfer-Encoding" in headers else self._total
        if whole is not None and collected.size < whole:
            raise TransientError(f"the answer ended after {collected.size} of {whole} bytes")

    def _check_status(self, url: str, status: int, headers: Mapping[str, str], *, ranged: bool) -> None:
        collected = self._collected
        if status == http.HTTPStatus.OK:
            return
        if status == http.HTTPStatus.PARTIAL_CONTENT and ranged:
            found = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", headers.get("Content-Range", "").strip())
            sizes = {"*", str(self._pin.size)} if self._pin else None
            if found and int(found[1]) == collected.size and (sizes is None or found[2] in sizes):
                return
        if status in {http.HTTPStatus.PARTIAL_CONTENT, http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}:
            collected.restart()
            raise TransientError("it does not give the rest of the file")
        phrase = http.HTTPStatus(status).phrase if status in set(http.HTTPStatus) else "unknown status"
        if status in _PASSING:
            raise TransientError(f"{status} {phrase}", wait=_retry_after(headers.get("Retry-After", "")))
        kind = UnreachableError if status >= 400 else FetchError
        raise kind(f"{status} {phrase}", where=redact(url), hint=_HINT)

    def _check_size(self, url: str, size: int) -> None:
        if self._pin is not None and size > self._pin.size:
            self._collected.restart()
            raise IntegrityError(
                f"{self._pin.file} has {size} bytes or more, but {self._pin.size} are pinned", where=redact(url)
            )
        if self._pin is None and size > self._limit:
            self._collected.restart()
            raise FetchError(f"larger than the limit of {self._limit} bytes", where=redact(url))

    def _pause(self, tries: int, wanted: float | None) -> None:
        patience = self._patience
        pause = patience.backoff * 2 ** (tries - 1) * random.uniform(0.5, 1.5)  # spreads clients
        end = time.monotonic() + min(max(pause, wanted or 0.0), patience.longest)
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, BEAT))
            self._beat()

    def _beat(self) -> None:
        self._progress(self._collected.size, self._total)


def _redirected(url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
        old, new = urlsplit(url).scheme, urlsplit(target).scheme
    except ValueError:
        raise FetchError("redirects to something that is not an address", where=redact(url)) from None
    if new not in {"http", "https"} or (old == "https" and new == "http"):
        raise FetchError(f"redirects from {old} to {redact(target)}, which is refused", where=redact(url))
    return target


def _retry_after(value: str) -> float | None:
    """Return the seconds of a `Retry-After` header (RFC 9110, 10.2.3)."""
    if value.isascii() and value.isdigit():
        return float(value[:6])
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    return None


@contextlib.contextmanager
def _private(partial: Path) -> Iterator[Path]:
    """Yield `partial`, or a private path beside it if another process writes to it."""
    import filelock

    partial.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(partial.with_name(f"{partial.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        own = partial.with_name(f"{partial.name}.{secrets.token_hex(8)}")
        try:
            yield own
        finally:
            own.unlink(missing_ok=True)
            _note_of(own).unlink(missing_ok=True)
        return
    try:
        yield partial
    finally:
        lock.release()


def _read_note(partial: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        note = json.loads(_note_of(partial).read_text())
        if isinstance(note, dict) and all(isinstance(value, str) for value in note.values()):
            return note
    return {}


def _note_of(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


class _Partial:
    """The bytes that arrived so far, their hash, and a note beside them that says which file they belong to."""

    def __init__(self, path: Path, pin: Pin | None, urls: Sequence[str]) -> None:
        self.path = path
        self._pin = pin
        self._wanted = pin.sha256 if pin else _fingerprint(" ".join(urls))
        self._note = _read_note(path)
        self._digest = hashlib.sha256()
        self.size = 0
        known = self._note.get("wanted") == self._wanted and path.exists()
        self._file = path.open("r+b" if known else "w+b", buffering=0)
        while piece := self._file.read(1 << 20):
            self._digest.update(piece)
            self.size += len(piece)
        if pin and self.size >= pin.size and not self.complete:
            self.restart()

    def close(self) -> None:
        self._file.close()
        if not self.size:
            self.discard()

    @property
    def complete(self) -> bool:
        return self._pin is not None and (self.size, self.sha256) == (self._pin.size, self._pin.sha256)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def condition(self, url: str) -> dict[str, str]:
        """Return the headers that ask for the rest; without a pin only if the server can compare the file."""
        same = self._note.get("url") == _fingerprint(url)
        validator = self._note.get("validator", "") if same else ""
        if not self.size or not (validator or self._pin):
            return {}
        asked = {"Range": f"bytes={self.size}-"}
        return {**asked, "If-Range": validator} if validator else asked

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._digest = hashlib.sha256()
        self.size = 0

    def begin(self, url: str, headers: Mapping[str, str]) -> None:
        etag = headers.get("ETag", "")
        validator = etag if etag.startswith('"') else headers.get("Last-Modified", "")
        self._note = {"wanted": self._wanted, "url": _fingerprint(url), "validator": validator}
        _note_of(self.path).write_text(json.dumps(self._note))

    def write(self, piece: bytes) -> None:
        left = memoryview(piece)
        with os_errors(self.path):
            while left:
                left = left[self._file.write(left) or 0 :]
        self._digest.update(piece)
        self.size += len(piece)

    def deliver(self, destination: Path) -> None:
        self._file.close()
        sync(self.path)
        destination.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.path.replace(destination)
        except OSError:
            copy_file(self.path, destination)  # on another file system
        self.discard()

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)
        _note_of(self.path).unlink(missing_ok=True)


def _fingerprint(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()
