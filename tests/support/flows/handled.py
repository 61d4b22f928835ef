"""A flow with a handler, and what its target has to hold: computed from the source, not from the copy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from onceover.state.steps import Step
from onceover.wire.offsetmap import MapRecord
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.feeds import PARTITIONS, SMALL, feed
from tests.support.flows.flows import FlowProcess, InlineFlow, write_flow
from tests.support.flows.replica import Seen, read_records
from tests.support.raw.adversary import Adversary

SAMPLES = "tests.unit.handlers.samples"
TARGET_PARTITIONS = 5
_KILLED = -9
_TIMEOUT_S = 90.0

# Content by target partition and, within it, by source partition, in order.
Streams: TypeAlias = dict[int, dict[int, list[Seen]]]


def handler_keys(name: str, **args: Any) -> dict[str, Any]:
    """Return the keys of a flow file that name one of the sample handlers."""
    return {"handler": f"{SAMPLES}:{name}", "handler_args": args}


def spread_model(source: Mapping[int, Mapping[int, Seen]], partitions: int) -> Streams:
    """Return what ``samples.spread`` means, from the records of each source partition by offset."""
    found: Streams = {}
    for number, records in source.items():
        for offset, seen in sorted(records.items()):
            for copy in range(offset % 3):
                content = seen._replace(headers=(*seen.headers, ("copy", b"%d" % copy)))
                found.setdefault((offset + copy) % partitions, {}).setdefault(number, []).append(content)
    return found


def read_all(client: Mapping[str, str], topic: str, partitions: int) -> dict[int, dict[int, Seen]]:
    """Return what a read_committed consumer meets in every partition, by offset."""
    return {number: read_records(client, topic, number) for number in range(partitions)}


class HandledCase:
    """A topic with batches of every kind, copied through ``spread`` or ``spread_batch`` to more partitions.

    Every record has a timestamp of its own, by which a record on the target is known again.
    """

    def __init__(
        self, folder: Path, name: str, source: SharedCluster, target: SharedCluster, form: str, **changes: Any
    ) -> None:
        self.topic = name
        self.source, self.target = source.client, target.client
        self._log = folder / "flow.log"
        keys = {**SMALL, **handler_keys(form, partitions=TARGET_PARTITIONS), **changes}
        self.path = write_flow(folder, name, source.client, target.client, [name], **keys)
        self.adversary = Adversary(source.bootstrap, seed=int(name[1:], 16))
        self.adversary.create_topic(name, PARTITIONS)
        self.feed()

    def feed(self) -> None:
        """Write another round of everything."""
        feed(self.adversary, self.topic, seed=time.monotonic_ns())

    def copy(self) -> list[MapRecord]:
        """Copy everything that is there; return the map records of all transactions."""
        return InlineFlow(self.path).copy().receipts

    def kill(self, step: Step, count: int) -> None:
        """Run the flow in a process until it kills itself at ``step``."""
        process = FlowProcess(self.path, self._log, kill_at=step.name, kill_count=count)
        with process:
            assert process.wait(_TIMEOUT_S) == _KILLED, process.child.tail()

    def expected(self) -> Streams:
        """Return what the target has to hold."""
        return spread_model(read_all(self.source, self.topic, PARTITIONS), TARGET_PARTITIONS)

    def held(self) -> Streams:
        """Return what the target holds; the order of different source partitions does not matter."""
        source = read_all(self.source, self.topic, PARTITIONS)
        origin = {
            seen.timestamp_ms: number for number, records in source.items() for seen in records.values()
        }
        found: Streams = {}
        for number, records in read_all(self.target, self.topic, TARGET_PARTITIONS).items():
            for _, seen in sorted(records.items()):
                streams = found.setdefault(number, {})
                streams.setdefault(origin[seen.timestamp_ms], []).append(seen)
        return found

    def close(self) -> None:
        """Drop the connections."""
        self.adversary.close()
