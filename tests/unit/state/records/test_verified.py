"""The verified watermark in ``status``: how old the recovery point is that can be proven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from onceover.state.records.verified import (
    Watermark,
    describe_verified,
    flow_entry,
    partition_entry,
)

_IDS = (str(UUID(int=1)), str(UUID(int=2)))
_MARK = Watermark(
    offset=90,
    target_offset=95,
    source_id=UUID(int=1),
    target_id=UUID(int=2),
    timestamp_ms=5,
    at_ms=1_000_000,
)


def _entry(verified: Watermark | None, *, position: int | None = 100, now_ms: float = 1_060_000) -> Any:
    return partition_entry(verified, _IDS, position, now_ms)


def test_another_version_is_left_out() -> None:
    """A newer Onceover's value is not half understood."""
    assert Watermark.from_json({**_MARK.to_json(), "v": 2}) is None


def test_entry_tells_age_and_what_came_since() -> None:
    """The numbers that a person plans a failover with."""
    entry = _entry(_MARK)

    assert entry == {"offset": 90, "at_ms": 1_000_000, "age_s": 60.0, "offsets_since": 10}


@pytest.mark.parametrize("ids", [(UUID(int=1), UUID(int=9)), (UUID(int=9), UUID(int=2))])
def test_watermark_of_another_topic_of_the_same_name_does_not_count(ids: tuple[UUID, UUID]) -> None:
    """A topic that was made anew holds other records: nothing of it is proven."""
    assert _entry(replace(_MARK, source_id=ids[0], target_id=ids[1])) is None


def test_clock_that_runs_behind_gives_no_negative_age() -> None:
    """The audit ran on another machine."""
    assert _entry(_MARK, now_ms=999_000)["age_s"] == 0


def test_oldest_partition_is_the_flow() -> None:
    """A recovery point holds for all partitions, so it is as old as the oldest."""
    entries = [_entry(replace(_MARK, at_ms=at_ms)) for at_ms in (1_000_000, 1_050_000)]

    told = flow_entry(entries)

    assert told == {"partitions": 2, "of": 2, "at_ms": 1_000_000, "age_s": 60.0, "offsets_since": 20}
    assert describe_verified(told) == "verified up to 1 min ago, 20 offsets copied since"


def test_partition_without_a_watermark_leaves_the_flow_without_an_age() -> None:
    """An age would claim a recovery point that does not exist."""
    told = flow_entry([_entry(_MARK), None])

    assert told is not None
    assert (told["age_s"], told["at_ms"]) == (None, None)
    assert describe_verified(told) == "verified: 1 of 2 partitions, 10 offsets copied since"


def test_flow_without_watermarks_was_never_audited() -> None:
    """Also one without partitions."""
    assert flow_entry([None, None]) is None
    assert flow_entry([]) is None
    assert describe_verified(None) == "never audited"
