"""Test each row of the README's table of upstream's settings: it is served, or refused when the model is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from backend_testing.repository import parameters
from backend_testing.server import Service
from option_models import DOUBLING, ROWS, config, times

README = Path(__file__).parents[1] / "README.md"


def accelerator(kind: str, name: str, **options: str) -> str:
    """Return an execution accelerator of a kind as `gpu`."""
    each = "".join(f'parameters {{ key: "{key}" value: "{text}" }} ' for key, text in options.items())
    entry = f'{kind}_execution_accelerator: [ {{ name: "{name}" {each} }} ]'
    return f"optimization {{ execution_accelerators {{ {entry} }} }}"


CUDA = "is for CUDA, which this backend does not run on"
GPU = "is a GPU accelerator, which is not supported"

# The name in the table, a configuration that uses it, and the words of the refusal if it is refused.
SETTINGS: dict[str, tuple[str, str]] = {
    "intra_op_thread_count": (parameters({"intra_op_thread_count": "2"}), ""),
    "inter_op_thread_count": (parameters({"inter_op_thread_count": "2"}), ""),
    "execution_mode": (parameters({"execution_mode": "1"}), ""),
    "optimization.graph.level": ("optimization { graph { level: 1 } }", ""),
    "enable_mem_arena": (parameters({"enable_mem_arena": "0"}), ""),
    "enable_mem_pattern": (parameters({"enable_mem_pattern": "0"}), ""),
    "memory.enable_memory_arena_shrinkage": (parameters({"memory.enable_memory_arena_shrinkage": "cpu:0"}), ""),
    "session.use_device_allocator_for_initializers": (
        parameters({"session.use_device_allocator_for_initializers": "1"}),
        "",
    ),
    "cudnn_conv_algo_search": (parameters({"cudnn_conv_algo_search": "0"}), CUDA),
    "gpu_mem_limit": (parameters({"gpu_mem_limit": "4294967200"}), CUDA),
    "arena_extend_strategy": (parameters({"arena_extend_strategy": "0"}), CUDA),
    "do_copy_in_default_stream": (parameters({"do_copy_in_default_stream": "1"}), CUDA),
    "gpu_execution_accelerator, tensorrt": (accelerator("gpu", "tensorrt", precision_mode="FP16"), GPU),
    "gpu_execution_accelerator, cuda": (accelerator("gpu", "cuda", cudnn_conv_use_max_workspace="0"), GPU),
    "cpu_execution_accelerator, openvino": (accelerator("cpu", "openvino"), "has no execution provider 'openvino'"),
}
COMMAND_LINE = {
    "enable-global-threadpool": ["enable-global-threadpool=1", "intra_op_thread_count=2", "inter_op_thread_count=1"],
    "default-max-batch-size": ["default-max-batch-size=8"],
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_of_upstream_is_served_or_refused(service: Service, setting: str) -> None:
    extra, words = SETTINGS[setting]
    name = "upstream_" + re.sub(r"\W+", "_", setting)
    service.repository.add(name, {"1/model.onnx": DOUBLING}, config(*ROWS, batch=8, extra=extra))
    if words:
        assert words in service.refusal(name)
    else:
        service.load(name)
        assert times(service.client(), name, 2.0)


@pytest.mark.parametrize("setting", COMMAND_LINE)
def test_a_setting_of_upstreams_command_line_is_served(start_service: Callable[..., Service], setting: str) -> None:
    other = start_service(*[f"--backend-config=onnxruntime,{each}" for each in COMMAND_LINE[setting]])
    other.repository.add("m", {"1/model.onnx": DOUBLING}, "")
    other.load("m")
    assert times(other.client(), "m", 2.0)
    if setting == "default-max-batch-size":
        assert int(other.client().config("m")["max_batch_size"]) == 8


def test_parameters_for_cuda_are_warned_of_when_not_strict(service: Service) -> None:
    extra = parameters({"gpu_mem_limit": "1", "STRICT_PARAMETERS": "false"})
    service.repository.add("upstream_lax", {"1/model.onnx": DOUBLING}, config(*ROWS, batch=8, extra=extra))
    service.load("upstream_lax")
    assert "model upstream_lax: the parameter gpu_mem_limit has no effect" in service.log()


def test_the_table_of_the_readme_has_these_rows() -> None:
    text = README.read_text(encoding="utf-8")
    table = text.split("## Compared with upstream")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| `")]
    verdicts = {cells[0].replace("`", ""): cells[1].split(":")[0].split(",")[0] for cells in rows}
    expected = {name: "refused" if words else "supported" for name, (_, words) in SETTINGS.items()}
    assert verdicts == expected | dict.fromkeys(COMMAND_LINE, "supported")
