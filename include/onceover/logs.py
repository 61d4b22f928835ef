"""Logging of our own processes: to stderr, one line a record, no payloads, no secrets."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onceover.errors import UsageError
from onceover.shown import screen, visible


def configure(level: str | None = None) -> None:
    """Set the root logger up once; ``ONCEOVER_LOG`` names another level.

    Raises:
        UsageError: it names none.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper() if level else _level(), handlers=[handler])
    quiet_libraries()


class Formatter(logging.Formatter):
    """Writes a record in one line, a traceback below it, and nothing that commands a terminal."""

    wording: Callable[[str], str] = staticmethod(str)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the record's line, whatever names are in it."""
        return visible(self.wording(super().formatMessage(record)))

    def format(self, record: logging.LogRecord) -> str:
        """Return the line and what is below it."""
        return screen(super().format(record))


@contextmanager
def worded(wording: Callable[[str], str]) -> Iterator[None]:
    """Have lines of this process's log put so meanwhile, from whichever thread they come."""
    handlers = logging.getLogger().handlers
    ours = [handler.formatter for handler in handlers if isinstance(handler.formatter, Formatter)]
    before = [formatter.wording for formatter in ours]
    for formatter in ours:
        formatter.wording = wording
    try:
        yield
    finally:
        for formatter, former in zip(ours, before, strict=True):
            formatter.wording = former


def is_verbose() -> bool:
    """Tell whether ``ONCEOVER_LOG`` asks for everything."""
    return _named_level() == "DEBUG"


def _named_level() -> str:
    return os.environ.get("ONCEOVER_LOG", "").upper() or "INFO"


def _level() -> str:
    level = _named_level()
    if level not in logging.getLevelNamesMapping():
        raise UsageError(
            "ONCEOVER_LOG names no level",
            where="the environment",
            expected="DEBUG, INFO, WARNING or ERROR",
            seen=level,
            resolve="unset ONCEOVER_LOG, or set it to one of these",
        )
    return level


def quiet_libraries() -> None:
    """Let libraries speak of what is wrong only: they log payloads at DEBUG, or every request.

    Amazon's signs a token aloud.
    """
    for noisy in ("kafka", "py4j", "urllib3", "httpx", "httpcore", "botocore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
