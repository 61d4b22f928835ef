"""Why a connector's offsets are not moved. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class ConnectorCode(Code):
    """Every reason of ours; docs/connectors.md has a line for each."""

    # The connector and its workers.
    NO_CONNECTOR = auto()
    NOT_A_SOURCE = auto()
    NO_PLUGIN = auto()
    NAME_UNSERVED = auto()
    CONNECTOR_FAILED = auto()
    CONNECTOR_STATE = auto()
    TASK_FAILED = auto()
    TOO_MANY_TASKS = auto()
    NOT_STOPPED = auto()
    SNAPSHOT_RUNS = auto()
    SLOT_DROPPED = auto()
    CONFIG_REFUSED = auto()
    CONFIG_UNCHECKED = auto()
    CONFIG_REVERTED = auto()
    WORKERS_DIFFER = auto()
    WORKER_CONFIG = auto()
    WORKER_ERROR = auto()
    WORKER_MODE = auto()
    WORKER_STARTING = auto()
    WORKER_UNREACHABLE = auto()
    WORKER_VERSION = auto()
    NO_WORKER = auto()
    NAME_UNKNOWN = auto()
    REBALANCE = auto()
    REQUEST_REFUSED = auto()
    REST_LOGIN = auto()
    # Its offsets and their topics.
    FOREIGN_KEYS = auto()
    KEY_MISPLACED = auto()
    KEY_TWICE = auto()
    NULL_OFFSET = auto()
    NEVER_MIGRATED = auto()
    NOT_COMPACTED = auto()
    OFFSETS_TOPIC_MISSING = auto()
    OPEN_TRANSACTION = auto()
    OTHER_TOPIC = auto()
    TOPIC_NAME = auto()
    VERIFY_FAILED = auto()
    # The run, and others beside it.
    CHANGED_SINCE = auto()
    FENCED = auto()
    INTERRUPTED = auto()
    MANIFEST = auto()
    MANIFEST_DAMAGED = auto()
    MOVED_ON = auto()
    NOTHING_TO_ROLL_BACK = auto()
    RESUMED = auto()
    STILL_WRITING = auto()
    WENT_ON_ELSEWHERE = auto()
