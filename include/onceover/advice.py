"""What to write instead of a word that nobody knows. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_fix(word: str, valid: Iterable[str]) -> str:
    """Return the advice for an unknown ``word``: the nearest valid one, or the list of all."""
    known = sorted(valid)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"valid here: {', '.join(known)}" if known else "remove it"
