"""Test loading and unloading on request, with --model-control-mode=explicit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from backend_testing.service import Service, running
from backend_testing.wire import Client, InferenceServerException, same
from models import SLOW_SECONDS, add

ITEM = {"INPUT0": np.arange(6, dtype=np.float32).reshape(2, 3)}
_PATIENCE = 60.0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a repository that tests add models to."""
    folder = tmp_path_factory.mktemp("repository")
    add(folder, "first")
    add(folder, "second")
    return folder


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Service]:
    """Provide a server that loads one model when it starts, the others on request."""
    arguments = "--model-control-mode=explicit", "--load-model=first"
    with running(tmp_path_factory.mktemp("controlled"), models, *arguments) as service:
        yield service


@pytest.fixture
def hand(controlled: Service) -> Client:
    """Provide a connection to it."""
    return controlled.connect()


def unload(client: Client, name: str) -> None:
    """Unload a model and wait until it is gone."""
    client.unload(name)
    end = time.monotonic() + _PATIENCE
    while client.ready(name):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_only_the_requested_model_is_loaded_at_the_start(hand: Client) -> None:
    assert hand.raw.is_server_ready()
    assert hand.ready("first")
    assert not hand.ready("second")
    assert {each["name"] for each in hand.raw.get_model_repository_index()} >= {"first", "second"}


def test_a_model_is_loaded_and_unloaded(hand: Client) -> None:
    for _ in range(3):
        hand.load("second")
        assert same(hand.infer("second", ITEM)["OUTPUT0"], ITEM["INPUT0"])
        unload(hand, "second")
        with pytest.raises(InferenceServerException, match="second"):
            hand.infer("second", ITEM)
    assert hand.ready("first")


def test_a_model_can_be_added_and_changed_later(hand: Client, models: Path) -> None:
    add(models, "later")
    hand.load("later")
    assert hand.config("later")["max_batch_size"] == 8
    add(models, "later", batch=3)
    hand.load("later")
    assert hand.config("later")["max_batch_size"] == 3
    assert same(hand.infer("later", ITEM)["OUTPUT0"], ITEM["INPUT0"])
    unload(hand, "later")


def test_a_model_that_cannot_be_loaded_is_named(hand: Client, models: Path) -> None:
    add(models, "strange", backend="nowhere")
    (models / "broken" / "1").mkdir(parents=True)
    (models / "broken" / "config.pbtxt").write_text("max_batch_size: many", "utf-8")
    for name in ("missing", "strange", "broken"):
        with pytest.raises(InferenceServerException, match=name):
            hand.load(name)
        assert not hand.ready(name)
    assert same(hand.infer("first", ITEM)["OUTPUT0"], ITEM["INPUT0"])


def test_a_request_in_flight_survives_the_unloading_of_its_model(hand: Client, models: Path) -> None:
    add(models, "slow", delay=SLOW_SECONDS)
    hand.load("slow")
    tensor = hand.tensor("INPUT0", ITEM["INPUT0"])
    waiting = hand.raw.async_infer("slow", [tensor])
    time.sleep(SLOW_SECONDS / 3)
    other = Client("http", hand.raw._parsed_url.netloc)
    unload(other, "slow")
    other.close()
    assert same(np.array(waiting.get_result().as_numpy("OUTPUT0")), ITEM["INPUT0"])


def test_models_are_not_controlled_in_other_modes(client: Client) -> None:
    for call in (client.load, client.unload):
        with pytest.raises(InferenceServerException, match=r"explicit|control"):
            call("identity")
    assert client.ready("identity")
