"""Write the software bill of materials of an artifact: CycloneDX 1.6 as JSON, the same text for the same artifact."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from macbuild.package.manifest import ArtifactContents, FileRecord, SourceFile

if TYPE_CHECKING:
    from cyclonedx.model import HashType, Property
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License
    from packageurl import PackageURL

__all__ = ["sbom", "stated_hashes"]

_LIBRARIES = (".dylib", ".so")
_PROGRAMS = "bin/"


def sbom(contents: ArtifactContents, *, license: str, epoch: int, embedded: bool = False) -> str:
    """Return the SBOM of an artifact: what it was made from, what it holds and what it needs.

    The document describes the artifact (with its sha256), each source with its package URL and sha256, each library
    and program inside, and each other component that it needs. Libraries of macOS are left out: they are in the
    manifest. Its serial number is a UUID of the rest of the text.

    Parameters
    ----------
    contents
        The artifact, as the manifest has it.
    license
        Its licence: an SPDX identifier or expression where there is one, else a name.
    epoch
        The document's time, in seconds since 1970.
    embedded
        Whether the document goes into the artifact. It cannot state the artifact's hash then, and need not state its
        file name.
    """
    # The library takes 0.3 s to import, and most runs make no SBOM.
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output.json import JsonV1Dot6

    subject = _subject(contents, license, embedded=embedded)
    parts = list(_parts(contents))
    metadata = BomMetaData(
        component=subject,
        timestamp=dt.datetime.fromtimestamp(epoch, tz=dt.timezone.utc),
        tools=ToolRepository(components=_tools(contents)),
    )
    bom = Bom(components=parts, metadata=metadata, serial_number=uuid.UUID(int=0))
    bom.register_dependency(subject, parts)
    for part in parts:
        bom.register_dependency(part)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, JsonV1Dot6(bom).output_as_string())
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def stated_hashes(contents: ArtifactContents) -> dict[str, str]:
    """Return the sha256 of each source and of each library and program, by its reference in the SBOM."""
    sources = {_source_ref(source): source.sha256 for source in contents.sources}
    return sources | {_file_ref(file): file.sha256 for file in contents.files if file.sha256 and _is_binary(file)}


def _source_ref(source: SourceFile) -> str:
    return f"source/{source.name}/{source.file}"


def _file_ref(file: FileRecord) -> str:
    return f"file/{file.path}"


def _subject(contents: ArtifactContents, license: str, *, embedded: bool) -> Component:
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    target = contents.target
    qualifiers = {"arch": target.arch, "os": target.os} | ({} if embedded else {"file_name": contents.file})
    # An embedded document is inside a wheel, whose name is not known yet.
    kind = "pypi" if embedded or contents.file.endswith(".whl") else "generic"
    return Component(
        name=contents.distribution,
        version=contents.component_version,
        type=ComponentType.LIBRARY,
        bom_ref=f"artifact/{contents.distribution}" if embedded else contents.file,
        hashes=[] if embedded else _hashes(contents.sha256),
        licenses=[_license(license)],
        purl=PackageURL(kind, None, contents.distribution, contents.component_version, qualifiers),
        properties=_properties({"minimum_macos": contents.minimum_macos, "deployment_target": target.deployment}),
    )


def _license(text: str) -> License:
    from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement, LicenseExpression
    from cyclonedx.spdx import is_expression, is_supported_id

    declared = LicenseAcknowledgement.DECLARED
    if is_supported_id(text):
        return DisjunctiveLicense(id=text, acknowledgement=declared)
    if is_expression(text):
        return LicenseExpression(text, acknowledgement=declared)
    return DisjunctiveLicense(name=text, acknowledgement=declared)


def _parts(contents: ArtifactContents) -> Iterator[Component]:
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    for source in contents.sources:
        purl = _purl(source)
        yield Component(
            name=purl.name,
            version=purl.version,
            group=purl.namespace,
            bom_ref=_source_ref(source),
            hashes=_hashes(source.sha256),
            purl=purl,
            properties=_properties({"source": source.name, "file": source.file}),
        )
    for file in contents.files:
        if file.sha256 is not None and _is_binary(file):
            yield Component(
                name=file.path, type=ComponentType.FILE, bom_ref=_file_ref(file), hashes=_hashes(file.sha256)
            )
    for needed in contents.dependencies:
        if needed.kind == "component":
            yield Component(
                name=needed.name,
                version=needed.version,
                bom_ref=f"component/{needed.name}@{needed.version}",
                purl=PackageURL("generic", None, needed.name, needed.version),
            )


def _is_binary(file: FileRecord) -> bool:
    return file.path.endswith(_LIBRARIES) or file.path.startswith(_PROGRAMS)


def _tools(contents: ArtifactContents) -> list[Component]:
    from cyclonedx.model.component import Component, ComponentType

    return [
        Component(name=name, version=version, type=ComponentType.APPLICATION, bom_ref=f"tool/{name}")
        for name, version in sorted(contents.tools.items())
    ]


def _hashes(sha256: str) -> list[HashType]:
    from cyclonedx.model import HashAlgorithm, HashType

    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)]


def _properties(values: dict[str, str]) -> list[Property]:
    from cyclonedx.model import Property

    return [Property(name=f"macbuild:{name}", value=value) for name, value in values.items()]


def _purl(source: SourceFile) -> PackageURL:
    """Return the package URL (github.com/package-url/purl-spec) of a source, from its request.

    Requests are those of `macbuild.source.fetch.sources`: `wheel NAME==VERSION TAGS`, `npm NAME@VERSION`,
    `git URL COMMIT`, `url [file=NAME] URL...`, `file PATH`; and `project NAME==VERSION` for source that comes with the
    recipe. The path of a local file means nothing to others and is left out.
    """
    from packageurl import PackageURL

    words = source.request.removeprefix(f"{source.provider} ").split(" ")
    if source.provider == "wheel":
        name, _, version = words[0].partition("==")
        return PackageURL("pypi", None, name, version, {"file_name": source.file})
    if source.provider == "project":
        name, _, version = words[0].partition("==")
        return PackageURL("generic", None, name, version, {"checksum": f"sha256:{source.sha256}"})
    if source.provider == "npm":
        path, _, version = words[0].rpartition("@")
        scope, _, name = path.rpartition("/")
        return PackageURL("npm", scope or None, name, version)
    if source.provider == "git":
        name = words[0].rstrip("/").rpartition("/")[2].removesuffix(".git")
        return PackageURL("generic", None, name, words[-1], {"vcs_url": f"git+{words[0]}@{words[-1]}"})
    qualifiers = {"checksum": f"sha256:{source.sha256}"}
    if source.provider == "url":
        qualifiers["download_url"] = next((word for word in words if "://" in word), "")
    return PackageURL("generic", None, source.file, None, qualifiers)
