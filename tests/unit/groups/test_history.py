"""Groups stay where they are in a partition whose source and copy have parted."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from onceover.errors import NotNow
from onceover.groups import history as grouphistory
from onceover.groups.decide import Allowed, GroupAction, PartitionFacts, decide
from onceover.groups.history import Histories, ends_early
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.kafka.logs.batchat import BatchPlace
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names
from onceover.stops.record import Stop
from onceover.wire.batches.batch import BatchHeader
from onceover.wire.progress import CopiedBatch, ProgressMeta

SOURCES = [TopicPartition("t", number) for number in range(4)]
PAIRS = [(tp, TopicPartition("copy.t", tp.partition)) for tp in SOURCES]
HELD = BatchHeader(90, 788, 4, 2, 7, 0, 9, 0, 0, -1, -1, -1, 10)
COPIED = CopiedBatch(90, 100, 800, 7)
META = ProgressMeta("s", "t", 4, 50, 1, (1, 0), 100, batch=COPIED)
PROGRESS = {target: CommittedOffset(0, 100, -1, META.encode()) for _, target in PAIRS}
# Nobody leads the last one.
TOPICS = {
    "t": TopicInfo("t", UUID(int=7), {n: PartitionInfo(-1 if n == 3 else 1, 4) for n in range(4)}, False)
}


class Scene:
    """The flow's state, and what the source holds before the positions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stops: dict[str, Any] = {}
        self.held: dict[TopicPartition, BatchHeader | NotNow] = {}
        self.asked: Mapping[TopicPartition, BatchPlace] = {}
        state = SimpleNamespace(catch_up=self._catch_up)
        monkeypatch.setattr(grouphistory, "StateLog", lambda *_: state)
        monkeypatch.setattr(grouphistory, "batches_at", self._batches_at)

    def parted(self, progress: Any = PROGRESS) -> dict[int, str]:
        """Return the codes by partition."""
        cluster: Any = SimpleNamespace(retry=lambda attempt: attempt())
        found = Histories("f", cluster, cluster).parted(PAIRS, progress, TOPICS)
        assert all(text for _, text in found.values())
        return {tp.partition: code for tp, (code, _) in found.items()}

    def _catch_up(self, *, wait: bool) -> dict[str, Any]:
        assert not wait, "an open transaction must not hold up those who flee"
        return self.stops

    def _batches_at(self, _: object, places: Mapping[TopicPartition, BatchPlace]) -> Each[Any, Any]:
        self.asked = places
        held = {tp: self.held.get(tp, HELD) for tp in places}
        return Each(
            {tp: one for tp, one in held.items() if not isinstance(one, NotNow)},
            {tp: one for tp, one in held.items() if isinstance(one, NotNow)},
        )


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_what_goes_on_as_it_was_is_not_in_the_way(scene: Scene) -> None:
    assert scene.parted() == {}
    assert scene.asked[SOURCES[0]] == BatchPlace(UUID(int=7), 1, 4, 99, 800)
    assert SOURCES[3] not in scene.asked, "nobody is there to be asked"


@pytest.mark.parametrize("code", ["SOURCE_DIVERGED", "TARGET_SHORTENED"])
def test_a_partition_that_has_stopped_because_of_it_is_left_alone(scene: Scene, code: str) -> None:
    """Others stop for reasons that say nothing of the past."""
    scene.stops = {
        names.stop_key("copy.t", 0): Stop(code, "m", "", "", "", 100).to_json(),
        names.stop_key("copy.t", 1): Stop("RECORD_REFUSED", "m", "", "", "", 100).to_json(),
        names.stop_key("copy.t", 2): "written by somebody else",
    }
    assert scene.parted() == {0: code}
    assert set(scene.asked) == {SOURCES[1], SOURCES[2]}


def test_another_batch_on_the_source_is_noticed_before_a_lane_has_looked(scene: Scene) -> None:
    """Away, it says nothing; in a failover it is where the disaster is."""
    scene.held = {SOURCES[0]: HELD._replace(crc=8), SOURCES[1]: NotNow("moving")}
    assert scene.parted() == {0: "SOURCE_DIVERGED"}


def test_without_progress_or_with_somebody_else_s_nothing_is_compared(scene: Scene) -> None:
    foreign = {
        PAIRS[0][1]: CommittedOffset(0, 100, -1, ""),
        PAIRS[1][1]: CommittedOffset(0, 101, -1, META.encode()),
    }
    assert scene.parted(foreign) == {} and not scene.asked


@pytest.mark.parametrize(("end", "parts"), [(None, False), (100, False), (101, False), (99, True)])
def test_a_source_that_ends_before_the_position_has_lost_what_was_copied(
    end: int | None, parts: bool
) -> None:
    assert (ends_early(SOURCES[0], end, 100) is not None) == parts


@pytest.mark.parametrize("code", ["SOURCE_DIVERGED", "TARGET_SHORTENED"])
def test_nothing_that_is_allowed_moves_a_group_there(code: str) -> None:
    facts = PartitionFacts(giving=SOURCES[0], receiving=PAIRS[0][1], committed=95, problem=(code, "parted"))
    decision = decide(facts, Allowed(True, True, True, True), 0)
    assert decision is not None and (decision.kind, decision.code, decision.blocks) == (
        GroupAction.LEFT,
        code,
        True,
    )
    assert "onceover status" in decision.resolve
