"""`status` when it is needed: clusters that are dead or silent, broken files, a driver that is gone.

Whatever is wrong with one flow is said with that flow, within a bounded time; nothing looks calm that is not,
and a number that nobody knows is null, never 0.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from confluent_kafka.admin import AdminClient

from onceover.cli.terminal.statustext import describe
from onceover.clock import now_ms
from onceover.config.flow.load import load_flow
from onceover.errors import Retriable
from onceover.kafka import calls
from onceover.kafka.produce.notes import NoteWriter
from onceover.lead import movement, supervisor
from onceover.model import TopicPartition
from onceover.spark.failures import jvm_gone
from onceover.state import names
from onceover.state.records.layout import FAILED
from onceover.state.records.runstate import SILENT_AFTER_MS
from onceover.wiring.flows import open_clusters
from onceover.wiring.status import PATIENCE_S, newest_run, read_status
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.flows.flows import write_flow
from tests.support.flows.groups import commit
from tests.support.flows.replica import Replica, delete_topics
from tests.support.raw.rawkafka import RawRecord

_TIMEOUT_S = 30.0
# Both clusters are asked at the same time; this machine is shared.
_BOUND_S = PATIENCE_S + 5.0
# Who is silent is waited for to the end each time; the default's own length is that of one test below.
_SOON = ("--patience", "2")
# Nobody listens there: a connection is refused at once.
_DEAD = "127.0.0.1:1"

Capture = pytest.CaptureFixture[str]


def status(replica: Replica, capsys: Capture, *more: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the flow's entry; fail when it took longer than promised."""
    begun_s = time.monotonic()
    code, document = replica.command(capsys, "status", str(replica.flow.path), *more)
    assert time.monotonic() - begun_s < _BOUND_S
    (entry,) = document["flows"]
    assert entry["exit"] == code
    return code, entry


def needs(entry: dict[str, Any]) -> list[str]:
    """Return the codes of what somebody has to do; each names a command or a place."""
    assert all(need["message"] and need["resolve"] for need in entry["needs"])
    return [need["code"] for need in entry["needs"]]


def note(replica: Replica, key: str, value: dict[str, Any] | None) -> None:
    """Write into the flow's state, as its driver, or somebody who should not."""
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        writer = NoteWriter(target, TopicPartition(names.state_topic(replica.name), names.STATE_OTHERS))
        try:
            writer.write(key, value)
        finally:
            writer.close()


def copied(replica: Replica, records: int = 10, partitions: int = 1) -> str:
    """Return a topic whose records are on both sides; the run has ended."""
    topic = replica.topic("copied", partitions)
    for number in range(partitions):
        replica.source.plain(topic, number, replica.source.records(records))
    replica.copy()
    return topic


def test_a_source_that_is_paused_or_killed_hides_nothing_that_the_target_knows(
    start_cluster: ClusterFactory,
    tmp_path: Path,
    unique_name: str,
    target_cluster: SharedCluster,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGSTOP and kill -9: position, last commit and stops within seconds, exit code 5, and no lag of 0.

    A driver that waits for such a source lives, and says so.
    """
    monkeypatch.setattr(supervisor, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(supervisor, "_SOURCE_PATIENCE_S", 1.0)
    quiet = start_cluster("quiet")
    with Replica(tmp_path, unique_name, quiet.client, target_cluster.client) as replica:
        topic = copied(replica)
        code, entry = status(replica, capsys)
        assert (code, entry["run"]["state"], entry["lag_offsets"]) == (0, "ended", 0)
        broker = psutil.Process(quiet.nodes[0].pid)
        with replica.flow.running() as (lead, _):
            broker.suspend()
            begun_ms, begun_s = now_ms(), time.monotonic()
            for _ in range(3):
                with suppress(Retriable):
                    lead.tick()
            assert time.monotonic() - begun_s < SILENT_AFTER_MS / 1000, "each within its patience"
            code, entry = status(replica, capsys, *_SOON)
            assert (code, entry["run"]["state"], entry["state"]) == (5, "running", "unknown")
            assert [p["state"] for p in entry["partitions"]] == ["unknown"]
            assert 0 < entry["source"]["heard_ms"] < begun_ms + 2000
            assert "it has answered the flow's driver" in entry["needs"][0]["message"]
            broker.resume()
            lead.end()
        for silence in (broker.suspend, broker.kill):
            silence()
            code, entry = status(replica, capsys, *_SOON)
            (partition,) = entry["partitions"]
            assert (code, needs(entry)) == (5, ["SOURCE_UNREACHABLE"])
            assert (partition["topic"], partition["position"], partition["stop"]) == (topic, 10, None)
            assert (partition["lag_offsets"], entry["lag_offsets"], entry["oldest_missing_s"]) == (None,) * 3
            assert partition["open_offsets"] is None
            assert entry["last_commit_ms"] and entry["target"]["error"] is None
            assert entry["source"]["cluster_id"] == quiet.cluster_id
            assert quiet.bootstrap in entry["source"]["error"]["where"]
        delete_topics(replica.target_client, [topic])
        code, entry = status(replica, capsys, *_SOON)
        assert (code, needs(entry)[0]) == (3, "TARGET_MISSING"), "seen without the source, too"


@pytest.fixture
def flows(
    tmp_path: Path,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A flows directory with one flow that is fine and one for each way not to be."""
    folder = tmp_path / "flows"
    folder.mkdir()
    monkeypatch.setenv("ONCEOVER_FLOWS", str(folder))
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    dead = {"bootstrap.servers": _DEAD}
    topics = ["never-there"]
    write_flow(folder, "a-good", source_cluster.client, target_cluster.client, topics)
    write_flow(folder, "b-dead", source_cluster.client, dead, topics)
    (folder / "c-bad-yaml.yaml").write_text("flow: [")
    write_flow(folder, "d-unknown-key", source_cluster.client, target_cluster.client, topics, lane=3)
    for name, target in (
        ("e-no-variable", {"alias": "west", "client": {"bootstrap.servers": "${NO_SUCH_VARIABLE}"}}),
        ("f-no-file", {"alias": "west", "client_file": str(folder / "missing.properties")}),
        ("g-no-connection", {"alias": "west", "connection": "no_such_connection"}),
    ):
        path = write_flow(folder, name, source_cluster.client, dead, topics)
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "target": target}))
    for path in folder.glob("*-source.yaml"):
        path.rename(tmp_path / path.name)
    for path in folder.glob("*-target.yaml"):
        path.rename(tmp_path / path.name)
    for path in folder.glob("*.yaml"):
        path.write_text(path.read_text().replace(f"{folder}/", f"{tmp_path}/"))
    return folder


def test_one_broken_flow_hides_no_other(flows: Path, replica: Replica, capsys: Capture) -> None:
    """Seven files, six of them bad, each in its own way: seven entries, within the time of one."""
    begun_s = time.monotonic()
    code, document = replica.command(capsys, "status")
    assert time.monotonic() - begun_s < _BOUND_S
    entries = {flow["flow"]: flow for flow in document["flows"]}
    assert list(entries) == sorted(entries)
    good = entries.pop("a-good")
    assert (good["state"], good["exit"], good["error"], good["lag_offsets"]) == ("not_started", 0, None, 0)
    silent = entries.pop("b-dead")
    assert (silent["state"], silent["exit"], silent["lag_offsets"]) == ("unknown", 5, None)
    assert silent["target"]["error"]["message"] and silent["source"]["error"] is None
    assert len(entries) == 5
    for entry in entries.values():
        assert (entry["state"], entry["exit"], len(entry["needs"])) == ("unknown", 2, 1)
        assert entry["error"]["message"]
    assert "lane" in entries["d-unknown-key"]["error"]["message"]
    assert "NO_SUCH_VARIABLE" in entries["e-no-variable"]["error"]["message"]
    assert code == 2, "a file to be corrected outweighs a cluster that may come back"


def test_what_is_not_taken_in_counts_as_missing(replica: Replica, capsys: Capture) -> None:
    """Topics and partitions in scope that nobody has enrolled: no `lag 0`, no `caught up`."""
    topic = copied(replica)
    born = replica.topic("born", partitions=2)
    with replica.flow.running() as (lead, _):
        assert replica.flow.status()["state"] == "caught_up"
        later = replica.topic("later", partitions=2)
        for number in (0, 1):
            replica.source.plain(later, number, replica.source.records(30))
        replica.source.add_partitions(topic, 2)
        replica.source.plain(topic, 1, replica.source.records(5))
        code, entry = status(replica, capsys)
        missing = {
            (p["topic"], p["partition"]): p["lag_offsets"]
            for p in entry["partitions"]
            if p["state"] == "not_enrolled"
        }
        assert missing == {(later, None): 60, (topic, 1): 5}
        assert (code, entry["state"], entry["lag_offsets"], needs(entry)) == (0, "copying", 65, [])
        assert (entry["lag"]["not_enrolled_offsets"], entry["lag"]["not_enrolled_topics"]) == (65, 2)
        assert entry["oldest_missing_s"] > 0
        lead.end()
    assert born


@pytest.mark.soak
def test_target_topics_and_progress_that_are_lost_are_seen_at_once(replica: Replica, capsys: Capture) -> None:
    """Nobody has to start the flow to learn it: the copy's code, its command, and all that is missing."""
    topic = copied(replica, partitions=2)
    delete_topics(replica.target_client, [topic])
    code, entry = status(replica, capsys)
    assert (code, needs(entry)) == (3, ["TARGET_MISSING"] * 2)
    assert {p["state"] for p in entry["partitions"]} == {"stopped"}
    assert (entry["lag_offsets"], entry["lag"]["stopped_offsets"]) == (20, 20)
    assert f"onceover partition reseed {replica.name} {topic}:0" in entry["needs"][0]["resolve"]
    replica.target_topic(topic, 2)
    code, entry = status(replica, capsys)
    assert (code, needs(entry), entry["lag_offsets"]) == (3, ["TARGET_RECREATED"] * 2, 20)

    other = replica.topic("other")
    replica.source.plain(other, 0, replica.source.records(4))
    replica.copy()
    admin = AdminClient(replica.target_client)
    admin.delete_consumer_groups([names.progress_group(replica.name)])[
        names.progress_group(replica.name)
    ].result(_TIMEOUT_S)
    code, entry = status(replica, capsys)
    found = {p["topic"]: p for p in entry["partitions"]}[other]
    assert (code, found["stop"]["code"], found["lag_offsets"]) == (3, "PROGRESS_MISSING", None)
    assert entry["lag_offsets"] is None


def test_a_driver_that_is_gone_is_no_copying_one(replica: Replica, capsys: Capture) -> None:
    """Running, gone, fenced, failed and ended are five words; only those that need nobody end with 0."""
    topic = copied(replica, partitions=2)
    flow = replica.flow
    with flow.running() as (lead, layout):
        code, entry = status(replica, capsys)
        assert (code, entry["state"], entry["run"]["state"]) == (0, "caught_up", "running")
        assert newest_run(load_flow(flow.path)).lives, "a schedule leaves it alone"
        note(replica, names.HEARTBEAT, _beat(layout.run, now_ms() - SILENT_AFTER_MS - 1))
        code, entry = status(replica, capsys)
        assert (code, entry["state"], entry["run"]["state"]) == (3, "stopped", "gone")
        assert needs(entry) == ["DRIVER_GONE"]
        assert not newest_run(load_flow(flow.path)).lives
        assert f"`onceover replicate {replica.name}`" in entry["needs"][0]["resolve"]
        note(replica, names.HEARTBEAT, _beat(layout.run, now_ms()))
        for number in (0, 1):
            arguments = ("partition", "skip-to", str(flow.path), f"{topic}:{number}", "10", "--apply")
            assert replica.command(capsys, *arguments)[0] == 0
            # Long ago, by whichever clock: what was fenced is in the layout.
            note(replica, names.HEARTBEAT, _beat(layout.run, now_ms() - 600_000))
            code, entry = status(replica, capsys)
            assert (code, entry["state"], needs(entry)) == (3, "fenced", ["FENCED"])
    with flow.running() as (lead, _):
        lead.end(FAILED, jvm_gone())
    code, entry = status(replica, capsys)
    assert (code, entry["run"]["state"], needs(entry)) == (3, "failed", ["RUN_FAILED"])
    assert "the Spark JVM is gone" in entry["needs"][0]["message"]
    replica.copy()
    code, entry = status(replica, capsys)
    assert (code, entry["run"]["state"], entry["run"]["ended"]) == (0, "ended", "done")
    assert replica.command(capsys, *arguments)[0] == 0
    assert status(replica, capsys)[0] == 0, "nobody copied, nobody was fenced"


def _beat(run: str, at_ms: int) -> dict[str, Any]:
    return {"v": 1, "generation": 1, "run": run, "at_ms": at_ms, "pid": os.getpid()}


@pytest.mark.soak
def test_malformed_values_of_the_state_are_problems_of_their_own(replica: Replica, capsys: Capture) -> None:
    """Each is named, and everything else is shown."""
    topic = copied(replica)
    junk: dict[str, Any] = {"v": 1}
    keys = (names.HEARTBEAT, names.REFUSED, names.VERDICTS, names.stop_key(topic, 0), "stop/no-number/x")
    for key in keys:
        note(replica, key, junk)
    code, entry = status(replica, capsys)
    assert (code, needs(entry)) == (3, ["STATE_UNREADABLE"] * len(keys))
    assert all(any(repr(key) in need["message"] for need in entry["needs"]) for key in keys)
    assert (entry["lag_offsets"], entry["run"]["state"]) == (0, "ended")
    for key in keys:
        note(replica, key, None)
    assert status(replica, capsys)[0] == 0


def test_text_begins_with_who_needs_a_person(flows: Path, replica: Replica, capsys: Capture) -> None:
    """At a glance: the flows by name, then each with its problem and what to do about it."""
    from onceover.cli.main import main

    topic = copied(replica, partitions=2)
    delete_topics(replica.target_client, [topic])
    replica.flow.path.rename(flows / f"h-{replica.name}.yaml")
    capsys.readouterr()
    assert main(["status", *_SOON]) == 3
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("8 flows; NEEDING A PERSON: c-bad-yaml, ") and first.endswith(": b-dead")
    title = next(
        n for n, line in enumerate(lines) if line.startswith(f"{replica.name}: ended, NEEDS A PERSON")
    )
    assert lines[title + 1].startswith(f"  ! TARGET_MISSING: {topic}:0 is stopped: ")
    assert lines[title + 2].startswith("    do: ")
    assert lines[title + 3] == f"    likewise partition 1 of {topic}"


def why(replica: Replica, capsys: Capture, name: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code of ``--topic``, and the answer."""
    code, document = replica.command(capsys, "status", str(replica.flow.path), "--topic", name)
    assert code == document["why"]["exit"]
    return code, document["why"]


def test_any_name_is_told_why_it_is_copied_or_not(replica: Replica, capsys: Capture) -> None:
    """Before and after the first start; nothing is changed by asking."""
    replica.configure(topics={"exclude": [f"{replica.name}[.]tmp"]})
    topic, tmp = replica.topic("copied", 2), replica.topic("tmp")
    replica.source.plain(topic, 0, replica.source.records(10))
    code, found = why(replica, capsys, topic)
    assert (code, found["answer"], found["resolve"]) == (
        0,
        "not_taken_in",
        f"`onceover replicate {replica.name}`",
    )
    assert f"create topic {topic}" in found["details"][0]
    taken = replica.topic("taken")
    replica.target_topic(taken)
    replica.target.plain(taken, 0, replica.target.records(1))
    code, found = why(replica, capsys, taken)
    assert (code, found["answer"], found["code"]) == (3, "refused", "TARGET_NOT_EMPTY"), "as it will be"
    replica.copy()
    code, found = why(replica, capsys, f"{topic}:0")
    assert (code, found["answer"]) == (0, "copied") and "source offset 10" in found["line"]
    commit(replica.source_client, f"{replica.name}-readers", topic, {0: 4, 1: 0})
    groups = status(replica, capsys)[1]["groups"]
    (mine,) = [each for each in groups["groups"] if each["group"] == f"{replica.name}-readers"]
    assert (mine["standing"], mine["lag"], groups["error"]) == ("behind", 6, None)
    assert mine["positions"][0]["translated"] == 4 and mine["positions"][0]["current"] is None
    code, found = why(replica, capsys, tmp)
    assert (code, found["rule"], found["pattern"]) == (0, "excluded", f"{replica.name}[.]tmp")
    assert why(replica, capsys, f"{topic}:7")[0] == 2
    code, found = why(replica, capsys, f"{replica.name}.copide")
    assert (code, found["answer"], found["did_you_mean"][0]) == (2, "missing", topic)
    assert why(replica, capsys, "__consumer_offsets")[1]["rule"] == "internal"
    assert replica.command(capsys, "status", "--topic", topic)[0] == 2, "of which flow?"
    assert replica.command(capsys, "status", str(replica.flow.path), "--topic", "a b")[0] == 2


@pytest.mark.soak
def test_partition_that_does_not_move_is_seen(
    replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that lives, and no lane that copies; one behind an open transaction waits for that instead."""
    monkeypatch.setattr(movement, "STILL_AFTER_S", 0.0)
    monkeypatch.setattr(movement, "_LOOK_S", 0.0)
    monkeypatch.setattr(supervisor, "HEARTBEAT_S", 0.0)
    topic, held = replica.topic("stands"), replica.topic("held")
    replica.source.plain(topic, 0, replica.source.records(10))
    transaction = replica.source.transaction(held)
    transaction.send(0, replica.source.records(3))
    with replica.flow.running() as (lead, layout):
        lead.tick()
        code, entry = status(replica, capsys)
        assert (code, needs(entry)) == (3, ["NOT_MOVING"])
        assert {p["topic"]: p["state"] for p in entry["partitions"]} == {topic: "stuck", held: "caught_up"}
        code, found = why(replica, capsys, topic)
        assert (code, found["answer"], found["code"]) == (3, "stuck", "NOT_MOVING")
        code, found = why(replica, capsys, f"{held}:0")
        assert (code, found["answer"]) == (0, "held")
        assert re.search(r"transaction of producer id \d+, from offset 0 on", found["line"])
        transaction.abort()
        replica.flow.finish(lead, layout)
        code, entry = status(replica, capsys)
        assert (code, needs(entry)) == (0, [])


def test_dead_letters_are_counted_and_it_is_said_how(replica: Replica, capsys: Capture) -> None:
    """None is exact; of others at most as many as there are offsets, markers included, in text and JSON."""
    letters = f"{replica.name}-letters"
    replica.configure(on_bad_record=f"dead_letter:{letters}", topics={"sync_configs": False})
    topic = replica.topic()
    replica.target_topic(topic, 1, {"max.message.bytes": "50000"})
    _, entry = status(replica, capsys)
    assert entry["dead_letters"] == {"topic": letters, "at_most": 0}

    good, bad = replica.source.records(2), [RawRecord(b"k", bytes(60_000), (), now_ms())] * 3
    replica.source.plain(topic, 0, [*good, *bad])
    replica.copy()
    code, entry = status(replica, capsys)
    assert (code, entry["needs"]) == (0, [])
    assert len(replica.target_records(letters)) == 3
    # Offsets are all there is to count: the records, and a marker for each transaction with some of them.
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        (end,) = target.list_offsets([TopicPartition(letters, 0)], calls.LATEST).values()
    assert entry["dead_letters"] == {"topic": letters, "at_most": end}
    assert 3 < end <= 6
    assert f"  letters  at most {end} in {letters}; markers of transactions" in describe(entry)


def test_dead_letters_of_a_target_that_is_away_are_unknown(tmp_path: Path) -> None:
    """Not none, and not the entry of a flow that has no such topic."""
    dead = {"bootstrap.servers": _DEAD}, {"bootstrap.servers": "127.0.0.1:2"}
    path = write_flow(tmp_path, "f", *dead, ["x"], on_bad_record="dead_letter:x-letters")
    entry = read_status(load_flow(path), patience_s=1.0)
    assert entry["dead_letters"] == {"topic": "x-letters", "at_most": None}
    assert "letters  unknown in x-letters" in describe(entry)
    plain = write_flow(tmp_path, "g", *dead, ["x"])
    assert read_status(load_flow(plain), patience_s=1.0)["dead_letters"] is None
