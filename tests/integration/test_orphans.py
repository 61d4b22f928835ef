"""``onceover drill orphans``: the old source is back, with records that were never copied."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.adversary import COMPACT_AT_ONCE
from tests.support.clusters import SharedCluster
from tests.support.flows import assert_same
from tests.support.groups import commit, offset_of
from tests.support.orphaned import (
    DECIDE,
    DONE,
    Capture,
    Exported,
    Orphaned,
    in_line,
    orphaned,
)
from tests.support.rawkafka import Codec
from tests.support.replica import read_records
from tests.support.waysout import commands

_TIMEOUT_S = 30.0


@pytest.fixture
def replica(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[Orphaned]:
    with orphaned(tmp_path, unique_name, source_cluster.client, target_cluster.client) as replica:
        yield replica


def behind(replica: Orphaned, topic: str, partition: int, cut: int) -> list[Exported]:
    """Return what an ordinary reader of the source meets behind a cut."""
    found = read_records(replica.source_client, topic, partition)
    return [Exported(topic, partition, at, record) for at, record in found.items() if at >= cut]


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
    expected = [each for (topic, p), cut in cuts.items() for each in behind(replica, topic, p, cut)]
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
    assert not {plain, squeezed, tidy} & names_on(replica.source_client)
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
