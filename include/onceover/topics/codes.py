"""Why topics are not copied, or not entirely as their source. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code
from onceover.kafka.codes import KafkaCode


class TopicCode(Code):
    """Every reason of ours why a topic is not taken in, or not entirely; docs/operations.md explains each.

    What a cluster answers when it refuses comes with codes of its own.
    """

    ENROLLED_ELSEWHERE = auto()
    CLAIMED_ELSEWHERE = auto()
    TWO_WAY = auto()
    RING = auto()
    CAME_FROM_TARGET = auto()
    GAVE_WAY = auto()
    PROMOTED = auto()
    TARGET_NOT_EMPTY = auto()
    PARTITION_COUNT = auto()
    TARGET_PARTITIONS = auto()
    TOO_MANY_PARTITIONS = auto()
    NAME_TOO_LONG = auto()
    NAME_REPEATS = auto()
    NAME_TAKEN = auto()
    NAME_COLLISION = auto()
    NAMING_CHANGED = auto()
    # The one refusal that goes away by itself.
    NO_LEADER = KafkaCode.NO_LEADER
    OTHER_FLOW_UNREADABLE = auto()
    TARGET_RESTAMPS = auto()
    NOT_MANAGED = auto()
    CONFIG_UNREADABLE = auto()
    TARGET_REFUSES = auto()
    KEY_UNKNOWN = auto()
    KEY_REFUSED = auto()
    NOTHING_IN_SCOPE = auto()
    PATTERN_WITHOUT_TOPIC = auto()
