"""Show addresses without secrets, and find the file names that they end in."""

from __future__ import annotations

import re
from urllib.parse import unquote

__all__ = ["file_name", "redact"]


def redact(url: str) -> str:
    """Return an address without user, password, query and fragment, so that a message or a lock can show it."""
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    if "://" not in bare:
        return bare
    scheme, rest = bare.split("://", 1)
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rsplit('@', 1)[-1]}{slash}{path}"


def file_name(url: str) -> str:
    """Return the file name that an address ends in, with only letters, digits and `._+-`."""
    name = unquote(redact(url).partition("://")[2].partition("/")[2]).rsplit("/", 1)[-1]
    return re.sub(r"[^A-Za-z0-9._+-]", "_", name).lstrip(".-")[-200:] or "download"
