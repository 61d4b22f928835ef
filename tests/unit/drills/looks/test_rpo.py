"""What a drill says was lost, and whether that is allowed: nothing that nobody knows is taken for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from onceover.drills.chain import BEGUN, ENDED
from onceover.drills.history import DrillHistory
from onceover.drills.looks.rpo import Loss, Objectives, rpo_text
from onceover.drills.modes import PLANNED, UNPLANNED
from onceover.drills.running import _findings
from tests.unit.drills.test_rehearsal import outcome as rehearsed
from tests.unit.drills.test_switching import outcome as switched
from tests.unit.drills.test_switching import written

NOTHING, UNKNOWN = Loss(0, 0.0), Loss(None, None)


def lost(offsets: int | None, seconds: float | None, open_offsets: int | None = 0) -> dict[str, Any]:
    return {"topic": "a", "offsets": offsets, "seconds": seconds, "open_offsets": open_offsets}


@pytest.mark.parametrize(
    ("losses", "whole"),
    [
        ([], NOTHING),
        ([lost(3, 1.5), lost(4, 0.5)], Loss(7, 1.5)),
        ([lost(3, 1.5), lost(None, 0.5)], Loss(None, 1.5)),
        ([lost(3, None), lost(4, 0.5)], Loss(7, None)),
        # Behind an open transaction: committed records of others may be among them.
        ([lost(0, None, 1_000_000)], Loss(1_000_000, None)),
        ([lost(3, 1.5, None)], Loss(None, 1.5)),
        (None, UNKNOWN),
    ],
)
def test_what_is_not_known_of_one_topic_is_not_known_of_all(losses: list[Any] | None, whole: Loss) -> None:
    """Offsets are counted, and the oldest of all is the oldest."""
    assert Loss.of(losses) == whole


@pytest.mark.parametrize(
    ("objectives", "loss", "allowed"),
    [
        (Objectives(1), NOTHING, True),
        (Objectives(1), Loss(1, 0.1), False),
        (Objectives(1), UNKNOWN, None),
        (Objectives(1), None, None),
        (Objectives(1, 10), Loss(10, 900.0), True),
        (Objectives(1, 10), Loss(11, 0.1), False),
        (Objectives(1, None, 2000), Loss(9999, 2.0), True),
        (Objectives(1, None, 2000), Loss(1, 2.1), False),
        (Objectives(1, None, 2000), Loss(1, None), None),
        # None at all is none, however old.
        (Objectives(1, None, 2000), Loss(0, None), True),
    ],
)
def test_what_may_be_lost(objectives: Objectives, loss: Loss | None, allowed: bool | None) -> None:
    """As many records, or as old ones, as the flow file says."""
    assert objectives.allows(loss) is allowed


def test_words() -> None:
    """None, some, and what nobody knows."""
    assert NOTHING.describe() == "nothing"
    assert Loss(1234, 75.0).describe() == "1,234 offsets, the oldest 1 min 15 s old"
    assert UNKNOWN.describe() == "an unknown number of offsets, of unknown age"
    assert rpo_text(Objectives(1).rpo_document()) == "0 records"
    assert rpo_text(Objectives(1, None, 30_000).rpo_document()) == "30 s"


def test_each_kind_of_drill_knows_what_was_lost_from_what_it_has_seen() -> None:
    """A rehearsal from its look, a switchover once it has looked behind its cut."""
    assert rehearsed().loss == Loss(3, None)
    assert rehearsed(failed="look").loss is None
    assert switched(mode=UNPLANNED).loss == NOTHING
    # Writers of an unplanned one wrote on: what was missing at the look is the oldest of it.
    more = {"written_behind": 7, "topics_unknown": 0}
    assert switched(mode=UNPLANNED, verified=more).loss == Loss(7, 1.0)
    assert switched(mode=UNPLANNED, verified=more, unknown=1).loss == Loss(7, None)
    assert switched(mode=UNPLANNED, verified={**more, "topics_unknown": 2}).loss == UNKNOWN
    assert switched(mode=UNPLANNED, failed="verify").loss is None
    # Who goes on behind one that was killed measures it as well.
    assert switched(mode=UNPLANNED, goes_on="d1", verified=more).loss == Loss(7, None)
    assert switched(mode=PLANNED).loss == NOTHING
    assert switched(mode=PLANNED, failed="verify").loss is None
    behind = {"written_behind": 4, "topics_unknown": 0}
    assert switched(mode=PLANNED, verified=behind).loss == Loss(4, None)
    assert switched(mode=PLANNED, verified={**behind, "topics_unknown": 1}).loss == UNKNOWN


def test_more_than_the_objective_is_a_finding_where_it_can_be_held_at_any_moment() -> None:
    """That nothing be lost is what writers are kept off for: a rehearsal has something on its way."""
    found = [
        _findings((), rehearsed(objectives=each)) for each in (Objectives(30_000), Objectives(30_000, 2))
    ]
    assert [[code for code, _ in each] for each in found] == [[], ["RPO_MISSED"]]
    assert rehearsed(objectives=Objectives(30_000, 2)).verdict == "PASS"


def test_the_report_and_the_journal_have_it() -> None:
    """The journal as numbers: what is told of the last drills is read from there."""
    told = rehearsed()
    rpo = {"objective": {"records": 0, "seconds": None}, "offsets": 3, "seconds": None, "met": None}
    assert told.document()["rpo"] == rpo
    assert "would have lost 3 offsets, of unknown age; the objective is 0 records" in told.describe()
    chain = written(("d1", BEGUN, {"mode": "rehearsal"}), ("d1", ENDED, told.ended()))
    history = DrillHistory("orders", chain, 10)
    assert (history.drills[0]["rpo_offsets"], history.drills[0]["rpo_s"]) == (3, None)
    assert "3 offsets on the source alone" in history.describe()


@pytest.mark.parametrize("said", [{}, {"rpo_offsets": -1, "rpo_s": "x"}, {"rpo_offsets": True, "rpo_s": -1}])
def test_what_an_older_release_or_somebody_else_wrote_is_not_known(said: dict[str, Any]) -> None:
    """Nobody knows who has written an entry."""
    chain = written(("d1", BEGUN, {"mode": "rehearsal"}), ("d1", ENDED, {"result": "PASS", **said}))
    (drill,) = DrillHistory("orders", chain, 10).drills
    assert (drill["rpo_offsets"], drill["rpo_s"]) == (None, None)
