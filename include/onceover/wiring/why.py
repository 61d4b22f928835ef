"""Why a topic of a flow is copied, or is not, for the command line: its status, and the topic plan where the
flow has not looked at the topic yet.

Invariant: nothing is changed, and the answer is that of the code that decides: scope, status, plan.
"""

from __future__ import annotations

from onceover.backoff import Patience
from onceover.config.flow.flowfile import Flow
from onceover.errors import OnceoverError
from onceover.operate.why import Answer, Why, explain_name, with_plan
from onceover.topics.scope import explain
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.status import PATIENCE_S, read_one
from onceover.wiring.topics import topic_sync


def explain_topic(
    flow: Flow, topic: str, partition: int | None = None, *, patience_s: float = PATIENCE_S
) -> Why:
    """Return why ``topic``, by its name on the source or on the target, is copied or is not.

    Raises:
        OnceoverError: a client of the flow is not in order.
    """
    which = rules(flow)
    found = explain_name(
        read_one(flow, patience_s=patience_s), topic, partition, lambda name: explain(name, which)
    )
    if found.answer is not Answer.NOT_TAKEN_IN:
        return found
    try:
        return _planned(flow, found, patience_s)
    except OnceoverError as error:
        return with_plan(found, [f"what `onceover topics plan {flow.flow}` says cannot be told: {error}"], ())


def _planned(flow: Flow, found: Why, patience_s: float) -> Why:
    """Return the answer with what `topics plan` would do about it, or refuse."""
    source, target = open_clusters(flow)
    source.patience, target.patience = Patience(patience_s), Patience(patience_s)
    with source, target, topic_sync(flow, source, target) as sync:
        plan = sync.plan()
    own = {found.topic, found.target_topic}
    changes = [f"{c.what} {c.object} ({c.reason})" for c in plan.topics.changes if c.object in own]
    refused = [refusal for refusal in plan.topics.refused if refusal.blocks and refusal.object == found.topic]
    return with_plan(found, changes, refused)
