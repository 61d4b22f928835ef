"""What use cases need of Kafka, as protocols: the real edges and the tests' fakes both fit them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from onceover.kafka.calls import OffsetToCommit
from onceover.model import TopicPartition
from onceover.wire.batches.batch import BatchHeader


class Outgoing(NamedTuple):
    """One batch on its way to one target partition.

    ``batch`` is writable and is stamped in place; ``source_runs`` says which source offsets its
    records are, in order, as (first offset, count), so that the answer's base offset gives the
    exact offset map. State and map records have no source.

    ``target_id`` is the topic that is meant: a namesake, made anew since that was found out, takes nothing.
    None where whoever has the name is meant.
    """

    target: TopicPartition
    header: BatchHeader
    batch: memoryview | bytearray
    source: TopicPartition | None = None
    source_runs: tuple[tuple[int, int], ...] = ()
    target_id: UUID | None = None


class Acknowledged(NamedTuple):
    """A batch that is in the target's log, in the open transaction."""

    outgoing: Outgoing
    base_offset: int


class Refused(Exception):
    """The target refuses a batch because of what is in it. The transaction can only be aborted.

    Args:
        outgoing: the batch.
        code: the broker's error code.
        reason: the broker's words; they never hold payload.
        named: the records it named, by their places in the batch; empty when it named none.
    """

    def __init__(self, outgoing: Outgoing, code: int, reason: str, named: Sequence[int] = ()) -> None:
        super().__init__(f"the target refuses a batch for {outgoing.target} (error {code}: {reason})")
        self.outgoing = outgoing
        self.code = code
        self.reason = reason
        self.named = tuple(named)


class TxnProducer(Protocol):
    """One transactional.id (docs/protocol.md): at most one transaction open, every answer checked."""

    @property
    def in_transaction(self) -> bool:
        """True when something was added since the last end of a transaction."""

    @property
    def producer_id(self) -> int:
        """The id of the next transaction: that of earlier holders, until its epochs are used up (32,767)."""

    @property
    def visible_at_commit(self) -> bool:
        """True when readers see what was sent only after ``commit``: waiting with it costs latency."""

    @property
    def pause_s(self) -> float:
        """Seconds for which a broker wants no more data, because of a quota (KIP-219); 0 without one."""

    def init(self) -> bool:
        """Try InitProducerId once; False means "not yet", look at the layout before trying again."""

    def send(self, batches: Sequence[Outgoing]) -> None:
        """Send one batch per partition without waiting for the answers."""

    def drain(self, keep: int = 0) -> list[Acknowledged]:
        """Wait until at most ``keep`` requests are unanswered, and return what was acknowledged."""

    def decide(self, partitions: Collection[TopicPartition], *, commit: bool) -> None:
        """End what transactions of this id, over for their coordinator, have left open in some partitions.

        For between ``init`` and everything else; after it only ``init`` may follow.

        Raises:
            MustReset, Retriable: the outcome is unknown.
        """

    def add_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit], *, moving: bool = True
    ) -> None:
        """Write committed offsets in the open transaction, beginning one if there is none.

        Args:
            moving: follow a coordinator that moves, or is not ready; otherwise that is a ``MustReset``.
        """

    def commit(self) -> None:
        """End the transaction with commit; on return it will be visible to every reader."""

    def abort(self) -> None:
        """End the transaction with abort, best effort."""

    def close(self) -> None:
        """Drop the connections; an open transaction is aborted by whoever comes next."""


class Notes(Protocol):
    """Where a flow keeps small records by their keys, such as what it looks after."""

    def write_all(self, records: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Write records durably, in their order; None removes.

        Raises:
            Retriable: one was not acknowledged in time; which of the others were is not known.
            UsageError: not authorized.
        """
