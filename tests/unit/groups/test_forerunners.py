"""Groups that stand before all that a flow the other way has copied: exact, or no answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.groups.decide import OtherPosition, Remembered
from onceover.groups.forerunners import (
    Forerunners,
    ForerunnersAnswer,
    GroupPlace,
    PromotedPair,
    Promoters,
    _Forerunner,
    counterpart_before,
    promoters_of,
)
from onceover.model import TopicPartition
from onceover.state.records.enrolment import Enrolment, LeftAt, PlacedProgress
from onceover.wire.offsetlookup import NotCovered, Translated, Translation

TP = TopicPartition("orders", 3)
EAST, WEST = "id-east", "id-west"
NOTHING = NotCovered(None, None)
# West 0 to 9 was copied from east 100 to 109, with a marker at 10; clients have written from 11 on.
END = 11


@dataclass
class East:
    """What the flow from east to west knows."""

    ids: tuple[str, str] = (EAST, WEST)
    one_to_one: bool = True
    went_on: PlacedProgress | None = None
    back: dict[int, int] = field(default_factory=lambda: {n: 100 + n for n in range(11)} | {END: 110})

    def ids_between(self, target: TopicPartition) -> tuple[str, str]:
        return self.ids

    def placed(self, target: TopicPartition) -> PlacedProgress | None:
        return self.went_on

    def is_one_to_one(self, source: TopicPartition) -> bool:
        return self.one_to_one

    def to_source(self, target: TopicPartition, offset: int) -> Translation:
        return Translated(self.back[offset]) if offset in self.back else NOTHING

    def to_target(self, source: TopicPartition, offset: int) -> Translation:
        # An aborted record has stood at 105: 104 has no record, and is the place of 105.
        return Translated(5 if offset == 104 else offset - 100)


@dataclass
class West:
    """What the flow the other way knows, which began at the end of that copy."""

    began: int | None = 112
    on: int | None = None

    def to_target(self, source: TopicPartition, offset: int) -> Translation:
        return Translated(self.began) if offset == END and self.began is not None else NOTHING

    def copied_on(self, source: TopicPartition, offset: int) -> int | None:
        return self.on


def placed(at: int, current: int | None = None, east: East | None = None, west: West | None = None) -> object:
    where = GroupPlace("billing", at, current)
    found = counterpart_before(east or East(), END, (TP, TP), (WEST, EAST), where, west or West())
    return found.offset if isinstance(found, Translated) else None


def test_before_a_copied_record_it_goes_on_with_that_one() -> None:
    assert [placed(at) for at in (0, 5, 9)] == [100, 105, 109]


@pytest.mark.parametrize("at", [10, END])
def test_behind_the_last_copied_record_it_goes_on_with_the_first_one_of_the_clients(at: int) -> None:
    """Which is where the flow the other way has begun to write, and not where the old one had ended."""
    assert placed(at) == 112


def test_of_several_positions_that_are_one_place_it_keeps_its_own() -> None:
    assert (placed(5, current=104), placed(5, current=105), placed(5, current=101)) == (104, 105, 105)


@pytest.mark.parametrize(
    ("at", "east", "west"),
    [
        (5, East(ids=("id-other", WEST)), West()),
        (5, East(ids=(EAST, "id-other")), West()),
        (5, East(one_to_one=False), West()),
        (5, East(back={4: 104, END: 110}), West()),
        (10, East(), West(began=None)),
        (12, East(), West()),
        (12, East(), West(on=13)),
    ],
    ids=[
        "source anew",
        "copy anew",
        "handler",
        "expired",
        "began elsewhere",
        "of clients",
        "of clients still",
    ],
)
def test_what_is_not_known_is_no_answer(at: int, east: East, west: West) -> None:
    assert placed(at, 104, east, west) is None


def test_what_was_copied_back_without_a_record_is_one_place() -> None:
    """On a later way back: of what clients wrote there nothing but a marker stands behind the group."""
    east = East(back={n: 100 + n for n in range(9)} | {10: 140, END: 141})
    assert (placed(9, east=east), placed(9, east=east, west=West(on=10))) == (None, 140)
    # The near misses: that marker lies behind the promotion, too, or does not tell either.
    assert placed(9, east=east, west=West(on=END + 1)) is None
    assert placed(8, east=East(back={END: 141}), west=West(on=9)) is None


@pytest.mark.parametrize("at", [9, 10])
def test_on_a_later_way_out_what_clients_wrote_in_between_is_not_passed_over(at: int) -> None:
    """The first copy ended at 9; clients wrote up to where the second one went on, which copied nothing."""
    east = East(
        went_on=PlacedProgress(5, 140, END), back={n: 100 + n for n in range(9)} | {9: 140, 10: 140, END: 140}
    )
    assert placed(at, east=east) is None
    # The near misses: what the first copy has brought, and the place itself.
    assert (placed(5, east=east), placed(END, east=east)) == (105, 112)


@pytest.mark.parametrize("ids", [(WEST, EAST), (WEST, "id-made-anew")])
def test_what_it_remembers_of_a_group_counts_between_the_same_topics_only(ids: tuple[str, str]) -> None:
    """Of the topic that was deleted and made anew the position is another record, or none."""
    known = Remembered(4000, frozenset({5}), 1, {5: OtherPosition(4000, 0)})
    record = SimpleNamespace(
        source=TP.topic, is_promoted=True, promoted=SimpleNamespace(ends={TP.partition: END})
    )
    memory = SimpleNamespace(of=lambda *_: {TP: known})
    one = opened(SimpleNamespace(enrolment=lambda target: record), memory)
    answer = one.answer((TP, TP), ids, GroupPlace("g", 5, None), cast(Any, West()))
    assert answer is not None
    same = ids == (WEST, EAST)
    assert answer.remembered == (known if same else None)
    assert isinstance(answer.translation, Translated) is same


def opened(translator: object, memory: object) -> Forerunners:
    """Return what asks a flow that is read already."""
    cluster = cast(Any, SimpleNamespace(retry=lambda attempt: attempt()))
    copied = {PromotedPair(TP.topic, TP.topic)}
    asked = Forerunners(cluster, lambda: Promoters({"east": copied}), lambda _: Path(), lambda: None)
    moment = SimpleNamespace(
        refresh=translator.refresh if hasattr(translator, "refresh") else lambda: None,
        **{
            n: getattr(East(), n)
            for n in ("ids_between", "placed", "is_one_to_one", "to_source", "to_target")
        },
    )
    read = SimpleNamespace(read=lambda: None, **vars(memory))
    asked._opened["east"] = _Forerunner("east", *cast(Any, (translator, moment, read)))
    return asked


def answered(asked: Forerunners, giving: str = TP.topic) -> object:
    sides = TopicPartition(giving, 3), TP
    return asked.answer(sides, (WEST, EAST), GroupPlace("g", 5, None), cast(Any, West()))


def raising(error: Exception) -> Any:
    def refuse(*_: object) -> None:
        raise error

    return refuse


@pytest.mark.parametrize(
    "error",
    [UsageError("flow east has never been started on west"), NeedsOperator("a map record is damaged")],
)
def test_what_is_the_matter_with_a_flow_is_nothing_to_who_reads_other_topics(error: Exception) -> None:
    """Its state may be deleted between the moment that it was found and the one that it is read."""
    asked = opened(SimpleNamespace(refresh=raising(error)), SimpleNamespace())
    assert answered(asked, "payments") is None
    # What it alone knew is not known, and said so.
    found = answered(asked)
    assert isinstance(found, ForerunnersAnswer)
    assert found.translation == NotCovered(None, None, str(error))


def test_a_broker_that_is_away_is_asked_again() -> None:
    """What the flow knows may be there in a moment: it is not told to be unknown."""
    asked = opened(SimpleNamespace(refresh=raising(Retriable("away"))), SimpleNamespace())
    with pytest.raises(Retriable):
        answered(asked)


@pytest.mark.parametrize("known", [Remembered(4000, frozenset({5}), 1, {}), None])
def test_the_flow_that_knows_counts_whatever_one_of_its_former_name_says(known: Remembered | None) -> None:
    """Both have promoted the same pair; of the first one the state is damaged, or gone."""
    record = SimpleNamespace(
        source=TP.topic, is_promoted=True, promoted=SimpleNamespace(ends={TP.partition: END})
    )
    memory = SimpleNamespace(of=lambda *_: {} if known is None else {TP: known})
    asked = opened(SimpleNamespace(enrolment=lambda target: record), memory)
    former = SimpleNamespace(refresh=raising(NeedsOperator("a map record is damaged")))
    asked._opened["a-former"] = _Forerunner("a-former", *cast(Any, (former, former, SimpleNamespace())))
    copied = {PromotedPair(TP.topic, TP.topic)}
    asked.find = lambda: Promoters({"a-former": copied, "east": copied})
    found = answered(asked)
    assert isinstance(found, ForerunnersAnswer)
    assert (found.flow, found.translation, found.remembered) == ("east", Translated(105), known)


def test_a_state_that_cannot_be_read_now_matters_where_nobody_else_knows() -> None:
    """Who has promoted the pair may be the one whose broker is away; asked once, and not for each group."""
    asked = opened(SimpleNamespace(refresh=raising(NeedsOperator("damaged"))), SimpleNamespace())
    looks = []

    def find() -> Promoters:
        looks.append(1)
        return Promoters(
            {"east": {PromotedPair(TP.topic, TP.topic)}}, Retriable("of flow x nothing is known")
        )

    asked.find = find
    assert isinstance(answered(asked), ForerunnersAnswer)
    for _ in range(2):
        with pytest.raises(Retriable, match="of flow x"):
            answered(asked, "payments")
    assert looks == [1]


def test_who_promoted_counts_where_it_copied_between_the_same_clusters() -> None:
    """The other way round, elsewhere, or without a word about where: nobody's forerunner."""
    copied = Enrolment("orders", "copy.orders", UUID(int=1), UUID(int=2), {0: 0}, 0)
    promoted = copied.as_promoted("d1", LeftAt(7, 70), {0: 5}, {0: 3})
    flows = [
        SimpleNamespace(name=name, clusters=clusters, enrolments=(promoted, copied))
        for name, clusters in {
            "ours": (EAST, WEST),
            "turned": (WEST, EAST),
            "elsewhere": (EAST, "id-north"),
            "unknown": (None, WEST),
        }.items()
    ]
    assert promoters_of(flows, {}, WEST, EAST) == Promoters({"ours": {PromotedPair("copy.orders", "orders")}})


def test_only_what_passes_leaves_open_who_promoted() -> None:
    """State that nobody can read will not be read by asking again."""
    damaged, away = NeedsOperator("it is damaged", code="STATE_DAMAGED"), Retriable("no answer", where="west")
    assert promoters_of([], {"a": damaged}, WEST, EAST).unread is None
    unread = promoters_of([], {"a": damaged, "b": away}, WEST, EAST).unread
    assert unread is not None
    assert (unread.message, unread.where) == ("what flow b has promoted is not known: no answer", "west")
