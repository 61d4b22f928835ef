"""Where an audit begins, as people say it. Pure."""

from __future__ import annotations

from datetime import UTC

from onceover.ages import NoMoment, moment_ms
from onceover.errors import UsageError
from onceover.state.records.verdicts import START, WATERMARK, WHOLE


def since_ms(text: str, now_ms: int) -> int | None:
    """Return the time in ms since 1970; None for ``watermark`` and ``start``. Without a zone it is UTC.

    Raises:
        UsageError: it is none of them, a time before 1970, which Kafka would take for something else, or one
            behind ``now_ms``, since when there can be nothing.
    """
    if text in WHOLE:
        return None
    expected = f"{WATERMARK}, {START}, or a time such as 2026-01-31T12:00:00Z"
    try:
        at_ms = moment_ms(text, UTC)
    except NoMoment as error:
        raise UsageError(f"--since {text} {error}", expected=expected) from error
    if at_ms > now_ms:
        raise UsageError(f"--since {text} is in the future", expected=expected)
    return at_ms
