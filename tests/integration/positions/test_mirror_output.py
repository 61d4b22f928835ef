"""Kafka's own MirrorClient, RemoteClusterUtils and OffsetSyncStore, from their jars, on a target of ours.

Where a group has to stand is told by reading both logs with ordinary clients, which know nothing of the map.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from onceover.config.home import HOME_VARIABLE
from onceover.mirrormaker.records import HEARTBEATS_TOPIC, checkpoints_topic, replicated_heartbeats_topic
from tests.support.connect.mirrorclient import UNKNOWN, Answers, ask
from tests.support.flows.feeds import PARTITIONS, feed
from tests.support.flows.groups import commit, commit_all, unread
from tests.support.flows.replica import Replica, delete_topics, read_records
from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of the test's own."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))


def mirrored(replica: Replica, **changes: Any) -> str:
    """Let the flow write everything, under a source alias of the test's own; return that."""
    alias = f"e-{replica.name}"
    everything = {"checkpoints": True, "offset_syncs": True, "heartbeats": True}
    quick = {"checkpoint_interval": "1s", "heartbeat_interval": "1s"}
    replica.configure(source={"alias": alias}, mirrormaker={**everything, **quick}, **changes)
    return alias


@pytest.mark.parametrize("naming", ["prefix", pytest.param("identity", marks=pytest.mark.soak)])
def test_kafkas_own_client_finds_every_group_at_its_first_unread_record(
    replica: Replica, naming: str, tmp_path: Path
) -> None:
    """A group for every offset: over markers and aborted records, up to the end; and the flow itself."""
    alias = mirrored(replica, topics={"naming": naming}, groups={"exclude": [".*-excluded"]})
    topic = replica.topic(partitions=PARTITIONS)
    copied = f"{alias}.{topic}" if naming == "prefix" else topic
    feed(replica.source, topic, big=1)
    replica.copy(seconds=0.3)
    feed(replica.source, topic, big=1, seed=1)
    theirs = {p: list(replica.source_records(topic, p)) for p in range(PARTITIONS)}
    last = max(offsets[-1] for offsets in theirs.values()) + 1
    groups = {
        f"{replica.name}-{offset}": {p: min(offset, theirs[p][-1] + 1) for p in theirs}
        for offset in range(last + 1)
    }
    commit_all(replica.source_client, topic, groups, "a note")
    commit(replica.source_client, f"{replica.name}-excluded", topic, {0: 1})
    replica.copy()
    ours = {p: list(replica.target_records(copied, p)) for p in range(PARTITIONS)}
    found = ask(replica.target_client["bootstrap.servers"], naming, alias, tmp_path / "client.log")
    assert found.offsets.keys() == {(name, copied, p) for name in groups for p in theirs}
    for (name, _, p), (offset, metadata) in found.offsets.items():
        # confluent-kafka 2.16.1 commits the end of the C string as well.
        assert metadata.rstrip("\0") == "a note"
        assert unread(ours[p], offset) == unread(theirs[p], groups[name][p]), (name, p, offset)
    check_syncs(found, topic, theirs, ours)
    check_topology(found, alias, copied if naming == "prefix" else None)


def check_syncs(found: Answers, topic: str, theirs: dict[int, list[int]], ours: dict[int, list[int]]) -> None:
    """Every sync pairs a record with its copy; the newest of a partition is of its last record, and there
    MirrorMaker's own translation is exact as well."""
    for name, p, upstream, downstream in found.syncs:
        assert name == topic
        assert theirs[p].index(upstream) == ours[p].index(downstream)
    newest = {p: upstream for _, p, upstream, _ in found.syncs}
    assert newest == {p: offsets[-1] for p, offsets in theirs.items()}
    assert sorted(estimate[1:3] for estimate in found.estimates) == [
        (p, offset) for p, last in sorted(newest.items()) for offset in (last, last + 1)
    ]
    for _, p, upstream, downstream in found.estimates:
        assert unread(ours[p], downstream) == unread(theirs[p], upstream)


def check_topology(found: Answers, alias: str, remote: str | None) -> None:
    """The source is one hop upstream; the copy is known by its name where that tells."""
    assert found.hops == {alias: 1, UNKNOWN: -1}
    assert alias in found.upstream
    assert {"heartbeats", replicated_heartbeats_topic(alias)} <= found.heartbeats
    assert checkpoints_topic(alias) in found.checkpoints
    assert remote is None or remote in found.remote
    assert found.beats
    for source, target, at_ms, written_ms in found.beats:
        assert (source, target) == (alias, "west")
        assert 0 <= written_ms - at_ms < _TIMEOUT_S * 1000


@pytest.mark.soak
def test_a_topic_of_somebody_elses_is_left_alone_and_the_copy_goes_on(replica: Replica) -> None:
    """Said by status; what has a place of its own is written."""
    alias = mirrored(replica)
    topic = replica.topic()
    taken = replica.target.create_topic(checkpoints_topic(alias), 2)
    with replica.running():
        replica.source.plain(topic, 0, replica.source.records(10))
        wait_until(lambda: notes(replica), _TIMEOUT_S, "status says what is not written")
    assert notes(replica) == [("mirrormaker.checkpoints", "MIRROR_TOPIC_TAKEN")]
    assert [read_records(replica.target_client, taken, p) for p in range(2)] == [{}, {}]
    assert read_records(replica.target_client, replicated_heartbeats_topic(alias))
    replica.assert_same(topic)


def notes(replica: Replica) -> list[tuple[str, str]]:
    """Return what status remarks about these records."""
    found = [(note["object"], note["code"]) for note in replica.flow.status()["notes"]]
    return [note for note in found if note[0].startswith("mirrormaker.")]


@pytest.mark.soak
def test_a_running_flow_follows_its_groups_also_into_a_topic_made_anew(replica: Replica) -> None:
    """Forwards and backwards; what stood in the old topic is written again."""
    alias = mirrored(replica)
    topic, there = replica.topic(), checkpoints_topic(alias)
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()

    def wait_for(position: int) -> None:
        """Wait until that is the last checkpoint's offset on the target."""

        def written() -> bool:
            values = [seen.value or b"" for seen in read_records(replica.target_client, there).values()]
            return bool(values) and int.from_bytes(values[-1][10:18], "big") == position

        wait_until(written, _TIMEOUT_S, f"a checkpoint at {position}")

    with replica.running():
        for position in (7, 3):
            commit(replica.source_client, replica.name, topic, {0: position})
            wait_for(position)
        delete_topics(replica.target_client, [there])
        exists = AdminClient(replica.target_client)
        wait_until(lambda: there in exists.list_topics(timeout=_TIMEOUT_S).topics, _TIMEOUT_S, "made anew")
        wait_for(3)


@pytest.mark.soak
def test_a_topic_that_was_made_anew_ends_the_sign_that_all_is_copied(replica: Replica) -> None:
    """The position stays behind the end of the new one; the sign that the flow runs goes on."""
    copying = replicated_heartbeats_topic(mirrored(replica))
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()

    def next_of(name: str) -> int:
        """Wait for heartbeats of two more intervals; return where the last one is."""
        end = max(read_records(replica.target_client, name))

        def written() -> bool:
            return max(read_records(replica.target_client, name)) > end + 1

        wait_until(written, _TIMEOUT_S, f"heartbeats in {name}")
        return max(read_records(replica.target_client, name))

    with replica.running():
        next_of(copying)
        delete_topics(replica.source_client, [topic])
        replica.source.create_topic(topic)
        replica.source.plain(topic, 0, replica.source.records(4))
        wait_until(lambda: replica.stop_of(topic), _TIMEOUT_S, "the partition stops")
        # What was found to be so before may be written behind the stop.
        next_of(HEARTBEATS_TOPIC)
        last = max(read_records(replica.target_client, copying))
        next_of(HEARTBEATS_TOPIC)
        assert max(read_records(replica.target_client, copying)) == last
