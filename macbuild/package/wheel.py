"""Make a wheel from a stage: scikit-build-core provides its metadata, the archive is written here.

`pip wheel` of the same project must give a wheel with the same metadata, so scikit-build-core's own PEP 517 hook runs,
in a process of its own, since it works in the current folder and with the environment. The project is told by the
CMake variable `MACBUILD_STAGE` to compile nothing and to install the stage as it is.

That wheel is only read. The published wheel is a new archive: members sorted with the metadata last, one
time, modes 0644 and 0755, the tag of the target (this may be Linux), the SBOM in `.dist-info/sboms` (PEP 770), and a
RECORD of all that. So its bytes depend on the stage, the project's metadata and the epoch alone.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import mac_platforms
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

import macbuild
from macbuild.errors import ArchiveError, BuildError, IntegrityError, ToolError
from macbuild.files import os_errors
from macbuild.package.manifest import FileRecord, Mode, record_tree
from macbuild.package.zip import ZipMember, read_zip, write_zip
from macbuild.target import Target, parse_version

__all__ = ["build_wheel", "platform_tag", "verify_wheel", "wheel_name"]

_HOOK = (
    "import json, sys; from scikit_build_core.build import build_wheel; "
    "build_wheel(sys.argv[1], json.loads(sys.argv[2]))"
)
# The environment variables that the hook sees. Others, such as CMAKE_GENERATOR or SKBUILD_*, could change the result.
_ENVIRONMENT = ("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR")
_NO_COMPILER = "no-compiler-may-run-for-a-wheel"
_LAST_LINES = 30
_MODES: dict[int, Mode] = {0o644: "0644", 0o755: "0755"}
_WRITTEN_HERE = frozenset({"METADATA", "WHEEL", "RECORD"})


def platform_tag(target: Target) -> str:
    """Return the platform tag of a wheel for a target: the lowest that no older macOS than the target's accepts.

    From macOS 11 on, tags have the minor version 0 (packaging.tags.mac_platforms). So a target of 11.1 gets the tag of
    12.0: that of 11.0 would let pip install the wheel where it cannot be loaded.
    """
    numbers = [*parse_version(target.deployment), 0, 0]
    major, minor, patch = numbers[:3]
    if major < 11:
        major, minor = (11, 0) if target.arch == "arm64" else (major, minor + bool(patch))
    elif minor or patch:
        major, minor = major + 1, 0
    return next(iter(mac_platforms((major, minor), target.arch)))


def wheel_name(name: str, version: str, target: Target) -> str:
    """Return the file name of a wheel that needs no Python of a certain version: `NAME-VERSION-py3-none-PLATFORM.whl`.

    Raises
    ------
    ArchiveError
        The name or the version is not one that a wheel can have.
    """
    try:
        file = f"{canonicalize_name(name, validate=True).replace('-', '_')}-{Version(version)}"
    except ValueError as error:
        raise ArchiveError(f"cannot be the name and version of a wheel: {error}", where=f"{name} {version}") from error
    return f"{file}-py3-none-{platform_tag(target)}.whl"


def build_wheel(
    project: Path,
    stage: Path,
    output: Path,
    *,
    name: str,
    version: str,
    target: Target,
    epoch: int,
    sbom: str,
    jobs: int,
    requires: Sequence[str] = (),
) -> Path:
    """Make the wheel `output / wheel_name(...)` from the files of a stage and a project's metadata, and verify it.

    Parameters
    ----------
    project
        A folder with a `pyproject.toml` for scikit-build-core, whose `CMakeLists.txt` only installs what is in the
        folder `MACBUILD_STAGE` if that is set. Nothing is written into it.
    stage, output
        The files by their place in site-packages, and the folder that the wheel is written to.
    name, version
        The name and version that the project must declare.
    target
        The target that the stage was built for; it decides the tag.
    epoch
        The time of all members, in seconds since 1970.
    sbom
        The text of the SBOM that goes inside, which cannot name the hash of the wheel.
    jobs
        Threads that compress.
    requires
        Requirements that replace the project's for the same packages, such as `torch==2.13.0`.

    Raises
    ------
    ArchiveError
        The stage holds what a wheel cannot hold: a link, a file outside of any package, metadata, or two names that
        differ in case only; or something that an artifact must not hold.
    BuildError
        The project has no pyproject.toml, fails, or makes a wheel other than the expected one.
    ToolError, FileError, NoSpaceError
        scikit-build-core is not installed, or something cannot be read or written.
    """
    file = wheel_name(name, version, target)
    wanted = [_requirement(text, project) for text in requires]
    records = {record.path: record for record in record_tree(stage, jobs)}
    _check_stage(stage, records)
    with tempfile.TemporaryDirectory(prefix="macbuild-wheel-") as folder:
        made = _run_hook(project, stage, Path(folder), file, epoch)
        info = f"{file.split('-py3-', 1)[0]}.dist-info"
        members, metadata = _take_apart(made, info, records)
    metadata["METADATA"] = _metadata(metadata["METADATA"], name, version, wanted, project)
    metadata["WHEEL"] = _wheel_file(file)
    metadata[f"sboms/{canonicalize_name(name).replace('-', '_')}.cdx.json"] = sbom.encode()
    write_zip(output / file, _in_order(members, info, metadata), epoch=epoch, jobs=jobs)
    verify_wheel(output / file, records)
    return output / file


def _check_stage(stage: Path, records: Mapping[str, FileRecord]) -> None:
    for path, record in records.items():
        top, slash, _ = path.partition("/")
        if record.link is not None:
            raise ArchiveError("is a link, which a wheel cannot hold", where=stage / path)
        if not slash:
            raise ArchiveError("would be in site-packages itself, outside of any package", where=stage / path)
        if top.endswith((".dist-info", ".data")) or "\\" in path:
            raise ArchiveError("has a name that means something else in a wheel", where=stage / path)
    if not records:
        raise ArchiveError("holds no files", where=stage)


def _run_hook(project: Path, stage: Path, folder: Path, file: str, epoch: int) -> Path:
    """Let scikit-build-core make a wheel in a temporary folder; return it after checking its name."""
    if not (project / "pyproject.toml").is_file():
        raise BuildError("has no pyproject.toml, so it cannot become a wheel", where=project)
    if importlib.util.find_spec("scikit_build_core") is None:
        hint = f"{sys.executable} -m pip install scikit-build-core cmake ninja"
        raise ToolError("scikit-build-core is not installed", where=project, hint=hint)
    settings = {
        "build-dir": str(folder / "build"),
        "cmake.define.MACBUILD_STAGE": stage.resolve().as_posix(),
        "wheel.tags": "-".join(file.removesuffix(".whl").split("-")[2:]),
        # The stage is laid out as site-packages already.
        "wheel.install-dir": "",
    }
    environment = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
    environment |= dict.fromkeys(("CC", "CXX", "OBJC", "OBJCXX"), _NO_COMPILER)
    environment |= {"LC_ALL": "C", "SOURCE_DATE_EPOCH": str(epoch), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with os_errors(project):
        done = subprocess.run(
            [sys.executable, "-c", _HOOK, str(folder / "made"), json.dumps(settings)],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        made = list((folder / "made").glob("*.whl"))
    if done.returncode or len(made) != 1:
        lines = done.stdout.decode("utf-8", "replace").splitlines()[-_LAST_LINES:]
        text = "".join(char if char.isprintable() else " " for char in " / ".join(filter(None, map(str.strip, lines))))
        hint = "with MACBUILD_STAGE set, its CMakeLists.txt must enable no language and only install that folder"
        raise BuildError(f"scikit-build-core made no wheel: {text}", where=project, hint=hint)
    _check_name(made[0].name, file, project)
    return made[0]


def _check_name(found: str, expected: str, project: Path) -> None:
    try:
        same = parse_wheel_filename(found) == parse_wheel_filename(expected)
    except InvalidWheelFilename:
        same = False
    if not same:
        hint = "name and version of pyproject.toml and of the recipe must be the same"
        raise BuildError(f"scikit-build-core made {found}, not {expected}", where=project, hint=hint)


def _take_apart(made: Path, info: str, records: Mapping[str, FileRecord]) -> tuple[list[ZipMember], dict[str, bytes]]:
    """Return the stage's files out of a wheel, compared with the records, and its metadata by path."""
    files: list[ZipMember] = []
    metadata: dict[str, bytes] = {}
    for member in read_zip(made):
        top, _, rest = member.name.partition("/")
        record = records.get(member.name)
        if top == info:
            metadata[rest] = member.data
        elif record is None:
            raise BuildError("was put into the wheel, but is not in the stage", where=member.name)
        elif (len(member.data), hashlib.sha256(member.data).hexdigest()) != (record.size, record.sha256):
            raise BuildError("differs between the wheel and the stage", where=member.name)
        else:
            files.append(ZipMember(member.name, member.data, 0o755 if record.mode == "0755" else 0o644))
    left = records.keys() - {member.name for member in files}
    if left:
        raise BuildError("is in the stage, but was not put into the wheel", where=min(left))
    if not metadata.keys() >= _WRITTEN_HERE:
        raise BuildError("has no METADATA, WHEEL and RECORD", where=made.name)
    del metadata["RECORD"]
    return files, metadata


def _metadata(data: bytes, name: str, version: str, wanted: Sequence[Requirement], project: Path) -> bytes:
    """Return METADATA with the right requirements, after checking the project's name and version."""
    head, blank, description = data.partition(b"\n\n")
    replaced = {canonicalize_name(item.name) for item in wanted}
    try:
        lines = head.decode().rstrip("\n").split("\n")
        fields = {key: value for key, _, value in (line.partition(": ") for line in reversed(lines))}
        same = canonicalize_name(fields["Name"]) == canonicalize_name(name)
        if not same or Version(fields["Version"]) != Version(version):
            raise BuildError(f"is not {name} {version} by its metadata", where=project)
    except (InvalidVersion, KeyError, UnicodeDecodeError) as error:
        raise BuildError(f"has bad metadata: {error}", where=project) from error
    kept = [line for line in lines if _required(line, project) not in replaced]
    at = max(at for at, line in enumerate(kept) if re.match(r"(Requires-(Python|Dist)|Version): ", line)) + 1
    kept[at:at] = [f"Requires-Dist: {item}" for item in wanted]
    text = "\n".join(kept).encode()
    return text + blank + description if blank else text + b"\n"


def _required(line: str, project: Path) -> str | None:
    """Return the package that a line of METADATA requires, or None."""
    key, _, value = line.partition(": ")
    return canonicalize_name(_requirement(value, project).name) if key == "Requires-Dist" else None


def _in_order(members: Iterable[ZipMember], info: str, metadata: Mapping[str, bytes]) -> list[ZipMember]:
    """Return all members of a wheel with its RECORD: metadata last, as the format recommends."""
    found = [*members, *(ZipMember(f"{info}/{path}", data) for path, data in metadata.items())]
    found.sort(key=lambda member: (member.name.startswith(f"{info}/"), member.name.encode()))
    return [*found, _record_file(f"{info}/RECORD", found)]


def _requirement(text: str, project: Path) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise BuildError(f"has a bad requirement {text!r}: {error}", where=project) from error


def _wheel_file(file: str) -> bytes:
    """Return the text of WHEEL, with macbuild as the generator."""
    tag = "-".join(file.removesuffix(".whl").split("-")[2:])
    lines = (
        "Wheel-Version: 1.0",
        f"Generator: macbuild {macbuild.__version__}",
        "Root-Is-Purelib: false",
        f"Tag: {tag}",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _record_file(path: str, members: Iterable[ZipMember]) -> ZipMember:
    """Return RECORD: path, sha256 and size of each member, and its own path (PyPA, "Recording installed projects")."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for member in members:
        writer.writerow((member.name, _record_hash(member.data), len(member.data)))
    writer.writerow((path, "", ""))
    return ZipMember(path, text.getvalue().encode())


def _record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def verify_wheel(path: Path, expected: Mapping[str, FileRecord]) -> None:
    """Read a wheel again and compare every member with its RECORD, and those of the stage with the stage's records.

    Parameters
    ----------
    path
        The wheel.
    expected
        The records of the stage by path, all of them.

    Raises
    ------
    IntegrityError
        It is damaged, or a file is missing, listed twice, unexpected or different.
    FileError
        It cannot be read.
    """
    info = f"{'-'.join(path.name.split('-')[:2])}.dist-info/"
    members = {member.name: member for member in read_zip(path)}
    record = members.get(f"{info}RECORD")
    if record is None:
        raise IntegrityError("has no RECORD", where=path)
    own = [record.name, "", ""]
    rows = [[name, _record_hash(item.data), str(len(item.data))] for name, item in members.items() if item != record]
    try:
        if list(csv.reader(record.data.decode().splitlines())) != [*rows, own]:
            raise IntegrityError("does not match what is in the wheel", where=f"{path}: {record.name}")
    except (UnicodeDecodeError, csv.Error) as error:
        raise IntegrityError(f"is damaged: {error}", where=f"{path}: {record.name}") from error
    found = {
        name: FileRecord(
            path=name,
            size=len(member.data),
            sha256=hashlib.sha256(member.data).hexdigest(),
            mode=_MODES.get(member.mode),
        )
        for name, member in members.items()
        if not name.startswith(info)
    }
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            what = "differs from what was packed"
            if name not in found or name not in expected:
                what = "is missing" if name in expected else "is not one of the files that were packed"
            raise IntegrityError(what, where=f"{path}: {name}")
