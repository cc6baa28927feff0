"""Check dependencies: each is part of macOS or found in the tree, and is the library that the file was linked with."""

from __future__ import annotations

from collections.abc import Iterator

from macbuild.audit.context import AuditContext, Check, Hit
from macbuild.audit.graph import LoadEdge
from macbuild.audit.system import find_system_library
from macbuild.audit.tree import AuditedSlice
from macbuild.target import format_version

__all__ = ["CHECKS"]


def _dependencies(context: AuditContext) -> Iterator[Hit]:
    for entry in context.linked():
        for link in context.graph.links[entry.path, entry.arch]:
            if link.kind == "system":
                yield from _system(entry, link)
            elif link.kind == "inside":
                yield from _inside(context, entry, link)
            elif link.kind == "external":
                yield from _external(context, entry, link)
            else:
                yield _lost(entry, link)


def _lost(entry: AuditedSlice, link: LoadEdge) -> Hit:
    name = link.dylib.name
    hint = "put the library into the tree and change the dependency to @rpath/..., or add the rpath that leads to it"
    if link.dylib.weak:
        return Hit("missing-weak-dependency", entry.path, entry.arch, f"{name} is not found, but may be missing", hint)
    if link.kind == "absolute":
        message = f"{name} is looked for in a folder that other machines do not have"
        return Hit("absolute-dependency", entry.path, entry.arch, message, hint)
    if link.kind == "outside":
        message = f"{name} is looked for outside the tree ({', '.join(link.tried)})"
        return Hit("escaping-dependency", entry.path, entry.arch, message, hint)
    looked = f"looked at {', '.join(link.tried)}" if link.tried else "no rpath says where to look"
    if not name.startswith("@"):
        looked = "it is looked for in the working directory"
    return Hit("missing-dependency", entry.path, entry.arch, f"{name} is not found: {looked}", hint)


def _inside(context: AuditContext, entry: AuditedSlice, link: LoadEdge) -> Iterator[Hit]:
    name = link.dylib.name
    macho = context.tree.macho(link.place or "")
    target = None if macho is None else macho.slice(entry.arch)
    if macho is None or target is None:
        if macho is not None and macho.error is None:
            have = ", ".join(found.arch for found in macho.slices)
            message = f"{name} has only {have}"
            yield Hit("dependency-slice", entry.path, entry.arch, message, f"provide its {entry.arch} slice")
        return
    if link.lender is not None:
        message = f"{name} is found only if {context.tree.label(link.lender)} was loaded first, by its rpaths"
        yield Hit("borrowed-rpath", entry.path, entry.arch, message, "macbuild macho edit --add-rpath @loader_path/...")
    if target.id is not None:
        yield from _version(entry, link, target.id.compatibility_version, "the tree")


def _version(entry: AuditedSlice, link: LoadEdge, provided: int, where: str) -> Iterator[Hit]:
    asked = link.dylib.compatibility_version
    if asked > provided:
        message = (
            f"{link.dylib.name} is required with compatibility version {format_version(asked)}, "
            f"{where} has {format_version(provided)}"
        )
        yield Hit("dependency-version", entry.path, entry.arch, message, "link against the library that is shipped")


def _external(context: AuditContext, entry: AuditedSlice, link: LoadEdge) -> Iterator[Hit]:
    name = link.dylib.name
    provider = context.providers.get(name, entry.arch)
    archs = context.providers.archs(name)
    if provider is None and archs:
        message = f"the provider of {name} has only {', '.join(archs)}"
        yield Hit("dependency-slice", entry.path, entry.arch, message, f"provide its {entry.arch} slice")
        return
    if provider is not None:
        yield from _version(entry, link, provider.compatibility, provider.path.name)
    if provider is None or context.providers.offers(provider) is None:
        message = f"{name} comes with another package, its symbols were not checked"
        yield Hit("unchecked-provider", entry.path, entry.arch, message, "macbuild audit --provider FILE-OR-FOLDER")


def _system(entry: AuditedSlice, link: LoadEdge) -> Iterator[Hit]:
    path = link.place or ""
    library = find_system_library(path)
    if library is None:
        if not link.dylib.weak:
            message = f"{path} is not on the list of system libraries that may be used"
            hint = "avoid it, or add it to macbuild/audit/system.toml with the macOS that has it"
            yield Hit("system-library", entry.path, entry.arch, message, hint)
        return
    asked = link.dylib.compatibility_version
    if library.greatest is not None and asked > library.greatest:
        message = (
            f"{path} is required with compatibility version {format_version(asked)}, "
            f"macOS has {format_version(library.greatest)}"
        )
        yield Hit("system-version", entry.path, entry.arch, message, "link against an SDK of the system")
    if not link.dylib.weak and entry.build is not None and library.first > entry.build.minos:
        message = f"{path} came with macOS {library.since}, the slice runs on {format_version(entry.build.minos)}"
        yield Hit("system-newer", entry.path, entry.arch, message, "link it weakly, or raise the deployment target")


CHECKS: tuple[Check, ...] = (_dependencies,)
