from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from macbuild.errors import FileError, MachOError, SignatureError
from macbuild.macho.edit import Edits, edit_open, edit_private
from macbuild.macho.file import open_macho, read_macho
from macbuild.macho.private import open_private
from macbuild.macho.verify import verify_file
from tests.support import machobytes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "libx.dylib"
    path.write_bytes(machobytes.dylib(signed=True))
    return path


def test_edit_sign_and_verify_in_one_opening(path: Path) -> None:
    with open_private(path) as private:
        assert edit_open(private, Edits(id="@rpath/liby.dylib"))
        (facts,) = private.verify()
        assert facts.identifier == "libx.dylib"
        private.sign()
        assert private.macho.images[0].id is not None
        assert private.macho.images[0].id.name == "@rpath/liby.dylib"
    verify_file(path)


def test_verify_reads_the_file_and_not_the_memory(path: Path) -> None:
    with open_private(path) as private:
        assert private.verify()
        with path.open("r+b") as file:
            file.seek(8000)
            file.write(b"damage")
        with pytest.raises(SignatureError, match="page 1 "):
            private.verify()


def test_an_uncommitted_patch_leaves_the_file_unchanged(path: Path) -> None:
    before = path.read_bytes()
    with open_private(path) as private:
        private.patch([])
        (image,) = private.macho.images
        from macbuild.macho.rewrite import plan_edits

        private.patch(plan_edits([image], Edits(id="/new"), "x"))
        assert private.macho.images[0].id is not None
        assert private.macho.images[0].id.name == "/new"
    assert path.read_bytes() == before


def test_facts_of_another_version_of_the_file_are_refused(path: Path) -> None:
    known = read_macho(path)
    path.write_bytes(machobytes.dylib())
    with pytest.raises(MachOError, match=r"had \d+ bytes and has \d+ now"), open_private(path, known) as private:
        private.verify()
    with pytest.raises(MachOError, match="bytes and has"), known.open():
        pass


def test_a_read_only_file_is_edited_and_keeps_its_mode(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o444)
    original = Path.open

    def refuse(self: Path, mode: str = "r", *more: Any) -> Any:
        if "+" in mode and not self.stat().st_mode & stat.S_IWUSR:  # Root may do anything.
            raise PermissionError(13, "Permission denied")
        return original(self, mode, *more)

    monkeypatch.setattr(Path, "open", refuse)
    assert edit_private(path, Edits(id="/new"))
    verify_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_a_file_that_is_missing_or_empty_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(MachOError, match="too short"):
        edit_private(tmp_path / "empty", Edits(id="x"))
    with pytest.raises(FileError, match="No such file"):
        edit_private(tmp_path / "missing", Edits(id="x"))


def test_images_of_a_parsed_file_are_read_after_it_is_opened(path: Path) -> None:
    parsed = read_macho(path)
    assert parsed.images[0].id is not None
    with pytest.raises(ValueError, match="closed"):
        parsed.images[0].read(0, 4)
    with parsed.open() as file, open_macho(path) as fresh:
        assert file.images[0].read(0, 4096) == fresh.images[0].read(0, 4096)
