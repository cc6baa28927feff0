"""Read one thin 64-bit Mach-O image; every offset is checked before it is used."""

from __future__ import annotations

import copy
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from macbuild.errors import MachOError
from macbuild.macho.constants import (
    LC,
    LINKEDIT_DATA_COMMANDS,
    LOAD_DYLIB_COMMANDS,
    MH_MAGIC_64,
    Cpu,
    FileType,
    Platform,
)

__all__ = [
    "Buffer",
    "BuildVersion",
    "Dylib",
    "Image",
    "LoadCommand",
    "Section",
    "Segment",
]

Buffer: TypeAlias = bytes | bytearray | mmap.mmap

HEADER_SIZE = 32
MAX_COMMANDS = 1 << 16  # Far beyond every real image; without a limit a file costs thirty times its size in memory.
MAX_SIZEOFCMDS = 1 << 24
_CPU_SUBTYPE_MASK = 0x00FFFFFF  # The high byte holds capability bits, <mach/machine.h>.
_ARM64E_SUBTYPE = 2


@dataclass(frozen=True, slots=True)
class LoadCommand:
    """One load command, byte for byte. `offset` counts from the start of the image."""

    cmd: int
    offset: int
    data: bytes

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.data)

    @property
    def name(self) -> str:
        """Name as in `<mach-o/loader.h>`, or the number if macbuild has none."""
        try:
            return f"LC_{LC(self.cmd).name}"
        except ValueError:
            return f"LC_{self.cmd:#x}"


@dataclass(frozen=True, slots=True)
class Dylib:
    """A dependency or an id. Versions are packed as X.Y.Z in 16, 8 and 8 bits."""

    cmd: int
    name: str
    timestamp: int
    current_version: int
    compatibility_version: int

    @property
    def weak(self) -> bool:
        """True if the file may be missing when the image is loaded."""
        return self.cmd == LC.LOAD_WEAK_DYLIB


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a segment. `offset` counts from the start of the image; zero-fill sections have none."""

    segment: str
    name: str
    addr: int
    size: int
    offset: int
    flags: int

    @property
    def zerofill(self) -> bool:
        """True if the section takes no room in the file (S_ZEROFILL, S_GB_ZEROFILL, S_THREAD_LOCAL_ZEROFILL)."""
        return self.flags & 0xFF in {0x1, 0xC, 0x12}


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment. `fileoff` counts from the start of the image."""

    name: str
    vmaddr: int
    vmsize: int
    fileoff: int
    filesize: int
    maxprot: int
    initprot: int
    flags: int
    sections: tuple[Section, ...]
    command: LoadCommand


@dataclass(frozen=True, slots=True)
class BuildVersion:
    """Platform, minimum OS and SDK; versions are packed as X.Y.Z in 16, 8 and 8 bits."""

    platform: int
    minos: int
    sdk: int


class Image:
    """One thin image inside a buffer.

    Parameters
    ----------
    data
        The whole file, mapped or in memory.
    offset, size
        Where the image lies in it, in bytes.
    where
        How to name the image in an error.

    Raises
    ------
    MachOError
        If the header or the load commands are not those of a 64-bit macOS image.

    Source: `<mach-o/loader.h>`.
    """

    def __init__(self, data: Buffer, offset: int, size: int, where: str) -> None:
        self.data = data
        self.offset = offset
        self.size = size
        self.where = where
        if size < HEADER_SIZE:
            raise MachOError(f"{size} bytes are too few for a Mach-O header", where=where)
        header = struct.unpack_from("<8I", data, offset)
        if header[0] != MH_MAGIC_64:
            raise MachOError(_foreign_magic(header[0]), where=where)
        try:
            self.cpu = Cpu(header[1])
        except ValueError:
            raise MachOError(f"CPU type {header[1]:#x} is not supported", where=where) from None
        self.cpusubtype: int = header[2]
        self.filetype: int = header[3]
        self.sizeofcmds: int = header[5]
        self.flags: int = header[6]
        self.reserved: int = header[7]
        self.commands = tuple(self._read_commands(header[4]))

    def _read_commands(self, count: int) -> Iterator[LoadCommand]:
        end = HEADER_SIZE + self.sizeofcmds
        if end > self.size:
            raise MachOError(f"load commands end at byte {end}, the image has {self.size} bytes", where=self.where)
        if count > MAX_COMMANDS or self.sizeofcmds > MAX_SIZEOFCMDS:
            raise MachOError(f"{count} load commands of {self.sizeofcmds} bytes are too many", where=self.where)
        position = HEADER_SIZE
        for index in range(count):
            if position + 8 > end:
                raise MachOError(f"load command {index} starts past sizeofcmds", where=self.where)
            cmd, size = struct.unpack_from("<2I", self.data, self.offset + position)
            if size < 8 or size % 8 or position + size > end:
                raise MachOError(f"load command {index} has the impossible size {size}", where=self.where)
            start = self.offset + position
            yield LoadCommand(cmd, position, bytes(self.data[start : start + size]))
            position += size
        if position != end:
            raise MachOError(f"sizeofcmds is {self.sizeofcmds}, the commands take {position - 32}", where=self.where)

    def over(self, data: Buffer, *, offset: int | None = None, where: str | None = None) -> Image:
        """Return this image in another buffer that holds the same bytes, without parsing them again.

        Parameters
        ----------
        data
            The other file, mapped or in memory.
        offset
            Where the image starts in it, in bytes; None if it starts at the same place.
        where
            How to name the image in an error, if not as before.
        """
        image = copy.copy(self)
        image.data = data
        image.offset = self.offset if offset is None else offset
        image.where = self.where if where is None else where
        return image

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes at an offset counted from the start of the image.

        Raises `MachOError` if some of them are outside the image.
        """
        if offset < 0 or size < 0 or offset + size > self.size:
            raise MachOError(f"bytes {offset} to {offset + size} are outside its {self.size} bytes", where=self.where)
        start = self.offset + offset
        return bytes(self.data[start : start + size])

    @property
    def arch(self) -> str:
        """`arm64`, `arm64e` or `x86_64`."""
        if self.cpu is Cpu.ARM64:
            return "arm64e" if self.cpusubtype & _CPU_SUBTYPE_MASK == _ARM64E_SUBTYPE else "arm64"
        return "x86_64"

    @property
    def kind(self) -> str:
        """Name of the file type, as `DYLIB`, or its number if it has none."""
        try:
            return FileType(self.filetype).name
        except ValueError:
            return f"{self.filetype:#x}"

    def command(self, *kinds: int) -> LoadCommand | None:
        """Return the only load command of these kinds, or None; two of them are a `MachOError`."""
        found = [command for command in self.commands if command.cmd in kinds]
        if len(found) > 1:
            raise MachOError(f"{found[0].name} is listed {len(found)} times", where=self.where)
        return found[0] if found else None

    def fields(self, command: LoadCommand, layout: str, name: str) -> tuple[int, ...]:
        """Unpack the fixed fields of a command, after cmd and cmdsize; too small a command is a `MachOError`."""
        if command.size < 8 + struct.calcsize(layout):
            raise MachOError(f"{name} is only {command.size} bytes long", where=self.where)
        return struct.unpack_from(layout, command.data, 8)

    def string(self, command: LoadCommand, offset: int, fixed: int) -> str:
        """Return an `lc_str`. `fixed` is the size in bytes of the fields before it."""
        if not fixed <= offset <= command.size:
            raise MachOError(f"{command.name} has its string at byte {offset}", where=self.where)
        # surrogateescape keeps the bytes of a name that is not UTF-8, so that it can be written back unchanged.
        return command.data[offset:].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")

    def dylib(self, command: LoadCommand) -> Dylib:
        """Decode LC_ID_DYLIB or one of the LC_LOAD_DYLIB family."""
        at, timestamp, current, compatibility = self.fields(command, "<4I", command.name)
        return Dylib(command.cmd, self.string(command, at, 24), timestamp, current, compatibility)

    @cached_property
    def id(self) -> Dylib | None:
        """The install name, which only dylibs have."""
        command = self.command(LC.ID_DYLIB)
        return None if command is None else self.dylib(command)

    @cached_property
    def dylibs(self) -> tuple[Dylib, ...]:
        """Dependencies in load order, which is what two-level library ordinals count."""
        return tuple(self.dylib(command) for command in self.commands if command.cmd in LOAD_DYLIB_COMMANDS)

    @cached_property
    def rpaths(self) -> tuple[str, ...]:
        """Run path search list in order, duplicates included."""
        return tuple(self.rpath(command) for command in self.commands if command.cmd == LC.RPATH)

    def rpath(self, command: LoadCommand) -> str:
        """Decode LC_RPATH."""
        return self.string(command, self.fields(command, "<I", "LC_RPATH")[0], 12)

    @cached_property
    def build_version(self) -> BuildVersion | None:
        """Platform, minimum OS and SDK from LC_BUILD_VERSION or the older LC_VERSION_MIN_MACOSX.

        A zippered file has two LC_BUILD_VERSION; the one for macOS counts.
        """
        found: list[BuildVersion] = []
        for command in self.commands:
            if command.cmd == LC.BUILD_VERSION:
                platform, minos, sdk, _ = self.fields(command, "<4I", "LC_BUILD_VERSION")
                found.append(BuildVersion(platform, minos, sdk))
            elif command.cmd == LC.VERSION_MIN_MACOSX:
                minos, sdk = self.fields(command, "<2I", "LC_VERSION_MIN_MACOSX")
                found.append(BuildVersion(Platform.MACOS, minos, sdk))
        found.sort(key=lambda version: version.platform != Platform.MACOS)
        return found[0] if found else None

    @cached_property
    def uuid(self) -> str | None:
        """LC_UUID as 32 hexadecimal digits."""
        command = self.command(LC.UUID)
        if command is None:
            return None
        if command.size != 24:
            raise MachOError(f"LC_UUID is {command.size} bytes long", where=self.where)
        return command.data[8:24].hex()

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Segments in file order of their commands, each inside the image."""
        return tuple(self._segment(command) for command in self.commands if command.cmd == LC.SEGMENT_64)

    def _segment(self, command: LoadCommand) -> Segment:
        if command.size < 72:
            raise MachOError(f"LC_SEGMENT_64 is only {command.size} bytes long", where=self.where)
        raw, vmaddr, vmsize, fileoff, filesize, maxprot, initprot, count, flags = struct.unpack_from(
            "<16s4Q2i2I", command.data, 8
        )
        name = _fixed_name(raw)
        if fileoff + filesize > self.size:
            raise MachOError(f"segment {name} ends past the end of the image", where=self.where)
        if command.size != 72 + 80 * count:
            raise MachOError(f"segment {name} claims {count} sections", where=self.where)
        sections = []
        for index in range(count):
            values = struct.unpack_from("<16s16s2Q8I", command.data, 72 + 80 * index)
            section = Section(
                _fixed_name(values[1]), _fixed_name(values[0]), values[2], values[3], values[4], values[8]
            )
            if not section.zerofill and section.size and section.offset + section.size > self.size:
                raise MachOError(f"section {name},{section.name} ends past the end of the image", where=self.where)
            sections.append(section)
        return Segment(name, vmaddr, vmsize, fileoff, filesize, maxprot, initprot, flags, tuple(sections), command)

    def segment(self, name: str) -> Segment | None:
        """Return the segment of this name, or None; two of them are a `MachOError`."""
        found = [segment for segment in self.segments if segment.name == name]
        if len(found) > 1:
            raise MachOError(f"segment {name} is listed {len(found)} times", where=self.where)
        return found[0] if found else None

    def linkedit_range(self, kind: int) -> tuple[int, int] | None:
        """Return offset and size, in bytes from the start of the image, of a `linkedit_data_command`."""
        command = self.command(kind)
        if command is None:
            return None
        start, size = self.fields(command, "<2I", command.name)
        if start + size > self.size:
            raise MachOError(f"{command.name} ends past the end of the image", where=self.where)
        return start, size

    @property
    def signature_range(self) -> tuple[int, int] | None:
        """Offset and size in bytes of the embedded code signature."""
        return self.linkedit_range(LC.CODE_SIGNATURE)

    @property
    def commands_end(self) -> int:
        """Offset of the first byte after the load commands."""
        return HEADER_SIZE + self.sizeofcmds

    @cached_property
    def room_end(self) -> int:
        """Offset of the first byte that load commands must not reach: the first content of the image."""
        starts = [self.size]
        for segment in self.segments:
            if segment.filesize and segment.fileoff:
                starts.append(segment.fileoff)
            starts += [
                section.offset
                for section in segment.sections
                if not section.zerofill and section.size and section.offset
            ]
        for command in self.commands:
            if command.cmd in LINKEDIT_DATA_COMMANDS:
                start, size = self.fields(command, "<2I", command.name)
                if size:
                    starts.append(start)
        return min(starts)

    @property
    def header_room(self) -> int:
        """Bytes free for further load commands; negative if content already overlaps them."""
        return self.room_end - self.commands_end


def _fixed_name(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _foreign_magic(magic: int) -> str:
    if magic in {0xFEEDFACE, 0xCEFAEDFE}:
        return "a 32-bit Mach-O image, which macOS has not run since 10.15"
    if magic == 0xCFFAEDFE:
        return "a big-endian Mach-O image, which no current Mac runs"
    return "not a Mach-O file"
