"""Whether an audit's answer stands for its flow as a whole. Pure.

Invariant: it does only where nothing in scope was left out, now or in the audits that it goes on from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceover.state.records.verdicts import WHOLE, Verdict


def why_unproven(told: Mapping[str, Any]) -> str | None:
    """Return why an audit does not stand for its flow as a whole; None when it does.

    Args:
        told: the audit's document, or of it ``verdict``, ``nothing_compared``, ``topics``, ``complete`` and
            ``since``.
    """
    if told["verdict"] != Verdict.PASS:
        return f"the verdict is {told['verdict']}"
    if told["nothing_compared"]:
        return "nothing was compared: there was no record to compare in scope, now or in an earlier audit"
    if told["topics"]:
        return f"only some topics were audited: {', '.join(told['topics'])}"
    if not told["complete"]:
        return "only a sample was audited"
    if told["since"] not in WHOLE:
        return f"only records since {told['since']} were audited"
    return None
