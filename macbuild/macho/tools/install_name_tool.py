"""`install_name_tool`: change the install names and rpaths of one file.

Supported: -id, -change, -rpath, -add_rpath, -delete_rpath, each but -id any number of times, all done in one pass. Like
Apple's tool, it ignores a -change whose old name is missing and an -id for a file that is not a dylib; an rpath to
delete or replace must exist, and one to add must not. Source: the manual page install_name_tool(1). Two things differ:
an rpath that is listed twice is removed in both places, because macOS 15.4 loads no file with two equal rpaths; and in
a fat file it is enough that one slice has the rpath.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from macbuild.errors import HeaderRoomError, MacbuildError, MachOError, UsageError
from macbuild.macho.file import open_macho
from macbuild.macho.rewrite import Edits

__all__ = ["main"]

USAGE = (
    "Usage: install_name_tool [-change old new] ... [-rpath old new] ... [-add_rpath new] ..."
    " [-delete_rpath path] ... [-id name] input"
)
_OPERANDS = {"-id": 1, "-change": 2, "-rpath": 2, "-add_rpath": 1, "-delete_rpath": 1}


@dataclass
class InstallNameToolRequest:
    """A parsed command line."""

    id: str | None = None
    change: dict[str, str] = field(default_factory=dict)
    replace: dict[str, str] = field(default_factory=dict)
    add: list[str] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def main(arguments: Sequence[str]) -> int:
    """Edit the file and return 0, or leave it untouched, write one line with the reason and return 1.

    Parameters
    ----------
    arguments
        The command line without the name of the program.
    """
    try:
        request = _parse(arguments)
    except UsageError as error:
        sys.stderr.write(f"error: install_name_tool: {error}\n{USAGE}\n")
        return 1
    name = request.files[0]
    try:
        _edit(name, request)
    except HeaderRoomError as error:
        reason = "larger updated load commands do not fit (the program must be relinked, and you may need to use"
        reason += f" -headerpad or -headerpad_max_install_names): {error.message}"
        place = f"changing install names or rpaths can't be redone for: {error.where or name}"
        sys.stderr.write(f"error: install_name_tool: {place} because {reason}\n")
        return 1
    except MacbuildError as error:
        sys.stderr.write(f"error: install_name_tool: {error}\n")
        return 1
    return 0


def _parse(arguments: Sequence[str]) -> InstallNameToolRequest:
    request = InstallNameToolRequest()
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        if option not in _OPERANDS:
            if option.startswith("-"):
                raise UsageError(f"unknown option: {option}")
            request.files.append(option)
            continue
        count = _OPERANDS[option]
        operands, rest = rest[:count], rest[count:]
        if len(operands) < count:
            raise UsageError(f"missing argument(s) to: {option} option")
        _take(request, option, operands)
    if not request.files:
        raise UsageError("no input file specified")
    if len(request.files) > 1:
        raise UsageError(f"more than one input file specified ({request.files[0]} and {request.files[1]})")
    if request == InstallNameToolRequest(files=request.files):
        raise UsageError("no options specified")
    _refuse_contradictions(request)
    return request


def _take(request: InstallNameToolRequest, option: str, operands: Sequence[str]) -> None:
    if option == "-id":
        if request.id is not None:
            raise UsageError("more than one: -id option specified")
        request.id = operands[0]
    elif option in {"-change", "-rpath"}:
        pairs = request.change if option == "-change" else request.replace
        old, new = operands
        if pairs.setdefault(old, new) != new:
            raise UsageError(f'"{option} {old} {pairs[old]}" and "{option} {old} {new}" can\'t both be specified')
    else:
        paths = request.add if option == "-add_rpath" else request.delete
        if operands[0] in paths:
            raise UsageError(f'"{option} {operands[0]}" specified more than once')
        paths.append(operands[0])


def _refuse_contradictions(request: InstallNameToolRequest) -> None:
    for path in request.delete:
        if path in request.replace:
            raise UsageError(f'"-delete_rpath {path}" and "-rpath {path} ..." can\'t both be specified')
        if path in request.add:
            raise UsageError(f'"-delete_rpath {path}" and "-add_rpath {path}" can\'t both be specified')


def _edit(name: str, request: InstallNameToolRequest) -> None:
    from macbuild.macho.edit import edit_file

    path = Path(name).resolve()  # A link stays a link: the new file replaces the one that it points to.
    with open_macho(path) as macho:
        has_id = any(image.id is not None for image in macho.images)
        dylibs = {dylib.name for image in macho.images for dylib in image.dylibs}
        rpaths = {rpath for image in macho.images for rpath in image.rpaths}
    _check_rpaths(name, request, rpaths)
    edits = Edits(
        id=request.id if has_id else None,
        change={old: new for old, new in request.change.items() if old in dylibs},
        replace_rpaths=request.replace,
        add_rpaths=tuple(request.add),
        delete_rpaths=tuple(request.delete),
    )
    if edits != Edits():
        edit_file(path, edits)


def _check_rpaths(name: str, request: InstallNameToolRequest, rpaths: Collection[str]) -> None:
    options = {path: f"-delete_rpath {path}" for path in request.delete}
    options |= {old: f"-rpath {old} {new}" for old, new in request.replace.items()}
    for path, option in options.items():
        if path not in rpaths:
            raise MachOError(
                f'no LC_RPATH load command with path: {path} found in: {name}, required for specified option "{option}"'
            )
    for path in request.add:
        if path in rpaths:
            raise MachOError(
                f'for: {name} option "-add_rpath {path}" would duplicate path, file already has LC_RPATH for: {path}'
            )
