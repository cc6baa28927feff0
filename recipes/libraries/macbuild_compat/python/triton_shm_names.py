# a single file that users copy
"""Use system shared memory of Triton on macOS from Python clients, with keys of any length and a record per region.

macOS allows names of at most 31 bytes and compares them byte for byte. A server built by macbuild turns the key of a
region into such a name; a client has to use the same one. Call :func:`install` once, before regions are made, and go
on as on Linux::

    import triton_shm_names
    import tritonclient.utils.shared_memory as shm

    triton_shm_names.install()
    region = shm.create_shared_memory_region("input", "/a key that may be as long as it likes", 4096)

The rule and the format of the records are those of ``macbuild/compat/shm_names.hpp`` and ``shm_registry.hpp``. This
file needs only Python; as a program it lists regions (``list``) and removes those of processes that ended (``clean``).
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import hashlib
import os
import stat
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import shared_memory
from pathlib import Path

__all__ = ["LONGEST_NAME", "Region", "SharedMemory", "clean", "install", "list_regions", "shm_name"]

LONGEST_NAME = 31  # bytes, with the slash
_HASHED_PREFIX = b"/tsm-"
_SUFFIX = ".region"
_DARWIN_USER_TEMP_DIR = 65537  # _CS_DARWIN_USER_TEMP_DIR of unistd.h
_PROC_PIDTBSDINFO = 3  # sys/proc_info.h
_BSDINFO_SIZE = 136  # struct proc_bsdinfo there: the status at 4, the start at 120
_ZOMBIE = 5  # SZOMB of sys/proc.h


def shm_name(key: str) -> str:
    """Return the name that a macOS server built by macbuild uses for a key.

    Raises
    ------
    ValueError
        If the key is empty apart from slashes, or contains a zero byte.
    """
    return os.fsdecode(_name(_body(key)))


def _body(key: str) -> bytes:
    body = os.fsencode(key).lstrip(b"/")
    if not body or b"\0" in body:
        raise ValueError(f"no name for shared memory can be made from the key {key!r}")
    return body


def _name(body: bytes) -> bytes:
    if len(body) < LONGEST_NAME and b"/" not in body:
        return b"/" + body
    return _HASHED_PREFIX + _short_hash(body).encode()


def _short_hash(data: bytes) -> str:
    return base64.b32encode(hashlib.sha256(data).digest()[:16]).decode().rstrip("=").lower()


@dataclass(frozen=True)
class Region:
    """A region that exists.

    Parameters
    ----------
    name
        The system's name, with the slash.
    key
        The requested key, without leading slashes.
    pid
        The process that made it.
    size
        Bytes; whole pages on macOS.
    """

    name: str
    key: str
    pid: int
    size: int


@dataclass(frozen=True)
class _Record:
    name: bytes
    key: bytes
    pid: int
    started: int

    def text(self) -> str:
        return f"macbuild-shm 1\nname {self.name.hex()}\nkey {self.key.hex()}\npid {self.pid}\nstarted {self.started}\n"


def _read_record(path: Path) -> _Record | None:
    """Return the contents of a file; None if it does not exist, cannot be trusted, or has another format."""
    if not _is_private(path.parent):
        return None
    try:
        fields = path.read_text("ascii").split()
        values = dict(zip(fields[::2], fields[1::2], strict=True))
        record = _Record(
            bytes.fromhex(values["name"]), bytes.fromhex(values["key"]), int(values["pid"]), int(values["started"])
        )
    except (OSError, ValueError, KeyError):
        return None
    return record if values.get("macbuild-shm") == "1" and path.name == _short_hash(record.name) + _SUFFIX else None


def _folder() -> Path:
    if sys.platform == "darwin":
        base = os.confstr(_DARWIN_USER_TEMP_DIR)
    else:
        base = os.environ.get("TMPDIR")
        base = base if base and base.startswith("/") else None
    return Path(base or "/tmp") / f"macbuild-shm-{os.geteuid()}"  # created as private, or refused


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _make_folder(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_private(folder):
        raise PermissionError(1, "not a private folder of this user", str(folder))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_record(folder: Path, record: _Record) -> None:
    beside = folder / "new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(record.text())
    beside.replace(folder / (_short_hash(record.name) + _SUFFIX))


def _started(pid: int) -> int | None:
    """Return the start time of a running process, as ProcessId of process.hpp; None if it does not run or is hidden."""
    return _started_darwin(pid) if sys.platform == "darwin" else _started_linux(pid)


def _started_linux(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def _started_darwin(pid: int) -> int | None:
    information = ctypes.create_string_buffer(_BSDINFO_SIZE)
    count = ctypes.CDLL(None).proc_pidinfo(
        ctypes.c_int(pid), ctypes.c_int(_PROC_PIDTBSDINFO), ctypes.c_uint64(0), information, ctypes.c_int(_BSDINFO_SIZE)
    )
    if count != _BSDINFO_SIZE:
        return None
    (status,) = struct.unpack_from("<I", information.raw, 4)
    seconds, microseconds = struct.unpack_from("<QQ", information.raw, 120)
    return None if status == _ZOMBIE else int(seconds * 1_000_000 + microseconds)


def _is_alive(record: _Record) -> bool:
    started = _started(record.pid)
    if started is not None:
        return started == record.started
    try:
        os.kill(record.pid, 0)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _attach(name: bytes) -> int | None:
    """Return the size of a region; None if it does not exist."""
    posix = shared_memory._posixshmem  # type: ignore[attr-defined] # os has no shm_open
    try:
        descriptor = posix.shm_open(os.fsdecode(name), os.O_RDONLY, mode=0)
    except FileNotFoundError:
        return None
    except OSError:
        return 0
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


class SharedMemory(shared_memory.SharedMemory):
    """A block of shared memory whose name is a key of any length, recorded if it was made here.

    Accepts the arguments of :class:`multiprocessing.shared_memory.SharedMemory`.

    Raises
    ------
    FileNotFoundError
        If there is no such region, or the name belongs to another key.
    FileExistsError
        If it is to be created and exists.
    PermissionError
        If the folder of records is not a private folder of this user.
    """

    def __init__(self, name: str | None = None, create: bool = False, size: int = 0, **more: bool) -> None:
        if name is None:
            super().__init__(None, create, size, **more)
            return
        body = _body(name)
        system_name = _name(body)
        folder = _folder()
        if not create:
            record = _read_record(folder / (_short_hash(system_name) + _SUFFIX))
            if record is not None and record.key != body and system_name[1:] != body:
                raise FileNotFoundError(2, "the name of this region belongs to another key", name)
            super().__init__(os.fsdecode(system_name[1:]), create, size, **more)
            return
        _make_folder(folder)
        with _locked(folder):
            super().__init__(os.fsdecode(system_name[1:]), create, size, **more)
            _write_record(folder, _Record(system_name, body, os.getpid(), _started(os.getpid()) or 0))

    def unlink(self) -> None:
        """Remove the region and its record; a process that has mapped it keeps its memory."""
        super().unlink()
        with contextlib.suppress(OSError):
            (_folder() / (_short_hash(os.fsencode(self._name)) + _SUFFIX)).unlink()  # type: ignore[attr-defined]


def install(*, everywhere: bool = False) -> bool:
    """Make tritonclient create its regions with this module's :class:`SharedMemory`; change nothing on other systems.

    Parameters
    ----------
    everywhere
        Also on other systems, where only a server built by macbuild understands such names.

    Returns
    -------
    bool
        Whether tritonclient was changed.
    """
    if sys.platform != "darwin" and not everywhere:
        return False
    import tritonclient.utils.shared_memory as client

    client.mpshm = sys.modules[__name__]
    return True


def _records() -> list[_Record]:
    found = (_read_record(path) for path in _folder().glob("*" + _SUFFIX))
    return sorted((record for record in found if record is not None), key=lambda record: record.name)


def list_regions() -> list[Region]:
    """Return the recorded regions that exist, by name."""
    sizes = ((record, _attach(record.name)) for record in _records())
    return [
        Region(os.fsdecode(record.name), os.fsdecode(record.key), record.pid, size)
        for record, size in sizes
        if size is not None
    ]


def clean(prefix: str = "") -> list[str]:
    """Remove regions whose process has ended and whose key starts with a prefix; return their keys.

    A process that has mapped one keeps its memory. Not for regions that must outlive the process that made them.
    """
    folder = _folder()
    if not _is_private(folder):
        return []
    wanted = os.fsencode(prefix).lstrip(b"/")
    posix = shared_memory._posixshmem  # type: ignore[attr-defined] # os has no shm_unlink
    removed = []
    with _locked(folder):
        for record in _records():
            if not record.key.startswith(wanted) or _is_alive(record):
                continue
            with contextlib.suppress(FileNotFoundError):
                posix.shm_unlink(os.fsdecode(record.name))
                removed.append(os.fsdecode(record.key))
            (folder / (_short_hash(record.name) + _SUFFIX)).unlink(missing_ok=True)
    return removed


def _main(words: list[str]) -> int:
    if words == ["list"]:
        lines = [f"{region.size:>12} {region.pid:>8} {region.name} {region.key!r}" for region in list_regions()]
    elif words and words[0] == "clean" and len(words) <= 2:
        lines = clean(*words[1:])
    else:
        sys.stderr.write("usage: triton_shm_names.py list | clean [PREFIX]\n")
        return 2
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
