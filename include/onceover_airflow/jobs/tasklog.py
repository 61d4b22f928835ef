"""What of ours goes to Airflow's log, made to be seen there as it is.

Invariant: no name of others begins a line, commands a terminal or hides a line of the page, whichever module
of ours has logged it: they all do through records, and there is one place where these are made. A record is a
line. (The job's own lines come by another way: ``hooks``.)
"""

from __future__ import annotations

import logging
from typing import Any, Final

from onceover.shown import visible

# The packages' names, and those that Airflow gives to operators of ours.
_OURS: Final = "onceover"


def show_records() -> None:
    """Have every record of ours, made in this process from now on, shown as it is."""
    before = logging.getLogRecordFactory()
    if isinstance(before, _Shown):
        return
    logging.setLogRecordFactory(_Shown(before))


class _Shown:
    """Makes records as they were made before."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, name: str | None, *arguments: Any, **options: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._before(name, *arguments, **options)
        # One that is made of another (``logging.makeLogRecord``, as Airflow does) has no name yet.
        if name is not None and _OURS in name:
            try:
                record.msg, record.args = visible(record.getMessage()), ()
            except (TypeError, ValueError, KeyError):
                # Its arguments do not fit: logging itself says so.
                return record
        return record
