"""Which topics a flow copies, and creating their counterparts on the target before the first record.

Configuration is set at creation, before any record arrives: records dated in the past would be
deleted within minutes under the default retention (FACTS 2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# Internal topics of Kafka, Connect, MirrorMaker 2 and Onceover are never copied by default.
INTERNAL: Final = re.compile(
    r"__.*|mm2-.*\.internal|.*\.checkpoints\.internal|heartbeats|connect-(configs|offsets|status)"
)

# Never copied, each with its reason.
NOT_COPIED: Final[Mapping[str, str]] = {
    "message.timestamp.type": "with LogAppendTime the target would overwrite the records' timestamps (G1)",
    "min.insync.replicas": "depends on the target's number of brokers",
    "unclean.leader.election.enable": "a decision about the target's own availability",
    "leader.replication.throttled.replicas": "names brokers of the source",
    "follower.replication.throttled.replicas": "names brokers of the source",
    "remote.storage.enable": "depends on the target's tiered storage",
    "local.retention.ms": "depends on the target's tiered storage",
    "local.retention.bytes": "depends on the target's tiered storage",
}


def config_to_copy(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a source topic's own configuration that its copy gets."""
    return {key: value for key, value in overrides.items() if key not in NOT_COPIED}
