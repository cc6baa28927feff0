"""Configure, compile and install a component in a folder that is kept, so that little is done twice: the build step."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from macbuild.build.cmake import CMakeProject, build, child_environment, configure, install, model
from macbuild.build.presets import write_presets
from macbuild.build.programs import find_ninja
from macbuild.build.toolchain import PrepareContext, Prepared, find_toolchain
from macbuild.errors import RecipeError
from macbuild.events import Note
from macbuild.files import atomic_path, files_below, mirror, os_errors, remove_tree
from macbuild.macho.file import is_loadable, open_macho
from macbuild.macho.tbd import stub_of, write_stub
from macbuild.plan.model import BuildSpec, Need
from macbuild.recipe.inputs import input_files
from macbuild.recipe.load import Recipes
from macbuild.recipe.model import PLACEHOLDER, LayoutRule
from macbuild.steps.context import Context
from macbuild.steps.layout import add_files
from macbuild.store import digest

__all__ = ["HostBuild", "build_for_host", "compile_component", "is_configured", "kept_project", "prepared_project"]

# Below the kept folder: copies of sources that projects are in, and what such a project installs.
_SOURCES = "source"
_PREFIX = "prefix"
# Links to the stages that it needs, and stubs of their libraries.
_NEEDS = "needs"
_STUBS = "stubs"
# What the folder was last used for.
_SETTLED = "settled"
# What cmake/darwin.cmake sets for the targets on macOS.
_AS_FOR_MACOS = {
    "CMAKE_C_VISIBILITY_PRESET": "hidden",
    "CMAKE_CXX_VISIBILITY_PRESET": "hidden",
    "CMAKE_VISIBILITY_INLINES_HIDDEN": "ON",
    "CMAKE_POSITION_INDEPENDENT_CODE": "ON",
    "CMAKE_FIND_USE_PACKAGE_REGISTRY": "OFF",
    "CMAKE_FIND_USE_SYSTEM_PACKAGE_REGISTRY": "OFF",
    "CMAKE_EXPORT_NO_PACKAGE_REGISTRY": "ON",
}


def compile_component(spec: BuildSpec, stages: Sequence[Path], context: Context, step: str, work: Path) -> str:
    """Build a component, or the consumer of one.

    The folder `<store>/build/<name>` is kept. It holds the toolchain, stubs of the needed components' libraries, the
    CMake build and its logs; a later build of changed sources compiles only what changed.

    Parameters
    ----------
    spec
        The component and its settings.
    stages
        What it needs, in the order of `spec.needed`.
    context
        What the run gives its steps.
    step
        Id of the step, for events.
    work
        Empty folder that receives `stage/`, and `link/` with the stubs that the project made of the symbols that the
        process that loads the result provides.

    Returns
    -------
    str
        The target and the kept folder, for people.

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
        project = prepared_project(spec, stages, context, folder)
        _make(project, context, step)
        _check_inputs(project, spec, context.recipes)
        progress = context.meter(step, "installing", counts=True)
        if spec.build.project:
            remove_tree(folder / _PREFIX)
            install(project, folder / _PREFIX, progress=progress)
            _collect(spec, stages, folder / _PREFIX, work / "stage")
        else:
            install(project, work / "stage", progress=progress)
        if spec.target and not spec.project and not spec.build.project:
            write_presets(project, str(spec.target))
        with os_errors(work):
            (work / "link").mkdir()
            for stub in sorted(project.build_folder.rglob("*.tbd")):
                shutil.copyfile(stub, work / "link" / stub.name)
    return f"for {spec.target or 'this machine'} in {folder}"


@dataclass(frozen=True, slots=True)
class HostBuild:
    """Describe what was built for this machine: the install tree, and the build folder for CTest."""

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
    """Build a component and its tests for this machine.

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
        prepared = toolchain.prepare(folder / "toolchain", PrepareContext(_compiler_cache(context), emit=context.emit))
        project = CMakeProject(source, folder, prepared, variables)
        _make(project, context, f"{component} for this machine")
        remove_tree(folder / "stage")
        install(project, folder / "stage")
        return HostBuild(folder / "stage", project.build_folder)


def is_configured(spec: BuildSpec, folder: Path) -> bool:
    """Return True if the kept folder has a configured project with the settings of a step."""
    record = folder / _SETTLED
    with os_errors(folder):
        settled = record.is_file() and record.read_text("utf-8") == spec.settled
        return settled and (folder / "configured.json").is_file()


def kept_project(spec: BuildSpec, context: Context, folder: Path) -> CMakeProject:
    """Return the project of a component as it was prepared in its kept folder; a `ToolError` if it was not."""
    prepared = Prepared.load(folder / "toolchain")
    return CMakeProject(_source(spec, context.recipes, folder), folder, prepared, name=spec.component)


def _source(spec: BuildSpec, recipes: Recipes, folder: Path) -> Path:
    """Return the folder of the CMake project."""
    if spec.build.project:
        return Path(PLACEHOLDER.sub(lambda match: str(folder / _SOURCES / match[1]), spec.build.project))
    return recipes.folder(spec.component) / spec.project


def prepared_project(spec: BuildSpec, stages: Sequence[Path], context: Context, folder: Path) -> CMakeProject:
    """Return the project of a component with its toolchain and stubs prepared in its kept folder."""
    _start_over_if_other(folder, spec.settled)
    toolchain = find_toolchain(spec.toolchain, spec.target, os.environ)
    needs = _Needs(
        folder, {**dict.fromkeys(map(str, context.recipes.groups(spec.component)), "recipes"), str(folder): "build"}
    )
    for need, stage in zip(spec.needed, stages, strict=True):
        needs.add(need, stage, foreign=bool(spec.build.project), stubs=spec.target is not None)
    own = {name: needs.filled(value) for name, value in spec.build.definitions.items()}
    definitions = {"BUILD_TESTING": "OFF", **({} if spec.target else _AS_FOR_MACOS), **own, **needs.definitions}
    if needs.libraries:
        definitions["CMAKE_PREFIX_PATH"] = ";".join(map(str, needs.libraries))
    if spec.build.project:
        definitions |= {"CMAKE_INSTALL_PREFIX": str(folder / _PREFIX), **_plain_names(needs.libraries)}
    source = _source(spec, context.recipes, folder)
    foreign = any(need.role == "source" for need in spec.needed)
    prepare = PrepareContext(_compiler_cache(context), needs.paths, foreign=foreign, emit=context.emit)
    prepared = toolchain.prepare(folder / "toolchain", prepare)
    return CMakeProject(source, folder, prepared, definitions, name=spec.component)


def _start_over_if_other(folder: Path, settled: str) -> None:
    """Empty a kept folder, except for copied sources, if it was last used with something else than now.

    The record is removed first and written last, so a folder that a killed run left half empty has none.
    """
    record = folder / _SETTLED
    with os_errors(folder):
        if record.is_file() and record.read_text("utf-8") == settled:
            return
        record.unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.name != _SOURCES:
                remove_tree(path)
    with atomic_path(record) as partial:
        partial.write_text(settled, "utf-8")


def _compiler_cache(context: Context) -> Path:
    return context.store.root / "zig"


@dataclass
class _Needs:
    """The places of what a project is built with.

    Parameters
    ----------
    folder
        The kept folder.
    paths
        Receives folders with the names that they have in what is compiled.
    definitions
        Receives the CMake cache variables that tell the places.
    places
        Receives the folder of each component.
    libraries
        Receives stages of libraries.
    """

    folder: Path
    paths: dict[str, str]
    definitions: dict[str, str] = field(default_factory=dict)
    places: dict[str, Path] = field(default_factory=dict)
    libraries: list[Path] = field(default_factory=list)

    def add(self, need: Need, stage: Path, *, foreign: bool, stubs: bool) -> None:
        name = need.component
        if need.role == "source" and foreign:
            # A folder that stays the same when the source changes, so that only what changed is compiled.
            place = self.places[name] = self.folder / _SOURCES / name
            if _names(stage) != _names(place):
                # A project may list its files by a pattern, which CMake looks at only when it configures.
                with os_errors(self.folder):
                    (self.folder / "configured.json").unlink(missing_ok=True)
            mirror(stage, place)
            return
        place = self._linked(need, stage)
        shown = name if need.role == "library" else f"{name}-{need.role}"
        self.paths |= {str(stage): shown, str(place): shown}
        if need.role == "source":
            self.definitions["MACBUILD_SOURCE"] = str(place)
        elif need.role == "tool":
            self.definitions[f"{name.upper()}_HOST_ROOT"] = str(place)
        else:
            self.definitions[f"{name.upper()}_ROOT"] = str(place)
            self.places[name] = place
            self.libraries.append(place)
            if stubs:
                self.definitions[f"{name.upper()}_LINK_DIR"] = str(_stubs(stage, self.folder / _STUBS / name))

    def _linked(self, need: Need, stage: Path) -> Path:
        """Return a link to a stage whose path stays the same when the stage's key changes."""
        place = self.folder / _NEEDS / f"{need.component}-{need.role}"
        with os_errors(place):
            place.parent.mkdir(exist_ok=True)
            if place.is_symlink() and place.readlink() == stage:
                return place
            place.unlink(missing_ok=True)
            place.symlink_to(stage)
        return place

    def filled(self, text: str) -> str:
        """Return a text with the folders of components in place of their names."""
        return PLACEHOLDER.sub(lambda match: str(self.places.get(match[1], match[0])), text)


def _names(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in files_below(folder)} if folder.is_dir() else set()


def _plain_names(libraries: Sequence[Path]) -> dict[str, str]:
    """Return the flags with which a project finds headers and libraries that it names without asking for a package."""
    headers = " ".join(f"-isystem {shlex.quote(str(stage / 'include'))}" for stage in libraries)
    links = " ".join(f"-L{shlex.quote(str(stage / 'lib'))}" for stage in libraries if (stage / "lib").is_dir())
    return {
        **dict.fromkeys(("CMAKE_C_FLAGS", "CMAKE_CXX_FLAGS"), headers),
        **{f"CMAKE_{kind}_LINKER_FLAGS": links for kind in ("EXE", "SHARED", "MODULE")},
    }


def _collect(spec: BuildSpec, stages: Sequence[Path], prefix: Path, stage: Path) -> None:
    """Fill a stage from what a project has installed, and from sources, by the rules of the recipe."""
    trees = {need.component: path for need, path in zip(spec.needed, stages, strict=True) if need.role == "source"}
    with os_errors(stage):
        stage.mkdir()
    for rule in spec.build.install or [LayoutRule(source="**/*", to="")]:
        name, slash, rest = rule.source.partition("/")
        match = PLACEHOLDER.fullmatch(name)
        if match and slash:
            add_files(trees[match[1]], stage, [msgspec.structs.replace(rule, source=rest)])
        else:
            add_files(prefix, stage, [rule])


def _make(project: CMakeProject, context: Context, step: str) -> None:
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


def _check_inputs(project: CMakeProject, spec: BuildSpec, recipes: Recipes) -> None:
    """Refuse a build that read a file outside its inputs: the key would not notice a change of that file."""
    command = [str(find_ninja()), "-C", str(project.build_folder), "-t", "deps"]
    done = subprocess.run(command, env=child_environment(project), capture_output=True, text=True, check=False)
    # Thousands of headers: as text, because making a path of each takes longer than ninja does.
    inside = f"{os.path.abspath(recipes.root_of(spec.component))}{os.sep}"
    names = {line.strip() for line in done.stdout.splitlines() if line.startswith("    ")}
    names |= {str(path) for path in model(project).inputs}
    paths = {
        os.path.normpath(name if name[:1] == os.sep else f"{project.build_folder}{os.sep}{name}") for name in names
    }
    inputs = input_files(recipes.root_of(spec.component), recipes.folder(spec.component), spec.build.inputs)
    declared = {os.path.abspath(path) for path in inputs}
    used = {path for path in paths if path.startswith(inside)}
    missing = sorted(path.removeprefix(inside) for path in used - declared)
    if missing:
        hint = "add them to build.inputs"
        raise RecipeError(
            f"is built from {', '.join(missing[:5])}, not among its inputs", where=spec.component, hint=hint
        )
