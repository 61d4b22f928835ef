"""Names of everything a flow owns on its clusters. One place, so that they never differ."""

from __future__ import annotations

PREFIX = "__onceover."
STATE_SUFFIX = ".state"
LAYOUT = "layout"
POSITIONS = "positions"
HEARTBEAT = "heartbeat"
REFUSED = "refused"
STILL = "still"
REQUEST_STOP = "request/stop"
REQUEST_FINISH = "request/finish"
STOP_PREFIX = "stop/"
WAIT_PREFIX = "wait/"
QUOTA_PREFIX = "quota/"
ABORTED_PREFIX = "aborted/"
RESUME_PREFIX = "request/resume/"
MANAGED_PREFIX = "managed/"
ACL_PREFIX = "acl/"
VERIFIED_PREFIX = "verified/"
VERDICTS = "verdicts"
DISCOVERED = "discovered"
FIRST_PREFIX = "first/"
CLAIM_PREFIX = "claim/"
UPSTREAM_PREFIX = "upstream/"
# Never holds a value: what is written there is only to be seen behind everything before it.
MARK = "mark"
# Partition 0 of the state is written by the leader's transactions only, so nobody else's open
# transaction can hold up a reader of the layout; everything else goes to partition 1.
STATE_LEADER = 0
STATE_OTHERS = 1
STATE_PARTITIONS = 2
# Independent of the number of lanes, so that lanes can change; a multiple of the usual lane counts,
# so that each lane's transaction touches few of them (every one costs a marker).
MAP_PARTITIONS = 4


def state_topic(flow: str) -> str:
    """Topic with the flow's layout, enrolments, stops and requests."""
    return f"{PREFIX}{flow}{STATE_SUFFIX}"


def map_topic(flow: str) -> str:
    """Topic with the flow's offset map."""
    return f"{PREFIX}{flow}.offsets"


def owned_topic(flow: str) -> str:
    """Topic with what the flow looks after on its target: topics and ACLs that it may change, and remove.

    Apart from the state: who stops a flow, or audits it, writes there, and may own nothing in its name.
    """
    return f"{PREFIX}{flow}.owned"


def groups_topic(flow: str) -> str:
    """Topic with what was written for consumer groups."""
    return f"{PREFIX}{flow}.groups"


def drills_topic(flow: str) -> str:
    """Topic with the journal of the flow's drills."""
    return f"{PREFIX}{flow}.drills"


def drills_id(flow: str) -> str:
    """transactional.id of whoever writes that journal."""
    return f"onceover.{flow}.drills"


def orphans_topic(flow: str) -> str:
    """Topic with what the source held alone behind an unplanned switchover, for people to decide about."""
    return f"{PREFIX}{flow}.orphans"


def orphans_id(flow: str) -> str:
    """transactional.id of whoever exports them."""
    return f"onceover.{flow}.orphans"


def rehearsal_flow(flow: str) -> str:
    """Flow that a rehearsal copies with. No file can have this name, and what it owns is the flow's own."""
    return f"{flow}.rehearsal"


def rehearsal_prefix(flow: str) -> str:
    """What every topic begins with that a rehearsal makes, on either cluster."""
    return f"{PREFIX}{rehearsal_flow(flow)}."


def canary_topic(flow: str) -> str:
    """Topic on the source that a rehearsal writes its numbered records into."""
    return f"{rehearsal_prefix(flow)}canary"


def rehearsal_copies(flow: str) -> str:
    """What stands before the names of a rehearsal's copies on the target, without the dot behind it."""
    return f"{rehearsal_prefix(flow)}copy"


def rehearsal_group(flow: str, group: str) -> str:
    """Group on the target that a rehearsal puts in place instead of the real one of that name."""
    return f"{progress_group(rehearsal_flow(flow))}.group.{group}"


def canary_group(flow: str) -> str:
    """Group on the source that fails over in a rehearsal."""
    return f"{progress_group(rehearsal_flow(flow))}.canary"


def progress_group(flow: str) -> str:
    """Group on the target whose committed offsets are the next source offsets (KIP-656)."""
    return f"onceover.{flow}"


def lag_group(flow: str) -> str:
    """Group on the source that shows the flow to ordinary lag tools."""
    return f"onceover-lag.{flow}"


def leader_id(flow: str) -> str:
    """transactional.id of the flow's leader."""
    return f"onceover.{flow}.leader"


def lane_id(flow: str, lane: int) -> str:
    """transactional.id of a lane."""
    return f"onceover.{flow}.{lane}"


def map_id(flow: str) -> str:
    """transactional.id of the upkeep of the offset map, which runs beside the leader."""
    return f"onceover.{flow}.map"


def groups_id(flow: str) -> str:
    """transactional.id of the moving of groups; with a number behind it, of one log of the target's alone."""
    return f"onceover.{flow}.groups"


def audit_id(flow: str) -> str:
    """transactional.id of the audit, which keeps the verified watermark."""
    return f"onceover.{flow}.audit"


def enrolment_key(target_topic: str) -> str:
    """State key of a topic's enrolment."""
    return f"topic/{target_topic}"


def claim_key(target_topic: str) -> str:
    """State key of a target topic that the flow is about to enrol."""
    return f"{CLAIM_PREFIX}{target_topic}"


def first_key(source_topic: str) -> str:
    """State key of a source topic that the first discovery saw, until it is enrolled."""
    return f"{FIRST_PREFIX}{source_topic}"


def upstream_key(target_topic: str) -> str:
    """State key of the flows through which a topic's records come to this one."""
    return f"{UPSTREAM_PREFIX}{target_topic}"


def managed_key(target_topic: str) -> str:
    """State key of a target topic that the flow looks after."""
    return f"{MANAGED_PREFIX}{target_topic}"


def state_owner(topic: str) -> str | None:
    """Return the flow whose state ``topic`` is, None when it is no state topic.

    The name of a flow holds no dot: who may write under one flow's prefix is no other flow, let alone many.
    """
    owner = topic.removeprefix(PREFIX).removesuffix(STATE_SUFFIX)
    return owner if owner and "." not in owner and topic == state_topic(owner) else None


def stop_key(topic: str, partition: int) -> str:
    """State key of a stopped partition; ``topic`` is the target's."""
    return f"{STOP_PREFIX}{topic}/{partition}"


def wait_key(topic: str, partition: int) -> str:
    """State key of a partition that cannot be copied for now; ``topic`` is the target's."""
    return f"{WAIT_PREFIX}{topic}/{partition}"


def quota_key(lane: int) -> str:
    """State key of a lane that a quota of the target slows down."""
    return f"{QUOTA_PREFIX}{lane}"


def aborted_key(lane: int) -> str:
    """State key of how many transactions a lane has given up; in the lane's own transactions."""
    return f"{ABORTED_PREFIX}{lane}"


def resume_key(topic: str, partition: int) -> str:
    """State key of the request to look at a stopped partition again."""
    return f"{RESUME_PREFIX}{topic}/{partition}"


def verified_key(topic: str, partition: int) -> str:
    """State key of a partition's verified watermark; ``topic`` is the target's."""
    return f"{VERIFIED_PREFIX}{topic}/{partition}"


def split_partition_key(key: str) -> tuple[str, int]:
    """Return topic and partition of a key that ends in them; topic names hold no slash."""
    _, topic, partition = key.rsplit("/", 2)
    return topic, int(partition)
