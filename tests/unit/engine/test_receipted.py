"""What the offset map knows behind a position."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.engine import names, receipted
from onceover.engine.mapreader import Chunk, MapChanged, MapTopic
from onceover.engine.receipted import Standing
from onceover.errors import Retriable
from onceover.model import TopicPartition

TP = TopicPartition("orders", 0)


class Log:
    """The map's topic, in two answers: the second one has a record of generation 3, up to offset 900."""

    info = SimpleNamespace(partitions=dict.fromkeys(range(names.MAP_PARTITIONS)))

    def __init__(self, *, changed: bool = False) -> None:
        self.changed = changed

    def starts(self, partitions: list[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    ends = starts

    def read(self, *_: object) -> Any:
        yield Chunk(0, [], 1, 0)
        if self.changed:
            raise MapChanged(0)
        record = SimpleNamespace(source=TP, generation=3, source_end=900, target_start=850)
        yield Chunk(0, [cast(Any, (1, None, record))], 2, 0)


def asked(monkeypatch: pytest.MonkeyPatch, log: Log | None, standing: Standing) -> dict[TopicPartition, int]:
    monkeypatch.setattr(MapTopic, "find", classmethod(lambda *_: log))
    return receipted.copied_further(cast(Any, None), "f", {TP: standing})


@pytest.mark.parametrize(
    ("standing", "found"),
    [
        (Standing(500, 3), {TP: 850}),
        (Standing(500, 2), {TP: 850}),
        # The position that was committed with it; and one that was moved on purpose since.
        (Standing(900, 3), {}),
        (Standing(500, 4), {}),
    ],
)
def test_only_what_was_copied_since_shows_that_a_position_is_older(
    monkeypatch: pytest.MonkeyPatch, standing: Standing, found: dict[TopicPartition, int]
) -> None:
    """The map is read to its end, where that stands."""
    assert asked(monkeypatch, Log(), standing) == found


def test_without_a_map_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deleted: nothing says otherwise."""
    assert asked(monkeypatch, None, Standing(500, 3)) == {}


def test_a_map_that_changes_meanwhile_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again, not believed."""
    with pytest.raises(Retriable):
        asked(monkeypatch, Log(changed=True), Standing(500, 3))
