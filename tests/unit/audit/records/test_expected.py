"""Flows with a handler: it is applied again, and what it gives is what the target should hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any

import pytest

from onceover.audit.compare.align import align
from onceover.audit.model import FindingKind
from onceover.audit.records.expected import Expected, HandlerFailed, HandlerReplay
from onceover.audit.records.recordhash import AuditedRecord, make_rec
from onceover.audit.records.sketch import Sketch, sketch
from onceover.handlers import SCHEMA, calling
from onceover.handlers.load import Handler, load_handler
from onceover.handlers.record import Record
from onceover.model import TopicPartition
from tests.support.raw.mutations import correct_pair
from tests.unit.handlers import samples

SOURCES = [TopicPartition("orders", number) for number in range(3)]
TARGET = TopicPartition("east.orders", 0)
CONTENTS = correct_pair(random.Random(8)).source


def _handler(call: Callable[[Any], Any], *, vectorised: bool = False) -> Handler:
    return Handler("tests:handler", vectorised, call, lambda count: count, lambda _: None, lambda _: None)


def _recs(partition: int = 0) -> list[AuditedRecord]:
    return [make_rec(10 + index, *content) for index, content in enumerate(CONTENTS[partition])]


def _same(record: Record) -> Iterable[Record]:
    return (record,)


def test_a_handler_that_changes_nothing_gives_the_source() -> None:
    """Both forms see every field, names that are no UTF-8 among them."""
    records = [*_recs(), make_rec(99, None, b"", ((b"\xff\xfe", None), (b"h", b"")), 5)]
    for form in (_handler(_same), _handler(lambda batch: batch, vectorised=True)):
        outcomes = list(HandlerReplay(form, SOURCES[1], 3).outcomes(records))
        assert outcomes == [Expected(1, record) for record in records]


def test_dropped_and_multiplied_records_are_expected_so() -> None:
    """Nothing for an empty tuple, each copy for many."""

    def odd_twice(record: Record) -> Iterable[Record]:
        return (record, record.replace(key=b"again", partition=2)) if record.offset % 2 else ()

    outcomes = list(HandlerReplay(_handler(odd_twice), SOURCES[0], 3).outcomes(_recs()[:4]))
    assert [
        (each.partition, each.record.offset, each.record.key == b"again")
        for each in outcomes
        if isinstance(each, Expected)
    ] == [(0, 11, False), (2, 11, True), (0, 13, False), (2, 13, True)]


def test_the_schema_is_the_one_that_handlers_are_promised() -> None:
    """A handler of columns may compare it."""
    seen = []

    def look(batch: Any) -> Any:
        seen.append(batch.schema)
        return batch

    list(HandlerReplay(_handler(look, vectorised=True), SOURCES[0], 1).outcomes(_recs()[:2]))
    assert seen[0].equals(SCHEMA)


class Panic(BaseException):
    """What an extension in another language raises: no ``Exception``."""


@pytest.mark.parametrize("vectorised", [False, True])
@pytest.mark.parametrize("kind", [ValueError, Panic, SystemExit])
def test_a_record_that_the_handler_fails_on_is_named_without_its_words(
    vectorised: bool, kind: type[BaseException]
) -> None:
    """The others are handled; what the exception says may quote the record, and is not shown."""

    def fails(given: Any) -> Any:
        offsets = given.column("source_offset").to_pylist() if vectorised else [given.offset]
        if 15 in offsets:
            raise kind("hunter2")
        return given if vectorised else (given,)

    outcomes = list(
        HandlerReplay(_handler(fails, vectorised=vectorised), SOURCES[0], 1).outcomes(_recs()[:9])
    )
    (failed,) = [each for each in outcomes if isinstance(each, HandlerFailed)]
    assert failed.offset == 15
    assert failed.message.startswith(f"{kind.__name__} at test_expected.py")
    assert "hunter2" not in failed.message
    assert [each.record.offset for each in outcomes if isinstance(each, Expected)] == [
        10, 11, 12, 13, 14, 16, 17, 18,
    ]  # fmt: skip


@pytest.mark.parametrize("vectorised", [False, True])
def test_a_record_that_the_handler_hangs_on_is_one_that_it_fails_on(
    vectorised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was skipped as advised, and is handed over again: not for ever, and the others are handled."""
    monkeypatch.setattr(calling, "LONGEST_S", 0.1)

    def hangs(given: Any) -> Any:
        offsets = given.column("source_offset").to_pylist() if vectorised else [given.offset]
        while 15 in offsets:
            with suppress(Exception):
                Event().wait(600)
        return given if vectorised else (given,)

    replay = HandlerReplay(_handler(hangs, vectorised=vectorised), SOURCES[0], 1)
    outcomes = list(replay.outcomes(_recs()[:9]))
    (failed,) = [each for each in outcomes if isinstance(each, HandlerFailed)]
    assert failed == HandlerFailed(15, "it did not come back within 0.1 s")
    assert [each.record for each in outcomes if isinstance(each, Expected)] == [
        each for each in _recs()[:9] if each.offset != 15
    ]
    assert outcomes.index(failed) == 5


def test_the_handler_is_told_of_the_partition_as_a_lane_tells_it() -> None:
    """Before the first record, and when it is over, also where nobody wants to know more."""
    handler = load_handler("tests.unit.handlers.samples:Tables", {}, "f.yaml")
    for _ in range(2):
        outcomes = list(HandlerReplay(handler, SOURCES[1], 3).outcomes(_recs()[:3]))
        assert [each.record.key for each in outcomes if isinstance(each, Expected)] == [b"table"] * 3
        given = Record(SOURCES[1].topic, 1, 0, 0, None, None)
        with pytest.raises(KeyError):
            handler.call(given)
    some = HandlerReplay(handler, SOURCES[1], 3).outcomes(_recs()[:3])
    assert isinstance(next(some), Expected)
    some.close()
    with pytest.raises(KeyError):
        handler.call(given)


def test_a_partition_that_the_handler_does_not_take_fails_whole(caplog: pytest.LogCaptureFixture) -> None:
    """The flow has stopped there; nobody tells it that it has lost what it never took."""
    handler = load_handler("tests.unit.handlers.samples:Tables", {"bad": 1}, "f.yaml")
    outcomes = list(HandlerReplay(handler, SOURCES[1], 3).outcomes(_recs()[:3]))
    failed = [each for each in outcomes if isinstance(each, HandlerFailed)]
    assert [each.offset for each in failed] == [10, 11, 12]
    assert all(
        each.message.startswith("partitions_gained fails: LookupError at samples.py:") for each in failed
    )
    assert not caplog.records


def test_a_handler_that_cannot_let_go_is_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to be compared any more; its words may quote a record."""
    handler = load_handler(
        "tests.unit.handlers.samples:Wider", {"partitions": 3, "fail_on": "lost"}, "f.yaml"
    )
    outcomes = list(HandlerReplay(handler, SOURCES[1], 3).outcomes(_recs()[:1]))
    assert [type(each) for each in outcomes] == [Expected]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "partitions_lost of handler" in said and samples.SECRET.decode() not in said


@pytest.mark.parametrize("what", samples.unwritable(Record("orders", 0, 10, 0, None, None)))
@pytest.mark.parametrize("timed", [True, False])
def test_output_that_cannot_be_written_is_a_failure(what: str, timed: bool) -> None:
    """As the flow would have said: the record was diverted, or skipped."""
    replay = HandlerReplay(_handler(partial(samples.outcome, what=what)), SOURCES[0], 2, timed)
    (outcome,) = replay.outcomes(_recs()[:1])
    assert isinstance(outcome, HandlerFailed) and outcome.offset == 10


@pytest.mark.parametrize(
    "what", ["none", "columns", "schema", "null timestamp", "header name", "partition", "offset"]
)
@pytest.mark.parametrize("timed", [True, False])
def test_columns_that_cannot_be_written_are_a_failure(what: str, timed: bool) -> None:
    """Of each record: alone it is as bad."""
    form = _handler(partial(samples.batch_outcome, what=what), vectorised=True)
    outcomes = list(HandlerReplay(form, SOURCES[0], 2, timed).outcomes(_recs()[:3]))
    assert [each.offset for each in outcomes if isinstance(each, HandlerFailed)] == [10, 11, 12]


def test_what_a_copy_writes_is_expected() -> None:
    """What is as good as bytes is; and rows out of order, which are handed over in smaller parts."""
    (outcome,) = HandlerReplay(_handler(samples.much_the_same), SOURCES[0], 2).outcomes(_recs()[:1])
    assert outcome == Expected(1, make_rec(10, b"k", b"v\0", ((b"h", b""),), 5))
    (outcome,) = HandlerReplay(_handler(samples.buffers), SOURCES[0], 2).outcomes(_recs()[:1])
    assert outcome == Expected(1, make_rec(10, b"k\xff", b"abc", ((b"h", b"\0w"), (b"n", None)), 5))
    form = _handler(partial(samples.batch_outcome, what="order"), vectorised=True)
    assert list(HandlerReplay(form, SOURCES[0], 1).outcomes(_recs()[:3])) == [
        Expected(0, record) for record in _recs()[:3]
    ]


def test_a_forgotten_return_is_said_to_be_one() -> None:
    """It would otherwise look like a handler that drops everything."""
    (outcome,) = HandlerReplay(_handler(lambda record: None), SOURCES[0], 3).outcomes(_recs()[:1])
    assert outcome == HandlerFailed(10, "it returns None")


def test_the_shipped_masking_is_audited_by_masking_again() -> None:
    """A value that was not masked on the target is found."""
    handler = load_handler("onceover.handlers.mask:MaskFields", {"fields": ["card"]}, "test")
    source = [make_rec(index, b"k", b'{"card":"%d"}' % index, (), index) for index in range(5)]
    numbers = _expected(handler, source)
    masked = [make_rec(index, b"k", b'{"card":"***"}', (), index) for index in range(5)]
    pair = SOURCES[0], TARGET
    assert align(numbers, sketch(masked), pair).same
    plain = sketch([*masked[:3], source[3], masked[4]])
    (finding,) = align(numbers, plain, pair).findings()
    assert (finding.kind, finding.field, finding.source_offset) == (FindingKind.ALTERED, "value", 3)


def _expected(handler: Handler, records: list[AuditedRecord]) -> Sketch:
    outcomes = HandlerReplay(handler, SOURCES[0], 1).outcomes(records)
    return sketch(each.record for each in outcomes if isinstance(each, Expected))
