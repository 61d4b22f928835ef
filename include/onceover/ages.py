"""Ages and times for people: one way to say them, wherever they are shown. Machines get numbers. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400
_YEAR_S: Final = 365 * _DAY_S
# Below this a tenth of a second means something.
_TENTHS_BELOW_S: Final = 10.0
_UNITS: Final = (
    (_YEAR_S, "y", _DAY_S, "d"),
    (_DAY_S, "d", _HOUR_S, "h"),
    (_HOUR_S, "h", _MINUTE_S, "min"),
    (_MINUTE_S, "min", 1, "s"),
)


def age_text(seconds: float) -> str:
    """Return an age in at most two units: ``13 y 286 d``, ``4 min 12 s``, ``1.3 s``.

    Negative ages, of clocks that disagree, are none: ``0.0 s``.
    """
    seconds = max(0.0, seconds)
    if round(seconds, 1) < _TENTHS_BELOW_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit_s, name, lesser_s, lesser_name in _UNITS:
        if whole >= unit_s:
            count, rest = divmod(whole, unit_s)
            rest //= lesser_s
            return f"{count} {name} {rest} {lesser_name}" if rest else f"{count} {name}"
    return f"{whole} s"


def moment_text(time_ms: float, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Return a time in UTC; of a number that is none, the number: whoever may write to a topic may write it.

    Args:
        time_ms: in ms since 1970.
        form: as of ``strftime``.
    """
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"no time ({time_ms})"


def exact_text(time_ms: int) -> str:
    """Return a time in UTC as ``moment_text`` does, to the millisecond."""
    return moment_text(time_ms, f"%Y-%m-%d %H:%M:%S.{time_ms % 1000:03} UTC")


class NoMoment(ValueError):
    """A text is no time that Kafka knows; the message goes on behind that text."""


def moment_ms(text: str, zone: tzinfo | None = None) -> int:
    """Return a time that a person has typed, in whole ms since 1970.

    Args:
        text: an ISO 8601 time or date.
        zone: of a text that names none; None where it has to.

    Raises:
        NoMoment: it is none, names no zone and would mean another instant elsewhere, or is before 1970: Kafka
            takes -1 for the end of a log and -2 for its start.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise NoMoment("is no ISO time") from None
    at = at.replace(tzinfo=at.tzinfo or zone)
    if at.tzinfo is None:
        raise NoMoment("names no zone, and every machine would read it differently")
    found_ms = (at - _EPOCH) // timedelta(milliseconds=1)
    if found_ms < 0:
        raise NoMoment("is before 1970")
    return found_ms
