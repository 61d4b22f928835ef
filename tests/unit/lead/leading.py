"""A flow's supervisor between two clusters in memory: all but the brokers is what runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from onceover.acls.sync import AclSync
from onceover.kafka.calls import READ_UNCOMMITTED, CommittedOffset
from onceover.lead import supervisor as module
from onceover.lead.enroller import Start
from onceover.lead.leader import FlowIdentity
from onceover.lead.supervisor import Scope, Supervisor
from onceover.mirrormaker.output import MirrorOutput
from onceover.mirrormaker.records import MirrorSettings
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.log import StateLog
from onceover.state.records.enrolment import Enrolment, read_enrolments
from onceover.state.records.layout import Layout
from onceover.topics.namingpolicy import IDENTITY, NamingPolicy
from onceover.topics.own import StateSettings
from onceover.topics.scope import Rules
from tests.support.fakes.fakecluster import FakeCluster

FLOW: Final = "orders-dr"
GROUP: Final = names.progress_group(FLOW)
NOTHING_OF_MIRRORMAKER: Final = MirrorSettings(
    checkpoints=False,
    offset_syncs=False,
    heartbeats=False,
    checkpoint_interval_s=60.0,
    heartbeat_interval_s=1.0,
    selects=lambda _group: False,
)


def scope_of(include: Sequence[str] = ("shop.*",), start: Start = "earliest") -> Scope:
    rules = Rules(tuple(include), (), NamingPolicy(IDENTITY, "east", "west"))
    return Scope(rules, start, interval_s=30.0, sync_configs=True, bytes_per_second=None)


@dataclass
class Leading:
    """Both clusters, the flow file as it is now, and the time."""

    home: Path
    scope: Scope = field(default_factory=scope_of)
    now_s: float = 1000.0
    east: FakeCluster = field(default_factory=lambda: FakeCluster("east"))
    west: FakeCluster = field(default_factory=lambda: FakeCluster("west"))
    opened: list[Supervisor] = field(default_factory=list)

    def supervisor(self, lanes: int = 2) -> Supervisor:
        """Return the supervisor of a new run, which is closed at the end of the test."""
        made = Supervisor(
            FlowIdentity(FLOW, lanes, "0" * 64),
            self.east,
            self.west,
            lambda: self.scope,
            StateSettings(1, 24 * 3600_000),
            AclSync(self.east, self.west, lambda: False),
            MirrorOutput(lambda: NOTHING_OF_MIRRORMAKER, lambda: nullcontext([])),
            self.home,
        )
        self.opened.append(made)
        return made

    def led(self) -> Supervisor:
        """Return one that leads, and has looked at the topics once."""
        made = self.supervisor()
        made.start()
        made.discover()
        return made

    def rewrite(self, **changes: Any) -> None:
        """Change the flow file."""
        self.scope = replace(self.scope, **changes)

    def records(self, partition: int = names.STATE_LEADER) -> dict[str, Any]:
        """Return the latest values of the flow's state."""
        log = StateLog(self.west, names.state_topic(FLOW), partition, READ_UNCOMMITTED)
        try:
            return dict(log.catch_up())
        finally:
            log.close()

    @property
    def layout(self) -> Layout:
        """Return the flow's layout, which is there."""
        return Layout.from_json(self.records()[names.LAYOUT])

    def enrolled(self) -> dict[str, Enrolment]:
        """Return what is enrolled, by target topic."""
        return read_enrolments(self.records())

    def progress(self) -> dict[str, int]:
        """Return the committed positions of all partitions."""
        return {str(tp): committed.offset for tp, committed in self.west.groups.get(GROUP, {}).items()}

    def commit(self, tp: TopicPartition, offset: int) -> None:
        """Let a lane have copied up to an offset."""
        held = self.west.groups[GROUP][tp]
        self.west.groups[GROUP][tp] = CommittedOffset(0, offset, held.leader_epoch, held.metadata)


def leading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leading:
    made = Leading(tmp_path)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    made.east.make_topic("shop.orders", 2)
    made.east.make_topic("other", 1)
    for name in ("__consumer_offsets", "__transaction_state"):
        made.west.make_topic(name, 1)
    return made
