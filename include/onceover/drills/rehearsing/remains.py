"""Everything that a rehearsal makes on either cluster, found by its name and taken away.

Invariant: nothing is touched but what a rehearsal of this very flow makes: its topics begin with a name that
no flow file can have, and its groups likewise. It can be done again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onceover.audit.model import Side
from onceover.backoff import Backoff, Deadline
from onceover.drills.codes import DrillCode
from onceover.errors import NotNow, Retriable
from onceover.kafka.admin.topics import Admin
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.ports import Cluster
from onceover.state import names

# Topics and groups.
_Found = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Remains:
    """What is there.

    Args:
        source_topics: on the source; the others likewise.
    """

    source_topics: tuple[str, ...] = ()
    target_topics: tuple[str, ...] = ()
    source_groups: tuple[str, ...] = ()
    target_groups: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """True when there is nothing."""
        return not (self.source_topics or self.target_topics or self.source_groups or self.target_groups)

    def document(self) -> dict[str, Any]:
        """Return the names."""
        return {
            "source_topics": list(self.source_topics),
            "target_topics": list(self.target_topics),
            "source_groups": list(self.source_groups),
            "target_groups": list(self.target_groups),
        }


class Removal:
    """Finds and removes them. Not thread-safe; the clusters belong to the caller.

    Args:
        flow: the flow that is rehearsed.
        source: its source; ``target`` its target.
    """

    def __init__(self, flow: str, source: Cluster, target: Cluster) -> None:
        self._flow = flow
        self._source, self._target = source, target

    def find(self) -> Remains:
        """Return what is there.

        Raises:
            Retriable: a cluster is away.
        """
        here, there = self._on_source(), self._on_target()
        return Remains(here[0], there[0], here[1], there[1])

    def _on_source(self) -> _Found:
        canary = names.canary_topic(self._flow)
        groups = names.lag_group(names.rehearsal_flow(self._flow)), names.canary_group(self._flow)
        topics = self._source.retry(lambda: self._source.topics([canary]))
        return tuple(topics), tuple(name for name in self._groups(self._source) if name in groups)

    def _on_target(self) -> _Found:
        prefix = names.rehearsal_prefix(self._flow)
        group = names.progress_group(names.rehearsal_flow(self._flow))
        topics = self._target.retry(self._target.topics)
        return (
            tuple(sorted(name for name in topics if name.startswith(prefix))),
            tuple(n for n in self._groups(self._target) if n == group or n.startswith(f"{group}.group.")),
        )

    def remove(self, deadline: Deadline, ours: Callable[[], None]) -> Remains:
        """Remove what is there, wait until it is gone, and return what it was.

        A cluster that is away keeps nothing from being taken away on the other one.

        Args:
            ours: asked right before anything is removed; raises where it is another drill's by now.

        Raises:
            Retriable: REMAINS, it is not gone in time, or a cluster is away.
            UsageError: not authorized.
            Whatever ``ours`` raises.
        """
        away: Retriable | None = None
        found: dict[Side, _Found] = {}
        for side, cluster, look in (
            (Side.TARGET, self._target, self._on_target),
            (Side.SOURCE, self._source, self._on_source),
        ):
            try:
                found[side] = topics, groups = look()
                ours()
                Admin(cluster).delete_topics(topics)
                for group in groups:
                    ours()
                    GroupAdmin(cluster).delete(group)
            except Retriable as error:
                away = away or error
        if away is not None:
            raise Retriable(
                f"not everything that the rehearsal has made could be taken away: {away.message}",
                code=DrillCode.REMAINS,
                where=away.where,
                resolve=f"once both clusters answer, `onceover drill abort {self._flow}` removes the rest",
            )
        backoff = Backoff(cap_s=0.5)
        while not (left := self.find()).nothing:
            late = NotNow(
                "what the rehearsal has made is not gone yet",
                code=DrillCode.REMAINS,
                seen=str(left.document()),
                resolve=f"`onceover drill abort {self._flow}` removes it",
            )
            backoff.pause(deadline, late)
        here, there = found[Side.SOURCE], found[Side.TARGET]
        return Remains(here[0], there[0], here[1], there[1])

    @staticmethod
    def _groups(cluster: Cluster) -> list[str]:
        listing = GroupAdmin(cluster).groups()
        for error in listing.unheard:
            raise error
        return sorted(listing.groups)
