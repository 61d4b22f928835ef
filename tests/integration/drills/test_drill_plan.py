"""``onceover drill plan`` on real clusters with live clients: what it sees, and that it changes nothing."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from onceover.wiring.failovers import drills
from tests.support.flows.groups import commit, member
from tests.support.flows.replica import Replica

DONE, TEMPORARY = 0, 5


def planned(replica: Replica, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    return replica.command(capsys, "drill", "plan", str(replica.flow.path))


def test_clients_losses_and_groups_are_seen(replica: Replica, capsys: pytest.CaptureFixture[str]) -> None:
    """Members of either protocol, a transaction that is open, a producer that numbers its batches."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    code, before = planned(replica, capsys)
    assert (code, before["ready"], before["losses"]) == (DONE, True, [])
    groups = {protocol: f"{replica.name}-{protocol}" for protocol in ("classic", "consumer")}
    with ExitStack() as live:
        for protocol, name in groups.items():
            live.enter_context(member(replica.source_client, name, topic, protocol, reset="earliest"))
        replica.source.idempotent(topic, 0, replica.source.records(4))
        transaction = replica.source.transaction(topic)
        transaction.send(0, replica.source.records(2))
        commit(replica.source_client, f"{replica.name}-ahead", topic, {0: 13})
        _, found = planned(replica, capsys)
        transaction.commit()
    assert [(loss["topic"], loss["offsets"], loss["open_offsets"]) for loss in found["losses"]] == [
        (topic, 4, 2)
    ]
    seen = found["clients"]
    assert {(c["group"], tuple(c["topics"])) for c in seen["consumers"]} >= {
        (name, (topic,)) for name in groups.values()
    }
    assert all(c["host"] == "127.0.0.1" and c["client_id"] for c in seen["consumers"])
    [opened] = [p for p in seen["producers"] if p["open_transaction_in"]]
    assert opened["transactional_id"]
    assert opened["open_transaction_in"] == [f"{topic}:0"]
    assert [p for p in seen["producers"] if p["transactional_id"] is None]
    ahead = {group["group"]: group for group in found["groups"]}[f"{replica.name}-ahead"]
    assert ahead["not_copied"] == 3
    replica.copy()
    assert planned(replica, capsys)[1]["losses"] == []


def test_who_uses_a_topic_that_is_not_copied_yet_is_seen_too(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flow was never started: nothing is ready, and nobody is called gone."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(3))
    name = f"{replica.name}-early"
    with member(replica.source_client, name, topic, reset="earliest"):
        code, found = planned(replica, capsys)
    assert (code, found["ready"]) == (2, False)
    assert [(loss["topic"], loss["offsets"]) for loss in found["losses"]] == [(topic, 3)]
    assert [consumer["group"] for consumer in found["clients"]["consumers"]] == [name]
    assert "never started" in found["problems"]["groups"]["message"]


@pytest.mark.soak
def test_a_source_that_is_away_is_no_flow_without_losses(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on the target is told all the same; nothing is called ready."""
    monkeypatch.setattr(drills, "PATIENCE_S", 1.0)
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    document = yaml.safe_load(replica.flow.path.read_text())
    document["source"] = {"alias": "east", "client": {"bootstrap.servers": "127.0.0.1:1"}}
    replica.flow.path.write_text(yaml.safe_dump(document))
    code, found = planned(replica, capsys)
    assert (code, found["ready"]) == (TEMPORARY, False)
    assert [loss["offsets"] for loss in found["losses"] if loss["topic"] == topic] == [None]
    assert {"topics", "clients"} <= set(found["problems"])
