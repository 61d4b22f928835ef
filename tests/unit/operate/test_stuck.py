"""A partition is stuck only where nothing that is known explains why it does not move."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from onceover.cli.terminal.statustext import describe
from onceover.copy.waits import slowed_note
from onceover.kafka.logs.usage import ActiveProducer
from onceover.model import TopicPartition
from onceover.operate.statusfacts import StatusFacts, StatusSide
from onceover.operate.statusread import FlowFacts, SourceLogs
from onceover.operate.statusshape import shape
from onceover.state import names
from onceover.state.records.layout import DONE
from onceover.state.records.standstill import Standstill, standstill_note
from onceover.stops.record import Stop
from tests.unit.copy.loop import ME
from tests.unit.operate.test_status_looks import TP, facts, target_logs

_WAIT = {"v": 1, "generation": 1, "object": "orders:0", "code": "WAITING", "message": "m", "resolve": "r"}


def status(
    notes: dict[str, Any], *, lso: int = 20, seen: bool = True, known: FlowFacts | None = None
) -> dict[str, Any]:
    """Return the status of a partition that stands at 10 for five minutes, by its driver."""
    now_ms = time.time() * 1000
    state = known or facts()
    state.read({}, {names.STILL: standstill_note(1, {TP: Standstill(10, int(now_ms) - 300_000)}), **notes})
    here = SourceLogs(
        starts={TP: 0}, lsos={TP: lso}, high_watermarks={TP: 20}, open={TP: ActiveProducer(77, -1, 10)}
    )
    sides = StatusSide(alias="east"), StatusSide(alias="west")
    return shape(
        StatusFacts(
            flow="f",
            now_ms=now_ms,
            source=sides[0],
            target=sides[1],
            state=state,
            here=here,
            there=target_logs(),
            oldest_ms={TP: 1} if seen else {},
        )
    )


def test_stuck_partition_needs_a_person() -> None:
    """With a code, where it stands, since when, and what frees it."""
    entry = status({})
    assert (entry["exit"], [need["code"] for need in entry["needs"]]) == (3, ["NOT_MOVING"])
    assert "orders:0 has not moved for 5 min" in entry["needs"][0]["message"]
    assert "`onceover stop f`" in entry["needs"][0]["resolve"]
    assert [p["state"] for p in entry["partitions"]] == ["stuck"]
    assert entry["partitions"][0]["stuck_s"] == pytest.approx(300, abs=1)
    assert "  NOT_MOVING" in describe(entry)


@pytest.mark.parametrize(
    ("notes", "lso", "seen", "expected"),
    [
        ({names.wait_key("orders", 0): _WAIT}, 20, True, "copying"),
        (slowed_note(replace(ME, lane=0, generation=1), "west"), 20, True, "copying"),
        ({}, 20, False, "copying"),
        ({}, 10, True, "caught_up"),
        ({names.STILL: standstill_note(0, {TP: Standstill(10, 1)})}, 20, True, "copying"),
        ({names.STILL: standstill_note(1, {TP: Standstill(9, 1)})}, 20, True, "copying"),
        (
            {names.stop_key("orders", 0): Stop("SOURCE_DAMAGED", "m", "e", "s", "r", 10).to_json()},
            20,
            True,
            "stopped",
        ),
    ],
    ids=[
        "its lane says what it waits for",
        "a quota",
        "only markers",
        "an open transaction",
        "an older run's",
        "it has moved since",
        "a stop",
    ],
)
def test_what_explains_it_has_words_of_its_own(
    notes: dict[str, Any], lso: int, seen: bool, expected: str
) -> None:
    """And no NOT_MOVING."""
    entry = status(notes, lso=lso, seen=seen)
    assert [p["state"] for p in entry["partitions"]] == [expected]
    assert "NOT_MOVING" not in [need["code"] for need in entry["needs"]]


def test_run_that_is_over_has_nothing_stuck() -> None:
    """Whoever starts it again may find it moving."""
    known = facts()
    assert known.layout is not None
    known.layout = known.layout.as_ended(int(time.time() * 1000), DONE)
    assert [p["state"] for p in status({}, known=known)["partitions"]] == ["idle"]


def test_transaction_that_is_waited_for_is_named() -> None:
    """Producer id and where it began; without the right to know, that there is one."""
    entry = status({}, lso=10)
    (partition,) = entry["partitions"]
    assert partition["open_transaction"] == {
        "producer_id": 77,
        "producer_epoch": -1,
        "first_offset": 10,
        "last_write_s": None,
    }
    assert "10 offsets wait for the open transaction of producer id 77, from offset 10 on" in describe(entry)
    partition["open_transaction"] = None
    assert "10 offsets wait for a transaction of the source that is open" in describe(entry)
    assert TopicPartition("orders", 0) == TP
