"""How a topic is called on the target, and whether it has been there already. Pure.

Invariant: different source topics get different names, and the name alone tells where a prefixed copy
comes from, so a copy is never copied back (MirrorMaker 2's DefaultReplicationPolicy, KIP-382).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

IDENTITY: Final = "identity"
PREFIX: Final = "prefix"
SEPARATOR: Final = "."
# Kafka's own limit: the name becomes a directory with a suffix of up to six characters.
MAX_TOPIC_NAME: Final = 249
# So often nobody says the same in a name; each time is one topic more that flows add which go round.
_ROUNDS: Final = 4


@dataclass(frozen=True)
class NamingPolicy:
    """The naming policy of one flow.

    Args:
        policy: ``identity`` or ``prefix``.
        source_alias: what ``prefix`` puts before the name; aliases hold no dot.
        target_alias: what a topic carries that has been on the target.
    """

    policy: str
    source_alias: str
    target_alias: str

    @property
    def prefix(self) -> str:
        """What stands before every target name; empty under ``identity``."""
        return f"{self.source_alias}{SEPARATOR}" if self.policy == PREFIX else ""

    def target_name(self, source: str) -> str:
        """Return the name of the source topic's copy."""
        return f"{self.prefix}{source}"

    def hop(self, topic: str) -> str | None:
        """Return the part of a source topic's name that says it came from the target; None where none does.

        Under ``prefix`` every part before the last counts, so that a chain through other clusters
        (``north.west.orders``) ends as well. Under ``identity`` only the first part does: names such as
        ``payments.west.tx`` are common, and leaving such a topic out would lose records unnoticed.
        """
        parts = topic.split(SEPARATOR)[:-1]
        looked_at = parts if self.policy == PREFIX else parts[:1]
        return self.target_alias if self.target_alias in looked_at else None


def goes_round(naming: NamingPolicy, topic: str) -> str | None:
    """Return what a copy's name would begin with again and again; None where it does not.

    Flows whose files call the clusters differently make such names, while they cannot read each other's
    states: ``east.w1.east.w1.east.w1...``, two parts at each round.
    """
    parts = naming.target_name(topic).split(SEPARATOR)[:-1] if naming.policy == PREFIX else []
    for length in range(1, len(parts) // _ROUNDS + 1):
        if parts[: length * _ROUNDS] == parts[:length] * _ROUNDS:
            return SEPARATOR.join(parts[:length])
    return None


def colliding(name: str) -> str:
    """Return what two topic names of a cluster must differ in: brokers refuse ``a_b`` beside ``a.b``."""
    return name.replace(".", "_")
