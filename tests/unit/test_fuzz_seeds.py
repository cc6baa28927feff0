from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import SEEDS, TARGETS, load, seeds
from tests.fuzz.common import KINDS, Mutation, bounded, mutate, random_mutations

MUTATION = st.builds(Mutation, st.sampled_from(KINDS), st.integers(0, 0xFFFF), st.integers(0, 255))


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=f"{name}-{path.name}") for name in TARGETS for path in seeds(name)]
)
def test_every_kept_fuzz_input_is_harmless(path: Path) -> None:
    bounded(load(path.parent.name))(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_fuzz_inputs_are_harmless(name: str) -> None:
    check = load(name)
    inputs = [path.read_bytes() for path in seeds(name)]

    @given(st.sampled_from(inputs), st.lists(MUTATION, min_size=1, max_size=4))
    @settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def change_and_check(data: bytes, mutations: list[Mutation]) -> None:
        check(mutate(data, mutations))

    change_and_check()


def test_the_seeds_are_small_and_belong_to_a_target() -> None:
    assert sorted(path.name for path in SEEDS.iterdir()) == list(TARGETS)
    assert sum(path.stat().st_size for name in TARGETS for path in seeds(name)) < 1 << 20


def test_mutations_change_every_part_of_an_input() -> None:
    data = bytes(range(64))
    changed = [mutate(data, random_mutations(random.Random(number))) for number in range(300)]
    assert all(any(new[at : at + 1] != data[at : at + 1] for new in changed) for at in range(len(data)))
    assert len({len(new) for new in changed}) > 20


def test_an_input_that_takes_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.common.SECONDS", 0.0)

    def slow(data: bytes) -> None:
        sum(data * 10_000)

    with pytest.raises(AssertionError, match="s for an input of 3 bytes"):
        bounded(slow)(b"abc")
