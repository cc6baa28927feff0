"""Fuzz the Mach-O reader: header, load commands, every property of an image, symbols."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from macbuild.errors import MacbuildError, MachOError
from macbuild.macho.constants import LINKEDIT_DATA_COMMANDS
from macbuild.macho.file import has_macho_magic, parse_macho
from macbuild.macho.image import Image
from macbuild.macho.symbols import defined_names, read_exports, read_imports, read_symbols

_READERS: tuple[Callable[[Image], object], ...] = (
    lambda image: image.arch,
    lambda image: image.kind,
    lambda image: image.id,
    lambda image: image.dylibs,
    lambda image: image.rpaths,
    lambda image: image.build_version,
    lambda image: image.uuid,
    lambda image: image.segments,
    lambda image: image.segment("__LINKEDIT"),
    lambda image: image.signature_range,
    lambda image: [image.linkedit_range(kind) for kind in LINKEDIT_DATA_COMMANDS],
    lambda image: image.room_end,
    lambda image: image.header_room,
    lambda image: [command.name for command in image.commands],
    read_exports,
    read_imports,
    lambda image: list(read_symbols(image)),
    lambda image: defined_names(image, [b"_f", b"_local"]),
)


def check(data: bytes) -> None:
    """Read everything that the file contains."""
    try:
        file = parse_macho(data)
    except MachOError:
        return
    assert has_macho_magic(data[:8])
    for image in file.images:
        _check_image(image)


def _check_image(image: Image) -> None:
    raw = image.read(32, image.sizeofcmds)
    assert b"".join(command.data for command in image.commands) == raw
    for reader in _READERS:
        with contextlib.suppress(MacbuildError):
            reader(image)
    with contextlib.suppress(MachOError):
        for segment in image.segments:
            assert len(image.read(segment.fileoff, segment.filesize)) == segment.filesize
