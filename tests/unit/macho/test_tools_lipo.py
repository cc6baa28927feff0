from __future__ import annotations

from pathlib import Path

import pytest
from delocate.fuse import _RE_LIPO_UNKNOWN_FILE_STDERR

from macbuild.macho.file import open_macho
from macbuild.macho.sign import sign_bytes
from macbuild.macho.tools.lipo import main
from macbuild.macho.verify import verify_file
from tests.support import machobytes

ARCHS = ("x86_64", "arm64")


def signed(arch: str) -> bytes:
    return sign_bytes(machobytes.dylib(arch), f"{arch}.dylib")


@pytest.fixture
def thins(tmp_path: Path) -> dict[str, Path]:
    paths = {arch: tmp_path / f"{arch}.dylib" for arch in ARCHS}
    for arch, path in paths.items():
        path.write_bytes(signed(arch))
    paths["arm64"].chmod(0o755)
    return paths


@pytest.fixture
def fat(tmp_path: Path) -> Path:
    path = tmp_path / "fat.dylib"
    path.write_bytes(machobytes.fat(*map(signed, ARCHS)))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    out, err = capsys.readouterr()
    assert not err
    return out


def archs(path: Path) -> tuple[str, ...]:
    with open_macho(path) as macho:
        return macho.archs


def test_info_has_the_form_that_delocate_and_cmake_match(
    fat: Path, thins: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "-info", fat) == f"Architectures in the fat file: {fat} are: x86_64 arm64\n"
    thin = thins["arm64"]
    assert run(capsys, thin, "-info") == f"Non-fat file: {thin} is architecture: arm64\n"
    assert len(run(capsys, "-info", thin, fat).splitlines()) == 2
    assert run(capsys, "-archs", fat) == "x86_64 arm64\n"


def test_detailed_info_shows_the_fat_header(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "-detailed_info", fat).splitlines()
    assert lines[:4] == [f"Fat header in: {fat}", "fat_magic 0xcafebabe", "nfat_arch 2", "architecture x86_64"]
    assert lines[4:7] == [
        "    cputype CPU_TYPE_X86_64",
        "    cpusubtype CPU_SUBTYPE_X86_64_ALL",
        "    capabilities 0x0",
    ]
    assert lines[-1] == "    align 2^14 (16384)"


def test_verify_arch_answers_by_exit_code_alone(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(fat), "-verify_arch", "arm64", "x86_64"]) == 0
    assert main([str(fat), "-verify_arch", "arm64", "i386"]) == 1
    assert capsys.readouterr() == ("", "")


def test_create_and_thin_are_inverse(
    thins: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    merged = tmp_path / "merged.dylib"
    run(capsys, "-create", thins["arm64"], thins["x86_64"], "-output", merged)
    assert archs(merged) == ARCHS
    assert len(verify_file(merged)) == 2
    assert merged.stat().st_mode & 0o777 == 0o755
    for arch, path in thins.items():
        out = tmp_path / "out.dylib"
        run(capsys, merged, "-thin", arch, "-output", out)
        assert out.read_bytes() == path.read_bytes()


def test_create_may_write_over_one_of_its_inputs(thins: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "-create", thins["x86_64"], thins["arm64"], "-output", thins["arm64"])
    assert archs(thins["arm64"]) == ARCHS


def test_create_with_named_architectures_checks_them(
    thins: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run(capsys, "-create", "-arch", "arm64", thins["arm64"], "-arch", "x86_64", thins["x86_64"], "-output", out)
    assert archs(out) == ARCHS
    assert main(["-create", "-arch", "x86_64", str(thins["arm64"]), "-output", str(tmp_path / "no")]) == 1
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(("operation", "left"), [("-extract", ("arm64",)), ("-remove", ("x86_64",))])
def test_extract_and_remove_leave_a_fat_file(
    operation: str, left: tuple[str, ...], fat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, operation, "arm64", "-output", fat, fat)
    with open_macho(fat) as macho:
        assert macho.is_fat
        assert macho.archs == left
    verify_file(fat)


def test_replace_takes_the_slice_from_the_other_file(
    fat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.dylib"
    other.write_bytes(machobytes.dylib("arm64", id="@rpath/other.dylib"))
    out = tmp_path / "out.dylib"
    run(capsys, fat, "-replace", "arm64", other, "-output", out)
    with open_macho(out) as macho:
        assert [image.id.name for image in macho.images if image.id] == ["@rpath/libx.dylib", "@rpath/other.dylib"]


def test_other_files_give_the_error_that_delocate_merge_matches(
    thins: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "README"
    text.write_text("a text file that both wheels have")
    assert main(["-create", str(text), str(thins["arm64"]), "-output", str(text)]) == 1
    match = _RE_LIPO_UNKNOWN_FILE_STDERR.match(capsys.readouterr().err)
    assert match is not None
    assert match["file"] == str(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-create", "FAT", "THIN", "-output", "OUT"], "have the same architectures (arm64) and can't be in"),
        (["THIN", "-thin", "arm64", "-output", "OUT"], "must be a fat file when the -thin option is specified"),
        (["FAT", "-thin", "i386", "-output", "OUT"], "does not contain the specified architecture (i386)"),
        (["FAT", "-remove", "i386", "-output", "OUT"], "does not contain the specified architecture (i386)"),
        (["FAT", "-remove", "arm64", "-remove", "x86_64", "-output", "OUT"], "would leave an empty file"),
        (["FAT", "-replace", "x86_64", "THIN", "-output", "OUT"], "is not a file with only the architecture x86_64"),
        (["FAT", "-thin", "arm64"], "no output file specified"),
        (["FAT", "-info", "-output", "OUT"], "-output can't be specified with the -info option"),
        (["FAT", "-info", "-archs"], "only one of -info and -archs can be specified"),
        (["FAT", "-extract_family", "arm"], "unknown flag: -extract_family"),
        (["FAT", "THIN", "-archs"], "only one input file can be specified"),
        (["FAT"], "must be specified"),
        (["-info"], "no input files specified"),
        (["FAT", "-verify_arch"], "missing argument(s) to -verify_arch option"),
        (["FAT", "-thin"], "missing argument(s) to -thin option"),
        (["-info", "OUT"], "can't open input file: "),
    ],
)  # fmt: skip
def test_an_impossible_call_says_why_and_writes_nothing(
    arguments: list[str],
    message: str,
    fat: Path,
    thins: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = {"FAT": str(fat), "THIN": str(thins["arm64"]), "OUT": str(tmp_path / "out")}
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main([names.get(argument, argument) for argument in arguments]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert message in err.splitlines()[0]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
