"""Test sequences: controls, states kept by the server, both strategies, failures, refusals, and Silero VAD."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from backend_testing import silero
from backend_testing.repository import Port, parameters
from backend_testing.sequences import (
    STRATEGIES,
    Story,
    Telling,
    check_sequences,
    control,
    sequence_batching,
    state,
    tell_all,
    zeros,
)
from backend_testing.server import Service
from backend_testing.wire import Client, Step, Value
from conftest import begin
from modules import config, saved
from test_packages import compile_package
from torch import Tensor, nn

PLAIN = "direct { }"
ID = 7


class Echo(nn.Module):
    """The controls by the names of the arguments."""

    def forward(
        self, start: Tensor, end: Tensor, ready: Tensor, identity: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return start, end, ready, identity


class Name(nn.Module):
    """The correlation ID, which is a text."""

    def forward(self, identity: list[str]) -> list[str]:
        return [each + "!" for each in identity]


class Sum(nn.Module):
    """A sum over the sequence, as code that can be compiled."""

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        return (h + x) * 2, h + x


class Total(nn.Module):
    """A sum over the sequence; one above the limit is an error. It writes to its state on purpose."""

    def __init__(self, limit: float = 1000) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h += x
        if bool((h > self.limit).any()):
            raise ValueError("the sum is too large")
        return h * 1, h


class Recollection(nn.Module):
    """Keeps the last input and a sum in attributes; answers with the input before and the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(1, 4)
        self.sum = torch.zeros(1, 4)

    def forward(self, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        if bool(start):
            self.last = torch.zeros_like(x)
            self.sum = torch.zeros_like(x)
        before = self.last
        self.last = x
        self.sum = self.sum + x
        return before, self.sum


class Several(nn.Module):
    """Counts the steps, and keeps all numbers so far; the state begins at the flag."""

    def forward(self, x: Tensor, start: Tensor, count: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        count = torch.where(start, torch.zeros_like(count), count) + 1
        seen = torch.cat([seen, x], dim=1)
        return seen.sum(dim=1, keepdim=True), count, seen


class Voice(nn.Module):
    """The network of Silero VAD with both of its states, and with the batch first."""

    def __init__(self, inner: torch.jit.ScriptModule, samples: int) -> None:
        super().__init__()
        self.inner = inner
        self.samples = samples

    def forward(self, x: Tensor, start: Tensor, context: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        context = torch.where(start, torch.zeros_like(context), context)
        state = torch.where(start.unsqueeze(2), torch.zeros_like(state), state)
        heard = torch.cat([context, x], dim=1)
        out, after = self.inner(heard, state.transpose(0, 1).contiguous())
        return out, heard[:, -self.samples :], after.transpose(0, 1)


def script(module: nn.Module) -> torch.jit.ScriptModule:
    """Return a module of this file as TorchScript."""
    made: torch.jit.ScriptModule = torch.jit.script(module.eval())
    return made


def serve(service: Service, name: str, module: nn.Module, text: str) -> None:
    """Write and load a model once."""
    if name not in service.loaded:
        service.repository.add(name, {"1/model.pt": saved(script(module))}, text)
        service.load(name)


def tell(client: Client, model: str, steps: list[dict[str, Value]]) -> list[dict[str, Value]]:
    """Send a whole sequence and return the answers."""
    last = len(steps) - 1
    return [client.infer(model, step, step=Step(ID, at == 0, at == last)) for at, step in enumerate(steps)]


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("flags", "identity"), [("INT32", "INT64"), ("FP32", "UINT64"), ("BOOL", "INT32"), ("BOOL", "UINT32")]
)
def test_controls_reach_the_model(
    service: Service, client: Client, flags: str, identity: str, strategy: str, batch: int
) -> None:
    name = f"echo_{flags}_{identity}_{strategy}_{batch}"
    kinds = {"start": "START", "end": "END", "ready": "READY"}
    controls = [control(each, kind, flags) for each, kind in kinds.items()] + [control("identity", "CORRID", identity)]
    outputs = [Port(f"OUTPUT__{index}", flags if index < 3 else identity, [1]) for index in range(4)]
    extra = sequence_batching(STRATEGIES[strategy], *controls)
    serve(service, name, Echo(), config([], outputs, batch=batch, extra=extra))
    for index, answer in enumerate(tell(client, name, [{}] * 3)):
        assert all(value.shape == ((1, 1) if batch else (1,)) for value in answer.values())
        values = [answer[f"OUTPUT__{place}"].item() for place in range(4)]
        assert values == [index == 0, index == 2, 1, ID]


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_correlation_id_may_be_a_text(service: Service, client: Client, strategy: str, batch: int) -> None:
    name = f"name_{strategy}_{batch}"
    extra = sequence_batching(STRATEGIES[strategy], control("identity", "CORRID", "BYTES"))
    serve(service, name, Name(), config([], [Port("OUTPUT__0", "BYTES", [1])], batch=batch, extra=extra))
    for identity in ("größer", "second"):
        for at in range(3):
            answer = client.infer(name, {}, step=Step(identity, at == 0, at == 2))["OUTPUT__0"]
            assert answer.shape == ((1, 1) if batch else (1,))
            assert answer.item().decode() == f"{identity}!"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the sum as a package for batches of any size."""
    rows = torch.export.Dim("rows", min=1, max=64)
    example = torch.ones(2, 4), torch.zeros(2, 4)  # one tensor for both would make them one input
    return compile_package(tmp_path_factory.mktemp("sum"), Sum(), example, dynamic=({0: rows}, {0: rows}))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_package_keeps_sequences_apart(service: Service, client: Client, compiled: Path, strategy: str) -> None:
    name = f"compiled_{strategy}"
    if name not in service.loaded:
        kept = state(("INPUT__1", "OUTPUT__1"), "FP32", [4], zeros("FP32", [4]))
        ports = [Port("INPUT__0", "FP32", [4])], [Port("OUTPUT__0", "FP32", [4])]
        text = config(*ports, batch=8, extra=sequence_batching(STRATEGIES[strategy], kept))
        service.repository.add(name, {"1/model.pt2": compiled}, text)
        service.load(name)
    chance = np.random.default_rng(len(strategy))
    tellings = []
    for length in (1, 3, 6):
        steps = chance.integers(0, 40, (length, 1, 4)).astype(np.float32)
        sums = np.cumsum(steps, axis=0) * 2
        requests: list[dict[str, Value]] = [{"INPUT__0": step} for step in steps]
        tellings.append(Telling(Story(name, requests, [{"OUTPUT__0": each} for each in sums])))
    while tellings := [each for each in tellings if not each.over]:
        for each in tellings:
            assert each.advance(client) == ""


TOTAL = [Port("x", "FP32", [4])], [Port("y", "FP32", [4])]
SUM = state(("h", "h2"), "FP32", [4], zeros("FP32", [4]))


def story(chance: random.Random, names: list[str]) -> Story:
    """Make a sequence of sums, a few of them too large."""
    kept = np.zeros((1, 4), np.float32)
    requests: list[dict[str, Value]] = []
    answers: list[dict[str, Value] | str] = []
    for _ in range(chance.randint(1, 12)):
        x = np.array([[chance.randint(0, 40) for _ in range(4)]], np.float32)
        if chance.random() < 0.05:
            x += 2000
            answers.append("the sum is too large")
        else:
            kept = kept + x
            answers.append({"y": kept})
        requests.append({"x": x})
    return Story(chance.choice(names), requests, answers)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_request_that_fails_leaves_the_state_as_it_was(service: Service, client: Client, strategy: str) -> None:
    name = f"failing_{strategy}"
    extra = sequence_batching(STRATEGIES[strategy], SUM) + "instance_group { kind: KIND_CPU count: 1 }"
    serve(service, name, Total(), config(*TOTAL, batch=4, extra=extra))
    tellings = [Telling(story(random.Random(seed), [name])) for seed in range(6)]
    while tellings := [each for each in tellings if not each.over]:
        for each in tellings[:4]:
            assert each.advance(client) == ""


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_states_have_types_and_sizes_of_their_own(service: Service, client: Client, strategy: str) -> None:
    name = f"several_{strategy}"
    # All have places, since the model does not name them; the first state is an output, too.
    parts = [
        control("start", "START", "BOOL"),
        state(("count", "OUTPUT__1"), "INT16", [1]),
        state(("seen", "OUTPUT__2"), "FP64", [-1], zeros("FP64", [0])),
    ]
    outputs = [Port("OUTPUT__0", "FP64", [1]), Port("OUTPUT__1", "INT16", [1])]
    extra = sequence_batching(STRATEGIES[strategy], *parts)
    serve(service, name, Several(), config([Port("x", "FP64", [-1])], outputs, batch=8, extra=extra))
    tellings = []
    for length in (1, 2, 5):
        requests: list[dict[str, Value]] = [
            {"x": np.arange(step + length, dtype=np.float64)[None]} for step in range(length)
        ]
        sums = np.cumsum([step["x"].sum() for step in requests])
        answers = [
            {"OUTPUT__0": np.array([[sums[step]]]), "OUTPUT__1": np.array([[step + 1]], np.int16)}
            for step in range(length)
        ]
        tellings.append(Telling(Story(name, requests, answers)))
    while tellings := [each for each in tellings if not each.over]:
        for each in tellings:
            assert each.advance(client) == ""


def refusals() -> dict[str, tuple[str, str]]:
    """Return parts that do not go with the model `Total`, with what a refusal says."""
    same_buffer = "use_same_buffer_for_input_output: true"
    return {
        "control": (SUM + control("begin", "START", "FP32"), "'begin'"),
        "missing": ("", "no input for the argument 'h'"),
        "output": (state(("h", "OUTPUT__5"), "FP32", [4]), "is none of the 2 values"),
        "type": (state(("h", "h2"), "BYTES", [4]), "input 'h': the argument 'h' of the model needs a numeric type"),
        "listed": (state(("x", "h2"), "FP32", [4]), "state input 'x' of model bad_listed is listed twice"),
        "same_buffer": (state(("h", "h2"), "FP32", [4], same_buffer), "use_same_buffer_for_input_output"),
        "iterative": (SUM + "iterative_sequence: true", "sequence_batching.iterative_sequence"),
    }


@pytest.mark.parametrize("case", refusals())
def test_sequences_that_do_not_go_with_the_model_are_refused(service: Service, case: str) -> None:
    parts, words = refusals()[case]
    name = f"bad_{case}"
    text = config(*TOTAL, batch=4, extra=sequence_batching(PLAIN, parts))
    service.repository.add(name, {"1/model.pt": saved(script(Total()))}, text)
    assert words in service.refusal(name)


@pytest.mark.parametrize(
    ("datatype", "dims", "words"),
    [("INT32", [4], "can't be cast"), ("FP32", [5], "must match")],
)
def test_a_wrong_state_of_a_tensor_is_an_error_of_the_request(
    service: Service, client: Client, datatype: str, dims: list[int], words: str
) -> None:
    name = f"wrong_{datatype}_{dims[0]}"
    kept = state(("h", "h2"), datatype, dims, zeros(datatype, dims))
    serve(service, name, Total(), config(*TOTAL, batch=4, extra=sequence_batching(PLAIN, kept)))
    story = Story(name, [{"x": np.ones((1, 4), np.float32)}], [words])
    assert Telling(story).advance(client) == ""


def test_sequences_of_16_clients_keep_apart(tmp_path: Path) -> None:
    with begin(tmp_path) as service:
        names = []
        for strategy, words in STRATEGIES.items():
            for instances in (1, 2, 4):
                name = f"sum_{strategy}_{instances}"
                extra = sequence_batching(words, SUM) + f"\ninstance_group {{ kind: KIND_CPU count: {instances} }}"
                serve(service, name, Total(), config(*TOTAL, batch=32, extra=extra))
                names.append(name)
        rows, batches = check_sequences(service, lambda chance: story(chance, names))
    assert batches < rows
    assert service.server.exit_code == 0


def recollected(chance: random.Random, names: list[str]) -> Story:
    """Make a sequence for a model that keeps what it knows in attributes."""
    xs = [np.array([[chance.randint(0, 1000) for _ in range(4)]], np.float32) for _ in range(chance.randint(1, 12))]
    before = [np.zeros((1, 4), np.float32), *xs]
    answers = [{"OUTPUT__0": before[at], "OUTPUT__1": np.sum(xs[: at + 1], axis=0)} for at in range(len(xs))]
    return Story(chance.choice(names), [{"x": x} for x in xs], answers)


@pytest.mark.parametrize("sharing", ["", "true"])
def test_attributes_of_16_clients_keep_apart(tmp_path: Path, sharing: str) -> None:
    ports = [Port("x", "FP32", [1, 4])], [Port(f"OUTPUT__{at}", "FP32", [1, 4]) for at in range(2)]
    shared = parameters({"ENABLE_WEIGHT_SHARING": sharing}) if sharing else ""
    with begin(tmp_path) as service:
        names = []
        for instances in (1, 2, 4):
            extra = sequence_batching("direct { }", control("start", "START", "BOOL"))
            extra += f"\ninstance_group {{ kind: KIND_CPU count: {instances} }}\n{shared}"
            serve(service, f"recollection_{instances}", Recollection(), config(*ports, extra=extra))
            names.append(f"recollection_{instances}")
        # An instance has one sequence at a time, so a client that had two could wait for itself.
        check_sequences(service, lambda chance: recollected(chance, names), at_once=1)
    assert service.server.exit_code == 0


STEPS = 200
SEQUENCES = 32


def spoken(seed: int, voice: torch.jit.ScriptModule) -> Story:
    """Return a sequence of noise and tones with the answers that PyTorch gives to it."""
    sound = silero.sound(seed, STEPS)
    context, kept = torch.zeros(1, silero.CONTEXT), torch.zeros(1, 2, 128)
    requests: list[dict[str, Value]] = []
    answers: list[dict[str, Value] | str] = []
    for step in range(STEPS):
        x = sound[None, step * silero.SAMPLES : (step + 1) * silero.SAMPLES]
        with torch.inference_mode():
            out, context, kept = voice(torch.from_numpy(x), torch.tensor([[step == 0]]), context, kept)
        requests.append({"x": x})
        answers.append({"OUTPUT__0": out.numpy()})
    return Story("voice", requests, answers)


def test_silero_agrees_with_pytorch_in_32_sequences_of_200_steps(service: Service) -> None:
    whole = torch.jit.load(str(silero.model("silero_vad.jit")))  # type: ignore[no-untyped-call]
    voice = script(Voice(whole._model, silero.CONTEXT))
    parts = [
        control("start", "START", "BOOL"),
        state(("context", "OUTPUT__1"), "FP32", [silero.CONTEXT]),
        state(("state", "OUTPUT__2"), "FP32", [2, 128]),
    ]
    ports = [Port("x", "FP32", [silero.SAMPLES])], [Port("OUTPUT__0", "FP32", [1])]
    # One thread is as fast for so small a model, and leaves the cores to the other sequences.
    extra = sequence_batching("oldest { max_candidate_sequences: 64 }", *parts) + "\n"
    extra += parameters({"INTRA_OP_THREAD_COUNT": "1"})
    service.repository.add("voice", {"1/model.pt": saved(voice)}, config(*ports, batch=1, extra=extra))
    service.load("voice")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    stories = [spoken(seed, voice) for seed in range(SEQUENCES)]
    torch.set_num_threads(threads)
    tell_all(service, stories)
