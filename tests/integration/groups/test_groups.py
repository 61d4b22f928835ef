"""Groups go on on the other side exactly where they were: zero records skipped, zero repeated (G6, G7).

What is read on both sides is read by ordinary clients, which know nothing of the offset map.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from onceover.groups.decide import Allowed
from onceover.groups.plan import GroupPlan
from onceover.state.steps import Step
from onceover.wiring.groups import GroupRequest
from tests.support.flows.feeds import PARTITIONS, feed
from tests.support.flows.groups import (
    commit,
    commit_all,
    committed_all,
    consume,
    delete_group,
    first_read,
    member,
    offset_of,
    unread,
)
from tests.support.flows.killed import killed_command
from tests.support.flows.operations import apply_groups, follow_groups
from tests.support.flows.replica import Replica, delete_topics
from tests.support.raw.adversary import Traffic
from tests.support.raw.rawkafka import Codec
from tests.support.session.wait import wait_until

DONE, OPERATOR = 0, 3
_TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and indexes of the test's own."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))


class Groups:
    """The groups of one flow, and the command under test."""

    def __init__(self, replica: Replica, capsys: pytest.CaptureFixture[str]) -> None:
        self.replica = replica
        self._capsys = capsys
        self.source, self.target = replica.source_client, replica.target_client

    def name(self, suffix: object) -> str:
        return f"{self.replica.name}-{suffix}"

    def run(self, action: str, *options: str, expect: int = DONE) -> dict[str, Any]:
        """Run the command for the groups of this test alone."""
        mine = ["--group", f"{self.replica.name}-.*"]
        path = str(self.replica.flow.path)
        code, document = self.replica.command(self._capsys, "groups", action, path, *mine, *options)
        assert code == expect, document
        return document

    def request(self, **allowed: bool) -> GroupRequest:
        """What ``run`` asks for, for calls of the use case itself."""
        return GroupRequest(patterns=[f"{self.replica.name}-.*"], allowed=Allowed(**allowed))

    def killed_at(self, step: Step, count: int) -> None:
        """Run ``apply`` in a process that kills itself with -9 at a step."""
        path = self.replica.flow.path
        killed_command(step, count, ["groups", "apply", str(path)], path.with_suffix(".log"))

    def decision(self, document: dict[str, Any], suffix: object) -> tuple[str, str | None]:
        (entry,) = [p for p in document["positions"] if p["group"] == self.name(suffix)]
        return entry["decision"], entry["code"]


@pytest.fixture
def groups(replica: Replica, capsys: pytest.CaptureFixture[str]) -> Groups:
    return Groups(replica, capsys)


def test_every_offset_moves_exactly_there_and_back(groups: Groups) -> None:
    """Markers, aborted records and the end included; a group for every offset, on either side."""
    replica = groups.replica
    topic = replica.topic(partitions=PARTITIONS)
    feed(replica.source, topic, big=1)
    replica.copy(seconds=0.3)
    feed(replica.source, topic, big=1, seed=1)
    replica.copy()
    theirs = {p: list(replica.source_records(topic, p)) for p in range(PARTITIONS)}
    ours = {p: list(replica.target_records(topic, p)) for p in range(PARTITIONS)}
    check(groups, topic, theirs, ours, groups.source, groups.target, "failover")
    check(groups, topic, ours, theirs, groups.target, groups.source, "failback")


def check(
    groups: Groups,
    topic: str,
    giving: dict[int, list[int]],
    receiving: dict[int, list[int]],
    here: dict[str, str],
    there: dict[str, str],
    direction: str,
) -> None:
    """Commit every offset there is on one side, move, compare what is read next on both."""
    last = max(offsets[-1] for offsets in giving.values()) + 1
    wanted = {
        groups.name(f"{direction}-{offset}"): {p: min(offset, giving[p][-1] + 1) for p in giving}
        for offset in range(last + 1)
    }
    commit_all(here, topic, wanted, "a note")
    groups.run("apply", "--direction", direction)
    given, found = committed_all(here, topic, wanted), committed_all(there, topic, wanted)
    for name, offsets in wanted.items():
        for p, offset in offsets.items():
            position, metadata = found[name][p]
            # To the byte: confluent-kafka ends what it commits in a byte 0.
            assert metadata == given[name][p][1] == "a note\0"
            assert unread(receiving[p], position) == unread(giving[p], offset), (name, p)
    assert groups.run("apply", "--direction", direction)["changes"] == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_with_the_first_record_it_has_not_read_there_and_back(
    groups: Groups, protocol: str
) -> None:
    """Read by members of the group on either side, over aborted records."""
    replica, name = groups.replica, groups.name(protocol)
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.source.interleaved(topic, 0)
    replica.source.plain(topic, 0, replica.source.records(10), Codec.LZ4)
    replica.copy()
    theirs, ours = list(replica.source_records(topic)), list(replica.target_records(topic))
    read = consume(groups.source, name, topic, 12, protocol, reset="earliest")
    assert read == theirs[:12]
    groups.run("apply")
    assert first_read(groups.target, name, topic, protocol) == ours[12]
    assert consume(groups.target, name, topic, 5, protocol) == ours[12:17]
    groups.run("apply", "--direction", "failback")
    assert first_read(groups.source, name, topic, protocol) == theirs[17]


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.soak), "consumer"])
def test_a_group_with_members_there_is_left_alone(groups: Groups, protocol: str) -> None:
    replica, name = groups.replica, groups.name(protocol)
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    commit(groups.source, name, topic, {0: 7})
    with member(groups.target, name, topic, protocol, reset="earliest"):
        document = groups.run("apply")
        assert [(r["object"], r["code"], r["blocks"]) for r in document["refused"]] == [
            (name, "HAS_MEMBERS", False)
        ]
        assert offset_of(groups.target, name, topic) is None
    groups.run("apply")
    assert offset_of(groups.target, name, topic) == 7


def test_members_that_join_after_the_plan_are_not_overtaken(groups: Groups) -> None:
    """The last word has the coordinator, in the step that would write."""
    replica, name = groups.replica, groups.name("late")
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    commit(groups.source, name, topic, {0: 7})
    with ExitStack() as joined:

        def join(_plan: GroupPlan) -> None:
            joined.enter_context(member(groups.target, name, topic, reset="earliest"))

        applied = apply_groups(replica.flow.watch.flow, groups.request(), join)
        assert [(r.code, r.blocks) for r in applied.refused] == [("HAS_MEMBERS", False)]
        assert applied.done == []
        assert offset_of(groups.target, name, topic) is None


def test_who_commits_with_assign_there_is_left_alone(groups: Groups) -> None:
    """Empty but alive: told by commits that are not ours, or that move between two looks."""
    replica, name, first = groups.replica, groups.name("alive"), groups.name("first")
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    commit(groups.source, name, topic, {0: 3})
    groups.run("apply")
    commit(groups.target, name, topic, {0: 4})
    commit(groups.source, name, topic, {0: 8})
    assert groups.decision(groups.run("apply", expect=OPERATOR), "alive") == (
        "left alone",
        "COMMITTED_ELSEWHERE",
    )
    commit(groups.source, first, topic, {0: 8})
    commit(groups.target, first, topic, {0: 1})

    def moves(_seconds: float) -> bool:
        commit(groups.target, first, topic, {0: 2})
        return False

    applied = apply_groups(replica.flow.watch.flow, groups.request(), pause=moves)
    assert [(r.object, r.code) for r in applied.refused] == [(f"{first} {topic}:0", "COMMITS_MOVE")]
    assert (offset_of(groups.target, name, topic), offset_of(groups.target, first, topic)) == (4, 2)
    taken = apply_groups(replica.flow.watch.flow, groups.request(take_over=True))
    assert taken.exit_code == DONE
    assert (offset_of(groups.target, name, topic), offset_of(groups.target, first, topic)) == (8, 8)


def test_rewinds_and_deletions_are_reported_and_followed_only_if_asked(groups: Groups) -> None:
    replica, back, gone = groups.replica, groups.name("back"), groups.name("gone")
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    commit_all(groups.source, topic, {back: {0: 8}, gone: {0: 5}})
    groups.run("apply")
    commit(groups.source, back, topic, {0: 2})
    delete_group(groups.source, gone)
    document = groups.run("apply", expect=OPERATOR)
    assert groups.decision(document, "back") == ("left alone", "REWOUND")
    assert groups.decision(document, "gone") == ("left alone", "DELETED")
    assert (offset_of(groups.target, back, topic), offset_of(groups.target, gone, topic)) == (8, 5)
    groups.run("apply", "--follow-rewinds", "--follow-deletions")
    assert (offset_of(groups.target, back, topic), offset_of(groups.target, gone, topic)) == (2, None)
    assert groups.run("apply", "--follow-rewinds", "--follow-deletions")["changes"] == []


def test_what_is_not_covered_is_not_guessed(groups: Groups) -> None:
    """The flow began at the end; what lies before was never copied. Empty partitions are no such case."""
    replica = groups.replica
    replica.configure(topics={"start": "latest"})
    topic = replica.topic(partitions=2)
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    commit_all(groups.source, topic, {groups.name("before"): {0: 3}, groups.name("after"): {0: 12, 1: 0}})
    document = groups.run("apply", expect=OPERATOR)
    assert groups.decision(document, "before") == ("left alone", "NOT_COVERED")
    assert committed_all(groups.target, topic, [groups.name("before"), groups.name("after")]) == {
        groups.name("before"): {},
        groups.name("after"): {0: (2, ""), 1: (0, "")},
    }


def test_records_still_to_copy_hold_a_group_at_the_copy_until_they_are(groups: Groups) -> None:
    replica, name = groups.replica, groups.name("ahead")
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(10))
    commit(groups.source, name, topic, {0: 16})
    (change,) = groups.run("apply")["changes"]
    assert (change["to"], change["risk"], change["records"]) == (10, "repeat", 6)
    replica.copy()
    groups.run("apply")
    assert first_read(groups.target, name, topic) == list(replica.target_records(topic))[16]


@pytest.mark.parametrize(
    ("step", "count"),
    [
        pytest.param(Step.GROUP_REMEMBER, 1, marks=pytest.mark.soak),
        pytest.param(Step.GROUP_COMMIT, 1, marks=pytest.mark.soak),
        (Step.GROUP_COMMIT, 2),
    ],
)
def test_killed_at_a_step_apply_ends_the_same(groups: Groups, step: Step, count: int) -> None:
    """Killed with -9 before or between writes, and run again: where an apply that was left alone ends."""
    replica = groups.replica
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    names = [groups.name(number) for number in range(3)]
    commit_all(groups.source, topic, {name: {0: 2} for name in names})
    groups.run("apply")
    commit_all(groups.source, topic, {name: {0: 6} for name in names})
    groups.killed_at(step, count)

    def written() -> bool:
        # What had left the process before it was killed is still worked off.
        offsets = sorted(offset_of(groups.target, name, topic) or 0 for name in names)
        return offsets == [2] * (4 - count) + [6] * (count - 1)

    wait_until(written, _TIMEOUT_S, "what was sent is written, and nothing else")
    groups.run("apply")
    assert [offset_of(groups.target, name, topic) for name in names] == [6, 6, 6]
    assert groups.run("apply")["changes"] == []


def test_prefixed_copies_are_met_under_their_own_name_and_kept_in_place_by_two_syncs(groups: Groups) -> None:
    """Each of two syncs takes what the other wrote for ours."""
    replica, name = groups.replica, groups.name("two")
    replica.configure(topics={"naming": "prefix"})
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(20))
    replica.copy()
    flow = replica.flow.watch.flow
    commit(groups.source, name, topic, {0: 2})
    groups.run("apply")

    def other(_plan: GroupPlan) -> None:
        commit(groups.source, name, topic, {0: 9})
        apply_groups(flow, groups.request())

    commit(groups.source, name, topic, {0: 5})
    first = apply_groups(flow, groups.request(), other)
    assert [refusal.code for refusal in first.refused] == ["COMMITS_MOVE"]
    commit(groups.source, name, topic, {0: 12})
    groups.run("apply")
    assert offset_of(groups.target, name, f"east.{topic}") == 12


def test_followed_while_everything_moves_a_group_is_in_place_at_the_end(groups: Groups) -> None:
    """Copied, consumed and followed at once; a reader on the other side is met and left alone."""
    replica, name, busy = groups.replica, groups.name("racing"), groups.name("busy")
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    commit(groups.source, busy, topic, {0: 3})
    ending, told = threading.Event(), list[str]()
    arguments = (replica.flow.watch.flow, groups.request(), 0.05, ending.wait, told.append)
    with ThreadPoolExecutor(1) as pool, member(groups.target, busy, topic, reset="earliest"):
        following = pool.submit(follow_groups, *arguments)
        try:
            with replica.running(), Traffic(replica.source.bootstrap, {topic: 1}, seed=3, pause_s=0.002):
                for _ in range(4):
                    consume(groups.source, name, topic, 25, reset="earliest")
            # However quick the readers were: something is left for the first one on the other side.
            replica.source.plain(topic, 0, replica.source.records(1))
            replica.copy()
            theirs, ours = list(replica.source_records(topic)), list(replica.target_records(topic))
            wanted = ours[100]
            assert len(theirs) > 100

            def arrived() -> bool:
                assert not following.done(), following.result()
                return offset_of(groups.target, name, topic) == ours[99] + 1

            wait_until(arrived, _TIMEOUT_S, "the group is where it belongs", poll_s=0.1)
        finally:
            ending.set()
        # Before the member leaves: from then on its group may be moved.
        followed = following.result(_TIMEOUT_S)
    assert first_read(groups.target, name, topic) == wanted
    assert offset_of(groups.target, busy, topic) is None
    assert [refusal.code for refusal in followed.refused] == ["HAS_MEMBERS"]
    assert followed.document()["delay_ms"]["max"] is not None


def test_a_topic_deleted_on_both_sides_blocks_nobody(groups: Groups) -> None:
    """What is remembered of its groups is no reason to ask somebody for ever; those of others go on."""
    replica, name = groups.replica, groups.name("reader")
    topic, other = replica.topic("a"), replica.topic("b")
    for each in (topic, other):
        replica.source.plain(each, 0, replica.source.records(10))
        commit(groups.source, name, each, {0: 7})
    replica.copy()
    groups.run("apply")
    delete_topics(groups.source, [topic])
    delete_topics(groups.target, [topic])
    commit(groups.source, name, other, {0: 9})
    groups.run("apply")
    assert offset_of(groups.target, name, other) == 9
    assert groups.run("apply")["changes"] == []


def test_a_group_that_is_moved_back_there_stays_where_somebody_has_put_it(groups: Groups) -> None:
    """Every position of a quiet topic is one that it was put to before."""
    replica, name = groups.replica, groups.name("quiet")
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(6))
    replica.copy()
    for offset in (3, 4, 5):
        commit(groups.source, name, topic, {0: offset})
        groups.run("apply")
    groups.run("apply")
    commit(groups.target, name, topic, {0: 4})
    found = groups.run("apply", expect=OPERATOR)
    assert groups.decision(found, "quiet") == ("left alone", "COMMITTED_ELSEWHERE")
    assert offset_of(groups.target, name, topic) == 4


def test_who_has_read_to_where_a_killed_sync_was_to_put_it_is_not_passed_over(groups: Groups) -> None:
    """Remembered, and never written: the reader's own commit tells of it by its leader epoch."""
    replica, name = groups.replica, groups.name("reached")
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(6))
    replica.copy()
    commit(groups.source, name, topic, {0: 3})
    groups.run("apply")
    commit(groups.source, name, topic, {0: 5})
    groups.killed_at(Step.GROUP_COMMIT, 1)
    assert offset_of(groups.target, name, topic) == 3
    assert consume(groups.target, name, topic, 2) == [3, 4]
    commit(groups.source, name, topic, {0: 6})
    found = groups.run("apply", expect=OPERATOR)
    assert groups.decision(found, "reached") == ("left alone", "COMMITTED_ELSEWHERE")
    assert offset_of(groups.target, name, topic) == 5
