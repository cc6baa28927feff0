"""Use Apple's clang from Xcode or the Command Line Tools, with its SDK: the default on a Mac."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from macbuild.build.toolchain.model import Name, PrepareContext, Prepared, cached, prefix_maps
from macbuild.errors import ToolError
from macbuild.target import Target

if TYPE_CHECKING:  # a plan needs only the identity
    from macbuild.build.toolchain.driver import Driver

__all__ = ["AppleToolchain"]

_COMPILE = (
    "-Wno-unknown-warning-option",
    "-Wno-unused-command-line-argument",
    # A function that the target may lack is linked weakly; without a check it would be a call of address 0.
    "-Werror=unguarded-availability-new",
)
_LINK = ("-Wl,-headerpad,0x1000", "-Wl,-dead_strip", "-Wl,-dead_strip_dylibs", "-Wl,-S")
_HINT = "install Xcode, or the Command Line Tools by: xcode-select --install"
_SECONDS = 60


class _Tools(NamedTuple):
    """The tools that xcrun finds, with their versions."""

    clang: str
    clangxx: str
    version: str
    sdk: str
    sdk_version: str


@dataclass(frozen=True)
class AppleToolchain:
    """Apple's clang for one thin target.

    Parameters
    ----------
    target
        What to build for.
    environ
        The environment: `DEVELOPER_DIR` chooses the Xcode, `SDKROOT` the SDK, by path or by name (xcrun(1)).
    """

    target: Target
    environ: Mapping[str, str]

    @property
    def name(self) -> Name:
        """Return `apple`."""
        return "apple"

    @cached_property
    def _tools(self) -> _Tools:
        root = self.environ.get("SDKROOT") or "macosx"
        clang = self._xcrun("--sdk", root, "--find", "clang")
        sdk = root if root.startswith("/") else self._xcrun("--sdk", root, "--show-sdk-path")
        version = self._output(clang, "--version").partition("\n")[0]
        return _Tools(clang, self._xcrun("--sdk", root, "--find", "clang++"), version, sdk, _sdk_version(Path(sdk)))

    @cached_property
    def identity(self) -> str:
        """Versions of the compiler and of the SDK, and the target."""
        return f"{self._tools.version} SDK {self._tools.sdk_version} {self.target}"

    def describe(self) -> str:
        """Return compiler, SDK and target."""
        return f"{self._tools.version}, SDK {self._tools.sdk_version}, for {self.target}"

    def prepare(self, folder: Path, context: PrepareContext) -> Prepared:
        """Write drivers and toolchain file."""
        from macbuild.build.toolchain.driver import install_driver
        from macbuild.build.toolchain.files import write_toolchain

        c, cxx = install_driver(folder / "bin", self._driver(folder, context))
        variables = {
            "MACBUILD_ARCH": self.target.arch,
            "MACBUILD_DEPLOYMENT": self.target.deployment,
            "MACBUILD_SDK": self._tools.sdk,
            "MACBUILD_C": c,
            "MACBUILD_CXX": cxx,
        }
        file, path = write_toolchain(folder, "apple", variables, programs={}, hidden=("brew", "sw_vers"))
        return Prepared("apple", self.identity, file, {"PATH": str(path), **self._developer()}, c, cxx).save(folder)

    def _developer(self) -> dict[str, str]:
        """Return the variable that chooses an Xcode, if it is set."""
        return {key: self.environ[key] for key in ("DEVELOPER_DIR",) if self.environ.get(key)}

    def _driver(self, folder: Path, context: PrepareContext) -> Driver:
        from macbuild.build.toolchain.driver import Driver
        from macbuild.build.toolchain.flags import System, load_rules

        tools = self._tools
        version = f"-mmacosx-version-min={self.target.deployment}"
        base = ["-arch", self.target.arch, "-isysroot", tools.sdk, version]
        paths = {tools.sdk: "sdk", **context.paths}
        flags = [*base, *_COMPILE, *prefix_maps(paths)]
        commands = {"clang": [tools.clang], "clang++": [tools.clangxx]}
        compilers = cached(
            commands,
            folder / "bin",
            path=self.environ.get("PATH"),
            check=self.identity,
            names=paths.values(),
        )
        return Driver(
            title=self.describe(),
            c=[*compilers.commands["clang"], *flags],
            cxx=[*compilers.commands["clang++"], *flags],
            link=[tools.clang, *base, *_LINK],
            link_cxx=[tools.clangxx, *base, *_LINK],
            environ={**self._developer(), **compilers.environ},
            rules=load_rules("apple", foreign=context.foreign),
            system=System(self.target.arch),
            deployment=self.target.deployment,
        )

    def _xcrun(self, *arguments: str) -> str:
        return self._output("xcrun", *arguments)

    def _output(self, *command: str) -> str:
        try:
            done = subprocess.run(
                command,
                env=dict(self.environ),
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolError(f"cannot be run: {error}", where=command[0], hint=_HINT) from error
        text = done.stdout.strip()
        if done.returncode or not text:
            reason = done.stderr.strip().partition("\n")[0] or f"exit code {done.returncode}"
            raise ToolError(f"{' '.join(command[1:])} failed: {reason}", where=command[0], hint=_HINT)
        return text


def _sdk_version(sdk: Path) -> str:
    """Return the version that an SDK states in its SDKSettings.json."""
    path = sdk / "SDKSettings.json"
    try:
        data = json.loads(path.read_bytes())
        return f"{data['CanonicalName']} {data['Version']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolError(f"does not state the SDK's version: {error}", where=path, hint=_HINT) from error
