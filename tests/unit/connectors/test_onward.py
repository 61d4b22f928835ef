"""From where on a connector is judged, when a run goes on with it."""

from __future__ import annotations

from unittest import mock

import pytest

from onceover.config.clients import ClientConfig
from onceover.connectors import run as runs
from onceover.connectors.access import ConnectAccess, Site
from onceover.connectors.manifest import WENT_ON, Manifest
from onceover.connectors.model import STOPPED, Isolation
from onceover.connectors.onward import OnwardRun
from onceover.connectors.rest import ConnectRest
from onceover.connectors.run import MIGRATE, Context
from onceover.connectors.scan import Scan
from onceover.connectors.settings import Wish
from onceover.connectors.watching import Course, Progress
from onceover.errors import NeedsOperator
from onceover.kafka.cluster import Cluster
from tests.unit.connectors.views import GLOBAL, KEY, OWN, connector, facts, placed, scan, view

LOW, HIGH = b'{"position":1}', b'{"position":2}'


def some_cluster() -> mock.Mock:
    """Return a cluster that nobody calls."""
    found = mock.Mock(spec=Cluster)
    found.config = ClientConfig("t", {})
    return found


class Landed(OnwardRun):
    """A run whose offsets are where they should be."""

    @property
    def landing(self) -> Site:
        return Site(some_cluster(), OWN, Isolation.READ_COMMITTED)


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Return workers whose topic says ``LOW`` now, and whose connector writes nothing more."""
    found = mock.Mock(spec=ConnectAccess)
    found.rest = mock.Mock(spec=ConnectRest)
    found.scan.return_value = scan(placed({KEY: LOW}), OWN)
    found.own_id.return_value = "onceover.connect.g.c"
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
    wish = Wish(("c",), watch_s=0.0)
    return Landed(Context(access, facts(), wish, mock.Mock()), view([]), manifest, mock.Mock())


def first_look(monkeypatch: pytest.MonkeyPatch, run: Landed) -> Progress:
    """Return what the run restores or finishes with."""
    seen: list[Progress] = []

    def judged(_run: object, progress: Progress) -> None:
        seen.append(progress)
        raise NeedsOperator("judged")

    def watched(course: Course) -> Progress:
        return course.look()

    monkeypatch.setattr("onceover.connectors.onward.restore", judged)
    monkeypatch.setattr(run, "watch", watched)
    monkeypatch.setattr(run, "finish", lambda *found: judged(None, found[-1]))
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


def test_own_transaction_is_ended_before_the_first_look(
    monkeypatch: pytest.MonkeyPatch, access: mock.Mock
) -> None:
    """Of a killed run: the look would wait for it until the broker aborts it."""
    order: list[str] = []
    monkeypatch.setattr(runs, "fence", lambda _cluster, name: order.append(name))
    run = run_of(access, "RUNNING")
    found: Scan = access.scan.return_value

    def scanned(_site: Site) -> Scan:
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
    run.end_own_transactions(Site(cluster, GLOBAL, Isolation.READ_UNCOMMITTED))
    assert not fence.called
    committed = [Site(cluster, topic, Isolation.READ_COMMITTED) for topic in (OWN, GLOBAL)]
    run.end_own_transactions(*committed)
    assert fence.call_count == 1
