"""Values that flow files know and this version cannot yet serve: the one place that refuses them.

The keys and all their values validate elsewhere. A release that learns to serve one deletes its
line here and nothing else.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Unavailable(NamedTuple):
    """``key`` takes only ``accepted`` in this version; ``shown`` is how that is written."""

    key: tuple[str, ...]
    accepted: object
    shown: str


NOT_YET: Final = (Unavailable(("topics", "naming"), "identity", "identity"),)


def unavailable(data: dict[str, Any]) -> list[Unavailable]:
    """Return the entries of :data:`NOT_YET` that the flow file ``data`` goes beyond."""
    return [entry for entry in NOT_YET if not _accepted(data, entry)]


def _accepted(data: Any, entry: Unavailable) -> bool:
    for key in entry.key:
        if not isinstance(data, dict) or key not in data:
            return True
        data = data[key]
    # "false" arrives as text when it comes from the environment.
    return data == entry.accepted or (isinstance(data, str) and data.lower() == entry.shown)
