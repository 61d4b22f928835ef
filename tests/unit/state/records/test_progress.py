"""Whether a position may be believed: only beside what was written together with it."""

from __future__ import annotations

import pytest

from onceover.kafka.calls import CommittedOffset
from onceover.state.records.progress import beside, put_back
from onceover.wire.progress import ProgressMeta

META = ProgressMeta("s", "t", leader_epoch=4, target_end=50, generation=7, instance=(1, 0), position=90)


def committed(offset: int, text: str) -> CommittedOffset:
    return CommittedOffset(error_code=0, offset=offset, leader_epoch=-1, metadata=text)


def test_what_was_written_together_is_believed() -> None:
    """And what an older release wrote, which did not say beside which position."""
    assert beside(committed(90, META.encode())) == (META, None)
    older = ProgressMeta("s", "t", leader_epoch=4, target_end=50, generation=7, instance=(1, 0))
    assert beside(committed(91, older.encode())) == (older, None)
    assert beside(None) == (None, None)


@pytest.mark.parametrize(
    ("offset", "text", "seen"),
    [
        (90, "", "none"),
        (90, "\0", "none"),
        (90, "moved by ann", "none"),
        (190, META.encode(), "beside offset 90"),
        (10, META.encode(), "beside offset 90"),
    ],
    ids=["nothing", "a zero byte", "a note", "ours, ahead of it", "ours, behind it"],
)
def test_what_a_tool_for_groups_leaves_behind_is_foreign(offset: int, text: str, seen: str) -> None:
    """Also where it kept or copied the metadata: the position has changed beside it."""
    meta, doubt = beside(committed(offset, text))
    assert meta is None and doubt is not None
    assert (doubt.code, seen in (doubt.seen or "")) == ("PROGRESS_FOREIGN", True)


@pytest.mark.parametrize("text", ['{"v":2}', '{"v":1,"source_id":'])
def test_what_nobody_can_read_is_told_from_it(text: str) -> None:
    """A later release, or damage."""
    meta, doubt = beside(committed(90, text))
    assert meta is None and doubt is not None and doubt.code == "PROGRESS_UNREADABLE"


def test_of_an_older_position_nobody_is_blamed_who_may_be_none() -> None:
    """A coordinator whose log has lost its end tells it, too; the code, and so the way out, are the same."""
    told = put_back(10, 12)
    assert told.code == "PROGRESS_FOREIGN"
    assert "__consumer_offsets has lost its end" in told.message
