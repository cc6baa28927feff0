"""Test that `macbuild recipes list` and `recipes show` say all that a recipe has, and what can be built here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import macbuild.build.toolchain as toolchain_module
from macbuild.cli.app import run
from macbuild.errors import ToolError
from macbuild.recipe.lock import source_refs
from tests.support.sample import Sample, work_alone

OPTIONS = {
    "metrics": {
        "summary": "Prometheus metrics",
        "on": {"METRICS": "ON"},
        "off": {"METRICS": "OFF"},
        "needs": ["alpha"],
    },
    "gpu": {"summary": "CUDA", "default": False, "refused": "macOS has no CUDA", "requires": ["metrics"]},
}


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    work_alone(tmp_path, monkeypatch)
    monkeypatch.setenv("COLUMNS", "200")
    sample = Sample(tmp_path)
    sample.add("alpha", archs=("arm64", "x86_64"))
    sample.add("alpha", version="2.0")
    for release in sample.recipes["alpha"]["releases"]:
        for arch in ("arm64", "x86_64"):
            for source in release.get(arch, {}).get("sources", ()):
                file = f"alpha-{release['version']}-{arch}.tar.gz"
                source["fetch"] = {"type": "url", "urls": [f"https://example.org/{file}"]}
    sample.add_built(
        "plug",
        {"CMakeLists.txt": "project(plug)", "pyproject.toml": ""},
        facts={"needs": ["alpha@1.0"], "archs": ["arm64"]},
        build={"inputs": ["CMakeLists.txt"], "options": OPTIONS, "definitions": {"FAST": "1"}},
        packages=[{"kind": "tarball", "prefix": "lib/"}, {"kind": "wheel", "name": "plug-of-mine"}],
    )
    sample.recipes["plug"]["build"]["options"]["metrics"]["needs"] = ["alpha@1.0"]
    sample.write()
    return sample


def unpin(sample: Sample, name: str) -> None:
    text = (sample.root / "macbuild.lock").read_text()
    head, *entries = text.split("[[pinned]]")
    kept = [entry for entry in entries if f'component = "{name}"' not in entry]
    (sample.root / "macbuild.lock").write_text("[[pinned]]".join([head, *kept]))


def shown(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["recipes", *words]) == 0
    return capsys.readouterr().out


def data(*words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(shown(*words, "--json", capsys=capsys))


def test_show_has_every_part_of_a_recipe(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    del sample
    text = shown("show", "plug", capsys=capsys)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "plug: The plug plug-in"
    assert "release 1.0, macOS 14.0" in lines
    assert "needs alpha@1.0" in lines
    assert "arm64: can be built" in lines
    assert "x86_64: plug 1.0 is not published for x86_64; plug can be built as 1.0 (arm64)" in lines
    assert "metrics: Prometheus metrics (on)" in lines
    assert "with it: METRICS=ON, needs alpha@1.0" in lines
    assert "without it: METRICS=OFF" in lines
    assert "gpu: CUDA (off)" in lines
    assert "not available: macOS has no CUDA" in lines
    assert "requires metrics" in lines
    assert "tarball plug, files below lib/" in lines
    assert "wheel plug-of-mine" in lines


def test_show_has_each_source_with_its_pin(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    refs = [ref for ref, _ in source_refs(sample.project().recipes["alpha"])]
    text = shown("show", "alpha", capsys=capsys)
    assert text.count("sha256 ") == len(refs) == 3
    unpin(sample, "alpha")
    text = shown("show", "alpha", capsys=capsys)
    assert text.count("not pinned, so never used") == 3
    assert "  arm64: alpha 1.0 arm64: no source is pinned" in text
    assert "  x86_64, universal2: alpha 1.0 x86_64: no source is pinned" in text
    rows = data("show", "alpha", capsys=capsys)
    assert [row["pin"] for row in rows["sources"]] == [None] * 3
    assert {(row["version"], row["arch"]) for row in rows["builds"] if row["problem"]} == {
        *(("1.0", arch) for arch in ("arm64", "x86_64", "universal2")),
        *(("2.0", arch) for arch in ("arm64", "x86_64", "universal2")),
    }


def test_a_source_that_could_not_be_reached_has_the_reason(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    ref = next(ref for ref, _ in source_refs(sample.project().recipes["alpha"]))
    entry = {**{name: getattr(ref, name) for name in ref.__struct_fields__}, "reason": "no route to host"}
    rows = "\n".join(f"{key} = {json.dumps(value)}" for key, value in entry.items())
    (sample.root / "macbuild.lock").write_text(f"version = 1\n\n[[unpinned]]\n{rows}\n")
    assert "not pinned, so never used: no route to host" in shown("show", "alpha", capsys=capsys)
    assert data("show", "alpha", capsys=capsys)["sources"][0]["reason"] == "no route to host"


def test_list_says_what_cannot_be_built_here_and_why(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown("list", capsys=capsys).splitlines()
    assert lines[(at := lines.index("alpha: 1.0, 2.0 (arm64 only)")) + 1] == "  The alpha library"
    assert not lines[at + 2].startswith(" ")
    assert lines[(at := lines.index("plug: 1.0 (arm64 only)")) + 1] == "  The plug plug-in"
    assert not lines[at + 2].startswith(" ")
    unpin(sample, "alpha")
    lines = shown("list", capsys=capsys).splitlines()
    at = lines.index("alpha: 1.0, 2.0 (arm64 only)")
    problem = "  cannot be built here: no source is pinned; run: macbuild lock alpha"
    assert lines[at + 2] == problem
    rows = {row["name"]: row for row in data("list", capsys=capsys)["recipes"]}
    builds = rows["alpha"]["releases"][0]["builds"]
    assert [build["arch"] for build in builds] == ["arm64", "x86_64", "universal2"]
    assert all("no source is pinned" in build["problem"] for build in builds)
    assert builds[0]["hint"] == "run: macbuild lock alpha"


def test_a_missing_compiler_is_why_nothing_is_compiled(
    sample: Sample, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> None:
        raise ToolError("zig is not installed", hint="pip install ziglang")

    monkeypatch.setattr(toolchain_module, "find_toolchain", missing)
    text = shown("show", "plug", capsys=capsys)
    assert "arm64: zig is not installed; pip install ziglang" in text
    assert "arm64: can be built" in shown("show", "alpha", capsys=capsys)
    del sample


def test_list_and_show_plan_every_release_that_build_can_make(
    sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    unpin(sample, "alpha")
    for name in sample.recipes:
        for row in data("show", name, capsys=capsys)["builds"]:
            words = ["build", f"{name}@{row['version']}", "--arch", row["arch"], "--dry-run", "-q"]
            assert (run(words) == 0) == (row["problem"] is None), row
            capsys.readouterr()


def test_what_is_no_artifact_says_so(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    sample.recipes["plug"]["packages"] = []
    sample.write()
    assert "no packages: other components are built with it" in shown("show", "plug", capsys=capsys)
