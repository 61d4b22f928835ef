"""Flows in both directions: with prefix naming they work, with identity naming they are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from onceover.errors import UsageError
from onceover.state import names
from onceover.wiring.flows import open_clusters
from onceover.wiring.runs import supervisor
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.flows import InlineFlow, assert_same, write_flow
from tests.support.flows.replica import Live, delete_topics, read_records
from tests.support.flows.scene import Capture
from tests.support.flows.waysout import APPLY, Command, commands
from tests.support.raw.adversary import Adversary
from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0
_POLL_S = 0.2
EAST, WEST = {"alias": "east"}, {"alias": "west"}


class Pair:
    """Flows ``there`` from east to west and ``back`` from west to east, over the same topic names."""

    def __init__(self, folder: Path, name: str, east: SharedCluster, west: SharedCluster) -> None:
        self._folder = folder
        self.name = name
        self.east, self.west = dict(east.client), dict(west.client)
        self.on_east = Adversary(east.bootstrap, seed=1)
        self.on_west = Adversary(west.bootstrap, seed=2)

    def there(self, **topics: Any) -> InlineFlow:
        """Return the flow from east to west."""
        return self._flow(f"{self.name}-there", self.east, self.west, EAST, WEST, topics)

    def back(self, *, aliases: tuple[str, str] = ("west", "east"), **topics: Any) -> InlineFlow:
        """Return the flow from west to east; ``aliases`` are what its file calls the two."""
        source, target = ({"alias": alias} for alias in aliases)
        return self._flow(f"{self.name}-back", self.west, self.east, source, target, topics)

    def _flow(
        self,
        name: str,
        source: Mapping[str, str],
        target: Mapping[str, str],
        source_side: Mapping[str, str],
        target_side: Mapping[str, str],
        topics: Mapping[str, Any],
    ) -> InlineFlow:
        path = write_flow(
            self._folder,
            name,
            source,
            target,
            # The super-topic pattern: local topics and copies of other clusters' alike.
            [rf".*{self.name}[.].*"],
            source=source_side,
            target=target_side,
            topics=topics,
        )
        return InlineFlow(path)

    def topic(self, suffix: str, *, on_west: bool = False, records: int = 0) -> str:
        """Create a topic on one side, with some records."""
        side = self.on_west if on_west else self.on_east
        topic = side.create_topic(f"{self.name}.{suffix}", 1)
        if records:
            side.plain(topic, 0, side.records(records))
        return topic

    def close(self) -> None:
        """Drop the connections."""
        self.on_east.close()
        self.on_west.close()


@pytest.fixture
def pair(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[Pair]:
    pair = Pair(tmp_path, unique_name, source_cluster, target_cluster)
    yield pair
    pair.close()


@contextmanager
def running(*flows: InlineFlow) -> Iterator[None]:
    """Let flows run side by side meanwhile."""
    with ExitStack() as stack:
        for flow in flows:
            live = Live(flow, 120.0)
            live.start()
            stack.callback(live.stop)
        yield


def topics_of(client: Mapping[str, str], name: str) -> set[str]:
    """Return the topics of a cluster that carry a test's name, the flows' own left out."""
    admin = AdminClient(dict(client))
    return {t for t in admin.list_topics(timeout=_TIMEOUT_S).topics if name in t and not t.startswith("__")}


def caught_up(flow: InlineFlow, topics: int) -> bool:
    """Tell whether so many topics are copied to their ends."""
    partitions = flow.status()["partitions"]
    return len(partitions) == topics and all(p["lag_offsets"] == 0 for p in partitions)


def refusals(flow: InlineFlow) -> dict[str, dict[str, Any]]:
    """Return which topics a flow refuses, with what it says of each."""
    return {p["topic"]: p["stop"] for p in flow.status()["partitions"] if p["stop"]}


def read_by_pattern(client: Mapping[str, str], pattern: str, count: int) -> Counter[str]:
    """Return how many records of each topic a consumer reads that subscribes to a pattern."""
    consumer = Consumer(
        {
            **client,
            "group.id": f"{pattern}-reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    found: Counter[str] = Counter()
    try:
        consumer.subscribe([pattern])

        def enough() -> bool:
            found.update(m.topic() or "" for m in consumer.consume(100, 0.2) if m.error() is None)
            return found.total() >= count

        wait_until(enough, _TIMEOUT_S, f"{count} records are read")
    finally:
        consumer.close()
    return found


def begin_at_once(monkeypatch: pytest.MonkeyPatch, there: InlineFlow, back: InlineFlow) -> None:
    """Let both flows take in the same topic, and the later one leave it again."""
    leads = []
    with ExitStack() as stack:
        for flow in (there, back):
            clusters = [stack.enter_context(cluster) for cluster in open_clusters(flow.watch.flow)]
            lead = supervisor(flow.watch, *clusters)
            stack.callback(lead.close)
            lead.start()
            leads.append(lead)
        with monkeypatch.context() as patch:
            patch.setattr("onceover.topics.view.loops", lambda *_: {})
            patch.setattr("onceover.topics.view.rivals_here", lambda *_: [])
            for lead in leads:
                lead.discover()
        plans = [lead.discover() for lead in leads for _ in range(2)]
        assert [[e.active for e in plan.turn] for plan in plans] == [[], [], [False], []]
        assert [r.code for r in plans[-1].refused] == ["TWO_WAY"]
        for lead in leads:
            lead.end()


def test_both_directions_with_prefix_naming(pair: Pair) -> None:
    """Both sides have everything, nothing goes round, and a consumer of ``.*orders`` sees it all."""
    orders = pair.topic("orders", records=20)
    pair.topic("orders", on_west=True, records=30)
    there, back = pair.there(naming="prefix"), pair.back(naming="prefix")
    with running(there, back):
        for side in (pair.on_east, pair.on_west):
            side.plain(orders, 0, side.records(5))
        wait_until(
            lambda: caught_up(there, 1) and caught_up(back, 1), _TIMEOUT_S, "all is copied", poll_s=_POLL_S
        )
        reasons = {t["topic"]: t["reason"] for t in back.status()["topics"]}
    assert "carries east" in reasons[f"east.{orders}"]
    assert topics_of(pair.east, pair.name) == {orders, f"west.{orders}"}
    assert topics_of(pair.west, pair.name) == {orders, f"east.{orders}"}
    assert_same(pair.east, pair.west, {orders: f"east.{orders}"})
    assert_same(pair.west, pair.east, {orders: f"west.{orders}"})
    pattern = rf"^.*{pair.name}[.]orders"
    assert read_by_pattern(pair.east, pattern, 60) == {orders: 25, f"west.{orders}": 35}
    assert read_by_pattern(pair.west, pattern, 60) == {orders: 35, f"east.{orders}": 25}


@pytest.mark.soak
def test_prefixed_copies_end_also_where_flow_files_call_the_clusters_differently(pair: Pair) -> None:
    """Names do not tell then; cluster ids do, at once. With the alias that the message names, names do."""
    there = pair.there(naming="prefix")
    differently = pair.back(naming="prefix", aliases=("w1", "e1"))
    assert there.copy().records == differently.copy().records == 0
    with running(there, differently):
        mine, yours = pair.topic("mine", records=3), pair.topic("yours", on_west=True, records=4)
        copies = f"w1.{yours}", f"east.{mine}"
        expected = {copies[1]: "CAME_FROM_TARGET"}, {copies[0]: "CAME_FROM_TARGET"}

        def told() -> bool:
            found = ({t: s["code"] for t, s in refusals(f).items()} for f in (differently, there))
            return tuple(found) == expected

        wait_until(told, _TIMEOUT_S, "both refuse the other's copy", poll_s=_POLL_S)
    (stop,) = refusals(differently).values()
    assert f"Flow {there.name} calls that cluster east, this flow calls it e1" in stop["message"]
    assert f"write east as target.alias of flow {differently.name}" in stop["resolve"]
    corrected = pair.back(naming="prefix", aliases=("w1", "east"))
    for flow in (there, corrected):
        flow.copy()
    assert refusals(corrected) == {}
    assert topics_of(pair.east, pair.name) == {mine, copies[0]}
    assert topics_of(pair.west, pair.name) == {yours, copies[1]}
    assert_same(pair.east, pair.west, {mine: copies[1]})
    assert_same(pair.west, pair.east, {yours: copies[0]})


def test_a_new_prefix_flow_with_other_aliases_does_not_start(pair: Pair) -> None:
    """While the names are not corrected; nothing was created for it."""
    mine = pair.topic("mine", records=3)
    assert pair.there(naming="prefix").copy().records == 3
    back = pair.back(naming="prefix", aliases=("w1", "e1"))
    with pytest.raises(UsageError, match="calls that cluster east") as refused:
        back.copy()
    assert (refused.value.code, refused.value.exit_code) == ("CAME_FROM_TARGET", 2)
    assert f"east.{mine}" in str(refused.value.where)
    assert topics_of(pair.east, pair.name) == {mine}
    assert pair.back(naming="prefix", aliases=("w1", "east")).copy().records == 0


def test_a_new_flow_that_would_copy_back_does_not_start(pair: Pair) -> None:
    """Exit 2, nothing is created; the message names the other flow and the ways out."""
    orders = pair.topic("orders", records=3)
    there = pair.there()
    assert there.copy().records == 3
    back = pair.back()
    with pytest.raises(UsageError, match=f"{there.name} copies target topic") as refused:
        back.copy()
    assert (refused.value.code, refused.value.exit_code) == ("TWO_WAY", 2)
    assert orders in str(refused.value.where)
    assert all(
        word in str(refused.value.resolve) for word in ("prefix", "exclude", names.state_topic(there.name))
    )
    own = AdminClient(pair.east).list_topics(timeout=_TIMEOUT_S).topics
    assert not [topic for topic in own if back.name in topic]


def test_a_flow_that_runs_leaves_out_what_another_copies_back(pair: Pair) -> None:
    """Topic by topic: each flow goes on with what is its own."""
    mine = pair.topic("mine", records=3)
    yours = pair.topic("yours", on_west=True, records=4)
    there, back = pair.there(exclude=[".*yours"]), pair.back(exclude=[".*mine"])
    assert (there.copy().records, back.copy().records) == (3, 4)
    back = pair.back()
    assert back.copy().records == 0
    (refused,) = [p for p in back.status()["partitions"] if p["stop"]]
    assert (refused["topic"], refused["stop"]["code"]) == (mine, "TWO_WAY")
    assert (there.copy().records, topics_of(pair.east, pair.name)) == (0, {mine, yours})
    # Once the other flow has left the topic for good, it is refused for its records only.
    delete_topics(pair.west, [names.state_topic(there.name)])
    back.copy()
    assert {p["stop"]["code"] for p in back.status()["partitions"] if p["stop"]} == {"TARGET_NOT_EMPTY"}


@pytest.mark.soak
def test_a_topic_that_was_turned_round_is_not_copied_back_by_the_flow_that_takes_it_out_of_exclude(
    pair: Pair, capsys: Capture
) -> None:
    """It was not run while the other one copied: that one's state tells."""
    orders = pair.topic("orders", records=3)
    there, back = pair.there(), pair.back()
    assert there.copy().records == 3
    assert pair.there(exclude=[orders]).copy().records == 0
    Command(f"onceover seed apply {back.name} --from latest").run(capsys)
    pair.on_west.plain(orders, 0, pair.on_west.records(2))
    assert back.copy().records == 2
    assert pair.back(exclude=[orders]).copy().records == 0
    there = pair.there()
    assert there.copy().records == there.copy().records == 0
    (refused,) = there.status()["partitions"]
    assert refused["stop"]["code"] == "GAVE_WAY"
    assert commands(refused["stop"]["resolve"])[1].run(capsys)["applied"] is True
    pair.on_east.plain(orders, 0, pair.on_east.records(1))
    assert there.copy().records == 1
    assert [len(read_records(client, orders)) for client in (pair.east, pair.west)] == [6, 6]


def test_two_flows_that_start_at_once_settle_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither sees the other's enrolment nor claim, as without claims: the later one gives way afterwards."""
    orders = pair.topic("orders")
    pair.topic("orders", on_west=True)
    there, back = pair.there(), pair.back()
    begin_at_once(monkeypatch, there, back)
    assert [p["topic"] for p in there.status()["partitions"]] == [orders]


def test_a_flow_that_gave_way_copies_nothing_back_when_the_other_one_retires(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """It waits until somebody has said of each partition where it goes on, and goes on exactly there."""
    orders = pair.on_east.create_topic(f"{pair.name}.orders", 2)
    pair.on_west.create_topic(orders, 2)
    there, back = pair.there(), pair.back()
    begin_at_once(monkeypatch, there, back)
    pair.on_east.plain(orders, 0, pair.on_east.records(3))
    assert (there.copy().records, back.copy().records) == (3, 0)
    delete_topics(pair.west, [names.state_topic(there.name)])
    assert back.copy().records == back.copy().records == 0
    (refused,) = back.status()["partitions"]
    assert refused["stop"]["code"] == "GAVE_WAY"
    planned = commands(refused["stop"]["resolve"])[0].run(capsys)["changes"]
    ends = {change["object"]: change["to"] for change in planned if change["what"] == "position"}
    for number in range(2):
        assert back.copy().records == 0
        source = f"{orders}:{number}"
        skip = "onceover", "partition", "skip-to", back.name, source, str(ends[source])
        assert Command(" ".join(skip)).run(capsys, APPLY)["applied"] is True
    pair.on_west.plain(orders, 0, pair.on_west.records(2))
    assert back.copy().records == 2
    assert [p["stop"] for p in back.status()["partitions"]] == [None] * 2
    assert sum(len(read_records(pair.east, orders, number)) for number in range(2)) == 5
