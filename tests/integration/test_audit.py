from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import lief
import pytest

import macbuild.audit.run as module
from macbuild.audit import AuditReport, ExportRule, audit_path, audit_tree, load_policy
from macbuild.macho.file import open_macho
from macbuild.macho.symbols import defined_names, read_exports, read_imports, read_symbols
from macbuild.store import Store
from tests.conftest import Wheels, Zig

# LIEF's results have parts that may be None; a test that meets one must fail. The fat binary must outlive its parts.
parse: Callable[[str], Any] = lief.MachO.parse

REAL = [
    ("torch-2.13.0-arm64", "torch/lib/libc10.dylib"),
    ("torch-2.13.0-arm64", "torch/lib/libomp.dylib"),
    ("torch-2.13.0-arm64", "torch/lib/libtorch_python.dylib"),
    ("torch-2.13.0-arm64", "torch/lib/libtorch_cpu.dylib"),
    ("torch-2.2.2-x86_64", "torch/lib/libc10.dylib"),
    ("torch-2.2.2-x86_64", "torch/lib/libtorch_python.dylib"),
    ("onnxruntime-1.30.0-arm64", "onnxruntime/capi/libonnxruntime.1.30.0.dylib"),
    ("onnxruntime-1.23.2-x86_64", "onnxruntime/capi/onnxruntime_pybind11_state.so"),
]


def rules(report: AuditReport, severity: str = "error") -> Counter[str]:
    return Counter(finding.rule for finding in report.findings if finding.severity.value == severity)


@pytest.mark.parametrize(("wheel", "member"), REAL)
def test_exports_and_imports_agree_with_lief(wheels: Wheels, wheel: str, member: str) -> None:
    path = wheels.file(wheel, member)
    fat = parse(str(path))
    other = fat.at(0)
    with open_macho(path) as file:
        exports, imports = read_exports(file.images[0]), set(read_imports(file.images[0]))
    trie = other.dyld_exports_trie if other.has_dyld_exports_trie else other.dyld_info
    assert exports.names == {entry.symbol.name.encode() for entry in trie.exports}
    assert exports.weak == {entry.symbol.name.encode() for entry in trie.exports if entry.flags & 4}
    source = other.dyld_chained_fixups if other.has_dyld_chained_fixups else other.dyld_info
    # The weak binding stream repeats symbols without naming a library.
    bindings = [entry for entry in source.bindings if not str(getattr(entry, "binding_class", "")).endswith("WEAK")]
    assert {tuple(entry) for entry in imports} == {
        (entry.symbol.name.encode(), entry.library_ordinal, entry.weak_import) for entry in bindings
    }


def test_the_symbol_table_agrees_with_lief(wheels: Wheels) -> None:
    path = wheels.file("torch-2.13.0-arm64", "torch/lib/libc10.dylib")
    fat = parse(str(path))
    other = fat.at(0)
    with open_macho(path) as file:
        found = Counter((entry.name.decode(), entry.value) for entry in read_symbols(file.images[0]))
    expected = Counter((entry.name, entry.value) for entry in other.symbols if entry.origin == entry.ORIGIN.SYMTAB)
    assert found == expected


def test_hidden_copies_of_runtimes_are_found_in_real_files(wheels: Wheels) -> None:
    pool = b"__ZN6google8protobuf14DescriptorPool14generated_poolEv"
    with open_macho(wheels.file("torch-2.13.0-arm64", "torch/lib/libtorch_cpu.dylib")) as file:
        assert defined_names(file.images[0], [pool, b"___kmpc_fork_call", b"___cxa_throw"]) == {pool}
        assert pool not in read_exports(file.images[0]).names
    with open_macho(wheels.file("torch-2.13.0-arm64", "torch/lib/libomp.dylib")) as file:
        assert defined_names(file.images[0], [pool, b"___kmpc_fork_call"]) == {b"___kmpc_fork_call"}


def test_the_newest_libtorch_has_only_one_defect(wheels: Wheels) -> None:
    report = audit_path(wheels.path("torch-2.13.0-arm64"), load_policy("release"))
    errors = [finding for finding in report.findings if finding.severity.value == "error"]
    assert [(finding.rule, finding.file) for finding in errors] == [("install-name", "torch/lib/libomp.dylib")]
    assert "/opt/llvm-openmp/lib/libomp.dylib" in errors[0].message
    assert rules(report, "warning").keys() == {"build-path"}
    assert rules(report, "info").keys() <= {"weak-shared", "static-archive"}
    assert (report.files, report.minimum_macos, report.archs) == (11, "14.0", ("arm64",))
    schema = json.loads((Path(module.__file__).parent / "report.schema.json").read_text())
    jsonschema.validate(report.to_json(), schema)


def libraries(path: Path) -> set[str]:
    """Return the dependencies according to LIEF."""
    fat = parse(str(path))
    return {entry.name for entry in fat.at(0).libraries}


def test_the_last_libtorch_for_x86_64_has_its_known_defects(wheels: Wheels) -> None:
    report = audit_path(wheels.path("torch-2.2.2-x86_64"), load_policy("release"))
    assert rules(report) == {
        "absolute-rpath": 10,
        "duplicate-rpath": 1,
        "install-name": 1,
        "minimum-os": 13,  # The tag says 10.9, the files need 10.13.
        "unsigned": 3,
    }
    assert rules(report, "warning").keys() == {"build-path", "spare-runtime"}
    assert report.minimum_macos == "10.13.6"
    assert rules(audit_path(wheels.path("torch-2.2.2-x86_64"), load_policy("wheel"))).keys() == {
        "duplicate-rpath",
        "minimum-os",
    }


def test_onnxruntime_wheels_pass_the_wheel_policy(wheels: Wheels) -> None:
    policy = load_policy("wheel")
    for name in ("onnxruntime-1.23.2-arm64", "onnxruntime-1.23.2-x86_64", "onnxruntime-1.30.0-arm64"):
        report = audit_path(wheels.path(name), policy)
        assert report.ok, report.findings
    newest = audit_path(wheels.path("onnxruntime-1.30.0-arm64"), load_policy("release"))
    assert rules(newest) == {"install-name-file": 1}


def test_a_missing_library_of_a_wheel_is_found(wheels: Wheels, tmp_path: Path) -> None:
    source = wheels.path("torch-2.13.0-arm64")
    with zipfile.ZipFile(source) as archive:
        wanted = [name for name in archive.namelist() if name.endswith((".dylib", ".so"))]
        archive.extractall(tmp_path, [name for name in wanted if not name.endswith("libc10.dylib")])
    report = audit_tree(tmp_path, load_policy("wheel"), verify_signatures=False)
    binaries = [path for path in tmp_path.rglob("*") if path.suffix in {".dylib", ".so"}]
    needing = {str(path.relative_to(tmp_path)) for path in binaries if "@rpath/libc10.dylib" in libraries(path)}
    assert rules(report).keys() == {"missing-dependency"}
    assert {finding.file for finding in report.findings if finding.severity == "error"} == needing
    with zipfile.ZipFile(wheels.path("torch-2.2.2-arm64")) as older:
        older.extract("torch/lib/libc10.dylib", tmp_path)
    wrong = audit_tree(tmp_path, load_policy("wheel"), verify_signatures=False)
    found = [finding for finding in wrong.findings if finding.rule == "undefined-symbol"]
    assert {finding.file for finding in found} >= {"torch/lib/libtorch_cpu.dylib", "torch/lib/libtorch_python.dylib"}


def test_a_dylib_of_zig_passes_release_except_its_signature(zig: Zig, tmp_path: Path) -> None:
    base = zig.dylib(tmp_path / "t", "int f(void) { return 1; }", name="libbase")
    zig.dylib(
        tmp_path / "t",
        "int f(void); int g(void) { return f(); }",
        "arm64",
        "11.0",
        str(base),
        "-Wl,-rpath,@loader_path",
        name="libuser",
    )
    for code in (tmp_path / "t").glob("*.c"):
        code.unlink()
    policy = load_policy("release")
    assert audit_tree(tmp_path / "t", policy, archs=frozenset({"arm64"}), minimum_macos="11.0").findings == ()
    zig.dylib(tmp_path / "t", "int other(void) { return 1; }", name="libbase")
    (tmp_path / "t/libbase.c").unlink()
    finding = audit_tree(tmp_path / "t", policy).findings[0]
    assert (finding.rule, finding.message) == ("undefined-symbol", "@rpath/libbase.dylib does not export _f")


def test_a_leaked_allocator_and_a_plugin_entry_are_found(zig: Zig, tmp_path: Path) -> None:
    source = (
        "void *_Znwm(unsigned long n) { (void)n; return 0; }\n"
        'const char *where(void) { return "/Users/somebody/src/a.c"; }\n'
        "int TRITONBACKEND_Initialize(void) { return 0; }\n"
    )
    zig.dylib(tmp_path, source, "x86_64", name="libtriton_x")
    rule = ExportRule(allow=["_TRITONBACKEND_*"], require=["_TRITONBACKEND_Initialize"])
    report = audit_tree(tmp_path, load_policy("release"), exports={"libtriton_*": rule})
    assert rules(report) == {"banned-export": 1, "unexpected-export": 1, "unsigned": 1}
    assert [finding.rule for finding in report.findings if finding.severity.value == "warning"] == ["build-path"]


def test_a_second_cpp_runtime_beside_the_systems_is_an_error(zig: Zig, tmp_path: Path) -> None:
    hidden = '__attribute__((visibility("hidden"))) void __cxa_throw(void) {}\nint f(void) { __cxa_throw(); return 0; }'
    zig.dylib(tmp_path, hidden, name="libbundled")
    stub = tmp_path / "stub"
    stub.mkdir()
    (stub / "libc++.tbd").write_text(
        "--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\ninstall-name: '/usr/lib/libc++.1.dylib'\n"
        "exports:\n  - targets: [ arm64-macos ]\n    symbols: [ __Znwm ]\n...\n"
    )
    user = "int f(void); void *_Znwm(unsigned long); void *g(void) { return _Znwm(f()); }"
    zig.dylib(
        tmp_path,
        user,
        "arm64",
        "11.0",
        str(tmp_path / "libbundled.dylib"),
        str(stub / "libc++.tbd"),
        "-Wl,-rpath,@loader_path",
        name="libuser",
    )
    report = audit_tree(tmp_path, load_policy("release"))
    assert rules(report) == {"duplicate-runtime": 1}
    assert report.findings[0].message.endswith("/usr/lib/libc++.1.dylib, libbundled.dylib")


@pytest.mark.parametrize("wheel", ["torch-2.13.0-arm64", "torch-2.2.2-x86_64", "onnxruntime-1.23.2-x86_64"])
def test_a_remembered_report_on_a_real_wheel_is_the_same(wheels: Wheels, tmp_path: Path, wheel: str) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    folder = "torch/lib" if wheel.startswith("torch") else "onnxruntime/capi"
    root = tmp_path / "tree"
    root.mkdir()
    with zipfile.ZipFile(wheels.path(wheel)) as archive:
        for name in archive.namelist():
            if name.startswith(f"{folder}/") and name.endswith((".dylib", ".so")):
                (root / name.rpartition("/")[2]).write_bytes(archive.read(name))
    policy = load_policy("release")

    def check() -> AuditReport:
        plain = audit_tree(root, policy, providers=[root])
        for _ in range(2):
            assert audit_tree(root, policy, providers=[root], memory=store.facts("code")) == plain
        return plain

    before = check()
    assert before.findings
    # One bit inside the code, or in the string table if there is no signature.
    largest = max(root.iterdir(), key=lambda path: path.stat().st_size)
    for at in (0.5, 0.999):
        with largest.open("r+b") as file:
            file.seek(int(largest.stat().st_size * at))
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))
        check()
    largest.unlink()
    assert check() != before
