"""The `macbuild` command: errors become one message and one exit code."""

from __future__ import annotations

import sys

import macbuild


def main() -> None:
    """Run the command line and exit."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"macbuild {macbuild.__version__}\n")
        raise SystemExit(0)
    from macbuild.cli.app import run

    raise SystemExit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
