"""Apple's clang out of Xcode or the Command Line Tools, with its SDK: the default on a Mac."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from macbuild.config import bundled
from macbuild.errors import ToolError
from macbuild.target import Target
from macbuild.toolchain.model import Name, PrepareContext, Prepared, digest_files, prefix_maps

if TYPE_CHECKING:  # a plan needs only the identity
    from macbuild.toolchain.driver import Driver

__all__ = ["AppleToolchain"]

_HERE = Path(__file__).parent
_CODE = ("apple.py", "driver.py", "files.py", "flags.py", "flags.toml", "exportlists.py", "link.py", "model.py")
_CMAKE = ("apple.cmake", "darwin.cmake", "rules.cmake")
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
    """What xcrun finds, and what the parts say of their versions."""

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
        """Versions of the compiler and of the SDK, target, and a digest of the driver."""
        data = bundled("cmake")
        code = digest_files([*(_HERE / name for name in _CODE), *(data / name for name in _CMAKE)])
        return f"{self._tools.version} SDK {self._tools.sdk_version} {self.target} driver {code}"

    def describe(self) -> str:
        """Return compiler, SDK and target."""
        return f"{self._tools.version}, SDK {self._tools.sdk_version}, for {self.target}"

    def prepare(self, folder: Path, context: PrepareContext) -> Prepared:
        """Write drivers and toolchain file."""
        from macbuild.toolchain.driver import install_driver  # noqa: PLC0415 - a plan needs only the identity
        from macbuild.toolchain.files import write_toolchain  # noqa: PLC0415 - the same

        c, cxx = install_driver(folder / "bin", self._driver(context))
        variables = {
            "MACBUILD_ARCH": self.target.arch,
            "MACBUILD_DEPLOYMENT": self.target.deployment,
            "MACBUILD_SDK": self._tools.sdk,
            "MACBUILD_C": c,
            "MACBUILD_CXX": cxx,
        }
        file, path = write_toolchain(folder, "apple", variables, programs={}, hidden=("brew", "sw_vers"))
        developer = {key: self.environ[key] for key in ("DEVELOPER_DIR",) if self.environ.get(key)}
        return Prepared("apple", self.identity, file, {"PATH": str(path), **developer}, c, cxx).save(folder)

    def _driver(self, context: PrepareContext) -> Driver:
        from macbuild.toolchain.driver import Driver  # noqa: PLC0415 - a plan needs only the identity
        from macbuild.toolchain.flags import System, load_rules  # noqa: PLC0415 - the same

        tools = self._tools
        version = f"-mmacosx-version-min={self.target.deployment}"
        base = ["-arch", self.target.arch, "-isysroot", tools.sdk, version]
        flags = [*base, *_COMPILE, *prefix_maps({tools.sdk: "sdk", **context.paths})]
        return Driver(
            title=self.describe(),
            c=[tools.clang, *flags],
            cxx=[tools.clangxx, *flags],
            link=[tools.clang, *base, *_LINK],
            link_cxx=[tools.clangxx, *base, *_LINK],
            environ={key: self.environ[key] for key in ("DEVELOPER_DIR",) if self.environ.get(key)},
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
    """Return the version that an SDK says of itself in its SDKSettings.json."""
    path = sdk / "SDKSettings.json"
    try:
        data = json.loads(path.read_bytes())
        return f"{data['CanonicalName']} {data['Version']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolError(f"does not say the SDK's version: {error}", where=path, hint=_HINT) from error
