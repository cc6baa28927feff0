"""Run the node tests of the ONNX standard with ONNX Runtime itself.

As a program it judges the cases from a given number on and prints one line of JSON for each, so that a case that ends
the process does not end the tests.
"""

from __future__ import annotations

import ctypes
import enum
import json
import re
import subprocess
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, ValueInfoProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

__all__ = ["Outcome", "Verdict", "cases", "check", "data_sets", "obstacles", "page", "verdicts"]

Array: TypeAlias = NDArray[Any]

CARRIED = {
    TensorProto.BOOL,
    TensorProto.UINT8,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT64,
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.STRING,
}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Outcome(enum.Enum):
    """The outcome of a case, as the page states it."""

    REFUSED = "ONNX Runtime does not load the model"
    NOT_CARRIED = "an input or output has a type that Triton lacks"
    FAILED = "ONNX Runtime loads the model and does not run it"
    DIFFERENT = "ONNX Runtime's own answer is not the expected one"
    ENDED = "ONNX Runtime ends the process"
    PASSED = "ONNX Runtime's own answer is the expected one"


class Verdict(NamedTuple):
    """An outcome, and why."""

    outcome: Outcome
    reason: str


@cache
def cases() -> dict[str, TestCase]:
    """Return all node tests by name; making them takes some seconds."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def obstacles(case: TestCase) -> dict[str, str]:
    """Return unsupported types (`sequence`, `optional` or an element type) by the name of the input or output."""
    assert case.model is not None
    ports = [*case.model.graph.input, *case.model.graph.output]
    return {port.name: kind for port in ports if (kind := _obstacle(port))}


def _obstacle(port: ValueInfoProto) -> str:
    kind = port.type.WhichOneof("value")
    if kind != "tensor_type":
        return str(kind).removesuffix("_type")
    element = port.type.tensor_type.elem_type
    return "" if element in CARRIED else str(TensorProto.DataType.Name(element))


def data_sets(case: TestCase) -> list[tuple[dict[str, Array], list[Array]]]:
    """Return the inputs by name and the expected outputs of every data set of a case that has tensors only."""
    assert case.model is not None
    assert case.data_sets is not None
    names = [port.name for port in case.model.graph.input]
    return [
        (dict(zip(names, map(_array, inputs), strict=True)), list(map(_array, outputs)))
        for inputs, outputs in case.data_sets
    ]


def _array(value: Any) -> Array:
    return np.asarray(numpy_helper.to_array(value) if isinstance(value, TensorProto) else value)


def check(case: TestCase, expected: Sequence[Array], answer: Sequence[Array]) -> str:
    """Compare like the standard's own runner, with the case's tolerances; return a complaint or nothing."""
    try:
        Runner.assert_similar_outputs(expected, answer, case.rtol, case.atol)
    except AssertionError as error:
        return str(error)
    return ""


def judge(case: TestCase) -> Verdict:
    """Run a case with ONNX Runtime in this process."""
    assert case.model is not None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        return Verdict(Outcome.REFUSED, _words(error))
    found = obstacles(case)
    if found:
        return Verdict(Outcome.NOT_CARRIED, ", ".join(sorted(set(found.values()))))
    for inputs, expected in data_sets(case):
        try:
            answer = _run(session, inputs, expected)
        except Exception as error:
            return Verdict(Outcome.FAILED, _words(error))
        if check(case, expected, answer):
            return Verdict(Outcome.DIFFERENT, case.model.graph.node[-1].op_type)
    return Verdict(Outcome.PASSED, "")


def _run(session: Any, inputs: Mapping[str, Array], expected: Sequence[Array]) -> list[Array]:
    if not any(array.dtype == BFLOAT16 for array in [*inputs.values(), *expected]):
        return [np.asarray(each) for each in session.run(None, dict(inputs))]
    return [_taken(each) for each in session.run_with_ort_values(None, {k: _given(v) for k, v in inputs.items()})]


def _given(array: Array) -> Any:
    if array.dtype != BFLOAT16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)


def _taken(value: Any) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    shape = value.shape()
    data = ctypes.string_at(value.data_ptr(), int(np.prod(shape)) * BFLOAT16.itemsize)
    return np.frombuffer(data, BFLOAT16).reshape(shape)


def _words(error: Exception) -> str:
    """Return ONNX Runtime's message without the status prefix of the Python package."""
    return re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error))


@cache
def verdicts() -> dict[str, Verdict]:
    """Return the verdict on every case, in the order of `cases()`.

    Raises
    ------
    RuntimeError
        The program that judges ends by other means than a signal.
    """
    names = list(cases())
    found: dict[str, Verdict] = {}
    while len(found) < len(names):
        command = [sys.executable, "-W", "ignore", __file__, str(len(found))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            name, outcome, reason = json.loads(line)
            found[name] = Verdict(Outcome[outcome], reason)
        if len(found) < len(names):
            if done.returncode >= 0:
                raise RuntimeError(f"the program that judges ends with {done.returncode}: {done.stderr[-2000:]}")
            found[names[len(found)]] = Verdict(Outcome.ENDED, f"signal {-done.returncode}")
    return found


def main(start: int) -> None:
    """Print the verdicts from a case on, each immediately."""
    onnxruntime.set_default_logger_severity(4)
    for name in list(cases())[start:]:
        verdict = judge(cases()[name])
        sys.stdout.write(json.dumps([name, verdict.outcome.name, verdict.reason]) + "\n")
        sys.stdout.flush()


PAGE = """# Conformance

<!-- Written by the tests of the backend; the command is below. -->

The ONNX standard has test cases for each variant of each operator: a model, inputs, and the expected outputs. The
tests of the ONNX Runtime backend run each case that ONNX Runtime itself passes in a real `tritonserver`, without a
config.pbtxt, so that the backend completes the configuration. They send each request twice over HTTP and twice over
gRPC, because the backend copies the first answer of a model and computes later ones in the response's memory. Answers
are compared by the standard's own rule (`onnx.backend.test.runner`: relative tolerance {rtol:g}, absolute tolerance
{atol:g}).

```console
CONFORMANCE_PAGE=docs/conformance.md macbuild test onnxruntime_backend -- -k test_nodes
```

This command writes the page. First it runs each case with ONNX Runtime in a Python process, to find the cases that
ONNX Runtime itself does not pass; the tests have no list of exceptions. ONNX Runtime chooses its kernels by
processor, so some cases may end differently on another machine. These figures are for ONNX Runtime {version}.

{figures}
The server must refuse a case that ONNX Runtime does not load with ONNX Runtime's message, and a case with a type that
Triton lacks with the name of the input or output. The tables below have the reasons why a case is not compared.
"""


def page(passed: int) -> str:
    """Return the page of the documentation.

    Parameters
    ----------
    passed
        How many cases passed through the server.
    """
    found = verdicts().values()
    case = next(iter(cases().values()))
    figures: list[tuple[str, int]] = [(f"node tests of onnx {onnx.__version__}", len(found))]
    sections = []
    for outcome in Outcome:
        reasons = Counter(_short(verdict.reason) for verdict in found if verdict.outcome == outcome)
        if reasons and outcome != Outcome.PASSED:
            figures.append((outcome.value, sum(reasons.values())))
            rows = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
            title = outcome.value[0].upper() + outcome.value[1:]
            sections.append(f"## {title}\n\n" + _table("reason", [(f"`{text}`", n) for text, n in rows]))
    compared = sum(verdict.outcome == Outcome.PASSED for verdict in found)
    figures += [("compared through the server", compared), ("passed through the server", passed)]
    head = PAGE.format(version=onnxruntime.__version__, rtol=case.rtol, atol=case.atol, figures=_table("what", figures))
    return "\n".join([head, *sections])


def _short(reason: str) -> str:
    """Return a reason for the page, without the place in ONNX Runtime's source."""
    text = re.sub(r".*\.(?:cc|h):\d+ .*(?:[&*]|, int|, bool)\)(?: const|::<lambda\(\)>| \[[^\]]*\])* ", "", reason)
    text = re.sub(r"This is an invalid model\. In Node, .*, Error ", "", text)
    return textwrap.shorten(text.replace(" with name ''", "").replace("|", r"\|"), 150, placeholder=" ...")


def _table(head: str, rows: Sequence[tuple[str, int]]) -> str:
    return "".join(f"| {text} | {count} |\n" for text, count in [(head, "cases"), ("---", "---:"), *rows])


if __name__ == "__main__":
    main(int(sys.argv[1]))
