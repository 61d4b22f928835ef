"""When an audit's answer stands for its flow as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from onceover.audit.report.standing import why_unproven

PASSED = {"verdict": "PASS", "nothing_compared": False, "topics": [], "complete": True, "since": "watermark"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"verdict": "FAIL"}, "the verdict is FAIL"),
        ({"verdict": "UNVERIFIABLE"}, "the verdict is UNVERIFIABLE"),
        ({"nothing_compared": True}, "there was no record to compare"),
        ({"topics": ["orders"]}, "only some topics were audited: orders"),
        ({"complete": False}, "only a sample"),
        ({"since": "2026-01-31"}, "only records since 2026-01-31"),
        ({"since": "watermark"}, None),
        ({"since": "start"}, None),
    ],
)
def test_pass_of_a_part_or_of_nothing_stands_for_no_flow(change: dict[str, Any], why: str | None) -> None:
    """Other DAGs rely on what is announced: proof, of the whole flow."""
    told = why_unproven({**PASSED, **change})
    assert (told is None) is (why is None)
    assert why is None or why in str(told)
