"""`macbuild recipes`: list recipes, show one, check all, start a new one, and print their schema."""

from __future__ import annotations

import textwrap
from typing import Annotated

import msgspec
import typer

from macbuild.cli.completion import complete_component
from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.cli.tables import terminal_width
from macbuild.errors import MacbuildError, PlanError, RecipeError, nearest
from macbuild.events import counted
from macbuild.recipe.model import Recipe

__all__ = ["app"]

app = typer.Typer(help="List, show, check and start recipes.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


def _list(session: Session, *, json: Json = False) -> None:
    """List all components with their releases."""
    recipes = session.project.recipes
    if json:
        rows = [
            {
                "name": name,
                "summary": recipe.summary,
                "releases": [
                    {"version": release.version, "archs": [arch for arch in ("arm64", "x86_64") if release.slice(arch)]}
                    for release in recipe.releases
                ],
            }
            for name, recipe in recipes.items()
        ]
        session.print_json({"version": 1, "recipes": rows})
        return
    for name, recipe in recipes.items():
        typer.echo(f"{name}: {_releases(recipe)}")
        for line in textwrap.wrap(recipe.summary, terminal_width() - 2):
            typer.echo(f"  {line}")


def _releases(recipe: Recipe) -> str:
    """Return the versions of a component, each with a note if it does not have both architectures."""
    texts = []
    for release in recipe.releases:
        archs = [arch for arch in ("arm64", "x86_64") if release.slice(arch)]
        note = (
            ""
            if len(archs) > 1
            else f" ({archs[0]} only)"
            if archs
            else " (for tests on Linux)"
            if release.linux_x86_64
            else " (source only)"
        )
        texts.append(release.version + note)
    return ", ".join(texts)


def _show(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The component.", autocompletion=complete_component)],
    *,
    json: Json = False,
) -> None:
    """Show one recipe with its sources and their pins."""
    recipes = session.project.recipes
    if name not in recipes:
        raise PlanError(f"there is no recipe {name!r}", hint=nearest(name, list(recipes)))
    recipe = recipes[name]
    if json:
        session.print_json({"version": 1, "recipe": msgspec.to_builtins(recipe)})
        return
    from macbuild.recipe.lock import source_refs

    lock = session.project.lock
    typer.echo(f"{recipe.name}: {recipe.summary}\n{recipe.homepage}, {recipe.license}")
    for ref, candidate in source_refs(recipe):
        pin = lock.pin(ref)
        state = f"{pin.file}, {pin.size} bytes\n    sha256 {pin.sha256}" if pin else "not pinned, so never used"
        typer.echo(f"{ref.version} {ref.arch} {ref.source}: {candidate.fetch.describe()}\n    {state}")


def _lint(session: Session) -> None:
    """Check every recipe of the project, and that its lock has their sources."""
    from macbuild.documents import place_of
    from macbuild.recipe.check import problems
    from macbuild.recipe.cycles import chain_text, cycles
    from macbuild.recipe.lint import repetitions
    from macbuild.recipe.load import load_recipe, recipe_paths
    from macbuild.recipe.lock import drift

    project = session.project
    folder, lock = project.recipes_folder, project.own_lock
    errors: list[MacbuildError] = []
    paths = recipe_paths(folder)
    for path in paths:
        try:
            load_recipe(path)
        except RecipeError as error:
            errors.append(error)
    lines = [str(error) + (f" ({error.hint})" if error.hint else "") for error in errors]
    hint = None
    if not errors:
        recipes = project.recipes
        root = folder.parent
        lines += [line for path in paths for line in repetitions(path, recipes)]
        lines += [line for name in recipes.own for line in problems(recipes[name], recipes.folder(name), root)]
        for ring in cycles(recipes):
            where = place_of(recipes.folder(ring[0]) / "recipe.toml", ring[1])
            lines.append(f"{where}: {chain_text(ring)}")
        unlocked = [
            f"{project.lock_path}: {line}" for line in drift(project.locked_recipes(lock), lock, recipes.folder)
        ]
        lines += unlocked
        hint = f"run: {project.lock_command()}" if unlocked else None
    for line in lines:
        typer.echo(line)
    if lines:
        raise RecipeError(counted(len(lines), "problem"), where=folder, hint=hint)
    session.say(f"{counted(len(paths), 'recipe')} checked, no problems")


def _new(session: Session, name: Annotated[str, typer.Argument(metavar="NAME", help="The new component.")]) -> None:
    """Write a component that builds: a small library with a recipe, a test and a licence, to be replaced by yours."""
    from macbuild.commands.skeleton import make_recipe
    from macbuild.config import bundled
    from macbuild.recipe.load import recipe_paths

    replaced = [path for path in recipe_paths(bundled("recipes")) if path.parent.name == name]
    folder = make_recipe(session.project, name)
    if replaced:
        session.say(f"{name} replaces the component of this name that macbuild has")
    session.say(f"{folder}: a component that builds; try: macbuild build {name}")


def _schema(session: Session) -> None:
    """Print the JSON schema of recipe.toml, for editors."""
    from macbuild.recipe.schema import recipe_schema

    session.print_json(recipe_schema())


command(app, "list", ("recipes",))(_list)
command(app, "show", ("recipes", "lock"))(_show)
command(app, "lint", ("recipes", "lock"))(_lint)
command(app, "new", ("recipes",))(_new)
command(app, "schema")(_schema)
