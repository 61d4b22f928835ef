"""What the offset map knows behind a position."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.errors import Retriable
from onceover.kafka.each import Each
from onceover.model import TopicPartition, lane_of
from onceover.positions.reader import Chunk, MapChanged, MapTopic, Point
from onceover.resume import receipted
from onceover.resume.receipted import GenerationPosition
from onceover.state import names

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
MINE, UNLED = (lane_of(tp, names.MAP_PARTITIONS) for tp in (TP, OTHER))
AWAY = Retriable("nobody leads it")


class Log:
    """The map's topic, in two answers: the second one has a record of generation 3, up to offset 900."""

    info = SimpleNamespace(partitions=dict.fromkeys(range(names.MAP_PARTITIONS)))

    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble = trouble
        self.settled: set[bool] = set()

    def each_bounds(self, partitions: list[int], *, settled: bool = False) -> Each[int, tuple[int, int]]:
        self.settled.add(settled)
        led = [number for number in partitions if number != UNLED]
        return Each(dict.fromkeys(led, (0, 2)), {number: AWAY for number in partitions if number == UNLED})

    def read(self, points: Mapping[int, Point], *_: object, **__: object) -> Any:
        yield Chunk(0, [], 1, 0)
        if self.trouble is not None:
            raise self.trouble
        if MINE not in points:
            return
        record = SimpleNamespace(source=TP, generation=3, source_end=900, target_start=850)
        yield Chunk(0, [cast(Any, (1, None, record))], 2, 0)


def asked(
    monkeypatch: pytest.MonkeyPatch, log: Log | None, known: GenerationPosition
) -> dict[TopicPartition, int]:
    monkeypatch.setattr(MapTopic, "find", classmethod(lambda *_: log))
    each = receipted.copied_further(cast(Any, None), "f", {TP: known, OTHER: known})
    assert log is None or log.settled == {True}
    assert set(each.failed) == ({OTHER} if log else set())
    return each.found


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (GenerationPosition(500, 3), {TP: 850}),
        (GenerationPosition(500, 2), {TP: 850}),
        # The position that was committed with it; and one that was moved on purpose since.
        (GenerationPosition(900, 3), {}),
        (GenerationPosition(500, 4), {}),
    ],
)
def test_only_what_was_copied_since_shows_that_a_position_is_older(
    monkeypatch: pytest.MonkeyPatch, known: GenerationPosition, found: dict[TopicPartition, int]
) -> None:
    """The map is read to its end, where that stands; a part that nobody leads takes nothing from others."""
    assert asked(monkeypatch, Log(), known) == found


def test_without_a_map_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deleted: nothing says otherwise."""
    assert asked(monkeypatch, None, GenerationPosition(500, 3)) == {}


@pytest.mark.parametrize("trouble", [MapChanged(0), Retriable("a transaction is open")], ids=str)
def test_a_map_that_cannot_be_read_to_its_end_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    """Asked again, not believed."""
    monkeypatch.setattr(MapTopic, "find", classmethod(lambda *_: Log(trouble)))
    each = receipted.copied_further(cast(Any, None), "f", {TP: GenerationPosition(500, 3)})
    assert not each.found
    assert isinstance(each.failed[TP], Retriable)
