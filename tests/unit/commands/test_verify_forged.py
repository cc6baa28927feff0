"""Test that verify finds a difference in artifacts whose checksums were all rewritten to match."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macbuild.commands.verify import verify_dist
from macbuild.package.manifest import checksum_name
from macbuild.package.tarball import pack
from tests.support.audits import record_hash
from tests.support.sample import Sample
from tests.support.wheels import CMAKELISTS

PYPROJECT = """\
[build-system]
requires = ["scikit-build-core>=1.1"]
build-backend = "scikit_build_core.build"

[project]
name = "alpha"
version = "1.0"

[tool.scikit-build]
wheel.py-api = "py3"
wheel.packages = []
"""
TARBALL, WHEEL = "alpha-1.0-macos-arm64.tar.gz", "alpha-1.0-py3-none-macosx_11_0_arm64.whl"
LIBRARY = "lib/libalpha.dylib"
INNER = "alpha-1.0.dist-info/sboms/alpha.cdx.json"
Change = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tarball and a wheel."""
    sample = Sample(tmp_path_factory.mktemp("project"))
    sample.add("alpha")
    sample.recipes["alpha"]["packages"] = [{"kind": "tarball"}, {"kind": "wheel"}]
    folder = sample.recipe_path("alpha").parent
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "CMakeLists.txt").write_text(CMAKELISTS)
    sample.write()
    sample.make()
    assert [each.problems for each in verify_dist(sample.dist)[0]] == [(), ()]
    return sample.dist


@pytest.fixture
def dist(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "dist")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def changed_tarball(data: bytes, member: str, change: Change) -> bytes:
    """Change a member of a tarball, and pack it as macbuild does: verify accepts no other form of gzip."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(data)) as old:
            old.extractall(folder, filter="fully_trusted")
        (tree,) = Path(folder).iterdir()
        (tree / member).write_bytes(change((tree / member).read_bytes()))
        pack(tree, Path(folder, "new.tar.gz"), top=tree.name, epoch=0, jobs=1)
        return Path(folder, "new.tar.gz").read_bytes()


def changed_wheel(data: bytes, member: str, change: Change) -> bytes:
    """Change a member of a wheel, and its row in RECORD."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        content = {entry.filename: old.read(entry) for entry in old.infolist()}
        content[member] = change(content[member])
        (record,) = (name for name in content if name.endswith("/RECORD"))
        rows = list(csv.reader(content[record].decode().splitlines()))
        rows = [
            [name, record_hash(content[name]), str(len(content[name]))] if size else [name, "", ""]
            for name, _, size in rows
        ]
        content[record] = "".join(f"{','.join(row)}\n" for row in rows).encode()
        with zipfile.ZipFile(out, "w") as new:
            for entry in old.infolist():
                new.writestr(entry, content[entry.filename])
    return out.getvalue()


def replaced(old: bytes, new: bytes) -> Change:
    return lambda data: data.replace(old, new)


def forge(dist: Path, artifact: str, member: str = "", change: Change = bytes, in_sbom: Change = bytes) -> None:
    """Change a member of an artifact and its SBOM, and write all that is said of them anew."""
    manifest = json.loads((dist / "manifest.json").read_text())
    (entry,) = (each for each in manifest["artifacts"] if each["file"] == artifact)
    old = (dist / artifact).read_bytes()
    new = old
    sbom = (dist / entry["sbom"]["file"]).read_bytes()
    if member:
        new = (changed_wheel if artifact.endswith(".whl") else changed_tarball)(old, member, change)
    for record in entry["files"]:
        if record["path"] == member:
            content = change(original(old, artifact, member))
            old_hash, new_hash = record["sha256"].encode(), sha256(content).encode()
            record |= {"size": len(content), "sha256": new_hash.decode()}
            sbom = sbom.replace(old_hash, new_hash)
            if artifact.endswith(".whl"):
                new = changed_wheel(new, INNER, replaced(old_hash, new_hash))
    sbom = in_sbom(sbom.replace(entry["sha256"].encode(), sha256(new).encode()))
    entry |= {"size": len(new), "sha256": sha256(new)}
    entry["sbom"] |= {"size": len(sbom), "sha256": sha256(sbom)}
    (dist / artifact).write_bytes(new)
    (dist / entry["sbom"]["file"]).write_bytes(sbom)
    (dist / checksum_name(artifact)).write_text(f"{sha256(new)}  {artifact}\n")
    names = [each[part]["file"] if part else each["file"] for each in manifest["artifacts"] for part in ("", "sbom")]
    sums = [f"{sha256((dist / name).read_bytes())}  {name}\n" for name in sorted(names)]
    (dist / "SHA256SUMS").write_text("".join(sums))
    (dist / "manifest.json").write_text(json.dumps(manifest))


def original(data: bytes, artifact: str, member: str) -> bytes:
    if artifact.endswith(".whl"):
        with zipfile.ZipFile(io.BytesIO(data)) as wheel:
            return wheel.read(member)
    with tarfile.open(fileobj=io.BytesIO(data)) as tarball:
        file = tarball.extractfile(f"{artifact.removesuffix('.tar.gz')}/{member}")
        assert file is not None
        return file.read()


def problems(dist: Path) -> dict[str, tuple[str, ...]]:
    return {each.file: each.problems for each in verify_dist(dist)[0]}


def flip(data: bytes) -> bytes:
    """Change one byte of the code, which the signature covers."""
    at = data.index(b"\xc0\x03\x5f\xd6" * 16)
    return data[:at] + b"\x00" + data[at + 1 :]


def in_json(change: Callable[[Any], object]) -> Change:
    def changed(data: bytes) -> bytes:
        document = json.loads(data)
        change(document)
        return json.dumps(document, indent=2).encode() + b"\n"

    return changed


def part(document: Any, start: str) -> Any:
    return next(each for each in document["components"] if each["bom-ref"].startswith(start))


def other_hash(start: str) -> Change:
    return in_json(lambda document: part(document, start)["hashes"][0].update(content="0" * 64))


def removed(start: str) -> Change:
    return in_json(lambda document: document["components"].remove(part(document, start)))


def added(document: Any) -> None:
    row = part(document, "file/")
    document["components"].append({**row, "bom-ref": "file/lib/libother.dylib", "name": "lib/libother.dylib"})


WRONG_SBOMS: dict[str, tuple[Change, str]] = {
    "another hash of a library": (other_hash("file/"), f"about file/{LIBRARY}"),
    "a library is missing": (removed("file/"), f"about file/{LIBRARY}"),
    "a library too many": (in_json(added), "about file/lib/libother.dylib"),
    "another source": (other_hash("source/"), "about source/arm64 local/alpha-1.0-arm64.tar.gz"),
    "a source is missing": (removed("source/"), "about source/arm64 local/alpha-1.0-arm64.tar.gz"),
    "another version": (
        in_json(lambda document: document["metadata"]["component"].update(version="2.0")),
        "is about alpha 2.0, not alpha 1.0",
    ),
}


@pytest.mark.parametrize("artifact", [TARBALL, WHEEL])
def test_a_rewritten_dist_without_a_change_is_right(dist: Path, artifact: str) -> None:
    forge(dist, artifact, "include/alpha.h", lambda data: data + b"// more\n")
    assert problems(dist) == {TARBALL: (), WHEEL: ()}


@pytest.mark.parametrize("artifact", [TARBALL, WHEEL])
def test_a_wrong_signature_is_found_where_all_checksums_agree(dist: Path, artifact: str) -> None:
    forge(dist, artifact, LIBRARY, flip)
    found = problems(dist)
    assert [line.startswith(f"{LIBRARY} (arm64): ") for line in found[artifact]] == [True], found
    assert "page" in found[artifact][0]
    assert sum(map(len, found.values())) == 1


@pytest.mark.parametrize("artifact", [TARBALL, WHEEL])
@pytest.mark.parametrize("wrong", WRONG_SBOMS)
def test_an_sbom_that_disagrees_is_found_where_all_checksums_agree(dist: Path, artifact: str, wrong: str) -> None:
    change, problem = WRONG_SBOMS[wrong]
    forge(dist, artifact, in_sbom=change)
    found = problems(dist)
    assert [problem in line for line in found[artifact]] == [True], found
    assert sum(map(len, found.values())) == 1


@pytest.mark.parametrize("wrong", WRONG_SBOMS)
def test_an_sbom_inside_a_wheel_that_disagrees_is_found(dist: Path, wrong: str) -> None:
    change, problem = WRONG_SBOMS[wrong]
    forge(dist, WHEEL, INNER, change)
    found = problems(dist)
    assert [INNER in line and problem in line for line in found[WHEEL]] == [True], found
    assert found[TARBALL] == ()


def test_text_that_is_no_sbom_inside_a_wheel_is_found(dist: Path) -> None:
    forge(dist, WHEEL, INNER, lambda _: b"[]")
    assert problems(dist)[WHEEL] == (f"{INNER} is no SBOM of macbuild",)
