"""One pair of clusters for all workers of pytest-xdist, kept by the process that leads them.

A broker that idles takes three hundredths of a core, and a new one is slow until its code is compiled: a pair
for each worker cost a tenth of the whole run. Tests need nothing of them for themselves but names, which are
unique.

What a test leaves makes every look at all topics, or all flows, dearer for those behind it, so it is deleted.

Invariant: the clusters are started when the first worker wants them, as unit tests want none, and once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.brokers.clusters import ExternalCluster, SharedCluster
from tests.support.session.background import Background
from tests.support.session.wait import wait_until

# What the leader tells its workers with their configuration: where to ask.
WORKER_KEY: Final = "onceover_clusters"
_WANTED: Final = "wanted"
_ANSWER: Final = "clusters.json"
_LOOK_S: Final = 0.1
# Below the time-out of a test, so that it is told what it waits for.
_START_TIMEOUT_S: Final = 240.0
_FORGET_TIMEOUT_S: Final = 30.0

Start = Callable[[], AbstractContextManager[Mapping[str, SharedCluster]]]


class Host(Background):
    """In the leading process: starts the clusters as soon as a worker wants them.

    Args:
        folder: where it is asked and answers; an empty one.
        start: starts both; they end when this is closed.
    """

    def __init__(self, folder: Path, start: Start) -> None:
        super().__init__("clusters", _LOOK_S)
        self.folder = folder
        self._begin = start
        self._clusters = ExitStack()

    def step(self) -> None:
        """Look whether somebody asks, and answer once."""
        if not (self.folder / _WANTED).exists():
            return
        try:
            started = self._clusters.enter_context(self._begin())
        except BaseException as error:
            self._answer({"error": str(error)})
            raise
        self._answer({name: [c.bootstrap, c.cluster_id] for name, c in started.items()})
        self.ask_to_end()

    def close(self) -> None:
        """End the clusters, if they were started; raise what kept them from it."""
        with self._clusters:
            self.end()

    def _answer(self, document: dict[str, Any]) -> None:
        partial = self.folder / f"{_ANSWER}.partial"
        partial.write_text(json.dumps(document))
        partial.replace(self.folder / _ANSWER)


@contextmanager
def hosted_clusters(folder: Path) -> Iterator[Mapping[str, SharedCluster]]:
    """Yield the clusters of the leading process; in a worker.

    Raises:
        RuntimeError: it could not start them.
    """
    (folder / _WANTED).touch()
    answer = folder / _ANSWER
    wait_until(answer.exists, _START_TIMEOUT_S, "the clusters of all workers", poll_s=_LOOK_S)
    document: dict[str, Any] = json.loads(answer.read_text())
    if "error" in document:
        raise RuntimeError(f"no clusters: {document['error']}")
    yield {name: ExternalCluster(*place) for name, place in document.items()}


def forget(bootstrap: str, name: str) -> None:
    """Have the topics of a cluster deleted whose names hold ``name``; nobody waits until they are gone."""
    admin = _admin(bootstrap)
    left = [topic for topic in admin.list_topics(timeout=_FORGET_TIMEOUT_S).topics if name in topic]
    if left:
        _await(admin.delete_topics(left))


def forget_groups(bootstrap: str, name: str) -> None:
    """Delete the groups of a cluster whose names hold ``name``, but for those that are in use."""
    admin = _admin(bootstrap)
    known = admin.list_consumer_groups().result(_FORGET_TIMEOUT_S).valid
    if left := [group.group_id for group in known if name in group.group_id]:
        _await(admin.delete_consumer_groups(left))


def _await(deleted: Mapping[str, Any]) -> None:
    for future in deleted.values():
        with suppress(KafkaException):  # gone by itself, or in use
            future.result(_FORGET_TIMEOUT_S)


@cache
def _admin(bootstrap: str) -> AdminClient:
    # It is kept until the process ends, when the brokers are gone: nobody has to hear of that.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
