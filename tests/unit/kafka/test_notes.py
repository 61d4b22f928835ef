"""Small records: what a refused one is to its caller. A scripted broker under the real producer."""

from __future__ import annotations

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.produce import notes
from onceover.kafka.produce.notes import RecordWriter
from onceover.model import TopicPartition
from tests.support.fakes.fakebroker import LOST
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.kafka.scenes import P1, end_of, target

DENIED, TOO_LARGE, MOVED = 29, 10, 6


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr(notes, "_DELIVERY_TIMEOUT_S", 0.05)
    return target()


def writer(cluster: FakeCluster, topic: str = "t") -> RecordWriter:
    return RecordWriter(cluster, TopicPartition(topic, 1))


RECORDS = [(b"a", b"1"), (b"b", None)]


@pytest.mark.parametrize(
    ("request_name", "code", "expected", "seen"),
    [
        ("answer", DENIED, UsageError, "not authorized"),
        ("InitProducerId without an id", 31, UsageError, "not authorized"),
        ("answer", TOO_LARGE, NeedsOperator, "no"),
        ("answer", MOVED, Retriable, "error 6"),
        ("answer", LOST, Retriable, LOST),
    ],
)
def test_a_record_that_is_not_taken_says_who_has_to_do_something(
    cluster: FakeCluster, request_name: str, code: int | str, expected: type[OnceoverError], seen: str
) -> None:
    """A missing right does not come by waiting; everything else may."""
    cluster.codes[request_name].extend([code] * 1000)
    with pytest.raises(expected, match=f"west did not take 'a', 'b': .*{seen}") as failed:
        writer(cluster).write(RECORDS)
    assert failed.value.where == "t:1"


def test_a_topic_that_is_not_there_yet_is_waited_for(cluster: FakeCluster) -> None:
    """It may have been created just now; who is in charge of it decides what its absence means."""
    with pytest.raises(Retriable, match="does not exist"):
        writer(cluster, "other").write(RECORDS)


@pytest.mark.parametrize("code", [MOVED, LOST])
def test_what_was_not_acknowledged_is_sent_again_under_another_producer_id(
    cluster: FakeCluster, code: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the first one was appended is not known; the same key and value twice harm nobody."""
    monkeypatch.setattr(notes, "_DELIVERY_TIMEOUT_S", 30.0)
    cluster.codes["answer"].append(code)
    found = writer(cluster)
    found.write(RECORDS)
    found.write(RECORDS)
    found.close()
    assert end_of(cluster, P1) == 204
    assert [(producer, sequence) for _, producer, _, sequence in cluster.batches] == [(902, 0), (902, 2)]


def test_much_is_written_in_portions_that_have_a_time_each(cluster: FakeCluster) -> None:
    """43 MB in ten seconds, as all that was remembered of 5,000 groups, is no line's guarantee."""
    value, number = b"x" * 500_000, 43
    records = [(b"%d" % n, value) for n in range(number)] + [(b"a", b"y" * 3_000_000), (b"b", None)]
    writer(cluster).write(records)
    assert end_of(cluster, P1) == 200 + number + 2
    assert len(cluster.batches) > number / 2


def test_many_small_records_fit_into_what_a_broker_takes(cluster: FakeCluster) -> None:
    """Each takes more than its key and value: a megabyte of those is too much for a batch."""
    writer(cluster).write([(b"%06d" % n, b"x" * 50) for n in range(40_000)])
    assert end_of(cluster, P1) == 200 + 40_000
    assert max(cluster.sizes) < 1_048_588
