"""Colours, on a terminal only, laid over texts that command none by themselves. Never in a document.

Invariant: colours say nothing that the words do not, and are put around words of ours at the places where we
write them; a name of somebody's gets one at most for being called alike.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, Protocol

_RED: Final = "1;31"
_GREEN: Final = "1;32"
_YELLOW: Final = "1;33"
_BOLD: Final = "1"
_RULES: Final = (
    (re.compile(r"^(?:error:|FAIL\b)"), _RED),
    (re.compile(r"^PASS\b"), _GREEN),
    (re.compile(r"^(?:UNVERIFIABLE\b|note:| +warning:| +! [A-Z][A-Za-z_]*| +! bad_config)"), _YELLOW),
    (re.compile(r"\b(?:NEEDS A PERSON|NEEDING A PERSON)\b"), _RED),
    (re.compile(r"\bNOT FULLY KNOWN\b"), _YELLOW),
    (re.compile(r"^ +do(?:: | {7})"), _BOLD),
)


class Stream(Protocol):
    """What texts are written to."""

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""


def are_wanted(stream: Stream, environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether a person looks at a stream who does not mind colours (https://no-color.org)."""
    environment = os.environ if environ is None else environ
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def painted(text: str, stream: Stream) -> str:
    """Return a text as it is written to a stream: where somebody looks, what matters stands out."""
    if not are_wanted(stream):
        return text
    return "\n".join(map(_painted_line, text.split("\n")))


def _painted_line(line: str) -> str:
    for words, colour in _RULES:
        line = words.sub(f"\x1b[{colour}m\\g<0>\x1b[0m", line, count=1)
    return line
