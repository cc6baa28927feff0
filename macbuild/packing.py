"""The pack step: a stage becomes an artifact, verified inside, with its SBOM and its row of the manifest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from macbuild.describe import describe
from macbuild.events import Meter
from macbuild.files import hash_file
from macbuild.ingredients import tool_digest
from macbuild.macho.file import is_macho
from macbuild.macho.verify import verify_file
from macbuild.package.manifest import FileRecord, complete, record_tree, sbom_name
from macbuild.package.sbom import sbom
from macbuild.package.tarball import block_cache, pack_verified
from macbuild.package.wheel import build_wheel
from macbuild.plan import PackSpec
from macbuild.store import Store

__all__ = ["pack_artifact"]


def pack_artifact(
    spec: PackSpec, stage: Path, report: Path, store: Store, recipes: Path, jobs: int, meter: Meter, work: Path
) -> str:
    """Write the artifact, its SBOM and `entry.json` into a folder.

    Parameters
    ----------
    spec
        What to pack.
    stage, report
        The audited stage, and what the audit said, as JSON.
    store
        Where compressed blocks and the sha256 of files with a good signature are remembered.
    recipes
        Folder of the recipes, for the project of a wheel.
    jobs
        Threads that compress.
    meter
        Called with the bytes done and their total.
    work
        The folder; empty.

    Returns
    -------
    str
        The file's name and size.
    """
    records = record_tree(stage, jobs, meter)
    _verify_signatures(stage, records, store)
    data = json.loads(report.read_text("utf-8"))
    if spec.kind == "wheel":
        contents = describe(spec, stage, data, records)
        embedded = sbom(contents, license=spec.recipe.license, epoch=spec.epoch, embedded=True)
        artifact = build_wheel(
            recipes / spec.recipe.name,
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
    size, sha256 = hash_file(artifact)
    contents = describe(spec, stage, data, records, file=artifact.name, size=size, sha256=sha256)
    text = sbom(contents, license=spec.recipe.license, epoch=spec.epoch)
    (work / sbom_name(artifact.name)).write_text(text, "utf-8")
    (work / "entry.json").write_bytes(msgspec.json.encode(complete(contents, text)))
    return f"{artifact.name}, {size / 1e6:.1f} MB"


def _requires(spec: PackSpec) -> list[str]:
    """Return the Python packages of the very versions that the stage was linked with.

    If these differ between its architectures, the project states them for each. It also states what is not linked.
    """
    packages = spec.recipe.build.python_packages if spec.recipe.build else {}
    names = [name for name, _ in spec.leans_on if name in packages]
    return [f"{packages[name]}=={number}" for name, number in spec.leans_on if names.count(name) == 1]


def _verify_signatures(stage: Path, records: Sequence[FileRecord], store: Store) -> None:
    """Verify every Mach-O file, but those with the bytes of one that was found good before by the same code."""
    verifier = tool_digest("verify")
    for record in records:
        if record.sha256 is None or store.is_verified(record.sha256, verifier) or not is_macho(stage / record.path):
            continue
        verify_file(stage / record.path)
        store.remember_verified(record.sha256, verifier)
