"""Every stop ends in a copying partition if a person does what its message says, word for word (G5).

The situations are made for real; the commands come out of the messages (tests/support/flows/waysout.py).
Stops that say something about logs and topics alone are in test_stops.py, in the same way.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from onceover.kafka import calls
from onceover.kafka.link.connection import Connection
from onceover.lead.leader import Leader
from onceover.model import TopicPartition
from onceover.resume import beyond
from onceover.state import names
from onceover.state.read import read_flow_state
from onceover.state.records.enrolment import Enrolment, read_enrolments
from onceover.state.records.progress import first_progress
from onceover.state.steps import Step
from onceover.stops.aside import WaitPolicy
from onceover.wiring.flows import identity, open_clusters
from tests.support.flows.flows import FlowProcess, InlineFlow
from tests.support.flows.groups import commit, committed
from tests.support.flows.handled import handler_keys
from tests.support.flows.replica import Replica, alter_config, delete_before, delete_topics
from tests.support.flows.scene import Capture, Scene
from tests.support.flows.waysout import APPLY, Command, commands, follow
from tests.support.raw.rawkafka import Codec, RawRecord
from tests.support.session.wait import wait_until
from tests.unit.handlers import samples

_TIMEOUT_S = 30.0
_POLL_S = 0.2
_T0_MS = 1_704_067_200_000
GOOD = RawRecord(b"k", b"good", (), _T0_MS)


def ways(replica: Replica, topic: str, code: str, partition: int = 0) -> list[Command]:
    """Return the commands of the stop that is expected here."""
    stop = replica.stop_of(topic, partition)
    assert stop.get("code") == code, stop
    return commands(stop["resolve"])


def expect_copying(replica: Replica, *topics: str) -> None:
    """Nothing is stopped, and a new record of each topic arrives."""
    replica.copy()
    for topic in topics:
        replica.source.plain(topic, 0, [GOOD])
    assert replica.copy().records == len(topics)
    assert all(p["stop"] is None for p in replica.flow.status()["partitions"])


def test_a_deleted_target_topic_is_created_again(replica: Replica, capsys: Capture) -> None:
    """One command for all its partitions; nobody makes topics by hand. Other plans name it, too."""
    scene = Scene(replica, partitions=3)
    alter_config(replica.source_client, scene.topic, {"max.message.bytes": "2000000"})
    delete_topics(replica.target_client, [scene.topic])
    scene.expect_copied(0)
    (way,) = ways(replica, scene.topic, "TARGET_MISSING", partition=1)
    for arguments in (("topics", "plan"), ("seed", "plan", "--from", "earliest")):
        code, plan = replica.command(capsys, *arguments[:2], replica.name, *arguments[2:])
        (refusal,) = [r for r in plan["refused"] if r["code"] == "TARGET_MISSING"]
        assert code == 3
        assert [command.arguments[:2] for command in commands(refusal["resolve"])] == [
            ["partition", "reseed"]
        ]
    follow(capsys, way)
    assert [p["stop"] for number in range(3) for p in scene.shown(capsys, number)] == [None] * 3
    scene.expect_copied(30)
    scene.expect_clear(capsys)
    expect_copying(replica, scene.topic, scene.other)
    replica.assert_same()


@pytest.mark.soak
def test_an_excluded_topic_is_no_longer_stopped(scene: Scene, capsys: Capture) -> None:
    """The other way out of SOURCE_MISSING; put back and created again, its reseed works."""
    replica = scene.replica
    delete_topics(replica.source_client, [scene.topic])
    scene.expect_copied(0)
    stop = replica.stop_of(scene.topic)
    assert stop["code"] == "SOURCE_MISSING"
    assert f"add {scene.topic} to topics.exclude" in stop["resolve"]
    (way,) = commands(stop["resolve"])
    edit_flow(replica, exclude=[scene.topic])
    replica.copy()
    assert replica.command(capsys, "status", replica.name)[0] == 0

    edit_flow(replica, exclude=[])
    replica.source.create_topic(scene.topic)
    replica.source.plain(scene.topic, 0, replica.source.records(4))
    follow(capsys, way)
    replica.copy()
    scene.expect_clear(capsys)
    expect_copying(replica, scene.topic, scene.other)


def edit_flow(replica: Replica, **topics: object) -> None:
    """Change the flow file as its owner would."""
    path = replica.flow.path
    document = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**document, "topics": {**document["topics"], **topics}}))


@pytest.mark.parametrize("side", [pytest.param("source", marks=pytest.mark.soak), "target"])
def test_a_topic_that_is_smaller_than_its_record(replica: Replica, capsys: Capture, side: str) -> None:
    """As brokers restored from a backup, or older releases, leave it: known by its id, but too small."""
    # Made by hand: the flow adds no partitions to it by itself.
    replica.target_topic(f"{replica.name}.trouble", 2)
    scene = Scene(replica, partitions=2)
    client = replica.source_client if side == "source" else replica.target_client
    delete_topics(client, [scene.topic])
    (replica.source if side == "source" else replica.target).create_topic(scene.topic, 1)
    rewrite_enrolment(replica, scene.topic)
    replica.copy()
    (way,) = ways(replica, scene.topic, f"{side.upper()}_SHRUNK", partition=1)
    follow(capsys, way)
    replica.copy()
    if side == "target":
        # The progress of both went with the topic.
        seed_plan, seed_apply, _ = ways(replica, scene.topic, "PROGRESS_MISSING")
        follow(capsys, seed_plan)
        follow(capsys, seed_apply)
        replica.copy()
    scene.expect_clear(capsys)
    expect_copying(replica, scene.topic, scene.other)
    if side == "target":
        assert len(replica.target_records(scene.topic, 1)) == 10


def rewrite_enrolment(replica: Replica, topic: str) -> None:
    """Let the state name the topics that are there now, with all the partitions of old."""
    flow = replica.flow.watch.flow
    source, target = open_clusters(flow)
    with source, target:
        state = read_flow_state(target, replica.name)
        old: Enrolment = read_enrolments(state.leader)[topic]
        new = changed(
            old,
            source_id=source.topics([topic])[topic].topic_id,
            target_id=target.topics([topic])[topic].topic_id,
        )
        leader = Leader(identity(flow), source, target)
        layout = leader.seize()
        new = changed(new, since=dict.fromkeys(old.start, layout.generation))
        kept = [tp for tp in target.committed(f"onceover.{replica.name}", None) if tp.topic == topic]
        there = [tp for tp in kept if tp.partition in target.topics([topic])[topic].partitions]
        ends = {**dict.fromkeys(kept, 0), **target.list_offsets(there, calls.LATEST)}
        leader.enrol([new], {tp: first_progress(new, 0, layout.generation, ends[tp]) for tp in kept})
        leader.close()


class Refused(NamedTuple):
    """A record that cannot be copied.

    Args:
        config: of the copy.
        record: the record; ``cure`` takes the cause away.
        codec: that it is compressed with on the source.
    """

    config: dict[str, str]
    record: RawRecord
    cure: Callable[[Replica, str, pytest.MonkeyPatch], None]
    codec: Codec = Codec.NONE


def _raise_limit(replica: Replica, topic: str, _: pytest.MonkeyPatch) -> None:
    for name in (topic, letters(replica)):
        if name in AdminClient(replica.target_client).list_topics(timeout=_TIMEOUT_S).topics:
            alter_config(replica.target_client, name, {"max.message.bytes": "1000000"})


def _allow_null_keys(replica: Replica, topic: str, _: pytest.MonkeyPatch) -> None:
    alter_config(replica.target_client, topic, {"cleanup.policy": "delete"})


def _mend_handler(_replica: Replica, _topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "BAD", b"worse")


def _raise_memory(replica: Replica, _topic: str, _: pytest.MonkeyPatch) -> None:
    path = replica.flow.path
    document = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**document, "limits": {"memory_per_lane": "64MiB"}}))


def letters(replica: Replica) -> str:
    return f"{replica.name}-letters"


LIMITED = {"max.message.bytes": "50000"}
LARGE = Refused(LIMITED, RawRecord(b"k", bytes(60_000), (), _T0_MS), _raise_limit)
NO_KEY = Refused({"cleanup.policy": "compact"}, RawRecord(None, b"v", (), _T0_MS), _allow_null_keys)
BAD = Refused({}, RawRecord(b"k", b"bad", (), _T0_MS), _mend_handler)
# A few hundred bytes on the wire.
VAST = Refused({}, RawRecord(b"k", bytes(3 << 20), (), _T0_MS), _raise_memory, Codec.ZSTD)


def test_records_that_cannot_be_copied(
    replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three causes in one flow; every one is resolved by itself."""
    replica.configure(**handler_keys("moody"), topics={"sync_configs": False})
    causes = {"RECORD_TOO_LARGE": LARGE, "RECORD_REFUSED": NO_KEY, "HANDLER_FAILED": BAD}
    resumed, skipped = resolve_refused(replica, capsys, monkeypatch, causes)
    assert {topic: len(replica.target_records(topic)) for topic in resumed} == dict.fromkeys(resumed, 5)
    assert {topic: len(replica.target_records(topic)) for topic in skipped} == dict.fromkeys(skipped, 4)


def test_a_record_that_expands_beyond_the_lanes_memory(
    replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler has to see it; a larger limit in the flow file is in effect as soon as somebody asks."""
    replica.configure(**handler_keys("same"), limits={"memory_per_lane": "8MiB"})
    [resumed], [skipped] = resolve_refused(replica, capsys, monkeypatch, {"MEMORY_TOO_SMALL": VAST})
    assert [len(replica.target_records(t)) for t in (resumed, skipped)] == [5, 4]
    replica.assert_same(resumed)


@pytest.mark.soak
def test_a_record_that_the_dead_letter_topic_refuses(
    replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a larger limit it takes the record, and the topic goes on without."""
    replica.configure(on_bad_record=f"dead_letter:{letters(replica)}", topics={"sync_configs": False})
    replica.target_topic(letters(replica), 1, LIMITED)
    later = Refused(LIMITED, LARGE.record, lambda r, _, patch: _raise_limit(r, letters(r), patch))
    [resumed], [skipped] = resolve_refused(replica, capsys, monkeypatch, {"DEAD_LETTER_REFUSED": later})
    assert [len(replica.target_records(t)) for t in (resumed, skipped, letters(replica))] == [4, 4, 1]


def resolve_refused(
    replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch, causes: Mapping[str, Refused]
) -> tuple[list[str], list[str]]:
    """Follow both ways out of each code: topics that look again until the cause has gone, and that skip."""
    resumed, skipped = (
        {code: replica.topic(f"{way}-{code}") for code in causes} for way in ("again", "skip")
    )
    for code, cause in causes.items():
        for name in (resumed[code], skipped[code]):
            replica.target_topic(name, 1, cause.config)
            for records in ([GOOD, GOOD], [cause.record], [GOOD]):
                replica.source.plain(name, 0, records, cause.codec)
    with replica.running():
        for name in (*resumed.values(), *skipped.values()):
            wait_until(partial(replica.stop_of, name), _TIMEOUT_S, f"{name} stops", poll_s=_POLL_S)
        for code, cause in causes.items():
            look_again(
                replica, capsys, resumed[code], code, partial(cause.cure, replica, resumed[code], monkeypatch)
            )
    for code, name in skipped.items():
        follow(capsys, ways(replica, name, code)[1])
    expect_copying(replica, *resumed.values(), *skipped.values())
    return list(resumed.values()), list(skipped.values())


def look_again(replica: Replica, capsys: Capture, topic: str, code: str, cure: Callable[[], None]) -> None:
    """Ask too early, and once more when the cause has gone: `resume` is heard each time."""
    again, _ = ways(replica, topic, code)
    at_ms = stopped_at_ms(replica, topic)

    def looked() -> bool:
        return stopped_at_ms(replica, topic) not in (None, at_ms)

    def copied() -> bool:
        return bool(replica.partition_status(topic)["lag_offsets"] == 0)

    follow(capsys, again)
    wait_until(looked, _TIMEOUT_S, "it is looked at again", poll_s=_POLL_S)
    cure()
    follow(capsys, again)
    wait_until(copied, _TIMEOUT_S, "it is copied", poll_s=_POLL_S)


def stopped_at_ms(replica: Replica, topic: str) -> int | None:
    """Return when the partition stopped, from the state itself."""
    _, target = open_clusters(replica.flow.watch.flow)
    with target:
        value = target.retry(lambda: read_flow_state(target, replica.name)).others.get(f"stop/{topic}/0")
    return None if value is None else value["at_ms"]


def test_a_handler_that_does_not_take_a_partition(
    replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its only command is `resume`; at the next start it is looked at anyway."""
    replica.configure(**handler_keys("moody"))
    topic = replica.topic("a")
    replica.source.plain(topic, 0, [GOOD])
    monkeypatch.setattr(samples.moody, "partitions_gained", samples.refuse, raising=False)
    replica.copy()
    (way,) = ways(replica, topic, "HANDLER_FAILED")
    monkeypatch.delattr(samples.moody, "partitions_gained")
    follow(capsys, way)
    expect_copying(replica, topic)


Beside = Callable[[str], str]


def put_progress(
    replica: Replica, topic: str, offset: int, beside: Beside = lambda _: "", *, partition: int = 0
) -> None:
    """Commit an offset for the flow, as a tool for groups would; ``beside`` makes metadata of the old."""
    group = names.progress_group(replica.name)
    _, old = committed(replica.target_client, group, topic)[partition]
    commit(replica.target_client, group, topic, {partition: offset}, metadata=beside(old))


def kept(old: str) -> str:
    """Leave what stood there."""
    return old


def of_a_later_release(old: str) -> str:
    return json.dumps({**json.loads(old), "v": 2}, separators=(",", ":"))


def of_a_later_epoch(old: str) -> str:
    return json.dumps({**json.loads(old), "epoch": 1_000_000}, separators=(",", ":"))


class Foreign(NamedTuple):
    """What somebody else has written into the progress group, where 100 was copied of 190."""

    offset: int
    beside: Beside
    code: str = "PROGRESS_FOREIGN"


FOREIGN = {
    "moved": Foreign(180, lambda _: ""),
    "the same number": Foreign(100, lambda _: ""),
    "moved with its metadata": Foreign(180, kept),
    "of a later release": Foreign(100, of_a_later_release, "PROGRESS_UNREADABLE"),
}


def test_progress_that_others_wrote_is_not_believed(replica: Replica, capsys: Capture) -> None:
    """A reset with a tool for groups would skip 80 records silently; the map knows where it was.

    One that saves and restores groups puts an older position back, with its metadata: everything behind it
    would be copied again. Where it was moved on purpose, the other way out goes on where it stands; its plan
    says that nobody knows what that skips.
    """
    scene, put_back = Scene(replica, partitions=len(FOREIGN) + 1), len(FOREIGN)
    on_purpose, group = replica.topic("on-purpose", 2), names.progress_group(replica.name)
    older = committed(replica.target_client, group, scene.topic)
    for _ in range(2):
        replica.copy()
        scene.feed(90)
        for partition in (0, 1):
            replica.source.plain(on_purpose, partition, replica.source.records(95), Codec.LZ4)
    for partition, (offset, beside, _) in enumerate(FOREIGN.values()):
        put_progress(replica, scene.topic, offset, beside, partition=partition)
    offset, beside_it = older[put_back]
    commit(replica.target_client, group, scene.topic, {put_back: offset}, metadata=beside_it)
    for partition, offset in enumerate((185, 95)):
        put_progress(replica, on_purpose, offset, partition=partition)
    scene.expect_copied(90)

    stops = [(each.code, ()) for each in FOREIGN.values()] + [("PROGRESS_FOREIGN", ("put back",))]
    for partition, (code, words) in enumerate(stops):
        scene.expect_stop(capsys, code, *words, partition=partition)
    for partition in (0, 1):
        *_, skip = ways(replica, on_purpose, "PROGRESS_FOREIGN", partition)
        changes = [c for c in skip.run(capsys)["changes"] if c["what"] == "position"]
        assert [(c["risk"], c["records"]) for c in changes] == [("skip", None)]
        skip.run(capsys, APPLY)
    (all_of_them,) = {tuple(ways(replica, scene.topic, code, p)[:2]) for p, (code, _) in enumerate(stops)}
    plan, apply = all_of_them
    changes = [c for c in plan.run(capsys)["changes"] if c["what"] == "position"]
    assert [c["to"] for c in changes] == [100] * len(stops)
    apply.run(capsys)
    scene.expect_copied(90 * len(stops) + 5 + 95)
    scene.expect_clear(capsys)
    expect_copying(replica, scene.topic, scene.other, on_purpose)
    replica.assert_same(scene.topic, scene.other)


def expect_not_believed(scene: Scene, capsys: Capture, older: Mapping[int, tuple[int, str]]) -> Command:
    """Put an older position back; return how the one that the map tells of is written."""
    replica, (offset, beside) = scene.replica, older[0]
    group = names.progress_group(replica.name)
    commit(replica.target_client, group, scene.topic, {0: offset}, metadata=beside)
    scene.feed_other()
    scene.expect_copied(3)
    scene.expect_stop(capsys, "PROGRESS_FOREIGN", "put back")
    plan, apply, _ = ways(replica, scene.topic, "PROGRESS_FOREIGN")
    assert [change["to"] for change in plan.run(capsys)["changes"] if change["what"] == "position"] == [100]
    return apply


@pytest.mark.soak
@pytest.mark.parametrize("hidden", ["expired", "behind what others wrote"])
def test_an_older_position_is_known_by_the_map_where_the_log_does_not_tell(
    scene: Scene, capsys: Capture, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    """A group that is restored from a backup is old, and so is its log."""
    replica = scene.replica
    older = committed(replica.target_client, names.progress_group(replica.name), scene.topic)
    if hidden == "expired":
        scene.feed(90)
        scene.expect_copied(180)
        delete_before(replica.target_client, scene.topic, -1)
    else:
        monkeypatch.setattr(beyond, "_MOST_BYTES", 1000)
        replica.target.plain(scene.topic, 0, [RawRecord(b"k", bytes(2000))])
        scene.feed(90)
        scene.expect_copied(180)
    expect_not_believed(scene, capsys, older)


def kill_before_the_commit(replica: Replica, tmp_path: Path) -> None:
    """Run the flow until its first transaction is about to be committed, and kill it there."""
    with FlowProcess(replica.flow.path, tmp_path / "killed.log", kill_at=Step.COMMIT.name) as killed:
        assert killed.wait(_TIMEOUT_S) == -signal.SIGKILL


@pytest.mark.soak
def test_what_has_expired_behind_a_position_is_no_reason_for_doubt(
    scene: Scene, tmp_path: Path, capsys: Capture
) -> None:
    """The near miss: what a killed run left behind it was aborted, and is gone."""
    replica = scene.replica
    scene.feed(20)
    kill_before_the_commit(replica, tmp_path)
    delete_before(replica.target_client, scene.topic, -1)
    scene.expect_copied(40)
    scene.expect_clear(capsys)
    replica.assert_same(scene.other)


@pytest.mark.soak
def test_an_older_position_is_known_although_its_lane_is_another_one_now(
    replica: Replica, capsys: Capture
) -> None:
    """Two of the three have copied nothing yet: what follows stands under the id of the one before."""
    replica.configure(lanes=1)
    scene, group = Scene(replica, partitions=3), names.progress_group(replica.name)
    scene.feed(5)
    scene.expect_copied(20)
    older = committed(replica.target_client, group, scene.topic)
    scene.feed(5)
    scene.expect_copied(20)
    path = replica.flow.path
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "lanes": 3}))
    for number, (offset, beside) in older.items():
        commit(replica.target_client, group, scene.topic, {number: offset}, metadata=beside)
    assert InlineFlow(path).copy().records == 0
    for number in range(3):
        scene.expect_stop(capsys, "PROGRESS_FOREIGN", "put back", partition=number)


def test_what_a_killed_run_left_behind_a_position_is_no_reason_for_doubt(
    scene: Scene, tmp_path: Path, capsys: Capture
) -> None:
    """The near miss: data of our own id, aborted; and records of somebody else's transaction."""
    replica = scene.replica
    scene.feed(20)
    kill_before_the_commit(replica, tmp_path)
    theirs = replica.target.transaction(scene.topic)
    theirs.send(0, replica.target.records(2))
    theirs.commit()
    replica.copy()
    scene.expect_clear(capsys)
    assert len(replica.target_records(scene.topic)) == 30 + 2
    replica.assert_same(scene.other)


def test_a_source_that_no_longer_knows_our_epoch(scene: Scene, capsys: Capture) -> None:
    """As one restored from a copy, which has grown past our position: Fetch answers error 1 for ever."""
    replica = scene.replica

    put_progress(replica, scene.topic, 10, of_a_later_epoch)
    scene.feed(5)
    scene.expect_copied(5)
    scene.expect_stop(capsys, "SOURCE_DIVERGED", "epoch 1000000", "knows no such epoch")
    scene.resolve(capsys, "skip-to", 10)
    scene.expect_copied(5)
    scene.expect_clear(capsys)
    replica.assert_same()


def test_a_leader_that_answers_nothing_but_errors(
    scene: Scene, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target's, for a partition that it leads all the time. Its answers are put into its mouth."""
    replica = scene.replica
    monkeypatch.setattr("onceover.stops.aside.WRITING", WaitPolicy(0.5, 0.1, 0.2, free=2))
    scene.feed(5)
    with monkeypatch.context() as patch:
        patch.setattr(
            calls, "list_offsets", partial(_storage_error, replica, scene.topic, calls.list_offsets)
        )
        assert replica.copy().records == 5
    (way,) = ways(replica, scene.topic, "TARGET_UNWRITABLE")
    assert "error 56" in replica.stop_of(scene.topic)["seen"]
    follow(capsys, way)
    scene.expect_copied(5)
    scene.expect_clear(capsys)
    replica.assert_same()


Offsets = dict[TopicPartition, tuple[int, int, int]]


def _storage_error(
    replica: Replica,
    topic: str,
    ask: Callable[..., Offsets],
    connection: Connection,
    partitions: Iterable[TopicPartition],
    *what: int,
) -> Offsets:
    """Answer as the target would if a disk failed it."""
    found = ask(connection, partitions, *what)
    if str(connection.address) != replica.target.bootstrap:
        return found
    return {tp: (56, -1, -1) if tp.topic == topic else answer for tp, answer in found.items()}


@pytest.fixture
def scene(replica: Replica) -> Scene:
    return Scene(replica)
