"""Change a Mach-O file in place: one that nobody has run yet, so that no kernel remembers its signature.

The file is opened once and parsed once, and parsed again only when its bytes have changed.
"""

from __future__ import annotations

import mmap
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from macbuild.errors import MachOError
from macbuild.files import os_errors
from macbuild.macho.fat import merge, thin
from macbuild.macho.file import MachOFile, ParsedFile, parse_macho
from macbuild.macho.image import Image
from macbuild.macho.rewrite import SlicePlan
from macbuild.macho.sign import refresh, sign_thin, sign_universal
from macbuild.macho.signplan import SignOptions, plan_signing
from macbuild.macho.verify import SignatureFacts, verify_image

__all__ = ["PrivateFile", "open_private"]


@contextmanager
def open_private(path: Path, known: ParsedFile | None = None) -> Iterator[PrivateFile]:
    """Open a private file to change it.

    Parameters
    ----------
    path
        The file; it was never run.
    known
        The facts of the file, so that it need not be parsed.

    Raises
    ------
    MachOError
        If it is malformed, or has another size than is known.
    FileError
        If it cannot be opened.
    """
    file = PrivateFile(path, known)
    try:
        yield file
    finally:
        file.close()


class PrivateFile:
    """A Mach-O file that is changed in place.

    Parameters
    ----------
    path
        The file.
    known
        Its facts, if it was parsed before.
    """

    def __init__(self, path: Path, known: ParsedFile | None = None) -> None:
        self.path = path
        self._known = known
        self._file = self._open()
        self._map: mmap.mmap | None = None
        self._macho: MachOFile | None = None
        self._pending: tuple[SlicePlan, ...] = ()

    def _open(self) -> BinaryIO:
        with os_errors(self.path):
            try:
                return self.path.open("r+b")
            except PermissionError:
                # A vendor's library may be read-only; a copy of it keeps that mode, which counts at opening only.
                mode = stat.S_IMODE(self.path.stat().st_mode)
                self.path.chmod(mode | stat.S_IWUSR)
                try:
                    return self.path.open("r+b")
                finally:
                    self.path.chmod(mode)

    @property
    def macho(self) -> MachOFile:
        """The file as it is now, with changes that `patch` has made and `commit` has not written."""
        if self._macho is None:
            # A private mapping: an error in it leaves the file as it is, and a full disk is an error of `write`.
            with os_errors(self.path):
                if not os.fstat(self._file.fileno()).st_size:
                    raise MachOError("too short for a Mach-O file", where=self.path)
                self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY)
            known, self._known = self._known, None
            self._macho = known.over(self._map) if known else parse_macho(self._map, str(self.path))
        return self._macho

    def patch(self, plans: Sequence[SlicePlan]) -> None:
        """Make changes in memory, and parse images again whose load commands they change; `commit` writes them."""
        macho = self.macho
        assert self._map is not None
        images = {image.offset: image for image in macho.images}
        for plan in plans:
            image = images[plan.offset]
            header = image.read(0, image.commands_end)
            for start, new in plan.patches:
                self._map[plan.offset + start : plan.offset + start + len(new)] = new
            if image.read(0, image.commands_end) != header:
                images[plan.offset] = Image(self._map, plan.offset, plan.old_size, plan.where)
        self._macho = replace(macho, images=tuple(images.values()))
        self._pending = tuple(plans)

    def commit(self) -> None:
        """Write the changes and make the signature valid again.

        A valid ad hoc signature is valid afterwards; any other signature is replaced by an ad hoc one, and a file that
        was never signed stays so. The file is undefined if this fails.

        Raises
        ------
        MachOError, SignatureError
            If it cannot be signed again.
        FileError, NoSpaceError
            If it cannot be written.
        """
        plans, self._pending = self._pending, ()
        if not plans:
            return
        shrinks = any(plan.size != plan.old_size for plan in plans)
        with os_errors(self.path):
            if shrinks and self.macho.is_fat:
                self._rebuild(plans)
            else:
                self._write(plans, shrinks=shrinks)

    def _write(self, plans: Sequence[SlicePlan], *, shrinks: bool) -> None:
        assert self._map is not None
        images = {image.offset: image for image in self.macho.images}
        parts = [(plan, images[plan.offset]) for plan in plans]
        refreshed = [not _signature(image) or refresh(image, _ranges(plan)) for plan, image in parts]
        for plan, image in parts:
            for start, stop in (*_ranges(plan), *_signature(image)):
                self._file.seek(plan.offset + start)
                self._file.write(self._map[plan.offset + start : plan.offset + stop])
        self._file.flush()
        if shrinks:
            self._forget()
            self._file.truncate(plans[0].size)
        if not all(refreshed):
            self.sign()

    def _rebuild(self, plans: Sequence[SlicePlan]) -> None:
        """Edit each slice as a thin file and merge them again, since one of them gets shorter."""
        archs = self.macho.archs
        self._forget()
        with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=f".{self.path.name}.") as folder:
            parts = [Path(folder, arch) for arch in archs]
            for arch, part in zip(archs, parts, strict=True):
                thin(self.path, arch, part)
                with open_private(part) as private:
                    private.patch([replace(plan, offset=0) for plan in plans if plan.arch == arch])
                    private.commit()
            merge(parts, self.path)
        self._reopen()

    def sign(self, options: SignOptions | None = None) -> None:
        """Sign all slices; options and errors are those of `sign_private`."""
        plan = plan_signing(self.macho, options or SignOptions(), self.path.name)
        self._forget()
        with os_errors(self.path):
            if plan.fat:
                sign_universal(self.path, plan)
                self._reopen()
            else:
                sign_thin(self._file, plan)
                self._file.flush()

    def verify(self) -> tuple[SignatureFacts, ...]:
        """Verify the signature of each slice against the bytes of the file; raise `SignatureError` if one is wrong."""
        images = self.macho.images
        with os_errors(self.path), mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return tuple(verify_image(image.over(data)) for image in images)

    def _forget(self) -> None:
        """Forget what was parsed: the bytes are about to change."""
        self._macho = None
        if self._map is not None:
            self._map.close()
            self._map = None

    def _reopen(self) -> None:
        self._file.close()
        self._file = self._open()

    def close(self) -> None:
        """Close the file; changes that were not committed are lost."""
        self._forget()
        self._file.close()


def _ranges(plan: SlicePlan) -> list[tuple[int, int]]:
    return [(start, start + len(new)) for start, new in plan.patches]


def _signature(image: Image) -> list[tuple[int, int]]:
    found = image.signature_range
    return [] if found is None else [(found[0], sum(found))]
