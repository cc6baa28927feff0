"""Provide system shared memory under keys of any length, registered with the server."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from backend_testing.wire import NAMES, TYPES, Client, InferenceServerException, Value
from tritonclient.utils import serialize_byte_tensor

__all__ = ["SIZE", "Region", "keys_left", "made", "new_key", "region", "speak"]

SIZE = 1 << 16
_LINUX_FOLDER = Path("/dev/shm")
_LONG = 100

sys.path.insert(0, str(Path(__file__).parents[3] / "libraries/macbuild_compat/python"))
# The file that users of a macOS server copy; it is not in any package.
names: Any = importlib.import_module("triton_shm_names")

_keys: set[str] = set()


def new_key(length: int = _LONG) -> str:
    """Return an unused key of a number of bytes, including its slash."""
    return f"/{uuid4().hex}-macbuild".ljust(length, "-")[:length]


def speak(client: Client) -> None:
    """Make tritonclient use the same names as the server: those of macOS, or plain ones.

    A server that macbuild builds for Linux, for tests there, may use the names of macOS, too.
    """
    if names.install():
        return
    with made(new_key(), SIZE) as handle:
        try:
            client.raw.register_system_shared_memory("plain", handle._shm_key, SIZE)
            client.raw.unregister_system_shared_memory("plain")
        except InferenceServerException:
            names.install(everywhere=True)


def keys_left() -> list[str]:
    """Return the keys of these tests whose regions still exist."""
    found = {f"/{region.key}" for region in names.list_regions()} & _keys
    if _LINUX_FOLDER.is_dir():
        files = {f"/{path.name}" for path in _LINUX_FOLDER.iterdir()}
        found |= {key for key in _keys if files & {key, names.shm_name(key)}}
    return sorted(found)


@contextmanager
def made(key: str, size: int) -> Iterator[Any]:
    """Create a region as a client does, and remove it when the block ends."""
    _keys.add(key)
    handle = shm.create_shared_memory_region(key, key, size)
    try:
        yield handle
    finally:
        shm.destroy_shared_memory_region(handle)


@dataclass(frozen=True)
class Region:
    """A window of shared memory that the server knows by a name; offsets and sizes are in bytes.

    `handle` is tritonclient's for the whole region, `start` where the window begins in it.
    """

    name: str
    key: str
    handle: Any
    start: int

    def write(self, item: Value, offset: int = 0) -> int:
        """Write an array, BYTES in Triton's encoding, and return its size in bytes."""
        data = serialize_byte_tensor(item).item() if item.dtype == np.object_ else item.tobytes()
        shm.set_shared_memory_region(self.handle, [np.frombuffer(data, np.uint8)], self.start + offset)
        return len(data)

    def read(self, datatype: str, shape: Sequence[int], offset: int = 0) -> Value:
        """Return a copy of an array of a Triton type such as `FP32`."""
        if datatype == "BYTES":
            return np.array(shm.get_contents_as_numpy(self.handle, np.object_, list(shape), self.start + offset))
        size = int(np.prod(shape)) * TYPES[datatype].itemsize
        data = shm.get_contents_as_numpy(self.handle, np.uint8, [size], self.start + offset).tobytes()
        return np.frombuffer(data, TYPES[datatype]).reshape(shape)

    def input(self, item: Value, offset: int = 0, *, name: str = "INPUT0", size: int | None = None) -> Any:
        """Write an array and return the input that reads it; `size` may be wrong."""
        written = self.write(item, offset)
        result = tritonclient.http.InferInput(name, list(item.shape), NAMES[item.dtype])
        result.set_shared_memory(self.name, written if size is None else size, offset)
        return result

    def output(self, offset: int, size: int, *, name: str = "OUTPUT0") -> Any:
        """Return the output that is written to the window."""
        result = tritonclient.http.InferRequestedOutput(name)
        result.set_shared_memory(self.name, size, offset)
        return result


@contextmanager
def region(client: Client, key: str = "", *, size: int = SIZE, start: int = 0) -> Iterator[Region]:
    """Create a region and register it with the server, if it runs, from `start` on, until the block ends."""
    key = key or new_key()
    name = f"region-{uuid4().hex}"
    with made(key, size) as handle:
        client.raw.register_system_shared_memory(name, key, size - start, start)
        try:
            yield Region(name, key, handle, start)
        finally:
            with contextlib.suppress(OSError, InferenceServerException):
                client.raw.unregister_system_shared_memory(name)
