"""Group requests: an incomplete answer is never an empty one; members are told from other refusals."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.each import Each
from onceover.kafka.groups import calls as groupcalls
from onceover.kafka.groups.admin import GroupAdmin, HasMembers
from onceover.kafka.groups.calls import ListedGroup
from onceover.model import TopicPartition

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = {TP: OffsetToCommit(5, -1, ""), OTHER: OffsetToCommit(6, -1, "")}
COORDINATOR_MOVED, LOADING, NOT_AUTHORIZED, UNKNOWN_TOPIC = 16, 14, 30, 3


class Node(int):
    """A connection to the broker of this number, which answers commits in their order."""

    cluster: FakeCluster

    def send(self, request: Any, _type: Any, read: Any) -> None:
        self.cluster.in_flight.append(request.group_id)
        self.cluster.most_in_flight = max(self.cluster.most_in_flight, len(self.cluster.in_flight))

    def receive(self) -> dict[TopicPartition, int]:
        group = self.cluster.in_flight.pop(0)
        if group == self.cluster.lost_at:
            self.cluster.lost_at = None
            self.cluster.in_flight.clear()
            raise Retriable("the connection is lost")
        self.cluster.committed_groups.append(group)
        answers = self.cluster.answers.get(group, [])
        return answers.pop(0) if answers else {TP: 0}


class FakeCluster(LiveCluster):
    """A cluster of brokers 1 and 2 whose connections are their numbers.

    Attributes:
        answers: codes of the next answers to commits, by group; 0 when there are none.
        lost_at: the connection is lost, once, before the answer about this group.
    """

    def __init__(self, down: tuple[int, ...] = ()) -> None:
        super().__init__(cast(Any, SimpleNamespace(alias="west", properties={})))
        self.down = down
        self.forgotten: list[str] = []
        self.answers: dict[str, list[dict[TopicPartition, int]]] = {}
        self.lost_at: str | None = None
        self.in_flight: list[str] = []
        self.most_in_flight = 0
        self.committed_groups: list[str] = []

    def control(self, node: int | None = None) -> Any:
        if node in self.down:
            raise Retriable(f"broker {node} does not answer")
        connection = Node(node or 0)
        connection.cluster = self
        return connection

    def coordinator_nodes(self, keys: Sequence[str], key_type: int) -> Each[str, int]:
        return Each(dict.fromkeys(keys, 1))

    def coordinator(self, key: str, key_type: int) -> Any:
        return 1

    def forget_coordinator(self, key: str, key_type: int) -> None:
        self.forgotten.append(key)


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both brokers coordinate one group each."""
    known = SimpleNamespace(brokers=[SimpleNamespace(node_id=1), SimpleNamespace(node_id=2)])
    monkeypatch.setattr(calls, "metadata", lambda *_: known)
    monkeypatch.setattr(groupcalls, "list_groups_version", lambda _: 5)
    listed = {n: (0, [ListedGroup(f"group-{n}", "classic", "empty")]) for n in (1, 2)}
    monkeypatch.setattr(groupcalls, "list_groups", lambda node, _: listed[node])


def admin(cluster: FakeCluster | None = None) -> GroupAdmin:
    return GroupAdmin(cluster or FakeCluster(), retry_s=0.0)


def test_every_broker_is_asked() -> None:
    assert set(admin().groups().groups) == {"group-1", "group-2"}


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_heard() -> None:
    listing = admin(FakeCluster(down=(2,))).groups()
    assert set(listing.groups) == {"group-1"}
    assert [str(error) for error in listing.unheard] == ["broker 2 does not answer"]


@pytest.mark.parametrize("code", [LOADING, COORDINATOR_MOVED])
def test_a_broker_that_cannot_say_now_is_not_heard(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Its empty list comes with an error code."""
    monkeypatch.setattr(groupcalls, "list_groups", lambda *_: (code, []))
    assert len(admin().groups().unheard) == 2


def test_no_right_to_list_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupcalls, "list_groups", lambda *_: (NOT_AUTHORIZED, []))
    with pytest.raises(UsageError, match="not authorized"):
        admin().groups()


def commit(cluster: FakeCluster, *groups: str, retry_s: float = 0.0) -> dict[str, Any]:
    return GroupAdmin(cluster, retry_s).each_commit(dict.fromkeys(groups, OFFSETS))


@pytest.mark.parametrize("code", [22, 25, 27, 68, 86, 113])
def test_members_refuse_a_commit(code: int) -> None:
    """One partition is enough: a coordinator answers alike for all. Other groups are written."""
    cluster = FakeCluster()
    cluster.answers = {"busy": [{TP: 0, OTHER: code}]}
    failed = commit(cluster, "billing", "busy", "shipping")
    assert [(group, type(error)) for group, error in failed.items()] == [("busy", HasMembers)]
    assert cluster.committed_groups == ["billing", "busy", "shipping"]


def test_other_refusals_of_a_commit_are_no_members() -> None:
    cluster = FakeCluster()
    cluster.answers = {"billing": [{TP: UNKNOWN_TOPIC}]}
    assert [type(error) for error in commit(cluster, "billing").values()] == [NeedsOperator]


def test_a_moved_coordinator_is_looked_for_again_and_only_its_groups_are_written_again() -> None:
    cluster = FakeCluster()
    cluster.answers = {"billing": [{TP: COORDINATOR_MOVED}, {TP: 0}]}
    assert commit(cluster, "other", "billing", retry_s=5.0) == {}
    assert (cluster.forgotten, cluster.committed_groups) == (["billing"], ["other", "billing", "billing"])


def test_many_commits_are_on_their_way_at_once() -> None:
    """A request takes one group only: at a distance each would cost a round trip."""
    cluster, told = FakeCluster(), list[str]()
    groups = [f"group-{number}" for number in range(1000)]
    assert GroupAdmin(cluster).each_commit(dict.fromkeys(groups, OFFSETS), told.append) == {}
    assert cluster.committed_groups == told == groups
    assert cluster.most_in_flight == 100


def test_groups_behind_a_lost_connection_are_written_again() -> None:
    cluster = FakeCluster()
    cluster.lost_at = "b"
    assert commit(cluster, "a", "b", "c", retry_s=5.0) == {}
    assert cluster.committed_groups == ["a", "b", "c"]


def test_a_group_that_does_not_exist_has_nothing_to_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupcalls, "offset_delete", lambda *_: (69, {}))
    admin().delete_offsets("billing", [TP])


def test_members_refuse_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupcalls, "offset_delete", lambda *_: (0, {TP: 86}))
    with pytest.raises(HasMembers):
        admin().delete_offsets("billing", [TP])


@pytest.mark.parametrize(("newest", "used"), [(3, 4), (4, 4), (5, 5), (7, 5)])
def test_the_newest_list_request_that_both_speak_is_used(
    monkeypatch: pytest.MonkeyPatch, newest: int, used: int
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(calls, "api_versions", lambda _: calls.ApiVersions({16: newest}, {}))
    assert groupcalls.list_groups_version(cast(Any, None)) == used


def test_before_types_every_group_is_classic(monkeypatch: pytest.MonkeyPatch) -> None:
    """ListGroups v4: brokers before 3.8."""
    monkeypatch.undo()
    group = SimpleNamespace(group_id="billing", group_state="Stable", group_type="")
    answer = SimpleNamespace(error_code=0, groups=[group])
    connection = cast(Any, SimpleNamespace(call=lambda _request, _type, read: read(answer)))
    assert groupcalls.list_groups(connection, 4) == (0, [ListedGroup("billing", "classic", "stable")])


def test_a_commit_of_thousands_of_offsets_goes_in_portions_that_the_coordinator_takes() -> None:
    """It writes each request as one batch of 1 MB at most; one refused portion fails its group alone."""
    cluster = FakeCluster()
    many = {TP._replace(partition=number): OffsetToCommit(5, -1, "") for number in range(12_000)}
    cluster.answers["big"] = [{TP: 0}, {OTHER: 0}, {OTHER: UNKNOWN_TOPIC}]
    failed = GroupAdmin(cluster, retry_s=0.0).each_commit({"big": many, "small": {TP: OFFSETS[TP]}})
    assert set(failed) == {"big"}
    assert cluster.committed_groups.count("big") >= 10
    assert cluster.committed_groups[-1] == "small"
