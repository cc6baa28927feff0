"""Describe targets (architecture and deployment target) and the host."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from macbuild.errors import ConfigError, UsageError

__all__ = [
    "Arch",
    "Host",
    "Target",
    "detect_host",
    "format_version",
    "macos_exists",
    "pack_version",
    "parse_arch",
    "parse_deployment",
    "parse_version",
]

Arch: TypeAlias = Literal["arm64", "x86_64", "universal2"]
_NEWEST_MACOS = 28  # one more than the newest that is out
_ALIASES = {"aarch64": "arm64", "amd64": "x86_64", "x64": "x86_64", "intel": "x86_64", "universal": "universal2"}


def parse_version(text: str) -> tuple[int, ...]:
    """Return a dotted version as numbers, without trailing zeros, so that 14 and 14.0 are equal."""
    numbers = [int(part) for part in text.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def format_version(packed: int) -> str:
    """Return a Mach-O version, packed as X.Y.Z in 16, 8 and 8 bits, as `X.Y` or `X.Y.Z`."""
    major, minor, patch = packed >> 16, packed >> 8 & 0xFF, packed & 0xFF
    return f"{major}.{minor}.{patch}" if patch else f"{major}.{minor}"


def pack_version(text: str) -> int:
    """Return `X`, `X.Y` or `X.Y.Z` packed in 16, 8 and 8 bits, as Mach-O has it; else a `UsageError`."""
    match = re.fullmatch(r"(\d{1,5})(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?", text)
    numbers = [int(part or 0) for part in match.groups()] if match else [1 << 16]
    if numbers[0] > 0xFFFF or max(numbers[1:], default=0) > 0xFF:
        raise UsageError(f"{text!r} is not a version", hint="write it as 14.0 or 13.4.1")
    return numbers[0] << 16 | numbers[1] << 8 | numbers[2]


@dataclass(frozen=True, slots=True)
class Target:
    """The architecture and deployment target of an artifact."""

    arch: Arch
    deployment: str

    def __str__(self) -> str:
        """Return the name used in plans, as `macos-arm64-14.0`."""
        return f"macos-{self.arch}-{self.deployment}"

    @property
    def slices(self) -> tuple[Literal["x86_64", "arm64"], ...]:
        """The thin architectures inside."""
        return ("x86_64", "arm64") if self.arch == "universal2" else (self.arch,)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that macbuild runs on."""

    system: str
    arch: str
    rosetta: bool

    @property
    def default_arch(self) -> Arch:
        """The architecture to build for when none is asked for: the Mac's own, arm64 elsewhere."""
        return "x86_64" if self.system == "Darwin" and self.arch == "x86_64" else "arm64"


def detect_host() -> Host:
    """Return what this machine is; under Rosetta the hardware's architecture counts, not the process's."""
    system, arch = platform.system(), platform.machine()
    rosetta = False
    if sys.platform == "darwin" and arch == "x86_64":
        # sysctl.proc_translated is 1 in a translated process, "About the Rosetta translation environment", Apple.
        answer = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "sysctl.proc_translated"], capture_output=True, text=True, check=False
        )
        rosetta = answer.stdout.strip() == "1"
    arch = "arm64" if rosetta else _ALIASES.get(arch.lower(), arch)
    return Host(system, arch, rosetta)


def parse_arch(text: str) -> Arch:
    """Return an architecture by its name or a common other name; else a `UsageError`."""
    name = _ALIASES.get(text.lower(), text)
    for arch in get_args(Arch):
        if name == arch:
            return arch  # type: ignore[no-any-return]
    raise UsageError(f"unknown architecture {text!r}", hint=f"choose from {', '.join(get_args(Arch))}")


def parse_deployment(text: str) -> str:
    """Return a deployment target as `X.Y`; anything else is a `ConfigError`."""
    if not re.fullmatch(r"\d{2}(\.\d{1,2}){0,2}", text):
        raise ConfigError(f"{text!r} is not a macOS version", where="deployment target", hint="write it as 14.0")
    if not macos_exists(text):
        hint = f"choose from 10.9 to 10.16, 11 to 15, and 26 to {_NEWEST_MACOS}"
        raise ConfigError(f"there is no macOS {text}", where="deployment target", hint=hint)
    return text if "." in text else f"{text}.0"


def macos_exists(version: str) -> bool:
    """Return True for the version of a macOS that was released or may be soon: Apple went from 15 to 26."""
    major, minor = (int(part) for part in f"{version}.0".split(".")[:2])
    return 9 <= minor <= 16 if major == 10 else 11 <= major <= 15 or 26 <= major <= _NEWEST_MACOS
