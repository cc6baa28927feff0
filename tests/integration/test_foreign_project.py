"""Build a foreign project, written for Linux, from a checkout for macOS and for this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import lief
import pytest

from macbuild.commands.build import BuildResult
from macbuild.commands.project import Project
from macbuild.data import load_toml
from macbuild.errors import BuildError, MacbuildError, RecipeError
from macbuild.events import discard
from macbuild.plan.model import Plan
from macbuild.recipe.complete import Shared
from macbuild.source.checkout import checkout_digest
from macbuild.steps.executor import build
from tests.conftest import zig_cache
from tests.support.libraries import own, with_engine
from tests.support.sample import Sample

ROOT = Path(__file__).parents[2]
SHARED = load_toml(ROOT / "recipes/triton/shared.toml", Shared, RecipeError).definitions
REACHES_OUT = """
FetchContent_Declare(repo-third GIT_REPOSITORY file://{repository} GIT_TAG main)
FetchContent_MakeAvailable(repo-third)
message(STATUS "third is in ${{repo-third_SOURCE_DIR}}")
"""


def engine(root: Path) -> Sample:
    """Return the project with the CMake definitions of upstream's recipes, without the compat layer."""
    sample = with_engine(root)
    definitions = sample.recipes["engine"]["build"]["definitions"]
    for name in definitions.keys() & SHARED.keys():
        del definitions[name]
    definitions |= {name: value for name, value in SHARED.items() if "COMPAT" not in name and "compat" not in value}
    sample.write()
    sample.cache.mkdir()
    (sample.cache / "zig").symlink_to(zig_cache())
    return sample


def made(sample: Sample, **settings: object) -> BuildResult:
    result = sample.make("engine", toolchain="zig", sources=own(sample.root), **settings)
    assert not result.failed, result.failed
    return result


def failure(sample: Sample) -> str:
    (error,) = sample.make("engine", toolchain="zig", sources=own(sample.root)).failed.values()
    assert isinstance(error, BuildError)
    return str(error)


def without_network(command: Sequence[str], folder: Path) -> str:
    """Run a command without any network route and return its output."""
    done = subprocess.run(["unshare", "--net", *command], cwd=folder, capture_output=True, text=True, check=False)
    assert "unshare failed" not in done.stderr, f"this test needs a network namespace of its own: {done.stderr}"
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """Return the project, built for macOS without network."""
    sample = engine(tmp_path_factory.mktemp("foreign"))
    knock = "import socket; print(socket.socket().connect_ex(('192.0.2.1', 443)))"
    assert without_network([sys.executable, "-c", knock], sample.root).strip() != "0"
    command = [sys.executable, "-m", "macbuild", "build", "engine", "--arch", "arm64"]
    command += ["--toolchain", "zig", "--cache-dir", str(sample.cache), "--dist", str(sample.dist)]
    before = [checkout_digest(sample.root / "own" / name) for name in ("shelf", "motor", "engine")]
    without_network([*command, *(word for text in own(sample.root) for word in ("--source", text))], sample.root)
    assert [checkout_digest(sample.root / "own" / name) for name in ("shelf", "motor", "engine")] == before
    return sample


def build_folder(sample: Sample) -> Path:
    (folder,) = sample.cache.glob("build/engine-*-zig-*/build")
    return folder


def objects(sample: Sample) -> dict[str, int]:
    """Return the modification times of all object files."""
    return {path.name: path.stat().st_mtime_ns for path in build_folder(sample).rglob("*.o")}


def test_package_has_the_files_that_rules_take(sample: Sample) -> None:
    with tarfile.open(sample.dist / "engine-1.0-macos-arm64.tar.gz") as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
        texts = {name: archive.extractfile(f"engine-1.0-macos-arm64/{name}") for name in names}
        content = {name: file.read() for name, file in texts.items() if file is not None}
    licences = {f"licenses/{name}/LICENSE" for name in ("engine", "shelf", "twice")}  # twice is linked statically
    assert names == {"bin/engined", "lib/libengine.dylib", *licences}
    assert content["licenses/shelf/LICENSE"] == b"The licence of shelf.\n"
    # It was installed by an absolute path below the prefix, although no rule takes it.
    assert (build_folder(sample).parent / "prefix/share/engine.h").is_file()
    for name, data in content.items():
        assert os.fsencode(sample.root) not in data, name
    library = lief.parse(list(content["lib/libengine.dylib"]))
    assert isinstance(library, lief.MachO.Binary)
    assert {symbol.name for symbol in library.exported_symbols} == {"_engine_turn"}
    assert {each.name for each in library.libraries} == {"@rpath/libengine.dylib", "/usr/lib/libSystem.B.dylib"}


def test_the_sources_are_recorded_by_content_not_by_place(sample: Sample) -> None:
    texts = {path.name: path.read_text() for path in sample.dist.glob("*.json")}
    assert set(texts) == {"manifest.json", "engine-1.0-macos-arm64.cdx.json"}
    for name, text in texts.items():
        assert str(sample.root) not in text, name
        for folder in ("engine", "motor", "shelf"):
            assert checkout_digest(sample.root / "own" / folder)[1] in text, f"{name}: {folder}"


def test_a_second_run_does_nothing(sample: Sample) -> None:
    assert made(sample).idle


@pytest.fixture
def checkouts(sample: Sample, tmp_path: Path) -> Iterator[Path]:
    """Yield the sources of the project; after the test, they are restored and built again."""
    folder, kept = sample.root / "own", tmp_path / "kept"
    dist = sample.content()
    shutil.copytree(folder, kept)
    yield folder
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    made(sample)
    assert sample.content() == dist


def test_only_an_edited_file_is_compiled_again(sample: Sample, checkouts: Path) -> None:
    # Other tests have built in the folder with the installed command, whose drivers belong to another macbuild.
    (checkouts / "motor/motor.c").write_text((checkouts / "motor/motor.c").read_text() + "\n// Once more.\n")
    made(sample)
    before, dist = objects(sample), sample.content()
    assert set(before) == {"motor.c.o", "engine.cc.o", "main.c.o"}
    for file, old, new, compiled in (
        ("motor/motor.c", "x + SHELF", "x - SHELF", {"motor.c.o"}),
        ("engine/src/engine.h", "int engine", "extern int engine", {"engine.cc.o", "main.c.o"}),
    ):
        path = checkouts / file
        path.write_text(path.read_text().replace(old, new))
        made(sample)
        after = objects(sample)
        assert {name for name in after if after[name] != before[name]} == compiled
        before = after
    assert sample.content() != dist


def test_added_and_removed_files_are_seen_by_glob_patterns(sample: Sample, checkouts: Path) -> None:
    extra = checkouts / "motor/extra.c"
    extra.write_text("int extra(void) { return 0; }\n")
    made(sample)
    assert "extra.c.o" in objects(sample)
    extra.unlink()
    # Otherwise the result would come from the store.
    script = checkouts / "engine/src/libengine.ldscript"
    script.write_text(script.read_text() + "\n")
    made(sample)
    assert "extra.c" not in (build_folder(sample) / "build.ninja").read_text()


def test_the_same_sources_in_another_folder_give_the_same_bytes(sample: Sample, tmp_path: Path) -> None:
    other = engine(tmp_path / "another/place")
    made(other)
    assert other.content() == sample.content()


def test_repository_without_a_folder_is_an_error_not_fetched(tmp_path: Path) -> None:
    repository = tmp_path / "third"
    repository.mkdir()
    (repository / "CMakeLists.txt").touch()
    git = ["git", "-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    sample = engine(tmp_path / "project")
    lists = sample.root / "own/engine/src/CMakeLists.txt"
    text = lists.read_text()
    for version in ("3.1", "3.31"):
        lists.write_text(text.replace("3.1)", f"{version})") + REACHES_OUT.format(repository=repository))
        message = failure(sample)
        assert "engine: configure failed" in message
        assert "repo-third" in message
        assert "FETCHCONTENT_FULLY_DISCONNECTED" in message
    # The network is reachable here: only the settings of the recipes prevent a download.
    definitions = sample.recipes["engine"]["build"]["definitions"]
    del definitions["FETCHCONTENT_FULLY_DISCONNECTED"]
    sample.write()
    made(sample)


def host_tree(project: Project, lost: Mapping[str, MacbuildError]) -> Plan:
    return project.planner(lost).host_tree("engine")


def test_host_build_uses_the_requested_options(tmp_path: Path) -> None:
    sample = engine(tmp_path)
    answers = {}
    for without in ((), ("trace",)):
        project = sample.project(sources=own(tmp_path), unwanted_options=list(without))
        outcome = build(partial(host_tree, project), project.context(discard), keep_going=False)
        assert not outcome.errors, outcome.errors
        (goal,) = outcome.plan.goals
        program = project.store.path(outcome.plan.steps[goal].key) / "stage/bin/engined"
        answers[without] = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert answers == {(): "25\n", ("trace",): "22\n"}


def test_source_without_a_file_of_a_rule_names_the_rule(tmp_path: Path) -> None:
    sample = engine(tmp_path)
    (tmp_path / "own/shelf/LICENSE").unlink()
    (error,) = sample.make("engine", toolchain="zig", sources=own(tmp_path)).failed.values()
    assert isinstance(error, RecipeError)
    assert "LICENSE" in str(error)
