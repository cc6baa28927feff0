"""Check the header of each slice: architecture, platform, versions, room, name, rpaths."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator

from macbuild.audit.context import AuditContext, Check, Hit
from macbuild.audit.graph import expand
from macbuild.audit.tree import AuditedSlice, MachO
from macbuild.macho.constants import Platform
from macbuild.macho.system import is_system
from macbuild.target import format_version

__all__ = ["CHECKS"]


def _architectures(context: AuditContext) -> Iterator[Hit]:
    files = [macho for macho in context.tree.machos.values() if any(entry.linked for entry in macho.slices)]
    claimed = context.claim.archs
    wanted = claimed or frozenset(entry.arch for macho in files for entry in macho.slices)
    for macho in files:
        yield from _architecture(macho, wanted, claimed=claimed is not None)


def _architecture(macho: MachO, wanted: frozenset[str], *, claimed: bool) -> Iterator[Hit]:
    have = {entry.arch for entry in macho.slices}
    for arch in sorted(wanted - have):
        reason = "which is claimed" if claimed else "which other files of the tree have"
        message = f"has no slice for {arch}, {reason}"
        yield Hit("arch-missing", macho.path, arch, message, "merge the missing slice: macbuild macho merge")
    for arch in sorted(have - wanted):
        message = f"has a slice for {arch}, which is not claimed"
        yield Hit("arch-extra", macho.path, arch, message, "keep only the claimed slices: macbuild macho thin")


def _versions(context: AuditContext) -> Iterator[Hit]:
    for entry in context.linked():
        build = entry.build
        if build is None:
            message = "names no minimum macOS (no LC_BUILD_VERSION)"
            yield Hit("minimum-os", entry.path, entry.arch, message, "macbuild macho edit --minimum-macos VERSION")
            continue
        if build.platform != Platform.MACOS:
            name = Platform(build.platform).name if build.platform in set(Platform) else str(build.platform)
            yield Hit("platform", entry.path, entry.arch, f"is for platform {name}", "use the build for macOS")
        if not build.sdk:
            message = "names no SDK, on which the behaviour of system libraries depends"
            yield Hit("sdk", entry.path, entry.arch, message, "link with -platform_version macos MINIMUM SDK")
        yield from _minimum(context, entry, build.minos)


def _minimum(context: AuditContext, entry: AuditedSlice, minimum: int) -> Iterator[Hit]:
    claimed = context.claim.minimum.get(entry.arch)
    if claimed is None or minimum <= claimed:
        return
    text = f"needs macOS {format_version(minimum)}, but {format_version(claimed)} is claimed"
    if context.claim.by_tag and _in_tag(minimum) == _in_tag(claimed):
        hint = "say so in the documentation: a wheel tag cannot express it"
        yield Hit("minimum-os-finer", entry.path, entry.arch, text, hint)
    else:
        hint = f"build it for the older macOS, or claim {format_version(minimum)}"
        yield Hit("minimum-os", entry.path, entry.arch, text, hint)


def _in_tag(version: int) -> int:
    """Return the part of a packed version that a wheel tag has: major from macOS 11 on, major and minor before it."""
    return version >> 16 if version >> 16 >= 11 else version >> 8


def _room(context: AuditContext) -> Iterator[Hit]:
    wanted = context.parameters.header_room
    for entry in context.linked():
        if entry.header_room < wanted:
            message = f"{entry.header_room} bytes are free after the load commands, {wanted} are needed"
            yield Hit("header-room", entry.path, entry.arch, message, "link with -Wl,-headerpad,0x1000")


def _two_level(context: AuditContext) -> Iterator[Hit]:
    for entry in context.linked():
        if not entry.two_level:
            message = "has a flat namespace: any image may provide any of its symbols"
            yield Hit("two-level", entry.path, entry.arch, message, "link without -flat_namespace")


def _names(context: AuditContext) -> Iterator[Hit]:
    for entry in context.linked():
        if entry.kind == "DYLIB":
            yield from _dylib_name(context, entry)
        elif entry.id is not None:
            message = f"a {entry.kind.lower()} with the install name {entry.id.name}"
            yield Hit("install-name", entry.path, entry.arch, message, "link it without -install_name")


def _dylib_name(context: AuditContext, entry: AuditedSlice) -> Iterator[Hit]:
    leaf = posixpath.basename(entry.path)
    hint = f"macbuild macho edit --id @rpath/{leaf}"
    if entry.id is None:
        yield Hit("install-name", entry.path, entry.arch, "a dylib without an install name", hint)
        return
    name = entry.id.name
    if name.startswith("@rpath/"):
        own = posixpath.basename(name)
        where, _ = context.tree.resolve(posixpath.join(entry.folder, own))
        if where != "inside" or not own:
            message = f"is named {name}, but no {own} is beside it: files that link it will not find it"
            yield Hit("install-name-file", entry.path, entry.arch, message, f"{hint}, or add a link {own}")
    elif not name.startswith(tuple(context.parameters.install_name_prefixes)):
        yield Hit("install-name", entry.path, entry.arch, f"is named {name}, not @rpath/{leaf}", hint)


def _rpaths(context: AuditContext) -> Iterator[Hit]:
    hint = "macbuild macho edit --delete-rpath RPATH, then add the relative one that is needed"
    for entry in context.linked():
        for rpath, count in Counter(entry.rpaths).items():
            if count > 1:
                message = f"the rpath {rpath} is listed {count} times: macOS 15.4 and later refuse to load the file"
                yield Hit(
                    "duplicate-rpath", entry.path, entry.arch, message, "macbuild macho edit --deduplicate-rpaths"
                )
        unique = dict.fromkeys(entry.rpaths)
        absolute = [rpath for rpath in unique if _is_absolute(rpath)]
        if absolute:
            message = f"rpaths that are not relative to the file: {', '.join(absolute)}"
            yield Hit("absolute-rpath", entry.path, entry.arch, message, hint)
        escaping = [rpath for rpath in unique if _escapes(context, entry, rpath)]
        if escaping:
            message = f"rpaths that lead out of the tree: {', '.join(escaping)}"
            yield Hit("escaping-rpath", entry.path, entry.arch, message, hint)


def _is_absolute(rpath: str) -> bool:
    """Tell whether an rpath names a folder of one machine or depends on the working directory."""
    return not (f"{rpath}/".startswith(("@loader_path/", "@executable_path/")) or is_system(f"{rpath}/"))


def _escapes(context: AuditContext, entry: AuditedSlice, rpath: str) -> bool:
    folders = expand(rpath, entry, [entry.folder] if entry.kind == "EXECUTE" else [])
    return any(not folder.startswith("/") and context.tree.resolve(folder)[0] == "outside" for folder in folders)


CHECKS: tuple[Check, ...] = (_architectures, _versions, _room, _two_level, _names, _rpaths)
