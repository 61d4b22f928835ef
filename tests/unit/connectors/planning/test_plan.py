"""What a migration would do, and what stands in its way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceover.connectors.model import PAUSED, STOPPED, ConnectorPlan, ConnectorState, TaskState
from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.offsets.keys import partition_of, sentinel_key
from onceover.connectors.planning.plan import plan_migration
from onceover.connectors.planning.view import ConnectorView
from onceover.connectors.record.manifest import COPIED, Manifest
from onceover.kafka.admin.topics import TopicSpec
from onceover.planning.plan import Refusal
from tests.unit.connectors.views import (
    GLOBAL,
    KEY,
    OTHER,
    OWN,
    PARTITIONS,
    connector,
    facts,
    placed,
    view,
)

VALUES = {KEY: b'{"position":5}', OTHER: b'{"position":7}'}
RIGHT, WRONG = partition_of(KEY, PARTITIONS), (partition_of(KEY, PARTITIONS) + 1) % PARTITIONS


def dropping(state: str = "RUNNING") -> ConnectorState:
    """Return a connector whose stop makes its database forget how far it was read."""
    found = connector(state=state)
    postgres = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector"}
    return replace(found, config={**found.config, **postgres, "slot.drop.on.stop": "TRUE"})


def codes(plan: ConnectorPlan) -> list[str]:
    """Return the codes of what is refused."""
    return [refusal.code for refusal in plan.refusals]


def kinds(plan: ConnectorPlan) -> list[str]:
    """Return what is done, in order."""
    return [change.what for change in plan.changes]


def manifest(**changes: Any) -> Manifest:
    """Return the manifest of an interrupted migration."""
    found = Manifest.begin("migrate", "c", (GLOBAL, OWN), "RUNNING", {}, {}, exactly_once=True)
    return replace(found, offsets=VALUES, **changes)


def test_plan_names_every_change_in_order() -> None:
    """Topic before stop, fence before copy, configuration before resume."""
    plan = plan_migration(view(placed(VALUES)), None)
    assert kinds(plan) == [
        "create topic",
        "stop",
        "fence",
        "copy offsets",
        "set offsets.storage.topic",
        "resume",
    ]
    assert (plan.offsets, plan.stale, plan.warnings) == (2, 0, ())


def test_number_of_partitions_that_is_left_to_the_brokers_is_told_so() -> None:
    """Workers with offset.storage.partitions=-1 say nothing of a number."""
    spec = TopicSpec(OWN, -1, -1, {"cleanup.policy": "compact"})
    create = plan_migration(view(placed(VALUES), spec=spec), None).changes[0]
    assert create.to == "the brokers' number of partitions, compacted"


def test_without_exactly_once_nothing_is_fenced() -> None:
    """There are no transactional ids."""
    seen = view(placed(VALUES), facts=facts(exactly_once=False), fence_ids=())
    assert "fence" not in kinds(plan_migration(seen, None))


@pytest.mark.parametrize("state", [STOPPED, PAUSED])
def test_connector_gets_back_to_what_it_did(state: str) -> None:
    """One that was stopped is not resumed, one that was paused is paused."""
    plan = plan_migration(view(placed(VALUES), state=connector(state=state)), None)
    resumed = [change.to for change in plan.changes if change.what == "resume"]
    assert resumed == ([] if state == STOPPED else [state])


def test_connector_that_an_interrupted_run_stopped_is_resumed() -> None:
    """What it did before that run is what counts."""
    plan = plan_migration(view(placed(VALUES), state=connector(state=STOPPED), interrupted="RUNNING"), None)
    assert kinds(plan)[-1] == "resume" and "stop" not in kinds(plan)


def test_stale_keys_are_shown_as_removed() -> None:
    """Connect would believe a key that the shared topic no longer has."""
    plan = plan_migration(view(placed({KEY: b'{"position":5}'}), placed(VALUES)), None)
    removed = [change for change in plan.changes if change.what == "remove stale offsets"]
    assert [(change.risk, change.records) for change in removed] == [("destructive", 1)]


def test_tombstoned_offsets_are_not_copied() -> None:
    """An offset that was reset is not there."""
    assert plan_migration(view(placed({KEY: None, OTHER: b'{"position":1}'})), None).offsets == 1


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (view([], state=connector(type="sink")), "NOT_A_SOURCE"),
        (view([], state=connector(type="unknown")), "NO_PLUGIN"),
        (view([], facts=facts(version="3.4.1")), "WORKER_VERSION"),
        (view([], state=connector("elsewhere")), "OTHER_TOPIC"),
        (view([], topic=GLOBAL), "TOPIC_NAME"),
        (view([], topic="with space"), "TOPIC_NAME"),
        (view(placed({KEY: b"null"})), "NULL_OFFSET"),
        (view(placed({b'["c",null]': b'{"position":1}'})), "NULL_OFFSET"),
        (view([(RIGHT, KEY, b'{"position":1}'), (WRONG, KEY, b'{"position":2}')]), "KEY_TWICE"),
        (view([], state=connector(state="FAILED")), "CONNECTOR_FAILED"),
        (view([], state=connector(tasks=(TaskState(0, "FAILED", "w", "x"),))), "CONNECTOR_FAILED"),
        (view(placed({KEY: b'{"lsn":1,"snapshot_completed":false}'})), "SNAPSHOT_RUNS"),
        (view(placed({KEY: b'{"lsn":1,"snapshot":true,"last_snapshot_record":false}'})), "SNAPSHOT_RUNS"),
        (view(placed(VALUES), state=dropping()), "SLOT_DROPPED"),
        (view([], [], policy="delete"), "NOT_COMPACTED"),
        (view([], [], policy="compact,delete"), "NOT_COMPACTED"),
        (view([], [], policy=None), "NOT_COMPACTED"),
        (view([], [(0, b"stranger", b"1")]), "FOREIGN_KEYS"),
        (view([], [(0, b"", b"1")]), "FOREIGN_KEYS"),
        (view([], placed({b'["gone",{}]': b'{"position":1}'})), "FOREIGN_KEYS"),
        (view([], [(WRONG, KEY, b'{"position":1}')]), "KEY_MISPLACED"),
        (view([], [(WRONG, KEY, None)]), "KEY_MISPLACED"),
        (view([], [(RIGHT, KEY, b'{"position":1}'), (WRONG, KEY, b'{"position":1}')]), "KEY_MISPLACED"),
        (view([], problems=(Refusal("c", "NOT_AUTHORIZED", "no", "grant"),)), "NOT_AUTHORIZED"),
    ],
)
def test_what_does_not_hold_is_refused_and_nothing_is_planned(seen: ConnectorView, code: str) -> None:
    """All or nothing."""
    plan = plan_migration(seen, None)
    assert (code in codes(plan), plan.blocked, plan.changes) == (True, True, ())


@pytest.mark.parametrize(
    "seen",
    [
        view([], facts=facts(version="3.5.0")),
        view([(WRONG, KEY, b'{"position":1}'), (RIGHT, KEY, b'{"position":2}')]),
        view([(RIGHT, KEY, b'{"position":1}'), (WRONG, KEY, b'{"position":1}')]),
        view(placed({KEY: None})),
        view(placed({KEY: b'{"position":null}'})),
        view(placed({KEY: b'{"lsn":1,"snapshot":"INITIAL","snapshot_completed":true}'})),
        view(placed({KEY: b'{"lsn":1,"snapshot":true,"last_snapshot_record":true}'})),
        view([], state=connector(state=STOPPED)),
        view([], [(0, b"stranger", None)]),
        view([], placed({b'["ab",{}]': b'{"position":1}'})),
        view([], placed({sentinel_key("c"): b'{"migrated":true}'})),
        view([], state=connector(GLOBAL)),
    ],
)
def test_near_misses_are_not_refused(seen: ConnectorView) -> None:
    """The newest value where the workers write, tombstones, other connectors of this cluster, sentinels."""
    assert codes(plan_migration(seen, None)) == []


def test_mode_that_the_config_topic_contradicts_is_refused() -> None:
    """Under exactly-once no task runs before the leader has fenced its predecessors."""
    records = ConfigRecords({"commit-c": {"tasks": 1}}, {"commit-c": 7, "tasks-fencing-c": 3})
    assert codes(plan_migration(view([], records=records), None)) == ["WORKER_MODE"]
    fenced = replace(records, offsets={"commit-c": 7, "tasks-fencing-c": 8})
    assert codes(plan_migration(view([], records=fenced), None)) == []


@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize("says_mode", [True, False])
def test_mode_that_nobody_has_named_is_asked_for_where_tasks_were_fenced(
    fenced: bool, says_mode: bool
) -> None:
    """Workers without exactly-once fence none; to read as they do would copy what was aborted."""
    records = ConfigRecords(
        {"commit-c": {"tasks": 1}}, {"commit-c": 7, "tasks-fencing-c": 8 if fenced else 3}
    )
    seen = view([], facts=facts(exactly_once=False, says_mode=says_mode), records=records)
    expected = ["WORKER_MODE"] if fenced and not says_mode else []
    assert codes(plan_migration(seen, None)) == expected


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (view([(0, KEY, b'{"position":1}'), (1, KEY, b'{"position":1}')]), "more than one partition"),
        (view(placed({b'["c",{"b":1,"a":2}]': b'{"position":1}'})), "PATCH"),
        (view(placed(VALUES), shown=[]), "GET offsets"),
        (view([], placed({b'["ab",{}]': b'{"position":1}'})), "also holds offsets of ab"),
        (
            view(
                [],
                facts=facts(exactly_once=False),
                records=ConfigRecords({"commit-c": {"tasks": 1}}, {"commit-c": 1, "tasks-fencing-c": 2}),
            ),
            "exactly.once.source.support",
        ),
    ],
)
def test_oddities_are_warned_of(seen: ConnectorView, word: str) -> None:
    """A person hears of them, and they stop nobody."""
    assert any(word in text for text in plan_migration(seen, None).warnings)


@pytest.mark.parametrize(
    ("state", "offset", "warned"), [("RUNNING", 4, False), (STOPPED, 4, True), (STOPPED, 5, False)]
)
def test_values_that_get_shows_count_only_while_it_is_stopped(state: str, offset: int, warned: bool) -> None:
    """A running connector's offsets move between the two looks."""
    seen = view(
        placed({KEY: b'{"position":5}'}),
        shown=[({"p": 0}, {"position": offset})],
        state=connector(state=state),
    )
    assert any("GET" in text for text in plan_migration(seen, None).warnings) is warned


@pytest.mark.parametrize(
    ("base", "refused"),
    [({}, True), ({b'["c",{"p":9}]': b'{"position":1}'}, True), ({KEY: b'{"position":1}'}, False)],
)
def test_offsets_that_the_workers_know_and_the_topic_does_not_are_elsewhere(
    base: dict[bytes, bytes | None], *, refused: bool
) -> None:
    """Another topic than the workers': to copy what is there would have the connector begin at zero."""
    for state in (connector(), connector(state=STOPPED)):
        seen = view(placed(base), state=state, shown=[({"p": 0}, {"position": 5}), ({"p": 2}, None)])
        assert codes(plan_migration(seen, None)) == (["WORKER_CONFIG"] if refused else [])
    begun = view(placed(base), shown=[({"p": 0}, None)])
    assert codes(plan_migration(begun, None)) == []


@pytest.mark.parametrize(
    ("position", "found", "refused"),
    [(6, None, True), (6, "elsewhere", True), (6, OWN, False), (5, None, False), (4, None, False)],
)
@pytest.mark.parametrize("finished", [True, False])
def test_topic_that_is_ahead_may_be_that_of_anothers_connector(
    position: int, found: str | None, *, refused: bool, finished: bool
) -> None:
    """Two Connect clusters, one name, one topic: the one that lives there would go on from older offsets."""
    seen = view(placed(VALUES), placed({**VALUES, KEY: b'{"position":%d}' % position}))
    run = None if found is None else manifest(to_topic=found, finished=finished).with_step(COPIED)
    plan = plan_migration(seen, run)
    assert codes(plan) == (["FOREIGN_KEYS"] if refused else [])
    # Where it is behind, or stands there too, it would be moved on, or back: only a person knows.
    assert any("overwritten" in text for text in plan.warnings) is (found != OWN)


def test_a_run_that_has_copied_nothing_makes_a_topic_nobodys_own() -> None:
    """It may have ended because somebody writes there, and is run again once that one has gone ahead."""
    seen = view(placed(VALUES), placed({**VALUES, KEY: b'{"position":6}'}))
    plan = plan_migration(seen, manifest().with_step("begin").with_step("snapshot"))
    assert codes(plan) == ["FOREIGN_KEYS"]
    assert any("overwritten" in text for text in plan.warnings)


def test_interrupted_run_after_the_configuration_owes_the_resume() -> None:
    """The offsets are where they belong: nothing is copied again."""
    seen = view(placed(VALUES), placed(VALUES), state=connector(OWN, STOPPED))
    assert kinds(plan_migration(seen, manifest())) == ["resume"]


def test_finished_run_owes_nothing() -> None:
    """Its own topic is configured: done."""
    seen = view(placed(VALUES), placed(VALUES), state=connector(OWN))
    plan = plan_migration(seen, manifest(finished=True))
    assert (plan.changes, plan.refusals) == ((), ()) and plan.warnings


@pytest.mark.parametrize(
    ("state", "target", "interrupted", "expected"),
    [
        ("UNASSIGNED", {"state": "PAUSED", "state.v2": "STOPPED"}, None, STOPPED),
        ("UNASSIGNED", {"state": "PAUSED"}, None, PAUSED),
        ("UNASSIGNED", {"state": "STARTED", "state.v2": "STARTED"}, None, "RUNNING"),
        ("UNASSIGNED", None, None, "RUNNING"),
        ("FAILED", {"state": "STARTED"}, None, "RUNNING"),
        ("STOPPED", None, None, STOPPED),
        ("STOPPED", None, "RUNNING", "RUNNING"),
        ("UNASSIGNED", {"state": "PAUSED", "state.v2": "STOPPED"}, "PAUSED", PAUSED),
        ("RUNNING", {"state": "STARTED"}, STOPPED, "RUNNING"),
    ],
)
def test_a_connector_goes_back_to_what_was_asked_of_it(
    state: str, target: Any, interrupted: str | None, expected: str
) -> None:
    """Also while its status says nothing; what an interrupted run has stopped is not stopped on purpose."""
    records = ConfigRecords({"target-state-c": target}, {"target-state-c": 1})
    seen = view([], state=connector(state=state), records=records, interrupted=interrupted)
    assert seen.initial_state == expected


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        ("3.4.1", True),
        ("3.5.0", False),
        ("5.5.0-ccs", True),
        ("7.4.0-ce", True),
        ("7.5.0-ccs", False),
        ("8.0.0-ccs", False),
    ],
)
def test_workers_of_a_platform_are_as_old_as_their_kafka(version: str, refused: bool) -> None:
    """Confluent's say the platform's version: 7.4 is Kafka 3.4, which cannot stop a connector."""
    plan = plan_migration(view(placed(VALUES), facts=facts(version=version)), None)
    assert codes(plan) == (["WORKER_VERSION"] if refused else [])


@pytest.mark.parametrize("value", [b"", b"\xff", b"{", b"[" * 100_000])
def test_value_that_is_no_json_is_that_connectors_refusal(value: bytes) -> None:
    """The usual slip when an offset is removed by hand: an empty value and no tombstone."""
    seen = view(placed({KEY: value}), state=connector(state=STOPPED), shown=[])
    assert codes(plan_migration(seen, None)) == ["NULL_OFFSET"]


@pytest.mark.parametrize("value", [b'{"lsn":1}', b'{"lsn":1,"snapshot_completed":false}'])
def test_what_a_stop_would_do_is_nothing_to_one_that_stands(value: bytes) -> None:
    """To wait until its snapshot is through would be to wait for ever."""
    plan = plan_migration(view(placed({KEY: value}), state=dropping(STOPPED)), None)
    assert codes(plan) == []


@pytest.mark.parametrize(
    ("state", "tasks", "warned"),
    [("RUNNING", 1, True), ("RUNNING", 0, True), (PAUSED, 0, False), (STOPPED, 0, False)],
)
def test_connector_without_an_offset_that_may_read_begins_anew(state: str, tasks: int, warned: bool) -> None:
    """Its tasks may not be there yet: Debezium waits for locks."""
    running = tuple(TaskState(n, "RUNNING", "w", "") for n in range(tasks))
    plan = plan_migration(view([], state=replace(connector(state=state), tasks=running)), None)
    assert any("begins anew" in text for text in plan.warnings) is warned
