"""What use cases need of Kafka, as protocols: the real edges and the tests' one fake fit them.

``Cluster`` is the whole; what asks for less says so. The concrete one (``kafka.cluster``) is made where flow
files are turned into clusters, and nowhere else: a lint rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar
from uuid import UUID

from onceover.backoff import Deadline, Patience
from onceover.errors import OnceoverError, Retriable
from onceover.kafka.calls import READ_COMMITTED, CommittedOffset, InitResult, OffsetToCommit
from onceover.kafka.each import Each
from onceover.kafka.link.channel import Channel
from onceover.kafka.link.login import Login
from onceover.model import TopicPartition
from onceover.txn.classify import Api
from onceover.wire.batches.batch import BatchHeader

T = TypeVar("T")
# An answer about one partition, its error code first.
A = TypeVar("A", bound=tuple[Any, ...])

DEFAULT_TIMEOUT_S: Final = 30.0


class ClientSettings(Protocol):
    """What a cluster needs of ``config.clients.resolve.ClientConfig``."""

    @property
    def alias(self) -> str:
        """Name of the cluster in messages."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Librdkafka keys, as they are now: looked at for each connection."""

    @property
    def login(self) -> Login:
        """What is known of it, by all who use these keys."""


@dataclass(frozen=True)
class PartitionInfo:
    """A partition's leader as the metadata names it; leader -1 while there is none."""

    leader: int
    leader_epoch: int


@dataclass(frozen=True)
class TopicInfo:
    """A topic that exists; ``partitions`` by number."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionInfo]
    is_internal: bool

    @property
    def is_led(self) -> bool:
        """Whether somebody leads each partition."""
        return all(partition.leader >= 0 for partition in self.partitions.values())


@dataclass(frozen=True)
class Features:
    """What the cluster as a whole has finalised; which versions of a request a broker speaks is its own."""

    transaction_version: int


class Patient(Protocol):
    """A cluster, as whoever asks it anything needs it: by its name, and again while it does not answer."""

    # How long its brokers may leave us without an answer.
    patience: Patience

    @property
    def alias(self) -> str:
        """Name of the cluster in messages."""

    def retry(
        self,
        attempt: Callable[[], T],
        deadline: Deadline | None = None,
        *,
        only: type[Retriable] = Retriable,
    ) -> T:
        """Run ``attempt`` until it works or the deadline passes.

        Args:
            deadline: without one, 30 s, or until nobody has patience with the cluster any more.
            only: what is tried again.
        """


class TopicCatalog(Patient, Protocol):
    """Which topics there are."""

    def topics(self, names: Sequence[str] | None = None) -> dict[str, TopicInfo]:
        """Return the topics that exist among ``names`` (None: all), freshly read.

        Raises:
            Retriable: a topic's metadata is not available at the moment.
            NeedsOperator: not authorized to describe a topic that was named.
        """

    def each_topic(self, names: Sequence[str] | None = None) -> Each[str, TopicInfo]:
        """Return the same, with what the cluster does not answer beside it."""

    def hidden_topics(self, names: Collection[str]) -> dict[str, OnceoverError]:
        """Return which of these topics may not be described, with the answer.

        Raises:
            Retriable: the cluster is away.
        """


class LogEnds(TopicCatalog, Protocol):
    """Where logs begin and end, and what is open in them."""

    def list_offsets(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int = READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """Return the offset at ``timestamp_ms`` (or EARLIEST, LATEST) of every partition.

        Raises:
            Retriable: a leader is moving.
            UsageError: not authorized to describe a topic.
        """

    def each_offset(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int = READ_COMMITTED
    ) -> Each[TopicPartition, int]:
        """Return the same, with the partitions beside it that are not answered."""

    def each_epoch_end(self, epochs: Mapping[TopicPartition, int]) -> Each[TopicPartition, tuple[int, int]]:
        """Return where each leader epoch ends in the log now, as (epoch, end offset) (KIP-320)."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the same of all partitions.

        Raises:
            As ``list_offsets``.
        """

    def each_open(
        self, producer_ids: Mapping[TopicPartition, Collection[int]]
    ) -> Each[TopicPartition, tuple[int, int]]:
        """Return the first offset and the producer id of the oldest open transaction in each log.

        Only those of the ids that are named with the partition; -1 and -1 without one.
        """


class GroupPositions(Patient, Protocol):
    """What consumer groups have committed."""

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None, *, stable: bool = True
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets; partitions without one are left out.

        Raises:
            Retriable: a transaction of the group is pending, or the coordinator is away.
            UsageError: not authorized to describe the group, or one of the topics.
        """

    def each_committed(
        self, group: str, partitions: Iterable[TopicPartition] | None, *, stable: bool = True
    ) -> Each[TopicPartition, CommittedOffset]:
        """Return the same, with the partitions beside it that may not be asked about.

        Raises:
            As ``committed``, where the group as a whole is not answered.
        """


class ProducerIds(Patient, Protocol):
    """Who may produce."""

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> InitResult:
        """Try InitProducerId once and return its answer; the caller decides about trying again."""

    def fresh_producer_id(self) -> InitResult:
        """Ask any broker for a producer id of our own, without transactions; fences nobody."""


class Brokers(Patient, Protocol):
    """The way to each broker, for requests that nothing else here makes."""

    @property
    def config(self) -> ClientSettings:
        """Alias and client properties."""

    def features(self, *, anew: bool = False) -> Features:
        """Return what the cluster has finalised; transaction.version 0 where the feature is unknown.

        Args:
            anew: ask again: features change when a cluster is upgraded.
        """

    def open(self, node: int | None = None) -> Channel:
        """Open a new connection to ``node`` (None: any broker) and check the cluster id.

        Raises:
            Retriable: nobody answers there; or TLS or SASL refuses us at one broker of several, or where the
                login has worked until now.
            NeedsOperator: another cluster answers there.
            UsageError: refused by TLS or SASL, by whoever there is.
        """

    def control(self, node: int | None = None) -> Channel:
        """Return the shared connection to ``node`` for requests without payload."""

    def coordinator(self, key: str, key_type: int) -> Channel:
        """Return the shared connection to the coordinator of a group or transactional.id.

        Raises:
            Retriable: the coordinator is not available at the moment.
        """

    def coordinator_node(self, key: str, key_type: int) -> int:
        """Return the broker that coordinates a group or transactional.id, asking when it is not known."""

    def coordinator_nodes(self, keys: Sequence[str], key_type: int) -> Each[str, int]:
        """Return the same of many, asking for all that are not known together."""

    def forget_coordinator(self, key: str, key_type: int) -> None:
        """Look the coordinator up again next time."""

    def each_leader(
        self,
        partitions: Iterable[TopicPartition],
        api: Api,
        ask: Callable[[Channel, list[TopicPartition]], Mapping[TopicPartition, A]],
    ) -> Each[TopicPartition, A]:
        """Ask the leaders one after the other; each answer begins with an error code."""


class Cluster(LogEnds, GroupPositions, ProducerIds, Brokers, Protocol):
    """Access to one cluster; a context manager that closes it.

    Not thread-safe, not fork-safe: each thread and process has its own (``another``).
    """

    @property
    def expected_id(self) -> str | None:
        """The id of the only cluster that is believed; None before one was met."""

    def cluster_id(self) -> str:
        """Return the id of the cluster, connecting if that has not happened yet."""

    def keep_to(self, cluster_id: str) -> None:
        """Refuse any other cluster from now on, unless one was met already."""

    def hasty(self, patience_s: float) -> Cluster:
        """Return the same cluster, for somebody who would rather have no answer than wait for it.

        By connections of its own, which the caller closes; to whichever broker, so that looks that are
        repeated do not all hear the same one.
        """

    def another(self) -> Cluster:
        """Return the same cluster by connections of its own, for another thread or another login.

        The caller closes it.
        """

    def close(self) -> None:
        """Close every shared connection."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


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

    Attributes:
        others: what it refused in the same answer, of other partitions.
    """

    def __init__(self, outgoing: Outgoing, code: int, reason: str, named: Sequence[int] = ()) -> None:
        super().__init__(f"the target refuses a batch for {outgoing.target} (error {code}: {reason})")
        self.outgoing = outgoing
        self.code = code
        self.reason = reason
        self.named = tuple(named)
        self.others: tuple[Refused, ...] = ()


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

    def make_room(self) -> list[Acknowledged]:
        """Wait until another round may be on its way, and return what was acknowledged.

        How many are depends on how far away the target is.
        """

    def drain(self) -> list[Acknowledged]:
        """Wait until nothing is unanswered, and return what was acknowledged."""

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
