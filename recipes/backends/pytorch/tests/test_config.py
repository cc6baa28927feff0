"""Test configuration: files and versions, devices, parameters good and bad, auto-completion, load and unload."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from backend_testing.repository import File, Port, parameters
from backend_testing.server import Service
from conftest import begin
from modules import config, file, fresh, saved, scripted
from torch.utils.bundled_inputs import bundle_inputs
from wire import Client, InferenceServerException, ask, same

from macbuild.errors import ToolError

X = torch.linspace(-3, 3, 8).reshape(2, 4)
PORTS = ([Port("x", "FP32", [4])], [Port("y", "FP32", [4])])


def serve(service: Service, name: str, weight: float = 2.0, extra: str = "", **files: File) -> None:
    """Write and load a model that multiplies by a weight."""
    paths = files or {"1/model.pt": file("Weighted", weight)}
    service.repository.add(name, paths, config(*PORTS, batch=8, extra=extra))
    service.load(name)


def doubled(client: Client, name: str, version: str = "", weight: float = 2.0) -> bool:
    """Return whether the model answers with its weight."""
    return same(ask(client, name, {"x": X}, version=version)["y"], X * weight)


def test_each_version_of_a_model_answers_with_its_weights(service: Service, client: Client) -> None:
    name = f"versions_{client.protocol}"
    files = {f"{version}/model.pt": file("Weighted", float(version)) for version in (1, 2, 7)}
    text = config(*PORTS, batch=8, extra="version_policy { specific { versions: [1, 7] } }")
    service.repository.add(name, files, text)
    service.load(name)
    assert doubled(client, name, "1", 1.0)
    assert doubled(client, name, "7", 7.0)
    assert doubled(client, name, "", 7.0)
    with pytest.raises(InferenceServerException, match="version"):
        ask(client, name, {"x": X}, version="2")


def test_the_default_model_filename_is_used(service: Service, client: Client) -> None:
    name = f"filename_{client.protocol}"
    files: dict[str, File] = {"1/weights.pt": file("Weighted", 5.0), "1/model.pt": b"not this one"}
    text = config(*PORTS, batch=8, extra='default_model_filename: "weights.pt"')
    service.repository.add(name, files, text)
    service.load(name)
    assert doubled(client, name, weight=5.0)


def test_a_file_without_the_usual_suffix_is_recognized(service: Service) -> None:
    text = config(*PORTS, batch=8, extra='default_model_filename: "network.bin"')
    service.repository.add("suffix", {"1/network.bin": file("Weighted", 5.0)}, text)
    service.load("suffix")
    assert doubled(service.client(), "suffix", weight=5.0)


BROKEN: dict[str, tuple[dict[str, bytes], str]] = {
    "missing": ({}, "model.pt"),
    "empty": ({"1/model.pt": b""}, "model.pt"),
    "text": ({"1/model.pt": b"this is not a model\n" * 100}, "model.pt"),
    "empty archive": ({"1/model.pt": b"PK\x05\x06" + bytes(18)}, "model.pt"),
    "package": ({"1/model.pt2": b"this is no package\n" * 100}, "model.pt2"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_model_file_is_a_load_error_that_names_it(service: Service, kind: str) -> None:
    files, words = BROKEN[kind]
    name = f"broken_{kind.replace(' ', '_')}"
    service.repository.add(name, files, config(*PORTS, batch=8))
    refusal = service.refusal(name)
    assert words in refusal
    assert "frame #" not in refusal
    assert service.server.running


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_model_file_is_a_load_error(service: Service, share: float) -> None:
    name = f"truncated_{int(share * 1000)}"
    folder = service.repository.add(name, {"1/model.pt": file("Mlp", 64)}, config(*PORTS, batch=8))
    path = folder / "1/model.pt"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert "model.pt" in service.refusal(name)


def test_a_pickled_module_is_refused_with_what_to_do(service: Service) -> None:
    folder = service.repository.add("pickled", {}, config(*PORTS, batch=8))
    torch.save(fresh("Weighted", 2.0), folder / "1/model.pt")
    refusal = service.refusal("pickled")
    for words in ("torch.save", "torch.jit.script", "aoti_compile_and_package"):
        assert words in refusal


GROUPS = {
    "cpu": "instance_group { kind: KIND_CPU }",
    "model": "instance_group { kind: KIND_MODEL }",
    "two groups": "instance_group [{ kind: KIND_CPU count: 2 }, { kind: KIND_MODEL }]",
    "automatic": "instance_group { count: 2 }",
}


@pytest.mark.parametrize("kind", GROUPS)
def test_instance_kinds_are_served(service: Service, kind: str) -> None:
    name = f"kind_{kind.replace(' ', '_')}"
    serve(service, name, extra=GROUPS[kind])
    assert doubled(service.client(), name)


@pytest.mark.parametrize("kind", ["KIND_CPU", "KIND_MODEL"])
@pytest.mark.parametrize("device", ["cpu", "CPU", "auto", "Auto"])
def test_the_cpu_is_chosen_by_cpu_and_by_auto(service: Service, kind: str, device: str) -> None:
    name = f"device_{device}_{kind}"
    serve(service, name, extra=f"instance_group {{ kind: {kind} }}" + parameters({"DEVICE": device}))
    assert doubled(service.client(), name)


def test_mps_is_served_if_present_else_a_load_error(service: Service) -> None:
    extra = "instance_group { kind: KIND_MODEL }" + parameters({"DEVICE": "mps"})
    text = config(*PORTS, batch=8, extra=extra)
    service.repository.add("device_mps", {"1/model.pt": file("Weighted", 2.0)}, text)
    if torch.backends.mps.is_available():
        service.load("device_mps")
        assert doubled(service.client(), "device_mps")
    else:
        assert re.search(r"DEVICE.*mps", service.refusal("device_mps"))


GOOD = [
    ("INTRA_OP_THREAD_COUNT", "2"),
    ("NUM_THREADS", "2"),
    ("INFERENCE_MODE", "true"),
    ("INFERENCE_MODE", "false"),
    ("DISABLE_OPTIMIZED_EXECUTION", "true"),
    ("DISABLE_OPTIMIZED_EXECUTION", "false"),
    ("ENABLE_TENSOR_EXPR_FUSION", "true"),
    ("ENABLE_TENSOR_EXPR_FUSION", "false"),
    ("ENABLE_JIT_PROFILING", "true"),
    ("ENABLE_JIT_PROFILING", "false"),
    ("ENABLE_TENSOR_FUSER", "true"),
    ("ENABLE_TENSOR_FUSER", "false"),
    ("ENABLE_JIT_EXECUTOR", "false"),
    ("ENABLE_JIT_EXECUTOR", "true"),
    ("ENABLE_CACHE_CLEANING", "true"),
    ("ENABLE_CACHE_CLEANING", "false"),
    ("DISABLE_CUDNN", "true"),
    ("DISABLE_CUDNN", "false"),
    ("ENABLE_NVFUSER", "false"),
]


@pytest.mark.parametrize(("key", "text"), GOOD)
def test_good_parameters_are_applied(service: Service, key: str, text: str) -> None:
    name = f"good_{key}_{text}"
    serve(service, name, extra=parameters({key: text}))
    for _ in range(4):  # the profiling executor changes the code it runs after the first calls
        assert doubled(service.client(), name)


BAD = [
    *[
        (key, text)
        for key in ("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT", "NUM_THREADS", "NUM_INTEROP_THREADS")
        for text in ("abc", "-1", "1.5", "", "99999999999")
    ],
    *[
        (key, text)
        for key in (
            "INFERENCE_MODE",
            "DISABLE_OPTIMIZED_EXECUTION",
            "ENABLE_TENSOR_EXPR_FUSION",
            "ENABLE_JIT_PROFILING",
            "ENABLE_JIT_EXECUTOR",
            "ENABLE_TENSOR_FUSER",
            "ENABLE_CACHE_CLEANING",
            "ENABLE_WEIGHT_SHARING",
            "DISABLE_CUDNN",
            "STRICT_PARAMETERS",
        )
        for text in ("maybe", "2", "")
    ],
    *[("DEVICE", text) for text in ("quantum", "cuda", "mps:7", "")],
]


@pytest.mark.parametrize(("key", "text"), BAD)
def test_a_bad_parameter_value_is_a_load_error_that_names_both(service: Service, key: str, text: str) -> None:
    name = f"bad_{BAD.index((key, text))}"
    model = config(*PORTS, batch=8, extra=parameters({key: text}))
    service.repository.add(name, {"1/model.pt": file("Weighted", 2.0)}, model)
    assert f"parameter {key} of model {name}: '{text}'" in service.refusal(name)


@pytest.mark.parametrize(
    ("key", "text"), [("intra_op_thread_count", "many"), ("device", "quantum"), ("inference_mode", "2")]
)
def test_a_bad_backend_setting_is_a_load_error(start_service: Callable[..., Service], key: str, text: str) -> None:
    other = start_service(f"--backend-config=pytorch,{key}={text}")
    other.repository.add("m", {"1/model.pt": file("Weighted", 2.0)}, config(*PORTS, batch=8))
    refusal = other.refusal("m")
    assert f"setting {key} of backend pytorch: '{text}'" in refusal


def test_parameters_override_backend_settings(start_service: Callable[..., Service]) -> None:
    names = ["intra_op_thread_count=1", "inter_op_thread_count=1", "device=quantum", "inference_mode=false"]
    names += ["disable_optimized_execution=true", "enable_tensor_expr_fusion=false", "enable_jit_profiling=false"]
    other = start_service(*[f"--backend-config=pytorch,{name}" for name in names])
    serve(other, "m", extra=parameters({"DEVICE": "cpu"}))
    assert doubled(other.client(), "m")


def test_a_changed_model_is_served_after_it_is_loaded_again(service: Service, client: Client) -> None:
    name = f"reload_{client.protocol}"
    serve(service, name, weight=2.0)
    assert doubled(client, name, weight=2.0)
    service.repository.add(name, {"1/model.pt": file("Weighted", 3.0)}, config(*PORTS, batch=8, extra="# changed"))
    client.load(name)
    assert doubled(client, name, weight=3.0)
    service.unload(name)
    with pytest.raises(InferenceServerException):
        ask(client, name, {"x": X})
    client.load(name)
    assert doubled(client, name, weight=3.0)


def test_a_model_that_no_longer_loads_keeps_its_old_version(tmp_path: Path) -> None:
    survived = False
    # After a failed reload, with any backend, this server waits in vain for the model when it stops, and exits with 1.
    with suppress(ToolError), begin(tmp_path, "--exit-timeout-secs=1") as alone:
        serve(alone, "survivor")
        alone.repository.add("survivor", {"1/model.pt": b"broken"}, config(*PORTS, batch=8, extra="# changed"))
        assert "model.pt" in alone.refusal("survivor")
        assert doubled(alone.client(), "survivor")
        survived = alone.server.running
    assert survived


def test_loading_and_unloading_many_times_frees_the_memory(start_service: Callable[..., Service]) -> None:
    other = start_service()
    extent = 4 << 20
    text = config([Port("x", "FP32", [1])], [Port("y", "FP32", [-1])])
    other.repository.add("cycle", {"1/model.pt": file("Weighted", 2.0, extent)}, text)
    client = other.client()
    sizes = []
    for _ in range(12):
        other.load("cycle")
        assert same(ask(client, "cycle", {"x": torch.ones(1)})["y"], torch.full([extent], 2.0))
        other.unload("cycle")
        sizes.append(other.server.resident())
    # Each model has 16 MiB of weights; memory that is not freed adds up to 96 MiB over the last six rounds.
    assert max(sizes[6:]) - max(sizes[:6]) < 32 << 20, [size >> 20 for size in sizes]


def ports(entries: list[dict[str, Any]]) -> list[tuple[str, str, list[int]]]:
    """Return name, type and dimensions of the inputs or outputs of a completed configuration."""
    return [(each["name"], each["data_type"], [int(size) for size in each["dims"]]) for each in entries]


def test_a_stored_configuration_completes_an_empty_one(service: Service, client: Client) -> None:
    name = f"stored_{client.protocol}"
    stored = {
        "max_batch_size": 4,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}],
    }
    folder = service.repository.add(name, {}, 'backend: "pytorch"\n')
    module = scripted("Weighted", 2.0)
    torch.jit.save(module, folder / "1/model.pt", _extra_files={"triton_config": json.dumps(stored)})
    service.load(name)
    found = client.config(name)
    assert ports(found["input"]) == [("x", "TYPE_FP32", [4])]
    assert ports(found["output"]) == [("y", "TYPE_FP32", [4])]
    assert found["max_batch_size"] == 4
    assert doubled(client, name)


def test_without_types_auto_completion_says_what_is_missing(service: Service) -> None:
    service.repository.add("incomplete", {"1/model.pt": file("Subtract")}, 'backend: "pytorch"\n')
    refusal = service.refusal("incomplete")
    assert "left" in refusal
    assert "config.pbtxt" in refusal


def test_example_inputs_in_the_model_complete_the_configuration(service: Service, client: Client) -> None:
    name = f"examples_{client.protocol}"
    module = scripted("Mlp")
    examples = [(torch.ones(rows, 8),) for rows in (1, 3)]
    module = bundle_inputs(module, inputs=examples)
    service.repository.add(name, {"1/model.pt": saved(module)}, 'backend: "pytorch"\n')
    service.load(name)
    found = client.config(name)
    assert ports(found["input"]) == [("x", "TYPE_FP32", [8])]
    assert ports(found["output"]) == [("OUTPUT__0", "TYPE_FP32", [4])]
    assert found["max_batch_size"] > 1
    x = torch.linspace(0, 1, 16).reshape(2, 8)
    with torch.inference_mode():
        assert same(ask(client, name, {"x": x})["OUTPUT__0"], scripted("Mlp")(x))


def test_example_inputs_tell_which_sizes_vary(service: Service) -> None:
    module = scripted("Subtract")
    examples = [(torch.ones(2, size), torch.ones(2, size)) for size in (3, 5)]
    module = bundle_inputs(module, inputs=examples)
    service.repository.add("varying", {"1/model.pt": saved(module)}, 'backend: "pytorch"\n')
    service.load("varying")
    found = service.client().config("varying")
    assert ports(found["input"]) == [("left", "TYPE_FP32", [2, -1]), ("right", "TYPE_FP32", [2, -1])]
    assert ports(found["output"]) == [("OUTPUT__0", "TYPE_FP32", [2, -1])]


def test_a_signature_of_texts_completes_the_configuration(service: Service, client: Client) -> None:
    name = f"echo_{client.protocol}"
    service.repository.add(name, {"1/model.pt": file("Echo")}, 'backend: "pytorch"\n')
    service.load(name)
    found = client.config(name)
    assert ports(found["input"]) == [("words", "TYPE_STRING", [-1]), ("number", "TYPE_INT64", [1])]
    assert ports(found["output"]) == [("OUTPUT__0", "TYPE_STRING", [-1])]
    assert ask(client, name, {"words": ["a", "b"], "number": torch.tensor([3])}) == {"OUTPUT__0": ["a3", "b3"]}


def test_a_broken_stored_configuration_is_a_load_error(service: Service) -> None:
    folder = service.repository.add("stored_broken", {}, 'backend: "pytorch"\n')
    torch.jit.save(scripted("Weighted", 2.0), folder / "1/model.pt", _extra_files={"triton_config": '{"input": ['})
    assert "triton_config" in service.refusal("stored_broken")


def test_an_exported_program_is_refused_with_what_to_do(service: Service) -> None:
    folder = service.repository.add("exported", {}, config(*PORTS, batch=8))
    torch.export.save(torch.export.export(fresh("Weighted", 2.0), (torch.ones(2, 4),)), folder / "1/model.pt2")
    assert "aoti_compile_and_package" in service.refusal("exported")


def test_an_unknown_parameter_is_a_load_error_with_the_nearest(service: Service) -> None:
    text = config(*PORTS, batch=8, extra=parameters({"INTRA_OP_THREADS_COUNT": "2"}))
    service.repository.add("unknown_name", {"1/model.pt": file("Weighted", 2.0)}, text)
    assert "INTRA_OP_THREADS_COUNT has no effect; did you mean INTRA_OP_THREAD_COUNT?" in service.refusal(
        "unknown_name"
    )


def test_an_unknown_parameter_is_a_warning_when_not_strict(service: Service) -> None:
    serve(service, "not_strict", extra=parameters({"INTRA_OP_THREADS": "2", "STRICT_PARAMETERS": "false"}))
    assert doubled(service.client(), "not_strict")
    assert any(line.startswith("W") for line in service.log().splitlines() if "INTRA_OP_THREADS has" in line)


REFUSED = [
    ({"ENABLE_NVFUSER": "true"}, "CUDA"),
    ({"TORCH_COMPILE_OPTIONAL_PARAMETERS": "{}"}, "aoti_compile_and_package"),
    ({"ENABLE_TENSOR_FUSER": "true", "ENABLE_TENSOR_EXPR_FUSION": "false"}, "contradicts ENABLE_TENSOR_EXPR_FUSION"),
    ({"NUM_THREADS": "2", "INTRA_OP_THREAD_COUNT": "1"}, "contradicts INTRA_OP_THREAD_COUNT"),
    ({"NUM_INTEROP_THREADS": "2", "INTER_OP_THREAD_COUNT": "1"}, "contradicts INTER_OP_THREAD_COUNT"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_only_upstream_can_do_is_refused_with_the_reason(service: Service, case: int) -> None:
    given, reason = REFUSED[case]
    name = f"upstream_{case}"
    text = config(*PORTS, batch=8, extra=parameters(given))
    service.repository.add(name, {"1/model.pt": file("Weighted", 2.0)}, text)
    refusal = service.refusal(name)
    assert reason in refusal
    assert next(iter(given)) in refusal


def test_another_method_than_forward_is_served(service: Service, client: Client) -> None:
    name = f"method_{client.protocol}"
    inputs = [Port("bias", "FP32", [4]), Port("x", "FP32", [4])]
    outputs = [Port("OUTPUT__0", "FP32", [4]), Port("OUTPUT__1", "INT64", [1])]
    text = config(inputs, outputs, extra=parameters({"MODULE_METHOD_NAME": "encode"}))
    service.repository.add(name, {"1/model.pt": file("Methods")}, text)
    service.load(name)
    x, bias = torch.arange(4.0), torch.full([4], 7.0)
    answer = ask(client, name, {"x": x, "bias": bias})
    assert same(answer["OUTPUT__0"], x * 2 - bias)
    assert same(answer["OUTPUT__1"], torch.tensor([4]))


def test_a_method_that_keeps_its_input_has_a_copy_of_it(service: Service) -> None:
    text = config(
        [Port("x", "FP32", [4])], [Port("y", "FP32", [4])], extra=parameters({"MODULE_METHOD_NAME": "remember"})
    )
    service.repository.add("method_remember", {"1/model.pt": file("Methods")}, text)
    service.load("method_remember")
    before = torch.zeros(4)
    for number in range(1, 10):
        x = torch.full([4], float(number))
        assert same(ask(service.client(), "method_remember", {"x": x})["y"], before)
        before = x


def test_a_missing_method_is_a_load_error_with_the_nearest(service: Service) -> None:
    text = config([Port("x", "FP32", [4])], [Port("y", "FP32", [4])], extra=parameters({"MODULE_METHOD_NAME": "encod"}))
    service.repository.add("method_missing", {"1/model.pt": file("Methods")}, text)
    assert "no method encod() (MODULE_METHOD_NAME); did you mean encode?" in service.refusal("method_missing")


@pytest.mark.parametrize(
    "path", ["../../outside_other/1/model.pt", "link.pt", "absolute", "../../outside_none/1/model.pt"]
)
def test_a_file_outside_the_models_folder_is_a_load_error(service: Service, path: str) -> None:
    other = service.repository.add("outside_other", {"1/model.pt": file("Weighted", 5.0)}, config(*PORTS, batch=8))
    named = str(other / "1/model.pt") if path == "absolute" else path
    folder = service.repository.add("outside", {}, config(*PORTS, batch=8, extra=f'default_model_filename: "{named}"'))
    (folder / "1/link.pt").symlink_to("../../outside_other/1/model.pt")
    assert "outside the model's folder" in service.refusal("outside")


@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
def test_a_model_file_that_is_a_link_to_outside_is_a_load_error(service: Service, name: str) -> None:
    service.repository.add("outside_linked_to", {"1/model.pt": file("Weighted", 5.0)}, config(*PORTS, batch=8))
    folder = service.repository.add("outside_link", {}, config(*PORTS, batch=8))
    (folder / "1").mkdir(exist_ok=True)
    for old in (folder / "1").iterdir():
        old.unlink()
    (folder / "1" / name).symlink_to("../../outside_linked_to/1/model.pt")
    assert "outside the model's folder" in service.refusal("outside_link")


def test_a_link_inside_the_models_folder_is_followed(service: Service) -> None:
    text = config(*PORTS, batch=8, extra='default_model_filename: "link.pt"')
    folder = service.repository.add("linked", {"weights.pt": file("Weighted", 5.0)}, text)
    (folder / "1/link.pt").symlink_to("../weights.pt")
    service.load("linked")
    assert doubled(service.client(), "linked", weight=5.0)


@pytest.mark.parametrize(("datatype", "words"), [("BYTES", "a tensor of numbers"), ("FP32", "BYTES")])
def test_an_output_of_a_wrong_kind_is_a_load_error(service: Service, datatype: str, words: str) -> None:
    outputs = [Port("OUTPUT__0", "BYTES", [-1]), Port("OUTPUT__1", "FP32", [-1])]
    place = 1 if datatype == "BYTES" else 0
    outputs[place] = outputs[place]._replace(datatype=datatype)
    name = f"wrong_kind_{datatype.lower()}"
    service.repository.add(name, {"1/model.pt": file("Describe")}, config([Port("x", "FP32", [-1])], outputs))
    refusal = service.refusal(name)
    assert f"OUTPUT__{place}" in refusal
    assert words in refusal
