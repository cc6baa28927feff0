"""Where the bytes of an artifact are: areas in proportion to sizes, and rows of the largest files and folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from macbuild.package.manifest import FileRecord
from macbuild.report.markup import Html, count, el, percent, picture, size

__all__ = ["Area", "Part", "by_folder", "largest", "parts", "squarify", "treemap"]

_ALONE = 0.01  # A file with this share of the bytes has its own area.
_SEEN = 0.0015  # A folder with less is counted among the rest.
_MOST = 40
_HUES = 6
_WIDTH, _HEIGHT = 1000.0, 300.0  # Shape that the areas are laid out for; the picture stretches.


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the bytes: a file, or the files of a folder that are not parts by themselves."""

    name: str
    size: int
    files: int

    @property
    def top(self) -> str:
        """The top folder."""
        return self.name.partition("/")[0] if "/" in self.name else ""


@dataclass(frozen=True, slots=True)
class Area:
    """A part with its place, as shares of the picture."""

    part: Part
    x: float
    y: float
    width: float
    height: float


def largest(records: Sequence[FileRecord], most: int) -> list[Part]:
    """Return the largest files, the largest first."""
    files = sorted(records, key=lambda record: (-(record.size or 0), record.path))
    return [Part(record.path, record.size or 0, 1) for record in files[:most] if record.link is None]


def by_folder(records: Iterable[FileRecord], depth: int, most: int) -> list[Part]:
    """Return the bytes below each folder of a depth, the largest first; those after `most` are one part."""
    sizes: dict[str, tuple[int, int]] = {}
    for record in records:
        if record.link is None:
            folders = record.path.split("/")[:-1][:depth]
            name = "/".join([*folders, ""]) if folders else "(top)"
            done, files = sizes.get(name, (0, 0))
            sizes[name] = (done + (record.size or 0), files + 1)
    found = sorted((Part(name, *value) for name, value in sizes.items()), key=lambda part: (-part.size, part.name))
    return _shorten(found, most)


def _shorten(found: list[Part], most: int) -> list[Part]:
    rest = found[most:]
    if len(rest) < 2:
        return found
    name = f"{count(len(rest), 'other folder')}"
    return [*found[:most], Part(name, sum(part.size for part in rest), sum(part.files for part in rest))]


def parts(records: Sequence[FileRecord]) -> list[Part]:
    """Return what the areas show: large files by themselves, all others by folder; together they are all bytes."""
    files = [record for record in records if record.link is None and record.size]
    whole = sum(record.size or 0 for record in files)
    alone = [Part(record.path, record.size or 0, 1) for record in files if (record.size or 0) >= whole * _ALONE]
    alone = sorted(alone, key=lambda part: -part.size)[:_MOST]
    shown = {part.name for part in alone}
    rest = by_folder((record for record in files if record.path not in shown), 2, len(files))
    folders = [part for part in rest if part.size >= whole * _SEEN][:_MOST]
    small = rest[len(folders) :]
    if small:
        folders.append(Part("the rest", sum(part.size for part in small), sum(part.files for part in small)))
    return sorted([*alone, *folders], key=lambda part: (-part.size, part.name))


def squarify(found: Sequence[Part]) -> list[Area]:
    """Return areas in proportion to sizes, near to squares: Bruls, Huizing, van Wijk, "Squarified Treemaps", 2000.

    Parameters
    ----------
    found
        Parts with more than 0 bytes, the largest first.
    """
    whole = sum(part.size for part in found)
    x, y, width, height = 0.0, 0.0, _WIDTH, _HEIGHT
    areas: list[Area] = []
    waiting = list(found)
    while waiting:
        side = min(width, height)
        scale = _WIDTH * _HEIGHT / whole
        row = _row([part.size * scale for part in waiting], side)
        depth = sum(part.size for part in waiting[:row]) * scale / side
        along = 0.0
        for part in waiting[:row]:
            length = part.size * scale / depth
            if width >= height:
                areas.append(Area(part, x / _WIDTH, (y + along) / _HEIGHT, depth / _WIDTH, length / _HEIGHT))
            else:
                areas.append(Area(part, (x + along) / _WIDTH, y / _HEIGHT, length / _WIDTH, depth / _HEIGHT))
            along += length
        if width >= height:
            x, width = x + depth, max(width - depth, 1e-9)
        else:
            y, height = y + depth, max(height - depth, 1e-9)
        del waiting[:row]
    return areas


def _row(areas: Sequence[float], side: float) -> int:
    """Return how many of the areas make the best row along a side."""
    best = _worst(areas[:1], side)
    for taken in range(2, len(areas) + 1):
        worst = _worst(areas[:taken], side)
        if worst > best:
            return taken - 1
        best = worst
    return len(areas)


def _worst(row: Sequence[float], side: float) -> float:
    total = sum(row)
    return max(side * side * max(row) / (total * total), total * total / (side * side * min(row)))


def treemap(name: str, records: Sequence[FileRecord]) -> Html:
    """Return the picture of where the bytes of an artifact are."""
    found = parts(records)
    whole = sum(part.size for part in found)
    if not whole:
        return el("p", "The artifact holds no bytes.", class_="quiet")
    sizes: dict[str, int] = {}
    for part in found:
        sizes[part.top] = sizes.get(part.top, 0) + part.size
    hues = {top: min(hue, _HUES - 1) for hue, top in enumerate(sorted(sizes, key=lambda top: -sizes[top]))}
    shapes = [_area(area, hues[area.part.top], whole) for area in squarify(found)]
    first = found[0]
    title = f"Sizes in {name}: {size(whole)}, of which {first.name} is {percent_of(first.size, whole)}"
    drawing = picture(f"{title}. The tables below say the same.", *shapes, class_="treemap", width="100%", height=300)
    return el("figure", drawing, el("figcaption", f"{title}."))


def _area(area: Area, hue: int, whole: int) -> Html:
    part = area.part
    files = "" if part.files == 1 else f", {count(part.files, 'file')}"
    told = f"{size(part.size)}, {percent_of(part.size, whole)}{files}"
    label = part.name.rstrip("/").rpartition("/")[2] + ("/" if part.name.endswith("/") else "")
    words: list[Html] = []
    wide, high = area.width * _WIDTH, area.height * _HEIGHT
    if wide > 7.5 * len(label) + 14 and high > 24:
        narrow = "small" if wide < 320 else None
        words.append(el("text", label, x=9, y=20, class_=narrow))
        if high > 44 and wide > 7 * len(told) + 14:
            words.append(el("text", told, x=9, y=38, class_=f"told {narrow or ''}".strip()))
    return el(
        "svg",
        el("title", f"{part.name}: {told}"),
        el("rect", width="100%", height="100%"),
        *words,
        x=percent(area.x),
        y=percent(area.y),
        width=percent(area.width),
        height=percent(area.height),
        class_=f"hue{hue}",
    )


def percent_of(part: int, whole: int) -> str:
    """Return a share as a person reads it."""
    share = 100 * part / whole if whole else 0.0
    return "< 0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"
