from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import macbuild
from macbuild.config import bundled
from macbuild.errors import ConfigError
from macbuild.plan import code_closures, keys
from macbuild.plan.code_closures import EVERYWHERE, EXCLUDED, FOLDERS, PINNED, Source, render

PACKAGE = Path(macbuild.__file__).parent
TOP = PACKAGE.parent
SOURCE = Source()
CLOSURES = SOURCE.closures()
KINDS = sorted(CLOSURES)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    clear()
    yield
    clear()


def clear() -> None:
    keys.tool_digest.cache_clear()
    keys._file_digest.cache_clear()
    keys._closures.cache_clear()


def real_files(entry: str) -> list[Path]:
    """Return the files that an entry of a closure includes."""
    name = entry.partition("#")[0]
    first, _, rest = name.partition("/")
    path = bundled(first) / rest if first in FOLDERS else PACKAGE / name
    if not entry.endswith("/"):
        return [path]
    return [file for file in path.rglob("*") if file.suffix in code_closures.DATA_SUFFIXES]


def copied(folder: Path) -> Path:
    """Return a copy of the package, with the folders beside it."""
    for name in ("macbuild", *FOLDERS):
        shutil.copytree(TOP / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "macbuild"


def digest_in(package: Path, kind: str) -> str:
    code = f"from macbuild.plan.keys import tool_digest; print(tool_digest({kind!r}))"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=package.parent, check=True, capture_output=True, text=True).stdout


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def test_closures_file_is_up_to_date() -> None:
    written = Path(code_closures.__file__).with_suffix(".json").read_text("utf-8")
    assert written == render(), "run: python -m macbuild.plan.code_closures"


def test_closures_of_an_installed_package_are_the_same(tmp_path: Path) -> None:
    package = copied(tmp_path)
    for name in FOLDERS:
        (package / "_data").mkdir(exist_ok=True)
        (tmp_path / name).rename(package / "_data" / name)
    assert render(package) == render()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in PINNED])
def test_changing_any_file_of_a_closure_changes_the_key(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys.tool_digest(kind)
    read = keys._read
    for entry in CLOSURES[kind]:
        files = real_files(entry)
        assert files
        part = entry.partition("#")[2]
        for changed in files:

            def mutated(path: Path, changed: Path = changed, part: str = part) -> bytes:
                data = read(path)
                if path.resolve() != changed.resolve():
                    return data
                if part:
                    inside = keys._part(data, part)
                    return data.replace(inside, inside + b"  # changed")
                return data + b"# changed"

            clear()
            monkeypatch.setattr(keys, "_read", mutated)
            assert keys.tool_digest(kind) != before, (entry, changed)
        monkeypatch.setattr(keys, "_read", read)
    clear()
    assert keys.tool_digest(kind) == before


def test_wheel_requirement_change_changes_key_of_pack(tmp_path: Path) -> None:
    package = copied(tmp_path)
    before = digest_in(package, "pack")
    edit(package / "steps" / "pack.py", "}=={number}", "}>={number}")
    assert digest_in(package, "pack") != before


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        ("build", "macho/file.py"),
        ("assemble", "macho/file.py"),
        ("build", "files.py"),
        ("layout", "recipe/inputs.py"),
        ("audit", "audit/policies/release.toml"),
        ("audit", "audit/system.toml"),
        ("zig", "build/toolchain/flags.toml"),
        ("zig", "macho/tools/install_name_tool.py"),
        ("zig", "build/toolchain/link.py"),
        ("zig", "../cmake/stubs/libc++.1.toml"),
        ("apple", "../cmake/darwin.cmake"),
    ],
)
def test_key_covers_modules_that_hand_written_lists_missed(kind: str, module: str) -> None:
    place = (PACKAGE / module).resolve()
    assert place in {path.resolve() for entry in CLOSURES[kind] for path in real_files(entry)}


def test_change_of_the_driver_leaves_other_keys_alone(tmp_path: Path) -> None:
    package = copied(tmp_path)
    kinds = ("zig", "build", "host", "fix", "unpack")
    before = {kind: digest_in(package, kind) for kind in kinds}
    edit(package / "build" / "toolchain" / "driver.py", '"""Write the compilers', '"""Write these compilers')
    assert {kind for kind in kinds if digest_in(package, kind) != before[kind]} == {"zig"}


def test_change_of_one_handler_leaves_other_kinds_alone(tmp_path: Path) -> None:
    package = copied(tmp_path)
    kinds = ("audit", "build", "pack")
    before = {kind: digest_in(package, kind) for kind in kinds}
    edit(package / "steps" / "dispatch.py", "see all findings with", "see every finding with")
    assert {kind for kind in kinds if digest_in(package, kind) != before[kind]} == {"audit"}


def test_new_data_file_in_a_folder_changes_the_key(tmp_path: Path) -> None:
    package = copied(tmp_path)
    before = digest_in(package, "zig")
    (tmp_path / "cmake" / "stubs" / "New.toml").write_text("")
    assert digest_in(package, "zig") != before


def test_out_of_date_closures_say_which_command_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in ("steps/gone.py", "steps/dispatch.py#_gone", "gone/"):
        keys.tool_digest.cache_clear()
        monkeypatch.setattr(keys, "_closures", lambda entry=entry: {"build": [entry]})
        with pytest.raises(ConfigError) as caught:
            keys.tool_digest("build")
        assert caught.value.hint is not None
        assert "python -m macbuild.plan.code_closures" in caught.value.hint


def test_new_import_in_a_function_enters_the_closure(tmp_path: Path) -> None:
    package = copied(tmp_path)
    before = Source(package).modules("merge")
    with (package / "steps" / "merge.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef planted() -> None:\n    from macbuild.audit import audit_tree\n\n    del audit_tree\n")
    added = Source(package).modules("merge") - before
    assert {"macbuild.audit", "macbuild.audit.run", "macbuild.audit.rules.symbols"} <= added


def test_closure_follows_imports_of_generated_programs() -> None:
    assert "macbuild.build.toolchain.link" in SOURCE.imports("macbuild.build.toolchain.driver")
    assert "macbuild.macho.tools" in SOURCE.modules("zig")


def test_every_exclusion_has_an_effect_and_a_reason() -> None:
    source = SOURCE
    kinds = [kind for kind in KINDS if kind not in PINNED]
    reached = {kind: source.modules(kind, {}) for kind in kinds}
    for module, reason in EVERYWHERE.items():
        assert reason
        assert any(module in modules for modules in reached.values()), module
    for kind, modules in EXCLUDED.items():
        for module, reason in modules.items():
            assert reason
            others = {name: why for name, why in {**EVERYWHERE, **modules}.items() if name != module}
            assert module in source.modules(kind, others), module


def test_each_kind_of_step_has_one_handler() -> None:
    assert set(SOURCE.kinds()) == {*keys.Kind.__args__, "verify", "zig", "apple", "host"}  # type: ignore[attr-defined]


def test_dispatch_has_no_code_outside_the_closures() -> None:
    tree = ast.parse((PACKAGE / "steps" / "dispatch.py").read_text("utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    parts = {entry.partition("#")[2] for entries in CLOSURES.values() for entry in entries if "#" in entry}
    assert names == {*parts, "_do", *(f"_{kind}" for kind in PINNED)}


def test_package_init_files_contain_only_definitions() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            plain = isinstance(
                node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.If
            )
            assert docstring or plain, (path, node.lineno)


def test_every_data_file_that_code_reads_is_in_a_closure() -> None:
    covered = {path for entries in CLOSURES.values() for entry in entries for path in real_files(entry)}
    # Schemas are for users, and no step uses the report page.
    found = {
        path
        for path in PACKAGE.rglob("*")
        if path.suffix in code_closures.DATA_SUFFIXES
        and not {"_data", "cli"} & set(path.relative_to(PACKAGE).parts)
        and not path.name.endswith(".schema.json")
        and path.name != "code_closures.json"
    }
    assert found <= covered


def test_no_module_of_a_closure_imports_by_a_computed_name() -> None:
    source = SOURCE
    for kind in KINDS:
        for module in source.modules(kind) - {"macbuild.audit"}:
            path = source.path(module)
            assert path is not None
            assert "import_module" not in path.read_text("utf-8"), module


def layers() -> dict[str, int]:
    """Return the number of the layer of each part of the package, the lowest first."""
    table = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    rows = next(contract["layers"] for contract in table if contract["type"] == "layers")
    return {name.strip(): level for level, row in enumerate(reversed(rows)) for name in row.split("|")}


def upward(source: Source) -> set[tuple[str, str]]:
    """Return the imports of generated programs that go up."""
    level = layers()
    return {
        (module, name)
        for module in source.names()
        for name in source.generated(module)
        if len(parts := name.split(".")) > 1 and level[parts[1]] > level.get(module.split(".")[1], 0)
    }


def test_generated_programs_import_downwards_only(tmp_path: Path) -> None:
    assert any(SOURCE.generated(module) for module in SOURCE.names())
    assert upward(SOURCE) == set()
    package = copied(tmp_path)
    edit(package / "build" / "toolchain" / "driver.py", "from macbuild.build.toolchain.link", "from macbuild.cli.app")
    assert upward(Source(package)) == {("macbuild.build.toolchain.driver", "macbuild.cli.app")}


def test_import_linter_fails_on_planted_imports(tmp_path: Path) -> None:
    package = copied(tmp_path)
    shutil.copyfile(TOP / "pyproject.toml", tmp_path / "pyproject.toml")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    planted = {
        "macbuild.macho.pages": "\n\ndef planted() -> None:\n    from macbuild.steps import fix\n\n    del fix\n",
        "macbuild.files": "\nimport macbuild.store\n",
        "macbuild.macho.file": "\n\ndef planted() -> None:\n    import macbuild.macho.verify\n",
    }
    for module, line in planted.items():
        place = Source(package).path(module)
        assert place is not None
        with place.open("a", encoding="utf-8") as file:
            file.write(line)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    report = done.stdout.partition("Broken contracts")[2]
    expected = ("macbuild.macho.pages -> macbuild.steps.fix", "macbuild.files -> macbuild.store", ".verify -> .file")
    for line in expected:
        assert line in report
