"""The build step: configure, compile and install a component in a folder that is kept, so that little is done twice."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from macbuild.cmake import Project, build, child_environment, configure, find_ninja, install, model
from macbuild.errors import RecipeError, ToolError
from macbuild.events import Emit, Note
from macbuild.files import os_errors, remove_tree
from macbuild.ingredients import input_files
from macbuild.macho.file import open_macho
from macbuild.macho.tbd import stub_of, write_stub
from macbuild.plan import BuildSpec
from macbuild.presets import write_presets
from macbuild.repair import is_loadable
from macbuild.stage import files_below
from macbuild.steps import Context
from macbuild.store import Store, digest
from macbuild.toolchain import PrepareContext, Prepared, Toolchain, find_toolchain

__all__ = ["HostBuild", "build_for_host", "compile_component", "enter"]


def compile_component(spec: BuildSpec, stages: Mapping[str, Path], context: Context, step: str, work: Path) -> str:
    """Build a component for macOS.

    The folder `<store>/build/<name>` is kept. It holds the toolchain, stubs of the needed components' libraries, the
    CMake build and its logs; a later build of changed sources compiles only what changed.

    Parameters
    ----------
    spec
        What to build.
    stages
        Stages of needed components by name.
    context
        What the run gives its steps.
    step
        Id of the step, for events.
    work
        Empty folder that receives `stage/`, and `link/` with the stubs that the project made of what the process that
        loads the result provides.

    Returns
    -------
    str
        Where it was done.

    Raises
    ------
    BuildError
        With the last lines of the log, if it does not configure, compile or install.
    RecipeError
        If it was compiled from a file of the recipes that is not among its inputs.
    ToolError
        If the toolchain does not work.
    """
    with context.store.kept(spec.folder, context.cancelled.is_set) as folder:
        project = _for_macos(spec, stages, context, folder)
        _make(project, context, step)
        _check_inputs(project, spec, context.recipes)
        install(project, work / "stage", progress=context.meter(step, "installing", counts=True))
        write_presets(project, str(spec.target))
        with os_errors(work):
            (work / "link").mkdir()
            for stub in sorted(project.build_folder.rglob("*.tbd")):
                shutil.copyfile(stub, work / "link" / stub.name)
    return f"for {spec.target} in {folder}"


@dataclass(frozen=True, slots=True)
class HostBuild:
    """What was built for the machine at hand: the install tree, and the build folder for CTest."""

    stage: Path
    build_folder: Path


def build_for_host(
    component: str,
    source: Path,
    roots: Mapping[str, Path],
    definitions: Mapping[str, str],
    context: Context,
    *,
    sanitize: str = "",
) -> HostBuild:
    """Build a component, with its tests, for the machine that macbuild runs on.

    Parameters
    ----------
    component, source
        Its name and folder.
    roots
        Folders of needed components, each with `include/` and `lib/`.
    definitions
        CMake cache variables.
    context
        What the run gives its steps.
    sanitize
        Sanitizers to build with, as `address,undefined`.

    Raises
    ------
    BuildError
        If it does not configure, compile or install.
    ToolError
        If there is no compiler.
    """
    toolchain = find_toolchain("host", None, os.environ)
    variables = {**definitions, "BUILD_TESTING": "ON", "MACBUILD_SANITIZE": sanitize}
    variables |= {f"{name.upper()}_ROOT": str(root) for name, root in roots.items()}
    mark = digest([toolchain.identity, variables, str(source.absolute())])[:12]
    name = f"{component}-host{'-' + sanitize.replace(',', '-') if sanitize else ''}-{mark}"
    with context.store.in_use(), context.store.kept(name) as folder:
        project = _project(toolchain, source, folder, variables, {}, context.store, context.emit)
        _make(project, context, f"{component} for this machine")
        remove_tree(folder / "stage")
        install(project, folder / "stage")
        return HostBuild(folder / "stage", project.build_folder)


def enter(spec: BuildSpec, stages: Mapping[str, Path], context: Context, words: Sequence[str]) -> int:
    """Run a command, or the user's shell, in a component's kept build folder with the environment of its build.

    Parameters
    ----------
    spec
        The build step of the component. If it was not built here yet, the folder is made and configured.
    stages
        Stages of needed components by name.
    context
        What the run gives its steps.
    words
        The command; the shell if there is none.

    Returns
    -------
    int
        The exit code.

    Raises
    ------
    BuildError
        If it does not configure.
    ToolError
        If the toolchain does not work, or the command cannot be started.
    """
    with context.store.in_use(), context.store.kept(spec.folder) as folder:
        if (folder / "configured.json").is_file():
            prepared = Prepared.load(folder / "toolchain")
            project = Project(context.recipes / spec.component, folder, prepared, name=spec.component)
        else:
            project = _for_macos(spec, stages, context, folder)
            configure(project)
            write_presets(project, str(spec.target))
    compilers = {"CC": str(project.toolchain.c), "CXX": str(project.toolchain.cxx)}
    environ = {**child_environment(project), **compilers, "MACBUILD_SHELL": spec.component}
    command = list(words) or [environ.get("SHELL", "/bin/sh")]
    try:
        return subprocess.run(command, cwd=project.build_folder, env=environ, check=False).returncode
    except OSError as error:
        raise ToolError(f"cannot be started: {error.strerror}", where=command[0]) from error


def _for_macos(spec: BuildSpec, stages: Mapping[str, Path], context: Context, folder: Path) -> Project:
    """Return the project of a component with its toolchain and the stubs of what it needs ready in the kept folder."""
    toolchain = find_toolchain(spec.toolchain, spec.target, os.environ)
    definitions = {**spec.build.definitions, "BUILD_TESTING": "OFF"}
    for name, stage in stages.items():
        definitions[f"{name.upper()}_ROOT"] = str(stage)
        definitions[f"{name.upper()}_LINK_DIR"] = str(_stubs(stage, folder / "needs" / name))
    paths = {str(context.recipes): "recipes", str(folder): "build"}
    paths |= {str(stage): name for name, stage in stages.items()}
    source = context.recipes / spec.component
    return _project(toolchain, source, folder, definitions, paths, context.store, context.emit)


def _project(
    toolchain: Toolchain,
    source: Path,
    folder: Path,
    definitions: Mapping[str, str],
    paths: Mapping[str, str],
    store: Store,
    emit: Emit,
) -> Project:
    prepared = toolchain.prepare(folder / "toolchain", PrepareContext(store.root / "zig", paths, emit=emit))
    return Project(source, folder, prepared, definitions, name=source.name)


def _make(project: Project, context: Context, step: str) -> None:
    """Configure and compile, warnings of compilers as notes."""

    def log(line: str) -> None:
        if "warning: " in line:
            context.emit(Note("debug", line, step))

    configure(project, progress=context.meter(step, "configuring", counts=True))
    environ = context.compiler_environ
    jobs = None if environ else context.jobs
    build(project, log, context.meter(step, "compiling", counts=True), jobs=jobs, environ=environ)


def _stubs(stage: Path, folder: Path) -> Path:
    """Write a stub of each library of a stage, once; linking against it sees no more than what the library exports."""
    complete = folder / "complete"
    with os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if complete.exists():
            return folder
    for path in files_below(stage):
        if path.suffix == ".dylib" and not path.is_symlink() and is_loadable(path):
            with open_macho(path) as file:
                text = write_stub(stub_of(file.images[0]))
            target = folder / f"{path.name.split('.')[0]}.tbd"
            with os_errors(target):
                target.write_text(text, "utf-8")
    with os_errors(complete):
        complete.touch()
    return folder


def _check_inputs(project: Project, spec: BuildSpec, recipes: Path) -> None:
    """Refuse what was compiled from a file that the key does not cover: the next change of it would go unnoticed."""
    command = [str(find_ninja()), "-C", str(project.build_folder), "-t", "deps"]
    done = subprocess.run(command, env=child_environment(project), capture_output=True, text=True, check=False)
    # Thousands of headers: as text, because making a path of each takes longer than ninja does.
    inside = f"{os.path.abspath(recipes)}{os.sep}"  # noqa: PTH100 - as CMake writes it, symbolic links kept
    names = {line.strip() for line in done.stdout.splitlines() if line.startswith("    ")}
    names |= {str(path) for path in model(project).inputs}
    paths = {
        os.path.normpath(name if name[:1] == os.sep else f"{project.build_folder}{os.sep}{name}") for name in names
    }
    inputs = input_files(Path(inside, spec.component), spec.build.inputs)
    declared = {os.path.normpath(path) for path in inputs}
    used = {path for path in paths if path.startswith(inside)}
    missing = sorted(path.removeprefix(inside) for path in used - declared)
    if missing:
        hint = "add them to build.inputs"
        raise RecipeError(
            f"is built from {', '.join(missing[:5])}, not among its inputs", where=spec.component, hint=hint
        )
