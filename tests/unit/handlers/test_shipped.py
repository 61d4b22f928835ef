"""The three handlers that ship: masking, filtering, re-keying."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference_murmur2

from onceover.errors import UsageError
from onceover.handlers import SCHEMA, Record
from onceover.handlers.filter import FilterRecords
from onceover.handlers.mask import MaskFields
from onceover.handlers.murmur2 import partitions_of
from onceover.handlers.rekey import Repartition

# The first call of Arrow's kernels takes its time.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", 'q"\\', "ü"]), inner, max_size=3)
    ),
    max_leaves=12,
)


def record(value: bytes | None) -> Record:
    return Record("t", 0, 0, 0, b"k", value)


def masked(fields: list[str], value: bytes, replacement: Any = "***") -> bytes | None:
    [out] = MaskFields(fields, replacement)(record(value))
    return out.value


def model(document: Any, path: list[str], replacement: Any) -> Any:
    """Return ``document`` with one path hidden, the obvious way."""
    if isinstance(document, list):
        return [model(item, path, replacement) for item in document]
    if not isinstance(document, dict) or path[0] not in document:
        return document
    inner = replacement if len(path) == 1 else model(document[path[0]], path[1:], replacement)
    return {**document, path[0]: inner}


@given(
    JSON, st.lists(st.sampled_from(["a", "b", "a.b", "b.a.b", "ü"]), min_size=1, max_size=3), st.booleans()
)
def test_mask_hides_the_fields_and_nothing_else(document: Any, fields: list[str], spaced: bool) -> None:
    """Against a model that rebuilds the document; lists stand for all their elements."""
    text = json.dumps(document, indent=1 if spaced else None, ensure_ascii=not spaced)
    expected = document
    for field in sorted(fields, key=len):
        expected = model(expected, field.split("."), "***")
    seen = masked(fields, text.encode())
    assert seen is not None
    # A replaced parent has no children left: the longer path then finds a text and hides nothing.
    assert json.loads(seen) == expected


def test_mask_keeps_every_other_byte() -> None:
    """Numbers, spaces, escapes and repeated names as they were; a repeated name is hidden each time."""
    value = '{ "n": 1.10e5, "card" :"x", "s": "\\u00e9", "card": [1, {"card": 2}], "deep": {"card": 3} }'
    seen = masked(["card"], value.encode(), None)
    assert seen == b'{ "n": 1.10e5, "card" :null, "s": "\\u00e9", "card": null, "deep": {"card": 3} }'


def test_mask_passes_null_and_what_has_no_such_field() -> None:
    """The very same record goes on."""
    for value in (None, b'{"other": 1}', b"7"):
        one = record(value)
        assert list(MaskFields(["card"])(one)) == [one]


@pytest.mark.parametrize("value", [b"", b"{", b"no json", b'{"card": 1} x', b"\xff", b'{"card" 1}', b"[1,]"])
def test_mask_refuses_what_is_no_json(value: bytes) -> None:
    """It may hold what is to be hidden: never passed on."""
    with pytest.raises(ValueError):  # noqa: PT011 - any of json's and ours; its text is never shown
        list(MaskFields(["card"])(record(value)))


@pytest.mark.parametrize("fields", [[], "card", [""], [7]])
def test_mask_needs_fields(fields: Any) -> None:
    with pytest.raises(UsageError, match="fields names nothing"):
        MaskFields(fields)


def batch(rows: list[tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]]) -> pa.RecordBatch:
    """Return rows of key, value, headers as a handler gets them, in partition 1."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": key,
                "value": value,
                "headers": [{"key": name, "value": content} for name, content in headers],
                "timestamp": 5,
                "partition": 1,
                "source_offset": offset,
            }
            for offset, (key, value, headers) in enumerate(rows)
        ],
        schema=SCHEMA,
    )


KEYS = st.none() | st.sampled_from([b"", b"eu-1", b"us-1", b"eu-\xff\n"])
HEADERS = st.lists(
    st.tuples(st.sampled_from([b"region", b"other"]), st.none() | st.sampled_from([b"eu", b"europe", b""])),
    max_size=3,
)


@given(
    st.lists(st.tuples(KEYS, st.none(), HEADERS), max_size=8),
    st.sampled_from(["keep", "drop"]),
    st.none() | st.just("eu-.*"),
    st.none() | st.just("region"),
    st.none() | st.just("eu"),
)
def test_filter_keeps_what_the_model_keeps(
    rows: list[Any], action: str, key: str | None, header: str | None, value: str | None
) -> None:
    """Whole keys and whole header values; null never matches; every condition has to hold."""
    if key is None and header is None:
        return
    value = value if header is not None else None

    def matches(row: Any) -> bool:
        by_key = key is None or (row[0] is not None and re.fullmatch(rb"(?s)eu-.*", row[0]) is not None)
        by_header = header is None or any(
            name == b"region" and (value is None or content == b"eu") for name, content in row[2]
        )
        return by_key and by_header

    kept = [offset for offset, row in enumerate(rows) if matches(row) == (action == "keep")]
    out = FilterRecords(action, key, header, value)(batch(rows))
    assert out.schema.equals(SCHEMA)
    assert out.column(5).to_pylist() == kept


TEXTS = [
    ("M.ller", "Müller", True),
    ("Stra[sß]e", "Straße", True),
    ("(?i)MÜLLER", "Müller", True),
    (".{6}", "Müller", True),
    (".{7}", "Müller", True),
    (".{5}", "Müller", False),
    (r"\p{Greek}+", "αβγ", True),
    ("[^ü]*", "Müller", False),
    ("M.*", "M\n\u2028", True),
]


@pytest.mark.parametrize(("pattern", "text", "matches"), TEXTS)
@pytest.mark.parametrize("beside", [[], [b"\xff"]])
def test_filter_takes_characters_for_what_they_are(
    pattern: str, text: str, matches: bool, beside: list[bytes]
) -> None:
    """A dot is one, and a class and a case are of them; whatever else is in the batch."""
    keys = [text.encode(), None, *beside]
    by_key = FilterRecords("keep", pattern)(batch([(key, None, []) for key in keys]))
    assert (0 in by_key.column(5).to_pylist()) == matches
    rows: list[Any] = [(b"k", None, [(b"other", b"x"), (b"h", value)]) for value in keys]
    by_value = FilterRecords("drop", None, "h", pattern)(batch(rows))
    assert (0 not in by_value.column(5).to_pylist()) == matches


def test_filter_matches_what_is_no_utf8_byte_by_byte() -> None:
    """Each byte is the character of its number, so that such keys can be filtered at all."""
    rows: list[Any] = [(key, None, []) for key in (b"eu-\xff\n", b"eu-\xc3", "eu-ü".encode(), b"eu-12")]

    def kept(pattern: str) -> list[int]:
        found: list[int] = FilterRecords("keep", pattern)(batch(rows)).column(5).to_pylist()
        return found

    assert kept("eu-..") == [0, 2, 3]
    assert kept("eu-.") == [1, 2]
    assert kept(r"eu-[\xc0-\xff]\n?") == [0, 1, 2]
    assert kept("eu-.*") == [0, 1, 2, 3]


@pytest.mark.parametrize("beside", [[], [None], [b"\xff"]])
@pytest.mark.parametrize("pattern", [".{8}", r"\x00+[\x01-\xff]+", r"[\x80-\xff]{8}|[^\xff]{8}"])
def test_filter_finds_a_number_whatever_its_bytes_happen_to_decode_to(
    pattern: str, beside: list[bytes | None]
) -> None:
    """Those of the last two are UTF-8, of a character less than bytes: they are no other kind of key."""
    keys = [number.to_bytes(8) for number in (1, 300, 42, 200, 50089, 50304)]
    rows = batch([(key, None, [(b"h", key)]) for key in [*keys, *beside]])
    by_key = {action: FilterRecords(action, pattern)(rows) for action in ("keep", "drop")}
    assert by_key["keep"].column(5).to_pylist() == [0, 1, 2, 3, 4, 5]
    assert by_key["drop"].column(5).to_pylist() == list(range(6, len(rows)))
    assert FilterRecords("keep", None, "h", pattern)(rows).num_rows == 6


@given(st.lists(st.binary(max_size=6) | st.text(max_size=3).map(str.encode), max_size=6))
def test_filter_knows_what_is_utf8(keys: list[bytes]) -> None:
    """As Python does: a record of one character has it in as many bytes as UTF-8 says."""

    def is_one(key: bytes) -> bool:
        try:
            return len(key.decode()) == 1
        except UnicodeDecodeError:
            return len(key) == 1

    out = FilterRecords("keep", ".")(batch([(key, None, []) for key in keys]))
    assert out.column(5).to_pylist() == [at for at, key in enumerate(keys) if is_one(key)]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"action": "move", "key": "a"}, "action"),
        ({"action": "keep"}, "nothing says"),
        ({"action": "keep", "key": "a", "header_value": "b"}, "without header"),
        ({"action": "keep", "key": "("}, "key is not a regular expression"),
        ({"action": "keep", "key": "a)|(b"}, "key is not a regular expression"),
        ({"action": "keep", "key": "\ud800"}, "key is not a regular expression"),
        ({"action": "keep", "header": "h", "header_value": "a)|(b"}, "header_value is not a regular"),
        ({"action": "keep", "key": r"\x{2028}"}, "key is not a regular expression of bytes"),
    ],
)
def test_filter_names_wrong_arguments(args: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        FilterRecords(**args)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.integers(1, 50))
def test_partitions_are_those_of_the_java_partitioner(keys: list[bytes], count: int) -> None:
    """Against kafka-python's port of it, for every length of tail."""
    expected = [(reference_murmur2(key) & 0x7FFFFFFF) % count for key in keys]
    assert partitions_of(pa.array(keys, pa.binary()), count).tolist() == expected
    # A slice begins in the middle of its buffers.
    assert partitions_of(pa.array([b"x", *keys], pa.binary()).slice(1), count).tolist() == expected


def test_known_hashes() -> None:
    """From Kafka's own UtilsTest."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, number in known.items():
        expected = (number & 0x7FFFFFFF) % 1000
        assert partitions_of(pa.array([key], pa.binary()), 1000).tolist() == [expected]


def test_repartition_places_by_key_and_leaves_null_keys_where_they_were() -> None:
    """The order of a key's records is kept; a null key has none to be found by."""
    out = Repartition(6)(batch([(b"21", None, []), (None, None, []), (b"21", None, []), (b"", None, [])]))
    placed = out.column(4).to_pylist()
    assert placed[0] == placed[2] == (-973932308 & 0x7FFFFFFF) % 6
    assert placed[1] == 1
    assert Repartition(6).target_partitions(4) == 6
    assert out.column(0).to_pylist() == [b"21", None, b"21", b""]


def test_repartition_takes_the_key_from_a_header_or_a_field() -> None:
    """And writes it into the record."""
    headers = Repartition(3, "header:id")(batch([(None, None, [(b"id", b"a"), (b"id", b"b")])]))
    assert headers.column(0).to_pylist() == [b"b"]
    fields = Repartition(3, "value:c.id")(
        batch([(b"old", b'{"c": {"id": "\xc3\xa9"}}', []), (None, b'{"c": {"id": [1, 2]}}', [])])
    )
    assert fields.column(0).to_pylist() == ["é".encode(), b"[1,2]"]


@pytest.mark.parametrize(
    ("key_from", "row"),
    [
        ("header:id", (None, None, [])),
        ("value:id", (None, b'{"other": 1}', [])),
        ("value:id", (None, None, [])),
        ("value:id", (None, b"{", [])),
    ],
)
def test_repartition_fails_where_no_key_is_found(key_from: str, row: Any) -> None:
    """The record is named; it is not put somewhere at random."""
    with pytest.raises((LookupError, ValueError)):
        Repartition(3, key_from)(batch([row]))


@pytest.mark.parametrize(
    "args", [{"partitions": 0}, {"partitions": "6"}, {"partitions": 6, "key_from": "id"}]
)
def test_repartition_names_wrong_arguments(args: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"partitions|key_from"):
        Repartition(**args)


def test_empty_batches_pass() -> None:
    """A slice without rows is no reason to fail."""
    empty = batch([])
    assert Repartition(2)(empty).num_rows == 0
    assert FilterRecords("keep", key="a", header="h")(empty).num_rows == 0
    assert np.array_equal(partitions_of(pa.array([], pa.binary()), 3), np.array([], np.int32))
