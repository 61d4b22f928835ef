"""Why MirrorMaker's own records are not written. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class MirrorCode(Code):
    """Notes about topics and groups that MirrorMaker would write or read; docs/mirrormaker-output.md."""

    MIRROR_TOPIC_TAKEN = auto()
    MIRROR_TOPIC_COPIED = auto()
    GROUPS_UNREADABLE = auto()
