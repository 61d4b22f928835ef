"""What is remembered of groups may be deleted, or made anew, under a continuous sync: it goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onceover.backoff import Deadline
from onceover.config.home import HOME_VARIABLE
from onceover.groups.apply import WATCH_S
from onceover.groups.memory import GroupMemory
from onceover.state import names
from onceover.wiring.flows import open_clusters
from onceover.wiring.groups import GroupRequest
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.operations import follow_groups
from tests.support.flows.replica import Replica, delete_topics

_TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and indexes of the test's own."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))


def test_a_sync_goes_on_without_what_it_has_remembered(replica: Replica) -> None:
    topic, group = replica.topic(), f"{replica.name}-reader"
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    commit(replica.source_client, group, topic, {0: 2})
    deadline, told = Deadline(_TIMEOUT_S), list[str]()

    def delete() -> None:
        delete_topics(replica.target_client, [names.groups_topic(replica.name)])

    def make_anew() -> None:
        delete()
        source, target = open_clusters(replica.flow.watch.flow)
        with source, target:
            memory = GroupMemory(target, replica.name)
            memory.prepare(1)
            memory.close()

    # What is done once the group stands somewhere: each time its reader goes on by two records.
    steps: list[tuple[int, Callable[[], None]]] = [
        (2, delete),
        (4, make_anew),
        (6, delete),
        (8, lambda: None),
    ]

    def pause(seconds: float) -> bool:
        assert not deadline.passed, told
        if seconds == WATCH_S or offset_of(replica.target_client, group, topic) != steps[0][0]:
            return False
        at, change = steps.pop(0)
        change()
        commit(replica.source_client, group, topic, {0: at + 2})
        return not steps

    request = GroupRequest(patterns=[group])
    follow_groups(replica.flow.watch.flow, request, 0.0, pause, told.append)
    assert offset_of(replica.target_client, group, topic) == 8
