"""What a dead letter names: of which flow, and of which of all topics that ever bore a name."""

from __future__ import annotations

from typing import Final
from unittest.mock import patch
from uuid import UUID

import pytest

from onceover.audit.model import Reason
from onceover.audit.ranges.diverted import CopyBegun, DeadLetters, Diverted, Doubt, diverted
from onceover.audit.records.reader import Gone
from onceover.errors import Retriable
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeTopic
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


def named(*letters: tuple[int, Headers]) -> DeadLetters:
    """Return what these dead letters, each with its time, say of the partition as it is copied now."""
    cluster = FakeCluster("west")
    cluster.make_topic("letters", 1)
    topic: FakeTopic = cluster.all_topics["letters"]
    for at_ms, headers in letters:
        topic.logs[0].append([Content(b"k", b"v", headers, at_ms)])
    return diverted(cluster, {"letters": 1}, "dr").of(SOURCE, NOW, tuple)


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
    doubt = Diverted(gone={"letters": 4}).of(SOURCE, NOW, tuple).doubt(10**9)
    assert doubt is not None and doubt.reason is Reason.DELETED
    assert DeadLetters(unread=(Doubt(Reason.DELETED, "", 9),)).doubt(9) is None
