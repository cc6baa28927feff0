"""Measure the performance budget: `python -m bench [ROW...]` prints a table and exits 1 if a row does not hold.

`python -m bench backend` measures the PyTorch backend in a real server in place of these rows.

It needs LLVM's install-name tool and GNU tar, which it compares with, and 3 GB in the current folder and the store.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.rows import ROWS
from bench.timing import Row, duration

HEAD = "| what | against | ours | other | ratio | at most | |\n|---|---|---|---|---|---|---|"
BACKEND = "backend"
ROUNDS = 5
BACKEND_ROUNDS = 12


def line(row: Row) -> str:
    """Return a row of the Markdown table."""
    times = f"{duration(row.ours)} | {duration(row.other)}"
    mark = "holds" if row.holds else "**does not hold**"
    note = f", {row.note}" if row.note else ""
    return f"| {row.name} | {row.against} | {times} | {row.ratio:.3f} | {row.budget} | {mark}{note} |"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)} (default: all); or {BACKEND}")
    help_text = f"how often each of both is timed (default: {ROUNDS}, {BACKEND} {BACKEND_ROUNDS})"
    parser.add_argument("--rounds", type=int, help=help_text)
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="put the table into a page between its markers")
    options = parser.parse_args()
    backend = options.rows == [BACKEND]
    unknown = [name for name in options.rows if name not in ROWS and not backend]
    if unknown:
        parser.error(f"unknown row {unknown[0]}; choose from {', '.join(ROWS)}, or {BACKEND} alone")
    print(HEAD, flush=True)
    if backend:
        return measure_backend(options.rounds or BACKEND_ROUNDS, options.write)
    results = []
    for name in options.rows or ROWS:
        results.append(ROWS[name](options.rounds or ROUNDS))
        print(line(results[-1]), flush=True)
    if options.write:
        write_tables(options.write, "bench", "\n".join([HEAD, *map(line, results)]))
    return 0 if all(row.holds for row in results) else 1


def measure_backend(rounds: int, page: Path | None) -> int:
    """Measure the PyTorch backend, print its tables, and put them into a page if there is one."""
    from bench.backend import measure  # noqa: PLC0415 - it needs torch, which the other rows do without

    report = measure(rounds)
    lines = [line(row) for row in report.rows()]
    print("\n".join([*lines, "", report.details()]))
    if page:
        write_tables(page, f"bench {BACKEND}", "\n".join([HEAD, *lines, "", report.details()]))
    return 0 if all(row.holds for row in report.rows()) else 1


def write_tables(page: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- NAME -->` and the next `<!-- end -->` of a page."""
    before, mark, rest = page.read_text("utf-8").partition(f"<!-- {name} -->")
    _, end, after = rest.partition("<!-- end -->")
    if not (mark and end):
        raise SystemExit(f"{page} has no place for the table: <!-- {name} --> and <!-- end -->")
    page.write_text(f"{before}{mark}\n{text}\n{end}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
