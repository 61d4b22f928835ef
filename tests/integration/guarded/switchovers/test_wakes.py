"""A switchover that was taken for dead, or planned long ago, and wakes: it touches nothing of another one."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import psutil
import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.kafka.cluster import LiveCluster
from onceover.process.children import ChildProcess
from onceover.state.read import read_flow_state
from tests.support.drills.rehearsing import rehearsing
from tests.support.drills.switching import Switched, acls_of, copied, ran
from tests.support.flows.replica import Replica
from tests.support.session.wait import wait_until

DONE: Final = 0
TIMEOUT_S: Final = 90.0

pytestmark = pytest.mark.soak


def is_promoted(replica: Replica) -> bool:
    with LiveCluster(ClientConfig("target", replica.target_client)) as cluster:
        state = read_flow_state(cluster, replica.name)
    return any(each.is_promoted for each in state.enrolled.values())


def await_paused(child: ChildProcess) -> None:
    """Return once it stands still at its place."""
    status = psutil.Process(child.pid).status
    wait_until(lambda: status() == psutil.STATUS_STOPPED, TIMEOUT_S, "it stands still")


@pytest.mark.parametrize("place", ["create-acls", "enrol"])
def test_one_that_was_aborted_as_dead_does_nothing_when_it_wakes(
    replica: Switched, capsys: pytest.CaptureFixture[str], tmp_path: Path, place: str
) -> None:
    """Neither fences nor promotes: writers were let in meanwhile, and have written."""
    topic = copied(replica)
    with rehearsing(replica, tmp_path / "drill.log", mode="planned", step=place, signal="STOP") as child:
        await_paused(child)
        assert replica.command(capsys, "drill", "abort", str(replica.flow.path))[0] == DONE
        assert acls_of(replica) == frozenset()
        replica.source.plain(topic, 0, replica.source.records(3))
        child.send_signal(signal.SIGCONT)
        assert child.wait(TIMEOUT_S) != DONE
    assert not is_promoted(replica)
    assert acls_of(replica) == frozenset()


def test_one_that_was_planned_before_another_one_was_done_undoes_nothing_of_it(
    replica: Switched, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A laptop that slept between the plan and its beginning."""
    copied(replica)
    with rehearsing(replica, tmp_path / "drill.log", mode="planned", step="begin", signal="STOP") as child:
        await_paused(child)
        assert ran(replica, capsys)[0] == DONE
        child.send_signal(signal.SIGCONT)
        assert child.wait(TIMEOUT_S) != DONE
    assert is_promoted(replica)
    assert len(acls_of(replica)) == 1
