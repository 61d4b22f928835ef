"""Checks of single flow-file values, each saying in plain words what it wants.

They run before pydantic's own conversion, so that every message is ours and none shows a value.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from croniter import CroniterBadDateError, CroniterError, croniter

from onceover.ages import NoMoment, moment_ms
from onceover.config.faults import Invalid
from onceover.config.units import parse_duration_ms, parse_size_bytes
from onceover.hosts import HOST

# The shortest of what carries a name: 100 characters in a tag of Airflow, which a flow's DAGs have. 250 in a
# DAG's id and a run's name, 249 in a topic's, 255 in a folder's, each with more around the name.
MAX_FLOW_NAME: Final = 100
NAME: Final = re.compile(rf"(?=.{{1,{MAX_FLOW_NAME}}}\Z)[a-z0-9][a-z0-9-]*")
NAME_RULE: Final = (
    f"lower-case letters, digits and hyphens, not beginning with a hyphen, at most {MAX_FLOW_NAME} characters"
)
# What `make up`, `onceover demo` and Connect migrations keep beside the flows, or call themselves.
RESERVED_NAMES: Final = ("airflow", "clusters", "connect", "connect-run", "demo")
_ALIAS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CONNECTION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HANDLER: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_MASTER: Final = re.compile(
    r"local(\[([1-9][0-9]{0,3}|\*)(,[1-9][0-9]{0,3})?\])?"
    rf"|spark://{HOST}:[0-9]{{1,5}}(,{HOST}:[0-9]{{1,5}})*"
    # Spark takes http:// as well, and would hand the job's secret to the API's server for all to hear.
    rf"|yarn|k8s://(https://)?{HOST}(:[0-9]{{1,5}})?(/[A-Za-z0-9._~/-]*)?"
)
_PRESETS: Final = (
    "@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly",
)  # fmt: skip
# The next run begins when the last one has ended.
CONTINUOUS: Final = "@continuous"
_TIMELESS: Final = frozenset({"@once", CONTINUOUS})
# Each flow at a time of its own, made of its name: at midnight all audits of all flows would start together.
_CRON_OF: Final = {
    "@hourly": "{minute} * * * *",
    "@daily": "{minute} {hour} * * *",
    "@weekly": "{minute} {hour} * * 0",
    "@monthly": "{minute} {hour} 1 * *",
    "@quarterly": "{minute} {hour} 1 */3 *",
    "@yearly": "{minute} {hour} 1 1 *",
}
_MINUTES_A_DAY: Final = 24 * 60
_SCHEDULE_FIX: Final = f'null, a cron expression such as "0 3 * * *", or one of: {", ".join(_PRESETS)}'
_CRON_FIELDS: Final = 5
# Airflow shows it in a column. What is read of longer ones ends in Python's own errors, and takes its time.
_LONGEST_SCHEDULE: Final = 100
# What croniter draws anew each time it reads the expression, or wants a seed for.
_DRAWN: Final = re.compile(r"(?<![a-z])[hr](?![a-z])", re.IGNORECASE)
# One that has a 29 February among the next four years, which is the longest that a schedule can wait.
_CRON_START: Final = datetime(2026, 1, 1, tzinfo=UTC)

# Where the longest wait of a schedule is looked for: a month of nights and weekends, a year of months, and of
# one that comes each minute two working days with the weekend behind them. Each takes half a millisecond.
_ALL_WAITS: Final = timedelta(days=32)
_FEWEST_TIMES: Final = 12
_MOST_TIMES: Final = 3_000

# A set of characters, ended or not, or what cannot begin one; the first bracket in it does not end it.
_SETS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\\?(?:\]|\Z)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_WITHIN_SET: Final = re.compile(r"\[|&&|\|\||~~|--")

Parser = Callable[[Any], Any]


_PRINCIPAL: Final = re.compile(r"[A-Za-z]+:[^\n\r]+")


@dataclass(frozen=True, slots=True)
class Rpo:
    """How much may be missing on the target after a failover: records or a time, not both."""

    records: int | None = None
    age_ms: int | None = None


def text(value: object) -> str:
    """Return a non-empty string.

    Raises:
        Invalid: another type, or only blanks.
    """
    if not isinstance(value, str) or not value.strip():
        raise Invalid("expected a text", "write a text in quotes")
    if "\0" in value:
        # Neither a path nor a program's argument can hold one, and both say so in words of their own.
        raise Invalid("holds a NUL character", "write it without")
    return value


def texts(value: object) -> tuple[str, ...]:
    """Return a list of texts, such as a program and its arguments.

    Raises:
        Invalid: no list, or one of them is no text.
    """
    if not isinstance(value, list):
        raise Invalid("expected a list of texts", 'write ["./switch", "--really"]')
    return tuple(text(each) for each in value)


def principals(value: object) -> tuple[str, ...]:
    """Return principals as ACLs name them.

    Raises:
        Invalid: none, or one without a type.
    """
    found = texts(value)
    if not found or not all(_PRINCIPAL.fullmatch(each) for each in found):
        raise Invalid("expected a list of principals with their type", 'write ["User:*"] or ["User:orders"]')
    return found


def boolean(value: object) -> bool:
    """Return ``true`` or ``false``.

    Raises:
        Invalid: anything else, ``yes`` in quotes included.
    """
    named = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in named:
        return named[value.lower()]
    raise Invalid("expected true or false", "write true or false without quotes")


def whole(low: int, high: int, why: str = "") -> Parser:
    """Return a parser of whole numbers from ``low`` to ``high``; ``why`` explains the border."""

    def parse(value: object) -> int:
        digits = isinstance(value, str) and re.fullmatch(r"[0-9]{1,10}", value)
        number = int(value) if isinstance(value, str) and digits else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise Invalid(f"expected a whole number from {low} to {high}{_because(why)}", f"e.g. {low}")
        return number

    return parse


def replication_factor(value: object) -> int:
    """Return a replication factor; -1 leaves it to the cluster."""
    if value in (-1, "-1") and not isinstance(value, bool):
        return -1
    return int(whole(1, 15, "or -1 for the cluster's own default")(value))


def duration(low: str, high: str, why: str = "") -> Parser:
    """Return a parser of durations from ``low`` to ``high`` that yields milliseconds."""
    low_ms, high_ms = parse_duration_ms(low), parse_duration_ms(high)

    def parse(value: object) -> int:
        value_ms = parse_duration_ms(value)
        if not low_ms <= value_ms <= high_ms:
            raise Invalid(f"out of range{_because(why)}", f"choose a duration from {low} to {high}")
        return value_ms

    return parse


def size(low: str, high: str, why: str = "") -> Parser:
    """Return a parser of sizes from ``low`` to ``high`` that yields bytes."""
    low_bytes, high_bytes = parse_size_bytes(low), parse_size_bytes(high)

    def parse(value: object) -> int:
        value_bytes = parse_size_bytes(value)
        if not low_bytes <= value_bytes <= high_bytes:
            raise Invalid(f"out of range{_because(why)}", f"choose a size from {low} to {high}")
        return value_bytes

    return parse


def optional(parser: Parser) -> Parser:
    """Return ``parser`` extended by ``null``."""
    return lambda value: None if value is None else parser(value)


def matching(pattern: re.Pattern[str], problem: str, fix: str) -> Parser:
    """Return a parser of texts that match ``pattern`` as a whole."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise Invalid(problem, fix)
        return value

    return parse


def choice(*values: str) -> Parser:
    """Return a parser that accepts exactly ``values``."""

    def parse(value: object) -> str:
        if value not in values:
            raise Invalid("not a valid value", f"one of: {', '.join(values)}")
        return value

    return parse


def patterns(value: object) -> tuple[str, ...]:
    """Return a list of regular expressions, each of which compiles.

    Raises:
        Invalid: no list, an entry that is no text, or one that is no regular expression.
    """
    if not isinstance(value, (list, tuple)):
        raise Invalid("expected a list of regular expressions", 'write a list, e.g. ["orders", "flights.*"]')
    return tuple(_pattern(number, entry) for number, entry in enumerate(value, start=1))


def some_patterns(value: object) -> tuple[str, ...]:
    """Return :func:`patterns`, at least one.

    Raises:
        Invalid: as :func:`patterns`, or an empty list.
    """
    found = patterns(value)
    if not found:
        raise Invalid("is empty, so nothing would be copied", 'name at least one topic, e.g. ["flights.*"]')
    return found


def start(value: object) -> str:
    """Return ``earliest``, ``latest`` or ``timestamp:<ISO time with zone>``.

    Raises:
        Invalid: another word, or a time without zone.
    """
    if isinstance(value, str) and value in ("earliest", "latest"):
        return value
    if not isinstance(value, str) or not value.startswith("timestamp:"):
        raise Invalid(
            "not a valid start",
            "one of: earliest, latest, timestamp:<time>, e.g. timestamp:2026-01-01T00:00:00Z",
        )
    start_timestamp_ms(value)
    return value


def start_timestamp_ms(value: str) -> int | None:
    """Return the milliseconds since 1970 of ``timestamp:...``, ``None`` for the other starts.

    Raises:
        Invalid: no ISO time, no zone, or a time before 1970.
    """
    kind, _, stamp = value.partition(":")
    if kind != "timestamp":
        return None
    fix = "write an ISO time with its zone, e.g. timestamp:2026-01-01T00:00:00Z or ...+01:00"
    try:
        return moment_ms(stamp)
    except NoMoment as error:
        raise Invalid(f"the time {error}", fix) from None


def on_bad_record(value: object) -> str:
    """Return ``stop`` or ``dead_letter:<topic>``.

    Raises:
        Invalid: another word, or no valid topic name.
    """
    if isinstance(value, str):
        kind, _, topic = value.partition(":")
        if value == "stop" or (kind == "dead_letter" and _TOPIC.fullmatch(topic)):
            return value
    raise Invalid("not a valid value", "one of: stop, dead_letter:<topic>")


def schedule(value: object) -> str:
    """Return an Airflow preset (``@daily``) or a cron expression of five fields.

    Read by the library that Airflow reads it with: what this lets through makes no DAG fail.

    Raises:
        Invalid: neither, or one that never comes.
    """
    if not isinstance(value, str):
        raise Invalid("not a schedule", _SCHEDULE_FIX)
    if value in _PRESETS:
        return value
    # Airflow would take seconds, too, as a sixth field: starting Spark takes longer than that.
    too_long = len(value) > _LONGEST_SCHEDULE
    if too_long or len(value.split()) != _CRON_FIELDS or _DRAWN.search(value):
        raise Invalid("not a schedule", _SCHEDULE_FIX)
    try:
        croniter(value, _CRON_START).get_next(datetime)
    except CroniterError as error:
        # Its words name field and range; a schedule is no secret.
        raise Invalid(f"not a schedule ({_said(error)})", _SCHEDULE_FIX) from None
    return value


def spread(schedule: str, flow: str) -> str:
    """Return a schedule of a flow file with the flow's own time in the place of midnight.

    What names no time (``@daily``) is the same time in every process and on every machine, of a flow; flows
    are spread over the hour or the day. A cron expression is meant as it stands.
    """
    cron = _CRON_OF.get(schedule)
    if cron is None:
        return schedule
    hour, minute = divmod(zlib.crc32(flow.encode()) % _MINUTES_A_DAY, 60)
    return cron.format(hour=hour, minute=minute)


def next_time(schedule: str | None, flow: str, now: datetime) -> datetime | None:
    """Return when a schedule of a flow's file comes next; None for one that waits for no time of day."""
    if schedule is None or schedule in _TIMELESS:
        return None
    found: datetime = croniter(spread(schedule, flow), now).get_next(datetime)
    return found


@lru_cache(maxsize=256)
def longest_wait(schedule: str | None) -> timedelta | None:
    """Return the longest time between two starts that a schedule asks for; None as ``next_time`` does."""
    # As long for one flow as for another.
    before = next_time(schedule, "", _CRON_START)
    if schedule is None or before is None:
        return None
    times = croniter(spread(schedule, ""), before)
    longest, end = timedelta(), before + _ALL_WAITS
    for number in range(_MOST_TIMES):
        at = times.get_next(datetime)
        longest, before = max(longest, at - before), at
        if at > end and number >= _FEWEST_TIMES:
            break
    return longest


def rpo(value: object) -> Rpo:
    """Return an objective such as ``0 records`` or ``30s``.

    Raises:
        Invalid: neither a number of records nor a duration.
    """
    if isinstance(value, Rpo):
        return value
    match = re.fullmatch(r"([0-9]{1,15}) records?", value) if isinstance(value, str) else None
    if match:
        return Rpo(records=int(match.group(1)))
    try:
        return Rpo(age_ms=parse_duration_ms(value))
    except Invalid:
        raise Invalid("expected a number of records or a duration", 'write "0 records" or "30s"') from None


def mapping(value: object) -> dict[str, Any]:
    """Return a mapping of keys.

    Raises:
        Invalid: a list, text, number or nothing.
    """
    if not isinstance(value, dict):
        raise Invalid("expected keys with values", "write {key: value} or indented lines of key: value")
    return value


topic: Final = matching(_TOPIC, "not a topic's name", "at most 249 letters, digits, dots, dashes and _")
_flow_name: Final = matching(NAME, "not a valid flow name", NAME_RULE)


def flow_name(value: object) -> str:
    """Return the name of a flow, which is its folder's name below ``ONCEOVER_HOME``, too.

    Raises:
        Invalid: it does not look like one, or is the name of a folder that is there already.
    """
    name: str = _flow_name(value)
    if name in RESERVED_NAMES:
        raise Invalid(
            "is the name of a folder in ONCEOVER_HOME that is not a flow's",
            f"choose another name; reserved: {', '.join(RESERVED_NAMES)}",
        )
    return name


connect_name: Final = matching(NAME, "not a valid name", NAME_RULE)
alias: Final = matching(
    _ALIAS, "not a valid alias", "a short name of letters, digits, hyphens and underscores, e.g. east"
)
connection_id: Final = matching(
    _CONNECTION, "not a Connection id", "letters, digits, underscores, dots and hyphens"
)
handler: Final = matching(_HANDLER, "not a function", 'write "package.module:function" or null')
master: Final = matching(
    _MASTER,
    "not a Spark master that a flow can run on",
    "one of: local, local[4], spark://host:port, yarn, k8s://https://host:port",
)


# Begins a name that somebody has given a group, in the compiler's words.
_QUOTE: Final = " '"


def _pattern(number: int, entry: object) -> str:
    if not isinstance(entry, str) or not entry:
        raise Invalid(f"entry {number} is not a text", "write each regular expression in quotes")
    if entry != entry.strip():
        # Nobody sees them where a message says that nothing matches.
        raise Invalid(
            f"entry {number} begins or ends with spaces",
            "write it without; a space that is meant is written [ ]",
        )
    if _has_nested_set(entry):
        raise Invalid(
            f"entry {number} has a set within a set ([a-z&&[^x]], [[:alpha:]]), which is read otherwise here "
            "than by Java and others",
            "write it without; a bracket that is meant is written \\[",
        )
    try:
        re.compile(entry)
    except (re.error, OverflowError, RecursionError) as error:
        # The last two: a repetition above 2^32, and parentheses too deep for the compiler.
        why = str(error)
        if isinstance(error, re.error):
            why = f"{error.msg.partition(_QUOTE)[0]} at position {error.pos}"
        raise Invalid(
            f"entry {number} is not a regular expression ({why})",
            "correct it; a literal character is written with a backslash, e.g. orders\\.v1",
        ) from None
    return entry


def _has_nested_set(entry: str) -> bool:
    """Tell whether any set of characters holds another one, or an operator for sets.

    Python takes both for characters. Of some it warns, once a process and on standard error.
    """
    sets = (found for found in _SETS.findall(entry) if found.startswith("["))
    return any(_WITHIN_SET.search(_ESCAPED.sub("", each[1:])) for each in sets)


def _said(error: CroniterError) -> str:
    """Return croniter's objection without the expression, which is shown beside it anyway."""
    if isinstance(error, CroniterBadDateError):
        return "names a day that never comes"
    return re.sub(r"^\[.*?\] ", "", str(error))


def _because(why: str) -> str:
    return f" ({why})" if why else ""
