"""The `macbuild` command: errors become one message and one exit code."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import macbuild


def main() -> None:
    """Run the command line and exit; what ends it is a message and an exit code, and never a traceback."""
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            # nohup ignores SIGHUP, and so it stays.
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)
        raise SystemExit(_run(sys.argv[1:]))
    except KeyboardInterrupt as interrupt:  # while modules are loaded
        sys.stderr.write(f"{str(interrupt) or 'interrupted'}\n")
        raise SystemExit(128 + getattr(interrupt, "number", signal.SIGINT)) from None


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        try:
            sys.stdout.write(f"macbuild {macbuild.__version__}\n")
            sys.stdout.flush()
        except OSError as error:
            from macbuild.cli.messages import output_failed

            return output_failed(error)
        return 0
    from macbuild.cli.app import run

    return run(arguments)


def _end(number: int, frame: FrameType | None) -> None:
    """End the command as Ctrl-C does, once; children are ended on the way out."""
    del frame
    from macbuild.errors import Terminated

    signal.signal(number, signal.SIG_IGN)
    raise Terminated(number)


if __name__ == "__main__":
    main()
