"""Measure the performance budget: `python -m bench [ROW...]` prints a table and exits 1 if a row does not hold.

It needs LLVM's install-name tool and GNU tar, which it compares with, and 3 GB in the current folder and the store.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.rows import ROWS
from bench.timing import Row

HEAD = "| what | against | ours | other | ratio | at most | |\n|---|---|---|---|---|---|---|"


def line(row: Row) -> str:
    """Return a row of the Markdown table."""
    seconds = f"{row.ours:.3f} s | {row.other:.3f} s"
    mark = "holds" if row.holds else "**does not hold**"
    note = f", {row.note}" if row.note else ""
    return f"| {row.name} | {row.against} | {seconds} | {row.ratio:.3f} | {row.budget} | {mark}{note} |"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each of both is timed")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="put the table into a page between its markers")
    options = parser.parse_args()
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"unknown row {unknown[0]}; choose from {', '.join(ROWS)}")
    print(HEAD, flush=True)
    results = []
    for name in options.rows or ROWS:
        results.append(ROWS[name](options.rounds))
        print(line(results[-1]), flush=True)
    if options.write:
        write_table(options.write, results)
    return 0 if all(row.holds for row in results) else 1


def write_table(page: Path, rows: list[Row]) -> None:
    """Replace what stands between `<!-- bench -->` and `<!-- end -->` of a page."""
    text = page.read_text("utf-8")
    before, _, rest = text.partition("<!-- bench -->")
    _, _, after = rest.partition("<!-- end -->")
    table = "\n".join([HEAD, *map(line, rows)])
    page.write_text(f"{before}<!-- bench -->\n{table}\n<!-- end -->{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
