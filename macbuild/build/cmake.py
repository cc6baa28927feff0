"""Configure, build and install a CMake project with ninja, in a folder that is kept so that only changes are built."""

from __future__ import annotations

import hashlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from macbuild.build.file_api import Model, read_model, write_query
from macbuild.build.programs import find_cmake, find_ninja
from macbuild.build.toolchain.model import Prepared
from macbuild.epoch import DEFAULT_EPOCH
from macbuild.errors import BuildError, ToolError
from macbuild.events import Meter
from macbuild.files import atomic_path, os_errors, remove_tree

__all__ = [
    "CMakeProject",
    "build",
    "child_environment",
    "configure",
    "install",
    "model",
    "settings",
]

Log: TypeAlias = Callable[[str], None]

_TAIL = 30
_STEP = re.compile(r"\[(\d+)/(\d+)\] ")
_TICK = 0.25
_GRACE = 5.0
# What a build may see of the user's environment. Everything else, CFLAGS and CPATH first of all, would change results.
_KEPT = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "TMPDIR",
        "TMP",
        "TEMP",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_RUNTIME_DIR",
    }
)
_KEPT_PREFIX = "CCACHE_"
# ccache also keeps what is compiled with precompiled headers, and what includes files that were just generated. The
# time in __TIME__ is always the same. The user's setting comes first.
_CCACHE = {"CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime"}
# What decides what programs write. The time is always the same, because the user's is not in the key of a build.
_FIXED = {"LC_ALL": "C", "SOURCE_DATE_EPOCH": str(DEFAULT_EPOCH), "ZERO_AR_DATE": "1"}


@dataclass(frozen=True)
class CMakeProject:
    """A CMake project and where it is built.

    Parameters
    ----------
    source
        The folder with `CMakeLists.txt`.
    folder
        The folder that is kept: `build/` is the build folder, `log/` has what each part printed.
    toolchain
        What to build with.
    definitions
        Cache variables.
    environ
        Variables besides the clean ones and the toolchain's.
    name
        The component, for messages.
    """

    source: Path
    folder: Path
    toolchain: Prepared
    definitions: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    @property
    def build_folder(self) -> Path:
        """Return the folder in which CMake and ninja work."""
        return self.folder / "build"

    @property
    def component(self) -> str:
        """Return the name for messages."""
        return self.name or self.source.name


def child_environment(project: CMakeProject, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment that CMake and ninja run in, which a shell for the build has too.

    Parameters
    ----------
    project
        For the toolchain's and the project's own variables.
    environ
        The user's environment, of which little is kept.

    """
    user = os.environ if environ is None else environ
    kept = {name: value for name, value in user.items() if name in _KEPT or name.startswith(_KEPT_PREFIX)}
    own = {"NINJA_STATUS": "[%f/%t] ", **_FIXED}
    found = {**_CCACHE, **kept, **own, **project.toolchain.environ, **project.environ}
    first = project.toolchain.environ.get("PATH")
    if first:
        found["PATH"] = f"{first}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return found


def settings(project: CMakeProject, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return all cache variables that a project is configured with.

    With the compilers of this machine, ccache is the launcher if it is on PATH. The drivers of the other toolchains
    start it themselves, behind what they do to the flags.
    """
    found = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "CMAKE_MAKE_PROGRAM": str(find_ninja()),
        **project.definitions,
    }
    ccache = shutil.which("ccache", path=child_environment(project, environ).get("PATH"))
    if ccache and project.toolchain.name == "host":
        for language in ("C", "CXX", "OBJC", "OBJCXX"):
            found.setdefault(f"CMAKE_{language}_COMPILER_LAUNCHER", ccache)
    return found


def configure(project: CMakeProject, log: Log = lambda _: None, progress: Meter = lambda _, __: None) -> bool:
    """Configure, unless nothing that the configuration depends on has changed.

    A change of the toolchain empties the build folder; a change of settings starts from an empty cache.

    Parameters
    ----------
    project
        What to configure.
    log
        Receives each line that CMake prints.
    progress
        Called at short intervals; an exception that it raises ends CMake.

    Returns
    -------
    bool
        True if CMake ran.

    Raises
    ------
    BuildError
        CMake failed; the message has its last lines.
    """
    cmake = find_cmake()
    variables = settings(project)
    wanted = {
        "toolchain": _toolchain_digest(project),
        "settings": _digest([str(cmake), variables, dict(project.environ)]),
    }
    record = project.folder / "configured.json"
    known = _read_record(record)
    folder = project.build_folder
    same = {key: known.get(key) == value for key, value in wanted.items()}
    if all(same.values()) and known.get("inputs") == _stamps(known.get("inputs", ())) and _built(folder):
        return False
    with os_errors(project.folder):
        record.unlink(missing_ok=True)
    if not same["toolchain"]:
        remove_tree(folder)
    elif not same["settings"]:
        remove_tree(folder / "CMakeCache.txt")
    write_query(folder)
    command = [str(cmake), "-G", "Ninja", "-S", str(project.source), "-B", str(folder)]
    command.append(f"-DCMAKE_TOOLCHAIN_FILE:FILEPATH={project.toolchain.toolchain_file}")
    command += [f"-D{name}={value}" for name, value in variables.items()]
    _run(project, "configure", command, log=log, progress=progress)
    inputs = [str(path) for path in model(project).inputs]
    with atomic_path(record) as partial:
        partial.write_text(json.dumps({**wanted, "inputs": _stamps(inputs)}), "utf-8")
    return True


def build(
    project: CMakeProject,
    log: Log = lambda _: None,
    progress: Meter = lambda _, __: None,
    *,
    targets: Sequence[str] = (),
    jobs: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Build what is out of date.

    Parameters
    ----------
    project
        A configured project.
    log
        Receives each line that ninja prints.
    progress
        Called with the number of steps done and of all steps, at short intervals; an exception that it raises ends
        ninja.
    targets
        What to build; everything by default.
    jobs
        How many compilers may run at once. Not given when a jobserver decides.
    environ
        The jobserver's variables.

    Raises
    ------
    BuildError
        A step failed; the message has its last lines.
    """
    command = [str(find_ninja()), "-C", str(project.build_folder)]
    command += [f"-j{jobs}"] if jobs is not None else []
    _run(project, "build", [*command, *targets], log=log, progress=progress, environ=environ)


def install(
    project: CMakeProject, stage: Path, log: Log = lambda _: None, progress: Meter = lambda _, __: None
) -> None:
    """Install what was built into a folder.

    Parameters
    ----------
    project
        A project that is built.
    stage
        The prefix; it is made if missing.
    log, progress
        As for `build`.

    Raises
    ------
    BuildError
        CMake failed; the message has its last lines.
    """
    command = [str(find_cmake()), "--install", str(project.build_folder), "--prefix", str(stage.absolute())]
    _run(project, "install", command, log=log, progress=progress)


def model(project: CMakeProject) -> Model:
    """Return CMake's description of the configured build: targets, compilers, inputs, cache."""
    return read_model(project.build_folder, project.source)


def _run(
    project: CMakeProject,
    part: str,
    command: Sequence[str],
    *,
    log: Log,
    progress: Meter,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Run a program, its output to the log; on failure raise with its end."""
    path = project.folder / "log" / f"{part}.log"
    tail: deque[str] = deque(maxlen=_TAIL)
    with os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file, _child(command, {**child_environment(project), **(environ or {})}) as child:
            for line in _lines(child, file, progress):
                tail.append(line)
                log(line)
            status = child.wait()
    if status:
        what = f"signal {-status}" if status < 0 else f"exit code {status}"
        lines = "\n".join(("", *tail))
        hint = f"everything is kept in {project.folder}"
        if project.toolchain.name != "host":
            hint += f"; to look around, run: macbuild shell {project.component}"
        raise BuildError(f"{part} failed ({what}):{lines}", where=project.component, hint=hint)


@contextmanager
def _child(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in its own process group, which ends with the block."""
    try:
        child = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"cannot be started: {error.strerror}", where=command[0]) from error
    try:
        yield child
    finally:
        if child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _lines(child: subprocess.Popen[bytes], file: BinaryIO, progress: Meter) -> Iterator[str]:
    """Yield the lines of a program as they come, and report its progress."""
    assert child.stdout is not None
    done, total = 0, None
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            ready = selector.select(_TICK)
            piece = os.read(child.stdout.fileno(), 1 << 16) if ready else None
            if piece:
                file.write(piece)
                *lines, rest = (rest + piece).split(b"\n")
                for raw in lines:
                    line = raw.decode("utf-8", "replace").rstrip("\r")
                    match = _STEP.match(line)
                    if match:
                        done, total = int(match[1]), int(match[2])
                    yield line
            progress(done, total)
            if piece == b"":
                break
    if rest:
        yield rest.decode("utf-8", "replace")


def _built(folder: Path) -> bool:
    return (folder / "build.ninja").is_file() and (folder / "CMakeCache.txt").is_file()


def _toolchain_digest(project: CMakeProject) -> str:
    """Return a digest of the compilers: their identity, their scripts and their environment."""
    toolchain = project.toolchain
    places = [str(project.source), str(project.build_folder)]
    parts: list[object] = [toolchain.identity, *places, _FIXED]
    for path in (toolchain.toolchain_file, toolchain.c, toolchain.cxx):
        with os_errors(path):
            # A real compiler is known by its identity; a script is small.
            parts.append([str(path), path.read_text("utf-8") if path.stat().st_size < 1 << 16 else ""])
    return _digest(parts)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _read_record(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _stamps(paths: Sequence[str] | Mapping[str, object]) -> dict[str, list[int] | None]:
    """Return time in nanoseconds and size of files, None for one that is not there."""
    found: dict[str, list[int] | None] = {}
    for path in paths:
        try:
            status = os.stat(path)
            found[path] = [status.st_mtime_ns, status.st_size]
        except OSError:
            found[path] = None
    return found
