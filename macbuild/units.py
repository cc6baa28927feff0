"""Write sizes and time spans for a person to read."""

from __future__ import annotations

__all__ = ["duration", "size"]

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(number: int) -> str:
    """Return bytes in units of 1000."""
    value, unit = float(number), _UNITS[0]
    for unit in _UNITS:
        if value < 999.95 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{number} B" if unit == "B" else f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """Return a time span in seconds for a person to read."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
