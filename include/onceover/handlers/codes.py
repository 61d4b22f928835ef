"""What is wrong with a handler, or with what it returns. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class HandlerCode(Code):
    """Why a handler cannot be used; that it fails on a record is a stop."""

    HANDLER = auto()
    HANDLER_OUTPUT = auto()
    NO_HANDLER = auto()
    NO_SAMPLE = auto()
    IMPORT_INTERRUPTED = auto()
