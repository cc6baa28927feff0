"""Test libraries of operators: torchvision's own library and detection model, and libraries that cannot be loaded."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from backend_testing.repository import File, Port, parameters
from backend_testing.server import Service, library
from conftest import begin
from modules import config, file, saved
from torch import Tensor
from vision import libraries, load
from wire import ask, same

PORTS = [Port("boxes", "FP32", [-1, 4]), Port("scores", "FP32", [-1])], [Port("kept", "INT64", [-1])]
PLAIN = [Port("x", "FP32", [4])], [Port("y", "FP32", [4])]
BROKEN = "void nowhere_defined(void);\nvoid caller(void) { nowhere_defined(); }\n"


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Provide torchvision's library, and what must be loaded before it, here and in the server."""
    paths = libraries(tmp_path_factory.mktemp("vision"))
    load(paths)
    return paths


@pytest.fixture(scope="module")
def suppression(vision: list[Path]) -> torch.jit.ScriptModule:
    """Provide a module that calls torchvision::nms."""
    assert vision
    module = torch.jit.ScriptModule()
    module.define(
        "def forward(self, boxes: Tensor, scores: Tensor) -> Tensor:\n"
        "    return torch.ops.torchvision.nms(boxes, scores, 0.4)\n"
    )
    return module


def boxes(seed: int) -> dict[str, Tensor]:
    """Return boxes and their scores."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(60, 2, generator=generator)
    sizes = torch.rand(60, 2, generator=generator) * 0.5
    return {"boxes": torch.cat([corners, corners + sizes], dim=1), "scores": torch.rand(60, generator=generator)}


def check(service: Service, name: str, module: Callable[..., Tensor]) -> None:
    """Compare some answers with PyTorch."""
    for seed in range(4):
        request = boxes(seed)
        expected = module(**request)
        assert 1 < len(expected) < 60
        assert same(ask(service.client(), name, request)["kept"], expected)


def test_a_model_brings_the_library_of_its_operators(
    vision: list[Path], suppression: torch.jit.ScriptModule, tmp_path: Path
) -> None:
    names = ", ".join(path.name for path in vision)
    text = config(*PORTS, extra=parameters({"OPERATOR_LIBRARIES": names}))
    with begin(tmp_path) as service:
        # In the folder of the version, of the model, and in both. The same library must not be loaded twice.
        for name, places in {"versioned": ["1/", "1/"], "above": ["", ""], "both": ["1/", ""]}.items():
            files: dict[str, File] = {"1/model.pt": saved(suppression)}
            files |= {places[path is vision[-1]] + path.name: path for path in vision}
            service.repository.add(name, files, text)
            service.load(name)
            check(service, name, suppression)
        service.unload("versioned")
        service.load("versioned")
        check(service, "versioned", suppression)
        assert service.log().count("loaded the operators in") == len(vision)
        # Another build of it would end the server.
        files = {"1/model.pt": saved(suppression), "1/_C.so": vision[-1].read_bytes() + b"another"}
        other = config(*PORTS, extra=parameters({"OPERATOR_LIBRARIES": "_C.so"}))
        service.repository.add("another", files, other)
        assert "defines operators of torchvision, and so does" in service.refusal("another")
        check(service, "versioned", suppression)


def test_a_detection_model_is_served_with_the_servers_libraries(vision: list[Path], tmp_path: Path) -> None:
    detection = importlib.import_module("torchvision").models.detection
    with torch.random.fork_rng():
        torch.manual_seed(7)
        network = detection.fasterrcnn_mobilenet_v3_large_320_fpn(
            weights=None, weights_backbone=None, num_classes=5, box_score_thresh=0.0, box_detections_per_img=20
        )
    module = torch.jit.script(network.eval())
    text = config(
        [Port("images__0", "FP32", [3, -1, -1])],
        [Port("boxes", "FP32", [-1, 4]), Port("labels", "INT64", [-1]), Port("scores", "FP32", [-1])],
    )
    with begin(tmp_path, f"--backend-config=pytorch,operator-libraries={','.join(map(str, vision))}") as service:
        service.repository.add("detection", {"1/model.pt": saved(module)}, text)
        service.load("detection")
        for size in ([3, 64, 96], [3, 120, 80]):
            image = torch.rand(size, generator=torch.Generator().manual_seed(size[1]))
            with torch.inference_mode(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # TorchScript gives losses, too
                expected = module([image])[1][0]
            answer = ask(service.client(), "detection", {"images__0": image})
            assert len(expected["boxes"]) > 0
            assert same(answer["labels"], expected["labels"])
            for name in ("boxes", "scores"):
                value = answer[name]
                assert isinstance(value, Tensor)
                torch.testing.assert_close(value, expected[name])


def test_without_its_library_the_load_error_says_what_to_do(
    service: Service, suppression: torch.jit.ScriptModule
) -> None:
    service.repository.add("lacking", {"1/model.pt": saved(suppression)}, config(*PORTS))
    refusal = service.refusal("lacking")
    assert "torchvision::nms" in refusal
    assert "OPERATOR_LIBRARIES" in refusal


BAD = {
    "missing.so": "does not exist",
    "text.so": "neither an ELF nor a Mach-O library",
    "short.so": "beyond the end",
    "broken.so": "undefined symbol: nowhere_defined",
    "model.so,,other.so": "has an empty name",
    "": "has an empty name",
    "../../elsewhere/broken.so": "outside the model's folder",
    "link.so": "outside the model's folder",
    "{absolute}": "outside the model's folder",
    "{folder}": "cannot be read",
}


@pytest.mark.parametrize("name", BAD)
def test_a_library_that_cannot_be_loaded_is_a_load_error(service: Service, tmp_path: Path, name: str) -> None:
    broken = library(BROKEN, tmp_path / "broken.so")
    service.repository.add("elsewhere", {"broken.so": broken})
    written = name.format(absolute=broken, folder="inner")
    text = config(*PLAIN, batch=8, extra=parameters({"OPERATOR_LIBRARIES": written}))
    files: Mapping[str, File] = {
        "1/model.pt": file("Weighted", 2.0),
        "1/text.so": b"not a library",
        "1/short.so": broken.read_bytes()[:3000],
        "1/broken.so": broken,
        "1/inner/model.so": broken,
    }
    folder = service.repository.add("unloadable", files, text)
    (folder / "1/link.so").symlink_to("../../elsewhere/broken.so")
    refusal = service.refusal("unloadable")
    assert BAD[name] in refusal
    assert "OPERATOR_LIBRARIES of model unloadable" in refusal
    assert service.server.running


@pytest.mark.parametrize(("path", "words"), [("relative.so", "not an absolute path"), ("/none.so", "does not exist")])
def test_a_bad_setting_of_libraries_is_a_load_error(tmp_path: Path, path: str, words: str) -> None:
    with begin(tmp_path, f"--backend-config=pytorch,operator-libraries={path}") as service:
        service.repository.add("plain", {"1/model.pt": file("Weighted", 2.0)}, config(*PLAIN, batch=8))
        refusal = service.refusal("plain")
        assert words in refusal
        assert "setting operator-libraries of backend pytorch" in refusal
