"""Write the reference pages from the definitions in the code, or check with `--check` that they agree."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import typer.main

import macbuild
from macbuild import errors
from macbuild.audit.catalogue import RULES
from macbuild.audit.policy import BUILT_IN, Parameters, load_policy
from macbuild.cli.app import INTERRUPTED, application
from macbuild.cli.options import ALWAYS
from macbuild.config import Setting, settings_table
from macbuild.recipe.schema import edits_schema, lock_schema, recipe_schema, settings_schema

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference"
TOOLS = ("codesign", "install_name_tool", "lipo", "otool")
COMMON = {*ALWAYS, "verbose", "quiet", "debug_traceback", "help"}
HEAD = "<!-- Written by docs/generate.py from the code. Change the code, then run: python docs/generate.py -->\n"
COMMANDS = """# Commands

Data goes to standard output, everything else to standard error. Every command also takes the
[common options](#common-options). An option that is a setting can be given by an environment variable or a file too:
see [settings](settings.md). For the exit status see [exit codes](exit-codes.md).
"""
STAND_INS = """## Stand-ins for Apple's tools

Installed beside `macbuild`, and under Apple's names in the folder that `macbuild macho path` prints. They work on any
host. See [delocate on Linux](../how-to/delocate-on-linux.md).
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; characters that would end a cell are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    cells = [" | ".join(re.sub(r"\s*\n\s*", " ", cell).replace("|", r"\|") for cell in line) for line in lines]
    return "".join(f"| {line} |\n" for line in cells)


def commands() -> str:
    """Return the page of commands, from the Typer application."""
    parts = [COMMANDS]
    group = typer.main.get_command(application())
    shared: dict[str, Any] = {}
    for name, command in _commands(group, "macbuild"):
        shared |= {entry.name: entry for entry in command.params if entry.name in COMMON}
        parts.append(_command(name, command))
    options = [_option(entry) for entry in shared.values()]
    help_row = ["`-h`, `--help`", "Show the help of the command and exit."]
    parts.append("## Common options\n\n" + table(["option", "meaning"], [*options, help_row]))
    parts.append(
        "`macbuild --version` prints the version. `macbuild --install-completion` installs completion for the current\n"
        "shell, `macbuild --show-completion` prints it.\n"
    )
    parts.append(_stand_ins())
    return "\n".join(parts)


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _command(name: str, command: Any) -> str:
    arguments = [entry for entry in command.params if entry.param_type_name == "argument"]
    options = [entry for entry in command.params if entry.param_type_name == "option" and entry.name not in COMMON]
    words = [name, *(["[OPTIONS]"] if options else []), *(_metavar(entry) for entry in arguments)]
    text = inspect.cleandoc(command.help or "")
    parts = [f"## {name}\n", f"`{' '.join(words)}`\n", text + "\n"]
    rows = [[f"`{_metavar(entry)}`", entry.help or ""] for entry in arguments]
    rows += [_option(entry) for entry in options]
    if rows:
        parts.append(table(["argument or option", "meaning"], rows))
    return "\n".join(parts)


def _metavar(entry: Any) -> str:
    return str(entry.metavar or entry.name.upper())


def _option(entry: Any) -> list[str]:
    names = sorted([*entry.opts, *entry.secondary_opts], key=lambda name: name.startswith("--"))
    value = "" if entry.is_flag or entry.count else f" {entry.metavar}"
    text = entry.help or ""
    if entry.default and entry.default is not True:
        text += f" Default: `{entry.default}`."
    if entry.required:
        text += " Required."
    return [", ".join(f"`{name}{value}`" for name in names), text]


def _stand_ins() -> str:
    parts = [STAND_INS]
    for name in TOOLS:
        doc = inspect.getdoc(importlib.import_module(f"macbuild.macho.tools.{name}")) or ""
        parts.append(f"### macbuild-{name.replace('_', '-')}\n\n{doc}\n")
    return "\n".join(parts)


def settings() -> str:
    """Return the page of settings, from their one definition."""
    rows = []
    for entry in settings_table():
        variable = f"`{entry.variable}`" + (f", else `{entry.foreign}`" if entry.foreign else "")
        rows.append([f"`{entry.name}`", _kind(entry), f"`{json.dumps(entry.default)}`", variable, _help(entry)])
    return f"""# Settings

A setting can be given in three places. The first one wins:

1. a command-line option: `--deployment-target 14.0` for `deployment_target`; a list is given by an option for each
   entry, such as `--mirror A --mirror B`;
2. an environment variable: `MACBUILD_` and the name in capital letters; a list is separated by `{":"}`, or by spaces
   if it contains an address;
3. a file: `macbuild.toml`, or the table `[tool.macbuild]` of `pyproject.toml`, in the current folder or the nearest
   one above it. Paths in a file are relative to that file.

The nearest folder with `recipes/`, or with one of these files, is the project: its recipes are added to those of
macbuild, and replace those with the same name. Its lock is `macbuild.lock`: see [the lock](lock.md). `macbuild init`
makes a project.

An unknown key, an unknown `MACBUILD_` variable or a value of the wrong type is an error that names the nearest valid
one. [settings.schema.json](settings.schema.json) is the schema of the file.

{table(["key", "type", "default", "environment variable", "meaning"], rows)}
`null` means that macbuild decides, as the meaning says.

## Other variables

| variable | effect |
| --- | --- |
| `SOURCE_DATE_EPOCH` | the time of everything in an artifact; by default 1980-01-01. A bad value is an error. |
| `NO_COLOR` | no colour; overrides the next two |
| `FORCE_COLOR`, `CLICOLOR_FORCE` | colour without a terminal too |
| `CI` | plain lines in place of progress bars |
| `GITHUB_STEP_SUMMARY` | the table of artifacts is added to this file, as Markdown |

pip, npm, apt-get, git and requests use their own configuration for proxies, package indexes and credentials.
"""


def _kind(entry: Setting) -> str:
    if entry.is_list:
        return "list of strings"
    if entry.choices:
        return " or ".join(f"`{json.dumps(choice)}`" for choice in entry.choices)
    kinds = [kind for kind in get_args(entry.kind) or (entry.kind,) if kind is not type(None)]
    return {str: "string", int: "whole number", bool: "true or false"}[kinds[0]]


def _help(entry: Setting) -> str:
    return entry.help.rstrip(".")


def exit_codes() -> str:
    """Return the page of exit codes, from the error classes."""
    rows = [["0", "", "Success; with `--skip-unreachable` also if a component was left out."]]
    defect = "A defect of macbuild: please report it. Also if standard output is closed early."
    rows.append([str(errors.MacbuildError.exit_code), "", defect])
    kinds = sorted(_classes(errors.MacbuildError), key=lambda kind: kind.exit_code)
    rows += [[str(kind.exit_code), f"`{kind.__name__}`", _sentence(kind)] for kind in kinds]
    rows.append([str(INTERRUPTED), "", "Interrupted by Ctrl-C. Run the same command again to continue."])
    return f"""# Exit codes

Each class of error has its own code. An error is one line on standard error that begins with `error:`. A second line
that begins with `hint:` says what to do, if anything.

{table(["code", "class", "meaning"], rows)}
The stand-ins for Apple's tools follow the tools whose names they have: see
[commands](commands.md#stand-ins-for-apples-tools).
"""


def _classes(kind: type[errors.MacbuildError]) -> Iterator[type[errors.MacbuildError]]:
    for child in kind.__subclasses__():
        if child.__name__ in errors.__all__:
            yield child
        yield from _classes(child)


def _sentence(kind: type[errors.MacbuildError]) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0]


def recipe() -> str:
    """Return the page of the recipe format, from its schema, with a real recipe as the example."""
    example = (ROOT / "recipes/prebuilt/onnxruntime/recipe.toml").read_text("utf-8")
    return f"""# recipe.toml

A component is a folder `recipes/<name>/` with a `recipe.toml`. How to write one:
[add a component](../how-to/add-a-component.md). An unknown key or a wrong type is an error that names file, key and
the nearest valid key. [recipe.schema.json](recipe.schema.json) is the schema, for editors; `macbuild recipes schema`
prints it.

{_schema_tables(recipe_schema())}
## Example

```toml
{example}```
"""


def lock() -> str:
    """Return the page of the lock format, from its schema."""
    return f"""# macbuild.lock

The lock pins every source of every recipe of a project, per release and architecture, by file name, size and sha256. A
source that is not pinned is never used: one that could not be reached when the lock was written is listed as unpinned,
with the reason.

| command | effect |
| --- | --- |
| `macbuild lock` | pins the sources that have no pin yet, and removes pins that no recipe asks for |
| `macbuild lock NAME...` | the same for these components alone; fails if a release of them has no pin after it |
| `macbuild lock --update` | downloads all sources and pins what arrives; works also if the lock cannot be read |
| `macbuild lock --update NAME...` | the same for these components alone |
| `macbuild lock --check [NAME]...` | changes nothing, and fails if the lock and the recipes differ |

macbuild's own recipes are pinned by a lock of their own. In a project the two locks are used together: the pins of the
project count for every component, those of macbuild for macbuild's recipes that the project does not replace.
`macbuild lock NAME` with a component of macbuild writes pins into the project's lock, for instance for a source
that macbuild's lock has no pin for. A recipe that replaces one of macbuild needs pins in the project's lock; if it
requests the same, `macbuild lock` takes macbuild's pin without a download.

It is TOML, sorted, and written whole or not at all. [lock.schema.json](lock.schema.json) is the schema. A lock of
another `version` is refused.

{_schema_tables(lock_schema())}"""


def edits() -> str:
    """Return the page of the format of edit files, from its schema, with a real one as the example."""
    example = (ROOT / "patches/core/cache.toml").read_text("utf-8")
    return f"""# Edit files

The files `patches/<component>/*.toml` describe changes of foreign sources. How to write and use them:
[edit foreign sources](../how-to/edits.md). [edits.schema.json](edits.schema.json) is the schema, for editors;
`macbuild patch schema` prints it.

{_schema_tables(edits_schema())}
A pattern may not repeat a group, has at most three repeats and no flags, so that no text makes it take
exponential time. A path is inside the tree and leads through no link. The new text is its author's own: an edit
contains nothing of upstream except its anchors.

## Example

```toml
{example}```
"""


def manifest() -> str:
    """Return the page of the manifest format, from the schema that travels with the package."""
    path = Path(macbuild.__file__).parent / "package/manifest.schema.json"
    return f"""# manifest.json

`dist/manifest.json` describes every artifact in `dist/`: its contents, its sources, and the result of the audit. It
contains no time, host or path of the machine that wrote it, so equal artifacts have equal manifests.
[manifest.schema.json](../../macbuild/package/manifest.schema.json) is the schema.

Beside each artifact are `<artifact>.sha256` and `<name>.cdx.json`, a CycloneDX SBOM. `SHA256SUMS` lists artifacts and
SBOMs in the form that `sha256sum --check` reads.

{_schema_tables(json.loads(path.read_text("utf-8")), root="Manifest")}"""


def _schema_tables(schema: Mapping[str, Any], root: str | None = None) -> str:
    definitions = schema["$defs"]
    first = root or schema["$ref"].rsplit("/", 1)[-1]
    order = [first, *_references(definitions, first, [])]
    parts = []
    for name in order:
        entry = definitions[name]
        title = f"Source of the type `{_tag(entry)}`" if _tag(entry) else "The file" if name == first else f"`{name}`"
        parts.append(f"## {title}\n\n{entry.get('description', '')}\n")
        required = entry.get("required", [])
        rows = []
        for key, value in entry["properties"].items():
            need = "required" if key in required else _default(value)
            rows.append([f"`{key}`", _type(value), need, value.get("description", "")])
        parts.append(table(["key", "type", "default", "meaning"], rows))
    return "\n".join(parts)


def _references(definitions: Mapping[str, Any], name: str, seen: list[str]) -> list[str]:
    for found in re.findall(r'"#/\$defs/(\w+)"', json.dumps(definitions[name]["properties"])):
        if found not in seen:
            seen.append(found)
            _references(definitions, found, seen)
    return seen


def _tag(entry: Mapping[str, Any]) -> str:
    values: list[str] = entry["properties"].get("type", {}).get("enum", [])
    return values[0] if len(values) == 1 and entry["title"].endswith("Source") else ""


def _description(text: str) -> tuple[str, dict[str, str]]:
    """Return the text of a numpydoc docstring, and the meaning of each name in its Parameters section."""
    body, _, section = inspect.cleandoc(text).partition("Parameters\n----------\n")
    keys = {}
    for names, meaning in re.findall(r"^(\S.*)\n((?:    .*\n?)+)", section, re.MULTILINE):
        for name in names.split(", "):
            keys[name] = inspect.cleandoc(meaning).rstrip(".")
    return body.strip(), keys


def _default(value: Mapping[str, Any]) -> str:
    return f"`{json.dumps(value['default'])}`" if value.get("default") is not None else "none"


def _type(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        return f"`{value['$ref'].rsplit('/', 1)[-1]}`"
    if "anyOf" in value:
        return " or ".join(_type(member) for member in value["anyOf"] if member.get("type") != "null")
    if "enum" in value:
        return " or ".join(f"`{json.dumps(member)}`" for member in value["enum"])
    if value["type"] == "array":
        return f"list of {_type(value['items'])}"
    if value["type"] == "object":
        return f"table of {_type(value['additionalProperties'])}"
    return f"{value['type']} `{value['pattern']}`" if "pattern" in value else str(value["type"])


def audit_rules() -> str:
    """Return the page of the audit's rules, from the catalogue and the built-in policies."""
    policies = [load_policy(name) for name in BUILT_IN]
    rows = [[f"`{rule}`", text, *(policy.severity[rule] for policy in policies)] for rule, text in RULES.items()]
    head = "\n".join(f"- `{policy.name}`: {policy.summary}." for policy in policies)
    _, meanings = _description(Parameters.__doc__ or "")
    values = policies[0].parameters
    parameters = [[f"`{name}`", meanings[name], _value(getattr(values, name))] for name in Parameters.__struct_fields__]
    return f"""# Audit rules and policies

`macbuild audit PATH` checks every rule; a policy sets the severity of each. Only an `error` makes the audit fail
(exit code {errors.AuditError.exit_code}). The built-in policies:

{head}

An artifact must pass `release`, or the policy that the setting `policy` names, before it appears in `dist/`.

{table(["rule", "what holds if there is no finding", *BUILT_IN], rows)}
## A policy of your own

A TOML file; `--policy FILE` uses it. It names the policy that it extends and states the differences.
[policy.schema.json](../../macbuild/audit/policy.schema.json) is the schema.

```toml
name = "mine"
summary = "release, but build paths are errors"
extends = "release"

[severity]
build-path = "error"

[[exemptions]]
rule = "build-path"
file = "lib/libvendor*.dylib"
reason = "the vendor's file, reported to them"
```

Levels are `error`, `warning`, `info` and `off`. In an exemption `file` is a glob on the path in the tree; `*` crosses
folders, and the reason is in the report.

The parameters of `release`, which `[parameters]` of a policy may replace one by one:

{table(["parameter", "meaning", "in `release`"], parameters)}
## The report

`macbuild audit --json` writes a report whose schema is
[report.schema.json](../../macbuild/audit/report.schema.json). Each finding has the rule, the severity, the file, the
slice (architecture), what is wrong and how to fix it.
"""


def _value(value: object) -> str:
    if isinstance(value, list):
        names = [item if isinstance(item, str) else item.name for item in value]
        return ", ".join(f"`{name}`" for name in names) or "none"
    return f"`{value}`"


def _json(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2) + "\n"


def modules() -> str:
    """Return the page of modules: the first sentence of each docstring, by package."""
    packages: dict[str, list[list[str]]] = {}
    for path in sorted(Path(macbuild.__file__).parent.rglob("*.py")):
        relative = path.relative_to(Path(macbuild.__file__).parents[1])
        doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        packages.setdefault(relative.parent.as_posix(), []).append([f"`{path.name}`", doc.partition("\n\n")[0]])
    sections = [f"## {name}\n\n{table(['module', 'what it does'], rows)}" for name, rows in packages.items()]
    return "# Modules\n\nFor the import rules see [architecture](../design/architecture.md).\n\n" + "\n".join(sections)


PAGES: dict[str, Callable[[], str]] = {
    "modules.md": modules,
    "commands.md": commands,
    "settings.md": settings,
    "exit-codes.md": exit_codes,
    "recipe.md": recipe,
    "lock.md": lock,
    "edits.md": edits,
    "manifest.md": manifest,
    "audit-rules.md": audit_rules,
    "recipe.schema.json": lambda: _json(recipe_schema()),
    "lock.schema.json": lambda: _json(lock_schema()),
    "settings.schema.json": lambda: _json(settings_schema()),
    "edits.schema.json": lambda: _json(edits_schema()),
}


def render(name: str) -> str:
    """Return the text of a generated file."""
    text = PAGES[name]()
    return text if name.endswith(".json") else f"{HEAD}\n{text.rstrip()}\n"


def drift() -> list[str]:
    """Return the names of the generated files that are out of date."""
    return [name for name in PAGES if not _holds(REFERENCE / name, render(name))]


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text("utf-8") == text


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` return 1 if they drifted."""
    if list(arguments) not in ([], ["--check"]):
        sys.stderr.write("usage: python docs/generate.py [--check]\n")
        return 2
    names = drift()
    for name in names:
        if arguments:
            sys.stderr.write(f"docs/reference/{name} is out of date; run: python docs/generate.py\n")
        else:
            (REFERENCE / name).write_text(render(name), "utf-8")
            sys.stdout.write(f"docs/reference/{name}\n")
    return 1 if arguments and names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
