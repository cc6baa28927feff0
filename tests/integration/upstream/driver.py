"""Build the synthetic upstream with macbuild, then repeat single steps of it with one thing left out.

A step is repeated as CMake recorded it, with other paths: a copy of the sources that lacks an edit, a copy of the
compat layer that lacks a header, a compiler whose driver lacks a row. So the original build stays untouched.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from macbuild.build.cmake import CMakeProject as Configured
from macbuild.build.cmake import child_environment
from macbuild.build.programs import find_cmake, find_ninja
from macbuild.build.toolchain import Prepared
from macbuild.build.toolchain.driver import Driver, install_driver
from macbuild.build.toolchain.flags import Rule, System, rules_from
from macbuild.commands.project import Project
from macbuild.config import Settings
from macbuild.errors import MacbuildError
from macbuild.events import discard
from macbuild.plan.model import BuildSpec, Plan, Step
from macbuild.recipe.load import Recipes, load_recipes
from macbuild.source.patch.apply import apply_edits
from macbuild.source.patch.model import EditFile, load_edits
from macbuild.steps.build import compile_component
from macbuild.steps.executor import build
from macbuild.target import Arch
from tests.conftest import cache_folder, shared_store

__all__ = ["FOLDERS", "REPOS", "ROOT", "Kept", "Result", "built", "edits", "sources", "vendors_built"]

MakePlan: TypeAlias = Callable[[Mapping[str, MacbuildError]], Plan]

ROOT = Path(__file__).parents[3]
REPOS = Path(__file__).parent / "repos"
# Backends that macbuild has no recipes for, because ours replace them.
RECIPES = Path(__file__).parent / "recipes"
# Components, and the folders of their repositories.
FOLDERS = {
    "common": "common",
    "core": "core",
    "backend": "backend",
    "tritonserver": "server",
    "identity_backend": "identity_backend",
    "python_backend": "python_backend",
}
MADE = ("core", "identity_backend", "python_backend", "tritonserver")
# The Python backend has tests of its own on this machine.
MADE_HERE = ("core", "identity_backend", "tritonserver")


def sources() -> list[str]:
    """Return the repositories in the form of macbuild's `--source`."""
    return [f"{component}={REPOS / folder}" for component, folder in FOLDERS.items()]


def edits(component: str, without: Iterable[str] = ()) -> list[EditFile]:
    """Return the edits of a component except those with some names."""
    folder = ROOT / "patches" / component
    files = load_edits(folder) if folder.is_dir() else []
    return [
        msgspec.structs.replace(file, edits=[edit for edit in file.edits if edit.name not in without]) for file in files
    ]


def _project(arch: Arch | None) -> Project:
    settings = Settings(cache_dir=str(shared_store()), arch=arch, sources=sources())
    return Project(settings, os.environ, ROOT)


def built(arch: Arch | None) -> dict[str, Kept]:
    """Build core, server and backends, for a Mac or this machine; return the folders, by component.

    Their dependencies come from the store. The components themselves are built by macbuild's own build step, which has
    nothing to compile in a folder that `macbuild build` has left.
    """
    project = _project(arch)

    def make_plan(lost: Mapping[str, MacbuildError]) -> Plan:
        planner = project.planner(lost)
        if arch is None:
            return planner.host_tree("tritonserver")
        return planner.plan(project.request(list(MADE), pack=False))

    return _built(project, make_plan, MADE if arch else MADE_HERE, arch, project.recipes)


def vendors_built() -> dict[str, Kept]:
    """Build for a Mac the backends of upstream that ours replace, with recipes that only these tests have."""
    project = _project("arm64")
    recipes = load_recipes(RECIPES)
    folders = {name: REPOS / name for name in recipes}
    ours = project.recipes
    # One of them has the name of one of our backends.
    places = {name: (recipes if name in recipes else ours).folder(name) for name in {*ours, *recipes}}
    both = Recipes(ours.root, places)

    def make_plan(lost: Mapping[str, MacbuildError]) -> Plan:
        planner = project.planner(lost)
        planner = replace(planner, recipes=both, folders={**planner.folders, **folders})
        return planner.plan(project.request(list(recipes), pack=False))

    return _built(project, make_plan, recipes, "arm64", both, prefix="vendor-")


def _built(
    project: Project, make_plan: MakePlan, made: Collection[str], arch: Arch | None, recipes: Recipes, prefix: str = ""
) -> dict[str, Kept]:
    """Build the components again in the folders that are kept for them; a prefix keeps those of ours."""
    context = replace(project.context(discard), recipes=recipes)

    def inputs(lost: Mapping[str, MacbuildError]) -> Plan:
        plan = make_plan(lost)
        wanted = dict.fromkeys(need for step, _ in _own(plan, made, arch) for need in step.needs)
        return msgspec.structs.replace(plan, artifacts=(), stages=tuple(wanted), checks=())

    found = {}
    with project.store.in_use():
        outcome = build(inputs, context, keep_going=False)
        for error in outcome.errors.values():
            raise error
        for step, spec in _own(outcome.plan, made, arch):
            own = msgspec.structs.replace(spec, folder=prefix + spec.folder)
            stages = [project.store.path(outcome.plan.steps[need].key) / "stage" for need in step.needs]
            variants = cache_folder() / "upstream" / own.folder
            shutil.rmtree(variants / "made", ignore_errors=True)
            (variants / "made").mkdir(parents=True)
            compile_component(own, stages, context, step.id, variants / "made")
            folder = project.store.root / "build" / own.folder
            found[spec.component] = Kept(spec.component, folder, variants / "made/stage", variants)
    return found


def _own(plan: Plan, made: Collection[str], arch: Arch | None) -> Iterator[tuple[Step, BuildSpec]]:
    """Yield the steps of a plan that build the components."""
    for step in plan.steps.values():
        spec = step.spec
        if isinstance(spec, BuildSpec) and spec.component in made and (spec.target is None) == (arch is None):
            yield step, spec


@dataclass(frozen=True)
class Result:
    """The result of a repeated step."""

    code: int
    text: str
    output: Path

    def made(self) -> Path:
        """Return the output of the step, which must have succeeded."""
        assert self.code == 0, self.text
        return self.output


@dataclass(frozen=True)
class Kept:
    """A component's kept build folder.

    Parameters
    ----------
    component
        Name of the component.
    folder
        Folder with `build/`, `source/` and `toolchain/`.
    stage
        The component's stage.
    variants
        Folder for variants. The paths are the same in each run, so that ccache recognizes them.
    changes
        Texts in recorded commands, and their replacements.
    """

    component: str
    folder: Path
    stage: Path
    variants: Path
    changes: tuple[tuple[str, str], ...] = ()

    @property
    def build_folder(self) -> Path:
        """The build folder of CMake and ninja."""
        return self.folder / "build"

    def environ(self) -> Mapping[str, str]:
        """Return the environment of the build."""
        return child_environment(Configured(self.folder, self.folder, Prepared.load(self.folder / "toolchain")))

    def text_of(self, path: str) -> str:
        """Return a file of the component's edited source."""
        return (self.folder / "source" / self.component / path).read_text()

    # Leaving things out.

    def with_change(self, old: str | Path, new: str | Path) -> Kept:
        """Return the build with a path of recorded commands replaced."""
        return replace(self, changes=(*self.changes, (str(old), str(new))))

    def without_edits(self, *names: str, component: str = "") -> Kept:
        """Return the build with a source that lacks edits, of the given component or its own."""
        component = component or self.component
        folder = self._fresh("-".join(("edit", *names))) / component
        shutil.copytree(REPOS / FOLDERS.get(component, component), folder)
        apply_edits(folder, edits(component, names), "macos")
        return self.with_change(self.folder / "source" / component, folder)

    def without_compat(self, *names: str) -> Kept:
        """Return the build with a compat layer that lacks files."""
        prefix = Path(self.cached("CMAKE_PROJECT_INCLUDE")).parents[3]
        folder = self._fresh("-".join(("compat", *(Path(name).stem for name in names))))
        shutil.copytree(prefix, folder, dirs_exist_ok=True)
        for name in names:
            (folder / name).unlink()
        return self.with_change(prefix, folder)

    def without_rows(self, *flags: str, foreign: bool = True, quiet: bool = True, accept: bool = False) -> Kept:
        """Return the build with a driver that lacks rows of the table.

        Parameters
        ----------
        flags
            Flags of these rows.
        foreign
            Whether there are rows for projects that are not ours.
        quiet
            Whether the compiler ignores warnings that it does not know.
        accept
            Whether the linker gets these flags unchanged. It refuses flags without a row.
        """
        data = json.loads((self.folder / "toolchain/bin/driver.json").read_bytes())
        del data["path"]
        rules = [rule for rule in rules_from(data.pop("rules")) if foreign or not rule.foreign]
        if accept:
            rules = [self._accepted(rule) if rule.flag in flags else rule for rule in rules]
        else:
            rules = [rule for rule in rules if rule.flag not in flags]
        system = System(**data.pop("system"))
        driver = Driver(rules=rules, system=system, **data)
        if not quiet:
            silent = "-Wno-unknown-warning-option"
            driver = replace(
                driver,
                c=[word for word in driver.c if word != silent],
                cxx=[word for word in driver.cxx if word != silent],
            )
        folder = self._fresh(f"rows{'-'.join(flags)}-{foreign}-{quiet}")
        install_driver(folder / "bin", driver)
        return self.with_change(self.folder / "toolchain/bin", folder / "bin")

    def without_driver(self) -> Kept:
        """Return the build with the bare compiler, which gets all flags unchanged."""
        data = json.loads((self.folder / "toolchain/bin/driver.json").read_bytes())
        folder = self._fresh("bare")
        for name, words in (("cc", data["link"]), ("c++", [data["link_cxx"][0], "c++", *data["link_cxx"][2:]])):
            script = folder / name
            script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            script.chmod(0o755)
        return self.with_change(self.folder / "toolchain/bin", folder)

    @staticmethod
    def _accepted(rule: Rule) -> Rule:
        return rule._replace(action="accept", handler="", to=())

    def _fresh(self, name: str) -> Path:
        folder = self.variants / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    # Repeating steps.

    def compile(self, source: str) -> Result:
        """Compile one file of the component, or of another one as `<component>/<path>`."""
        wanted = self.folder / "source" / self.component / source
        if not wanted.is_file():
            wanted = self.folder / "source" / source
        for entry in json.loads((self.build_folder / "compile_commands.json").read_bytes()):
            if Path(entry["file"]) == wanted:
                return self._repeated(_words(entry["command"]), "o-" + wanted.name)
        raise AssertionError(f"{source} is not compiled")

    def link(self, target: str, objects: Mapping[str, Path] | None = None, configured: Path | None = None) -> Result:
        """Link a target.

        Parameters
        ----------
        target
            Its name.
        objects
            Other objects, each by the end of the name of the object that it replaces.
        configured
            The folder whose linker call is repeated, with the objects compiled in the component's own.
        """
        listed = subprocess.run(
            [find_ninja(), "-C", configured or self.build_folder, "-t", "commands", target],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        line = [line for line in listed.splitlines() if " -o " in line][-1]
        words = _words(line.removeprefix(": && ").partition(" && ")[0])
        for end, path in (objects or {}).items():
            assert any(word.endswith(end) for word in words), end
            words = [str(path) if word.endswith(end) else word for word in words]
        return self._repeated(words, "linked")

    def _repeated(self, words: list[str], place: str) -> Result:
        index = words.index("-o") + 1
        output = self.variants / place / Path(words[index]).name
        output.parent.mkdir(parents=True, exist_ok=True)
        output.unlink(missing_ok=True)
        words[index] = str(output)
        words = [self._changed(word) for word in words]
        done = subprocess.run(
            words,
            cwd=self.build_folder,
            env=self.environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Result(done.returncode, done.stdout, output)

    def _changed(self, word: str) -> str:
        for old, new in self.changes:
            word = word.replace(old, new)
        return word

    def cached(self, name: str) -> str:
        """Return a variable of CMake's cache."""
        for line in (self.build_folder / "CMakeCache.txt").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return line.partition("=")[2]
        raise AssertionError(f"{name} is not in the cache")

    def configure(self, *arguments: str) -> Result:
        """Configure again with the same cache and compiler checks, in a separate folder."""
        folder = self._fresh("configured")
        changed = replace(self, changes=(*self.changes, (str(self.build_folder), str(folder))))
        learnt = [path for end in ("cmake", "bin") for path in self.build_folder.glob(f"CMakeFiles/*/CMake*.{end}")]
        for path in (self.build_folder / "CMakeCache.txt", *learnt):
            target = folder / path.relative_to(self.build_folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".bin":
                shutil.copyfile(path, target)
            else:
                target.write_text(changed._changed(path.read_text()))
        home = changed._changed(self.cached("CMAKE_HOME_DIRECTORY"))
        command: list[str | Path] = [find_cmake(), "-G", "Ninja", "-S", home, "-B", folder, *arguments]
        done = subprocess.run(
            command, env=self.environ(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return Result(done.returncode, " ".join(done.stdout.split()), folder)

    def install(self, *arguments: str) -> Result:
        """Configure again, and install the component's own build below a separate prefix."""
        prefix = self._fresh("installed")
        folder = self.configure(f"-DCMAKE_INSTALL_PREFIX={prefix}", *arguments).made()
        for library in self.build_folder.glob("libtriton_*.so"):
            shutil.copy2(library, folder)
        command: list[str | Path] = [
            find_cmake(),
            "-DCMAKE_INSTALL_LOCAL_ONLY=ON",
            "-P",
            folder / "cmake_install.cmake",
        ]
        done = subprocess.run(
            command, env=self.environ(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return Result(done.returncode, " ".join(done.stdout.split()), prefix)


def _words(command: str) -> list[str]:
    """Return the words of a command as parsed by the shell."""
    done = subprocess.run(["sh", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]
