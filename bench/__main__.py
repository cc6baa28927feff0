"""Measure the performance budget: `python -m bench [ROW...]` prints a table and exits 1 if a row does not hold.

`python -m bench backend [NAME...]` measures our backends in a real server instead, all of them or those named.
`python -m bench libraries` measures the build of the server's libraries, for a quarter of an hour.

LLVM's install-name tool and GNU tar must be installed, and 3 GB free for the current folder and the store.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.rows import ROWS
from bench.subjects import SUBJECTS
from bench.timing import Row, duration

HEAD = "| what | against | ours | other | ratio | at most | |\n|---|---|---|---|---|---|---|"
BACKEND = "backend"
LIBRARIES = "libraries"
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
    backends = ", ".join(SUBJECTS)
    help_text = f"{', '.join(ROWS)} (default: all); or {BACKEND} and {backends} (default: all of these); or {LIBRARIES}"
    parser.add_argument("rows", nargs="*", metavar="ROW", help=help_text)
    help_text = f"how often each of the two is timed (default: {ROUNDS}, {BACKEND} {BACKEND_ROUNDS})"
    parser.add_argument("--rounds", type=int, help=help_text)
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="put the table into a page between its markers")
    options = parser.parse_args()
    if options.rows == [LIBRARIES]:
        return 0 if measure_libraries(options.write) else 1
    backend = options.rows[:1] == [BACKEND]
    names, known = (options.rows[1:], SUBJECTS) if backend else (options.rows, ROWS)
    unknown = [name for name in names if name not in known]
    if unknown:
        kind = "backend" if backend else "row"
        also = "" if backend else f", or {BACKEND} first"
        parser.error(f"unknown {kind} {unknown[0]}; choose from {', '.join(known)}{also}")
    if backend:
        held = [measure_backend(name, options.rounds or BACKEND_ROUNDS, options.write) for name in names or SUBJECTS]
        return 0 if all(held) else 1
    print(HEAD, flush=True)
    results = []
    for name in names or ROWS:
        results.append(ROWS[name](options.rounds or ROUNDS))
        print(line(results[-1]), flush=True)
    if options.write:
        write_tables(options.write, "bench", "\n".join([HEAD, *map(line, results)]))
    return 0 if all(row.holds for row in results) else 1


def measure_backend(name: str, rounds: int, page: Path | None) -> bool:
    """Measure a backend, print its tables, put them into a page if one is given, and return whether all rows hold."""
    from bench.backend import measure

    report = measure(name, rounds)
    text = "\n".join([HEAD, *map(line, report.rows()), "", report.details()])
    print(text, flush=True)
    if page:
        write_tables(page, f"bench {BACKEND} {name}", text)
    return all(row.holds for row in report.rows())


def measure_libraries(page: Path | None) -> bool:
    """Measure the libraries, print the table, put it into a page if one is given, and return whether all rows hold."""
    from bench.libraries import rows

    results = rows()
    text = "\n".join([HEAD, *map(line, results)])
    print(text, flush=True)
    if page:
        write_tables(page, f"bench {LIBRARIES}", text)
    return all(row.holds for row in results)


def write_tables(page: Path, name: str, text: str) -> None:
    """Replace the text between `<!-- NAME -->` and the next `<!-- end -->` of a page."""
    before, mark, rest = page.read_text("utf-8").partition(f"<!-- {name} -->")
    _, end, after = rest.partition("<!-- end -->")
    if not (mark and end):
        raise SystemExit(f"{page} lacks the markers of the table: <!-- {name} --> and <!-- end -->")
    page.write_text(f"{before}{mark}\n{text}\n{end}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
