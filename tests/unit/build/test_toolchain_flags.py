"""Test the table of flags: each row has its documented effect, and every row is tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from macbuild.build.toolchain.exportlists import read_export_list, read_version_script
from macbuild.build.toolchain.flags import Rule, System, expand, load_rules, rules_from, translate
from macbuild.errors import ToolError

SYSTEM = System(
    arch="arm64",
    libcxx="/stubs/libc++.1.tbd",
    libraries={"objc": "/sdk/usr/lib/libobjc.tbd"},
    frameworks={"Metal": "/sdk/Frameworks/Metal.framework/Metal.tbd"},
)
DROP: list[str] = []
REFUSE = None

# For each row: the flags on the command line, and their translation for zig.
LINKER: dict[str, tuple[str, list[str] | None]] = {
    "--version-script": ("-Wl,--version-script=list.ver", DROP),
    "-exported_symbols_list": ("-Wl,-exported_symbols_list,list.exp", DROP),
    "-exported_symbol": ("-Wl,-exported_symbol,_a", DROP),
    "-unexported_symbols_list": ("-Wl,-unexported_symbols_list,x", REFUSE),
    "-unexported_symbol": ("-Wl,-unexported_symbol,_a", REFUSE),
    "--exclude-libs": ("-Wl,--exclude-libs,ALL", DROP),
    "--dynamic-list": ("-Wl,--dynamic-list=x", REFUSE),
    "--export-dynamic": ("-Wl,--export-dynamic", DROP),
    "-E": ("-Wl,-E", DROP),
    "-export_dynamic": ("-Wl,-export_dynamic", DROP),
    "-l*": ("-Wl,-lobjc", ["/sdk/usr/lib/libobjc.tbd"]),
    "-framework": ("-Wl,-framework,Metal", ["/sdk/Frameworks/Metal.framework/Metal.tbd"]),
    "-needed_framework": ("-Wl,-needed_framework,Metal", ["/sdk/Frameworks/Metal.framework/Metal.tbd"]),
    "-weak_framework": ("-Wl,-weak_framework,Metal", ["-F/sdk/Frameworks", "-weak_framework", "Metal"]),
    "-needed_library": ("-Wl,-needed_library,a.tbd", ["a.tbd"]),
    "-weak_library": ("-Wl,-weak_library,a.tbd", REFUSE),
    "-reexport_library": ("-Wl,-reexport_library,a.tbd", REFUSE),
    "--as-needed": ("-Wl,--as-needed", DROP),
    "--no-as-needed": ("-Wl,--no-as-needed", DROP),
    "--start-group": ("-Wl,--start-group", DROP),
    "--end-group": ("-Wl,--end-group", DROP),
    "--whole-archive": ("-Wl,--whole-archive liba.a", ["-Wl,-force_load,liba.a"]),
    "--no-whole-archive": (
        "-Wl,--whole-archive liba.a -Wl,--no-whole-archive libb.a",
        ["-Wl,-force_load,liba.a", "libb.a"],
    ),
    "-force_load": ("-Wl,-force_load,liba.a", ["-Wl,-force_load,liba.a"]),
    "-all_load": ("-Wl,-all_load", REFUSE),
    "-noall_load": ("-Wl,-noall_load", DROP),
    "-ObjC": ("-Wl,-ObjC", REFUSE),
    "--gc-sections": ("-Wl,--gc-sections", ["-Wl,-dead_strip"]),
    "--print-gc-sections": ("-Wl,--print-gc-sections", DROP),
    "--icf=*": ("-Wl,--icf=all", DROP),
    "-dead_strip": ("-Wl,-dead_strip", ["-Wl,-dead_strip"]),
    "-dead_strip_dylibs": ("-Wl,-dead_strip_dylibs", ["-Wl,-dead_strip_dylibs"]),
    "-search_paths_first": ("-Wl,-search_paths_first", ["-Wl,-search_paths_first"]),
    "-no_implicit_dylibs": ("-Wl,-no_implicit_dylibs", DROP),
    "-soname": ("-Wl,-soname,libx.so.1", ["-install_name", "@rpath/libx.so.1"]),
    "-h": ("-Wl,-h,libx.so.1", ["-install_name", "@rpath/libx.so.1"]),
    "-install_name": ("-Wl,-install_name,@rpath/x", ["-install_name", "@rpath/x"]),
    "-dylib_install_name": ("-Wl,-dylib_install_name,@rpath/x", ["-install_name", "@rpath/x"]),
    "-rpath": ("-Wl,-rpath,$ORIGIN/../lib:/opt/x", ["-Wl,-rpath,@loader_path/../lib"]),
    "-R": ("-Wl,-R,$ORIGIN", ["-Wl,-rpath,@loader_path"]),
    "-rpath-link": ("-Wl,-rpath-link,/opt", DROP),
    "--enable-new-dtags": ("-Wl,--enable-new-dtags", DROP),
    "--disable-new-dtags": ("-Wl,--disable-new-dtags", DROP),
    "-headerpad": ("-Wl,-headerpad,0x100", ["-Wl,-headerpad,0x100"]),
    "-headerpad_max_install_names": ("-Wl,-headerpad_max_install_names", ["-Wl,-headerpad_max_install_names"]),
    "-compatibility_version": ("-Wl,-compatibility_version,1.0", ["-compatibility_version", "1.0"]),
    "-current_version": ("-Wl,-current_version,1.0", ["-current_version", "1.0"]),
    "-bundle_loader": ("-Wl,-bundle_loader,server", REFUSE),
    "-dylib": ("-Wl,-dylib", ["-shared"]),
    "-pie": ("-Wl,-pie", DROP),
    "-single_module": ("-Wl,-single_module", DROP),
    "-multiply_defined": ("-Wl,-multiply_defined,suppress", DROP),
    "--no-undefined": ("-Wl,--no-undefined", DROP),
    "-z": ("-Wl,-z,relro -Wl,-z,now,-z,noexecstack", DROP),
    "-undefined": ("-Wl,-undefined,error", DROP),
    "--allow-shlib-undefined": ("-Wl,--allow-shlib-undefined", DROP),
    "--no-allow-shlib-undefined": ("-Wl,--no-allow-shlib-undefined", DROP),
    "--unresolved-symbols=*": ("-Wl,--unresolved-symbols=ignore-all", REFUSE),
    "-flat_namespace": ("-Wl,-flat_namespace", REFUSE),
    "-Bsymbolic": ("-Wl,-Bsymbolic", DROP),
    "-Bsymbolic-functions": ("-Wl,-Bsymbolic-functions", DROP),
    "-Bstatic": ("-Wl,-Bstatic", DROP),
    "-Bdynamic": ("-Wl,-Bdynamic", DROP),
    "-u": ("-Wl,-u,_x", ["-Wl,-u,_x"]),
    "-e": ("-Wl,-e,_x", ["-Wl,-e,_x"]),
    "--defsym*": ("-Wl,--defsym=a=b", REFUSE),
    "--wrap*": ("-Wl,--wrap=malloc", REFUSE),
    "-T": ("-Wl,-T,script", REFUSE),
    "-reproducible": ("-Wl,-reproducible", DROP),
    "-no_uuid": ("-Wl,-no_uuid", DROP),
    "-random_uuid": ("-Wl,-random_uuid", REFUSE),
    "-platform_version": ("-Wl,-platform_version,macos,11.0,12.0 a.o", ["a.o"]),
    "-macos_version_min": ("-Wl,-macos_version_min,11.0", DROP),
    "-macosx_version_min": ("-Wl,-macosx_version_min,11.0", DROP),
    "-sdk_version": ("-Wl,-sdk_version,11.0", DROP),
    "-no_warn_duplicate_libraries": ("-Wl,-no_warn_duplicate_libraries", DROP),
    "-no_warn_duplicate_rpaths": ("-Wl,-no_warn_duplicate_rpaths", DROP),
    "-ld_classic": ("-Wl,-ld_classic", DROP),
    "-ld_new": ("-Wl,-ld_new", DROP),
    "-adhoc_codesign": ("-Wl,-adhoc_codesign", DROP),
    "-no_adhoc_codesign": ("-Wl,-no_adhoc_codesign", DROP),
    "-bind_at_load": ("-Wl,-bind_at_load", DROP),
    "-no_fixup_chains": ("-Wl,-no_fixup_chains", DROP),
    "-fixup_chains": ("-Wl,-fixup_chains", DROP),
    "-no_compact_unwind": ("-Wl,-no_compact_unwind", DROP),
    "-no_weak_imports": ("-Wl,-no_weak_imports", DROP),
    "-application_extension": ("-Wl,-application_extension", DROP),
    "-no_application_extension": ("-Wl,-no_application_extension", DROP),
    "-order_file": ("-Wl,-order_file,order", DROP),
    "-sectcreate": ("-Wl,-sectcreate,__TEXT,__info_plist,Info.plist", REFUSE),
    "-lto_library": ("-Wl,-lto_library,/x/libLTO.dylib", DROP),
    "-map": ("-Wl,-map,x.map", DROP),
    "-Map": ("-Wl,-Map=x.map", DROP),
    "-filelist": ("-Wl,-filelist,objects.txt", ["a.o", "dir/b.o"]),
    "-stack_size": ("-Wl,-stack_size,0x100000", ["-Wl,-stack_size,0x100000"]),
    "-S": ("-Wl,-S", ["-Wl,-S"]),
    "-s": ("-Wl,-s", ["-Wl,-S"]),
    "-x": ("-Wl,-x", ["-Wl,-x"]),
    "-w": ("-Wl,-w", ["-Wl,-w"]),
    "-v": ("-Wl,-v", ["-Wl,-v"]),
    "-t": ("-Wl,-t", DROP),
    "--build-id*": ("-Wl,--build-id=sha1 -Wl,--build-id", DROP),
    "--hash-style=*": ("-Wl,--hash-style=gnu", DROP),
    "-O*": ("-Wl,-O1", DROP),
    "--threads*": ("-Wl,--threads=4", DROP),
    "--warn-*": ("-Wl,--warn-common", DROP),
    "--no-warn-*": ("-Wl,--no-warn-mismatch", DROP),
    "--fatal-warnings": ("-Wl,--fatal-warnings", DROP),
    "--no-fatal-warnings": ("-Wl,--no-fatal-warnings", DROP),
    "--color-diagnostics*": ("-Wl,--color-diagnostics=always", DROP),
    "--demangle": ("-Wl,--demangle", DROP),
    "--sort-common": ("-Wl,--sort-common", DROP),
    "--compress-debug-sections*": ("-Wl,--compress-debug-sections=zlib", DROP),
    "--no-keep-memory": ("-Wl,--no-keep-memory", DROP),
    "--reduce-memory-overheads": ("-Wl,--reduce-memory-overheads", DROP),
    "--eh-frame-hdr": ("-Wl,--eh-frame-hdr", DROP),
    "--push-state": ("-Wl,--push-state", DROP),
    "--pop-state": ("-Wl,--pop-state", DROP),
}
LINK: dict[str, tuple[str, list[str] | None]] = {
    "-exported_symbols_list": ("-exported_symbols_list list.exp", DROP),
    "-rdynamic": ("-rdynamic", DROP),
    "-lrt": ("-lrt", DROP),
    "-ldl": ("-ldl", DROP),
    "-lpthread": ("-lpthread", DROP),
    "-lm": ("-lm", DROP),
    "-lc": ("-lc", DROP),
    "-lSystem": ("-lSystem", DROP),
    "-lnuma": ("-lnuma", DROP),
    "-lstdc++": ("-lstdc++", ["/stubs/libc++.1.tbd"]),
    "-lstdc++fs": ("-lstdc++fs", DROP),
    "-latomic": ("-latomic", DROP),
    "-lgcc*": ("-lgcc_s", DROP),
    "-lc++": ("-lc++", ["/stubs/libc++.1.tbd"]),
    "-lc++abi": ("-lc++abi", DROP),
    "-l*": ("-lobjc -lother", ["/sdk/usr/lib/libobjc.tbd", "-lother"]),
    "-framework": ("-framework Metal", ["/sdk/Frameworks/Metal.framework/Metal.tbd"]),
    "-weak_framework": ("-weak_framework Metal", ["-F/sdk/Frameworks", "-weak_framework", "Metal"]),
    "-force_load": ("-force_load liba.a", ["-force_load", "liba.a"]),
    "-rpath": ("-rpath @loader_path/../lib", ["-Wl,-rpath,@loader_path/../lib"]),
    "-bundle": ("-bundle -o out/x.so", ["-dynamiclib", "-o", "out/x.so", "-install_name", "@rpath/x.so"]),
    "-bundle_loader": ("-bundle_loader server", REFUSE),
    "-pie": ("-pie", DROP),
    "-no-pie": ("-no-pie", DROP),
    "-r": ("-r a.o", REFUSE),
    "-static": ("-static", REFUSE),
    "-static-libgcc": ("-static-libgcc", DROP),
    "-static-libstdc++": ("-static-libstdc++", DROP),
    "-shared-libgcc": ("-shared-libgcc", DROP),
    "-nostdlib++": ("-nostdlib++", DROP),
    "-single_module": ("-single_module", DROP),
    "-undefined": ("-undefined error", DROP),
    "-z": ("-z defs", DROP),
    "-T": ("-T script", REFUSE),
    "-filelist": ("-filelist objects.txt", ["a.o", "dir/b.o"]),
    "-s": ("-s", ["-Wl,-S"]),
    "-fuse-ld=*": ("-fuse-ld=gold", DROP),
    "-pthread": ("-pthread", DROP),
    "-flto*": ("-flto=thin", DROP),
    "-arch": ("-arch arm64", DROP),
    "-isysroot": ("-isysroot /sdk", DROP),
    "--sysroot*": ("--sysroot=/sdk", DROP),
    "-mmacosx-version-min=*": ("-mmacosx-version-min=10.9", DROP),
    "-mmacos-version-min=*": ("-mmacos-version-min=10.9", DROP),
    "-target": ("-target x86_64-linux-gnu", DROP),
    "--target=*": ("--target=x86_64-linux-gnu", DROP),
}
COMPILE: dict[str, tuple[str, list[str] | None]] = {
    "-flto*": ("-flto", DROP),
    "-arch": ("-arch arm64", DROP),
    "-isysroot": ("-isysroot /sdk", DROP),
    "--sysroot*": ("--sysroot=/sdk", DROP),
    "-mmacosx-version-min=*": ("-mmacosx-version-min=10.9", DROP),
    "-mmacos-version-min=*": ("-mmacos-version-min=10.9", DROP),
    "-target": ("-target x86_64-linux-gnu", DROP),
    "--target=*": ("--target=x86_64-linux-gnu", DROP),
    "-march=native": ("-march=native", DROP),
    "-mcpu=native": ("-mcpu=native", DROP),
    "-mtune=native": ("-mtune=native", DROP),
    "-Werror": ("-Werror", DROP),
    "-Werror=*": ("-Werror=all", DROP),
    "-pedantic-errors": ("-pedantic-errors", DROP),
    "-fno-gnu-unique": ("-fno-gnu-unique", DROP),
    "-fabi-version=*": ("-fabi-version=11", DROP),
    "-fno-var-tracking*": ("-fno-var-tracking-assignments", DROP),
    "-ffat-lto-objects": ("-ffat-lto-objects", DROP),
    "-D_GLIBCXX_USE_CXX11_ABI=*": ("-D_GLIBCXX_USE_CXX11_ABI=0", DROP),
}
CASES = {"linker": LINKER, "link": LINK, "compile": COMPILE}
RULES = load_rules("zig", foreign=True)
KEPT = {"--version-script": ["_a", "_b*"], "-exported_symbols_list": ["_a", "_b*"], "-exported_symbol": ["_a"]}


@pytest.fixture(autouse=True, scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run in a folder with the files named in the rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("flags"))
        Path("list.ver").write_text("V1 { global: a; b*; local: *; };")
        Path("list.exp").write_text("_a\n# comment\n\n_b*  # all of b\n")
        Path("objects.txt").write_text("a.o\ndir/b.o\n")
        yield


def test_every_row_is_tried_and_every_trial_has_a_row() -> None:
    rows = [(rule.on, rule.flag) for rule in RULES]
    tried = [(place, flag) for place, cases in CASES.items() for flag in cases]
    assert sorted(rows) == sorted(tried)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.on} {rule.flag}")
def test_row_has_its_documented_effect(rule: Rule) -> None:
    line, wanted = CASES[rule.on][rule.flag]
    kind = "compile" if rule.on == "compile" else "link"
    if wanted is REFUSE:
        assert rule.action == "refuse"
        with pytest.raises(ToolError, match="cannot be used") as caught:
            translate(line.split(), RULES, SYSTEM, kind=kind)  # type: ignore[arg-type]
        assert caught.value.hint == rule.note
        return
    found = translate(line.split(), RULES, SYSTEM, kind=kind)  # type: ignore[arg-type]
    assert found.arguments == wanted
    assert found.keep == KEPT.get(rule.flag)
    if rule.action == "accept":
        assert found.notes == []
    if rule.action == "drop":
        assert found.notes
        assert all(note.endswith(f"left out: {rule.note}") for note in found.notes)


def test_every_row_has_a_reason_and_an_effect() -> None:
    for rule in RULES:
        assert rule.action in {"accept", "translate", "drop", "refuse"}, rule
        assert rule.note or rule.action == "accept" or rule.to, rule
        assert bool(rule.to or rule.handler) == (rule.action == "translate"), rule


def test_rows_for_apples_linker_differ_only_where_stated() -> None:
    apple = {(rule.on, rule.flag): rule.action for rule in load_rules("apple")}
    zig = {(rule.on, rule.flag): rule.action for rule in load_rules("zig")}
    assert apple["linker", "-all_load"] == "accept"
    assert zig["linker", "-all_load"] == "refuse"
    assert apple.keys() == zig.keys()


def test_werror_stays_in_a_project_of_our_own() -> None:
    found = translate(["-Werror", "-c", "a.c"], load_rules("zig"), SYSTEM, kind="compile")
    assert found.arguments == ["-Werror", "-c", "a.c"]


@pytest.mark.parametrize(
    "line",
    [
        "-Wl,-soname,libx.so",
        "-Wl,-soname -Wl,libx.so",
        "-Wl,-soname=libx.so",
        "-Wl,--soname=libx.so",
        "-Xlinker -soname -Xlinker libx.so",
        "-Xlinker --soname -Wl,libx.so",
    ],
)
def test_every_form_of_a_linker_flag_is_understood(line: str) -> None:
    found = translate([*line.split(), "a.o"], RULES, SYSTEM, kind="link")
    assert found.arguments == ["-install_name", "@rpath/libx.so", "a.o"]


@pytest.mark.parametrize("line", ["-Wl,-soname libx.so", "-Wl,--no-as-needed,-soname libx.so"])
def test_a_plain_word_after_a_linker_flag_is_its_value(line: str) -> None:
    found = translate([*line.split(), "a.o"], RULES, SYSTEM, kind="link")
    assert found.arguments[-3:] == ["-install_name", "@rpath/libx.so", "a.o"]


@pytest.mark.parametrize("line", ["-Wl,-soname", "-Xlinker", "-Wl,-soname -O2 a.o", "-framework", "-Wl,-z"])
def test_flag_without_its_value_is_refused(line: str) -> None:
    with pytest.raises(ToolError, match="has no value"):
        translate(line.split(), RULES, SYSTEM, kind="link")


def test_unknown_linker_flag_is_refused_and_named() -> None:
    with pytest.raises(ToolError, match="the linker flag --frobnicate is not known"):
        translate(["-Wl,--frobnicate"], RULES, SYSTEM, kind="link")


def test_values_of_other_flags_are_not_read_as_flags() -> None:
    line = ["-o", "-lm", "-isystem", "-lrt", "-Xclang", "-bundle", "-install_name", "@rpath/x", "-MF", "-static"]
    assert translate(line, RULES, SYSTEM, kind="link").arguments == line


def test_unknown_flags_of_the_compiler_pass() -> None:
    line = ["-O2", "-Wstrange", "-fvisibility=hidden", "a.o", "b.a", "-L/lib", "-DX=1"]
    assert translate(line, RULES, SYSTEM, kind="link").arguments == line


def test_a_compile_call_ignores_linker_flags() -> None:
    found = translate(["-Wl,--frobnicate", "-c", "a.c"], RULES, SYSTEM, kind="compile")
    assert found.arguments == ["-c", "a.c"]


def test_other_architecture_is_refused() -> None:
    with pytest.raises(ToolError, match="-arch x86_64 cannot be used for arm64"):
        translate(["-arch", "x86_64"], RULES, SYSTEM, kind="compile")


@pytest.mark.parametrize("line", ["-undefined dynamic_lookup", "-Wl,-undefined,dynamic_lookup"])
def test_symbols_resolved_at_run_time_are_checked_after_the_link(line: str) -> None:
    found = translate(line.split(), RULES, SYSTEM, kind="link")
    assert (found.arguments, found.flat) == (["-Wl,-undefined,dynamic_lookup"], True)
    assert not translate(["-Wl,-undefined,error"], RULES, SYSTEM, kind="link").flat


@pytest.mark.parametrize("line", ["-undefined warning", "-Wl,-undefined,suppress"])
def test_undefined_symbols_cannot_be_ignored(line: str) -> None:
    with pytest.raises(ToolError, match="-undefined"):
        translate(line.split(), RULES, SYSTEM, kind="link")


def test_framework_without_evidence_is_refused_with_a_hint() -> None:
    with pytest.raises(ToolError, match="no evidence stub for framework AppKit") as caught:
        translate(["-framework", "AppKit"], RULES, SYSTEM, kind="link")
    assert "macbuild stubs collect" in str(caught.value.hint)


def test_an_sdk_leaves_libraries_and_frameworks_to_the_linker() -> None:
    found = translate(
        ["-framework", "AppKit", "-weak_framework", "Metal", "-lobjc", "-lc++", "-nostdlib++"],
        load_rules("apple"),
        System("arm64"),
        kind="link",
    )
    wanted = ["-framework", "AppKit", "-weak_framework", "Metal", "-lobjc", "-lc++", "-nostdlib++"]
    assert found.arguments == wanted


def test_archives_by_name_are_loaded_whole(tmp_path: Path) -> None:
    (tmp_path / "libpart.a").touch()
    line = [f"-L{tmp_path}", "-Wl,--whole-archive", "-lpart", "-Wl,--no-whole-archive"]
    found = translate(line, RULES, SYSTEM, kind="link")
    assert found.arguments == [f"-L{tmp_path}", f"-Wl,-force_load,{tmp_path}/libpart.a"]
    with pytest.raises(ToolError, match=r"libnone\.a is in no folder"):
        translate([*line[:2], "-lnone"], RULES, SYSTEM, kind="link")


def test_a_projects_own_archive_goes_before_the_systems_library(tmp_path: Path) -> None:
    (tmp_path / "libobjc.a").touch()
    found = translate(["-L", str(tmp_path), "-lobjc"], RULES, SYSTEM, kind="link")
    assert found.arguments == ["-L", str(tmp_path), f"{tmp_path}/libobjc.a"]


def test_a_path_with_a_comma_reaches_the_linker_unsplit() -> None:
    found = translate(["-Xlinker", "-force_load", "-Xlinker", "a,b/liba.a"], RULES, SYSTEM, kind="link")
    assert found.arguments == ["-Xlinker", "-force_load", "-Xlinker", "a,b/liba.a"]


def test_the_systems_libcxx_is_added_once() -> None:
    assert translate(["a.o"], RULES, SYSTEM, kind="link").libcxx
    assert not translate(["a.o", "-lc++"], RULES, SYSTEM, kind="link").libcxx


def test_a_dylib_without_an_install_name_gets_its_file_name() -> None:
    found = translate(["-shared", "-o", "/home/me/out/liba.dylib", "a.o"], RULES, SYSTEM, kind="link")
    assert found.arguments[-2:] == ["-install_name", "@rpath/liba.dylib"]
    found = translate(["-o", "/home/me/out/tool", "a.o"], RULES, SYSTEM, kind="link")
    assert "-install_name" not in found.arguments


def test_response_files_are_read(tmp_path: Path) -> None:
    inner = tmp_path / "inner.rsp"
    inner.write_text("-Wl,-soname,libx.so 'a file.o'\n")
    outer = tmp_path / "outer.rsp"
    outer.write_text(f"-lm @{inner}\n")
    assert list(expand([f"@{outer}", "@rpath/x"])) == ["-lm", "-Wl,-soname,libx.so", "a file.o", "@rpath/x"]
    found = translate([f"@{outer}"], RULES, SYSTEM, kind="link")
    assert found.arguments == ["-install_name", "@rpath/libx.so", "a file.o"]


def test_response_files_in_a_circle_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.rsp"
    path.write_text(f"@{path}")
    with pytest.raises(ToolError, match="nested too deep"):
        list(expand([f"@{path}"]))


def test_response_file_with_an_open_quote_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.rsp"
    path.write_text("'a")
    with pytest.raises(ToolError, match="is not a response file"):
        list(expand([f"@{path}"]))


@pytest.mark.parametrize("flag", ["-Wl,--version-script=none", "-Wl,-exported_symbols_list,none", "-Wl,-filelist,none"])
def test_missing_list_is_an_error_that_names_it(flag: str) -> None:
    with pytest.raises(ToolError, match="none: cannot be read"):
        translate([flag], RULES, SYSTEM, kind="link")


def test_rules_survive_a_round_trip_through_json() -> None:
    import json

    assert rules_from(json.loads(json.dumps(RULES)))[0].flag == RULES[0].flag


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("{ global: a; b*; local: *; };", ["_a", "_b*"]),
        ("{ a; };", ["_a"]),
        ("{ local: *; global: a; };", ["_a"]),
        ("{ local: *; };", []),
        ("V1 { global: a; };\nV2 { global: b; local: *; } V1;", ["_a", "_b"]),
        ('{ global: extern "C" { a; "b"; }; local: *; };', ["_a", "_b"]),
        ("/* c: { */ { global: # x;\n a; local: *; };", ["_a"]),
        ("{ global: _ZN3foo3barEv; TRITONBACKEND_*; local: *; };", ["__ZN3foo3barEv", "_TRITONBACKEND_*"]),
        ("V { local: *; }; W { c; };", ["_c"]),
    ],
)
def test_version_scripts_give_their_global_names(script: str, names: list[str]) -> None:
    assert read_version_script(script, "x") == names


@pytest.mark.parametrize("script", ["", "global: a;", "{ a;", "} {", "{ a; }; }"])
def test_text_that_is_not_a_version_script_is_refused(script: str) -> None:
    with pytest.raises(ToolError, match="is not a version script"):
        read_version_script(script, "x")


def test_demangled_names_are_refused() -> None:
    with pytest.raises(ToolError, match=r'extern "C\+\+" in a version script'):
        read_version_script('{ global: extern "C++" { foo::bar*; }; };', "x")


def test_an_export_list_gives_its_names() -> None:
    assert read_export_list("_a\n\n  _b* # x\n#c\n") == ["_a", "_b*"]
