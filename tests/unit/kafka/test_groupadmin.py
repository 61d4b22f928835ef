"""Group requests: an incomplete answer is never an empty one; members are told from other refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.groups import calls as groupcalls
from onceover.kafka.groups.admin import GroupAdmin, HasMembers
from onceover.kafka.groups.calls import ListedGroup
from onceover.model import TopicPartition
from onceover.wire.metadata import Metadata, TopicMetadata
from tests.support.fakes.fakebroker import LOST
from tests.support.fakes.fakecluster import FakeCluster

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = {TP: OffsetToCommit(5, -1, ""), OTHER: OffsetToCommit(6, -1, "")}
COORDINATOR_MOVED, LOADING, NOT_AUTHORIZED, UNKNOWN_TOPIC = 16, 14, 30, 3


def west(*down: int) -> FakeCluster:
    """Return a cluster of brokers 1 and 2, each the coordinator of one group."""
    made = FakeCluster("west")
    made.nodes, made.tries = {1, 2}, 5
    made.down.update(down)
    made.add_topic("orders", UUID(int=1), [0] * 12_000)
    for node in (1, 2):
        made.groups[f"group-{node}"] = {}
        made.coordinates(f"group-{node}", node)
    return made


def committed(cluster: FakeCluster) -> list[str]:
    """Return of which groups positions were written, in order."""
    return [name for kind, _, name in (each.partition(" ") for each in cluster.log) if kind == "OffsetCommit"]


def admin(cluster: FakeCluster | None = None) -> GroupAdmin:
    return GroupAdmin(cluster or west(), retry_s=0.0)


def test_every_broker_is_asked() -> None:
    assert set(admin().groups().groups) == {"group-1", "group-2"}


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_heard() -> None:
    listing = admin(west(2)).groups()
    assert set(listing.groups) == {"group-1"}
    assert [str(error) for error in listing.unheard] == ["broker 2 of west does not answer"]


@pytest.mark.parametrize("older", [1, 2])
def test_each_broker_is_asked_by_the_version_that_it_speaks(older: int) -> None:
    """While brokers are upgraded one by one, whichever is first; and what comes back may be another one."""
    cluster = west()
    cluster.newest[older][groupcalls.LIST_GROUPS_KEY] = 4
    asking = admin(cluster)
    assert set(asking.groups().groups) == {"group-1", "group-2"}
    cluster.newest[3 - older][groupcalls.LIST_GROUPS_KEY] = 4
    cluster.control(3 - older).hung_up = True
    assert not asking.groups().unheard


@pytest.mark.parametrize("unled", [[], [1], [0, 1]])
def test_groups_that_nobody_coordinates_are_told_of(unled: list[int]) -> None:
    """A broker that is given up is named no more, and everybody else answers."""
    cluster = west()
    cluster.nodes = {1}
    cluster.add_topic("__consumer_offsets", UUID(int=2), [0, 0])
    for partition in unled:
        cluster.all_topics["__consumer_offsets"].leaders[partition] = -1
    listing = admin(cluster).groups()
    assert set(listing.groups) == {"group-1"}
    assert [error.message for error in listing.unheard] == [
        f"{len(unled)} of 2 partitions of __consumer_offsets have no leader on west: which groups are kept "
        "there is not known"
    ] * bool(unled)


@pytest.mark.parametrize(
    ("names_all", "code", "is_whole"),
    [(True, 0, True), (True, 3, True), (True, 29, False), (False, 0, False)],
)
def test_who_may_not_see_whether_groups_have_no_coordinator_does_not_know_all_of_them(
    monkeypatch: pytest.MonkeyPatch, names_all: bool, code: int, is_whole: bool
) -> None:
    """A cluster that has had no group yet has no such topic."""
    topic = TopicMetadata(code, "__consumer_offsets", UUID(int=0), True, ())
    monkeypatch.setattr(groupcalls, "lists_all_groups", lambda _: names_all)
    monkeypatch.setattr(calls, "metadata", lambda *_: Metadata("west", (), (topic,)))
    assert admin().lists_all() == is_whole


@pytest.mark.parametrize("code", [LOADING, COORDINATOR_MOVED])
def test_a_broker_that_cannot_say_now_is_not_heard(code: int) -> None:
    """Its empty list comes with an error code."""
    cluster = west()
    for node in (1, 2):
        cluster.codes[f"ListGroups/{node}"].extend([code] * cluster.tries)
    assert len(admin(cluster).groups().unheard) == 2


def test_no_right_to_list_is_an_error() -> None:
    cluster = west()
    cluster.codes["ListGroups/1"].append(NOT_AUTHORIZED)
    with pytest.raises(UsageError, match="not authorized"):
        admin(cluster).groups()


def commit(cluster: FakeCluster, *groups: str, retry_s: float = 0.0) -> dict[str, Any]:
    return GroupAdmin(cluster, retry_s).each_commit(dict.fromkeys(groups, OFFSETS))


@pytest.mark.parametrize("code", [22, 25, 27, 68, 86, 113])
def test_members_refuse_a_commit(code: int) -> None:
    """A coordinator answers alike for all partitions. Other groups are written."""
    cluster = west()
    cluster.codes["OffsetCommit busy"].append(code)
    failed = commit(cluster, "billing", "busy", "shipping")
    assert [(group, type(error)) for group, error in failed.items()] == [("busy", HasMembers)]
    assert committed(cluster) == ["billing", "busy", "shipping"]


def test_other_refusals_of_a_commit_are_no_members() -> None:
    cluster = west()
    cluster.codes["OffsetCommit billing"].append(UNKNOWN_TOPIC)
    assert [type(error) for error in commit(cluster, "billing").values()] == [NeedsOperator]


def test_a_moved_coordinator_is_looked_for_again_and_only_its_groups_are_written_again() -> None:
    cluster = west()
    cluster.codes["OffsetCommit billing"].append(COORDINATOR_MOVED)
    assert commit(cluster, "other", "billing", retry_s=5.0) == {}
    assert (cluster.forgotten, committed(cluster)) == (["billing"], ["other", "billing", "billing"])


def test_many_commits_are_on_their_way_at_once() -> None:
    """A request takes one group only: at a distance each would cost a round trip."""
    cluster, told = west(), list[str]()
    groups = [f"reader-{number}" for number in range(1000)]
    assert GroupAdmin(cluster).each_commit(dict.fromkeys(groups, OFFSETS), told.append) == {}
    assert committed(cluster) == told == groups
    assert cluster.control(1).most_in_flight == 100


def test_groups_behind_a_lost_connection_are_written_again() -> None:
    cluster = west()
    cluster.codes["OffsetCommit b"].append(LOST)
    assert commit(cluster, "a", "b", "c", retry_s=5.0) == {}
    assert committed(cluster) == ["a", "b", "b", "c"]
    assert all(cluster.groups[group].keys() == OFFSETS.keys() for group in "abc")


def test_who_looks_before_a_write_is_told_of_a_lost_answer_and_nothing_is_repeated() -> None:
    cluster = west()
    cluster.codes["OffsetCommit b"].append(LOST)
    failed = admin(cluster).each_commit_once(dict.fromkeys("ab", OFFSETS))
    assert [(group, isinstance(error, Retriable)) for group, error in failed.items()] == [("b", True)]
    assert committed(cluster) == ["a", "b"]


def test_a_group_that_does_not_exist_has_nothing_to_delete() -> None:
    admin().delete_offsets("billing", [TP])


def test_members_refuse_a_deletion() -> None:
    cluster = west()
    cluster.groups["billing"] = {}
    cluster.codes["OffsetDelete"].append(86)
    with pytest.raises(HasMembers):
        admin(cluster).delete_offsets("billing", [TP])


@pytest.mark.parametrize(("newest", "used"), [(3, 4), (4, 4), (5, 5), (7, 5)])
def test_the_newest_list_request_that_both_speak_is_used(
    monkeypatch: pytest.MonkeyPatch, newest: int, used: int
) -> None:
    monkeypatch.setattr(calls, "api_versions", lambda _: calls.ApiVersions({16: newest}, {}))
    assert groupcalls.list_groups_version(cast(Any, None)) == used


def test_before_types_every_group_is_classic(monkeypatch: pytest.MonkeyPatch) -> None:
    """ListGroups v4: brokers before 3.8."""
    group = SimpleNamespace(group_id="billing", group_state="Stable", group_type="")
    answer = SimpleNamespace(error_code=0, groups=[group])
    connection = cast(Any, SimpleNamespace(call=lambda _request, _type, read: read(answer)))
    assert groupcalls.list_groups(connection, 4) == (0, [ListedGroup("billing", "classic", "stable")])


def test_a_commit_of_thousands_of_offsets_goes_in_portions_that_the_coordinator_takes() -> None:
    """It writes each request as one batch of 1 MB at most; one refused portion fails its group alone."""
    cluster = west()
    many = {TP._replace(partition=number): OffsetToCommit(5, -1, "") for number in range(12_000)}
    cluster.codes["OffsetCommit big"].extend([0, 0, UNKNOWN_TOPIC])
    failed = GroupAdmin(cluster, retry_s=0.0).each_commit({"big": many, "small": {TP: OFFSETS[TP]}})
    assert set(failed) == {"big"}
    assert committed(cluster).count("big") >= 10
    assert committed(cluster)[-1] == "small"
