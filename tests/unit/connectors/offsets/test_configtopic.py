"""What stands in the workers' configuration topic, whoever wrote it: it is read, or it says nothing."""

from __future__ import annotations

import pytest

from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.offsets.keys import compare, parsed_json
from onceover.connectors.planning.access import version_of


@pytest.mark.parametrize("value", [b"[" * 9000, b"9" * 5000, b"{", b"\xff", None])
def test_what_no_json_reader_takes_says_nothing(value: bytes | None) -> None:
    """A thousand brackets end no command."""
    assert parsed_json(value) is None


@pytest.mark.parametrize(
    ("told", "count"), [("7", 7), (" 7 ", 7), ("9" * 5000, 1), ("-7", 1), ("²", 1), ("seven", 1), ("", 1)]
)
def test_a_number_of_tasks_that_is_none_counts_as_the_one_that_workers_begin_with(
    told: str, count: int
) -> None:
    """Workers would not start such a connector; more digits than Python takes end nothing here."""
    assert ConfigRecords().fence_count("c", {"tasks.max": told}) == count


def test_positions_and_versions_of_thousands_of_digits_have_no_order() -> None:
    """Whoever writes an offset, or serves the REST API, may say them."""
    long = "9" * 5000
    before, after = (b'{"gtids":"u:1-%s","file":"f","pos":1}' % end.encode() for end in ("5", long))
    compare(before, after)
    assert version_of(f"4.{long}.0") == (4, 0)
