"""Check that each entry of the function table that the backend uses is the expected function in released libraries."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import lief
import numpy as np
import onnx
import pytest
from backend_testing.server import variable
from libraries import LINUX_VERSIONS, MACOS_LIBRARIES, linux_library, macos_library
from onnx import TensorProto, numpy_helper
from onnx.helper import (
    make_graph,
    make_map_type_proto,
    make_model,
    make_node,
    make_opsetid,
    make_sequence_type_proto,
    make_tensor_sequence_value_info,
    make_tensor_type_proto,
    make_tensor_value_info,
    make_value_info,
)

LEAKS = Path(__file__).with_name("native") / "leaks.supp"
CPU = {"arm64": lief.MachO.Header.CPU_TYPE.ARM64, "x86_64": lief.MachO.Header.CPU_TYPE.X86_64}


class Entry(NamedTuple):
    """An entry of the table: its position, its name, and the version of the API that introduced it."""

    position: int
    name: str
    since: int


def check(*arguments: str | Path) -> str:
    """Run the program that calls the table, and return its output."""
    program = Path(variable("MACBUILD_TEST_BACKENDS", "onnxruntime_backend")) / "onnxruntime/onnx_api_check"
    environ = os.environ | {"LSAN_OPTIONS": f"suppressions={LEAKS}:print_suppressions=0"}
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def entries(release: str) -> list[Entry]:
    """Return the entries that the backend reads from a release."""
    lines = [line.split() for line in check("list").splitlines()]
    listed = [Entry(int(position), name, int(since)) for position, name, since in lines]
    return [entry for entry in listed if entry.since <= int(release.split(".")[1])]


def write_model(path: Path) -> Path:
    """Write the model that the program expects."""
    real, text, whole = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64
    nodes = [
        make_node("MatMul", ["x", "w"], ["sums"]),
        make_node("Add", ["sums", "b"], ["y"]),
        make_node("Identity", ["words"], ["copy"]),
        make_node("Reshape", ["x", "shape"], ["shaped"]),
        make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        make_node("SplitToSequence", ["x"], ["pieces"], axis=0),
        make_node("ZipMap", ["x"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[10, 20, 30, 40]),
    ]
    inputs = [
        make_tensor_value_info("x", real, ["rows", 4]),
        make_tensor_value_info("words", text, ["count"]),
        make_tensor_value_info("shape", whole, ["rank"]),
        make_tensor_value_info("b", real, [3]),
    ]
    outputs = [
        make_tensor_value_info("y", real, ["rows", 3]),
        make_tensor_value_info("copy", text, ["count"]),
        make_tensor_value_info("shaped", real, None),
        make_tensor_value_info("total", real, []),
        make_tensor_sequence_value_info("pieces", real, None),
        make_value_info(
            "maps", make_sequence_type_proto(make_map_type_proto(whole, make_tensor_type_proto(real, None)))
        ),
    ]
    constants = [("w", np.ones((4, 3), np.float32)), ("b", np.ones(3, np.float32))]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants]
    graph = make_graph(nodes, "all kinds of ports", inputs, outputs, initializers)
    onnx.save(
        make_model(graph, opset_imports=[make_opsetid("", 13), make_opsetid("ai.onnx.ml", 1)], ir_version=8), path
    )
    return path


@pytest.mark.parametrize("release", LINUX_VERSIONS)
def test_every_entry_does_what_its_name_says(release: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.onnx")
    printed = check("call", linux_library(release), model)
    proven = [line.split(":")[0] for line in printed.splitlines()]
    assert sorted(proven) == sorted(entry.name for entry in entries(release))


def function_table(library: Path, arch: str, length: int) -> Sequence[str]:
    """Return the names of the functions in the table of a library for macOS.

    The libraries have their local symbols: one is the table, another is each function that it points to. On disk the
    low 36 bits of a pointer are its target, as an address in chained fixups as well as without them.
    """
    binaries = lief.MachO.parse(library)
    assert binaries is not None
    (binary,) = [each for each in binaries if each.header.cpu_type == CPU[arch]]
    symbols = {symbol.value: str(symbol.name) for symbol in binary.symbols if symbol.value}
    (table,) = [place for place, name in symbols.items() if re.fullmatch(r"__ZL\d+ort_api_1_to_\d+", name)]
    content = bytes(binary.get_content_from_virtual_address(table, 8 * length))
    names = []
    for (pointer,) in struct.iter_unpack("<Q", content):
        mangled = re.match(r"__ZN7OrtApis(\d+)(.*)", symbols.get(pointer & (1 << 36) - 1, ""))
        names.append(mangled[2][: int(mangled[1])] if mangled else "")
    return names


@pytest.mark.parametrize(("release", "arch"), MACOS_LIBRARIES)
def test_every_entry_is_in_place_in_the_libraries_for_macos(release: str, arch: str) -> None:
    taken = entries(release)
    table = function_table(macos_library(release, arch), arch, max(entry.position for entry in taken) + 1)
    assert [(entry.position, table[entry.position]) for entry in taken] == [
        (each.position, each.name) for each in taken
    ]


def test_no_position_or_name_is_used_twice() -> None:
    taken = entries(LINUX_VERSIONS[-1])
    assert len({entry.position for entry in taken}) == len({entry.name for entry in taken}) == len(taken) > 70
