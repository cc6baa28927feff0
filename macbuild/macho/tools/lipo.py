"""`lipo`: list the architectures of files, make universal files, extract slices.

Supported: -info, -detailed_info, -archs, -verify_arch, -create, -thin, -extract, -remove, -replace, -arch, -output.
Source: the manual page lipo(1), and the lines that delocate 0.13 and CMake's CMakeIOSInstallCombined parse.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from macbuild.errors import MacbuildError, MachOError, UsageError
from macbuild.macho.constants import Cpu
from macbuild.macho.file import MachOFile, is_macho, open_macho

__all__ = ["main"]

USAGE = (
    "usage: lipo FILE ... -info|-detailed_info|-archs|-verify_arch ARCH ...\n"
    "       lipo -create [-arch ARCH] FILE ... -output FILE\n"
    "       lipo FILE -thin ARCH|-extract ARCH ...|-remove ARCH ...|-replace ARCH FILE ... -output FILE"
)
_SUBTYPES = {
    (Cpu.X86_64, 3): "CPU_SUBTYPE_X86_64_ALL",
    (Cpu.X86_64, 8): "CPU_SUBTYPE_X86_64_H",
    (Cpu.ARM64, 0): "CPU_SUBTYPE_ARM64_ALL",
    (Cpu.ARM64, 2): "CPU_SUBTYPE_ARM64E",
}


@dataclass
class LipoRequest:
    """A parsed command line: one operation, its operands, inputs with the architecture they must have."""

    operation: str = ""
    archs: list[str] = field(default_factory=list)
    replacements: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    checked: dict[str, str] = field(default_factory=dict)
    output: str | None = None


def main(arguments: Sequence[str]) -> int:
    """Do the operation; return 0 if it succeeded, else 1, which is also the negative answer of -verify_arch.

    Parameters
    ----------
    arguments
        The command line without the name of the program.
    """
    try:
        request = _parse(arguments)
    except UsageError as error:
        sys.stderr.write(f"error: lipo: {error}\n{USAGE}\n")
        return 1
    try:
        for name in (*request.files, *request.replacements.values()):
            _check_readable(name)
        for name, arch in request.checked.items():
            if arch not in _archs(name):
                raise MachOError(f"specified architecture type ({arch}) is not in file ({name})")
        return _OPERATIONS[request.operation](request)
    except (MacbuildError, OSError) as error:
        sys.stderr.write(f"fatal error: lipo: {error}\n")
        return 1


def _parse(arguments: Sequence[str]) -> LipoRequest:
    request = LipoRequest()
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "-arch":
            arch, name = _operands(argument, rest, 2)
            request.files.append(name)
            request.checked[name] = arch
        elif argument in {"-output", "-o"}:
            if request.output is not None:
                raise UsageError("only one -output option can be specified")
            request.output = _operands(argument, rest, 1)[0]
        elif argument.removeprefix("-") in _OPERATIONS and argument.startswith("-"):
            _take(request, argument.removeprefix("-"), rest)
        elif argument.startswith("-"):
            raise UsageError(f"unknown flag: {argument}")
        else:
            request.files.append(argument)
    _check(request)
    return request


def _operands(option: str, rest: list[str], count: int) -> list[str]:
    operands = rest[:count]
    if len(operands) < count:
        raise UsageError(f"missing argument(s) to {option} option")
    del rest[:count]
    return operands


def _take(request: LipoRequest, operation: str, rest: list[str]) -> None:
    repeatable = {"extract", "remove", "replace"}
    if request.operation and not (request.operation == operation and operation in repeatable):
        raise UsageError(f"only one of -{request.operation} and -{operation} can be specified")
    request.operation = operation
    if operation in {"thin", "extract", "remove"}:
        request.archs += _operands(f"-{operation}", rest, 1)
    elif operation == "replace":
        arch, name = _operands("-replace", rest, 2)
        if request.replacements.setdefault(arch, name) != name:
            raise UsageError(f"-replace {arch} specified more than once")
    elif operation == "verify_arch":
        request.archs += rest
        rest.clear()


def _check(request: LipoRequest) -> None:
    operation = request.operation
    if not operation:
        raise UsageError("one of " + ", ".join(f"-{name}" for name in _OPERATIONS) + " must be specified")
    if not request.files:
        raise UsageError("no input files specified")
    if len(request.files) > 1 and operation not in {"create", "info", "detailed_info"}:
        raise UsageError(f"only one input file can be specified with the -{operation} option")
    if operation in {"info", "detailed_info", "archs", "verify_arch"}:
        if request.output is not None:
            raise UsageError(f"-output can't be specified with the -{operation} option")
    elif request.output is None:
        raise UsageError(f"no output file specified for the -{operation} option")
    if operation == "verify_arch" and not request.archs:
        raise UsageError("missing argument(s) to -verify_arch option")


def _check_readable(name: str) -> None:
    path = Path(name)
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise MachOError(f"can't open input file: {name} ({error.strerror})") from error
    if not is_macho(path):
        raise MachOError(f"can't figure out the architecture type of: {name}")


def _archs(name: str) -> tuple[str, ...]:
    with open_macho(Path(name)) as macho:
        return macho.archs


def _info(request: LipoRequest) -> int:
    for name in request.files:
        with open_macho(Path(name)) as macho:
            sys.stdout.write(f"{_summary(name, macho)}\n")
    return 0


def _summary(name: str, macho: MachOFile) -> str:
    if macho.is_fat:
        # Apple's tool ends this line with a blank; callers strip it or split at blanks.
        return f"Architectures in the fat file: {name} are: {' '.join(macho.archs)}"
    return f"Non-fat file: {name} is architecture: {macho.archs[0]}"


def _detailed_info(request: LipoRequest) -> int:
    for name in request.files:
        with open_macho(Path(name)) as macho:
            lines = _details(name, macho) if macho.is_fat else _thin_details(name, macho)
            sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _thin_details(name: str, macho: MachOFile) -> Iterator[str]:
    yield f"input file {name} is not a fat file"
    yield _summary(name, macho)


def _details(name: str, macho: MachOFile) -> Iterator[str]:
    yield f"Fat header in: {name}"
    yield f"fat_magic 0x{bytes(macho.data[:4]).hex()}"
    yield f"nfat_arch {len(macho.fat)}"
    for entry, image in zip(macho.fat, macho.images, strict=True):
        subtype = entry.cpusubtype & 0xFFFFFF
        yield f"architecture {image.arch}"
        yield f"    cputype CPU_TYPE_{image.cpu.name}"
        yield f"    cpusubtype {_SUBTYPES.get((image.cpu, subtype), subtype)}"
        yield f"    capabilities {entry.cpusubtype >> 24:#x}"
        yield f"    offset {entry.offset}"
        yield f"    size {entry.size}"
        yield f"    align 2^{entry.align} ({1 << entry.align})"


def _print_archs(request: LipoRequest) -> int:
    sys.stdout.write(f"{' '.join(_archs(request.files[0]))}\n")
    return 0


def _verify_arch(request: LipoRequest) -> int:
    return 0 if set(request.archs) <= set(_archs(request.files[0])) else 1


def _create(request: LipoRequest) -> int:
    _refuse_doubles(request.files)
    return _merge([Path(name) for name in request.files], request)


def _refuse_doubles(names: Sequence[str]) -> None:
    owners: dict[str, str] = {}
    for name in names:
        for arch in _archs(name):
            if arch in owners:
                raise MachOError(
                    f"{owners[arch]} and {name} have the same architectures ({arch}) and can't be in the same fat"
                    " output file"
                )
            owners[arch] = name


def _merge(inputs: Sequence[Path], request: LipoRequest) -> int:
    from macbuild.macho.fat import merge

    assert request.output is not None
    merge(inputs, Path(request.output))
    return 0


def _thin(request: LipoRequest) -> int:
    from macbuild.macho.fat import thin

    assert request.output is not None
    _fat_archs(request)
    thin(Path(request.files[0]), request.archs[0], Path(request.output))
    return 0


def _fat_archs(request: LipoRequest) -> tuple[str, ...]:
    """Return the architectures of the input, which must be fat and have those that the operation needs."""
    name = request.files[0]
    with open_macho(Path(name)) as macho:
        if not macho.is_fat:
            raise MachOError(
                f"input file ({name}) must be a fat file when the -{request.operation} option is specified"
            )
        archs = macho.archs
    for arch in (*request.archs, *request.replacements):
        if arch not in archs:
            raise MachOError(f"fat input file ({name}) does not contain the specified architecture ({arch})")
    return archs


def _extract(request: LipoRequest) -> int:
    archs = _fat_archs(request)
    return _merge_slices(request, [arch for arch in archs if arch in request.archs])


def _remove(request: LipoRequest) -> int:
    kept = [arch for arch in _fat_archs(request) if arch not in request.archs]
    if not kept:
        raise MachOError(f"-remove of every architecture of {request.files[0]} would leave an empty file")
    return _merge_slices(request, kept)


def _replace(request: LipoRequest) -> int:
    archs = _fat_archs(request)
    for arch, name in request.replacements.items():
        if _archs(name) != (arch,):
            raise MachOError(f"file ({name}) for the -replace option is not a file with only the architecture {arch}")
    return _merge_slices(request, [arch for arch in archs if arch not in request.replacements])


def _merge_slices(request: LipoRequest, archs: Sequence[str]) -> int:
    import tempfile

    from macbuild.macho.fat import thin

    assert request.output is not None
    source = Path(request.files[0])
    with tempfile.TemporaryDirectory(prefix="macbuild-lipo-") as folder:
        parts = [Path(folder, arch) for arch in archs]
        for arch, part in zip(archs, parts, strict=True):
            thin(source, arch, part)
        return _merge([*parts, *map(Path, request.replacements.values())], request)


_OPERATIONS: dict[str, Callable[[LipoRequest], int]] = {
    "info": _info,
    "detailed_info": _detailed_info,
    "archs": _print_archs,
    "verify_arch": _verify_arch,
    "create": _create,
    "thin": _thin,
    "extract": _extract,
    "remove": _remove,
    "replace": _replace,
}
