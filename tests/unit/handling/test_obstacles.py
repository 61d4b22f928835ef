"""What a refusal teaches: split, re-encode, divert, or stop; never drop, never blame the wrong record."""

from __future__ import annotations

import pytest

from onceover.handling.obstacles import Obstacle, RecordProblem, obstacle_after
from onceover.kafka.ports import Outgoing, Refused
from onceover.model import TopicPartition
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.kernel import RunFacts
from tests.unit.copy.batches import stored
from tests.unit.copy.loop import A

LETTERS = "letters"


def refuse(
    code: int,
    *,
    count: int = 5,
    named: tuple[int, ...] = (),
    obstacle: Obstacle | None = None,
    dead_letter: str | None = LETTERS,
    target: TopicPartition = A,
    first: int = 10,
    anew: bool = False,
) -> Obstacle:
    """Return what is learned from the refusal of a batch of source offsets ``first``, and those behind it.

    Args:
        anew: it was made here, and not passed.
    """
    batch = bytearray(stored(0, count))
    sent = batch if anew else memoryview(batch)
    outgoing = Outgoing(target, parse_header(batch), sent, A, ((first, count),))
    learned = obstacle or Obstacle()
    refused = Refused(outgoing, code, "the broker's words", named)
    obstacle_after(refused, outgoing, learned, "f", A, dead_letter)
    return learned


@pytest.mark.parametrize("code", [32, 87])
def test_named_records_are_diverted_at_once(code: int) -> None:
    """The broker's words go along as the reason; each refusal would cost a transaction."""
    learned = refuse(code, named=(3, 1))
    reason = RecordProblem(
        "RECORD_REFUSED", f"the target refuses the record (error {code}: the broker's words)"
    )
    assert learned.divert == {11: reason, 13: reason}
    assert learned.barrier is None and not learned.empty


@pytest.mark.parametrize("code", [32, 87])
def test_record_that_nobody_named_is_found_alone(code: int) -> None:
    """Blaming the first one of the batch would divert a good record and keep the bad one."""
    learned = refuse(code)
    assert learned.divert == {} and learned.most_bytes(14) == 1
    assert list(refuse(code, count=1, obstacle=learned).divert) == [10]


@pytest.mark.parametrize("limit", [None, 500_000])
def test_only_the_records_of_a_refused_batch_go_alone(limit: int | None) -> None:
    """Before, all that came later did, each a batch of its own, until the task was over."""
    learned = refuse(32, obstacle=Obstacle(max_batch_bytes=limit))
    assert [learned.most_bytes(at) for at in (10, 14, 15)] == [1, 1, limit]
    assert not learned.empty
    learned.passed(14)
    assert learned.most_bytes(14) == 1
    learned.passed(15)
    assert learned.most_bytes(15) == limit and learned.empty == (limit is None)


def test_too_large_batch_is_split_and_a_too_large_record_diverted() -> None:
    """Only what is too large alone goes to the dead letters."""
    learned = refuse(10)
    assert learned.max_batch_bytes is not None and learned.divert == {}
    learned = refuse(10, count=1)
    assert [reason.code for reason in learned.divert.values()] == ["RECORD_TOO_LARGE"]


def apart() -> Obstacle:
    """Return what is known of a partition whose single records stay as they are compressed."""
    obstacle, single = Obstacle(), RunFacts(0, 0, 0, 9, 9, 9_000, 9, 0)
    obstacle.packing.learn(single, 9_000)
    assert obstacle.packing.apart
    return obstacle


def test_records_that_are_too_large_as_they_are_compressed_are_compressed_together_first() -> None:
    """Only where these are refused as well the topic takes less than is merged. A passed batch is split."""
    learned = refuse(10, obstacle=apart(), anew=True)
    assert learned.empty and not learned.packing.apart
    refuse(10, obstacle=learned, anew=True)
    assert learned.max_batch_bytes is not None
    passed = refuse(10, obstacle=apart())
    assert passed.max_batch_bytes is not None


def test_neighbours_hear_which_batches_were_too_large() -> None:
    """Those of single records as they were compressed say nothing about batches that are compressed."""
    neighbour = apart()
    neighbour.takes_less_than(9_000, apart=True)
    assert neighbour.empty and not neighbour.packing.apart
    neighbour.takes_less_than(9_000, apart=False)
    assert neighbour.max_batch_bytes == 8_999


@pytest.mark.parametrize("code", [2, -1])
def test_refusals_that_are_not_about_a_record_stop_also_with_dead_letters(code: int) -> None:
    """Re-encoded once; whatever it is then, it is no record's fault."""
    learned = refuse(code)
    assert learned.reencode == {10} and learned.barrier is None
    refuse(code, obstacle=learned)
    assert learned.barrier == 10 and learned.stop is not None and learned.divert == {}


def test_without_dead_letters_the_partition_stops_at_the_record() -> None:
    """As the flow file says."""
    learned = refuse(87, named=(4, 2), dead_letter=None)
    assert learned.barrier == 12 and learned.stop is not None and learned.stop.code == "RECORD_REFUSED"


@pytest.mark.parametrize(
    ("code", "setting", "other"),
    [(10, "max.message.bytes", "segment.bytes"), (18, "segment.bytes", "max.message.bytes")],
)
def test_a_record_that_is_too_large_names_what_has_to_be_raised(code: int, setting: str, other: str) -> None:
    """Raising the other limit helps nobody; the broker's words say how large it is."""
    learned = refuse(code, count=1, dead_letter=None)
    assert learned.stop is not None and learned.stop.code == "RECORD_TOO_LARGE"
    assert f"raise {setting} of" in learned.stop.resolve and setting in learned.stop.expected
    assert other not in learned.stop.resolve + learned.stop.expected
    assert learned.stop.seen == f"error {code}: the broker's words"


def test_a_record_that_is_too_large_in_every_shape_names_it_too() -> None:
    """However often it was refused before."""
    learned = Obstacle()
    for _ in range(50):
        refuse(18, obstacle=learned, dead_letter=None)
    assert learned.stop is not None and learned.stop.code == "RECORD_TOO_LARGE"
    assert "segment.bytes" in learned.stop.resolve


def test_dead_letters_that_are_refused_are_split_and_then_stop() -> None:
    """A batch of several may only be too large together."""
    letters = TopicPartition(LETTERS, 0)
    learned = refuse(10, target=letters)
    assert learned.max_dead_letter_bytes is not None and learned.barrier is None
    assert learned.max_batch_bytes is None
    refuse(10, count=1, target=letters, obstacle=learned)
    assert learned.barrier == 10
    assert learned.stop is not None and learned.stop.code == "DEAD_LETTER_REFUSED"


def test_every_batch_that_is_refused_as_bytes_is_reencoded() -> None:
    """Of two in one transaction each would otherwise make the other one forgotten, for ever."""
    learned = refuse(-1, first=10)
    refuse(-1, first=20, obstacle=learned)
    assert learned.reencode == {10, 20} and learned.barrier is None
    refuse(-1, first=10, obstacle=learned)
    assert learned.barrier == 10
    learned = Obstacle(reencode={10, 20})
    learned.passed(20)
    assert learned.reencode == {20}
    learned.passed(21)
    assert learned.empty


@pytest.mark.parametrize("dead_letter", [LETTERS, None])
def test_what_is_refused_in_every_shape_stops_its_partition(dead_letter: str | None) -> None:
    """Whatever is tried, and however the broker answers: there is an end, with what was seen last."""
    learned = Obstacle()
    tries = 0
    while learned.barrier is None and tries < 100:
        # A batch of many, always too large, however small it was made.
        refuse(10, obstacle=learned, dead_letter=dead_letter)
        tries += 1
    assert tries == 50
    assert learned.barrier == 10 and learned.stop is not None
    assert "50 refusals" in learned.stop.seen


def test_limits_only_shrink() -> None:
    """A larger batch of another partition's making does not widen what a smaller one has taught."""
    learned = refuse(10, count=2)
    assert learned.max_batch_bytes is not None
    before = learned.max_batch_bytes
    refuse(10, count=200, obstacle=learned)
    assert learned.max_batch_bytes < before


def test_refusals_are_counted_anew_behind_what_was_refused() -> None:
    """A topic may well hold a thousand batches that have to be sent otherwise; diverted ones do not count."""
    learned = Obstacle()
    for first in range(0, 4000, 40):
        refuse(-1, first=first, obstacle=learned)
        learned.passed(first + 5)
    assert learned.barrier is None and learned.refusals == 0
    for first in range(4000, 4300):
        refuse(32, first=first, count=1, obstacle=learned)
    assert learned.barrier is None and len(learned.divert) == 300


def test_diverted_records_are_forgotten_when_they_are_committed() -> None:
    """From then on batches pass as bytes again."""
    learned = Obstacle(divert={3: RecordProblem("a", "b"), 7: RecordProblem("a", "b")})
    learned.passed(4)
    assert list(learned.divert) == [7]
    learned.passed(8)
    assert learned.empty
