"""The tasks of ``export_orphans``: what a person is shown, and that nobody is asked for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from onceover.drills.orphans.looks import OrphanLook, OrphanView, TopicShape
from onceover.drills.orphans.plan import OrphansPlan, plan_orphans
from onceover.drills.orphans.positions import PositionOnlyHere, PositionsOnlyHere
from onceover.drills.orphans.tally import OrphanTally
from onceover.drills.orphans.terms import OrphanPlace, RebuildTerms
from onceover.drills.orphans.torn import TornPart, TornTransaction
from onceover.model import TopicPartition
from onceover.planning.plan import Refusal
from onceover.wire.batches.records import DecodedRecord
from onceover_airflow.tasks.orphans import ORPHANS, orphan_params

TP = TopicPartition("orders", 0)
TORN = TornTransaction(7, 0, True, False, (TornPart(TP, 1, 2),), (TornPart(TP, 5, 6),), "billing")
PLACE = OrphanPlace("flights", "east", "west", "__onceover.flights.orphans", Path("/var/o.jsonl"), None)
TERMS = RebuildTerms({"orders": TopicShape("id", 1, 3, {})}, {}, 3)


def look_of(records: int) -> OrphanLook:
    tally = OrphanTally()
    for offset in range(5, 5 + records):
        tally.add(DecodedRecord(offset, 0, b"k", b"v"))
    return OrphanLook(TP, "id", 0, 5 + records, 5 + records, 5, tally)


def plan_of(records: int, *, rebuild: bool = False) -> OrphansPlan:
    look = look_of(records)
    return plan_orphans(
        PLACE, OrphanView((look,), (TORN,), (), {}, ()), {}, rebuild=TERMS if rebuild else None
    )


class Planned:
    """An operation that has a plan."""

    def __init__(self, plan: OrphansPlan) -> None:
        self._plan = plan

    def plan(self) -> OrphansPlan:
        return self._plan


def test_a_person_is_shown_everything_that_is_done_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is exported, what is deleted, where there is no way back, and which transactions were torn."""
    text = ORPHANS.question(plan_of(3, rebuild=True))
    for part in ("orders:0", "topic orders on east", "destructive", "point of no return", "billing"):
        assert part in text, part
    assert "point of no return" not in ORPHANS.question(plan_of(3))


def test_a_position_that_goes_with_its_topic_is_shown_with_it() -> None:
    """Before everything that can be taken back."""
    only_here = PositionsOnlyHere({"orders": [PositionOnlyHere("billing-old", "orders", ((0, 4),))]})
    view = OrphanView((look_of(1),), (), (), {}, ())
    text = ORPHANS.question(
        plan_orphans(PLACE, view, {}, rebuild=replace(TERMS, positions=only_here, forgets=lambda _: True))
    )
    assert "group billing-old" in text
    assert text.index("| forget |") < text.index("| export |")


def test_no_deletion_is_left_out_of_what_a_person_is_shown() -> None:
    """However many topics there are, they come first, and all; what else is too much is said."""
    names = [f"orders-{number:03}" for number in range(70)]
    notes = tuple(Refusal(name, "LED_BACK", "by now", "nothing", blocks=False) for name in names)
    looks = tuple(replace(look_of(1), source=TopicPartition(name, 0)) for name in names)
    shapes = {name: TopicShape("id", 1, 3, {"retention.ms": "-1"}) for name in names}
    view = OrphanView(looks, (), (), {}, notes, unseen=("payments",))
    plan = plan_orphans(PLACE, view, {}, rebuild=RebuildTerms(shapes, {}, 3))
    text = ORPHANS.question(plan)
    first_export = text.index("| export |")
    for name in names:
        at = text.index(f"topic {name} on east")
        assert at < first_export, name
    assert text.count("| delete |") == text.count("| create |") == 70
    assert "retention.ms=-1" in text
    assert "and 41 more" in text
    assert ("**Note** `orders-000`" in text, "**Not looked at** `payments`" in text) == (True, True)


@pytest.mark.parametrize("records", [0, 2])
def test_nobody_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    @contextmanager
    def opened(*_: object) -> Iterator[Planned]:
        yield Planned(plan_of(records))

    monkeypatch.setattr(type(ORPHANS), "opened", opened)
    context = {"params": {name: param.value for name, param in orphan_params().items()}}
    if records:
        assert len(ORPHANS.ask("flights", context).items) == 2  # pyrefly: ignore[bad-argument-type]
    else:
        with pytest.raises(AirflowSkipException):
            ORPHANS.ask("flights", context)
