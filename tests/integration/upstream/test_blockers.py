"""Prove that each row of blockers.toml stops a macOS build or run of the synthetic upstream unless it is handled."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import lief
import pytest

from macbuild.build.programs import find_cmake, find_ninja
from macbuild.data import parse_toml
from macbuild.errors import PatchError
from macbuild.macho.file import open_macho
from macbuild.macho.symbols import read_exports, read_imports
from macbuild.source.patch.apply import check_edits
from tests.integration.upstream.driver import REPOS, Kept, edits
from tests.integration.upstream.running import World

BLOCKERS = parse_toml((Path(__file__).with_name("blockers.toml")).read_text(), "blockers", PatchError)["blockers"]
PLUGINS = (
    "backends/identity/libtriton_identity",
    "caches/local/libtritoncache_local",
    "repoagents/checksum/libtritonrepoagent_checksum",
)
SHADOW = "share/macbuild_compat/shadow"
API = re.compile(r"_TRITON(SERVER|BACKEND|REPOAGENT|CACHE)_")
Proof = Callable[[World], None]
PROOFS: dict[str, Proof] = {}


def proof(what: str) -> Callable[[Proof], Proof]:
    """Register the proof of a blocker, under its text in blockers.toml."""

    def register(function: Proof) -> Proof:
        PROOFS[what] = function
        return function

    return register


def test_no_blocker_is_left_out() -> None:
    texts = [blocker["what"] for blocker in BLOCKERS]
    assert len(texts) == len(set(texts))
    assert set(texts) == set(PROOFS)


@pytest.mark.parametrize("what", PROOFS)
def test_blocker_stops_the_build_unless_it_is_handled(what: str, world: World) -> None:
    PROOFS[what](world)


def names(path: Path) -> set[bytes]:
    """Return all strings of an object file; its symbols are among them."""
    return set(path.read_bytes().split(b"\0"))


def lacking(path: Path) -> set[str]:
    """Return the undefined symbols of an object file."""
    binary = lief.parse(path)
    assert isinstance(binary, lief.MachO.Binary)
    return {str(symbol.name) for symbol in binary.symbols if symbol.raw_type & 0x0E == 0}  # N_TYPE is N_UNDF


def exports(path: Path) -> set[str]:
    with open_macho(path) as file:
        return {name.decode() for name in read_exports(file.images[0]).names}


def weak_exports(path: Path) -> set[str]:
    with open_macho(path) as file:
        return {name.decode() for name in read_exports(file.images[0]).weak}


def imports(path: Path) -> set[str]:
    with open_macho(path) as file:
        return {name.decode() for name, _, _ in read_imports(file.images[0])}


def rpaths(path: Path) -> list[str]:
    with open_macho(path) as file:
        return list(file.images[0].rpaths)


def libraries(path: Path) -> set[str]:
    with open_macho(path) as file:
        return {dylib.name for dylib in file.images[0].dylibs}


def fails(kept: Kept, source: str, *complaints: str) -> None:
    """Check that a file compiles, and fails to compile without the removed parts."""
    result = kept.compile(source)
    assert result.code != 0, f"{source} compiles"
    for complaint in complaints:
        assert complaint in result.text
    whole = Kept(kept.component, kept.folder, kept.stage, kept.variants)
    assert whole.compile(source).made().stat().st_size > 0


@proof("core, every backend: a GNU version script decides what is exported")
def version_script(world: World) -> None:
    # The linker takes its next flag as the name of the script: none is left, or it is -rpath.
    complaint = re.compile(r"expected parameter after --version-script|unsupported linker arg: \$")
    for component, target in (("core", "triton-core"), ("identity_backend", "triton-identity-backend")):
        kept = world.mac[component]
        assert complaint.search(kept.without_driver().link(target).text)
        assert all(API.match(name) for name in exports(kept.link(target).made()))


@proof("core: links numa and dl")
def numa_library(world: World) -> None:
    result = world.mac["core"].without_rows("-lnuma", accept=True).link("triton-core")
    assert result.code != 0
    assert 'unable to find dynamic system library "numa"' in result.text


@proof("core: numa.h, numaif.h, cpu_set_t, pthread_setaffinity_np")
def numa_headers(world: World) -> None:
    core = world.mac["core"]
    fails(core.without_compat(f"{SHADOW}/numa.h"), "src/numa_utils.cc", "'numa.h' file not found")
    fails(core.without_compat(f"{SHADOW}/numaif.h"), "src/numa_utils.cc", "'numaif.h' file not found")
    fails(core.without_compat(f"{SHADOW}/sched.h"), "src/numa_utils.cc", "'cpu_set_t'")
    fails(core.without_compat(f"{SHADOW}/pthread.h"), "src/numa_utils.cc", "'pthread_setaffinity_np'")


@proof("core: syscall(SYS_gettid) inside setpriority")
def thread_number(world: World) -> None:
    core = world.mac["core"]
    lacking = core.without_compat(f"{SHADOW}/sys/syscall.h")
    for source in (
        "src/backend_model_instance.cc",
        "src/dynamic_batch_scheduler.cc",
        "src/sequence_batch_scheduler/sequence_batch_scheduler.cc",
    ):
        # zig has no such header; in Apple's SDK SYS_gettid is another call, and syscall is deprecated.
        fails(lacking, source, "'sys/syscall.h' file not found")
        assert {b"_macbuild_compat_syscall", b"_macbuild_compat_setpriority"} < names(core.compile(source).made())


@proof("core: st_mtim, st_ctim")
def file_times(world: World) -> None:
    lacking = world.mac["core"].without_compat(f"{SHADOW}/sys/stat.h")
    fails(lacking, "src/filesystem/api.cc", "no member named 'st_mtim'", "no member named 'st_ctim'")


@proof("core: the address of a uint64_t where size_t* is wanted")
def cache_entry(world: World) -> None:
    lacking = world.mac["core"].without_edits("cache-entry-size")
    fails(lacking, "src/cache_entry.cc", "cannot initialize a parameter of type 'size_t *'")


@proof("core: libraries are looked for as lib<name>.so")
def plugin_names(world: World) -> None:
    identity = world.mac["identity_backend"]
    assert (identity.stage / "backends/identity/libtriton_identity.so").is_file()
    bare = identity.configure("-DCMAKE_PROJECT_INCLUDE=").made()
    assert "libtriton_identity.dylib" in (bare / "build.ninja").read_text()
    # Core finds them only by these names.
    core = world.core_without_library_edits
    for file in PLUGINS:
        assert world.start(world.plugins(file, ".so", core)) == ""
        assert f"unable to find '{Path(file).name}.so'" in world.start(world.plugins(file, ".dylib", core))


@proof("core: libraries that others built are called lib<name>.dylib")
def other_plugin_names(world: World) -> None:
    core = world.core_without_library_edits
    for file in PLUGINS:
        assert f"unable to find '{Path(file).name}.so'" in world.start(world.plugins(file, ".dylib", core))
        assert world.start(world.plugins(file, ".dylib")) == ""
    strategy = "models/model/batchstrategy"
    assert f"{strategy}.so" in world.log(world.plugins(strategy, ".so", core))
    assert strategy not in world.log(world.plugins(strategy, ".dylib", core))
    assert f"{strategy}.dylib" in world.log(world.plugins(strategy, ".dylib"))


@proof("core: /proc/stat, /proc/meminfo")
def processes(world: World) -> None:
    core = world.mac["core"]
    asks = {"_host_statistics", "_host_statistics64"}
    assert asks <= imports(core.stage / "lib/libtritonserver.dylib")
    lacking = core.without_edits("cpu-metrics-header", "cpu-metrics-load", "cpu-metrics-memory")
    made = core.link("triton-core", {"/metrics.cc.o": lacking.compile("src/metrics.cc").made()}).made()
    assert not asks & imports(made)
    assert {b"/proc/stat", b"/proc/meminfo"} <= names(made)


@proof("core: wheels are always built by the super-build")
def core_wheel(world: World) -> None:
    core = world.mac["core"]
    inner = core.folder / "source/core/src"
    whole = core.with_change(inner, inner.parent)
    refused = whole.configure("-DTRITON_CORE_HEADERS_ONLY=OFF")
    assert refused.code != 0
    assert "FETCHCONTENT_FULLY_DISCONNECTED" in refused.text
    third_party = f"-DFETCHCONTENT_SOURCE_DIR_REPO-THIRD-PARTY={REPOS / 'third_party'}"
    folder = whole.configure("-DTRITON_CORE_HEADERS_ONLY=OFF", third_party).made()
    steps = world.run([find_ninja(), "-C", folder, "-n", "-v", "all"])
    assert "python3 -m build" in steps.stdout
    assert "-m build" not in world.run([find_ninja(), "-C", core.build_folder, "-t", "commands", "all"]).stdout


@proof("server: a wheel is always built")
def server_wheel(world: World) -> None:
    refused = world.mac["tritonserver"].without_edits("no-python-frontend").configure()
    assert refused.code != 0
    assert "FETCHCONTENT_FULLY_DISCONNECTED" in refused.text
    assert "pybind11" in refused.text
    assert world.mac["tritonserver"].configure().code == 0


@proof("server, python_backend: link rt")
def realtime_library(world: World) -> None:
    result = world.mac["tritonserver"].without_rows("-lrt", accept=True).link("main")
    assert result.code != 0
    assert 'unable to find dynamic system library "rt"' in result.text


@proof("server: stack traces by addr2line")
def stack_traces(world: World) -> None:
    lacking = world.mac["tritonserver"].without_compat(f"{SHADOW}/boost/stacktrace.hpp")
    fails(lacking, "src/triton_signal.cc", "Boost.Stacktrace requires")


@proof("all: $ORIGIN in rpaths")
def origin(world: World) -> None:
    for component, target, right in (
        ("tritonserver", "main", ["@loader_path/../lib"]),
        ("core", "triton-core", ["@loader_path", "@loader_path/pytorch"]),
    ):
        kept = world.mac[component]
        wrong = rpaths(kept.without_rows("-rpath", accept=True).link(target).made())
        assert wrong == [path.replace("@loader_path", "${ORIGIN}") for path in right]
        assert rpaths(kept.link(target).made()) == right


@proof("all: -Werror, and warnings that clang does not know")
def warnings(world: World) -> None:
    core = world.mac["core"]
    source = "src/dynamic_batch_scheduler.cc"
    fails(core.without_rows(foreign=False), source, "[-Werror,-Wunused-private-field]")
    fails(core.without_rows(foreign=False, quiet=False), source, "[-Werror,-Wunknown-warning-option]")


@proof("server: default folders below /opt/tritonserver")
def directories(world: World) -> None:
    repository = world.repository()
    assert world.start(world.tree, "--model-repository", repository) == ""
    server = world.host["tritonserver"].without_edits("backend-directory", "repoagent-directory", "cache-directory")
    tree = world.with_main({"/main.cc.o": server.compile("src/main.cc").made()})
    complaint = world.start(tree, "--model-repository", repository)
    assert "unable to find 'libtriton_identity.so'" in complaint
    assert "/opt/tritonserver/backends/identity" in complaint
    mac = world.mac["tritonserver"]
    folders = {b"/opt/tritonserver/backends", b"/opt/tritonserver/repoagents", b"/opt/tritonserver/caches"}
    assert folders <= names(mac.compile("src/main.cc").made())
    assert b"_macbuild_compat_directory" in names(mac.compile("src/main.cc").made())


@proof("core, server, common: tests are always built")
def upstream_tests(world: World) -> None:
    server = world.mac["tritonserver"]
    folder = server.without_edits("no-tests").configure().made()
    # The command after the link runs a program for another machine.
    built = world.run([find_ninja(), "-C", folder, "data_compressor_test"], fails=True, environ=server.environ())
    assert re.search(r"Exec format error|cannot execute", built.stdout)
    core = world.mac["core"].without_edits("no-tests").configure().made()
    assert "query_test" in (core / "build.ninja").read_text()
    common = world.mac["core"].without_edits("no-tests", component="common").configure()
    assert common.code != 0
    assert "FETCHCONTENT_FULLY_DISCONNECTED" in common.text
    assert "googletest" in common.text
    for kept in world.mac.values():
        assert "_test" not in (kept.build_folder / "build.ninja").read_text()


@proof("server: build.py copies libtritonserver.so and takes Linux branches")
def build_script(world: World) -> None:
    folder = world.fresh("build")
    places = ("--build-dir", str(folder / "b"), "--install-dir", str(folder / "i"))
    world.run([sys.executable, REPOS / "server/build.py", *places, "--dryrun"])
    lines = (folder / "b/cmake_build").read_text().splitlines()
    assert lines[0] == "# linux"
    installed = folder / "b/tritonserver/install"
    shutil.copytree(world.mac["core"].stage, installed)
    shutil.copytree(world.mac["tritonserver"].stage, installed, dirs_exist_ok=True)
    copies = "\n".join(line for line in lines if line.startswith(("set", "mkdir", "cp")))
    done = world.run(["bash", "-c", copies], fails=True)
    assert "lib/libtritonserver.so': No such file" in done.stdout
    assert (installed / "lib/libtritonserver.dylib").is_file()


@proof("third_party: old minimums of CMake")
def old_minimums(world: World) -> None:
    option = "-DCMAKE_POLICY_VERSION_MINIMUM=3.5"
    command: list[str | Path] = [find_cmake(), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={find_ninja()}"]
    command += ["-S", REPOS / "third_party/libevhtp"]
    done = world.run([*command, "-B", world.fresh("minimum")], fails=True)
    assert "Compatibility with CMake < 3.5 has been removed" in " ".join(done.stdout.split())
    world.run([*command, "-B", world.fresh("minimum"), option])
    for kept in world.mac.values():
        assert kept.cached("CMAKE_POLICY_VERSION_MINIMUM") == "3.5"


@proof("backend: the address of a size_t where uint64_t* is wanted")
def collector(world: World) -> None:
    identity = world.mac["identity_backend"]
    for edit in ("collector-descriptor-size", "collector-next-size", "collector-source-size"):
        lacking = identity.without_edits(edit, component="backend")
        complaint = "no matching function for call to 'TRITONBACKEND_InputBufferForHostPolicy'"
        fails(lacking, "backend/src/backend_input_collector.cc", complaint, "no known conversion from 'size_t *'")


@proof("python_backend: Boost and libarchive are downloaded or expected on the system")
def downloads(world: World) -> None:
    folder = world.mac["python_backend"].without_edits("boost-is-a-package").configure().made()
    done = world.run([find_ninja(), "-C", folder, "boostorg"], fails=True)
    assert "boost.tar.gz" in done.stdout
    lacking = world.mac["python_backend"].without_edits("libarchive-is-a-package").configure()
    assert lacking.code != 0
    assert "LibArchive::LibArchive" in lacking.text


@proof("python_backend: fork in a process with threads")
def fork(world: World) -> None:
    python = world.mac["python_backend"]
    source = "src/stub_launcher.cc"
    assert b"_fork" in names(python.without_edits("spawn-header", "spawn-the-stub").compile(source).made())
    whole = names(python.compile(source).made())
    assert b"_macbuild_compat_spawnp" in whole
    assert b"_fork" not in whole
    assert "_posix_spawnp" in imports(python.stage / "backends/python/libtriton_python.so")


@proof("python_backend: LD_LIBRARY_PATH through bash")
def library_path(world: World) -> None:
    python = world.mac["python_backend"]
    source = "src/stub_launcher.cc"
    lacking = python.without_edits("environment-library-path", "environment-library-path-rest").compile(source)
    assert b"env LD_LIBRARY_PATH=" in lacking.made().read_bytes()
    whole = python.compile(source).made().read_bytes()
    assert b"env MACBUILD_PYTHON_LIBRARY_PATH=" in whole
    assert b"LD_LIBRARY_PATH" not in whole


@proof("python_backend: the stub gives up unless LD_LIBRARY_PATH has a colon")
def colon(world: World) -> None:
    python = world.mac["python_backend"]
    source = "src/pb_stub.cc"
    complaint = b"LD_LIBRARY_PATH must have"
    assert complaint in python.without_edits("stub-keeps-its-environment").compile(source).made().read_bytes()
    assert complaint not in python.compile(source).made().read_bytes()


@proof("python_backend: Boost.Interprocess keeps regions as files that everybody can read")
def region_files(world: World) -> None:
    python = world.mac["python_backend"]
    source = "src/shm_manager.cc"
    # With its own folder Boost has an inline function; ours is called by name.
    own = '-DBOOST_INTERPROCESS_SHARED_DIR_PATH="/tmp/boost_interprocess"'
    bare = python.with_change("-Dtriton_python_backend_EXPORTS", own).compile(source).made()
    assert not any("get_shared_dir" in name for name in lacking(bare))
    assert any("get_shared_dir" in name for name in lacking(python.compile(source).made()))


@proof("server: names of shared memory have at most 31 bytes, offsets are multiples of the page")
def shared_memory(world: World) -> None:
    source = "src/shared_memory_manager.cc"
    mac, header = world.mac["tritonserver"], f"{SHADOW}/sys/mman.h"
    calls = ("shm_open", "mmap", "munmap")
    assert {f"_macbuild_compat_{call}".encode() for call in calls} < names(mac.compile(source).made())
    assert {f"_{call}".encode() for call in calls} < names(mac.without_compat(header).compile(source).made())
    # The client's helper makes the region under a name that Darwin accepts. A server that uses the key finds none.
    key = "/a key that is longer than the thirty-one bytes of Darwin"
    assert world.register(world.tree, key) == ""
    made = world.host["tritonserver"].without_compat(header).compile(source).made()
    assert "Unable to open shared memory region" in world.register(
        world.with_main({"/shared_memory_manager.cc.o": made}), key
    )


@proof("onnxruntime_backend: built in docker unless both paths are given")
def docker(world: World) -> None:
    onnxruntime = world.vendors["onnxruntime_backend"]
    headers, libs = ("-DTRITON_ONNXRUNTIME_INCLUDE_PATHS=", "-DTRITON_ONNXRUNTIME_LIB_PATHS=")
    for missing in ((headers, libs), (libs,)):
        refused = onnxruntime.configure(*missing)
        assert refused.code != 0
        assert "needs TRITON_BUILD_CONTAINER or TRITON_BUILD_CONTAINER_VERSION" in refused.text
    folder = onnxruntime.configure(headers, libs, "-DTRITON_BUILD_CONTAINER=image").made()
    assert "docker build" in world.run([find_ninja(), "-C", folder, "-n", "-v", "triton-onnxruntime-backend"]).stdout
    assert "docker" not in (onnxruntime.build_folder / "build.ninja").read_text()
    made = onnxruntime.stage / "backends/onnxruntime/libtriton_onnxruntime.so"
    assert "@rpath/libonnxruntime.1.dylib" in libraries(made)
    assert "_OrtGetApiBase" in imports(made)


@proof("onnxruntime_backend: the address of a size_t where uint64_t* is wanted")
def string_input(world: World) -> None:
    lacking = world.vendors["onnxruntime_backend"].without_edits("string-input-size")
    complaint = "no matching function for call to 'TRITONBACKEND_InputBufferForHostPolicy'"
    fails(lacking, "src/onnxruntime.cc", complaint, "no known conversion from 'size_t *'")


@proof("pytorch_backend: installs ELF libraries and runs patchelf")
def elf_libraries(world: World) -> None:
    pytorch = world.vendors["pytorch_backend"]
    lacking = pytorch.without_edits("install-no-libtorch")
    refused = lacking.install()
    assert refused.code != 0
    assert re.search(r'file INSTALL cannot find "[^"]*/lib/libc10\.so"', refused.text)
    # The machine may have libraries of these names. Those for a Mac are none to patchelf, if there is a patchelf at
    # all.
    folder = world.fresh("elf")
    for name in re.findall(r'"(lib\w+\.so)"', pytorch.text_of("CMakeLists.txt")):
        shutil.copyfile(pytorch.stage / "backends/pytorch/libtriton_pytorch.so", folder / name)
    refused = lacking.install(f"-DTRITON_PYTORCH_LIB_PATHS={folder}")
    assert refused.code != 0
    assert "patchelf fails for libc10.so" in refused.text
    for prefix in (pytorch.stage, pytorch.install().made()):
        assert [path.name for path in (prefix / "backends/pytorch").iterdir()] == ["libtriton_pytorch.so"]


@proof("pytorch_backend: --no-as-needed")
def needed(world: World) -> None:
    pytorch, target = world.vendors["pytorch_backend"], "triton-pytorch-backend"
    # A flag of GNU's linker that Apple's refuses. The driver accepts no flag without a row.
    refused = pytorch.without_rows("--no-as-needed").link(target)
    assert refused.code != 0
    assert "the linker flag --no-as-needed is not known" in refused.text
    whole = pytorch.link(target)
    assert "--no-as-needed left out: libraries without a used symbol are always left out" in whole.text
    assert "@rpath/libtorch.dylib" not in libraries(whole.made())
    # zig's linker keeps libtorch, although none of its symbols is used.
    handed_on = pytorch.without_rows("--no-as-needed", accept=True).link(target).made()
    assert "@rpath/libtorch.dylib" in libraries(handed_on)


@proof("pytorch_backend: links libtorch alone")
def libtorch_alone(world: World) -> None:
    pytorch, target = world.vendors["pytorch_backend"], "triton-pytorch-backend"
    configured = pytorch.without_edits("link-what-is-used").configure().made()
    refused = pytorch.link(target, configured=configured)
    assert refused.code != 0
    for symbol in ("__ZN3c106DeviceC1E", "__ZN2at15set_num_threadsEi"):
        assert f"undefined symbol: {symbol}" in refused.text
    used = {"@rpath/libc10.dylib", "@rpath/libtorch_cpu.dylib"}
    assert used < libraries(pytorch.link(target).made())


@proof("all: weak C++ symbols coalesce across images")
def weak_symbols(world: World) -> None:
    core = world.mac["core"]
    # Compiled with upstream's visibility; the linker accepts a script in one word and ignores it.
    visible = core.with_change("-fvisibility=hidden", "-fvisibility=default")
    visible = visible.with_change("-fvisibility-inlines-hidden", "-fvisibility=default")
    objects = {"/server.cc.o": visible.compile("src/server.cc").made()}
    loose = core.without_rows("--version-script", accept=True).link("triton-core", objects).made()
    assert {name for name in weak_exports(loose) if name.startswith("__Z")}
    assert weak_exports(core.link("triton-core", objects).made()) == set()


def test_everything_together_builds_for_a_mac(world: World) -> None:
    made = {
        "core": {"lib/libtritonserver.dylib"},
        "tritonserver": {"bin/tritonserver"},
        "identity_backend": {"backends/identity/libtriton_identity.so"},
        "python_backend": {"backends/python/libtriton_python.so"},
        "onnxruntime_backend": {"backends/onnxruntime/libtriton_onnxruntime.so"},
        "pytorch_backend": {"backends/pytorch/libtriton_pytorch.so"},
    }
    components = {**world.mac, **world.vendors}
    for component, files in made.items():
        assert all((components[component].stage / file).is_file() for file in files)


def test_all_edits_are_in_the_build(world: World) -> None:
    for kept in (*world.mac.values(), *world.vendors.values()):
        for tree in sorted((kept.folder / "source").iterdir()):
            states = {report.state for report in check_edits(tree, edits(tree.name), "macos")}
            assert states <= {"already-applied"}, tree
