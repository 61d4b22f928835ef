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
from onceover.wire.batches.batch import HEADER_BYTES, LOG_APPEND_TIME, parse_header, verify
from onceover.wire.batches.compression import LZ4, NONE, compress, decompress
from onceover.wire.batches.kernel import FRAME_BYTES, Made, RunFacts
from onceover.wire.batches.runs import Packing, Run
from onceover.wire.batches.unpack import unpack
from onceover.wire.batches.varint import encode_varint
from tests.support.examples import examples
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
ALTERED: Final = examples(600)
# What stands before a record's content, and what is much like it: matches reach into it.
LIKE_A_HEAD: Final = [b"\0\0\0", b"\0\0\0\0", b"\0\0\0\x01", b"\0\0\x10\0", b"\x02\0\0\0\x01"]
CONTENT: Final = st.lists(
    st.one_of(st.sampled_from([*LIKE_A_HEAD, b"abcd", b"efghij"]), st.binary(max_size=30)), max_size=60
).map(b"".join)


Frame: TypeAlias = Callable[[bytes], bytes]


def single(body: bytes, base: int, frame: Frame | None, stamp: int = 0) -> bytes:
    """Return a batch of one record, in a frame of LZ4 or plain."""
    plain = record(0, stamp, body)
    if frame is None:
        return batch_of([plain], base=base)
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
    """Batches of one record each, one behind the other: plain or of LZ4, however it was written."""
    found: list[bytes] = []
    base = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 12))):
        base += draw(st.integers(0, 3))
        delta, body = draw(st.sampled_from([0, 0, 3])), draw(CONTENT)
        attributes = draw(st.sampled_from([0, 0, 0x10, LOG_APPEND_TIME]))
        packed = draw(st.sampled_from([None, *FRAMES]))
        one = record(delta, draw(st.one_of(st.just(0), STAMPS)), body, draw(st.sampled_from([0, 0, 0x80])))
        found.append(
            batch_of(
                [one],
                base=base,
                codec=NONE if packed is None else LZ4,
                packed=partial(_framed, packed) if packed else compress,
                last_delta=delta,
                attributes=attributes,
            )
        )
        base += delta + 1
    return found


def spliced(run: Run, start: int) -> Made | None:
    return kernel.spliced(run.batch, run.facts, start, MOST)


def assert_same_records(made: Made, expected: Made) -> None:
    """To every reader of LZ4: this product's, the library that most of them are, Arrow's."""
    frame, plain = bytes(made.batch[HEADER_BYTES:]), bytes(expected.batch[HEADER_BYTES:])
    assert decompress(LZ4, frame, MOST) == plain
    assert bytes(cramjam.lz4.decompress(frame)) == plain
    with pa.CompressedInputStream(pa.BufferReader(frame), "lz4") as stream:
        assert stream.read() == plain
    assert made[1:4] == expected[1:4]
    assert made.runs == expected.runs
    assert made.codec == LZ4


@settings(max_examples=examples(300))
@given(data=singles(), ahead=st.integers(-3, 30))
def test_what_is_spliced_holds_what_is_merged(data: list[bytes], ahead: int) -> None:
    """From any offset on, wherever what is repeated lies; None only where no record is left."""
    run = run_of(b"".join(data))
    start = parse_header(data[0]).base_offset + ahead
    made, expected = spliced(run, start), kernel.merged(run.batch, run.facts, start, MOST)
    if expected is None:
        assert made is None
        return
    # Where most of a record repeats its head, there may be no room for it written out.
    if made is None:
        assert any(head in batch for batch in data for head in LIKE_A_HEAD)
        return
    assert_same_records(made, expected)


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
            # Enough room for all of it.
            facts = run.facts._replace(payload_bytes=1 << 16)
            made = kernel.spliced(run.batch, facts, 0, MOST)
            expected = kernel.merged(run.batch, run.facts, 0, MOST)
            assert made is not None and expected is not None
            assert_same_records(made, expected)


def test_what_is_not_a_single_record_in_one_block_is_not_spliced() -> None:
    """Nor what is too large for a block, or for the reader of all of it."""
    one = record(0, 0, b"body")
    two = batch_of([one, record(1, 0, b"body")], base=9, codec=LZ4)
    large = batch_of([record(0, 0, bytes(BLOCK_BYTES))], base=9, codec=LZ4)
    zstd = batch_of([one], base=9, codec=4)
    alone = batch_of([one], base=0, codec=LZ4)
    for other, fits in ((two, False), (large, False), (zstd, False), (b"", True)):
        whole = memoryview(bytearray(alone + other))
        facts = RunFacts(0, len(whole), 0, 2, 3, len(whole), 1, 0)
        assert (kernel.spliced(whole, facts, 0, MOST) is not None) == fits
    run = run_of(b"".join(batch_of([record(0, 0, b"0123456789" * 90)], base=n, codec=LZ4) for n in range(9)))
    assert spliced(run, 0) is not None
    assert kernel.spliced(run.batch, run.facts, 0, 8_000) is None


@pytest.mark.parametrize("frame", [*FRAMES, None])
@pytest.mark.parametrize("behind", [0, HEADER_BYTES])
def test_altered_batches_are_refused_alike(frame: Frame | None, behind: int) -> None:
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


def run_facts(*, records: int = 300, packed: int = 1) -> RunFacts:
    """Return what is known of 300 batches of 900 bytes."""
    return RunFacts(0, 0, 0, 300, records, 300 * 900, packed, 0)


def test_records_are_compressed_together_until_that_is_known_to_gain_little() -> None:
    """And every now and then, to see whether it still does."""
    packing, facts = Packing(), run_facts()
    assert not packing.splices(facts)
    apart_bytes = 300 * (900 - FRAME_BYTES)
    packing.learn(facts, apart_bytes // 2)
    assert not packing.splices(facts)
    packing.learn(facts, apart_bytes * 2 // 3 + 1)
    assert [packing.splices(facts) for _ in range(33)] == [True] * 31 + [False] * 2
    packing.learn(facts, apart_bytes // 3)
    assert not packing.splices(facts)


@pytest.mark.parametrize("other", [{"records": 301}, {"packed": 0}])
def test_nothing_is_learnt_of_other_runs(other: dict[str, int]) -> None:
    """Nor are they spliced, or counted."""
    packing, single, facts = Packing(), run_facts(), run_facts(**other)
    packing.learn(facts, 1 << 30)
    assert not packing.splices(single)
    packing.learn(single, 1 << 30)
    packing.learn(facts, 1)
    assert not packing.splices(facts)
    assert sum(packing.splices(single) for _ in range(40)) == 31


def test_a_run_is_spliced_once_it_is_known_to_be_worth_it() -> None:
    """As a whole batch, which the next lane may read; compressed together where it cannot be."""
    rng = random.Random(8)
    data = [batch_of([record(0, 0, rng.randbytes(300))], base=n, codec=LZ4) for n in range(20)]
    run, packing = run_of(b"".join(data)), Packing()
    together = run.merged(0, MOST, packing)
    apart = run.merged(0, MOST, packing)
    assert together is not None and apart is not None and together.batch != apart.batch
    assert apart.source_runs == together.source_runs
    payloads = []
    for encoded in (together, apart):
        header = parse_header(encoded.batch)
        verify(header, encoded.batch)
        payloads.append(unpack(header, encoded.batch, MOST).payload)
    assert payloads[0] == payloads[1]
    # A block of its own for each.
    assert len(apart.batch) > len(together.batch)
    lately = run_of(b"".join([*data, batch_of([record(0, 0, rng.randbytes(70_000))], base=20, codec=LZ4)]))
    whole = lately.merged(0, MOST, packing)
    assert whole is not None and whole.count == 21
