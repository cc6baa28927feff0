"""Stand-ins for `otool`, `install_name_tool`, `lipo` and `codesign` on any host, for CMake, delocate and people.

They accept the options of Apple's tools and print what callers of those tools parse. Each is a separate module that is
imported only when its command runs: a build calls these hundreds of times.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

__all__ = ["codesign", "install_name_tool", "lipo", "otool"]


def _run(main: Callable[[Sequence[str]], int]) -> None:
    # A file name or an install name need not be UTF-8; its bytes are printed unchanged.
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
        # The reader is gone, as `head` may be; the interpreter must not complain about that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    raise SystemExit(code)


def otool() -> None:
    """Run `macbuild-otool`."""
    from macbuild.macho.tools.otool import main

    _run(main)


def install_name_tool() -> None:
    """Run `macbuild-install-name-tool`."""
    from macbuild.macho.tools.install_name_tool import main

    _run(main)


def lipo() -> None:
    """Run `macbuild-lipo`."""
    from macbuild.macho.tools.lipo import main

    _run(main)


def codesign() -> None:
    """Run `macbuild-codesign`."""
    from macbuild.macho.tools.codesign import main

    _run(main)
