"""Which target topics the flow looks after: their configuration follows the source's. Pure.

Invariant: a topic is managed when the flow created it or ``onceover topics apply`` adopted it, and the
record under ``managed/<target topic>`` is written before the first change. Configuration keys that the flow
never set are nobody's business but the operator's: they are neither changed nor removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from onceover.errors import OnceoverError
from onceover.state import names
from onceover.state.records.value import mapping, readable, text

VERSION = 1


@dataclass(frozen=True)
class Managed:
    """What is kept of a managed target topic.

    Args:
        keys: configuration keys that the flow has set, or was about to set.
        refused: keys whose value the target did not take, with that value: not tried again until the
            source's value changes.
    """

    keys: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the state value."""
        return {"v": VERSION, "keys": sorted(self.keys), "refused": dict(sorted(self.refused.items()))}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Managed:
        """Read what ``to_json`` wrote.

        Raises:
            One of ``value.MALFORMED``: it is something else.
        """
        fields = mapping(value, "record of a managed topic")
        refused = {text(key): text(each) for key, each in fields["refused"].items()}
        return cls(frozenset(map(text, fields["keys"])), refused)

    def with_keys(self, keys: Iterable[str]) -> Managed:
        """Return it with more keys; what was refused of them is to be tried again."""
        more = frozenset(keys)
        left = {key: value for key, value in self.refused.items() if key not in more}
        return replace(self, keys=self.keys | more, refused=left)

    def without_keys(self, keys: Iterable[str]) -> Managed:
        """Return it without keys that were removed."""
        return replace(self, keys=self.keys - frozenset(keys))

    def refusing(self, values: Mapping[str, str]) -> Managed:
        """Return it with keys that the target did not take."""
        return replace(self, keys=self.keys - values.keys(), refused={**self.refused, **values})


def read_managed(state: Mapping[str, Any]) -> dict[str, Managed]:
    """Return the managed topics among the values of what a flow looks after, by target topic.

    A topic whose record cannot be read is none of them: nothing of it is changed (``unread_managed``).
    """
    found, _ = _read(state)
    return {key.removeprefix(names.MANAGED_PREFIX): managed for key, managed in found.items()}


def unread_managed(state: Mapping[str, Any]) -> dict[str, OnceoverError]:
    """Return why records of managed topics cannot be read, by key."""
    return _read(state)[1]


def _read(state: Mapping[str, Any]) -> tuple[dict[str, Managed], dict[str, OnceoverError]]:
    return readable(state, names.MANAGED_PREFIX, lambda _, value: Managed.from_json(value))
