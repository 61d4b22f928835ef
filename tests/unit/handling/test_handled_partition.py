"""A partition under a handler: position, account and order while output goes anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.copy.partition import PartitionCopy
from onceover.handlers.load import load_handler
from onceover.handling.deadletter import DeadLetter, topic_spec
from onceover.handling.forms import handler_use
from onceover.handling.lanehandler import HandlerUse, LaneHandler, Tell
from onceover.handling.obstacles import Blocked, Obstacle, RecordProblem
from onceover.kafka.portions import portions
from onceover.kafka.ports import Acknowledged, Outgoing
from onceover.kafka.produce.rounds import distinct_targets
from onceover.model import TopicPartition
from onceover.stops.record import Stop
from onceover.wire.batches.batch import BatchTooLarge, CorruptBatch, parse_header
from onceover.wire.batches.records import decode
from onceover.wire.batches.unpack import Ceiling
from onceover.wire.batches.varint import encode_varint
from onceover.wire.offsetmap import MAX_SEGMENTS
from tests.support.raw.hostile import placed, seal
from tests.support.raw.rawkafka import Codec, RawRecord, encode_record
from tests.unit.copy.batches import answer, stored
from tests.unit.copy.loop import A, B, Setting, partition, sent
from tests.unit.copy.test_partition import skipped, values, visible

LETTERS = TopicPartition("letters", 0)
FORMS = ["spread", "spread_batch"]
# Records by delta, and how many headers each of them has.
HEADERS = [(0, 3), (1, 200_000), (2, 3)]


def handled(
    tp: TopicPartition, form: str, *, letters: bool = False, group_bytes: int = 1 << 20
) -> PartitionCopy:
    """Return a partition whose handler fails on values that begin with ``v7``."""
    args = {"partitions": 5, "bad": "v7"} if form.startswith("spread") else {}
    handler = load_handler(f"tests.unit.handlers.samples:{form}", args, "f.yaml")
    copy = partition(tp)
    copy.handling = handler_use(handler, "f", group_bytes).form(tp, 5)
    copy.dead_letter = DeadLetter("f", "east", tp, copy.source_id, LETTERS) if letters else None
    return copy


def offsets(outgoing: Outgoing) -> list[int]:
    return [first + n for first, count in outgoing.source_runs for n in range(count)]


@pytest.mark.parametrize("form", FORMS)
def test_position_moves_behind_what_was_handled_and_skipped(form: str) -> None:
    """Also where everything was dropped or nothing was visible."""
    copy = handled(A, form)
    out = list(sent(copy, [*visible(stored(0, 4, epoch=3)), skipped(stored(4, 2, epoch=4))]))
    assert sorted(o for one in out for o in offsets(one)) == [1, 2, 2]
    assert {one.target for one in out} == {
        TopicPartition("t", 1),
        TopicPartition("t", 2),
        TopicPartition("t", 3),
    }
    assert (copy.position, copy.leader_epoch) == (6, 4)
    assert list(sent(copy, [skipped(stored(6, 2))])) == [] and copy.position == 8


@pytest.mark.parametrize("form", FORMS)
def test_stop_stands_at_the_bad_record_with_everything_before_it_out(form: str) -> None:
    """In whatever group it comes."""
    copy = handled(A, form, group_bytes=1)
    stream = sent(copy, visible(stored(0, 4), stored(4, 6)))
    out: list[Outgoing] = []
    with pytest.raises(Blocked) as blocked:
        out.extend(stream)
    assert sorted(o for one in out for o in offsets(one)) == [1, 2, 2, 4, 5, 5]
    assert copy.position == 7 and blocked.value.stop.code == "HANDLER_FAILED"


@pytest.mark.parametrize("form", FORMS)
def test_dead_letters_go_out_with_the_others(form: str) -> None:
    """The record as it was, and the position goes on behind it."""
    copy = handled(A, form, letters=True)
    out = list(sent(copy, visible(stored(0, 9))))
    [letter] = [one for one in out if one.target == LETTERS]
    assert offsets(letter) == [7] and values(letter) == [b"v7"]
    assert copy.position == 9


@pytest.mark.parametrize("form", FORMS)
def test_barrier_ends_the_input_of_the_handler(form: str) -> None:
    """What the target refused before is neither handed over nor passed by."""
    copy = handled(A, form)
    stop = Stop("RECORD_REFUSED", "m", "e", "s", "r", 5)
    copy.obstacle.barrier, copy.obstacle.stop = 5, stop
    out: list[Outgoing] = []
    with pytest.raises(Blocked):
        out.extend(sent(copy, visible(stored(0, 9))))
    assert max(o for one in out for o in offsets(one)) == 4 and copy.position == 5


@pytest.mark.parametrize("form", FORMS)
def test_damage_within_a_group_holds_back_nothing_before_it(form: str) -> None:
    """Its checksum fits, so that only the handler's form finds it: the stop names it, not its group."""
    payload = encode_record(RawRecord(b"k", b"v"), 0, 0)[:-1] + b"\x7f"
    damaged = seal(payload, base_offset=6)
    copy = handled(A, form)
    out: list[Outgoing] = []
    with pytest.raises(CorruptBatch) as caught:
        out.extend(sent(copy, visible(stored(0, 4), stored(4, 2), damaged, stored(9, 3))))
    assert (copy.position, caught.value.behind) == (6, 7)
    assert {o for one in out for o in offsets(one)} == {1, 2, 4, 5}


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_larger_than_a_group_is_handled_in_pieces(form: str) -> None:
    """The output is the same, and the position stands behind each piece."""
    whole, cut = handled(A, form), handled(A, form, group_bytes=400)
    batch = stored(0, 7, codec=Codec.LZ4)
    expected = sorted((one.target, tuple(values(one))) for one in sent(whole, visible(batch)))
    seen: dict[TopicPartition, list[bytes | None]] = {}
    positions = set()
    for one in sent(cut, visible(batch)):
        positions.add(cut.position)
        seen.setdefault(one.target, []).extend(values(one))
    assert sorted((target, tuple(found)) for target, found in seen.items()) == expected
    assert len(positions) > 1 and cut.position == 7


@pytest.mark.parametrize("form", ["same", "same_batch"])
def test_a_record_of_too_many_headers_stops_at_its_offset(form: str) -> None:
    """Those before it are copied, with the epoch of theirs; it alone has to be left out."""
    bodies = [b"\0\0" + encode_varint(n) + b"\x01\x01" + encode_varint(h) + b"\0\x01" * h for n, h in HEADERS]
    records = b"".join(encode_varint(len(body)) + body for body in bodies)
    batch = placed(seal(records, count=len(bodies)), 4)
    copy = handled(A, form)
    copy.ceiling = Ceiling(1 << 20, 1 << 20)
    out: list[Outgoing] = []
    with pytest.raises(BatchTooLarge) as caught:
        out.extend(sent(copy, visible(stored(0, 4, epoch=3), batch, stored(7, 2))))
    assert [o for one in out for o in offsets(one)] == [0, 1, 2, 3, 4]
    assert (copy.position, copy.leader_epoch, caught.value.behind) == (5, 0, 6)
    copy.committed = copy.position = 6
    out = list(sent(copy, visible(batch, stored(7, 2))))
    assert [o for one in out for o in offsets(one)] == [6, 7, 8] and copy.position == 9


@pytest.mark.parametrize("form", ["same", "same_batch"])
def test_a_batch_that_begins_with_too_many_headers_stops_behind_the_one_before(form: str) -> None:
    """Position and epoch are those of what was copied."""
    body = b"\0\0\0\x01\x01" + encode_varint(200_000) + b"\0\x01" * 200_000
    batch = placed(seal(encode_varint(len(body)) + body), 6)
    copy = handled(A, form)
    copy.ceiling = Ceiling(1 << 20, 1 << 20)
    with pytest.raises(BatchTooLarge):
        list(sent(copy, visible(stored(0, 4, epoch=3), batch)))
    assert copy.position in (4, 6) and copy.leader_epoch == 3


def test_damage_behind_good_batches_stops_after_them() -> None:
    """The position names the damaged batch."""
    bad = bytearray(stored(4, 4))
    bad[-1] ^= 1
    copy = handled(A, "spread_batch")
    out: list[Outgoing] = []
    with pytest.raises(CorruptBatch):
        out.extend(sent(copy, visible(stored(0, 4), bytes(bad))))
    assert copy.position == 4 and sorted(o for one in out for o in offsets(one)) == [1, 2, 2]


@pytest.mark.parametrize("form", FORMS)
@given(counts=st.lists(st.integers(1, 7), min_size=1, max_size=5), foreign=st.integers(0, 3))
def test_map_holds_every_output_once_and_covers_every_source_offset(
    form: str, counts: list[int], foreign: int
) -> None:
    """By pair, with records of others in between on the target; ends kept beside the progress stay low."""
    copy, source = handled(A, form, letters=True), 0
    ends: dict[TopicPartition, int] = {}
    expected: list[tuple[int, TopicPartition, int]] = []
    for count in counts:
        for one in sent(copy, visible(stored(source, count))):
            base = ends.get(one.target, 100) + foreign
            ends[one.target] = base + one.header.count
            copy.acknowledged(Acknowledged(one, base))
            expected += [(o, one.target, base + n) for n, o in enumerate(offsets(one))]
        source += count
    records = copy.map_records(3, 1, (5, 2), 10, 20)
    seen = [
        (s.source + n, r.target, s.target + n) for r in records for s in r.segments for n in range(s.count)
    ]
    assert sorted(seen) == sorted(expected)
    assert all((r.source_start, r.source_end) == (0, source) for r in records)
    assert [r.target for r in records].count(A) == 1
    assert copy.target_end == ends.get(A, 100)
    assert copy.metadata(3, (5, 2)).target_end <= ends.get(A, 100)
    copy.committed_now()
    copy.position += 1
    assert [r.target for r in copy.map_records(3, 1, (5, 2), 10, 20)] == [A]


def test_map_of_very_many_segments_is_cut_into_records_that_fit() -> None:
    """A handler that makes two of each record gives a segment for every one."""
    copy = handled(A, "same")
    batch = bytearray(stored(0, 1))
    header = parse_header(batch)
    count = MAX_SEGMENTS + 10
    for offset in range(count):
        one = Outgoing(A, header, batch, A, ((2 * offset, 1),))
        copy.acknowledged(Acknowledged(one, 1000 + offset))
    copy.position = 2 * count
    records = copy.map_records(3, 1, (5, 2), 10, 20)
    assert len(records) == 2 and sum(r.records for r in records) == count
    assert all(a.source_end == b.source_start for a, b in pairwise(records))


@pytest.mark.parametrize("merged", [False, True])
def test_divert_without_a_handler_leaves_the_others_of_the_batch(merged: bool) -> None:
    """Also among tiny batches, which are merged only while nothing stands in the way."""
    copy = partition(A)
    copy.dead_letter = DeadLetter("f", "east", A, copy.source_id, LETTERS)
    copy.obstacle = Obstacle(
        divert={2: RecordProblem("RECORD_REFUSED", "why"), 40: RecordProblem("later", "")}
    )
    batches = [stored(n, 1) for n in range(12)] if merged else [stored(0, 12)]
    out = list(sent(copy, visible(*batches)))
    [letter] = [one for one in out if one.target == LETTERS]
    assert offsets(letter) == [2] and values(letter) == [b"v2"]
    copied = [o for one in out if one.target == A for o in offsets(one)]
    assert copied == [o for o in range(12) if o != 2]
    copy.committed_now()
    assert list(copy.obstacle.divert) == [40]


def test_letter_says_where_it_comes_from_and_why() -> None:
    """Texts only; the record's own headers come first."""
    copy = handled(A, "spread", letters=True)
    [letter] = [one for one in sent(copy, visible(stored(0, 9))) if one.target == LETTERS]
    [record] = decode(letter.header, bytes(letter.batch))
    headers = dict(record.headers)
    assert headers[b"onceover.source.offset"] == b"7" and headers[b"onceover.source.timestamp"] == b"1007"
    assert headers[b"onceover.source.topic.id"] == str(copy.source_id).encode()
    assert headers[b"onceover.error.code"] == b"HANDLER_FAILED"
    assert record.timestamp > 1_700_000_000_000
    assert topic_spec("letters").partitions == 1


def test_outputs_of_several_partitions_never_meet_in_one_request() -> None:
    """The fake producer refuses a partition twice in a request, as brokers lose one; nothing is lost."""
    setting = Setting([[(A, answer([stored(0, 6)], lso=6)), (B, answer([stored(0, 6)], lso=6))]])
    for tp in (A, B):
        setting.partitions[tp].handling = handled(tp, "spread").handling
    setting.loop.__post_init__()
    records = setting.run({A: 6, B: 6})
    assert sum(r.records for r in records) == 2 * (1 + 2 + 1 + 2)
    assert setting.producer.committed[0][A].offset == 6
    assert {(r.source, r.target.partition) for r in records} >= {(A, 1), (B, 1)}


def test_own_records_are_written_in_batches_that_a_broker_takes() -> None:
    """A map of many pairs does not end in one batch above the limit."""
    pairs: list[tuple[bytes, bytes | None]] = [(b"k" * 10, b"v" * 90)] * 25
    assert [len(piece) for piece in portions(pairs, 1000)] == [10, 10, 5]
    assert [len(piece) for piece in portions([(b"k", b"v" * 5000), (b"k", None)], 1000)] == [1, 1]
    batch = bytearray(stored(0, 1))
    twice = [Outgoing(tp, parse_header(batch), batch) for tp in (A, B, A, A)]
    assert [[b.target for b in r] for r in distinct_targets(twice)] == [[A, B], [A], [A]]
    assert distinct_targets([]) == []


class Told:
    """Notes what a handler is told."""

    def __init__(self, fails: bool = False) -> None:
        self.heard: list[tuple[str, list[TopicPartition]]] = []
        self.fails = fails

    def lane_handler(self) -> LaneHandler:
        def tell(what: str) -> Tell:
            def note(partitions: Sequence[TopicPartition]) -> str | None:
                self.heard.append((what, list(partitions)))
                return "RuntimeError at x.py:1" if self.fails else None

            return note

        handling = handled(A, "same").handling
        assert handling is not None
        use = HandlerUse("x:y", lambda _tp, _count: handling, tell("gained"), tell("lost"))
        return LaneHandler("f", "east", use)


def test_listener_is_told_of_differences_only() -> None:
    """A reset with the same partitions is nobody's news."""
    told = Told()
    lane_handler = told.lane_handler()
    assert lane_handler.assigned({A: 0}) == {} and lane_handler.assigned({A: 9}) == {}
    lane_handler.assigned({B: 0})
    lane_handler.released()
    lane_handler.released()
    assert told.heard == [("gained", [A]), ("lost", [A]), ("gained", [B]), ("lost", [B])]


def test_listener_that_fails_gives_a_stop_for_each_gained_partition() -> None:
    """They are not held, so they are gained again later."""
    told = Told(fails=True)
    lane_handler = told.lane_handler()
    stops = lane_handler.assigned({A: 4, B: 5})
    assert {tp: (s.code, s.position) for tp, s in stops.items()} == {
        A: ("HANDLER_FAILED", 4),
        B: ("HANDLER_FAILED", 5),
    }
    lane_handler.released()
    assert told.heard == [("gained", [A, B])]
