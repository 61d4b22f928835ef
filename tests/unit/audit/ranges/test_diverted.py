"""What a dead letter names: of which flow, and of which of all topics that ever bore a name."""

from __future__ import annotations

from typing import Final
from unittest.mock import patch
from uuid import UUID

import pytest

from onceover.audit.model import Reason
from onceover.audit.ranges.diverted import CopyBegun, DeadLetters, Doubt, diverted
from onceover.audit.records.reader import Gone
from onceover.errors import Retriable, UsageError
from onceover.model import TopicPartition
from onceover.txn.classify import Api
from onceover.wire.offsetmap import MapRecord
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeTopic
from tests.support.fakes.refusing import NOT_AUTHORIZED, not_authorized
from tests.support.raw.mutations import Content

SOURCE: Final = TopicPartition("orders", 3)
NOW: Final = CopyBegun(UUID(int=7), at_ms=500, enrolled_ms=1_000)
THIS: Final = str(NOW.source_id).encode()
Headers = tuple[tuple[bytes, bytes | None], ...]


def own(offset: bytes, topic_id: bytes | None = None, flow: bytes = b"dr") -> Headers:
    """Return the headers that a flow writes; without an id as an older release does."""
    with_id = () if topic_id is None else ((b"onceover.source.topic.id", topic_id),)
    return (
        (b"onceover.error.code", b"HANDLER_FAILED"),
        (b"onceover.flow", flow),
        (b"onceover.source.topic", b"orders"),
        *with_id,
        (b"onceover.source.partition", b"3"),
        (b"onceover.source.offset", offset),
    )


def target(*letters: tuple[int, Headers]) -> FakeCluster:
    """Return a cluster with two topics: one that was used before, and one with these, each with its time."""
    cluster = FakeCluster("west")
    cluster.make_topic("before", 1)
    cluster.make_topic("letters", 1)
    topic: FakeTopic = cluster.all_topics["letters"]
    for at_ms, headers in letters:
        topic.logs[0].append([Content(b"k", b"v", headers, at_ms)])
    return cluster


def named(*letters: tuple[int, Headers]) -> DeadLetters:
    """Return what these dead letters, each with its time, say of the partition as it is copied now."""
    return diverted(target(*letters), {"letters": 1}, "dr").of(SOURCE, NOW, tuple)


def test_letters_of_another_topic_of_the_name_name_nothing() -> None:
    """By its id; by their time where an older release wrote none."""
    other = str(UUID(int=8)).encode()
    found = named((999, own(b"1", THIS)), (2_000, own(b"2", other)), (999, own(b"3")), (1_000, own(b"4")))
    assert found == DeadLetters(frozenset({1, 4}))


def test_letters_of_an_earlier_copy_of_the_topic_name_nothing() -> None:
    """What it diverted may have been copied since."""
    assert named((499, own(b"1", THIS)), (500, own(b"2", THIS))) == DeadLetters(frozenset({2}))


def test_headers_that_the_record_had_itself_say_nothing() -> None:
    """It may have been diverted, or exported, before it came to the source."""
    before = own(b"5", THIS)
    assert named((2_000, (*before, *own(b"6")))) == DeadLetters(frozenset({6}))
    assert named((2_000, (*before, *own(b"6", flow=b"another")))) == DeadLetters()


@pytest.mark.parametrize("said", [b"", b"-1", b"x", "\u0665".encode()])
def test_a_letter_that_names_no_offset_names_nothing(said: bytes) -> None:
    """Whoever else writes there."""
    assert named((2_000, own(said, THIS))) == DeadLetters()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Gone("it begins later now"), Reason.RETENTION), (Retriable("its leader moves"), Reason.NO_LEADER)],
)
def test_letters_that_are_gone_before_they_are_read_are_in_doubt(error: Exception, reason: Reason) -> None:
    """Somebody deletes them, or a broker dies, between two requests: that ends no audit."""
    with patch("onceover.audit.ranges.diverted.read_batches", side_effect=error, autospec=True):
        doubt = named((2_000, own(b"1", THIS))).doubt(1)
    assert doubt is not None and doubt.reason is reason


def test_topic_that_is_gone_touches_what_was_copied_while_it_was_used() -> None:
    """All where nothing was copied since."""
    doubt = diverted(FakeCluster("west"), {"letters": 4}, "dr").of(SOURCE, NOW, tuple).doubt(10**9)
    assert doubt is not None and doubt.reason is Reason.DELETED
    assert DeadLetters(unread=(Doubt(Reason.DELETED, "", 9),)).doubt(9) is None


REFUSED: Final = UsageError("west refuses metadata")


def copied_by(generation: int) -> MapRecord:
    """Return what the map says of the records from offset 5 on."""
    return MapRecord(
        source=SOURCE,
        target=SOURCE,
        source_start=5,
        source_end=9,
        target_start=5,
        segments=(),
        bytes=0,
        generation=generation,
        lane=0,
        batch=1,
        attempt=0,
        begin_ms=1,
        commit_ms=2,
    )


def test_topic_of_before_that_may_not_be_described_touches_what_was_copied_while_it_was_used() -> None:
    """Kafka refuses one that is gone, too, to whom its name is no longer granted: nobody can mend that."""
    cluster = target((2_000, own(b"1", THIS)))
    cluster.unanswered["before"] = REFUSED
    found = diverted(cluster, {"before": 1, "letters": 2}, "dr", "letters")
    letters = found.of(SOURCE, NOW, lambda: [copied_by(2)])
    doubt = letters.doubt(4)
    assert letters.offsets == {1} and letters.doubt(5) is None
    assert doubt is not None and doubt.reason is Reason.UNREADABLE and REFUSED.message in doubt.why


def test_topic_of_before_that_may_not_be_read_takes_nothing_from_the_others() -> None:
    """It may be described: its READ alone was withdrawn."""
    cluster = target((2_000, own(b"1", THIS)))
    cluster.all_topics["before"].logs[0].append([Content(b"k", b"v", own(b"2", THIS), 2_000)])

    cluster.faults[TopicPartition("before", 0)] = NOT_AUTHORIZED
    letters = diverted(cluster, {"before": 1, "letters": 2}, "dr", "letters").of(SOURCE, NOW, tuple)
    doubt = letters.doubt(2)
    assert letters.offsets == {1} and doubt is not None and doubt.reason is Reason.UNREADABLE


@pytest.mark.parametrize("right", ["DESCRIBE", "READ"])
def test_todays_topic_that_may_not_be_read_may_name_whatever_is_missing(right: str) -> None:
    """Also where nobody knows of a generation that has diverted to it; each partition says it once."""
    cluster = target()
    cluster.all_topics["letters"].logs[0].append([Content(b"k", b"v", (), 1)])
    if right == "READ":
        cluster.faults[TopicPartition("letters", 0)] = NOT_AUTHORIZED
    else:
        cluster.unanswered["letters"] = not_authorized(cluster, Api.METADATA, "letters")
    (doubt,) = (
        diverted(cluster, {"letters": 0}, "dr", "letters").of(SOURCE, NOW, lambda: [copied_by(2)]).unread
    )
    assert (doubt.reason, doubt.until) == (Reason.UNREADABLE, None)
    assert "letters" in doubt.why and "west" in doubt.why and f"{right} on the topic" in doubt.why


def test_an_audit_does_not_go_on_without_what_is_about_to_be_told() -> None:
    """The broker that knows the topic is on its way."""
    cluster = target()
    cluster.unanswered["letters"] = Retriable("its metadata is not known yet")
    with pytest.raises(Retriable):
        diverted(cluster, {"letters": 1}, "dr", "letters")


@pytest.mark.parametrize(("flow", "asked"), [(b"dr", 4), (b"another", 3)])
def test_nobody_waits_for_transactions_that_hold_no_letter_of_the_flow(flow: bytes, asked: int) -> None:
    """Others write there all the time: each audit would wait as long as it may."""
    cluster = target((2_000, own(b"1", THIS)))
    letters: FakeTopic = cluster.all_topics["letters"]
    letters.logs[0].append([Content(b"k", b"v", own(b"2", THIS, flow), 2_000)], 9)
    with patch("onceover.audit.ranges.diverted._MARKERS_S", 0.0):
        found = diverted(cluster, {"letters": 1}, "dr").of(SOURCE, NOW, tuple)
    assert found == DeadLetters(frozenset({1}), frozenset({2} if flow == b"dr" else ()))
    # End, last stable offset and start, and then once more for each look at what is still open.
    assert cluster.log.count("ListOffsets") == asked
