"""Test the compat layer: its tests on this machine, its programs for macOS, and a Linux project built with it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from macbuild.audit import Severity, audit_tree, load_policy
from macbuild.build.cmake import CMakeProject, build, configure, install
from macbuild.build.toolchain import PrepareContext, find_toolchain
from macbuild.errors import BuildError
from macbuild.macho.file import is_macho, open_macho
from macbuild.macho.sign import sign_private
from macbuild.macho.symbols import read_exports, read_imports
from macbuild.target import Arch, Target
from tests.conftest import zig_cache
from tests.support.toolchains import kept_folder

COMPAT = Path(__file__).parents[2] / "recipes/libraries/macbuild_compat"
FOREIGN = Path(__file__).parent / "foreign"
ARCHS: tuple[Arch, ...] = ("arm64", "x86_64")
OLDEST = "11.0"


def run(*command: str | Path) -> str:
    """Run a program of the virtual environment or the system; return its output."""
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    done = subprocess.run(
        [str(each) for each in command],
        env=os.environ | {"PATH": path, "LC_ALL": "C"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def project(
    folder: Path, source: Path, arch: Arch | None, *, foreign: bool = False, **definitions: str
) -> CMakeProject:
    """Return a project for a Mac or for this machine, with its own home folder."""
    target = Target(arch, OLDEST) if arch else None
    paths = {str(source): "source", str(folder): "build"}
    context = PrepareContext(zig_cache(), paths, foreign=foreign)
    toolchain = find_toolchain("zig" if arch else "host", target, os.environ).prepare(folder / "toolchain", context)
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    return CMakeProject(source, folder, toolchain, definitions, {"HOME": str(home)}, source.name)


def made(work: CMakeProject, *components: str) -> Path:
    """Build and install a project with these additional components; return the prefix."""
    configure(work)
    build(work, jobs=2)
    stage = work.folder / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    install(work, stage)
    for component in components:
        run("cmake", "--install", work.build_folder, "--prefix", stage, "--component", component)
    return stage


def macho_files(stage: Path) -> Iterator[Path]:
    return (path for path in sorted(stage.rglob("*")) if path.is_file() and not path.is_symlink() and is_macho(path))


def audited(stage: Path, arch: Arch) -> None:
    """Sign the files of a folder and audit it as an artifact."""
    for path in macho_files(stage):
        sign_private(path)
    report = audit_tree(stage, load_policy("release"), archs=frozenset({arch}), minimum_macos=OLDEST)
    assert [each for each in report.findings if each.severity is not Severity.INFO] == []
    assert report.minimum_macos == OLDEST


def exports(path: Path) -> set[str]:
    with open_macho(path) as file:
        return {name.decode() for name in read_exports(file.images[0]).names}


def imports(path: Path) -> set[str]:
    with open_macho(path) as file:
        return {each.name.decode() for each in read_imports(file.images[0])}


def listed_tests(folder: Path) -> set[str]:
    return set(re.findall(r"Test +#\d+: (\w+)", run("ctest", "--test-dir", folder, "-N")))


def passes_all_tests(build_folder: Path) -> None:
    report = build_folder / "report.xml"
    run("ctest", "--test-dir", build_folder, "--output-on-failure", "--output-junit", report)
    cases = list(ET.parse(report).getroot().iter("testcase"))
    assert [case.get("status") for case in cases] == ["run"] * len(cases)


@pytest.fixture(scope="module")
def host() -> Iterator[CMakeProject]:
    """Yield the layer for this machine, compiled with every warning as an error."""
    with kept_folder("compat-host") as folder:
        work = project(folder, COMPAT, None, CMAKE_COMPILE_WARNING_AS_ERROR="ON")
        made(work)
        yield work


@pytest.fixture(scope="module", params=ARCHS)
def mac(request: pytest.FixtureRequest) -> Iterator[tuple[Arch, CMakeProject]]:
    """Yield the layer for a Mac, with its tests."""
    arch: Arch = request.param
    with kept_folder(f"compat-{arch}") as folder:
        work = project(folder, COMPAT, arch, CMAKE_COMPILE_WARNING_AS_ERROR="ON")
        made(work, "tests")
        yield arch, work


def test_every_test_passes_on_this_machine(host: CMakeProject) -> None:
    written = {path.stem for path in (COMPAT / "tests").glob("*_test.cpp")}
    assert listed_tests(host.build_folder) == written
    passes_all_tests(host.build_folder)


def test_every_test_passes_under_sanitizers() -> None:
    with kept_folder("compat-sanitized") as folder:
        work = project(folder, COMPAT, None, CMAKE_BUILD_TYPE="Debug", MACBUILD_SANITIZE="address,undefined")
        configure(work)
        build(work, jobs=2)
        passes_all_tests(work.build_folder)


def test_the_package_has_no_paths_of_this_machine(host: CMakeProject) -> None:
    stage = host.folder / "stage"
    texts = [path for path in stage.rglob("*") if path.suffix in {".cmake", ".h", ".hpp", ".py"}]
    assert len(texts) > 10
    for path in texts:
        assert str(host.folder) not in path.read_text()
        assert str(COMPAT) not in path.read_text()


def test_the_programs_for_a_mac_pass_the_release_policy(mac: tuple[Arch, CMakeProject]) -> None:
    arch, work = mac
    stage = work.folder / "stage"
    programs = {path.stem for path in (COMPAT / "tests").glob("*_test.cpp")} | {"foreign_calls"}
    assert programs <= {path.name for path in (stage / "bin").iterdir()}
    audited(stage, arch)
    for path in (stage / "bin").iterdir():
        assert not [name for name in exports(path) if "macbuild" in name]


def test_program_for_a_mac_has_the_requested_constructor(mac: tuple[Arch, CMakeProject]) -> None:
    _, work = mac
    for name, constructors in (("start_test", 1), ("crash_test", 0)):
        with open_macho(work.folder / "stage" / "bin" / name) as file:
            sections = [each for segment in file.images[0].segments for each in segment.sections]
        found = [each for each in sections if each.name in {"__mod_init_func", "__init_offsets"}]
        assert len(found) == constructors


def test_mac_crash_trace_calls_nothing_that_locks_or_allocates(mac: tuple[Arch, CMakeProject]) -> None:
    _, work = mac
    called = imports(work.folder / "stage" / "bin" / "crash_test")
    assert {"_sigaltstack", "_task_info", "_write"} <= called
    assert not called & {"_backtrace", "_backtrace_symbols_fd", "_dladdr", "__Unwind_Backtrace", "_system", "_popen"}


@pytest.fixture(scope="module")
def foreign_mac(mac: tuple[Arch, CMakeProject]) -> Iterator[tuple[Arch, CMakeProject]]:
    """Yield the project for Linux, built for a Mac with the layer."""
    arch, layer = mac
    inject = layer.folder / "stage/lib/cmake/macbuild_compat/inject.cmake"
    with kept_folder(f"foreign-{arch}") as folder:
        work = project(folder, FOREIGN, arch, foreign=True, CMAKE_PROJECT_INCLUDE=str(inject))
        made(work)
        yield arch, work


def test_a_project_for_linux_does_not_build_without_the_layer(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"Compatibility with CMake < 3\.5 has been removed"):
        made(project(tmp_path, FOREIGN, "arm64", foreign=True))
    with pytest.raises(BuildError, match=r"'boost/stacktrace\.hpp' file not found|'numa\.h' file not found"):
        made(project(tmp_path, FOREIGN, "arm64", foreign=True, CMAKE_POLICY_VERSION_MINIMUM="3.5"))


def test_a_project_for_linux_passes_the_release_policy(foreign_mac: tuple[Arch, CMakeProject]) -> None:
    arch, work = foreign_mac
    stage = work.folder / "stage"
    names = {"bin/foreignserver", "bin/plain", "lib/libforeign.dylib", "backends/probe/libtriton_probe.so"}
    assert {path.relative_to(stage).as_posix() for path in macho_files(stage)} == names
    audited(stage, arch)


def test_a_plugin_has_the_name_that_triton_expects(foreign_mac: tuple[Arch, CMakeProject]) -> None:
    _, work = foreign_mac
    with open_macho(work.folder / "stage/backends/probe/libtriton_probe.so") as file:
        identity = file.images[0].id
    assert identity is not None
    assert identity.name == "@rpath/libtriton_probe.so"
    with open_macho(work.folder / "stage/bin/foreignserver") as file:
        image = file.images[0]
    assert "@rpath/libforeign.dylib" in [each.name for each in image.dylibs]
    assert list(image.rpaths) == ["@loader_path/../lib"]


def test_only_names_in_the_version_scripts_are_exported(foreign_mac: tuple[Arch, CMakeProject]) -> None:
    _, work = foreign_mac
    stage = work.folder / "stage"
    assert exports(stage / "lib/libforeign.dylib") == {"_FOREIGN_Nodes", "_FOREIGN_Load"}
    assert exports(stage / "backends/probe/libtriton_probe.so") == {"_TRITONBACKEND_Answer"}
    assert not [name for name in exports(stage / "bin/foreignserver") if "macbuild" in name]


def test_the_server_calls_the_layer_and_not_signal(foreign_mac: tuple[Arch, CMakeProject]) -> None:
    _, work = foreign_mac
    server = work.folder / "stage/bin/foreignserver"
    assert "_signal" not in imports(server)
    assert "_sigaction" in imports(server)
    with open_macho(server) as file:
        sections = [each for segment in file.images[0].segments for each in segment.sections]
    assert [each for each in sections if each.name in {"__mod_init_func", "__init_offsets"}]


def test_installed_files_do_not_name_the_layer(foreign_mac: tuple[Arch, CMakeProject]) -> None:
    _, work = foreign_mac
    texts = [path.read_text() for path in (work.folder / "stage").rglob("*.cmake")]
    assert any("foreign-common" in text for text in texts)
    assert not any("macbuild_compat" in text for text in texts)


def test_no_package_registry_is_written(foreign_mac: tuple[Arch, CMakeProject]) -> None:
    _, work = foreign_mac
    assert not (Path(work.environ["HOME"]) / ".cmake").exists()


@pytest.fixture(scope="module")
def foreign_host(host: CMakeProject) -> Iterator[Path]:
    """Yield the installed server of the same project for this machine, built with everything that a Mac gets."""
    inject = host.folder / "stage/lib/cmake/macbuild_compat/inject.cmake"
    definitions = {"CMAKE_PROJECT_INCLUDE": str(inject), "MACBUILD_COMPAT_FORCED": "ON"}
    with kept_folder("foreign-host") as folder:
        yield made(project(folder, FOREIGN, None, foreign=True, **definitions)) / "bin" / "foreignserver"


def test_a_handler_with_locks_drains_the_server(foreign_host: Path) -> None:
    done = subprocess.run([foreign_host, "serve"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"ready\nsignal {signal.SIGTERM.value}\ndrained\n")


def test_a_crash_of_the_server_is_traced_and_keeps_its_status(foreign_host: Path) -> None:
    done = subprocess.run([foreign_host, "fault"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert "*** signal 11 (SIGSEGV) at address 0x0" in done.stderr
    assert re.search(rf"^    0  0x\w+  {re.escape(str(foreign_host))} \+ 0x\w+$", done.stderr, re.MULTILINE)
    assert "handler of the server" not in done.stderr


def test_a_stack_trace_of_the_server_has_images_and_offsets(foreign_host: Path) -> None:
    lines = run(foreign_host, "trace").strip().splitlines()
    assert len(lines) > 2
    assert all(re.fullmatch(r" *\d+  0x\w{12,}(  /\S+ \+ 0x\w+)?", line) for line in lines)
    assert any(f"{foreign_host} + 0x" in line for line in lines)


def test_a_closed_connection_is_an_error_of_the_call(foreign_host: Path) -> None:
    assert run(foreign_host, "pipe") == "1 1\n"


def test_a_program_in_c_is_adapted(foreign_host: Path) -> None:
    assert run(foreign_host.with_name("plain")) == "1\n"


def test_a_machine_has_one_memory_node(foreign_host: Path) -> None:
    assert run(foreign_host, "nodes") == "1\n"


def test_a_backend_loads_or_gives_the_reason(foreign_host: Path) -> None:
    prefix = foreign_host.parents[1]
    assert run(foreign_host, "load", prefix / "backends/probe/libtriton_probe.so") == "\n"
    missing = prefix / "backends/probe/libtriton_none.so"
    assert str(missing) in run(foreign_host, "load", missing)


def test_the_backends_are_beside_the_server(foreign_host: Path, tmp_path: Path) -> None:
    assert run(foreign_host, "folder") == f"{foreign_host.parents[1] / 'backends'}\n"
    moved = tmp_path / "elsewhere"
    shutil.copytree(foreign_host.parents[1], moved)
    assert run(moved / "bin" / "foreignserver", "folder") == f"{moved / 'backends'}\n"
