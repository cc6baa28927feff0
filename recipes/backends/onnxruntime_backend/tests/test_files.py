"""Test where model files are found, messages for missing or broken ones, versions, and reloading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from backend_testing.repository import File
from backend_testing.server import Service, running
from backend_testing.wire import Client, InferenceServerException, same
from conftest import LEAKS
from option_models import DOUBLING, NOTHING, ROWS, X, bundled, config, model, serve, times, weighted

from macbuild.errors import ToolError


def test_the_default_model_filename_is_used(service: Service, client: Client) -> None:
    name = f"filename_{client.protocol}"
    files = {"1/network.bin": weighted(5.0), "1/model.onnx": b"not this one"}
    serve(service, name, files, config(*ROWS, batch=8, extra='default_model_filename: "network.bin"'))
    assert times(client, name, 5.0)


WEIGHTS = np.array([1, 2, 3, 4], np.float32)
PLACES: dict[str, tuple[Mapping[str, File], str | None]] = {
    "data beside the file": ({"1": bundled(WEIGHTS)}, NOTHING),
    "folder": ({"1/model.onnx": bundled(WEIGHTS)}, NOTHING),
    "folder without configuration": ({"1/model.onnx": bundled(WEIGHTS)}, None),
    "named folder": ({"1/net": bundled(WEIGHTS)}, NOTHING + 'default_model_filename: "net"'),
    "file in a folder": (
        {"1/net": bundled(WEIGHTS, "inner.onnx")},
        NOTHING + 'default_model_filename: "net/inner.onnx"',
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_weights_in_files_of_their_own_are_found(service: Service, place: str) -> None:
    files, text = PLACES[place]
    name = f"place_{place.replace(' ', '_')}"
    serve(service, name, files, text)
    assert same(service.client().infer(name, {"x": X})["y"], X * WEIGHTS)


ABSENT: dict[str, tuple[Mapping[str, File], str, list[str]]] = {
    "no file": ({}, NOTHING, ["1/model.onnx"]),
    "no named file": ({"1/model.onnx": DOUBLING}, NOTHING + 'default_model_filename: "net.onnx"', ["1/net.onnx"]),
    "empty folder": ({"1/model.onnx/readme": b""}, NOTHING, ["1/model.onnx"]),
    "empty file": ({"1/model.onnx": b""}, NOTHING, ["model.onnx"]),
    "text": ({"1/model.onnx": b"this is not a model\n" * 100}, NOTHING, ["model.onnx", "Protobuf parsing failed"]),
    "truncated": ({"1/model.onnx": DOUBLING[:-20]}, NOTHING, ["model.onnx"]),
    "unknown operator": (
        {"1/model.onnx": model("float[n,4] x", "float[n,4] y", "y = Nonsense(x)")},
        NOTHING,
        ["Nonsense"],
    ),
    "newer than the library": (
        {"1/model.onnx": model("float[n,4] x", "float[n,4] y", "y = Neg(x)", 'ir_version: 99, opset_import: ["": 17]')},
        NOTHING,
        ["IR version: 99"],
    ),
}


@pytest.mark.parametrize("kind", ABSENT)
def test_a_missing_or_broken_model_is_a_specific_load_error(service: Service, kind: str) -> None:
    files, text, words = ABSENT[kind]
    name = f"broken_{kind.replace(' ', '_')}"
    service.repository.add(name, files, text)
    refusal = service.refusal(name)
    assert [word for word in words if word not in refusal] == [], refusal
    assert service.server.running


def test_missing_weights_are_a_load_error_that_names_their_file(service: Service) -> None:
    folder = service.repository.add("weightless", {"1": bundled(WEIGHTS)}, NOTHING)
    (folder / "1/weights.bin").unlink()
    assert "weights.bin" in service.refusal("weightless")


def test_each_version_of_a_model_answers_with_its_weights(service: Service, client: Client) -> None:
    name = f"versions_{client.protocol}"
    files = {f"{version}/model.onnx": weighted(version) for version in (1, 2, 7)}
    serve(service, name, files, config(*ROWS, batch=8, extra="version_policy { specific { versions: [1, 7] } }"))
    assert times(client, name, 1.0, "1")
    assert times(client, name, 7.0, "7")
    assert times(client, name, 7.0)
    with pytest.raises(InferenceServerException, match="version"):
        client.infer(name, {"x": X}, version="2")


def test_removed_versions_are_dropped_on_reload(service: Service) -> None:
    client = service.client()
    policy = config(*ROWS, batch=8, extra="version_policy { all {} }")
    serve(service, "stale", {"1/model.onnx": weighted(1), "2/model.onnx": weighted(2)}, policy)
    assert times(client, "stale", 1.0, "1")
    service.repository.add("stale", {"2/model.onnx": weighted(2), "3/model.onnx": weighted(3)}, policy)
    (service.repository.folder / "stale/1").rmdir()
    client.load("stale")
    assert [client.ready("stale", version) for version in "23"] == [True, True]
    assert times(client, "stale", 3.0)
    with pytest.raises(InferenceServerException, match="version"):
        client.infer("stale", {"x": X}, version="1")


def test_a_changed_model_is_served_after_it_is_loaded_again(service: Service, client: Client) -> None:
    name = f"reload_{client.protocol}"
    serve(service, name, weighted(2.0), config(*ROWS, batch=8))
    assert times(client, name, 2.0)
    service.repository.add(name, {"1/model.onnx": weighted(3.0)}, config(*ROWS, batch=8, extra="# changed"))
    client.load(name)
    assert times(client, name, 3.0)
    service.unload(name)
    with pytest.raises(InferenceServerException):
        client.infer(name, {"x": X})
    client.load(name)
    assert times(client, name, 3.0)


def test_a_model_that_no_longer_loads_keeps_its_old_version(tmp_path: Path, backends: Callable[..., Path]) -> None:
    survived = False
    # After a failed reload, with any backend, this server waits in vain for the model when it stops, and exits with 1.
    with (
        suppress(ToolError),
        running(tmp_path, ["--exit-timeout-secs=1"], backends=backends(), suppressions=LEAKS) as alone,
    ):
        serve(alone, "survivor", weighted(2.0), config(*ROWS, batch=8))
        alone.repository.add("survivor", {"1/model.onnx": b"broken"}, config(*ROWS, batch=8, extra="# changed"))
        assert "model.onnx" in alone.refusal("survivor")
        assert times(alone.client(), "survivor", 2.0)
        survived = alone.server.running
    assert survived
