"""Audits of a world in memory, and what has to be true of their answers.

The audit is the real one from the snapshot on: bounds, plans, workers, checks, rules, watermarks. What judges
it reads the world's own book of the truth, and none of its code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

from onceover.audit.checks.bookkeeping import check_claims, claims_of
from onceover.audit.checks.result import AuditResult, PartitionResult
from onceover.audit.checks.suiterows import suite_rows
from onceover.audit.checks.suites import RULES, RuleKind
from onceover.audit.checks.verdict import QualityVerdict, RuleOutcome, conclude
from onceover.audit.compare.sides import Sides
from onceover.audit.course.content import Content, audit_content, planned, proven
from onceover.audit.course.lastverdict import next_verdicts
from onceover.audit.course.plans import PlanInputs
from onceover.audit.model import Finding, FindingKind, Row, Side
from onceover.audit.ranges.diverted import diverted
from onceover.audit.ranges.snapshot import AuditSelection, snapshot_of
from onceover.audit.records.lookup import Lookup
from onceover.model import TopicPartition
from onceover.state.records.verdicts import START, WATERMARK, Verdict
from onceover.wiring.audit import AuditRequest, told_of
from tests.support.fakes.fakelogs import FakeAdmin, FakeLog
from tests.support.worlds.auditworld import FLOW, SOURCE, Place, World
from tests.support.worlds.contentaudit import InlineWorkers

# So small that a handful of records are several ranges.
_RANGE_BYTES: Final = 250


class Answer(NamedTuple):
    """What an audit said, before any of it was kept."""

    quality: QualityVerdict
    result: AuditResult
    content: Content
    since: str
    sample: int | None

    @property
    def verdict(self) -> Verdict:
        """PASS, FAIL or UNVERIFIABLE."""
        return self.quality.verdict


@contextmanager
def _in_memory(world: World) -> Iterator[None]:
    with (
        patch("onceover.audit.ranges.logs.Admin", FakeAdmin),
        patch("onceover.audit.ranges.logs._LED_S", 0.0),
        patch("onceover.audit.ranges.snapshot._MARKERS_S", 0.0),
        patch("onceover.audit.ranges.diverted._MARKERS_S", 0.0),
        patch("onceover.audit.ranges.snapshot.now_ms", lambda: next(world.now_ms)),
        patch("onceover.audit.records.reader._PATIENCE_S", 0.0),
    ):
        yield


def audit(world: World, since: str = WATERMARK, sample: int | None = None) -> Answer:
    """Return what an audit of the world says now.

    Args:
        since: as people ask, or a time in ms since 1970.
    """
    source, target = world.source, world.target
    begin_ms = None if since in (WATERMARK, START) else int(since)
    request = AuditSelection(since_ms=begin_ms, settle_s=0.0, inside=lambda topic, _: topic == SOURCE)
    with _in_memory(world):
        seen = snapshot_of(FLOW, source, target, request, world.state())
        store = world.store()
        inputs = PlanInputs(
            seen,
            store,
            diverted(target, seen.layout.letters, FLOW, next(reversed(world.letter_topics))),
            from_watermark=since == WATERMARK,
            range_bytes=_RANGE_BYTES,
            handled=world.kind.handled,
            handler_changed=world.handler_changed(seen),
        )
        workers = InlineWorkers(Sides(source, target, world.handler()))
        content = audit_content(planned(inputs, sample), workers)
        with Lookup({Side.SOURCE: source, Side.TARGET: target}) as look:
            # All of its bookkeeping but the groups, which this world has none of.
            checks = tuple(check_claims(claims_of(store, seen, content.partitions), seen, look))
        store.close()
    parts = content.partitions + content.beside
    result = AuditResult(FLOW, seen.started_ms, content.finished_ms, since, parts, checks)
    return Answer(judged(suite_rows(result)), result, content, since, sample)


def judged(rows: Mapping[str, Sequence[Row]]) -> QualityVerdict:
    """Return what the rules make of the rows, as Great Expectations evaluates them (``spark.quality``)."""
    return conclude(RuleOutcome(rule, _met(rule.kind, rule.columns, rows[rule.suite])) for rule in RULES)


def _met(kind: RuleKind, columns: tuple[str, ...], rows: Sequence[Row]) -> bool:
    known = [row[columns[0]] for row in rows if row[columns[0]] is not None] if columns else []
    match kind:
        case RuleKind.EQUAL:
            return all(row[columns[0]] == row[columns[1]] for row in rows)
        case RuleKind.ZERO:
            return all(value <= 0 for value in known)
        case RuleKind.TRUE:
            return all(value is True for value in known)
        case RuleKind.KNOWN:
            return len(known) == len(rows)
        case RuleKind.ROWS:
            return bool(rows)


def keep(world: World, answer: Answer) -> None:
    """Write what an audit leaves, as its transaction does: no watermark over one that is further."""
    for tp, mark in proven(answer.content).items():
        known = world.watermarks.get(tp)
        if mark.advances(known):
            world.watermarks[tp] = type(mark).from_json(json.loads(json.dumps(mark.to_json()))) or mark
    request = AuditRequest(since=answer.since, sample=answer.sample)
    told = told_of(request, answer.content, answer.result, answer.quality, Path("report.html"))
    world.verdicts = next_verdicts(world.verdicts, told)


# ---- what has to be true


class _Facts:
    """What is so at this moment, by the world's book."""

    def __init__(self, world: World) -> None:
        self.world, truth = world, world.truth
        topics = world.source.all_topics[SOURCE], world.target.all_topics[world.kind.target]
        self.anew = [topic.id for topic in topics] != [world.enrolment.source_id, world.enrolment.target_id]
        self.here = {(p, o) for p in range(2) for o in _readable(world.here(p))}
        self.there = {(t, o) for t in range(world.target_partitions) for o in _readable(world.there(t))}
        wrong = {place for place in truth.surplus & self.there if not self._among_gone(place)}
        self.cleaned = self._of_cleaned() & wrong
        self.surplus = wrong - self.cleaned
        seen = {(t, o) for t in range(world.target_partitions) for o, _ in world.there(t).visible()}
        self.unread = {p for p in truth.surplus & seen - self.there if not self._among_gone(p)}
        self.lost = truth.lost & self.here
        self.passed = truth.skipped | truth.diverted
        self.grown = [o for log in world.source.all_topics[SOURCE].logs[2:] for o in _readable(log)]

    def _among_gone(self, place: Place) -> bool:
        """Tell whether a place is among copies of what the source no longer holds: nobody can judge those."""
        world = self.world
        if place in world.copied_again and world.here(place[0]).start:
            return True
        sources = range(2) if world.kind.handled else [p for p in range(2) if p == place[0]]
        for partition in sources:
            start = world.here(partition).start
            held = [
                home[1]
                for (p, offset), homes in world.truth.homes.items()
                for home in homes
                if p == partition and offset >= start and home[0] == place[0]
            ]
            end = world.target_ends[partition] if place[0] == partition else place[1] + 1
            if start and place[1] < min(held, default=end):
                return True
        return False

    def _of_cleaned(self) -> set[Place]:
        """Return copies of what the source's log cleaner has taken: altered or not, nobody can tell."""
        if not self.world.kind.compacted:
            return set()
        held = {(p, o) for p in range(2) for o, _ in self.world.here(p).visible()}
        copies = self.world.truth.homes.items()
        return {home for place, homes in copies if place not in held for home in homes}

    def is_replaced(self, place: Place) -> bool:
        """Tell whether the source holds a later record of a record's key."""
        seen = dict(self.world.here(place[0]).visible())
        return any(o > place[1] and content.key == seen[place[1]].key for o, content in seen.items())

    def is_right(self, place: Place) -> bool:
        """Tell whether all copies of a source record stand where they should."""
        if place in self.world.truth.lost or place[1] >= self.world.positions[place[0]]:
            return False
        return all(home in self.there for home in self.world.truth.homes.get(place, ()))

    def unproven(self, partition: int, begin: int, end: int) -> set[Place]:
        """Return the source records of a stretch that nobody can call right."""
        found = {place for place in self.here if place[0] == partition and begin <= place[1] < end}
        return {place for place in found - self.passed if not self.is_right(place)}


def _readable(log: FakeLog) -> Iterator[int]:
    damaged = {offset for batch in log.batches if batch.damaged for offset in batch.records}
    return (offset for offset, _ in log.visible() if offset not in damaged)


def check(world: World, answer: Answer) -> None:
    """Hold an answer against the truth, then keep it and hold what was kept against the truth."""
    facts = _Facts(world)
    whole = answer.sample is None and answer.since in (WATERMARK, START)
    if answer.verdict is Verdict.PASS and whole:
        _check_pass(facts, answer)
    if answer.verdict is Verdict.FAIL:
        assert world.truth.surplus or world.truth.lost, _shown(answer)
        for finding in answer.result.findings:
            _check_finding(facts, finding)
    if whole and _pristine(facts):
        wrong = facts.surplus or facts.lost
        assert answer.verdict is (Verdict.FAIL if wrong else Verdict.PASS), _shown(answer)
    before = dict(world.watermarks)
    keep(world, answer)
    for partition in range(2):
        _check_mark(facts, answer, partition, before)
    _check_failures(facts, answer)


def _check_failures(facts: _Facts, answer: Answer) -> None:
    """What was named and is still there still counts as failed, whatever was looked at since."""
    world = facts.world
    found = ((each.target, each.target_offset) for each in answer.result.findings)
    world.named |= {(tp.partition, offset) for tp, offset in found if tp is not None and offset is not None}
    left = set() if facts.anew else world.named & (facts.surplus | facts.cleaned)
    failed = None if world.verdicts is None else world.verdicts.open(lambda failure: True)
    assert failed is not None or not left, f"named, still there, and forgotten: {sorted(left)}"


def _check_pass(facts: _Facts, answer: Answer) -> None:
    assert not facts.anew, "PASS of topics that were made anew"
    assert not facts.grown, f"PASS, and never taken in: {facts.grown}"
    assert not facts.surplus, f"PASS, and surplus on the target: {sorted(facts.surplus)}"
    assert not facts.unread, f"PASS, and nobody can read what is surplus there: {sorted(facts.unread)}"
    assert not facts.lost, f"PASS, and not as it should be on the target: {sorted(facts.lost)}"
    for partition in range(2):
        mark = facts.world.watermarks.get(TopicPartition(facts.world.kind.target, partition))
        begin = mark.offset if mark is not None and answer.since == WATERMARK else 0
        end = facts.world.here(partition).stable
        if answer.since == START and mark is not None:
            # Proven before it was lost: that counts, whatever is asked for.
            held = facts.unproven(partition, 0, mark.offset)
            assert not {place for place in held if place in facts.world.truth.lost}
            begin = mark.offset
        unproven = facts.unproven(partition, begin, end)
        assert not unproven, f"PASS, and never proven: {sorted(unproven)}"


def _check_finding(facts: _Facts, finding: Finding) -> None:
    """A finding names something that is wrong, or, among equal records, its twin."""
    world, truth = facts.world, facts.world.truth
    contents = {world.at(place) for place in facts.surplus}
    if finding.source is not None and finding.source_offset is not None:
        place = finding.source.partition, finding.source_offset
        source = dict(world.here(place[0]).visible())
        lost = {c for p, o in facts.lost if (c := dict(world.here(p).visible()).get(o))}
        if place in truth.lost or source.get(place[1]) in lost:
            return
    if finding.target is not None and finding.target_offset is not None:
        place = finding.target.partition, finding.target_offset
        if place in truth.surplus or world.at(place) in contents:
            return
        if finding.kind is FindingKind.REORDERED and any(t == place[0] for t, _ in facts.surplus):
            return
        if world.kind.handled and world.lost_ends:
            # At a place that the map gives to another one, too, which has been lost.
            return
    raise AssertionError(f"nothing is wrong there: {finding}")


def _pristine(facts: _Facts) -> bool:
    """Tell whether everything can be seen: nothing is gone, hidden, pending, stopped, passed or damaged."""
    world = facts.world
    sides = world.source, world.target
    if any(topic.leaders for side in sides for topic in side.all_topics.values()):
        return False
    if any(side.unanswered or side.away or side.faults or side.untold for side in sides):
        return False
    if (
        facts.anew
        or facts.grown
        or facts.passed
        or world.truth.again
        or world.stops
        or not world.enrolment.active
    ):
        return False
    if world.kind.compacted and any(map(facts.is_replaced, facts.lost)):
        # One that a later value replaces may as well have been taken by a cleaner.
        return False
    logs = [world.here(p) for p in range(2)] + [world.there(t) for t in range(world.target_partitions)]
    if any(log.start or log.pending or log.cleaned or any(b.damaged for b in log.batches) for log in logs):
        return False
    return not (world.forgot or world.overlooked) and all(
        world.positions[p] == world.here(p).end for p in range(2)
    )


def _check_mark(
    facts: _Facts, answer: Answer, partition: int, before: Mapping[TopicPartition, object]
) -> None:
    tp = TopicPartition(facts.world.kind.target, partition)
    mark, old = facts.world.watermarks.get(tp), before.get(tp)
    if mark is None:
        assert old is None
        return
    begin, target_begin, at_ms = (old.offset, old.target_offset, old.at_ms) if old else (0, 0, -1)  # pyrefly: ignore[missing-attribute]
    if old and mark.approval != old.approval:  # pyrefly: ignore[missing-attribute]
        # Put somewhere else in between: what is proven may begin anew.
        begin = min(begin, mark.offset)
    assert mark.offset >= begin, "a watermark goes back"
    unproven = facts.unproven(partition, begin, mark.offset)
    assert not unproven, f"below the watermark {mark.offset}, and never proven: {sorted(unproven)}"
    if not facts.world.kind.handled:
        passed = {o for t, o in facts.surplus if t == partition and target_begin <= o < mark.target_offset}
        assert not passed, f"below the watermark, and surplus: {passed}"
        behind = {o for t, o in facts.surplus if t == partition and o >= target_begin}
        renewed = old is not None and mark.offset == begin and mark.at_ms != at_ms
        assert not (renewed and behind), f"proven again, and surplus behind it: {behind}"
    wrong = any(_of(each, partition).by_kind for each in [answer.result] if _of(each, partition))
    if wrong and mark.offset == begin:
        assert mark.at_ms == at_ms, "a finding makes what was proven younger"


def _of(result: AuditResult, partition: int) -> PartitionResult:
    return next(each for each in result.partitions if each.source.partition == partition)


def _shown(answer: Answer) -> str:
    lines: Iterable[object] = [
        answer.verdict,
        *answer.result.findings,
        *answer.result.unverifiable,
        *(each for each in answer.result.checks if each.ok is not True),
    ]
    return "\n".join(map(str, lines))
