"""The pack step: turn a stage into an artifact, verified inside, with its SBOM and its row of the manifest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from macbuild.events import Meter
from macbuild.files import hash_file
from macbuild.macho.file import ParsedFile, read_loadable
from macbuild.macho.verify import verify_image
from macbuild.package.manifest import Binary, FileRecord, complete, record_tree, sbom_name
from macbuild.package.sbom import sbom
from macbuild.package.tarball import block_cache, pack_verified
from macbuild.package.wheel import build_wheel
from macbuild.plan.keys import tool_digest
from macbuild.plan.model import PackSpec
from macbuild.steps.context import Context
from macbuild.steps.manifest_entry import describe, describe_binary
from macbuild.store import Store
from macbuild.units import size

__all__ = ["pack_artifact"]


def pack_artifact(spec: PackSpec, stage: Path, report: Path, work: Path, context: Context, *, meter: Meter) -> str:
    """Write the artifact, its SBOM and `entry.json` into a folder.

    Parameters
    ----------
    spec
        The artifact to pack.
    stage, report
        The audited stage, and the report of the audit as JSON.
    work
        The empty folder to write to.
    context
        It has the store, where compressed blocks and the sha256 of files with a good signature are remembered, the
        folder of the recipe, for the project of a wheel, and the number of threads that compress.
    meter
        Called with the bytes done and their total.

    Returns
    -------
    str
        The file's name and size.
    """
    store, jobs = context.store, context.jobs
    records = record_tree(stage, jobs, meter)
    binaries = list(_verified_binaries(stage, records, store))
    data = json.loads(report.read_text("utf-8"))
    if spec.kind == "wheel":
        contents = describe(spec, data, records, binaries)
        embedded = sbom(contents, license=spec.recipe.license, epoch=spec.epoch, embedded=True)
        artifact = build_wheel(
            context.recipes.folder(spec.recipe.name),
            stage,
            work,
            name=spec.package,
            version=spec.version,
            target=spec.target,
            epoch=spec.epoch,
            sbom=embedded,
            jobs=jobs,
            requires=_requires(spec),
        )
    else:
        artifact = work / f"{spec.name}.tar.gz"
        cache = block_cache(store.root / "blocks")
        # Every member has the bytes of the stage, so what is verified there holds inside the artifact too.
        pack_verified(stage, artifact, records, top=spec.name, epoch=spec.epoch, jobs=jobs, cache=cache, progress=meter)
    length, sha256 = hash_file(artifact)
    contents = describe(spec, data, records, binaries, file=artifact.name, size=length, sha256=sha256)
    text = sbom(contents, license=spec.recipe.license, epoch=spec.epoch)
    (work / sbom_name(artifact.name)).write_text(text, "utf-8")
    (work / "entry.json").write_bytes(msgspec.json.encode(complete(contents, text)))
    return f"{artifact.name}, {size(length)}"


def _requires(spec: PackSpec) -> list[str]:
    """Return the Python packages, in exactly the versions that the stage was linked with.

    If these differ between its architectures, the project states them for each. It also states what is not linked.
    """
    packages = spec.recipe.build.python_packages if spec.recipe.build else {}
    names = [name for name, _ in spec.depends_on if name in packages]
    return [f"{packages[name]}=={number}" for name, number in spec.depends_on if names.count(name) == 1]


def _verified_binaries(stage: Path, records: Sequence[FileRecord], store: Store) -> Iterator[Binary]:
    """Describe every file that the loader takes, after its signature was verified."""
    for record in records:
        file = read_loadable(stage / record.path) if record.sha256 is not None else None
        if file is not None and record.sha256 is not None:
            _verify(file, record.sha256, store)
            yield describe_binary(record.path, file)


def _verify(file: ParsedFile, sha256: str, store: Store) -> None:
    """Verify the signature of a file, unless the same code has found one with the same bytes good before."""
    verifier = tool_digest("verify")
    if not store.is_verified(sha256, verifier):
        with file.open() as macho:
            for image in macho.images:
                verify_image(image)
        store.remember_verified(sha256, verifier)
