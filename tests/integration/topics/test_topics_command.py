"""``onceover topics plan`` and ``apply`` on real clusters: never started, beside a run, killed in between."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from onceover.config.flow.load import load_flow
from onceover.errors import NeedsOperator
from onceover.state import names
from onceover.state.log import StateLog
from onceover.state.records.managed import read_managed
from onceover.state.steps import Step
from onceover.topics.configs import OF_EVERY_COPY
from onceover.topics.sync import SyncPlan
from onceover.wiring.flows import open_clusters
from tests.support.flows.killed import killed_command
from tests.support.flows.operations import apply_topics
from tests.support.flows.replica import Replica, alter_config, topic_config
from tests.support.raw.rawkafka import Codec

_TIMEOUT_S = 60.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ONCEOVER_HOME of the commands."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class Commands:
    """``onceover topics`` for one flow, and what it changed."""

    def __init__(self, replica: Replica, capsys: pytest.CaptureFixture[str], home: Path) -> None:
        self.replica = replica
        self.flow = replica.write_flow()
        self._capsys = capsys
        self._home = home

    def plan(self, exit_code: int = 0) -> dict[str, Any]:
        return self._run("plan", exit_code)

    def apply(self, exit_code: int = 0) -> dict[str, Any]:
        return self._run("apply", exit_code)

    def _run(self, action: str, exit_code: int) -> dict[str, Any]:
        code, document = self.replica.command(self._capsys, "topics", action, str(self.flow))
        assert code == exit_code, document
        assert (document["operation"], document["flow"]) == ("topics", self.replica.name)
        return document

    def killed_at(self, step: Step, count: int = 1) -> None:
        """Run ``apply`` in a process of its own that kills itself."""
        killed_command(step, count, ["topics", "apply", str(self.flow)], self.flow.with_suffix(".log"))

    def journal(self) -> list[dict[str, Any]]:
        path = self._home / self.replica.name / "journal" / "topics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def state(self) -> dict[str, Any]:
        """Return what is kept of what the flow looks after."""
        source, target = open_clusters(self.replica.flow.watch.flow)
        log = StateLog(target, names.owned_topic(self.replica.name), 0)
        with source, target:
            try:
                return log.catch_up()
            finally:
                log.close()

    def situation(self, *topics: str) -> dict[str, Any]:
        """Return partitions, configuration and management of target topics."""
        metadata = AdminClient(self.replica.target_client).list_topics(timeout=_TIMEOUT_S).topics
        managed = read_managed(self.state())
        return {
            topic.removeprefix(self.replica.name): (
                len(metadata[topic].partitions),
                topic_config(self.replica.target_client, topic)["retention.ms"],
                topic_config(self.replica.target_client, topic)["segment.ms"],
                managed.get(topic),
            )
            for topic in topics
        }


@pytest.fixture
def commands(replica: Replica, capsys: pytest.CaptureFixture[str], home: Path) -> Commands:
    return Commands(replica, capsys, home)


def on_target(replica: Replica) -> set[str]:
    """Return the target's topics that carry the flow's name, the flow's own included."""
    topics = AdminClient(replica.target_client).list_topics(timeout=_TIMEOUT_S).topics
    return {topic for topic in topics if replica.name in topic}


def changes(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what would be, or was, done."""
    return [(change["what"], change["object"]) for change in document["changes"]]


def test_a_flow_that_never_started_is_planned_applied_and_then_copied(commands: Commands) -> None:
    """The plan touches nothing; the second apply has nothing to do; the flow takes its topics as they are."""
    replica = commands.replica
    topic = replica.topic(partitions=2, config={"segment.ms": "7000000"})
    replica.source.plain(topic, 1, replica.source.records(20), Codec.LZ4)
    planned = commands.plan()
    assert changes(planned) == [("create topic", topic)]
    assert (planned["changes"][0]["risk"], planned["refused"], planned["enrol"]) == ("none", [], [topic])
    assert on_target(replica) == set()
    assert commands.journal() == []

    applied = commands.apply()
    assert (applied["plan_id"], applied["changes_made"], applied["left"]) == (planned["plan_id"], 1, [])
    assert [line["outcome"] for line in commands.journal()] == ["planned", "done"]
    assert topic_config(replica.target_client, topic)["segment.ms"] == "7000000"
    again = commands.apply()
    assert (changes(again), again["changes_made"]) == ([], 0)
    assert len(commands.journal()) == 2

    assert replica.copy().records == 20
    replica.assert_same()
    assert changes(commands.plan()) == []


def test_an_existing_topic_is_taken_over_only_by_apply(commands: Commands) -> None:
    """The flow itself says that they differ and leaves it alone; the plan shows each key and the risk."""
    replica = commands.replica
    topic = replica.topic(partitions=2)
    replica.target_topic(topic, 1, {"retention.ms": "3600000"})
    filled = replica.topic("filled")
    replica.target_topic(filled)
    replica.target.plain(filled, 0, replica.target.records(1), Codec.NONE)

    planned = commands.plan(exit_code=3)
    assert changes(planned) == [
        ("add partitions", topic),
        ("adopt topic", topic),
        ("set config", f"{topic} retention.ms"),
    ]
    assert [(r["object"], r["code"]) for r in planned["refused"]] == [(filled, "TARGET_NOT_EMPTY")]
    assert topic_config(replica.target_client, topic)["retention.ms"] == "3600000"

    applied = commands.apply(exit_code=3)
    assert (applied["changes_made"], applied["left"]) == (3, [])
    assert topic_config(replica.target_client, topic)["retention.ms"] == "-1"
    assert (
        len(AdminClient(replica.target_client).list_topics(timeout=_TIMEOUT_S).topics[topic].partitions) == 2
    )
    assert changes(commands.apply(exit_code=3)) == []


def test_apply_beside_a_running_flow_disturbs_nothing(commands: Commands) -> None:
    """The run keeps its generation and goes on copying; both do the same work without a quarrel."""
    replica = commands.replica
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(20), Codec.LZ4)
    with replica.running() as live:
        before = replica.flow.status()["generation"]
        alter_config(replica.source_client, topic, {"segment.ms": "8000000"})
        replica.topic("later")
        commands.apply()
        assert topic_config(replica.target_client, topic)["segment.ms"] == "8000000"
        replica.source.plain(topic, 0, replica.source.records(20), Codec.LZ4)
        assert live.alive
        assert replica.flow.status()["generation"] == before
    replica.copy()
    replica.assert_same()


APPLYING = [
    pytest.param(step, marks=() if step is Step.TOPIC_CREATE else pytest.mark.soak)
    for step in Step
    if step.name.startswith("TOPIC_")
]


@pytest.mark.parametrize("step", APPLYING, ids=lambda step: step.name)
def test_killed_at_a_step_apply_ends_the_same(commands: Commands, step: Step) -> None:
    """Whatever was done and noted before, the next apply does the rest, once; the journal tells of both."""
    replica = commands.replica
    new = replica.topic("new", 2, {"segment.ms": "7000000"})
    there = replica.topic("there", 2, {"segment.ms": "9000000"})
    replica.target_topic(there, 1, {"retention.ms": "3600000"})
    commands.killed_at(step)
    assert {line["outcome"] for line in commands.journal()} >= {"planned"}
    commands.apply()
    assert changes(commands.apply()) == []
    situation = commands.situation(new, there)
    assert {name: seen[:3] for name, seen in situation.items()} == {
        ".new": (2, "-1", "7000000"),
        ".there": (2, "-1", "9000000"),
    }
    for *_, managed in situation.values():
        assert managed is not None
        assert managed.keys - OF_EVERY_COPY.keys() == {"retention.ms", "segment.ms"}
    assert replica.copy().records == 0


def test_what_becomes_risky_meanwhile_waits_for_somebody(commands: Commands) -> None:
    """The source's retention is shortened while apply is at work: that was in no plan that anybody saw."""
    replica = commands.replica
    topic = replica.topic(config={"segment.ms": "7000000", "retention.ms": "900000000"})
    commands.apply()
    alter_config(replica.source_client, topic, {"segment.ms": "8000000"})
    shown: list[SyncPlan] = []

    def meanwhile(plan: SyncPlan) -> None:
        shown.append(plan)
        alter_config(replica.source_client, topic, {"retention.ms": "800000000"})

    with pytest.raises(NeedsOperator, match="what was shown first is done") as refusal:
        apply_topics(load_flow(str(commands.flow)), meanwhile)
    assert refusal.value.code == "PLAN_CHANGED"
    assert [len(plan.items) for plan in shown] == [0, 1]
    there = topic_config(replica.target_client, topic)
    assert (there["segment.ms"], there["retention.ms"]) == ("8000000", "900000000")
    assert commands.apply()["changes_made"] == 1
