"""Import the module from the given folder, use it, and fail if anything is wrong."""

from __future__ import annotations

import sys

sys.path.insert(0, sys.argv[1])

import pybind11_consumer as consumer

tensor = consumer.Tensor("input", shape=[2, 3])
view = memoryview(tensor)
if (tensor.name, view.shape, view.strides, view.format) != ("input", (2, 3), (12, 4), "f"):
    sys.exit(f"wrong buffer: {tensor.name} {view.shape} {view.strides} {view.format}")
for row in range(2):
    for column in range(3):
        view[row, column] = row * 3 + column
if tensor.sum() != 15 or tensor.apply(lambda value: value * 2) != 30:
    sys.exit(f"wrong sums: {tensor.sum()}")
if consumer.counts(["a", None, "a"]) != {"": 1, "a": 2}:
    sys.exit("wrong counts")
if consumer.kind_of(consumer.METAL) != 1 or consumer.Kind.CPU.name != "CPU":
    sys.exit("wrong enum")
if '"dltensor"' not in repr(consumer.capsule(16)):
    sys.exit("wrong capsule")
try:
    consumer.Tensor("bad", [-1])
except consumer.ModelError as error:
    if not isinstance(error, ValueError) or str(error) != "bad has a negative size":
        sys.exit(f"wrong error: {error}")
else:
    sys.exit("no error for a negative size")
