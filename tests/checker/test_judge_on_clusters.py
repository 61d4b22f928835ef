"""Judge and adversary on real brokers: what one makes on purpose, the other names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.judge import CopyFaultKind, CopyVerdict, compare_topics
from tests.support.raw.adversary import COMPACT_AT_ONCE, EPOCH_MS, Adversary, Traffic
from tests.support.raw.rawkafka import Codec, RawRecord
from tests.support.session.wait import wait_until

from onceover.errors import UsageError

TIMEOUT_S = 60.0


class Sides(NamedTuple):
    """The same adversary, with the same seed, on both clusters, and a topic of the same name on each."""

    source: Adversary
    target: Adversary
    topic: str
    clients: tuple[dict[str, str], dict[str, str]]

    def compare(self, **options: object) -> CopyVerdict:
        verdict: CopyVerdict = compare_topics(*self.clients, [self.topic], timeout_s=TIMEOUT_S, **options)  # pyrefly: ignore[bad-argument-type]
        return verdict


@pytest.fixture
def sides(source_cluster: SharedCluster, target_cluster: SharedCluster, unique_name: str) -> Iterator[Sides]:
    with (
        Adversary(source_cluster.bootstrap, seed=7) as source,
        Adversary(target_cluster.bootstrap, seed=7) as target,
    ):
        for adversary in (source, target):
            adversary.create_topic(unique_name, 2)
        yield Sides(source, target, unique_name, (source_cluster.client, target_cluster.client))


def record(number: int, value: bytes | None = b"v") -> RawRecord:
    return RawRecord(b"key-%d" % number, value, ((b"h", None), (b"h", b"")), EPOCH_MS + number)


def found(verdict: CopyVerdict) -> dict[CopyFaultKind, int]:
    return {kind: verdict.count(kind) for kind in CopyFaultKind if verdict.count(kind)}


def test_every_kind_of_batch_compares_equal_to_itself(sides: Sides) -> None:
    """All codecs, null and empty, header names that are no text, tiny and large batches, transactions."""
    for adversary in (sides.source, sides.target):
        for codec in Codec:
            adversary.plain(sides.topic, 0, adversary.records(3), codec)
            adversary.idempotent(sides.topic, 0, adversary.records(3), codec)
            adversary.every_null_and_empty(sides.topic, 0, codec)
            adversary.straddling(sides.topic, 0, codec)
        adversary.not_utf8_headers(sides.topic, 0)
        adversary.tiny_batches(sides.topic, 0, 3)
        adversary.batch_of_size(sides.topic, 0, 1_048_588)
        assert adversary.interleaved(sides.topic, 1) == {1: 9}
    # The answer to a commit comes before its markers: readers see the records a moment later.
    wait_until(lambda: sides.compare().ok, TIMEOUT_S, "both sides are equal")
    verdict = sides.compare()
    assert verdict.source_records == 5 * (3 + 3 + 80 + 10) + 1 + 3 + 1 + 9
    assert "not UTF-8" in verdict.explain()


def test_null_that_became_empty_is_altered(sides: Sides) -> None:
    """The client library keeps them apart, and so does the judge."""
    sides.source.plain(sides.topic, 0, [record(1), record(2, None), record(3)])
    sides.target.plain(sides.topic, 0, [record(1), record(2, b""), record(3)])
    verdict = sides.compare()
    assert found(verdict) == {CopyFaultKind.ALTERED: 1}
    assert set(verdict.partitions[0].altered_fields) == {"value"}


def test_aborted_record_on_the_target_is_named(sides: Sides) -> None:
    """The judge looks again at the source, uncommitted, before it speaks of a phantom."""
    aborted = sides.source.transaction(sides.topic)
    aborted.send(0, [record(1)])
    aborted.abort()
    sides.source.plain(sides.topic, 0, [record(2)])
    sides.target.plain(sides.topic, 0, [record(1), record(2)])
    assert found(sides.compare()) == {CopyFaultKind.ABORTED_VISIBLE: 1}


def test_open_transaction_is_not_compared_until_it_commits(sides: Sides) -> None:
    """Before: unseen, and said so. After: lost, because the target lacks it."""
    held = sides.source.transaction(sides.topic)
    held.send(1, [record(1)])
    before = sides.compare()
    assert before.ok
    assert "1 offsets behind an open transaction" in before.explain()
    held.commit()
    wait_until(lambda: not sides.compare().ok, TIMEOUT_S, "the commit is visible")
    assert found(sides.compare()) == {CopyFaultKind.LOST: 1}


def test_records_before_the_start_are_left_out(sides: Sides) -> None:
    """A flow that began at the end of the source owes nothing before it."""
    sides.source.plain(sides.topic, 0, [record(n) for n in range(5)])
    sides.target.plain(sides.topic, 0, [record(3), record(4)])
    assert found(sides.compare()) == {CopyFaultKind.LOST: 3}
    assert sides.compare(from_offsets={(sides.topic, 0): 3}).ok


def test_record_in_the_wrong_partition_is_misrouted(sides: Sides) -> None:
    """Same cluster, same topic, another partition."""
    sides.source.plain(sides.topic, 0, [record(1)])
    sides.target.plain(sides.topic, 1, [record(1)])
    assert found(sides.compare()) == {CopyFaultKind.MISROUTED: 1}


def test_missing_topic_is_an_error_and_not_an_empty_log(sides: Sides) -> None:
    """Nothing against nothing must not pass because a name was wrong."""
    with pytest.raises(UsageError, match="no such topic on the target: absent"):
        compare_topics(*sides.clients, {sides.topic: "absent"}, timeout_s=TIMEOUT_S)


def test_traffic_counts_what_a_reader_sees(sides: Sides) -> None:
    """The tally of the seeded mix is the number of visible records, partition by partition."""
    with Traffic(sides.source.bootstrap, {sides.topic: 2}, seed=11) as traffic:
        wait_until(lambda: traffic.total >= 300, TIMEOUT_S, "300 records are committed")
    source = sides.clients[0]
    verdict = compare_topics(source, source, [sides.topic], timeout_s=TIMEOUT_S)
    seen = {(part.source.topic, part.source.number): part.source_records for part in verdict.partitions}
    assert seen == dict(traffic.committed)
    assert traffic.unknown == 0


def test_cleaner_leaves_holes_empty_batches_and_delete_horizons(sides: Sides, unique_name: str) -> None:
    """The three kinds of batch that only compaction makes are really served by the broker."""
    compacted = sides.source.create_topic(f"{unique_name}.compacted", 3, COMPACT_AT_ONCE)
    holes = sides.source.holes(compacted, 0)
    assert holes.has_holes
    assert holes.record_count > 0
    assert sides.source.empty_batch(compacted, 1).record_count == 0
    assert sides.source.aged_tombstone(compacted, 2).record_count > 0
