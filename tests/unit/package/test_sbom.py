from __future__ import annotations

import json
import subprocess
import sys
import uuid
from typing import Any

import msgspec
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from macbuild.package.manifest import ArtifactContents, DependencyRecord, SourceFile
from macbuild.package.sbom import sbom
from tests.unit.package.test_dist import make_contents


@pytest.fixture
def contents() -> ArtifactContents:
    return make_contents("x-1.2.3-macos-arm64", b"x")


def load(text: str) -> dict[str, Any]:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    data = json.loads(text)
    assert isinstance(data, dict)
    return data


def test_sbom_is_valid_cyclonedx_with_all_its_components(contents: ArtifactContents) -> None:
    data = load(sbom(contents, license="BSD-3-Clause", epoch=315532800))
    assert (data["bomFormat"], data["specVersion"]) == ("CycloneDX", "1.6")
    assert data["metadata"]["timestamp"] == "1980-01-01T00:00:00+00:00"
    subject = data["metadata"]["component"]
    assert (subject["name"], subject["version"]) == ("x", "1.2.3")
    assert subject["hashes"] == [{"alg": "SHA-256", "content": contents.sha256}]
    assert subject["purl"].startswith("pkg:generic/x@1.2.3?")
    assert subject["licenses"] == [{"license": {"acknowledgement": "declared", "id": "BSD-3-Clause"}}]
    parts = {part["bom-ref"]: part for part in data["components"]}
    assert set(parts) == {
        "source/arm64 wheel/x-1.2.3-cp312-cp312-macosx_14_0_arm64.whl",
        "file/lib/libx.dylib",
        "component/libtorch@2.13.0",
    }
    source = parts["source/arm64 wheel/x-1.2.3-cp312-cp312-macosx_14_0_arm64.whl"]
    assert source["purl"] == "pkg:pypi/x@1.2.3?file_name=x-1.2.3-cp312-cp312-macosx_14_0_arm64.whl"
    assert source["hashes"] == [{"alg": "SHA-256", "content": "cd" * 32}]
    assert parts["file/lib/libx.dylib"]["type"] == "file"
    assert parts["file/lib/libx.dylib"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert parts["component/libtorch@2.13.0"]["purl"] == "pkg:generic/libtorch@2.13.0"
    graph = {item["ref"]: item.get("dependsOn", []) for item in data["dependencies"]}
    assert sorted(graph[subject["bom-ref"]]) == sorted(parts)
    assert {item["name"] for item in data["metadata"]["tools"]["components"]} == {"macbuild", "zlib-ng"}


def test_embedded_sbom_does_not_depend_on_hash_or_name(contents: ArtifactContents) -> None:
    text = sbom(contents, license="MIT", epoch=0, embedded=True)
    other = msgspec.structs.replace(contents, sha256="0" * 64, size=0, file="other.whl")
    assert sbom(other, license="MIT", epoch=0, embedded=True) == text
    subject = load(text)["metadata"]["component"]
    assert "hashes" not in subject
    assert subject["purl"] == "pkg:pypi/x@1.2.3?arch=arm64&os=macos"
    assert {item["ref"] for item in load(text)["dependencies"]} >= {subject["bom-ref"]}


def test_sbom_depends_only_on_the_artifact_and_the_epoch(contents: ArtifactContents) -> None:
    first = sbom(contents, license="MIT", epoch=0)
    assert sbom(contents, license="MIT", epoch=0) == first
    others = [
        sbom(contents, license="MIT", epoch=1),
        sbom(contents, license="Apache-2.0", epoch=0),
        sbom(msgspec.structs.replace(contents, sha256="0" * 64), license="MIT", epoch=0),
    ]
    serials = {uuid.UUID(load(text)["serialNumber"]) for text in [first, *others]}
    assert len(serials) == 4
    assert {serial.version for serial in serials} == {5}


@pytest.mark.parametrize(
    ("license_text", "expected"),
    [
        ("Apache-2.0 AND MIT", {"acknowledgement": "declared", "expression": "Apache-2.0 AND MIT"}),
        ("Vendor terms", {"license": {"acknowledgement": "declared", "name": "Vendor terms"}}),
    ],
)
def test_licence_may_be_an_expression_or_a_name(
    contents: ArtifactContents, license_text: str, expected: dict[str, object]
) -> None:
    data = load(sbom(contents, license=license_text, epoch=0))
    assert data["metadata"]["component"]["licenses"] == [expected]


@pytest.mark.parametrize(
    ("provider", "request_text", "purl"),
    [
        ("npm", "npm @scope/name@1.2.3", "pkg:npm/%40scope/name@1.2.3"),
        ("npm", "npm name@1.2.3", "pkg:npm/name@1.2.3"),
        (
            "url",
            "url file=f.zip https://example.org/f.zip https://mirror.example.org/f.zip",
            f"pkg:generic/f.zip?checksum=sha256:{'cd' * 32}&download_url=https://example.org/f.zip",
        ),
        (
            "git",
            "git https://example.org/a/repo.git " + "1" * 40,
            f"pkg:generic/repo@{'1' * 40}?vcs_url=git%2Bhttps://example.org/a/repo.git%40{'1' * 40}",
        ),
        ("project", "project x==1.2.3", f"pkg:generic/x@1.2.3?checksum=sha256:{'cd' * 32}"),
        ("file", "file /home/me/secret/f.zip", f"pkg:generic/f.zip?checksum=sha256:{'cd' * 32}"),
    ],
)
def test_each_provider_has_its_package_url(
    contents: ArtifactContents, provider: str, request_text: str, purl: str
) -> None:
    source = SourceFile(name="s", provider=provider, request=request_text, file="f.zip", size=1, sha256="cd" * 32)
    text = sbom(msgspec.structs.replace(contents, sources=[source]), license="MIT", epoch=0)
    part = next(item for item in load(text)["components"] if item["bom-ref"] == "source/s/f.zip")
    assert part["purl"] == purl
    assert "secret" not in text


def test_two_slices_of_one_package_are_two_components(contents: ArtifactContents) -> None:
    sources = [
        msgspec.structs.replace(contents.sources[0], name=f"{arch} wheel", file=f"x-1.2.3-{arch}.whl")
        for arch in ("arm64", "x86_64")
    ]
    data = load(sbom(msgspec.structs.replace(contents, sources=sources), license="MIT", epoch=0))
    assert sum(item["bom-ref"].startswith("source/") for item in data["components"]) == 2


def test_two_versions_of_a_dependency_give_a_stable_text(contents: ArtifactContents) -> None:
    older = DependencyRecord(name="libtorch", kind="component", version="2.2.2")
    contents = msgspec.structs.replace(contents, dependencies=[*contents.dependencies, older])
    texts = {sbom(contents, license="MIT", epoch=0) for _ in range(3)}
    assert len(texts) == 1
    assert {"component/libtorch@2.13.0", "component/libtorch@2.2.2"} <= {
        part["bom-ref"] for part in load(texts.pop())["components"]
    }


def test_importing_the_module_does_not_import_the_library() -> None:
    code = "import sys, macbuild.package.sbom, macbuild.package.dist; sys.exit('cyclonedx' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
