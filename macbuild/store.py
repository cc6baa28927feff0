"""Keep results of steps under their keys: each is whole or absent, and several runs may use the store at once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macbuild.errors import FileError, NoSpaceError, StoreError
from macbuild.files import atomic_path, os_errors, remove_tree, tree_size

__all__ = ["Facts", "Store", "StoreEntry", "digest"]

_FOLDERS = ("results", "locks", "partial", "records", "work", "build", "blocks", "facts", "verified", "zig")
_HINT = "check its owner and permissions, or set MACBUILD_CACHE_DIR to a folder that can be written"
_NO_SPACE = "free some space ('macbuild cache prune' removes old results) or set MACBUILD_CACHE_DIR"
_PRIVATE = re.compile(r"(?:^|\.part\.)[0-9a-f]{16}(?:\.json)?$")
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is the cache of macbuild.\n"


def digest(value: object) -> str:
    """Return the sha256 of plain data, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A result in the store. `size` in bytes; `used` in seconds since the epoch."""

    key: str
    step: str
    size: int
    used: float
    path: Path


class Store:
    """A folder of step results.

    Parameters
    ----------
    root
        The cache folder. It is created, and marked with CACHEDIR.TAG, when something is first written to it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self) -> None:
        """Make the folder, or raise `StoreError` if it cannot be written."""
        with self._errors(self.root):
            for name in _FOLDERS:
                (self.root / name).mkdir(parents=True, exist_ok=True)
            tag = self.root / "CACHEDIR.TAG"
            if _read_tag(tag) != _TAG:
                with atomic_path(tag) as partial:
                    partial.write_text(_TAG)
            if not os.access(self.root / "results", os.W_OK):
                raise StoreError("is read-only", where=self.root, hint=_HINT)

    @contextmanager
    def _errors(self, where: Path) -> Iterator[None]:
        """Turn errors about files of the store into a `StoreError` that says how to get a usable store."""
        try:
            with os_errors(where):
                yield
        except FileError as error:
            if isinstance(error, StoreError) or error.hint == _NO_SPACE or not self._holds(Path(str(error.where))):
                raise
            if isinstance(error, NoSpaceError):
                raise NoSpaceError(error.message, where=error.where, hint=_NO_SPACE) from error
            raise StoreError(error.message, where=error.where, hint=_HINT) from error

    def _holds(self, path: Path) -> bool:
        return path.is_relative_to(self.root) or path.is_relative_to(self.root.resolve())

    def path(self, key: str) -> Path:
        """Return the place of the result of a key, which may not exist."""
        return self.root / "results" / key[:2] / key

    def partial(self, name: str) -> Path:
        """Return where a download that may be resumed is kept."""
        return self.root / "partial" / name

    def has(self, key: str) -> bool:
        """Return whether the result of a key is there, whole."""
        # os.path also returns False where the folder cannot be read.
        return os.path.exists(self.path(key) / "meta.json")

    def touch(self, key: str) -> None:
        """Note that a result was used now, for `prune`."""
        try:
            os.utime(self.path(key) / "meta.json")
        except OSError:
            return

    @contextmanager
    def in_use(self, *, alone: bool = False) -> Iterator[None]:
        """Keep others from cleaning the cache while it is in use; `alone` is for the run that cleans it.

        Without `alone` the folder is ready for use in the block. Raises `StoreError` if another run uses the cache
        and this one must be alone, or the other way round.
        """
        folder = self._lock_root(alone=alone)
        try:
            if not alone:
                # Another run may have cleaned the cache before this one got the lock.
                self.prepare()
            yield
        finally:
            os.close(folder)

    def _lock_root(self, *, alone: bool) -> int:
        """Return a descriptor that holds a lock on the folder that has the cache's name now."""
        while True:
            if not alone:
                self.prepare()
            with self._errors(self.root):
                folder = os.open(self.root, os.O_RDONLY)
                try:
                    fcntl.flock(folder, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                    if os.path.exists(self.root) and os.path.samestat(os.fstat(folder), self.root.stat()):
                        return folder
                except BlockingIOError:
                    os.close(folder)
                    doing = "using" if alone else "cleaning"
                    hint = "wait for it to end, then try again"
                    raise StoreError(f"another macbuild is {doing} the cache", where=self.root, hint=hint) from None
                except OSError:
                    os.close(folder)
                    raise
                os.close(folder)

    @contextmanager
    def locked(self, name: str, give_up: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Hold a lock that only one run at a time has, released by the system if the process dies.

        `give_up` is asked while waiting; once it is true the block runs without the lock and must end at once.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.root / "locks" / f"{name}.lock")
        with self._errors(self.root):
            while not give_up():
                try:
                    lock.acquire(timeout=0.2)
                    break
                except Timeout:
                    continue
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def kept(self, name: str, give_up: Callable[[], bool] = lambda: False) -> Iterator[Path]:
        """Yield a folder that outlives the run, for one user at a time: its contents may be reused or be gone."""
        folder = self.root / "build" / name
        with self.locked(f"build-{name}", give_up), self._errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
            yield folder

    @contextmanager
    def building(self, key: str, step: str) -> Iterator[Path]:
        """Yield an empty folder that becomes the result of the key if the block ends without an error.

        The caller holds the lock of the key, so anything in the folder is left from a killed run and is removed.
        """
        work = self.root / "work" / key
        with self._errors(work):
            remove_tree(work)
            work.mkdir(parents=True)
            try:
                yield work
                meta = {"step": step, "size": tree_size(work)}
                (work / "meta.json").write_text(json.dumps(meta))
                final = self.path(key)
                final.parent.mkdir(parents=True, exist_ok=True)
                if final.exists():
                    self._remove(final)
                work.rename(final)
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def facts(self, code: str) -> Facts:
        """Return the facts about contents of files that code with this digest has kept."""
        return Facts(self.root / "facts", code)

    def is_verified(self, sha256: str, verifier: str) -> bool:
        """Return whether the verifier with this digest found the signature of a file with this content valid."""
        return os.path.exists(self._verified_path(sha256, verifier))

    def remember_verified(self, sha256: str, verifier: str) -> None:
        """Record that the signature of a Mach-O file with this content is valid, which depends on its bytes alone."""
        path = self._verified_path(sha256, verifier)
        with self._errors(path):
            path.touch()

    def _verified_path(self, sha256: str, verifier: str) -> Path:
        return self.root / "verified" / f"{sha256}-{verifier[:12]}"

    def record(self, step: str) -> Mapping[str, Any] | None:
        """Return the ingredients with which a step last succeeded, or None."""
        try:
            data = json.loads(self._record_path(step).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return data if isinstance(data, dict) else None

    def write_record(self, step: str, ingredients: Mapping[str, Any]) -> None:
        """Keep the ingredients of a step that succeeded, so that the next plan can say what changed."""
        path = self._record_path(step)
        with self._errors(path), atomic_path(path) as partial:
            partial.write_text(json.dumps(ingredients, sort_keys=True), "utf-8")

    def _record_path(self, step: str) -> Path:
        return self.root / "records" / (step.replace("/", "--") + ".json")

    def entries(self) -> list[StoreEntry]:
        """Return all results, the one used longest ago first."""
        found = []
        for path in self.root.glob("results/*/*/meta.json"):
            try:
                meta = json.loads(path.read_text("utf-8"))
                used = path.stat().st_mtime
                found.append(StoreEntry(path.parent.name, str(meta["step"]), int(meta["size"]), used, path.parent))
            except (OSError, ValueError, KeyError, TypeError):
                found.append(StoreEntry(path.parent.name, "damaged", 0, 0.0, path.parent))
        return sorted(found, key=lambda entry: (entry.used, entry.key))

    def prune(self, days: float) -> list[StoreEntry]:
        """Remove results not used for a number of days, and leftovers of killed runs; return the removed results."""
        limit = time.time() - days * 86400
        gone = [entry for entry in self.entries() if entry.used <= limit or entry.step == "damaged"]
        for entry in gone:
            with self.locked(entry.key):
                self._remove(entry.path)
        with self._errors(self.root):
            for path in self.root.glob("work/*"):
                with self.locked(path.name):
                    remove_tree(path)
            for path in self.root.glob("build/*"):
                if _age_limit_passed(path, limit):
                    with self.locked(f"build-{path.name}"):
                        remove_tree(path)
            for path in filter(_cannot_be_resumed, list(self.root.glob("partial/*/*"))):
                remove_tree(path)
            for name in ("partial", "verified", "facts", "blocks"):
                for path in self.root.glob(f"{name}/*"):
                    if _age_limit_passed(path, limit):
                        remove_tree(path)
            if _age_limit_passed(self.root / "zig", limit):
                remove_tree(self.root / "zig")
        return gone

    def clean(self) -> int:
        """Remove the whole cache and return its size in bytes; a folder without macbuild's tag is refused."""
        tag = self.root / "CACHEDIR.TAG"
        if not self.root.exists():
            return 0
        if _read_tag(tag) != _TAG:
            raise StoreError(
                "is not a cache of macbuild", where=self.root, hint="to remove it anyway, delete it yourself"
            )
        size = sum(tree_size(self.root / name) for name in _FOLDERS)
        with self._errors(self.root):
            # Only macbuild's own folders, since there may be others; the tag last, so that a kill leaves a valid cache.
            for name in _FOLDERS:
                remove_tree(self.root / name)
            tag.unlink()
            if not self.root.is_symlink():
                with suppress(OSError):
                    self.root.rmdir()
        return size

    def discard(self, key: str) -> None:
        """Remove a result that turned out to be damaged, so that the next run makes it again."""
        with self.locked(key):
            self._remove(self.path(key))

    def _remove(self, path: Path) -> None:
        """Remove a tree; its meta.json goes first, so that half a result never counts as one."""
        with self._errors(path):
            with suppress(FileNotFoundError, NotADirectoryError):
                (path / "meta.json").unlink(missing_ok=True)
            remove_tree(path)


class Facts:
    """Facts that code found about the contents of files; damaged or lost ones are found again.

    Parameters
    ----------
    folder
        Where the entries lie.
    code
        Digest of the code that found them; other versions of the code do not see them.
    """

    def __init__(self, folder: Path, code: str) -> None:
        self._folder = folder
        self._code = code

    def get(self, key: str) -> bytes | None:
        """Return what was kept under a key, or None if there is nothing or it is not whole."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None

    def put(self, key: str, value: bytes) -> None:
        """Keep bytes under a key; a full or read-only disk is not an error, since the facts can be found again."""
        path = self._path(key)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        with suppress(OSError):
            try:
                # Not flushed to the disk before the rename: a file that a crash leaves incomplete does not match its
                # hash.
                temporary.write_bytes(hashlib.sha256(value).digest() + value)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / digest([self._code, key])


def _cannot_be_resumed(path: Path) -> bool:
    """Return whether a killed run left what no download continues: a private copy or folder, a lock of nothing."""
    if path.suffix == ".lock":
        return not path.with_suffix("").exists()
    return _PRIVATE.search(path.name) is not None


def _age_limit_passed(path: Path, limit: float) -> bool:
    """Return whether a path was last used before a time, in seconds since the epoch; False if it is gone."""
    try:
        return path.lstat().st_mtime <= limit
    except FileNotFoundError:
        return False


def _read_tag(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
