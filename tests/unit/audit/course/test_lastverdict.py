"""What an audit leaves for ``status``: a failure stays until the very same was found right."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from onceover.audit.checks.result import Area, Check, PartitionResult
from onceover.audit.checks.suites import RULES
from onceover.audit.checks.verdict import RuleOutcome, conclude
from onceover.audit.course.lastverdict import FinishedAudit, next_verdicts
from onceover.audit.model import Finding, FindingKind, Reason
from onceover.model import TopicPartition
from onceover.state.records.verdicts import (
    AuditAnswer,
    Verdict,
    Verdicts,
    audit_entry,
    audit_need,
    describe_audit,
)
from tests.support.worlds.audits import (
    at,
    check,
    digests,
    finding,
    good_partition,
    partition_result,
    result,
    stretch,
)

IDS = ("source-id", "target-id")
PASS, FAIL, UNVERIFIABLE = Verdict.PASS, Verdict.FAIL, Verdict.UNVERIFIABLE


def bad_partition(number: int = 0, **changes: Any) -> PartitionResult:
    """Return a partition with a lost record, proven up to offset 100."""
    lost = finding(FindingKind.LOST, number, 142)
    return replace(
        partition_result(number, digests(number, 0, 100), findings=[lost], verified_to=100), **changes
    )


def told(
    verdict: Verdict,
    partitions: Sequence[PartitionResult],
    *,
    checks: Sequence[Check] = (),
    at_ms: int = 1_000,
    ids: tuple[str, str] = IDS,
    rule: str = "",
    **limits: Any,
) -> FinishedAudit:
    """Return an audit that answered ``verdict``; ``rule`` is what failed beside partitions."""
    outcomes = [
        RuleOutcome(r, r.name != rule if verdict is not UNVERIFIABLE else None, checked=1) for r in RULES
    ]
    if verdict is FAIL and not rule:
        outcomes = [RuleOutcome(r, r.answer is not FAIL, checked=1) for r in RULES]
    answer = AuditAnswer(
        verdict=str(verdict), at_ms=at_ms, summary="1 lost", report=f"/r/{at_ms}", host="box",
        since=limits.pop("since", "watermark"), **limits,
    )  # fmt: skip
    seen = replace(result(partitions, checks), since=answer.since)
    return FinishedAudit(answer, seen, conclude(outcomes), {(at(n), at(n)): ids for n in range(3)})


def open_failures(verdicts: Verdicts) -> list[tuple[int, int, int]] | None:
    """Return what still counts: partition, from, to."""
    failed = verdicts.open(lambda failure: True)
    return None if failed is None else [(f.partition, f.source_from, f.source_to) for f in failed.failures]


FAILED = next_verdicts(None, told(FAIL, [bad_partition(), good_partition(1)]))


def test_failure_is_kept_with_what_is_not_proven_of_its_partition() -> None:
    """From where the proof ended, so that the next audit can take it away."""
    assert open_failures(FAILED) == [(0, 100, 200)]
    assert FAILED.failures[0].what == {"LOST": 1}


@pytest.mark.parametrize(
    "later",
    [
        told(PASS, [good_partition(0), good_partition(1)], at_ms=2_000),
        told(PASS, [replace(good_partition(0), source_from=100, target_from=100)], topics=("orders",)),
        told(UNVERIFIABLE, [good_partition(0), bad_partition(1, findings=())], at_ms=2_000),
        told(PASS, [good_partition(0)], at_ms=2_000, ids=("made", "anew")),
    ],
    ids=["everything", "from the watermark", "another partition unverifiable", "another topic of the name"],
)
def test_later_audit_that_found_the_same_right_takes_it_away(later: FinishedAudit) -> None:
    """What was put right is no failure any more."""
    now = next_verdicts(FAILED, later)

    assert open_failures(now) is None
    assert now.last == later.answer


@pytest.mark.parametrize(
    "later",
    [
        told(PASS, [good_partition(1)], at_ms=2_000, topics=("other",)),
        told(PASS, [good_partition(0)], at_ms=2_000, sample=2),
        told(PASS, [replace(good_partition(0), complete=False)], at_ms=2_000),
        told(PASS, [replace(good_partition(0), source_from=150)], at_ms=2_000, since="2026-01-01"),
        told(
            UNVERIFIABLE,
            [replace(good_partition(0), unverifiable=(stretch(Reason.RETENTION, 0, 90, 120),))],
            at_ms=2_000,
        ),
        told(FAIL, [good_partition(0)], checks=[check(Area.MAP, ok=False)], at_ms=2_000),
    ],
    ids=["other topics", "sample", "incomplete", "later records", "gone by retention", "claims wrong"],
)
def test_audit_that_did_not_compare_it_hides_nothing(later: FinishedAudit) -> None:
    """The newest answer is shown, and the older FAIL with it."""
    now = next_verdicts(FAILED, later)

    assert any(n == 0 and begin <= 100 and end == 200 for n, begin, end in open_failures(now) or ())
    assert now.last.at_ms == 2_000


def empty_source(found: Sequence[Finding] = (), **changes: Any) -> PartitionResult:
    """Return a partition whose source has never held a record, with one on the target."""
    seen = partition_result(0, (), source_to=0, findings=found, verified_to=-1)
    fields: dict[str, Any] = {"target_to": 1, "verified_before": -1, **changes}
    return replace(seen, **fields)


PHANTOM = next_verdicts(None, told(FAIL, [empty_source([finding(FindingKind.PHANTOM, 0, 0)])]))


@pytest.mark.parametrize(
    "later",
    [
        told(PASS, [empty_source(target_from=1)], since="2026-01-01"),
        told(PASS, [empty_source()], sample=1),
        told(PASS, [empty_source(target_to=0)]),
        told(PASS, [good_partition(1)], topics=("other",)),
    ],
    ids=["later records", "sample", "hidden on the target", "other topics"],
)
def test_phantom_where_the_source_is_empty_stays_until_its_place_was_looked_at(later: FinishedAudit) -> None:
    """There is no source offset that could be compared: the target's are what it is about."""
    assert open_failures(next_verdicts(PHANTOM, later)) == [(0, 0, 0)]


def test_phantom_where_the_source_is_empty_goes_with_the_record() -> None:
    """Looked at and not there, or removed from the beginning of the log."""
    for right in (
        told(PASS, [empty_source()]),
        replace(told(PASS, [empty_source(target_from=1)]), logs={at(0): (1, 1)}),
    ):
        assert open_failures(next_verdicts(PHANTOM, right)) is None


def test_what_clients_had_written_to_a_promoted_copy_goes_when_its_end_is_looked_at() -> None:
    """A release before this one called it PHANTOM. What is behind it on the target is no copy."""
    for end, stays in ((1, True), (0, False)):
        right = replace(told(PASS, [empty_source(target_to=0)]), logs={at(0): (0, end)})
        assert (open_failures(next_verdicts(PHANTOM, right)) is not None) == stays


SURPLUS = replace(
    told(FAIL, [empty_source([finding(FindingKind.PHANTOM, 0, 2)], target_from=2, target_to=3)]), ids={}
)


@pytest.mark.parametrize(
    ("logs", "stays"),
    [
        ({at(0): (0, 3)}, True),
        ({at(0): (2, 9)}, True),
        ({at(0): (3, 9)}, False),
        ({at(0): (9, 9)}, False),
        ({at(0): (0, 0)}, False),
        ({at(1): (0, 9)}, False),
    ],
    ids=["there", "still there", "removed", "empty", "made anew", "the topic has left"],
)
@pytest.mark.parametrize("since", ["watermark", "start"])
def test_surplus_where_nobody_looks_any_more_stays_as_long_as_it_is_there(
    logs: Mapping[TopicPartition, tuple[int, int]], stays: bool, since: str
) -> None:
    """Behind a handler it is looked for only as far as the offset map tells, which forgets."""
    failed = next_verdicts(None, SURPLUS)
    assert failed.failures[0].ids == ("", "")
    later = replace(told(PASS, [good_partition(1)], since=since), logs=logs)
    assert (open_failures(next_verdicts(failed, later)) is not None) == stays
    less = replace(told(PASS, [good_partition(1)], topics=("other",)), logs=logs)
    assert open_failures(next_verdicts(failed, less)) is not None, "an audit of less hides nothing"


def test_what_the_source_no_longer_holds_goes_with_a_copy_made_anew_alone() -> None:
    """No audit can compare it again, of everything neither."""
    gone = replace(stretch(Reason.RETENTION, 0, 0, 200), gone=True)
    right = good_partition(0)
    later = replace(right, source_from=200, target_from=200, unverifiable=(gone,))
    for since in ("watermark", "start"):
        now = next_verdicts(FAILED, told(UNVERIFIABLE, [later], since=since))
        assert open_failures(now) == [(0, 100, 200)]
    anew = told(UNVERIFIABLE, [later], since="start", ids=(IDS[0], "made anew"))
    assert open_failures(next_verdicts(FAILED, anew)) is None


def test_surplus_that_an_older_release_wrote_goes_with_all_that_its_partition_holds() -> None:
    """It does not say where it was."""
    older = next_verdicts(None, SURPLUS)
    older = replace(older, failures=(replace(older.failures[0], target_from=0, target_to=None),))
    for log, stays in (((0, 1), True), ((1, 1), False)):
        later = replace(told(PASS, [good_partition(1)], since="start"), logs={at(0): log})
        assert (open_failures(next_verdicts(older, later)) is not None) == stays


def test_failure_that_an_older_release_wrote_goes_when_everything_was_right() -> None:
    """It does not say which offsets of the target it is about."""
    older = PHANTOM.to_json()
    for each in older["failures"]:
        del each["target_from"], each["target_to"]
    read = Verdicts.from_json(older)

    assert open_failures(next_verdicts(read, told(PASS, [empty_source()]))) == [(0, 0, 0)]
    assert open_failures(next_verdicts(read, told(PASS, [empty_source()], since="start"))) is None


def test_damage_to_what_was_proven_stays_until_that_was_compared_again() -> None:
    """An audit of everything finds it; one from the watermark on does not look there."""
    damaged = finding(FindingKind.ALTERED, 0, 42)
    wrong = partition_result(0, digests(0, 0, 100), findings=[damaged])
    failed = next_verdicts(None, told(FAIL, [replace(wrong, verified_before=200)], since="start"))
    onwards = replace(good_partition(0), source_from=200, target_from=200)

    assert open_failures(next_verdicts(failed, told(PASS, [onwards]))) == [(0, 0, 200)]
    assert open_failures(next_verdicts(failed, told(PASS, [good_partition(0)], since="start"))) is None


@pytest.mark.parametrize(
    ("less", "changes"),
    [
        ({"sample": 2}, {"complete": False}),
        ({}, {"unverifiable": (stretch(Reason.RETENTION, 0, 90, 120),)}),
    ],
    ids=["sample", "gone by retention"],
)
def test_failure_of_less_keeps_what_was_found_by_more(less: dict[str, Any], changes: dict[str, Any]) -> None:
    """The newer one stands for both, and says both."""
    swapped = bad_partition(findings=[finding(FindingKind.REORDERED, 0, 150)], **changes)
    now = next_verdicts(FAILED, told(FAIL, [swapped], **less))

    assert [each.what for each in now.failures] == [{"REORDERED": 1, "LOST": 1}]
    whole = next_verdicts(now, told(FAIL, [bad_partition()]))
    assert [each.what for each in whole.failures] == [{"LOST": 1}]


def test_failure_since_a_time_replaces_nothing_that_lies_before_on_the_target() -> None:
    """All source offsets are in it, and of the target those behind the surplus record are."""
    surplus = [finding(FindingKind.PHANTOM, 0, 0), finding(FindingKind.PHANTOM, 0, 300)]
    unproven = {"verified_to": -1, "verified_before": -1}
    failed = next_verdicts(None, told(FAIL, [bad_partition(findings=surplus, **unproven)]))
    later = bad_partition(findings=surplus[1:], target_from=1, **unproven)
    now = next_verdicts(failed, told(FAIL, [later], since="2026-01-01"))

    assert sorted(each.what["PHANTOM"] for each in now.failures) == [1, 2]


def test_number_of_those_that_are_not_listed_goes_with_a_pass_of_everything_only() -> None:
    """Nobody knows where they are."""
    counted = replace(FAILED, more=3)
    for less in (
        told(PASS, [good_partition(0)]),
        told(PASS, [good_partition(0)], since="2026-01-01"),
        told(UNVERIFIABLE, [good_partition(0)], since="start"),
    ):
        assert next_verdicts(counted, less).more == 3
    assert next_verdicts(counted, told(PASS, [good_partition(0)], since="start")).more == 0


def test_failure_found_again_is_the_newer_one() -> None:
    """Its age and its report are those of the audit that saw it last."""
    now = next_verdicts(FAILED, told(FAIL, [bad_partition()], at_ms=9_000))

    failed = now.open(lambda failure: True)
    assert failed is not None
    assert (failed.audit.report, len(failed.failures), len(now.audits)) == ("/r/9000", 1, 1)


def test_failure_of_the_flow_as_a_whole_goes_when_the_rule_is_met() -> None:
    """Such as a surplus partition, or a table that does not add up."""
    rule = next(r for r in RULES if r.answer is FAIL)
    wrong = next_verdicts(None, told(FAIL, [good_partition(0)], rule=rule.name))
    now = wrong
    less: tuple[dict[str, Any], ...] = (
        {"since": "start", "sample": 1},
        {"since": "start", "topics": ("orders",)},
        {"since": "2026-01-01"},
        {"since": "watermark"},
    )
    for limits in less:
        now = next_verdicts(now, told(PASS, [good_partition(0)], **limits))
        assert list(now.rules) == [rule.says], limits
    right = next_verdicts(now, told(PASS, [good_partition(0)], since="start"))

    assert right.open(lambda failure: True) is None


def test_group_that_was_wrong_is_settled_by_one_that_is_right() -> None:
    """It was a claim about the present: no range has to be compared again."""
    checks = [check(Area.GROUPS, ok=False)]
    wrong = next_verdicts(None, told(FAIL, [good_partition(0)], checks=checks))
    right = next_verdicts(wrong, told(PASS, [replace(good_partition(0), source_from=200)]))

    assert wrong.failures[0].what == {"groups": 1}
    assert right.open(lambda failure: True) is None


def test_failure_of_a_topic_that_is_not_copied_any_more_does_not_count() -> None:
    """It left the flow, or was made anew."""
    assert FAILED.open(lambda failure: False) is None


def test_state_value_survives_json() -> None:
    """What is written is what is read."""
    assert Verdicts.from_json(json.loads(json.dumps(FAILED.to_json()))) == FAILED


def test_scope_of_an_audit_is_told_with_its_answer() -> None:
    """A PASS of some records must not be read as one of all."""
    scopes: dict[str, dict[str, Any]] = {
        " (of records since 2026-01-01 only)": {"since": "2026-01-01"},
        " (of a, b only, a sample of 3 ranges)": {"topics": ("a", "b"), "sample": 3},
        "": {"since": "start"},
    }
    for says, limits in scopes.items():
        now = next_verdicts(None, told(PASS, [good_partition(0)], **limits))
        assert describe_audit(audit_entry(now, None, now_ms=61_000)) == f"PASS 1 min ago{says}: 1 lost"


def test_status_tells_failure_and_newest_answer() -> None:
    """The FAIL needs a person, with its age and its report, also behind a PASS of less."""
    now = next_verdicts(FAILED, told(PASS, [good_partition(1)], at_ms=61_000, topics=("other",)))
    entry = audit_entry(now, now.open(lambda failure: True), now_ms=121_000)

    need = audit_need("orders", entry)
    assert need is not None
    assert need["code"] == "AUDIT_FAILED"
    assert "2 min ago: 1 lost In orders:0." in need["message"]
    assert "/r/1000 on box" in need["resolve"]
    assert "`onceover audit orders --full` takes this away while the source holds" in need["resolve"]
    assert "`onceover partition reseed orders orders:0`" in need["resolve"], "retention may have passed it"
    assert describe_audit(entry) == "PASS 1 min ago (of other only): 1 lost"
    assert audit_need("orders", audit_entry(now, None, now_ms=121_000)) is None
    assert audit_need("orders", None) is None
