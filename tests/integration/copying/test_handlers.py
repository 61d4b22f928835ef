"""Handlers on real brokers: their output is there exactly once, whatever kills the copy (docs/handlers.md).

What the target has to hold is computed from the source by an ordinary consumer and the handler's meaning
written down once more; nothing of the copy is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from onceover.errors import UsageError
from onceover.model import TopicPartition
from onceover.state.steps import Step
from onceover.wire.offsetmap import MapRecord
from onceover.wiring.flows import open_clusters
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.handled import HandledCase, handler_keys, read_all
from tests.support.flows.replica import Replica
from tests.support.raw.rawkafka import RawRecord
from tests.support.session.wait import wait_until
from tests.unit.handlers import samples

FORMS = ["spread", "spread_batch"]
# Both share everything but the reading of records, which unit tests compare; whole batches in each run.
QUICK = [pytest.param("spread", marks=pytest.mark.soak), "spread_batch"]
COMMIT_STEPS = [step for step in Step if step.name.startswith(("DATA", "MAP", "PROGRESS", "COMMIT"))]
T0_MS = 1_704_067_200_000
Capture = pytest.CaptureFixture[str]
Cases = Callable[..., HandledCase]


@pytest.fixture
def cases(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[Cases]:
    made: list[HandledCase] = []

    def make(form: str, **changes: Any) -> HandledCase:
        made.append(HandledCase(tmp_path, unique_name, source_cluster, target_cluster, form, **changes))
        return made[-1]

    yield make
    for case in made:
        case.close()


@pytest.mark.parametrize("form", QUICK)
def test_output_is_there_once_in_order_and_the_map_says_where(cases: Cases, form: str) -> None:
    """Zero, one and two records for one, over more partitions than the source has, in two runs."""
    case = cases(form)
    records = case.copy()
    case.feed()
    records += case.copy()
    assert case.held() == case.expected()
    check_map(case, records)


def check_map(case: HandledCase, records: list[MapRecord]) -> None:
    """Every record on the target is in the map, once, with the offsets of both sides."""
    source = read_all(case.source, case.topic, 3)
    target = read_all(case.target, case.topic, 5)
    mapped = [
        (r.source.partition, segment.source + n, r.target.partition, segment.target + n)
        for r in records
        for segment in r.segments
        for n in range(segment.count)
    ]
    for number, offset, at, there in mapped:
        assert source[number][offset].timestamp_ms == target[at][there].timestamp_ms
    places = [(at, there) for _, _, at, there in mapped]
    assert sorted(places) == sorted((p, offset) for p, seen in target.items() for offset in seen)
    own = sorted((r.source, r.source_start, r.source_end) for r in records if r.source == r.target)
    for number in range(3):
        ranges = [(start, end) for tp, start, end in own if tp.partition == number]
        assert ranges[0][0] == 0 and all(a[1] == b[0] for a, b in pairwise(ranges))


@pytest.mark.parametrize(
    ("form", "step", "count"),
    [
        pytest.param("spread", Step.MAP_SENT, 2, marks=pytest.mark.soak),
        ("spread_batch", Step.COMMIT, 2),
    ],
)
def test_killed_in_the_middle_nothing_is_lost_or_repeated(
    cases: Cases, form: str, step: Step, count: int
) -> None:
    """The output is in the same transaction as the position."""
    case = cases(form)
    case.kill(step, count)
    case.feed()
    case.copy()
    assert case.held() == case.expected()


@pytest.mark.soak
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("step", COMMIT_STEPS, ids=lambda step: step.name)
@pytest.mark.parametrize("form", FORMS)
def test_killed_at_every_step(cases: Cases, form: str, step: Step, count: int) -> None:
    """The whole matrix of the commit's steps."""
    case = cases(form)
    for _ in range(count):
        case.feed()
    case.kill(step, count)
    case.copy()
    assert case.held() == case.expected()


@pytest.mark.soak
@pytest.mark.parametrize("form", QUICK)
def test_output_of_an_at_least_once_flow_that_nothing_disturbs(cases: Cases, form: str) -> None:
    """Undisturbed there are no repeats, and the map says where everything is."""
    case = cases(form, delivery="at_least_once")
    records = case.copy()
    case.feed()
    records += case.copy()
    assert case.held() == case.expected()
    check_map(case, records)


def test_repartition_places_keys_as_other_clients_do(replica: Replica) -> None:
    """Beside a producer of librdkafka with Kafka's default partitioner, on a topic of the same size."""
    replica.configure(handler="onceover.handlers.rekey:Repartition", handler_args={"partitions": 6})
    topic = replica.topic("a", 3)
    keys = [b"key-%d" % number for number in range(60)]
    for number, key in enumerate(keys):
        record = RawRecord(key, b"v", (), T0_MS + number)
        replica.source.plain(topic, number % 3, [record, record._replace(key=None)])
    replica.copy()
    other = f"{replica.name}-other"
    replica.target_topic(other, 6)
    producer = Producer({**replica.target_client, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(other, b"v", key)
    producer.flush(30)
    expected, seen = (read_all(replica.target_client, name, 6) for name in (other, topic))
    for number in range(6):
        theirs = {record.key for record in expected[number].values()}
        ours = {record.key for record in seen[number].values()}
        # A null key keeps the number of its source partition.
        assert ours == theirs | ({None} if number < 3 else set())
    assert sum(map(len, seen.values())) == 120


@pytest.mark.soak
def test_growth_of_the_source_grows_what_the_handler_wants(replica: Replica) -> None:
    """While it runs: the wider target is there before the first record of the new partition is handled."""
    replica.configure(**handler_keys("Doubled"))
    topic = replica.topic("a", 1)
    replica.source.plain(topic, 0, [values(0, set())])
    with replica.running():
        replica.source.add_partitions(topic, 2)
        replica.source.plain(topic, 1, [values(1, set())])
        wait_until(
            lambda: sum(p["position"] or 0 for p in replica.flow.status()["partitions"]) == 2,
            30,
            "both partitions are copied",
            poll_s=0.2,
        )
    held = read_all(replica.target_client, topic, 4)
    assert {number: len(records) for number, records in held.items()} == {0: 0, 1: 1, 2: 0, 3: 1}


def failing(form: str) -> dict[str, Any]:
    """Return the keys of a flow whose handler fails on values that begin with ``bad``."""
    return handler_keys(form, partitions=5, bad="bad")


def values(offset: int, bad: set[int]) -> RawRecord:
    value = b"bad" if offset in bad else b"good"
    return RawRecord(b"k", value, ((b"h", b"1"),), T0_MS + offset)


@pytest.mark.parametrize("form", QUICK)
def test_handler_error_stops_the_partition_there(replica: Replica, form: str, capsys: Capture) -> None:
    """What comes before it is copied, the other topic goes on; skipping the record resolves it."""
    replica.configure(**failing(form))
    topic, other = replica.topic("a"), replica.topic("b")
    replica.source.plain(topic, 0, [values(offset, {4, 6}) for offset in range(9)])
    replica.source.plain(other, 0, [values(offset, set()) for offset in range(9)])
    replica.copy()
    assert copied_offsets(replica, other) == expected_offsets(range(9))
    assert copied_offsets(replica, topic) == expected_offsets(range(4))
    stop = replica.stop_of(topic)
    assert stop["code"] == "HANDLER_FAILED" and "source offset 4" in stop["message"]
    assert "ValueError at samples.py:" in stop["seen"]
    assert samples.SECRET.decode() not in str(stop)
    flow = str(replica.flow.path)
    for offset in (5, 7):
        code, _ = replica.command(capsys, "partition", "skip-to", flow, f"{topic}:0", str(offset), "--apply")
        assert code == 0
        replica.copy()
    assert copied_offsets(replica, topic) == expected_offsets(set(range(9)) - {4, 6})


def expected_offsets(kept: Any) -> list[int]:
    return sorted(offset for offset in kept for _ in range(offset % 3))


def copied_offsets(replica: Replica, topic: str) -> list[int]:
    """Return which source offsets the records on the target come from, by their timestamps."""
    records = read_all(replica.target_client, topic, 5)
    return sorted(s.timestamp_ms - T0_MS for seen in records.values() for s in seen.values())


@pytest.mark.parametrize("form", QUICK)
def test_dead_letter_takes_what_the_handler_fails_on(replica: Replica, form: str) -> None:
    """As it was on the source, with the reason and the place in headers; everything else is copied."""
    letters = f"{replica.name}-letters"
    replica.configure(**failing(form), on_bad_record=f"dead_letter:{letters}")
    topic = replica.topic("a", 2)
    for partition in (0, 1):
        replica.source.plain(topic, partition, [values(offset, {0, 4, 5}) for offset in range(9)])
    outcome = replica.copy()
    assert copied_offsets(replica, topic) == sorted(2 * expected_offsets(set(range(9)) - {0, 4, 5}))
    found = list(replica.target_records(letters).values())
    assert [(s.key, s.value) for s in found] == [(b"k", b"bad")] * 6
    headers = [dict(seen.headers) for seen in found]
    source, _ = open_clusters(replica.flow.watch.flow)
    with source:
        topic_id = str(source.topics([topic])[topic].topic_id)
    names = ("onceover.source.partition", "onceover.source.offset", "onceover.source.timestamp")
    places = sorted(tuple(header[name] or b"" for name in names) for header in headers)
    assert places == [(b"%d" % p, b"%d" % o, b"%d" % (T0_MS + o)) for p in (0, 1) for o in (0, 4, 5)]
    for header in headers:
        assert header["h"] == b"1"
        assert header["onceover.error.code"] == b"HANDLER_FAILED"
        assert (header["onceover.error.message"] or b"").startswith(b"ValueError at samples.py:")
        assert samples.SECRET not in (header["onceover.error.message"] or b"")
        assert header["onceover.flow"] == replica.name.encode()
        assert header["onceover.source.cluster"] == b"east"
        assert header["onceover.source.topic"] == topic.encode()
        assert header["onceover.source.topic.id"] == topic_id.encode()
    assert not replica.stop_of(topic, 0) and not replica.stop_of(topic, 1)
    kept = [r for r in outcome.receipts if r.target.topic == letters]
    assert sum(r.records for r in kept) == 6 and {r.source.partition for r in kept} == {0, 1}


REFUSED = {
    "RECORD_TOO_LARGE": (
        {"max.message.bytes": "50000"},
        RawRecord(b"k", bytes(60_000), (), T0_MS),
    ),
    "timestamp": (
        {"message.timestamp.after.max.ms": "1000"},
        RawRecord(b"k", b"late", (), 33_000_000_000_000),
    ),
    "null key": ({"cleanup.policy": "compact"}, RawRecord(None, b"v", (), T0_MS)),
}


# Without a handler every kind, and one kind under every form; what is left of the square: soak.
DIVERTED = [(kind, "") for kind in REFUSED] + [("RECORD_TOO_LARGE", form) for form in FORMS]
OTHERS = [(kind, form) for kind in REFUSED for form in FORMS if kind != "RECORD_TOO_LARGE"]


@pytest.mark.parametrize(
    ("kind", "form"), [*DIVERTED, *(pytest.param(*other, marks=pytest.mark.soak) for other in OTHERS)]
)
def test_dead_letter_takes_what_the_target_refuses(replica: Replica, kind: str, form: str) -> None:
    """Too large, a refused timestamp, no key for a compacted topic: the others of the batch are copied."""
    letters = f"{replica.name}-letters"
    keys = handler_keys(form, partitions=1) if form else {}
    replica.configure(**keys, on_bad_record=f"dead_letter:{letters}", topics={"sync_configs": False})
    config, bad = REFUSED[kind]
    topic = replica.topic("a", 1, {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    replica.target_topic(topic, 5 if form else 1, config)
    good = [RawRecord(b"k", b"good", (), T0_MS + n) for n in range(7)]
    # Under the sample handlers offset 2 becomes two records: it is diverted whole, once.
    replica.source.plain(topic, 0, [*good[:2], bad, *good[2:6], bad, *good[6:]])
    replica.source.plain(topic, 0, good)
    replica.copy()
    assert not replica.stop_of(topic)
    found = list(replica.target_records(letters).values())
    # Offset 7 becomes one record under the sample handlers.
    assert [dict(letter.headers)["onceover.source.offset"] for letter in found] == [b"2", b"7"]
    assert {(letter.key, letter.value) for letter in found} == {(bad.key, bad.value)}
    expected = "RECORD_TOO_LARGE" if kind == "RECORD_TOO_LARGE" else "RECORD_REFUSED"
    assert {dict(letter.headers)["onceover.error.code"] for letter in found} == {expected.encode()}
    copied = read_all(replica.target_client, topic, 5 if form else 1)
    assert sum(map(len, copied.values())) == (14 if not form else sum(o % 3 for o in range(16)) - 3)
    assert all(seen.value == b"good" for records in copied.values() for seen in records.values())


def test_dead_letter_that_refuses_as_well_stops_the_partition(replica: Replica) -> None:
    """Nothing is dropped: the position stays at the record."""
    letters = f"{replica.name}-letters"
    replica.configure(on_bad_record=f"dead_letter:{letters}", topics={"sync_configs": False})
    topic = replica.topic("a")
    for name in (topic, letters):
        replica.target_topic(name, 1, {"max.message.bytes": "50000"})
    good = RawRecord(b"k", b"good", (), T0_MS)
    replica.source.plain(topic, 0, [good, good, RawRecord(b"k", bytes(60_000), (), T0_MS), good])
    replica.copy()
    stop = replica.stop_of(topic)
    assert stop["code"] == "DEAD_LETTER_REFUSED" and "offset 2" in stop["message"]
    assert len(replica.target_records(topic)) == 2 and not replica.target_records(letters)


def test_handler_that_wants_fewer_partitions_is_refused(replica: Replica) -> None:
    """Progress is kept per target partition of the same number."""
    replica.configure(**handler_keys("Wider", partitions=2))
    topic = replica.topic("a", 3)
    with replica.flow.running() as (lead, _):
        [refusal] = lead.refused
    assert (refusal.object, refusal.code) == (topic, "TARGET_PARTITIONS")
    assert "seen: 2" in refusal.message


def test_handler_that_cannot_be_loaded_ends_the_start(replica: Replica) -> None:
    """Before anything is fenced or created; exit code 2."""
    replica.configure(handler="no_such_module_anywhere:f")
    replica.topic("a")
    with pytest.raises(UsageError, match="there is no module no_such_module_anywhere"):
        replica.copy()


def test_listener_hears_of_partitions_after_they_came_and_when_the_task_ends(replica: Replica) -> None:
    """KIP-3: once for what a lane gains, once for what it loses."""
    samples.Wider.told.clear()
    replica.configure(**handler_keys("Wider", partitions=4))
    topic = replica.topic("a", 3)
    for partition in range(3):
        replica.source.plain(topic, partition, [values(0, set())])
    replica.copy()
    for what in ("gained", "lost"):
        told = [tp for kind, partitions in samples.Wider.told if kind == what for tp in partitions]
        assert sorted(told) == [TopicPartition(topic, partition) for partition in range(3)]
    assert len(replica.target_records(topic, 3)) == 3


def test_listener_that_fails_stops_the_partitions_it_was_told_of(replica: Replica) -> None:
    """Its exception is a handler error; type and place are shown, its text is not."""
    replica.configure(**handler_keys("Wider", partitions=1, fail_on="gained"))
    topic = replica.topic("a")
    replica.source.plain(topic, 0, [values(0, set())])
    assert replica.copy().records == 0
    stop = replica.stop_of(topic)
    assert stop["code"] == "HANDLER_FAILED" and "partitions_gained" in stop["message"]
    assert stop["seen"].startswith("RuntimeError at samples.py:")


def test_sample_shows_what_the_handler_would_do_and_writes_nothing(replica: Replica, capsys: Capture) -> None:
    """Live records of the source, markers and aborted ones aside; exit code 1 when one of them fails."""
    replica.configure(**failing("spread_batch"))
    topic = replica.topic("a", 2)
    for partition in (0, 1):
        replica.source.plain(topic, partition, [values(offset, {4}) for offset in range(9)])
        replica.source.interleaved(topic, partition)
    flow = str(replica.write_flow())
    code, document = replica.command(capsys, "flow", "check", flow, "--sample", "100")
    counted = document["sample"]
    assert code == 1 and counted["failed"] == 2
    assert counted["records"] == sum(map(len, read_all(replica.source_client, topic, 2).values()))
    assert counted["changed"] and counted["removed"] and counted["multiplied"]
    assert "good" not in str(document) and samples.SECRET.decode() not in str(document)
    assert topic not in AdminClient(replica.target_client).list_topics(timeout=30).topics
    code, document = replica.command(capsys, "flow", "check", flow, "--sample", "5")
    assert code in (0, 1) and document["sample"]["records"] <= 5
