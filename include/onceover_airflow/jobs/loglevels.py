"""At which level a line of the job's output stands in the task's log. Pure.

A line without a stamp of its own (a traceback, Java's notices) belongs to the line before it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Final

# Ours and, with our settings, Spark's: "2026-01-31 12:00:00,123 WARNING name: text".
_OURS: Final = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL|TRACE)\s+(\S+: .*)",
    re.DOTALL,
)
# Spark's own, where it logs before our settings count or without them: "26/01/31 12:00:00 WARN name: text".
_SPARKS: Final = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (\S+: .*)")
_UNSTAMPED_ERROR: Final = re.compile(r"Traceback \(most recent call last\)|Exception in thread |Error: ")
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
}


def levelled(lines: Iterator[str]) -> Iterator[tuple[int, str]]:
    """Yield each line with its level, without the stamp and the level that Airflow's log shows itself."""
    level = logging.INFO
    for line in lines:
        match = _OURS.match(line) or _SPARKS.match(line)
        if match:
            level = _LEVELS[match.group(1)]
            yield level, match.group(2)
            continue
        if _UNSTAMPED_ERROR.match(line):
            level = logging.ERROR
        yield level, line
