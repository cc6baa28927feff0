"""Write and read `manifest.json`: the contents of `dist/`, their sources and the audit's results.

The file holds no time, no host and no path of the machine that wrote it, so that equal artifacts have equal manifests.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from macbuild.data import Data, from_json, from_plain, schema_of
from macbuild.errors import ArchiveError, FileError
from macbuild.events import Meter, silent
from macbuild.files import hash_file, os_errors
from macbuild.package.tree import TreeEntry, tree_entries
from macbuild.target import Arch

__all__ = [
    "FORMAT",
    "ArtifactContents",
    "ArtifactEntry",
    "AuditRecord",
    "Binary",
    "DependencyRecord",
    "ExemptedRecord",
    "FileRecord",
    "FindingRecord",
    "Manifest",
    "Mode",
    "PlatformRecord",
    "Sidecar",
    "SourceFile",
    "checksum_name",
    "complete",
    "encode",
    "load_manifest",
    "record_tree",
    "sbom_name",
    "schema",
]

FORMAT: Literal[1] = 1
_SUFFIXES = (".tar.gz", ".whl")

FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*$(?!\n)", max_length=200)]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
Size = Annotated[int, msgspec.Meta(ge=0)]
Mode: TypeAlias = Literal["0644", "0755"]
Version = Annotated[str, msgspec.Meta(pattern=r"^\d+(\.\d+)*$(?!\n)")]


class FileRecord(Data, frozen=True, kw_only=True):
    """A file or link of a tree: files have size in bytes, sha256 and mode, links have only the path they point to."""

    path: str
    size: Size | None = None
    sha256: Sha256 | None = None
    mode: Mode | None = None
    link: str | None = None


class PlatformRecord(Data, frozen=True, kw_only=True):
    """The platform that an artifact is for."""

    os: Literal["macos"]
    arch: Arch
    deployment: Version


class DependencyRecord(Data, frozen=True, kw_only=True):
    """A dependency at run time that an artifact does not contain: a library of the system or of others, a component."""

    name: str
    kind: Literal["system", "component", "external"]
    version: str | None = None


class Binary(Data, frozen=True, kw_only=True):
    """A library or program inside: its install name, architectures, and what any slice of it needs, as it names it."""

    path: str
    install_name: str | None = None
    archs: list[str]
    needs: list[str]


class SourceFile(Data, frozen=True, kw_only=True):
    """The pinned bytes that an artifact was made from: the source in the recipe, the request, and the file."""

    name: str
    provider: str
    request: str
    file: str
    size: Size
    sha256: Sha256


class FindingRecord(Data, frozen=True, kw_only=True):
    """A finding of the audit; `file` is the path in the artifact, `slice` the architecture of the image in it."""

    rule: str
    severity: str
    file: str
    slice: str | None = None
    message: str
    hint: str | None = None


class ExemptedRecord(FindingRecord, frozen=True, kw_only=True):
    """A finding that the recipe excuses, and why."""

    reason: str


class AuditRecord(Data, frozen=True, kw_only=True):
    """The audit's result for an artifact, and the policy."""

    policy: str
    ok: bool
    findings: list[FindingRecord]
    exempted: list[ExemptedRecord]


class ArtifactContents(Data, frozen=True, kw_only=True):
    """An artifact once it is packed: everything but its SBOM, which is made from this."""

    file: FileName
    size: Size
    sha256: Sha256
    component: Annotated[str, Meta(description="the recipe that it was made by")]
    component_version: Annotated[str, Meta(description="the release of the recipe")]
    distribution: Annotated[str, Meta(description="the name that users install or unpack it by")]
    target: PlatformRecord
    minimum_macos: Annotated[Version, Meta(description="the maximum over all Mach-O files inside, read from the files")]
    files: Annotated[list[FileRecord], Meta(description="every file and link inside")]
    binaries: list[Binary]
    dependencies: Annotated[list[DependencyRecord], Meta(description="what it needs at run time and does not hold")]
    sources: Annotated[list[SourceFile], Meta(description="the pinned bytes it was made from")]
    tools: Annotated[dict[str, str], Meta(description="what made the artifact, with versions")]
    audit: AuditRecord


class Sidecar(Data, frozen=True, kw_only=True):
    """A small file beside an artifact."""

    file: FileName
    size: Size
    sha256: Sha256


class ArtifactEntry(ArtifactContents, frozen=True, kw_only=True):
    """An artifact with its SBOM: one row of the manifest."""

    sbom: Sidecar


class Manifest(Data, frozen=True, kw_only=True):
    """The whole file."""

    version: Literal[1]
    artifacts: list[ArtifactEntry]


class _Versioned(msgspec.Struct):
    version: Any = None


def sbom_name(artifact: str) -> str:
    """Return the file name of an artifact's SBOM: `x.cdx.json` for `x.tar.gz` and `x.whl`."""
    for suffix in _SUFFIXES:
        artifact = artifact.removesuffix(suffix)
    return f"{artifact}.cdx.json"


def checksum_name(artifact: str) -> str:
    """Return the file name of an artifact's checksum."""
    return f"{artifact}.sha256"


def complete(contents: ArtifactContents, sbom: str) -> ArtifactEntry:
    """Return the row of the manifest for an artifact and the text of its SBOM.

    Raises
    ------
    ArchiveError
        A value does not have the form that the schema requires, so the manifest could not be read again.
    """
    data = sbom.encode()
    sidecar = Sidecar(file=sbom_name(contents.file), size=len(data), sha256=hashlib.sha256(data).hexdigest())
    try:
        return from_plain(msgspec.to_builtins(contents) | {"sbom": msgspec.to_builtins(sidecar)}, ArtifactEntry)
    except msgspec.ValidationError as error:
        raise ArchiveError(f"cannot be described in the manifest: {error}", where=contents.file) from error


def record_tree(tree: Path, jobs: int, progress: Meter = silent) -> list[FileRecord]:
    """Return a record of each file and link below a folder, sorted by the bytes of the path.

    Parameters
    ----------
    tree
        A staged tree.
    jobs
        Files that are hashed at the same time.
    progress
        Called with the bytes done and the total, in the caller's thread.

    Raises
    ------
    ArchiveError
        The tree holds something that an artifact must not hold; see `macbuild.package.tree.tree_entries`.
    FileError
        A file cannot be read.
    """

    def record(entry: TreeEntry) -> FileRecord:
        if entry.kind == "link":
            return FileRecord(path=entry.path, link=entry.target)
        size, sha256 = hash_file(tree / entry.path)
        return FileRecord(path=entry.path, size=size, sha256=sha256, mode="0755" if entry.mode & 0o100 else "0644")

    entries = [entry for entry in tree_entries(tree) if entry.kind != "folder"]
    total = sum(entry.size for entry in entries)
    done = 0
    records = []
    with ThreadPoolExecutor(jobs) as pool:
        for entry, found in zip(entries, pool.map(record, entries), strict=True):
            records.append(found)
            done += entry.size
            progress(done, total)
    return records


def encode(manifest: Manifest) -> bytes:
    """Return the text of a manifest: sorted by name, indented by two spaces, with a final line feed."""
    ordered = Manifest(version=FORMAT, artifacts=sorted(manifest.artifacts, key=lambda entry: entry.file))
    return msgspec.json.format(msgspec.json.encode(ordered, order="sorted"), indent=2) + b"\n"


def load_manifest(path: Path) -> Manifest:
    """Read a manifest; a missing file is an empty manifest.

    Raises
    ------
    FileError
        It cannot be read, is damaged, or is of an unknown version.
    """
    try:
        with os_errors(path):
            data = path.read_bytes()
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return Manifest(version=FORMAT, artifacts=[])
        raise
    hint = "delete it and run again: it is rebuilt"
    try:
        version = from_json(data, _Versioned).version
        if version != FORMAT:
            raise FileError(f"is of version {version!r}, this macbuild writes {FORMAT}", where=path, hint=hint)
        return from_json(data, Manifest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FileError(f"is damaged: {error}", where=path, hint=hint) from error


def schema() -> str:
    """Return the JSON schema of the manifest, as it is shipped in `manifest.schema.json`."""
    definition = schema_of(Manifest, "macbuild manifest")
    return msgspec.json.format(msgspec.json.encode(definition, order="sorted"), indent=2).decode() + "\n"
