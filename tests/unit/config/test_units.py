"""Durations and sizes are read as they are meant, or not at all."""

from __future__ import annotations

import pytest

from onceover.config.faults import Invalid
from onceover.config.units import parse_duration_ms, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("14d", 1_209_600_000)],
)
def test_each_unit_has_its_milliseconds(text: str, milliseconds: int) -> None:
    """The five units of time."""
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"), [("7B", 7), ("1KiB", 1024), ("64MiB", 67_108_864), ("1GiB", 1_073_741_824), (512, 512)]
)
def test_each_unit_has_its_bytes(text: object, size: int) -> None:
    """The four units of size, and a plain number of bytes."""
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "5", 5, "1.5s", "-1s", "5 weeks", "5M", "٥s", "9" * 20 + "s", None, True, "5s "[::-1]]
)
def test_a_duration_without_number_or_unit_is_refused(text: object) -> None:
    """A missing unit is never guessed."""
    with pytest.raises(Invalid):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "MiB", "64MB", "64mib", "-1", -1, 1.5, True, None, "9" * 20])
def test_a_size_with_an_ambiguous_unit_is_refused(text: object) -> None:
    """MB has two meanings."""
    with pytest.raises(Invalid):
        parse_size_bytes(text)
