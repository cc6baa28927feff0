"""Serve Silero VAD, a real model with a state: every step of every sequence is what ONNX Runtime gives here."""

from __future__ import annotations

import numpy as np
from backend_testing import silero
from backend_testing.repository import Port, config, parameters
from backend_testing.sequences import Story, sequence_batching, state, tell_all, zeros
from backend_testing.server import Service
from backend_testing.wire import Value
from models import answer

STEPS = 200
SEQUENCES = 32
STATE = [2, 1, 128]


def spoken(seed: int, model: bytes) -> Story:
    """Return a sequence of noise and tones with the answers that ONNX Runtime gives to it."""
    padded = np.concatenate([np.zeros(silero.CONTEXT, np.float32), silero.sound(seed, STEPS)])
    kept: Value = np.zeros(STATE, np.float32)
    rate = np.array(silero.RATE)
    requests: list[dict[str, Value]] = []
    answers: list[dict[str, Value]] = []
    for step in range(STEPS):
        start = step * silero.SAMPLES
        heard = padded[None, start : start + silero.CONTEXT + silero.SAMPLES]
        found = answer(model, {"input": heard, "state": kept, "sr": rate})
        kept = found["stateN"]
        requests.append({"input": heard, "sr": rate[None]})
        answers.append({"output": found["output"]})
    return Story("silero", requests, answers)


def test_32_sequences_of_200_steps_agree_with_onnx_runtime(service: Service) -> None:
    path = silero.model("silero_vad.onnx")
    inputs = [Port("input", "FP32", [1, -1]), Port("sr", "INT64", [1])]
    kept = state(("state", "stateN"), "FP32", STATE, zeros("FP32", STATE))
    extra = sequence_batching("oldest { max_candidate_sequences: 64 }", kept)
    # One thread is as fast for so small a model, and leaves the cores to the other sequences.
    extra += parameters({"intra_op_thread_count": "1"})
    text = config("onnxruntime", inputs, [Port("output", "FP32", [1, 1])], extra=extra)
    service.repository.add("silero", {"1/model.onnx": path}, text)
    service.load("silero")
    stories = [spoken(seed, path.read_bytes()) for seed in range(SEQUENCES)]
    tell_all(service, stories)
