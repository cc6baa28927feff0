from __future__ import annotations

import stat
import struct
from pathlib import Path

import pytest

from macbuild.errors import MachOError
from macbuild.macho.constants import Cpu
from macbuild.macho.fat import _place, merge, thin
from tests.support import machobytes

INTEL = machobytes.dylib("x86_64", signed=True)
ARM = machobytes.dylib("arm64", signed=True)


def files(folder: Path, **contents: bytes) -> list[Path]:
    paths = []
    for name, content in contents.items():
        paths.append(folder / name)
        paths[-1].write_bytes(content)
    return paths


@pytest.mark.parametrize("turned", [False, True])
def test_a_universal_file_is_laid_out_as_lipo_does(tmp_path: Path, *, turned: bool) -> None:
    paths = files(tmp_path, intel=INTEL, arm=ARM)
    output = tmp_path / "both"
    merge(paths[::-1] if turned else paths, output)
    arm_at = -(-(0x1000 + len(INTEL)) // 0x4000) * 0x4000
    header = struct.pack(
        ">12I", 0xCAFEBABE, 2, *(0x01000007, 3, 0x1000, len(INTEL), 12), *(0x0100000C, 0, arm_at, len(ARM), 14)
    )
    assert output.read_bytes() == (header.ljust(0x1000, b"\0") + INTEL).ljust(arm_at, b"\0") + ARM


def test_merged_slices_are_extracted_unchanged(tmp_path: Path) -> None:
    paths = files(tmp_path, intel=INTEL, arm=ARM)
    both, one = tmp_path / "both", tmp_path / "one"
    merge(paths, both)
    for arch, content in (("x86_64", INTEL), ("arm64", ARM)):
        thin(both, arch, one)
        assert one.read_bytes() == content


def test_a_universal_input_gives_all_its_slices(tmp_path: Path) -> None:
    arm64e = bytearray(ARM)
    struct.pack_into("<I", arm64e, 8, 0x80000002)
    paths = files(tmp_path, both=machobytes.fat(ARM, INTEL, wide=True), extra=bytes(arm64e))
    output = tmp_path / "three"
    merge(paths[::-1], output)
    data = output.read_bytes()
    assert [struct.unpack_from(">2I", data, 8 + 20 * index) for index in range(3)] == [
        (0x01000007, 3),
        (0x0100000C, 0),
        (0x0100000C, 0x80000002),
    ]


def test_the_output_may_be_an_input_and_gets_the_firsts_mode(tmp_path: Path) -> None:
    paths = files(tmp_path, intel=INTEL, arm=ARM)
    paths[0].chmod(0o751)
    merge(paths, paths[1])
    assert stat.S_IMODE(paths[1].stat().st_mode) == 0o751
    thin(paths[1], "arm64", paths[1])
    assert paths[1].read_bytes() == ARM
    assert len(list(tmp_path.iterdir())) == 2


def test_a_duplicate_architecture_is_an_error(tmp_path: Path) -> None:
    paths = files(tmp_path, one=ARM, two=machobytes.fat(INTEL, ARM))
    with pytest.raises(MachOError, match=r"two: has the slice arm64, which .*one has too"):
        merge(paths, tmp_path / "both")
    assert sorted(tmp_path.iterdir()) == paths


def test_merging_no_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MachOError, match="nothing to merge"):
        merge([], tmp_path / "both")


def test_a_thin_file_of_the_architecture_is_copied(tmp_path: Path) -> None:
    (path,) = files(tmp_path, arm=ARM)
    path.chmod(0o700)
    thin(path, "arm64", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == ARM
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [INTEL, machobytes.fat(INTEL)])
def test_a_missing_slice_is_an_error_that_lists_the_others(tmp_path: Path, content: bytes) -> None:
    (path,) = files(tmp_path, file=content)
    with pytest.raises(MachOError, match="has no slice arm64; it has x86_64"):
        thin(path, "arm64", tmp_path / "out")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((0xFFFF_0000, 1), (0xCAFEBABE, [0x1000, 0xFFFF_4000])),
        ((0xFFFF_F000, 1), (0xCAFEBABF, [0x1000, 0x1_0000_0000])),
        ((1, 0xFFFF_FFFF), (0xCAFEBABE, [0x1000, 0x4000])),
        ((1, 0x1_0000_0000), (0xCAFEBABF, [0x1000, 0x4000])),
    ],
)
def test_the_64_bit_header_is_used_if_a_number_needs_it(
    sizes: tuple[int, int], expected: tuple[int, list[int]]
) -> None:
    assert _place([(Cpu.X86_64, sizes[0]), (Cpu.ARM64, sizes[1])]) == expected
