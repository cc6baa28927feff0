"""Run pip without letting it run any code that it downloads; this file is run by path and never imported.

pip asks each sdist for its metadata, and would run the sdist's code for the answer. So this file has two roles. As
`pip` it is pip in which `sys.executable` is a program that starts this file as `answer`. As `answer` it stands in for
the Python that would load a build backend (PEP 517), and answers from the PKG-INFO that the sdist carries. Whatever
else pip wants to start in a folder, or as another Python, is refused.
"""

from __future__ import annotations

import email
import json
import re
import runpy
import sys
from pathlib import Path

_HEAD = 1 << 20  # bytes
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.!+_-]*")


def _pip(answers: str, arguments: list[str]) -> None:
    def guard(event: str, details: tuple[object, ...]) -> None:
        if event == "subprocess.Popen":
            program, _, folder, _ = details
            if program != answers and (folder is not None or "py" in Path(str(program)).name):
                raise PermissionError(f"macbuild: pip may not start {program}")

    sys.executable = answers
    sys.addaudithook(guard)
    here = str(Path(__file__).parent)
    sys.path[:] = [folder for folder in sys.path if folder != here]
    sys.argv = ["pip", *arguments]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def _answer(hook: str, control: Path) -> None:
    answer: object
    if hook == "prepare_metadata_for_build_wheel":
        asked = json.loads((control / "input.json").read_text("utf-8"))
        answer = _write_metadata(Path(asked["kwargs"]["metadata_directory"]))
    elif hook == "get_requires_for_build_wheel":
        answer = []
    else:
        sys.exit(f"macbuild: pip asked for '{hook}', which only the code of the sdist could answer")
    (control / "output.json").write_text(json.dumps({"return_val": answer}), "utf-8")


def _write_metadata(parent: Path) -> str:
    """Write name and version as the metadata of a wheel and return the name of its folder."""
    try:
        with Path("PKG-INFO").open("rb") as file:
            facts = email.message_from_bytes(file.read(_HEAD))
    except OSError as error:
        sys.exit(f"macbuild: the sdist's PKG-INFO cannot be read ({error.strerror})")
    name, version = str(facts["Name"]).strip(), str(facts["Version"]).strip()
    if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        sys.exit(f"macbuild: the sdist's PKG-INFO names {name[:50]!r}, version {version[:50]!r}")
    folder = parent / f"{re.sub(r'[-_.]+', '_', name)}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
    return folder.name


def _main(role: str, *arguments: str) -> None:
    if role == "pip":
        _pip(arguments[0], list(arguments[1:]))
    elif len(arguments) == 3 and arguments[0].endswith(".py"):
        _answer(arguments[1], Path(arguments[2]))
    else:
        sys.exit(f"macbuild: pip may not run {' '.join(arguments)[:200]}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
