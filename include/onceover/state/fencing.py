"""Fencing: after it, an older holder of a transactional.id can commit nothing any more.

The timeouts of the flow's transactions stand beside it: they say how long what is fenced can have been open.
"""

from __future__ import annotations

from onceover.backoff import Deadline
from onceover.errors import NeedsOperator, Retriable
from onceover.kafka.ports import ProducerIds
from onceover.kafka.produce.requests import way_out
from onceover.state.codes import StateCode
from onceover.txn.classify import Action, Api, classify

# The leader's transactions hold a handful of records and last milliseconds. A dead leader's open
# one delays the next start by nothing: InitProducerId ends it.
LEADER_TIMEOUT_MS = 10_000
LANE_TIMEOUT_MS = 15_000
START_DEADLINE_S = 90.0


def fence(target: ProducerIds, transactional_id: str) -> None:
    """Bump the epoch of ``transactional_id``: its older holders can commit nothing any more.

    Returns only on OK. CONCURRENT_TRANSACTIONS means that an old transaction is being ended first;
    the epoch of its holder is bumped only by the attempt that says OK.
    """

    def attempt() -> None:
        result = target.init_producer_id(transactional_id, LANE_TIMEOUT_MS)
        action = classify(Api.INIT_PRODUCER_ID, result.error_code)
        if action in (Action.RETRY, Action.REFRESH_AND_RETRY):
            raise Retriable(f"{transactional_id} is not fenced yet (error {result.error_code})")
        if action is not Action.OK:
            raise NeedsOperator(
                f"{target.alias} refuses to fence {transactional_id} (error {result.error_code})",
                code=StateCode.CANNOT_FENCE,
                resolve=way_out(result.error_code)
                or "grant the principal WRITE on transactional ids with the prefix onceover.<flow>.",
            )

    target.retry(attempt, Deadline(START_DEADLINE_S))
