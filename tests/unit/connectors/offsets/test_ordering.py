"""The order of offsets, for the shapes of which it is known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.connectors.offsets.ordering import order

PG = {"transaction_id": None, "lsn_proc": 20, "lsn_commit": 10, "lsn": 20, "txId": 5, "ts_usec": 9}
BINLOG = {"ts_sec": 1, "file": "mysql-bin.000009", "pos": 100, "row": 1, "server_id": 3, "event": 2}
GTIDS = {"file": "mysql-bin.000009", "pos": 100, "gtids": "3E11:1-5,4f22:1-3"}
SERVER = {
    "commit_lsn": "00000027:00000ac0:0003",
    "change_lsn": "00000027:00000ac0:0002",
    "event_serial_no": 1,
}
MONGO = {"sec": 10, "ord": 3, "resume_token": "x"}
JDBC = {"timestamp": 5, "timestamp_nanos": 7, "incrementing": 9}


@pytest.mark.parametrize(
    ("before", "changes", "expected"),
    [
        ({"position": 5}, {"position": 6}, 1),
        ({"position": 5}, {"position": 4}, -1),
        (PG, {"lsn_commit": 30, "lsn": 15}, 1),
        (PG, {"lsn_commit": 9, "lsn": 40}, -1),
        (PG, {"lsn": 25}, 1),
        # A transaction that began before the one that was committed last.
        (PG, {"lsn": 15}, None),
        (PG, {"lsn_commit": None, "lsn": 15}, -1),
        (PG, {"ts_usec": 10}, 0),
        (BINLOG, {"file": "mysql-bin.000010", "pos": 4}, 1),
        (BINLOG, {"file": "mysql-bin.000008", "pos": 900}, -1),
        (BINLOG, {"pos": 99}, -1),
        (BINLOG, {"row": 0}, -1),
        (BINLOG, {"event": 3, "row": 0}, 1),
        (BINLOG, {"server_id": 4, "pos": 1}, None),
        (BINLOG, {"file": "other-bin.000010"}, None),
        (GTIDS, {"gtids": "3e11:1-9,4f22:1-3", "file": "a.000001", "pos": 4}, 1),
        (GTIDS, {"gtids": "3e11:1-5"}, -1),
        (GTIDS, {"gtids": "3e11:1-9,4f22:1-2"}, None),
        (GTIDS, {"gtids": "what"}, None),
        # MariaDB: a domain's last transaction of a server. Another server of it numbers for itself.
        ({"gtids": "0-1-100,7-1-5"}, {"gtids": "0-1-101,7-1-5"}, 1),
        ({"gtids": "0-1-100,7-1-5"}, {"gtids": "0-1-99,7-1-5"}, -1),
        ({"gtids": "0-1-100"}, {"gtids": "0-1-100"}, 0),
        ({"gtids": "0-1-100"}, {"gtids": "0-1-100,3-1-1"}, 1),
        ({"gtids": "0-1-100"}, {"gtids": "0-2-101"}, None),
        ({"gtids": "0-1-100,7-1-5"}, {"gtids": "0-1-101,7-1-4"}, None),
        # MySQL from 8.3 on: transactions with a tag count for themselves.
        ({"gtids": "3e11:1-5:night:1-2"}, {"gtids": "3e11:1-5:night:1-3"}, 1),
        ({"gtids": "3e11:1-5:night:1-2"}, {"gtids": "3e11:1-6"}, None),
        ({"gtids": "3e11:night"}, {"gtids": "3e11:night"}, None),
        (GTIDS, {"gtids": None}, None),
        (SERVER, {"commit_lsn": "00000027:00000ac0:0004", "change_lsn": "00000026:00000ac0:0001"}, 1),
        (SERVER, {"commit_lsn": "00000026:ffffffff:0003"}, -1),
        (SERVER, {"event_serial_no": 2}, 1),
        (SERVER, {"change_lsn": "NULL"}, None),
        (MONGO, {"ord": 4}, 1),
        (MONGO, {"sec": 9, "ord": 9}, -1),
        (JDBC, {"timestamp": 6, "timestamp_nanos": 0, "incrementing": 1}, 1),
        (JDBC, {"incrementing": 8}, -1),
        ({"page": 3, "left": 7}, {"page": 4, "left": 6}, None),
        ({"position": True}, {"position": False}, None),
        ({"offset": 5}, {"offset": 4}, -1),
        ({"lsn": 5}, {"lsn": 4}, -1),
        ({"deliveryTag": 5000}, {"deliveryTag": 1}, None),
        ({"epoch": 5}, {"epoch": 6}, None),
        ({}, {}, None),
    ],
)
def test_offset_lies_where_its_connector_says(
    before: dict[str, Any], changes: dict[str, Any], expected: int | None
) -> None:
    """By what the connector itself goes by, or not at all."""
    assert order(before, {**before, **changes}) == expected


numbers = st.integers(0, 3)
offsets = st.one_of(
    st.builds(lambda n: {"position": n}, numbers),
    st.builds(lambda c, e: {**PG, "lsn_commit": c, "lsn": e}, numbers, numbers),
    st.builds(lambda f, p, r: {**BINLOG, "file": f"b.{f:06}", "pos": p, "row": r}, numbers, numbers, numbers),
    st.builds(lambda n, m: {"gtids": f"a:1-{n + 1},b:1-{m + 1}"}, numbers, numbers),
    st.builds(lambda n, m: {"sec": n, "ord": m}, numbers, numbers),
)


@given(offsets, offsets)
def test_the_way_back_is_a_way_back(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Never forward in both directions; where one direction is known, so is the other, or it is unknown."""
    there, back = order(one, other), order(other, one)
    assert order(one, one) in (0, None)
    if there is not None and back is not None:
        assert there == -back
