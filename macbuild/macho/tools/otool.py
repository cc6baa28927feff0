"""`otool`: list the contents of Mach-O headers.

Supported: -L, -D, -l, -h, -f, -arch NAME or all, -m. Source of the format: the manual page otool(1) and what delocate
0.13 and CMake's GetPrerequisites, BundleUtilities and `file(GET_RUNTIME_DEPENDENCIES)` parse.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from macbuild.errors import MacbuildError, MachOError, UsageError
from macbuild.macho.constants import DYLIB_COMMANDS, LC
from macbuild.macho.file import MachOFile, has_macho_magic, open_macho
from macbuild.macho.image import Image
from macbuild.macho.tools.load_commands import packed_version, render

__all__ = ["main"]

USAGE = "usage: otool [-fhlLDm] [-arch NAME|all] FILE ..."
_KINDS = {
    LC.LOAD_WEAK_DYLIB: ", weak",
    LC.REEXPORT_DYLIB: ", reexport",
    LC.LOAD_UPWARD_DYLIB: ", upward",
    LC.LAZY_LOAD_DYLIB: ", lazy",
}


@dataclass
class OtoolRequest:
    """A parsed command line: letters of the listings, architectures, files."""

    show: set[str] = field(default_factory=set)
    archs: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def main(arguments: Sequence[str]) -> int:
    """List each file; return 0 if all could be read, else 1, as Apple's tool does.

    Parameters
    ----------
    arguments
        The command line without the name of the program.
    """
    try:
        request = _parse(arguments)
    except UsageError as error:
        sys.stderr.write(f"error: otool: {error}\n{USAGE}\n")
        return 1
    code = 0
    for name in request.files:
        try:
            sys.stdout.writelines(f"{line}\n" for line in _list(name, request))
        except MacbuildError as error:
            sys.stdout.flush()
            sys.stderr.write(f"error: otool: {error}\n")
            code = 1
    return code


def _parse(arguments: Sequence[str]) -> OtoolRequest:
    request = OtoolRequest()
    rest = iter(arguments)
    for argument in rest:
        if argument == "-arch":
            arch = next(rest, None)
            if arch is None:
                raise UsageError("missing argument to -arch option")
            request.archs.append(arch)
        elif argument.startswith("-") and len(argument) > 1:
            for letter in argument[1:]:
                if letter not in "fhlLDm":
                    raise UsageError(f"unknown option: {argument}")
                request.show.add(letter)
        else:
            request.files.append(argument)
    request.show.discard("m")  # "do not take (member) off a file name": this tool never does
    if not request.show:
        raise UsageError("one of -fhlLD must be specified")
    if not request.files:
        raise UsageError("at least one file must be specified")
    return request


def _list(name: str, request: OtoolRequest) -> Iterator[str]:
    path = Path(name)
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise MachOError(f"can't open file: {name} ({error.strerror})") from error
    if not has_macho_magic(head):
        yield f"{name}: is not an object file"
        return
    with open_macho(path) as macho:
        if "f" in request.show:
            yield from _fat_header(macho)
        if request.show == {"f"}:
            return
        images = _select(macho, request.archs, name)
        labelled = (macho.is_fat and request.archs in ([], ["all"])) or len(request.archs) > 1
        for image in images:
            yield f"{name} (architecture {image.arch}):" if labelled else f"{name}:"
            yield from _sections(image, request.show)


def _select(macho: MachOFile, archs: Sequence[str], name: str) -> Sequence[Image]:
    if not archs or "all" in archs:
        return macho.images
    for arch in archs:
        if arch not in macho.archs:
            raise MachOError(f"file: {name} does not contain architecture: {arch}")
    return [image for arch in archs for image in macho.images if image.arch == arch]


def _sections(image: Image, show: set[str]) -> Iterator[str]:
    if "h" in show:
        yield from _header(image)
    if "l" in show:
        yield from render(image)
    if "D" in show:
        if image.id is not None:
            yield image.id.name
    elif "L" in show:
        yield from _libraries(image)


def _libraries(image: Image) -> Iterator[str]:
    for command in image.commands:
        if command.cmd in DYLIB_COMMANDS:
            dylib = image.dylib(command)
            compatibility = packed_version(dylib.compatibility_version, always_patch=True)
            current = packed_version(dylib.current_version, always_patch=True)
            kind = _KINDS.get(LC(command.cmd), "")
            yield f"\t{dylib.name} (compatibility version {compatibility}, current version {current}{kind})"


def _header(image: Image) -> Iterator[str]:
    magic, cpu, subtype, filetype, count, size, flags = struct.unpack("<7I", image.read(0, 28))
    yield "Mach header"
    yield "      magic cputype cpusubtype  caps    filetype ncmds sizeofcmds      flags"
    yield (
        f" {magic:#010x} {cpu:>8} {subtype & 0xFFFFFF:>10}  {subtype >> 24:#04x} {filetype:>11} {count:>5}"
        f" {size:>10} {flags:#010x}"
    )


def _fat_header(macho: MachOFile) -> Iterator[str]:
    if not macho.is_fat:
        return
    yield "Fat headers"
    yield f"fat_magic 0x{bytes(macho.data[:4]).hex()}"
    yield f"nfat_arch {len(macho.fat)}"
    for index, entry in enumerate(macho.fat):
        yield f"architecture {index}"
        yield f"    cputype {entry.cputype}"
        yield f"    cpusubtype {entry.cpusubtype & 0xFFFFFF}"
        yield f"    capabilities {entry.cpusubtype >> 24:#x}"
        yield f"    offset {entry.offset}"
        yield f"    size {entry.size}"
        yield f"    align 2^{entry.align} ({1 << entry.align})"
