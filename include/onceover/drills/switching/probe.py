"""Writing and reading on the target, as the clients will: numbered records through a topic of its own.

Invariant: no topic of anybody else is written to, and the probe's own is taken away again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from onceover.backoff import Deadline
from onceover.drills import canary as canaries
from onceover.drills.canary import judge
from onceover.drills.codes import DrillCode
from onceover.drills.feeding import CanaryFeed
from onceover.errors import NeedsOperator
from onceover.kafka import calls
from onceover.kafka.admin.topics import ANY_TIME, Admin, TopicSpec, await_leaders
from onceover.kafka.logs.between import records_between, stable_end
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.state import names

_NUMBERS: Final = 30
# Replicas of a topic where nobody has said how many; what is written here is gone a moment later.
_USUAL: Final = 3
_CONFIG: Final = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime", **ANY_TIME}


@dataclass(frozen=True)
class Probe:
    """What is tried.

    Args:
        flow: whose switchover it is; ``target`` its target.
        replication_factor: of the topic.
        ours: asked before anything is written or removed; raises where it is another drill's by now.
    """

    flow: str
    target: Cluster
    replication_factor: int
    ours: Callable[[], None]

    def run(self, drill: str, deadline: Deadline) -> Mapping[str, Any]:
        """Write numbers plainly and in transactions, read them as committed records, judge.

        Raises:
            NeedsOperator: CANARY_LOST, a number is lost, repeated or out of order.
            Retriable: the target is away.
        """
        topic = f"{names.rehearsal_copies(self.flow)}.probe"
        self.ours()
        admin = Admin(self.target)
        admin.delete_topics([topic])
        self._make(admin, TopicSpec(topic, canaries.PARTITIONS, self.replication_factor, _CONFIG))
        try:
            await_leaders(self.target, {topic: canaries.PARTITIONS}, deadline)
            group = names.canary_group(self.flow)
            CanaryFeed(drill, self.ours).mixed(self.target, topic, group, 0, _NUMBERS)
            wrong = [
                found
                for number in range(canaries.PARTITIONS)
                if not (found := self._judged(drill, TopicPartition(topic, number), deadline)).exact
            ]
        finally:
            admin.delete_topics([topic])
        if wrong:
            raise NeedsOperator(
                "what was written on the target could not be read there as it was written",
                code=DrillCode.CANARY_LOST,
                seen="; ".join(str(each.document()) for each in wrong),
            )
        return {"written_and_read": _NUMBERS}

    def _make(self, admin: Admin, spec: TopicSpec) -> None:
        """Make the topic, with fewer replicas where there are not so many brokers now."""
        try:
            admin.create_topics([spec])
        except NeedsOperator:
            brokers = self.target.retry(lambda: len(calls.metadata(self.target.control(), []).brokers))
            fewer = min(brokers, _USUAL)
            if 0 < spec.replication_factor <= fewer:
                raise
            admin.create_topics([replace(spec, replication_factor=fewer)])

    def _judged(self, drill: str, tp: TopicPartition, deadline: Deadline) -> canaries.CanaryVerdict:
        met = records_between(self.target, tp, 0, stable_end(self.target, tp), deadline)
        return judge(drill, tp.partition, 0, _NUMBERS, [record.value for record in met])
