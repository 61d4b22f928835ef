"""A seeding between two clusters in memory: all but the brokers is what runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onceover.lead.leader import FlowIdentity
from onceover.model import TopicPartition
from onceover.planning.approval import Approval
from onceover.planning.journal import Journal
from onceover.planning.operation import Caller, Planned
from onceover.seeding.apply import Seeder, SeedingRequest
from onceover.seeding.origins import LogOrigin, Origin
from onceover.seeding.plan import LATEST, Choice, SeedPlan
from onceover.state import names
from onceover.state.read import read_log
from onceover.state.records.enrolment import Enrolment, read_enrolments
from onceover.topics.namingpolicy import IDENTITY, NamingPolicy
from onceover.topics.own import StateSettings
from onceover.topics.scope import Rules
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog

FLOW: Final = "orders-dr"
GROUP: Final = names.progress_group(FLOW)


@dataclass
class SeedScene:
    """Both clusters, and what was shown to whoever asked for it."""

    home: Path
    east: FakeCluster = field(default_factory=lambda: FakeCluster("east"))
    west: FakeCluster = field(default_factory=lambda: FakeCluster("west"))
    shown: list[Planned] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("__consumer_offsets", "__transaction_state"):
            self.west.make_topic(name, 1)

    def seeder(
        self,
        origin: Origin | None = None,
        *,
        replace: bool = False,
        topics: str | None = None,
        flow: str = FLOW,
    ) -> Seeder:
        """Return what seeds everything, from the end of the log where nothing else is said."""
        rules = Rules((".*",), (), NamingPolicy(IDENTITY, "east", "west"))
        state = StateSettings(1, 24 * 3600_000)
        request = SeedingRequest("seed", rules, True, state, Choice(replace=replace), topics)
        journal = self.home / "seed.jsonl"
        return Seeder(
            FlowIdentity(flow, 1, "0" * 64),
            request,
            origin or LogOrigin(LATEST),
            self.east,
            self.west,
            lambda approval: Journal(journal, approval),
        )

    @property
    def caller(self) -> Caller:
        """Return who is shown each plan."""
        return Caller(self.shown.append)

    def approved(self, plan: SeedPlan) -> Approval:
        """Return what a person says who was shown a plan."""
        return Approval.of(plan.items)

    def grow(self, topic: str, records: int, partition: int = 0) -> None:
        """Have somebody write to the source."""
        self.log(topic, partition).end += records

    def log(self, topic: str, partition: int = 0) -> FakeLog:
        """Return a log of the source, which is there."""
        found = self.east.log_of(TopicPartition(topic, partition))
        assert found is not None
        return found

    def enrolled(self, flow: str = FLOW) -> dict[str, Enrolment]:
        """Return what is enrolled, by target topic."""
        return read_enrolments(self.records(flow))

    def records(self, flow: str = FLOW) -> dict[str, object]:
        """Return what the flow's leader has written, by key."""
        return dict(read_log(self.west, names.state_topic(flow), names.STATE_LEADER, wait=False))

    def progress(self) -> dict[str, int]:
        """Return the committed positions of all partitions."""
        return {str(tp): committed.offset for tp, committed in self.west.groups.get(GROUP, {}).items()}
