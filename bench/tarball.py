"""Measure `pack` against `tar czf` on one tree, in turns, and print the ratios of time and size.

Usage: python bench/tarball.py TREE [--rounds 3] [--jobs 2] [--json]

The budget (DESIGN, section 8) is 0.5 of the time and 1.03 of the size. Time is the best of all rounds, as whole
processes; both write to the same file system, and both bring nothing to the disk that the other does not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TIME_BUDGET = 0.5
SIZE_BUDGET = 1.03
PACK = (
    "import sys; from pathlib import Path; from macbuild.package.tarball import pack; "
    "pack(Path(sys.argv[1]), Path(sys.argv[2]), top=Path(sys.argv[1]).name, epoch=0, jobs=int(sys.argv[3]))"
)


def timed(command: list[str]) -> tuple[float, float]:
    """Run a command and return its wall time and its CPU time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, check=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(tree: Path, rounds: int, jobs: int) -> dict[str, float]:
    """Pack the tree both ways in turns and return seconds, bytes and ratios."""
    with tempfile.TemporaryDirectory() as folder:
        plain, ours = Path(folder, "plain.tar.gz"), Path(folder, "ours.tar.gz")
        tar = ["tar", "-C", str(tree.parent), "-czf", str(plain), tree.name]
        pack = [sys.executable, "-c", PACK, str(tree), str(ours), str(jobs)]
        tars, packs = [], []
        for _ in range(rounds):
            tars.append(timed(tar))
            packs.append(timed(pack))
        sizes = plain.stat().st_size, ours.stat().st_size
    tar_wall, pack_wall = min(tars)[0], min(packs)[0]
    return {
        "tar_seconds": tar_wall,
        "pack_seconds": pack_wall,
        "tar_cpu_seconds": min(cpu for _, cpu in tars),
        "pack_cpu_seconds": min(cpu for _, cpu in packs),
        "tar_bytes": sizes[0],
        "pack_bytes": sizes[1],
        "time_ratio": pack_wall / tar_wall,
        "size_ratio": sizes[1] / sizes[0],
    }


def main() -> int:
    """Print the figures; exit with 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="a staged tree, such as LibTorch's in the store")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.tree.resolve(), options.rounds, options.jobs)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(f"tar czf  {figures['tar_seconds']:7.2f} s  {figures['tar_bytes']:>12,} bytes")
        print(
            f"pack     {figures['pack_seconds']:7.2f} s  {figures['pack_bytes']:>12,} bytes  ({options.jobs} threads)"
        )
        print(f"time     {figures['time_ratio']:7.3f}    at most {TIME_BUDGET}")
        print(f"size     {figures['size_ratio']:7.3f}    at most {SIZE_BUDGET}")
    return int(figures["time_ratio"] > TIME_BUDGET or figures["size_ratio"] > SIZE_BUDGET)


if __name__ == "__main__":
    sys.exit(main())
