"""Doing what a topic plan says for somebody who does not run the flow: a command, a seeding, a repair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from onceover.errors import NeedsOperator
from onceover.kafka.admin.topics import Admin
from onceover.kafka.ports import Cluster
from onceover.kafka.produce.notes import NoteWriter
from onceover.model import TopicPartition
from onceover.planning.journal import Journal
from onceover.planning.plan import Done
from onceover.state import names
from onceover.state.read import read_flow_state
from onceover.state.records.managed import read_managed
from onceover.topics.apply import TopicApply
from onceover.topics.plan import TopicPlan


@contextmanager
def topic_apply(target: Cluster, flow: str, done: Done) -> Iterator[TopicApply]:
    """Open what applies topic plans of a flow, with what the flow looks after as it is now.

    Args:
        target: belongs to the caller; the flow's own topics are there.
        done: told of each change that is done.
    """
    with closing(NoteWriter(target, TopicPartition(names.owned_topic(flow), 0))) as notes:
        state = target.retry(lambda: read_flow_state(target, flow))
        yield TopicApply(Admin(target), notes, read_managed(state.owned), done)


def make_targets(target: Cluster, flow: str, plan: TopicPlan, journal: Journal) -> None:
    """Create the target topics of a plan, or add their partitions; they may have no leaders yet.

    What was done and what was refused is in the journal.

    Raises:
        NeedsOperator, with the refusal's code: records would not be copied because of it.
        Retriable: the target is away, or somebody else has made one of them since the plan.
    """
    if not plan.steps:
        return
    with topic_apply(target, flow, journal.done) as work:
        work.run(plan)
    journal.refused(work.refused)
    work.check_not_overtaken(target)
    for refusal in work.refused:
        if refusal.blocks:
            raise NeedsOperator(
                f"a target topic cannot be prepared: {refusal.message}",
                code=refusal.code,
                where=refusal.object,
                resolve=refusal.resolve,
            )
