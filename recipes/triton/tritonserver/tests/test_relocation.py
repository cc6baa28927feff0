"""Test that the server's tree may be anywhere: it finds libraries and backends relative to its program."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from backend_testing.service import Service, running, tree
from backend_testing.wire import Client, same
from models import add

# A backend that only the copy has, so that an answer proves which folder was searched.
TWIN = "twin"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a copy of the tree in a folder with spaces, with one more backend."""
    target = tmp_path_factory.mktemp("copy") / "a folder" / "triton server"
    shutil.copytree(tree(), target, symlinks=False)
    shutil.copytree(target / "backends" / "identity", target / "backends" / TWIN)
    for library in (target / "backends" / TWIN).glob("libtriton_identity.*"):
        library.rename(library.with_name(library.name.replace("identity", TWIN)))
    return target


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a repository with a model of each backend."""
    folder = tmp_path_factory.mktemp("repository") / "models of two backends"
    folder.mkdir()
    for backend in ("identity", TWIN):
        add(folder, backend, backend=backend)
    return folder


def check(service: Service) -> None:
    """Check that a model of each backend answers."""
    client: Client = service.connect()
    item = np.arange(6, dtype=np.float32).reshape(2, 3)
    for model in ("identity", TWIN):
        assert same(client.infer(model, {"INPUT0": item})["OUTPUT0"], item)


@pytest.mark.parametrize("working", ["/", "elsewhere", "bin", "backends"])
def test_a_copy_finds_its_own_backends_from_any_folder(copy: Path, models: Path, tmp_path: Path, working: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = {"/": Path("/"), "elsewhere": tmp_path / "elsewhere"}.get(working, copy / working)
    with running(tmp_path, models, program=copy / "bin" / "tritonserver", working=folder) as service:
        check(service)


def test_the_program_starts_by_a_relative_path(copy: Path, models: Path, tmp_path: Path) -> None:
    with running(tmp_path, models, program=Path("../bin/tritonserver"), working=copy / "lib") as service:
        check(service)


@pytest.mark.parametrize("links", [1, 2])
def test_the_program_starts_through_links(copy: Path, models: Path, tmp_path: Path, links: int) -> None:
    program = copy / "bin" / "tritonserver"
    for index in range(links):
        link = tmp_path / f"folder {index}" / "tritonserver"
        link.parent.mkdir()
        link.symlink_to(program)
        program = link
    with running(tmp_path, models, program=program) as service:
        check(service)


def test_the_program_starts_through_a_link_to_the_tree(copy: Path, models: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(copy, target_is_directory=True)
    with running(tmp_path, models, program=tmp_path / "current" / "bin" / "tritonserver") as service:
        check(service)


def test_a_moved_tree_works(copy: Path, models: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(copy, tmp_path / "first")
    (tmp_path / "first").rename(moved)
    with running(tmp_path, models, program=moved / "bin" / "tritonserver") as service:
        check(service)


def test_a_given_backend_directory_takes_precedence(copy: Path, models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other backends"
    (copy / "backends" / TWIN).rename(tmp_path / TWIN)
    try:
        shutil.copytree(copy / "backends", folder)
        shutil.copytree(tmp_path / TWIN, folder / TWIN)
        program = copy / "bin" / "tritonserver"
        with running(tmp_path, models, f"--backend-directory={folder}", program=program) as service:
            check(service)
    finally:
        (tmp_path / TWIN).rename(copy / "backends" / TWIN)


def test_a_backend_with_the_systems_own_suffix_is_found(copy: Path, models: Path, tmp_path: Path) -> None:
    other = tmp_path / "tree"
    shutil.copytree(copy, other)
    suffix = "dylib" if sys.platform == "darwin" else "so"
    (found,) = (other / "backends" / TWIN).glob(f"libtriton_{TWIN}.*")
    found.rename(found.with_suffix(f".{suffix}"))
    with running(tmp_path, models, program=other / "bin" / "tritonserver") as service:
        check(service)


def test_the_command_of_the_wheel_becomes_the_server(copy: Path, models: Path, tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "tritonserver"
    shutil.copytree(copy, package)
    shutil.copyfile(Path(__file__).parents[1] / "launcher.py", package / "launcher.py")
    script = tmp_path / "tritonserver"
    script.write_text(
        f"#!{sys.executable}\n"
        f"import sys\n"
        f"sys.path.insert(0, {str(package.parent)!r})\n"
        "from tritonserver.launcher import main\n"
        "main()\n"
    )
    script.chmod(0o755)
    with running(tmp_path, models, program=script) as service:
        check(service)
        assert service.end(signal.SIGTERM) == 0
