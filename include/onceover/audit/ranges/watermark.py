"""Writing what an audit leaves in a flow's state: what it has proven, and its verdict.

Invariant: of one pair of topics a watermark is never written lower, not even by two audits at the same
time: a writer fences the one before it, reads what is there, and writes in a transaction that only the
last one can commit. Another topic of the same name (topic id) begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from onceover.errors import Retriable
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.fenced import write_last
from onceover.state.log import StateLog
from onceover.state.records.verdicts import Verdicts, read_verdicts
from onceover.state.records.verified import Watermark, read_watermarks


def write_outcome(
    target: Cluster,
    flow: str,
    wanted: Mapping[TopicPartition, Watermark],
    verdicts: Callable[[Verdicts | None], Verdicts] | None = None,
) -> None:
    """Write what an audit leaves in the state: watermarks that get further than those there, its verdict.

    Args:
        wanted: watermarks by target partition.
        verdicts: makes of what the audits before have left what is left now; None where nothing was judged.

    Raises:
        Retriable: the target is away, or another audit of this flow is writing now.
        NeedsOperator: another cluster answers where the target should (FOREIGN_CLUSTER).
    """
    if not wanted and verdicts is None:
        return

    topic = names.state_topic(flow)

    def news() -> dict[str, Any]:
        # Only now: what the audit before us had under way is decided.
        with closing(StateLog(target, topic, names.STATE_OTHERS)) as log:
            state = target.retry(log.read_whole)
        known = read_watermarks(state)
        found: dict[str, Any] = {
            names.verified_key(*tp): mark.to_json()
            for tp, mark in wanted.items()
            if mark.advances(known.get(tp))
        }
        if verdicts is not None:
            found[names.VERDICTS] = verdicts(read_verdicts(state.get(names.VERDICTS))).to_json()
        return found

    try:
        write_last(target, names.audit_id(flow), TopicPartition(topic, names.STATE_OTHERS), news)
    except Retriable as error:
        raise Retriable(
            f"the outcome of the audit of {flow} was not written: {error.message}",
            where=topic,
            resolve="run the audit again; what was compared is in its report",
        ) from error
