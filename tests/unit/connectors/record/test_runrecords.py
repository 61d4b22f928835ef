"""Runs on the cluster: what is written is what is read, in portions, and no configuration is among it."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.connectors.record import runrecords
from onceover.connectors.record.manifest import Manifest
from onceover.connectors.record.runrecords import RunClaim, RunRecords, copy_ids, run_ids, runs_topic
from onceover.errors import Fenced, NeedsOperator, Retriable
from onceover.kafka.portions import OwnRecord
from tests.unit.connectors.views import GLOBAL, OWN

CONFIG = {"name": "c", "connection.password": "hunter2"}
BEGUN = Manifest.begin("migrate", "c", (GLOBAL, OWN), "PAUSED", CONFIG, {"commit-c": 3}, exactly_once=True)


@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))
def test_runs_of_different_connectors_have_different_ids(
    group: str, connector: str, other: str, its: str
) -> None:
    """One would fence the other; and rights on a group's ids are rights on no other group's."""
    if group != other:
        assert not f"{run_ids(group)}{connector}".startswith(run_ids(other))
    same = f"{run_ids(group)}{connector}" == f"{run_ids(other)}{its}"
    assert same is ((group, connector) == (other, its))


@pytest.mark.parametrize(
    ("group", "written"),
    [
        ("connect-cluster_1", "connect-cluster_1"),
        ("a.b", "a%2Eb"),
        ("a%2Eb", "a%252Eb"),
        ("a b/ü", "a%20b%2F%C3%BC"),
    ],
)
def test_id_of_a_run_names_its_group(group: str, written: str) -> None:
    """As it is, where it is as most are; near misses: another one that is written like it."""
    assert run_ids(group) == f"onceover.connect-run.{written}."
    assert copy_ids(group) == f"onceover.connect.{written}."


def test_no_two_connectors_write_under_one_id() -> None:
    """Names have dots, on both sides of the one between them: two copies at once would fence each other."""
    ids = {copy_ids(group) + name for group, name in (("connect", "eu.orders"), ("connect.eu", "orders"))}
    assert len(ids) == 2


class Topic:
    """The topic in memory: writer and log."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.written: list[list[str]] = []
        self.away: list[bool] = []
        self.closed = 0
        self.id: UUID | None = UUID(int=1)

    def close(self) -> None:
        self.closed += 1

    def write(self, entries: Iterable[OwnRecord]) -> None:
        """Take entries, unless away: then they are there all the same, or not."""
        if self.away:
            if self.away.pop(0):
                self._take(entries)
            raise Retriable("away")
        self._take(entries)

    def _take(self, entries: Iterable[OwnRecord]) -> None:
        keys = []
        for key, value in entries:
            keys.append(key.decode())
            self.values[keys[-1]] = json.loads(value or b"null")
        self.written.append(keys)

    def read(self, monkeypatch: pytest.MonkeyPatch) -> Manifest | None:
        monkeypatch.setattr(RunRecords, "_values", lambda _: self.values)
        cluster: Any = type("Cluster", (), {"alias": "west"})
        return RunRecords(cluster, "g", GLOBAL).load("c", "migrate")


def claim(topic: Topic) -> RunClaim:
    producer: Any = topic

    def again(expected: Sequence[Mapping[str, Any]]) -> tuple[Any, dict[str, Any]]:
        if topic.values not in expected:
            raise Fenced("another run")
        return topic, dict(topic.values)

    return RunClaim(producer, lambda: topic.id, {}, again)


def without_hash(manifest: Manifest) -> Manifest:
    return replace(manifest, salt="", config_hash="")


def test_a_run_that_claims_more_portions_than_there_are_takes_no_memory_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody else's number, of as many digits as they like: the first that is missing tells."""
    topic = Topic()
    claim(topic).write(BEGUN)
    (head,) = topic.values.values()
    head["parts"] = 100_000
    tracemalloc.start()
    with pytest.raises(NeedsOperator, match="cannot be read"):
        topic.read(monkeypatch)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 1 << 20


@given(offsets=st.none() | st.dictionaries(st.binary(max_size=20), st.none() | st.binary(max_size=20)))
def test_a_run_survives_its_records(offsets: dict[bytes, bytes | None] | None) -> None:
    """Byte for byte, in as many portions as it takes; before the snapshot there are no offsets, not none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runrecords, "_PART_BYTES", 50)
        topic = Topic()
        written = replace(BEGUN, offsets=offsets, end_offsets={0: 5}).with_step("stop")
        written = written.with_destination({1: 7}, UUID(int=3))
        claim(topic).write(written)
        assert topic.read(patch) == without_hash(written)


@pytest.mark.parametrize("group", ["my group", "my/group", "ä" * 100, "g" * 255])
def test_every_group_has_a_topic_of_its_own(group: str) -> None:
    """Groups are named with anything; topics are not."""
    assert runs_topic("my.group-1") == "__onceover.connect.my.group-1.runs"
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", runs_topic(group))
    assert runs_topic(group) != runs_topic(f"{group}x") != runs_topic("my_group")


def test_neither_a_configuration_nor_its_hash_is_written() -> None:
    """A weak password could be guessed from a hash and its salt."""
    topic = Topic()
    claim(topic).write(BEGUN)
    text = json.dumps(topic.values)
    assert "hunter2" not in text
    assert BEGUN.salt not in text
    assert BEGUN.config_hash not in text


def test_offsets_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the steps behind them go on naming them."""
    topic = Topic()
    run = replace(BEGUN, offsets={b"k": b"v"})
    held = claim(topic)
    held.write(BEGUN)
    held.write(run)
    held.write(run.with_step("copy"))
    assert [len(keys) for keys in topic.written] == [1, 2, 1]
    assert topic.values['["c", "migrate"]']["parts"] == 1
    found = topic.read(monkeypatch)
    assert found is not None and found.values == {b"k": b"v"}


def test_offsets_are_written_again_where_the_topic_was_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head without them is a run that nobody can read."""
    topic = Topic()
    run = replace(BEGUN, offsets={b"k": b"v"})
    held = claim(topic)
    held.write(run)
    topic.values.clear()
    topic.id = UUID(int=2)
    held.write(run.with_step("finish", finished=True))
    found = topic.read(monkeypatch)
    assert found is not None and found.values == {b"k": b"v"}
    held.write(run.with_step("more"))
    assert [len(keys) for keys in topic.written] == [2, 2, 1]


def test_offsets_of_another_run_are_no_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said with where it is and what resolves it."""
    topic = Topic()
    claim(topic).write(replace(BEGUN, offsets={b"k": b"v"}))
    topic.values['["c", "migrate", 0]']["begun_ms"] += 1
    with pytest.raises(NeedsOperator, match="another run's") as found:
        topic.read(monkeypatch)
    assert found.value.code == "MANIFEST_DAMAGED"
    assert "__onceover.connect.g.runs" in (found.value.where or "")


@pytest.mark.parametrize("landed", [[True], [False], [False, True, False]])
def test_run_is_written_again_where_a_broker_was_away(
    monkeypatch: pytest.MonkeyPatch, landed: list[bool]
) -> None:
    """Whether an attempt came about, nobody has heard: either is its own."""
    topic = Topic()
    held = claim(topic)
    held.write(BEGUN)
    topic.away = list(landed)
    run = replace(BEGUN, offsets={b"k": b"v"}).with_step("stop").with_given(7)
    held.write(run)
    assert topic.read(monkeypatch) == without_hash(run)
    assert topic.closed == len(landed)
    fenced = run.with_step("fence")
    held.write(fenced)
    assert topic.read(monkeypatch) == without_hash(fenced)


@pytest.mark.parametrize("landed", [[True, False], [False, False], [False, True]])
def test_broker_that_stays_away_ends_one_write_and_not_the_claim(
    landed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one begins with another producer."""
    topic = Topic()
    held = claim(topic)
    held.write(BEGUN)
    topic.away = list(landed)
    stopped = BEGUN.with_step("stop")
    monkeypatch.setattr(runrecords, "_WRITTEN_S", 0.0)
    for _ in landed:
        with pytest.raises(Retriable):
            held.write(stopped)
    held.write(stopped)
    assert topic.read(monkeypatch) == without_hash(stopped)
    held.close()


def test_run_that_somebody_has_overtaken_while_a_broker_was_away_takes_nothing_back() -> None:
    """What the other one wrote is not its own, in whichever kind of run."""
    topic = Topic()
    held = claim(topic)
    held.write(BEGUN)
    topic.away = [False]
    topic.values['["c", "downgrade-hard"]'] = {"begun_ms": 1}
    with pytest.raises(Fenced):
        held.write(BEGUN.with_step("stop"))
    assert "stop" not in str(topic.values['["c", "migrate"]'])
