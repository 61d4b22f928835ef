"""What an audit cannot write. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class AuditCode(Code):
    """Faults of where its results go; why records are not compared is ``audit.model.Reason``."""

    REPORT = auto()
    DATA_DOCS = auto()
