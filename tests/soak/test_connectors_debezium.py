"""Debezium under load: a connector whose offsets are moved while rows come in, tool and worker killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onceover.connectors.steps import StepName
from onceover_lab.embed.connect import ConnectCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import EXACTLY_ONCE, TIMEOUT_S
from tests.support.connect.connect_tool import Case
from tests.support.connect.debezium import NumberedRows, Postgres, copied, debezium_plugin, postgres
from tests.support.session.wait import wait_until

# Killed there on the way up, and on the way down: each leaves something else half-done.
ROUNDS = ((StepName.COPY_COMMIT, StepName.CONFIGURED), (StepName.CONFIGURED, StepName.SNAPSHOT))

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A database of the test's own."""
    with postgres() as server:
        yield server


@pytest.fixture
def debezium(session_home: Path, target_cluster: SharedCluster, unique_name: str) -> Iterator[ConnectCluster]:
    """Two exactly-once workers with Debezium among their plugins."""
    home = session_home / f"debezium-{unique_name}"
    plugins = home / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "debezium").symlink_to(debezium_plugin())
    settings = {**EXACTLY_ONCE, "plugin.path": str(plugins)}
    with ConnectCluster.start(
        home, target_cluster.bootstrap, f"debezium-{unique_name}", workers=2, properties=settings
    ) as cluster:
        yield cluster


@pytest.fixture
def case(
    debezium: ConnectCluster, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> Iterator[Case]:
    """Connectors on these workers."""
    with Case(tmp_path, unique_name, debezium, target_cluster.client) as case:
        yield case


def test_every_row_is_copied_once_while_offsets_move(case: Case, server: Postgres, tmp_path: Path) -> None:
    """Killed on the way up and down, a worker killed while it runs: no row is missing, none is there twice,
    and none of a transaction that was rolled back."""
    topic = f"{case.name}.public.{case.name}"
    with closing(NumberedRows(tmp_path / "rows", server, case.name)) as rows:
        rows.await_table()
        case.connect.configure(case.name, **server.connector(case.name))
        wait_until(lambda: is_snapshot_through(case), TIMEOUT_S, "its first snapshot is through")
        rows.begin()
        await_more_rows(case, topic)
        for up, down in ROUNDS:
            case.tool.killed_at(up, "apply", case.name)
            case.migrate()
            await_more_rows(case, topic)
            # Not the one that is asked for its state.
            worker = case.cluster.workers[-1]
            worker.kill()
            worker.start()
            await_more_rows(case, topic)
            assert case.tool.verify(case.name).outcome(case.name) == "done"
            case.tool.killed_at(down, "downgrade", case.name)
            assert case.tool.downgrade(case.name).outcome(case.name) == "done"
            await_more_rows(case, topic)
        expected = rows.end()

    wait_until(
        lambda: copied(case.client, topic).total() >= len(expected), TIMEOUT_S, "every row is in Kafka"
    )
    # What comes twice may come late: behind a transaction of its tasks that is read to its end.
    case.connect.stop(case.name)
    assert sorted(copied(case.client, topic).elements()) == expected


def is_snapshot_through(case: Case) -> bool:
    """Tell whether Debezium has read what the table held at its start."""
    return any(
        json.loads(value).get("snapshot_completed") is True
        for value in case.connect.offsets(case.name).values.values()
        if value is not None
    )


def await_more_rows(case: Case, topic: str, more: int = 200) -> None:
    """Wait until Kafka has got more rows than it has now."""
    now = copied(case.client, topic).total()
    wait_until(
        lambda: copied(case.client, topic).total() >= now + more, TIMEOUT_S, f"{more} more rows in {topic}"
    )
