"""Measure what the compiler driver adds to a call of zig."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from bench.inputs import work_folder
from bench.timing import Row, command, compare, duration
from macbuild.build.toolchain import PrepareContext, find_toolchain
from macbuild.build.toolchain.zig import find_zig
from macbuild.target import Target

__all__ = ["compile_call", "link_call"]

_LIMIT = 0.005
_TRIPLE = "aarch64-macos.14.0"
_ZIG = ("cc", "-target", _TRIPLE, "-g0")


def compile_call(rounds: int) -> Row:
    """Compile a C file that zig has in its cache, so that little more than the start of the programs counts."""
    return _row("compile", ["-c", "a.c", "-o", "a.o"], ["-fno-sanitize=undefined"], max(rounds, 40))


def link_call(rounds: int) -> Row:
    """Link a dylib of one object."""
    own = ["-Wl,-headerpad,0x1000", "-Wl,-dead_strip", "-Wl,-dead_strip_dylibs", "-Wl,-S"]
    return _row("link", ["-shared", "-install_name", "@rpath/a", "a.o", "-o", "a.dylib"], own, max(rounds, 20))


def _row(name: str, flags: Sequence[str], own: Sequence[str], rounds: int) -> Row:
    """Time a call through the driver and one of zig, given the flags that the driver adds."""
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as scratch:
        folder = Path(scratch).absolute()
        toolchain = find_toolchain("zig", Target("arm64", "14.0"), os.environ)
        # Without a PATH, so that no ccache is found: it would answer instead of zig.
        with patch.dict(os.environ, {"PATH": ""}):
            prepared = toolchain.prepare(folder / "toolchain", PrepareContext(work_folder("zig")))
        environ = {**os.environ, **prepared.environ, "PATH": os.environ["PATH"]}
        (folder / "a.c").write_text("int a(void) { return 1; }\n")
        command([str(prepared.c), "-c", "a.c", "-o", "a.o"], cwd=folder, environ=environ)()
        ours = command([str(prepared.c), *flags], cwd=folder, environ=environ)
        zig = command([str(find_zig()[0]), *_ZIG, *own, *flags], cwd=folder, environ=environ)
        times = compare(ours, zig, rounds)
    against = f"the {duration(_LIMIT)} that it may take"
    return Row(f"the compiler driver, added to a call to {name}", against, times[0] - times[1], _LIMIT, 1)
