"""The compiled code does what the Python code does, byte for byte, or says that it is not its business."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import cramjam
import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.compiled import address
from onceover.copy.partition import MERGING
from onceover.wire.batches import kernel
from onceover.wire.batches.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    CorruptBatch,
    iter_batches,
    parse_header,
)
from onceover.wire.batches.compression import compress
from onceover.wire.batches.kernel import Policy, RunFacts
from onceover.wire.batches.records import (
    EncodedBatch,
    Unmergeable,
    control_type,
    reencode,
    reencode_run,
    sealed,
)
from onceover.wire.batches.runs import Packing, Run, seen
from onceover.wire.batches.unpack import Unpacked, unpack
from onceover.wire.batches.varint import encode_varint
from onceover.wire.batches.visibility import AbortedTransaction, Visible, visible_batches
from tests.support.raw.hostile import seal
from tests.support.raw.java_batches import JAVA_BATCHES
from tests.support.raw.rawkafka import Codec
from tests.support.session.examples import examples

T = TypeVar("T")
ROOM: Final = 1 << 20
# So that every run is one, however short and however its batches are compressed.
ANY: Final = Policy(1 << 30, 1 << 30, 1 << 30, 1, 1 << 30, 1 << 30)
NOW: Final = 1_700_000_000_000
STAMPS: Final = st.one_of(st.integers(-70, 10_000), st.integers(-(2**60), 2**60 - 1))


def in_python(function: Callable[[], T]) -> T:
    """Return what ``function`` does without the compiled code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "kernel", lambda: None)
        return function()


def record(delta: int, stamp: int, body: bytes, attributes: int = 0) -> bytes:
    """Return a record whose content is any bytes: nobody looks into it."""
    packed = bytes((attributes,)) + encode_varint(stamp) + encode_varint(delta) + body
    return encode_varint(len(packed)) + packed


def as_java_does(payload: bytes) -> bytes:
    """Return an LZ4 frame as Java does: without checksums of blocks, which would hide what is altered."""
    blocks = b""
    for at in range(0, len(payload), 1 << 16):
        block = bytes(cramjam.lz4.compress_block(payload[at : at + (1 << 16)], store_size=False))
        blocks += struct.pack("<I", len(block)) + block
    return bytes.fromhex("04224d18604082") + blocks + bytes(4)


def batch_of(
    records: Sequence[bytes],
    *,
    base: int,
    codec: int = 0,
    packed: Callable[[int, bytes], bytes] = compress,
    last_delta: int | None = None,
    attributes: int = 0,
    stamps: tuple[int, int] = (NOW, NOW + 5),
) -> bytes:
    """Return a batch of records at ``base``, with its first and its largest timestamp."""
    last = len(records) - 1 if last_delta is None else last_delta
    payload = packed(codec, b"".join(records))
    batch = bytearray(
        seal(payload, codec=Codec(codec), count=len(records), last_delta=last, attributes=attributes)
    )
    struct.pack_into(">q", batch, 0, base)
    struct.pack_into(">qq", batch, 27, *stamps)
    return checked(batch)


def checked(batch: bytearray) -> bytes:
    """Return a batch with the checksum that it should have."""
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


@st.composite
def batches(draw: st.DrawFn, codecs: Sequence[int] = (0, 3), most: int = 12) -> list[bytes]:
    """Batches one behind the other, as brokers store them: with holes, markers, either kind of timestamps."""
    found: list[bytes] = []
    base = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, most))):
        base += draw(st.integers(0, 3))
        deltas = sorted(draw(st.sets(st.integers(0, 300), min_size=1, max_size=6)))
        records = [
            record(delta, draw(STAMPS), draw(st.binary(max_size=90)), draw(st.sampled_from([0, 0, 0x80])))
            for delta in deltas
        ]
        last = deltas[-1] + draw(st.integers(0, 2))
        attributes = draw(st.sampled_from([0, 0, 0x10, LOG_APPEND_TIME, CONTROL | 0x10]))
        codec = draw(st.sampled_from(codecs))
        java = codec == Codec.LZ4 and draw(st.booleans())
        found.append(
            batch_of(
                records,
                base=base,
                codec=codec,
                packed=(lambda _, payload: as_java_does(payload)) if java else compress,
                last_delta=last,
                attributes=attributes,
            )
        )
        base += last + 1
    return found


def run_of(data: bytes) -> Run:
    """Return everything as one run."""
    [run] = [one for one in seen(memoryview(bytearray(data)), (), 0, ANY) if isinstance(one, Run)]
    return run


def same(made: EncodedBatch | None, expected: EncodedBatch | None) -> bool:
    """Tell whether two batches, or none, are the same in all bytes and offsets."""
    if made is None or expected is None:
        return made is expected
    return (made.batch, made.count, made.source_runs) == (
        expected.batch,
        expected.count,
        expected.source_runs,
    )


def merged_in_python(run: Run, from_offset: int) -> EncodedBatch | None:
    """Return what the Python code makes of a run."""
    found = [(h, b) for h, b in iter_batches(run.batch) if h.count and not h.is_control]
    try:
        return reencode_run([unpack(*each, 1 << 30) for each in found], from_offset=from_offset)
    except Unmergeable:
        return None


@settings(max_examples=examples(150))
@given(data=batches(), ahead=st.integers(-3, 400))
def test_a_run_is_merged_as_python_merges_it(data: list[bytes], ahead: int) -> None:
    """From any offset on; None only where no record is left, or nothing is to be merged.

    Single records that their producer has compressed into less than they come to together stay so.
    """
    first = next((batch for batch in data if not parse_header(batch).is_control), None)
    if first is None:
        return
    run = run_of(b"".join(data[data.index(first) :]))
    start = parse_header(first).base_offset + ahead
    made, expected = run.merged(start, ROOM, Packing()), merged_in_python(run, start)
    if expected is None or not (run.facts.single and len(expected.batch) > run.size_bytes):
        assert same(made, expected)
        return
    assert made is not None
    assert len(made.batch) <= len(expected.batch)
    assert (made.count, made.source_runs) == (expected.count, expected.source_runs)
    assert contents(made) == contents(expected)


def test_what_stays_compressed_is_what_is_smaller() -> None:
    """Ten equal bytes, which their producer had compressed into less than either way comes to."""
    data = batch_of(
        [record(0, 0, bytes(10))],
        base=0,
        codec=Codec.LZ4,
        packed=lambda _, payload: as_java_does(payload),
        last_delta=0,
    )
    run = run_of(data)
    made, expected = run.merged(0, ROOM), merged_in_python(run, 0)
    assert expected is not None
    assert len(expected.batch) > run.size_bytes
    assert same(made, expected)


def contents(encoded: EncodedBatch) -> tuple[bytes, BatchHeader]:
    """Return the records of a batch and its header, without what compression decides."""
    header = parse_header(encoded.batch)
    return unpack(header, encoded.batch, 1 << 30).payload, header._replace(length=0, crc=0)


@settings(max_examples=examples(150))
@given(
    data=batches(codecs=(0, 1, 2, 3, 4), most=1), bounds=st.tuples(st.integers(-2, 302), st.integers(0, 305))
)
def test_a_batch_is_encoded_again_as_python_does(data: list[bytes], bounds: tuple[int, int]) -> None:
    """Between any offsets, in every codec, whole or in pieces."""
    header = parse_header(data[0])
    if header.is_control:
        return
    unpacked = unpack(header, data[0], 1 << 30)
    start, end = (header.base_offset + bound for bound in bounds)
    for limit in (None, 150):
        for to in (None, end):

            def made(to: int | None = to, limit: int | None = limit) -> list[EncodedBatch]:
                return reencode(unpacked, from_offset=start, to_offset=to, max_batch_bytes=limit)

            assert made() == in_python(made)
    rewritten = kernel.rewritten(header, unpacked.payload, header.base_offset, header.next_offset)
    assert rewritten is not None and rewritten.count == header.count


def test_timestamps_that_wrap_around_and_all_that_is_rare_are_left_to_python() -> None:
    """It may refuse more than it has to, never less."""
    plain = [record(0, 0, b"body")]
    rare = [
        batch_of(plain, base=0, stamps=(1 << 61, 0)),
        batch_of(plain, base=0, stamps=(-(1 << 61), 0)),
        batch_of([record(0, 1 << 60, b"body")], base=0),
        batch_of(plain, base=0, attributes=LOG_APPEND_TIME, stamps=(0, 1 << 62)),
        batch_of(plain, base=1 << 61),
    ]
    for batch in rare:
        unpacked = unpack(parse_header(batch), batch, ROOM)
        header = unpacked.header
        assert kernel.rewritten(header, unpacked.payload, 0, header.next_offset) is None
        assert len(reencode(unpacked, from_offset=0)) == 1


@pytest.mark.parametrize(
    ("number", "is_one"),
    [
        (b"\x00", True),
        (b"\x80\x00", True),
        (b"\x80" * 9 + b"\x00", True),
        (b"\x80" * 9 + b"\x02", False),
        (b"\x80" * 10 + b"\x00", False),
    ],
)
def test_numbers_are_read_as_python_reads_them(number: bytes, is_one: bool) -> None:
    """Longer than they have to be, up to 64 bits: of a timestamp's delta, an offset's, a length."""
    for packed in (b"\0" + number + b"\0body", b"\0\0" + number + b"body"):
        payload = encode_varint(len(packed)) + packed
        assert_alike(payload, is_one)
    packed = b"\0\0\0body"
    assert_alike(bytes((0x80 | 2 * len(packed),)) + (number[1:] or b"\0") + packed, is_one)


def assert_alike(payload: bytes, is_one: bool) -> None:
    """Both take a batch of one record, or neither does."""
    unpacked = Unpacked(parse_header(batch_of([b""], base=0)), payload)
    made, expected = kernel.rewritten(unpacked.header, payload, 0, 1), encoded_in_python(unpacked)
    assert (made is not None, expected is not None) == (is_one, is_one)
    assert same(None if made is None else sealed(made), expected)


MUTATED: Final = examples(750)


def mutations(seed: int, data: bytes) -> Iterator[bytearray]:
    """Yield altered copies: bytes changed, cut out, doubled; numbers that lie."""
    rng = random.Random(seed)
    while True:
        copy = bytearray(data)
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            at = rng.randrange(len(copy))
            kind = rng.randrange(5)
            if kind == 0:
                copy[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                copy[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF])
            elif kind == 2:
                del copy[at : at + rng.randrange(1, 9)]
            elif kind == 3:
                copy[at:at] = copy[at : at + rng.randrange(1, 20)]
            else:
                copy[at : at + 10] = b"\xff" * rng.randrange(1, 10) + bytes((rng.choice([0, 1, 2, 0x7F]),))
            if not copy:
                copy = bytearray(data)
        yield copy


def encoded_in_python(unpacked: Unpacked) -> EncodedBatch | None:
    """Return what the Python code makes of a batch; None where it refuses it."""
    try:
        (made,) = in_python(lambda: reencode(unpacked, from_offset=0))
    except CorruptBatch:
        return None
    return made


def test_altered_payloads_are_refused_alike() -> None:
    """What Python refuses, the compiled code does not take; what it takes comes out as Python has it."""
    rng = random.Random(1)
    records = [
        record(2 * n, rng.choice([0, n, -n, 1 << 40]), rng.randbytes(rng.choice([0, 3, 40, 200])))
        for n in range(9)
    ]
    payload = b"".join(records)
    taken = 0
    for number, altered in zip(range(MUTATED), mutations(2, payload), strict=False):
        header = parse_header(batch_of([], base=5, last_delta=18 + number % 3))
        unpacked = Unpacked(header._replace(count=9 - (number % 50 == 0)), bytes(altered))
        made = kernel.rewritten(unpacked.header, unpacked.payload, 0, 1 << 60)
        expected = encoded_in_python(unpacked)
        if made is not None:
            taken += 1
            assert expected is not None and same(sealed(made), expected)
        elif number % 50:
            # All of its values are usual: it would have taken them.
            assert expected is None or max(altered) > 0x7F
    assert taken > MUTATED // 20


FRAMES: Final[dict[str, tuple[Codec, Callable[[int, bytes], bytes]]]] = {
    "plain": (Codec.NONE, compress),
    "lz4": (Codec.LZ4, compress),
    "lz4 of Java": (Codec.LZ4, lambda _, payload: as_java_does(payload)),
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("behind", [0, HEADER_BYTES, 12])
def test_altered_batches_are_refused_alike(frame: str, behind: int) -> None:
    """In the payload, or anywhere but in the length; with a checksum that fits, as if it was written so."""
    rng, (codec, packed) = random.Random(3), FRAMES[frame]
    words = [rng.randbytes(5) for _ in range(9)]
    data = []
    for base in (0, 3, 6):
        records = [record(n, n, b"".join(rng.choices(words, k=30))) for n in range(3)]
        data.append(batch_of(records, base=base, codec=codec, packed=packed))
    taken = 0
    for _, altered in zip(range(MUTATED // 3), mutations(4, data[1][behind:]), strict=False):
        batch = bytearray(data[1][:behind]) + altered
        if len(batch) < HEADER_BYTES:
            continue
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        whole = memoryview(bytearray(data[0] + checked(batch) + data[2]))
        run = Run(parse_header(data[2]), whole, RunFacts(0, len(whole), 0, 3, 500, len(whole), 1, 0))
        made = run.merged(0, ROOM, Packing())
        if made is not None:
            taken += 1
            assert same(made, merged_in_python(run, 0))
    # What a checksum covers is refused; what is not, a key or a value, may be anything.
    assert taken > MUTATED // 100 or (frame == "lz4" and behind)


def test_batches_of_javas_client_are_merged() -> None:
    """Its LZ4 frames are not made as ours: no checksums of blocks."""
    for codec in (0, 3):
        run = run_of(JAVA_BATCHES[codec])
        made = run.merged(701, ROOM, Packing())
        assert made is not None and same(made, merged_in_python(run, 701))
        assert (made.count, made.source_runs) == (2, [(701, 2)])


def test_a_damaged_batch_is_not_merged() -> None:
    """Its checksum is compared, also where it has no records that would be missed."""
    data = [batch_of([record(0, 0, b"body")], base=n, attributes=CONTROL if n == 4 else 0) for n in range(9)]
    assert run_of(b"".join(data)).merged(0, ROOM, Packing()) is not None
    for number in range(9):
        damaged = [bytearray(batch) for batch in data]
        damaged[number][-1] ^= 1
        assert run_of(b"".join(damaged)).merged(0, ROOM, Packing()) is None


def test_nothing_is_written_behind_the_room_that_there_is() -> None:
    """However much too small: for records, for what is expanded, for runs of offsets."""
    data = b"".join(
        batch_of([record(2 * n, 0, b"x" * 50) for n in range(4)], base=8 * at, last_delta=6, codec=at % 2 * 3)
        for at in range(4)
    )
    compiled = kernel.kernel()
    assert compiled is not None
    source = bytearray(data)
    enough = (512, 1024, 16)
    for rooms in [enough, *(tuple(0 if i == j else n // 3 for j, n in enumerate(enough)) for i in range(3))]:
        scratch, out, runs = (bytearray(b"\xee" * 4096) for _ in range(3))
        made = bytearray(48)
        refused = compiled.onceover_merge(
            *(address(source), len(source), 0, 0, address(scratch), rooms[0]),
            *(address(out), rooms[1], address(runs), rooms[2], address(made)),
        )
        assert bool(refused) == (rooms != enough)
        for buffer, used in ((scratch, rooms[0]), (out, rooms[1]), (runs, 16 * rooms[2])):
            assert buffer[used:] == b"\xee" * (4096 - used)


@given(data=st.binary(max_size=100), start=st.integers(0, 9))
def test_checksums_are_those_of_the_library(data: bytes, start: int) -> None:
    """By the processor's instruction and by a table, for every alignment."""
    compiled = kernel.kernel()
    assert compiled is not None
    part = bytearray(data + b"0123456789")
    begin, size = address(part) + start, len(part) - start
    expected = crc32c.crc32c(bytes(part[start:]))
    assert [compiled.onceover_crc32c(begin, size, plainly) for plainly in (0, 1)] == [expected] * 2


# ---- which batches are handed over as runs


def flat(found: Iterator[Visible | Run]) -> tuple[list[tuple[int, bytes | None]], str]:
    """Return batches by their base offset, and how the reading ended."""
    batches: list[tuple[int, bytes | None]] = []
    try:
        for one in found:
            for each in one.apart() if isinstance(one, Run) else [one]:
                batches.append((each.header.base_offset, None if each.batch is None else bytes(each.batch)))
    except CorruptBatch as error:
        return batches, str(error)
    return batches, ""


@settings(max_examples=examples(50))
@given(
    data=batches(codecs=(0, 3, 4), most=40),
    position=st.integers(0, 900),
    cut=st.integers(0, 100),
    swapped=st.booleans(),
    aborted=st.booleans(),
)
def test_runs_hold_what_a_reader_sees(
    data: list[bytes], position: int, cut: int, swapped: bool, aborted: bool
) -> None:
    """In its order, with the same error where something is wrong, and where the answer is cut off."""
    if swapped and len(data) > 2:
        data[0], data[-1] = data[-1], data[0]
    position += parse_header(data[0]).base_offset
    records = memoryview(bytearray(b"".join(data)))
    records = records[: len(records) - cut]
    gone = [AbortedTransaction(0, -1)] if aborted else []
    policy = Policy(4, 200, 400, 2, 800, 1200)
    found = list(one for one in _quietly(seen(records, gone, position, policy)))
    assert flat(seen(records, gone, position, policy)) == flat(
        iter(visible_batches(records, gone, position, control_type))
    )
    assert not (aborted and any(isinstance(one, Run) for one in found))


def _quietly(found: Iterator[Visible | Run]) -> Iterator[Visible | Run]:
    try:
        yield from found
    except CorruptBatch:
        return


def plain(base: int, size: int, count: int = 9, codec: int = 0) -> bytes:
    """Return a batch of about a size."""
    rng = random.Random(base)
    body = rng.randbytes(size // count)
    return batch_of([record(n, n, body) for n in range(count)], base=base, codec=codec)


def shape(data: list[bytes]) -> list[int]:
    """Return how many batches each item of what is seen has; a run's as a negative number."""
    records = memoryview(bytearray(b"".join(data)))
    return [-one.facts.batches if isinstance(one, Run) else 1 for one in seen(records, (), 0, MERGING)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(100, 1, 0)] * 8, [-8]),
        ([(100, 1, 0)] * 7, [1] * 7),
        ([(100, 1, 3)] * 8, [-8]),
        ([(100, 1, 4)] * 8, [1] * 8),
        ([(100, 1, 0), (100, 1, 3)] * 4, [-8]),
        ([(16_000, 15, 0)] * 8, [-8]),
        ([(60_000, 60, 0)] * 8, [-8]),
        ([(66_000, 60, 0)] * 8, [1] * 8),
        ([(16_000, 15, 3)] * 8, [1] * 8),
        ([(100, 9, 3)] * 8, [1] * 8),
        # A batch of several records is not compressed because its neighbours are, nor they stored plain.
        ([(16_000, 15, 0)] * 8 + [(100, 1, 3)] * 8, [-8, -8]),
        ([(100, 1, 3)] * 8 + [(16_000, 15, 0)] * 8, [-8, -8]),
        ([(16_000, 15, 0)] * 8 + [(100, 1, 4)] + [(16_000, 15, 0)] * 8, [-8, 1, -8]),
        # No more than a topic takes with default settings, and half of it.
        ([(60_000, 60, 0)] * 17, [-8, -8, 1]),
    ],
)
def test_small_neighbours_are_a_run(sizes: list[tuple[int, int, int]], expected: list[int]) -> None:
    """Eight at least."""
    data, base = [], 0
    for size, count, codec in sizes:
        data.append(plain(base, size, count, codec))
        base += count
    assert shape(data) == expected


def test_markers_between_small_batches_belong_to_their_run() -> None:
    """A producer that commits each record leaves one behind it; a run does not begin with one."""
    data = []
    for n in range(10):
        data.append(batch_of([record(0, 0, b"marker")], base=2 * n, attributes=CONTROL | 0x10))
        data.append(batch_of([record(0, 0, b"body")], base=2 * n + 1, attributes=0x10))
    assert shape(data) == [1, -10]
    run = run_of(b"".join(data[1:]))
    made = run.merged(0, ROOM, Packing())
    assert made is not None and made.source_runs == [(2 * n + 1, 1) for n in range(10)]


def test_what_is_copied_already_is_in_no_run() -> None:
    """A broker begins its answer with the batch that holds the position."""
    records = memoryview(bytearray(b"".join(plain(9 * n, 900) for n in range(12))))
    found = list(seen(records, (), 20, MERGING))
    assert [(type(one), one.header.base_offset) for one in found] == [(Run, 99)]
    assert (
        isinstance(found[0], Run) and found[0].first.header.base_offset == 18 and found[0].facts.batches == 10
    )


def test_a_run_ends_where_offsets_run_backwards() -> None:
    """What comes before is copied, as it is batch by batch."""
    records = memoryview(bytearray(b"".join(plain(9 * n, 900) for n in (*range(8), 3, *range(8, 16)))))
    stream = seen(records, (), 0, MERGING)
    run = next(stream)
    assert isinstance(run, Run) and run.facts.batches == 8
    with pytest.raises(CorruptBatch, match="base offset 27"):
        next(stream)


def test_more_runs_than_are_asked_for_at_once() -> None:
    """They are asked for again."""
    data = []
    for n in range(150):
        data += [batch_of([record(0, 0, b"b")], base=20 * n + i) for i in range(8)]
        data.append(batch_of([record(0, 0, b"b")], base=20 * n + 8, codec=4))
    assert shape(data) == [-8, 1] * 150
    # What follows from the last of them is still known.
    backwards = data[: 9 * 63 + 8] + data[:8]
    with pytest.raises(CorruptBatch, match="offsets that grow"):
        shape(backwards)


def test_bytes_that_may_not_be_written_to_are_left_to_python() -> None:
    """A receive buffer may; others have none to give."""
    records = memoryview(b"".join(batch_of([record(0, 0, b"b")], base=n) for n in range(8)))
    assert [type(one) for one in seen(records, (), 0, MERGING)] == [Visible] * 8
    assert [h.base_offset for h, _ in iter_batches(records)] == list(range(8))
