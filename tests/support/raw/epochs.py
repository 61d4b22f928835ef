"""Leader epochs of partitions, and committed offsets that name one, as an ordinary administrator has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.support.session.wait import wait_until

NO_EPOCH = -1
_TIMEOUT_S = 60.0
_ANSWER_S = 10.0


class Epochs:
    """The first partitions of topics on one cluster without logins, of several brokers."""

    def __init__(self, bootstrap: str, admin: Any) -> None:
        self._bootstrap, self._admin = bootstrap, admin

    def partition(self, topic: str) -> dict[str, Any]:
        """Return what the metadata says of it.

        Any broker may be asked, and one may not know yet what another one has told already.
        """

        def told() -> list[dict[str, Any]]:
            partitions: list[dict[str, Any]] = self._admin.describe_topics([topic])[0]["partitions"]
            return partitions

        return wait_until(told, _TIMEOUT_S, f"a broker knows {topic}")[0]

    def create(self, topic: str, brokers: list[int]) -> None:
        """Create a topic of one partition on those brokers; the first one leads."""
        spread = {"replica_assignments": {0: brokers}, "topic_configs": {"min.insync.replicas": "1"}}
        self._admin.create_topics([NewTopic(topic, -1, -1, **spread)])

        def ready() -> bool:
            return sorted(self.partition(topic)["isr_nodes"]) == sorted(brokers)

        wait_until(ready, _TIMEOUT_S, f"{topic} is on {brokers}")

    def raise_to(self, topic: str, epoch: int) -> None:
        """Have its two replicas lead in turn until it is in that epoch, or a later one."""
        while (now := self.partition(topic))["leader_epoch"] < epoch:
            other = [broker for broker in now["replica_nodes"] if broker != now["leader_id"]]
            wanted = [*other, now["leader_id"]]
            self._admin.alter_partition_reassignments({TopicPartition(topic, 0): wanted})
            wait_until(partial(self.elected, topic, wanted[0]), _TIMEOUT_S, f"{wanted[0]} leads {topic}")

    def elected(self, topic: str, broker: int, kind: ElectionType = ElectionType.PREFERRED) -> bool:
        """Ask for an election; True once that broker leads."""
        client = AdminClient({"bootstrap.servers": self._bootstrap})
        # While the controllers elect one of their own, nobody answers.
        with suppress(TimeoutError):
            client.elect_leaders(kind, [Place(topic, 0)]).result(_ANSWER_S)
        return bool(self.partition(topic)["leader_id"] == broker)

    def commit(self, group: str, topic: str, offset: int, epoch: int) -> None:
        """Commit with that leader epoch, as a consumer does that was there."""
        place = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", epoch)}

        def done() -> bool:
            try:
                self._admin.alter_group_offsets(group, place)
                return self.committed(group, topic) == (offset, epoch)
            except KafkaError:
                # The coordinator of a young cluster.
                return False

        wait_until(done, _TIMEOUT_S, f"{group} commits")

    def committed(self, group: str, topic: str) -> tuple[int, int] | None:
        """Return offset and leader epoch."""
        found = self._admin.list_group_offsets({group: None})[group].get(TopicPartition(topic, 0))
        if found is None:
            return None
        return found.offset, NO_EPOCH if found.leader_epoch is None else found.leader_epoch


@contextmanager
def epochs_of(bootstrap: str) -> Iterator[Epochs]:
    """Look after epochs on a cluster."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        yield Epochs(bootstrap, admin)
    finally:
        admin.close()
