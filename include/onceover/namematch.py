"""Names that an expression matches which somebody typed, in time that their length bounds.

Invariant: however an expression is made and whatever a name is, to match them takes steps in proportion to
the name's length. Whoever may start a DAG types expressions, and whoever may read a topic names a group:
Python's own engine takes minutes for ``(a+)+`` and thirty characters. What is matched here is RE2's syntax:
without looking ahead or behind, and without references to what was matched.
"""

from __future__ import annotations

from typing import Final

# A dot stands for every character: a name may hold a line break, and ``.*`` is all names.
_WHOLE: Final = r"(?s)\A(?:{})\z"


def objection(pattern: str) -> str | None:
    """Return what is wrong with an expression; None where it is one."""
    # By itself before it is put into parentheses: within them `a)(b` is one, too.
    return _refused(pattern) or _refused(whole(pattern))


def whole(pattern: str) -> str:
    """Return what matches where an expression that has no objection matches all of a text."""
    return _WHOLE.format(pattern)


def names_whole(pattern: str, name: str) -> bool:
    """Tell whether an expression that has no objection matches all of a name."""
    # Arrow, which brings RE2, takes a quarter of a second to load: nobody pays who has typed none.
    import pyarrow.compute as pc

    from onceover.arrowrows import texts

    # A lone surrogate, as bytes that are no UTF-8 are read, is no character for RE2.
    text = name.encode(errors="replace").decode()
    return bool(pc.match_substring_regex(texts([text]), whole(pattern))[0].as_py())


def _refused(pattern: str) -> str | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    from onceover.arrowrows import texts

    try:
        pc.match_substring_regex(texts([""]), pattern)
    except (pa.ArrowInvalid, UnicodeError) as error:
        return str(error).partition(": ")[2] or "it is no text"
    return None
