"""Test that every file that a model or its configuration names is in the model's folder, or where the server allows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from backend_testing.repository import File, parameters
from backend_testing.sequences import control, sequence_batching, state
from backend_testing.server import Service
from backend_testing.wire import Client, InferenceServerException, same
from onnx import TensorProto, load_model, save_model
from option_models import DOUBLING, NOTHING, ROWS, X, bundled, config, model, removed, serve, times, weighted

OUTSIDE = "outside the model's folder"
WEIGHTS = np.array([1, 2, 3, 4], np.float32)


@pytest.fixture(scope="module")
def other(service: Service) -> Path:
    """Provide the folder of another model, whose files no model may name."""
    files: dict[str, File] = {"1": bundled(WEIGHTS), "labels.txt": b"a\nb\n", "x": X.tobytes()}
    return service.repository.add("places_other", files, NOTHING)


@pytest.mark.parametrize("path", ["../../places_other/1/model.onnx", "link.onnx", "absolute", "../../places_other/1"])
def test_a_named_file_outside_is_a_load_error(service: Service, other: Path, path: str) -> None:
    named = str(other / "1/model.onnx") if path == "absolute" else path
    folder = service.repository.add("outside", {}, f'{NOTHING}default_model_filename: "{named}"')
    (folder / "1/link.onnx").symlink_to("../../places_other/1/model.onnx")
    assert OUTSIDE in service.refusal("outside")


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize("text", [NOTHING, None])
@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("1/model.onnx", "../../places_other/1/model.onnx"),
        ("1/model.onnx", "../../places_other/1"),
        ("1/model.onnx/model.onnx", "../../../places_other/1/model.onnx"),
    ],
)
def test_a_file_of_the_default_name_that_leads_outside_is_refused(
    service: Service, link: str, target: str, text: str | None
) -> None:
    folder = service.repository.add("outside_default", {}, text)
    path = folder / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)
    assert path.exists()
    assert OUTSIDE in service.refusal("outside_default")


def test_links_inside_the_models_folder_are_followed(service: Service) -> None:
    folder = service.repository.add("linked_inside", {"shared.onnx": weighted(3.0)}, NOTHING)
    (folder / "1/model.onnx").symlink_to("../shared.onnx")
    service.load("linked_inside")
    assert times(service.client(), "linked_inside", 3.0)


@pytest.mark.parametrize("linked", ["model", "version"])
def test_folders_of_models_and_versions_may_be_links(service: Service, tmp_path: Path, linked: str) -> None:
    name = f"linked_{linked}"
    folder = service.repository.add(name, {"1": bundled(WEIGHTS)}, NOTHING)
    moved = folder if linked == "model" else folder / "1"
    moved.rename(tmp_path / "storage")
    moved.symlink_to(tmp_path / "storage")
    service.load(name)
    assert same(service.client().infer(name, {"x": X})["y"], X * WEIGHTS)


def outside_data(location: str, *, attribute: bool = False) -> Callable[[Path], None]:
    """Return a function that writes a model whose weights, an initializer or an attribute, are elsewhere."""

    def write(folder: Path) -> None:
        bundled(WEIGHTS)(folder)
        made = load_model(folder / "model.onnx", load_external_data=False)
        (tensor,) = made.graph.initializer
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
        if attribute:
            made.graph.node[0].attribute.add(name="unused", type=4).t.CopyFrom(tensor)
            del made.graph.initializer[:]
            made.graph.initializer.add(name="weight", data_type=TensorProto.FLOAT, dims=[4]).raw_data = bytes(16)
        save_model(made, folder / "model.onnx")

    return write


LOCATIONS = {
    "parent": "../../places_other/1/weights.bin",
    "absolute": "ABSOLUTE",
    "link": "link.bin",
    "folder": "link/weights.bin",
}


@pytest.mark.parametrize("attribute", [False, True])
@pytest.mark.parametrize("version", ["1.20.0", "1.23.2", "1.30.0"])
@pytest.mark.parametrize("kind", LOCATIONS)
def test_weights_outside_are_a_load_error(
    start_service: Callable[..., Service], kind: str, version: str, *, attribute: bool
) -> None:
    alone = _of_version(start_service, version)
    target = alone.repository.add("places_other", {"1": bundled(WEIGHTS)}, NOTHING)
    location = LOCATIONS[kind].replace("ABSOLUTE", str(target / "1/weights.bin"))
    folder = alone.repository.add("outside_data", {"1": outside_data(location, attribute=attribute)}, NOTHING)
    (folder / "1/link.bin").symlink_to("../../places_other/1/weights.bin")
    (folder / "1/link").symlink_to("../../places_other/1")
    refusal = alone.refusal("outside_data")
    assert f"the model's external data is '{location}', which is {OUTSIDE}" in refusal


_SERVICES: dict[str, Service] = {}


def _of_version(start_service: Callable[..., Service], version: str) -> Service:
    if version not in _SERVICES:
        _SERVICES[version] = start_service(version=version)
    return _SERVICES[version]


LABELS = '{{ name: "y" data_type: TYPE_FP32 dims: [4] label_filename: "{}" }}'


@pytest.mark.parametrize("name", ["../places_other/labels.txt", "link.txt", "absolute"])
def test_labels_outside_are_a_load_error(service: Service, other: Path, name: str) -> None:
    named = str(other / "labels.txt") if name == "absolute" else name
    text = config(ROWS[0], [], batch=8, extra="output " + LABELS.format(named))
    folder = service.repository.add("outside_labels", {"1/model.onnx": DOUBLING}, text)
    (folder / "link.txt").symlink_to("../places_other/labels.txt")
    assert f"label_filename is '{named}', which is {OUTSIDE}" in service.refusal("outside_labels")


def test_labels_of_the_model_are_in_its_answers(service: Service) -> None:
    text = config(ROWS[0], [], batch=8, extra="output " + LABELS.format("labels.txt"))
    serve(service, "labels", {"1/model.onnx": DOUBLING, "labels.txt": b"one\ntwo\nthree\nfour\n"}, text)
    client = service.client()
    wanted = [client.module.InferRequestedOutput("y", class_count=1, binary_data=False)]
    x = np.array([[1, 5, 2, 3]], np.float32)
    answer = client.raw.infer("labels", [client.tensor("x", x)], outputs=wanted).as_numpy("y")
    assert answer.ravel().tolist() in ([b"10.000000:1:two"], ["10.000000:1:two"])


@pytest.mark.usefixtures("other")
def test_an_initial_state_from_outside_is_a_load_error(service: Service) -> None:
    file = model(
        "float[n,4] x, float[n,4] h, bool[n,1] start", "float[n,4] y, float[n,4] h2", "y = Add(x, h) h2 = Identity(y)"
    )
    initial = 'initial_state { name: "start" data_type: TYPE_FP32 dims: [4] data_file: "../../places_other/x" }'
    parts = [control("start", "START", "BOOL"), state(("h", "h2"), "FP32", [4], initial)]
    text = config(*ROWS, batch=8, extra=sequence_batching("direct { }", *parts))
    service.repository.add("outside_state", {"1/model.onnx": file, "initial_state/readme": b""}, text)
    assert f"data_file is '../../places_other/x', which is {OUTSIDE}" in service.refusal("outside_state")


@pytest.mark.usefixtures("other")
def test_warmup_data_from_outside_is_a_load_error(service: Service) -> None:
    entry = 'value { data_type: TYPE_FP32 dims: [4] input_data_file: "../../places_other/x" }'
    warmup = f'model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "x" {entry} }} }}'
    files: dict[str, File] = {"1/model.onnx": DOUBLING, "warmup/readme": b""}
    service.repository.add("outside_warmup", files, config(*ROWS, batch=8, extra=warmup))
    assert f"input_data_file is '../../places_other/x', which is {OUTSIDE}" in service.refusal("outside_warmup")


def loaded(service: Service, name: str, options: Mapping[str, str]) -> Path:
    """Serve a doubling model with parameters, and return its folder."""
    text = f"{NOTHING}instance_group {{ kind: KIND_CPU count: 1 }}\n{parameters(options)}"
    folder = service.repository.add(name, {"1/model.onnx": DOUBLING, "profiles/readme": b""}, text)
    service.load(name)
    assert times(service.client(), name, 2.0)
    return folder


def test_a_client_that_brings_a_model_is_bound_to_its_folder(client: Client, other: Path) -> None:
    files = {"file:1/model.onnx": DOUBLING, "file:labels.txt": b"one\ntwo\n"}
    name = f"brought_{client.protocol}"
    given = {"backend": "onnxruntime", "parameters": {"profile_file_prefix": {"string_value": "p"}}}
    client.raw.load_model(name, config=json.dumps(given), files=files)
    assert times(client, name, 2.0)
    client.unload(name)
    for prefix in ("../../p", str(other / "p")):
        given = {"backend": "onnxruntime", "parameters": {"profile_file_prefix": {"string_value": prefix}}}
        with pytest.raises(InferenceServerException, match=OUTSIDE):
            client.raw.load_model(f"{name}_bad", config=json.dumps(given), files=files)


@pytest.mark.parametrize("key", ["profile_file_prefix", "session.collect_node_memory_stats_to_file"])
@pytest.mark.parametrize("path", ["../../places_other/p", "absolute", "link"])
def test_a_model_writes_no_file_outside(service: Service, other: Path, tmp_path: Path, key: str, path: str) -> None:
    named = str(tmp_path / "p") if path == "absolute" else "link/p" if path == "link" else path
    text = config(*ROWS, batch=8, extra=parameters({key: named}))
    folder = service.repository.add("outside_written", {"1/model.onnx": DOUBLING}, text)
    (folder / "1/link").symlink_to(other)
    assert f"parameter {key} of model outside_written is '{named}', which is {OUTSIDE}" in (
        service.refusal("outside_written")
    )
    assert list(tmp_path.iterdir()) == []
    assert [each.name for each in other.glob("p*")] == []


def test_a_model_writes_files_in_its_folder(service: Service) -> None:
    options = {"profile_file_prefix": "../profiles/p", "session.collect_node_memory_stats_to_file": "memory.csv"}
    folder = loaded(service, "written", options)
    assert (folder / "1/memory.csv").stat().st_size > 0
    removed(service, "written")
    (path,) = folder.glob("profiles/p_written_*.json")
    assert json.loads(path.read_text(encoding="utf-8"))


def test_another_session_entry_with_a_path_is_a_load_error(service: Service) -> None:
    options = {"session.resource_cuda_partitioning_settings": "100,../../places_other/x"}
    text = config(*ROWS, batch=8, extra=parameters(options))
    service.repository.add("outside_entry", {"1/model.onnx": DOUBLING}, text)
    assert "a value with a slash has to come from the server's command line" in service.refusal("outside_entry")


def test_an_options_path_of_a_provider_is_checked(service: Service, tmp_path: Path) -> None:
    for key, named in (
        ("ModelCacheDirectory", str(tmp_path)),
        ("ModelCacheDirectory", "../.."),
        ("any", "../../x"),
    ):
        option = f'parameters {{ key: "{key}" value: "{named}" }}'
        provider = f'cpu_execution_accelerator: [ {{ name: "azure" {option} }} ]'
        extra = f"optimization {{ execution_accelerators {{ {provider} }} }}"
        service.repository.add("outside_cache", {"1/model.onnx": DOUBLING}, config(*ROWS, batch=8, extra=extra))
        words = f"option {key} of execution provider azure is '{named}', which is {OUTSIDE}"
        assert words in service.refusal("outside_cache")


def test_absolute_paths_are_allowed_in_the_servers_folders(
    start_service: Callable[..., Service], tmp_path: Path
) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (allowed / "link").symlink_to(elsewhere)
    alone = start_service(f"--backend-config=onnxruntime,allowed-folders=/nowhere:{allowed}")
    loaded(alone, "allowed", {"profile_file_prefix": str(allowed / "p")})
    removed(alone, "allowed")
    assert [re.sub(r"\d.*", "TIME", path.name) for path in allowed.glob("p_*")] == ["p_allowed_TIME"]
    for path in (elsewhere / "p", allowed / "link/p", allowed / "../p"):
        text = f"{NOTHING}{parameters({'profile_file_prefix': str(path)})}"
        alone.repository.add("beyond", {"1/model.onnx": DOUBLING}, text)
        assert f"{OUTSIDE} and the folders of the backend's setting allowed-folders" in alone.refusal("beyond")


def test_the_servers_own_paths_may_be_anywhere(start_service: Callable[..., Service], tmp_path: Path) -> None:
    alone = start_service(f"--backend-config=onnxruntime,profile_file_prefix={tmp_path}/all")
    loaded(alone, "any", {})
    removed(alone, "any")
    assert len(list(tmp_path.glob("all_any_*.json"))) == 1
