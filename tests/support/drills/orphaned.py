"""What tests of orphans share: a flow that was switched over unplanned, and the flow the other way."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from onceover.copy.loop import Until
from onceover.lead.ends import EndCheck
from onceover.model import TopicPartition, lane_of
from onceover.wiring.flows import open_clusters
from tests.support.drills.switching import trouble
from tests.support.flows.flows import InlineFlow, assert_same, write_flow
from tests.support.flows.replica import Replica, Seen, read_records

DONE, USAGE, DECIDE, AGAIN = 0, 2, 3, 5
ORIGIN_HEADERS = 6
_COPIES_S = 60.0
Capture = pytest.CaptureFixture[str]


class Exported(NamedTuple):
    """A record of the export, as an ordinary reader meets it."""

    topic: str
    partition: int
    offset: int
    record: Seen


class Orphaned(Replica):
    """A flow whose clients a program moves; the source goes on to be written to."""

    def switch_over(self, capsys: Capture) -> dict[str, Any]:
        """Promote what was copied; the source is not waited for."""
        code, told = self.command(
            capsys, "drill", "run", str(self.flow.path), "--mode", "unplanned", "--approve"
        )
        assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
        self.name_reverse()
        return told

    def fail_back(self, capsys: Capture, topic: str) -> InlineFlow:
        """Let the flow the other way bring the topic back, and give it to clients there; return that flow."""
        back = self.back(switchover={"redirect": "command", "command": ["./switch"]})
        assert self.seed_back(capsys, back)[0] == DONE
        self.target.plain(topic, 0, self.target.records(4))
        back.copy()
        assert_same(self.target_client, self.source_client, [topic])
        code, told = self.command(capsys, "drill", "run", str(back.path), "--mode", "unplanned", "--approve")
        assert (code, told["verdict"]) == (DONE, "PASS"), told
        return back

    def made_again(self, topic: str) -> bool:
        """Tell whether a topic of the source is there, and nothing was ever in it."""
        consumer = Consumer({**self.source_client, "group.id": "never-joined"})
        try:
            partitions = consumer.list_topics(topic, timeout=_COPIES_S).topics[topic].partitions
            return all(
                consumer.get_watermark_offsets(Place(topic, number), timeout=_COPIES_S) == (0, 0)
                for number in partitions
            )
        finally:
            consumer.close()

    def name_reverse(self) -> None:
        """Write the flow the other way, and name it in the flow file."""
        back = self.back()
        self.configure(switchover={**self._changes["switchover"], "reverse": back.path.stem})
        self.write_flow()

    def orphaned_topic(self, capsys: Capture, *, copied: int = 10, orphans: int = 5) -> str:
        """Return a topic with so many records that were copied, and so many that were not; switched over."""
        topic = self.topic()
        self.source.plain(topic, 0, self.source.records(copied))
        self.copy()
        self.source.plain(topic, 0, self.source.records(orphans))
        self.switch_over(capsys)
        return topic

    def copy_only(self, tp: TopicPartition) -> None:
        """Let the lane of one partition copy what is there, and the others' nothing."""
        flow = self.flow
        with flow.running() as (lead, layout):
            planner = EndCheck(self.name, layout.run)
            planner.open(*open_clusters(flow.watch.flow))
            ends = planner.ends()
            planner.close()
            until = Until(time.monotonic() + _COPIES_S, {tp: ends[tp]})
            flow.lane(layout, lane_of(tp, layout.lanes), until)
            # What looks as if it ran is asked to end, and waited for.
            lead.end()

    def behind(self, topic: str, cut: int, partition: int = 0) -> list[Exported]:
        """Return what an ordinary reader of the source meets behind a cut."""
        found = read_records(self.source_client, topic, partition)
        return [Exported(topic, partition, at, record) for at, record in found.items() if at >= cut]

    def orphans(self, capsys: Capture, action: str, *more: str) -> tuple[int, dict[str, Any]]:
        """Run ``drill orphans``; what it does is approved."""
        approved = ["--approve"] if action == "apply" else []
        return self.command(capsys, "drill", "orphans", action, str(self.flow.path), *approved, *more)

    def exported(self) -> list[Exported]:
        """Return what stands in the topic, for readers of committed records."""
        found = read_records(self.target_client, f"__onceover.{self.name}.orphans")
        return [_exported(record) for record in found.values()]

    def in_file(self) -> list[dict[str, Any]]:
        """Return what stands in the file."""
        path = self.orphan_file
        return [json.loads(line) for line in path.read_text().splitlines()]

    @property
    def orphan_file(self) -> Path:
        return self._folder / "var" / self.name / "orphans" / "orphans.jsonl"

    def back(self, **changes: Any) -> InlineFlow:
        """Return the flow the other way, over the same topics."""
        path = write_flow(
            self._folder,
            f"{self.name}-back",
            self.target_client,
            self.source_client,
            [f"{self.name}[.].*"],
            source={"alias": "west"},
            target={"alias": "east"},
            **changes,
        )
        return InlineFlow(path)

    def seed_back(self, capsys: Capture, back: InlineFlow) -> tuple[int, dict[str, Any]]:
        """Let the flow the other way begin behind the promotion."""
        origin = f"promoted:{self.flow.path}"
        return self.command(capsys, "seed", "apply", str(back.path), "--from", origin)


def in_line(one: Exported) -> dict[str, Any]:
    """Return what a line of the file says of a record, but for the topic's id."""
    record = one.record
    return {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[_text(name.encode()), _text(value)] for name, value in record.headers],
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _exported(record: Seen) -> Exported:
    own = {name: (value or b"").decode() for name, value in record.headers[-ORIGIN_HEADERS:]}
    return Exported(
        own["onceover.source.topic"],
        int(own["onceover.source.partition"]),
        int(own["onceover.source.offset"]),
        record._replace(headers=record.headers[:-ORIGIN_HEADERS]),
    )


@contextmanager
def orphaned(
    folder: Path, name: str, source: dict[str, str], target: dict[str, str], **more: Any
) -> Iterator[Orphaned]:
    """Yield such a flow."""
    program = folder / "switch"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o700)
    with Orphaned(folder, name, source, target, **more) as replica:
        replica.configure(switchover={"redirect": "command", "command": ["./switch"], "quiet": "500ms"})
        yield replica
