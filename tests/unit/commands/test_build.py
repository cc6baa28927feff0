from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from macbuild.commands.build import build
from macbuild.errors import (
    ArchiveError,
    AuditError,
    FileError,
    FixError,
    IntegrityError,
    LockError,
    MacbuildError,
    NoSpaceError,
    RecipeError,
    StoreError,
    UnreachableError,
)
from macbuild.events import Event, Note, StepFinished, StepStarted
from macbuild.package.manifest import ArtifactEntry
from macbuild.steps.dispatch import run_step
from tests.support import machobytes
from tests.support.sample import Sample, files, server, tarball, tree


def two(root: Path) -> Sample:
    sample = Sample(root)
    sample.add("alpha")
    sample.add("beta", archs=("arm64", "x86_64"))
    return sample


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return two(tmp_path / "project")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """Return two components built by one run; tests must not change them."""
    sample = two(tmp_path_factory.mktemp("whole") / "project")
    assert not sample.make().failed
    return sample


@pytest.fixture
def made(whole: Sample, tmp_path: Path) -> Sample:
    """Return a copy of the whole project."""
    return whole.copy(tmp_path / "made")


def started(sample: Sample) -> list[str]:
    return [event.step for event in sample.events if isinstance(event, StepStarted)]


def replace(sample: Sample, name: str, content: Mapping[str, bytes | str]) -> None:
    (sample.archives / f"{name}-1.0-arm64.tar.gz").write_bytes(tarball(content))
    sample.write()


def test_a_run_leaves_artifacts_checksums_boms_and_one_manifest(sample: Sample) -> None:
    result = sample.make()
    names = ["alpha-1.0-macos-arm64", "beta-1.0-macos-arm64"]
    expected = {f"{name}{end}" for name in names for end in (".tar.gz", ".tar.gz.sha256", ".cdx.json")}
    assert set(sample.content()) == expected | {"SHA256SUMS", "manifest.json"}
    assert [(made.state, made.summary.minimum_macos) for made in result.published] == [("built", "11.0")] * 2
    assert result.published[0].sources == ("local: local ../../archives/alpha-1.0-arm64.tar.gz",)
    assert result.published[0].seconds > 0
    assert isinstance(result.published[0].entry, ArtifactEntry)
    assert subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=sample.dist, check=False).returncode == 0


def test_a_second_run_does_nothing(made: Sample) -> None:
    before = tree(made.dist)
    result = made.make()
    assert result.idle
    assert [made.state for made in result.published] == ["up to date"] * 2
    assert made.events == []
    assert tree(made.dist) == before


def test_the_second_run_does_not_read_the_manifest(made: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    made.make()
    monkeypatch.setattr("macbuild.commands.publish.published", None)
    assert made.make().idle


@pytest.mark.parametrize(
    "name", ["alpha-1.0-macos-arm64.tar.gz", "alpha-1.0-macos-arm64.cdx.json", "SHA256SUMS", "manifest.json"]
)
def test_file_deleted_from_dist_is_restored_from_the_store(made: Sample, name: str) -> None:
    before = made.content()
    (made.dist / name).unlink()
    result = made.make()
    assert started(made) == []
    assert "restored" in [made.state for made in result.published]
    assert made.content() == before
    if name.startswith("alpha"):
        assert [made.state for made in result.published] == ["restored", "up to date"]


def test_an_artifact_changed_in_dist_is_restored(made: Sample) -> None:
    before = made.content()
    path = made.dist / "alpha-1.0-macos-arm64.tar.gz"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    made.make()
    assert made.content() == before


def test_without_its_pack_result_only_the_pack_step_runs(made: Sample) -> None:
    before = made.content()
    plan = made.plan("alpha")
    made.project().store.discard(plan.steps["alpha-1.0-macos-arm64/pack"].key)
    made.make()
    assert started(made) == ["alpha-1.0-macos-arm64/pack"]
    assert made.content() == before


def test_another_folder_and_other_jobs_give_the_same_bytes(whole: Sample, tmp_path: Path) -> None:
    other = Sample(tmp_path / "elsewhere")
    other.add("beta", archs=("arm64", "x86_64"))
    other.add("alpha")
    other.make(jobs=4)
    assert other.content() == whole.content()


def test_universal2_is_made_from_both_slices(sample: Sample) -> None:
    result = sample.make("beta", arch="universal2")
    assert [made.summary.file for made in result.published] == ["beta-1.0-macos-universal2.tar.gz"]
    assert len(result.published[0].sources) == 2


BAD: dict[str, tuple[Mapping[str, bytes | str], type[MacbuildError]]] = {
    "an unknown dependency": (files("alpha", "arm64", dylibs=["/opt/x/libx.dylib"]), FixError),
    "nothing that the layout matches": ({"README": b"x"}, RecipeError),
    "another architecture": (files("alpha", "x86_64"), FixError),
    "an escaping link": ({**files("alpha", "arm64"), "lib/x": "../../../../etc/passwd"}, ArchiveError),
    "a stage that the policy rejects": (
        {**files("alpha", "arm64"), "lib/libz.dylib": machobytes.dylib(id="z", minos="12.0")},
        AuditError,
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_error_publishes_nothing_and_keep_going_the_rest(sample: Sample, what: str) -> None:
    content, error = BAD[what]
    replace(sample, "alpha", content)
    result = sample.make()
    assert [type(failure) for failure in result.failed.values()] == [error]
    assert result.published == ()
    assert not sample.dist.exists()
    result = sample.make(keep_going=True)
    assert [type(failure) for failure in result.failed.values()] == [error]
    assert [made.summary.file for made in result.published] == ["beta-1.0-macos-arm64.tar.gz"]
    assert "beta-1.0-macos-arm64.tar.gz" in sample.content()


def test_an_error_leaves_an_older_dist_untouched(made: Sample) -> None:
    before = tree(made.dist)
    replace(made, "alpha", BAD["an unknown dependency"][0])
    assert made.make().failed
    assert tree(made.dist) == before


def test_a_failed_step_is_tried_again_and_done_ones_are_not(sample: Sample) -> None:
    replace(sample, "alpha", BAD["an unknown dependency"][0])
    sample.make("alpha")
    sample.make("alpha")
    assert started(sample) == ["alpha-1.0-macos-arm64/fix"]


def test_steps_of_components_run_at_the_same_time(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = threading.Barrier(2, timeout=120)

    def both(*args: object) -> str:
        step = args[0]
        if step.kind == "fetch":  # type: ignore[attr-defined]
            barrier.wait()
        return run_step(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("macbuild.steps.executor.run_step", both)
    assert not sample.make(jobs=2).failed


def test_an_unusable_dist_is_an_error_before_the_first_step(sample: Sample) -> None:
    sample.dist.write_text("in the way")
    with pytest.raises(FileError) as caught:
        sample.make()
    assert caught.value.hint == "make the folder writable, or name another one with --dist"
    assert sample.project().store.entries() == []


class TestUnreachable:
    def test_the_next_source_is_used_and_reported(self, sample: Sample) -> None:
        with server({}) as url:
            sample.serve_first("alpha", url)
            result = sample.make()
        assert not result.failed
        assert result.published[0].sources[0].startswith("local: ")
        warnings = [event.message for event in sample.events if isinstance(event, Note) and event.level == "warning"]
        assert any("alpha 1.0 arm64 remote" in warning and "404" in warning for warning in warnings)
        assert [made.state for made in result.published] == ["built", "built"]

    def test_the_first_source_is_used_when_it_answers(self, sample: Sample) -> None:
        data = (sample.archives / "alpha-1.0-arm64.tar.gz").read_bytes()
        with server({"alpha-1.0-arm64.tar.gz": data}) as url:
            sample.serve_first("alpha", url)
            result = sample.make()
        assert result.published[0].sources[0].startswith("remote: ")

    def test_wrong_bytes_are_an_error_and_the_next_source_is_not_tried(self, sample: Sample) -> None:
        size = len((sample.archives / "alpha-1.0-arm64.tar.gz").read_bytes())
        with server({"alpha-1.0-arm64.tar.gz": bytes(size)}) as url:
            sample.serve_first("alpha", url)
            result = sample.make()
        assert [type(error) for error in result.failed.values()] == [IntegrityError]
        assert not sample.dist.exists()

    def lose(self, sample: Sample, name: str = "alpha") -> None:
        (sample.archives / f"{name}-1.0-arm64.tar.gz").unlink()

    def test_no_source_left_is_an_error_that_publishes_nothing(self, sample: Sample) -> None:
        self.lose(sample)
        with pytest.raises(UnreachableError, match="no source is available"):
            sample.make()
        assert not sample.dist.exists()

    def test_skip_unreachable_builds_the_rest_and_says_why(self, sample: Sample) -> None:
        self.lose(sample)
        result = sample.make(skip_unreachable=True)
        assert result.failed == {}
        assert list(result.unreachable) == ["alpha"]
        assert "no such file" in str(result.unreachable["alpha"])
        assert [made.summary.file for made in result.published] == ["beta-1.0-macos-arm64.tar.gz"]
        assert not result.idle

    def test_keep_going_builds_the_rest_and_fails(self, sample: Sample) -> None:
        self.lose(sample)
        result = sample.make(keep_going=True)
        assert [type(error) for error in result.failed.values()] == [UnreachableError]
        assert result.unreachable == {}
        assert [made.summary.file for made in result.published] == ["beta-1.0-macos-arm64.tar.gz"]

    def test_component_without_a_pin_is_left_out_or_fails(self, sample: Sample) -> None:
        sample.serve_only("alpha", "http://127.0.0.1:9")
        path = sample.root / "macbuild.lock"
        path.write_text(path.read_text().replace('component = "alpha"', 'component = "alpine"'))
        with pytest.raises(LockError):
            sample.make()
        assert list(sample.make(skip_unreachable=True).unreachable) == ["alpha"]
        assert [type(error) for error in sample.make(keep_going=True).failed.values()] == [LockError]

    def test_keep_going_tries_the_next_source_after_another_error(self, sample: Sample) -> None:
        replace(sample, "beta", {"README": b"x"})
        with server({}) as url:
            sample.serve_first("alpha", url)
            result = sample.make(keep_going=True)
        assert [type(error) for error in result.failed.values()] == [RecipeError]
        assert [made.summary.file for made in result.published] == ["alpha-1.0-macos-arm64.tar.gz"]

    def test_without_keep_going_the_other_error_is_reported(self, sample: Sample) -> None:
        replace(sample, "beta", {"README": b"x"})
        with server({}) as url:
            sample.serve_first("alpha", url)
            result = sample.make()
        assert RecipeError in [type(error) for error in result.failed.values()]
        assert UnreachableError not in [type(error) for error in result.failed.values()]

    def test_offline_uses_the_store_and_mirrors_only(self, sample: Sample, tmp_path: Path) -> None:
        data = (sample.archives / "alpha-1.0-arm64.tar.gz").read_bytes()
        with server({"alpha-1.0-arm64.tar.gz": data}) as url:
            sample.serve_first("alpha", url)
            sample.sources("alpha").pop()
            sample.write()
            with pytest.raises(UnreachableError, match="offline"):
                sample.make("alpha", offline=True)
            assert sample.make("alpha").published
        assert sample.make("alpha", offline=True).idle
        sample.project().store.clean()
        mirror = tmp_path / "mirror"
        mirror.mkdir()
        (mirror / "alpha-1.0-arm64.tar.gz").write_bytes(data)
        assert not sample.make("alpha", offline=True, mirrors=[str(mirror)]).failed


class TestStore:
    def test_a_read_only_store_serves_a_run_with_nothing_to_do(
        self, made: Sample, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Permissions do not bind root, who may run this: refuse what a read-only file system would refuse.
        for name in ("utime", "rename", "replace", "link", "mkdir"):
            monkeypatch.setattr(os, name, _refused)
        monkeypatch.setattr(Path, "write_text", _refused)
        monkeypatch.setattr(Path, "touch", _refused)
        assert made.make().idle

    def test_unwritable_store_is_an_error_with_a_hint(self, sample: Sample) -> None:
        sample.cache.write_text("a file in its place")
        with pytest.raises(StoreError):
            sample.make()
        assert not sample.dist.exists()

    @pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_bytes(b"x")])
    def test_a_damaged_download_in_the_store_is_an_error_once(
        self, made: Sample, change: Callable[[Path], None]
    ) -> None:
        store = made.project().store
        steps = made.plan("alpha").steps
        change(store.path(steps["alpha-1.0-macos-arm64/fetch"].key) / "alpha-1.0-arm64.tar.gz")
        for step in list(steps.values())[1:]:
            store.discard(step.key)
        (error,) = made.make("alpha").failed.values()
        assert isinstance(error, StoreError)
        assert "run the same command again" in str(error.hint)
        assert not made.make("alpha").failed

    @pytest.mark.parametrize("name", ["entry.json", "alpha-1.0-macos-arm64.tar.gz", "alpha-1.0-macos-arm64.cdx.json"])
    @pytest.mark.parametrize("content", [None, b"{}"])
    def test_a_damaged_artifact_in_the_store_is_an_error_once(
        self, made: Sample, name: str, content: bytes | None
    ) -> None:
        before = made.content()
        path = made.project().store.path(made.plan("alpha").steps["alpha-1.0-macos-arm64/pack"].key) / name
        path.unlink() if content is None else path.write_bytes(content)
        for file in made.dist.iterdir():
            file.unlink()
        with pytest.raises(StoreError, match="damaged") as caught:
            made.make()
        assert "run the same command again" in str(caught.value.hint)
        made.make()
        assert made.content() == before

    def test_cleaning_while_another_run_uses_the_store_is_refused(self, made: Sample) -> None:
        store = made.project().store
        with store.in_use(), pytest.raises(StoreError, match="using"), store.in_use(alone=True):
            pass

    def test_results_in_use_are_not_pruned(self, made: Sample) -> None:
        store = made.project().store
        for entry in store.entries():
            os.utime(entry.path / "meta.json", (1, 1))
        made.make("alpha")
        assert {entry.step.split("-")[0] for entry in store.prune(1)} == {"beta"}
        assert made.make("alpha").idle

    def test_a_symlinked_store_works(self, sample: Sample) -> None:
        (sample.root / "disk").mkdir()
        sample.cache.symlink_to("disk")
        assert not sample.make().failed
        assert sample.make().idle


@pytest.mark.parametrize("kind", ["fetch", "unpack", "layout", "fix", "audit", "pack"])
def test_full_disk_is_one_error_and_the_next_run_continues(
    sample: Sample, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def full(*args: object) -> str:
        if args[0].kind == kind:  # type: ignore[attr-defined]
            raise OSError(28, "No space left on device")
        return run_step(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("macbuild.steps.executor.run_step", full)
        result = sample.make("alpha")
    assert [type(error) for error in result.failed.values()] == [NoSpaceError]
    assert not sample.dist.exists()
    assert not sample.make("alpha").failed
    assert started(sample)[0] == f"alpha-1.0-macos-arm64/{kind}"


def test_an_interrupt_stops_running_steps_and_leaves_dist_alone(sample: Sample) -> None:
    project = sample.project()
    seen: list[Event] = []

    def emit(event: Event) -> None:
        seen.append(event)
        if isinstance(event, StepStarted) and event.step.endswith("/unpack"):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        build(project, ["alpha"], emit)
    assert not sample.dist.exists()
    assert list((sample.cache / "work").iterdir()) == []
    assert {event.status for event in seen if isinstance(event, StepFinished)} <= {"built", "skipped"}
    assert not sample.make().failed


RUN = "import sys; from macbuild.cli.app import run; sys.exit(run(sys.argv[1:]))"


def spawn(sample: Sample, code: str = RUN) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code, "all", "--arch", "arm64", "--cache-dir", str(sample.cache)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.Popen(command, cwd=sample.root, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_two_processes_share_store_and_dist(sample: Sample, whole: Sample) -> None:
    processes = [spawn(sample) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    together = sample.content()
    assert together == whole.content()
    manifest = json.loads(together["manifest.json"])
    assert len(manifest["artifacts"]) == 2


@pytest.mark.parametrize("kind", ["unpack", "pack"])
def test_the_next_run_completes_a_killed_one(sample: Sample, whole: Sample, kind: str) -> None:
    code = (
        "import os, signal, macbuild.steps.executor as r; old = r.run_step\n"
        "def step(s, *a):\n"
        f"    done = old(s, *a)\n"
        f"    if s.kind == {kind!r}: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return done\n"
        "r.run_step = step\n"
    )
    process = spawn(sample, code + RUN)
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert not sample.dist.exists()
    assert not sample.make().failed
    assert sample.content() == whole.content()


def _refused(*_: object, **__: object) -> None:
    raise OSError(30, "Read-only file system")


def test_file_that_breaks_its_export_rule_is_refused(sample: Sample) -> None:
    sample.recipes["alpha"]["audit"] = {"exports": {"lib/libalpha.dylib": {"allow": ["_g*"], "require": ["_g"]}}}
    sample.write()
    (failure,) = sample.make("alpha").failed.values()
    assert isinstance(failure, AuditError)
    assert "unexpected-export" in failure.message
    assert "missing-export" in failure.message
    sample.recipes["alpha"]["audit"] = {"exports": {"lib/libalpha.dylib": {"allow": ["_f"], "require": ["_f"]}}}
    sample.write()
    assert not sample.make("alpha").failed
