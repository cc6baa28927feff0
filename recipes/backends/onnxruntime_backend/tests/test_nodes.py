"""Run the node tests of the ONNX standard: those that ONNX Runtime passes in Python must pass through the server.

If the variable CONFORMANCE_PAGE is set, the page of the documentation with the figures is written to that file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from backend_testing.server import Service
from backend_testing.wire import Client, InferenceServerException, Value
from node_cases import Outcome, Verdict, cases, check, data_sets, obstacles, page, verdicts
from onnx.backend.test.case.test_case import TestCase

PARTS = 16
LEAST = 1000
# The backend copies an output until it knows that the model declares its shape correctly; later runs are computed in
# place.
TURNS = ("http", "grpc", "http", "grpc")
OBSTACLES = {"sequence": "is a sequence", "optional": "is an optional"}


def of(outcome: Outcome) -> dict[str, Verdict]:
    """Return the cases with one outcome."""
    return {name: verdict for name, verdict in verdicts().items() if verdict.outcome == outcome}


def part(number: int) -> list[str]:
    """Return the names of one part of the cases that ONNX Runtime passes."""
    return list(of(Outcome.PASSED))[number::PARTS]


def asked(inputs: dict[str, Value]) -> dict[str, Value]:
    """Return inputs in Triton's form: a scalar has one dimension, strings are bytes."""
    return {name: np.atleast_1d(encoded(array)) for name, array in inputs.items()}


def encoded(array: Value) -> Value:
    """Return strings as bytes, other arrays as they are."""
    if array.dtype != np.object_:
        return array
    return np.array([text.encode() for text in array.ravel()], np.object_).reshape(array.shape)


def understood(array: Value, expected: Value) -> Value:
    """Return an output as ONNX Runtime would: a scalar without a dimension, strings as text."""
    if expected.ndim == 0 and array.shape == (1,):
        array = array.reshape(())
    if array.dtype != np.object_:
        return array
    return np.array([text.decode() for text in array.ravel()], np.object_).reshape(array.shape)


def complaint(client: Client, case: TestCase) -> str:
    """Send every data set to a loaded model and describe what is wrong; empty if nothing is."""
    assert case.model is not None
    names = [port.name for port in case.model.graph.output]
    for inputs, expected in data_sets(case):
        try:
            found = client.infer(case.name, asked(inputs))
        except InferenceServerException as error:
            return str(error.message())
        if set(found) != set(names):
            return f"the outputs are {sorted(found)}"
        answer = [understood(found[name], array) for name, array in zip(names, expected, strict=True)]
        words = check(case, expected, answer)
        if words:
            return words
    return ""


@dataclass
class Nodes:
    """Run cases through the server, each once; a connection over gRPC can be used by several threads."""

    service: Service
    complaints: dict[str, str] = field(default_factory=dict)

    def compare(self, names: Sequence[str]) -> dict[str, str]:
        """Serve cases and return what is wrong, by name."""
        fresh = [name for name in names if name not in self.complaints]
        self.complaints |= self.load(fresh)
        for protocol in TURNS:
            client = self.service.client(protocol)
            for name in fresh:
                self.complaints[name] = self.complaints[name] or complaint(client, cases()[name])
        self.each(self.service.client("grpc").unload, fresh)
        return {name: self.complaints[name] for name in names if self.complaints[name]}

    def load(self, names: Iterable[str]) -> dict[str, str]:
        """Write models without a configuration, load them, and return the server's refusals, or nothing, by name."""
        names = list(names)
        for name in names:
            model = cases()[name].model
            assert model is not None
            self.service.repository.add(name, {"1/model.onnx": model.SerializeToString()})
        return self.each(self.service.client("grpc").load, names)

    @staticmethod
    def each(call: Callable[[str], None], names: Sequence[str]) -> dict[str, str]:
        """Call for each name, some at once, and return the server's errors, or nothing, by name."""

        def tried(name: str) -> str:
            try:
                call(name)
            except InferenceServerException as error:
                return str(error.message())
            return ""

        with ThreadPoolExecutor(4) as pool:
            return dict(zip(names, pool.map(tried, names), strict=True))


@pytest.fixture(scope="module")
def nodes(service: Service) -> Nodes:
    """The cases with the server."""
    return Nodes(service)


def names_an_obstacle(words: str, case: TestCase) -> bool:
    """Return whether a refusal names the unsupported input or output and the reason."""
    assert case.model is not None
    complaints = []
    for kind, ports in (("input", case.model.graph.input), ("output", case.model.graph.output)):
        for name in (port.name for port in ports if port.name in obstacles(case)):
            obstacle = obstacles(case)[name]
            reason = OBSTACLES.get(obstacle, f"has the ONNX element type {obstacle}")
            complaints.append(f"{kind} '{name}' of the model {reason}, which Triton does not support")
    return any(complaint in words for complaint in complaints)


def listed(complaints: dict[str, str]) -> str:
    """Return complaints as one text, one case after the other."""
    return "\n\n".join(f"{name}: {words}" for name, words in complaints.items())


@pytest.mark.parametrize("number", range(PARTS))
def test_cases_that_onnx_runtime_passes_pass_through_the_server(nodes: Nodes, number: int) -> None:
    complaints = nodes.compare(part(number))
    assert not complaints, listed(complaints)


def test_a_type_unknown_to_triton_is_refused_with_the_port(nodes: Nodes) -> None:
    refusals = nodes.load(of(Outcome.NOT_CARRIED))
    wrong = {name: words for name, words in refusals.items() if not names_an_obstacle(words, cases()[name])}
    assert not wrong, listed(wrong)


def test_refusals_of_onnx_runtime_are_refusals_of_the_server(nodes: Nodes) -> None:
    refusals = nodes.load(of(Outcome.REFUSED))
    wrong = {name: words for name, words in refusals.items() if verdicts()[name].reason.strip() not in words}
    assert not wrong, listed(wrong)


def test_failures_of_onnx_runtime_are_errors_with_its_message(nodes: Nodes) -> None:
    names = list(of(Outcome.FAILED))
    assert not any(nodes.load(names).values())
    for protocol in TURNS:
        for name in names:
            words = complaint(nodes.service.client(protocol), cases()[name])
            assert verdicts()[name].reason.strip() in words
    nodes.each(nodes.service.client("grpc").unload, names)


def test_the_figures_and_their_page(nodes: Nodes) -> None:
    names = list(of(Outcome.PASSED))
    complaints = nodes.compare(names)
    assert len(names) >= LEAST
    assert sum(len(of(outcome)) for outcome in Outcome) == len(cases())
    where = os.environ.get("CONFORMANCE_PAGE")
    if where:
        Path(where).write_text(page(len(names) - len(complaints)), encoding="utf-8")
    assert not complaints, ", ".join(complaints)
