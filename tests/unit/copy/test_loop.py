"""The copy loop between scripted fakes of source and producer: legal order, nothing after a failure."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace

import cramjam
import pytest

from onceover.copy.loop import CopySettings, Until
from onceover.copy.partition import PartitionCopy
from onceover.copy.reading import Throttle
from onceover.copy.review import Reviewed
from onceover.errors import MustReset, NeedsOperator
from onceover.handling.obstacles import Obstacle
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.ports import Outgoing, Refused
from onceover.model import TopicPartition
from onceover.state import names
from onceover.stops.record import Stop
from onceover.wire.batches.records import decode
from onceover.wire.batches.unpack import Ceiling
from onceover.wire.batches.visibility import AbortedTransaction
from onceover.wire.hotpath import DivergingEpoch, FetchedPartition
from onceover.wire.offsetmap import decode_map_key, decode_map_value
from onceover.wire.progress import ProgressMeta
from tests.support.raw.hostile import seal
from tests.support.raw.rawkafka import LOG_APPEND_TIME, Codec, RawRecord, encode_record
from tests.unit.copy.batches import answer, stored
from tests.unit.copy.loop import MAP, ME, STATE, A, B, FakeProducer, FakeSource, Setting, partition


def test_order_is_data_answers_map_offsets_commit() -> None:
    """The commit says OK even though a part failed (docs/facts.md): everything is answered before."""
    setting = Setting([[(A, answer([stored(0, 3, epoch=4)], lso=3)), (B, answer([stored(0, 2)], lso=2))]])
    records = setting.run({A: 3, B: 2})
    log = setting.producer.log
    assert log == ["send data", "make room", "drain", "send map", "drain", "offsets", "commit"]
    assert {r.source: (r.source_start, r.source_end, r.records) for r in records} == {
        A: (0, 3, 3),
        B: (0, 2, 2),
    }
    assert setting.reported == [{A: 3, B: 2}]
    offsets = setting.producer.committed[0]
    assert {tp: (o.offset, o.leader_epoch) for tp, o in offsets.items()} == {A: (3, 4), B: (2, 0)}
    meta = ProgressMeta.decode(offsets[A].metadata)
    assert meta is not None and (meta.generation, meta.instance, meta.target_end) == (3, (5, 2), 103)


def test_map_in_the_transaction_is_what_was_acknowledged() -> None:
    """The record that lies in the map topic equals the one that is yielded."""
    setting = Setting([[(A, answer([stored(0, 3), stored(3, 2)], lso=5))]])
    records = setting.run({A: 5, B: 0})
    written = [b for b in setting.producer.sent if b.target.topic == MAP]
    decoded = [
        decode_map_value(decode_map_key(r.key), r.value)
        for b in written
        for r in decode(b.header, memoryview(b.batch))
        if r.key is not None and r.value is not None
    ]
    assert decoded == records
    assert [(s.source, s.target, s.count) for s in records[0].segments] == [(0, 100, 5)]


@pytest.mark.parametrize(("commit_s", "records"), [(0.01, 5), (0.5, 20), (2.0, 50), (9.0, 10), (60.0, 5)])
def test_a_transaction_takes_a_few_times_as_long_as_its_commit(
    monkeypatch: pytest.MonkeyPatch, commit_s: float, records: int
) -> None:
    """From far away a commit takes several round trips: most of the time should go into copying. Not for
    ever: what is open for too long is ended by the target, and that includes the commit."""
    now = [100.0]
    monkeypatch.setattr("onceover.copy.loop.time.monotonic", lambda: now[0])

    class Far(FakeProducer):
        def commit(self) -> None:
            now[0] += commit_s
            super().commit()

    class Steady(FakeSource):
        def poll(self, timeout_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
            now[0] += 0.1
            return super().poll(timeout_s)

    script = [[(A, answer([stored(n)], lso=200))] for n in range(200)]
    setting = Setting(Steady(script), Far(), settings=CopySettings(0.5, 1 << 30, None), least_commits=4)
    committed = [r.source_end for r in setting.run({A: 200, B: 0}, seconds=3600.0)]
    assert committed[3] - committed[2] == pytest.approx(records, abs=2)


def test_batches_of_one_partition_go_in_rounds_in_their_order() -> None:
    """A partition twice in a request: the first would be lost silently (docs/facts.md)."""
    setting = Setting(
        [[(A, answer([stored(0), stored(1), stored(2)], lso=3)), (B, answer([stored(0)], lso=1))]]
    )
    setting.run({A: 3, B: 1})
    assert setting.producer.data() == [(A, 0), (B, 0), (A, 1), (A, 2)]


@pytest.mark.parametrize("step", ["send data", "make room", "drain", "send map", "offsets", "commit"])
def test_nothing_is_committed_or_reported_after_a_failure(step: str) -> None:
    """Whatever fails: no EndTxn follows it, and the positions stay where they were."""
    setting = Setting([[(A, answer([stored(0, 3)], lso=3))]], FakeProducer(fail_at=step))
    with pytest.raises(MustReset):
        setting.run({A: 3, B: 0})
    assert setting.producer.log[-1] == step
    assert not setting.producer.committed and not setting.reported
    assert setting.partitions[A].committed == 0


def test_markers_and_aborted_records_advance_without_data() -> None:
    """Position only: no Produce to the partition, no map segment."""
    batch = stored(0, 4, producer=9, transactional=True)
    setting = Setting([[(A, answer([batch], lso=4, aborted=[AbortedTransaction(0, 9)]))]])
    records = setting.run({A: 4, B: 0})
    assert setting.producer.data() == []
    assert [(r.source_end, r.segments) for r in records] == [(4, ())]
    assert setting.producer.committed[0][A].offset == 4


def test_commits_when_dry_and_goes_on_while_more_is_there() -> None:
    """Dry = everything up to the LSO in hand and no answer waiting."""
    script = [
        [(A, answer([stored(0)], lso=2))],
        [(A, answer([stored(1)], lso=2))],
        [(A, answer([stored(2)], lso=3))],
    ]
    setting = Setting(script)
    assert [(r.source_start, r.source_end) for r in setting.run({A: 3, B: 0})] == [(0, 2), (2, 3)]


def test_commits_at_its_interval_only_where_readers_do_not_wait_for_it() -> None:
    """At least once, what is sent can be read: committing whenever the source is dry would only cost."""
    script = [[(A, answer([stored(n)], lso=n + 1))] for n in range(3)]
    setting = Setting(script, FakeProducer(visible_at_commit=False))
    assert [(r.source_start, r.source_end) for r in setting.run({A: 3, B: 0})] == [(0, 3)]


def test_commits_when_enough_bytes_are_sent() -> None:
    """max_bytes bounds a transaction although more is waiting."""
    script = [[(A, answer([stored(n)], lso=9))] for n in range(3)]
    setting = Setting(script, settings=CopySettings(60.0, 1, None))
    assert [r.source_end for r in setting.run({A: 3, B: 0})] == [1, 2, 3]


def test_commits_after_the_interval() -> None:
    """At the latest after max_interval, however fast the source produces."""
    script = [[(A, answer([stored(n)], lso=9))] for n in range(3)]
    setting = Setting(script, settings=CopySettings(0.0, 1 << 30, None))
    assert [r.source_end for r in setting.run({A: 3, B: 0})] == [1, 2, 3]


def test_stop_request_commits_what_was_begun_and_ends() -> None:
    """Gracefully: what was sent is taken along, nothing is left open, nothing more is read."""
    setting = Setting([[(A, answer([stored(n)], lso=9))] for n in range(3)])
    until = Until(time.monotonic() + 60)

    def look() -> None:
        until.stopped = setting.source.requests >= 1

    setting.look_around = look
    assert [r.source_end for records in setting.loop.run(until) for r in records] == [1]
    assert setting.producer.committed and len(setting.source.script) == 2


def test_a_stop_request_is_heard_in_the_middle_of_an_answer() -> None:
    """One from far away holds as much as a lane may hold, and its transaction may take seconds."""
    setting = Setting([[(A, answer([stored(n * 20, 20, codec=Codec.LZ4) for n in range(50)], lso=1000))]])
    until = Until(time.monotonic() + 60)

    def look() -> None:
        until.stopped = setting.producer.log.count("send data") >= 3

    setting.look_around = look
    assert [r.source_end for records in setting.loop.run(until) for r in records] == [60]


def test_look_around_that_raises_ends_the_loop_without_a_commit() -> None:
    """Fenced while copying: the open transaction is not committed."""
    setting = Setting([[(A, answer([stored(0)], lso=9))], [(A, answer([stored(1)], lso=9))]])

    def look() -> None:
        if setting.producer.sent:
            raise MustReset("fenced")

    setting.look_around = look
    with pytest.raises(MustReset, match="fenced"):
        setting.run({A: 9, B: 0})
    assert not setting.producer.committed


@pytest.mark.parametrize(
    "bad",
    [*(answer(error=code) for code in (-1, 1, 2, 3, 6, 29, 74, 100)), answer(diverging=DivergingEpoch(3, 5))],
    ids=lambda bad: f"error {bad.error_code}" if bad.error_code else "diverging",
)
def test_fetch_errors_leave_their_partition_out_and_the_others_go_on(bad: FetchedPartition) -> None:
    """Whatever the code; what was copied before it is committed, and nobody waits for it."""
    setting = Setting([[(A, answer([stored(0)], lso=9))], [(A, bad), (B, answer([stored(0, 2)], lso=2))]])
    records = setting.run_script()
    assert {(r.source, r.source_end) for r in records} == {(A, 1), (B, 2)}
    assert setting.review.waiting == {A: bad.error_code}
    assert A in setting.review.answered, "before"


def decided(*going: TopicPartition, stop: TopicPartition | None = None) -> Reviewed:
    """Return a decision: a partition goes on at offset 1, or stops."""
    found = Reviewed(going={tp: replace(partition(tp), committed=1) for tp in going})
    if stop is not None:
        found.stops[stop] = ME.stamped(Stop("SOURCE_UNREADABLE", "m", "e", "s", "r", 1))
    return found


def test_a_partition_that_was_left_out_goes_on_beside_the_others() -> None:
    """Looked at between two transactions, claimed, read again from its position; the run waits for it."""
    script = [
        [(A, answer([stored(0)], lso=9)), (B, answer([stored(0)], lso=1))],
        [(A, answer(error=6))],
        [(A, answer([stored(1)], lso=2))],
    ]
    setting = Setting(script)
    setting.review.decided = [decided(A)]
    setting.source.more = True
    setting.settings = CopySettings(0.0, 1 << 30, None)
    records = setting.run({A: 2, B: 1})
    assert [(r.source, r.source_start, r.source_end) for r in records] == [(A, 0, 1), (B, 0, 1), (A, 1, 2)]
    assert setting.review.copied == [{B: 1}]
    log = setting.producer.log
    assert log[log.index("commit") : log.index("commit") + 3] == ["commit", "offsets", "commit"]
    assert set(setting.producer.committed[1]) == {A}


def test_a_partition_that_was_left_out_stops_when_its_trouble_lasts() -> None:
    """Written down at once, in a transaction of its own; then the run has nothing left to wait for."""
    setting = Setting([[(A, answer(error=29)), (B, answer([stored(0)], lso=1))]])
    setting.review.decided = [decided(stop=A)]
    setting.run({A: 5, B: 1})
    assert setting.partitions[A].stopped
    assert setting.producer.log[-3:] == ["send state", "drain", "commit"]
    assert setting.stopped == [A]
    assert not setting.source.script and not setting.review.waiting


def test_nobody_is_looked_at_again_inside_a_transaction() -> None:
    """A look may take a while, and an open transaction has a timeout."""
    script = [[(A, answer(error=6)), (B, answer([stored(0)], lso=9))], [(B, answer([stored(1)], lso=9))]]
    setting = Setting(script)
    setting.review.decided = [decided(A)]
    setting.run_script()
    assert not setting.review.copied, "the transaction was open until the end"


def refusing(code: int, index: int | None = None) -> Callable[[Outgoing], Refused | None]:
    """Refuse the data of partition A."""
    named = [] if index is None else [index]
    return lambda outgoing: Refused(outgoing, code, "why", named) if outgoing.source == A else None


def test_refused_record_becomes_a_barrier_for_the_next_attempt() -> None:
    """Error 32 with a record named: copy up to it, then stop there."""
    setting = Setting([[(A, answer([stored(0, 5)], lso=5))]], FakeProducer(refuse=refusing(32, 3)))
    with pytest.raises(MustReset):
        setting.run({A: 5, B: 0})
    obstacle = setting.partitions[A].obstacle
    assert obstacle.barrier == 3 and obstacle.stop is not None and obstacle.stop.code == "RECORD_REFUSED"
    assert not setting.producer.committed


@pytest.mark.parametrize("code", [10, 18])
def test_too_large_is_split_until_single_records(code: int) -> None:
    """Than the topic takes, or than its segments: half the size; a single record that is too large stops."""
    setting = Setting([[(A, answer([stored(0, 4)], lso=4))]], FakeProducer(refuse=refusing(code)))
    with pytest.raises(MustReset):
        setting.run({A: 4, B: 0})
    obstacle = setting.partitions[A].obstacle
    assert obstacle.max_batch_bytes == len(stored(0, 4)) // 2 and obstacle.barrier is None
    single = Setting([[(A, answer([stored(0)], lso=1))]], FakeProducer(refuse=refusing(code)))
    with pytest.raises(MustReset):
        single.run({A: 1, B: 0})
    obstacle = single.partitions[A].obstacle
    assert obstacle.barrier == 0 and obstacle.stop is not None and obstacle.stop.code == "RECORD_TOO_LARGE"


def test_other_refusals_are_reencoded_once_before_they_stop() -> None:
    """For instance 76, or -1: another encoding may be taken."""
    setting = Setting([[(A, answer([stored(0, 4)], lso=4))]], FakeProducer(refuse=refusing(-1)))
    with pytest.raises(MustReset):
        setting.run({A: 4, B: 0})
    obstacle = setting.partitions[A].obstacle
    assert (obstacle.reencode, obstacle.barrier) == ({0}, None)
    again = Setting([[(A, answer([stored(0, 4)], lso=4))]], FakeProducer(refuse=refusing(-1)))
    again.partitions[A].obstacle = obstacle
    with pytest.raises(MustReset):
        again.run({A: 4, B: 0})
    assert obstacle.barrier == 0


def test_a_barrier_stops_its_partition_and_the_others_go_on() -> None:
    """The stop is written in the transaction that carries what came before it."""
    setting = Setting([[(A, answer([stored(0, 5)], lso=5)), (B, answer([stored(0, 2)], lso=2))]])
    stop = Stop("RECORD_REFUSED", "m", "e", "s", "r", 3)
    setting.partitions[A].obstacle = Obstacle(barrier=3, stop=stop)
    records = setting.run({A: 5, B: 2})
    assert {r.source: (r.source_end, r.records) for r in records} == {A: (3, 3), B: (2, 2)}
    assert setting.stopped == [A]
    assert A not in setting.source.positions and setting.partitions[A].stopped
    state = [b for b in setting.producer.sent if b.target == TopicPartition(STATE, names.STATE_OTHERS)]
    written = [r.key for b in state for r in decode(b.header, memoryview(b.batch))]
    assert written == [names.stop_key(*A).encode()]


def test_a_stop_that_is_not_committed_is_not_told() -> None:
    """Why it stops is still needed: the next session has to write it."""
    stop = Stop("RECORD_REFUSED", "m", "e", "s", "r", 3)
    setting = Setting([], FakeProducer(fail_at="commit"), stops={A: stop})
    with pytest.raises(MustReset):
        setting.loop.claim()
    assert not setting.stopped


def test_damaged_batch_stops_its_partition_at_its_offset() -> None:
    """What came before it is copied; its own bytes are not."""
    good, bad = stored(0, 2), bytearray(stored(2, 2))
    bad[-1] ^= 1
    setting = Setting([[(A, answer([good, bytes(bad)], lso=4))]])
    records = setting.run({A: 4, B: 0})
    assert [(r.source_end, r.records) for r in records] == [(2, 2)]
    assert setting.partitions[A].stopped


def test_a_record_that_takes_too_much_memory_stops_its_partition() -> None:
    """What came before it is copied; its neighbour goes on."""
    records = b"".join(
        encode_record(RawRecord(b"k", value), n, 0) for n, value in enumerate([b"v", bytes(1 << 17), b"v"])
    )
    packed = bytes(cramjam.zstd.compress(records))
    large = seal(packed, codec=Codec.ZSTD, count=3, base_offset=2, attributes=LOG_APPEND_TIME)
    setting = Setting([[(A, answer([stored(0, 2), large], lso=5)), (B, answer([stored(0, 2)], lso=2))]])
    setting.partitions[A].ceiling = Ceiling(1 << 8, 1 << 16)
    done = setting.run({A: 5, B: 2})
    assert {r.source: (r.source_end, r.records) for r in done} == {A: (3, 3), B: (2, 2)}
    [written] = [b for b in setting.producer.sent if b.target.topic == STATE]
    [record] = decode(written.header, memoryview(written.batch))
    stop = json.loads(record.value or b"")
    assert (stop["code"], stop["position"]) == ("MEMORY_TOO_SMALL", 3)
    assert "at most 65536 bytes" in stop["expected"] and "skip-to f t:0 5`" in stop["resolve"]


def test_claim_writes_the_instance_beside_every_position_and_stops_in_one_transaction() -> None:
    """Also of partitions where nothing moves: idle offsets would expire."""
    stop = ME.stamped(Stop("SOURCE_MISSING", "m", "e", "s", "r", 0))
    setting = Setting([], stops={TopicPartition("t", 2): stop}, resumed={A})
    setting.loop.claim()
    assert setting.producer.log == ["send state", "drain", "offsets", "commit"]
    assert set(setting.producer.committed[0]) == {A, B}
    assert (stop.generation, stop.at_ms > 0) == (ME.generation, True)
    [batch] = setting.producer.sent
    written = {r.key: r.value is None for r in decode(batch.header, memoryview(batch.batch))}
    assert written == {b"stop/t/0": True, b"stop/t/2": False}


def test_claim_renews_the_progress_of_what_is_not_copied() -> None:
    """Stopped partitions and topics that left the filter: as it is, or it would expire after seven days."""
    resting = TopicPartition("left", 0)
    setting = Setting([])
    setting.loop.resting = {resting: OffsetToCommit(7, 3, "as it was")}
    setting.loop.claim()
    assert setting.producer.committed[0][resting] == OffsetToCommit(7, 3, "as it was")
    assert set(setting.producer.committed[0]) == {A, B, resting}


@pytest.mark.parametrize(("code", "error"), [(10, NeedsOperator), (87, NeedsOperator), (2, MustReset)])
def test_claim_whose_own_record_is_refused_ends_the_attempt(code: int, error: type[Exception]) -> None:
    """For a person, where it will be refused again: nothing else can be written without it."""
    stop = ME.stamped(Stop("SOURCE_MISSING", "m", "e", "s", "r", 0))
    refusing_own = FakeProducer(refuse=lambda out: Refused(out, code, "why") if out.source is None else None)
    setting = Setting([], refusing_own, stops={TopicPartition("t", 2): stop})
    with pytest.raises(error, match="a record of the flow's own"):
        setting.loop.claim()
    assert not setting.producer.committed


def test_what_is_refused_together_is_dealt_with_together() -> None:
    """Each attempt costs a transaction of all: a topic may hold such a record in every partition."""
    bad = {A: 3, B: 1}
    both = [(A, answer([stored(0, 5)], lso=5)), (B, answer([stored(0, 5)], lso=5))]
    setting = Setting(
        [both], FakeProducer(refuse=lambda out: Refused(out, 32, "why", [bad[out.source or A]]))
    )
    with pytest.raises(MustReset, match=r"t:0: .* and batches of 1 more partitions"):
        setting.run({A: 5, B: 5})
    assert {tp: p.obstacle.barrier for tp, p in setting.partitions.items()} == bad


def test_the_first_batch_of_a_partition_decides_where_several_of_it_were_refused() -> None:
    """What was behind it was made on the strength of it."""
    refuse = FakeProducer(refuse=lambda outgoing: Refused(outgoing, -1, "why"))
    setting = Setting([[(A, answer([stored(0, 5), stored(5, 5)], lso=10))]], refuse)
    with pytest.raises(MustReset):
        setting.run({A: 10, B: 0})
    assert setting.partitions[A].obstacle.reencode == {0}


def test_what_a_topic_takes_is_told_to_all_whoever_was_refused_first() -> None:
    """Behind what they learn of their own batches, not before it."""
    first = FakeProducer(refuse=lambda outgoing: Refused(outgoing, 10, "too large"))
    setting = Setting([[(A, answer([stored(0, 4)], lso=4)), (B, answer([stored(0, 4)], lso=4))]], first)
    for copy in setting.partitions.values():
        copy.obstacle.reencode.add(0)
    with pytest.raises(MustReset):
        setting.run({A: 4, B: 4})
    sent = {batch.source: batch.header.size_bytes for batch in setting.producer.sent}
    assert {tp: p.obstacle.max_batch_bytes for tp, p in setting.partitions.items()} == {
        tp: size_bytes // 2 for tp, size_bytes in sent.items()
    }


def test_two_batches_refused_as_bytes_are_both_sent_otherwise() -> None:
    """In one transaction, over the resets that each refusal costs: it ends, with every record copied once."""

    def refuse(outgoing: Outgoing) -> Refused | None:
        # What is re-encoded begins at 0.
        as_bytes = outgoing.source == A and outgoing.header.base_offset in (10, 13)
        return Refused(outgoing, -1, "why") if as_bytes else None

    obstacle, records = Obstacle(), []
    for _ in range(3):
        setting = Setting(
            [[(A, answer([stored(10, 3), stored(13, 3)], lso=16))]], FakeProducer(refuse=refuse)
        )
        setting.partitions[A].obstacle = obstacle
        with suppress(MustReset):
            records = setting.run({A: 16, B: 0})
    assert [(r.source_end, r.records) for r in records] == [(16, 6)]
    assert obstacle.empty, "what comes behind them passes as bytes again"


def test_claim_of_a_lane_without_partitions_commits_nothing() -> None:
    """An empty EndTxn would be refused."""
    setting = Setting([])
    setting.loop.partitions = {}
    setting.loop.claim()
    assert setting.producer.log == []


def test_throttle_spends_at_most_its_rate() -> None:
    """Bytes taken push the next fetch away; a second of silence is saved, not more."""
    throttle = Throttle()
    throttle.spend(0, None)
    assert throttle.wait_s == 0.0
    throttle.spend(3_000, 1_000.0)
    assert 1.5 < throttle.wait_s <= 2.0


def test_a_changed_limit_counts_at_once() -> None:
    """16 MiB under a limit of 1 KiB/s were four hours, whatever the limit became meanwhile."""
    now = [50.0]
    throttle = Throttle(clock=lambda: now[0])
    throttle.spend(11_000, 1_000.0)
    assert throttle.wait_s == 10
    now[0] += 4
    assert throttle.wait_s == 6
    throttle.spend(0, 3_000.0)
    assert throttle.wait_s == 2
    throttle.spend(0, 500.0)
    assert throttle.wait_s == 12
    throttle.spend(0, None)
    assert throttle.wait_s == 0
    throttle.spend(1_000, 1_000.0)
    assert throttle.wait_s == 0, "nothing is owed from before, and a second is saved"


def test_a_second_of_the_limit_is_saved_and_not_more() -> None:
    """Of the limit that holds now: a low one is not free for hours after a high one."""
    now = [50.0]
    throttle = Throttle(clock=lambda: now[0])
    throttle.spend(0, 1e9)
    now[0] += 3600
    throttle.spend(0, 1_000.0)
    throttle.spend(2_000, 1_000.0)
    assert throttle.wait_s == 1


def test_a_limit_that_is_lifted_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction comes that would ask for the settings: nothing is fetched."""
    monkeypatch.setattr("onceover.copy.loop._SETTINGS_S", 0.0)
    setting = Setting([], settings=CopySettings(60.0, 1 << 30, 1.0))
    setting.loop.throttle.spend(1_000, 1.0)
    until = Until(time.monotonic() + 30)

    def look_around() -> None:
        setting.settings = CopySettings(60.0, 1 << 30, None)
        until.stopped = setting.source.requests > 0

    setting.look_around = look_around
    list(setting.loop.run(until))
    assert setting.source.requests and time.monotonic() < until.deadline_s


def test_settings_are_asked_for_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flow file is looked at each time; also where the source answers thousands of times a second."""
    made = Setting([[(A, answer([stored(n)], lso=n + 1))] for n in range(200)])
    asked: list[int] = []

    def settings() -> CopySettings:
        asked.append(1)
        return made.settings

    made.loop.settings = settings
    made.run({A: 150, B: 0})
    assert len(made.producer.committed) == 150 and len(asked) < 20
    monkeypatch.setattr("onceover.copy.loop._SETTINGS_S", 0.0)
    asked.clear()
    made.run({A: 200, B: 0})
    assert len(asked) >= 50


def test_a_limited_fetch_asks_for_a_second_at_most() -> None:
    """A whole answer at a low limit would leave the lane silent for minutes."""
    for limit, expected in ((1_000.5, 1_000), (0.5, 1), (None, None)):
        setting = Setting([], settings=CopySettings(60.0, 1 << 30, limit))
        setting.run_script()
        assert (setting.source.requests > 0, setting.source.asked_bytes) == (True, expected)


def test_throttled_loop_does_not_ask() -> None:
    """While the bucket is empty no request goes out."""
    setting = Setting([], settings=CopySettings(60.0, 1 << 30, 1.0))
    setting.loop.throttle.spend(1_000, 1.0)
    setting.run(seconds=0.05)
    assert setting.source.requests == 0


def test_until_counts_stopped_partitions_as_done() -> None:
    """Or a caught-up run would wait for them until its deadline."""
    done = partition(A)
    waiting = partition(B)
    until = Until(time.monotonic() + 60, {A: 0, B: 5})
    assert not until.over([done, waiting])
    waiting.stopped = True
    assert until.over([done, waiting])
    assert Until(time.monotonic() - 1).over([done])
    assert not Until(time.monotonic() + 60).over([done])


def test_until_waits_for_what_was_set_aside_only_while_it_may_come_back() -> None:
    """Nobody leads it: the run looks for it again; silent behind its end: nothing of it is missing."""
    until = Until(time.monotonic() + 60, {A: 5, B: 5})
    copied, lost = partition(A), partition(B)
    copied.position, lost.position, lost.aside = 5, 2, True
    assert until.over([copied, lost])
    assert not until.over([copied, lost], [B])
    lost.position = 5
    assert until.over([copied, lost], [B])
    assert not until.over([copied], [B])


def test_a_stop_is_heard_between_two_suspects() -> None:
    """Each has a transaction of its own, and one answer may hold a thousand of them."""
    setting = Setting([[(A, answer([stored(0)], lso=1)), (B, answer([stored(0)], partition=1, lso=1))]])
    setting.loop.suspects.failed([A, B])
    until = Until(time.monotonic() + 60)

    def look_around() -> None:
        until.stopped = bool(setting.producer.committed)

    setting.look_around = look_around
    list(setting.loop.run(until))
    assert [set(offsets) for offsets in setting.producer.committed] == [{A}]


def test_what_is_over_once_is_over() -> None:
    """The rest of the answer is dropped then: read on behind it, those records would never be copied."""

    class Wavering(Until):
        told = 0

        def over(
            self, partitions: Collection[PartitionCopy], waiting: Collection[TopicPartition] = ()
        ) -> bool:
            # Somebody is waited for again right after the first time that there was nobody.
            self.told += super().over(partitions, waiting)
            return self.told == 1 or not setting.source.script

    batches = [stored(n * 20, 20) for n in range(6)]
    script = [[(A, answer(batches[:4], lso=80))], [(A, answer(batches[4:], lso=120))], []]
    setting = Setting(script, settings=CopySettings(60.0, 1, None))
    done = [
        r for records in setting.loop.run(Wavering(time.monotonic() + 60, {A: 20, B: 0})) for r in records
    ]
    assert [(r.source_start, r.source_end) for r in done] == [(0, 20)]
    assert setting.partitions[A].committed == 20


def test_claim_is_confirmed_between_its_progress_and_its_end() -> None:
    """Only a coordinator that has read its log takes the write: then what it told is asked for again."""
    setting = Setting([])
    setting.loop.confirm = lambda: setting.producer.log.append("confirm")
    setting.loop.claim()
    assert setting.producer.log == ["offsets", "confirm", "commit"]


def test_claim_that_is_not_confirmed_commits_nothing() -> None:
    """Neither the positions nor the stops that were found with them."""
    setting = Setting([])

    def refuse() -> None:
        raise MustReset("told otherwise before")

    setting.loop.confirm = refuse
    with pytest.raises(MustReset):
        setting.loop.claim()
    assert "commit" not in setting.producer.log


def test_stops_without_a_position_beside_them_are_confirmed_before() -> None:
    """A coordinator that has not read its log may be why they stop, and nothing would be written to it."""
    setting = Setting([])
    setting.loop.settle = lambda: setting.producer.log.append("settle")
    setting.review.waiting[A] = 1
    setting.review.decided = [decided(stop=A)]
    setting.partitions[A].aside = True
    setting.run({A: 1, B: 0})
    assert setting.producer.log == ["settle", "send state", "drain", "commit"]


def test_stops_that_are_not_confirmed_are_not_written() -> None:
    """Nor are they at the start, where all partitions of the lane stop."""
    setting = Setting([], stops=decided(stop=A).stops)
    setting.partitions.clear()

    def refuse() -> None:
        raise MustReset("told otherwise before")

    setting.loop.settle = refuse
    with pytest.raises(MustReset):
        setting.loop.claim()
    assert setting.producer.log == []


def test_what_was_copied_is_not_held_while_the_next_answer_arrives() -> None:
    """It lies in a receive buffer, of which there would be two then, and one more for every broker."""

    class Buffer(bytearray):
        pass

    held: list[weakref.ref[Buffer]] = []

    class Source(FakeSource):
        def poll(self, timeout_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
            assert all(ref() is None for ref in held)
            [(tp, found)] = super().poll(timeout_s)
            buffer = Buffer(found.records)
            held.append(weakref.ref(buffer))
            return [(tp, found._replace(records=memoryview(buffer)))]

    Setting(Source([[(A, answer([stored(n)], lso=n + 1))] for n in range(3)])).run({A: 3, B: 0})
    assert len(held) == 3


class FakeEnds:
    """Says in which epoch a log ends, where it is asked after everything was acknowledged."""

    def __init__(self, setting: Setting) -> None:
        self.prepared: list[list[TopicPartition]] = []
        self.asked: list[list[TopicPartition]] = []
        self.epochs: dict[TopicPartition, int] = {}
        self._setting = setting

    def prepare(self, targets: Collection[TopicPartition]) -> None:
        assert not self._setting.producer.in_transaction, "readers wait meanwhile"
        self.prepared.append(list(targets))

    def ask(self, targets: Collection[TopicPartition]) -> None:
        assert self._setting.producer.log[-1] == "drain"
        self.asked.append(list(targets))

    def answers(self) -> Mapping[TopicPartition, int]:
        assert self._setting.producer.log[-2:] == ["send map", "drain"], "answered meanwhile"
        return self.epochs


def test_leaders_are_reached_before_a_transaction_begins() -> None:
    """At the start, when a partition comes back, and before each one that writes."""
    setting = Setting(
        [
            [(A, answer([stored(0)], lso=9))],
            [(B, answer([stored(0)], lso=1))],
            [(A, answer([stored(1)], lso=2))],
        ]
    )
    setting.loop.ends = ends = FakeEnds(setting)
    setting.loop.claim()
    setting.review.waiting[A] = 1
    setting.review.decided = [decided(B)]
    setting.run({A: 2, B: 1})
    assert ends.prepared == [[A, B], [B], [A]]


def test_the_targets_epoch_stands_beside_what_was_written_in_it() -> None:
    """Nothing written: it stays as it was. Written and not told: an older one would prove too much."""
    markers = stored(3, 4, producer=9, transactional=True)
    setting = Setting([[(A, answer([stored(0, 3)], lso=3))]])
    setting.loop.ends = ends = FakeEnds(setting)
    ends.epochs = {A: 6}

    def committed() -> int | None:
        meta = ProgressMeta.decode(setting.producer.committed[-1][A].metadata)
        return meta.target_epoch if meta else None

    setting.run({A: 3, B: 0})
    assert (ends.asked, committed()) == ([[A]], 6)
    setting.source.script = [[(A, answer([markers], lso=7, aborted=[AbortedTransaction(3, 9)]))]]
    setting.run({A: 7, B: 0})
    assert (ends.asked[1:], committed()) == ([[]], 6)
    ends.epochs = {}
    setting.source.script = [[(A, answer([stored(7, 1)], lso=8))]]
    setting.run({A: 8, B: 0})
    assert (ends.asked[2:], committed()) == ([[A]], None)
