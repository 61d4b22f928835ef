"""How long records stay in a log, and who gives them their time: by the topic, or by what it inherits."""

from __future__ import annotations

import pytest

from onceover.audit.model import Reason
from onceover.audit.ranges import logs
from onceover.audit.ranges.logs import AskedEnds, PartitionLog, partition_logs
from onceover.audit.records.refusals import Withheld
from onceover.errors import Retriable
from onceover.kafka import calls
from onceover.model import TopicPartition
from onceover.txn.classify import Api
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.refusing import NOT_AUTHORIZED, not_authorized

FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
STAMPED = {"message.timestamp.type": "LogAppendTime"}


def log(own: dict[str, str], inherited: dict[str, str]) -> PartitionLog:
    cluster = FakeCluster("west")
    cluster.defaults.update(inherited)
    cluster.make_topic("t", 1).config.update(own)
    return partition_logs(AskedEnds(cluster), ["t"])[TopicPartition("t", 0)]


@pytest.mark.parametrize("inherited", [False, True])
@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, (False, True, False)),
        (FOR_EVER, (False, False, False)),
        (STAMPED, (False, True, True)),
        ({"cleanup.policy": "compact"}, (True, False, False)),
        ({"cleanup.policy": "compact,delete"}, (True, True, False)),
    ],
)
def test_what_a_topic_inherits_holds_as_what_it_sets(
    config: dict[str, str], told: tuple[bool, bool, bool], *, inherited: bool
) -> None:
    found = log({}, config) if inherited else log(config, {})
    assert (found.compacted, found.expires, found.stamped) == told


@pytest.mark.parametrize(
    ("own", "inherited", "expires"),
    [
        ({"retention.ms": "-1"}, {"retention.bytes": "1000"}, True),
        ({"retention.bytes": "1000"}, {"retention.ms": "-1"}, True),
        ({"retention.ms": "-1"}, {"retention.bytes": "-1"}, False),
        ({"retention.ms": "1000"}, FOR_EVER, True),
    ],
)
def test_size_and_age_may_be_limited_in_two_places(
    own: dict[str, str], inherited: dict[str, str], *, expires: bool
) -> None:
    """A log that never ages is cut by its brokers' limit of size; what a topic sets comes first."""
    assert log(own, inherited).expires is expires


def two(cluster: FakeCluster) -> tuple[TopicPartition, TopicPartition]:
    cluster.make_topic("t", 1)
    cluster.make_topic("u", 1)
    return TopicPartition("t", 0), TopicPartition("u", 0)


def test_a_configuration_that_may_not_be_read_is_no_guess() -> None:
    """What a log cleaner has taken would count as lost, and stamped times as altered."""
    cluster = FakeCluster("west")
    _, fine = two(cluster)
    cluster.codes["DescribeConfigs t"].append(NOT_AUTHORIZED)
    ends = AskedEnds(cluster)
    assert set(partition_logs(ends, ["t", "u"])) == {fine}
    withheld = ends.refused["t"]
    assert withheld.reason is Reason.UNREADABLE
    assert "west" in withheld.why and "topic t " in withheld.why and "DESCRIBE_CONFIGS" in withheld.why


def test_a_partition_that_nobody_leads_is_named_and_the_others_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is waited for a little, once: what is asked next does not wait for it again."""
    monkeypatch.setattr(logs, "_LED_S", 0.2)
    cluster = FakeCluster("west")
    led, unled = two(cluster)
    cluster.all_topics["u"].leaders[0] = -1
    ends = AskedEnds(cluster)
    assert set(partition_logs(ends, ["t", "u"])) == {led}
    assert ends.away == {unled: Withheld(Reason.NO_LEADER, "u:0 has no leader on west at the moment")}
    cluster.all_topics["u"].leaders[0] = 0
    assert ends.at([led, unled], calls.LATEST) == {led: 0}


def test_a_cluster_of_which_nobody_answers_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of its partitions: whoever asks tries again later."""
    monkeypatch.setattr(logs, "_LED_S", 0.2)
    cluster = FakeCluster("west")
    both = two(cluster)
    cluster.down.add(0)
    with pytest.raises(Retriable):
        AskedEnds(cluster).at(both, calls.LATEST)


def test_a_topic_that_may_not_be_described_is_named_and_asked_about_once() -> None:
    """It is no broker that comes back; nor does a topic of which nothing is told look as if it were gone."""
    cluster = FakeCluster("west")
    shut, fine = two(cluster)
    cluster.unanswered["t"] = not_authorized(cluster, Api.METADATA, "t")
    ends = AskedEnds(cluster)
    assert set(partition_logs(ends, ["t", "u"])) == {fine}
    withheld = ends.why_not(shut)
    assert withheld is not None and withheld.reason is Reason.UNREADABLE
    assert (
        "west" in withheld.why and "DESCRIBE on the topic" in withheld.why and "; t; grant " in withheld.why
    )
    cluster.unanswered.clear()
    assert set(partition_logs(ends, ["t", "u"])) == {fine}, "what was fixed once stays so"


def test_a_partition_that_may_not_be_asked_about_any_more_is_waited_for_by_nobody() -> None:
    """Its right was taken away meanwhile."""
    cluster = FakeCluster("west")
    shut, fine = two(cluster)
    cluster.away[shut] = not_authorized(cluster, Api.LIST_OFFSETS, str(shut))
    ends = AskedEnds(cluster)
    assert ends.at([shut, fine], calls.LATEST) == {fine: 0}
    assert ends.away[shut].reason is Reason.UNREADABLE and str(shut) in ends.away[shut].why
