"""A group in what the flow has not taken in is named, and its other partitions go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceover.config.home import HOME_VARIABLE
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.replica import Replica

OPERATOR = 3


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and indexes of the test's own."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))


def test_partitions_and_topics_that_came_while_the_flow_rested_are_named(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.source.add_partitions(topic, 3)
    later = replica.topic("later")
    # Outside of the filter: nobody's concern.
    local = replica.source.create_topic(f"local-{replica.name}", 1)
    group, only = f"{replica.name}-g", f"{replica.name}-only"
    commit(replica.source_client, group, topic, {0: 7, 2: 0})
    commit(replica.source_client, group, later, {0: 0})
    commit(replica.source_client, group, local, {0: 0})
    commit(replica.source_client, only, later, {0: 0})

    def run(action: str, *options: str) -> tuple[int, list[tuple[Any, ...]]]:
        names = ("--group", f"{replica.name}-.*")
        code, document = replica.command(capsys, "groups", action, str(replica.flow.path), *names, *options)
        keys = ("group", "topic", "partition", "code")
        return code, [tuple(p[key] for key in keys) for p in document["positions"] if p["code"]]

    missing = [
        (group, later, 0, "NOT_ENROLLED"),
        (group, topic, 2, "NOT_ENROLLED"),
        (only, later, 0, "NOT_ENROLLED"),
    ]
    for action in ("plan", "apply"):
        code, left = run(action)
        assert (code, sorted(left)) == (OPERATOR, sorted(missing))
    assert offset_of(replica.target_client, group, topic) == 7
    # Back, the target has nothing more than what was copied.
    assert run("apply", "--direction", "failback") == (0, [])
    replica.copy()
    assert run("apply") == (0, [])
    assert offset_of(replica.target_client, group, topic, 2) == 0
