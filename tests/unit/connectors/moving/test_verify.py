"""The verdict about a connector's own topic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from onceover.connectors.model import ConnectorOutcome, EndState, Report, TaskState
from onceover.connectors.moving.context import HARD
from onceover.connectors.moving.migration import _standing_migration
from onceover.connectors.moving.verify import judge
from onceover.connectors.offsets.keys import partition_of, sentinel_key
from onceover.connectors.planning.view import ConnectorView
from onceover.connectors.record.manifest import SETTLED, Manifest, ManifestStore
from onceover.planning.plan import Refusal
from tests.unit.connectors.views import GLOBAL, KEY, OTHER, OWN, PARTITIONS, connector, placed, view

VALUES = {KEY: b'{"position":5}', OTHER: b'{"position":5}'}
WRONG = (partition_of(KEY, PARTITIONS) + 1) % PARTITIONS


def migrated(own: dict[bytes, bytes | None], **changes: Any) -> ConnectorView:
    """Return a connector with its own topic."""
    fields: dict[str, Any] = {"state": connector(OWN), **changes}
    return view([], placed(own), **fields)


def manifest(to_topic: str = OWN) -> Manifest:
    """Return the manifest of a run that copied ``VALUES``."""
    found = Manifest.begin("migrate", "c", (GLOBAL, to_topic), "RUNNING", {}, {}, exactly_once=True)
    return replace(found, offsets=VALUES, finished=True)


@pytest.mark.parametrize(
    ("seen", "found", "expected"),
    [
        (migrated({KEY: b'{"position":6}', OTHER: b'{"position":5}'}), manifest(), EndState.DONE),
        (migrated({**VALUES}), manifest(), EndState.UNVERIFIABLE),
        (migrated({KEY: b'{"position":6}', OTHER: b'{"position":4}'}), manifest(), EndState.FAILED),
        (migrated({KEY: b'{"position":6}'}), manifest(), EndState.FAILED),
        (migrated({**VALUES}), None, EndState.UNVERIFIABLE),
        (migrated({**VALUES}), manifest("another"), EndState.UNVERIFIABLE),
        (migrated({}), manifest(), EndState.FAILED),
        (migrated({sentinel_key("c"): b"{}"}), None, EndState.UNVERIFIABLE),
        (migrated({KEY: b"null"}), None, EndState.FAILED),
        (migrated({**VALUES}, policy="delete"), manifest(), EndState.FAILED),
        (view([], [(WRONG, KEY, b"{}")], state=connector(OWN)), None, EndState.FAILED),
        (view([], None, state=connector(OWN)), manifest(), EndState.FAILED),
        (view(placed({**VALUES})), manifest(), EndState.UNVERIFIABLE),
        (view(placed({**VALUES})), manifest().with_step(SETTLED), EndState.UNVERIFIABLE),
        (view(placed({**VALUES})), manifest().with_step(SETTLED, finished=True), EndState.FAILED),
        (
            view(placed({**VALUES})),
            manifest().with_step(SETTLED, finished=True).with_step("as before", finished=True),
            EndState.UNVERIFIABLE,
        ),
        (migrated({}, problems=(Refusal("c", "NOT_AUTHORIZED", "no", "do"),)), None, EndState.REFUSED),
    ],
)
def test_verdict_says_what_is_known(seen: ConnectorView, found: Manifest | None, expected: EndState) -> None:
    """A step back or a broken topic fails; what nothing shows is never called done."""
    assert judge(seen, found).outcome is expected


def test_a_line_that_was_taken_out_is_put_in_last() -> None:
    """Its own topic is behind by now: with the line alone all since then would be written once more."""
    told = judge(view(placed({**VALUES})), manifest().with_step(SETTLED, finished=True)).message
    assert told.index("`apply` again") < told.index("only then put it in"), told


@pytest.mark.parametrize("begun_ms", [1, 3])
def test_what_was_taken_back_since_is_no_migration(tmp_path: Path, begun_ms: int) -> None:
    """It lost its topic because somebody wanted that; one that was migrated again is one."""
    store, run = ManifestStore(tmp_path), replace(manifest(), begun_ms=2)
    store.save(run)
    assert _standing_migration(store, "c") == run
    store.save(replace(run, operation=HARD, begun_ms=begun_ms))
    assert (_standing_migration(store, "c") == run) is (begun_ms == 1)


@pytest.mark.parametrize("run", [None, manifest().with_step(SETTLED, finished=True)], ids=["never", "once"])
def test_failure_is_told_also_without_a_topic_of_its_own(run: Manifest | None) -> None:
    """Whoever asks about a connector is told that it does nothing."""
    task = TaskState(0, "FAILED", "w1:8083", "org.X: no\n\tat y\nCaused by: org.Denied: topic")
    state = replace(connector(), tasks=(task,))
    found = judge(view(placed({**VALUES}), state=state), run)
    assert found.outcome is EndState.FAILED
    assert "Denied: topic" in found.message


@pytest.mark.parametrize("failed", ["FAILED", "RUNNING"])
def test_connector_that_has_failed_is_never_called_good(failed: str) -> None:
    """It, or one of its tasks; however far it had come."""
    task = TaskState(0, "FAILED", "w1:8083", "org.X: no\n\tat y\nCaused by: org.Denied: topic")
    state = replace(connector(OWN, failed), tasks=(task,))
    found = judge(migrated({KEY: b'{"position":6}', OTHER: b'{"position":6}'}, state=state), manifest())
    assert found.outcome is EndState.FAILED
    assert "Denied: topic" in found.message


def test_connector_that_somebody_has_stopped_since_is_not_called_done() -> None:
    """Whatever it had written; who let it run would look at the exit code."""
    own: dict[bytes, bytes | None] = {KEY: b'{"position":6}', OTHER: b'{"position":6}'}
    seen = migrated(own, state=connector(OWN, "STOPPED"), standing="somebody has stopped it: `do this`")
    found = judge(seen, manifest())
    assert found.outcome is EndState.UNVERIFIABLE
    assert found.message.endswith("it is STOPPED now: somebody has stopped it: `do this`")


def test_state_in_which_nothing_is_written_is_named() -> None:
    """What it had written before it was stopped is proof all the same."""
    found = judge(
        migrated({KEY: b'{"position":6}', OTHER: b'{"position":6}'}, state=connector(OWN, "STOPPED")),
        manifest(),
    )
    assert (found.outcome, "it is STOPPED now" in found.message) == (EndState.DONE, True)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"lsn": 1000, "txId": 7}, EndState.FAILED),
        ({"lsn": 1904121600, "txId": 7}, EndState.DONE),
        ({"page": "b", "cursor": "x"}, EndState.UNVERIFIABLE),
    ],
)
def test_offset_of_several_fields_counts_where_its_order_is_known(
    now: dict[str, Any], expected: EndState
) -> None:
    """Far back by somebody's hand is a step back; what changed in another shape shows nothing."""
    before = b'{"lsn":1904121544,"txId":5}' if "lsn" in now else b'{"page":"a","cursor":"y"}'
    seen = migrated({KEY: json.dumps(now).encode()})
    assert judge(seen, replace(manifest(), offsets={KEY: before})).outcome is expected


@pytest.mark.parametrize(
    ("key", "other", "same", "expected"),
    [
        ("tombstone", 7, True, EndState.UNVERIFIABLE),
        ("tombstone", 8, True, EndState.DONE),
        ("tombstone", 6, True, EndState.FAILED),
        # Compaction has taken the tombstone; or a broker's log was lost.
        ("nothing", 8, True, EndState.UNVERIFIABLE),
        ("nothing", 6, True, EndState.FAILED),
        ("nothing", 8, False, EndState.FAILED),
    ],
)
def test_offset_that_was_deleted_is_not_one_that_went_back(
    key: str, other: int, *, same: bool, expected: EndState
) -> None:
    """A task deletes that of a file which is through: who is asked every day would be told a false alarm."""
    now: dict[bytes, bytes | None] = {OTHER: b'{"position":%d}' % other}
    seen = migrated({KEY: None, **now} if key == "tombstone" else now)
    assert seen.own is not None
    own = replace(seen.own, scan=replace(seen.own.scan, topic_id=UUID(int=1)))
    copied = replace(manifest(), offsets={KEY: b'{"position":5}', OTHER: b'{"position":7}'})
    found = copied.with_destination({0: 9}, UUID(int=1) if same else None)
    assert judge(replace(seen, own=own), found).outcome is expected


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], 0),
        ([EndState.DONE, EndState.UNVERIFIABLE], 3),
        ([EndState.REFUSED, EndState.FAILED, EndState.RETRIABLE], 1),
        ([EndState.RETRIABLE, EndState.DONE], 5),
        ([EndState.REFUSED, EndState.RETRIABLE], 3),
    ],
)
def test_report_has_the_worst_exit_code(outcomes: list[EndState], expected: int) -> None:
    """A violation before what is to be decided, that before what is to be repeated."""
    found = tuple(ConnectorOutcome(str(n), outcome, "") for n, outcome in enumerate(outcomes))
    assert Report("connectors", "t", found).exit_code == expected


@pytest.mark.parametrize(
    ("landed", "value", "expected"),
    [
        (0, b'{"lsn":5}', EndState.DONE),
        (9, b'{"lsn":5}', EndState.UNVERIFIABLE),
        (0, b'{"odd":5}', EndState.UNVERIFIABLE),
        (0, b'{"offset":0}', EndState.UNVERIFIABLE),
    ],
    ids=["written once more", "the copy itself", "no known order", "where all begin"],
)
def test_place_that_was_written_once_more_shows_that_it_was_read(
    landed: int, value: bytes, expected: EndState
) -> None:
    """A quiet table with a heartbeat: its offset is byte-equal for days, and written every few seconds."""
    found = replace(manifest(), offsets={KEY: value}, landed=dict.fromkeys(range(PARTITIONS), landed))
    assert judge(migrated({KEY: value}), found).outcome is expected


@pytest.mark.parametrize(
    ("copied", "now", "expected"),
    [
        (1, 1, EndState.DONE),
        (1, 2, EndState.FAILED),
        (None, 2, EndState.DONE),
        (1, None, EndState.DONE),
        # Brokers that gave no ids yet, and do since they were upgraded.
        (0, 2, EndState.DONE),
        (1, 0, EndState.DONE),
    ],
)
def test_topic_that_was_made_anew_is_not_the_one_that_was_copied_to(
    copied: int | None, now: int | None, expected: EndState
) -> None:
    """Who began at zero in it has overtaken its old offset by the time that somebody looks."""
    ids = [None if number is None else UUID(int=number) for number in (copied, now)]
    found = manifest().with_destination({0: 9}, ids[0])
    seen = migrated({KEY: b'{"position":6}', OTHER: b'{"position":5}'})
    assert seen.own is not None
    own = replace(seen.own, scan=replace(seen.own.scan, topic_id=ids[1]))
    assert judge(replace(seen, own=own), found).outcome is expected


def test_shared_offsets_of_one_that_an_interrupted_run_has_stopped() -> None:
    """Whoever asks how it is hears that it stands, and how it goes on."""
    seen = view(placed({**VALUES}), state=connector(state="STOPPED"), owed="it is STOPPED by a run: go on")
    assert "with all others'; it is STOPPED by a run: go on" in judge(seen, None).message
