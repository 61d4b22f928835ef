"""A Connect file in which two Connect clusters are mixed up, and other ways to take one thing for another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover_lab.embed.connect import ConnectCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import Connect, Workers, assert_counted, counting_plugin
from tests.support.connect.connect_tool import FIRST_RECORDS, Case, Tool


@pytest.fixture(scope="module")
def hidden(session_home: Path, target_cluster: SharedCluster) -> Iterator[ConnectCluster]:
    """A worker whose advertised name is not known here: whether it is the one that is named, nobody can tell
    by its address."""
    with ConnectCluster.start(
        session_home / "hidden",
        target_cluster.bootstrap,
        "hidden",
        plugins=[counting_plugin()],
        properties={"rest.advertised.host.name": "worker.invalid"},
    ) as cluster:
        yield cluster


@pytest.fixture
def others(
    workers: Workers, hidden: ConnectCluster, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> Iterator[tuple[Case, Connect, Tool]]:
    """A case on workers of their own; another cluster's hand, and a file with that one's configuration and
    these workers' address."""
    other, tool = Connect(hidden, target_cluster.client), Tool(tmp_path / "mixed", hidden)
    tool.ask(*workers.plain.urls)
    with Case(tmp_path, unique_name, workers.plain, target_cluster.client) as case:
        case.begin()
        yield case, other, tool
        other.delete(case.name)
    other.close()


def test_another_clusters_connector_of_that_name_is_not_moved(others: tuple[Case, Connect, Tool]) -> None:
    """It would go on from what the connector of the file's cluster has read."""
    case, other, tool = others
    topic = f"{case.name}-other"
    other.create_topic(topic)
    other.count(case.name, topic)
    other.await_numbers(topic, FIRST_RECORDS)

    planned, applied = tool.plan(case.name), tool.apply(case.name)

    assert (planned.code, planned.codes()) == (3, {"WORKERS_DIFFER"}), planned
    assert applied.outcome(case.name) == "refused", applied
    assert tool.verify(case.name).outcome(case.name) == "refused"
    case.assert_goes_on()
    other.await_more(topic)
    assert_counted(other.numbers(topic))


def test_an_order_that_went_to_another_cluster_is_followed_by_nothing(
    others: tuple[Case, Connect, Tool],
) -> None:
    """Both were made by the same pipeline, so nothing tells them apart but where the order is written."""
    case, other, tool = others
    other.count(case.name, case.topic)
    other.await_offsets(case.name)

    applied = tool.apply(case.name)

    told = applied.of(case.name)
    assert (told["outcome"], told["error"]["code"]) == ("unfinished", "WORKERS_DIFFER"), applied
    assert f"/connectors/{case.name}/resume" in told["message"]
    assert other.states(case.name)[0] == "RUNNING"
    own = f"{other.cluster.offsets_topic}-{case.name}"
    assert other.offsets(case.name, own).values == {}
    assert "offsets.storage.topic" not in case.connect.config(case.name)


def test_a_topic_that_another_clusters_connector_uses_is_left_to_it(
    workers: Workers, hidden: ConnectCluster, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> None:
    """It is behind, so that nothing shows whose it is but that it goes on."""
    other, topic = Connect(hidden, target_cluster.client), f"{unique_name}-other"
    with Case(tmp_path, unique_name, workers.plain, target_cluster.client) as case:
        case.begin()
        other.create_topic(topic)
        other.count(case.name, topic, **{"offsets.storage.topic": case.own_topic})
        # Written to its own topic first.
        other.await_offsets(case.name)

        planned, applied = case.tool.plan(case.name), case.tool.apply(case.name)

        assert "are overwritten" in str(planned.document), planned
        told = applied.of(case.name)
        assert (told["outcome"], told["error"]["code"]) == ("unfinished", "STILL_WRITING"), applied
        other.restart(case.name)
        other.await_more(topic)
        assert_counted(other.numbers(topic))
        assert case.tool.rollback(case.name).outcome(case.name) == "done"
        case.assert_goes_on()
        other.delete(case.name)
    other.close()


def test_an_offsets_topic_that_is_not_the_workers_stops_nobody(
    workers: Workers, hidden: ConnectCluster, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> None:
    """There is nothing of the connector in it: what is copied would be that it never read anything."""
    lines = workers.plain.properties_path.read_text()
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(lines.replace(f"={workers.plain.offsets_topic}\n", f"={hidden.offsets_topic}\n"))
    keys = {"worker_config": str(wrong)}
    with Case(tmp_path, unique_name, workers.plain, target_cluster.client, keys=keys) as case:
        case.begin()
        case.connect.await_offsets(case.name)

        planned, applied = case.tool.plan(case.name), case.tool.apply(case.name)

        assert (planned.code, planned.codes()) == (3, {"WORKER_CONFIG"}), planned
        assert applied.outcome(case.name) == "refused", applied
        case.assert_goes_on()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["plain", "exactly_once"])
def test_a_connector_is_not_taken_back_to_a_topic_that_is_not_the_workers(
    workers: Workers,
    hidden: ConnectCluster,
    target_cluster: SharedCluster,
    unique_name: str,
    tmp_path: Path,
    kind: str,
) -> None:
    """It would go on from the real one as it is, whatever is written into the other."""
    own: ConnectCluster = getattr(workers, kind)
    lines = own.properties_path.read_text()
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(lines.replace(f"={own.offsets_topic}\n", f"={hidden.offsets_topic}\n"))
    with Case(tmp_path, unique_name, own, target_cluster.client) as case:
        case.begin()
        case.migrate()
        mixed = Tool(tmp_path / "mixed", own, keys={"worker_config": str(wrong)})

        planned, done = mixed.run("downgrade", "--connector", case.name), mixed.downgrade(case.name)

        assert (planned.code, planned.codes()) == (3, {"WORKER_CONFIG"}), planned
        assert done.outcome(case.name) == "refused", done
        assert case.connect.offsets(case.name, hidden.offsets_topic).values == {}
        assert case.tool.downgrade(case.name).outcome(case.name) == "done"
        case.assert_goes_on()
        case.assert_never_back()


def test_a_line_that_was_taken_out_is_put_in_again_without_a_repeat(
    workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> None:
    """As `verify` says: the offsets are carried along first."""
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        case.begin()
        case.migrate()
        case.connect.update(case.name, "offsets.storage.topic")
        case.connect.await_more(case.topic)

        told = case.tool.verify(case.name).of(case.name)

        assert told["outcome"] == "failed" and "`apply` again, which carries" in told["message"], told
        case.migrate()
        case.connect.update(case.name, offsets__storage__topic=case.own_topic)
        case.assert_goes_on()


def test_a_topic_in_which_another_clusters_connector_lives_is_left_to_it(
    workers: Workers, hidden: ConnectCluster, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> None:
    """It stands still, so nobody sees it write: overwritten, it would write once more all that it has."""
    topic = f"{unique_name}-own"
    other = Connect(hidden, target_cluster.client)
    with Case(tmp_path, unique_name, workers.plain, target_cluster.client) as case:
        case.begin()
        case.connect.await_offsets(case.name)
        case.connect.stop(case.name)
        other.create_topic(f"{unique_name}-other")
        other.count(case.name, f"{unique_name}-other", offsets__storage__topic=topic)
        least = max(map(len, case.connect.numbers(case.topic).values())) + FIRST_RECORDS
        other.await_numbers(f"{unique_name}-other", least)
        other.stop(case.name)

        applied = case.tool.apply(case.name, options=["--topic", topic])

        assert applied.outcome(case.name) == "refused", applied
        assert "another Connect cluster" in applied.of(case.name)["message"]
        other.resume(case.name)
        other.await_more(f"{unique_name}-other")
        assert_counted(other.numbers(f"{unique_name}-other"))
        other.delete(case.name)
    other.close()
