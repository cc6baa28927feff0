"""Define the rows of the performance budget, each a function that measures it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.inputs import PYTHON, libtorch_dylib, libtorch_stage, macbuild, tool
from bench.rebuild import build_step, other_steps
from bench.timing import Row, command, compare
from bench.wrapper import compile_call, link_call
from macbuild.macho.edit import Edits, edit_private
from macbuild.macho.verify import verify_file

__all__ = ["ROWS"]

ID = "@rpath/libtorch_cpu_renamed.dylib"
RPATH = "@loader_path/../lib"


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary folder on the file system of the current folder."""
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as folder:
        yield Path(folder)


def llvm_edit(copy: Path) -> Callable[[], float]:
    """Return LLVM's edit of id and rpath on a fresh copy, which signs the file again."""
    source = libtorch_dylib()
    name = tool("llvm-install-name-tool")
    return command([name, "-id", ID, "-add_rpath", RPATH, str(copy)], lambda: shutil.copyfile(source, copy))


def edit_library(rounds: int) -> Row:
    """Edit id and rpath of a private file with a library call."""
    with scratch() as folder:
        path = folder / "ours.dylib"

        def ours() -> float:
            shutil.copyfile(libtorch_dylib(), path)
            start = time.perf_counter()
            edit_private(path, Edits(id=ID, add_rpaths=(RPATH,)))
            return time.perf_counter() - start

        times = compare(ours, llvm_edit(folder / "llvm.dylib"), rounds)
        verify_file(path)
    return Row("edit id and rpath, library call on a private file", "llvm-install-name-tool", *times, 0.005)


def edit_command(rounds: int) -> Row:
    """Edit id and rpath with the command, into a new file."""
    with scratch() as folder:
        output = folder / "ours.dylib"
        edit = macbuild("macho", "edit", "--id", ID, "--add-rpath", RPATH, "--output", str(output))
        ours = command([*edit, str(libtorch_dylib())], lambda: output.unlink(missing_ok=True))
        times = compare(ours, llvm_edit(folder / "llvm.dylib"), rounds)
        verify_file(output)
    return Row("the same as a command, new file written", "llvm-install-name-tool", *times, 0.15)


def sign(rounds: int) -> Row:
    """Sign with the command as if the file had never been signed, into a new file."""
    with scratch() as folder:
        output = folder / "ours.dylib"
        line = macbuild("macho", "sign", "--no-preserve", "--output", str(output), str(libtorch_dylib()))
        ours = command(line, lambda: output.unlink(missing_ok=True))
        times = compare(ours, llvm_edit(folder / "llvm.dylib"), rounds)
        verify_file(output)
    return Row("sign from nothing, as a command", "llvm-install-name-tool", *times, 0.25)


def verify(rounds: int) -> Row:
    """Verify every page with the command."""
    path = str(libtorch_dylib())
    times = compare(command(macbuild("macho", "verify", path)), command(["sha256sum", path]), rounds)
    return Row("verify every page hash, as a command", "sha256sum", *times, 0.35)


def idle(rounds: int) -> Row:
    """Run `macbuild all` when there is nothing to do."""
    line = macbuild("all", "--skip-unreachable", "--arch", "arm64", "--dist", "dist")
    other = command([PYTHON, "-c", "import typer, rich"])
    times = compare(command(line), other, max(rounds, 9))
    return Row("`macbuild all` with nothing to do", '`python -c "import typer, rich"`', *times, 3.5)


def version(rounds: int) -> Row:
    """Run `macbuild --version`."""
    times = compare(command(macbuild("--version")), command([PYTHON, "-c", "import typer"]), max(rounds, 15))
    return Row("`macbuild --version`", '`python -c "import typer"`', *times, 0.3)


def tarball_again(rounds: int) -> Row:
    """Pack the LibTorch tree and verify the archive, as after a change that does not affect the large library."""
    stage = libtorch_stage()
    code = (
        "import os, sys; from pathlib import Path; from macbuild.package.manifest import record_tree; "
        "from macbuild.package.tarball import block_cache, pack_verified; "
        "stage, output, blocks = map(Path, sys.argv[1:]); jobs = os.cpu_count() or 1; cache = block_cache(blocks); "
        "pack_verified(stage, output, record_tree(stage, jobs), top='stage', epoch=0, jobs=jobs, cache=cache)"
    )
    with scratch() as folder:
        line = [PYTHON, "-c", code, str(stage), str(folder / "ours.tar.gz"), str(folder / "blocks")]
        ours = command(line)
        ours()
        other = command(["tar", "-C", str(stage.parent), "-czf", str(folder / "plain.tar.gz"), stage.name])
        times = compare(ours, other, min(rounds, 3))
    return Row("the same again, the large library in the cache, archive verified", "`tar czf`", *times, 0.35)


def tarball(rounds: int) -> Row:
    """Pack the LibTorch tree on all cores, in a separate process."""
    stage = libtorch_stage()
    code = (
        "import os, sys; from pathlib import Path; from macbuild.package.tarball import pack; "
        "pack(Path(sys.argv[1]), Path(sys.argv[2]), top='stage', epoch=0, jobs=os.cpu_count() or 1)"
    )
    with scratch() as folder:
        mine, plain = folder / "ours.tar.gz", folder / "plain.tar.gz"
        ours = command([PYTHON, "-c", code, str(stage), str(mine)])
        other = command(["tar", "-C", str(stage.parent), "-czf", str(plain), stage.name])
        times = compare(ours, other, min(rounds, 3))
        size = mine.stat().st_size / plain.stat().st_size
    return Row("tar.gz of the LibTorch tree", "`tar czf`", *times, 0.35, f"size ratio {size:.3f}, at most 1.03")


ROWS: dict[str, Callable[[int], Row]] = {
    "edit": edit_library,
    "edit-command": edit_command,
    "sign": sign,
    "verify": verify,
    "idle": idle,
    "version": version,
    "tarball": tarball,
    "tarball-again": tarball_again,
    "driver-compile": compile_call,
    "driver-link": link_call,
    "rebuild": build_step,
    "rebuild-rest": other_steps,
}
