"""The recipes commands: which there are, what one says, whether all are sound."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from macbuild.cli.options import command
from macbuild.cli.session import Session
from macbuild.data import nearest
from macbuild.errors import MacbuildError, PlanError, RecipeError

__all__ = ["app"]

app = typer.Typer(help="Look at recipes and check them.", no_args_is_help=True)
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
        typer.echo(f"{name}: {recipe.summary}")
        typer.echo(f"  {recipe.choices()}")


def _show(session: Session, name: str, *, json: Json = False) -> None:
    """Show one recipe with its sources and their pins."""
    recipes = session.project.recipes
    if name not in recipes:
        raise PlanError(f"there is no recipe {name!r}", hint=nearest(name, list(recipes)))
    recipe = recipes[name]
    if json:
        session.print_json({"version": 1, "recipe": msgspec.to_builtins(recipe)})
        return
    from macbuild.lock import source_refs  # noqa: PLC0415 - other commands start without

    lock = session.project.lock
    typer.echo(f"{recipe.name}: {recipe.summary}\n{recipe.homepage}, {recipe.license}")
    for ref, candidate in source_refs(recipe):
        pin = lock.pin(ref)
        state = f"{pin.file}, {pin.size} bytes, sha256 {pin.sha256}" if pin else "not pinned, never used"
        typer.echo(f"{ref.version} {ref.arch} {ref.source}: {candidate.fetch.describe()}\n    {state}")


def _lint(session: Session) -> None:
    """Check every recipe, and that each of its releases has a pinned source; report all that is wrong."""
    from macbuild.lock import drift, load_lock  # noqa: PLC0415 - other commands start without
    from macbuild.recipe import load_recipe  # noqa: PLC0415

    folder = session.project.recipes_folder
    errors: list[MacbuildError] = []
    recipes = {}
    for path in sorted(folder.glob("*/recipe.toml")):
        try:
            recipes[path.parent.name] = load_recipe(path)
        except RecipeError as error:
            errors.append(error)
    lines = [str(error) + (f" ({error.hint})" if error.hint else "") for error in errors]
    if not errors:
        lines += drift(recipes, load_lock(session.project.lock_path))
    for line in lines:
        typer.echo(line)
    if lines:
        raise RecipeError(f"{len(lines)} problems", where=folder)
    session.say(f"{len(recipes)} recipes are sound")


def _schema(session: Session) -> None:
    """Print the JSON schema of recipe.toml, for editors."""
    from macbuild.schema import recipe_schema  # noqa: PLC0415 - other commands start without

    session.print_json(recipe_schema())


command(app, "list", ("recipes",))(_list)
command(app, "show", ("recipes", "lock"))(_show)
command(app, "lint", ("recipes", "lock"))(_lint)
command(app, "schema")(_schema)
