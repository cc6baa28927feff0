"""Test one binary with every supported ONNX Runtime, and the message without one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from backend_testing.repository import Port, parameters
from backend_testing.server import Service, running
from backend_testing.wire import TYPES, Client, InferenceServerException, Value, same, texts
from conftest import LEAKS, assemble
from libraries import LINUX_VERSIONS, TOO_OLD, linux_library
from models import elementwise, identity, joined, kept, lookup, network, numbers, passed_through, shouted
from option_models import DOUBLING, NOTHING, RANKLESS, SPREADING, X, config, heavy, model, removed

PLANE = (-1, -1)


@pytest.fixture(scope="module", params=LINUX_VERSIONS)
def each(request: pytest.FixtureRequest, start_service: Callable[..., Service]) -> Service:
    """Provide a server with one of the released libraries."""
    service = start_service(version=request.param)
    put(service, "first", DOUBLING)
    assert re.search(rf"^I.*ONNX Runtime {re.escape(request.param)} from /", service.log(), re.MULTILINE)
    return service


def put(service: Service, name: str, file: bytes, text: str = NOTHING) -> Client:
    """Write and load a model once, and return a connection."""
    if name not in service.loaded:
        service.repository.add(name, {"1/model.onnx": file}, text)
        service.load(name)
    return service.client()


def plane(file: bytes, datatype: str) -> tuple[bytes, str]:
    """Return a model of one input and one output of two open dimensions, with its configuration."""
    return file, config([Port("x", datatype, PLANE)], [Port("y", datatype, PLANE)])


def test_every_type_is_passed_bit_for_bit(each: Service) -> None:
    for datatype in TYPES:
        client = put(each, f"identity_{datatype}", *plane(identity(datatype), datatype))
        for shape in ((3, 5), (1, 1), (0, 4), (64, 33)):
            x = numbers(datatype, *shape)
            assert same(client.infer(f"identity_{datatype}", {"x": x})["y"], x), (datatype, shape)


@pytest.mark.parametrize("datatype", ["UINT8", "INT64", "FP16", "FP32", "FP64"])
def test_computations_are_right(each: Service, datatype: str) -> None:
    client = put(each, f"computed_{datatype}", *plane(elementwise(datatype), datatype))
    x = numbers(datatype, 7, 3)
    expected = ~x if "INT" in datatype else x + x
    assert same(client.infer(f"computed_{datatype}", {"x": x})["y"], expected)


def test_texts_of_any_bytes_are_accepted_and_returned(each: Service) -> None:
    ports = [Port("words", "BYTES", PLANE)], [Port("loud", "BYTES", PLANE)]
    client = put(each, "shouted", shouted(), config(*ports))
    words = [b"", b"a", "größer".encode(), b"nul\0inside", b"\0", b"x" * 70_000]
    answer = client.infer("shouted", {"words": texts(words, 2, 3)})
    assert same(answer["loud"], texts([word + b"!" for word in words], 2, 3))


def test_shapes_may_change_from_request_to_request(each: Service) -> None:
    client = put(each, "joined", *plane(joined("FP32"), "FP32"))
    for shape in ((1, 1), (5, 3), (0, 3), (300, 40), (2, 2)):
        x = numbers("FP32", *shape)
        assert same(client.infer("joined", {"x": x})["y"], np.concatenate([x, x]))


def test_outputs_are_computed_into_the_response(each: Service) -> None:
    ports = [Port("x", "FP32", PLANE)], [Port("x", "FP32", PLANE), Port("y", "FP32", PLANE)]
    client = put(each, "passed", passed_through(), config(*ports))
    large = put(each, "large", heavy(1 << 18))
    for seed in range(3):
        x = numbers("FP32", 40, 50, seed=seed)
        answer = client.infer("passed", {"x": x})
        assert same(answer["x"], x)
        assert same(answer["y"], -x)
        one = np.array([seed], np.float32)
        assert same(large.infer("large", {"x": one})["y"], np.arange(1 << 18, dtype=np.float32) + seed)


LYING: dict[str, tuple[bytes, Callable[[Value], Value]]] = {
    "rows": (joined("FP32", rows="N", dims=["N"]), lambda x: np.concatenate([x, x])),
    "fixed": (kept(rows=4), lambda x: x[x > 0]),
    "fewer": (kept(), lambda x: x[x > 0]),
}


@pytest.mark.parametrize("kind", LYING)
def test_a_model_with_a_wrong_shape_is_answered_correctly(each: Service, kind: str) -> None:
    file, right = LYING[kind]
    client = put(each, f"lying_{kind}", file, config([Port("x", "FP32", [-1])], [Port("y", "FP32", [-1])]))
    for row in ([1, -2, 3], [1, 2, 3, 4], [-1, -1], [5]):
        x = np.array(row, np.float32)
        assert same(client.infer(f"lying_{kind}", {"x": x})["y"], right(x)), row


def test_a_shape_that_becomes_wrong_costs_one_request(each: Service) -> None:
    one = "\ninstance_group { kind: KIND_CPU count: 1 }"
    client = put(each, "liar", kept(), config([Port("x", "FP32", [-1])], [Port("y", "FP32", [-1])], extra=one))
    for truth in ([1], [1, 2, 3], [4, 5] * 1000):
        x = np.array(truth, np.float32)
        assert same(client.infer("liar", {"x": x})["y"], x)
    lie = np.array([1, -2, 3] * 1000, np.float32)
    with pytest.raises(
        InferenceServerException, match=r"'y' of model liar: the model declares .*send the request again"
    ):
        client.infer("liar", {"x": lie})
    for _ in range(2):
        assert same(client.infer("liar", {"x": lie})["y"], lie[lie > 0])


def test_errors_of_a_run_reach_the_client_and_do_no_harm(each: Service) -> None:
    client = put(each, "lookup", lookup(), config([Port("x", "INT64", PLANE)], [Port("y", "FP32", PLANE)]))
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="indices element out of data bounds"):
            client.infer("lookup", {"x": np.array([[100]])})
        assert same(client.infer("lookup", {"x": np.array([[9]])})["y"], np.array([[81]], np.float32))


def test_configurations_are_completed_and_requests_batched(each: Service) -> None:
    client = put(each, "network", network())
    found = client.config("network")
    assert int(found["max_batch_size"]) == 4
    assert "dynamic_batching" in found
    answer = client.infer("network", {"x": np.ones((3, 8), np.float32)})["y"]
    assert answer.shape == (3, 4)
    assert np.allclose(answer.sum(axis=1), 1)


def test_scalars_are_recognized(each: Service) -> None:
    client = put(each, "scalar", model("float x", "float y", "y = Neg(x)"))
    assert client.config("scalar")["input"][0]["dims"] in ([1], ["1"])
    assert same(client.infer("scalar", {"x": np.array([2.5], np.float32)})["y"], np.array([-2.5], np.float32))


def test_a_tensor_of_any_rank_has_the_configured_shape(each: Service) -> None:
    client = put(each, "rankless", *plane(RANKLESS, "FP32"))
    for shape in ((2, 3), (1, 1), (0, 2)):
        x = numbers("FP32", *shape)
        assert same(client.infer("rankless", {"x": x})["y"], -x)


def test_maps_are_two_outputs(each: Service) -> None:
    zipped = "y = ai.onnx.ml.ZipMap<classlabels_int64s = [7, 5, 6]>(x)"
    client = put(each, "maps", model("float[n,3] x", "seq(map(int64,float)) y", zipped))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    answer = client.infer("maps", {"x": x})
    assert same(answer["y_keys"], np.array([[5, 6, 7]] * 2))
    assert same(answer["y_values"], x[:, [1, 2, 0]])


def test_options_are_applied(each: Service) -> None:
    values = {
        "intra_op_thread_count": "2",
        "inter_op_thread_count": "2",
        "execution_mode": "1",
        "enable_mem_pattern": "false",
        "memory.enable_memory_arena_shrinkage": "cpu:0",
        "session.intra_op.allow_spinning": "0",
        "profile_file_prefix": "p",
    }
    extra = "\noptimization { graph { level: 1 } } instance_group { kind: KIND_CPU count: 2 }\n"
    client = put(each, "options", SPREADING, NOTHING + extra + parameters(values))
    answer = client.infer("options", {"x": np.ones(1, np.float32), "count": np.array([1000])})
    assert same(answer["y"], np.array([-1000], np.float32))
    removed(each, "options")
    assert len(list(each.repository.folder.glob("options/1/p_*.json"))) == 2


def test_a_bad_session_entry_is_refused_with_the_librarys_message(each: Service) -> None:
    text = NOTHING + parameters({"session.load_model_format": "ORT"})
    each.repository.add("bad_entry", {"1/model.onnx": DOUBLING}, text)
    assert "ORT model verification failed" in each.refusal("bad_entry")


def test_providers_are_listed_and_their_nodes_counted(each: Service) -> None:
    entry = 'optimization { execution_accelerators { cpu_execution_accelerator: [ { name: "%s" } ] } }'
    put(each, "azure", DOUBLING, NOTHING + entry % "azure")
    first, *_ = re.findall(r"model azure: nodes on ([^\n\"]*)", each.log())
    assert sorted(first.split(", ")) == ["AzureExecutionProvider: 0", "CPUExecutionProvider: 1"]
    each.repository.add("coreml", {"1/model.onnx": DOUBLING}, NOTHING + entry % "coreml")
    assert "has no execution provider 'coreml'; available: azure, cpu" in each.refusal("coreml")


def test_a_library_that_is_too_old_is_refused_with_its_place(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = assemble(tmp_path_factory.mktemp("backends"), linux_library(TOO_OLD))
    with running(tmp_path, backends=folder, suppressions=LEAKS) as service:
        service.repository.add("m", {"1/model.onnx": DOUBLING}, NOTHING)
        refusal = service.refusal("m")
        place = f"{folder}/onnxruntime/libonnxruntime.so.{TOO_OLD}"
        words = f"{place}: ONNX Runtime {TOO_OLD} does not have version 20 of the API"
        assert words in refusal
        assert any(line.startswith("E") and words in line for line in service.log().splitlines())


def test_without_a_library_the_error_names_the_folders(tmp_path: Path, backends: Callable[..., Path]) -> None:
    folder = tmp_path / "backends/onnxruntime"
    folder.mkdir(parents=True)
    name = "libtriton_onnxruntime.so"
    (folder / name).write_bytes((backends() / "onnxruntime" / name).read_bytes())
    with running(tmp_path, backends=folder.parent, suppressions=LEAKS) as service:
        service.repository.add("m", {"1/model.onnx": DOUBLING}, NOTHING)
        refusal = service.refusal("m")
        assert "libonnxruntime" in refusal
        assert str(folder) in refusal


def test_the_newest_of_several_libraries_is_used(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    old, new = sorted(LINUX_VERSIONS, key=lambda text: [int(part) for part in text.split(".")])[
        :: len(LINUX_VERSIONS) - 1
    ]
    folder = assemble(tmp_path_factory.mktemp("backends"), linux_library(old))
    library = linux_library(new)
    (folder / "onnxruntime" / library.name).symlink_to(library)
    (folder / "onnxruntime" / "libonnxruntime.so.99.0.0").write_bytes(b"no library")
    with running(tmp_path, backends=folder, suppressions=LEAKS) as service:
        put(service, "m", DOUBLING)
        assert f"ONNX Runtime {new} from " in service.log()
        assert same(service.client().infer("m", {"x": X})["y"], X + X)
