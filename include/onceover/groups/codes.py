"""Why groups are left where they are. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class GroupCode(Code):
    """Every reason of ours why a group, or its place in a partition, is left alone: docs/groups.md."""

    # Could not be read, and may be the next time: the partition, or what is committed there.
    UNREADABLE = auto()
    COMMIT_PENDING = auto()
    UNKNOWN = auto()
    # The topic is on neither side any more: nobody could do anything about a group's place in it.
    GONE = auto()
    RECREATED = auto()
    DELETED = auto()
    AHEAD = auto()
    REWOUND = auto()
    COMMITTED_ELSEWHERE = auto()
    COMMITS_MOVE = auto()
    NOTHING_READ = auto()
    NOT_COVERED = auto()
    NOT_ONE_TO_ONE = auto()
    NOT_MOVED = auto()
    NOT_REMEMBERED = auto()
    NOT_APPROVED = auto()
