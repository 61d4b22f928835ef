"""A topic that was made is there once each of its partitions has a leader."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceover.errors import NeedsOperator, Retriable
from onceover.kafka.admin.topics import ANY_TIME, Admin, TopicSpec, await_leaders
from onceover.kafka.codes import KafkaCode
from tests.support.fakes.fakecluster import FakeCluster


def cluster(*leaders: int) -> FakeCluster:
    made = FakeCluster()
    made.add_topic("t", UUID(int=1), (0,) * len(leaders)).leaders.update(enumerate(leaders))
    return made


def test_a_topic_with_all_its_leaders_is_returned() -> None:
    assert await_leaders(cluster(0, 1), {"t": 2})["t"].topic_id == UUID(int=1)


@pytest.mark.parametrize("wanted", [{"t": 2}, {"t": 3}, {"t": 2, "absent": 1}])
def test_one_without_a_leader_or_a_partition_is_waited_for(wanted: dict[str, int]) -> None:
    target = cluster(0, 0 if len(wanted) > 1 or wanted["t"] == 3 else -1)
    with pytest.raises(Retriable, match=r"^1 topics have no leaders yet: (t|absent); ") as raised:
        await_leaders(target, wanted)
    assert raised.value.code == KafkaCode.NO_LEADER


def test_leaders_may_come_later() -> None:
    target = cluster(0, -1)
    target.tries = 2
    looks: list[str] = []

    def heard(request: str, _: str) -> None:
        looks.append(request)
        if len(looks) == 2:
            target.all_topics["t"].leaders[1] = 0

    target.heard = heard
    assert len(await_leaders(target, {"t": 2})["t"].partitions) == 2


def test_nothing_is_asked_about_no_topics() -> None:
    target = cluster(0)
    assert await_leaders(target, {}) == {}
    assert target.log == []


def test_one_that_exists_is_left_with_its_partitions() -> None:
    target = cluster(0)
    made = Admin(target).make_topics([TopicSpec("t", 5), TopicSpec("new", 2)])
    assert {name: len(info.partitions) for name, info in made.items()} == {"t": 1, "new": 2}


INVALID_CONFIG = 40
COMPACT = {"cleanup.policy": "compact"}


def test_an_older_broker_has_no_limits_of_time_that_had_to_be_lifted() -> None:
    """It refuses keys that it does not know: the topic is made without them, and others as they are meant."""
    target = cluster(0)
    target.codes["CreateTopics older"].append(INVALID_CONFIG)
    wanted = [TopicSpec(name, 1, config={**COMPACT, **ANY_TIME}) for name in ("older", "newer")]
    assert Admin(target).make_topics(wanted).keys() == {"older", "newer"}
    assert target.all_topics["older"].config == COMPACT
    assert target.all_topics["newer"].config == {**COMPACT, **ANY_TIME}


@pytest.mark.parametrize(("config", "times"), [(COMPACT, 1), ({**COMPACT, **ANY_TIME}, 2)])
def test_what_else_is_refused_is_told(config: dict[str, str], times: int) -> None:
    target = cluster(0)
    target.codes["CreateTopics t2"].extend([INVALID_CONFIG] * times)
    with pytest.raises(NeedsOperator) as raised:
        Admin(target).create_topics([TopicSpec("t2", 1, config=config)])
    assert raised.value.code == KafkaCode.INVALID_CONFIG
    assert "t2" not in target.all_topics
