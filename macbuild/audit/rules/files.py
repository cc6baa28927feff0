"""Check the files of the tree: their kind, mode, links, attributes and signatures."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Iterator

from macbuild.audit.attributes import QUARANTINE
from macbuild.audit.context import AuditContext, Check, Hit
from macbuild.audit.tree import AuditedFile, AuditedTree
from macbuild.files import os_errors

__all__ = ["CHECKS"]

_SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_APPLE_DOUBLE_MAGIC = b"\x00\x05\x16\x07"  # RFC 1740
_APPLE_DOUBLE_LIMIT = 1 << 20


def _readable(context: AuditContext) -> Iterator[Hit]:
    for macho in context.tree.machos.values():
        if macho.error is not None:
            yield Hit("malformed", macho.path, None, macho.error, "rebuild or replace the file")
    if not context.tree.machos:
        yield Hit("no-macho", ".", None, "there is no Mach-O file", "check that this is the right path")
    if context.tree.archives:
        count = len(context.tree.archives)
        yield Hit(
            "static-archive",
            context.tree.archives[0],
            None,
            f"{count} static archive{'s' if count > 1 else ''}, not examined",
            "nothing to do if they are meant to be shipped",
        )


def _modes(context: AuditContext) -> Iterator[Hit]:
    for entry in context.tree.entries.values():
        kind = stat.S_IFMT(entry.mode)
        if kind in _SPECIAL:
            yield Hit("special-file", entry.path, None, f"is {_SPECIAL[kind]}", "remove it")
        elif entry.mode & (stat.S_ISUID | stat.S_ISGID) and kind == stat.S_IFREG:
            yield Hit("file-mode", entry.path, None, "is setuid or setgid", "chmod ug-s")
        elif entry.mode & stat.S_IWOTH and kind != stat.S_IFLNK:
            yield Hit("file-mode", entry.path, None, "can be written by everyone", "chmod o-w")


def _links(context: AuditContext) -> Iterator[Hit]:
    for entry in context.tree.entries.values():
        if entry.target is None:
            continue
        where, _ = context.tree.resolve(entry.path)
        if where == "outside":
            message = f"leads out of the tree, to {entry.target}"
            yield Hit("link-escape", entry.path, None, message, "make it a relative link to a file of the tree")
        elif where == "missing":
            message = f"leads to {entry.target}, which does not exist"
            yield Hit("link-dangling", entry.path, None, message, "add the file or remove the link")


def _attributes(context: AuditContext) -> Iterator[Hit]:
    for entry in context.tree.entries.values():
        double = stat.S_ISREG(entry.mode) and _apple_double(context.tree, entry)
        if entry.quarantined or (double and QUARANTINE.encode() in double):
            message = f"carries {QUARANTINE}: Gatekeeper will ask or refuse"
            yield Hit("quarantine", entry.path, None, message, f"xattr -d {QUARANTINE}, or pack without attributes")
        elif double:
            yield Hit(
                "apple-double",
                entry.path,
                None,
                "holds the attributes of another file, written by an archiver on a Mac",
                "remove it; pack with COPYFILE_DISABLE=1",
            )


def _apple_double(tree: AuditedTree, entry: AuditedFile) -> bytes | None:
    if not posixpath.basename(entry.path).startswith("._"):
        return None
    place = tree.root / entry.path
    with os_errors(place), place.open("rb") as file:
        data = file.read(_APPLE_DOUBLE_LIMIT)
    return data if data.startswith(_APPLE_DOUBLE_MAGIC) else None


def _signatures(context: AuditContext) -> Iterator[Hit]:
    for entry in context.linked():
        if not entry.signed:
            arm = entry.arch != "x86_64"
            message = "is not signed" + (": macOS kills a process that loads it" if arm else "")
            rule = "unsigned-arm64" if arm else "unsigned"
            yield Hit(rule, entry.path, entry.arch, message, "macbuild macho sign FILE")
        elif entry.signature is not None:
            yield Hit("signature", entry.path, entry.arch, entry.signature, "macbuild macho sign FILE")


CHECKS: tuple[Check, ...] = (_readable, _modes, _links, _attributes, _signatures)
