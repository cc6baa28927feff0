"""The voice detector Silero VAD, a real model with a state, from its package."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from filelock import FileLock

from backend_testing import wheels
from backend_testing.wire import Value

__all__ = ["CONTEXT", "RATE", "SAMPLES", "model", "sound"]

RELEASE = "6.2.3"
RATE = 16000
SAMPLES = 512
"""How many samples a step adds."""
CONTEXT = 64
"""How many samples of the last step it begins with."""


def model(name: str) -> Path:
    """Return a file of the package, as `silero_vad.onnx`; pip downloads it once into a folder that outlives the tests.

    The package itself is not installed: it needs torchaudio.
    """
    path = wheels.download("silero-vad", RELEASE)
    target = path.with_name(name)
    with FileLock(f"{path.parent}.lock"):
        if not target.exists():
            partial = target.with_name(name + ".partial")
            with zipfile.ZipFile(path) as wheel:
                partial.write_bytes(wheel.read(f"silero_vad/data/{name}"))
            partial.replace(target)
    return target


def sound(seed: int, steps: int) -> Value:
    """Return the samples of some steps: noise, with a tone in half of them."""
    chance = np.random.default_rng(seed)
    time = np.arange(steps * SAMPLES) / RATE
    loud = np.repeat(chance.random(steps) < 0.5, SAMPLES)
    tone = 0.4 * loud * np.sin(2 * np.pi * chance.integers(90, 400) * time)
    return (tone + 0.05 * chance.standard_normal(len(time))).astype(np.float32)
