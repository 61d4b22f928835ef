"""Draws docs/house.svg: the rooms in their layers, and who uses whom, from pyproject.toml and the imports.

A use that follows from others is left out.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

PROJECT: Final = Path(__file__).parents[1]
PICTURE: Final = PROJECT / "docs" / "house.svg"
_PRODUCT: Final = PROJECT / "include" / "onceover"
_WIDTH: Final = 1040
_ROW: Final = 66
_BOX_HEIGHT: Final = 32
_CHARACTER: Final = 7.4


class Box(NamedTuple):
    """A room: where it is drawn, and how many modules it holds."""

    name: str
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        """Return the middle of its width."""
        return self.x + self.width / 2


def layers() -> list[list[str]]:
    """Return the rooms, layer by layer from the top: the lint rule itself."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    rows = next(each["layers"] for each in contracts if each.get("containers") == ["onceover"])
    return [[room.strip() for room in row.split("|")] for row in rows]


def uses(rooms: set[str]) -> dict[str, set[str]]:
    """Return of which rooms each one imports something."""
    below: dict[str, set[str]] = {room: set() for room in rooms}
    for path in sorted(_PRODUCT.rglob("*.py")):
        room = path.relative_to(_PRODUCT).with_suffix("").parts[0]
        if room in rooms:
            below[room] |= set(_used(path)) & rooms - {room}
    return below


def _used(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module="onceover", names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module)) if module.startswith("onceover."):
                yield module.split(".")[1]


def boxes(rows: list[list[str]]) -> list[Box]:
    """Return the rooms where they are drawn: one row for each layer."""
    drawn = []
    for number, row in enumerate(rows):
        widths = [max(len(room) * _CHARACTER + 26, 84) for room in row]
        gap = (_WIDTH - sum(widths)) / (len(row) + 1)
        x = gap
        for room, width in zip(row, widths, strict=True):
            drawn.append(Box(room, x, 16 + number * _ROW, width))
            x += width + gap
    return drawn


def _arrow(upper: Box, lower: Box) -> str:
    y, end = upper.y + _BOX_HEIGHT, lower.y
    bend = (end - y) / 2
    path = f"M{upper.middle:.0f} {y} C{upper.middle:.0f} {y + bend:.0f} {lower.middle:.0f} {end - bend:.0f}"
    title = f"{upper.name} uses {lower.name}"
    return f'<path class="use" d="{path} {lower.middle:.0f} {end}"><title>{escape(title)}</title></path>'


def _drawn(box: Box) -> str:
    return (
        f'<rect x="{box.x:.0f}" y="{box.y}" width="{box.width:.0f}" height="{_BOX_HEIGHT}" rx="6"/>'
        f'<text x="{box.middle:.0f}" y="{box.y + 21}">{escape(box.name)}</text>'
    )


_STYLE: Final = (
    "text{font:13px sans-serif;text-anchor:middle;fill:#1f2933}"
    "rect{fill:#f0f4f8;stroke:#486581}.use{fill:none;stroke:#829ab1}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f4f8}rect{fill:#243b53}}"
)


def told(below: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the uses that no other ones imply: all of them would be a ball of wool."""

    def reached(room: str) -> set[str]:
        return below[room].union(*(reached(each) for each in below[room]))

    return sorted(
        (upper, lower)
        for upper, used in below.items()
        for lower in used
        if not any(lower in reached(other) for other in used - {lower})
    )


def picture() -> str:
    """Return the SVG."""
    rows = layers()
    placed = {box.name: box for box in boxes(rows)}
    arrows = [_arrow(placed[upper], placed[lower]) for upper, lower in told(uses(set(placed)))]
    height = 16 + len(rows) * _ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
    title = "<title>The rooms of Onceover in their layers, and who uses whom</title>"
    lines = [head, title, f"<style>{_STYLE}</style>", *arrows, *map(_drawn, placed.values()), "</svg>"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture())
