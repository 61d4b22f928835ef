"""Texts of others in the Markdown that a person decides by: anyone may name a group or a connector.

Invariant: what comes out of ``code`` and ``plain`` is shown and does nothing: no image or link that the page
could fetch or offer, no HTML, no end of a cell, a line or a code span. Whatever cannot be seen is written as
an escape (``\\n``, ``\\u202e``), so that no name looks like another one. Pure.
"""

from __future__ import annotations

import re
from typing import Final, NewType

from onceover.shown import visible

# Markdown of one line that may stand in a cell. Only what is made here is: the type checker sees to that.
Inline = NewType("Inline", str)

# Within a code span nothing has a meaning but these two; a cell would end at a | there, too.
_IN_CODE: Final = {"|": r"\x7c", "`": r"\x60", "\\": r"\\"}
# Airflow's renderer makes links of these on its own, however they are escaped, but not of code.
_LINKED: Final = re.compile(r"://|www\.|@", re.IGNORECASE)
# A reference to a character never stands for structure (CommonMark 2.5), where a backslash would in a cell.
_ACTIVE: Final = re.compile(r"[\\`*_\[\]<>&|~$#!]")


def code(value: str | int | None) -> Inline:
    """Return a name or a value as a code span, ``-`` for None."""
    if value is None:
        return Inline("-")
    shown = "".join(_IN_CODE.get(char) or visible(char) for char in str(value))
    return Inline(f"`{shown}`" if shown.strip(" ") else f"`'{shown}'`")


def plain(value: str | int | None) -> Inline:
    """Return a sentence, which may quote names, as text; ``-`` for None."""
    if value is None:
        return Inline("-")
    words = visible(value).split(" ")
    return Inline(" ".join(code(word) if _LINKED.search(word) else _inert(word) for word in words))


def _inert(word: str) -> str:
    return _ACTIVE.sub(lambda found: f"&#{ord(found[0])};", word)
