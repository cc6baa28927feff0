"""Audit a tree, a file or an archive: read it, apply every rule, and weigh the findings by the policy."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from macbuild.audit.context import AuditContext, ContextClaim, Hit
from macbuild.audit.graph import ExternalImage, build_graph
from macbuild.audit.memory import Memory
from macbuild.audit.model import AuditReport, AuditReports, Exempted, Exemption, ExportRule, Finding, Severity
from macbuild.audit.policy import Policy, check_rule
from macbuild.audit.providers import Providers, required_folders
from macbuild.audit.rules import CHECKS
from macbuild.audit.tree import AuditedTree, scan
from macbuild.documents import check_regular
from macbuild.errors import ArchiveError, MacbuildError, UsageError
from macbuild.files import files_below, os_errors
from macbuild.macho.file import is_macho
from macbuild.target import format_version, pack_version

if TYPE_CHECKING:
    from packaging.tags import Tag
    from packaging.utils import BuildTag, NormalizedName
    from packaging.version import Version

    from macbuild.source.archive.members import Member

__all__ = ["artifacts_of", "audit_path", "audit_paths", "audit_tree", "claim_of"]

_THIN = frozenset({"arm64", "x86_64"})
_TARBALL = re.compile(r".+-macos-(arm64|x86_64|universal2)\.(?:tar\.gz|tgz)")
_TAG = re.compile(r"macosx_(\d{1,3})_(\d{1,3})_(arm64|x86_64|universal2|intel)")
_ARM_MINIMUM = 11 << 16  # No older macOS runs on arm64.
_ARCHIVES = (".tar.gz", ".tgz", ".whl")
_MAX_MESSAGE = 2000  # Characters; a load command may hold a name of any length.
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def audit_tree(
    root: Path,
    policy: Policy,
    *,
    archs: frozenset[str] | None = None,
    exemptions: Iterable[Exemption] = (),
    exports: Mapping[str, ExportRule] | None = None,
    minimum_macos: str | None = None,
    verify_signatures: bool = True,
    providers: Sequence[Path] = (),
    requirements: Sequence[str] = (),
    memory: Memory | None = None,
) -> AuditReport:
    """Audit everything below a folder.

    Parameters
    ----------
    root
        The folder; paths in the report are relative to it.
    policy
        From `load_policy`.
    archs
        Thin architectures that each Mach-O file must have, no more and no less; None requires that all have the same.
    exemptions
        Accepted findings, in addition to those of the policy.
    exports
        Rules on exports, by a glob on the path or on the file name.
    minimum_macos
        The macOS that every slice must run on, such as `14.0`; None requires nothing.
    verify_signatures
        True to compute the page hashes of signatures; that there is a signature is always checked.
    providers
        Dylibs, stubs (`.tbd`) or folders with such files. Symbols that the artifact takes from other packages are
        checked against those of the same install name.
    requirements
        Other required distributions, as in `Requires-Dist`, in addition to those in the metadata of a wheel in the
        tree. A dependency that an rpath finds in the top-level folder of such a distribution is provided by it.
    memory
        Where facts that take long to read are kept, so that files that were audited before cost little.

    Raises
    ------
    UsageError
        If `root` is not a folder, or a provider does not exist.
    MachOError
        If a provider is malformed.
    FileError
        If something in it cannot be read.
    """
    if not root.is_dir():
        raise UsageError("is not a folder", where=root)
    claim = _explicit(archs, minimum_macos, ContextClaim())
    terms = _Terms(policy, claim, tuple(exemptions), exports or {}, Providers(providers, memory), tuple(requirements))
    return _judge(str(root), scan(root, policy.parameters, verify_signatures=verify_signatures, memory=memory), terms)


def audit_path(
    path: Path,
    policy: Policy,
    *,
    archs: frozenset[str] | None = None,
    exemptions: Iterable[Exemption] = (),
    exports: Mapping[str, ExportRule] | None = None,
    minimum_macos: str | None = None,
    verify_signatures: bool = True,
    providers: Sequence[Path] = (),
) -> AuditReport:
    """Audit a Mach-O file, a folder, a tarball or a wheel; archives are unpacked into a private temporary folder.

    An archive is measured by the claim of its file name (`-macos-arm64.tar.gz`, a platform tag such as
    `macosx_14_0_arm64`), unless `archs` or `minimum_macos` is given. The other parameters are those of `audit_tree`.

    Raises
    ------
    UsageError
        If `path` does not exist or is none of these, or a provider does not exist.
    MachOError
        If a provider is malformed.
    ArchiveError
        If the archive is damaged or hostile.
    FileError
        If something cannot be read.
    """
    _check_kind(path)
    claim = _explicit(archs, minimum_macos, claim_of(path.name))
    terms = _Terms(policy, claim, tuple(exemptions), exports or {}, Providers(providers))
    return _audit(path, terms, verify_signatures=verify_signatures)


def audit_paths(paths: Iterable[Path], policy: Policy, *, providers: Sequence[Path] = ()) -> AuditReports:
    """Audit several paths as `audit_path` does one; a path that cannot be audited hides no other.

    Raises
    ------
    UsageError
        If a provider does not exist.
    MachOError
        If a provider is malformed.
    FileError
        If a provider cannot be read.
    """
    known = Providers(providers)
    reports: list[AuditReport] = []
    failed: list[tuple[str, MacbuildError]] = []
    for path in paths:
        try:
            _check_kind(path)
            reports.append(_audit(path, _Terms(policy, claim_of(path.name), (), {}, known), verify_signatures=True))
        except MacbuildError as error:
            failed.append((str(path), error))
    return AuditReports(policy.name, tuple(reports), tuple(failed))


def artifacts_of(path: Path) -> list[Path]:
    """Return the paths to audit for one that is given: of a folder of artifacts, each wheel and tarball directly in it.

    Such a folder itself comes first if there are Mach-O files below it. Every other path stays as it is.

    Raises
    ------
    FileError
        If the folder cannot be read.
    """
    if not path.is_dir():
        return [path]
    with os_errors(path):
        artifacts = sorted(entry for entry in path.iterdir() if entry.name.endswith(_ARCHIVES) and entry.is_file())
    has_libraries = artifacts and any(file.is_file() and is_macho(file) for file in files_below(path))
    return [path, *artifacts] if has_libraries else artifacts or [path]


def _check_kind(path: Path) -> None:
    """Raise a `UsageError` unless a path is a folder or a regular file."""
    if not os.path.lexists(path):
        raise UsageError("there is no such file or folder", where=path)
    if not path.is_dir():
        check_regular(path, UsageError)


def _audit(path: Path, terms: _Terms, *, verify_signatures: bool) -> AuditReport:
    parameters = terms.policy.parameters
    if path.is_dir():
        tree = scan(path, parameters, verify_signatures=verify_signatures)
    elif path.name.endswith(_ARCHIVES):
        return _judge_archive(path, terms, verify_signatures=verify_signatures)
    elif is_macho(path):
        real = path.resolve()
        root = Path(real.anchor)
        base = real.parent.relative_to(root).as_posix()
        tree = AuditedTree(root, parameters, "" if base == "." else base, verify_signatures)
        tree.add(real.relative_to(root).as_posix())
    else:
        raise UsageError("is neither a Mach-O file, a folder, a .tar.gz nor a .whl", where=path)
    return _judge(str(path), tree, terms)


@dataclass(frozen=True)
class _Terms:
    """Everything that a tree is measured by."""

    policy: Policy
    claim: ContextClaim
    exemptions: tuple[Exemption, ...]
    exports: Mapping[str, ExportRule]
    providers: Providers
    requirements: tuple[str, ...] = ()
    wheel: tuple[str, str] | None = None


def _judge_archive(path: Path, terms: _Terms, *, verify_signatures: bool) -> AuditReport:
    from macbuild.source.archive.unpack import unpack

    if path.name.endswith(".whl"):
        terms = replace(terms, wheel=_wheel_name(path.name))
    with tempfile.TemporaryDirectory(prefix="macbuild-audit-") as folder:
        root = Path(folder, "content")
        stored: dict[str, Member] = {}
        unpack(path, root, seen=lambda member: stored.__setitem__(member.name, member))
        inside = list(root.iterdir())
        top = ""
        if not path.name.endswith(".whl") and len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink():
            root = inside[0]
            top = f"{root.name}/"
        tree = scan(root, terms.policy.parameters, verify_signatures=verify_signatures)
        for name in tree.entries:
            if top + name in stored:
                tree.restore(name, stored[top + name])
        return _judge(str(path), tree, terms)


def claim_of(name: str) -> ContextClaim:
    """Return the claim of an artifact's file name, an empty one if the name follows no convention.

    Raises
    ------
    ArchiveError
        If a wheel has no valid file name.
    """
    match = _TARBALL.fullmatch(name)
    if match:
        return ContextClaim(_slices(match[1]))
    if not name.endswith(".whl"):
        return ContextClaim()
    minimum: dict[str, int] = {}
    for platform in sorted({tag.platform for tag in _parse_wheel(name)[3]}):
        found = _TAG.fullmatch(platform)
        if found is None:
            continue
        tagged = int(found[1]) << 16 | int(found[2]) << 8
        for arch in _slices(found[3]):
            lowest = max(tagged, _ARM_MINIMUM) if arch == "arm64" else tagged
            minimum[arch] = min(lowest, minimum.get(arch, lowest))
    return ContextClaim(frozenset(minimum) or None, minimum, by_tag=True)


def _wheel_name(file: str) -> tuple[str, str]:
    name, version, _, _ = _parse_wheel(file)
    return name, str(version)


def _parse_wheel(file: str) -> tuple[NormalizedName, Version, BuildTag, frozenset[Tag]]:
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        return parse_wheel_filename(file)
    except InvalidWheelFilename as error:
        raise ArchiveError(f"not a valid wheel name: {error}", where=file) from error


def _slices(arch: str) -> frozenset[str]:
    return _THIN if arch == "universal2" else frozenset({"x86_64" if arch == "intel" else arch})


def _explicit(archs: frozenset[str] | None, minimum_macos: str | None, claim: ContextClaim) -> ContextClaim:
    wanted = claim.archs if archs is None else archs
    if minimum_macos is None:
        return ContextClaim(wanted, claim.minimum, claim.by_tag)
    packed = pack_version(minimum_macos)
    names = wanted or {"arm64", "arm64e", "x86_64"}
    return ContextClaim(wanted, {arch: max(packed, _ARM_MINIMUM) if arch != "x86_64" else packed for arch in names})


def _judge(path: str, tree: AuditedTree, terms: _Terms) -> AuditReport:
    policy = terms.policy
    external = ExternalImage(
        tuple(policy.parameters.external), required_folders(tree.root / tree.base, terms.requirements)
    )
    graph = build_graph(tree, external)
    context = AuditContext(tree, graph, terms.claim, policy.parameters, terms.exports, terms.providers, terms.wheel)
    accepted = [*terms.exemptions, *policy.exemptions]
    for entry in accepted:
        check_rule(entry.rule, f"exemption for {entry.file}")
    findings: list[Finding] = []
    exempted: list[Exempted] = []
    used: list[Exemption] = []
    for hit in (hit for check in CHECKS for hit in check(context)):
        finding = _weigh(hit, tree, policy)
        matching = [] if finding is None else [entry for entry in accepted if _accepts(entry, finding)]
        used += matching
        if finding is not None and matching:
            exempted.append(Exempted(finding, matching[0].reason))
        elif finding is not None:
            findings.append(finding)
    unused = [entry for entry in terms.exemptions if entry not in used and _applies(entry, terms)]
    findings += filter(None, (_weigh(_unused(entry), tree, policy) for entry in unused))
    minima = [entry.build.minos for entry in context.linked() if entry.build is not None]
    return AuditReport(
        path=path,
        policy=policy.name,
        findings=tuple(sorted(findings, key=_order)),
        exempted=tuple(sorted(exempted, key=lambda entry: _order(entry.finding))),
        files=len(tree.machos),
        minimum_macos=format_version(max(minima)) if minima else None,
        archs=tuple(sorted({entry.arch for entry in tree.slices()})),
    )


def _weigh(hit: Hit, tree: AuditedTree, policy: Policy) -> Finding | None:
    level = policy.level(hit.rule)
    if level is None:
        return None
    return Finding(hit.rule, level, _printable(tree.label(hit.path)), hit.slice, _short(hit.message), _short(hit.hint))


def _short(text: str) -> str:
    text = _printable(text)
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."


def _printable(text: str) -> str:
    """Return a text that can be shown and encoded, whatever bytes a load command or a file name has."""
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in plain)


def _applies(exemption: Exemption, terms: _Terms) -> bool:
    """Tell if an exemption could accept something: a thin tree lacks no architecture, and a rule may be off."""
    if terms.policy.level(exemption.rule) is None:
        return False
    return exemption.rule != "arch-missing" or len(terms.claim.archs or ()) > 1


def _unused(exemption: Exemption) -> Hit:
    message = f"the exemption from {exemption.rule} accepts nothing ({exemption.reason})"
    return Hit("unused-exemption", exemption.file, None, message, "remove it from audit.exempt, or correct its path")


def _accepts(exemption: Exemption, finding: Finding) -> bool:
    return exemption.rule == finding.rule and fnmatchcase(finding.file, exemption.file)


def _order(finding: Finding) -> tuple[int, str, str, str, str]:
    return _ORDER[finding.severity], finding.rule, finding.file, finding.slice or "", finding.message
