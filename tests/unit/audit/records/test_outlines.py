"""The compiled code knows of records what the Python code finds, to the bit, or leaves them to it."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable, Generator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.audit.compare.compare import Cursor, compare
from onceover.audit.model import Range
from onceover.audit.records import batches as batches_module
from onceover.audit.records import outlines
from onceover.audit.records.batches import Batch, Unreadable, walk
from onceover.audit.records.outlines import MOST_RECORDS, OutlinedRecords
from onceover.audit.records.reader import ReadBatch
from onceover.model import TopicPartition
from tests.support.raw.hostile import seal
from tests.support.raw.java_batches import JAVA_BATCHES
from tests.support.raw.mutations import Content
from tests.support.raw.rawkafka import Codec, varint
from tests.support.session.examples import examples
from tests.unit.audit.stored import batches, log_append, patched, stored

T = TypeVar("T")
PAIR: Final = (TopicPartition("a", 0), TopicPartition("b", 0))
NOW: Final = 1_700_000_000_000
LOG_APPEND_TIME: Final = 0x08

_data = st.none() | st.binary(max_size=300)
_names = st.sampled_from([b"", b"a", b"b", b"long-name" * 30])
_contents = st.lists(
    st.builds(
        Content,
        _data,
        _data,
        st.lists(st.tuples(_names, _data), max_size=4).map(tuple),
        st.integers(0, 1 << 60),
    ),
    min_size=1,
    max_size=30,
)


def in_python(function: Callable[[], T]) -> T:
    """Return what ``function`` does without the compiled code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outlines, "kernel", lambda: None)
        return function()


def told(batch: Batch, timed: bool = True) -> list[Any]:
    """Return the records of a batch, and behind them the words of what is wrong with it."""
    found: list[Any] = []
    try:
        found.extend(batch.decode(timed=timed, record_bytes=1 << 16))
    except Unreadable as error:
        found.append(str(error))
    except struct.error as error:
        # A timestamp that is no 64-bit number.
        found.append(type(error))
    return found


def both(batch: Batch, timed: bool = True) -> list[Any]:
    """Return what ``told`` says, which is the same either way."""
    found = told(batch, timed)
    assert found == in_python(lambda: told(batch, timed))
    return found


def field(data: bytes | None) -> bytes:
    """Return a key or value as it is written."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(delta: int, stamp: int, key: bytes | None, value: bytes | None, headers: bytes = b"\0") -> bytes:
    """Return a record, whose headers are any bytes."""
    body = b"\0" + varint(stamp) + varint(delta) + field(key) + field(value) + headers
    return varint(len(body)) + body


def sealed(payload: bytes, count: int, *, last_delta: int | None = None, attributes: int = 0) -> Batch:
    """Return a batch of any payload."""
    (batch,) = walk(memoryview(seal(payload, count=count, last_delta=last_delta, attributes=attributes)))
    return batch


def test_the_library_is_there() -> None:
    """Otherwise nothing here says anything."""
    assert outlines.kernel() is not None


@settings(max_examples=examples(60))
@given(_contents, st.sampled_from(range(5)), st.booleans(), st.booleans(), st.data())
def test_what_is_read_is_what_python_reads(
    contents: list[Content], codec: int, timed: bool, stamped: bool, data: st.DataObject
) -> None:
    """Null and empty, headers, repeated names, holes, either kind of timestamps, every compression."""
    gaps = data.draw(st.lists(st.integers(1, 3), min_size=len(contents), max_size=len(contents)))
    deltas = [sum(gaps[:index]) for index in range(len(gaps))]
    written = stored(contents, codec=codec, base=data.draw(st.integers(0, 1 << 59)), deltas=deltas)
    (batch,) = batches(log_append(written, 77) if stamped else written)
    found = both(batch, timed)
    assert [each[1:4] for each in found] == [each[:3] for each in contents]
    assert any(isinstance(part, OutlinedRecords) for part in batch.parts()), "by the compiled code"


@settings(max_examples=examples(60))
@given(
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), min_size=1, max_size=9),
    st.booleans(),
)
def test_any_timestamp_is_what_python_makes_of_it(base_ms: int, stamps: list[int], stamped: bool) -> None:
    """Negative ones, and such as do not fit into 64 bits with the batch's own."""
    payload = b"".join(record(delta, stamp, b"k", b"v") for delta, stamp in enumerate(stamps))
    whole = seal(payload, count=len(stamps), attributes=LOG_APPEND_TIME if stamped else 0)
    (batch,) = batches(patched(whole, at=27, layout=">q", value=base_ms))
    both(batch)


@pytest.mark.parametrize("size", [*range(0, 700, 7), 4096, 65_536, 100_000])
def test_hashes_are_those_of_any_length(size: int) -> None:
    """Around the borders of blocks, in every field."""
    data = bytes(range(256)) * 400
    key, value = data[: size % 131], data[:size]
    headers = varint(2) + field(b"name" * (size % 40)) + field(data[: size // 2]) + field(b"") + field(None)
    (found,) = both(sealed(record(0, NOW, key, value, headers), 1))
    outline = struct.pack("<qqqq", NOW, len(key), len(value), 2)
    parts = (b"name" * (size % 40), data[: size // 2], b"")
    packed = b"".join(struct.pack("<q", len(part)) + part for part in parts)
    encoded = outline + key + value + struct.pack("<q", 2) + packed + struct.pack("<q", -1)
    assert found.hash == blake2b(encoded, digest_size=16).digest()


RARE: Final = {
    "a length that is none": (varint(-1), 1, None),
    "an empty record": (varint(0), 1, None),
    "a length of more than 64 bits": (b"\xff" * 10 + b"\1", 1, None),
    "a length of 65 bits": (b"\xff" * 9 + b"\2", 1, None),
    "a length beyond all bytes": (varint(1 << 62) + b"\0", 1, None),
    "a key beyond its record": (varint(6) + b"\0\0\0" + varint(40) + bytes(60), 1, None),
    "a key of 63 bits": (varint(20) + b"\0\0\0" + varint((1 << 63) - 1) + bytes(60), 1, None),
    "a timestamp of 65 bits": (varint(15) + b"\0" + b"\x80" * 9 + b"\2\0\1\1\0", 1, None),
    "a key of less than null": (record(0, 0, None, b"v").replace(b"\1", varint(-9), 1), 1, None),
    "fewer headers than none": (record(0, 0, b"k", b"v", varint(-1)), 1, None),
    "more headers than bytes": (record(0, 0, b"k", b"v", varint(99)), 1, None),
    "too many headers": (record(0, 0, b"k", b"v", varint(100_001) + b"\0\1" * 100_001), 1, None),
    "a header with a null name": (record(0, 0, b"k", b"v", varint(1) + field(None) + field(b"x")), 1, None),
    "bytes behind the headers": (record(0, 0, b"k", b"v", b"\0x"), 1, None),
    "bytes behind the records": (record(0, 0, b"k", b"v") + b"x", 1, None),
    "fewer records than are told": (record(0, 0, b"k", b"v"), 2, None),
    "more records than are told": (record(0, 0, b"k", b"v") * 2, 1, 1),
    "more records than offsets": (record(0, 0, b"k", b"v") * 2, 2, 0),
    "an offset before the batch": (record(-1, 0, b"k", b"v"), 1, None),
    "an offset behind the batch": (record(1, 0, b"k", b"v"), 1, None),
    "offsets that repeat": (record(0, 0, b"k", b"v") * 2, 2, None),
    "offsets that fall": (record(1, 0, b"k", b"v") + record(0, 0, b"k", b"v"), 2, None),
    "a number in more bytes than it needs": (b"\x8e\x80\x00" + record(0, 0, b"k", b"")[1:] + b"", 1, None),
}


@pytest.mark.parametrize("name", RARE)
def test_what_is_wrong_or_rare_is_left_to_python(name: str) -> None:
    """Alone, and behind a record that is in order."""
    payload, count, last_delta = RARE[name]
    both(sealed(payload, count, last_delta=last_delta))
    shifted = record(0, NOW, b"first", None) + payload
    both(sealed(shifted, count + 1, last_delta=None if last_delta is None else last_delta + 1))


@pytest.mark.parametrize("base", [-1, -(2**63), 2**61, 2**63 - 1])
def test_offsets_that_may_not_fit_are_left_to_python(base: int) -> None:
    """No broker gives such."""
    (batch,) = batches(stored([Content(b"k", b"v", (), 1)], base=base))
    both(batch)
    assert not any(isinstance(part, OutlinedRecords) for part in batch.parts())


@pytest.mark.parametrize("codec", sorted(JAVA_BATCHES))
def test_batches_of_kafkas_own_client_are_read(codec: int) -> None:
    """Whatever it writes is the usual."""
    for batch in walk(memoryview(JAVA_BATCHES[codec])):
        both(batch)


def test_a_record_larger_than_what_is_expanded_at_once() -> None:
    """It is put together of pieces, and those around it are read as all others."""
    values = [b"x" * (10 << 20 if n == 2 else 9) for n in range(5)]
    payload = b"".join(record(delta, NOW, None, value) for delta, value in enumerate(values))
    (batch,) = batches(seal(gzip.compress(payload), codec=Codec.GZIP, count=5))
    found = list(batch.decode())
    assert [rec.value for rec in found] == values
    assert found == in_python(lambda: list(batch.decode()))


def mutated(rng: random.Random) -> Batch:
    """Return a batch of which some bytes are others, with a checksum that fits."""
    contents = [
        Content(
            rng.choice([None, b"", b"key"]),
            rng.choice([None, b"", rng.randbytes(rng.randrange(200))]),
            tuple((b"name", rng.choice([None, b"", b"v"])) for _ in range(rng.choice([0, 0, 1, 3]))),
            NOW + rng.randrange(-5, 9),
        )
        for _ in range(rng.randrange(1, 9))
    ]
    data = bytearray(stored(contents, base=rng.choice([0, 5, 1 << 40])))
    for _ in range(rng.randrange(1, 4)):
        # Payload mostly; of the header what says which records there are.
        in_header = rng.random() < 0.1
        at = rng.choice([*range(22, 43), *range(57, 61)]) if in_header else rng.randrange(61, len(data))
        data[at] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, data[at] ^ 1 << rng.randrange(8)])
    if rng.random() < 0.2:
        del data[rng.randrange(61, len(data)) :]
        struct.pack_into(">i", data, 8, len(data) - 12)
    (batch,) = batches(patched(bytes(data), at=0, layout=">q", value=rng.choice([0, 3, 1 << 40])))
    return batch


def test_damage_is_told_in_the_same_words() -> None:
    """Random bytes of payload and header: the same records, and the same error behind them."""
    outcomes = {"read": 0, "refused": 0}
    rng = random.Random()
    for _ in range(examples(400)):
        seed = rng.randrange(1 << 30)
        batch = mutated(random.Random(seed))
        if batch.attributes & 7:
            continue
        found = told(batch)
        assert found == in_python(partial(told, batch)), f"seed {seed}"
        last = found[-1:]
        outcomes["refused" if last and isinstance(last[0], str) else "read"] += 1
    assert min(outcomes.values()) > 20


# ---- comparing


def log(contents: Sequence[Content], per_batch: int, base: int, codec: int) -> list[Batch]:
    """Return records as batches of so many."""
    cuts = range(0, len(contents), per_batch)
    parts = [stored(contents[cut : cut + per_batch], base=base + cut, codec=codec) for cut in cuts]
    return batches(*parts)


def reads(found: Sequence[Batch]) -> Generator[ReadBatch]:
    """Yield batches as a reader does."""
    for batch in found:
        yield ReadBatch(batch, aborted=False)


def compared(
    mine: Sequence[Batch], theirs: Sequence[Batch], borders: Sequence[int], timed: bool = True
) -> list[Any]:
    """Return the digests of ranges that end at the borders, and behind them what is wrong."""
    source, target = (Cursor(reads(side), 0, timed=timed) for side in (mine, theirs))
    found: list[Any] = []
    at = 0
    for border in borders:
        try:
            found.append(compare(Range(PAIR[0], at, border, PAIR[1], at, border), source, target))
        except Unreadable as error:
            return [*found, str(error)]
        at = border
    return found


@settings(max_examples=examples(60))
@given(st.data())
def test_digests_are_those_that_python_makes(data: st.DataObject) -> None:
    """However both sides are batched and cut into ranges, whether a record differs or not, and to the bit."""
    records = data.draw(_contents)
    others = list(records)
    if data.draw(st.booleans()):
        others[data.draw(st.integers(0, len(others) - 1))] = data.draw(_contents)[0]
    sizes, codecs = st.integers(1, 9), st.sampled_from([0, 3])
    mine = log(records, data.draw(sizes), 0, data.draw(codecs))
    theirs = log(others, data.draw(sizes), 0, data.draw(codecs))
    borders = [*sorted(data.draw(st.sets(st.integers(1, len(records)), max_size=3))), len(records)]
    timed = data.draw(st.booleans())
    found = compared(mine, theirs, borders, timed)
    assert found == in_python(lambda: compared(mine, theirs, borders, timed))


@given(st.lists(st.integers(-3, 5), min_size=1, max_size=20), st.integers(1, 7), st.integers(1, 7))
def test_times_in_digests_are_those_that_python_makes(stamps: list[int], mine: int, theirs: int) -> None:
    """Negative ones say that there is none; what is told of them is told as before."""

    def side(per_batch: int) -> list[Batch]:
        found = []
        for cut in range(0, len(stamps), per_batch):
            part = stamps[cut : cut + per_batch]
            payload = b"".join(record(delta, stamp, b"k", b"v") for delta, stamp in enumerate(part))
            found.append(seal(payload, count=len(part), base_offset=cut))
        return batches(*found)

    one, other = side(mine), side(theirs)
    found = compared(one, other, [len(stamps)])
    assert found == in_python(lambda: compared(one, other, [len(stamps)]))


USUAL: Final = Content(b"key", b"value", ((b"name", b"x"), (b"name", None)), NOW)
DIFFERENT: Final = [
    USUAL._replace(key=None),
    USUAL._replace(key=b""),
    USUAL._replace(key=b"keys"),
    USUAL._replace(value=b"valu"),
    USUAL._replace(value=b"valuf"),
    USUAL._replace(value=None),
    USUAL._replace(timestamp_ms=NOW + 1),
    USUAL._replace(headers=()),
    USUAL._replace(headers=USUAL.headers[:1]),
    USUAL._replace(headers=USUAL.headers[::-1]),
    USUAL._replace(headers=((b"name", b"x"), (b"name", b""))),
]


@pytest.mark.parametrize("other", DIFFERENT)
def test_one_field_is_enough_to_tell_records_apart(other: Content) -> None:
    """Also where one is how the other begins; neither direction passes for the same."""
    first = Content(None, b"first", (), NOW)
    for one, two in ((USUAL, other), (other, USUAL)):
        mine, theirs = log([first, one], 2, 0, 0), log([first, two], 1, 0, 0)
        (found,) = compared(mine, theirs, [2])
        assert found.parted and not found.same
        assert in_python(partial(compared, mine, theirs, [2])) == [found]
    mine, theirs = log([first, USUAL], 2, 0, 0), log([first, other], 1, 0, 0)
    (untimed,) = compared(mine, theirs, [2], timed=False)
    assert untimed.same == (other == USUAL._replace(timestamp_ms=NOW + 1))


def test_headers_in_other_bytes_are_the_same_headers() -> None:
    """The length of a name in two bytes: bytes differ, and the record does not."""
    usual = record(0, NOW, b"k", b"v", varint(1) + field(b"n") + field(b"x"))
    rare = record(0, NOW, b"k", b"v", varint(1) + b"\x82\0n" + field(b"x"))
    more = record(1, NOW, b"k", b"v")
    (found,) = compared([sealed(usual + more, 2)], [sealed(rare + more, 2)], [2])
    assert found.same and found.source.records == 2
    assert in_python(lambda: compared([sealed(usual + more, 2)], [sealed(rare + more, 2)], [2])) == [found]


def test_more_records_than_are_outlined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One behind the other, each once; a cut of a range may lie anywhere."""
    count = 2 * MOST_RECORDS + 7
    contents = [Content(None, b"%d" % number, (), number) for number in range(count)]
    mine, theirs = log(contents, count, 0, 0), log(contents, count - 3, 0, 0)
    borders = [MOST_RECORDS - 1, MOST_RECORDS + 1, 2 * MOST_RECORDS, count]
    expected = in_python(lambda: compared(mine, theirs, borders))
    made = []
    monkeypatch.setattr(batches_module.Batch, "_record", lambda *_: made.append(1))
    assert compared(mine, theirs, borders) == expected
    assert not made and all(each.same for each in expected)


def test_records_are_not_made_where_both_sides_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what it is for; one that differs is, and those behind it are not."""
    contents = [Content(b"k", b"%d" % number, (), number) for number in range(60)]
    others = [*contents[:40], contents[40]._replace(value=b"?"), *contents[41:]]
    taken: list[int] = []
    take = OutlinedRecords.take

    def seen(self: OutlinedRecords) -> Any:
        rec = take(self)
        taken.append(rec.offset)
        return rec

    monkeypatch.setattr(OutlinedRecords, "take", seen)
    for theirs, expected in ((contents, []), (others, [40, 40])):
        taken.clear()
        compared(log(contents, 15, 0, 3), log(theirs, 30, 0, 3), [60])
        assert taken == expected
