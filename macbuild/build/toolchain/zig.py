"""Use zig as the compiler for macOS, on any host and without an SDK: its headers, and stubs of system libraries."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from macbuild.build.toolchain.model import Name, PrepareContext, Prepared, cached, prefix_maps
from macbuild.errors import ToolError
from macbuild.events import Note
from macbuild.files import os_errors, remove_tree
from macbuild.target import Target

if TYPE_CHECKING:  # a plan needs only the identity, at once
    from macbuild.build.toolchain.driver import Driver
    from macbuild.build.toolchain.sysroot import Sysroot

__all__ = ["ZigToolchain", "find_zig"]

# zig predefines 0; the annotations make a symbol that the target does not have an error of the compiler.
_ANNOTATED = (
    "-U_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS",
    "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=1",
)
# Darwin's math.h includes a part of <float.h>, after which libc++'s own takes itself for read: FLT_MAX stays undefined
# wherever <cmath> comes first (zig 0.17). In C++20 it does so where clang says that it has modules, and then INFINITY
# and NAN stay undefined; nothing here uses modules.
_WHOLE_FLOAT_H = ("-include", "float.h", "-fno-cxx-modules")
# zig adds undefined-behaviour traps unless told otherwise, which a project's own flags still can.
_COMPILE = (
    "-fno-sanitize=undefined",
    "-Wno-unknown-warning-option",
    "-Wno-unused-command-line-argument",
    # A function that the target may lack is linked weakly; without a check it would be a call of address 0.
    "-Werror=unguarded-availability-new",
)
_LINK = ("-g0", "-Wl,-headerpad,0x1000", "-Wl,-dead_strip", "-Wl,-dead_strip_dylibs", "-Wl,-S")
# What would tell CMake about the machine that builds, and the strip of another format.
_HIDDEN = ("brew", "strip", "sw_vers", "xcode-select", "xcrun")
_WARM_C = '#include <stdio.h>\nint macbuild_warm(void) { return puts(""); }\n'
_WARM_CXX = "#include <string>\nint *macbuild_warm(const std::string &text) { return new int(text.empty()); }\n"


def find_zig() -> tuple[Path, str]:
    """Return the zig of the `ziglang` package of this Python, and its version.

    Raises
    ------
    ToolError
        The package is not installed.
    """
    spec = find_spec("ziglang")
    if spec is None or spec.origin is None:
        hint = "python -m pip install ziglang"
        raise ToolError("the compiler zig is missing: no package ziglang", where="zig", hint=hint)
    folder = Path(spec.origin).parent
    for entry in sorted(folder.parent.glob("ziglang-*.dist-info")):
        return folder / "zig", entry.name.removesuffix(".dist-info").partition("-")[2]
    raise ToolError("the package ziglang does not state its version", where=folder)


@dataclass(frozen=True)
class ZigToolchain:
    """zig for one thin target."""

    target: Target

    @property
    def name(self) -> Name:
        """Return `zig`."""
        return "zig"

    @cached_property
    def _zig(self) -> tuple[Path, str]:
        return find_zig()

    @cached_property
    def identity(self) -> str:
        """Compiler version and target."""
        return f"zig {self._zig[1]} {self.target}"

    def describe(self) -> str:
        """Return compiler and target."""
        return f"zig {self._zig[1]} for {self.target}"

    def prepare(self, folder: Path, context: PrepareContext) -> Prepared:
        """Write drivers, stubs and toolchain file, and warm zig up once for this target."""
        from macbuild.build.toolchain.driver import install_driver
        from macbuild.build.toolchain.files import write_toolchain
        from macbuild.build.toolchain.sysroot import write_sysroot

        sysroot = write_sysroot(folder / "sysroot", self.target.arch, self.target.deployment)
        driver = self._driver(folder, context, sysroot)
        c, cxx = install_driver(folder / "bin", driver)
        self._warm_up(c, cxx, context)
        variables = {
            "MACBUILD_ARCH": self.target.arch,
            "MACBUILD_DEPLOYMENT": self.target.deployment,
            "MACBUILD_STUBS": sysroot.folder,
            "MACBUILD_C": c,
            "MACBUILD_CXX": cxx,
        }
        zig = str(self._zig[0])
        programs = {"ar": [zig, "ar"], "ranlib": [zig, "ranlib"]}
        file, path = write_toolchain(folder, "zig", variables, programs=programs, hidden=_HIDDEN)
        return Prepared("zig", self.identity, file, {"PATH": str(path), **driver.environ}, c, cxx).save(folder)

    def _driver(self, folder: Path, context: PrepareContext, sysroot: Sysroot) -> Driver:
        from macbuild.build.toolchain.driver import Driver
        from macbuild.build.toolchain.flags import System, load_rules

        zig = str(self._zig[0])
        triple = f"{'aarch64' if self.target.arch == 'arm64' else 'x86_64'}-macos.{self.target.deployment}"
        paths = {str(self._zig[0].parent): "zig", **context.paths}
        flags = ["-target", triple, *_COMPILE, *prefix_maps(paths)]
        commands = {"zig-cc": [zig, "cc"], "zig-c++": [zig, "c++"]}
        compilers = cached(
            commands,
            folder / "bin",
            path=os.environ.get("PATH"),
            check=f"zig {self._zig[1]}",
            names=paths.values(),
        )
        return Driver(
            title=self.describe(),
            c=[*compilers.commands["zig-cc"], *flags],
            cxx=[*compilers.commands["zig-c++"], *flags, *_ANNOTATED, *_WHOLE_FLOAT_H],
            link=[zig, "cc", "-target", triple, *_LINK],
            # As C, because `zig c++` would put its own C++ library into the result.
            link_cxx=[zig, "cc", "-target", triple, *_LINK],
            environ={
                "ZIG_GLOBAL_CACHE_DIR": str(context.cache),
                "ZIG_LOCAL_CACHE_DIR": str(context.cache),
                **compilers.environ,
            },
            rules=load_rules("zig", foreign=context.foreign),
            system=System(self.target.arch, sysroot.libcxx, sysroot.libraries, sysroot.frameworks),
            deployment=self.target.deployment,
        )

    def _warm_up(self, c: Path, cxx: Path, context: PrepareContext) -> None:
        """Let zig build its runtime for the target once, before many calls of it would all do so (measured: 14 s)."""
        import fcntl
        import hashlib

        mark = hashlib.sha256(f"{self._zig[1]} {self.target}".encode()).hexdigest()[:16]
        stamp = context.cache / f"macbuild-warm-{mark}"
        with os_errors(context.cache):
            context.cache.mkdir(parents=True, exist_ok=True)
            if stamp.exists():
                return
            with (context.cache / "macbuild-warm.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not stamp.exists():
                    context.emit(Note("info", f"warming up {self.describe()}: once, up to a minute"))
                    self._compile_samples(c, cxx, context.cache / f"macbuild-warm-{mark}-{os.getpid()}")
                    stamp.touch()

    def _compile_samples(self, c: Path, cxx: Path, folder: Path) -> None:
        import subprocess

        folder.mkdir()
        try:
            for compiler, name, text in ((c, "warm.c", _WARM_C), (cxx, "warm.cpp", _WARM_CXX)):
                source = folder / name
                source.write_text(text, "utf-8")
                command = [str(compiler), "-shared", str(source), "-o", str(folder / "warm.dylib")]
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
                if done.returncode:
                    lines = done.stderr.strip().splitlines()[-10:]
                    raise ToolError("does not work: " + "\n".join(lines), where=self.describe())
        finally:
            remove_tree(folder)
