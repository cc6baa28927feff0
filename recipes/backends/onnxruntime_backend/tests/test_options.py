"""Test options of a model and of the backend, each by an effect that is visible from outside."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from backend_testing.repository import File, parameters
from backend_testing.server import Service, preload
from backend_testing.wire import InferenceServerException, same
from onnx import load_model
from option_models import DOUBLING, NOTHING, ROWS, SPREADING, TWICE, X, config, ladder, removed

ONE = "instance_group { kind: KIND_CPU count: 1 }"  # without it the server makes two for this backend
SOURCE = Path(__file__).parents[1] / "src"


def serve(
    service: Service, name: str, options: Mapping[str, str] | None = None, *, file: bytes = DOUBLING, extra: str = ""
) -> None:
    """Write and load a model of one instance with options, and check that it answers."""
    extra += "" if "instance_group" in extra else ONE
    text = f"{NOTHING}{extra}\n{parameters(options or {})}"
    service.repository.add(name, {"1/model.onnx": file}, text)
    service.load(name)
    if file is DOUBLING:
        assert same(service.client().infer(name, {"x": X})["y"], X + X)


def refused(service: Service, name: str, extra: str) -> str:
    """Write a model with a bad configuration and return the error message."""
    service.repository.add(name, {"1/model.onnx": DOUBLING}, config(*ROWS, batch=8, extra=extra))
    return service.refusal(name)


def lines(service: Service, name: str, words: str) -> list[str]:
    """Return the lines of the log about a model that contain a text."""
    found = [line for line in service.log().splitlines() if f"model {name}:" in line and words in line]
    return [line.removesuffix('"') for line in found]


def threads(service: Service) -> int:
    """Return the number of threads of the server once it is constant for a tenth of a second."""
    tasks = Path(f"/proc/{service.server.pid}/task")
    counts: list[int] = []
    while len(counts) < 5 or len(set(counts[-5:])) > 1:
        counts.append(len(list(tasks.iterdir())))
        time.sleep(0.02)
    return counts[-1]


def started(service: Service, name: str, **options: str) -> int:
    """Return how many threads loading a model starts, including its instance's own."""
    before = threads(service)
    serve(service, name, options)
    return threads(service) - before


@pytest.fixture(scope="module")
def alone(start_service: Callable[..., Service]) -> Service:
    """Provide a server that no other module uses, so that every thread counts."""
    other = start_service()
    serve(other, "first")
    return other


def test_the_intra_op_count_is_the_number_of_threads_that_compute(alone: Service) -> None:
    one = started(alone, "intra_1", intra_op_thread_count="1")
    assert started(alone, "intra_5", intra_op_thread_count="5") - one == 4
    assert started(alone, "intra_2", intra_op_thread_count="2") - one == 1


def test_a_count_of_0_is_the_choice_of_onnx_runtime(alone: Service) -> None:
    chosen = started(alone, "intra_none")
    assert started(alone, "intra_0", intra_op_thread_count="0") == chosen


def test_the_inter_op_count_matters_in_the_parallel_mode_only(alone: Service) -> None:
    one = {"intra_op_thread_count": "1"}
    base = started(alone, "inter_1", inter_op_thread_count="1", execution_mode="1", **one)
    assert started(alone, "inter_5", inter_op_thread_count="5", execution_mode="1", **one) - base == 4
    assert started(alone, "inter_5_in_turn", inter_op_thread_count="5", execution_mode="0", **one) == base
    assert started(alone, "inter_5_default", inter_op_thread_count="5", **one) == base


@pytest.fixture(scope="module")
def preset(start_service: Callable[..., Service], tmp_path_factory: pytest.TempPathFactory) -> Service:
    """Provide a server whose backend has options for all models; `statistics.csv` is named beside its log."""
    statistics = tmp_path_factory.mktemp("preset") / "statistics.csv"
    values = {
        "intra_op_thread_count": "5",
        "enable_mem_arena": "false",
        "enable_mem_pattern": "0",
        "share_session_between_instances": "true",
        "session.collect_node_memory_stats_to_file": str(statistics),
    }
    other = start_service(*[f"--backend-config=onnxruntime,{name}={text}" for name, text in values.items()])
    serve(other, "first")
    assert statistics.stat().st_size > 0
    return other


def test_model_options_override_those_of_the_backend(preset: Service) -> None:
    five = started(preset, "five")
    assert five - started(preset, "one", intra_op_thread_count="1") == 4
    serve(preset, "own", {"session.collect_node_memory_stats_to_file": "own.csv"})
    assert (preset.repository.folder / "own/1/own.csv").stat().st_size > 0
    three = "instance_group { kind: KIND_CPU count: 3 }"
    serve(preset, "shared", extra=three)
    serve(preset, "unshared", {"share_session_between_instances": "false"}, extra=three)
    assert [len(lines(preset, name, "nodes on")) for name in ("shared", "unshared")] == [1, 3]


BAD_BACKEND = {
    "intra_op_thread_count": ("many", "'many' is not a whole number of 0 to 4096"),
    "enable-global-threadpool": ("maybe", "'maybe' is neither true nor false"),
}


@pytest.mark.parametrize("key", BAD_BACKEND)
def test_a_bad_option_of_the_backend_is_a_load_error(start_service: Callable[..., Service], key: str) -> None:
    text, words = BAD_BACKEND[key]
    other = start_service(f"--backend-config=onnxruntime,{key}={text}")
    assert f"setting {key} of backend onnxruntime: {words}" in refused(other, "m", "")


def test_a_pool_for_all_models_does_not_grow_with_them(alone: Service, start_service: Callable[..., Service]) -> None:
    without_pool = started(alone, "pool_none", intra_op_thread_count="1")
    arguments = ["enable-global-threadpool=1", "intra_op_thread_count=9", "inter_op_thread_count=1"]
    other = start_service(*[f"--backend-config=onnxruntime,{each}" for each in arguments])
    first = started(other, "first")
    second = started(other, "second")
    assert first - second >= 8
    assert second == without_pool
    assert started(other, "third", intra_op_thread_count="7") == without_pool
    assert any(line.startswith("W") for line in lines(other, "third", "enable-global-threadpool"))
    assert not lines(other, "second", "enable-global-threadpool")


TRUTH = ("enable_mem_arena", "enable_mem_pattern", "share_session_between_instances")
BAD = [
    *[("execution_mode", text, "is not a whole number of 0 to 1") for text in ("2", "-1", "parallel", "")],
    *[
        (f"{kind}_op_thread_count", text, "is not a whole number of 0 to 4096")
        for kind in ("intra", "inter")
        for text in ("-1", "4097", "1.5", "two", "")
    ],
    *[
        ("memory.enable_memory_arena_shrinkage", text, "is neither cpu nor cpu:0")
        for text in ("gpu:0", "cpu:7", "x", "")
    ],
    *[(name, text, "is neither true nor false") for name in TRUTH for text in ("2", "maybe", "")],
]


@pytest.mark.parametrize(("key", "text", "words"), BAD)
def test_a_bad_value_is_a_load_error_that_names_it(service: Service, key: str, text: str, words: str) -> None:
    name = f"bad_{key}_{text.replace(':', '_')}"
    refusal = refused(service, name, parameters({key: text}))
    assert f"parameter {key} of model {name}: '{text}' {words}" in refusal


def test_shrinking_an_arena_that_is_switched_off_is_a_load_error(service: Service) -> None:
    options = {"memory.enable_memory_arena_shrinkage": "cpu:0", "enable_mem_arena": "false"}
    refusal = refused(service, "shrinkage_without", parameters(options))
    assert "'cpu:0' needs an arena, but enable_mem_arena is false" in refusal


@pytest.mark.parametrize("key", TRUTH)
@pytest.mark.parametrize("text", ["true", "0", "Off", "YES"])
def test_truth_values_are_accepted_in_every_form(service: Service, key: str, text: str) -> None:
    serve(service, f"truth_{key}_{text}", {key: text})


def test_an_unknown_name_is_a_load_error_with_the_nearest(service: Service) -> None:
    refusal = refused(service, "unknown_name", parameters({"intra_op_threads_count": "2"}))
    assert "the parameter intra_op_threads_count has no effect; did you mean intra_op_thread_count?" in refusal


def test_an_unknown_name_is_a_warning_when_not_strict(service: Service) -> None:
    serve(service, "not_strict", {"intra_op_threads": "2", "STRICT_PARAMETERS": "false"})
    found = lines(service, "not_strict", "intra_op_threads has")
    assert [line[0] for line in found] == ["W"]


LEVELS = {
    "level: 2": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "level: -1": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "level: 1": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "level: 0": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
LADDER = ladder()


def nodes_left(level: onnxruntime.GraphOptimizationLevel, path: Path) -> int:
    """Return how many nodes of the model ONNX Runtime keeps at a level."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(LADDER, options, providers=["CPUExecutionProvider"])
    return len(load_model(path).graph.node)


@pytest.mark.parametrize("text", LEVELS)
def test_the_graph_level_decides_which_nodes_remain(service: Service, tmp_path: Path, text: str) -> None:
    name = f"level_{text.replace(': ', '_')}"
    serve(service, name, file=LADDER, extra=f"optimization {{ graph {{ {text} }} }}")
    (line,) = lines(service, name, "nodes on")
    assert line.endswith(f"CPUExecutionProvider: {nodes_left(LEVELS[text], tmp_path / 'left.onnx')}")
    x = np.random.default_rng(1).standard_normal((2, 16, 8, 8), np.float32)
    (expected,) = onnxruntime.InferenceSession(LADDER, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert np.allclose(service.client().infer(name, {"x": x})["y"], expected, 1e-4, 1e-4)


def test_the_levels_leave_different_graphs(tmp_path: Path) -> None:
    left = [nodes_left(level, tmp_path / "left.onnx") for level in list(LEVELS.values())[:3]]
    assert left == sorted(set(left), reverse=True)


@pytest.mark.parametrize("level", [-2, 3, 99])
def test_another_graph_level_is_a_load_error(service: Service, level: int) -> None:
    name = f"level_bad_{level}"
    refusal = refused(service, name, f"optimization {{ graph {{ level: {level} }} }}")
    assert f"optimization.graph.level of model {name}: {level} is not one of -1 (basic), 0 (all), 1 (exte" in refusal


def kept(service: Service, name: str, **options: str) -> int:
    """Return how much memory the server keeps after a run that briefly needed 128 MiB; print that and a run's time."""
    serve(service, name, options, file=SPREADING)
    client = service.client()
    client.infer(name, {"x": np.ones(1, np.float32), "count": np.array([1])})
    before = service.server.resident()
    count = 16 << 20
    answer = client.infer(name, {"x": np.ones(1, np.float32), "count": np.array([count])})
    assert answer["y"] == -count
    after = service.server.resident()
    start = time.monotonic()
    for _ in range(5):
        client.infer(name, {"x": np.ones(1, np.float32), "count": np.array([count])})
    each = (time.monotonic() - start) / 5
    removed(service, name)
    print(f"{name}: keeps {(after - before) / 2**20:.0f} MiB, a run takes {each * 1000:.0f} ms")
    return after - before


def test_the_arena_keeps_memory_unless_off_or_shrunk(start_service: Callable[..., Service]) -> None:
    other = start_service()
    serve(other, "first")
    with_arena = kept(other, "arena")
    without = kept(other, "no_arena", enable_mem_arena="false")
    shrunk = kept(other, "shrunk", **{"memory.enable_memory_arena_shrinkage": "cpu:0"})
    without_pattern = kept(other, "no_pattern", enable_mem_pattern="false")
    neither = kept(other, "neither", enable_mem_arena="false", enable_mem_pattern="false")
    # A sanitizer withholds freed memory on purpose.
    assert preload() or with_arena > 100 << 20
    assert preload() or max(without, neither) < 32 << 20
    assert preload() or shrunk < with_arena - (32 << 20)
    assert preload() or without_pattern > 32 << 20


SESSION = {
    "session.load_model_format": ("ORT", "ORT model verification failed"),
    "session.disable_cpu_ep_fallback": ("1", "fallback to CPU EP has been explicitly disabled"),
    "session.intra_op_thread_affinities": ("x", "Processor id must consist of only digits: x"),
    "session." + "long" * 300: ("1", "longer than maximum length"),
}


@pytest.mark.parametrize("key", SESSION)
def test_session_entries_reach_the_session(service: Service, key: str) -> None:
    text, words = SESSION[key]
    assert words in refused(service, f"session_{key[8:20]}", parameters({key: text}))


def test_any_session_entry_is_accepted_without_a_warning(service: Service) -> None:
    entries = {"session.nonsense": "1", "session.collect_node_memory_stats_to_file": "statistics.csv"}
    serve(service, "session_any", entries)
    assert (service.repository.folder / "session_any/1/statistics.csv").stat().st_size > 0
    assert not lines(service, "session_any", "has no effect")


# ONNX Runtime appends it to the prefix.
TIME = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{3}"


def profiles(service: Service, name: str) -> list[Path]:
    """Unload a model and return the files that the log names as its profiles."""
    removed(service, name)
    found = [re.search(r"the profile is in (.+)", line) for line in lines(service, name, "profile")]
    return [Path(match.group(1)) for match in found if match]


def events(path: Path) -> list[str]:
    """Return the names of a profile's events."""
    return [each["name"] for each in json.loads(path.read_text(encoding="utf-8"))]


def test_a_profile_is_written_when_the_model_is_unloaded(service: Service) -> None:
    serve(service, "profiled", {"profile_file_prefix": "p"})
    service.client().infer("profiled", {"x": X})
    (path,) = profiles(service, "profiled")
    assert path.parent == service.repository.folder / "profiled/1"
    assert re.fullmatch(rf"p_profiled_{TIME}\.json", path.name)
    assert events(path).count("model_run") == 2


def test_each_session_writes_its_own_profile(service: Service) -> None:
    extra = "instance_group { kind: KIND_CPU count: 3 }"
    serve(service, "profiled_each", {"profile_file_prefix": "p"}, extra=extra)
    for _ in range(5):
        service.client().infer("profiled_each", {"x": X})
    paths = profiles(service, "profiled_each")
    found = sorted(re.sub(TIME, "TIME", path.name) for path in paths)
    assert found == ["p_profiled_each_1_TIME.json", "p_profiled_each_2_TIME.json", "p_profiled_each_TIME.json"]
    assert sum(events(path).count("model_run") for path in paths) == 6


def test_a_prefix_for_all_models_gives_each_a_profile(start_service: Callable[..., Service], tmp_path: Path) -> None:
    other = start_service(f"--backend-config=onnxruntime,profile_file_prefix={tmp_path}/all")
    for name in ("left", "right"):
        serve(other, name)
        (path,) = profiles(other, name)
        assert re.fullmatch(rf"all_{name}_{TIME}\.json", path.name)
        assert events(path).count("model_run") == 1


def test_a_profile_that_cannot_be_written_does_not_crash(start_service: Callable[..., Service], tmp_path: Path) -> None:
    other = start_service(f"--backend-config=onnxruntime,profile_file_prefix={tmp_path}/nowhere/p")
    other.repository.add("profile_nowhere", {"1/model.onnx": DOUBLING}, config(*ROWS, batch=8))
    try:
        other.load("profile_nowhere")
    except InferenceServerException as error:
        assert "nowhere" in str(error)
    else:
        other.unload("profile_nowhere")
    assert other.server.running


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the compiled library of tests/custom_op."""
    path = tmp_path_factory.mktemp("operators") / "libtwice.so"
    source = Path(__file__).parent / "custom_op/custom_op.cpp"
    subprocess.run(["c++", "-std=c++20", "-shared", "-fPIC", f"-I{SOURCE}", source, "-o", path], check=True)
    return path


@pytest.mark.parametrize("place", ["libtwice.so", "lib/libtwice.so", "1/libtwice.so"])
def test_a_library_of_operators_is_found(service: Service, operators: Path, place: str) -> None:
    name = f"operators_{place.replace('/', '_')}"
    files: Mapping[str, File] = {"1/model.onnx": TWICE, place: operators}
    given = place.removeprefix("1/")
    extra = f'model_operations {{ op_library_filename: "{given}" }} instance_group {{ kind: KIND_CPU count: 2 }}'
    service.repository.add(name, files, config(*ROWS, batch=8, extra=extra))
    service.load(name)
    for _ in range(4):
        assert same(service.client().infer(name, {"x": X})["y"], X + X)


def test_without_the_library_its_operators_are_unknown(service: Service) -> None:
    service.repository.add("operators_none", {"1/model.onnx": TWICE}, config(*ROWS, batch=8))
    assert "Twice" in service.refusal("operators_none")


def test_a_library_of_operators_elsewhere_needs_the_servers_permission(
    service: Service, operators: Path, start_service: Callable[..., Service]
) -> None:
    extra = f'model_operations {{ op_library_filename: "{operators}" }}'
    words = (
        f"op_library_filename is '{operators}', which is outside the model's folder and the folders of the backend's"
    )
    assert words in refused(service, "operators_absolute", extra)
    other = start_service(f"--backend-config=onnxruntime,allowed-folders={operators.parent}")
    other.repository.add("m", {"1/model.onnx": TWICE}, config(*ROWS, batch=8, extra=extra))
    other.load("m")
    assert same(other.client().infer("m", {"x": X})["y"], X + X)
    extra = extra.replace(operators.name, "libnone.so")
    assert "libnone.so does not exist" in refused(other, "none", extra)


def test_a_missing_operator_library_is_a_load_error_naming_it(service: Service) -> None:
    refusal = refused(service, "operators_missing", 'model_operations { op_library_filename: "libc.so.6" }')
    assert re.search(
        r"op_library_filename is 'libc.so.6', but .*/operators_missing/1/libc.so.6 does not exist", refusal
    )


def test_an_operator_library_by_a_path_that_leaves_the_model_is_refused(service: Service, operators: Path) -> None:
    service.repository.add("operators_other", {"libtwice.so": operators})
    refusal = refused(
        service, "operators_outside", 'model_operations { op_library_filename: "../operators_other/libtwice.so" }'
    )
    assert "op_library_filename" in refusal
    assert "outside the model's folder" in refusal


def test_a_library_without_operators_is_a_load_error(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "libempty.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=b"int nothing;\n", check=True)
    extra = 'model_operations { op_library_filename: "libempty.so" }'
    service.repository.add(
        "operators_empty", {"1/model.onnx": DOUBLING, "libempty.so": path}, config(*ROWS, batch=8, extra=extra)
    )
    assert "RegisterCustomOps" in service.refusal("operators_empty")
