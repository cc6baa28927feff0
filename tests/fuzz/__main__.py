"""Run one target: `python -m tests.fuzz TARGET [--seconds N] [--work FOLDER] [--seed-corpus]`."""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
from pathlib import Path

from tests.fuzz import SEEDS, TARGETS, load, seeds
from tests.fuzz.common import MEGABYTES, bounded, mutate, random_mutations

HANG = 30  # seconds of wall time after which an input counts as endless


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60, help="how long to run")
    parser.add_argument("--work", type=Path, help="folder for new inputs (default: build/fuzz/TARGET)")
    parser.add_argument("--seed-corpus", action="store_true", help="write the generated seeds, and exit")
    options = parser.parse_args()
    if options.seed_corpus:
        from tests.fuzz.corpus import write_seeds

        write_seeds(SEEDS / options.target, options.target)
        return 0
    work = options.work or Path("build", "fuzz", options.target)
    work.mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("atheris") is None:
        return _without_atheris(options.target, options.seconds)
    return _with_atheris(options.target, options.seconds, work)


def _with_atheris(target: str, seconds: int, work: Path) -> int:
    import atheris

    with atheris.instrument_imports(include=["macbuild", "tomllib", "plistlib"]):
        check = bounded(load(target))
    arguments = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-timeout={HANG}",
        f"-rss_limit_mb={MEGABYTES}",
        f"-artifact_prefix={work}/failed-",
        "-print_final_stats=1",
        str(_folder(work / "corpus")),
        str(SEEDS / target),
    ]
    atheris.Setup(arguments, check)
    atheris.Fuzz()
    return 0


def _folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def _without_atheris(target: str, seconds: int) -> int:
    """Try the seeds, then random changes of them, without coverage."""
    check = bounded(load(target))
    inputs = [path.read_bytes() for path in seeds(target)]
    for data in inputs:
        check(data)
    stop = time.monotonic() + seconds
    number = 0
    while time.monotonic() < stop:
        source = random.Random(number)
        data = mutate(source.choice(inputs), random_mutations(source))
        try:
            check(data)
        except BaseException:
            sys.stderr.write(f"failed at random change {number}: {data.hex()}\n")
            raise
        number += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
