"""The offset map's topic is made anew where it was deleted; what keeps it from that ends no run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.admin.topics import TopicSpec
from onceover.state import names
from onceover.topics.own import MapKeeper, StateSettings

TOPIC = names.map_topic("f")


class Target:
    """A cluster, and its administration.

    Attributes:
        trouble: what creating a topic raises; ``away`` what asking for one does.
    """

    def __init__(self) -> None:
        self.there = {TOPIC}
        self.trouble: OnceoverError | None = None
        self.away: OnceoverError | None = None
        self.made: list[TopicSpec] = []

    def topics(self, wanted: Iterable[str]) -> dict[str, None]:
        if self.away is not None:
            raise self.away
        return dict.fromkeys(self.there & set(wanted))

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.made += specs
        self.there |= {spec.name for spec in self.made}


def keeper(target: Target) -> MapKeeper:
    return MapKeeper(cast(Any, target), cast(Any, target), "f", StateSettings(2, 86_400_000))


TROUBLES = [
    UsageError("not authorized", code="NOT_AUTHORIZED", resolve="grant CREATE"),
    NeedsOperator("replication factor 2 is larger than the available brokers 1", code="ADMIN_REFUSED"),
    Retriable("timed out"),
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
def test_a_map_that_cannot_be_made_is_told_once_and_tried_until_it_can(
    trouble: OnceoverError, caplog: pytest.LogCaptureFixture
) -> None:
    target = Target()
    kept = keeper(target)
    kept.tick()
    assert (kept.refused, target.made) == ([], [])
    target.there.clear()
    target.trouble = trouble
    for _ in range(3):
        kept.tick()
        (refusal,) = kept.refused
        assert (refusal.object, refusal.code, refusal.blocks) == (TOPIC, "MAP_MISSING", False)
        assert trouble.message in refusal.message
        assert (trouble.resolve or "brokers") in refusal.resolve
    assert caplog.text.count(trouble.message) == 1
    target.trouble = None
    kept.tick()
    assert kept.refused == []
    assert [(s.name, s.partitions, s.replication_factor) for s in target.made] == [(TOPIC, 4, 2)]


def test_a_topic_that_may_not_be_looked_at_ends_no_run_either() -> None:
    target = Target()
    target.away = UsageError("not authorized", code="NOT_AUTHORIZED", resolve="grant DESCRIBE")
    kept = keeper(target)
    kept.tick()
    assert kept.refused and not target.made
