"""The demo's flights, flowing into cluster ``east`` from a process of their own.

The first part comes at once, the rest at a gentle rate, and then the process ends. Stopped and started again
it goes on where it was; at the end of the data it begins anew. A consumer group reads some of it, so that
there is one to move, and the connector's file grows, so that a migrated connector is seen to go on.

Guarantee: it ends itself; ``down`` ends it earlier, with its open transaction committed.
"""

from __future__ import annotations

import json
import operator
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from onceover.errors import OnceoverError, Retriable
from onceover.process.children import ChildProcess, tail
from onceover_lab.demo.connector import connector_file, lengthen
from onceover_lab.demo.feed import Feeder, create_topics
from onceover_lab.demo.flights import FLIGHTS, JFK, TOPICS, read_flights
from onceover_lab.embed.registry import read_or_none
from onceover_lab.embed.security import write_private
from onceover_lab.embed.service import Service

FIRST_RECORDS: Final = 40_000
RECORDS_PER_S: Final = 100
GROUP: Final = "flights-board"
GROUP_RECORDS: Final = 2_000
_FIRST_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.2
_WRITE_EVERY_S: Final = 1.0
_TIMEOUT_S: Final = 30.0
_STATE_FILE: Final = "feed.json"
_LOG_FILE: Final = "feed.log"
_MODULE: Final = ("-m", "onceover_lab.demo.feeding")


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """How far the feed is.

    Args:
        state: ``feeding``, ``complete``, ``stopped`` or ``failed``.
        fed: flights of the data set that were fed, of ``of``.
        first_fed: whether the first part of this run is on the source.
    """

    state: str
    fed: int
    of: int = FLIGHTS
    first_fed: bool = False
    message: str | None = None

    def describe(self) -> str:
        """Return it as one line for people."""
        share = f"{self.fed:,} of {self.of:,} flights"
        texts = {
            "feeding": f"running, {share}, {RECORDS_PER_S} a second",
            "complete": f"complete, {share}",
            "stopped": f"stopped after {share}",
        }
        return texts.get(self.state, f"failed after {share}: {self.message}")


def up(home: Path, bootstrap: str) -> FeedStatus:
    """Start the feed unless it runs; return when its first part is on the source.

    Raises:
        UsageError: the demo's data are not installed.
        Retriable: it failed; the text carries the end of its log.
    """
    # In this process, because nobody sees what the other one raises.
    next(read_flights(1))
    service = _service(home)
    if not service.alive:
        service.end()
        service.folder.mkdir(parents=True, exist_ok=True)
        before = _read(home)
        begin = before.fed if before is not None and before.fed < FLIGHTS else 0
        _write(service.argument, FeedStatus("feeding", begin))
        command = [sys.executable, *_MODULE, bootstrap, str(service.argument), str(connector_file(home))]
        log = service.folder / _LOG_FILE
        child = ChildProcess.start(command, name="feed", log_path=log, detached=True)
        service.record(child.pid)
    return _await_first(home)


def down(home: Path) -> bool:
    """End the feed; return whether it ran."""
    return _service(home).end()


def status(home: Path) -> FeedStatus | None:
    """Return how far the feed is, None when there never was one."""
    status = _read(home)
    if status is None or status.state != "feeding" or _service(home).alive:
        return status
    return replace(status, state="failed", message="its process was killed")


def feed(bootstrap: str, path: Path, file: Path) -> int:
    """Feed all that is left, or until SIGTERM; keep in ``path`` how far it is. Return the exit code.

    ``file`` is the connector's: an airport a second.
    """
    begin = _parse(json.loads(path.read_text(encoding="utf-8"))).fed
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    client = {"bootstrap.servers": bootstrap}
    present = AdminClient(client).list_topics(timeout=_TIMEOUT_S).topics
    create_topics(client, [topic for topic in TOPICS if topic.name not in present])
    left = FLIGHTS - begin
    first = min(FIRST_RECORDS, left)
    seconds = max(1.0, (left - first) / RECORDS_PER_S)
    flights = islice(read_flights(), begin, None)
    feeder = Feeder(client, flights, expected=left, seconds=seconds, first=first)
    feeder.start()
    feeder.release()
    read, airports = False, lengthen(file)
    # The first part takes some seconds: a look this often lets whoever waits for it go on soon.
    while feeder.is_alive() and not stopping.wait(_WRITE_EVERY_S if feeder.first_fed else _POLL_S):
        if feeder.first_fed and not read:
            _read_by_group(client)
            read = True
        if feeder.first_fed:
            next(airports)
        _write(path, FeedStatus("feeding", begin + feeder.taken, first_fed=read))
    return _end(feeder, path, begin)


def _read_by_group(client: Mapping[str, str]) -> None:
    """Read some flights as a group would, commit where it stands, and leave it without a member."""
    consumer = Consumer({**client, "group.id": GROUP, "auto.offset.reset": "earliest", "log_level": 2})
    try:
        consumer.subscribe([JFK.name])
        deadline, seen = time.monotonic() + _TIMEOUT_S, 0
        while seen < GROUP_RECORDS and time.monotonic() < deadline:
            seen += len(consumer.consume(GROUP_RECORDS - seen, timeout=_POLL_S))
        if seen:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def _end(feeder: Feeder, path: Path, begin: int) -> int:
    feeder.stop()
    try:
        feeder.result()
    except OnceoverError as error:
        _write(path, FeedStatus("failed", begin + feeder.taken, message=str(error)))
        return error.exit_code
    fed = begin + feeder.taken
    state = "complete" if fed >= FLIGHTS else "stopped"
    _write(path, FeedStatus(state, fed, first_fed=feeder.first_fed))
    return 0


def _await_first(home: Path) -> FeedStatus:
    deadline = time.monotonic() + _FIRST_TIMEOUT_S
    while True:
        found = status(home)
        if found is not None and (found.first_fed or found.state == "complete"):
            return found
        if found is None or found.state != "feeding" or time.monotonic() >= deadline:
            log = _service(home).folder / _LOG_FILE
            raise Retriable(
                "the flights do not flow",
                where=str(log),
                seen="; ".join(filter(None, [found.message if found else None, tail(log, 10)])),
                resolve="onceover clusters status, then start it again",
            )
        time.sleep(_POLL_S)


def _service(home: Path) -> Service:
    folder = home.resolve() / "clusters" / "feed"
    return Service(folder, folder / _STATE_FILE, ("python", *_MODULE))


def _read(home: Path) -> FeedStatus | None:
    return read_or_none(_service(home).argument, _parse)


def _parse(document: Mapping[str, Any]) -> FeedStatus:
    """Read what ``_write`` wrote.

    Raises:
        KeyError, TypeError: it is something else.
    """
    fields: dict[str, Any] = {**document, "fed": operator.index(document["fed"])}
    return FeedStatus(**fields)


def _write(path: Path, status: FeedStatus) -> None:
    write_private(path, json.dumps(asdict(status)).encode())


if __name__ == "__main__":
    sys.exit(feed(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
