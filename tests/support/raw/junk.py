"""Documents of JSON with something odd in one place: what anybody who may write there can leave behind."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import strategies as st

JUNK: Final[st.SearchStrategy[Any]] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-2, 2)
    | st.sampled_from([10**400, 1 << 70, "\ud800", "9" * 5000, "x" * 2_000_000, "é"])
    | st.floats()
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a JSON document, its own first."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@st.composite
def damaged(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """Draw the document with one value somewhere in it replaced, missing, or under another name."""
    found = copy.deepcopy(document)
    path = draw(st.sampled_from([each for each in places(found) if each]))
    holder = found
    for key in path[:-1]:
        holder = holder[key]
    how = draw(st.sampled_from(["replaced", "missing", "renamed"]))
    if how == "replaced" or not isinstance(holder, dict):
        holder[path[-1]] = draw(JUNK)
    else:
        value = holder.pop(path[-1])
        if how == "renamed":
            holder[path[-1] + draw(st.text(min_size=1, max_size=3))] = value
    return found
