"""What an audit may call proven, by what it looked at."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from onceover.audit.course.content import Content, proven
from tests.support.worlds import audits


@pytest.mark.parametrize(("target_from", "is_renewed"), [(150, True), (200, True), (201, False)])
def test_proof_becomes_no_younger_where_the_target_was_not_looked_at_behind_it(
    target_from: int, is_renewed: bool
) -> None:
    """Nothing has come on the source; what was written on the target meanwhile is what is asked."""
    seen = SimpleNamespace(
        target=audits.at(0),
        enrolled=("source-id", "target-id"),
        parted_at=(None, None),
        approval="",
        source_log=None,
        target_log=None,
    )
    snapshot = SimpleNamespace(partitions=(seen,), started_ms=audits.STARTED_MS)
    result = replace(
        audits.good_partition(0), source_from=200, verified_before=200, target_from=target_from, target_to=201
    )
    content = Content(snapshot, (result,), audits.STARTED_MS)  # pyrefly: ignore[bad-argument-type]
    assert bool(proven(content)) is is_renewed
