"""Why a drill is not run, or did not come to its end. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class DrillCode(Code):
    """Errors and findings of drills."""

    DRILL_RUNS = auto()
    DRILL_TAKEN_OVER = auto()
    DRILL_ABORTED = auto()
    DRILL_LATE = auto()
    NOTHING_CHOSEN = auto()
    JOURNAL_DAMAGED = auto()
    CANARY_LOST = auto()
    GROUP_MOVED = auto()
    COPY_DIFFERS = auto()
    COPY_STOPPED = auto()
    REMAINS = auto()
    # Of a switchover.
    NOT_APPROVED = auto()
    NOT_CONFIRMED = auto()
    COMMAND_FAILED = auto()
    SWITCHOVER_UNSET = auto()
    SOURCE_OPEN = auto()
    FENCE_LEAKS = auto()
    COMMITS_LATE = auto()
    NOT_DRAINED = auto()
    SCOPE_CHANGED = auto()
    GROUPS_LEFT = auto()
    GROUP_SKIPS = auto()
    PAST_RETURN = auto()
    WRITTEN_BEHIND = auto()
    FLOW_STOPPED = auto()
    STILL_THERE = auto()
    LOSS_UNKNOWN = auto()
    STILL_FENCED = auto()
    LOG_CHANGED = auto()
    TARGET_DENIES = auto()
    HANGING = auto()
    # Of what an old source holds alone.
    LOOK_BACK = auto()
    ORPHANS_OPEN = auto()
    ORPHANS_GROWN = auto()
    EXPORT_DIFFERS = auto()
    NOT_COPIED = auto()
    LED_BACK = auto()
    MADE_ANEW = auto()
    NOT_READ = auto()
    EXPORT_UNFIT = auto()
    # Findings that do not fail a drill.
    NOT_READY = auto()
    GROUP_NOT_COVERED = auto()
    TOPIC_LEFT_OUT = auto()
    NOT_COMPARED = auto()
    RTO_MISSED = auto()
    RPO_MISSED = auto()
