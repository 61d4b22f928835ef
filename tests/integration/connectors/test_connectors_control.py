"""Why the tool exists: what today's Kafka Connect does to a connector that is given an offsets topic."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from onceover_lab.embed.connect import ConnectCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import TIMEOUT_S, Connect, Workers, assert_counted, last_counts, rewound
from tests.support.session.wait import wait_until


def restarts(numbers: Mapping[int, list[int]]) -> dict[int, tuple[int, list[int]]]:
    """Return where each partition's numbers begin from zero again, and the numbers, where they do."""
    return {p: (some.index(0, 1), some) for p, some in numbers.items() if 0 in some[1:]}


# Of Connect itself, and nothing of ours: that changes with its version.
@pytest.mark.soak
@pytest.mark.parametrize("kind", ["exactly_once", "plain"])
def test_an_offsets_topic_given_by_hand_restarts_the_connector_from_zero(
    workers: Workers, target_cluster: SharedCluster, unique_name: str, kind: str
) -> None:
    """A clean stop, a changed configuration, a resume: all is written again, the global value lost."""
    cluster: ConnectCluster = getattr(workers, kind)
    connect = Connect(cluster, target_cluster.client)
    name = unique_name
    try:
        connect.create_topic(name)
        connect.count(name, name)
        connect.await_numbers(name, 100)
        connect.stop(name)
        before = last_counts(connect.offsets(name))
        numbers = connect.numbers(name)
        assert_counted(numbers)
        assert before == {partition: len(some) - 1 for partition, some in numbers.items()}

        # Slower, so that the offsets of a restart from zero are seen to be lower.
        connect.update(name, offsets__storage__topic=f"{name}-offsets", batch=1)
        connect.resume(name)
        wait_until(
            lambda: len(restarts(connect.numbers(name))) == 2,
            TIMEOUT_S,
            "both partitions begin anew",
            poll_s=0.3,
        )

        # What a worker wrote that had not yet heard of the stop goes on with the old numbers.
        for partition, (at, some) in restarts(connect.numbers(name)).items():
            assert at >= len(numbers[partition])
            assert some[:at] == list(range(at))
        # The global topic forgets, too: taking the setting away again does not bring the position back.
        wait_until(lambda: rewound(connect.offsets(name)) == {0, 1}, 30, "the global values go back")
    finally:
        connect.delete(name)
        connect.close()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("fields", "found"), [("cluster,partition,topic", True), ("topic,partition,cluster", False)]
)
def test_the_rest_api_writes_fields_in_an_order_of_its_own(
    workers: Workers, target_cluster: SharedCluster, unique_name: str, fields: str, found: bool
) -> None:
    """Tasks find what PATCH wrote only where a HashMap happens to have the connector's order."""
    connect = Connect(workers.plain, target_cluster.client)
    name = unique_name
    try:
        connect.create_topic(name)
        connect.count(name, name, fields=fields)
        connect.await_numbers(name, 20)
        connect.stop(name)
        before = connect.offsets(name).values
        offsets = [{"partition": json.loads(key)[1], "offset": {"count": 5}} for key in before]
        connect.call("PATCH", f"/connectors/{name}/offsets", {"offsets": offsets})

        after = connect.offsets(name).values
        # In both cases GET answers as if all were well.
        shown = connect.call("GET", f"/connectors/{name}/offsets")["offsets"]
        assert [each["offset"] for each in shown] == [{"count": 5}] * 2
        assert (set(after) == set(before)) is found
        if not found:
            assert all(after[key] == value for key, value in before.items())
    finally:
        connect.delete(name)
        connect.close()
