"""In which order two offsets of a connector stand, for the shapes of which that is known. Pure.

Invariant: an order is claimed only where the connector itself goes by it. Of any other shape nobody can tell
a step back from a step on: such offsets have changed, and no more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Fields: TypeAlias = Mapping[str, Any]
Order: TypeAlias = int | None
_JDBC: Final = ("timestamp", "timestamp_nanos", "incrementing")
_POSITIONS: Final = (
    *("lsn_commit", "lsn", "gtids", "file", "pos", "commit_lsn", "change_lsn", "sec", "ord"),
    *_JDBC,
)
_GROWING: Final = ("position", "offset", "lsn", "scn", "seqno", "count")
_BINLOG: Final = re.compile(r"(.*\D)?(\d+)")
_NUMBER: Final = re.compile(r"[0-9]{1,20}")
_DOMAIN: Final = re.compile(r"([0-9]{1,10}-[0-9]{1,10})-([0-9]{1,20})")
_TAG: Final = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_LSN: Final = re.compile(r"[0-9a-fA-F]{8}:[0-9a-fA-F]{8}:[0-9a-fA-F]{4}")


def order(before: Fields, after: Fields) -> Order:
    """Return -1 where ``after`` lies before ``before``, 1 behind it, 0 at it; None where nobody can tell.

    Known are offsets of one number of a well-known name (Kafka's FileStreamSource, MirrorMaker), of Debezium
    for PostgreSQL, MySQL and MariaDB, SQL Server and MongoDB, and of the JDBC source.
    """
    for shape in (_one_number, _postgres, _mysql, _sqlserver, _mongodb, _jdbc):
        found = shape(before, after)
        if found is not None:
            return found
    return None


def position(fields: Fields) -> Fields:
    """Return those fields by which people know a position: all of them where the shape is not known."""
    known = {name: fields[name] for name in _POSITIONS if fields.get(name) is not None}
    return known or fields


def _one_number(before: Fields, after: Fields) -> Order:
    """Go by a number whose name says that it is a place in a log, or how much was read.

    Others begin anew at every start: RabbitMQ's source writes the ``deliveryTag`` of its channel. Taken for a
    step back, that would stop a connector with which all is well.
    """
    if len(before) != 1 or before.keys() != after.keys() or not before.keys() <= set(_GROWING):
        return None
    return _numbers(before, after, tuple(before))


def _postgres(before: Fields, after: Fields) -> Order:
    """Go by the last commit: events come in the order of commits, so their own positions go up and down."""
    by_commit = _numbers(before, after, ("lsn_commit",))
    by_event = _numbers(before, after, ("lsn",))
    if by_commit:
        return by_commit
    # Of a transaction that may have begun before the one that was committed last.
    return None if by_commit == 0 and by_event == -1 else by_event


def _mysql(before: Fields, after: Fields) -> Order:
    if before.get("gtids") or after.get("gtids"):
        return _gtids(before.get("gtids"), after.get("gtids"))
    files = [_BINLOG.fullmatch(str(each.get("file", ""))) for each in (before, after)]
    if files[0] is None or files[1] is None or files[0][1] != files[1][1]:
        return None
    by_position = _numbers(before, after, ("pos",))
    # Another server numbers its files for itself.
    if by_position is None or before.get("server_id") != after.get("server_id"):
        return None
    by_file = _sign(int(files[1][2]) - int(files[0][2]))
    rest = [_numbers({name: 0, **before}, {name: 0, **after}, (name,)) for name in ("event", "row")]
    return next((each for each in (by_file, by_position, *rest) if each), 0)


def _gtids(before: Any, after: Any) -> Order:
    """Go by what has been executed: one set holds the other, or nobody can tell."""
    one, other = _transactions(before), _transactions(after)
    if one is None or other is None:
        return None
    more, less = _covers(other, one), _covers(one, other)
    return 0 if more and less else 1 if more else -1 if less else None


def _transactions(text: Any) -> dict[str, list[tuple[int, int]]] | None:
    """Return the intervals of each server: in MySQL's notation, ``uuid:1-5:7,uuid:tag:1``, whose tags count
    for themselves, or in MariaDB's, ``domain-server-sequence``, where all before a number is in.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for part in str(text or "").replace("\n", "").split(","):
        if domain := _DOMAIN.fullmatch(part.strip()):
            found.setdefault(domain[1], []).append((0, int(domain[2])))
            continue
        server, *spans = part.strip().lower().split(":")
        whose = server
        if not server or not spans or _TAG.fullmatch(spans[-1]):
            return None
        for span in spans:
            if _TAG.fullmatch(span):
                whose = f"{server}:{span}"
                continue
            ends = span.split("-")
            if not all(_NUMBER.fullmatch(end) for end in ends) or len(ends) > 2:
                return None
            found.setdefault(whose, []).append((int(ends[0]), int(ends[-1])))
    return found


def _covers(one: Mapping[str, list[tuple[int, int]]], other: Mapping[str, list[tuple[int, int]]]) -> bool:
    return all(
        any(first <= low and high <= last for first, last in one.get(server, ()))
        for server, spans in other.items()
        for low, high in spans
    )


def _sqlserver(before: Fields, after: Fields) -> Order:
    for name in ("commit_lsn", "change_lsn"):
        one, other = str(before.get(name)), str(after.get(name))
        if not _LSN.fullmatch(one) or not _LSN.fullmatch(other):
            return None
        if one.lower() != other.lower():
            return 1 if other.lower() > one.lower() else -1
    return _numbers(before, after, ("event_serial_no",))


def _mongodb(before: Fields, after: Fields) -> Order:
    return _numbers(before, after, ("sec", "ord"))


def _jdbc(before: Fields, after: Fields) -> Order:
    if not before.keys() == after.keys() <= set(_JDBC):
        return None
    return _numbers(before, after, tuple(name for name in _JDBC if name in before))


def _numbers(before: Fields, after: Fields, names: tuple[str, ...]) -> Order:
    """Compare numbers, the first one first; None where one of them is none, or there is none."""
    pairs: list[tuple[Any, Any]] = [(before.get(name), after.get(name)) for name in names]
    if not pairs or not all(type(each) in (int, float) for pair in pairs for each in pair):
        return None
    return next((step for one, other in pairs if (step := _sign(other - one))), 0)


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)
