"""Verify a folder of artifacts as its receiver: checksums, signatures, SBOMs and the manifest must agree."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from macbuild.audit import audit_path, load_policy
from macbuild.errors import MacbuildError, UsageError
from macbuild.files import hash_file, os_errors
from macbuild.package.dist import CHECKSUMS, MANIFEST
from macbuild.package.manifest import ArtifactEntry, checksum_name, load_manifest
from macbuild.package.sbom import stated_hashes
from macbuild.package.tarball import verify_tarball
from macbuild.package.wheel import verify_wheel
from macbuild.package.zip import read_zip

__all__ = ["Verified", "verify_dist"]

_SIGNATURES = frozenset({"malformed", "signature", "unsigned", "unsigned-arm64"})
_EMBEDDED = re.compile(r"[^/]+\.dist-info/sboms/.+\.json")


@dataclass(frozen=True)
class Verified:
    """An artifact that the manifest lists, with what is wrong with it."""

    file: str
    problems: tuple[str, ...]


def verify_dist(folder: Path) -> tuple[list[Verified], list[str]]:
    """Verify every artifact that the manifest of a folder lists.

    Parameters
    ----------
    folder
        It has the artifacts and everything that `macbuild all` puts beside them. Nothing in it is trusted.

    Returns
    -------
    tuple[list[Verified], list[str]]
        The artifacts, and the names of files that belong to none.

    Raises
    ------
    UsageError
        There is no manifest.
    FileError
        The manifest is damaged, or something cannot be read.
    """
    if not folder.is_dir():
        raise UsageError("is not a folder", where=folder, hint="name the folder that --dist named")
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"has no {MANIFEST}", where=folder, hint="name the folder that --dist named")
    entries = load_manifest(folder / MANIFEST).artifacts
    listed = {MANIFEST, CHECKSUMS}
    found = []
    for entry in entries:
        listed |= {entry.file, checksum_name(entry.file), entry.sbom.file}
        found.append(Verified(entry.file, tuple(_problems(folder, entry))))
    with os_errors(folder):
        strangers = sorted(path.name for path in folder.iterdir() if path.name not in listed)
    return found, strangers


def _problems(folder: Path, entry: ArtifactEntry) -> Iterator[str]:
    path = folder / entry.file
    if not path.is_file():
        yield "does not exist"
        return
    if hash_file(path) != (entry.size, entry.sha256):
        yield "is not the file that the manifest lists"
        return
    yield from _checksums(folder, entry)
    yield from _sbom(folder, entry)
    for check in (partial(_contents, path, entry), partial(_embedded, path, entry), partial(_signatures, path)):
        yield from _said(check)


def _said(check: Callable[[], list[str]]) -> list[str]:
    """Return what a check finds, or the error that ends it: the other checks are made as well."""
    try:
        return check()
    except MacbuildError as error:
        return [str(error)]


def _checksums(folder: Path, entry: ArtifactEntry) -> Iterator[str]:
    line = f"{entry.sha256}  {entry.file}\n".encode()
    if _read(folder / checksum_name(entry.file)) != line:
        yield f"{checksum_name(entry.file)} has another checksum"
    lines = _read(folder / CHECKSUMS).splitlines(keepends=True)
    for name, sha256 in ((entry.file, entry.sha256), (entry.sbom.file, entry.sbom.sha256)):
        if f"{sha256}  {name}\n".encode() not in lines:
            yield f"{CHECKSUMS} does not list {name} with this checksum"


def _sbom(folder: Path, entry: ArtifactEntry) -> Iterator[str]:
    """Yield what is wrong with the SBOM: its own bytes, and what it says of the artifact and its parts."""
    path = folder / entry.sbom.file
    if not path.is_file() or hash_file(path) != (entry.sbom.size, entry.sbom.sha256):
        yield f"{entry.sbom.file} is not the file that the manifest lists"
        return
    yield from _disagreements(entry.sbom.file, _read(path), entry, embedded=False)


def _disagreements(name: str, text: bytes, entry: ArtifactEntry, *, embedded: bool) -> Iterator[str]:
    """Yield where an SBOM and the manifest differ; one inside the artifact does not state the artifact's hash."""
    try:
        data = json.loads(text)
        stated = {part["bom-ref"]: part["hashes"][0]["content"] for part in data["components"] if "hashes" in part}
        subject = data["metadata"]["component"]
        about = subject["name"], subject["version"]
        whole = entry.sha256 if embedded else subject["hashes"][0]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        yield f"{name} is no SBOM of macbuild"
        return
    if about != (entry.distribution, entry.component_version):
        yield f"{name} is about {' '.join(map(str, about))}, not {entry.distribution} {entry.component_version}"
    if whole != entry.sha256:
        yield f"{name} is about another file"
    wanted = stated_hashes(entry)
    for part in sorted(stated.keys() | wanted.keys()):
        if stated.get(part) != wanted.get(part):
            yield f"{name} and the manifest differ about {part}"


def _embedded(path: Path, entry: ArtifactEntry) -> list[str]:
    """Compare the SBOM inside a wheel (PEP 770) with the manifest."""
    if not path.name.endswith(".whl"):
        return []
    found = {member.name: member.data for member in read_zip(path) if _EMBEDDED.fullmatch(member.name)}
    if not found:
        return ["has no SBOM inside"]
    return [line for name, text in found.items() for line in _disagreements(name, text, entry, embedded=True)]


def _contents(path: Path, entry: ArtifactEntry) -> list[str]:
    """Compare every file in an artifact with its record; the first difference is an error."""
    expected = {record.path: record for record in entry.files}
    if path.name.endswith(".whl"):
        verify_wheel(path, expected)
    else:
        verify_tarball(path, expected, top=path.name.removesuffix(".tar.gz"))
    return []


def _signatures(path: Path) -> list[str]:
    findings = [one for one in audit_path(path, load_policy("release")).findings if one.rule in _SIGNATURES]
    return [f"{one.file}{f' ({one.slice})' if one.slice else ''}: {one.message}" for one in findings]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
