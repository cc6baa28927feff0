"""Test the order in which tests are handed out."""

from __future__ import annotations

from pathlib import Path

from tests.support.schedule import ALONE, FIRST, TOGETHER, rank

ROOT = Path(__file__).parents[2]


def test_modules_of_the_schedule_exist() -> None:
    assert [module for module in (*FIRST, *ALONE) if not (ROOT / module).is_file()] == []
    assert any(module.startswith(TOGETHER) for module in FIRST)


def test_long_modules_come_first_and_unit_tests_last() -> None:
    unit, other, long = "tests/unit/test_x.py::test_a", "tests/integration/test_x.py::test_a", f"{FIRST[1]}::test_a"
    assert sorted([unit, other, long, f"{FIRST[0]}::test_b[x::y]"], key=rank)[1:] == [long, other, unit]
