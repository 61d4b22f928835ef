"""Where positions may come from: what is understood, what is refused."""

from __future__ import annotations

import json

import pytest

from onceover.errors import UsageError
from onceover.model import TopicPartition
from onceover.seeding.spec import OriginSpec, parse_offsets, parse_origin, parse_timestamp_ms


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("earliest", "earliest", ""),
        ("map", "map", ""),
        ("lag-group", "lag-group", ""),
        ("group:a:b", "group", "a:b"),
        ("timestamp:2026-01-01T00:00:00Z", "timestamp", "2026-01-01T00:00:00Z"),
        ("flow:other", "flow", "other"),
        ("file:/tmp/x.csv", "file", "/tmp/x.csv"),
    ],
)
def test_every_form_is_understood(text: str, kind: str, value: str) -> None:
    """Only the first colon separates."""
    assert parse_origin(text) == OriginSpec(kind, value)


@pytest.mark.parametrize("text", ["", "group:", "earliest:1", "topic:a", "map:", ":x", "groups:a"])
def test_anything_else_is_refused(text: str) -> None:
    """With all forms named."""
    with pytest.raises(UsageError, match="no origin"):
        parse_origin(text)


def test_a_time_needs_a_zone() -> None:
    """Without one it would mean another instant elsewhere."""
    assert parse_timestamp_ms("1970-01-01T00:00:01Z") == 1000
    for text in ("2026-01-01T00:00:00", "yesterday"):
        with pytest.raises(UsageError):
            parse_timestamp_ms(text)


def test_both_file_formats_say_the_same() -> None:
    """CSV and JSON of the same offsets."""
    rows = [{"topic": "a", "partition": 0, "offset": 5}, {"topic": "b.c", "partition": 12, "offset": 0}]
    expected = {TopicPartition("a", 0): 5, TopicPartition("b.c", 12): 0}
    assert parse_offsets(json.dumps(rows), "f") == expected
    assert parse_offsets("topic,partition,offset\na,0,5\nb.c,12,0\n", "f") == expected
    # As a spreadsheet writes it.
    assert parse_offsets("\ufefftopic,partition,offset\r\na,0,5\r\nb.c,12,0\r\n", "f") == expected


@pytest.mark.parametrize(
    "text",
    [
        "topic,partition\na,0\n",
        "topic,partition,offset,x\na,0,1,2\n",
        "topic,partition,offset\na,0\n",
        "topic,partition,offset\na,0,1,2\n",
        "topic,partition,offset\na,-1,1\n",
        "topic,partition,offset\na,0,1.5\n",
        "topic,partition,offset\na,0,1\na,0,1\n",
        '[{"topic": "a", "partition": 0, "offset": true}]',
        '[{"topic": "a", "partition": 0, "offset": -1}]',
        '[{"topic": "a", "partition": 0}]',
        "[1]",
        "[",
        "",
        "a,0,5\n",
        "a,0,5\nb,0,5\n",
        "topic,partition,offset,offset\n",
        '{"admin": "x"}',
        '{"topic": "a", "partition": 0, "offset": 1}',
    ],
)
def test_a_file_that_says_something_else_is_refused(text: str) -> None:
    """No entry is left out in silence."""
    with pytest.raises(UsageError):
        parse_offsets(text, "f")


@pytest.mark.parametrize(
    "text",
    [
        "SECRET:x:0\nSECRET:y:1\n",
        '{"SECRET": "SECRET"}',
        '[{"SECRET": "SECRET"}]',
        '["SECRET"]',
        "[SECRET]",
        '"SECRET',
        "topic,partition,offset\na,SECRET,1\n",
        "topic,partition,offset\na,0,SECRET\n",
        "topic,partition,offset\na,0,1,SECRET\n",
        "topic,partition,offset\nSECRET,0,1\nSECRET,0,1\n",
        '[{"topic": "SECRET", "partition": 0, "offset": 1},{"topic": "SECRET", "partition": 0, "offset": 2}]',
    ],
)
def test_no_message_quotes_the_file(text: str) -> None:
    """Whoever may fill in a form could read any file of the worker's that way."""
    with pytest.raises(UsageError) as caught:
        parse_offsets(text, "f")
    assert "SECRET" not in str(caught.value.as_dict())


def test_message_names_the_line() -> None:
    """As an editor counts them."""
    with pytest.raises(UsageError) as caught:
        parse_offsets("topic,partition,offset\na,0,1\n\na,x,1\n", "f")
    assert caught.value.where == "f, line 4"


def test_file_with_a_header_alone_names_nothing() -> None:
    """It is whole, and nobody forgot anything."""
    assert parse_offsets("topic,partition,offset\n", "f") == parse_offsets("[]", "f") == {}


@pytest.mark.parametrize(
    "text", ["1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z", "1900-01-01T00:00:00Z"]
)
def test_a_time_before_1970_is_refused(text: str) -> None:
    """Kafka would take -1 ms for the end of the log and -2 for its start."""
    with pytest.raises(UsageError, match="before 1970"):
        parse_timestamp_ms(text)
