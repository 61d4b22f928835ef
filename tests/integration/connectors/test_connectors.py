"""Moving connectors' offsets on live workers: nothing is lost, nothing is repeated (KIP-618, G8)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka.partitioner.default import murmur2

from onceover.connectors.steps import StepName
from onceover_lab.embed.connect import ConnectCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import (
    OFFSET_PARTITIONS,
    Offsets,
    Workers,
    assert_counted,
    last_counts,
    rewound,
)
from tests.support.connect.connect_tool import FIRST_RECORDS, Case

# In one of the two a HashMap, and so Connect's REST API, has another order.
FIELDS = {"exactly_once": "topic,partition,cluster", "plain": "cluster,partition,topic"}
Start = Callable[..., Case]


@pytest.fixture
def start(
    workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> Iterator[Start]:
    """Begin with a running counting connector: ``start("exactly_once", tasks__max=1)``."""
    with ExitStack() as stack:

        def begin(kind: str = "exactly_once", **config: object) -> Case:
            cluster: ConnectCluster = getattr(workers, kind)
            case = stack.enter_context(Case(tmp_path, unique_name, cluster, target_cluster.client))
            case.begin(**config)
            return case

        yield begin


def assert_in_their_partitions(offsets: Offsets) -> None:
    """Fail unless each key is where Kafka's own partitioner puts it, and nowhere else."""
    for key, partitions in offsets.partitions.items():
        assert partitions == {(murmur2(key) & 0x7FFFFFFF) % OFFSET_PARTITIONS}


# A restart takes its tasks some seconds.
@pytest.mark.parametrize(
    ("kind", "restarts"),
    [
        ("exactly_once", 1),
        pytest.param("exactly_once", 5, marks=pytest.mark.soak),
        pytest.param("plain", 5, marks=pytest.mark.soak),
    ],
)
def test_a_migrated_connector_goes_on_where_it_was(start: Start, kind: str, restarts: int) -> None:
    """Same key bytes, each in its murmur2 partition; restarts never go back."""
    case = start(kind, fields=FIELDS[kind])
    planned = case.tool.plan(case.name)
    assert planned.code == 0 and planned.document["changes"]
    assert "offsets.storage.topic" not in case.connect.config(case.name)
    keys = set(case.connect.await_offsets(case.name).values)
    assert all(list(json.loads(key)[1]) == FIELDS[kind].split(",") for key in keys)

    assert case.migrate().code == 0

    assert set(case.connect.offsets(case.name, case.own_topic).values) == keys
    case.assert_goes_on()
    for _ in range(restarts):
        case.connect.restart(case.name)
        case.connect.await_running(case.name)
        case.connect.await_more(case.topic, 5)
    case.assert_goes_on()
    case.assert_never_back()
    assert_in_their_partitions(case.connect.offsets(case.name, case.own_topic))
    assert case.tool.verify(case.name).code == 0


@pytest.mark.soak
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(StepName.COPY_COMMIT, id="COPY_COMMIT"),
        pytest.param(StepName.CONFIGURED, id="CONFIGURED"),
    ],
)
def test_killed_in_the_middle_it_converges(start: Start, step: StepName) -> None:
    """Before the copy is committed, and before the resume: the next run ends what it began."""
    case = start()
    case.tool.killed_at(step, "apply", case.name)
    case.migrate()
    case.assert_goes_on()
    case.assert_never_back()


@pytest.mark.soak
@pytest.mark.parametrize("tail", ["ahead", "behind"])
def test_a_hard_downgrade_goes_on_where_the_own_topic_says(start: Start, tail: str) -> None:
    """Also when the global values are higher, or lower; and the stale topic does no harm afterwards."""
    case = start()
    case.migrate()
    case.connect.await_more(case.topic)
    case.connect.stop(case.name)
    truth = last_counts(case.connect.offsets(case.name, case.own_topic))
    case.shift_global(50 if tail == "ahead" else -5)

    # It was stopped before, so it stays so, and nothing shows yet that it goes on.
    assert case.tool.downgrade(case.name).outcome(case.name) == "unverifiable"

    assert "offsets.storage.topic" not in case.connect.config(case.name)
    assert last_counts(case.connect.offsets(case.name)) == truth
    case.connect.resume(case.name)
    case.assert_goes_on()
    assert all(last_counts(case.connect.offsets(case.name))[p] > count for p, count in truth.items())
    if tail == "behind":
        stale = last_counts(case.connect.offsets(case.name, case.own_topic))
        case.migrate()
        case.assert_goes_on()
        assert all(
            last_counts(case.connect.offsets(case.name, case.own_topic))[p] > n for p, n in stale.items()
        )


@pytest.mark.soak
def test_connectors_that_share_a_topic_do_not_share_offsets(start: Start) -> None:
    """One's name begins the other's; a third has nothing to migrate and gets the sentinel."""
    case = start()
    longer, silent = f"{case.name}b", f"{case.name}c"
    shared = f"{case.own_topic}-shared"
    for name in (longer, silent):
        case.connect.create_topic(name)
    case.connect.count(longer, longer)
    case.connect.count(silent, silent, until=0)
    case.connect.await_numbers(longer, FIRST_RECORDS)

    result = case.tool.apply(longer, case.name, silent, options=["--topic", shared, "--watch", "5s"])

    assert [result.outcome(name) for name in (longer, case.name, silent)] == ["done", "done", "unverifiable"]
    assert result.code == 3
    for name in (case.name, longer):
        assert case.connect.config(name)["offsets.storage.topic"] == shared
        case.connect.await_more(name)
        assert_counted(case.connect.numbers(name))
        assert len(case.connect.offsets(name, shared).values) == 2
    sentinel = case.connect.offsets(silent, shared).values
    assert {key: json.loads(value or b"null") for key, value in sentinel.items()} == {
        json.dumps([silent]).encode(): {"migrated": True}
    }
    case.connect.update(silent, until=10)
    assert_counted(case.connect.await_numbers(silent, 10))


@pytest.mark.soak
def test_a_rollback_before_the_resume_restores_the_configuration(start: Start) -> None:
    """Nothing else is touched; the connector goes on as if nothing had been."""
    case = start()
    before = case.connect.config(case.name)
    case.tool.killed_at(StepName.RESUME, "apply", case.name)
    assert case.connect.config(case.name) != before

    assert case.tool.rollback(case.name).code == 0

    assert case.connect.config(case.name) == before
    case.connect.resume(case.name)
    case.assert_goes_on()
    case.migrate()
    case.assert_goes_on()


@pytest.mark.soak
def test_a_step_back_stops_the_connector_and_restores_its_offsets(start: Start, tmp_path: Path) -> None:
    """A connector that forgets where it was does not overwrite what is known."""
    forget = tmp_path / "forget"
    case = start(forget__if=forget, batch=1)
    case.connect.await_numbers(case.topic, 100)
    least = last_counts(case.connect.offsets(case.name))
    forget.touch()

    result = case.tool.apply(case.name)

    assert (result.code, result.outcome(case.name)) == (1, "failed"), result
    case.connect.await_stopped(case.name)
    restored = case.connect.offsets(case.name, case.own_topic)
    assert rewound(restored) != set()
    assert all(last_counts(restored)[p] >= count for p, count in least.items())
