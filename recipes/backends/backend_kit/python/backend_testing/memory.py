"""Use system shared memory for inputs that the server reads and outputs that it writes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import serialize_byte_tensor

from backend_testing.wire import NAMES, TYPES, Client, InferenceServerException, Value

__all__ = ["SIZE", "Region", "region"]

SIZE = 1 << 16


@dataclass(frozen=True)
class Region:
    """A region of shared memory that the server knows; offsets and sizes are in bytes.

    `name` is the server's, `handle` is tritonclient's.
    """

    client: Client
    name: str
    handle: Any

    def write(self, item: Value, offset: int = 0) -> int:
        """Write an array, BYTES in Triton's encoding, and return its size in bytes; any offset may be given."""
        data = serialize_byte_tensor(item).item() if item.dtype == np.object_ and item.size else item.tobytes()
        shm.set_shared_memory_region(self.handle, [np.frombuffer(data, np.uint8)], offset)
        return len(data)

    def read(self, datatype: str, shape: Sequence[int], offset: int = 0) -> Value:
        """Return a copy of an array of a Triton type such as `FP32`."""
        if datatype == "BYTES":
            return np.array(shm.get_contents_as_numpy(self.handle, np.object_, list(shape), offset))
        size = int(np.prod(shape)) * TYPES[datatype].itemsize
        data = shm.get_contents_as_numpy(self.handle, np.uint8, [size], offset).tobytes()
        return np.frombuffer(data, TYPES[datatype]).reshape(shape)

    def input(self, name: str, item: Value, offset: int = 0, size: int | None = None) -> Any:
        """Write an array and return the input that reads it; `size` may be wrong."""
        written = self.write(item, offset)
        result = self.client.module.InferInput(name, list(item.shape), NAMES[item.dtype])
        result.set_shared_memory(self.name, written if size is None else size, offset)
        return result

    def output(self, name: str, offset: int = SIZE // 2, size: int = SIZE // 2) -> Any:
        """Return the output that is written at an offset; by default it has the second half of the region."""
        result = self.client.module.InferRequestedOutput(name)
        result.set_shared_memory(self.name, size, offset)
        return result


@contextmanager
def region(client: Client, size: int = SIZE) -> Iterator[Region]:
    """Create a region of shared memory that is registered with the server while the block runs."""
    name = f"macbuild-{uuid4().hex}"
    handle = shm.create_shared_memory_region(name, f"/{name}", size)
    try:
        client.raw.register_system_shared_memory(name, f"/{name}", size)
        yield Region(client, name, handle)
    finally:
        _unregister(client, name)
        shm.destroy_shared_memory_region(handle)


def _unregister(client: Client, name: str) -> None:
    """Unregister a region from the server; it may still use it shortly after its answer."""
    for _ in range(100):
        try:
            client.raw.unregister_system_shared_memory(name)
        except InferenceServerException as error:
            if "in use" not in str(error.message()):
                raise
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the server uses {name} forever")
