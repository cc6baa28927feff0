"""Fetch one file of a Debian source package with apt-get, without touching the system."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from macbuild.errors import FetchError, NoSpaceError, UnreachableError
from macbuild.events import BEAT, Meter
from macbuild.source.fetch.child import Finished, run
from macbuild.source.fetch.packages import failure, without_passwords
from macbuild.source.fetch.sources import DebianSource

__all__ = ["fetch_debian", "source_lines", "source_stanzas"]

_FRESH = 600.0  # seconds for which indexes are used without an update
_KINDS = ((r"\.dsc", "--dsc-only"), (r"\.(debian\.tar\.\w+|diff\.\w+)", "--diff-only"), (r"\.tar\.\w+", "--tar-only"))
_COMPLAINT = re.compile(r"(?:E: (?!Some index files)|W: (?=Failed to fetch|GPG error))(.*)")
_FILE_LISTS = ("Files:", "Checksums-Sha256:")
# Keep apt from starting the machine's own programs after an update. Formats: sources.list(5) and apt.conf(5).
_CONFIGURATION = "#clear APT::Update;\n"


def fetch_debian(source: DebianSource, folder: Path, state: Path, progress: Meter, limit: int) -> Path:
    """Let apt-get download one file of a source package into an empty folder; nothing is unpacked or built.

    Parameters
    ----------
    source
        Package and file.
    folder
        Where the file is put.
    state
        Folder for indexes of the archives, kept between calls; one call at a time uses it. The system's own
        indexes, caches and package lists are neither needed nor changed, and no other user's permissions are needed.
    progress
        Called while programs run, with the bytes done and the total, None while unknown.
    limit
        Largest size in bytes.

    Raises
    ------
    UnreachableError
        There is no apt-get, the archives do not answer, or they have other files; the message names them.
    FetchError
        The file is larger than `limit` bytes.
    """
    if shutil.which("apt-get") is None:
        hint = f"run this where Debian's apt-get is installed, or name a folder that has {source.file} as a mirror"
        raise UnreachableError("this machine has no apt-get", where=source.describe(), hint=hint)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(state / "lock", lambda: progress(0, None)):
        apt = _Apt(source, folder.resolve(), state.resolve(), progress)
        fresh = apt.update(_FRESH)
        try:
            return apt.download(limit)
        except UnreachableError:
            if fresh:
                raise
            apt.update(0.0)
            return apt.download(limit)


def source_lines(text: str) -> list[str]:
    """Return the lines of a file in the one-line format (sources.list(5)), each asking for sources instead."""
    found = re.findall(r"^[ \t]*deb(?:-src)?[ \t]+(.*\S)", text, re.MULTILINE)
    return [f"deb-src {rest}" for rest in found if "cdrom:" not in rest]


def source_stanzas(text: str) -> list[str]:
    """Return the paragraphs of a file in the deb822 format (sources.list(5)), each asking for sources instead."""
    stanzas = []
    for paragraph in re.split(r"\n(?:[ \t]*\n)+", re.sub(r"^#.*\n?", "", text + "\n", flags=re.MULTILINE)):
        stanza, count = re.subn(
            r"^types:.*(?:\n[ \t].*)*", "Types: deb-src", paragraph.strip("\n"), flags=re.MULTILINE | re.IGNORECASE
        )
        if count and "cdrom:" not in stanza:
            stanzas.append(stanza)
    return stanzas


@contextlib.contextmanager
def _alone(lock: Path, beat: Callable[[], None]) -> Iterator[None]:
    import filelock

    waiting = filelock.FileLock(lock)
    while not waiting.is_locked:
        try:
            waiting.acquire(timeout=BEAT)
        except filelock.Timeout:
            beat()
    try:
        yield
    finally:
        waiting.release()


def _size_so_far(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@dataclass(slots=True)
class _IndexRecord:
    """One version of a package in an index: sizes in bytes by file name."""

    package: str
    version: str = ""
    files: dict[str, int] = field(default_factory=dict)


class _Apt:
    """Run apt with the machine's archives and settings, and a state folder of its own."""

    def __init__(self, source: DebianSource, folder: Path, state: Path, progress: Meter) -> None:
        self._source = source
        self._folder = folder
        self._state = state
        self._progress = progress
        self._complaints: list[str] = []

    def update(self, age: float) -> bool:
        """Update the indexes unless they are younger than `age` seconds; return whether they are as new as possible.

        Indexes of an earlier run are used as well; new ones are fetched only when those lack the file. An archive
        that does not answer is not an error yet, since another one may have the file.
        """
        wanted = self._write_archives()
        stamp = self._state / "updated"
        noted = stamp.read_text("utf-8").split() if stamp.exists() else []
        if age and noted[:1] == [wanted]:
            return len(noted) == 1 and time.time() - stamp.stat().st_mtime < age
        finished = self._run("apt-get", ["--quiet", "update"])
        self._complaints = [found[1] for line in finished.lines if (found := _COMPLAINT.match(line))]
        stamp.write_text(f"{wanted} incomplete" if self._complaints or finished.code else wanted, "utf-8")
        return True

    def download(self, limit: int) -> Path:
        """Download the file, whose size the index states."""
        source = self._source
        version, size = self._found()
        if size > limit:
            raise FetchError(f"larger than the limit of {limit} bytes", where=source.describe())
        kinds = [option for pattern, option in _KINDS if re.search(pattern + "$", source.file)]
        command = ["--quiet", "source", "--download-only", "--only-source", *kinds[:1]]
        package = f"{source.package}={version}"
        path = self._folder / source.file
        finished = self._run("apt-get", [*command, package], lambda: self._progress(_size_so_far(path), size))
        if finished.code or not path.is_file():
            raise self._failure(finished)
        return path

    def _found(self) -> tuple[str, int]:
        """Return a version that has the file, and the file's size in bytes."""
        source = self._source
        records = self._records()
        for record in records:
            if source.file in record.files:
                return record.version, record.files[source.file]
        files = sorted({name for record in records for name in record.files})
        if files:
            message = f"the machine's archives have other files of {source.package}: {', '.join(files)}"
        else:
            which = "archives that answer" if self._complaints else "archives"
            message = f"the machine's {which} have no source package {source.package}"
            message = "; ".join([message, *map(without_passwords, self._complaints[:2])])
        hint = f"change the recipe, or name a folder that has {source.file} as a mirror"
        raise UnreachableError(message[:1000], where=source.describe(), hint=hint)

    def _records(self) -> list[_IndexRecord]:
        lines: list[str] = []
        finished = self._run("apt-cache", ["showsrc", "--only-source", self._source.package], on_line=lines.append)
        if finished.code:
            raise self._failure(finished)
        records: list[_IndexRecord] = []
        in_files = False
        for line in lines:
            if not line.startswith(" "):
                in_files = line.startswith(_FILE_LISTS)
                key, _, value = line.partition(": ")
                if key == "Package":
                    records.append(_IndexRecord(value))
                elif key == "Version" and records:
                    records[-1].version = value
            elif in_files and records and (found := re.fullmatch(r"\s+\w+\s+(\d{1,18})\s+(\S+)", line)):
                records[-1].files[found[2]] = int(found[1])
        return [record for record in records if record.package == self._source.package]

    def _write_archives(self) -> str:
        """Write the machine's archives as archives of sources; return a digest of what was written."""
        lines: list[str] = []
        stanzas: list[str] = []
        for path in self._configured():
            with contextlib.suppress(PermissionError):
                text = path.read_text("utf-8", "replace")
                if path.suffix == ".sources":
                    stanzas += source_stanzas(text)
                else:
                    lines += source_lines(text)
        if not lines and not stanzas:
            hint = f"name a folder that has {self._source.file} as a mirror"
            raise UnreachableError("apt has no archive configured", where=self._source.describe(), hint=hint)
        folder = self._state / "sources"
        for name in ("sources", "lists/partial", "cache/archives/partial"):
            (self._state / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        texts = {
            "machine.list": "\n".join(dict.fromkeys(lines)),
            "machine.sources": "\n\n".join(dict.fromkeys(stanzas)),
        }
        for name, text in texts.items():
            (folder / name).write_text(text + "\n", "utf-8")
        (self._state / "apt.conf").write_text(_CONFIGURATION, "utf-8")
        return hashlib.sha256("\0".join(texts.values()).encode()).hexdigest()

    def _configured(self) -> list[Path]:
        found: list[str] = []
        wanted = ["FILE", "Dir::Etc::sourcelist/f", "FOLDER", "Dir::Etc::sourceparts/d"]
        finished = self._execute(["apt-config", "shell", *wanted], found.append)
        if finished.code:
            raise self._failure(finished)
        values = dict(word.partition("=")[::2] for line in found for word in shlex.split(line))
        single, parts = Path(values.get("FILE", "")), Path(values.get("FOLDER", ""))
        more = sorted(parts.iterdir()) if parts.is_dir() else []
        return [path for path in (single, *more) if path.suffix in {".list", ".sources"} and path.is_file()]

    def _run(
        self,
        program: str,
        arguments: Sequence[str],
        beat: Callable[[], None] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> Finished:
        options = {
            "Dir::Etc::sourcelist": os.devnull,
            "Dir::Etc::sourceparts": self._state / "sources",
            "Dir::State": self._state,
            "Dir::State::lists": self._state / "lists",
            "Dir::State::status": os.devnull,
            "Dir::Cache": self._state / "cache",
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "Acquire::Languages": "none",
            "Acquire::GzipIndexes": "true",
            "APT::Sandbox::User": "",  # another user could not write into a private folder
        }
        command = [program, "-c", str(self._state / "apt.conf")]
        command += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        return self._execute([*command, *arguments], on_line, beat)

    def _execute(
        self, command: list[str], on_line: Callable[[str], None] | None, beat: Callable[[], None] | None = None
    ) -> Finished:
        beat = beat or (lambda: self._progress(0, None))
        return run(command, self._folder, beat=beat, on_line=on_line, environment={**os.environ, "LC_ALL": "C"})

    def _failure(self, finished: Finished) -> FetchError | NoSpaceError:
        errors = [line.removeprefix("E: ") for line in finished.lines if line.startswith("E: ")]
        return failure(finished, "; ".join(errors[:2]), self._source.describe())
