"""A flow between the two shared clusters and an adversary on each side: what most integration tests need."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from onceover.cli import main as command_line
from onceover.copy.loop import Until
from onceover.errors import Retriable
from onceover.lead.supervisor import Supervisor
from onceover.state.records.layout import Layout
from onceover.wire.offsetmap import MapRecord
from tests.support.flows.flows import InlineFlow, Outcome, assert_same, write_flow
from tests.support.raw.adversary import Adversary
from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0
_LIVE_TIMEOUT_S = 60.0
_TICK_S = 0.1
# Above log.cleaner.backoff.ms of the test brokers (500 ms): a log that did not change for this long is clean.
_CLEANER_QUIET_S = 0.7


class Seen(NamedTuple):
    """A record as an independent read_committed consumer meets it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_type: int
    timestamp_ms: int


class Live:
    """A flow that runs beside the test, as its driver and Spark would run it. Ends by a stop request."""

    def __init__(self, flow: InlineFlow, seconds: float) -> None:
        self.receipts: list[MapRecord] = []
        self._flow = flow
        self._deadline_s = time.monotonic() + seconds
        self._ready, self._stopping = threading.Event(), threading.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._guarded, args=(self._lead,), name="live", daemon=True)

    @property
    def records(self) -> int:
        """Records copied; complete once the flow has ended."""
        return sum(receipt.records for receipt in self.receipts)

    @property
    def alive(self) -> bool:
        """True until it ends or fails."""
        return self._thread.is_alive() and not self._failures

    def start(self) -> None:
        """Start it and wait until its topics are enrolled."""
        self._thread.start()
        self._ready.wait(_LIVE_TIMEOUT_S)

    def stop(self) -> None:
        """Ask it to stop, wait for its end; raise what failed in it."""
        self._stopping.set()
        self._thread.join(_LIVE_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the flow does not end within {_LIVE_TIMEOUT_S:g} s")
        if self._failures:
            raise self._failures[0]

    def _guarded(self, action: Callable[..., None], *arguments: object) -> None:
        try:
            action(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised by stop(), in the test's own thread
            self._failures.append(error)
        finally:
            self._ready.set()

    def _lead(self) -> None:
        with self._flow.running() as (lead, layout):
            self._ready.set()
            lanes = threading.Thread(target=self._guarded, args=(self._copy, layout), daemon=True)
            lanes.start()
            while lanes.is_alive():
                if self._stopping.wait(_TICK_S):
                    lead.finish_lanes()
                    lanes.join()
                else:
                    self._tick(lead)
            lead.end()

    def _copy(self, layout: Layout) -> None:
        self.receipts += self._flow.lanes(layout, Until(self._deadline_s))

    @staticmethod
    def _tick(lead: Supervisor) -> None:
        # What a driver does: a cluster that is away for the moment is asked again.
        with suppress(Retriable):
            lead.tick()


class Replica:
    """One flow named ``name`` over every topic whose name begins with it. A context manager.

    Args:
        folder: for the flow file.
        name: unique among all tests.
        source: librdkafka settings of the source cluster; ``target`` likewise.
        unsecured: addresses for the adversaries, which speak neither TLS nor SASL.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        source: Mapping[str, str],
        target: Mapping[str, str],
        *,
        unsecured: tuple[str, str] | None = None,
    ) -> None:
        self.name = name
        self.source_client, self.target_client = dict(source), dict(target)
        left, right = unsecured or (source["bootstrap.servers"], target["bootstrap.servers"])
        self.unsecured_target = {"bootstrap.servers": right}
        seed = int(name[1:9], 16)
        self.source, self.target = Adversary(left, seed), Adversary(right, seed + 1)
        self._folder = folder
        self._changes: dict[str, Any] = {}
        self._flow: InlineFlow | None = None
        self._topics: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.source.close()
        self.target.close()

    # --- set-up

    def configure(self, **changes: Any) -> None:
        """Change keys of the flow file; before the flow is used for the first time."""
        self._changes.update(changes)

    def topic(self, suffix: str = "a", partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Create a topic of the flow on the source; it never expires."""
        topic = self.source.create_topic(f"{self.name}.{suffix}", partitions, config)
        self._topics.append(topic)
        return topic

    def target_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        """Create the topic's counterpart before the flow would."""
        self.target.create_topic(topic, partitions, config)

    @property
    def flow(self) -> InlineFlow:
        """The flow; its file is written at the first use."""
        if self._flow is None:
            self._flow = InlineFlow(self.write_flow())
        return self._flow

    def write_flow(self) -> Path:
        """Write the flow file as it is configured now and return its path."""
        return write_flow(
            self._folder,
            self.name,
            self.source_client,
            self.target_client,
            [f"{self.name}[.].*"],
            **self._changes,
        )

    # --- running and judging

    def copy(self, *, seconds: float | None = None) -> Outcome:
        """Copy everything that is there (or for so many seconds)."""
        return self.flow.copy(seconds=seconds)

    @contextmanager
    def running(self, *, seconds: float = 120.0) -> Iterator[Live]:
        """Let the flow run meanwhile; it is asked to stop at the end of the block."""
        live = Live(self.flow, seconds)
        live.start()
        try:
            yield live
        finally:
            live.stop()

    def assert_same(self, *topics: str) -> None:
        """Let the independent judge compare the topics (all of the flow by default)."""
        assert_same(self.source_client, self.target_client, list(topics or self._topics))

    def partition_status(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """Return one partition's entry of ``status``."""
        entries: list[dict[str, Any]] = self.flow.status()["partitions"]
        return next(p for p in entries if (p["topic"], p["partition"]) == (topic, partition))

    def stop_of(self, topic: str, partition: int = 0) -> dict[str, str]:
        """Return why its lane has stopped the partition; empty when it has not."""
        stop = self.partition_status(topic, partition)["stop"] or {}
        return stop if stop.get("since_ms") else {}

    def command(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run ``onceover ... --json`` in this process; return the exit code and the document."""
        capsys.readouterr()
        code = command_line.main([*arguments, "--json"])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert document["exit"] == code
        return code, document

    # --- what an ordinary client sees and does

    def source_records(self, topic: str, partition: int = 0) -> dict[int, Seen]:
        return read_records(self.source_client, topic, partition)

    def target_records(self, topic: str, partition: int = 0) -> dict[int, Seen]:
        return read_records(self.target_client, topic, partition)

    def stop_compaction(self, topic: str, *, on_target: bool = False) -> None:
        """Switch the source's topic (or the target's) to plain retention; wait until its cleaner is done."""
        client, adversary = (
            (self.target_client, self.target) if on_target else (self.source_client, self.source)
        )
        alter_config(client, topic, {"cleanup.policy": "delete"})
        last: list[object] = []

        def quiet() -> bool:
            before, last[:] = list(last), adversary.batches(topic, 0)
            return before == last

        wait_until(quiet, _TIMEOUT_S, "the cleaner rests", poll_s=_CLEANER_QUIET_S)


def delete_before(client: Mapping[str, str], topic: str, offset: int, number: int = 0) -> None:
    """Remove the beginning of a partition, as retention does."""
    admin = AdminClient(dict(client))
    for future in admin.delete_records([TopicPartition(topic, number, offset)]).values():
        future.result(_TIMEOUT_S)


def alter_config(client: Mapping[str, str], topic: str, config: Mapping[str, str]) -> None:
    """Set some of a topic's configuration; return when the broker shows it."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient(dict(client))
    admin.incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)

    def shown() -> bool:
        return config.items() <= topic_config(client, topic).items()

    wait_until(shown, _TIMEOUT_S, f"the configuration of {topic}")


def topic_config(client: Mapping[str, str], topic: str) -> dict[str, str]:
    """Return a topic's whole configuration."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(dict(client))
    entries = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    return {name: entry.value for name, entry in entries.items()}


def delete_topics(client: Mapping[str, str], topics: Sequence[str]) -> None:
    """Delete topics and wait until the cluster has forgotten their names."""
    admin = AdminClient(dict(client))
    for future in admin.delete_topics(list(topics)).values():
        future.result(_TIMEOUT_S)
    gone = set(topics)
    wait_until(lambda: not gone & set(admin.list_topics(timeout=_TIMEOUT_S).topics), _TIMEOUT_S, "deleted")


def read_records(client: Mapping[str, str], topic: str, partition: int = 0) -> dict[int, Seen]:
    """Return what a read_committed consumer meets in a partition, by offset."""
    consumer = Consumer(
        {
            **client,
            "group.id": "never-joined",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            # The end is told by an empty answer, which the broker would hold back for half a second.
            "fetch.wait.max.ms": 10,
        }
    )
    found: dict[int, Seen] = {}
    try:
        start, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, start)])
        while (message := consumer.poll(_TIMEOUT_S)) is not None and message.error() is None:
            kind, timestamp_ms = message.timestamp()
            found[message.offset()] = Seen(
                message.key(), message.value(), tuple(message.headers() or ()), kind, timestamp_ms
            )
    finally:
        consumer.close()
    if message is None or not message.error().code() == -191:
        raise TimeoutError(f"{topic}:{partition} was not read to its end: {message and message.error()}")
    return found
