"""Draws docs/way.svg: one record's way through a lane, from the code: who calls whom, in the words of each.

A step that is gone, or that its caller does not call any more, is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

PROJECT: Final = Path(__file__).parents[1]
PICTURE: Final = PROJECT / "docs" / "way.svg"
_PRODUCT: Final = PROJECT / "include" / "onceover"
_WIDTH: Final = 1040
_ROW: Final = 46
_INDENT: Final = 22
# Of the words of a step, on one line.
_LONGEST: Final = 118


class Step(NamedTuple):
    """A function on the way: its module below the product, its name, and how deep it is called."""

    module: str
    name: str
    depth: int


# In the order in which a record meets them; each is called by the last one above it that is less deep.
WAY: Final = (
    Step("spark/query.py", "start_query", 0),
    Step("spark/worker.py", "copy_lanes", 1),
    Step("copy/lane.py", "LaneTask.run", 2),
    Step("copy/lane.py", "LaneSession.copy", 3),
    Step("copy/loop.py", "CopyLoop.run", 4),
    Step("kafka/logs/fetcher.py", "Fetcher.request", 5),
    Step("kafka/logs/fetcher.py", "Fetcher.poll", 5),
    Step("wire/batches/runs.py", "seen", 5),
    Step("copy/turns.py", "Turns.rounds", 5),
    Step("copy/partition.py", "PartitionCopy.outgoing", 6),
    Step("kafka/produce/producer.py", "TransactionalProducer.send", 5),
    Step("kafka/produce/requests.py", "ProduceLink.write", 6),
    Step("copy/account.py", "Account.write_map", 5),
    Step("copy/account.py", "Account.write_progress", 5),
    Step("kafka/produce/producer.py", "TransactionalProducer.add_offsets", 6),
    Step("kafka/produce/producer.py", "TransactionalProducer.commit", 5),
    Step("spark/receipts.py", "rows", 2),
)


class Told(NamedTuple):
    """What is drawn of a step, and the row of the one that calls it."""

    step: Step
    words: str
    caller: int


def told(way: tuple[Step, ...] = WAY) -> Iterator[Told]:
    """Yield the steps with the first line of what each says about itself.

    Raises:
        LookupError: one is not there, says nothing, or is not called by the file of the one above it.
    """
    above: list[tuple[int, Step]] = []
    for number, step in enumerate(way):
        above = [(row, each) for row, each in above if each.depth < step.depth]
        found = _function(step)
        words = (ast.get_docstring(found) or "").splitlines()
        if not words:
            raise LookupError(f"{step.module}: {step.name} says nothing about itself")
        last = step.name.rpartition(".")[2]
        caller, by = above[-1] if above else (number, step)
        if above and not _is_called(last, ast.parse((_PRODUCT / by.module).read_text())):
            raise LookupError(f"{by.module} does not call {step.name} any more")
        above.append((number, step))
        yield Told(step, words[0].replace("``", ""), caller)


def _is_called(name: str, tree: ast.Module) -> bool:
    """Tell whether a function or method of that name is called, or given away with ``partial``."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    given = [call.args[0] for call in calls if _named(call.func) == "partial" and call.args]
    return name in map(_named, [*(call.func for call in calls), *given])


def _named(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _function(step: Step) -> ast.FunctionDef:
    body: list[ast.stmt] = ast.parse((_PRODUCT / step.module).read_text()).body
    found: ast.stmt | None = None
    for name in step.name.split("."):
        defined = (each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef))
        found = next((each for each in defined if each.name == name), None)
        body = found.body if isinstance(found, ast.ClassDef) else []
    if isinstance(found, ast.FunctionDef):
        return found
    raise LookupError(f"{step.module} has no {step.name} any more")


def _drawn(number: int, told: Told) -> str:
    x, y = 24 + told.step.depth * _INDENT, 14 + number * _ROW
    words = told.words if len(told.words) <= _LONGEST else told.words[: _LONGEST - 3] + "..."
    line = f"M{x - _INDENT + 6} {14 + told.caller * _ROW + 36} V{y + 10} H{x - 4}"
    arrow = f'<path class="use" d="{line}"/>' if told.caller != number else ""
    return (
        f"{arrow}"
        f'<text class="name" x="{x}" y="{y + 14}">{escape(told.step.name)}'
        f'<tspan class="place" dx="10">{escape(told.step.module)}</tspan></text>'
        f'<text x="{x}" y="{y + 31}">{escape(words)}</text>'
    )


_STYLE: Final = (
    "text{font:13px sans-serif;fill:#1f2933}.name{font:bold 13px monospace}"
    ".place{font:12px monospace;fill:#627d98}.use{fill:none;stroke:#829ab1}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f4f8}.place{fill:#9fb3c8}}"
)


def picture() -> str:
    """Return the SVG."""
    rows = list(told())
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {20 + len(rows) * _ROW}" role="img">'
    )
    title = "<title>One record's way through a lane: who calls whom, and what each does</title>"
    drawn = [_drawn(number, each) for number, each in enumerate(rows)]
    return "\n".join([head, title, f"<style>{_STYLE}</style>", *drawn, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture())
