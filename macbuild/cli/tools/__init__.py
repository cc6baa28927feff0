"""Stand-ins for `otool`, `install_name_tool`, `lipo` and `codesign` on any host, for CMake, delocate and people.

They take the argument forms of Apple's tools and print what callers of those tools parse. Each is a module of its own
that is imported only when its command runs: a build calls these hundreds of times.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

__all__ = ["codesign", "install_name_tool", "lipo", "otool"]


def _run(main: Callable[[Sequence[str]], int]) -> None:
    # A file name or an install name need not be UTF-8; it is printed as the bytes that it is.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader has gone, as `head` does; the interpreter must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    raise SystemExit(code)


def otool() -> None:
    """Run `macbuild-otool`."""
    from macbuild.cli.tools.otool import main  # noqa: PLC0415 (each tool loads only itself)

    _run(main)


def install_name_tool() -> None:
    """Run `macbuild-install-name-tool`."""
    from macbuild.cli.tools.install_name_tool import main  # noqa: PLC0415 (each tool loads only itself)

    _run(main)


def lipo() -> None:
    """Run `macbuild-lipo`."""
    from macbuild.cli.tools.lipo import main  # noqa: PLC0415 (each tool loads only itself)

    _run(main)


def codesign() -> None:
    """Run `macbuild-codesign`."""
    from macbuild.cli.tools.codesign import main  # noqa: PLC0415 (each tool loads only itself)

    _run(main)
