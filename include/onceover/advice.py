"""What to write instead of a word that nobody knows, and how a way out is told. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


def nearest_fix(word: str, valid: Iterable[str]) -> str:
    """Return the advice for an unknown ``word``: the nearest valid one, or the list of all."""
    known = sorted(valid)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"valid here: {', '.join(known)}" if known else "remove it"


def advised(told: Mapping[str, Any]) -> str:
    """Return message and way out of what a report says, as one line."""
    return f"{told['message']}; {told['resolve']}" if told["resolve"] else told["message"]
