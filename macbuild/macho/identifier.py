"""Derive the signing identifier of a file that does not name one, as Apple's codesign does.

Source: `DiskRep::canonicalIdentifier`, `SecCodeSigner::Signer::prepare` and `MachORep::identificationFor` of Apple's
Security.
"""

from __future__ import annotations

import hashlib
import re

from macbuild.macho.entitlements import load_plist
from macbuild.macho.image import HEADER_SIZE, Image
from macbuild.macho.verify import info_plist

__all__ = ["default_identifier"]

_DIGITS = "0123456789"


def default_identifier(image: Image, name: str) -> str:
    """Derive a signing identifier from a file name as `codesign --sign -` does.

    The result is the bundle identifier of an embedded Info.plist. Without one, the extension is dropped unless it is a
    number, all numbers at the end but the first are dropped, and a name without a dot gets the UUID of the image (or
    the SHA-1 hash of its load commands).
    """
    section = info_plist(image)
    if section is not None:
        bundle = load_plist(image.read(section.offset, section.size), "embedded Info.plist", image.where)
        if isinstance(identifier := bundle.get("CFBundleIdentifier"), str) and identifier:
            return identifier
    stem, _, extension = name.rpartition(".")
    if extension and extension[0] not in _DIGITS:
        name = stem or name
    if name[:1] not in f"{_DIGITS}.":
        stem = name.rstrip(f"{_DIGITS}.")
        first_number = re.match(r"\.?[0-9]*", name[len(stem) :])
        name = stem + (first_number[0] if first_number else "")
    if "." in name:
        return name
    if image.uuid is not None:
        return f"{name}-{b'UUID'.hex()}{image.uuid}"
    # Of the header only the 28 bytes that a 32-bit one has.
    commands = image.read(0, 28) + image.read(HEADER_SIZE, image.sizeofcmds)
    return f"{name}-{hashlib.sha1(commands, usedforsecurity=False).hexdigest()}"
