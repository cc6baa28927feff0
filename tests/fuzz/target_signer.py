"""Fuzz the signer and the verifier: a fresh signature verifies, and after any change it does not."""

from __future__ import annotations

import contextlib

from macbuild.errors import MacbuildError, MachOError, SignatureError
from macbuild.macho.file import parse_macho
from macbuild.macho.image import Image
from macbuild.macho.sign import SignOptions, refresh, sign_bytes
from macbuild.macho.verify import SignatureFacts, read_signature, verify_image
from tests.fuzz.common import split

_ENTITLEMENTS = (
    None,
    b"",
    b'<plist version="1.0"><dict><key>k</key><true/></dict></plist>',
    b"<plist><array/></plist>",
)
_REQUIREMENTS = (None, b"\xfa\xde\x0c\x01\0\0\0\x0c\0\0\0\0", b"\xfa\xde\x0c\x01\0\0\0\x0d\0\0\0\0", b"")
_IDENTIFIERS = (None, "org.example.x", "x" * 40, "")


def check(data: bytes) -> None:
    """Verify the image unchanged, sign it as the control bytes say, change it and verify again."""
    control, content = split(data)
    with contextlib.suppress(MacbuildError):
        for image in parse_macho(content).images:
            _check_given(image)
    try:
        signed = sign_bytes(content, "libfuzz.1.dylib", _options(control))
    except MacbuildError:
        return
    facts = verify_image(_image(signed))
    again = verify_image(_image(sign_bytes(signed, "other.dylib")))
    assert again.cdhash == facts.cdhash, "signing again changed the code directories"
    place = int.from_bytes(control[2:6], "little") % len(signed)
    _check_changed(signed, place, control[6] or 1, facts)
    _check_refresh(signed, place, control[7])


def _image(data: bytes) -> Image:
    return Image(data, 0, len(data), "fuzz")


def _options(control: bytes) -> SignOptions:
    choice = int.from_bytes(control[:2], "little")
    return SignOptions(
        identifier=_IDENTIFIERS[choice & 3],
        entitlements=_ENTITLEMENTS[choice >> 2 & 3],
        requirements=_REQUIREMENTS[choice >> 4 & 3],
        flags=(None, 0, 0x10000, 0x20000)[choice >> 6 & 3],
        preserve=not choice >> 8 & 1,
    )


def _check_given(image: Image) -> None:
    with contextlib.suppress(MacbuildError):
        read_signature(image)
    with contextlib.suppress(MacbuildError):
        facts = verify_image(image)
        assert facts == read_signature(image)


def _check_changed(signed: bytes, place: int, change: int, before: SignatureFacts) -> None:
    """Change one byte; only bytes that no code directory covers may go unnoticed."""
    changed = bytearray(signed)
    changed[place] ^= change
    try:
        after = verify_image(_image(bytes(changed)))
    except (MachOError, SignatureError):
        return
    assert place >= before.code_limit
    assert after == before


def _check_refresh(signed: bytes, place: int, value: int) -> None:
    """Overwrite some bytes, refresh their hashes and verify; if that is refused nothing may change."""
    stop = min(place + 1 + value, len(signed))
    changed = bytearray(signed)
    changed[place:stop] = bytes([value]) * (stop - place)
    before = bytes(changed)
    try:
        image = Image(changed, 0, len(changed), "fuzz")
    except MachOError:
        return
    if refresh(image, [(place, stop)]):
        verify_image(_image(bytes(changed)))
    else:
        assert changed == before
