"""A Spark cluster without room for the lanes: it may pass, it is told, and nobody copies meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceover.errors import Retriable
from onceover.spark.slots import PATIENCE_S, SlotWatch, slots_of


class Executors:
    """Scala's sequence of executors, as py4j shows it."""

    def __init__(self, *cores: int) -> None:
        driver = SimpleNamespace(id=lambda: "driver", totalCores=lambda: 0)
        self._all = [driver, *(SimpleNamespace(id=lambda: "0", totalCores=lambda c=c: c) for c in cores)]

    def size(self) -> int:
        return len(self._all)

    def apply(self, number: int) -> Any:
        return self._all[number]


def session(master: str, *cores: int, parallelism: int = 2) -> Any:
    """Return a Spark session on a master with executors of so many cores."""
    store = SimpleNamespace(executorList=lambda active: Executors(*cores) if active else None)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store))
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master=master, defaultParallelism=parallelism, _jsc=java)
    )


@pytest.mark.parametrize(
    ("master", "cores", "slots"),
    [
        ("spark://m:7077", (), 0),
        ("spark://m:7077", (1,), 1),
        ("spark://m:7077", (1, 2), 3),
        ("yarn", (4,), 4),
        ("local[2,4]", (), 2),
    ],
)
def test_cores_of_executors_that_are_there_count(master: str, cores: tuple[int, ...], slots: int) -> None:
    """Spark's own number is 2 where there is nothing at all."""
    assert slots_of(session(master, *cores)) == slots


class Lanes:
    """A watch over two lanes, with time and slots of the test's own."""

    def __init__(self) -> None:
        self.now_s, self.slots, self.asked = 100.0, 2, 0
        self.watch = SlotWatch(self._ask, 2, lambda: self.now_s)

    def _ask(self) -> int:
        self.asked += 1
        return self.slots

    def run(self, seconds: float) -> None:
        """Let time pass, with a check every second."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 1.0
            self.watch.check()


def test_lanes_with_their_slots_are_left_alone() -> None:
    """And Spark is asked seldom."""
    lanes = Lanes()
    lanes.run(1000)
    assert lanes.asked <= 201


def test_executor_that_is_replaced_ends_no_run() -> None:
    """However often that happens."""
    lanes = Lanes()
    for _ in range(5):
        lanes.slots = 1
        lanes.run(PATIENCE_S - 10)
        lanes.slots = 2
        lanes.run(30)


@pytest.mark.parametrize("slots", [0, 1])
def test_too_few_for_too_long_is_a_temporary_failure_with_its_numbers(slots: int) -> None:
    """Tried again, and told to a person when it lasts: not silence with a driver that shows signs of life."""
    lanes = Lanes()
    lanes.run(60)
    lanes.slots = slots
    with pytest.raises(Retriable, match=f"Spark has {slots} slots") as short:
        lanes.run(PATIENCE_S + 10)
    assert (short.value.code, short.value.exit_code) == ("TOO_FEW_SLOTS", 5)
    assert lanes.now_s < 160 + PATIENCE_S + 10
