"""Choose the one time stamp of everything in a run's artifacts, so that the same inputs give the same bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from macbuild.errors import ConfigError

__all__ = ["DEFAULT_EPOCH", "LAST_EPOCH", "source_date_epoch"]

# The first and the last second that a zip file, and so a wheel, can hold: 1980-01-01 and 2107-12-31, UTC.
DEFAULT_EPOCH = 315532800
LAST_EPOCH = 4354819199


def source_date_epoch(environ: Mapping[str, str]) -> int:
    """Return the time stamp for everything that is packed: SOURCE_DATE_EPOCH, or 1980-01-01T00:00:00Z without it.

    Parameters
    ----------
    environ
        The environment. The variable is defined at reproducible-builds.org/docs/source-date-epoch: a decimal number of
        seconds since 1970. A time before 1980 is kept; the writer of a zip file must raise it.

    Raises
    ------
    ConfigError
        The variable is set to something that is not a whole number, is negative, or lies after the year 2107.
    """
    text = environ.get("SOURCE_DATE_EPOCH")
    if text is None:
        return DEFAULT_EPOCH
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > LAST_EPOCH:
        raise ConfigError(
            f"{text[:40]!r} is not a time between 1970 and 2107",
            where="SOURCE_DATE_EPOCH",
            hint=f"give whole seconds since 1970 up to {LAST_EPOCH}, or unset it",
        )
    return int(text)
