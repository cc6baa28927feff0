"""Fetch one commit of a git repository as a tar archive."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from macbuild.errors import FetchError, ToolError, UnreachableError
from macbuild.events import Meter, throttled
from macbuild.files import tree_size
from macbuild.source.fetch.child import Finished, run
from macbuild.source.fetch.exchange import Patience
from macbuild.source.fetch.packages import failure
from macbuild.source.fetch.sources import GitSource
from macbuild.source.fetch.trees import SourceNode, write_tar

__all__ = ["fetch_git", "fetch_git_files", "git_commit"]


_LINK, _SUBMODULE = 0o120000, 0o160000
_LOCAL = re.compile(
    r"GIT_(DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|NAMESPACE|COMMON_DIR)"
)
_REMOTE = re.compile(r"[0-9a-f]{40}\trefs/\S+")
_PATIENCE = Patience()
_COMMAND = [
    *("git", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
    *("-c", f"http.lowSpeedLimit={_PATIENCE.minimum / _PATIENCE.window:.0f}"),
    *("-c", f"http.lowSpeedTime={_PATIENCE.window:.0f}"),
]


def fetch_git(source: GitSource, folder: Path, progress: Meter, limit: int) -> Path:
    """Fetch one commit into an empty folder and write its tree as a tar archive; submodules are empty folders.

    Blobs are taken as they are stored: attributes, filters and line-end settings are ignored.

    Raises
    ------
    UnreachableError
        The repository does not answer or does not have the commit; the message is git's.
    FetchError
        It is larger than `limit` bytes, or the source is a branch or tag.
    ToolError
        git is not installed.
    """
    repository = _Repository(source, folder, progress, limit)
    repository.bring(source.url)
    archive = folder / f"{_name(source.url)}-{repository.commit[:12]}.tar"
    with archive.open("wb") as file:
        write_tar(repository.nodes(), file, repository.beat)
    return archive


def fetch_git_files(
    source: GitSource,
    folder: Path,
    choose: Callable[[Sequence[str]], Collection[str]],
    progress: Meter,
    limit: int,
) -> list[SourceNode]:
    """Fetch some files of one commit into memory; git keeps its own files in an empty folder.

    A server without partial clones sends all files of the commit; the others are not read.

    Parameters
    ----------
    source, folder, progress, limit
        As for `fetch_git`, which raises the same errors.
    choose
        Called with the paths of all files and symbolic links of the commit; returns those to fetch.
    """
    repository = _Repository(source, folder, progress, limit)
    return repository.files(choose)


def git_commit(source: GitSource, folder: Path, progress: Meter) -> str:
    """Return the commit that the branch or tag of a source points to now, or the commit that the source names.

    Parameters
    ----------
    source
        Which repository and name.
    folder
        Any folder; nothing is written to it.
    progress
        Called about ten times a second.

    Raises
    ------
    UnreachableError
        The repository does not answer or has no such branch or tag.
    FetchError
        A branch and a tag of that name point to different commits.
    ToolError
        git is not installed.
    """
    if source.ref is None:
        return _fixed(source)
    names = [source.ref] if source.ref.startswith("refs/") else [f"refs/heads/{source.ref}", f"refs/tags/{source.ref}"]
    # The commit of an annotated tag is on a line of its own, whose name ends in ^{}.
    command = ["ls-remote", source.url, *names, *(f"{name}^{{}}" for name in names)]
    lines = _checked(source, folder, lambda: progress(0, None), *command).lines
    there = {name: commit for commit, name in (line.split("\t", 1) for line in lines if _REMOTE.fullmatch(line))}
    found = {name: there.get(f"{name}^{{}}", there[name]) for name in names if name in there}
    if not found:
        raise UnreachableError(f"the repository has no branch or tag {source.ref}", where=source.describe())
    if len(set(found.values())) > 1:
        hint = f"write it as {' or '.join(names)}"
        raise FetchError(
            "a branch and a tag of this name point to different commits", where=source.describe(), hint=hint
        )
    return next(iter(found.values()))


def _fixed(source: GitSource) -> str:
    if source.commit is None:
        raise FetchError("a branch or tag is not pinned", where=source.describe(), hint="run: macbuild lock")
    return source.commit


def _name(url: str) -> str:
    last = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._+-]", "_", last).lstrip(".-")[:100] or "repository"


def _environment() -> Mapping[str, str]:
    kept = {key: value for key, value in os.environ.items() if not _LOCAL.fullmatch(key)}
    kept.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file", "LC_ALL": "C"}


def _git(source: GitSource, folder: Path, beat: Callable[[], None], *arguments: str) -> Finished:
    try:
        return run([*_COMMAND, *arguments], folder, beat=beat, environment=_environment())
    except ToolError as error:
        raise ToolError(error.message, where=source.describe(), hint="install git") from error


def _checked(source: GitSource, folder: Path, beat: Callable[[], None], *arguments: str) -> Finished:
    finished = _git(source, folder, beat, *arguments)
    if finished.code:
        fatal = [line for line in finished.lines if line.startswith("fatal: ")]
        raise failure(finished, fatal[0] if fatal else "", source.describe())
    return finished


class _Repository:
    """A bare repository in a private folder, for one commit."""

    def __init__(self, source: GitSource, folder: Path, progress: Meter, limit: int) -> None:
        self.commit = _fixed(source)
        self._source = source
        self._folder = folder
        self._told = throttled(self._tell)
        self._progress = progress
        self._limit = limit

    def beat(self) -> None:
        self._told(0, None)

    def bring(self, remote: str, *options: str, address: str = "") -> None:
        """Fetch the commit alone, or everything from a server that does not serve single commits."""
        self._check("init", "--quiet", "--bare", "--template=", ".")
        if address:
            self._check("config", f"remote.{remote}.url", address)
        fetch = ("fetch", "--quiet", "--no-tags", *options)
        if _git(self._source, self._folder, self.beat, *fetch, "--depth=1", remote, self.commit).code:
            self._check(*fetch, remote, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        wanted = ("rev-parse", "--verify", "--quiet", f"{self.commit}^{{commit}}")
        found = _git(self._source, self._folder, self.beat, *wanted)
        if found.code or self.commit not in found.lines:
            raise UnreachableError(f"the repository has no commit {self.commit}", where=self._source.describe())

    def nodes(self) -> Iterator[SourceNode]:
        """Yield the tree of the commit, sorted as git sorts it."""
        listing = self._output("ls-tree", "-r", "-t", "-z", self.commit)
        with self._blobs() as read:
            for line in listing.split(b"\0")[:-1]:
                fields, name = line.split(b"\t", 1)
                mode, kind, blob = fields.split()
                yield _node(os.fsdecode(name), int(mode, 8), read(blob) if kind == b"blob" else b"")

    def files(self, choose: Callable[[Sequence[str]], Collection[str]]) -> list[SourceNode]:
        """Fetch the commit without its files, then the chosen files."""
        # A partial clone needs a remote with a name.
        self.bring("origin", "--filter=blob:none", address=self._source.url)
        entries: dict[str, tuple[int, bytes]] = {}
        for line in self._output("ls-tree", "-r", "-z", self.commit).split(b"\0")[:-1]:
            fields, name = line.split(b"\t", 1)
            mode, kind, blob = fields.split()
            if kind == b"blob":
                entries[os.fsdecode(name)] = int(mode, 8), blob
        wanted = [(name, *entries[name]) for name in choose(list(entries))]
        if not wanted:
            return []
        # All at once; blobs that do not arrive this way are requested one by one as they are read.
        names = {blob.decode() for _, _, blob in wanted}
        _git(self._source, self._folder, self.beat, "fetch", "--quiet", "--no-tags", "origin", *sorted(names))
        with self._blobs() as read:
            return [_node(name, mode, read(blob)) for name, mode, blob in wanted]

    @contextlib.contextmanager
    def _blobs(self) -> Iterator[Callable[[bytes], bytes]]:
        """Yield a function that returns the content of a blob."""
        command = [*_COMMAND, "cat-file", "--batch"]
        with subprocess.Popen(
            command, cwd=self._folder, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:

            def read(blob: bytes) -> bytes:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(blob + b"\n")
                process.stdin.flush()
                _, _, size = process.stdout.readline().rpartition(b" ")
                if not size.strip().isdigit():
                    raise UnreachableError(f"{blob.decode()} did not arrive", where=self._source.describe())
                return process.stdout.read(int(size) + 1)[:-1]

            try:
                yield read
            finally:
                process.kill()

    def _tell(self, done: int, total: int | None) -> None:
        del done
        size = tree_size(self._folder)
        if size > self._limit:
            raise FetchError(f"larger than the limit of {self._limit} bytes", where=self._source.describe())
        self._progress(size, total)

    def _check(self, *arguments: str) -> Finished:
        return _checked(self._source, self._folder, self.beat, *arguments)

    def _output(self, *arguments: str) -> bytes:
        command = [*_COMMAND, *arguments]
        done = subprocess.run(command, cwd=self._folder, env=_environment(), stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise UnreachableError(f"git cannot read the commit {self.commit}", where=self._source.describe())
        return done.stdout


def _node(name: str, mode: int, content: bytes) -> SourceNode:
    if mode == _SUBMODULE or stat.S_ISDIR(mode):
        return SourceNode(name, stat.S_IFDIR | 0o755, 0, "", io.BytesIO)
    if mode == _LINK:
        return SourceNode(name, mode, 0, os.fsdecode(content), io.BytesIO)
    return SourceNode(name, mode, len(content), "", partial(io.BytesIO, content))
