"""Tell whether macOS marked a file as downloaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["QUARANTINE", "is_quarantined"]

QUARANTINE = "com.apple.quarantine"

if sys.platform == "darwin":
    import ctypes

    _LIBC = ctypes.CDLL(None, use_errno=True)
    _LIBC.getxattr.restype = ctypes.c_ssize_t
    _LIBC.getxattr.argtypes = (
        *(ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p),
        *(ctypes.c_size_t, ctypes.c_uint32, ctypes.c_int),
    )
    _XATTR_NOFOLLOW = 1  # <sys/xattr.h>

    def is_quarantined(path: Path) -> bool:
        """Tell whether a file has the quarantine attribute, by the C library, since Python cannot read it on macOS."""
        return bool(_LIBC.getxattr(os.fsencode(path), QUARANTINE.encode(), None, 0, 0, _XATTR_NOFOLLOW) >= 0)

elif sys.platform == "linux":

    def is_quarantined(path: Path) -> bool:
        """Tell whether a file has the quarantine attribute, which archivers keep on Linux in the user name space."""
        try:
            os.getxattr(path, f"user.{QUARANTINE}", follow_symlinks=False)
        except OSError:
            return False
        return True

else:

    def is_quarantined(path: Path) -> bool:
        """Return False: other systems do not keep the attribute."""
        del path
        return False
