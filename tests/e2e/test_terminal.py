"""Follow README and the page about one's own component in a terminal of 80 columns, from an empty folder.

What a person sees is kept in `screens/`. To accept a change, remove the file, run the test, and read what it wrote.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from macbuild.files import remove_tree
from tests.conftest import zig_cache
from tests.e2e.conftest import ROOT
from tests.e2e.test_docs import blocks
from tests.support.installed import clean_environment
from tests.support.terminal import show

SCREENS = Path(__file__).with_name("screens")
PAGE = ROOT / "docs/how-to/add-a-component.md"
# Variables that change what a terminal is shown.
SWITCHES = {"CI", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "GITHUB_STEP_SUMMARY"}
# What differs from run to run, and what stands for it.
CHANGES = (
    (r"^warming up .*\n", ""),
    (r"\b[0-9a-f]{12,64}\b", lambda found: "#" * len(found[0])),
    (r"\b[0-9a-f]{2}/(?=##)", "##/"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b", "DATE"),
    (r"\b\d+ min \d+ s\b|\b\d+(\.\d+)? (m?s|sec)\b", "TIME"),
    (r" *\b\d+(\.\d+)? [kMG]?B\b", " SIZE"),
)


@dataclass
class Person:
    """Somebody who types commands in a folder, and what was on the screen so far."""

    home: Path
    environ: dict[str, str]
    seen: list[str] = field(default_factory=list)

    def type(self, command: str, code: int = 0) -> None:
        lines, ended = show(["bash", "-c", command], self.home / "work", self.environ)
        assert ended == code, "\n".join(lines)
        text = join_steps([f"$ {command}", *(lines if lines != [""] else [])])
        self.seen += [*text, f"[exit code {code}]"] if code else text

    def do(self, script: str) -> None:
        """Run what the page says between commands of macbuild, without looking at it."""
        shell = ["bash", "-eu", "-c", script]
        subprocess.run(shell, cwd=self.home / "work", env=self.environ, check=True, capture_output=True)

    def screen(self) -> str:
        text = "\n".join(self.seen) + "\n"
        for place in (self.home / "work", self.home / "store", self.home):
            text = text.replace(str(place), place.name.upper() if place != self.home else "HOME")
        for pattern, instead in CHANGES:
            text = re.sub(pattern, instead, text, flags=re.MULTILINE)
        return text


def join_steps(lines: list[str]) -> list[str]:
    """Return the lines, each line about a step whole: its time decides where it is folded."""
    joined: list[str] = []
    for line in lines:
        if line.startswith("  ") and joined and joined[-1].startswith("✓"):
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
    return joined


@pytest.fixture
def person(programs: Path) -> Iterator[Person]:
    # The length of the path decides where lines are folded, so it is the same in every run.
    home = Path(tempfile.mkdtemp(prefix="person-", dir="/tmp"))
    (home / "work").mkdir()
    (home / "store").mkdir()
    (home / "store/zig").symlink_to(zig_cache())
    environ = {name: value for name, value in clean_environment().items() if name not in SWITCHES}
    environ |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "MACBUILD_CACHE_DIR": str(home / "store")}
    yield Person(home, environ)
    remove_tree(home)


def check(name: str, person: Person) -> None:
    """Compare what a person saw with what is kept."""
    path = SCREENS / f"{name}.txt"
    new = not path.exists()
    if new:
        path.write_text(person.screen(), "utf-8")
    assert not new, f"{path} is new: read it and run the test again"
    assert person.screen().splitlines() == path.read_text("utf-8").splitlines()


def test_first_look(person: Person) -> None:
    person.type("macbuild --version")
    person.type("macbuild --help")
    person.type("macbuild build --help")
    person.type("macbuild recipes list")
    person.type("macbuild recipes show libtorch")
    person.type("macbuild plan libtorch --arch arm64")
    check("first-look", person)


def test_own_component(person: Person) -> None:
    """Follow the page: what it says to macbuild is typed, what is between is done."""
    for line in statements("".join(blocks(PAGE, "sh"))):
        if line.startswith("macbuild "):
            person.type(line.strip())
        else:
            person.do(line)
    for command in ("plan hello --arch arm64", "verify", "recipes show hello", "lock --check", "all -n"):
        person.type(f"macbuild {command}")
    # Results that were used in the same moment come in any order.
    person.type("COLUMNS=80 macbuild cache list | sort -k 6")
    check("own-component", person)


def statements(script: str) -> Iterator[str]:
    """Yield each command of macbuild in a script, and what is between them in one piece."""
    other = ""
    inside = ""
    for line in script.splitlines(keepends=True):
        if not inside and line.startswith("macbuild "):
            yield from filter(None, [other])
            other = ""
            yield line
            continue
        other += line
        found = re.search(r"<<'(\w+)'", line)
        inside = found[1] if found else "" if line.strip() == inside else inside
    yield from filter(None, [other])


def test_mistakes(person: Person) -> None:
    person.type("macbuild", code=2)
    person.type("macbuild bild", code=2)
    person.type("macbuild build pytoch", code=6)
    person.type("macbuild plan", code=5)
    person.type("macbuild all -n --skip-unreachable --arch arm64 > plan.txt")
    person.type("macbuild init && macbuild recipes new greeting")
    person.type("macbuild build greeting --arch arm64 --deployment-target 10.9", code=6)
    person.type("macbuild build greeting --arch ppc", code=2)
    person.do("sed -i.bak 's/answer/question/' recipes/greeting/src/greeting.c")
    person.type("macbuild recipes lint")
    person.type("macbuild build greeting --arch arm64", code=15)
    person.type("macbuild audit recipes", code=15)
    person.type("macbuild verify", code=2)
    check("mistakes", person)
