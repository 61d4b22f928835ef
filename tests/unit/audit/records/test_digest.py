"""Digests: equal exactly when both sides hold the same, and small whatever they hold."""

from __future__ import annotations

import pickle
import random

import pytest

from onceover.audit.model import ComparedAs, Digest, Range, Side
from onceover.audit.records.batches import Unreadable
from onceover.audit.records.digest import RunningDigest
from onceover.audit.records.recordhash import AuditedRecord, make_rec, record_hash
from onceover.errors import OnceoverError
from onceover.model import TopicPartition
from tests.support.raw.mutations import MUTATIONS, correct_pair
from tests.unit.audit.stored import batches, stored

TP = TopicPartition("orders", 0)
RANGE = Range(TP, 0, 60, TP, 0, 90)
RECORDS = correct_pair(random.Random(8), partitions=1).source[0]
RECS = [make_rec(index, *content) for index, content in enumerate(RECORDS)]


def _digest(records: list[AuditedRecord], side: Side = Side.TARGET) -> Digest:
    running = RunningDigest()
    for record in records:
        running.add_record(record)
    return running.digest(RANGE, side)


def test_equal_records_have_equal_digests_wherever_they_are() -> None:
    """Offsets are no content."""
    moved = [record._replace(offset=record.offset + 77) for record in RECS]
    assert _digest(RECS, Side.SOURCE).same_content(_digest(moved))


def test_another_order_shows_in_the_chain_alone() -> None:
    """The sum knows the records, the chain their order."""
    one, other = _digest(RECS), _digest([*RECS[1:], RECS[0]])
    assert (one.sum, one.records) == (other.sum, other.records)
    assert one.chain != other.chain and not one.same_content(other)


def test_a_loss_cancelled_by_a_repeat_shows_in_the_sum() -> None:
    """As many records, other ones."""
    one, other = _digest(RECS), _digest([*RECS[:5], RECS[4], *RECS[6:]])
    assert one.records == other.records
    assert one.sum != other.sum and not one.same_content(other)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_every_mutation_changes_a_digest(name: str) -> None:
    """No fault passes the first comparison."""
    pair = correct_pair(random.Random(3))
    MUTATIONS[name](pair, 0, 20)
    same = [
        _digest([make_rec(0, *content) for content in source]).same_content(
            _digest([make_rec(0, *content) for content in target])
        )
        for source, target in zip(pair.source, pair.target, strict=True)
    ]
    assert not same[0]


def test_whole_batches_and_single_records_mix_only_alike() -> None:
    """Digests over bytes say nothing beside digests over records, and are told apart."""
    (batch,) = batches(stored(RECORDS))
    whole, mixed = RunningDigest(), RunningDigest()
    content = whole.add_batch(batch)
    mixed.add_batch(batch, content)
    mixed.add_record(RECS[0])
    mixed.add_record(None)
    over_bytes, over_both = whole.digest(RANGE, Side.SOURCE), mixed.digest(RANGE, Side.TARGET)
    assert (over_bytes.compared, over_both.compared) == (ComparedAs.BYTES, ComparedAs.MIXED)
    assert (over_bytes.records, over_bytes.bytes) == (60, batch.size_bytes)
    assert not over_bytes.same_content(_digest(RECS))


def test_times_and_sizes_are_kept() -> None:
    """For people: when the records are from, and how much was compared."""
    digest = _digest(RECS)
    assert (digest.first_timestamp_ms, digest.last_timestamp_ms) == (
        RECORDS[0].timestamp_ms,
        RECORDS[-1].timestamp_ms,
    )
    assert RunningDigest().digest(RANGE, Side.SOURCE).first_timestamp_ms == -1


def test_digests_cross_processes() -> None:
    """Pickled whole; as a row their wide numbers are text."""
    digest = _digest(RECS)
    assert pickle.loads(pickle.dumps(digest)) == digest  # noqa: S301 - our own bytes
    assert int(digest.as_row()["chain"], 16) == digest.chain


def test_a_records_hash_knows_every_border() -> None:
    """No two ways to cut the same bytes into key, value and headers are the same record."""
    cuts = [
        (b"ab", b"c", (), 0),
        (b"a", b"bc", (), 0),
        (b"abc", b"", (), 0),
        (b"abc", None, (), 0),
        (None, b"abc", (), 0),
        (b"", b"abc", (), 0),
        (b"a", b"b", ((b"c", None),), 0),
        (b"a", b"b", ((b"c", b""),), 0),
        (b"a", b"b", ((b"", b"c"),), 0),
        (b"a", b"b", ((b"c", b"d"), (b"e", b"f")), 0),
        (b"a", b"b", ((b"e", b"f"), (b"c", b"d")), 0),
        (b"a", b"b", ((b"c", b"d"), (b"c", b"d")), 0),
        (b"a", b"b", ((b"c", b"d"),), 0),
        (b"a", b"b", ((b"c", b"d"),), 1),
    ]
    assert len({record_hash(*cut) for cut in cuts}) == len(cuts)


def test_an_unreadable_batch_survives_pickling() -> None:
    """It crosses Spark's border with everything it says."""
    error = Unreadable("a record batch cannot be read", where="batch at offset 7")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert isinstance(copy, OnceoverError) and str(copy) == str(error)


def test_no_sum_of_chosen_records_makes_two_digests_alike() -> None:
    """Digests of two stretches differ also where their hashes were chosen to have the same sum, and more."""
    hashes = [7, 11, 13, 2]
    here, there = (_digest([_hashed(number) for number in numbers]) for numbers in (hashes, [9, 9, 9, 6]))
    assert (here.records, here.sum) == (there.records, there.sum)
    assert here.chain != there.chain
    # What an odd factor and sums made of the same numbers: a chain that somebody can solve for.
    lower, upper = hashes[0] - 1, hashes[1] + 0x243F6A8885A308D313198A2E03707345
    solved = _digest([_hashed(number % (1 << 128)) for number in (lower, upper, *hashes[2:])])
    assert solved.chain != here.chain


def _hashed(number: int) -> AuditedRecord:
    return RECS[0]._replace(hash=number.to_bytes(16, "big"))
