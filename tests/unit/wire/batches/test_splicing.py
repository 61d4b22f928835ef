"""Single records that stay as they are compressed: every reader of LZ4 finds the records in them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.compiled import address
from onceover.wire.batches import kernel
from onceover.wire.batches.batch import CONTROL, HEADER_BYTES, LOG_APPEND_TIME, parse_header, verify
from onceover.wire.batches.compression import LZ4, compress, decompress
from onceover.wire.batches.kernel import FRAME_BYTES, Made, RunFacts
from onceover.wire.batches.records import EncodedBatch, sealed
from onceover.wire.batches.runs import Packing, Run
from onceover.wire.batches.unpack import unpack
from onceover.wire.batches.varint import encode_varint
from tests.support.session.examples import examples
from tests.unit.wire.batches.test_kernel import (
    STAMPS,
    as_java_does,
    batch_of,
    checked,
    mutations,
    record,
    run_of,
)

MOST: Final = 1 << 20
BLOCK_BYTES: Final = 1 << 16
TRANSACTIONAL: Final = 0x10
# Of the block format: where its last match may begin, and how many bytes at its end are no match.
LAST_MATCH, LAST_LITERALS = 12, 5
ALTERED: Final = examples(300)
# What stands before a record's content, and what is much like it: matches reach into it.
LIKE_A_HEAD: Final = [b"\0\0\0", b"\0\0\0\0", b"\0\0\0\x01", b"\0\0\x10\0", b"\x02\0\0\0\x01"]
CONTENT: Final = st.lists(
    st.one_of(st.sampled_from([*LIKE_A_HEAD, b"abcd", b"efghij"]), st.binary(max_size=30)), max_size=60
).map(b"".join)


Frame: TypeAlias = Callable[[bytes], bytes]


def single(body: bytes, base: int, frame: Frame, stamp: int = 0) -> bytes:
    """Return a batch of one record in a frame of LZ4."""
    plain = record(0, stamp, body)
    return batch_of([plain], base=base, codec=LZ4, packed=partial(_framed, frame))


def stored(payload: bytes) -> bytes:
    """Return a frame that holds its bytes as they are."""
    size = struct.pack("<I", len(payload) | 0x80000000)
    return bytes.fromhex("04224d18604082") + size + payload + bytes(4)


FRAMES: Final[list[Frame]] = [as_java_does, lambda payload: compress(LZ4, payload), stored]


def _framed(frame: Frame, _codec: int, payload: bytes) -> bytes:
    return frame(payload)


@st.composite
def singles(draw: st.DrawFn) -> list[bytes]:
    """Batches of one record each, one behind the other, however they were written; markers among them."""
    found: list[bytes] = []
    base = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 12))):
        base += draw(st.integers(0, 3))
        delta, body = draw(st.sampled_from([0, 0, 3])), draw(CONTENT)
        attributes = draw(st.sampled_from([0, TRANSACTIONAL, LOG_APPEND_TIME]))
        frame = draw(st.sampled_from(FRAMES))
        one = record(delta, draw(st.one_of(st.just(0), STAMPS)), body, draw(st.sampled_from([0, 0, 0x80])))
        found.append(
            batch_of(
                [one],
                base=base,
                codec=LZ4,
                packed=partial(_framed, frame),
                last_delta=delta,
                attributes=attributes,
            )
        )
        base += delta + 1
        if attributes == TRANSACTIONAL and draw(st.booleans()):
            found.append(batch_of([record(0, 0, b"marker")], base=base, attributes=CONTROL | TRANSACTIONAL))
            base += 1
    return found


def spliced(run: Run, start: int, room_bytes: int = 0) -> Made | None:
    """Return what is spliced, with more room than there is where ``room_bytes`` says so."""
    facts = run.facts._replace(payload_bytes=run.facts.payload_bytes + room_bytes)
    return kernel.spliced(run.batch, facts, start, MOST)


def strictly(frame: bytes) -> bytes:
    """Return what a frame holds, by a reader that is as strict as the format: each block ends in five bytes
    that are no match, its last match begins twelve before its end, and nothing reaches out of it."""
    assert frame[:7] == bytes.fromhex("04224d18604082") and frame[-4:] == bytes(4)
    found, at = b"", 7
    while (size := int.from_bytes(frame[at : at + 4], "little")) != 0:
        block = frame[at + 4 : at + 4 + (size & 0x7FFFFFFF)]
        at += 4 + len(block)
        expanded = block if size >> 31 else strict_block(block)
        assert 0 < len(block) <= BLOCK_BYTES and len(expanded) <= BLOCK_BYTES
        found += expanded
    assert at == len(frame) - 4
    return found


def strict_block(block: bytes) -> bytes:
    out, at, last = bytearray(), 0, -LAST_MATCH

    def length(of: int) -> int:
        nonlocal at
        if of == 15:
            while True:
                of, at = of + block[at], at + 1
                if block[at - 1] != 255:
                    break
        return of

    while True:
        token, at = block[at], at + 1
        literals = length(token >> 4)
        out += block[at : at + literals]
        at += literals
        if at == len(block):
            assert last < 0 or (literals >= LAST_LITERALS and len(out) - last >= LAST_MATCH)
            return bytes(out)
        distance, at = int.from_bytes(block[at : at + 2], "little"), at + 2
        assert 0 < distance <= len(out) and at < len(block)
        last = len(out)
        for _ in range(length(token & 15) + 4):
            out.append(out[-distance])


def assert_same_records(made: Made, expected: Made) -> None:
    """To every reader of LZ4: this product's, the library that most of them are, Arrow's, a strict one."""
    frame, plain = bytes(made.batch[HEADER_BYTES:]), bytes(expected.batch[HEADER_BYTES:])
    assert decompress(LZ4, frame, MOST) == plain == strictly(frame)
    assert bytes(cramjam.lz4.decompress(frame)) == plain
    with pa.CompressedInputStream(pa.BufferReader(frame), "lz4") as stream:
        assert stream.read() == plain
    assert made[1:4] == expected[1:4]
    assert made.runs == expected.runs
    assert made.codec == LZ4


@settings(max_examples=examples(150))
@given(data=singles(), ahead=st.integers(-3, 30))
def test_what_is_spliced_holds_what_is_merged(data: list[bytes], ahead: int) -> None:
    """From any offset on, wherever what is repeated lies; None only where no record is left.

    Where much of a record repeats its head, that may need more room than there is: then it is merged.
    """
    run = run_of(b"".join(data))
    start = parse_header(data[0]).base_offset + ahead
    made, expected = spliced(run, start, 1 << 16), kernel.merged(run.batch, run.facts, start, MOST)
    if expected is None:
        assert made is None
        return
    assert made is not None
    assert_same_records(made, expected)
    within = spliced(run, start)
    assert within is None or (within.batch, within.runs) == (made.batch, made.runs)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("size", [0, 1, 40, 3_000, BLOCK_BYTES - 30])
def test_records_of_every_size_stay_as_they_are(frame: Frame, size: int) -> None:
    """Up to what one block holds; none grows by more than its head."""
    words = [random.Random(n).randbytes(9) for n in range(40)]
    rng = random.Random(size)
    body = b"".join(rng.choices(words, k=size // 9 + 1))[:size]
    data = [single(body, 5 * n, frame, stamp=7) for n in range(300 if size < BLOCK_BYTES // 4 else 9)]
    run = run_of(b"".join(data))
    made, expected = spliced(run, 0), kernel.merged(run.batch, run.facts, 0, MOST)
    assert made is not None and expected is not None
    assert_same_records(made, expected)
    longest_head = len(encode_varint(len(body) + 9)) + 4
    assert len(made.batch) <= HEADER_BYTES + run.facts.payload_bytes + len(data) * (longest_head - 4)


def test_what_repeats_a_head_is_written_out() -> None:
    """It is gone: whatever repeats what repeats it is written from where that stands now."""
    # 02 00 00 00 01 .. again and again: the first match reaches into the head, the others into it.
    for body in (b"\0\0\0\x01" * 30, b"\x01" + b"\0\0\0\x01\x02" * 50, bytes(2_000), b"\0" + bytes(5) * 60):
        for frame in FRAMES:
            data = [single(body + b"%d" % n, n, frame) for n in range(9)]
            run = run_of(b"".join(data))
            made = spliced(run, 0, 1 << 16)
            expected = kernel.merged(run.batch, run.facts, 0, MOST)
            assert made is not None and expected is not None
            assert_same_records(made, expected)


def test_what_is_not_a_single_record_in_one_block_is_not_spliced() -> None:
    """Nor what is too large for a block, or for the reader of all of it."""
    one = record(0, 0, b"body")
    two = batch_of([one, record(1, 0, b"body")], base=9, codec=LZ4)
    large = batch_of([record(0, 0, bytes(BLOCK_BYTES))], base=9, codec=LZ4)
    zstd, plain = batch_of([one], base=9, codec=4), batch_of([one], base=9)
    damaged = bytearray(batch_of([one], base=9, codec=LZ4))
    damaged[-1] ^= 1
    alone = batch_of([one], base=0, codec=LZ4)
    for other, fits in (
        (two, False),
        (large, False),
        (zstd, False),
        (plain, False),
        (damaged, False),
        (b"", True),
    ):
        whole = memoryview(bytearray(alone + other))
        facts = RunFacts(0, len(whole), 0, 2, 3, len(whole), 1, 0)
        assert (kernel.spliced(whole, facts, 0, MOST) is not None) == fits
    run = run_of(b"".join(batch_of([record(0, 0, b"0123456789" * 90)], base=n, codec=LZ4) for n in range(9)))
    assert spliced(run, 0) is not None
    assert kernel.spliced(run.batch, run.facts, 0, 8_000) is None


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("behind", [0, HEADER_BYTES])
def test_altered_batches_are_refused_alike(frame: Frame, behind: int) -> None:
    """What merging does not take, splicing does not; what it takes holds the same records."""
    rng = random.Random(5)
    words = [*LIKE_A_HEAD, *(rng.randbytes(5) for _ in range(5))]
    data = [single(b"".join(rng.choices(words, k=30)), n, frame, stamp=n) for n in range(3)]
    taken = 0
    for _, altered in zip(range(ALTERED), mutations(6, data[1][behind:]), strict=False):
        batch = bytearray(data[1][:behind]) + altered
        if len(batch) < HEADER_BYTES:
            continue
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        whole = memoryview(bytearray(data[0] + checked(batch) + data[2]))
        facts = RunFacts(0, len(whole), 0, 3, 500, len(whole), 1, 0)
        made, expected = kernel.spliced(whole, facts, 0, MOST), kernel.merged(whole, facts, 0, MOST)
        if made is not None:
            taken += 1
            assert expected is not None
            assert_same_records(made, expected)
    assert taken > ALTERED // 100 or behind


def test_nothing_is_written_behind_the_room_that_there_is() -> None:
    """At every size that is too small, of what is expanded and of what is made."""
    rng = random.Random(7)
    body = b"".join(rng.choices([*LIKE_A_HEAD, b"abcdefgh", rng.randbytes(40)], k=60))
    data = bytearray(b"".join(batch_of([record(0, 0, body)], base=n, codec=LZ4) for n in range(3)))
    compiled = kernel.kernel()
    assert compiled is not None
    refusals = 0
    for scratch_room, room in [(4096, n) for n in range(1500)] + [(n, 4000) for n in range(0, 600, 7)]:
        scratch, out, runs = (bytearray(b"\xee" * 4096) for _ in range(3))
        made = bytearray(48)
        refused = compiled.onceover_merge(
            *(address(data), len(data), 0, MOST, address(scratch), scratch_room),
            *(address(out), room, address(runs), 3, address(made)),
        )
        refusals += bool(refused)
        assert scratch[scratch_room:] == b"\xee" * (4096 - scratch_room)
        assert out[room:] == b"\xee" * (4096 - room)
    assert 0 < refusals < 1500 + 86


# ---- when it is worth it


def facts_of(*, records: int = 300, packed: int = 300) -> RunFacts:
    """Return what is known of 300 batches of 900 bytes."""
    return RunFacts(0, 0, 0, 300, records, 300 * 900, packed, 0)


APART_BYTES: Final = 300 * (900 - FRAME_BYTES)


def test_records_are_compressed_together_until_that_is_known_to_gain_little() -> None:
    """And every now and then, to see whether it still does."""
    packing, facts = Packing(), facts_of()
    assert not packing.splices(facts)
    packing.learn(facts, APART_BYTES * 2 // 3 + 1)
    assert [packing.splices(facts) for _ in range(32)] == [True] * 31 + [False]
    packing.learn(facts, APART_BYTES * 2 // 3 - 1)
    assert [packing.splices(facts) for _ in range(32)] == [False] * 32
    packing.learn(facts, APART_BYTES)
    assert packing.splices(facts)


@pytest.mark.parametrize("other", [facts_of(records=301), facts_of(packed=0), facts_of(packed=299)])
def test_nothing_is_learnt_of_other_runs(other: RunFacts) -> None:
    """Nor are they spliced, or counted."""
    packing, single = Packing(), facts_of()
    packing.learn(other, 1 << 30)
    assert not packing.splices(single)
    packing.learn(single, 1 << 30)
    packing.learn(other, 1)
    assert not packing.splices(other)
    assert sum(packing.splices(single) for _ in range(40)) == 31


def test_what_could_not_stay_as_it_is_is_not_tried_again_at_once() -> None:
    """Nor ever again what the target has refused."""
    packing, facts = Packing(), facts_of()
    packing.learn(facts, APART_BYTES)
    assert packing.splices(facts)
    packing.failed()
    # A run that is merged for that reason says nothing new.
    packing.learn(facts, APART_BYTES)
    assert not any(packing.splices(facts) for _ in range(31))
    packing.learn(facts, APART_BYTES)
    assert packing.splices(facts)
    packing.keep_together()
    for _ in range(100):
        assert not packing.splices(facts)
        packing.learn(facts, APART_BYTES)


def payload_of(encoded: EncodedBatch) -> bytes:
    """Return the records of a batch, its checksum compared."""
    header = parse_header(encoded.batch)
    verify(header, encoded.batch)
    return unpack(header, encoded.batch, MOST).payload


def test_a_run_is_spliced_once_it_is_known_to_be_worth_it() -> None:
    """As a whole batch, which the next lane may read; compressed together where it cannot be."""
    rng = random.Random(8)
    # Words that all share, beside what nobody does.
    bodies = [rng.randbytes(300) + b" some words that are in each of them" * 2 for _ in range(20)]
    data = [single(body, n, FRAMES[0]) for n, body in enumerate(bodies)]
    run, packing = run_of(b"".join(data)), Packing()
    together = run.merged(0, MOST, packing)
    apart = run.merged(0, MOST, packing)
    assert together is not None and apart is not None
    assert len(together.batch) < len(apart.batch) <= run.size_bytes
    assert apart.source_runs == together.source_runs
    assert payload_of(apart) == payload_of(together)
    large = batch_of([record(0, 0, bytes(70_000))], base=20, codec=LZ4)
    longer = run_of(b"".join([*data, large]))
    whole = longer.merged(0, MOST, packing)
    assert whole is not None and whole.count == 21 and not packing.apart
    again = run.merged(0, MOST, packing)
    assert again is not None and again.batch == together.batch


def _instead(packed: bytes, _codec: int, _payload: bytes) -> bytes:
    return packed


def test_nothing_is_larger_than_it_was() -> None:
    """A producer may compress better than we do; without knowing what else there is, too."""
    rng = random.Random(9)
    data = []
    for n in range(64):
        noise = rng.randbytes(2_000)
        pieces = [noise[at : at + 6] + rng.randbytes(2) for at in rng.choices(range(1_990), k=250)]
        frame = cramjam.lz4.Compressor(level=12, content_checksum=False, block_linked=False)
        frame.compress(record(0, 0, noise + b"".join(pieces)))
        packed = bytes(frame.finish())
        data.append(batch_of([b""], base=n, codec=LZ4, packed=partial(_instead, packed)))
    run = run_of(b"".join(data))
    together = kernel.merged(run.batch, run.facts, 0, MOST)
    assert together is not None and len(sealed(together).batch) > run.size_bytes, "it has nothing to mend"
    for packing in (Packing(), None):
        made = run.merged(0, MOST, packing)
        assert made is not None and len(made.batch) <= run.size_bytes
        assert payload_of(made) == bytes(together.batch[HEADER_BYTES:])
