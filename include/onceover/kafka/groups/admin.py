"""Consumer groups of one cluster: list, read and write their committed offsets, over Kafka's own requests.

Invariant: an answer is complete or an error; what could not be read is never an empty answer. A write is
refused by the broker itself while the group has members, in the same step that would write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from onceover.backoff import Deadline
from onceover.errors import NeedsOperator, NotNow, OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.groups import calls as groupcalls
from onceover.kafka.groups.calls import ListedGroup
from onceover.kafka.groups.offsetportions import offset_portions
from onceover.kafka.groups.offsets import GroupOffsets, fetch_committed
from onceover.kafka.link.channel import Channel
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify
from onceover.wire.metadata import Metadata

T = TypeVar("T")

# What a coordinator answers to a writer from outside while a group has members: unknown member (every
# state but empty), illegal generation, rebalance in progress, non-empty group, member of the topic, stale
# member epoch (KIP-848).
_HAS_MEMBERS: Final = frozenset({22, 25, 27, 68, 86, 113})
_NO_GROUP: Final = frozenset({69})
# The coordinator works them off one after the other; what is on its way hides the distance.
_IN_FLIGHT: Final = 100
# What a coordinator writes for a request is one batch: 1 MB at most, also with the longest names of topics.
_DELETED_AT_ONCE: Final = 1000
# A coordinator that moves is there again within seconds; one that is away holds up only its own groups.
_RETRY_S: Final = 5.0
# Where brokers keep the groups that they coordinate, by a hash of their names.
OFFSETS_TOPIC: Final = "__consumer_offsets"


class HasMembers(NeedsOperator):
    """The group has members now: it is left alone."""


@dataclass(frozen=True)
class GroupListing:
    """The groups of a cluster.

    Args:
        groups: by name.
        unheard: why some brokers did not answer, or some groups have no coordinator: which these are is not
            known.
    """

    groups: Mapping[str, ListedGroup]
    unheard: tuple[OnceoverError, ...] = ()


class GroupAdmin:
    """Groups of one cluster. Not thread-safe; the cluster belongs to the caller.

    Every call tries again for some seconds while the coordinator moves, but for those that say so.

    Args:
        cluster: where the groups are.
        retry_s: seconds to try again for.
    """

    def __init__(self, cluster: Cluster, retry_s: float = _RETRY_S) -> None:
        self.cluster = cluster
        self._retry_s = retry_s
        # By broker, of ListGroups, and on which connection it was told.
        self._versions: dict[int, tuple[Channel, int]] = {}

    def groups(self) -> GroupListing:
        """Ask every broker for the groups that it coordinates.

        A broker that the cluster has given up is named no more, and its groups are nobody's until their
        partition of ``__consumer_offsets`` has a leader again: that is told, to whoever may DESCRIBE it.

        Raises:
            Retriable: no broker of the cluster answers.
            UsageError: the cluster refuses the login.
        """
        told = self._retry(lambda: calls.metadata(self.cluster.control(), [OFFSETS_TOPIC]))
        found: dict[str, ListedGroup] = {}
        unheard = self._nobodys(told)
        for broker in told.brokers:
            try:
                found.update({g.group_id: g for g in self._retry(partial(self._list, broker.node_id))})
            except Retriable as error:
                unheard.append(error)
        return GroupListing(found, tuple(unheard))

    def _nobodys(self, told: Metadata) -> list[OnceoverError]:
        """Return why nobody knows some groups; in the same answer that names the brokers to be asked."""
        partitions = [p for topic in told.topics if topic.name == OFFSETS_TOPIC for p in topic.partitions]
        unled = sum(1 for partition in partitions if partition.leader_id < 0)
        if not unled:
            return []
        text = (
            f"{unled} of {len(partitions)} partitions of {OFFSETS_TOPIC} have no leader on "
            f"{self.cluster.alias}: which groups are kept there is not known"
        )
        return [NotNow(text, code=KafkaCode.NO_LEADER)]

    def lists_all(self) -> bool:
        """Tell whether ``groups`` leaves none out: brokers do not name what a principal may not describe, nor
        whether groups that it may describe have no coordinator, where it may not describe the topic of these.

        Raises:
            Retriable: no broker of the cluster answers.
        """
        if not self._retry(lambda: groupcalls.lists_all_groups(self.cluster.control())):
            return False
        topics = self._retry(lambda: calls.metadata(self.cluster.control(), [OFFSETS_TOPIC])).topics
        return not any(classify(Api.METADATA, topic.error_code) is Action.UNAUTHORIZED for topic in topics)

    def committed(self, group: str) -> dict[TopicPartition, calls.CommittedOffset]:
        """Return everything that the group has committed; nothing for a group that does not exist.

        A partition for which nothing but a first commit is pending is not among it: only who names the
        partition is told of that.

        Raises:
            Retriable: the coordinator is away, or a transaction of the group stays open.
            UsageError: not authorized.
        """
        return self.each_committed([group]).whole()[group]

    def each_committed(self, groups: Iterable[str]) -> Each[str, dict[TopicPartition, calls.CommittedOffset]]:
        """Return the same of many groups, asked together."""
        each = fetch_committed(self.cluster, dict.fromkeys(groups), self._retry_s, self._retry_s)
        found = {group: dict(named.committed) for group, named in each.found.items() if not named.pending}
        pending = {group: self._undecided(group) for group, named in each.found.items() if named.pending}
        return Each(found, {**each.failed, **pending})

    def each_named(
        self, asked: Mapping[str, Collection[TopicPartition]], patience_s: float
    ) -> Each[str, GroupOffsets]:
        """Return what groups have committed for some partitions; those without a commit are left out.

        Args:
            asked: partitions by group, asked together.
            patience_s: how long to wait for transactions that are being decided.
        """
        return fetch_committed(self.cluster, asked, self._retry_s, patience_s)

    def each_commit(
        self,
        offsets: Mapping[str, Mapping[TopicPartition, calls.OffsetToCommit]],
        before: Callable[[str], None] = lambda _: None,
    ) -> dict[str, OnceoverError]:
        """Commit offsets for groups without members, which are created where they are missing.

        Trying again after a lost answer writes the same once more, for seconds: only for groups in which
        nobody else commits.

        Args:
            offsets: by group.
            before: told each group right before its request leaves.

        Returns:
            As ``each_commit_once``.
        """
        waiting, failed = dict(offsets), dict[str, OnceoverError]()

        def attempt() -> None:
            for group, error in self._commit(waiting, before).items():
                failed.pop(group, None)
                if error is not None:
                    failed[group] = error
                if not isinstance(error, Retriable):
                    del waiting[group]
            if waiting:
                raise NotNow("not every group is written")

        with suppress(Retriable):
            self._retry(attempt)
        return failed

    def each_commit_once(
        self,
        offsets: Mapping[str, Mapping[TopicPartition, calls.OffsetToCommit]],
        before: Callable[[str], None] = lambda _: None,
    ) -> dict[str, OnceoverError]:
        """Do the same without trying again: who has looked at what stands there looks at it again before.

        Returns:
            Why not, for groups that were not written: ``HasMembers``, somebody consumes; ``Retriable``, the
            coordinator is away, it may have been written; ``UsageError``, not authorized; ``NeedsOperator``,
            the broker refuses a partition, which may not exist any more.
        """
        became = self._commit(offsets, before)
        return {group: error for group, error in became.items() if error is not None}

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group without members has committed for partitions; tried once, as a commit is.

        Raises:
            HasMembers: somebody consumes.
            Retriable: the coordinator is away, they may be forgotten.
            UsageError: not authorized.
        """
        self._delete(group, list(partitions))

    def delete(self, group: str) -> None:
        """Delete a group without members, and all that it has committed; one that is not there is gone.

        Raises:
            HasMembers: somebody consumes.
            Retriable: the coordinator is away.
            UsageError: not authorized.
        """
        self._retry(lambda: self._delete_group(group))

    # ---- one try each

    def _list(self, node: int) -> list[ListedGroup]:
        connection = self.cluster.control(node)
        code, groups = groupcalls.list_groups(connection, self._version(node, connection))
        action = classify(Api.LIST_GROUPS, code)
        if action is not Action.OK:
            raise failure(self.cluster.alias, Api.LIST_GROUPS, action, code, f"broker {node}")
        return groups

    def _version(self, node: int, connection: Channel) -> int:
        """Ask each broker, and again on each new connection: they are upgraded one by one."""
        told_on, version = self._versions.get(node, (None, 0))
        if told_on is not connection:
            version = groupcalls.list_groups_version(connection)
            self._versions[node] = connection, version
        return version

    def _undecided(self, group: str) -> Retriable:
        text = f"a transaction of group {group} on {self.cluster.alias} is not decided"
        return NotNow(text, code=KafkaCode.PENDING_OFFSETS, where=f"group {group}")

    def _commit(
        self,
        offsets: Mapping[str, Mapping[TopicPartition, calls.OffsetToCommit]],
        before: Callable[[str], None],
    ) -> dict[str, OnceoverError | None]:
        """Try once; what became of each group."""
        try:
            nodes = self.cluster.coordinator_nodes(list(offsets), calls.GROUP)
        except Retriable as error:
            return dict.fromkeys(offsets, error)
        became: dict[str, OnceoverError | None] = dict(nodes.failed)
        for node in sorted(set(nodes.found.values())):
            mine = [group for group, found in nodes.found.items() if found == node]
            try:
                for group, codes in self._pipelined(node, mine, offsets, before):
                    became[group] = self._problem(Api.OFFSET_COMMIT, codes, group)
            except Retriable as error:
                for group in mine:
                    if group not in became:
                        self.cluster.forget_coordinator(group, calls.GROUP)
                        became[group] = error
        return became

    def _pipelined(
        self,
        node: int,
        groups: Sequence[str],
        offsets: Mapping[str, Mapping[TopicPartition, calls.OffsetToCommit]],
        before: Callable[[str], None],
    ) -> Iterator[tuple[str, dict[TopicPartition, int]]]:
        """Yield the answers, in order; a request takes one group only, so many are on their way."""
        connection = self.cluster.control(node)
        sent = 0
        owed: dict[str, int] = {}
        for number, group in enumerate(groups):
            for ahead in groups[sent : number + _IN_FLIGHT]:
                before(ahead)
                portions = list(offset_portions(offsets[ahead]))
                for some in portions:
                    connection.send(*calls.offset_commit_request(ahead, some), read=calls.partition_codes)
                owed[ahead] = len(portions)
                sent += 1
            codes: dict[TopicPartition, int] = {}
            for _ in range(owed.pop(group)):
                codes |= connection.receive()
            yield group, codes

    def _problem(self, api: Api, codes: Mapping[TopicPartition, int], group: str) -> OnceoverError | None:
        try:
            for tp, code in codes.items():
                self._check(api, code, group, f"group {group}, {tp}")
        except OnceoverError as error:
            return error
        return None

    def _delete(self, group: str, partitions: list[TopicPartition]) -> None:
        connection = self.cluster.coordinator(group, calls.GROUP)
        for at in range(0, len(partitions), _DELETED_AT_ONCE):
            some = partitions[at : at + _DELETED_AT_ONCE]
            code, answer = groupcalls.offset_delete(connection, group, some)
            if code in _NO_GROUP:
                return
            for each in (code, *answer.values()):
                self._check(Api.OFFSET_DELETE, each, group, f"group {group}")

    def _delete_group(self, group: str) -> None:
        code = groupcalls.delete_group(self.cluster.coordinator(group, calls.GROUP), group)
        if code not in _NO_GROUP:
            self._check(Api.OFFSET_DELETE, code, group, f"group {group}")

    def _check(self, api: Api, code: int, group: str, subject: str) -> None:
        if code in _HAS_MEMBERS:
            raise HasMembers(
                f"group {group} has members on {self.cluster.alias}",
                code=KafkaCode.HAS_MEMBERS,
                where=subject,
                resolve="stop its consumers there, then run again",
            )
        action = classify(api, code)
        if action is Action.REFRESH_AND_RETRY:
            self.cluster.forget_coordinator(group, calls.GROUP)
        if action is not Action.OK:
            raise failure(self.cluster.alias, api, action, code, subject)

    def _retry(self, attempt: Callable[[], T]) -> T:
        return self.cluster.retry(attempt, Deadline(self._retry_s))
