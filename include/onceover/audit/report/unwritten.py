"""Evidence of an audit that cannot be written: whose affair that is. Pure.

Invariant: the answer stands by then, and is in what is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onceover.audit.codes import AuditCode
from onceover.audit.report.jsonreport import summary
from onceover.errors import NeedsOperator, UsageError, kind_of_refusal


def unwritten(
    code: AuditCode, what: str, where: Path, told: Mapping[str, Any], error: OSError
) -> UsageError | NeedsOperator:
    """Return what the operating system refused as an error of ours: a disk that is full is no bad usage.

    Args:
        what: is not written, for people.
        told: the audit's document.
    """
    kind = kind_of_refusal(error)
    other = "give another path with --report, or set ONCEOVER_HOME" if code is AuditCode.REPORT else ""
    other = other or "set ONCEOVER_HOME to another directory"
    return kind(
        f"the audit's {what} cannot be written: {error.strerror}",
        code=code,
        where=str(where),
        expected="a directory that this user may write, with room",
        seen=f"the audit has answered all the same: {told['verdict']}: {summary(told)}",
        resolve=f"make room, or {other}" if kind is NeedsOperator else other,
    )
