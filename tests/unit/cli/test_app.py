from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import macbuild
from macbuild import errors
from macbuild.cli.app import application, run
from macbuild.cli.completion import complete_component
from macbuild.commands.build import BuildResult
from macbuild.errors import MacbuildError
from tests.support.sample import Sample, files, tarball, work_alone

ROOT = Path(__file__).parents[3]


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    work_alone(tmp_path, monkeypatch)
    sample = Sample(tmp_path)
    sample.add("alpha")
    return sample


@pytest.fixture
def made(sample: Sample, capsys: pytest.CaptureFixture[str]) -> Sample:
    assert run(["all", "-q"]) == 0
    capsys.readouterr()
    return sample


def break_alpha(sample: Sample) -> None:
    content = files("alpha", "arm64", dylibs=["/opt/x.dylib"])
    (sample.archives / "alpha-1.0-arm64.tar.gz").write_bytes(tarball(content))
    sample.write()


@pytest.mark.parametrize(
    "command",
    ["all", "build alpha", "all -n", "plan", "recipes list", "recipes show alpha", "cache list", "doctor"],
)
def test_stdout_has_only_json_with_a_version(sample: Sample, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    del sample
    assert run([*command.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1


def test_audit_writes_json_with_a_version(made: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", str(made.dist / "alpha-1.0-macos-arm64.tar.gz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1


def test_a_failed_run_still_writes_json_and_the_error_to_stderr(
    sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    break_alpha(sample)
    assert run(["all", "--json"]) == errors.FixError.exit_code
    out, err = capsys.readouterr()
    (failure,) = json.loads(out)["failed"]
    assert failure["step"] == "alpha-1.0-macos-arm64/fix"
    assert "error: lib/libalpha.dylib: depends on /opt/x.dylib" in err
    assert "hint: " in err


def test_json_names_path_component_and_architecture(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["all", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["artifacts"]
    assert Path(row["path"]) == (sample.dist / row["file"]).absolute()
    assert Path(row["path"]).is_file()
    assert (row["component"], row["version"], row["arch"]) == ("alpha", "1.0", "arm64")
    break_alpha(sample)
    assert run(["all", "--json"]) == errors.FixError.exit_code
    (failure,) = json.loads(capsys.readouterr().out)["failed"]
    assert (failure["component"], failure["arch"]) == ("alpha", "arm64")
    assert run(["plan", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert {(step["component"], step["arch"]) for step in steps} == {("alpha", "arm64")}


def test_json_tells_why_nothing_could_be_planned(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    del sample
    assert run(["build", "alfa", "--json"]) == errors.PlanError.exit_code
    data = json.loads(capsys.readouterr().out)
    assert (data["version"], data["artifacts"], data["idle"]) == (1, [], False)
    (failure,) = data["failed"]
    assert failure["step"] is None
    assert failure["error"] == "there is no recipe 'alfa'"
    assert failure["hint"] == "did you mean 'alpha'?"


def test_the_table_is_on_stdout_and_progress_on_stderr(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    del sample
    assert run(["all"]) == 0
    out, err = capsys.readouterr()
    assert "alpha-1.0-macos-arm64.tar.gz" in out
    assert "11.0" in out
    assert "served by local" in err
    assert "/fetch" not in out


def test_a_run_with_nothing_to_do_says_so(made: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    del made
    assert run(["all"]) == 0
    out, err = capsys.readouterr()
    assert "up to date" in out
    assert err == "Nothing to do: everything is up to date.\n"


def test_a_run_with_nothing_to_do_needs_only_to_read_the_store(made: Sample) -> None:
    before = {path: path.stat().st_mode for path in (made.cache, *made.cache.rglob("*"))}
    for path, mode in before.items():
        path.chmod(mode & ~0o222)

    def obey_permissions() -> None:
        if os.geteuid() == 0:  # root obeys them without CAP_DAC_OVERRIDE, which prctl(PR_CAPBSET_DROP) takes away
            assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0

    command = [sys.executable, "-m", "macbuild", "all"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=made.root, env=environ, preexec_fn=obey_permissions, capture_output=True, text=True, check=False
    )
    refused = subprocess.run(
        ["touch", str(made.cache / "x")], preexec_fn=obey_permissions, capture_output=True, text=True, check=False
    )
    for path, mode in before.items():
        path.chmod(mode)
    assert refused.returncode != 0
    assert (done.returncode, done.stderr) == (0, "Nothing to do: everything is up to date.\n")
    assert "up to date" in done.stdout


def test_quiet_leaves_stderr_empty_and_verbose_adds_lines(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["all", "-q"]) == 0
    assert capsys.readouterr().err == ""
    sample.project().store.clean()
    assert run(["all", "-v"]) == 0
    assert "fetch" in capsys.readouterr().err


def test_each_line_of_the_json_log_parses_including_errors(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["all", "--log-format", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {"StepStarted", "StepFinished"} <= {line["event"] for line in lines}
    assert all(isinstance(line["time"], float) for line in lines)
    assert run(["all", "--log-format", "json"]) == 0
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["Note"]
    break_alpha(sample)
    assert run(["all", "--log-format", "json"]) == errors.FixError.exit_code
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (last["event"], last["error"], last["exit_code"]) == ("Error", "FixError", 14)


@pytest.mark.parametrize(
    ("arguments", "environ", "colored"),
    [
        (["--color", "always"], {}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ([], {}, False),
        ([], {"MACBUILD_COLOR": "always"}, True),
    ],
)
def test_errors_are_coloured_as_requested(
    sample: Sample,
    arguments: list[str],
    environ: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    colored: bool,
) -> None:
    del sample
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert run(["plan", "missing", *arguments]) == errors.PlanError.exit_code
    assert ("\33[" in capsys.readouterr().err) is colored


def test_debug_traceback_shows_where_and_keeps_the_exit_code(
    sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    del sample
    assert run(["plan", "missing", "--debug-traceback"]) == errors.PlanError.exit_code
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "planner.py" in err


def classes(base: type[MacbuildError]) -> list[type[MacbuildError]]:
    return [base, *(found for child in base.__subclasses__() for found in classes(child))]


def test_each_error_class_has_an_exit_code_of_its_own() -> None:
    public = [kind for kind in classes(MacbuildError) if kind.__name__ in errors.__all__]
    codes = [kind.exit_code for kind in public]
    assert len(public) == len(set(errors.__all__) - {"Terminated", "nearest"}) == len(set(codes))
    assert max(codes) < 128


@pytest.mark.parametrize("kind", [kind for kind in classes(MacbuildError) if kind.__name__ in errors.__all__])
def test_the_exit_code_is_that_of_the_error_class(
    sample: Sample, kind: type[MacbuildError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del sample

    def fail(*_: object, **__: object) -> BuildResult:
        raise kind("it failed", where="there", hint="do this")

    monkeypatch.setattr("macbuild.cli.build.build", fail)
    assert run(["all"]) == kind.exit_code
    assert capsys.readouterr().err == "error: there: it failed\nhint: do this\n"


def test_an_interrupt_is_130(
    sample: Sample, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> BuildResult:
        raise KeyboardInterrupt

    monkeypatch.setattr("macbuild.cli.build.build", interrupt)
    assert run(["all"]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert run(["all", "--log-format", "json"]) == 130
    assert "interrupted" in json.loads(capsys.readouterr().err)["message"]
    assert sample.content() == {}


@pytest.mark.parametrize("arguments", [[], ["cache"], ["recipes"], ["macho"]])
def test_without_a_command_help_is_shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Usage: macbuild" in capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    for name in ("all", "build", "plan", "graph", "audit", "lock", "doctor", "cache", "recipes", "macho"):
        assert f"\n  {name} " in out


def test_application_for_one_command_has_the_same_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["all", "--help"]) == 0
    alone = capsys.readouterr().out
    application()(["all", "--help"], standalone_mode=False, prog_name="macbuild")
    assert capsys.readouterr().out == alone


def test_lock_check_fails_on_drift_and_lock_fixes_it(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lock", "--check"]) == 0
    path = sample.root / "macbuild.lock"
    good = path.read_text()
    path.write_text(good.replace('source = "local"', 'source = "other"'))
    assert run(["lock", "--check"]) == errors.LockError.exit_code
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert "hint: " in err
    assert run(["lock"]) == 0
    assert run(["lock", "--check"]) == 0


def test_lint_reports_every_damaged_recipe(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipes", "lint"]) == 0
    sample.add("beta")
    for name in ("alpha", "beta"):
        sample.recipe_path(name).write_text("schema = ")
    capsys.readouterr()
    assert run(["recipes", "lint"]) == errors.RecipeError.exit_code
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_recipes_are_shown_and_their_schema_printed(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    del sample
    assert run(["recipes", "show", "alpha"]) == 0
    assert "sha256" in capsys.readouterr().out
    assert run(["recipes", "show", "alhpa"]) == errors.PlanError.exit_code
    assert "did you mean 'alpha'?" in capsys.readouterr().err
    assert run(["recipes", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "macbuild recipe"


def test_graphs_name_every_step_and_edge(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    del sample
    for form, arrow in (("dot", "->"), ("mermaid", "-->")):
        assert run(["graph", "--format", form]) == 0
        out = capsys.readouterr().out
        assert out.count(arrow) == 6
        assert "alpha-1.0-macos-arm64/audit" in out


def test_cache_commands_list_prune_and_clean(made: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", "dir"]) == 0
    assert capsys.readouterr().out == f"{made.cache}\n"
    assert run(["cache", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert run(["cache", "prune", "--days", "0"]) == 0
    assert "removed 6 results" in capsys.readouterr().err
    with made.project().store.in_use():
        assert run(["cache", "clean"]) == errors.StoreError.exit_code
    (made.cache / "notes").touch()
    capsys.readouterr()
    assert run(["cache", "clean"]) == 0
    err = capsys.readouterr().err
    assert "removed 0 results and everything else" in err
    assert f"{made.cache} stays, with what macbuild did not put there: notes" in err
    (made.cache / "notes").unlink()
    assert run(["cache", "prune"]) == 0
    assert run(["cache", "clean"]) == 0
    assert f"removed {made.cache}\n" in capsys.readouterr().err
    assert not made.cache.exists()
    assert run(["cache", "clean"]) == 0
    assert f"{made.cache} does not exist" in capsys.readouterr().err


def test_cleaning_a_foreign_folder_is_refused(sample: Sample) -> None:
    (sample.root / "home").mkdir()
    (sample.root / "home" / "thesis.txt").write_text("years of work")
    assert run(["cache", "clean", "--cache-dir", "home"]) == errors.StoreError.exit_code
    assert [path.name for path in (sample.root / "home").iterdir()] == ["thesis.txt"]


def test_skip_unreachable_lists_omissions_and_exits_0(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    sample.add("beta")
    (sample.archives / "alpha-1.0-arm64.tar.gz").unlink()
    assert run(["all", "--skip-unreachable"]) == 0
    assert "left out: alpha" in capsys.readouterr().err
    assert run(["all"]) == errors.UnreachableError.exit_code


def test_the_summary_of_a_job_gets_a_table(
    sample: Sample, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sample.root / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    assert run(["all"]) == 0
    assert "| alpha-1.0-macos-arm64.tar.gz |" in path.read_text()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(sample.root))
    assert run(["all"]) == errors.FileError.exit_code
    capsys.readouterr()


def child(*arguments: str, folder: Path, code: str = "") -> subprocess.CompletedProcess[str]:
    start = "import sys; sys.argv[0] = 'macbuild'\nfrom macbuild.__main__ import main\n"
    script = f"{start}try:\n    main()\nfinally:\n    {code or 'pass'}"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def test_a_run_with_nothing_to_do_loads_only_what_it_needs(made: Sample) -> None:
    heavy = ["requests", "cyclonedx.model", "filelock", "macbuild.macho", "macbuild.audit.run"]
    code = f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    answer = child("all", "--json", folder=made.root, code=code)
    assert answer.returncode == 0
    assert json.loads(answer.stdout)["idle"] is True
    assert answer.stderr.splitlines()[-1] == "[]"


def test_table_of_a_run_with_nothing_to_do_needs_no_rich(made: Sample) -> None:
    answer = child("all", folder=made.root, code="print('rich' in sys.modules, file=sys.stderr)")
    assert "up to date" in answer.stdout
    assert answer.stderr.splitlines()[-1] == "False"


def test_json_needs_no_rich_and_the_version_no_typer(made: Sample) -> None:
    code = "print('rich' in sys.modules, 'typer' in sys.modules, file=sys.stderr)"
    assert child("plan", "--json", folder=made.root, code=code).stderr.splitlines()[-1].startswith("False")
    answer = child("--version", folder=made.root, code=code)
    assert answer.stdout == f"macbuild {macbuild.__version__}\n"
    assert answer.stderr == "False False\n"


# No file may grow in a program that begins like this, which ends writing as a full disk does.
FULL = ("bash", "-c", 'ulimit -f 0; exec "$@"', "-", sys.executable, "-m", "macbuild")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--version", "--help", "recipes list", "recipes list --json"])
def test_full_output_is_one_error(tmp_path: Path, words: str, unbuffered: str) -> None:
    command = [*FULL, *words.split()]
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(command, env=environ, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr.startswith("error: standard output: no space left to write")
    assert done.stderr.count("\n") == 2
    assert done.returncode == errors.NoSpaceError.exit_code


def test_full_error_output_keeps_the_exit_code(tmp_path: Path) -> None:
    with (tmp_path / "err").open("wb") as err:
        done = subprocess.run([*FULL, "build", "alpha@"], stdout=subprocess.DEVNULL, stderr=err, check=False)
    assert done.returncode == errors.UsageError.exit_code


@pytest.mark.parametrize("delay", [0.02, 0.05, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_at_the_start_leave_no_traceback(tmp_path: Path, sign: signal.Signals, delay: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "macbuild", "recipes", "list"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.endswith(" macbuild.errors\n"):  # main() has begun: Python itself prints a traceback before that
            break
    time.sleep(delay)
    process.send_signal(sign)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode in {0, -sign, 128 + sign}


def options(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield each option that takes a value, with its command."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from options(inner, (*path, name))
    for entry in command.params:
        if entry.param_type_name == "option" and not entry.is_flag and not entry.count:
            yield " ".join(path), entry


@pytest.mark.parametrize("group", ["", "cache", "macho", "patch", "recipes", "stubs"])
def test_help_lists_each_command_with_a_whole_sentence(
    group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*filter(None, [group]), "--help"]) == 0
    lines = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert len(lines) >= 3
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ("build", "build [OPTIONS] NAME[@VERSION]..."),
        ("plan", "plan [OPTIONS] [NAME[@VERSION]]..."),
        ("test", "test [OPTIONS] NAME [-- PYTEST...]"),
        ("audit", "audit [OPTIONS] PATH..."),
        ("macho edit", "macho edit [OPTIONS] FILE"),
    ],
)
def test_usage_is_written_as_in_the_reference(words: str, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words.split(), "--help"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"Usage: macbuild {usage}"


def test_help_names_the_value_of_each_option() -> None:
    found = list(options(typer.main.get_command(application())))
    assert [(name, entry.opts) for name, entry in found if entry.metavar is None] == []
    choices = {entry.metavar for _, entry in found if "--toolchain" in entry.opts}
    assert choices == {"{auto,zig,apple}"}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("macbuild bui", ["build"]),
        ("macbuild build al", ["alpha"]),
        ("macbuild build alpha@", ["alpha@1.0"]),
        ("macbuild test be", ["beta"]),
        ("macbuild build --arch ", ["arm64", "x86_64", "universal2"]),
        ("macbuild build --policy r", ["release"]),
        ("macbuild build --toolchain z", ["zig"]),
        ("macbuild build --off", ["--offline"]),
    ],
)
def test_words_are_completed(sample: Sample, words: str, wanted: list[str]) -> None:
    sample.add("beta")
    environ = {
        **os.environ,
        "_MACBUILD_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", "import sys; from macbuild.__main__ import main; sys.argv = ['macbuild']; main()"]
    done = subprocess.run(command, cwd=sample.root, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.split() == wanted, done.stderr


def test_completion_says_nothing_of_a_broken_project(sample: Sample) -> None:
    (sample.root / "macbuild.toml").write_text("no TOML")
    assert complete_component("al") == []
