"""Find the compilers that build for macOS, and what they link against."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from macbuild.build.toolchain.model import PrepareContext, Prepared, Toolchain
from macbuild.errors import ToolError
from macbuild.target import Target

__all__ = ["PrepareContext", "Prepared", "Toolchain", "find_toolchain"]


def find_toolchain(name: str | None, target: Target | None, environ: Mapping[str, str]) -> Toolchain:
    """Return a toolchain; nothing is started or written yet.

    Parameters
    ----------
    name
        `zig`, `apple`, `host`, or None for the default: `apple` on a Mac, `zig` elsewhere.
    target
        A thin target, or None for the machine that macbuild runs on, which `host` is for.
    environ
        The environment, for `CC`, `CXX`, `PATH`, `SDKROOT` and `DEVELOPER_DIR`.

    Raises
    ------
    ToolError
        The toolchain cannot build for the target, or there is none of that name.
    """
    if target is None:
        from macbuild.build.toolchain.host import HostToolchain

        return HostToolchain(environ)
    if target.arch == "universal2":
        raise ToolError("builds for one architecture at a time", where=name or "toolchain")
    name = name or ("apple" if sys.platform == "darwin" else "zig")
    if name == "zig":
        from macbuild.build.toolchain.zig import ZigToolchain

        return ZigToolchain(target)
    if name == "apple":
        from macbuild.build.toolchain.apple import AppleToolchain

        return AppleToolchain(target, environ)
    raise ToolError(f"there is no toolchain {name!r} for macOS", where="toolchain", hint="choose from zig, apple")
