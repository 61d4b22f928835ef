"""``onceover drill orphans``: the old source is back, with records that were never copied."""

from __future__ import annotations

import hashlib
import json
import stat
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from onceover.config.flow.load import load_flow
from onceover.errors import NeedsOperator
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller, wait
from onceover.wiring.failovers.orphans import OrphanOptions, orphan_export
from onceover.wiring.flows import opened
from tests.support.drills.orphaned import (
    AGAIN,
    DECIDE,
    DONE,
    USAGE,
    Capture,
    Orphaned,
    in_line,
)
from tests.support.drills.rehearsing import nobody_alive, rehearsing
from tests.support.flows.flows import assert_same
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.replica import delete_before, read_records, topic_config
from tests.support.flows.waysout import commands
from tests.support.raw.adversary import COMPACT_AT_ONCE, EPOCH_MS
from tests.support.raw.rawkafka import Codec

_TIMEOUT_S = 30.0
_KILLED = -9


def names_on(client: dict[str, str]) -> set[str]:
    return set(AdminClient(client).list_topics(timeout=_TIMEOUT_S).topics)


def test_the_way_back_behind_an_unplanned_switchover(replica: Orphaned, capsys: Capture) -> None:
    """Refused, looked at, exported, deleted, copied anew: nothing is lost, groups go on where they were."""
    source = replica.source
    plain, squeezed = replica.topic("plain", partitions=2), replica.topic("squeezed")
    tidy = replica.topic("tidy", config=COMPACT_AT_ONCE)
    for topic in (plain, squeezed, tidy):
        source.plain(topic, 0, source.records(10, key=b"k"))
    source.plain(plain, 1, source.records(4))
    group = f"{replica.name}-billing"
    commit(replica.source_client, group, plain, {0: 7, 1: 4})
    replica.copy()
    cuts = {(plain, 0): 10, (plain, 1): 4, (squeezed, 0): 10, (tidy, 0): 10}

    source.plain(plain, 0, source.records(3))
    kept, dropped = source.transaction(plain), source.transaction(plain)
    kept.send(0, source.records(2))
    dropped.send(0, source.records(5))
    kept.commit()
    dropped.abort()
    source.plain(squeezed, 0, source.records(6), Codec.GZIP)
    source.plain(squeezed, 0, source.records(7), Codec.ZSTD)
    source.holes(tidy)
    told = replica.switch_over(capsys)
    assert f"onceover drill orphans plan {replica.name}" in json.dumps(told)
    replica.stop_compaction(tidy)
    replica.stop_compaction(tidy, on_target=True)
    expected = [each for (topic, p), cut in cuts.items() for each in replica.behind(topic, cut, p)]
    copied = {key: read_records(replica.target_client, *key) for key in cuts}

    back = replica.back()
    code, refused = replica.seed_back(capsys, back)
    ways = {r["object"]: r for r in refused["refused"]}
    assert code == DECIDE
    assert {r["code"] for r in ways.values()} == {"ORPHANS"}
    assert set(ways) == {f"{topic}:0" for topic in (plain, squeezed, tidy)}
    see, rebuild = (way.arguments for way in commands(ways[f"{plain}:0"]["resolve"])[:2])
    assert see == ["drill", "orphans", "plan", replica.name]

    code, plan = replica.command(capsys, *see)
    assert (code, plan["orphans"], plan["torn"]) == (DONE, len(expected), [])
    seen = {p["partition"]: p for p in plan["partitions"]}
    assert (seen[f"{plain}:0"]["records"], seen[f"{plain}:0"]["first"]) == (5, 10)
    assert seen[f"{plain}:0"]["aborted_transactions"] == 1
    assert (seen[f"{plain}:1"]["records"], seen[f"{squeezed}:0"]["records"]) == (0, 13)
    assert seen[f"{squeezed}:0"]["bytes"] > 0
    assert f"__onceover.{replica.name}.orphans" not in names_on(replica.target_client)

    code, done = replica.orphans(capsys, "apply")
    assert (code, done["written"], done["rebuilt"]) == (DONE, len(expected), [])
    assert sorted(replica.exported()) == sorted(expected)
    file = replica.orphan_file
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    lines = [{k: v for k, v in line.items() if k != "topic_id"} for line in replica.in_file()]
    assert lines == [in_line(each) for each in replica.exported()]
    assert done["export"]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    code, again = replica.orphans(capsys, "apply")
    assert (code, again["written"], again["exported"]) == (DONE, 0, len(expected))
    assert len(replica.exported()) == len(expected)
    assert replica.seed_back(capsys, back)[0] == DECIDE

    assert rebuild == ["drill", "orphans", "apply", replica.name, "--rebuild"]
    code, done = replica.command(capsys, *rebuild, "--approve")
    assert (code, sorted(done["rebuilt"])) == (DONE, sorted([plain, squeezed, tidy]))
    for topic in (plain, squeezed, tidy):
        assert replica.made_again(topic)
    commit(replica.target_client, group, plain, {0: 9, 1: 4})
    assert replica.seed_back(capsys, back)[0] == DONE
    back.copy()
    assert_same(replica.target_client, replica.source_client, [plain, squeezed, tidy])
    for (topic, partition), before in copied.items():
        now = read_records(replica.source_client, topic, partition)
        assert list(now.values()) == list(before.values())
    assert replica.command(capsys, "groups", "apply", str(back.path))[0] == DONE
    at = offset_of(replica.source_client, group, plain)
    assert at is not None
    assert next(r for n, r in read_records(replica.source_client, plain).items() if n >= at) == next(
        r for n, r in read_records(replica.target_client, plain).items() if n >= 9
    )
    code, after = replica.orphans(capsys, "plan")
    assert (code, after["orphans"]) == (DONE, 0)
    assert {note["code"] for note in after["notes"]} <= {"MADE_ANEW", "LED_BACK"}
    _, status = replica.command(capsys, "drill", "status", replica.name)
    assert [d["mode"] for d in status["drills"]] == ["orphans", "orphans", "orphans", "unplanned"]


@pytest.mark.parametrize(
    ("step", "when", "count"),
    [
        pytest.param("commit-orphans", "before", "2", marks=pytest.mark.soak),
        ("commit-orphans", "behind", "2"),
        pytest.param("rename", "before", "1", marks=pytest.mark.soak),
        pytest.param("delete-topic", "before", "1", marks=pytest.mark.soak),
        ("delete-topic", "behind", "1"),
        pytest.param("create-topic", "before", "1", marks=pytest.mark.soak),
        pytest.param("create-topic", "behind", "1", marks=pytest.mark.soak),
    ],
)
def test_killed_anywhere_each_orphan_is_exported_once(
    replica: Orphaned, capsys: Capture, tmp_path: Path, step: str, when: str, count: str
) -> None:
    """And nothing is gone from the source that is not in the export; nor does the topic stay away."""
    topic = replica.orphaned_topic(capsys, orphans=200)
    told = topic_config(replica.source_client, topic)
    expected = replica.behind(topic, 10)
    options = {"mode": "orphans", "step": step, "when": when, "count": count}
    with rehearsing(replica, tmp_path / "killed.log", **options) as child:
        assert child.wait(_TIMEOUT_S * 3) == _KILLED, child.tail()
    gone = (step, when) in {("delete-topic", "behind"), ("create-topic", "before")}
    assert (topic in names_on(replica.source_client)) is not gone
    if gone:
        code, plan = replica.orphans(capsys, "plan")
        assert (code, [(r["object"], r["code"]) for r in plan["refused"]]) == (DECIDE, [(topic, "MADE_ANEW")])
    elif step != "create-topic":
        assert replica.behind(topic, 10) == expected
    if step == "commit-orphans":
        assert not replica.orphan_file.exists()
        assert 0 < len(replica.exported()) < len(expected)
    elif step != "rename":
        assert len(replica.in_file()) == len(expected)
    with nobody_alive():
        code, _ = replica.orphans(capsys, "apply", "--rebuild")
    assert code == DONE
    assert sorted(replica.exported()) == sorted(expected)
    assert len(replica.in_file()) == len(expected)
    assert replica.made_again(topic)
    assert topic_config(replica.source_client, topic) == told
    assert [each.name for each in replica.orphan_file.parent.iterdir()] == ["orphans.jsonl"]


def test_an_open_transaction_is_named_and_awaited(replica: Orphaned, capsys: Capture) -> None:
    """What is decided is exported; the topic stays until the rest is."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(3))
    begun = replica.source.transaction(topic)
    begun.send(0, replica.source.records(2))
    replica.source.plain(topic, 0, replica.source.records(4))
    replica.switch_over(capsys)
    code, plan = replica.orphans(capsys, "plan", "--rebuild")
    assert (code, plan["orphans"], plan["rebuild"]) == (AGAIN, 3, [])
    (opened,) = plan["partitions"][0]["open_transactions"]
    assert (opened["transactional_id"], opened["first"]) == (begun.transactional_id, 13)
    assert {r["code"] for r in plan["refused"]} == {"ORPHANS_OPEN"}
    assert any(begun.transactional_id in r["message"] for r in plan["refused"])
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, done["written"], done["rebuilt"]) == (AGAIN, 3, [])
    assert topic in names_on(replica.source_client)
    begun.commit()
    expected = replica.behind(topic, 10)
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, done["written"], done["rebuilt"]) == (DONE, 6, [topic])
    assert replica.exported() == expected


def test_who_writes_on_keeps_the_topic(replica: Orphaned, capsys: Capture) -> None:
    """A record that came behind the export is named, and stays; the next run exports it, too."""
    topic = replica.orphaned_topic(capsys)

    def written(_: float) -> bool:
        replica.source.plain(topic, 0, replica.source.records(1))
        return False

    export = partial(orphan_export, options=OrphanOptions(rebuild=True), pause=wait)
    with opened(load_flow(str(replica.flow.path)), export) as operation:
        with pytest.raises(NeedsOperator, match="more was written since the export") as refused:
            operation.apply(Caller(lambda _: None, pause=written))
        assert (refused.value.code, f"{topic}:0 (1 records)" in str(refused.value)) == ("ORPHANS_GROWN", True)
        plan = operation.plan()
        replica.source.plain(topic, 0, replica.source.records(1))
        with pytest.raises(NeedsOperator) as refused:
            operation.apply(Caller(lambda _: None), Approval.of(plan.items))
        assert refused.value.code == "PLAN_CHANGED"
    assert topic in names_on(replica.source_client)
    expected = replica.behind(topic, 10)
    assert (len(expected), len(replica.exported())) == (7, 5)
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, done["written"]) == (DONE, 2)
    assert replica.exported() == expected


@pytest.mark.soak
def test_what_was_never_copied_is_not_deleted(replica: Orphaned, capsys: Capture) -> None:
    """The copy began at the end of a topic that had records: they are nowhere else."""
    replica.configure(topics={"start": "latest"})
    topic = replica.orphaned_topic(capsys)
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    (refused,) = done["refused"]
    assert (code, refused["code"], done["rebuilt"], done["written"]) == (DECIDE, "NOT_COPIED", [], 5)
    assert "offsets 0 to 9" in refused["message"]
    assert topic in names_on(replica.source_client)


def test_on_the_second_way_out_orphans_are_exported_and_the_topic_stays(
    replica: Orphaned, capsys: Capture
) -> None:
    """Over, back, and over again: nobody knows that both sides were alike when the copy went on."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.switch_over(capsys)
    back = replica.fail_back(capsys, topic)
    origin = f"promoted:{back.path}"
    code, told = replica.command(capsys, "seed", "apply", replica.name, "--from", origin, "--replace")
    assert (code, told["refused"]) == (DONE, [])
    replica.source.plain(topic, 0, replica.source.records(2))
    replica.copy()
    replica.assert_same()
    replica.source.plain(topic, 0, replica.source.records(3))
    replica.switch_over(capsys)
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    (refused,) = done["refused"]
    assert (code, refused["code"], done["written"], done["rebuilt"]) == (DECIDE, "NOT_COPIED", 3, [])
    assert "a flow the other way has brought" in refused["message"]


def test_what_has_expired_is_told_and_what_was_exported_stays(replica: Orphaned, capsys: Capture) -> None:
    """Retention goes on on the source, before the export and behind it."""
    topic = replica.orphaned_topic(capsys)
    delete_before(replica.source_client, topic, 11)
    _, plan = replica.orphans(capsys, "plan")
    assert (plan["partitions"][0]["expired_offsets"], plan["orphans"]) == (1, 4)
    assert replica.orphans(capsys, "apply")[0] == DONE
    expected = replica.exported()
    delete_before(replica.source_client, topic, 13)
    code, done = replica.orphans(capsys, "apply")
    assert (code, done["written"], done["exported"]) == (DONE, 0, 2)
    assert replica.exported() == expected
    assert len(replica.in_file()) == 4
    code, refused = replica.seed_back(capsys, replica.back())
    assert (code, [r["code"] for r in refused["refused"]]) == (DECIDE, ["ORPHANS"])
    delete_before(replica.source_client, topic, 15)
    assert replica.orphans(capsys, "plan")[1]["orphans"] == 0
    assert replica.seed_back(capsys, replica.back())[0] == DONE


@pytest.mark.soak
def test_what_was_aborted_is_no_orphan(replica: Orphaned, capsys: Capture) -> None:
    """The flow the other way begins as if nothing stood there."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    dropped = replica.source.transaction(topic)
    dropped.send(0, replica.source.records(5))
    dropped.abort()
    replica.switch_over(capsys)
    code, plan = replica.orphans(capsys, "plan", "--rebuild")
    assert (code, plan["orphans"], plan["changes"]) == (DONE, 0, [])
    assert plan["partitions"][0]["aborted_transactions"] == 1
    assert replica.orphans(capsys, "apply")[1]["applied"] is False
    back = replica.back()
    assert replica.seed_back(capsys, back)[0] == DONE
    back.copy()
    assert_same(replica.target_client, replica.source_client, [topic])
    code, plan = replica.orphans(capsys, "plan")
    assert [(note["object"], note["code"]) for note in plan["notes"]] == [(topic, "LED_BACK")]


@pytest.mark.soak
def test_a_stranger_in_the_topic_is_told(replica: Orphaned, capsys: Capture) -> None:
    """Whoever writes there makes it worth nothing as evidence."""
    topic = replica.orphaned_topic(capsys)
    assert replica.orphans(capsys, "apply")[0] == DONE
    replica.target.plain(f"__onceover.{replica.name}.orphans", 0, replica.target.records(1))
    code, told = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, told["error"]["code"]) == (DECIDE, "EXPORT_DIFFERS")
    assert topic in names_on(replica.source_client)


def test_without_a_yes_nothing_is_done(replica: Orphaned, capsys: Capture) -> None:
    """Nor where nothing was promoted, or nothing was meant."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    code, plan = replica.orphans(capsys, "apply")
    assert (code, plan["changes"], plan["applied"]) == (DONE, [], False)
    assert [note["code"] for note in plan["notes"]] == ["NOTHING_CHOSEN"]
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.switch_over(capsys)
    code, told = replica.command(capsys, "drill", "orphans", "apply", replica.name)
    assert (code, told["error"]["code"]) == (USAGE, "NOT_APPROVED")
    code, told = replica.orphans(capsys, "apply", "--topics", "nothing-of-it")
    assert (code, told["error"]["code"]) == (USAGE, "NOTHING_CHOSEN")
    assert f"__onceover.{replica.name}.orphans" not in names_on(replica.target_client)


def test_any_time_and_size_is_kept(replica: Orphaned, capsys: Capture) -> None:
    """Years ago, far ahead of all clocks, and larger than a broker takes by default."""
    topic = replica.topic(
        config={"max.message.bytes": "4000000", "message.timestamp.after.max.ms": str(1 << 62)}
    )
    replica.configure(topics={"sync_configs": False})
    replica.source.plain(topic, 0, replica.source.records(1))
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(1, timestamp_ms=1))
    replica.source.plain(topic, 0, replica.source.records(1, timestamp_ms=EPOCH_MS * 3))
    replica.source.batch_of_size(topic, 0, 3_000_000)
    replica.switch_over(capsys)
    expected = replica.behind(topic, 1)
    assert replica.orphans(capsys, "apply")[0] == DONE
    assert replica.exported() == expected
