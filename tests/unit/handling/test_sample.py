"""What a sample says about each record, and what it never shows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from onceover.errors import NotNow
from onceover.handlers import calling
from onceover.handlers.load import load_handler
from onceover.handling.forms import handler_use
from onceover.handling.lanehandler import HandlerUse
from onceover.handling.sample import SampleOutcome, handled, sample
from onceover.handling.sampled import document, lines
from onceover.model import TopicPartition
from onceover.wire.batches.records import DecodedRecord
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.raw.mutations import Content
from tests.unit.handlers import samples
from tests.unit.handlers.test_forms import group_of
from tests.unit.kafka.logs.test_between import OneByOne
from tests.unit.wire.batches.test_records import compacted_batch

SOURCE = TopicPartition("t", 1)


def outcomes(name: str, records: list[DecodedRecord], **args: object) -> list[SampleOutcome]:
    handler = load_handler(f"tests.unit.handlers.samples:{name}", args, "f.yaml")
    form = handler_use(handler, "f", 1 << 20).form(SOURCE, 5)
    return list(handled(SOURCE, form, group_of(compacted_batch(records, 0)), 0))


def records(count: int, value: bytes = b"secret\x1b[2J") -> list[DecodedRecord]:
    return [DecodedRecord(offset, 5, b"k", value) for offset in range(count)]


def test_every_record_has_one_fate() -> None:
    """Offsets 0, 1, 2 become none, one and two records, the one in another form."""
    found = outcomes("spread", records(3), partitions=5)
    assert [o.kind for o in found] == ["removed", "changed", "multiplied"]
    assert found[1].fields == ("headers",)
    assert [o.kind for o in outcomes("same_batch", records(2))] == ["kept", "kept"]
    assert outcomes("Wider", records(1), partitions=5)[0].fields == ("partition",)


def test_failures_are_named_and_the_others_still_judged() -> None:
    """A failing record hides nothing behind it."""
    found = outcomes("spread", [*records(1, b"bad"), *records(2)[1:]], partitions=5, bad="bad")
    assert [o.kind for o in found] == ["failed", "changed"]
    assert found[0].failure is not None and samples.SECRET.decode() not in found[0].failure


@pytest.mark.parametrize("name", ["hanging", "hanging_batch"])
def test_a_record_that_the_handler_hangs_on_is_one_that_it_fails_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handed over alone, it is named; the others are judged as ever."""
    monkeypatch.setattr(calling, "LONGEST_S", 0.1)
    found = outcomes(name, [*records(2), *records(5, b"v7")[2:3], *records(5)[3:]])
    assert [(o.record.offset, o.kind) for o in found] == [
        (0, "kept"), (1, "kept"), (2, "failed"), (3, "kept"), (4, "kept"),
    ]  # fmt: skip
    assert found[2].failure == "it did not come back within 0.1 s"


def test_payload_is_for_the_terminal_only_and_printable() -> None:
    """Neither JSON nor a pipe holds any of it."""
    found = outcomes("spread", records(3), partitions=5)
    text = json.dumps(document(found))
    assert "secret" not in text and '"changed": 1' in text and '"written": 3' in text
    assert "secret" not in "".join(lines(found, payload=False))
    shown = "\n".join(lines(found, payload=True))
    assert "secret.[2J" in shown and "\x1b" not in shown
    assert "offset 1: changed (headers)" in shown


def test_examples_are_few_and_long_values_are_cut() -> None:
    """Three of each kind, sixty characters each."""
    found = outcomes("spread", records(300, b"x" * 500), partitions=5)
    examples = document(found)["examples"]
    assert len(examples) == 9
    assert all(len(line) < 260 for line in lines(found, payload=True))


def use_of(name: str, **args: object) -> HandlerUse:
    return handler_use(load_handler(f"tests.unit.handlers.samples:{name}", args, "f.yaml"), "f", 1 << 20)


def sampled(cluster: FakeCluster, count: int) -> list[tuple[int, int]]:
    """Return partition and offset of each record of a sample."""
    found = sample(cluster, list(cluster.topics().values()), count, use_of("same_batch"), _as_many)
    return [(outcome.source.partition, outcome.record.offset) for outcome in found]


def _as_many(count: int) -> int:
    return count


def test_the_handler_is_told_of_each_partition_as_a_lane_tells_it() -> None:
    """Before its first record, and at the end; what it does not take has failed, and the others have not."""
    cluster = FakeCluster("east")
    for log in cluster.make_topic("t", 3).logs:
        log.append([Content(b"k", b"v", (), 1)] * 2)
    topics = list(cluster.topics().values())
    found = sample(cluster, topics, 9, use_of("Tables", bad=1), _as_many)
    fates = ["changed", "failed", "changed"]
    assert [(o.source.partition, o.record.offset, o.kind) for o in found] == [
        (partition, offset, fates[partition]) for partition in range(3) for offset in range(2)
    ]
    assert found[2].failure is not None and found[2].failure.startswith(
        "partitions_gained of handler tests.unit.handlers.samples:Tables fails: LookupError at samples.py:"
    )
    samples.Wider.told.clear()
    sample(cluster, topics, 9, use_of("Wider", partitions=3), _as_many)
    parts = [TopicPartition("t", number) for number in range(3)]
    assert samples.Wider.told == [*(("gained", [tp]) for tp in parts), ("lost", parts)]


def test_a_sample_holds_the_newest_records_that_are_committed() -> None:
    """Spread over the partitions that hold some; no more than were asked for."""
    cluster = FakeCluster("east")
    cluster.make_topic("t", 3)
    cluster.all_topics["t"].logs[:2] = first, other = [OneByOne(), OneByOne()]
    for log in (first, other):
        for number in range(40):
            log.append([Content(b"k", str(number).encode(), (), 1)])
    first.append([Content(b"k", b"x", (), 1)], 7)
    first.decide(7, commit=False)
    other.append([Content(b"k", b"x", (), 1)], 8)
    assert sampled(cluster, 4) == [(0, 28), (0, 29), (1, 26), (1, 27)]
    assert sampled(cluster, 1) == [(0, 30)]
    assert cluster.log.count("Fetch/0") == 2 + 1
    assert [len([at for at in sampled(cluster, 30) if at[0] == p]) for p in range(3)] == [15, 15, 0]


def test_a_sample_of_less_than_all_partitions_is_none() -> None:
    """It would be said to be of all."""
    cluster = FakeCluster("east")
    for log in cluster.make_topic("t", 2).logs:
        log.append([Content(b"k", b"v", (), 1)])
    info = cluster.topics()["t"]
    led = {**info.partitions, 1: replace(info.partitions[1], leader=-1)}
    samples.Wider.told.clear()
    with pytest.raises(NotNow, match="t:1 has no leader"):
        sample(cluster, [replace(info, partitions=led)], 9, use_of("Wider", partitions=2), _as_many)
    assert [what for what, _ in samples.Wider.told] == ["gained", "gained", "lost"]
