"""One commit of a git repository as a tar archive."""

from __future__ import annotations

import io
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import FetchError, ToolError, UnreachableError
from macbuild.fetch.child import Finished, folder_size, run
from macbuild.fetch.packages import failure
from macbuild.fetch.progress import Progress, throttled
from macbuild.fetch.sources import GitSource
from macbuild.fetch.trees import Node, write_tar

__all__ = ["fetch_git"]


_LINK, _SUBMODULE = 0o120000, 0o160000
_LOCAL = re.compile(
    r"GIT_(DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|NAMESPACE|COMMON_DIR)"
)
_COMMAND = ["git", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false"]


def fetch_git(source: GitSource, folder: Path, progress: Progress, limit: int) -> Path:
    """Fetch one commit into an empty folder and write its tree as a tar archive; submodules are empty folders.

    Blobs are taken as they are stored: attributes, filters and line-end settings do not count.

    Raises
    ------
    UnreachableError
        The repository does not answer or does not have the commit; the message is git's.
    FetchError
        It is larger than `limit` bytes.
    ToolError
        git is not there.
    """
    repository = _Repository(source, folder, progress, limit)
    repository.check("init", "--quiet", "--bare", "--template=", ".")
    only = repository.git("fetch", "--quiet", "--no-tags", "--depth=1", source.url, source.commit)
    if only.code:
        everything = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        repository.check("fetch", "--quiet", "--no-tags", source.url, *everything)
    found = repository.git("rev-parse", "--verify", "--quiet", f"{source.commit}^{{commit}}")
    if found.code or source.commit not in found.lines:
        raise UnreachableError(f"the repository has no commit {source.commit}", where=source.describe())
    archive = folder / f"{_name(source.url)}-{source.commit[:12]}.tar"
    with archive.open("wb") as file:
        write_tar(repository.nodes(), file, repository.beat)
    return archive


def _name(url: str) -> str:
    last = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._+-]", "_", last).lstrip(".-")[:100] or "repository"


def _environment() -> Mapping[str, str]:
    kept = {key: value for key, value in os.environ.items() if not _LOCAL.fullmatch(key)}
    kept.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file", "LC_ALL": "C"}


class _Repository:
    """A bare repository in a private folder."""

    def __init__(self, source: GitSource, folder: Path, progress: Progress, limit: int) -> None:
        self._source = source
        self._folder = folder
        self._told = throttled(self._tell)
        self._progress = progress
        self._limit = limit

    def beat(self) -> None:
        self._told(0, None)

    def _tell(self, done: int, total: int | None) -> None:
        del done
        size = folder_size(self._folder)
        if size > self._limit:
            raise FetchError(f"larger than the limit of {self._limit} bytes", where=self._source.describe())
        self._progress(size, total)

    def git(self, *arguments: str) -> Finished:
        try:
            return run([*_COMMAND, *arguments], self._folder, beat=self.beat, environment=_environment())
        except ToolError as error:
            raise ToolError(error.message, where=self._source.describe(), hint="install git") from error

    def check(self, *arguments: str) -> None:
        finished = self.git(*arguments)
        if finished.code:
            fatal = [line for line in finished.lines if line.startswith("fatal: ")]
            raise failure(finished, fatal[0] if fatal else "", self._source.describe())

    def nodes(self) -> Iterator[Node]:
        """Yield the tree of the commit, sorted as git sorts it."""
        listing = self._output("ls-tree", "-r", "-t", "-z", "--long", self._source.commit)
        command = [*_COMMAND, "cat-file", "--batch"]
        with subprocess.Popen(
            command, cwd=self._folder, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as blobs:
            try:
                for line in listing.split(b"\0")[:-1]:
                    fields, name = line.split(b"\t", 1)
                    mode, _, blob, size = fields.split()
                    yield _node(os.fsdecode(name), int(mode, 8), blob, size, blobs)
            finally:
                blobs.kill()

    def _output(self, *arguments: str) -> bytes:
        command = [*_COMMAND, *arguments]
        done = subprocess.run(command, cwd=self._folder, env=_environment(), stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise UnreachableError(f"git cannot read the commit {self._source.commit}", where=self._source.describe())
        return done.stdout


def _node(name: str, mode: int, blob: bytes, size: bytes, blobs: subprocess.Popen[bytes]) -> Node:
    if mode == _SUBMODULE or stat.S_ISDIR(mode):
        return Node(name, stat.S_IFDIR | 0o755, 0, "", io.BytesIO)

    def content() -> BinaryIO:
        assert blobs.stdin is not None
        assert blobs.stdout is not None
        blobs.stdin.write(blob + b"\n")
        blobs.stdin.flush()
        blobs.stdout.readline()
        data = blobs.stdout.read(int(size) + 1)[:-1]
        return io.BytesIO(data)

    target = os.fsdecode(content().read()) if mode == _LINK else ""
    return Node(name, mode, 0 if target else int(size), target, content)
