"""What a person is told before saying yes, and from where to where a connector went."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceover.connectors.model import PAUSED, STOPPED, ConnectorPlan, MigrationPlan
from onceover.connectors.moving.watching import OffsetProgress
from onceover.connectors.offsets.keys import snapshot_state, step_of
from onceover.connectors.planning.back import plan_soft
from onceover.connectors.planning.foresight import STANDSTILL_S, foreseen, quiet_hint
from onceover.connectors.planning.plan import plan_migration
from onceover.connectors.planning.view import ConnectorView
from tests.unit.connectors.views import KEY, OTHER, connector, facts, placed, scan, view

POSTGRES = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector"}
BEATING = {**POSTGRES, "heartbeat.interval.ms": "10000"}
VALUES = {KEY: b'{"lsn":5,"snapshot_completed":true}'}


def seen(config: dict[str, str], state: str = "RUNNING", **changes: Any) -> ConnectorView:
    """Return a connector of a plugin, doing something."""
    found = connector(state=state)
    return view(placed(VALUES), state=replace(found, config={**found.config, **config}), **changes)


def told(seen: ConnectorView, settle_s: float = 0.0) -> ConnectorPlan:
    """Return a migration's plan."""
    return foreseen(plan_migration(seen, None), seen, settle_s)


@pytest.mark.parametrize("settle_s", [0.0, 60.0])
def test_plan_says_how_long_a_connector_stands(settle_s: float) -> None:
    """Without exactly-once longer, by the time between the two looks."""
    plan = told(seen(BEATING), settle_s)
    assert plan.outage_s == STANDSTILL_S + settle_s
    assert f"stands still for about {STANDSTILL_S + settle_s:.0f} s" in plan.notes[0]
    assert "its snapshot is through" in plan.notes
    text = MigrationPlan.of("connectors", "flights", facts(), (plan,)).describe()
    assert "  c: stands still for about" in text and "  warning c: while it stands still" in text


def test_connector_that_stands_anyway_stays_so() -> None:
    """There is no outage, and no end of it."""
    plan = told(seen(BEATING, STOPPED))
    assert plan.outage_s is None
    assert "is STOPPED, and stays so" in plan.notes[0]


def test_soft_plan_says_that_it_stays_stopped() -> None:
    """Until somebody has changed the workers: the database's log grows all the time."""
    here = seen(BEATING)
    plan = foreseen(plan_soft(here, None), here, 0.0, stays_stopped=True)
    assert plan.outage_s is None
    assert "stays STOPPED after it" in plan.notes[0]
    assert any("until it is resumed" in text and "debezium" in text for text in plan.warnings)


def test_slot_is_named() -> None:
    """Whoever watches the disk looks for it."""
    (warning,) = told(seen({**BEATING, "slot.name": "orders_slot"})).warnings
    assert "replication slot orders_slot holds back" in warning


@pytest.mark.parametrize(("state", "warned"), [("RUNNING", False), (STOPPED, True)])
def test_database_that_forgets_is_warned_of_where_the_stop_has_no_end(state: str, warned: bool) -> None:
    """Some seconds are nothing to a binlog that is kept for days."""
    config = {**BEATING, "connector.class": "io.debezium.connector.mysql.MySqlConnector"}
    assert any("binlog" in text for text in told(seen(config, state)).warnings) is warned


@pytest.mark.parametrize(
    ("config", "hinted"),
    [
        (POSTGRES, True),
        ({**POSTGRES, "heartbeat.interval.ms": "0"}, True),
        (BEATING, False),
        ({"connector.class": "FileStreamSource"}, False),
        ({}, False),
    ],
)
def test_connector_without_a_heartbeat_is_told_of_one(config: dict[str, str], hinted: bool) -> None:
    """A quiet table would be watched to the end, and prove nothing."""
    assert (quiet_hint(config) is not None) is hinted
    assert any("heartbeat" in text for text in told(seen(config)).warnings) is hinted


@pytest.mark.parametrize("name", ["Checkpoint", "Heartbeat"])
def test_connector_that_never_moves_its_offset_is_told_of(name: str) -> None:
    """MirrorMaker's write the same one for ever: that nothing shows is no reason to wait for it."""
    config = {"connector.class": f"org.apache.kafka.connect.mirror.Mirror{name}Connector"}
    assert "same offset for ever" in (quiet_hint(config) or "")
    assert any("same offset for ever" in text for text in told(seen(config)).warnings)
    other = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}
    assert quiet_hint(other) is None


def test_snapshot_of_each_start_is_told_of() -> None:
    """Connect restarts it for many reasons; this is one more."""
    always = {**BEATING, "snapshot.mode": "always"}
    assert any("every row of its tables is written once more" in text for text in told(seen(always)).warnings)
    assert any("snapshot.mode=always" in text for text in told(seen(always, STOPPED)).warnings)
    assert not any("snapshot.mode" in text for text in told(seen(BEATING)).warnings)


def test_one_that_ends_with_its_snapshot_has_neither_slot_nor_heartbeat() -> None:
    """Neither is there anything that a heartbeat would help."""
    (warning,) = told(seen({**BEATING, "snapshot.mode": "initial_only"})).warnings
    assert "never writes an offset again" in warning and "with 10000" not in warning


def test_paused_connector_stands_already() -> None:
    """There is no outage; after a stop the workers start no tasks for it until it is resumed."""
    plan = told(seen(BEATING, PAUSED))
    assert plan.outage_s is None
    assert plan.notes[0].startswith("is PAUSED, and stays so; its tasks begin again when it is resumed")


def test_plan_that_does_nothing_foresees_nothing() -> None:
    """A refused one as well."""
    plan = ConnectorPlan("c", None, None)
    assert foreseen(plan, seen(POSTGRES), 0.0) == plan


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (b'{"lsn":1}', None),
        (b"null", None),
        (b'{"lsn":1,"snapshot_completed":true}', "through"),
        (b'{"lsn":1,"snapshot":"INITIAL","snapshot_completed":false}', "running"),
        (b'{"lsn":1,"incremental_snapshot_collections":"[]"}', "incremental, under way"),
    ],
)
def test_state_of_a_snapshot_is_what_the_offset_says(value: bytes, state: str | None) -> None:
    """Where it says nothing, nothing is said."""
    assert snapshot_state(value) == state


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (b'{"lsn":1,"txId":7,"ts_usec":9}', b'{"lsn":2,"txId":8,"ts_usec":10}', ("lsn 1", "lsn 2")),
        (
            b'{"file":"b.1","pos":4,"row":1}',
            b'{"file":"b.2","pos":4}',
            ("file b.1, pos 4", "file b.2, pos 4"),
        ),
        (b'{"count":1}', None, ("count 1", "-")),
        (b'{"odd":"x"}', b'{"odd":"%s"}' % (b"y" * 500), ("odd x", f"odd {'y' * 116} ...")),
    ],
)
def test_position_is_told_in_short(before: bytes, after: bytes | None, expected: tuple[str, str]) -> None:
    """By the fields that people know it by."""
    assert step_of(before, after) == expected


def test_progress_says_from_where_to_where() -> None:
    """Of what went on."""
    values = {KEY: b'{"lsn":1}', OTHER: b'{"lsn":3}'}
    now = scan(placed({KEY: b'{"lsn":2}', OTHER: b'{"lsn":3}'})).snapshot("c")
    assert OffsetProgress.between(values, now).describe() == '["c",{"p":0}]: lsn 1 -> lsn 2'
    assert OffsetProgress.between(values, scan(placed(values)).snapshot("c")).describe() == ""
