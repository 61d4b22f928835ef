"""The table of rights: what it holds, one row for each principal and resource, and the one in the docs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from onceover.connectors.acltable import AclTableRequest, Grant, OwnTopic, Role, grants, table

DOCS = Path(__file__).parents[3] / "docs" / "connectors.md"
WISH = AclTableRequest(
    group_id="connect",
    offsets_topic="connect-offsets",
    config_topic="connect-configs",
    status_topic="connect-status",
    exactly_once=True,
    our_ids="onceover.connect.connect.",
    run_ids="onceover.connect-run.connect.",
    runs_topic="__onceover.connect.connect.runs",
    connectors=[OwnTopic("orders", "connect-offsets-orders")],
)


def of(found: list[Grant], role: Role, name: str) -> set[str]:
    """Return what a role may do on a resource, and nothing else of that name."""
    return {operation for g in found if g.role is role and g.name == name for operation in g.operations}


def test_tasks_are_fenced_by_prefix_under_exactly_once_only() -> None:
    """The connector's producer runs transactions, its admin client and Onceover fence them (KIP-618)."""
    on, off = grants(WISH), grants(replace(WISH, exactly_once=False))
    for role in (Role.PRODUCER, Role.ADMIN, Role.ONCEOVER):
        assert of(on, role, "connect-orders-") == {"Write", "Describe"}
        assert of(off, role, "connect-orders-") == set()
    assert all(g.prefixed for g in on if g.name == "connect-orders-")
    assert of(on, Role.WORKER, "connect-cluster-connect") == {"Write", "Describe"}
    assert of(off, Role.WORKER, "connect-cluster-connect") == set()


def test_onceover_writes_no_topic_of_the_workers_but_the_offsets() -> None:
    """The config topic is read; the status topic is nobody's business."""
    found = grants(WISH)
    assert "Write" not in of(found, Role.ONCEOVER, "connect-configs")
    assert of(found, Role.ONCEOVER, "connect-status") == set()
    assert {"Read", "Write"} <= of(found, Role.ONCEOVER, "connect-offsets-orders")


def test_a_connector_on_another_cluster_needs_its_rights_there() -> None:
    """And under exactly-once it keeps a topic of the shared one's name there, until it is migrated."""
    elsewhere = replace(WISH, connectors=[OwnTopic("orders", "mine", "other:9092")])
    found = grants(elsewhere)
    clusters = {g.cluster for g in found if g.name in ("mine", "connect-orders-")}
    assert clusters == {"other:9092"}
    shared = [g for g in found if g.name == "connect-offsets" and g.role is Role.ONCEOVER]
    assert {g.cluster for g in shared} == {"workers'", "other:9092"}


def test_each_resource_is_named_once_for_each_principal() -> None:
    """Two connectors that share a topic give one row, whose operations are those of both."""
    two = replace(WISH, connectors=[OwnTopic("a", "both"), OwnTopic("ab", "both")])
    found = grants(two)
    rows = [(g.role, g.principal, g.cluster, g.kind, g.name) for g in found]
    assert len(rows) == len(set(rows))
    assert [g.role for g in found] == sorted((g.role for g in found), key=list(Role).index)


def test_principals_are_named_where_they_are_known() -> None:
    """Each connector has its own; a client's certificate is not in the configuration."""
    own = OwnTopic("orders", "mine", principals={Role.PRODUCER: "User:orders"})
    found = grants(replace(WISH, connectors=[own], principals={Role.ONCEOVER: "User:onceover"}))
    named = {g.role: g.principal for g in found}
    assert named[Role.PRODUCER] == "User:orders"
    assert named[Role.ONCEOVER] == "User:onceover"
    assert named[Role.ADMIN] is None
    assert any("onceover (User:onceover)" in line for line in table(found))


def test_the_docs_show_what_the_command_prints() -> None:
    """The table in the docs is generated: replace it with this test's expectation when it changes."""
    shown = DOCS.read_text().split("<!-- acls:begin -->\n")[1].split("<!-- acls:end -->")[0].strip()
    assert shown.splitlines() == _markdown(grants(WISH))


def _markdown(found: Iterable[Grant]) -> list[str]:
    lines = ["| principal | cluster | resource | operations | why |", "|---|---|---|---|---|"]
    for grant in found:
        who, cluster, what, operations, why = grant.row
        kind, _, name = what.partition(" ")
        lines.append(f"| {who} | {cluster} | {kind} `{name}` | {operations} | {why} |")
    return lines
