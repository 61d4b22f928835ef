"""Whether a partition is stuck: it does not move, and nothing that is known explains it. Pure.

Invariant: what its driver has seen counts only while that run shows signs of life, and the partition still
stands there with a record that readers of the source see. A stop, what a lane waits for, a quota, an open
transaction of the source, and a rest of markers and aborted records explain it, and have words of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceover.ages import age_text
from onceover.model import TopicPartition, lane_of
from onceover.operate.codes import StatusCode
from onceover.operate.statusread import FlowFacts
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.runstate import FlowRun, RunState


def stuck_since_ms(
    state: FlowFacts, run: FlowRun, enrolment: Enrolment, source: TopicPartition, position: int | None
) -> int | None:
    """Return since when a partition with something to copy is stuck; None where it is not.

    Args:
        position: where it stands now.
    """
    still = state.still.get(source)
    layout = state.layout
    if run.state is not RunState.RUNNING or layout is None or still is None or still.position != position:
        return None
    target = enrolment.target_of(source)
    told = [state.waits.get(target), state.slowed.get(lane_of(source, layout.lanes))]
    explained = any(note is not None and note["generation"] == layout.generation for note in told)
    return None if explained or target in state.stops else still.since_ms


def stuck_need(flow: str, partition: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has to be done about a partition that is stuck."""
    topic, number = partition["topic"], partition["partition"]
    begun = "" if partition["begun"] else ", which has copied nothing of it since the start"
    stands = f"it stands at source offset {partition['position']}, {partition['lag_offsets']} offsets behind"
    lane, age = f"lane {partition['lane']}", age_text(partition["stuck_s"])
    return {
        "code": StatusCode.NOT_MOVING,
        "message": f"{topic}:{number} has not moved for {age}: {stands}, and nothing that is known keeps "
        f"{lane} from it{begun}",
        "resolve": f"`onceover stop {flow}`, then `onceover replicate {flow}`: it goes on where it is; if it "
        f"stands still again, the log of the run says what {lane} does",
        "topic": topic,
        "partition": number,
    }


def transaction_words(found: Mapping[str, Any] | None) -> str:
    """Return in words which transaction of the source keeps records from its readers."""
    if found is None:
        return "a transaction of the source that is open"
    wrote = found["last_write_s"]
    last = "" if wrote is None else f", which wrote last {age_text(wrote)} ago"
    whose = f"the open transaction of producer id {found['producer_id']}"
    return f"{whose}, from offset {found['first_offset']} on{last}"
