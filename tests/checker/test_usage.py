"""The judge of leaks: what grows slowly is seen, what merely moves is not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.chaos.usage import Sample, draw, growths

HOUR_S = 3600


def samples(memory: Callable[[float], float], count: Callable[[float], int] = lambda _: 10) -> list[Sample]:
    """Return two hours of samples of one kind, every twenty seconds."""
    times = range(0, 2 * HOUR_S, 20)
    return [Sample(at, "worker", memory(at), count(at), 10, 10) for at in times]


def leaking(found: list[Sample]) -> list[str]:
    return [growth.figure for growth in growths(found) if growth.leaks]


def noise() -> Callable[[float], float]:
    rng = random.Random(7)
    return lambda _: 200 + rng.uniform(-40, 40)


def test_noise_is_not_growth() -> None:
    """A fifth of it, up and down."""
    assert leaking(samples(noise())) == []


def test_a_small_leak_below_much_noise_is_seen() -> None:
    """30 MiB in two hours, in noise of 80."""
    around = noise()
    assert leaking(samples(lambda at: around(at) + 30 * at / (2 * HOUR_S))) == ["memory_mib"]


def test_teeth_of_a_garbage_collector_are_not_growth() -> None:
    """Up for ten minutes, down at once."""
    assert leaking(samples(lambda at: 300 + 100 * (at % 600) / 600)) == []


def test_warming_up_is_not_growth() -> None:
    """All of it in the first half hour."""
    assert leaking(samples(lambda at: min(400.0, 100 + at / 5))) == []


@pytest.mark.parametrize(("each", "leaks"), [(1, ["descriptors"]), (0, [])])
def test_a_descriptor_left_by_each_restart_is_seen(each: int, leaks: list[str]) -> None:
    """One every ten minutes."""
    assert leaking(samples(lambda _: 100, lambda at: 20 + each * int(at // 600))) == leaks


def test_a_moment_without_connections_is_not_growth() -> None:
    """A broker is away at the beginning: fewer there is no norm."""
    assert leaking(samples(lambda _: 100, lambda at: 2 if 1800 < at < 2100 else 20)) == []


def test_what_falls_and_comes_back_is_not_growth() -> None:
    """A pool of threads while others keep the machine busy for half an hour."""
    rng = random.Random(7)
    assert leaking(samples(lambda _: 100, lambda at: rng.randint(105, 120) - 10 * (1800 < at < 4500))) == []


def test_too_few_samples_tell_nothing() -> None:
    """Instead of saying that all is well."""
    with pytest.raises(ValueError, match="tell nothing"):
        growths(samples(noise())[:5])


# Soak alone draws it, and drawing takes longest.
@pytest.mark.soak
def test_it_is_drawn(tmp_path: Path) -> None:
    """As SVG with every kind's name in it."""
    draw(samples(noise()), [(60.0, "target killed")], tmp_path / "flat.svg", "two hours")
    assert "<svg" in (tmp_path / "flat.svg").read_text()
