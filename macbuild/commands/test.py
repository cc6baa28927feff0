"""Test a component on this machine: its own tests by CTest, then pytest against a real server that loads it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from macbuild.build.programs import find_cmake
from macbuild.commands.project import Project
from macbuild.errors import PlanError, Terminated, TestsFailedError, ToolError, UsageError
from macbuild.events import Emit
from macbuild.plan.model import BuildSpec, Plan
from macbuild.recipe.model import Recipe
from macbuild.steps.build import build_for_host
from macbuild.steps.executor import build

__all__ = ["Suite", "prepare_tests"]

_GRACE = 60.0
"""Seconds for interrupted tests to end by themselves."""

_RUNTIMES = {"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}


@dataclass(frozen=True, slots=True)
class Suite:
    """A test program that is ready to run, and the environment variables that it needs."""

    component: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Run it with macbuild's own output; a failure is a `TestsFailedError`.

        An interrupt from the terminal reaches it, too. It then has time to stop the servers that it has started.
        """
        with subprocess.Popen(self.command, env={**os.environ, **self.environ}) as child:
            try:
                code = child.wait()
            except KeyboardInterrupt as interrupt:
                if isinstance(interrupt, Terminated):  # which is sent to us alone
                    child.terminate()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_GRACE)
                child.terminate()
                raise
        if code != 0:
            program = " ".join(self.command[:3]) if self.command[0] == sys.executable else Path(self.command[0]).name
            raise TestsFailedError(f"{program} ended with {code}", where=self.component, hint="its output is above")


def prepare_tests(
    project: Project, name: str, emit: Emit, *, sanitize: str, server: Path | None, arguments: Sequence[str]
) -> list[Suite]:
    """Build a component for this machine and prepare its tests.

    Parameters
    ----------
    project
        Where everything is, and the settings.
    name
        The component.
    emit
        Receives events.
    sanitize
        Sanitizers to build with, as `address,undefined`; none if empty.
    server
        A folder with `bin/tritonserver`, instead of the server that the recipe names.
    arguments
        Arguments for pytest.

    Raises
    ------
    PlanError
        If there is no such component, or it has no tests.
    ToolError
        If a Python package that the tests need is not installed.
    BuildError
        If it does not compile.
    """
    recipe = project.recipes.known(name)
    if recipe.build is None:
        raise PlanError("is repackaged, so there is nothing to build and test", where=name)
    if recipe.build.consumer:
        return [_consumer(project, recipe, recipe.build.consumer, emit, sanitize)]
    if recipe.build.project:
        if sanitize:
            raise UsageError("does not apply to upstream's projects", where="--sanitize")
        return [_whole_server(project, recipe, emit, server=server, arguments=arguments)]
    sanitizers = [_known_sanitizer(name) for name in sanitize.split(",") if name]
    preload = _runtimes(sanitizers) if recipe.test else []
    roots = {needed: _python_package(package) for needed, package in recipe.build.python_packages.items()}
    source = project.recipes.folder(name)
    context = project.context(emit)
    built = build_for_host(
        name, source, roots, project.recipes.located(recipe.build).definitions, context, sanitize=sanitize
    )
    suites = []
    if (built.build_folder / "CTestTestfile.cmake").is_file():
        suites = [_ctest(name, built.build_folder)]
    if recipe.test is None:
        return suites
    tree = server or _server(project, recipe, emit)
    environ = {"MACBUILD_TEST_BACKENDS": str(built.stage / "backends"), "MACBUILD_TEST_SERVER": str(tree)}
    if preload:
        environ["MACBUILD_TEST_PRELOAD"] = os.pathsep.join(preload)
    return [*suites, Suite(name, [sys.executable, "-m", "pytest", str(source / "tests"), *arguments], environ)]


def _consumer(project: Project, recipe: Recipe, consumer: str, emit: Emit, sanitize: str) -> Suite:
    """Return the tests of the project that uses a library, built with the library for this machine."""
    context = project.context(emit)
    outcome = build(lambda lost: project.planner(lost).host_stages(recipe.name), context, keep_going=False)
    for error in outcome.errors.values():
        raise error
    stages = {}
    for step in map(outcome.plan.steps.__getitem__, outcome.plan.goals):
        assert isinstance(step.spec, BuildSpec)
        stages[step.spec.component] = project.store.path(step.key) / "stage"
    definitions = {"CMAKE_PREFIX_PATH": ";".join(map(str, stages.values()))}
    definitions |= {f"{name.upper()}_HOST_ROOT": str(path) for name, path in stages.items()}
    source = project.recipes.folder(recipe.name) / consumer
    built = build_for_host(f"{recipe.name}-consumer", source, stages, definitions, context, sanitize=sanitize)
    return _ctest(recipe.name, built.build_folder)


def _whole_server(
    project: Project, recipe: Recipe, emit: Emit, *, server: Path | None, arguments: Sequence[str]
) -> Suite:
    """Return the tests of a server, or of a part of it, built for this machine from the sources of the macOS build."""
    name = recipe.name
    tests = project.recipes.folder(name) / "tests"
    if not tests.is_dir():
        raise PlanError("has no tests of its own", where=name, hint="test tritonserver, which carries it")
    tree = server
    if tree is None:
        project.planner().host_stages(name)  # An error here; a server would be built without it.
        whole = recipe.test.server if recipe.test else name
        outcome = build(lambda lost: project.planner(lost).host_tree(whole), project.context(emit), keep_going=False)
        for error in outcome.errors.values():
            raise error
        tree = _goal(project, outcome.plan)
    environ = {"MACBUILD_TEST_SERVER": str(tree)}
    return Suite(name, [sys.executable, "-m", "pytest", str(tests), *arguments], environ)


def _ctest(name: str, build_folder: Path) -> Suite:
    program = find_cmake().with_name("ctest")
    return Suite(name, [str(program), "--test-dir", str(build_folder), "--output-on-failure", "--no-tests=error"])


def _python_package(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        hint = f"install it beside macbuild: pip install {package}, or 'macbuild[test]' for all that tests need"
        raise ToolError(f"the Python package {package} is not installed", where=sys.executable, hint=hint)
    return Path(places[0])


def _server(project: Project, recipe: Recipe, emit: Emit) -> Path:
    """Return the tree of the server that the recipe names, fetched and unpacked into the store."""
    assert recipe.test is not None
    name = recipe.test.server
    if (project.host.system, project.host.arch) != ("Linux", "x86_64"):
        raise PlanError(f"{name} runs on Linux x86_64 only", where=recipe.name, hint="give a server with --server")
    outcome = build(lambda lost: project.planner(lost).linux_stage(name), project.context(emit), keep_going=False)
    for error in outcome.errors.values():
        raise error
    return _goal(project, outcome.plan)


def _goal(project: Project, plan: Plan) -> Path:
    (goal,) = plan.goals
    return project.store.path(plan.steps[goal].key) / "stage"


def _known_sanitizer(name: str) -> str:
    if name not in _RUNTIMES:
        raise UsageError(f"unknown sanitizer {name!r}", where="--sanitize", hint=f"choose from {', '.join(_RUNTIMES)}")
    return name


def _runtimes(sanitizers: Sequence[str]) -> list[str]:
    """Return the sanitizers' runtimes of the host's compiler, which a server that loads instrumented code needs."""
    compiler = os.environ.get("CXX", "c++")
    found = []
    for name in sanitizers:
        command = [compiler, f"-print-file-name={_RUNTIMES[name]}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ToolError(f"does not tell where its sanitizers are: {error}", where=compiler) from error
        path = done.stdout.strip()
        if not Path(path).is_absolute():
            hint = "use g++, or clang++ with its shared runtimes"
            raise ToolError(f"has no runtime {_RUNTIMES[name]}", where=compiler, hint=hint)
        found.append(path)
    return found
