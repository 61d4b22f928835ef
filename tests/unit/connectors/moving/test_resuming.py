"""From where on a connector is judged, when a run goes on with it."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.connectors.model import STOPPED, ConnectorState, EndState, Isolation
from onceover.connectors.moving import run as runs
from onceover.connectors.moving.context import MIGRATE, Context
from onceover.connectors.moving.resuming import ResumingRun
from onceover.connectors.moving.watching import OffsetCourse, OffsetProgress
from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.offsets.scan import Scan
from onceover.connectors.planning.access import ConnectAccess, OffsetsTopic
from onceover.connectors.planning.view import Observer
from onceover.connectors.record.manifest import RESUMED, SETTLED, WENT_ON, Manifest
from onceover.connectors.settings import ConnectorRequest
from onceover.connectors.workers.lifecycle import ConnectorFailed
from onceover.connectors.workers.rest import ConnectRest
from onceover.errors import NeedsOperator, Retriable
from onceover.kafka.ports import Cluster
from tests.unit.connectors.views import GLOBAL, KEY, OWN, connector, facts, placed, scan, view

LOW, HIGH, HIGHER = b'{"position":1}', b'{"position":2}', b'{"position":3}'


def some_cluster() -> mock.Mock:
    """Return a cluster that nobody calls."""
    found = mock.Mock(spec=Cluster)
    found.config = ClientConfig("t", {})
    return found


class Landed(ResumingRun):
    """A run whose offsets are where they should be."""

    @property
    def destination(self) -> OffsetsTopic:
        return OffsetsTopic(some_cluster(), OWN, Isolation.READ_COMMITTED)


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Return workers whose topic says ``LOW`` now, and whose connector writes nothing more."""
    found = mock.Mock(spec=ConnectAccess)
    found.rest = mock.Mock(spec=ConnectRest)
    found.scan.return_value = scan(placed({KEY: LOW}), OWN)
    found.own_id.return_value = "onceover.connect.g.c"
    found.global_topic = GLOBAL
    monkeypatch.setattr(runs, "records_since", mock.Mock(return_value=[]))
    monkeypatch.setattr(runs, "fence", mock.Mock())
    return found


def run_of(access: mock.Mock, state: str, *steps: str) -> Landed:
    """Return a run that copied ``HIGH``, and has done some steps."""
    access.rest.state.return_value = connector(OWN, state)
    manifest = Manifest.begin(MIGRATE, "c", (GLOBAL, OWN), "RUNNING", {}, {}, exactly_once=True)
    manifest = manifest.with_snapshot(scan(placed({KEY: HIGH})).snapshot("c"))
    for step in steps:
        manifest = manifest.with_step(step)
    request = ConnectorRequest(("c",), watch_s=0.0)
    return Landed(Context(access, facts(), request, mock.Mock()), view([]), manifest, mock.Mock())


def first_look(monkeypatch: pytest.MonkeyPatch, run: Landed) -> OffsetProgress:
    """Return what the run restores or finishes with."""
    seen: list[OffsetProgress] = []

    def judged(_run: object, progress: OffsetProgress) -> None:
        seen.append(progress)
        raise NeedsOperator("judged")

    def watched(course: OffsetCourse) -> OffsetProgress:
        return course.look()

    monkeypatch.setattr("onceover.connectors.moving.resuming.restore", judged)
    monkeypatch.setattr(run, "watch", watched)
    monkeypatch.setattr(run, "finish", lambda *found, **_: judged(None, found[-1]))
    with pytest.raises(NeedsOperator, match="judged"):
        run.go_on()
    return seen[0]


@pytest.mark.parametrize(
    ("state", "steps", "back"),
    [
        ("RUNNING", (), [KEY]),
        (STOPPED, (), [KEY]),
        (STOPPED, (WENT_ON,), [KEY]),
        ("RUNNING", (WENT_ON,), []),
    ],
)
def test_what_a_person_decided_is_where_judging_begins(
    monkeypatch: pytest.MonkeyPatch, access: mock.Mock, state: str, steps: tuple[str, ...], back: list[bytes]
) -> None:
    """Only a person resumes a connector that went back; until then it stays what it is."""
    assert first_look(monkeypatch, run_of(access, state, *steps)).back == back


@pytest.mark.parametrize(
    ("state", "steps", "restored"),
    [("RUNNING", (RESUMED,), False), (STOPPED, (RESUMED,), False), (STOPPED, (), True)],
)
def test_offset_that_a_task_deletes_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, access: mock.Mock, state: str, steps: tuple[str, ...], *, restored: bool
) -> None:
    """One that has not run since has no task that could: it would begin at zero where somebody deleted."""
    access.scan.return_value = scan(placed({KEY: None}), OWN)
    restore = mock.Mock(side_effect=NeedsOperator("restored"))
    monkeypatch.setattr("onceover.connectors.moving.resuming.restore", restore)
    run = run_of(access, state, *steps)
    monkeypatch.setattr(run, "resume", lambda: True)
    monkeypatch.setattr(run, "states", lambda: [connector(OWN)])
    monkeypatch.setattr(run, "note", mock.Mock())
    if restored:
        with pytest.raises(NeedsOperator, match="restored"):
            run.go_on()
        return
    found = run.go_on()
    assert (found.outcome, restore.called) == (EndState.UNVERIFIABLE, False)
    assert "deleted since, by its task" in found.message


def test_own_transaction_is_ended_before_the_first_look(
    monkeypatch: pytest.MonkeyPatch, access: mock.Mock
) -> None:
    """Of a killed run: the look would wait for it until the broker aborts it."""
    order: list[str] = []
    monkeypatch.setattr(runs, "fence", lambda _cluster, name: order.append(name))
    run = run_of(access, "RUNNING")
    found: Scan = access.scan.return_value

    def scanned(_site: OffsetsTopic) -> Scan:
        order.append("scan")
        return found

    access.scan.side_effect = scanned
    first_look(monkeypatch, run)
    assert order == ["onceover.connect.g.c", "scan"]


def test_readers_of_uncommitted_records_wait_for_nothing(
    monkeypatch: pytest.MonkeyPatch, access: mock.Mock
) -> None:
    """So nothing is fenced for them, and one cluster is fenced once."""
    fence = mock.Mock()
    monkeypatch.setattr(runs, "fence", fence)
    cluster = some_cluster()
    run = run_of(access, "RUNNING")
    run.end_own_transactions(OffsetsTopic(cluster, GLOBAL, Isolation.READ_UNCOMMITTED))
    assert not fence.called
    committed = [OffsetsTopic(cluster, topic, Isolation.READ_COMMITTED) for topic in (OWN, GLOBAL)]
    run.end_own_transactions(*committed)
    assert fence.call_count == 1


def verdict(
    monkeypatch: pytest.MonkeyPatch, access: mock.Mock, after: bytes, state: ConnectorState
) -> tuple[EndState, str]:
    """Return how it ends for a connector that ran, with ``after`` as its last offset, and is in ``state``."""
    run, note = run_of(access, "RUNNING"), mock.Mock()
    said = "somebody has asked for it" if state.state in (STOPPED, "PAUSED") else ""
    monkeypatch.setattr("onceover.connectors.moving.resuming.standing", lambda *_: said)
    monkeypatch.setattr(Observer, "config_records", lambda _: ConfigRecords())
    access.scan.return_value = scan(placed({KEY: after}), OWN)
    access.rest.state.side_effect = lambda _name, url=None: state if url else connector(OWN)
    monkeypatch.setattr(run, "note", note)
    found = run.go_on()
    assert note.call_args == mock.call(SETTLED, finished=True)
    return found.outcome, found.message


@pytest.mark.parametrize(
    ("after", "state", "outcome", "words"),
    [
        (HIGHER, connector(OWN), EndState.DONE, "goes on from them"),
        (HIGHER, connector(OWN, "PAUSED"), EndState.UNVERIFIABLE, "it is PAUSED now: somebody has"),
        (HIGHER, connector(OWN, "UNASSIGNED"), EndState.DONE, "it is UNASSIGNED now"),
        (HIGH, connector(OWN), EndState.UNVERIFIABLE, "it runs and has written none"),
        (HIGH, connector(OWN, tasks=()), EndState.UNVERIFIABLE, "it runs, without a task,"),
        (HIGH, connector(OWN, "PAUSED"), EndState.UNVERIFIABLE, "it is PAUSED now"),
        (HIGH, connector(OWN, STOPPED), EndState.UNVERIFIABLE, "it is STOPPED now"),
    ],
)
def test_verdict_says_what_the_connector_does_now(
    monkeypatch: pytest.MonkeyPatch,
    access: mock.Mock,
    after: bytes,
    state: ConnectorState,
    outcome: EndState,
    words: str,
) -> None:
    """Asked of the workers: somebody may have paused it since."""
    found, message = verdict(monkeypatch, access, after, state)
    assert found is outcome
    assert words in message
    assert ("it runs" in message) is ("it runs" in words)


def test_connector_that_has_failed_after_its_last_offset_is_not_done(
    monkeypatch: pytest.MonkeyPatch, access: mock.Mock
) -> None:
    """Its only key has gone on, so there is nothing to watch: the workers know better."""
    stopped = mock.Mock()
    monkeypatch.setattr(Landed, "stop", stopped)
    with pytest.raises(ConnectorFailed):
        verdict(monkeypatch, access, HIGHER, connector(OWN, "FAILED"))
    assert stopped.called


def test_connector_that_does_not_run_yet_is_not_settled(
    monkeypatch: pytest.MonkeyPatch, access: mock.Mock
) -> None:
    """A rebalance after a killed run: its next run looks again."""
    with pytest.raises(Retriable, match="does not run yet"):
        verdict(monkeypatch, access, HIGH, connector(OWN, "UNASSIGNED"))


@pytest.mark.parametrize("topic", [None, GLOBAL, "another"])
def test_configuration_that_somebody_puts_back_is_noticed(
    monkeypatch: pytest.MonkeyPatch, access: mock.Mock, topic: str | None
) -> None:
    """An operator of the cluster that knows nothing of the line takes it out within minutes."""
    with pytest.raises(NeedsOperator) as caught:
        verdict(monkeypatch, access, HIGHER, connector(topic))
    assert (caught.value.code, caught.value.expected) == ("CONFIG_REVERTED", f"offsets.storage.topic={OWN}")
    # The line alone would have it go back to what its own topic holds by then.
    resolve = caught.value.resolve or ""
    assert "run again, which carries its offsets along; only then correct that line" in resolve


@pytest.mark.parametrize(
    ("exactly_once", "fenced", "noticed"), [(False, 5, True), (False, 3, False), (True, 5, False)]
)
def test_workers_that_still_run_exactly_once_are_noticed(
    monkeypatch: pytest.MonkeyPatch, access: mock.Mock, *, exactly_once: bool, fenced: int, noticed: bool
) -> None:
    """They fence behind the commit of the tasks that were resumed; a fence before it is of former times."""
    records = ConfigRecords(
        {"commit-c": {"tasks": 2}, "tasks-fencing-c": {"task-count": 2}},
        {"commit-c": 4, "tasks-fencing-c": fenced},
    )
    run, did = run_of(access, STOPPED), mock.Mock()
    run.context = replace(run.context, facts=facts(exactly_once=exactly_once))
    monkeypatch.setattr(Observer, "config_records", lambda _: records)
    monkeypatch.setattr(run, "resume", did.resume)
    monkeypatch.setattr(run, "watch", did.watch)
    monkeypatch.setattr(run, "stop", did.stop)
    did.watch.return_value = None
    monkeypatch.setattr(run, "finish", did.finish)
    access.scan.return_value = scan(placed({KEY: HIGH}), OWN)
    if noticed:
        with pytest.raises(NeedsOperator, match="its leader has fenced its tasks"):
            run.go_on()
    else:
        run.go_on()
    assert (did.stop.called, did.watch.called) == (noticed, not noticed)
