"""`macbuild recipes`: list recipes, show one, check all, start a new one, and print their schema."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from macbuild.cli.completion import complete_component
from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.errors import MacbuildError, RecipeError
from macbuild.events import counted

__all__ = ["app"]

app = typer.Typer(help="List, show, check and start recipes.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


def _list(session: Session, *, json: Json = False) -> None:
    """List components, and say which cannot be built here."""
    from macbuild.cli.recipe_text import list_lines, list_row
    from macbuild.commands.recipes import buildable

    recipes = session.project.recipes
    found = {name: (recipe, buildable(session.project, recipe)) for name, recipe in recipes.items()}
    if json:
        session.print_json({"version": 1, "recipes": [list_row(*pair) for pair in found.values()]})
        return
    for pair in found.values():
        heading, *lines = list_lines(*pair)
        session.print_line(heading)
        for line in lines:
            session.print_line(f"  {line}")


def _show(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The component.", autocompletion=complete_component)],
    *,
    json: Json = False,
) -> None:
    """Show a recipe: releases, options, packages and sources."""
    from macbuild.cli.recipe_text import build_row, describe, source_row
    from macbuild.commands.recipes import buildable, known_sources

    recipe = session.project.recipes.known(name)
    builds, sources = buildable(session.project, recipe), known_sources(session.project, recipe)
    if json:
        data = {
            "version": 1,
            "recipe": msgspec.to_builtins(recipe),
            "builds": [build_row(row) for row in builds],
            "sources": [source_row(source) for source in sources],
        }
        session.print_json(data)
        return
    for line in describe(recipe, builds, sources):
        session.print_line(line, len(line) - len(line.lstrip()) + 2)


def _lint(session: Session) -> None:
    """Check every recipe of the project.

    The lock must have the sources of all of them.
    """
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
        session.print_line(line)
    if lines:
        raise RecipeError(counted(len(lines), "problem"), where=folder, hint=hint)
    session.say(f"{counted(len(paths), 'recipe')} checked, no problems")


def _new(session: Session, name: Annotated[str, typer.Argument(metavar="NAME", help="The new component.")]) -> None:
    """Write a component that builds, to be replaced by yours.

    It is a small library with a recipe, a test and a licence.
    """
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


command(app, "list", ("recipes", "lock", "toolchain"))(_list)
command(app, "show", ("recipes", "lock", "toolchain"))(_show)
command(app, "lint", ("recipes", "lock"))(_lint)
command(app, "new", ("recipes",))(_new)
command(app, "schema")(_schema)
