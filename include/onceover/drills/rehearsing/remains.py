"""Everything that a rehearsal makes on either cluster, found by its name and taken away.

Invariant: nothing is touched but what a rehearsal of this very flow makes: its topics begin with a name that
no flow file can have, and its groups likewise. It can be done again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from onceover.backoff import Backoff, Deadline
from onceover.drills.codes import DrillCode
from onceover.errors import NotNow, Retriable
from onceover.kafka.admin.topics import Admin
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.ports import Cluster
from onceover.state import names


class RehearsalMade(NamedTuple):
    """What a rehearsal has made on one cluster, by name."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


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
        return _remains(self._on_source(), self._on_target())

    def _on_source(self) -> RehearsalMade:
        canary = names.canary_topic(self._flow)
        groups = names.lag_group(names.rehearsal_flow(self._flow)), names.canary_group(self._flow)
        topics = self._source.retry(lambda: self._source.topics([canary]))
        return RehearsalMade(
            tuple(topics), tuple(name for name in self._groups(self._source) if name in groups)
        )

    def _on_target(self) -> RehearsalMade:
        prefix = names.rehearsal_prefix(self._flow)
        group = names.progress_group(names.rehearsal_flow(self._flow))
        topics = self._target.retry(self._target.topics)
        return RehearsalMade(
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
        found: list[RehearsalMade] = []
        for cluster, look in ((self._target, self._on_target), (self._source, self._on_source)):
            try:
                found.append(made := look())
                ours()
                Admin(cluster).delete_topics(made.topics)
                for group in made.groups:
                    ours()
                    GroupAdmin(cluster).delete(group)
            except Retriable as error:
                away = away or error
        if away is not None:
            raise Retriable(
                f"not everything that a rehearsal may have left could be taken away: {away.message}",
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
        there, here = found
        return _remains(here, there)

    @staticmethod
    def _groups(cluster: Cluster) -> list[str]:
        listing = GroupAdmin(cluster).groups()
        for error in listing.unheard:
            raise error
        return sorted(listing.groups)


def _remains(source: RehearsalMade, target: RehearsalMade) -> Remains:
    return Remains(source.topics, target.topics, source.groups, target.groups)
