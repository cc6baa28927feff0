"""Test that the documentation agrees with the code: generated pages, schemas, links."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from macbuild.audit.catalogue import RULES
from macbuild.config import settings_table
from macbuild.data import parse_toml
from macbuild.errors import ConfigError

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture
def generate() -> ModuleType:
    """Load the script docs/generate.py as a separate module for each test."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def schema(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((ROOT / "docs/reference" / name).read_text("utf-8"))
    return data


def prose(page: Path) -> str:
    """Return the text of a page without its code."""
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes from the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_generated_pages_are_up_to_date(generate: ModuleType) -> None:
    assert generate.drift() == [], "run: python docs/generate.py"


@pytest.mark.parametrize("name", ["recipe", "lock", "edits", "settings"])
def test_schema_describes_every_key(name: str) -> None:
    missing = [
        f"{definition}.{key}"
        for definition, entry in schema(f"{name}.schema.json")["$defs"].items()
        for key, value in entry["properties"].items()
        if key != "type" and not value.get("description")
    ]
    assert missing == []


def test_check_fails_on_a_missing_and_on_a_changed_page(
    generate: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vars(generate)["REFERENCE"] = tmp_path
    assert generate.main(["--check"]) == 1
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    page = tmp_path / "settings.md"
    page.write_text(page.read_text("utf-8").replace("MACBUILD_JOBS", "MACBUILD_JOB"), "utf-8")
    capsys.readouterr()
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err.startswith("docs/reference/settings.md is out of date")


def test_pages_name_every_setting_and_every_rule() -> None:
    settings = (ROOT / "docs/reference/settings.md").read_text("utf-8")
    assert all(f"`{entry.variable}`" in settings for entry in settings_table())
    rules = (ROOT / "docs/reference/audit-rules.md").read_text("utf-8")
    assert all(f"| `{rule}` |" in rules for rule in RULES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_existing_files_and_headings(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("path", sorted(ROOT.glob("recipes/*/*/recipe.toml")), ids=lambda path: path.parent.name)
def test_published_recipe_schema_rejects_an_unknown_key(path: Path) -> None:
    recipe = parse_toml(path.read_text("utf-8"), path, ConfigError)
    jsonschema.validate(recipe, schema("recipe.schema.json"))
    with pytest.raises(jsonschema.ValidationError, match="sumary"):
        jsonschema.validate(recipe | {"sumary": "x"}, schema("recipe.schema.json"))


def test_published_lock_schema_rejects_a_short_hash() -> None:
    path = ROOT / "macbuild.lock"
    lock = parse_toml(path.read_text("utf-8"), path, ConfigError)
    jsonschema.validate(lock, schema("lock.schema.json"))
    lock["pinned"][0]["sha256"] = "00"
    with pytest.raises(jsonschema.ValidationError, match="does not match"):
        jsonschema.validate(lock, schema("lock.schema.json"))


def test_published_settings_schema_has_each_setting() -> None:
    definition = schema("settings.schema.json")["$defs"]["Settings"]
    assert set(definition["properties"]) == {entry.name for entry in settings_table()}
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        jsonschema.validate({"color": "colour"}, schema("settings.schema.json"))
