"""Numbers, times and names of the command line, bounded where they are parsed.

None reaches a protocol that cannot hold it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from onceover.config.faults import Invalid
from onceover.config.units import parse_duration_ms
from onceover.errors import UsageError
from onceover.model import TopicPartition

MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_SHOWN: Final = 40
# A timer of Python's holds no more than 292 years.
_LONGEST_S: Final = 365 * 86_400.0
_TOPIC: Final = re.compile(r"[\w.-]{1,249}", re.ASCII)


def whole(what: str, low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``low`` to ``high``, for argparse.

    Args:
        what: is read, for the message of its ``UsageError``.
    """

    def parse(text: str) -> int:
        # Before int(): it refuses thousands of digits with an error of its own.
        number = int(text) if _WHOLE.fullmatch(text) else None
        if number is None or not low <= number <= high:
            raise UsageError(
                f"{short(text)} is no {what}", expected=f"a whole number, {low} or more, at most {high}"
            )
        return number

    return parse


def seconds(what: str, low: float, high: float) -> Callable[[str], float]:
    """Return a parser of seconds from ``low`` to ``high``; infinity and NaN are in no range."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            raise UsageError(f"{short(text)} is no {what}", expected=f"{low:g} to {high:g} seconds")
        return number

    return parse


def short(text: str) -> str:
    """Return what was typed for a message, however long it is."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def duration(what: str) -> Callable[[str], float]:
    """Return a parser of times such as ``10s``, in seconds; more than 0, and what a wait can hold."""

    def parse(text: str) -> float:
        try:
            found_s = parse_duration_ms(text) / 1000
        except Invalid:
            found_s = float("nan")
        if not 0 < found_s <= _LONGEST_S:
            raise UsageError(
                f"{what} {short(text)} is not understood",
                expected="more than 0 and at most 365d, with its unit, such as 500ms, 10s or 1m",
            )
        return found_s

    return parse


def name(what: str) -> Callable[[str], str]:
    """Return a parser of names that Kafka takes for a topic, or for a part of one."""

    def parse(text: str) -> str:
        if not _TOPIC.fullmatch(text):
            raise UsageError(
                f"{short(text)} is no {what}", expected="at most 249 letters, digits, dots, dashes and _"
            )
        return text

    return parse


def topic_partition(text: str) -> TopicPartition:
    """Read ``TOPIC:PARTITION``, for argparse.

    Raises:
        UsageError: not of that form, such as the topic alone.
    """
    topic, _, number = text.rpartition(":")
    if not _TOPIC.fullmatch(topic) or not number.isdecimal():
        example = f"{text}:0" if _TOPIC.fullmatch(text) else "flights.jfk:3"
        raise UsageError(
            f"{short(text)} names no partition",
            expected=f"TOPIC:PARTITION in one word, such as {example}",
        )
    return TopicPartition(topic, partition(number))


def topic_or_partition(text: str) -> tuple[str, int | None]:
    """Read ``TOPIC`` or ``TOPIC:PARTITION``, for argparse.

    Raises:
        UsageError: neither.
    """
    if ":" in text:
        return topic_partition(text)
    return topic(text), None


offset: Final = whole("offset", 0, MAX_OFFSET)
topic: Final = name("topic")
partition: Final = whole("partition", 0, MAX_PARTITION)
