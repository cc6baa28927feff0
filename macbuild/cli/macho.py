"""`macbuild macho`: show, edit, sign, verify, merge and thin Mach-O files, and offer stand-ins for Apple's tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macbuild.cli.options import Command, command
from macbuild.cli.session import Session
from macbuild.documents import check_given
from macbuild.errors import UsageError

if TYPE_CHECKING:
    from macbuild.macho.image import Dylib, Image
    from macbuild.macho.verify import SignatureFacts

__all__ = ["app"]

# Everything of macbuild.macho is imported by the command that needs it: `macbuild --help` and the other commands of the
# program import this module too.
REPORT_VERSION = 1
_ARCHS = ("arm64", "arm64e", "x86_64")
_DETAILS = 19  # column of the details of a slice
_SEPARATOR = "\0"  # the one character that no word of a command line has

app = typer.Typer(no_args_is_help=True, help="Show, edit, sign, verify, merge and thin Mach-O files.")

_Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Mach-O files, thin or universal.")]
_File = Annotated[Path, typer.Argument(metavar="FILE", help="Mach-O file, thin or universal.")]
_Json = Annotated[bool, typer.Option("--json", help="Write JSON, as described by macho.schema.json.")]
_Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; FILE stays as it is.")
]


@command(app, "show")
def show(session: Session, files: _Files, *, json: _Json = False) -> None:
    """Show headers and signatures, slice by slice. Nothing is verified."""
    from macbuild.macho.file import open_macho

    reports: list[dict[str, Any]] = []
    for path in files:
        with open_macho(check_given(path)) as macho:
            slices = [_image_facts(image) for image in macho.images]
            reports.append({"path": str(path), "universal": macho.is_fat, "slices": slices})
    if json:
        session.print_json({"version": REPORT_VERSION, "files": reports})
        return
    for report in reports:
        _print_lines(session, _show_lines(report))


@command(app, "verify")
def verify(session: Session, files: _Files, *, json: _Json = False) -> None:
    """Verify the signature of every slice.

    Each page, sealed part and length is checked. Stops with exit code 13 at the first mismatch.
    """
    from macbuild.macho.verify import verify_file

    reports: list[dict[str, Any]] = []
    for path in files:
        slices = [
            {"arch": facts.arch, "signature": _signature_facts(facts)} for facts in verify_file(check_given(path))
        ]
        reports.append({"path": str(path), "slices": slices})
    if json:
        session.print_json({"version": REPORT_VERSION, "files": reports})
        return
    for report in reports:
        for entry in report["slices"]:
            line = f"{report['path']} ({entry['arch']}): valid; {_signature_line(entry['signature'])}"
            session.print_line(_plain(line))


_NewId = Annotated[str | None, typer.Option("--id", metavar="NAME", help="Set the install name.")]
_Change = Annotated[
    list[str] | None, typer.Option("--change", metavar="OLD NEW", help="Change a dependency; repeatable.")
]
_Remove = Annotated[list[str] | None, typer.Option("--remove", metavar="NAME", help="Remove a dependency; repeatable.")]
_Weaken = Annotated[
    list[str] | None, typer.Option("--weaken", metavar="NAME", help="Allow a dependency to be missing; repeatable.")
]
_AddRpath = Annotated[
    list[str] | None, typer.Option("--add-rpath", metavar="PATH", help="Add an rpath at the end; repeatable.")
]
_DeleteRpath = Annotated[
    list[str] | None,
    typer.Option("--delete-rpath", metavar="PATH", help="Delete all occurrences of an rpath; repeatable."),
]
_ReplaceRpath = Annotated[
    list[str] | None, typer.Option("--replace-rpath", metavar="OLD NEW", help="Replace an rpath; repeatable.")
]
_SetRpaths = Annotated[
    list[str] | None,
    typer.Option("--set-rpaths", metavar="PATH", help="Replace all rpaths by these, in order; repeatable."),
]
_Arch = Annotated[
    list[str] | None,
    typer.Option("--arch", metavar="ARCH", help="Edit this slice only: arm64, arm64e or x86_64; repeatable."),
]
_Deduplicate = Annotated[
    bool, typer.Option("--deduplicate-rpaths", help="Keep only the first of several equal rpaths.")
]
_Minimum = Annotated[str | None, typer.Option("--minimum-macos", metavar="X.Y", help="Set the minimum macOS.")]
_Strip = Annotated[bool, typer.Option("--strip-signature", help="Remove the code signature.")]


class _PairCommand(Command):
    """Parse `--change` and `--replace-rpath`, which take two words each and which Typer cannot repeat."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        joined: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            joined.append(word)
            if word == "--":
                break
            if word in {"--change", "--replace-rpath"}:
                if len(rest) < 2:
                    raise UsageError("takes two words, the old and the new one", where=word)
                joined.append(_SEPARATOR.join((rest.pop(0), rest.pop(0))))
        return super().parse_args(ctx, [*joined, *rest])


@command(app, "edit", cls=_PairCommand)
def edit(
    session: Session,
    file: _File,
    *,
    new_id: _NewId = None,
    change: _Change = None,
    remove: _Remove = None,
    weaken: _Weaken = None,
    add_rpath: _AddRpath = None,
    delete_rpath: _DeleteRpath = None,
    replace_rpath: _ReplaceRpath = None,
    set_rpaths: _SetRpaths = None,
    deduplicate_rpaths: _Deduplicate = False,
    minimum_macos: _Minimum = None,
    strip_signature: _Strip = False,
    arch: _Arch = None,
    output: _Output = None,
) -> None:
    """Edit install names, rpaths, minimum macOS or signature.

    All edits are done in one pass. A valid signature stays valid. The file is replaced by a new one, never written in
    place.
    """
    from macbuild.macho.edit import Edits, edit_file
    from macbuild.target import pack_version

    for name in arch or ():
        _check_arch(name, "--arch")
    edits = Edits(
        id=new_id,
        change=_pairs("--change", change),
        remove=frozenset(remove or ()),
        weaken=frozenset(weaken or ()),
        rpaths=tuple(set_rpaths) if set_rpaths else None,
        add_rpaths=tuple(add_rpath or ()),
        delete_rpaths=tuple(delete_rpath or ()),
        replace_rpaths=_pairs("--replace-rpath", replace_rpath),
        deduplicate_rpaths=deduplicate_rpaths,
        minos=None if minimum_macos is None else pack_version(minimum_macos),
        strip_signature=strip_signature,
    )
    if edits == Edits():
        raise UsageError("nothing to change", where=file, hint="macbuild macho edit --help lists the edits")
    changed = edit_file(check_given(file), edits, output=output, archs=frozenset(arch) if arch else None)
    session.say(f"{_plain(str(output or file))}: {'edited' if changed else 'nothing to change'}")


@command(app, "sign")
def sign(
    session: Session,
    file: _File,
    *,
    identifier: Annotated[
        str | None,
        typer.Option(
            "--identifier", metavar="NAME", help="Signing identifier (default: the old one, else from the file name)."
        ),
    ] = None,
    runtime: Annotated[bool, typer.Option("--runtime", help="Set the hardened runtime flag, and no other.")] = False,
    entitlements: Annotated[
        Path | None,
        typer.Option("--entitlements", metavar="FILE", help="Entitlements, an XML property list; empty removes them."),
    ] = None,
    preserve: Annotated[
        bool,
        typer.Option(
            "--preserve/--no-preserve",
            help="Keep identifier, flags, entitlements and requirements of the old signature, or drop them.",
        ),
    ] = True,
    output: _Output = None,
) -> None:
    """Sign every slice ad hoc. The file is replaced by a new one, never written in place."""
    from macbuild.files import os_errors
    from macbuild.macho.codesign import CodeFlag
    from macbuild.macho.sign import SignOptions, sign_file

    plist = None
    if entitlements is not None:
        with os_errors(check_given(entitlements)):
            plist = entitlements.read_bytes()
    options = SignOptions(
        identifier=identifier,
        flags=CodeFlag.RUNTIME if runtime else None,
        entitlements=plist,
        preserve=preserve,
    )
    sign_file(check_given(file), options, output=output)
    session.say(f"{_plain(str(output or file))}: signed ad hoc")


@command(app, "merge")
def merge(
    session: Session,
    inputs: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of different architectures.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The universal file to write.")],
) -> None:
    """Merge files into a universal one.

    The signatures of the slices stay valid.
    """
    from macbuild.macho.fat import merge as merge_files

    merge_files([check_given(path) for path in inputs], output)
    session.say(f"{_plain(str(output))}: merged from {len(inputs)} files")


@command(app, "thin")
def thin(
    session: Session,
    file: _File,
    arch: Annotated[str, typer.Argument(metavar="ARCH", help="arm64, arm64e or x86_64.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The thin file to write.")],
) -> None:
    """Extract one slice of a universal file."""
    from macbuild.macho.fat import thin as thin_file

    _check_arch(arch, "ARCH")
    thin_file(check_given(file), arch, output)
    session.say(f"{_plain(str(output))}: {arch} of {_plain(str(file))}")


@command(app, "path")
def path(session: Session) -> None:
    """Print a folder with stand-ins for Apple's tools.

    They are codesign, install_name_tool, lipo and otool. With the folder on the PATH, programs that call Apple's tools
    run on Linux:

    PATH="$(macbuild macho path):$PATH" delocate-wheel x.whl
    """
    from macbuild.macho.tools.path import tool_folder

    typer.echo(str(tool_folder(session.project.store.root / "tools")))


def _check_arch(arch: str, where: str) -> None:
    if arch not in _ARCHS:
        raise UsageError(f"unknown architecture {arch!r}", where=where, hint=f"choose from {', '.join(_ARCHS)}")


def _pairs(option: str, words: Sequence[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for old, new in (word.split(_SEPARATOR) for word in words or ()):
        if found.setdefault(old, new) != new:
            raise UsageError(f"two different new names for {old}", where=option)
    return found


def _image_facts(image: Image) -> dict[str, Any]:
    from macbuild.macho.constants import Platform
    from macbuild.macho.verify import read_signature
    from macbuild.target import format_version

    build = image.build_version
    platforms = {int(platform): platform.name.lower() for platform in Platform}
    signature = read_signature(image)
    return {
        "arch": image.arch,
        "kind": image.kind.lower(),
        "id": None if image.id is None else _dylib_facts(image.id),
        "dependencies": [_dylib_facts(dylib) for dylib in image.dylibs],
        "rpaths": list(image.rpaths),
        "platform": None if build is None else platforms.get(build.platform, str(build.platform)),
        "minimum_macos": format_version(build.minos) if build and build.platform == Platform.MACOS else None,
        "sdk": format_version(build.sdk) if build and build.sdk else None,
        "uuid": image.uuid,
        "header_room": image.header_room,
        "signature": None if signature is None else _signature_facts(signature),
    }


def _dylib_facts(dylib: Dylib) -> dict[str, Any]:
    from macbuild.macho.constants import LC
    from macbuild.target import format_version

    kinds = {LC.ID_DYLIB: "id", LC.LOAD_DYLIB: "load", LC.LOAD_WEAK_DYLIB: "weak", LC.REEXPORT_DYLIB: "reexport"}
    kinds |= {LC.LAZY_LOAD_DYLIB: "lazy", LC.LOAD_UPWARD_DYLIB: "upward"}
    return {
        "name": dylib.name,
        "kind": kinds[LC(dylib.cmd)],
        "current_version": format_version(dylib.current_version),
        "compatibility_version": format_version(dylib.compatibility_version),
    }


def _signature_facts(facts: SignatureFacts) -> dict[str, Any]:
    values = asdict(facts)
    del values["arch"]
    return values


def _show_lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield report["path"]
    for facts in report["slices"]:
        yield f"  {facts['arch']} {facts['kind']}"
        if facts["id"] is not None:
            yield f"    id             {_dylib_line(facts['id'])}"
        yield f"    minimum macOS  {facts['minimum_macos'] or 'not given'}, SDK {facts['sdk'] or 'not given'}"
        if facts["platform"] not in {None, "macos"}:
            yield f"    platform       {facts['platform']}"
        yield f"    UUID           {facts['uuid'] or 'none'}"
        yield f"    header room    {facts['header_room']} bytes"
        yield f"    signature      {_signature_line(facts['signature'])}"
        for title, values in (("dependencies", map(_dylib_line, facts["dependencies"])), ("rpaths", facts["rpaths"])):
            label = f"{title:<13}"
            for value in values:
                yield f"    {label}  {value}"
                label = " " * 13


def _dylib_line(dylib: Mapping[str, Any]) -> str:
    kind = "" if dylib["kind"] in {"id", "load"} else f", {dylib['kind']}"
    versions = f"current {dylib['current_version']}, compatibility {dylib['compatibility_version']}"
    return f"{dylib['name']} ({versions}{kind})"


def _signature_line(signature: Mapping[str, Any] | None) -> str:
    if signature is None:
        return "none"
    parts = [signature["kind"], signature["identifier"], "+".join(signature["hashes"])]
    parts.append(f"{signature['pages']} pages of {signature['page_size']} bytes")
    parts += [f"flag {flag}" for flag in signature["flags"] if flag not in {"adhoc", "linker-signed"}]
    if signature["entitlements"]:
        parts.append("with entitlements")
    parts.append(f"cdhash {signature['cdhash']}")
    parts += [f"not checked: {what}" for what in signature["unchecked"]]
    return ", ".join(parts)


def _print_lines(session: Session, lines: Iterator[str]) -> None:
    for line in lines:
        session.print_line(_plain(line), _DETAILS)


def _plain(text: str) -> str:
    """Escape what a terminal would obey or could not show: names in a file may be hostile."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
