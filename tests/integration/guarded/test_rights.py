"""A right that is missing on one topic of two: that topic says so and waits, the other one goes on (G5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from onceover.errors import UsageError
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.ports import Features
from onceover.lead import leader, supervisor
from onceover.model import TopicPartition, lane_of
from onceover.state import names
from onceover.stops import aside
from onceover.wiring.flows import open_clusters
from tests.support.brokers.guarded import Pair, guarded_replica
from tests.support.flows.grants import GROUP, TOPIC, denied, grant
from tests.support.flows.groups import commit
from tests.support.flows.replica import Replica, delete_topics
from tests.support.flows.waysout import commands, follow
from tests.support.raw.rawkafka import RawRecord
from tests.support.session.wait import wait_until
from tests.support.worlds.contentaudit import audit, partition

Capture = pytest.CaptureFixture[str]
_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2
T0_MS: Final = 1_704_067_200_000
# By the end of a topic's name: which right is missing, on which side, and what its partition stops with.
RIGHTS: Final = {
    "source-read": (0, "READ", "SOURCE_UNAUTHORIZED"),
    "source-describe": (0, "DESCRIBE", "SOURCE_UNAUTHORIZED"),
    "target-write": (1, "WRITE", "TARGET_UNAUTHORIZED"),
    "target-read": (1, "READ", "TARGET_UNAUTHORIZED"),
    "target-describe": (1, "DESCRIBE", "TARGET_UNAUTHORIZED"),
}
# What an audit takes besides.
CONFIGS: Final = {
    "source-configs": (0, "DESCRIBE_CONFIGS", "CONFIG_UNREADABLE"),
    "target-configs": (1, "DESCRIBE_CONFIGS", "CONFIG_UNREADABLE"),
}
# Who may read and write needs to describe only to begin: these stop whoever copies already.
WHILE_COPYING: Final = [suffix for suffix in RIGHTS if "describe" not in suffix]
FINE: Final = "fine"


@pytest.fixture
def replica(guarded: Pair, tmp_path: Path, unique_name: str) -> Iterator[Replica]:
    """A flow with exactly the rights of docs/operations.md."""
    with guarded_replica(guarded, tmp_path, unique_name) as replica:
        yield replica


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """One broker knows a grant at once; and nobody else has taken the leader's id when it is refused."""
    monkeypatch.setattr(aside, "RIGHTS", aside.WaitPolicy(1.0, 0.1, 0.3))
    monkeypatch.setattr(leader, "_RECOVERY_PAUSE_S", (0.1, 0.3))
    # What it has left open keeps readers of the state waiting until brokers end it.
    monkeypatch.setattr(leader, "LEADER_TIMEOUT_MS", 3_000)


@pytest.mark.parametrize("side", [pytest.param("source", marks=pytest.mark.soak), "target"])
def test_right_that_is_taken_from_one_topic_is_said_and_hides_nothing_of_the_other(
    guarded: Pair, replica: Replica, capsys: Capture, side: str
) -> None:
    """The cluster leaves such a topic out of all: it is neither gone nor fine, and asked for by name."""
    shut, fine = replica.topic("shut"), replica.topic("fine")
    for topic in (shut, fine):
        replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    replica.source.plain(fine, 0, replica.source.records(3))
    with denied(guarded[side == "target"], (TOPIC, shut, False, "DESCRIBE")):
        code, document = replica.command(capsys, "status", replica.name)
        (flow,) = document["flows"]
        (need,) = flow["needs"]
        assert (code, need["code"], flow[side]["error"]["where"]) == (2, "NOT_AUTHORIZED", shut)
        assert shut in need["message"] and "grant" in need["resolve"]
        found = {p["topic"]: p for p in flow["partitions"]}
        assert (found[fine]["lag_offsets"], found[fine]["stop"]) == (3, None)
        assert (found[shut]["lag_offsets"], found[shut]["stop"]) == (None, None)
        assert found[shut]["position"] == (5 if side == "source" else None)
        assert (flow["state"], flow["run"]["state"]) == ("stopped", "ended")
        assert flow["lag_offsets"] is None
    assert replica.command(capsys, "status", replica.name)[0] == 0


@pytest.mark.parametrize("side", ["source", pytest.param("target", marks=pytest.mark.soak)])
def test_what_may_not_be_seen_is_not_taken_for_deleted(
    guarded: Pair,
    replica: Replica,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    side: str,
) -> None:
    """A cluster leaves such a topic out of its list; advice to copy it anew would be the wrong one."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    shut, fine = replica.topic("shut"), replica.topic("fine")
    for topic in (shut, fine):
        replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    flow, group = str(replica.flow.path), f"{replica.name}-group"
    commit(guarded[0].admin_client, group, shut, {0: 3})
    grant(guarded[0], [(GROUP, replica.name, True, "DESCRIBE")])
    grant(guarded[1], [(GROUP, replica.name, True, "READ")])
    with denied(guarded[side == "target"], (TOPIC, shut, False, "DESCRIBE")):
        for command in (["topics", "plan", flow], ["seed", "plan", flow, "--from", "earliest"]):
            code, document = replica.command(capsys, *command)
            refused = {r["object"]: r for r in document["refused"]}
            assert (code, refused[shut]["code"]) == (3, f"{side.upper()}_UNAUTHORIZED")
            assert shut in refused[shut]["message"] and "grant" in refused[shut]["resolve"]
            assert fine not in refused
        code, document = replica.command(capsys, "groups", "plan", flow)
        (refused,) = document["refused"]
        assert (code, "grant" in refused["resolve"]) == (3, True)
    assert replica.command(capsys, "topics", "plan", flow)[1]["refused"] == []


def test_a_new_topic_whose_configuration_cannot_be_read_waits_and_says_so(
    guarded: Pair, replica: Replica, capsys: Capture
) -> None:
    """A person learns of it, and nothing has to be started anew when the right is there."""
    shut, fine = replica.topic("shut"), replica.topic("fine")
    for topic in (shut, fine):
        replica.source.plain(topic, 0, replica.source.records(5))
    with denied(guarded[0], (TOPIC, shut, False, "DESCRIBE_CONFIGS")):
        assert replica.copy().records == 5
        code, document = replica.command(capsys, "status", replica.name)
        (entry,) = [p for p in document["flows"][0]["partitions"] if p["topic"] == shut]
        assert (code, entry["state"], entry["stop"]["code"]) == (3, "not_enrolled", "CONFIG_UNREADABLE")
        assert "rights" in entry["stop"]["resolve"]
    replica.assert_same(fine)
    assert replica.copy().records == 5
    assert replica.command(capsys, "status", replica.name)[0] == 0

    with denied(guarded[0], (TOPIC, shut, False, "DESCRIBE_CONFIGS")):
        replica.source.plain(shut, 0, replica.source.records(5))
        assert replica.copy().records == 5, "what is enrolled goes on"
        code, document = replica.command(capsys, "status", replica.name)
        notes = [(note["object"], note["code"]) for note in document["flows"][0]["notes"]]
        assert (code, notes) == (0, [(shut, "CONFIG_UNREADABLE")])
    replica.assert_same()


def test_a_new_topic_whose_copy_may_not_be_used_is_not_taken_in_and_the_others_are(
    guarded: Pair, replica: Replica, capsys: Capture
) -> None:
    """One that may not be described, one to which no progress may be written; the driver goes on."""
    missing = {"describe": "DESCRIBE", "read": "READ"}
    topics = {suffix: replica.topic(suffix) for suffix in (*missing, FINE)}
    for topic in topics.values():
        replica.target_topic(topic)
        replica.source.plain(topic, 0, replica.source.records(5))
    with ExitStack() as stack:
        for suffix, right in missing.items():
            stack.enter_context(denied(guarded[1], (TOPIC, topics[suffix], False, right)))
        assert replica.copy().records == 5
        code, document = replica.command(capsys, "status", replica.name)
        entries = {p["topic"]: p for p in document["flows"][0]["partitions"]}
        assert code == 3
        for suffix in missing:
            entry = entries[topics[suffix]]
            assert (entry["state"], entry["stop"]["code"]) == ("not_enrolled", "TARGET_REFUSES")
            assert "29" in entry["stop"]["message"] and "rights" in entry["stop"]["resolve"]
        assert entries[topics[FINE]]["stop"] is None
    assert replica.copy().records == 10
    assert replica.command(capsys, "status", replica.name)[0] == 0
    replica.assert_same()


def test_a_copy_that_may_not_be_described_is_made_by_nobody_and_the_others_are(
    guarded: Pair, replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may be there: `topics apply` names the right, and does not make it again and again."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    shut, fine = replica.topic("shut"), replica.topic("fine")
    flow = str(replica.write_flow())
    with denied(guarded[1], (TOPIC, shut, False, "DESCRIBE")):
        for word in ("plan", "apply"):
            code, document = replica.command(capsys, "topics", word, flow)
            (refused,) = document["refused"]
            assert (code, refused["object"], refused["code"]) == (3, shut, "TARGET_REFUSES")
            assert "DESCRIBE on the topic" in refused["message"] and "grant" in refused["resolve"]
        made = AdminClient(guarded[1].admin_client).list_topics(timeout=_TIMEOUT_S).topics
        assert fine in made and shut not in made
    assert replica.command(capsys, "topics", "apply", flow)[0] == 0


@pytest.mark.parametrize("command", ["reseed", "reseed what is gone", "skip-to", "seed"])
def test_who_may_write_no_positions_of_a_topic_fences_nobody(
    guarded: Pair,
    replica: Replica,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
) -> None:
    """A broker would refuse them behind the fencing, with those of all topics; what is fine is seeded."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    shut, fine, flow = replica.topic("shut"), replica.topic(FINE), str(replica.flow.path)
    for topic in (shut, fine):
        replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    generation = replica.flow.status()["generation"]
    arguments = {
        "reseed": ["partition", "reseed", flow, f"{shut}:0", "--apply"],
        "skip-to": ["partition", "skip-to", flow, f"{shut}:0", "4", "--apply"],
        "seed": ["seed", "apply", flow, "--from", "earliest", "--replace"],
    }[command.split()[0]]
    if command == "reseed what is gone":
        delete_topics(guarded[1].admin_client, [shut])
    with denied(guarded[1], (TOPIC, shut, False, "READ")):
        code, document = replica.command(capsys, *arguments)
        (refused,) = document["refused"]
        assert (code, refused["code"]) == (3, "TARGET_UNAUTHORIZED"), document
        assert "READ" in refused["message"] and "grant" in refused["resolve"]
    flow_now = replica.flow.status()
    position = {p["topic"]: p["position"] for p in flow_now["partitions"]}[fine]
    if command == "seed":
        assert (flow_now["generation"], position) == (generation + 1, 0)
    else:
        assert (flow_now["generation"], position) == (generation, 5)
    assert replica.command(capsys, *arguments)[0] == 0


@pytest.mark.parametrize("missing", ["READ", "DESCRIBE"])
def test_who_may_write_no_progress_at_all_fences_nobody(
    guarded: Pair, replica: Replica, capsys: Capture, missing: str
) -> None:
    """Neither a start nor what changes progress; a copy that runs goes on."""
    topic, flow = replica.topic(), str(replica.flow.path)
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    generation = replica.flow.status()["generation"]
    progress = names.progress_group(replica.name)
    with denied(guarded[1], (GROUP, progress, False, missing)):
        with pytest.raises(UsageError, match="READ on the group"):
            replica.copy()
        code, document = replica.command(capsys, "seed", "apply", flow, "--from", "earliest", "--replace")
        assert code == 2 and progress in document["error"]["where"], document
    assert replica.flow.status()["generation"] == generation
    assert replica.copy().records == 0


def test_a_group_is_moved_in_its_topics_that_may_be_described_on_the_target(
    guarded: Pair, replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where it stands in the other one nobody knows: there it is left alone, by its right."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    shut, fine, flow = replica.topic("shut"), replica.topic(FINE), str(replica.flow.path)
    group = f"{replica.name}-group"
    for topic in (shut, fine):
        replica.source.plain(topic, 0, replica.source.records(5))
        commit(guarded[0].admin_client, group, topic, {0: 3})
    replica.copy()
    grant(guarded[0], [(GROUP, replica.name, True, "DESCRIBE")])
    grant(guarded[1], [(GROUP, replica.name, True, "READ")])
    for committed in (3, 4):
        commit(guarded[0].admin_client, group, fine, {0: committed})
        with denied(guarded[1], (TOPIC, shut, False, "DESCRIBE")):
            code, document = replica.command(capsys, "groups", "apply", flow)
        decided = {p["topic"]: (p["decision"], p["code"], p["new"]) for p in document["positions"]}
        assert (code, decided[fine]) == (3, ("move", None, committed)), document
        assert decided[shut] == ("left alone", "NOT_AUTHORIZED", None)
        (refused,) = document["refused"]
        assert shut in refused["message"] + refused["object"] and "grant" in refused["resolve"]
    code, document = replica.command(capsys, "groups", "apply", flow)
    assert code == 0 and {p["topic"]: p["new"] for p in document["positions"]} == {shut: 3, fine: 4}


def test_a_group_is_moved_in_its_topics_that_may_be_read_on_the_target(
    guarded: Pair, replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A coordinator takes no position of the other one, and says only which request it refuses."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    shut, fine, flow = replica.topic("shut"), replica.topic(FINE), str(replica.flow.path)
    both, only = f"{replica.name}-both", f"{replica.name}-only"
    for topic in (shut, fine):
        replica.source.plain(topic, 0, replica.source.records(5))
        commit(guarded[0].admin_client, both, topic, {0: 3})
    commit(guarded[0].admin_client, only, shut, {0: 3})
    replica.copy()
    grant(guarded[0], [(GROUP, replica.name, True, "DESCRIBE")])
    grant(guarded[1], [(GROUP, replica.name, True, "READ")])
    with denied(guarded[1], (TOPIC, shut, False, "READ")):
        code, document = replica.command(capsys, "groups", "apply", flow)
    assert (code, document["changes_made"]) == (3, 1), document
    refused = {each["object"]: each for each in document["refused"]}
    assert refused.keys() == {f"{group} {shut}:0" for group in (both, only)}
    for each in refused.values():
        assert each["code"] == "NOT_AUTHORIZED" and "READ" in each["message"] and shut in each["resolve"]
    code, document = replica.command(capsys, "groups", "apply", flow)
    assert (code, document["changes_made"], document["refused"]) == (0, 2, [])


def test_a_copy_that_may_not_be_read_keeps_no_other_from_being_placed_by_the_map(
    guarded: Pair, replica: Replica, capsys: Capture
) -> None:
    """What lies behind the map's end is looked at in each copy."""
    shut, fine, flow = replica.topic("shut"), replica.topic(FINE), str(replica.flow.path)
    for topic in (shut, fine):
        replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    with denied(guarded[1], (TOPIC, shut, False, "READ")):
        code, document = replica.command(capsys, "seed", "plan", flow, "--from", "map")
        (refused,) = document["refused"]
        assert (code, refused["object"], refused["code"]) == (3, f"{shut}:0", "NOT_AUTHORIZED")
        assert "READ" in refused["message"] and "grant" in refused["resolve"]


def test_a_start_goes_on_where_the_map_lacks_partitions_that_nobody_may_add(
    guarded: Pair, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has made it anew with one; what is mapped elsewhere waits, and a note says for what."""
    monkeypatch.setattr(supervisor, "HEARTBEAT_S", 0.5)
    topic, owned_map = replica.topic(partitions=4), names.map_topic(replica.name)
    mapped = next(p for p in range(4) if lane_of(TopicPartition(topic, p), names.MAP_PARTITIONS) == 0)
    _feed(replica, topic)
    replica.copy()
    delete_topics(guarded[1].admin_client, [owned_map])
    replica.target.create_topic(owned_map, 1)
    _feed(replica, topic)

    def positions() -> dict[int, int]:
        return {p["partition"]: p["position"] for p in replica.flow.status()["partitions"]}

    def noted() -> set[str]:
        return {note["code"] for note in replica.flow.status()["notes"]}

    with replica.running() as live:
        wait_until(lambda: positions()[mapped] == 10, _TIMEOUT_S, "one goes on", poll_s=_POLL_S)
        wait_until(lambda: "MAP_MISSING" in noted(), _TIMEOUT_S, "it is told", poll_s=_POLL_S)
        assert positions() == {p: 10 if p == mapped else 5 for p in range(4)} and live.alive
        grant(guarded[1], [(TOPIC, owned_map, False, "ALTER")])
        wait_until(lambda: set(positions().values()) == {10}, _TIMEOUT_S, "all go on", poll_s=_POLL_S)
    replica.assert_same()


def _feed(replica: Replica, topic: str) -> None:
    for number in range(4):
        replica.source.plain(topic, number, replica.source.records(5))


class Topics:
    """A flow with a topic for each of some rights, and one that has them all. All were copied before."""

    def __init__(self, guarded: Pair, replica: Replica, rights: Iterable[str] = RIGHTS) -> None:
        self.replica, self._guarded = replica, guarded
        self.rights = {suffix: (RIGHTS | CONFIGS)[suffix] for suffix in rights}
        self.names = {suffix: replica.topic(suffix) for suffix in (*self.rights, FINE)}
        self.feed()
        assert replica.copy().records == 5 * len(self.names)

    def feed(self, *suffixes: str) -> None:
        """Write five records to some topics, all by default."""
        for suffix in suffixes or self.names:
            self.replica.source.plain(self.names[suffix], 0, self.replica.source.records(5))

    @contextmanager
    def without_rights(self) -> Iterator[None]:
        """Take from every topic the right that it is called by."""
        with ExitStack() as stack:
            for suffix, (side, right, _) in self.rights.items():
                stack.enter_context(denied(self._guarded[side], (TOPIC, self.names[suffix], False, right)))
            yield

    def expect_stops(self, capsys: Capture) -> None:
        """`status` names every topic with its own code, and the one that is well."""
        code, document = self.replica.command(capsys, "status", self.replica.name)
        entries = {p["topic"]: p for p in document["flows"][0]["partitions"]}
        assert code == 3
        seen = {suffix: (entries[topic]["stop"] or {}).get("code") for suffix, topic in self.names.items()}
        assert seen == {FINE: None, **{suffix: right[2] for suffix, right in self.rights.items()}}
        for suffix in self.rights:
            stop = entries[self.names[suffix]]["stop"]
            assert self.names[suffix] in stop["message"] and "29" in stop["seen"], stop
        assert entries[self.names[FINE]]["lag_offsets"] == 0

    def stopped(self) -> bool:
        """Tell whether its lane has stopped every topic that lacks a right."""
        return all(self.replica.stop_of(self.names[suffix]) for suffix in self.rights)

    def caught_up(self, suffix: str) -> bool:
        return bool(self.replica.partition_status(self.names[suffix])["lag_offsets"] == 0)


def test_each_right_that_is_missing_at_the_start_stops_its_own_topic(
    guarded: Pair, replica: Replica, capsys: Capture
) -> None:
    """The run ends, as with every stop; the next one goes on where nothing is missing any more."""
    topics = Topics(guarded, replica)
    topics.feed()
    with topics.without_rights():
        assert replica.copy().records == 5
        topics.expect_stops(capsys)
        assert replica.copy().records == 0, "and so does every further start"
        topics.expect_stops(capsys)
    replica.assert_same(topics.names[FINE])
    assert replica.copy().records == 5 * len(topics.rights)
    assert replica.command(capsys, "status", replica.name)[0] == 0
    replica.assert_same()


def test_each_right_that_is_missing_takes_its_own_topic_alone_from_an_audit(
    guarded: Pair, replica: Replica
) -> None:
    """It is neither right nor wrong, nor looks as if it were gone; the right is told, and its cluster."""
    topics = Topics(guarded, replica, [*(each for each in RIGHTS if each != "target-write"), *CONFIGS])
    aliases = [cluster.alias for cluster in open_clusters(replica.flow.watch.flow)]
    with topics.without_rights():
        content = audit(replica.flow.watch.flow, keep=True)
        assert partition(content, topics.names[FINE]).verified_to == 5
        for suffix, (side, right, _) in topics.rights.items():
            found = partition(content, topics.names[suffix])
            assert not found.findings and found.verified_to <= 0
            assert {str(gap.reason) for gap in found.unverifiable} == {"UNREADABLE"}
            (gap,) = found.unverifiable
            assert all(word in gap.message for word in (aliases[side], topics.names[suffix], right, "grant"))
    content = audit(replica.flow.watch.flow, keep=True)
    assert [each.verified_to for each in content.partitions] == [5] * len(topics.names)


@pytest.mark.soak
def test_the_command_tells_of_an_audit_that_may_not_read_a_topic(
    guarded: Pair, replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In its document and exit code, in what to do next, on its page and in what Great Expectations found."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    topics = Topics(guarded, replica, ["source-read", "target-describe"])
    with topics.without_rights():
        code, document = replica.command(capsys, "audit", str(replica.flow.path))
    assert (code, document["verdict"]) == (3, "UNVERIFIABLE")
    assert document["records"]["source"] == 5 and not document["findings"]["total"]
    assert set(document["unverifiable"]["by_reason"]) == {"UNREADABLE"}
    results = Path(document["data_docs"]).with_name("unverifiable.json")
    steps = "\n".join(document["next_steps"])
    for suffix, (_, right, _) in topics.rights.items():
        for told in (steps, Path(document["report"]).read_text("utf-8"), results.read_text("utf-8")):
            assert topics.names[suffix] in told
        assert f"it takes {right} on the topic" in steps
    assert replica.command(capsys, "audit", str(replica.flow.path))[1]["verdict"] == "PASS"


@pytest.mark.parametrize("requests", ["newer", pytest.param("older", marks=pytest.mark.soak)])
def test_each_right_that_is_taken_away_while_copying_stops_its_own_topic(
    guarded: Pair, replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch, requests: str
) -> None:
    """The others go on; what the stop says brings it back within the same run.

    With the older set of requests, one topic without the right keeps the others out of a transaction.
    """
    if requests == "older":
        monkeypatch.setattr(LiveCluster, "features", lambda _self, **_: Features(0))
    topics = Topics(guarded, replica, WHILE_COPYING)
    with replica.running() as live:
        topics.feed()
        wait_until(lambda: all(map(topics.caught_up, topics.names)), _TIMEOUT_S, "copied", poll_s=_POLL_S)
        with topics.without_rights():
            topics.feed()
            wait_until(topics.stopped, _TIMEOUT_S, "all of them stop", poll_s=_POLL_S)
            topics.feed(FINE)
            wait_until(lambda: topics.caught_up(FINE), _TIMEOUT_S, "one goes on", poll_s=_POLL_S)
            topics.expect_stops(capsys)
            ways = [commands(replica.stop_of(topics.names[suffix])["resolve"]) for suffix in topics.rights]
        for (way,) in ways:
            follow(capsys, way)
        wait_until(lambda: all(map(topics.caught_up, topics.names)), _TIMEOUT_S, "copied", poll_s=_POLL_S)
        assert live.alive
    replica.assert_same()


@pytest.mark.soak
def test_who_may_not_write_dead_letters_stops_when_it_has_one_and_the_other_goes_on(
    guarded: Pair, replica: Replica
) -> None:
    """Its right to its own topic is as it should be; the stop says which one is missing."""
    letters = f"{replica.name}-letters"
    replica.configure(on_bad_record=f"dead_letter:{letters}", topics={"sync_configs": False})
    bad, fine = replica.topic("bad"), replica.topic("fine")
    replica.target_topic(bad, 1, {"max.message.bytes": "50000"})
    good = replica.source.records(5)
    for topic in (bad, fine):
        replica.source.plain(topic, 0, good)
    replica.copy()
    replica.source.plain(bad, 0, [*good, RawRecord(b"k", bytes(60_000), (), T0_MS), *good])
    replica.source.plain(fine, 0, good)
    with denied(guarded[1], (TOPIC, letters, False, "WRITE")):
        replica.copy()
    stop = replica.stop_of(bad)
    assert stop["code"] == "TARGET_UNAUTHORIZED" and letters in stop["message"], stop
    assert not replica.stop_of(fine)
    replica.assert_same(fine)
    replica.copy()
    assert not replica.stop_of(bad)
    assert replica.partition_status(bad)["lag_offsets"] == 0
