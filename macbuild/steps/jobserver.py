"""Limit the jobs of everything that a run starts: steps of macbuild, and every ninja and make below it.

The protocol is that of GNU make 4.4, "POSIX Jobserver Interaction", in its form with a named pipe: a job may start when
a byte was read from the pipe, and the byte goes back when the job ends. ninja takes part from 1.13 on.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from macbuild.errors import ToolError
from macbuild.files import os_errors

if TYPE_CHECKING:
    from typing_extensions import Self  # of the type checker, not a dependency

__all__ = ["Jobserver"]

_AUTH = re.compile(r"--jobserver-auth=fifo:(\S+)")
_MAX_JOBS = 4096  # A pipe holds at least that many bytes (POSIX asks for 512, Linux and macOS have 16 KiB or more).
_POLL = 0.2


def _never() -> bool:
    return False


class Jobserver:
    """A pool of tokens; use it as a context manager.

    Below a make or ninja that offers a named pipe in `MAKEFLAGS`, that pool is used and `jobs` is not. The older form
    with two file descriptors is not used, because ninja does not support it.

    Parameters
    ----------
    jobs
        How many jobs may run at once.
    environ
        The environment, for `MAKEFLAGS`.
    """

    def __init__(self, jobs: int, environ: Mapping[str, str] | None = None) -> None:
        if not 0 < jobs <= _MAX_JOBS:
            raise ToolError(f"{jobs} is not a number of jobs", where="jobserver", hint=f"give 1 to {_MAX_JOBS}")
        self.jobs = jobs
        self._environ = os.environ if environ is None else environ
        self._stack = contextlib.ExitStack()
        self._pipe = -1
        self._path: Path | None = None
        self._attached = False
        # A client of a parent's pool owns one job without a token: the one that it was started with.
        self._own = threading.Lock()

    def __enter__(self) -> Self:
        """Make the pool, or attach to the parent's."""
        found = _AUTH.findall(self._environ.get("MAKEFLAGS", ""))
        with os_errors("jobserver"), contextlib.ExitStack() as stack:
            path = Path(found[-1]) if found else None
            self._attached = path is not None and path.is_fifo()
            if not self._attached:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="macbuild-jobs-"))
                path = Path(folder, "pipe")
                os.mkfifo(path, 0o600)
            assert path is not None
            self._path = path
            self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, self._pipe)
            if not self._attached:
                os.write(self._pipe, b"+" * self.jobs)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the pool."""
        self._stack.close()
        self._pipe = -1

    @property
    def environ(self) -> dict[str, str]:
        """Variables that make children take part. They must not be given a `-j` of their own."""
        return {"MAKEFLAGS": f" -j{self.jobs} --jobserver-auth=fifo:{self._path}"}

    @contextlib.contextmanager
    def token(self, cancelled: Callable[[], bool] = _never) -> Iterator[bool]:
        """Hold a token while a job runs; wait for one if necessary.

        A child that takes part owns one job from the start, so whoever starts one holds a token for it.

        Parameters
        ----------
        cancelled
            Asked while waiting; when it says True, the wait ends without a token.

        Yields
        ------
        bool
            True if a token was taken.
        """
        if self._attached and self._own.acquire(blocking=False):
            try:
                yield True
            finally:
                self._own.release()
            return
        taken = self._take(cancelled)
        try:
            yield bool(taken)
        finally:
            if taken:
                os.write(self._pipe, taken)

    def _take(self, cancelled: Callable[[], bool]) -> bytes:
        while not cancelled():
            with os_errors("jobserver"):
                ready, _, _ = select.select([self._pipe], [], [], _POLL)
                # Somebody else may have been faster.
                with contextlib.suppress(BlockingIOError):
                    if ready:
                        return os.read(self._pipe, 1)
        return b""
