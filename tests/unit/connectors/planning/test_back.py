"""What rollback and downgrade would do, and what stands in their way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onceover.connectors.model import STOPPED, ConnectorPlan
from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.offsets.keys import partition_of, sentinel_key
from onceover.connectors.planning.back import plan_hard, plan_rollback, plan_soft
from onceover.connectors.planning.plan import plan_migration
from onceover.connectors.planning.view import ConnectorView
from onceover.connectors.record.manifest import Manifest
from tests.unit.connectors.views import GLOBAL, KEY, OTHER, OWN, PARTITIONS, connector, facts, placed, view

VALUES = {KEY: b'{"position":5}'}
MOVED = {KEY: b'{"position":6}'}
RIGHT = partition_of(KEY, PARTITIONS)


def codes(plan: ConnectorPlan) -> list[str]:
    """Return the codes of what is refused."""
    return [refusal.code for refusal in plan.refusals]


def kinds(plan: ConnectorPlan) -> list[str]:
    """Return what is done, in order."""
    return [change.what for change in plan.changes]


def manifest(former: str | None = None, **changes: Any) -> Manifest:
    """Return the manifest of an interrupted migration, or of a downgrade from ``former``."""
    config = {} if former is None else {"offsets.storage.topic": former}
    route = (GLOBAL, OWN) if former is None else (former, GLOBAL)
    found = Manifest.begin("migrate", "c", route, "RUNNING", config, {}, exactly_once=True)
    fields: dict[str, Any] = {"offsets": VALUES, **changes}
    return replace(found, **fields)


def test_hard_overwrites_before_it_configures() -> None:
    """The shared topic is right before anybody looks there."""
    plan = plan_hard(view(placed(MOVED), placed(VALUES), state=connector(OWN)), None)
    assert kinds(plan) == ["stop", "fence", "overwrite offsets", "set offsets.storage.topic", "resume"]


def test_hard_removes_what_was_never_committed() -> None:
    """A key in the shared topic only was written ahead of a transaction that was aborted."""
    plan = plan_hard(
        view(placed({**VALUES, OTHER: b'{"position":1}'}), placed(VALUES), state=connector(OWN)), None
    )
    removed = [change for change in plan.changes if change.what == "remove offsets"]
    assert [(change.risk, change.records) for change in removed] == [("destructive", 1)]


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (view(placed(VALUES), [], state=connector(OWN)), "NEVER_MIGRATED"),
        (view(placed(VALUES), None, state=connector(OWN)), "OFFSETS_TOPIC_MISSING"),
        (view(placed(VALUES), placed({KEY: b"null"}), state=connector(OWN)), "NULL_OFFSET"),
        (
            view(
                [],
                [(RIGHT, KEY, b'{"position":1}'), ((RIGHT + 1) % 3, KEY, b'{"position":2}')],
                state=connector(OWN),
            ),
            "KEY_TWICE",
        ),
    ],
)
def test_hard_refuses_a_topic_that_is_no_truth(seen: ConnectorView, code: str) -> None:
    """Nothing is deleted from the shared topic because of it."""
    plan = plan_hard(seen, None)
    assert (codes(plan), plan.changes) == ([code], ())


def test_hard_takes_a_sentinel_for_the_truth() -> None:
    """The connector was migrated, and had no offset."""
    plan = plan_hard(view([], placed({sentinel_key("c"): b"{}"}), state=connector(OWN)), None)
    assert codes(plan) == []


def test_hard_of_a_connector_without_own_topic_does_nothing() -> None:
    """It is where it should be."""
    plan = plan_hard(view(placed(VALUES)), None)
    assert (plan.changes, plan.refusals) == ((), ()) and plan.warnings


def test_interrupted_hard_owes_the_resume() -> None:
    """After the configuration only that is left."""
    seen = view(placed(VALUES), placed(VALUES), state=connector(state=STOPPED))
    assert kinds(plan_hard(seen, manifest(OWN))) == ["resume"]


def test_soft_settles_under_exactly_once_and_resumes_without_it() -> None:
    """Between the two the workers are restarted."""
    before = plan_soft(view(placed(VALUES)), None)
    assert kinds(before) == ["stop", "fence", "settle offsets"]
    without = view(
        placed(VALUES), state=connector(state=STOPPED), facts=facts(exactly_once=False), fence_ids=()
    )
    after = plan_soft(without, manifest(None, to_topic=GLOBAL))
    assert kinds(after) == ["resume"]


def test_soft_refuses_a_topic_that_is_not_the_workers() -> None:
    """What was aborted in theirs would be read for real, once they are without exactly-once."""
    plan = plan_soft(view([], shown=[({"p": 0}, {"position": 5})]), None)
    assert (codes(plan), plan.changes) == (["WORKER_CONFIG"], ())
    assert codes(plan_soft(view(placed(VALUES), shown=[({"p": 0}, {"position": 5})]), None)) == []


def test_soft_warns_of_what_workers_without_exactly_once_refuse() -> None:
    """Not the resume; but every later change of its configuration, this tool's too."""
    state = connector()
    state = replace(state, config={**state.config, "exactly.once.support": "required"})
    (warning,) = plan_soft(view(placed(VALUES), state=state), None).warnings
    assert "exactly.once.support" in warning


def test_rollback_of_a_failed_connector_is_not_taken_for_a_resumed_one() -> None:
    """It failed after the run had stopped it; what was asked of it counts."""
    records = ConfigRecords({"target-state-c": {"state": "PAUSED", "state.v2": "STOPPED"}})
    seen = view(placed(VALUES), placed(VALUES), state=connector(OWN, "FAILED"), records=records)
    assert kinds(plan_rollback(seen, manifest())) == ["set offsets.storage.topic", "resume"]


def test_soft_leaves_a_connector_with_its_own_topic_alone() -> None:
    """That topic is always read committed."""
    plan = plan_soft(view(placed(VALUES), placed(VALUES), state=connector(OWN)), None)
    assert plan.changes == () and plan.warnings


def test_rollback_puts_the_former_configuration_back() -> None:
    """Configuration and resume; no offset is touched."""
    seen = view(placed(VALUES), placed(VALUES), state=connector(OWN, STOPPED))
    plan = plan_rollback(seen, manifest())
    assert kinds(plan) == ["set offsets.storage.topic", "resume"]


def test_rollback_before_the_configuration_only_resumes() -> None:
    """Nothing else was changed."""
    assert kinds(plan_rollback(view(placed(VALUES), state=connector(state=STOPPED)), manifest())) == [
        "resume"
    ]


@pytest.mark.parametrize(
    ("seen", "found", "expected"),
    [
        (view(placed(VALUES)), None, ["NOTHING_TO_ROLL_BACK"]),
        (view(placed(VALUES)), manifest(finished=True), ["NOTHING_TO_ROLL_BACK"]),
        (view(placed(VALUES), placed(VALUES), state=connector(OWN)), manifest(), ["RESUMED"]),
        (view(placed(VALUES), placed(MOVED), state=connector(OWN, STOPPED)), manifest(), ["MOVED_ON"]),
        (view(placed(MOVED), placed(VALUES), state=connector(OWN, STOPPED)), manifest(), ["MOVED_ON"]),
    ],
)
def test_rollback_is_refused_once_offsets_moved(
    seen: ConnectorView, found: Manifest | None, expected: list[str]
) -> None:
    """From then on only a downgrade carries them along."""
    plan = plan_rollback(seen, found)
    assert (codes(plan), plan.changes) == (expected, ())


def test_topic_of_all_connectors_has_one_name() -> None:
    """In plans as in the docs: shared; ``global`` is what else Kafka Connect's own texts call it."""
    back = plan_hard(view(placed(MOVED), placed(VALUES), state=connector(OWN)), None)
    missing = plan_hard(view(placed(VALUES), None, state=connector(OWN)), None)
    texts = [change.reason for change in back.changes] + [r.resolve for r in missing.refusals]
    assert any("shared topic" in text for text in texts)
    assert not any("global" in text for text in texts)


@pytest.mark.parametrize("back", [False, True])
def test_what_an_interrupted_run_may_still_do_is_said(back: bool) -> None:
    """It stops a connector that has gone back: nobody should learn of that afterwards."""
    topic, planned = (None, plan_hard) if back else (OWN, plan_migration)
    found = manifest(OWN if back else None)
    running = planned(view(placed(VALUES), placed(VALUES), state=connector(topic)), found)
    assert running.changes == () and "stopped if an offset has gone back" in running.warnings[0]
    stopped = planned(view(placed(VALUES), placed(VALUES), state=connector(topic, STOPPED)), found)
    assert kinds(stopped) == ["resume"] and stopped.warnings == ()


@pytest.mark.parametrize("own", [None, OWN])
def test_every_plan_says_who_has_stopped_the_connector(own: str | None) -> None:
    """Before it is moved, and once it was: it stays as it is, and somebody may not want that."""
    seen = view(placed(VALUES), placed(VALUES), state=connector(own, STOPPED), standing="somebody has")
    plans = [plan_migration(seen, None), plan_rollback(seen, manifest(own))]
    plans.append(plan_hard(seen, None) if own else plan_soft(seen, None))
    assert all("somebody has" in plan.warnings for plan in plans)


BUSY = {KEY: b'{"lsn":1,"snapshot_completed":false}'}


@pytest.mark.parametrize("state", ["RUNNING", "PAUSED"])
def test_first_snapshot_is_not_begun_anew_by_the_way_back(state: str) -> None:
    """All that it has read would be written again, whichever way it is stopped."""
    hard = plan_hard(view(placed(VALUES), placed(BUSY), state=connector(OWN, state=state)), None)
    soft = plan_soft(view(placed(BUSY), state=connector(state=state)), None)
    assert [(codes(plan), plan.changes) for plan in (hard, soft)] == [(["SNAPSHOT_RUNS"], ())] * 2


def test_way_back_of_one_that_stands_in_its_snapshot_is_free() -> None:
    """The stop was somebody else's, and has done its harm."""
    hard = plan_hard(view(placed(VALUES), placed(BUSY), state=connector(OWN, state=STOPPED)), None)
    assert codes(hard) == [] and hard.changes


@pytest.mark.parametrize("plan", [plan_hard, plan_soft])
def test_what_another_run_owes_is_not_told_as_done(plan: Callable[..., ConnectorPlan]) -> None:
    """A migration was killed when it had stopped the connector: that it has no topic yet is no way back."""
    seen = view(placed(VALUES), placed(VALUES), state=connector(state=STOPPED), owed="it is STOPPED by a run")
    found = plan(seen, None)
    assert (codes(found), found.changes) == (["INTERRUPTED"], ())
    assert codes(plan(replace(seen, state=connector(OWN, STOPPED)), None)) == []


def test_the_way_back_of_a_run_that_is_over_can_be_typed_as_it_stands() -> None:
    """With the Connect cluster and the connector."""
    [refusal] = plan_rollback(view(placed(VALUES)), None).refusals
    assert "`onceover connectors downgrade flights --connector c`" in refusal.resolve
