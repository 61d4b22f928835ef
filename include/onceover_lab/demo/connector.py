"""The demo's connector: Kafka's own file source, which copies a file of airports to ``flights.airports``.

Its offsets are in the topic that all connectors share, which is where a migration begins. Whether it goes on
from there shows only when it has something to read: while the demo's flights flow, so do airports.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Final

import httpx

from onceover.errors import Retriable
from onceover_lab.demo.flights import data_directory

CONNECTOR: Final = "airports"
TOPIC: Final = "flights.airports"
_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.3


def connector_file(home: Path) -> Path:
    """Return the file that the connector reads."""
    return home.resolve() / "clusters" / "connect" / "airports.csv"


def lengthen(file: Path) -> Iterator[None]:
    """Write an airport to the end of the connector's file at each turn; the first follows the last."""
    _, *airports = (data_directory() / "airports.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    for airport in cycle(airports):
        with file.open("a", encoding="utf-8") as end:
            end.write(airport)
        yield


def create_connector(url: str, file: Path) -> None:
    """Create the connector with its ``file``; one that is there is left as it is.

    Raises:
        UsageError: the demo's data are not installed.
        Retriable: the worker refused or did not answer.
    """
    if not file.exists():
        shutil.copyfile(data_directory() / "airports.csv", file)
    settings = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(file),
        "topic": TOPIC,
        "exactly.once.support": "required",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.retention.ms": "-1",
    }
    try:
        with httpx.Client(base_url=url, timeout=_TIMEOUT_S) as client:
            _create(client, {"name": CONNECTOR, "config": settings})
    except httpx.HTTPStatusError as error:
        raise Retriable(
            f"connector {CONNECTOR} could not be created", where=url, seen=error.response.text
        ) from error
    except httpx.HTTPError as error:
        raise Retriable("Kafka Connect does not answer", where=url, seen=str(error)) from error


def _create(client: httpx.Client, body: Mapping[str, object]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while CONNECTOR not in client.get("/connectors").raise_for_status().json():
        answer = client.post("/connectors", json=body)
        # A conflict is a rebalance, or a worker that has just come back and lists its connectors in a moment.
        if answer.status_code != httpx.codes.CONFLICT or time.monotonic() >= deadline:
            answer.raise_for_status()
            return
        time.sleep(_POLL_S)
