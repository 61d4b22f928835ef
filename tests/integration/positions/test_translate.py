"""Every offset is translated exactly, both ways, also while old map records are merged (G7).

Expected answers come from reading both logs with ordinary clients, which know nothing of the map.
"""

from __future__ import annotations

import logging
import runpy
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from onceover.config.home import HOME_VARIABLE
from onceover.errors import Fenced, MustReset, UsageError
from onceover.kafka import calls
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.positions.index import FOLDER, read_map
from onceover.positions.merge import MapUpkeep, MergeRules
from onceover.positions.translate import Translator
from onceover.state import names
from onceover.state.steps import Step
from onceover.wire.offsetlookup import NotCovered, Translated
from onceover.wiring.flows import open_clusters
from tests.support.commands.firstflow import blocks
from tests.support.commands.newcomer import PROJECT
from tests.support.flows.merging import SMALL, merge, merge_killed_at, merger
from tests.support.flows.replica import Replica, delete_topics
from tests.support.raw.adversary import Traffic
from tests.support.session.wait import wait_until

# Two rounds of ``nasty`` fit into one record at least, and never all, however few transactions they came in.
ROUNDS = replace(SMALL, max_segments=24)


@contextmanager
def target_of(replica: Replica) -> Iterator[Cluster]:
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        yield target


@contextmanager
def translator(replica: Replica, home: Path | None) -> Iterator[Translator]:
    with target_of(replica) as target, Translator(target, replica.name, home) as made:
        yield made


def nasty(replica: Replica, *, rounds: int = 6) -> TopicPartition:
    """Copy interleaved and aborted transactions in several of our own, with markers at both ends."""
    tp = TopicPartition(replica.topic(), 0)
    with replica.running():
        for _ in range(rounds):
            replica.source.interleaved(tp.topic, 0)
            replica.source.tiny_batches(tp.topic, 0, 3)
            wait_until(lambda: not replica.partition_status(tp.topic)["lag_offsets"], 30, "it is copied")
    last = replica.source.transaction(tp.topic)
    last.send(0, replica.source.records(3))
    last.abort()
    replica.copy()
    return tp


def check(replica: Replica, made: Translator, tp: TopicPartition) -> None:
    """Compare every offset both ways, to the very ends of both logs, with what the logs say."""
    source, target = list(replica.source_records(tp.topic)), list(replica.target_records(tp.topic))
    position = replica.partition_status(tp.topic)["position"]
    for offset in range(position + 1):
        index = bisect_left(source, offset)
        assert made.to_target(tp, offset) == Translated(target[index - 1] + 1 if index else 0), offset
    assert made.to_target(tp, position + 1) == NotCovered(0, position)
    with target_of(replica) as cluster:
        end = cluster.list_offsets([tp], calls.LATEST)[tp]
    for offset in range(end + 1):
        index = bisect_left(target, offset)
        assert made.to_source(tp, offset) == Translated(source[index - 1] + 1 if index else 0), offset
    beyond = made.to_source(tp, end + 1)
    assert isinstance(beyond, NotCovered)
    assert "does not reach it" in beyond.why


def map_records(replica: Replica) -> int:
    """How many records the map has, each key once."""
    with target_of(replica) as target:
        return sum(len(portion) for portion in read_map(target, replica.name))


def grow_map(replica: Replica, records: int) -> None:
    """Wait until the map has grown by so many: enough for a merge to die in its second transaction."""
    wanted = map_records(replica) + records
    wait_until(lambda: map_records(replica) >= wanted, 60, "the map grows", poll_s=0.1)


def test_the_program_that_the_page_shows_translates(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/positions.md: somebody pastes it and writes their own flow, partition and offsets into it."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    topic = replica.topic()
    replica.source.tiny_batches(topic, 0, 5)
    replica.copy()
    [program] = blocks((PROJECT / "docs" / "positions.md").read_text(), "python")
    for shown, own in (
        ('"flights-dr"', repr(str(replica.flow.path))),
        ('"flights.jfk", 3', f'"{topic}", 0'),
        ("8812", "3"),
        ("8790", "2"),
    ):
        assert program.count(shown) == 1
        program = program.replace(shown, own)
    (tmp_path / "program.py").write_text(program)
    found = runpy.run_path(str(tmp_path / "program.py"))
    assert (found["there"], found["back"]) == (Translated(3), Translated(2))
    assert found["pairs"] == [TopicPartition(topic, 0)]


def test_every_offset_translates_both_ways_also_from_a_kept_index_and_after_a_merge(
    replica: Replica, tmp_path: Path
) -> None:
    tp = nasty(replica)
    home = tmp_path / "home"
    for _ in range(2):
        with translator(replica, home) as made:
            check(replica, made, tp)
    before = map_records(replica)
    removed = merge(replica.flow.path, ROUNDS)
    assert removed > 0
    assert map_records(replica) == before - removed
    for place in (home, None):
        with translator(replica, place) as made:
            check(replica, made, tp)
    assert merge(replica.flow.path, ROUNDS) == 0
    replica.copy()
    with translator(replica, home) as made:
        check(replica, made, tp)


@pytest.mark.soak
def test_a_merge_killed_beside_a_running_flow_changes_no_answer(replica: Replica, tmp_path: Path) -> None:
    """kill -9 with merged records written, and just after their commit; the flow goes on meanwhile."""
    tp, home = TopicPartition(replica.topic(), 0), tmp_path / "home"
    replica.configure(transaction={"max_interval": "20ms"})
    with replica.running(), Traffic(replica.source.bootstrap, {tp.topic: 1}, seed=3, pause_s=0.01):
        with translator(replica, home) as made:
            for step in (Step.MERGE_SENT, Step.MERGE_COMMITTED):
                grow_map(replica, 40)
                merge_killed_at(replica.flow.path, tmp_path / f"{step.name}.log", step)
                made.refresh()
                assert isinstance(made.to_target(tp, 0), Translated)
        assert merge(replica.flow.path) > 0
    replica.copy()
    with translator(replica, home) as made:
        check(replica, made, tp)


def test_a_running_flow_merges_by_itself(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its driver does it between other things; here more often than once an hour, and at once."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(MergeRules, "for_retention", lambda _retention_ms: SMALL)
    often = partial(MapUpkeep, first_s=0.0, interval_s=0.2)
    monkeypatch.setattr("onceover.lead.supervisor.MapUpkeep", often)
    caplog.set_level(logging.INFO)
    tp = TopicPartition(replica.topic(), 0)
    with replica.running() as live:

        def merged() -> bool:
            replica.source.tiny_batches(tp.topic, 0, 1)
            return "merged into others" in caplog.text

        wait_until(merged, 30, "the driver merges", poll_s=0.1)
    assert map_records(replica) < sum(receipt.source == tp for receipt in live.receipts)
    with translator(replica, tmp_path / replica.name) as made:
        check(replica, made, tp)


def test_a_new_generation_fences_a_merge(replica: Replica) -> None:
    """Between two of its transactions, and before it has taken its id."""
    tp = nasty(replica, rounds=12)
    path = replica.flow.path
    with merger(path, rules=ROUNDS) as late, merger(path, rules=ROUNDS) as first:
        steps = first.steps()
        assert next(count for count in steps if count)
        replica.flow.copy()
        with pytest.raises(MustReset):
            next(steps)
        with pytest.raises(Fenced):
            list(late.steps())
    replica.copy()
    with translator(replica, None) as made:
        check(replica, made, tp)


@pytest.mark.soak
def test_a_merge_after_going_back_leaves_the_newer_copies(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """skip-to backwards copies again under keys that older records have: none of the new ones is lost."""
    tp = nasty(replica)
    merge(replica.flow.path)
    code, _ = replica.command(
        capsys, "partition", "skip-to", str(replica.flow.path), f"{tp.topic}:0", "20", "--apply"
    )
    assert code == 0
    replica.copy(seconds=0.2)
    merge(replica.flow.path)
    replica.copy()
    merge(replica.flow.path)
    source, target = replica.source_records(tp.topic), replica.target_records(tp.topic)
    where = {seen: offset for offset, seen in target.items()}
    copied = [(offset, where[seen]) for offset, seen in source.items() if offset >= 20]
    with translator(replica, None) as made:
        for (last, last_there), (offset, there) in pairwise(copied):
            assert made.to_target(tp, offset) == Translated(last_there + 1)
            assert made.to_source(tp, there) == Translated(last + 1)


def test_the_command_answers_or_says_what_is_covered(
    replica: Replica, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))
    tp = nasty(replica, rounds=1)
    flow, topic = str(replica.flow.path), tp.topic
    position = replica.partition_status(topic)["position"]
    code, found = replica.command(capsys, "translate", flow, f"{topic}:0", "0", str(position + 5))
    assert code == 0
    assert [(a["offset"], a["covered"]) for a in found["answers"]] == [(0, True), (position + 5, False)]
    assert found["answers"][0]["translated"] == 0
    assert (found["answers"][1]["covered_from"], found["answers"][1]["covered_to"]) == (0, position)
    assert list((tmp_path / "var" / replica.name / FOLDER).iterdir())
    last, before = list(replica.target_records(topic))[-1], list(replica.source_records(topic))[-2]
    code, found = replica.command(capsys, "translate", flow, f"{topic}:0", str(last), "--to", "source")
    assert (code, found["answers"][0]["translated"]) == (0, before + 1)
    for arguments, wanted in (
        ((f"{topic}:7", "0"), "a partition from 0 to 0"),
        (("nothing:0", "0"), topic),
        ((f"{topic}:0", "-1"), "0 or more"),
    ):
        code, failed = replica.command(capsys, "translate", flow, "--to", "source", *arguments)
        assert (code, wanted in failed["error"]["expected"]) == (2, True)


def test_what_nothing_was_copied_from_is_translated_where_the_copy_stands(replica: Replica) -> None:
    """It is empty on both sides, or holds markers alone: the next record will be written there."""
    topics = [replica.topic("empty"), replica.topic("marked")]
    transaction = replica.source.transaction(topics[1])
    transaction.send(0, replica.source.records(3))
    transaction.abort()
    replica.copy()
    with translator(replica, None) as made:
        for topic in topics:
            tp, position = TopicPartition(topic, 0), replica.partition_status(topic)["position"]
            assert position == (4 if topic == topics[1] else 0)
            assert made.to_target(tp, position) == Translated(0)
            # The smallest one: there is nothing but markers between it and the position.
            assert made.to_source(tp, 0) == Translated(0)
            assert isinstance(made.to_target(tp, position + 1), NotCovered)
            assert isinstance(made.to_source(tp, 1), NotCovered)
        for topic in topics:
            replica.source.plain(topic, 0, replica.source.records(2))
        replica.copy()
        made.refresh()
        for topic in topics:
            tp, (first, *_) = TopicPartition(topic, 0), replica.source_records(topic)
            assert made.to_target(tp, first) == Translated(next(iter(replica.target_records(topic))))


def test_receipts_add_up_after_a_merge(
    replica: Replica, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merged record and the parts it replaced are not counted twice."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))
    tp = nasty(replica)
    removed = merge(replica.flow.path, ROUNDS)
    code, made = replica.command(capsys, "receipts", "rebuild", str(replica.flow.path))
    assert (code, made["records"]) == (0, len(replica.target_records(tp.topic)))
    assert removed > 0


def test_receipts_are_not_made_anew_under_a_run_that_writes_them(
    replica: Replica, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's query ends once the folder that it writes to is gone."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(3))
    own = tmp_path / "var" / replica.flow.name / "receipts" / "00000001-a"
    own.mkdir(parents=True)
    with replica.running():
        wait_until(lambda: len(replica.target_records(topic)) == 3, 60.0, "it copies", poll_s=0.1)
        code, document = replica.command(capsys, "receipts", "rebuild", str(replica.flow.path))
    assert (code, own.is_dir()) == (2, True)
    assert "onceover stop" in document["error"]["resolve"]
    code, document = replica.command(capsys, "receipts", "rebuild", str(replica.flow.path))
    assert (code, document["records"], own.exists()) == (0, 3, False)


@pytest.mark.soak
def test_a_target_topic_that_was_made_anew_is_not_covered(replica: Replica) -> None:
    """What the map says is about another topic of the same name."""
    tp = nasty(replica, rounds=1)
    delete_topics(replica.target_client, [tp.topic])
    replica.target_topic(tp.topic)
    with translator(replica, None) as made:
        found = made.to_target(tp, 0)
        assert isinstance(found, NotCovered)
        assert "created anew" in found.why


def test_a_reseed_into_a_new_topic_voids_what_was_known(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the new topic held records already, so that no newer offset contradicts the old ones."""
    tp = nasty(replica, rounds=1)
    delete_topics(replica.target_client, [tp.topic])
    replica.target_topic(tp.topic)
    replica.target.plain(tp.topic, 0, replica.target.records(60))
    admin, at = AdminClient(replica.source_client), KafkaPartition(tp.topic, 0, 10)
    admin.delete_records([at])[at].result(30)
    code, _ = replica.command(
        capsys, "partition", "reseed", str(replica.flow.path), f"{tp.topic}:0", "--apply"
    )
    assert code == 0
    replica.copy()
    with translator(replica, None) as made:
        position = replica.partition_status(tp.topic)["position"]
        assert made.to_target(tp, 5) == NotCovered(10, position)
        assert made.to_target(tp, 10) == Translated(60)
        assert isinstance(made.to_source(tp, 5), NotCovered)


def test_each_partition_that_a_handler_wrote_to_has_an_answer_of_its_own(replica: Replica) -> None:
    """Two source partitions spread over six: everything from an offset on, in every one of them."""
    replica.configure(handler="onceover.handlers.rekey:Repartition", handler_args={"partitions": 6})
    topic = replica.topic(partitions=2)
    with replica.running():
        for batch in range(5):
            for partition in range(2):
                keys = [b"%d-%d-%d" % (partition, batch, number) for number in range(9)]
                records = [replica.source.record(key=key) for key in keys]
                replica.source.plain(topic, partition, records)
            wait_until(lambda: not lag(replica), 30, "it is copied")
    merge(replica.flow.path)
    with translator(replica, None) as made:
        for partition in range(2):
            check_pairs(replica, made, TopicPartition(topic, partition))
        assert set(made.sources_of(TopicPartition(topic, 5))) == {TopicPartition(topic, p) for p in range(2)}


def lag(replica: Replica) -> int:
    return sum(p["lag_offsets"] for p in replica.flow.status()["partitions"])


def check_pairs(replica: Replica, made: Translator, source: TopicPartition) -> None:
    """Compare each pair with the records, which are told apart by their keys."""
    keys = {seen.key: offset for offset, seen in replica.source_records(*source).items()}
    own, *others = made.targets_of(source)
    assert own == source
    assert len(others) >= 3
    for target in (own, *others):
        there = replica.target_records(*target).items()
        pairs = [(keys[seen.key], offset) for offset, seen in there if seen.key in keys]
        for offset in range(len(keys) + 1):
            before = [end + 1 for here, end in pairs if here < offset]
            found = made.to_target(source, offset, target=target)
            assert isinstance(found, Translated)
            # Before the first record, any offset up to it: nothing of the source partition is skipped.
            lowest, highest = (before[-1], before[-1]) if before else (0, pairs[0][1])
            assert lowest <= found.offset <= highest, (target, offset)
        for here, offset in pairs:
            back = made.to_source(target, offset, source=source)
            assert isinstance(back, Translated)
            # From there to this record nothing of the source partition went to this target partition.
            assert not [o for o, _ in pairs if back.offset <= o < here]
            assert back.offset <= here


@pytest.mark.soak
def test_a_map_topic_that_was_made_anew_is_read_anew(replica: Replica, tmp_path: Path) -> None:
    """The index of the old one is not believed any more."""
    tp = nasty(replica, rounds=1)
    with translator(replica, tmp_path) as made:
        assert isinstance(made.to_target(tp, 0), Translated)
    delete_topics(replica.target_client, [names.map_topic(replica.name)])
    replica.source.tiny_batches(tp.topic, 0, 3)
    replica.copy()
    with translator(replica, tmp_path) as made:
        assert isinstance(made.to_target(tp, 0), NotCovered)
        position = replica.partition_status(tp.topic)["position"]
        assert isinstance(made.to_target(tp, position), Translated)
    assert len(list((tmp_path / FOLDER).iterdir())) == 1


def test_a_flow_that_never_ran_is_named(replica: Replica) -> None:
    """Not "not covered": there is nothing to ask."""
    with translator(replica, None) as made, pytest.raises(UsageError, match="has never been started"):
        made.to_target(TopicPartition("t", 0), 0)
