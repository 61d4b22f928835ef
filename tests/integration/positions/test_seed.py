"""``onceover seed`` on real clusters: every origin, beside a run, refused, killed in between."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import OFFSET_END, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Committed
from confluent_kafka.admin import AdminClient

from onceover.audit.model import FindingKind
from onceover.errors import Fenced
from onceover.positions import reader as mapreader
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.state.steps import Step
from tests.support.flows.flows import InlineFlow
from tests.support.flows.groups import committed
from tests.support.flows.killed import killed_command
from tests.support.flows.replica import Live, Replica, delete_before, delete_topics
from tests.support.flows.waysout import Command, commands, follow
from tests.support.raw.adversary import EPOCH_MS
from tests.support.raw.rawkafka import Codec
from tests.support.session.wait import wait_until
from tests.support.worlds.contentaudit import audit
from tests.support.worlds.contentaudit import partition as partition_of
from tests.support.worlds.mapparts import hanging, mapped

_TIMEOUT_S = 60.0


class Seeding:
    """``onceover seed`` for one flow."""

    def __init__(self, replica: Replica, capsys: pytest.CaptureFixture[str], home: Path) -> None:
        self.replica = replica
        self.home = home
        self.capsys = capsys

    @property
    def flow(self) -> str:
        """Path of the flow file."""
        return str(self.replica.flow.path)

    def __call__(self, action: str, origin: str, *options: str, exit_code: int = 0) -> dict[str, Any]:
        arguments = ("seed", action, self.flow, "--from", origin, *options)
        code, document = self.replica.command(self.capsys, *arguments)
        assert code == exit_code, document
        return document

    def ways_out(self, code: str, topic: str) -> list[Command]:
        """Return the commands of what the map refuses, for partition 0 and with this code."""
        document = self("plan", "map", exit_code=3)
        assert refused(document) == {(f"{topic}:0", code)}
        return commands(document["refused"][0]["resolve"])

    def filled(self, suffix: str = "a", partitions: int = 2, records: int = 10) -> str:
        """Create a source topic with plain records in every partition."""
        topic = self.replica.topic(suffix, partitions)
        for partition in range(partitions):
            self.replica.source.plain(topic, partition, self.replica.source.records(records), Codec.NONE)
        return topic

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Let a group on the source have committed offsets."""
        entries = [Committed(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(group, entries)]
        client = AdminClient(self.replica.source_client)

        def written() -> bool:
            (future,) = client.alter_consumer_group_offsets(request).values()
            return all(tp.error is None for tp in future.result(_TIMEOUT_S).topic_partitions)

        # The first commit of a fresh cluster finds no coordinator yet.
        wait_until(written, _TIMEOUT_S, f"group {group} has committed")

    def lose_progress(self) -> None:
        """Delete the progress group."""
        client = AdminClient(self.replica.target_client)
        group = names.progress_group(self.replica.name)
        client.delete_consumer_groups([group])[group].result(_TIMEOUT_S)

    def journal(self) -> list[str]:
        """Return what the journal says happened, in order."""
        path = self.home / self.replica.name / "journal" / "seed.jsonl"
        return [json.loads(line)["outcome"] for line in path.read_text().splitlines()]

    def killed_at(self, step: Step, origin: str) -> None:
        """Run ``apply`` in a process that kills itself at a step."""
        arguments = ["seed", "apply", self.flow, "--from", origin]
        killed_command(step, 1, arguments, self.home / "killed.log")


@pytest.fixture
def seeding(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Seeding:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("ONCEOVER_HOME", str(home))
    return Seeding(replica, capsys, home)


def positions(document: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return (from, to, risk, records) of every position in a plan."""
    return {
        c["object"]: (c["from"], c["to"], c["risk"], c["records"])
        for c in document["changes"]
        if c["what"] == "position"
    }


def refused(document: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return what a plan refuses, with the codes."""
    return {(r["object"], r["code"]) for r in document["refused"]}


def copied(replica: Replica, topic: str, partition: int, start: int) -> bool:
    """Tell whether the target holds exactly the source's records from ``start`` on, in order."""
    theirs = replica.source_records(topic, partition)
    expected = [record for offset, record in sorted(theirs.items()) if offset >= start]
    return [record for _, record in sorted(replica.target_records(topic, partition).items())] == expected


def test_a_group_on_the_source_says_where_a_new_flow_begins(seeding: Seeding) -> None:
    """The plan changes nothing; what is skipped is counted; a second apply has nothing to do."""
    topic, other = seeding.filled(), seeding.filled("b", 1)
    replica, group = seeding.replica, f"{seeding.replica.name}-mirror"
    seeding.commit(group, {(topic, 0): 4, (topic, 1): 10})
    planned = seeding("plan", f"group:{group}")
    assert positions(planned) == {f"{topic}:0": (None, 4, "skip", 4), f"{topic}:1": (None, 10, "skip", 10)}
    assert (planned["untouched"], refused(planned)) == ([other], set())
    assert [c["what"] for c in planned["changes"]] == ["create topic", "position", "position", "flow"]
    assert topic not in AdminClient(replica.target_client).list_topics(timeout=_TIMEOUT_S).topics

    applied = seeding("apply", f"group:{group}")
    assert (applied["plan_id"], applied["written"], applied["generation"]) == (planned["plan_id"], 2, 1)
    assert seeding.journal() == ["planned"] * 4 + ["done"] * 3
    assert positions(seeding("apply", f"group:{group}")) == {}
    replica.copy()
    assert copied(replica, topic, 0, 4) and copied(replica, topic, 1, 10)
    replica.assert_same(other)


def test_a_lost_progress_group_is_rebuilt_exactly_from_the_map(seeding: Seeding) -> None:
    """Nothing is lost and nothing repeated, whatever the last transactions held."""
    topic, replica = seeding.filled(partitions=3), seeding.replica
    for partition in range(2):
        replica.source.interleaved(topic, partition)
    # A young cluster has no coordinator yet, and positions that could not be shown there are not shown later.
    seeding.commit(f"{replica.name}-first", {(topic, 0): 0})
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(5), Codec.LZ4)
    replica.copy()
    replica.source.plain(topic, 1, replica.source.records(5), Codec.LZ4)
    before = {tp: entry[1] for tp, entry in positions(seeding("plan", "latest", exit_code=3)).items()}
    assert before == {}
    seeding.lose_progress()
    replica.copy()
    assert replica.stop_of(topic, 0)["code"] == "PROGRESS_MISSING"
    planned = seeding("plan", "map")
    assert {entry[2] for entry in positions(planned).values()} == {"none"}
    assert len(positions(planned)) == 3
    assert seeding("plan", "lag-group")["changes"] != []
    seeding("apply", "map")
    replica.copy()
    replica.assert_same()


def test_the_map_is_not_believed_when_somebody_else_has_written(seeding: Seeding) -> None:
    """A record behind the map's end makes the map a lower bound only."""
    topic, replica = seeding.filled(partitions=1), seeding.replica
    replica.copy()
    seeding.lose_progress()
    replica.target.plain(topic, 0, replica.target.records(1), Codec.NONE)
    (behind,) = seeding.ways_out("TARGET_BEYOND_MAP", topic)
    follow(seeding.capsys, behind)
    replica.source.plain(topic, 0, replica.source.records(2), Codec.NONE)
    assert replica.copy().records == 2


@pytest.mark.soak
def test_a_map_that_is_younger_than_the_copy_is_known_to_be_and_nothing_comes_again(
    seeding: Seeding,
) -> None:
    """Its topic was deleted; the partition has been idle since, so that the new one says nothing of it."""
    topic, replica = seeding.filled(partitions=2), seeding.replica
    # A young cluster has no coordinator yet, and positions that could not be shown there are not shown later.
    seeding.commit(f"{replica.name}-first", {(topic, 0): 0})
    replica.copy()
    delete_topics(replica.target_client, [names.map_topic(replica.name)])
    replica.source.plain(topic, 1, replica.source.records(5), Codec.NONE)
    replica.copy()
    kept = seeding("plan", "map", exit_code=3)
    assert refused(kept) == {(f"{topic}:0", "MAP_YOUNGER")}
    assert "its own progress is wrong, which stands at source offset 10" in kept["refused"][0]["resolve"]
    seeding.lose_progress()
    (group,) = seeding.ways_out("MAP_YOUNGER", topic)
    seeding("apply", "map", exit_code=3)
    assert positions(group.run(seeding.capsys)) == {f"{topic}:0": (None, 10, "none", 0)}
    arguments = ["apply" if word == "plan" else word for word in group.arguments]
    assert replica.command(seeding.capsys, *arguments)[0] == 0
    assert replica.copy().records == 0
    replica.assert_same()


@pytest.mark.soak
def test_what_hangs_in_one_part_of_the_map_keeps_only_its_own_partitions_from_being_rebuilt(
    seeding: Seeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied since is hidden there: taken for the end, it would come again."""
    monkeypatch.setattr(mapreader, "_SETTLE_S", 1.0)
    topic, replica = seeding.filled(partitions=2), seeding.replica
    replica.copy()
    with hanging(replica, mapped(topic, 1)):
        for partition in range(2):
            replica.source.plain(topic, partition, replica.source.records(5), Codec.NONE)
        replica.copy()
        seeding.lose_progress()
        applied = seeding("apply", "map", exit_code=5)
        assert refused(applied) == {(f"{topic}:1", "UNREADABLE")}
        assert positions(applied) == {f"{topic}:0": (None, 15, "none", None)}
    assert positions(seeding("apply", "map")) == {f"{topic}:1": (None, 15, "none", None)}
    assert replica.copy().records == 0
    replica.assert_same()


@pytest.mark.parametrize(
    "command", ["seed", *(pytest.param(each, marks=pytest.mark.soak) for each in ("reseed", "skip-to"))]
)
def test_progress_that_was_put_somewhere_and_lost_before_a_record_was_copied_is_rebuilt(
    seeding: Seeding, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """By generations: whoever did it may be an hour slow, and the map's records look newer."""
    topic, replica = seeding.filled(partitions=1), seeding.replica
    replica.copy()
    for module in ("seeding.apply", "operate.reseed"):
        monkeypatch.setattr(f"onceover.{module}.now_ms", lambda: 1)
    wanted = 3 if command == "skip-to" else 0
    if command == "seed":
        seeding("apply", "earliest", "--replace")
    else:
        offset = [str(wanted)] if wanted else []
        typed = ("partition", command, seeding.flow, f"{topic}:0", *offset, "--apply")
        assert replica.command(seeding.capsys, *typed)[0] == 0
    seeding.lose_progress()
    assert positions(seeding("apply", "map")) == {f"{topic}:0": (None, wanted, "none", None)}
    assert replica.copy().records == 10 - wanted


@pytest.mark.soak
@pytest.mark.parametrize(("command", "wanted"), [("reseed", []), ("skip-to", ["10"])])
def test_the_lag_group_is_not_believed_over_a_later_change_by_hand(
    seeding: Seeding, command: str, wanted: list[str]
) -> None:
    """It stands where the lanes were before: put back since, what lies before it would never come again."""
    topic, replica = seeding.filled(partitions=1), seeding.replica
    seeding.commit(f"{replica.name}-first", {(topic, 0): 0})
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(2))
    typed = ("partition", command, seeding.flow, f"{topic}:0", *wanted, "--apply")
    assert replica.command(seeding.capsys, *typed)[0] == 0
    seeding.lose_progress()
    if wanted:
        assert positions(seeding("plan", "lag-group")) == {f"{topic}:0": (None, 10, "repeat", 2)}
        return
    document = seeding("plan", "lag-group", exit_code=3)
    assert refused(document) == {(f"{topic}:0", "LAG_GROUP_STALE")}
    former, latter = commands(document["refused"][0]["resolve"])
    assert (former.arguments[-1], latter.arguments[-1]) == ("0", "10")
    follow(seeding.capsys, former)
    assert replica.copy().records == 12


def test_the_map_is_not_believed_when_it_may_have_expired_with_what_was_copied(seeding: Seeding) -> None:
    """Retention has passed both, and the source still holds everything: all of it would come again."""
    topic, replica = seeding.filled(partitions=1), seeding.replica
    # A young cluster has no coordinator yet, and positions that could not be shown there are not shown later.
    seeding.commit(f"{replica.name}-first", {(topic, 0): 0})
    replica.copy()
    expire(replica, topic)
    seeding.lose_progress()
    (group,) = seeding.ways_out("MAP_EXPIRED", topic)
    (position,) = positions(group.run(seeding.capsys)).values()
    assert position[1] == 10


def test_the_map_of_a_handler_is_read_over_all_partitions_that_it_writes_to(seeding: Seeding) -> None:
    """What it put elsewhere counts as copied; where it is forgotten, nothing is called exact."""
    replica = seeding.replica
    replica.configure(handler="onceover.handlers.rekey:Repartition", handler_args={"partitions": 3})
    topic = seeding.filled(partitions=2)
    replica.copy()
    before = [len(replica.target_records(topic, number)) for number in range(3)]
    assert sum(before) == 20
    seeding.lose_progress()
    assert [entry[1:3] for entry in positions(seeding("apply", "map")).values()] == 2 * [(10, "none")]
    assert replica.copy().records == 0
    for number in range(2):
        replica.source.plain(topic, number, replica.source.records(5))
    replica.copy()
    seeding.lose_progress()
    expire(replica)
    found = refused(seeding("plan", "map", exit_code=3))
    assert found == {(f"{topic}:{number}", "MAP_EXPIRED") for number in range(2)}


def expire(replica: Replica, *topics: str) -> None:
    """Delete everything in the offset map, and in copies of one partition, as retention does."""
    kept = [(names.map_topic(replica.name), number) for number in range(names.MAP_PARTITIONS)]
    for topic, number in [*kept, *((topic, 0) for topic in topics)]:
        delete_before(replica.target_client, topic, OFFSET_END, number)


def test_what_an_older_release_has_seeded_is_not_believed_after_a_later_seeding(
    seeding: Seeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record says the time alone: what was lost before anything was copied may be either place."""
    to_json = Enrolment.to_json
    monkeypatch.setattr(Enrolment, "to_json", lambda self: {**to_json(self), "placed": {}})
    topic = seeding.filled(partitions=1)
    seeding.replica.copy()
    seeding("apply", "earliest", "--replace")
    seeding.lose_progress()
    former, latter = seeding.ways_out("MAP_OLDER", topic)
    assert (former.arguments[-1], latter.arguments[-1]) == ("0", "10")
    follow(seeding.capsys, latter)
    assert seeding.replica.copy().records == 0


@pytest.mark.soak
def test_a_recreated_copy_makes_the_old_map_void(seeding: Seeding) -> None:
    """After seeding into a new topic the map counts from there, and rebuilds what was seeded."""
    topic, replica = seeding.filled(partitions=1), seeding.replica
    replica.copy()
    delete_topics(replica.target_client, [topic])
    replica.target_topic(topic)
    assert refused(seeding("plan", "map", exit_code=3)) == {(f"{topic}:0", "MAP_STALE")}
    # It would go on behind ten records that the new topic does not hold.
    assert refused(seeding("plan", "lag-group", exit_code=3)) == {(f"{topic}:0", "LAG_GROUP_STALE")}
    seeding("apply", "earliest")
    seeding.lose_progress()
    assert [entry[1] for entry in positions(seeding("apply", "map")).values()] == [0]
    replica.copy()
    replica.assert_same()
    delete_topics(replica.target_client, [topic])
    replica.target_topic(topic)
    (reseed,) = seeding.ways_out("MAP_STALE", topic)
    follow(seeding.capsys, reseed)
    replica.copy()
    replica.assert_same()


def test_existing_progress_is_replaced_only_when_asked(seeding: Seeding) -> None:
    """Refused with the same numbers; replacing fences the running copy and repeats what was announced."""
    topic, replica = seeding.filled(partitions=1), seeding.replica
    live = Live(replica.flow, _TIMEOUT_S)
    live.start()
    wait_until(lambda: replica.partition_status(topic)["position"] == 10, _TIMEOUT_S, "copied")
    denied = seeding("plan", "earliest", exit_code=3)
    assert refused(denied) == {(f"{topic}:0", "PROGRESS_EXISTS")}
    assert "would repeat 10 offsets" in denied["refused"][0]["message"]
    assert seeding("apply", "earliest", exit_code=3)["applied"] is False
    assert live.alive
    assert positions(seeding("apply", "earliest", "--replace")) == {f"{topic}:0": (10, 0, "repeat", 10)}
    wait_until(lambda: not live.alive, _TIMEOUT_S, "the running copy is fenced")
    with pytest.raises(Fenced):
        live.stop()
    replica.copy()
    assert len(replica.target_records(topic)) == 20


def test_times_files_and_other_flows_name_positions(seeding: Seeding, tmp_path: Path) -> None:
    """A time finds the first record at or after it; a file is checked against the log; a flow's is read."""
    topic, replica = seeding.filled(partitions=1), seeding.replica
    theirs = replica.source_records(topic)
    assert theirs[0].timestamp_ms >= EPOCH_MS
    (offset,) = positions(seeding("plan", "timestamp:2000-01-01T00:00:00Z")).values()
    assert offset[1] == 0
    offsets = tmp_path / "offsets.csv"
    offsets.write_text(f"topic,partition,offset\n{topic},0,11\n")
    assert refused(seeding("plan", f"file:{offsets}", exit_code=3)) == {(f"{topic}:0", "OUT_OF_RANGE")}
    offsets.write_text(json.dumps([{"topic": topic, "partition": 0, "offset": 7}]))
    assert positions(seeding("apply", f"file:{offsets}")) == {f"{topic}:0": (None, 7, "skip", 7)}
    other = Path(seeding.flow).with_name("other.yaml")
    document = yaml.safe_load(Path(seeding.flow).read_text())
    document |= {"flow": f"{replica.name}x", "topics": {**document["topics"], "naming": "prefix"}}
    other.write_text(yaml.safe_dump(document))
    code, planned = replica.command(
        seeding.capsys, "seed", "plan", str(other), "--from", f"flow:{seeding.flow}"
    )
    assert (code, positions(planned)) == (0, {f"{topic}:0": (None, 7, "skip", 7)})


@pytest.mark.parametrize(("copies", "twice"), [(False, False), (True, False), (False, True)])
def test_what_a_stranger_writes_behind_the_seeded_copy_is_found(
    seeding: Seeding, *, copies: bool, twice: bool
) -> None:
    """Nothing tells whose it is but where the copy was to begin: before its first record, too."""
    topic, replica = seeding.filled(partitions=1), seeding.replica
    replica.target_topic(topic)
    replica.target.plain(topic, 0, replica.target.records(10))
    if twice:
        # Somebody thinks better of it before anything is copied.
        seeding("apply", "earliest")
    seeding("apply", "latest", *(["--replace"] if twice else []))
    flow = replica.flow.watch.flow
    assert partition_of(audit(flow), topic).findings == ()
    replica.target.plain(topic, 0, replica.target.records(3, value=b"strange"))
    if copies:
        replica.source.plain(topic, 0, replica.source.records(5))
        replica.copy()
    found = partition_of(audit(flow), topic).findings
    assert [(each.kind, each.target_offset) for each in found] == [
        (FindingKind.PHANTOM, 10 + number) for number in range(3)
    ]


def test_a_topic_is_seeded_whole_or_not_at_all(seeding: Seeding) -> None:
    """A partition that the origin leaves out is the operator's to decide, an empty one is not asked about."""
    topic, replica = seeding.filled(partitions=2), seeding.replica
    group = f"{replica.name}-mirror"
    seeding.commit(group, {(topic, 0): 4})
    planned = seeding("plan", f"group:{group}", exit_code=3)
    assert (planned["changes"], refused(planned)) == ([], {(f"{topic}:1", "NO_OFFSET")})
    planned = seeding("plan", f"group:{group}", "--missing", "latest")
    assert [entry[1] for entry in positions(planned).values()] == [4, 10]


def test_a_flow_whose_state_was_lost_goes_on_under_another_name(seeding: Seeding, tmp_path: Path) -> None:
    """As docs/operations.md says: from its old progress, exactly; under its own name it is refused."""
    topic, replica = seeding.filled(partitions=2), seeding.replica
    replica.source.interleaved(topic, 0)
    replica.copy()
    replica.source.plain(topic, 1, replica.source.records(5), Codec.LZ4)
    progress = committed(replica.target_client, names.progress_group(replica.name), topic)
    delete_topics(replica.target_client, [names.state_topic(replica.name)])
    assert refused(seeding("plan", "earliest", exit_code=3)) == {(topic, "STATE_LOST")}

    offsets = tmp_path / "offsets.csv"
    lines = [f"{topic},{partition},{offset}" for partition, (offset, _) in progress.items()]
    offsets.write_text("\n".join(["topic,partition,offset", *lines]))
    document = yaml.safe_load(Path(seeding.flow).read_text())
    renamed = Path(seeding.flow).with_name("renamed.yaml")
    renamed.write_text(yaml.safe_dump({**document, "flow": f"{replica.name}x"}))
    code, applied = replica.command(
        seeding.capsys, "seed", "apply", str(renamed), "--from", f"file:{offsets}"
    )
    assert (code, applied["written"]) == (0, 2)
    InlineFlow(renamed).copy()
    replica.assert_same()


@pytest.mark.parametrize("step", [Step.ENROL_OFFSETS], ids=lambda step: step.name)
def test_killed_at_a_step_apply_is_run_again(seeding: Seeding, step: Step) -> None:
    """Whatever was done, the second run ends in the same progress, and nothing is copied twice."""
    check_killed(seeding, step)


STARTING = (Step.LEADER_INIT, Step.LAYOUT_COMMIT, Step.FENCE_LANE)
WRITING = (Step.TOPIC_MARK, Step.TOPIC_CREATE, Step.ENROL_BEGIN, Step.ENROL_COMMIT, Step.ENROL_DONE)


@pytest.mark.soak
@pytest.mark.parametrize("step", STARTING + WRITING, ids=lambda step: step.name)
def test_killed_at_any_other_step_apply_is_run_again(seeding: Seeding, step: Step) -> None:
    """The same at every step of the start and of the enrolment."""
    check_killed(seeding, step)


def check_killed(seeding: Seeding, step: Step) -> None:
    topic = seeding.filled(partitions=2)
    group = f"{seeding.replica.name}-mirror"
    seeding.commit(group, {(topic, 0): 4, (topic, 1): 6})
    seeding.killed_at(step, f"group:{group}")
    seeding("apply", f"group:{group}")
    seeding.replica.copy()
    assert copied(seeding.replica, topic, 0, 4) and copied(seeding.replica, topic, 1, 6)
