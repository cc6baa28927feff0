from __future__ import annotations

from pathlib import Path

import pytest

from macbuild.errors import FixError
from macbuild.files import files_below
from macbuild.macho.file import open_macho
from macbuild.macho.sign import sign_bytes
from macbuild.macho.verify import verify_file
from macbuild.recipe.model import Prefer
from macbuild.steps.merge import merge_stages
from tests.support import machobytes

ARCHS = ("x86_64", "arm64")


class Stages:
    """Fixed stages of two architectures and the merged one."""

    def __init__(self, root: Path) -> None:
        self.roots = {arch: root / arch for arch in ARCHS}
        self.output = root / "universal"
        for path in self.roots.values():
            path.mkdir()

    def put(self, arch: str, path: str, content: bytes | str) -> None:
        target = self.roots[arch] / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            target.symlink_to(content)
        else:
            target.write_bytes(content)

    def both(self, path: str, x86_64: bytes | str, arm64: bytes | str) -> None:
        self.put("x86_64", path, x86_64)
        self.put("arm64", path, arm64)

    def merge(self, *prefer: Prefer) -> list[str]:
        merge_stages(self.roots, self.output, prefer)
        return [path.relative_to(self.output).as_posix() for path in files_below(self.output)]


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages(tmp_path)


def dylib(arch: str) -> bytes:
    return sign_bytes(machobytes.dylib(arch), "libx")


def prefer(file: str, arch: str) -> Prefer:
    return Prefer(file=file, arch=arch, reason="r")  # type: ignore[arg-type]


def test_mach_o_files_become_universal_and_signed(stages: Stages) -> None:
    stages.both("lib/libx.dylib", *(dylib(arch) for arch in ARCHS))
    assert stages.merge() == ["lib/libx.dylib"]
    with open_macho(stages.output / "lib/libx.dylib") as file:
        assert set(file.archs) == set(ARCHS)
    verify_file(stages.output / "lib/libx.dylib")


def test_equal_files_and_those_of_one_slice_are_kept(stages: Stages) -> None:
    stages.both("LICENSE", b"same", b"same")
    stages.put("arm64", "lib/libomp.dylib", dylib("arm64"))
    stages.put("x86_64", "lib/libiomp5.dylib", dylib("x86_64"))
    assert stages.merge() == ["LICENSE", "lib/libiomp5.dylib", "lib/libomp.dylib"]
    with open_macho(stages.output / "lib/libomp.dylib") as file:
        assert file.archs == ("arm64",)


def test_different_headers_become_one_that_switches(stages: Stages) -> None:
    stages.both("include/config.h", b"#define A 1\n", b"#define A 2\n")
    assert stages.merge() == ["include/config.arm64.h", "include/config.h", "include/config.x86_64.h"]
    text = (stages.output / "include/config.h").read_text()
    assert text.index("__arm64__") < text.index('"config.arm64.h"') < text.index("__x86_64__") < text.index("#error")
    assert (stages.output / "include/config.x86_64.h").read_bytes() == b"#define A 1\n"


def test_a_switch_never_overwrites_an_existing_header(stages: Stages) -> None:
    stages.both("include/config.h", b"1", b"2")
    stages.both("include/config.arm64.h", b"mine", b"mine")
    with pytest.raises(FixError, match=r"config\.arm64\.h exists already"):
        stages.merge()


def test_other_different_files_need_a_rule(stages: Stages) -> None:
    stages.both("share/cmake/x.cmake", b"1", b"2")
    with pytest.raises(FixError, match="differs between x86_64 and arm64") as caught:
        stages.merge()
    assert caught.value.where == "share/cmake/x.cmake"
    assert "merge.prefer" in str(caught.value.hint)


def test_rules_choose_by_glob_including_headers(stages: Stages) -> None:
    stages.both("share/cmake/deep/x.cmake", b"1", b"2")
    stages.both("include/config.h", b"1", b"2")
    stages.merge(prefer("share/*", "arm64"), prefer("include/config.h", "x86_64"))
    assert (stages.output / "share/cmake/deep/x.cmake").read_bytes() == b"2"
    assert (stages.output / "include/config.h").read_bytes() == b"1"


def test_equal_links_stay_links_and_different_ones_need_a_rule(stages: Stages) -> None:
    for name in ("liba.dylib", "libb.dylib"):
        stages.both(f"lib/{name}", *(dylib(arch) for arch in ARCHS))
    stages.both("lib/same.dylib", "liba.dylib", "liba.dylib")
    stages.both("lib/differs.dylib", "liba.dylib", "libb.dylib")
    with pytest.raises(FixError, match="differs") as caught:
        stages.merge()
    assert caught.value.where == "lib/differs.dylib"
    stages.output = stages.output.with_name("again")
    stages.merge(prefer("lib/differs.dylib", "arm64"))
    assert (stages.output / "lib/same.dylib").readlink() == Path("liba.dylib")
    assert (stages.output / "lib/differs.dylib").readlink() == Path("libb.dylib")


def test_a_link_and_a_file_of_one_name_need_a_rule(stages: Stages) -> None:
    stages.both("lib/liba.dylib", *(dylib(arch) for arch in ARCHS))
    stages.both("lib/libb.dylib", "liba.dylib", dylib("arm64"))
    with pytest.raises(FixError, match="differs"):
        stages.merge()


def test_a_file_where_the_other_has_a_folder_is_refused(stages: Stages) -> None:
    stages.put("x86_64", "share/x", b"file")
    stages.put("arm64", "share/x/y", b"inside")
    with pytest.raises(FixError) as caught:
        stages.merge()
    assert caught.value.where == "share/x/y"


def test_the_stages_are_not_changed(stages: Stages) -> None:
    data = [dylib(arch) for arch in ARCHS]
    stages.both("lib/libx.dylib", *data)
    stages.merge()
    assert [(stages.roots[arch] / "lib/libx.dylib").read_bytes() for arch in ARCHS] == data
