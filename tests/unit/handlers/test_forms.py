"""Both forms against the simplest model: what a handler returns, in order, and what it fails on."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.handlers.load import load_handler
from onceover.handlers.within import TookTooLong
from onceover.handling.forms import handler_use
from onceover.handling.handling import MAX_BATCH_BYTES, Group, Handled, Handling, Request, groups
from onceover.handling.obstacles import RecordProblem
from onceover.model import TopicPartition
from onceover.wire.batches.batch import BatchTooLarge, CorruptBatch, iter_batches, parse_header
from onceover.wire.batches.records import DecodedRecord, decode
from onceover.wire.batches.unpack import RECORD_BYTES, Ceiling
from onceover.wire.batches.varint import encode_varint
from onceover.wire.batches.visibility import Visible
from tests.support.raw.hostile import seal
from tests.support.raw.rawkafka import Codec
from tests.support.session.memory import Peak
from tests.unit.copy.batches import stored
from tests.unit.handlers import samples
from tests.unit.wire.batches.test_records import compacted_batch, holed_records

# The first call of Arrow's kernels takes its time.
SOURCE = TopicPartition("t", 1)
PARTITIONS = 4
FORMS = ["spread", "spread_batch"]
GROUP_BYTES = 1 << 20
CEILING = Ceiling(GROUP_BYTES, GROUP_BYTES)


def handling(name: str, partitions: int = PARTITIONS, **args: Any) -> Handling:
    """Return a partition's way through one of the sample handlers."""
    handler = load_handler(f"tests.unit.handlers.samples:{name}", args, "flow.yaml")
    return handler_use(handler, "f", GROUP_BYTES).form(SOURCE, partitions)


def visible(*batches: bytes) -> list[Visible]:
    """Return batches as a read_committed reader meets them."""
    return [Visible(h, b) for h, b in iter_batches(memoryview(bytearray(b"".join(batches))))]


def group_of(*batches: bytes) -> Group:
    """Return batches as one group."""
    [group] = groups(visible(*batches), CEILING)
    return group


def request(**changes: Any) -> Request:
    """Return a wish for everything."""
    return Request(0, None, {}, MAX_BATCH_BYTES, GROUP_BYTES, True)._replace(**changes)


def outputs(handled: Handled) -> dict[int, list[tuple[int, DecodedRecord]]]:
    """Return (source offset, record) by target partition."""
    found: dict[int, list[tuple[int, DecodedRecord]]] = {}
    for partition, encoded in handled.outputs:
        offsets = [first + n for first, count in encoded.source_runs for n in range(count)]
        records = decode(parse_header(encoded.batch), bytes(encoded.batch))
        found.setdefault(partition, []).extend(zip(offsets, records, strict=True))
    return found


def model(records: list[DecodedRecord], partitions: int) -> dict[int, list[tuple[int, tuple[Any, ...]]]]:
    """Return what ``spread`` means, written down once more without anything of the product."""
    found: dict[int, list[tuple[int, tuple[Any, ...]]]] = {}
    for record in records:
        for copy in range(record.offset % 3):
            content = (
                record.timestamp,
                record.key,
                record.value,
                (*record.headers, (b"copy", b"%d" % copy)),
            )
            found.setdefault((record.offset + copy) % partitions, []).append((record.offset, content))
    return found


@pytest.mark.parametrize("form", FORMS)
@given(records=holed_records(), from_share=st.floats(0, 1))
def test_output_is_what_the_model_says(form: str, records: list[DecodedRecord], from_share: float) -> None:
    """Zero, one or two records anywhere: content, order and source offsets, from any start on."""
    start = records[0].offset + round(from_share * (records[-1].offset - records[0].offset))
    handled = _with_args(form).process(group_of(compacted_batch(records, 0)), request(from_offset=start))
    expected = model([r for r in records if r.offset >= start], PARTITIONS)
    seen = {p: [(offset, tuple(r[1:])) for offset, r in rows] for p, rows in outputs(handled).items()}
    assert seen == expected
    assert handled.bad == []


def _with_args(form: str, bad: str | None = None) -> Handling:
    handler = load_handler(
        f"tests.unit.handlers.samples:{form}", {"partitions": PARTITIONS, "bad": bad}, "flow.yaml"
    )
    return handler_use(handler, "f", GROUP_BYTES).form(SOURCE, PARTITIONS)


@pytest.mark.parametrize("form", FORMS)
@given(bad=st.sets(st.integers(0, 19), min_size=1, max_size=4))
def test_stops_before_the_first_bad_record_and_names_it(form: str, bad: set[int]) -> None:
    """Everything before it goes out; nothing behind it is handed over."""
    use, first = _with_args(form, "bad"), min(bad)
    handled = use.process(group_of(_batch_with(bad)), request())
    assert [one.record.offset for one in handled.bad] == [first]
    assert all(offset < first for rows in outputs(handled).values() for offset, _ in rows)
    assert sum(map(len, outputs(handled).values())) == sum(o % 3 for o in range(first))
    stop = use.stop_at(handled.bad[0])
    assert stop.code == "HANDLER_FAILED" and f"offset {first}" in stop.message
    assert "ValueError at samples.py:" in stop.seen
    assert f"skip-to f t:1 {first + 1}" in stop.resolve
    assert samples.SECRET.decode() not in str(stop) and "bad" not in stop.seen


@pytest.mark.parametrize("form", ["panics", "panics_batch", "panics_later"])
@pytest.mark.parametrize(
    ("kind", "seen"), [("panic", "Panic"), ("exit", "SystemExit"), ("cancelled", "CancelledError")]
)
def test_what_is_no_exception_is_the_record_s_own_fault_too(form: str, kind: str, seen: str) -> None:
    """A panic of an extension, an exit in a library: it has to take down no more than its record."""
    handled = handling(form, kind=kind).process(group_of(_batch_with({7})), request())
    [bad] = handled.bad
    assert bad.record.offset == 7 and bad.reason.code == "HANDLER_FAILED"
    assert bad.reason.message.startswith(f"{seen} at samples.py:")
    assert samples.SECRET.decode() not in bad.reason.message
    assert [offset for offset, _ in outputs(handled)[1]] == list(range(7))


@pytest.mark.parametrize("form", ["panics", "panics_batch"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, TookTooLong])
def test_what_ends_the_process_or_the_call_is_no_record_s_fault(
    form: str, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is told to end, and the alarm."""
    monkeypatch.setattr(samples, "Panic", kind)
    with pytest.raises(kind):
        handling(form).process(group_of(_batch_with({7})), request())


@pytest.mark.parametrize("form", FORMS)
@given(bad=st.sets(st.integers(0, 19), min_size=1, max_size=6), known=st.sets(st.integers(0, 19), max_size=4))
def test_goes_on_behind_bad_records_when_they_have_somewhere_to_go(
    form: str, bad: set[int], known: set[int]
) -> None:
    """What fails, and what the target refused before, is left out; each with its content as it was."""
    reasons = {offset: RecordProblem("RECORD_REFUSED", "error 87") for offset in known}
    handled = _with_args(form, "bad").process(
        group_of(_batch_with(bad)), request(stop_at_bad=False, known_bad=reasons)
    )
    assert [one.record.offset for one in handled.bad] == sorted(bad | known)
    assert {one.record.offset for one in handled.bad if one.reason.code == "RECORD_REFUSED"} == known
    assert all(one.record.value == _value(one.record.offset, bad) for one in handled.bad)
    copied = sorted(offset for rows in outputs(handled).values() for offset, _ in rows)
    assert copied == [o for o in range(20) if o not in bad | known for _ in range(o % 3)]


def _value(offset: int, bad: set[int]) -> bytes:
    return b"bad" if offset in bad else b"good"


def _batch_with(bad: set[int]) -> bytes:
    records = [
        DecodedRecord(offset, 5, b"k", _value(offset, bad), ((b"\xff", None),)) for offset in range(20)
    ]
    return compacted_batch(records, 0)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("none", "returns None; to drop"),
        ("text", "returns str instead"),
        ("topic", "topic or offset"),
        ("offset", "topic or offset"),
        ("partition", "outside 0 to 1"),
        ("negative", "outside 0 to 1"),
        ("numpy partition", "outside 0 to 1"),
        ("timestamp", "64-bit"),
        ("float", "64-bit"),
        ("bool timestamp", "64-bit"),
        ("numpy timestamp", "64-bit"),
        ("bool", "outside 0 to 1"),
        ("value", "bytes or None"),
        ("array value", "bytes or None"),
        ("array key", "bytes or None"),
        ("view", "bytes or None"),
        ("gaps", "bytes or None"),
        ("table", "bytes or None"),
        ("released", "bytes or None"),
        ("number", "bytes or None"),
        ("numpy number", "bytes or None"),
        ("headers", "bytes or None"),
        ("array header", "bytes or None"),
        ("no headers", "bytes or None"),
        ("three of a header", "bytes or None"),
        ("header name", "header names text"),
        ("surrogate", "header names text"),
    ],
)
def test_bad_output_of_the_record_form_is_named(what: str, words: str) -> None:
    """What cannot be written is the handler's error on that record, in our words."""
    handled = handling("outcome", partitions=2, what=what).process(group_of(stored(0, 3)), request())
    [bad] = handled.bad
    assert words in bad.reason.message and bad.record.offset == 0 and handled.outputs == []


def test_what_is_as_good_as_bytes_is_written() -> None:
    """One of NumPy's texts is bytes, a bytearray is as good; an offset may be any number that is equal."""
    handled = handling("much_the_same", partitions=2).process(group_of(stored(0, 3)), request())
    assert handled.bad == []
    assert [(offset, r.key, r.value, r.headers) for offset, r in outputs(handled)[1]] == [
        (offset, b"k", b"v\0", ((b"h", b""),)) for offset in range(3)
    ]


def test_bytes_that_belong_to_something_else_are_written() -> None:
    """A prefix is cut off best without a copy."""
    handled = handling("buffers", partitions=2).process(group_of(stored(0, 3)), request())
    assert handled.bad == []
    assert [(offset, r.key, r.value, r.headers) for offset, r in outputs(handled)[1]] == [
        (offset, b"k\xff", b"abc", ((b"h", b"\0w"), (b"n", None))) for offset in range(3)
    ]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("none", "NoneType instead of a RecordBatch"),
        ("columns", "seen key, value"),
        ("schema", "value is string instead of binary"),
        ("null timestamp", "column timestamp"),
        ("header name", "a header without a name"),
        ("partition", "outside 0 to 1"),
        ("offset", "not among those"),
    ],
)
def test_bad_output_of_the_column_form_is_named(what: str, words: str) -> None:
    """The first record of the batch is named: with it alone the output is as bad."""
    handled = handling("batch_outcome", partitions=2, what=what).process(group_of(stored(0, 3)), request())
    [bad] = handled.bad
    assert words in bad.reason.message and bad.record.offset == 0 and handled.outputs == []


def test_rows_out_of_order_are_handed_over_in_smaller_parts() -> None:
    """Single rows cannot be out of order: the result is right, only slower."""
    handled = handling("batch_outcome", partitions=2, what="order").process(group_of(stored(0, 3)), request())
    assert [offset for offset, _ in outputs(handled)[1]] == [0, 1, 2]


@pytest.mark.parametrize("form", ["same", "same_batch"])
@pytest.mark.parametrize("codec", list(Codec))
def test_output_keeps_the_codec_of_the_source(form: str, codec: Codec) -> None:
    """A compressed topic stays compressed."""
    handled = handling(form).process(group_of(stored(0, 9, codec=codec)), request())
    [output] = handled.outputs
    assert parse_header(output.encoded.batch).codec == codec
    assert output.encoded.source_runs == [(0, 9)]


def test_groups_are_cut_by_size_and_codec_and_cover_what_is_skipped() -> None:
    """A group ends where the next batch would make it too large; its end lies behind skipped batches."""
    plain, packed = stored(0, 4), stored(4, 4, codec=Codec.LZ4)
    skipped = Visible(parse_header(stored(8, 2, epoch=7)), None)
    found = list(groups([*visible(plain, packed), skipped], CEILING))
    assert [(g.codec, len(g.batches), g.end) for g in found] == [(0, 1, 4), (Codec.LZ4, 1, 10)]
    assert found[1].leader_epoch == 7
    one = len(plain) + 4 * RECORD_BYTES
    small = list(groups(visible(stored(0, 4), stored(4, 4), stored(8, 4)), Ceiling(one, GROUP_BYTES)))
    assert [g.end for g in small] == [4, 8, 12]


def test_a_batch_larger_than_a_group_comes_in_pieces() -> None:
    """Each a group whose end is behind its last record; what a record takes beside its bytes counts."""
    pieces = list(groups(visible(stored(3, 9, codec=Codec.ZSTD)), Ceiling(3 * RECORD_BYTES, GROUP_BYTES)))
    assert [(g.end, len(g.batches), g.batches[0].header.count) for g in pieces] == [
        (5, 1, 2),
        (7, 1, 2),
        (9, 1, 2),
        (11, 1, 2),
        (12, 1, 1),
    ]


def test_what_comes_before_a_damaged_batch_is_given_out_first() -> None:
    """The damage is reported where it is, with everything before it copied."""
    damaged = bytearray(stored(4, 4))
    damaged[-1] ^= 1
    stream = groups(visible(stored(0, 4), bytes(damaged)), CEILING)
    assert next(stream).end == 4
    with pytest.raises(CorruptBatch):
        next(stream)


def test_listeners_are_told_and_their_failures_are_described() -> None:
    """KIP-3's rebalance listener: type and place of what it raises, never its text."""
    samples.Wider.told.clear()
    make = partial(load_handler, "tests.unit.handlers.samples:Wider", where="flow.yaml")
    use = handler_use(make({"partitions": 5}), "f", GROUP_BYTES)
    assert use.gained([SOURCE]) is None and use.lost([SOURCE]) is None
    assert samples.Wider.told == [("gained", [SOURCE]), ("lost", [SOURCE])]
    for fail_on, words in (("gained", "RuntimeError at"), ("panic gained", "Panic at")):
        seen = handler_use(make({"partitions": 5, "fail_on": fail_on}), "f", GROUP_BYTES).gained([SOURCE])
        assert seen is not None and seen.startswith(f"{words} samples.py:")


def deep(*counts: int) -> bytes:
    """Return a batch whose records have so many headers, of two bytes each."""
    records = b""
    for delta, count in enumerate(counts):
        body = b"\0\0" + encode_varint(delta) + b"\x01\x01" + encode_varint(count) + b"\0\x01" * count
        records += encode_varint(len(body)) + body
    return seal(records, count=len(counts))


def test_a_group_takes_no_more_than_its_share_for_its_headers() -> None:
    """Half a million in a megabyte: columns of all of them together would take fifty."""
    use, group = handling("same_batch"), group_of(deep(*[10_000] * 50))
    use.process(group_of(deep(*[10_000] * 10)), request())  # Arrow takes some for itself, once
    with Peak() as peak:
        handled = use.process(group, request())
    assert [offset for offset, _ in outputs(handled)[1]] == list(range(50))
    assert peak.grown_mib < 24


@pytest.mark.parametrize("form", ["same", "same_batch"])
def test_a_single_record_of_too_many_headers_is_named(form: str) -> None:
    """Before it becomes columns; what stands before it can be had, and what stands behind it."""
    use, group = handling(form), group_of(deep(3, 500_000, 3))
    with pytest.raises(BatchTooLarge) as caught:
        use.process(group, request())
    assert (caught.value.offset, caught.value.behind) == (1, 2)
    for wanted, offset in ((request(to_offset=1), 0), (request(from_offset=2), 2)):
        assert [o for o, _ in outputs(use.process(group, wanted))[1]] == [offset]
