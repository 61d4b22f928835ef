"""Compacted topics by the latest value of each key: every difference, and no other."""

from __future__ import annotations

from collections.abc import Sequence

from onceover.audit.latest import LatestValues
from onceover.audit.model import Finding, FindingKind, Range, Side
from onceover.audit.record import make_rec
from onceover.model import TopicPartition
from tests.support.mutations import Content

TP = TopicPartition("accounts", 0)
RANGE = Range(TP, 0, 9, TP, 0, 9)
SOURCE = [
    Content(b"a", b"1", (), 10),
    Content(b"b", b"1", (), 20),
    Content(b"c", b"1", (), 30),
    Content(b"a", b"2", (), 40),
    Content(b"c", None, (), 50),
]


def _values(contents: Sequence[Content]) -> LatestValues:
    values = LatestValues()
    values.add(make_rec(offset, *content) for offset, content in enumerate(contents))
    return values


def _findings(target: Sequence[Content], source: Sequence[Content] = SOURCE) -> list[Finding]:
    here, there = _values(source), _values(target)
    found = list(here.findings(there, (TP, TP)))
    one, other = here.digest(RANGE, Side.SOURCE), there.digest(RANGE, Side.TARGET)
    # A tombstone that was not copied is a difference only where the target still shows a value.
    assert one.same_content(other) == (not found)
    return found


def test_a_correct_copy_differs_in_nothing() -> None:
    """Record by record, or only what compaction would leave."""
    assert _findings(SOURCE) == []
    assert _findings(SOURCE[1:2] + SOURCE[3:4]) == []


def test_a_key_that_is_not_there_is_lost() -> None:
    """With the offset of its latest record."""
    (finding,) = _findings([each for each in SOURCE if each.key != b"b"])
    assert (finding.kind, finding.source_offset, finding.target_offset) == (FindingKind.LOST, 1, None)


def test_an_earlier_value_shows_that_the_latest_is_lost() -> None:
    """The target is behind for this key."""
    (finding,) = _findings(SOURCE[:3] + SOURCE[4:])
    assert (finding.kind, finding.source_offset) == (FindingKind.LOST, 3)
    assert "an earlier value of its key at offset 0" in finding.detail


def test_an_order_turned_round_shows_as_well() -> None:
    """The earlier of two values comes last."""
    turned = [SOURCE[3], *SOURCE[:3], SOURCE[4]]
    (finding,) = _findings(turned)
    assert (finding.kind, finding.source_offset) == (FindingKind.LOST, 3)


def test_a_tombstone_that_was_not_copied_leaves_a_value() -> None:
    """The source has deleted what the target still shows."""
    (finding,) = _findings(SOURCE[:4])
    assert (finding.kind, finding.source_offset) == (FindingKind.LOST, 4)
    assert finding.detail.startswith("tombstone of its key")


def test_one_altered_field_is_named() -> None:
    """Value, headers or time of the latest record; an empty value is no tombstone."""
    for fields, changed in (
        ("value", SOURCE[3]._replace(value=b"3")),
        ("value", SOURCE[3]._replace(value=b"")),
        ("value", SOURCE[3]._replace(value=None)),
        ("headers", SOURCE[3]._replace(headers=((b"h", None),))),
        ("timestamp", SOURCE[3]._replace(timestamp_ms=41)),
    ):
        (finding,) = _findings([*SOURCE[:3], changed, SOURCE[4]])
        assert (finding.kind, finding.field, finding.source_offset, finding.target_offset) == (
            FindingKind.ALTERED,
            fields,
            3,
            3,
        )


def test_an_altered_key_is_one_lost_and_one_strange() -> None:
    """In a compacted topic the key is who the record is."""
    findings = _findings([SOURCE[0], SOURCE[1]._replace(key=b"x"), *SOURCE[2:]])
    assert [finding.kind for finding in findings] == [FindingKind.LOST, FindingKind.PHANTOM]


def test_a_key_that_nobody_wrote_is_a_phantom() -> None:
    """A strange tombstone harms nobody."""
    (finding,) = _findings([*SOURCE, Content(b"z", b"1", (), 60), Content(b"y", None, (), 60)])
    assert (finding.kind, finding.target_offset) == (FindingKind.PHANTOM, 5)


def test_the_latest_offset_counts_in_whatever_order_records_come() -> None:
    """Keys are few, records many: only one of each key is kept."""
    records = [make_rec(offset, *content) for offset, content in enumerate(SOURCE)]
    values = LatestValues()
    values.add(records[3:])
    values.add(records[:3])
    assert values.digest(RANGE, Side.SOURCE) == _values(SOURCE).digest(RANGE, Side.SOURCE)
    assert len(values) == 3
