"""The offset map's topic is made anew where it was deleted; what keeps it from that ends no run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.admin.topics import ANY_TIME, Admin, TopicSpec
from onceover.kafka.ports import TopicInfo
from onceover.state import names
from onceover.topics.own import STATE_CONFIG, MapKeeper, StateSettings, create_flow_topics
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.topics.topicworld import target_id, topic

TOPIC = names.map_topic("f")


class Target:
    """A cluster, and its administration.

    Attributes:
        trouble: what creating a topic raises; ``away`` what asking for one does.
    """

    def __init__(self) -> None:
        self.there = {TOPIC}
        self.trouble: OnceoverError | None = None
        self.away: OnceoverError | None = None
        self.made: list[TopicSpec] = []

    def topics(self, wanted: Iterable[str]) -> dict[str, TopicInfo]:
        if self.away is not None:
            raise self.away
        return {name: topic(name, names.MAP_PARTITIONS, target_id(name)) for name in self.there & set(wanted)}

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.made += specs
        self.there |= {spec.name for spec in self.made}


def keeper(target: Target) -> MapKeeper:
    return MapKeeper(cast(Any, target), cast(Any, target), "f", StateSettings(2, 86_400_000))


TROUBLES = [
    UsageError("not authorized", code="NOT_AUTHORIZED", resolve="grant CREATE"),
    NeedsOperator("replication factor 2 is larger than the available brokers 1", code="ADMIN_REFUSED"),
    Retriable("timed out"),
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
def test_a_map_that_cannot_be_made_is_told_once_and_tried_until_it_can(
    trouble: OnceoverError, caplog: pytest.LogCaptureFixture
) -> None:
    target = Target()
    kept = keeper(target)
    kept.tick()
    assert (kept.refused, target.made) == ([], [])
    target.there.clear()
    target.trouble = trouble
    for _ in range(3):
        kept.tick()
        (refusal,) = kept.refused
        assert (refusal.object, refusal.code, refusal.blocks) == (TOPIC, "MAP_MISSING", False)
        assert trouble.message in refusal.message
        assert (trouble.resolve or "brokers") in refusal.resolve
    assert caplog.text.count(trouble.message) == 1
    target.trouble = None
    kept.tick()
    assert kept.refused == []
    assert [(s.name, s.partitions, s.replication_factor) for s in target.made] == [(TOPIC, 4, 2)]


def test_a_topic_that_may_not_be_looked_at_ends_no_run_either() -> None:
    target = Target()
    target.away = UsageError("not authorized", code="NOT_AUTHORIZED", resolve="grant DESCRIBE")
    kept = keeper(target)
    kept.tick()
    assert kept.refused and not target.made


OWN = {names.state_topic("f"), TOPIC, names.owned_topic("f")}
SETTINGS = StateSettings(1, 86_400_000)


def made_before(*known: str) -> FakeCluster:
    """Return a target on which an earlier version has made a flow's topics, with brokers that know keys."""
    target = FakeCluster("west")
    target.defaults.update(dict.fromkeys(known, "3600000"))
    for each in OWN:
        target.make_topic(each, 1)
    return target


def test_a_flows_own_topics_take_records_whatever_the_clock_says() -> None:
    """A machine that is an hour ahead can lead and copy; so it can where they are there already."""
    for target in (FakeCluster("west"), made_before(*ANY_TIME)):
        create_flow_topics(Admin(target), "f", SETTINGS)
        for each in OWN:
            assert ANY_TIME.items() <= target.all_topics[each].config.items(), each
        assert target.all_topics[names.state_topic("f")].config == STATE_CONFIG


def test_an_older_broker_is_asked_for_nothing_that_it_does_not_know(caplog: pytest.LogCaptureFixture) -> None:
    """Or it would refuse all of it."""
    target = made_before()
    create_flow_topics(Admin(target), "f", SETTINGS)
    state = target.all_topics[names.state_topic("f")].config
    assert state == {key: value for key, value in STATE_CONFIG.items() if key not in ANY_TIME}
    assert not ANY_TIME.keys() & target.all_topics[TOPIC].config.keys()
    assert "keeps its configuration" not in caplog.text


@pytest.mark.parametrize("request_name", ["AlterConfigs", "DescribeConfigs"])
def test_who_may_not_change_their_configuration_goes_on(
    request_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    target = made_before(*ANY_TIME)
    for each in OWN:
        target.codes[f"{request_name} {each}"].append(29)
    create_flow_topics(Admin(target), "f", SETTINGS)
    assert caplog.text.count("keeps its configuration") == 3


def test_what_brokers_have_made_for_somebody_else_gets_what_a_flows_own_topics_have() -> None:
    """A topic that is made because somebody asks for it has one partition, and forgets what is in it."""
    target = made_before(*ANY_TIME)
    create_flow_topics(Admin(target), "f", SETTINGS)
    anew = FakeCluster("west")
    create_flow_topics(Admin(anew), "f", SETTINGS)
    for name in OWN:
        made, wanted = target.all_topics[name], anew.all_topics[name]
        assert (len(made.logs), made.config) == (len(wanted.logs), wanted.config), name


def test_what_an_operator_has_set_on_the_offset_map_stays() -> None:
    """Its retention, say; the others have to keep all that is in them."""
    target = FakeCluster("west")
    create_flow_topics(Admin(target), "f", SETTINGS)
    for name in OWN:
        target.all_topics[name].config["segment.ms"] = "5"
    target.all_topics[names.owned_topic("f")].config["cleanup.policy"] = "delete"
    create_flow_topics(Admin(target), "f", SETTINGS)
    assert target.all_topics[TOPIC].config["segment.ms"] == "5"
    for name in OWN - {TOPIC}:
        assert target.all_topics[name].config == STATE_CONFIG


def test_a_start_that_may_not_add_partitions_says_which_and_how() -> None:
    target = made_before(*ANY_TIME)
    target.codes[f"CreatePartitions {TOPIC}"].append(29)
    with pytest.raises(UsageError, match=f"{TOPIC} has 1 partitions and needs 4") as caught:
        create_flow_topics(Admin(target), "f", SETTINGS)
    assert "--partitions 4" in (caught.value.resolve or "")


def test_a_start_of_a_flow_that_has_run_goes_on_with_the_map_that_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As it would if that happened while it ran; the run tells of it. Its state it cannot do without."""
    target = made_before(*ANY_TIME)
    target.codes[f"CreatePartitions {TOPIC}"].append(29)
    create_flow_topics(Admin(target), "f", SETTINGS, is_known=True)
    assert len(target.all_topics[TOPIC].logs) == 1 and "--partitions 4" in caplog.text
    assert len(target.all_topics[names.state_topic("f")].logs) == names.STATE_PARTITIONS
    target = made_before(*ANY_TIME)
    target.codes[f"CreatePartitions {names.state_topic('f')}"].append(29)
    with pytest.raises(UsageError):
        create_flow_topics(Admin(target), "f", SETTINGS, is_known=True)


def test_a_map_that_somebody_else_makes_while_the_flow_runs_gets_its_partitions() -> None:
    """Brokers that make whatever is asked for, between its end and the look of the run."""
    target = made_before(*ANY_TIME)
    create_flow_topics(Admin(target), "f", SETTINGS)
    config = dict(target.all_topics[TOPIC].config)
    del target.all_topics[TOPIC]
    target.make_topic(TOPIC, 1)
    target.codes[f"CreatePartitions {TOPIC}"].append(29)
    kept = MapKeeper(Admin(target), target, "f", SETTINGS)
    kept.tick()
    (refusal,) = kept.refused
    assert refusal.code == "MAP_MISSING" and "has 1 partitions and needs 4" in refusal.message
    kept.tick()
    made = target.all_topics[TOPIC]
    assert (kept.refused, len(made.logs), made.config) == ([], 4, config)
