"""What happened, in the order in which it was known: a JSON document a line, to be read by the checker."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.chaos.checker import Fate, Place, Sent


class History:
    """Appends to a file; remembers what became of each record. Safe for several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sent: dict[str, Sent] = {}
        self._lock = threading.Lock()
        self._begun_s = time.monotonic()
        self._file = path.open("a", encoding="utf-8")

    def note(self, what: str, **facts: object) -> None:
        """Write down one event."""
        event = {"at_ms": int((time.monotonic() - self._begun_s) * 1000), "what": what, **facts}
        with self._lock:
            self._file.write(json.dumps(event) + "\n")

    def sending(self, place: Place, names: Iterable[str]) -> None:
        """Note records before they leave: from now on they may be there."""
        names = list(names)
        with self._lock:
            self.sent.update((name, Sent(place, Fate.UNKNOWN)) for name in names)
        self.note("sending", topic=place.topic, partition=place.partition, records=names)

    def became(self, fate: Fate, names: Iterable[str]) -> None:
        """Note what their client was told of records."""
        names = list(names)
        with self._lock:
            self.sent.update((name, self.sent[name]._replace(fate=fate)) for name in names)
        self.note("became", fate=fate, records=names)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def events(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a history."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def fates(happened: Iterable[Mapping[str, Any]]) -> dict[str, Sent]:
    """Return what became of each record, as a history tells it."""
    sent: dict[str, Sent] = {}
    for event in happened:
        if event["what"] == "sending":
            place = Place(event["topic"], event["partition"])
            sent.update((name, Sent(place, Fate.UNKNOWN)) for name in event["records"])
        elif event["what"] == "became":
            fate = Fate(event["fate"])
            sent.update((name, sent[name]._replace(fate=fate)) for name in event["records"])
    return sent
