"""Behind what a flow has copied last: only as far as nobody else can have written (G7)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.kafka.calls import NO_EPOCH, CommittedOffset
from onceover.model import TopicPartition
from onceover.positions.translate import BESIDE, PROMOTED, UNTOLD, Translator
from onceover.state.records.enrolment import Enrolment, PlacedProgress, Promoted
from onceover.wire.offsetlookup import NotCovered, Translated, Translation
from tests.support.fakes.fakecluster import FakeCluster

TP = TopicPartition("a", 0)
# The map ends at target offset 10, which is source offset 110; the log at 50.
ENDS = NotCovered(0, 10)


class Known(Translator):
    """A translator of a map that ends there."""

    def __init__(self, record: Enrolment) -> None:
        west = FakeCluster("west")
        west.add_topic("a", record.target_id, [0])
        super().__init__(west, "f", None)
        self._by_target = self._by_source = {"a": record}
        self._topics = west.topics(["a"])
        self._layout = cast(Any, SimpleNamespace(delivery="exactly_once"))
        self._map = cast(Any, SimpleNamespace(need=lambda _: None, renew=lambda _: False))

    def _decided(self, partition: int, target: TopicPartition, offset: int) -> int:
        return 50

    def _look_up(self, source: Any, own: Any, target: Any, offset: int, *, back: bool) -> Translation:
        return Translated(100 + offset) if offset <= 10 else ENDS


def record(placed: PlacedProgress, *, promoted: bool = False) -> Enrolment:
    mark = Promoted(9, "drill", {0: 12}, {0: 110}) if promoted else None
    return Enrolment(
        "a", "a", UUID(int=1), UUID(int=2), {0: 0}, 1, not promoted, placed={0: placed}, promoted=mark
    )


def test_only_markers_lie_behind_the_last_copied_record_of_a_copy() -> None:
    known = Known(record(PlacedProgress(1, 0, 0)))
    assert [known.to_source(TP, at) for at in (10, 12, 40)] == [Translated(110)] * 3


def test_behind_its_promotion_a_copy_holds_what_clients_have_written() -> None:
    """Their places have no counterpart in what was copied, and least of all the end of that."""
    known = Known(record(PlacedProgress(1, 0, 0), promoted=True))
    assert [known.to_source(TP, at) for at in (10, 12)] == [Translated(110)] * 2
    assert [known.to_source(TP, at) for at in (13, 40)] == [NotCovered(None, None, PROMOTED)] * 2


@pytest.mark.parametrize(("at", "found"), [(11, None), (29, None), (30, 140), (40, 140)])
def test_where_nothing_was_copied_on_a_later_way_out_what_was_there_before_is_not_told(
    at: int, found: int | None
) -> None:
    """From the first copy's end up to where the second one went on clients have written."""
    known = Known(record(PlacedProgress(5, 140, 30)))
    expected = ENDS._replace(why=BESIDE) if found is None else Translated(found)
    assert known.to_source(TP, at) == expected


@pytest.mark.parametrize(("position", "told"), [(10, True), (11, False)])
def test_behind_a_map_that_has_lost_its_end_nothing_is_told(position: int, told: bool) -> None:
    """An unclean election has taken its last records: what follows on the target was copied all the same."""
    known = Known(record(PlacedProgress(1, 0, 0)))
    known._progress = {TP: CommittedOffset(0, position, NO_EPOCH, "")}
    found = Translated(110) if told else ENDS._replace(why=UNTOLD)
    assert [known.to_source(TP, at) for at in (12, 40)] == [found] * 2
