"""Decide in which order tests run, and which of them one worker runs in a row."""

from __future__ import annotations

from xdist.scheduler.loadscope import LoadScopeScheduling

__all__ = ["ALONE", "FIRST", "TOGETHER", "Schedule", "rank"]

# Modules that run longest, and those that fill the store for others, start first: if a worker ended with one of them,
# the others would be idle. Other modules come after them, integration tests before unit tests.
FIRST = (
    "tests/e2e/test_artifacts.py",
    "tests/integration/upstream/test_whole_way.py",
    "tests/integration/test_backend_kit.py",
    "tests/integration/upstream/test_blockers.py",
    "tests/e2e/test_libraries.py",
    "tests/e2e/test_pytorch.py",
    "tests/e2e/test_onnxruntime.py",
    "tests/integration/test_compat.py",
    "tests/e2e/test_reliability.py",
    "tests/e2e/test_docs.py",
    "tests/integration/test_bench.py",
)
# Modules below this folder share build folders and servers, so one worker runs them all.
TOGETHER = "tests/integration/upstream/"
# Long tests that share no costly fixture: each is handed out alone. Other modules are handed out as a whole, so that
# their fixtures are set up once.
ALONE = frozenset(
    {
        "tests/e2e/test_docs.py",
        "tests/e2e/test_libraries.py",
        "tests/e2e/test_onnxruntime.py",
        "tests/e2e/test_pytorch.py",
        "tests/integration/test_bench.py",
        "tests/integration/test_fuzz.py",
    }
)


def rank(nodeid: str) -> tuple[int, int]:
    """Return the position of a test in the run; tests of equal rank stay in the order of collection."""
    module = nodeid.partition("::")[0]
    place = FIRST.index(module) if module in FIRST else len(FIRST)
    return place, int(module.startswith("tests/unit/"))


class Schedule(LoadScopeScheduling):  # type: ignore[misc]
    """Hand out one module after the other, and the tests of some modules one by one."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        if module.startswith(TOGETHER):
            return TOGETHER
        return nodeid if module in ALONE else module
