"""What chaos writes down can be read again: histories by the checker, tallies as a table."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.checker import Fate, Place, Sent, Written
from tests.chaos.history import History, events, fates
from tests.chaos.rounds import ranges
from tests.chaos.table import merged, rows

from onceover.model import TopicPartition
from onceover.wire.offsetmap import MapRecord, encode_map_key, encode_map_value

P = Place("t", 1)


def test_a_history_tells_what_became_of_each_record(tmp_path: Path) -> None:
    """Also to another process: what was sent and never answered may be there."""
    history = History(tmp_path / "history.jsonl")
    history.sending(P, ["a", "b", "c"])
    history.became(Fate.COMMITTED, ["a"])
    history.became(Fate.ABORTED, ["b"])
    history.note("nemesis", name="kill_copy")
    history.close()
    expected = {"a": Sent(P, Fate.COMMITTED), "b": Sent(P, Fate.ABORTED), "c": Sent(P, Fate.UNKNOWN)}
    assert history.sent == expected
    assert fates(events(history.path)) == expected


def test_runs_in_worlds_of_one_kind_are_added_up() -> None:
    """Rounds are counted where all was well; faults and anomalies in any case."""
    name = "test_nothing_is_lost_doubled_or_mixed_up_whatever_happens[exactly_once-three]"
    plain = {"rounds": 2, "records": 10, "positions": 3, "anomalies": 0, "source_lost": 0}
    tallies = [
        {"name": name, **plain, "faults": {"kill_copy": 2}},
        {"name": name, **plain, "anomalies": 1, "source_lost": 2, "faults": {"kill_copy": 1, "fill_disk": 4}},
        {"name": "test_a_hundred_starts_and_ends[x]", **plain, "faults": {"start": 100}},
    ]
    assert rows(merged(tallies)) == [
        "| world | runs | rounds | records judged | group positions | faults | anomalies | S-lost |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        "| exactly_once-three | 2 | 4 | 20 | 6 | 7 | 1 | 2 |",
        "| test_a_hundred_starts_and_ends | 1 | 2 | 10 | 3 | 100 | 0 | 0 |",
        "",
        "| fault | times |",
        "|---|---:|",
        "| fill disk | 4 |",
        "| kill copy | 3 |",
        "| start | 100 |",
    ]


def told(first: int, behind: int, generation: int) -> MapRecord:
    """A record of the offset map that holds no more than a range."""
    tp = TopicPartition(P.topic, P.partition)
    nothing = dict.fromkeys(("target_start", "bytes", "lane", "batch", "attempt", "begin_ms", "commit_ms"), 0)
    return MapRecord(
        source=tp,
        target=tp,
        source_start=first,
        source_end=behind,
        segments=(),
        generation=generation,
        **nothing,
    )


def test_a_map_is_read_as_it_stands_when_old_records_were_joined() -> None:
    """The whole stands under the first one's key, behind later ones; the others are deleted."""
    parts = [told(0, 4, 1), told(4, 6, 1), told(6, 9, 2)]
    log = [(encode_map_key(part), encode_map_value(part)) for part in parts]
    expected = {P: [Written(1, 0, 4), Written(1, 4, 6), Written(2, 6, 9)]}
    assert ranges(log) == expected
    joined = [(log[0][0], encode_map_value(told(0, 6, 1))), (log[1][0], None)]
    assert ranges([*log, *joined]) == {P: [Written(1, 0, 6), Written(2, 6, 9)]}
