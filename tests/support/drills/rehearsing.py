"""What tests of rehearsals share: a rehearsal in a process of its own, and what is on both clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from onceover.drills import journal
from onceover.process.children import ChildProcess
from tests.support.flows import template
from tests.support.flows.replica import Replica

_TIMEOUT_S = 30.0


class Things(NamedTuple):
    """Topics and groups of a cluster that have to do with a flow, but for its journal of drills."""

    topics: frozenset[str]
    groups: frozenset[str]


def things(client: Mapping[str, str], name: str) -> Things:
    """Return what an ordinary client sees of a flow on a cluster."""
    admin = AdminClient(dict(client))
    topics = set(admin.list_topics(timeout=_TIMEOUT_S).topics)
    groups = {each.group_id for each in admin.list_consumer_groups().result(_TIMEOUT_S).valid}
    return Things(
        frozenset(topic for topic in topics if name in topic and not topic.endswith(".drills")),
        frozenset(group for group in groups if name in group),
    )


def both_sides(replica: Replica) -> list[Things]:
    """Return what is there on source and target."""
    return [things(client, replica.name) for client in (replica.source_client, replica.target_client)]


@contextmanager
def nobody_alive() -> Iterator[None]:
    """Have drills that give no sign of life taken for dead at once: here they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SILENT_S", 0.5)
        yield


@contextmanager
def rehearsing(replica: Replica, log: Path, **options: Any) -> Iterator[ChildProcess]:
    """Rehearse in a process of its own meanwhile; ``options`` are those of ``drill_process``."""
    more = [part for name, value in options.items() for part in (f"--{name}", value)]
    child = template.shared().start([str(replica.flow.path), *more], log, "drill_process")
    try:
        yield child
    finally:
        child.kill()
