"""What ``status`` reads of one cluster: as much as answers, and what did not.

Invariant: nothing here raises because a broker is silent or a value is malformed; what could not be read is
said beside what could. How long a silent broker is waited for is the cluster's ``patience``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onceover.acls.kept import unread_acls
from onceover.errors import OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.kafka.link.channel import Channel
from onceover.kafka.logs.usage import ActiveProducer, active_producers
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.read import read_values
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.firstlook import FirstLook
from onceover.state.records.layout import Layout
from onceover.state.records.managed import unread_managed
from onceover.state.records.ownership import Claim
from onceover.state.records.runstate import read_heartbeat
from onceover.state.records.standstill import Standstill, read_standstills
from onceover.state.records.value import MALFORMED, RESOLVE, own, whole_number
from onceover.state.records.verdicts import Verdicts
from onceover.state.records.verified import Watermark
from onceover.stops.judge import needs_epoch
from onceover.stops.record import Stop
from onceover.txn.classify import Action, Api, classify
from onceover.wire.progress import ProgressMeta

_ROUNDS: Final = 3
_PAUSE_S: Final = 0.2
# Whose transactions keep more partitions waiting than that is said of some of them.
_OPEN_ASKED: Final = 50
_NOTHING: Final[Mapping[str, Any]] = {}


class PartitionStatusReader:
    """Asks the leaders of partitions, one broker after the other; a silent one takes nothing from the others.

    Args:
        cluster: belongs to the caller.
        topics: its metadata; read anew where a leader has moved.

    Attributes:
        error: why something is missing; None when everything was answered.
    """

    def __init__(self, cluster: Cluster, topics: Mapping[str, TopicInfo]) -> None:
        self.topics = dict(topics)
        self.error: OnceoverError | None = None
        self._cluster = cluster
        self._silent: set[int] = set()

    def leader(self, tp: TopicPartition) -> int:
        """Return the broker to ask about a partition; -1 where there is none that answers."""
        info = self.topics.get(tp.topic)
        partition = info.partitions.get(tp.partition) if info else None
        node = -1 if partition is None else partition.leader
        return -1 if node in self._silent else node

    def offsets(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int = calls.READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """Return the offset at ``timestamp_ms`` (or EARLIEST, LATEST) of the partitions that answer."""

        def ask(connection: Channel, some: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
            return calls.list_offsets(connection, some, timestamp_ms, isolation)

        found = self._ask(partitions, Api.LIST_OFFSETS, ask)
        return {tp: answer[1] for tp, answer in found.items()}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Return where each leader epoch ends now, of the partitions that answer (KIP-320)."""

        def ask(connection: Channel, some: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
            return calls.end_offsets_for_epochs(connection, {tp: epochs[tp] for tp in some})

        found = self._ask(epochs, Api.OFFSET_FOR_LEADER_EPOCH, ask)
        return {tp: (epoch, end) for tp, (_, epoch, end) in found.items()}

    def _ask(
        self,
        partitions: Iterable[TopicPartition],
        api: Api,
        ask: Callable[[Channel, list[TopicPartition]], Mapping[TopicPartition, Any]],
    ) -> dict[TopicPartition, Any]:
        found: dict[TopicPartition, Any] = {}
        left = [tp for tp in partitions if tp.topic in self.topics]
        for number in range(_ROUNDS):
            if number:
                time.sleep(_PAUSE_S)
                self._refresh(left)
            for node, some in self._by_leader(left).items():
                try:
                    answers = ask(self._cluster.control(node), some)
                except OnceoverError as error:
                    self._silent.add(node)
                    self.error = self.error or error
                    continue
                found.update(self._answered(api, answers))
            left = [tp for tp in left if tp not in found]
            # Waiting longer helps where a leader is moving, not where its broker is silent.
            if not left or self._silent:
                break
        if left and self.error is None:
            alias = self._cluster.alias
            self.error = Retriable(
                f"{len(left)} partitions have no leader on {alias} at the moment, {left[0]} among them",
                where=alias,
                resolve=f"bring the brokers of {alias} back that hold them",
            )
        return found

    def _answered(self, api: Api, answers: Mapping[TopicPartition, Any]) -> dict[TopicPartition, Any]:
        found = {}
        for tp, answer in answers.items():
            action = classify(api, answer[0])
            if action is Action.OK:
                found[tp] = answer
            elif action not in (Action.RETRY, Action.REFRESH_AND_RETRY, Action.MISSING):
                error = failure(self._cluster.alias, api, action, answer[0], str(tp))
                self.error = self.error or error
        return found

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        groups: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            if (node := self.leader(tp)) >= 0:
                groups.setdefault(node, []).append(tp)
        return groups

    def _refresh(self, partitions: Iterable[TopicPartition]) -> None:
        try:
            self.topics.update(self._cluster.topics(sorted({tp.topic for tp in partitions})))
        except OnceoverError as error:
            self.error = self.error or error


# ---- the flow's state


@dataclass
class FlowFacts:
    """What the flow's state says. Values that nobody can read are ``problems``, the others count."""

    layout: Layout | None = None
    heartbeat: Mapping[str, Any] | None = None
    refused: list[Mapping[str, Any]] = field(default_factory=list)
    known: dict[str, Enrolment] = field(default_factory=dict)
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    waits: dict[TopicPartition, dict[str, Any]] = field(default_factory=dict)
    slowed: dict[int, dict[str, Any]] = field(default_factory=dict)
    aborted: dict[int, int] = field(default_factory=dict)
    still: dict[TopicPartition, Standstill] = field(default_factory=dict)
    verified: dict[TopicPartition, Watermark] = field(default_factory=dict)
    verdicts: Verdicts | None = None
    first_look: FirstLook = field(default_factory=FirstLook)
    problems: list[dict[str, Any]] = field(default_factory=list)

    @property
    def enrolments(self) -> list[Enrolment]:
        """What is copied; topics that have left the filter are not, and nobody waits for their records."""
        return [e for e in self.known.values() if e.active]

    def read(
        self, leader: Mapping[str, Any], others: Mapping[str, Any], owned: Mapping[str, Any] = _NOTHING
    ) -> None:
        """Take in the latest values of both partitions of the state, and of what the flow looks after."""
        self.first_look = FirstLook.read(leader)
        for key, value in [*leader.items(), *others.items()]:
            try:
                self._take(key, value)
            except MALFORMED as error:
                self.problems.append(_unreadable(key, error))
        for key, failed in {**unread_managed(owned), **unread_acls(owned)}.items():
            self.problems.append(_unreadable(key, failed))

    def _take(self, key: str, value: Any) -> None:
        if key == names.LAYOUT:
            self.layout = Layout.from_json(value)
        elif key.startswith((names.enrolment_key(""), names.CLAIM_PREFIX)):
            self._take_topic(key, value)
        elif key in (names.HEARTBEAT, names.REFUSED, names.STILL):
            self._take_sign(key, value)
        elif key == names.VERDICTS:
            self.verdicts = Verdicts.from_json(value)
        elif key.startswith(names.VERIFIED_PREFIX):
            found = Watermark.from_json(value)
            if found is not None:
                self.verified[TopicPartition(*names.split_partition_key(key))] = found
        elif key.startswith((names.WAIT_PREFIX, names.QUOTA_PREFIX, names.ABORTED_PREFIX)):
            self._take_note(key, value)
        elif key.startswith(names.STOP_PREFIX):
            self.stops[TopicPartition(*names.split_partition_key(key))] = Stop.from_json(value)

    def _take_sign(self, key: str, value: Any) -> None:
        """Take in what the driver says of the run."""
        if key == names.HEARTBEAT:
            self.heartbeat = read_heartbeat(value)
        elif key == names.REFUSED:
            self.refused = [_refusal(each) for each in value["refused"]]
        else:
            # The layout is in the other partition, which was taken in before.
            generation = None if self.layout is None else self.layout.generation
            self.still = read_standstills(value, generation)

    def _take_topic(self, key: str, value: Any) -> None:
        if key.startswith(names.CLAIM_PREFIX):
            own(key, names.CLAIM_PREFIX, value, Claim.from_json, lambda claim: claim.target)
            return
        enrolment = own(key, names.enrolment_key(""), value, Enrolment.from_json, lambda each: each.target)
        self.known[enrolment.target] = enrolment

    def _take_note(self, key: str, value: Any) -> None:
        if key.startswith(names.ABORTED_PREFIX):
            self.aborted[int(key.removeprefix(names.ABORTED_PREFIX))] = whole_number(value["count"])
            return
        note = {**_refusal(value), "generation": whole_number(value["generation"]), "blocks": False}
        if key.startswith(names.QUOTA_PREFIX):
            self.slowed[int(key.removeprefix(names.QUOTA_PREFIX))] = note
        else:
            self.waits[TopicPartition(*names.split_partition_key(key))] = note


def _refusal(value: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: str(value[name]) for name in ("object", "code", "message", "resolve")}
    return {**texts, "blocks": bool(value.get("blocks", True))}


def _unreadable(key: str, error: Exception) -> dict[str, Any]:
    seen = type(error).__name__
    if isinstance(error, OnceoverError):
        seen = f"expected {error.expected}, seen {error.seen}" if error.expected else error.message
    return {
        "code": StateCode.STATE_UNREADABLE,
        "message": f"the value of {key!r} in the flow's state cannot be read ({seen})",
        "resolve": RESOLVE,
    }


def read_flow(flow: str, target: Cluster) -> FlowFacts:
    """Return what the state says; nothing for a flow that was never started.

    Raises:
        OnceoverError: the state as a whole cannot be read.
    """
    facts = FlowFacts()
    facts.read(*target.retry(lambda: read_values(target, flow, wait=False)))
    return facts


# ---- positions and logs


@dataclass
class TargetLogs:
    """The target's side of some partitions, by *target* partition."""

    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    committed: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    error: OnceoverError | None = None
    # Topics of which the cluster says nothing, such as that they are gone.
    refused: Collection[str] = ()
    # Without them nobody knows whether something is missing.
    knows_topics: bool = False
    knows_progress: bool = False


def read_target_logs(flow: str, target: Cluster, partitions: Iterable[TopicPartition]) -> TargetLogs:
    """Return progress and ends. The progress first: what is behind it was there when the ends were read."""
    wanted, found = sorted(set(partitions)), TargetLogs()
    if not wanted:
        return found
    try:
        found.topics, refused = described(target, {tp.topic for tp in wanted})
        found.knows_topics, found.refused, found.error = True, refused.keys(), first_of(refused)
    except OnceoverError as error:
        found.error = error
    # With them the answer would be about them alone.
    asked = [tp for tp in wanted if tp.topic not in found.refused]
    try:
        if asked:
            found.committed = target.retry(lambda: target.committed(names.progress_group(flow), asked))
        found.knows_progress = True
    except OnceoverError as error:
        found.error = found.error or error
    if not found.knows_topics:
        return found
    reader = PartitionStatusReader(target, found.topics)
    found.ends = reader.offsets(existing(wanted, found.topics), calls.LATEST, calls.READ_UNCOMMITTED)
    found.topics, found.error = reader.topics, found.error or reader.error
    return found


@dataclass
class SourceLogs:
    """The source's side of some partitions."""

    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    lsos: Mapping[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)
    epoch_ends: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    # By partition with records behind an open transaction: timestamp of the first of them, in ms.
    open_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    # The same: the oldest transaction that its leader tells of.
    open: Mapping[TopicPartition, ActiveProducer] = field(default_factory=dict)
    error: OnceoverError | None = None
    # Topics of which the cluster says nothing, such as that they are gone.
    refused: Collection[str] = ()
    reader: PartitionStatusReader | None = None


Refused = Mapping[str, OnceoverError]


def described(cluster: Cluster, topics: Iterable[str]) -> tuple[dict[str, TopicInfo], Refused]:
    """Return those of ``topics`` that exist, and why the cluster says nothing of others.

    Raises:
        OnceoverError: it says nothing at all.
    """
    wanted = sorted(set(topics))
    each = cluster.retry(lambda: cluster.each_topic(wanted)) if wanted else Each()
    return each.found, each.failed


def first_of(refused: Refused) -> OnceoverError | None:
    """Return the error to show: one topic's, of those that nothing is known of."""
    return next(iter(refused.values()), None)


def read_source_logs(
    source: Cluster,
    topics: Mapping[str, TopicInfo],
    partitions: Iterable[TopicPartition],
    progress: Mapping[TopicPartition, ProgressMeta | None],
    refused: Refused,
) -> SourceLogs:
    """Return starts and ends of the partitions that exist.

    Args:
        topics: the source's metadata.
        progress: what stands beside the position, by source partition.
        refused: topics that may exist, and why the source says nothing of them.
    """
    reader = PartitionStatusReader(source, topics)
    here = existing(sorted(set(partitions)), topics)
    found = SourceLogs(topics=topics, reader=reader, refused=refused.keys())
    found.starts = reader.offsets(here, calls.EARLIEST)
    found.lsos = reader.offsets(here, calls.LATEST)
    found.high_watermarks = reader.offsets(here, calls.LATEST, calls.READ_UNCOMMITTED)
    epochs = {
        tp: meta.leader_epoch for tp in here if (meta := progress.get(tp)) is not None and needs_epoch(meta)
    }
    found.epoch_ends = reader.epoch_ends(epochs)
    found.error = reader.error or first_of(refused)
    return found


def oldest_open(
    source: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ActiveProducer]:
    """Return the oldest open transaction of partitions; of no more than a few, and none where it is not told.

    Leaders tell who may read the topic (KIP-664). Nothing that counts depends on it.
    """
    asked = sorted(partitions)[:_OPEN_ASKED]
    try:
        found = active_producers(source, asked).found if asked else {}
    except OnceoverError:
        return {}
    begun = {
        tp: [each for each in producers if each.transaction_start >= 0] for tp, producers in found.items()
    }
    return {tp: min(each, key=lambda one: one.transaction_start) for tp, each in begun.items() if each}


def existing(partitions: Iterable[TopicPartition], topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    """Return those partitions that the metadata knows."""
    return [tp for tp in partitions if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
