from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from macbuild.files import hash_file
from macbuild.package.dist import publish, published
from macbuild.package.manifest import ArtifactEntry, FileRecord, complete, record_tree
from macbuild.package.sbom import sbom
from macbuild.package.tarball import block_cache, pack, pack_verified, verify_tarball
from tests.conftest import Wheels
from tests.unit.package.test_dist import make_contents

TOP = "onnxruntime-1.30.0-macos-arm64"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tree(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage")
    with zipfile.ZipFile(wheels.path("onnxruntime-1.30.0-arm64")) as archive:
        archive.extractall(folder)
    library = next(folder.glob("onnxruntime/capi/libonnxruntime.*.dylib"))
    library.chmod(0o755)
    (library.parent / "libonnxruntime.dylib").symlink_to(library.name)
    return folder


@pytest.fixture(scope="module")
def expected(tree: Path) -> Mapping[str, FileRecord]:
    return {record.path: record for record in record_tree(tree, 2)}


@pytest.fixture(scope="module")
def artifact(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / f"{TOP}.tar.gz"
    pack(tree, path, top=TOP, epoch=315532800, jobs=2)
    return path


@pytest.fixture(scope="module")
def entry_and_sbom(artifact: Path, expected: Mapping[str, FileRecord]) -> tuple[ArtifactEntry, str]:
    size, sha256 = hash_file(artifact)
    contents = msgspec.structs.replace(make_contents(TOP, b""), size=size, sha256=sha256, files=list(expected.values()))
    text = sbom(contents, license="MIT", epoch=315532800)
    return complete(contents, text), text


def test_real_tree_is_the_same_after_gnu_tar_unpacked_it(
    artifact: Path, expected: Mapping[str, FileRecord], tmp_path: Path
) -> None:
    verify_tarball(artifact, expected, top=TOP)
    subprocess.run(["gzip", "-t", artifact], check=True)
    subprocess.run(["tar", "xzf", artifact, "-C", tmp_path], check=True)
    assert {record.path: record for record in record_tree(tmp_path / TOP, 2)} == expected
    assert [path.name for path in tmp_path.iterdir()] == [TOP]


def test_bytes_do_not_depend_on_interpreter_settings_or_threads(tree: Path, artifact: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from macbuild.package.tarball import pack; "
        f"pack(Path(sys.argv[1]), Path(sys.argv[2]), top={TOP!r}, epoch=315532800, jobs=int(sys.argv[3]))"
    )
    for jobs, settings in (("1", {"PYTHONHASHSEED": "1", "LC_ALL": "C"}), ("7", {"TZ": "Asia/Tokyo"})):
        command = [sys.executable, "-c", code, str(tree), str(tmp_path / "x.tar.gz"), jobs]
        subprocess.run(command, check=True, cwd=ROOT, env=settings)
        assert hash_file(tmp_path / "x.tar.gz") == hash_file(artifact)


def test_cache_of_compressed_blocks_only_saves_time(tree: Path, artifact: Path, tmp_path: Path) -> None:
    cache, records, seconds = block_cache(tmp_path / "blocks"), record_tree(tree, 2), []
    for _ in range(2):
        started = time.process_time()  # of all threads, independent of other load
        pack_verified(tree, tmp_path / "x.tar.gz", records, top=TOP, epoch=315532800, jobs=2, cache=cache)
        seconds.append(time.process_time() - started)
        assert hash_file(tmp_path / "x.tar.gz") == hash_file(artifact)
    assert len(list(cache.folder.iterdir())) >= 1
    assert seconds[1] < 0.7 * seconds[0]


def test_concurrent_and_killed_runs_leave_a_good_cache(tree: Path, artifact: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from macbuild.package.manifest import record_tree; "
        "from macbuild.package.tarball import block_cache, pack_verified; "
        "tree, output, cache = Path(sys.argv[1]), Path(sys.argv[2]), block_cache(Path(sys.argv[3])); "
        f"pack_verified(tree, output, record_tree(tree, 1), top={TOP!r}, epoch=315532800, jobs=1, cache=cache)"
    )
    outputs, blocks = [tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"], tmp_path / "blocks"
    chance = random.Random(5)

    def run(kill_after: float | None) -> float:
        started = time.monotonic()
        lines = [[sys.executable, "-c", code, str(tree), str(output), str(blocks)] for output in outputs]
        running = [subprocess.Popen(line, cwd=ROOT) for line in lines]
        if kill_after is not None:
            time.sleep(kill_after)
            for process in running:
                process.kill()
        assert {process.wait() for process in running} <= ({0} if kill_after is None else {0, -signal.SIGKILL})
        return time.monotonic() - started

    duration = run(None)
    for _ in range(2):
        for path in blocks.iterdir():
            path.unlink()
        run(chance.uniform(0.4, 1) * duration)
        run(None)
        assert [hash_file(output) for output in outputs] == [hash_file(artifact)] * 2


def test_size_is_about_that_of_gzip(tree: Path, artifact: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-C", tree.parent, "-czf", tmp_path / "plain.tar.gz", tree.name], check=True)
    assert artifact.stat().st_size <= 1.03 * (tmp_path / "plain.tar.gz").stat().st_size


def test_sbom_does_not_depend_on_the_hash_seed_or_the_time_zone(entry_and_sbom: tuple[ArtifactEntry, str]) -> None:
    code = (
        "import sys; from tests.unit.package.test_dist import make_contents; "
        "from macbuild.package.sbom import sbom; "
        "sys.stdout.write(sbom(make_contents('x-1', b'x'), license='MIT', epoch=0))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "TZ": zone},
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    assert len(texts) == 1
    assert "file/onnxruntime/capi/libonnxruntime.1.30.0.dylib" in entry_and_sbom[1]


def test_kill_while_packing_and_publishing_leaves_whole_files(
    tree: Path, artifact: Path, entry_and_sbom: tuple[ArtifactEntry, str], tmp_path: Path
) -> None:
    entry, text = entry_and_sbom
    publish(tmp_path / "clean", artifact, text, entry, tmp_path / "clean.stamp")
    (tmp_path / "entry.json").write_bytes(msgspec.json.encode(entry))
    (tmp_path / "sbom.json").write_text(text)
    dist, code = (
        tmp_path / "dist",
        (
            "import sys, msgspec; from pathlib import Path; from macbuild.package.dist import publish; "
            "from macbuild.package.manifest import ArtifactEntry; from macbuild.package.tarball import pack; "
            "tree, here = Path(sys.argv[1]), Path(sys.argv[2]); print('begin', flush=True); "
            f"pack(tree, here / 'new.tar.gz', top={TOP!r}, epoch=315532800, jobs=2); "
            "entry = msgspec.json.decode((here / 'entry.json').read_bytes(), type=ArtifactEntry); "
            "publish(here / 'dist', here / 'new.tar.gz', (here / 'sbom.json').read_text(), entry, here / 'stamp')"
        ),
    )
    command = [sys.executable, "-c", code, str(tree), str(tmp_path)]
    started = time.monotonic()
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    duration = time.monotonic() - started
    chance = random.Random(7)
    for _ in range(12):
        for path in [*dist.iterdir(), tmp_path / "stamp"]:
            if chance.random() < 0.5:
                path.unlink(missing_ok=True)
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.random() * duration)
            process.kill()
        for path in dist.iterdir():
            if not path.name.startswith("."):
                assert path.read_bytes() == (tmp_path / "clean" / path.name).read_bytes()
    publish(dist, artifact, text, entry, tmp_path / "stamp")
    assert published(dist, entry, tmp_path / "stamp")
    assert {path.name: path.read_bytes() for path in dist.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "clean").iterdir()
    }


def test_full_disk_is_no_space_and_leaves_the_old_artifact(tree: Path, artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"old")
    code = (
        "import resource, signal, sys; from pathlib import Path; from macbuild.errors import NoSpaceError\n"
        "from macbuild.package.tarball import pack\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))\n"
        "try:\n"
        "    pack(Path(sys.argv[1]), Path(sys.argv[2]), top='t', epoch=0, jobs=2)\n"
        "except NoSpaceError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", code, str(tree), str(tmp_path / "x.tar.gz")]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    assert "no space left" in done.stdout
    assert artifact.stat().st_size > 2_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.gz"]
    assert (tmp_path / "x.tar.gz").read_bytes() == b"old"
