"""A transaction of a raw producer that a test holds open for as long as it likes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.support.raw.rawkafka import Codec, RawConnection, RawRecord, build_batch


class OpenTransaction:
    """A transaction held open until ``commit`` or ``abort``; ``close`` only drops the connection.

    ``committed`` is the number of records per partition that a commit makes visible.

    Args:
        settles: an end is awaited until every reader sees it; a coordinator answers before that.
    """

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        topic: str,
        timeout_ms: int = 60_000,
        *,
        settles: bool = True,
    ) -> None:
        self.closed = False
        self._settles = settles
        self._connection = RawConnection(bootstrap)
        self._id = transactional_id
        self._topic = topic
        try:
            self._state = self._connection.init_producer(transactional_id, timeout_ms)
        except BaseException:
            self._connection.close()
            raise
        self._sequences: Counter[int] = Counter()
        self.committed: Counter[int] = Counter()

    @property
    def transactional_id(self) -> str:
        """The id of its producer."""
        return self._id

    @property
    def producer_id(self) -> int:
        """What the broker knows its producer by."""
        return self._state.producer_id

    def send(self, partition: int, records: Sequence[RawRecord], codec: Codec = Codec.NONE) -> int:
        """Write one transactional batch; return the offset of its first record."""
        if partition not in self._sequences:
            self._connection.add_partitions(self._id, self._state, self._topic, [partition])
        state = self._state._replace(sequence=self._sequences[partition])
        batch = build_batch(records, codec=codec, producer=state, transactional=True)
        offset = self._connection.produce(self._topic, partition, batch, self._id)
        self._sequences[partition] += len(records)
        self.committed[partition] += len(records)
        return offset

    def commit(self) -> Counter[int]:
        """Make everything sent visible; return how many records each partition got."""
        self._end(commit=True)
        return self.committed

    def abort(self) -> None:
        """Make everything sent invisible for ever."""
        self._end(commit=False)
        self.committed.clear()

    def close(self) -> None:
        """Drop the connection; the broker aborts the transaction at its timeout."""
        self.closed = True
        self._connection.close()

    def _end(self, *, commit: bool) -> None:
        try:
            if self._sequences:
                self._connection.end_transaction(self._id, self._state, commit=commit)
                if self._settles:
                    self._connection.await_markers(self._id)
        finally:
            self.close()
