"""Draw the files of an artifact as areas in proportion to their sizes, and list the largest files and folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from macbuild.cli.report.markup import Html, clip, count, el, percent, picture, share
from macbuild.package.manifest import FileRecord
from macbuild.units import size

__all__ = ["Area", "Part", "by_folder", "largest", "parts", "squarify", "treemap"]

_ALONE = 0.01  # A file with this share of the bytes has its own area.
_SEEN = 0.0015  # A folder with less is counted among the rest.
_MOST = 40
_GIANT = 0.5  # A file with more than this share is shown separately, so that the others are visible.
_WORTH = 0.05  # Share that the others must have to be shown in areas beside a giant.
_HUES = 6
_LONGEST_NAME = 300
_LETTER = 7.2  # Width of a letter in the picture.
_LETTERS = 6  # A shorter part of a name is not shown.
_WIDTH, _HEIGHT = 1000.0, 300.0  # Shape that the areas are laid out for; the picture stretches.


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the bytes: a file, or the files of a folder that are not parts by themselves."""

    name: str
    size: int
    files: int

    @property
    def group(self) -> str:
        """The folders, at most two, that share a colour."""
        return "/".join(self.name.split("/")[:-1][:2])


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
        # A side of nearly 0 is rounded so much that the depth would reach out of the picture.
        depth = min(sum(part.size for part in waiting[:row]) * scale / side, max(width, height))
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
    """Return a picture of the sizes in an artifact."""
    found = parts(records)
    whole = sum(part.size for part in found)
    if not whole:
        return el("p", "The artifact is empty.", class_="quiet")
    first = found[0]
    title = f"{name} holds {size(whole)}"
    if first.files > 1 or first.size <= whole * _GIANT:
        return el("figure", _areas(found, whole, title), el("figcaption", f"{title}."))
    title = f"{title}, of which {clip(first.name, _LONGEST_NAME)} is {share(first.size, whole)}"
    others = whole - first.size
    if others < whole * _WORTH:
        return el("figure", _strip(first, whole, title), el("figcaption", f"{title}."))
    found = parts([record for record in records if record.path != first.name])
    rest = f"The areas are the other {size(others)}"
    return el("figure", _strip(first, whole, title), _areas(found, whole, rest), el("figcaption", f"{title}. {rest}."))


def _strip(first: Part, whole: int, title: str) -> Html:
    """Return a bar of the whole with the share of its largest file."""
    detail = f"{first.name.rpartition('/')[2]}: {size(first.size)}, {share(first.size, whole)}"
    shapes = [
        el("rect", width="100%", height="100%", class_="others"),
        el("rect", width=percent(first.size / whole), height="100%"),
        el("text", detail, x=9, y=21),
    ]
    return picture(title, *shapes, class_="treemap strip", width="100%", height=34)


def _areas(found: Sequence[Part], whole: int, title: str) -> Html:
    sizes: dict[str, int] = {}
    for part in found:
        sizes[part.group] = sizes.get(part.group, 0) + part.size
    hues = {group: min(hue, _HUES - 1) for hue, group in enumerate(sorted(sizes, key=lambda group: -sizes[group]))}
    shapes = [_area(area, hues[area.part.group], whole) for area in squarify(found)]
    return picture(f"{title}. The tables below say the same.", *shapes, class_="treemap", width="100%", height=_HEIGHT)


def _area(area: Area, hue: int, whole: int) -> Html:
    part = area.part
    files = "" if part.files == 1 else f", {count(part.files, 'file')}"
    detail = f"{size(part.size)}, {share(part.size, whole)}{files}"
    label = part.name.rstrip("/").rpartition("/")[2] + ("/" if part.name.endswith("/") else "")
    words: list[Html] = []
    wide, high = area.width * _WIDTH, area.height * _HEIGHT
    fits = int((wide - 14) / _LETTER)
    if fits >= min(len(label), _LETTERS) and high > 24:
        label = label if len(label) <= fits else f"{label[: fits - 1]}…"
        narrow = "small" if wide < 320 else None
        words.append(el("text", label, x=9, y=20, class_=narrow))
        if high > 44 and fits >= len(detail):
            words.append(el("text", detail, x=9, y=38, class_="detail small" if wide < 640 else "detail"))
    return el(
        "svg",
        el("title", f"{clip(part.name, _LONGEST_NAME)}: {detail}"),
        el("rect", width="100%", height="100%"),
        *words,
        x=percent(area.x),
        y=percent(area.y),
        width=percent(area.width),
        height=percent(area.height),
        class_=f"hue{hue}",
    )
