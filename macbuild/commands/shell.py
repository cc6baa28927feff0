"""Run a command with the environment of a component's build."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from macbuild.build.cmake import child_environment, configure
from macbuild.build.presets import lacks_presets, write_presets
from macbuild.commands.project import Project
from macbuild.errors import MacbuildError, PlanError, ToolError
from macbuild.events import Emit
from macbuild.plan.model import BuildSpec, Plan, Step
from macbuild.steps.build import is_configured, kept_project, prepared_project
from macbuild.steps.context import Context
from macbuild.steps.executor import build

__all__ = ["build_needs", "run_in_build_folder"]


def build_needs(project: Project, component: str, emit: Emit) -> tuple[BuildSpec, list[Path]]:
    """Build what a component needs, but not itself; return its build step and the stages that this needs.

    Raises
    ------
    PlanError
        If the component is repackaged, not built.
    MacbuildError
        From planning, or if one of its needs fails to build.
    """
    request = project.request([component], pack=False)

    def plan(unavailable: Mapping[str, MacbuildError]) -> Plan:
        whole = project.planner(unavailable).plan(request)
        return msgspec.structs.replace(whole, stages=_build_step(whole, component).needs, checks=())

    outcome = build(plan, project.context(emit), keep_going=False)
    for error in outcome.errors.values():
        raise error
    step = _build_step(outcome.plan, component)
    assert isinstance(step.spec, BuildSpec)
    return step.spec, [project.store.path(outcome.plan.steps[need].key) / "stage" for need in step.needs]


def run_in_build_folder(spec: BuildSpec, stages: Sequence[Path], context: Context, words: Sequence[str]) -> int:
    """Run a command, or the user's shell, in a component's kept build folder with the environment of its build.

    Parameters
    ----------
    spec
        The build step of the component. The folder is created and configured if there is none yet.
    stages
        What it needs, in the order of `spec.needed`.
    context
        What the run provides to its steps.
    words
        The command; the shell if empty.

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
        project = kept_project(spec, context, folder) if is_configured(spec, folder) else None
        with_presets = not spec.build.project
        if project is None or (with_presets and lacks_presets(project, str(spec.target))):
            project = prepared_project(spec, stages, context, folder)
            configure(project)
            if with_presets:
                write_presets(project, str(spec.target))
    compilers = {"CC": str(project.toolchain.c), "CXX": str(project.toolchain.cxx)}
    environ = {**child_environment(project), **compilers, "MACBUILD_SHELL": spec.component}
    command = list(words) or [environ.get("SHELL", "/bin/sh")]
    try:
        return subprocess.run(command, cwd=project.build_folder, env=environ, check=False).returncode
    except OSError as error:
        raise ToolError(f"cannot be started: {error.strerror}", where=command[0]) from error


def _build_step(plan: Plan, component: str) -> Step:
    name = component.partition("@")[0]
    for step in plan.steps.values():
        spec = step.spec
        if isinstance(spec, BuildSpec) and spec.component == name and spec.target and not spec.project:
            return step
    raise PlanError("is repackaged, so it has no build folder", where=component)
