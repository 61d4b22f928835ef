"""``onceover drill run --mode planned`` on real clusters: what it carries over, and how it undoes itself."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as CommittedPlace

from onceover.backoff import Deadline
from onceover.config.clients.resolve import ClientConfig
from onceover.config.flow.flowfile import Flow
from onceover.drills.leaving import commits, watch
from onceover.drills.leaving.commits import Positions, SourceGroups
from onceover.drills.looks.dryrun import DryRun
from onceover.drills.switching.course import STEP_NAMES
from onceover.drills.switching.groupmove import Placing
from onceover.drills.switching.steps import PlannedSteps
from onceover.groups import apply
from onceover.groups.apply import AppliedGroups
from onceover.groups.plan import GroupPlan
from onceover.kafka.admin.acls import Acl, AclAdmin
from onceover.kafka.cluster import LiveCluster
from onceover.state import names
from onceover.wiring.failovers import drills, switchovers
from onceover.wiring.groups import GroupRequest
from tests.support.brokers.guarded import Pair
from tests.support.drills.applications import Application, Place, Reader, Writer, at_work
from tests.support.drills.rehearsing import nobody_alive, rehearsing
from tests.support.drills.switching import (
    Switched,
    acls_of,
    copied,
    ran,
    step_of,
    switched,
    trouble,
    undone_or_gone_on_with,
)
from tests.support.flows.flows import InlineFlow, write_flow
from tests.support.flows.grants import (
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    granted,
    source_rights,
    target_rights,
)
from tests.support.flows.groups import commit, commit_undecided, delete_group, offset_of
from tests.support.flows.replica import Live, Replica, Seen, delete_topics, read_records
from tests.support.flows.rightstable import command_rights
from tests.support.raw.adversary import COMPACT_AT_ONCE, Adversary
from tests.support.raw.rawkafka import Codec
from tests.support.session.wait import wait_until

DONE, USAGE, PERSON = 0, 2, 3
TIMEOUT_S = 60.0
KEYS = [f"k{number}".encode() for number in range(10)]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who commits without being a member is waited for as long as these here need, which is not at all."""
    monkeypatch.setattr(commits, "COMMITS_S", 0.5)
    monkeypatch.setattr(apply, "WATCH_S", 0.5)


def write_until(replica: Replica, topic: str, over: threading.Event) -> None:
    """Write a record now and then."""
    while not over.wait(0.2):
        replica.source.plain(topic, 0, replica.source.records(1))


def test_everything_is_carried_over_in_waves(replica: Switched, capsys: pytest.CaptureFixture[str]) -> None:
    """Records, groups; writers are kept off; the copies are promoted, and the flow copies them no more.

    The first wave leaves the rest copied, once the flow is started again; the last takes what is left.
    """
    first, second = replica.topic(partitions=2), replica.topic("b")
    replica.source.plain(first, 0, replica.source.records(20))
    commit(replica.source_client, f"{replica.name}-billing", first, {0: 7, 1: 0})
    with replica.running():
        code, told = ran(replica, capsys, "--topics", first)
    assert (code, told["verdict"], told["plan"]["topics"]) == (DONE, "PASS", [first]), trouble(told)
    assert [step["name"] for step in told["steps"]] == [n for n in STEP_NAMES if n != "reverse"]
    assert offset_of(replica.target_client, f"{replica.name}-billing", first) == 7
    replica.assert_same()
    assert {(a.name, a.principal, a.operation, a.permission) for a in acls_of(replica)} == {
        (first, "User:*", "WRITE", "DENY")
    }
    heard = Path(replica.flow.path.parent / "heard").read_text()
    assert heard == f"redirect {replica.name} {first}\n"
    replica.source.plain(second, 0, replica.source.records(5))
    replica.copy()
    assert len(replica.target_records(second)) == 5
    code, told = ran(replica, capsys)
    assert (code, told["plan"]["topics"]) == (DONE, [second]), trouble(told)
    assert {each.name for each in acls_of(replica)} == {first, second}
    copies_nothing_more(replica, capsys, first, second)
    code, again = ran(replica, capsys)
    assert (code, again["error"]["code"]) == (USAGE, "NOTHING_CHOSEN")


def copies_nothing_more(replica: Switched, capsys: pytest.CaptureFixture[str], *topics: str) -> None:
    """Started again, it leaves what was promoted alone, says so, and nobody has to decide anything."""
    code, told = replica.command(capsys, "status", str(replica.flow.path))
    (status,) = told["flows"]
    assert (code, status["state"], status["run"]["state"], status["needs"]) == (
        DONE,
        "promoted",
        "promoted",
        [],
    )
    assert {(note["code"], note["object"]) for note in status["notes"]} == {("PROMOTED", t) for t in topics}
    assert {(each["topic"], each["in"], each["target_topic"]) for each in status["topics"]} >= {
        (topic, False, topic) for topic in topics
    }
    for topic in topics:
        replica.source.plain(topic, 0, replica.source.records(3))
    before = [replica.target_records(topic) for topic in topics]
    replica.copy()
    assert [replica.target_records(topic) for topic in topics] == before
    code, told = replica.command(capsys, "status", str(replica.flow.path))
    assert (code, told["flows"][0]["needs"]) == (DONE, []), json.dumps(told, indent=1)
    assert "PROMOTED" in json.dumps(told)


@pytest.fixture
def rights(guarded: Pair, replica: Switched) -> Iterator[None]:
    """What the applications may do on both sides, unless they are kept off."""
    rights = [(TOPIC, replica.name, True, "WRITE READ DESCRIBE"), (GROUP, replica.name, True, "READ")]
    rights += [(TRANSACTIONAL_ID, replica.name, True, "WRITE DESCRIBE")]
    source, target = guarded
    with granted(source, rights), granted(target, rights):
        yield


class Applications:
    """A plain and a transactional writer of one topic, and a group that reads it."""

    def __init__(self, replica: Switched, pair: Pair, topic: str) -> None:
        clients = {"source": pair[0].client, "target": pair[1].client}
        self._place = Place(replica.flow.path.parent / "place", clients, "source")
        self._replica, self._topic = replica, topic
        self.writers = [
            Writer(self._place, topic, 0),
            Writer(self._place, topic, 1, f"{replica.name}-tx"),
        ]
        self.reader = Reader(self._place, f"{replica.name}-app", topic)

    @property
    def all(self) -> list[Application]:
        return [*self.writers, self.reader]

    def go_on(self) -> None:
        """Return once each has written, and read, more than until now."""
        before = [w.acknowledged + 10 for w in self.writers]

        def further() -> bool:
            written = all(w.acknowledged > n for w, n in zip(self.writers, before, strict=True))
            return written and all(len(self.reader.read.get(p, ())) > n for p, n in enumerate(before))

        wait_until(further, TIMEOUT_S, "the applications go on")

    def judge(self, on: dict[int, list[int]]) -> None:
        """Nothing is lost, repeated or out of order: in the log, and for who has read it."""
        for partition, writer in enumerate(self.writers):
            assert on[partition] == list(range(writer.acknowledged))
            read = self.reader.read[partition]
            assert read == on[partition][: len(read)]


class Cargo:
    """Topics that go over and back beside the applications': a compacted one, and one for each of two codecs.

    Each has a group that has read to the middle of the batch that was written last.
    """

    def __init__(self, replica: Switched) -> None:
        self._group = f"{replica.name}-cargo"
        compacted = replica.topic("compacted", config=COMPACT_AT_ONCE)
        replica.source.holes(compacted, codec=Codec.ZSTD)
        self.topics = {compacted: Codec.NONE}
        self.topics |= {replica.topic(codec.name.lower()): codec for codec in (Codec.GZIP, Codec.ZSTD)}
        self.add(replica.source, replica.source_client)

    def add(self, side: Adversary, client: dict[str, str]) -> None:
        """Write, and read half of it, where the clients are."""
        for topic, codec in self.topics.items():
            records = [side.record(key=key) for key in KEYS]
            commit(client, self._group, topic, {0: side.plain(topic, 0, records, codec) + 5})

    def grow(self, side: Adversary) -> str:
        """Give a topic one more partition where the clients are, with records in it; return its name."""
        grown = next(topic for topic, codec in self.topics.items() if codec is Codec.GZIP)
        side.add_partitions(grown, 2)
        side.plain(grown, 1, side.records(5))
        return grown

    def arrived(self, left: dict[str, str], here: dict[str, str]) -> None:
        """Both sides hold the same, and the group goes on with the same record.

        Each side has its own log cleaner, which leaves the last record of a key.
        """
        for topic, codec in self.topics.items():
            before, now = (read_records(client, topic) for client in (left, here))
            if codec is Codec.NONE:
                assert {r.key: r for r in now.values()} == {r.key: r for r in before.values()}
            else:
                assert list(now.values()) == list(before.values())
            for client, records in ((left, before), (here, now)):
                at = offset_of(client, self._group, topic)
                assert at is not None
                assert [records[o].key for o in sorted(records) if o >= at] == [
                    b"k%d" % n for n in range(5, 10)
                ]


def numbers(read: Callable[[str, int], dict[int, Seen]], topic: str) -> dict[int, list[int]]:
    return {p: [int(record.value or b"-1") for record in read(topic, p).values()] for p in (0, 1)}


def other_way(replica: Switched) -> InlineFlow:
    """Return the flow from target to source, whose switchover leads back."""
    east, west = {"alias": "east"}, {"alias": "west"}
    switchover = {"redirect": "command", "command": ["./back"], "quiet": "500ms", "reverse": replica.name}
    path = write_flow(
        replica.flow.path.parent,
        f"{replica.name}-back",
        replica.target_client,
        replica.source_client,
        [f"{replica.name}[.].*"],
        source=west,
        target=east,
        switchover=switchover,
    )
    program = path.with_name("back")
    moved = Place.WAIT.format(name="source")
    program.write_text(f'#!/bin/sh\necho source > "$(dirname "$0")/place"\n{moved}\n')
    program.chmod(0o700)
    return InlineFlow(path)


@pytest.mark.usefixtures("rights")
def test_live_applications_move_there_and_back_without_a_loss_or_a_repeat(
    guarded: Pair,
    replica: Switched,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plain and transactional writers and a group, judged by the numbers that they know of themselves.

    A topic that has grown while they were there goes on with what it has grown by, too.
    """
    # The group commits each record, but a busy machine may keep it from that for a second.
    monkeypatch.setattr(commits, "COMMITS_S", 4.0)
    # By name, so that the fence stands until clients come back: the way back begins beside it.
    security = guarded[0].security
    assert security is not None
    switchover = {"redirect": "command", "command": ["./switch"], "quiet": "500ms"}
    switchover |= {"deny": [f"User:{security.username}"], "reverse": f"{replica.name}-back"}
    replica.configure(switchover=switchover)
    replica.command_does('echo target > "$(dirname "$0")/place"\n' + Place.WAIT.format(name="target"))
    topic = replica.topic(partitions=2)
    applications, back = Applications(replica, guarded, topic), other_way(replica)
    cargo = Cargo(replica)
    with at_work(applications.all):
        with replica.running():
            applications.go_on()
            code, told = ran(replica, capsys)
            assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
            assert [step["name"] for step in told["steps"]] == list(STEP_NAMES)
            assert step_of(told, "reverse")["evidence"]["positions"] == 2 + len(cargo.topics)
        applications.go_on()
        cargo.arrived(replica.source_client, replica.target_client)
        cargo.add(replica.target, replica.target_client)
        grown = cargo.grow(replica.target)
        with live(back):
            applications.go_on()
            arguments = "drill", "run", str(back.path), "--mode", "planned", "--approve"
            code, told = replica.command(capsys, *arguments)
            assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
            assert step_of(told, "reverse")["evidence"]["positions"] == 2 + len(cargo.topics) + 1
        applications.go_on()
    cargo.arrived(replica.target_client, replica.source_client)
    applications.judge(numbers(replica.source_records, topic))
    replica.source.plain(grown, 1, replica.source.records(3))
    replica.copy()
    assert numbers(replica.target_records, topic) == numbers(replica.source_records, topic)
    added = [list(read(grown, 1).values()) for read in (replica.source_records, replica.target_records)]
    assert len(added[0]) == 8 and added[1] == added[0]


@pytest.mark.soak
def test_a_group_that_paused_and_has_gone_on_is_put_in_place_once_more(
    replica: Switched, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rested for longer than a commit takes, was counted, and commits while its group is put in place."""
    topic, group = replica.topic(), f"{replica.name}-slow"
    replica.source.plain(topic, 0, replica.source.records(20))
    commit(replica.source_client, group, topic, {0: 7})
    real, further = SourceGroups.settle, iter([9, 12])

    def settle(groups: SourceGroups, earlier: Positions, deadline: Deadline) -> Positions:
        found = real(groups, earlier, deadline)
        for offset in further:
            commit(replica.source_client, group, topic, {0: offset})
            break
        return found

    monkeypatch.setattr(SourceGroups, "settle", settle)
    with replica.running():
        code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    assert offset_of(replica.target_client, group, topic) == 12


def test_what_passes_is_waited_for_before_anybody_is_kept_off_and_when_groups_are_put_in_place(
    replica: Switched, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of the target begins to commit for the group in a transaction, and aborts it soon.

    Nobody has to decide about a commit that is about to be decided.
    """
    topic, group = copied(replica), f"{replica.name}-billing"
    real_look, real_once = drills.dry_run, Placing.once
    seen, left = list[list[str]](), list[str]()

    def dry_run(flow: Flow, groups: GroupRequest | None = None) -> DryRun:
        if seen:
            return real_look(flow, groups)
        with commit_undecided(replica.target_client, group, CommittedPlace(topic, 0, 8)) as reader:
            found = real_look(flow, groups)
            seen.append([need["code"] for need in found.document()["needs"]])
            reader.abort_transaction(TIMEOUT_S)
        return found

    def once(placing: Placing) -> tuple[GroupPlan, AppliedGroups]:
        if left:
            return real_once(placing)
        with commit_undecided(replica.target_client, group, CommittedPlace(topic, 0, 8)) as reader:
            planned, applied = real_once(placing)
            left.extend(refusal.code for refusal in applied.waiting)
            reader.abort_transaction(TIMEOUT_S)
        return planned, applied

    monkeypatch.setattr(switchovers, "dry_run", dry_run)
    monkeypatch.setattr(Placing, "once", once)
    with replica.running():
        code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    assert (seen, left) == ([["COMMIT_PENDING"]], ["COMMIT_PENDING"])
    assert offset_of(replica.target_client, group, topic) == 7


def test_whom_nothing_would_put_in_place_is_named_before_anybody_is_kept_off(
    replica: Switched, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody has read further on the target already. Who was deleted on the source is in nobody's way."""
    topic, ahead, gone = copied(replica), f"{replica.name}-ahead", f"{replica.name}-gone"
    for group in (ahead, gone):
        commit(replica.source_client, group, topic, {0: 4})
    assert replica.command(capsys, "groups", "apply", str(replica.flow.path))[0] == DONE
    delete_group(replica.source_client, gone)
    commit(replica.target_client, ahead, topic, {0: 9})
    with replica.running():
        code, told = ran(replica, capsys)
        error = step_of(told, "look")["error"]
        assert (code, error["code"], error["seen"]) == (PERSON, "NOT_READY", "AHEAD"), trouble(told)
        assert f"{ahead} {topic}:0" in error["message"]
        assert step_of(told, "fence")["state"] == "skipped"
        commit(replica.source_client, ahead, topic, {0: 9})
        code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)


def test_who_commits_on_the_target_all_the_time_is_named_before_anybody_is_kept_off(
    replica: Switched, capsys: pytest.CaptureFixture[str]
) -> None:
    """With assign(), so that its group has no members: what it commits would be replaced again and again."""
    # So many that no position comes back between two looks.
    records = 2_000
    topic, group, over = copied(replica, records), f"{replica.name}-billing", threading.Event()
    commit(replica.source_client, group, topic, {0: records})

    def commit_on() -> None:
        for number in itertools.count():
            commit(replica.target_client, group, topic, {0: number % records})
            if over.wait(0.1):
                return

    reading = threading.Thread(target=commit_on)
    reading.start()
    try:
        with replica.running():
            code, told = ran(replica, capsys)
    finally:
        over.set()
        reading.join()
    error = step_of(told, "audit")["error"]
    assert (code, error["code"], error["seen"]) == (PERSON, "NOT_READY", "COMMITS_MOVE"), trouble(told)
    assert step_of(told, "fence")["state"] == "skipped"


@pytest.mark.soak
def test_a_group_that_never_rests_is_named(
    replica: Switched, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits each time that it was counted: the writers are let in again before long."""
    topic, group = replica.topic(), f"{replica.name}-restless"
    replica.source.plain(topic, 0, replica.source.records(200))
    real, commits_seen = SourceGroups.settle, 0

    def settle(groups: SourceGroups, earlier: Positions, deadline: Deadline) -> Positions:
        nonlocal commits_seen
        found = real(groups, earlier, deadline)
        commit(replica.source_client, group, topic, {0: commits_seen})
        commits_seen += 1
        return found

    class ThreeCommits(Deadline):
        """One that passes with the group's third commit, however long a busy machine takes for them."""

        @property
        def left_s(self) -> float:
            return TIMEOUT_S if commits_seen < 3 else 0.0

    monkeypatch.setattr(SourceGroups, "settle", settle)
    place = PlannedSteps.place
    monkeypatch.setattr(PlannedSteps, "place", lambda steps, _: place(steps, ThreeCommits(TIMEOUT_S)))
    with replica.running():
        code, told = ran(replica, capsys)
    assert (code, step_of(told, "place")["error"]["code"]) == (PERSON, "COMMITS_LATE"), told["steps"]
    assert f"{group} at {topic}:0" in step_of(told, "place")["error"]["message"]
    assert acls_of(replica) == frozenset()


@contextmanager
def live(flow: InlineFlow) -> Iterator[None]:
    """Let a flow run meanwhile."""
    running = Live(flow, 120.0)
    running.start()
    try:
        yield
    finally:
        running.stop()


def test_who_goes_around_the_fence_is_noticed_and_everything_is_undone(
    replica: Switched, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A super user writes on: no ACL keeps it off. What somebody else had denied before stays denied."""
    monkeypatch.setattr(watch, "SETTLES_S", 2.0)
    topic, other = copied(replica), replica.topic("b")
    replica.copy()
    with LiveCluster(ClientConfig("source", replica.source_client)) as cluster:
        AclAdmin(cluster).create([Acl("LITERAL", other, "User:*", "*", "WRITE", "DENY")])
    wait_until(lambda: len(acls_of(replica)) == 1, TIMEOUT_S, "it is shown")
    before = acls_of(replica)
    with replica.running():
        over = threading.Event()
        writing = threading.Thread(target=lambda: write_until(replica, topic, over))
        writing.start()
        try:
            code, told = ran(replica, capsys)
        finally:
            over.set()
            writing.join()
        assert (code, told["verdict"]) == (PERSON, "FAIL")
        assert step_of(told, "settle")["error"]["code"] == "FENCE_LEAKS"
        assert step_of(told, "undo")["state"] == "done"
    replica.copy()
    assert acls_of(replica) == before
    replica.assert_same()


def test_a_flow_that_does_not_run_is_started_first(
    replica: Switched, capsys: pytest.CaptureFixture[str]
) -> None:
    """With something left to copy nobody is kept off for a copy that does not come."""
    topic = copied(replica)
    replica.source.plain(topic, 0, replica.source.records(1))
    code, told = ran(replica, capsys)
    assert (code, step_of(told, "look")["error"]["code"]) == (PERSON, "NOT_READY")
    assert acls_of(replica) == frozenset()


@pytest.mark.soak
def test_what_fails_behind_the_promotion_goes_on_when_it_is_run_again(
    replica: Switched, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that redirects fails once; nothing is undone, and `drill abort` does not pretend to."""
    copied(replica)
    replica.command_does("exit 3")
    code, told = ran(replica, capsys)
    assert (code, step_of(told, "redirect")["error"]["code"]) == (PERSON, "COMMAND_FAILED")
    assert step_of(told, "undo")["evidence"] == {"promoted": True}
    code, refused = replica.command(capsys, "drill", "abort", str(replica.flow.path))
    assert (code, refused["error"]["code"]) == (PERSON, "PAST_RETURN")
    replica.command_does("exit 0")
    code, again = ran(replica, capsys)
    assert (code, again["verdict"]) == (DONE, "PASS"), json.dumps(again, indent=1)
    assert again["plan"]["goes_on"] == told["drill"]
    assert [step["name"] for step in again["steps"]] == ["redirect", "verify", "undo"]


# At each place: test_anew.py, one of which is in each run.
@pytest.mark.soak
def test_a_topic_that_is_made_anew_meanwhile_is_noticed(
    replica: Switched, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the fence, with nothing in it: nobody would miss a record by counting."""
    topic = copied(replica)
    real = PlannedSteps.settle

    def settle(steps: PlannedSteps, deadline: Deadline) -> Mapping[str, Any]:
        found = real(steps, deadline)
        delete_topics(replica.source_client, [topic])
        replica.source.create_topic(topic, 2)
        return found

    monkeypatch.setattr(PlannedSteps, "settle", settle)
    code, told = ran(replica, capsys)
    assert (code, step_of(told, "drain")["error"]["code"]) == (PERSON, "LOG_CHANGED")
    assert acls_of(replica) == frozenset()


def test_a_group_that_reads_and_has_never_committed_is_named_before_anybody_is_kept_off(
    replica: Switched, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the target it would begin anew; nobody can tell where it is."""
    topic = copied(replica)
    group = f"{replica.name}-silent"
    settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**replica.source_client, **settings})
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is not None, TIMEOUT_S, "it reads")
        with replica.running():
            code, told = ran(replica, capsys)
    finally:
        consumer.close()
    error = step_of(told, "look")["error"]
    assert (code, error["code"]) == (PERSON, "COMMITS_LATE")
    assert f"{group} at {topic}:0" in error["message"]
    assert acls_of(replica) == frozenset()


def test_without_a_yes_nothing_is_done(replica: Switched, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither `--approve` nor a terminal: the plan is shown, and that is all."""
    copied(replica)
    before = acls_of(replica)
    code, told = replica.command(capsys, "drill", "run", str(replica.flow.path), "--mode", "planned")
    assert (code, told["error"]["code"]) == (USAGE, "NOT_APPROVED")
    assert acls_of(replica) == before
    _, status = replica.command(capsys, "drill", "status", str(replica.flow.path))
    assert status["drills"] == []


def test_killed_behind_the_promotion_it_is_gone_on_with(
    replica: Switched, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The representative of the matrix in tests/soak, which has every step."""
    undone_or_gone_on_with(replica, capsys, tmp_path / "drill.log", "promote", "behind")


@pytest.mark.soak
def test_a_fence_that_a_killed_one_has_left_is_told_and_lifted_for_the_way_back(
    replica: Switched, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Killed while everybody was kept off; then the topics were given away without asking the source."""
    topic = copied(replica)
    with rehearsing(replica, tmp_path / "drill.log", mode="planned", step="settle", when="before") as child:
        assert child.wait(TIMEOUT_S) == -9, child.tail()
    assert len(acls_of(replica)) == 1
    path = str(replica.flow.path)
    with nobody_alive():
        code, told = replica.command(capsys, "drill", "run", path, "--mode", "unplanned", "--approve")
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    (text,) = [each["text"] for each in told["findings"] if each["code"] == "STILL_FENCED"]
    assert topic in text and "drill abort" in text
    seed = "seed", "apply", str(other_way(replica).path), "--from", f"promoted:{path}"
    code, seeded = replica.command(capsys, *seed)
    assert (code, seeded["written"]) == (DONE, 2), json.dumps(seeded, indent=1)
    assert acls_of(replica) == frozenset()
    code, ended = replica.command(capsys, "drill", "abort", path)
    assert (code, ended["unfenced"]) == (DONE, [])


def test_who_was_not_brought_over_yet_is_not_let_in_for_the_way_back(
    replica: Switched, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they wrote behind the promotion would count as brought, and the next way out would skip it."""
    copied(replica)
    back = other_way(replica)
    switchover = {"redirect": "command", "command": ["./switch"], "quiet": "500ms", "reverse": back.path.stem}
    replica.configure(switchover=switchover)
    replica.write_flow()
    replica.command_does('test "$1" != redirect')
    code, told = ran(replica, capsys)
    assert (code, step_of(told, "redirect")["error"]["code"]) == (PERSON, "COMMAND_FAILED")
    seed = "seed", "apply", str(back.path), "--from", f"promoted:{replica.flow.path}"
    code, told = replica.command(capsys, *seed)
    assert (code, told["error"]["code"], len(acls_of(replica))) == (PERSON, "PAST_RETURN", 1), told
    replica.command_does("exit 0")
    code, told = ran(replica, capsys)
    assert (code, told["verdict"], acls_of(replica)) == (DONE, "PASS", frozenset()), trouble(told)


def test_a_switchover_works_with_the_rights_of_its_rows(
    guarded: Pair, tmp_path: Path, unique_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no others: those of docs/operations.md."""
    source, target = guarded
    with switched(guarded, tmp_path, unique_name, (source.client, target.client)) as replica:
        # Who may describe the cluster is told of all groups, and has to know all of the flow's.
        replica.configure(groups={"include": [f"{replica.name}.*"]})
        topic = replica.topic()
        replica.source.plain(topic, 0, replica.source.records(5))
        with granted(source, source_rights(replica.name)), granted(target, target_rights(replica.name)):
            replica.copy()
        commit(source.admin_client, f"{replica.name}-billing", topic, {0: 3})
        rights = command_rights("drill run --mode planned", replica.name)
        with granted(source, rights[0]), granted(target, rights[1]):
            code, told = ran(replica, capsys)
        assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
        assert offset_of(target.admin_client, f"{replica.name}-billing", topic) == 3


def test_who_may_make_no_acls_is_told_before_anybody_is_said_to_be_kept_off(
    guarded: Pair, tmp_path: Path, unique_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was done; with the right, the next one passes."""
    source, target = guarded
    with switched(guarded, tmp_path, unique_name, (source.client, target.client)) as replica:
        replica.configure(groups={"include": [f"{replica.name}.*"]})
        topic = replica.topic()
        replica.source.plain(topic, 0, replica.source.records(5))
        here, there = command_rights("drill run --mode planned", replica.name)
        with granted(source, source_rights(replica.name)), granted(target, target_rights(replica.name)):
            replica.copy()
        fewer = [(*row[:3], row[3].replace("ALTER", "").strip()) for row in here]
        with granted(source, fewer), granted(target, there):
            code, told = ran(replica, capsys)
        error = told["error"]
        assert (code, error["code"]) == (USAGE, "NOT_AUTHORIZED")
        assert "ALTER on the cluster" in error["message"] and "grant" in error["resolve"]
        with granted(source, here), granted(target, there):
            code, told = ran(replica, capsys)
        assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)


def test_whoever_has_its_journal_deleted_lets_in_whom_it_keeps_off(
    replica: Switched, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """No abort will ever know of that fence; the next switchover begins a new journal, and passes."""
    copied(replica)
    before, let_go = acls_of(replica), tmp_path / "let-go"
    options = {"mode": "planned", "step": "settle", "when": "before", "hold": str(let_go)}
    with rehearsing(replica, tmp_path / "drill.log", **options) as child:
        wait_until(lambda: "see that nobody writes" in child.tail(), TIMEOUT_S, "writers are kept off")
        delete_topics(replica.target_client, [names.drills_topic(replica.name)])
        let_go.touch()
        assert child.wait(TIMEOUT_S) == PERSON, child.tail()
    assert acls_of(replica) == before
    (report,) = (tmp_path / "var").rglob("report.json")
    told = json.loads(report.read_text())
    assert [step_of(told, name)["error"]["code"] for name in ("settle", "undo")] == ["JOURNAL_DAMAGED"] * 2
    assert [found["code"] for found in told["findings"]] == ["STILL_FENCED"], told["findings"]
    code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
