"""What a rehearsal says where its copy stops, is late or differs: nothing is left behind it to ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceover.audit.model import FindingKind, Reason, Unverifiable
from onceover.drills.rehearsing.trouble import CopyCompared, copy_differs, copy_late, copy_stopped
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.state import names
from onceover.stops.codes import StopCode
from onceover.stops.record import Stop
from tests.support.worlds.audits import at, digests, finding, good_partition, more, partition_result

LEFT = {at(0): 7, at(1): 2}
COPIES = {tp: TopicPartition("copy.orders", tp.partition) for tp in LEFT}
SHADOW = names.rehearsal_flow("orders-dr")


def stop(code: str, resolve: str) -> Stop:
    return Stop(code, "not authorized to read", "READ", "none", resolve, 0)


def test_why_its_copy_stopped_is_said() -> None:
    """The first few partitions, and the cause of the first."""
    error = copy_stopped(
        "orders-dr",
        "west",
        [TopicPartition("copy.a", n) for n in range(4)],
        stop("SOURCE_UNAUTHORIZED", "grant READ"),
    )
    assert "copy.a:0, copy.a:1, copy.a:2 and 1 more: SOURCE_UNAUTHORIZED: not authorized" in error.message
    assert "would stop there, too: grant READ; `onceover status orders-dr`" in str(error.resolve)
    assert (error.expected, error.seen) == ("READ", "none")
    unreadable = copy_stopped("orders-dr", "west", [TopicPartition("copy.a", 0)], None)
    assert unreadable.message.endswith("copy.a:0")


def test_its_way_out_is_no_command_for_its_own_position() -> None:
    """Of the flow it would leave out, or repeat, other records; of the rehearsal's own there is no file."""
    told = stop(StopCode.RECORD_TOO_LARGE, commands.skip_to(SHADOW, at(3), 9, "leaves it out"))
    error = copy_stopped("orders-dr", "west", [COPIES[at(0)]], told)
    assert SHADOW not in str(error.resolve) and "skip-to" not in str(error.resolve)
    assert "`onceover status orders-dr` names the way out" in str(error.resolve)


@pytest.mark.parametrize("between", ["; then ", ", then ", " or ", ""])
def test_what_is_to_be_done_before_its_command_holds_for_the_flow_too(between: str) -> None:
    """A right that is missing is named; the command behind it is not."""
    resume = commands.resume(SHADOW, at(0))
    told = stop(StopCode.SOURCE_UNAUTHORIZED, f"grant READ on orders{between}{resume}")
    resolve = str(copy_stopped("orders-dr", "west", [COPIES[at(0)]], told).resolve)
    assert "too: grant READ on orders; `onceover status orders-dr`" in resolve
    assert "resume" not in resolve


@pytest.mark.parametrize(
    "code", [StopCode.TARGET_MISSING, StopCode.PROGRESS_FOREIGN, StopCode.SOURCE_TRUNCATED]
)
def test_a_fault_of_its_own_copy_is_none_of_the_flows(code: StopCode) -> None:
    """Whatever has happened to topics and progress that begin with its prefix."""
    error = copy_stopped("orders-dr", "west", [COPIES[at(0)]], stop(code, commands.reseed(SHADOW, at(0))))
    assert "the flow itself would stop" not in str(error.resolve)
    assert "run the rehearsal again" in str(error.resolve)


def test_what_differs_is_named_by_partition_kind_and_offset() -> None:
    """As the copies are removed behind it; the partitions that are right are not named."""
    wrong = partition_result(
        1,
        digests(1, 0, 200),
        findings=[finding(FindingKind.ALTERED, 1)],
        unlisted=[more(FindingKind.LOST, 4)],
    )
    found = CopyCompared.of([good_partition(0), wrong])
    assert found.document() == {"records": 400, "different": 5, "unverifiable": 0}
    error = copy_differs("orders-dr", found)
    assert error.message.startswith("5 records")
    assert error.seen is not None
    for part in ("orders:1: 1 altered, 4 lost", "source offset 42", "target offset 43"):
        assert part in error.seen
    assert "orders:0" not in error.seen


def test_of_many_partitions_that_differ_some_are_named() -> None:
    """And how many more there are."""
    many = [
        replace(partition_result(0, (), findings=[finding(FindingKind.LOST)]), source=at(n)) for n in range(9)
    ]
    assert str(copy_differs("f", CopyCompared.of(many)).seen).endswith("and 6 partitions more")


def test_what_could_not_be_compared_is_told_by_its_reason() -> None:
    """Not by what it might have been."""
    gaps = [
        Unverifiable(Reason.RETENTION, at(n), 0, 5, 5, "expired on west", gone=True) for n in range(2)
    ] + [Unverifiable(Reason.TOO_LARGE, at(0), 7, 8, 1, "takes 2 GiB")]
    found = CopyCompared.of([partition_result(0, (), unverifiable=gaps)])
    assert found.not_compared == [
        "10 offsets, RETENTION: orders:0, orders:1: expired on west",
        "1 offsets, TOO_LARGE: orders:0: takes 2 GiB",
    ]


def note(what: str, message: str, resolve: str) -> dict[str, Any]:
    return {"v": 1, "generation": 1, "object": what, "message": message, "resolve": resolve}


def test_why_a_copy_is_late_is_what_its_lane_has_noted() -> None:
    """Fewer topics are no help where one cannot be read."""
    waits = note("orders:1", "cannot be read on the source for now", "bring its broker back")
    slowed = note("lane 0", "a producer quota throttles", "raise it")
    both = {names.wait_key(*COPIES[at(1)]): waits, names.quota_key(0): slowed}
    error = copy_late("west", LEFT, COPIES, both)
    assert "orders:0 (7 offsets), orders:1 (2 offsets)" in error.message
    assert (error.seen, error.resolve) == (
        "orders:1: cannot be read on the source for now",
        "bring its broker back",
    )
    assert copy_late("west", LEFT, COPIES, {names.quota_key(0): slowed}).resolve == "raise it"
    elsewhere = {names.wait_key("copy.other", 0): waits}
    for nothing in ({}, elsewhere, {names.wait_key(*COPIES[at(0)]): "what is this"}):
        assert "fewer `--topics`" in str(copy_late("west", LEFT, COPIES, nothing).resolve)
