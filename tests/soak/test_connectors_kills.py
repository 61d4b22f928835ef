"""The tool killed with -9 at every step, on every kind of workers; workers that come and go meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from onceover.connectors.steps import StepName
from onceover_lab.embed.connect import ConnectCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import Workers, connect_workers, last_counts
from tests.support.connect.connect_tool import Case

OLD_VERSION = "3.9.1"
KINDS = ("exactly_once", "plain")
# Not on the way of a migration.
OTHERS = {StepName.RESTORE, StepName.ROLLBACK, StepName.SETTLE}
# What the killed run did before it stays done: the next one does not come by again.
ONCE = {StepName.CONFIGURED}
# Of a downgrade these are reached only where the global offsets differ.
COPYING = {StepName.COPY_BEGIN, StepName.COPY_COMMIT, StepName.COPIED}
UP = [
    (kind, step)
    for kind in KINDS
    for step in StepName
    if step not in OTHERS and (kind, step) != ("plain", StepName.FENCE)
]
# Workers without exactly-once read what was aborted, too: nothing is written for them in a transaction.
DOWN = [
    (kind, step)
    for kind, step in UP
    if step is not StepName.CREATE_TOPIC and (kind, step) != ("plain", StepName.COPY_COMMIT)
]
Start = Callable[..., Case]

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def old_workers(session_home: Path, target_cluster: SharedCluster) -> Iterator[Workers]:
    """The same workers of an older release."""
    with connect_workers(
        session_home / "connect-old", target_cluster.bootstrap, "connect-old", OLD_VERSION
    ) as workers:
        yield workers


@pytest.fixture(params=["4.3.0", OLD_VERSION])
def some_workers(request: pytest.FixtureRequest) -> Workers:
    """Workers of the newest release, and of an older one."""
    name = "old_workers" if request.param == OLD_VERSION else "workers"
    found: Workers = request.getfixturevalue(name)
    return found


@pytest.fixture
def start(
    some_workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> Iterator[Start]:
    """Begin with a running counting connector."""
    with ExitStack() as stack:

        def begin(kind: str) -> Case:
            cluster: ConnectCluster = getattr(some_workers, kind)
            case = stack.enter_context(Case(tmp_path, unique_name, cluster, target_cluster.client))
            case.begin()
            return case

        yield begin


@pytest.mark.parametrize(("kind", "step"), UP, ids=lambda value: getattr(value, "name", value))
def test_killed_at_a_step_of_a_migration_it_converges(start: Start, kind: str, step: StepName) -> None:
    """Killed twice at the same step, run again: no gap, no repeat, never a restart from zero."""
    case = start(kind)
    case.tool.killed_at(step, "apply", case.name)
    if step not in ONCE:
        case.tool.killed_at(step, "apply", case.name)
    case.migrate()
    case.assert_goes_on()
    case.assert_never_back()


@pytest.mark.parametrize(("kind", "step"), DOWN, ids=lambda value: getattr(value, "name", value))
def test_killed_at_a_step_of_a_downgrade_it_converges(start: Start, kind: str, step: StepName) -> None:
    """The same on the way back; and up again."""
    case = start(kind)
    case.migrate()
    case.connect.await_more(case.topic)
    if step in COPYING:
        case.connect.stop(case.name)
        case.shift_global(50)
    case.tool.killed_at(step, "downgrade", case.name)
    # One that was stopped before stays so, and shows nothing.
    expected = "unverifiable" if step in COPYING else "done"
    assert case.tool.downgrade(case.name).outcome(case.name) == expected
    case.connect.resume(case.name)
    case.assert_goes_on()
    case.migrate()
    case.assert_goes_on()


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_again(start: Start, kind: str) -> None:
    """Three times: each stale topic is overwritten, each configuration is as before."""
    case = start(kind)
    before = case.connect.config(case.name)
    for _ in range(3):
        case.migrate()
        case.assert_goes_on()
        assert case.tool.downgrade(case.name).outcome(case.name) == "done"
        case.assert_goes_on()
        assert case.connect.config(case.name) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_killed_in_the_middle_does_no_harm(start: Start, kind: str) -> None:
    """Killed while the connector is stopped and its offsets are not yet copied, and started again."""
    case = start(kind)
    case.tool.killed_at(StepName.COPY_BEGIN, "apply", case.name)
    worker = case.cluster.workers[-1]
    worker.kill()
    worker.start()
    case.migrate()
    case.assert_goes_on()
    counts = last_counts(case.connect.offsets(case.name, case.own_topic))
    assert all(count > 0 for count in counts.values())
