"""Test health, metadata, the repository's index, configurations and statistics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from backend_testing.service import Service, tree
from backend_testing.wire import Client, InferenceServerException
from models import BATCH

ONE = {"INPUT0": np.ones((1, 2), np.float32)}


def test_the_server_is_live_and_ready(client: Client) -> None:
    assert client.raw.is_server_live()
    assert client.raw.is_server_ready()


def test_the_server_reports_its_name_version_and_extensions(client: Client) -> None:
    found = client.raw.get_server_metadata()
    assert found["name"] == "triton"
    assert re.match(r"\d+\.\d+\.\d+", found["version"])
    file = tree() / "TRITON_VERSION"
    assert not file.exists() or found["version"] == file.read_text("utf-8").strip()
    assert {"model_repository", "model_configuration", "system_shared_memory", "binary_tensor_data", "statistics"} <= {
        *found["extensions"]
    }


def test_the_index_has_every_model_of_the_repository(client: Client, repository: Path) -> None:
    found = client.raw.get_model_repository_index()
    assert sorted(each["name"] for each in found) == sorted(path.name for path in repository.iterdir())
    assert {(each["version"], each["state"]) for each in found} == {("1", "READY")}


def test_metadata_has_inputs_and_outputs_with_types_and_shapes(client: Client) -> None:
    found = client.raw.get_model_metadata("pair")
    assert (found["name"], found["versions"]) == ("pair", ["1"])
    types = ["FP32", "INT32"]
    for kind in ("input", "output"):
        wanted = [
            {"name": f"{kind.upper()}{index}", "datatype": each, "shape": [-1, -1]} for index, each in enumerate(types)
        ]
        assert found[f"{kind}s"] == wanted
    assert client.raw.get_model_metadata("plane")["inputs"][0]["shape"] == [-1, 3], "no batch, no first dimension"


def test_the_configuration_is_that_of_the_file(client: Client) -> None:
    found = client.config("pair")
    assert (found["name"], found["backend"], found["max_batch_size"]) == ("pair", "identity", BATCH)
    assert [(each["name"], each["data_type"]) for each in found["input"]] == [
        ("INPUT0", "TYPE_FP32"),
        ("INPUT1", "TYPE_INT32"),
    ]
    assert [int(dim) for dim in found["output"][0]["dims"]] == [-1]
    assert client.config("slow")["parameters"]["execute_delay_ms"]["string_value"] == "1500"


def test_models_and_versions_are_ready_by_name(client: Client) -> None:
    assert client.ready("identity")
    assert client.ready("identity", "1")
    assert not client.ready("identity", "2")
    assert not client.ready("nowhere")
    assert client.raw.get_model_metadata("identity", "1")["name"] == "identity"
    assert list(client.infer("identity", ONE, version="1")) == ["OUTPUT0"]


@pytest.mark.parametrize("what", ["metadata", "config", "infer"])
@pytest.mark.parametrize(("model", "version"), [("nowhere", ""), ("identity", "2")])
def test_missing_models_and_versions_are_named(client: Client, what: str, model: str, version: str) -> None:
    def call() -> None:
        if what == "infer":
            client.infer(model, ONE, version=version)
        else:
            getattr(client.raw, f"get_model_{what}")(model, version)

    with pytest.raises(InferenceServerException, match=model) as caught:
        call()
    assert re.fullmatch("4..", str(caught.value.status()))


def test_errors_are_json_with_a_message(service: Service) -> None:
    found = service.ask("GET", "/v2/models/nowhere")
    assert found.refused
    assert "nowhere" in json.loads(found.body)["error"]


def test_statistics_count_rows_and_executions(client: Client) -> None:
    before = client.statistics("identity")
    client.infer("identity", {"INPUT0": np.ones((3, 2), np.float32)})
    rows = int(before.get("inference_count", 0)) + 3
    executions = int(before.get("execution_count", 0)) + 1
    assert client.counts("identity", rows)[:2] == (rows, executions)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2/nowhere"),
        ("GET", "/"),
        ("GET", "/v2/models/identity/versions/one"),
        ("GET", "/v2/models/identity/infer"),
        ("DELETE", "/v2/models/identity"),
        ("POST", "/v2/models//infer"),
        ("GET", "/v2/" + "x" * 4000),
    ],
)
def test_other_paths_and_methods_are_refused(service: Service, client: Client, method: str, path: str) -> None:
    assert service.ask(method, path).refused
    assert client.raw.is_server_live()
