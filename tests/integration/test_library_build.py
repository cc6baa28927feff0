"""Build libraries with the real compilers, from a source archive to an audited program, and test them here."""

from __future__ import annotations

from pathlib import Path

import lief
import pytest

from macbuild.commands.build import BuildResult
from macbuild.commands.test import prepare_tests
from macbuild.errors import BuildError, MacbuildError
from macbuild.events import StepFinished, discard
from tests.conftest import zig_cache
from tests.support.libraries import libraries
from tests.support.sample import Sample


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    sample = libraries(tmp_path)
    sample.cache.mkdir()
    (sample.cache / "zig").symlink_to(zig_cache())
    return sample


def make(sample: Sample, *components: str, arch: str = "arm64") -> BuildResult:
    result = sample.make(*components, toolchain="zig", arch=arch)
    assert not result.failed, result.failed
    return result


def test_library_and_its_user_are_audited_in_a_program(sample: Sample) -> None:
    result = make(sample, "fourfold", arch="universal2")
    assert list(result.stages) == [f"fourfold-1.0-macos-{arch}/build" for arch in ("x86_64", "arm64")]
    for step, stage in result.stages.items():
        assert (stage / "lib/libfourfold.a").is_file()
        consumer = result.plan.steps[step.replace("/build", "/fix")]
        binary = lief.parse(sample.cache / "results" / consumer.key[:2] / consumer.key / "stage/bin/fourfold_consumer")
        assert isinstance(binary, lief.MachO.Binary)
        assert [library.name for library in binary.libraries] == ["/usr/lib/libSystem.B.dylib"]
        assert binary.has_code_signature
    assert make(sample, "fourfold", arch="universal2").idle


def test_unchanged_libraries_are_not_built_again(sample: Sample) -> None:
    make(sample, "fourfold")
    main = sample.root / "recipes/fourfold/tests/consumer/main.c"
    main.write_text(main.read_text() + "\n")
    make(sample, "fourfold")
    ran = {event.step for event in sample.events if isinstance(event, StepFinished) and event.status == "built"}
    assert {step.rpartition("/")[2] for step in ran} <= {"consumer", "fix", "audit"}


def test_the_tests_of_the_consumer_run_on_this_machine(sample: Sample, capfd: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        (suite,) = prepare_tests(sample.project(), "fourfold", discard, sanitize="", server=None, arguments=[])
        suite.run()

    run()
    assert "100% tests passed" in capfd.readouterr().out
    main = sample.root / "recipes/fourfold/tests/consumer/main.c"
    main.write_text(main.read_text().replace("== 12", "== 13"))
    with pytest.raises(MacbuildError, match="fourfold: ctest ended with 8"):
        run()


def test_library_that_lacks_what_its_consumer_uses_fails(sample: Sample) -> None:
    main = sample.root / "recipes/twice/tests/consumer/main.c"
    main.write_text("int thrice(int);\nint main(void) { return thrice(1); }\n")
    failed = sample.make("twice", toolchain="zig").failed
    (error,) = failed.values()
    assert isinstance(error, BuildError)
    assert "thrice" in str(error)
