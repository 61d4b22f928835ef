"""What the rules of transactions answer. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class TxnCode(Code):
    """Broken rules of sequences and offsets."""

    BASE_OFFSET_NOT_GROWING = auto()
