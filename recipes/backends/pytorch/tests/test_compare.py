"""Test every data type and form of inputs and outputs: the server's answers equal PyTorch's, bit for bit."""

from __future__ import annotations

import pytest
from backend_testing.server import Service
from modules import saved
from samples import FORMS, TYPED, Sample
from wire import Client, ask, same

CASES = [
    pytest.param(sample, index, id=f"{sample.name}-{index}")
    for sample in [*TYPED, *FORMS]
    for index in range(len(sample.requests))
]


def serve(service: Service, sample: Sample) -> None:
    """Write and load the model of a sample once."""
    if sample.name not in service.loaded:
        service.repository.add(sample.name, {"1/model.pt": saved(sample.module)}, sample.text())
        service.load(sample.name)


@pytest.mark.parametrize(("sample", "index"), CASES)
def test_the_server_answers_what_pytorch_answers(service: Service, client: Client, sample: Sample, index: int) -> None:
    serve(service, sample)
    request = sample.requests[index]
    expected = sample.expected(request)
    answer = ask(client, sample.name, request)
    assert set(answer) == {port.name for port in sample.outputs}
    for name in answer:
        assert same(answer[name], expected[name]), f"{name}: {answer[name]} is not {expected[name]}"
