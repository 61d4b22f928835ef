"""Logging of our own processes: to stderr, one line a record, no payloads, no secrets."""

from __future__ import annotations

import logging
import os


def configure(level: str | None = None) -> None:
    """Set the root logger up once; ``ONCEOVER_LOG`` names another level."""
    logging.basicConfig(
        level=(level or os.environ.get("ONCEOVER_LOG", "INFO")).upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    # They log payloads or every request at DEBUG.
    for noisy in ("kafka", "py4j", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
