"""Origins that go on while they are read: what they name may be newer than the ends that were read before."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.kafka.calls import NO_EPOCH, CommittedOffset
from onceover.model import TopicPartition
from onceover.seeding.origins import FileOrigin, GroupOrigin
from tests.unit.seeding.seedscene import SeedScene

GROUP = "billing"
ONE, TWO = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.fixture
def scene(tmp_path: Path) -> SeedScene:
    """Return a source where a consumer that is caught up goes on, until its positions are read."""
    made = SeedScene(tmp_path)
    made.east.make_topic("a", 2)
    for partition in (0, 1):
        made.grow("a", 100, partition)

    def heard(request: str, subject: str) -> None:
        if (request, subject) == ("OffsetFetch", GROUP):
            made.grow("a", 10)
            end = made.log("a").end
            made.east.groups[GROUP] = {
                tp: CommittedOffset(0, at, NO_EPOCH, "") for tp, at in ((ONE, end), (TWO, 40))
            }

    made.east.heard = heard
    return made


def test_a_consumer_that_is_caught_up_is_not_beyond_the_log(scene: SeedScene) -> None:
    """Its topic is new to the flow, and would be left out whole."""
    planned = scene.seeder(GroupOrigin(GROUP)).plan()
    assert planned.refused == ()
    assert {tp: at.offset for tp, at in planned.positions.items()} == {ONE: 110, TWO: 40}
    assert scene.seeder(GroupOrigin(GROUP)).apply(scene.caller).exit_code == 0
    assert scene.progress() == {"a:0": scene.log("a").end, "a:1": 40}


def test_what_is_nowhere_yet_is_still_refused(scene: SeedScene) -> None:
    origin = FileOrigin({ONE: 101, TWO: 100}, "offsets.csv")
    (refusal,) = scene.seeder(origin).plan().refused
    assert (refusal.object, refusal.code) == ("a:0", "OUT_OF_RANGE")
