"""Build HTML and SVG as strings in which every text is escaped, because file names and messages are hostile."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "Cell",
    "Column",
    "Html",
    "box",
    "clip",
    "count",
    "el",
    "join",
    "percent",
    "picture",
    "printable",
    "share",
    "table",
]

_VOID = frozenset({"meta", "link", "br"})


class Html(str):
    """A string that is markup already; every other string is text and is escaped where it enters markup."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Its kind decides how it is shown: text, number, bar, or a note that speaks for itself."""

    name: str
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with a CSS class."""

    content: str
    style: str


def printable(text: str) -> str:
    """Return a text in which characters that hide, reorder or cannot be encoded are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode("ascii") if ord(char) > 0x7F else f"\\x{ord(char):02x}"


def clip(text: str, most: int) -> str:
    """Return the first characters of a text that may be endless, saying how many are left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def _markup(child: str) -> str:
    return child if isinstance(child, Html) else html.escape(printable(child))


def el(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """Return an element.

    Parameters
    ----------
    name
        Of the element, in HTML or SVG.
    children
        Text, which is escaped, or `Html`.
    attributes
        `class_` stands for `class`, other underscores for hyphens; None leaves the attribute out.
    """
    given = [
        f' {key.rstrip("_").replace("_", "-")}="{_markup(value if isinstance(value, str) else f"{value:g}")}"'
        for key, value in attributes.items()
        if value is not None
    ]
    start = f"<{name}{''.join(given)}>"
    return Html(start if name in _VOID else f"{start}{''.join(map(_markup, children))}</{name}>")


def join(parts: Iterable[str]) -> Html:
    """Return parts joined, with text among them escaped."""
    return Html("".join(map(_markup, parts)))


def box(label: str, content: Html) -> Html:
    """Return wide content in a box that scrolls sideways by itself, with the keyboard too."""
    return el("div", content, class_="scroll", role="region", aria_label=label, tabindex=0)


def picture(title: str, *shapes: Html, **attributes: str | float | None) -> Html:
    """Return an SVG that is announced by its title."""
    return el("svg", *shapes, role="img", aria_label=title, **attributes)


def table(
    caption: str, columns: Sequence[Column], groups: Iterable[tuple[str, Sequence[Sequence[str | Cell]]]]
) -> Html:
    """Return a table that becomes a list of blocks on a narrow screen.

    Parameters
    ----------
    caption
        What the table is about, for readers who do not see its context.
    columns
        The first one heads its row.
    groups
        Rows below a heading of their own, which may be empty.
    """
    head = [el("th", column.name, scope="col", role="columnheader", class_=column.kind) for column in columns]
    bodies = []
    for heading, rows in groups:
        lines = [el("tr", *_cells(columns, row), role="row") for row in rows]
        if heading:
            title = el("th", heading, colspan=len(columns), scope="rowgroup", role="rowheader")
            lines.insert(0, el("tr", title, class_="group", role="row"))
        bodies.append(el("tbody", *lines, role="rowgroup"))
    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *head, role="row"), role="rowgroup"),
        *bodies,
        role="table",
    )


def _cells(columns: Sequence[Column], row: Sequence[str | Cell]) -> list[Html]:
    cells = []
    for index, (column, value) in enumerate(zip(columns, row, strict=True)):
        content, style = (value.content, f"{column.kind} {value.style}") if isinstance(value, Cell) else (value, "")
        head = {"scope": "row", "role": "rowheader"} if index == 0 else {"role": "cell"}
        style = style or column.kind
        cells.append(el("td" if index else "th", content, class_=style, data_label=column.name, **head))
    return cells


def percent(part: float) -> str:
    """Return a share of 1 as a length in SVG."""
    return f"{100 * part:.3f}".rstrip("0").rstrip(".") + "%"


def share(part: int, whole: int) -> str:
    """Return a share for a person to read."""
    hundredths = 100 * part / whole if whole else 0.0
    return "< 0.1 %" if 0 < hundredths < 0.1 else f"{hundredths:.1f} %"


def count(number: int, thing: str) -> str:
    """Return a number with its noun, as `1 file` or `9,012 files`; a noun that ends in y gets ies."""
    if number == 1:
        return f"1 {thing}"
    return f"{number:,} {thing[:-1]}ies" if thing.endswith("y") else f"{number:,} {thing}s"
