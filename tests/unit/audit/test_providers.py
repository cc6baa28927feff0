from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from macbuild.audit import AuditReport, Finding, Severity, audit_path, audit_tree, load_policy
from macbuild.audit.providers import Providers, required_folders
from macbuild.build.toolchain.evidence import load_evidence
from macbuild.cli.app import run
from macbuild.errors import MachOError, UsageError
from macbuild.macho.tbd import Stub, write_stub
from macbuild.target import pack_version
from tests.support import machobytes
from tests.support.audits import LOAD_DYLIB, SYSTEM, audit, only, patch_command, put, with_imports

LIBX = "@rpath/libx.dylib"
OTHER = '\nparameters.external = ["@rpath/libx.dylib", "*/libinner.dylib"]\n'
LIBCXX = "/usr/lib/libc++.1.dylib"


@pytest.fixture
def policy(unsigned_is_fine: str) -> str:
    """Return a policy in which `libx.dylib` comes from elsewhere."""
    with Path(unsigned_is_fine).open("a", encoding="utf-8") as file:
        file.write(OTHER)
    return unsigned_is_fine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a tree with a file that imports `_f` and, if available, `_maybe` from `libx.dylib`."""
    return put(tmp_path / "tree", {"user.dylib": user([("_f", 2, False), ("_maybe", 2, True)])})


def user(imports: Sequence[tuple[str, int, bool]], dylibs: Sequence[str] = (SYSTEM, LIBX), **options: str) -> bytes:
    data = machobytes.dylib(id="@rpath/user.dylib", dylibs=dylibs, exports=[], **options)  # type: ignore[arg-type]
    return with_imports(data, imports)


def check(root: Path, policy: str, *providers: Path) -> tuple[Finding, ...]:
    return audit_tree(root, load_policy(policy), providers=providers).findings


def stub(path: Path, **facts: object) -> Path:
    settings = {"install_name": LIBX, "arch": "arm64", "symbols": frozenset({"_f"}), "compatibility": "2.0", **facts}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(write_stub(Stub(**settings)))  # type: ignore[arg-type]
    return path


def test_a_library_without_a_provider_is_reported(root: Path, policy: str) -> None:
    finding = only(audit(root, policy), "unchecked-provider")
    assert finding.severity is Severity.INFO
    assert finding.message == f"{LIBX} comes with another package, its symbols were not checked"


@pytest.mark.parametrize("form", ["dylib", "folder", "stub", "stub in a folder"])
def test_a_provider_that_has_everything_gives_no_finding(tmp_path: Path, root: Path, policy: str, form: str) -> None:
    files = put(tmp_path / "other", {"lib/libx.dylib": machobytes.dylib(), "notes.dylib": b"text", "a.txt": b""})
    text = stub(tmp_path / "link/libx.tbd")
    places = {"dylib": files / "lib/libx.dylib", "folder": files, "stub": text, "stub in a folder": text.parent}
    assert check(root, policy, places[form]) == ()


@pytest.mark.parametrize("with_stub", [True, False])
def test_a_symbol_that_the_provider_lacks_is_an_error(tmp_path: Path, root: Path, policy: str, with_stub: bool) -> None:
    place = put(tmp_path / "other", {"libx.dylib": machobytes.dylib(exports=["_g"])})
    if with_stub:
        place = stub(tmp_path / "libx.tbd", symbols=frozenset({"_g"}))
    (finding,) = check(root, policy, place)
    assert (finding.rule, finding.severity) == ("undefined-symbol", Severity.ERROR)
    assert finding.message == f"{LIBX} does not export _f"


def test_the_first_of_two_providers_counts(tmp_path: Path, root: Path, policy: str) -> None:
    good, bad = stub(tmp_path / "good.tbd"), stub(tmp_path / "bad.tbd", symbols=frozenset())
    assert check(root, policy, good, bad) == ()
    assert [finding.rule for finding in check(root, policy, bad, good)] == ["undefined-symbol"]


def test_a_provider_is_known_by_its_name_below_an_rpath_too(tmp_path: Path, unsigned_is_fine: str) -> None:
    with Path(unsigned_is_fine).open("a", encoding="utf-8") as file:
        file.write('\nparameters.external = ["*/torch/lib/*", "torch/lib/*"]\n')
    data = user([("_f", 2, False)], dylibs=[SYSTEM, "@loader_path/../torch/lib/libx.dylib"])
    root = put(tmp_path / "tree", {"pkg/user.dylib": data})
    assert [finding.rule for finding in check(root, unsigned_is_fine)] == ["unchecked-provider"]
    assert check(root, unsigned_is_fine, stub(tmp_path / "libx.tbd")) == ()
    (finding,) = check(root, unsigned_is_fine, stub(tmp_path / "libx.tbd", symbols=frozenset()))
    assert finding.rule == "undefined-symbol"


def test_version_and_architecture_of_a_provider_are_checked(tmp_path: Path, root: Path, policy: str) -> None:
    (finding,) = check(root, policy, stub(tmp_path / "libx.tbd", compatibility="0.9"))
    assert finding.rule == "dependency-version"
    assert finding.message.endswith("required with compatibility version 1.0, libx.tbd has 0.9")
    (finding,) = check(root, policy, stub(tmp_path / "libx.tbd", arch="x86_64"))
    assert (finding.rule, finding.message) == ("dependency-slice", f"the provider of {LIBX} has only x86_64")


def test_a_reexport_counts_if_its_library_is_given_too(tmp_path: Path, root: Path, policy: str) -> None:
    shell = stub(tmp_path / "libx.tbd", symbols=frozenset(), reexports=("@rpath/libinner.dylib",))
    assert [finding.rule for finding in check(root, policy, shell)] == ["unchecked-provider"]
    inner = machobytes.dylib(id="@rpath/libinner.dylib", dylibs=["@rpath/libx.dylib"])
    place = put(tmp_path / "inner", {"libinner.dylib": patch_command(inner, LOAD_DYLIB, 0, 0x8000001F)})
    assert check(root, policy, shell, place) == ()  # The two re-export each other.


def test_a_library_of_the_tree_is_never_taken_from_a_provider(tmp_path: Path, unsigned_is_fine: str) -> None:
    data = user([("_f", 2, False)], dylibs=[SYSTEM, "@loader_path/libx.dylib"])
    root = put(tmp_path / "tree", {"user.dylib": data, "libx.dylib": machobytes.dylib()})
    assert check(root, unsigned_is_fine, stub(tmp_path / "libx.tbd", symbols=frozenset())) == ()


def test_a_library_of_the_tree_may_reexport_one_from_elsewhere(tmp_path: Path, policy: str) -> None:
    middle = machobytes.dylib(id="@rpath/middle.dylib", dylibs=[LIBX], exports=[])
    data = user([("_f", 2, False)], dylibs=[SYSTEM, "@loader_path/middle.dylib"])
    files = {"user.dylib": data, "middle.dylib": patch_command(middle, LOAD_DYLIB, 0, 0x8000001F)}
    root = put(tmp_path / "tree", files)
    assert check(root, policy, stub(tmp_path / "libx.tbd")) == ()
    (finding,) = check(root, policy, stub(tmp_path / "libx.tbd", symbols=frozenset()))
    assert (finding.rule, finding.file) == ("undefined-symbol", "user.dylib")


def test_the_server_that_loads_a_backend_is_external(tmp_path: Path, unsigned_is_fine: str) -> None:
    server = "@rpath/libtritonserver.dylib"
    data = user([("_TRITONSERVER_ErrorNew", 2, False)], dylibs=[SYSTEM, server])
    root = put(tmp_path / "tree", {"user.dylib": data})
    assert [finding.rule for finding in check(root, unsigned_is_fine)] == ["unchecked-provider"]
    provider = stub(tmp_path / "s.tbd", install_name=server, symbols=frozenset({"_TRITONSERVER_ErrorNew"}))
    assert check(root, unsigned_is_fine, provider) == ()


def test_a_bad_provider_is_an_error(tmp_path: Path, root: Path, policy: str) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        check(root, policy, tmp_path / "absent")
    for name, content in {"a.tbd": b"text", "a.dylib": b"text"}.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(MachOError):
            check(root, policy, path)


def test_a_provider_has_each_architecture_of_a_universal_file(tmp_path: Path) -> None:
    both = machobytes.fat(machobytes.dylib("x86_64", exports=["_i"]), machobytes.dylib(exports=["_a"]))
    providers = Providers([put(tmp_path, {"libx.dylib": both})])
    assert providers.archs(LIBX) == ["arm64", "x86_64"]
    found = {arch: providers.get(LIBX, arch) for arch in ("arm64", "x86_64", "arm64e")}
    assert found["arm64e"] is None
    for arch, name in (("arm64", b"_a"), ("x86_64", b"_i")):
        provider = found[arch]
        assert provider is not None
        assert providers.offers(provider) == frozenset({name})


METADATA = "Metadata-Version: 2.4\nName: tritonserver-x\nVersion: 1\n{}\n\nRequires-Dist: numpy\n"
BACKEND = "tritonserver/backends/x/libtriton_x.so"


def wheel(root: Path, *requires: str, files: Mapping[str, bytes] | None = None) -> Path:
    lines = "\n".join(f"Requires-Dist: {line}" for line in requires)
    names = [SYSTEM, "@rpath/libtorch_cpu.dylib"]
    rpaths = ["@loader_path/../../../torch/lib"]
    data = machobytes.dylib(id="@rpath/libtriton_x.so", dylibs=names, rpaths=rpaths, exports=[])
    metadata = {"tritonserver_x-1.dist-info/METADATA": METADATA.format(lines).encode()}
    return put(root, {BACKEND: with_imports(data, [("_f", 2, False)]), **metadata, **(files or {})})


@pytest.mark.parametrize(
    ("requires", "rules"),
    [
        (["torch==2.13.0"], ["unchecked-provider"]),
        (["numpy", 'Torch>=2; python_version >= "3.10"'], ["unchecked-provider"]),
        ([], ["missing-dependency"]),
        (["torchvision"], ["missing-dependency"]),
        (['torch; extra == "all"'], ["missing-dependency"]),
        (["@ nonsense"], ["missing-dependency"]),
    ],
)
def test_required_wheels_provide_the_files_of_their_folder(
    tmp_path: Path, unsigned_is_fine: str, requires: list[str], rules: list[str]
) -> None:
    root = wheel(tmp_path / "tree", *requires)
    assert [finding.rule for finding in check(root, unsigned_is_fine)] == rules


def test_requirements_may_be_given_for_a_stage(tmp_path: Path, unsigned_is_fine: str) -> None:
    root = wheel(tmp_path / "tree")
    provider = stub(tmp_path / "torch.tbd", install_name="@rpath/libtorch_cpu.dylib")
    report = audit_tree(root, load_policy(unsigned_is_fine), providers=[provider], requirements=["torch==2.13.0"])
    assert report.findings == ()


def test_a_folder_in_the_wheel_itself_is_not_another_wheels(tmp_path: Path, unsigned_is_fine: str) -> None:
    root = wheel(tmp_path / "tree", "torch", files={"torch/__init__.py": b""})
    assert [finding.rule for finding in check(root, unsigned_is_fine)] == ["missing-dependency"]


def test_names_of_distributions_are_normalized(tmp_path: Path) -> None:
    wheel(tmp_path, "My_Package.Two[extra]>=1", "torch ; sys_platform == 'darwin'", 'x; extra=="y"')
    assert required_folders(tmp_path, ["Third"]) == {"my-package-two", "torch", "third"}


SymbolsOf = Callable[[Sequence[str], str], AuditReport]


@pytest.fixture
def symbols_of(tmp_path: Path, unsigned_is_fine: str) -> SymbolsOf:
    """Return a function that audits a file which imports symbols from libc++ for a given minimum macOS."""

    def audited(names: Sequence[str], minos: str) -> AuditReport:
        data = user([(name, 2, False) for name in names], dylibs=[SYSTEM, LIBCXX], minos=minos)
        return audit(put(tmp_path / "tree", {"user.dylib": data}), unsigned_is_fine)

    return audited


def newest() -> tuple[str, str]:
    """Return a symbol of libc++ without evidence before macOS 13, and the first macOS with evidence."""
    evidence = load_evidence()[LIBCXX]
    found = {name: evidence.lowest(name, "arm64") or "" for name in evidence.symbols("arm64", "26.0")}
    return next((name, lowest) for name, lowest in sorted(found.items()) if pack_version(lowest) >= 13 << 16)


def test_a_system_symbol_must_have_evidence_at_the_minimum_macos(symbols_of: SymbolsOf) -> None:
    name, lowest = newest()
    finding = only(symbols_of([name, "__Znwm"], "11.0"), "system-symbol")
    assert finding.severity is Severity.ERROR
    assert finding.message == f"{name} has no evidence in {LIBCXX} before macOS {lowest}; the file says 11.0"
    assert symbols_of([name, "__Znwm"], lowest).findings == ()


def test_system_symbols_without_evidence_are_one_finding(symbols_of: SymbolsOf) -> None:
    finding = only(symbols_of(["__Znothing", "__Zelse"], "26.0"), "system-symbol")
    assert finding.message == f"__Zelse, __Znothing have no evidence in {LIBCXX}"


def test_weak_symbols_and_libraries_without_evidence_are_ignored(tmp_path: Path, unsigned_is_fine: str) -> None:
    assert "/usr/lib/libpcap.A.dylib" not in load_evidence()
    data = user([("__Znothing", 1, True), ("_any", 2, False)], dylibs=[LIBCXX, "/usr/lib/libpcap.A.dylib"])
    assert audit(put(tmp_path / "tree", {"user.dylib": data}), unsigned_is_fine).findings == ()
    data = patch_command(user([("__Znothing", 1, False)], dylibs=[LIBCXX]), LOAD_DYLIB, 0, 0x80000018)
    assert audit(put(tmp_path / "tree", {"user.dylib": data}), unsigned_is_fine).findings == ()


def test_the_command_takes_providers(
    tmp_path: Path, root: Path, policy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good = stub(tmp_path / "good.tbd")
    for providers, rules in (([], ["unchecked-provider"]), (["--provider", str(good)], [])):
        assert run(["audit", str(root), "--policy", policy, "--json", *providers]) == 0
        assert [finding["rule"] for finding in json.loads(capsys.readouterr().out)["findings"]] == rules


def test_a_single_file_takes_providers_too(tmp_path: Path, root: Path, policy: str) -> None:
    text = stub(tmp_path / "libx.tbd", symbols=frozenset())
    report = audit_path(root / "user.dylib", load_policy(policy), providers=[text])
    assert [finding.rule for finding in report.findings] == ["undefined-symbol"]
