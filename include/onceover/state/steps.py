"""The steps of start, enrolment and commit, by name, in their order.

Every step is announced just before its effect (``onceover.announce``).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from onceover.announce import Announcer


class Step(Enum):
    """Moments that a crash must survive."""

    LEADER_INIT = "leader: InitProducerId"
    LEADER_READ = "leader: read the layout"
    LAYOUT_BEGIN = "leader: commit the layout, not ready"
    LAYOUT_COMMIT = "leader: EndTxn of the layout"
    FENCE_LANE = "leader: fence a lane id"
    READY_BEGIN = "leader: commit ready"
    READY_COMMIT = "leader: EndTxn of ready"
    OWN_CLAIM = "leader: claim new topics"
    OWN_LOOK = "leader: look at who else wants them"
    TOPIC_MARK = "topics: note what the flow looks after"
    TOPIC_CREATE = "topics: create target topics"
    TOPIC_GROW = "topics: add partitions"
    TOPIC_CONFIG = "topics: set configuration"
    ENROL_BEGIN = "leader: write the enrolment"
    ENROL_OFFSETS = "leader: start offsets into the progress group"
    ENROL_COMMIT = "leader: EndTxn of the enrolment"
    ENROL_DONE = "leader: enrolment committed"
    LANE_READ = "lane: first read of the layout"
    LANE_INIT = "lane: InitProducerId"
    LANE_CHECK = "lane: second read of the layout"
    LANE_RESUME = "lane: OffsetFetch"
    LANE_DECIDE = "lane: end what was left open"
    CLAIM_BEGIN = "lane: claim"
    CLAIM_COMMIT = "lane: EndTxn of the claim"
    DATA_SENT = "lane: batches sent"
    DATA_ACKED = "lane: batches acknowledged"
    MAP_SENT = "lane: offset map written"
    PROGRESS_SENT = "lane: progress written"
    COMMIT = "lane: EndTxn"
    COMMITTED = "lane: transaction committed"
    ENDED = "leader: end of the run"
    MERGE_SENT = "map: merged records and tombstones written"
    MERGE_COMMITTED = "map: merge committed"
    GROUP_REMEMBER = "groups: remember what is about to be written"
    GROUP_COMMIT = "groups: commit"


_announcer: Final[Announcer[Step]] = Announcer()
reached = _announcer.reached
listen = _announcer.listen
