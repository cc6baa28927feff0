"""Know by evidence which symbols the libraries of macOS have since when, and write stubs to link against.

The evidence is data, `cmake/stubs/<library>.toml`, which `macbuild stubs collect` reads out of published wheels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from macbuild.config import bundled
from macbuild.data import Data, load_toml
from macbuild.errors import ConfigError, UsageError
from macbuild.files import os_errors
from macbuild.macho.tbd import Stub, write_stub
from macbuild.target import pack_version

__all__ = [
    "ARCHS",
    "Evidence",
    "EvidenceClaim",
    "EvidenceFile",
    "Group",
    "evidence_folder",
    "framework_name",
    "leaf_name",
    "load_evidence",
    "write_stubs",
]

ARCHS = ("arm64", "x86_64")
_LEAF = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,99}")


class Group(Data, frozen=True):
    """Symbols whose lowest macOS was seen in one wheel; `symbols` has one name a line.

    `macos` is the minimum that file and wheel claim, `sdk` the SDK that the file was linked with (0.0 if it does not
    tell): the symbol is claimed to be in the former and known to be in the latter. A group added by hand names the
    public document that declares its symbols in place of a wheel.
    """

    arch: str
    macos: str
    sdk: str
    wheel: str
    symbols: str


class EvidenceFile(Data, frozen=True):
    """The contents of a file of `cmake/stubs` about one library.

    Of the versions in load commands, the greatest current and the lowest compatibility version were kept; `weak` has
    the names, one a line, that are weak definitions in the library.
    """

    install_name: str
    current_version: str
    compatibility_version: str
    weak: str = ""
    evidence: list[Group] = []


class EvidenceClaim(NamedTuple):
    """The evidence for one symbol: lowest macOS, the SDK and the wheel that it was seen with."""

    macos: str
    sdk: str
    wheel: str


@dataclass(frozen=True)
class Evidence:
    """The evidence for one library of macOS."""

    file: EvidenceFile

    @property
    def install_name(self) -> str:
        """The name that is recorded in what links against the library."""
        return self.file.install_name

    @cached_property
    def weak(self) -> frozenset[str]:
        """Names that are weak definitions in the library, so that another image may replace them."""
        return frozenset(self.file.weak.split())

    @cached_property
    def claims(self) -> Mapping[str, Mapping[str, EvidenceClaim]]:
        """The claim for each symbol, by architecture."""
        found: dict[str, dict[str, EvidenceClaim]] = {}
        for group in self.file.evidence:
            claim = EvidenceClaim(group.macos, group.sdk, group.wheel)
            found.setdefault(group.arch, {}).update(dict.fromkeys(group.symbols.split(), claim))
        return found

    def claim(self, symbol: str, arch: str) -> EvidenceClaim | None:
        """Return the evidence for a symbol, or None. arm64e images find there what arm64 images do."""
        return self.claims.get("arm64" if arch == "arm64e" else arch, {}).get(symbol)

    def lowest(self, symbol: str, arch: str) -> str | None:
        """Return the lowest macOS, as `13.3`, for which there is evidence of a symbol, or None.

        For arm64 it is at least 11.0, the first macOS of that architecture, whatever lower version a file claims.
        """
        claim = self.claim(symbol, arch)
        return claim.macos if claim else None

    def symbols(self, arch: str, deployment: str) -> list[str]:
        """Return the symbols with evidence at a deployment target, as `11.0`, sorted."""
        target = pack_version(deployment)
        groups = [group for group in self.file.evidence if group.arch == arch and pack_version(group.macos) <= target]
        return sorted(name for group in groups for name in group.symbols.split())


class _Libraries(Mapping[str, Evidence]):
    """Evidence by install name. A file is read when its library is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Evidence:
        leaf = leaf_name(name)
        path = self._folder / f"{leaf}.toml"
        if _LEAF.fullmatch(leaf) and path.is_file():
            found = self._read(path)
            if framework_name(found.install_name) == framework_name(name):
                return found
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (self._read(path).install_name for path in sorted(self._folder.glob("*.toml")))

    def __len__(self) -> int:
        return len(list(self._folder.glob("*.toml")))

    @staticmethod
    def _read(path: Path) -> Evidence:
        with os_errors(path):
            return _read(path, path.stat().st_mtime_ns)


def framework_name(install_name: str) -> str:
    """Return an install name without the version folder of a framework, which some linkers leave out."""
    return re.sub(r"(\.framework)/Versions/[^/]+/", r"\1/", install_name)


def leaf_name(install_name: str) -> str:
    """Return the name of the files about a library, without their suffix: `libc++.1`, `Metal`."""
    return install_name.rpartition("/")[2].removesuffix(".dylib")


def evidence_folder() -> Path:
    """Return the folder of the evidence that macbuild ships."""
    return bundled("cmake") / "stubs"


def load_evidence(folder: Path | None = None) -> Mapping[str, Evidence]:
    """Return the evidence by install name; a framework is also found by its name without the version folder.

    Parameters
    ----------
    folder
        Where the files are; those of macbuild itself by default.

    Raises
    ------
    ConfigError
        When a library is looked up whose file is malformed.
    """
    return _Libraries(folder or evidence_folder())


@cache
def _read(path: Path, _modified: int) -> Evidence:
    return Evidence(load_toml(path, EvidenceFile, ConfigError))


def write_stubs(folder: Path, arch: str, deployment: str, evidence: Path | None = None) -> dict[str, Path]:
    """Write a stub for each library, with only the symbols that have evidence at the deployment target.

    What is weak in the library is weak in the stub: operator new and delete, and the typeinfo of some exceptions. Both
    Apple's linker and zig's then bind it to the library and list it for coalescing too (BIND_OPCODE weak binds), so
    that a process which replaces operator new replaces it for all its images. In a plain stub it would be bound to
    libc++ alone, and memory of one allocator could be given back to another.

    Parameters
    ----------
    folder
        Is made if missing; receives `<leaf of the install name>.tbd` per library.
    arch
        `arm64` or `x86_64`.
    deployment
        The deployment target, as `11.0`.
    evidence
        Folder of the evidence; that of macbuild itself by default.

    Returns
    -------
    dict
        The stub of each install name.

    Raises
    ------
    UsageError
        For another architecture, or for text that is not a version.
    FileError
        If the folder cannot be written.
    """
    if arch not in ARCHS:
        raise UsageError(f"there are no stubs for {arch}", hint=f"choose from {', '.join(ARCHS)}")
    stubs = {}
    with os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, library in load_evidence(evidence).items():
            path = folder / f"{leaf_name(name)}.tbd"
            path.write_text(write_stub(_stub(library, arch, deployment)), "utf-8")
            stubs[name] = path
    return stubs


def _stub(evidence: Evidence, arch: str, deployment: str) -> Stub:
    names = frozenset(evidence.symbols(arch, deployment))
    return Stub(
        install_name=evidence.install_name,
        arch=arch,
        symbols=names,
        weak=names & evidence.weak,
        current=evidence.file.current_version,
        compatibility=evidence.file.compatibility_version,
    )
