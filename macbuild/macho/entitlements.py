"""Read property lists, and encode entitlements in DER."""

from __future__ import annotations

from macbuild.errors import SignatureError
from macbuild.macho.codesign import ExecFlag

__all__ = ["entitlements_der", "exec_flags", "load_plist"]

MAX_DEPTH = 32
_NAME = "property list of the entitlements"
_EXEC_FLAGS = {
    "get-task-allow": ExecFlag.ALLOW_UNSIGNED,
    "run-unsigned-code": ExecFlag.ALLOW_UNSIGNED,
    "com.apple.private.cs.debugger": ExecFlag.DEBUGGER,
    "dynamic-codesigning": ExecFlag.JIT,
    "com.apple.private.skip-library-validation": ExecFlag.SKIP_LIBRARY_VALIDATION,
    "com.apple.private.amfi.can-load-cdhash": ExecFlag.CAN_LOAD_CDHASH,
    "com.apple.private.amfi.can-execute-cdhash": ExecFlag.CAN_EXEC_CDHASH,
}


def load_plist(data: bytes, what: str, where: object) -> dict[str, object]:
    """Read an XML property list that must be a dictionary; anything else is a `SignatureError` about `what`."""
    import plistlib
    from xml.parsers.expat import ExpatError

    try:
        value = plistlib.loads(data, fmt=plistlib.FMT_XML)
    except (ExpatError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise SignatureError(f"the {what} is not an XML property list: {error}", where=where) from error
    if not isinstance(value, dict):
        raise SignatureError(f"the {what} is not a dictionary", where=where)
    return value


def entitlements_der(xml: bytes, where: object) -> bytes:
    """Encode entitlements in DER, which macOS 12 and later read.

    Raises
    ------
    SignatureError
        If they are not an XML property list of a dictionary with booleans, integers, strings, lists and dictionaries.

    Source: an APPLICATION 16 that holds the version 1 and a CONTEXT 16 of sorted pairs, as Apple's CoreEntitlements
    defines it.
    """
    entitlements = load_plist(xml, _NAME, where)
    return _der(0x70, _der(0x02, b"\1") + _der_value(entitlements, MAX_DEPTH, where))


def exec_flags(xml: bytes, where: object) -> int:
    """Return the flags of the executable segment that follow from entitlements, as Apple's codesign derives them."""
    entitlements = load_plist(xml, _NAME, where)
    return sum({flag for name, flag in _EXEC_FLAGS.items() if entitlements.get(name) is True})


def _der_value(value: object, depth: int, where: object) -> bytes:
    if depth:
        if isinstance(value, bool):
            return _der(0x01, b"\xff" if value else b"\0")
        if isinstance(value, int):
            return _der(0x02, value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True))
        if isinstance(value, str):
            return _der(0x0C, value.encode())
        if isinstance(value, list):
            return _der(0x30, b"".join(_der_value(item, depth - 1, where) for item in value))
        if isinstance(value, dict):
            pairs = (
                _der(0x0C, key.encode()) + _der_value(item, depth - 1, where) for key, item in sorted(value.items())
            )
            return _der(0xB0, b"".join(_der(0x30, pair) for pair in pairs))
    raise SignatureError(f"entitlements cannot hold a {type(value).__name__} here", where=where)


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content
