"""read_committed by hand, against a reader that knows every transaction's fate."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.wire.batches.batch import BatchHeader, CorruptBatch, verify
from onceover.wire.batches.visibility import ABORT_MARKER, AbortedTransaction, visible_batches
from tests.support.raw.rawkafka import CONTROL, ProducerState, RawRecord, build_batch

COMMIT_MARKER = 1
ACTIONS = ["plain", "idempotent", "send", "send", "commit", "abort"]
# (producer, action): plain and idempotent batches, transactional ones of three producers, their ends.
steps = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from(["plain", "idempotent", "send", "send", "commit", "abort"]),
        st.integers(1, 3),
    ),
    max_size=30,
)


def control(_header: BatchHeader, batch: memoryview) -> int:
    """Read a marker's type: kept in the value's last byte here."""
    return batch[-2]


class Log:
    """A partition's log with its truth: which offsets a reader sees, and the aborted list of a fetch."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.end = 0
        self.visible: list[int] = []
        self.aborted: list[tuple[int, int, int]] = []
        self._open: dict[int, list[int]] = {}

    def append(
        self, count: int, producer: int = -1, *, transactional: bool = False, marker: int | None = None
    ) -> int:
        value = b"v" if marker is None else bytes([marker])
        state = ProducerState(producer, 0, 0) if producer >= 0 else ProducerState()
        records = [RawRecord(b"k", value, timestamp_ms=1)] * count
        extra = CONTROL if marker is not None else 0
        batch = bytearray(
            build_batch(records, producer=state, transactional=transactional, extra_attributes=extra)
        )
        struct.pack_into(">q", batch, 0, self.end)
        self.batches.append((self.end, bytes(batch)))
        first, self.end = self.end, self.end + count
        return first

    def act(self, producer: int, action: str, count: int) -> None:
        if action in ("plain", "idempotent"):
            first = self.append(count, producer if action == "idempotent" else -1)
            self.visible += range(first, first + count)
        elif action == "send":
            first = self.append(count, producer, transactional=True)
            self._open.setdefault(producer, []).extend(range(first, first + count))
        elif producer in self._open:
            self.end_transaction(producer, commit=action == "commit")

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        offsets = self._open.pop(producer)
        marker = self.append(
            1, producer, transactional=True, marker=COMMIT_MARKER if commit else ABORT_MARKER
        )
        if commit:
            self.visible += offsets
        else:
            self.aborted.append((offsets[0], marker, producer))

    def settle(self) -> None:
        for producer in list(self._open):
            self.end_transaction(producer, commit=producer % 2 == 0)

    def fetch(self, position: int) -> tuple[bytes, list[AbortedTransaction]]:
        """Answer as a broker does: from the batch that holds ``position``, with what aborted since."""
        data = b"".join(b for first, b in self.batches if first + batch_count(b) > position)
        overlapping = [
            AbortedTransaction(first, pid) for first, marker, pid in self.aborted if marker >= position
        ]
        return data, overlapping


def batch_count(batch: bytes) -> int:
    """Return the number of offsets of a batch."""
    return int(struct.unpack_from(">i", batch, 23)[0]) + 1


@given(steps)
def test_kept_offsets_are_those_of_committed_transactions_and_plain_producers(
    actions: list[tuple[int, str, int]],
) -> None:
    """From every start offset, also in the middle of an aborted transaction."""
    log = Log()
    for action in actions:
        log.act(*action)
    log.settle()
    for position in range(log.end + 1):
        data, aborted = log.fetch(position)
        seen: list[int] = []
        passed = position
        for header, batch in visible_batches(memoryview(data), reversed(aborted), position, control):
            passed = header.next_offset
            if batch is not None:
                seen += range(max(position, header.base_offset), header.next_offset)
        assert seen == sorted(offset for offset in log.visible if offset >= position)
        assert passed == log.end


@given(actions=steps, data=st.data())
def test_a_flipped_bit_never_hides_a_record(actions: list[tuple[int, str, int]], data: st.DataObject) -> None:
    """In a header it may make a batch look like a marker, like one of an aborted transaction, or as if it lay
    before the position. Whoever takes a batch compares its checksum; of the others, this does."""
    log = Log()
    for action in [*actions, (1, "plain", 2)]:
        log.act(*action)
    log.settle()
    whole, aborted = log.fetch(0)
    damaged = bytearray(whole)
    # Base offset and leader epoch are the broker's, outside of the checksum.
    first, batch = data.draw(st.sampled_from(log.batches))
    at = sum(len(b) for f, b in log.batches if f < first)
    place = data.draw(st.one_of(st.integers(8, 11), st.integers(16, len(batch) - 1)))
    damaged[at + place] ^= 1 << data.draw(st.integers(0, 7))
    seen: list[int] = []
    passed = 0
    try:
        for header, found in visible_batches(memoryview(damaged), aborted, 0, control):
            if found is not None:
                verify(header, found)
                seen += range(header.base_offset, header.next_offset)
            passed = header.next_offset
    except CorruptBatch:
        pass
    # What follows a batch that looks cut off is asked for again.
    assert passed <= first
    assert seen == [offset for offset in sorted(log.visible) if offset < passed]


@pytest.mark.parametrize("base", [0, 2, 1 << 40])
def test_offsets_that_run_backwards_are_damage(base: int) -> None:
    """The checksum does not cover where a batch begins."""
    log = Log()
    for _ in range(3):
        log.append(3)
    data = bytearray(log.fetch(0)[0])
    struct.pack_into(">q", data, len(data) // 3, base)
    with pytest.raises(CorruptBatch, match="offsets that grow"):
        list(visible_batches(memoryview(data), [], 0, control))
