"""The tables' schemas: exactly the columns of the rows that fill them."""

from __future__ import annotations

import pytest

from onceover.audit import tables
from onceover.audit.model import FindingKind, Reason
from tests.support import audits

_RESULT = audits.result(
    [
        audits.partition_result(
            0,
            audits.digests(0, 0, 200),
            findings=[audits.finding(FindingKind.LOST)],
            unlisted=[audits.more(FindingKind.LOST, 7)],
            unverifiable=[audits.stretch(Reason.RETENTION, 0, 0, 10)],
        )
    ]
)


@pytest.mark.parametrize("name", sorted(tables.SCHEMAS))
def test_schema_has_exactly_the_columns_of_its_rows(name: str) -> None:
    """Spark fills columns by position: a column more, less or elsewhere would shift all others."""
    rows = tables.rows(_RESULT)[name]

    assert rows
    assert [list(row) for row in rows] == [tables.columns(name)] * len(rows)


def test_range_columns_are_those_of_a_digest_that_both_sides_share() -> None:
    """The comparison joins the two sides by them: what differs between the sides must not be among them."""
    source, target = (digest.as_row() for digest in audits.digests(0, 0, 100, target_records=99))

    assert [source[name] for name in tables.RANGE_COLUMNS] == [target[name] for name in tables.RANGE_COLUMNS]
    assert set(tables.RANGE_COLUMNS) == set(audits.digests(0, 0, 100)[0].range.as_row())
