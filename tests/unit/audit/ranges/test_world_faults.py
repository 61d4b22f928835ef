"""Faults of audits that were mended, put back one by one: the worlds find each of them by a short story.

A harness that finds nothing proves nothing until it is seen to find what was once there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

from onceover.audit.checks.result import PartitionResult
from onceover.audit.compare.excuses import Cleaned, Decided, Excused, held
from onceover.audit.course import partitions, plans
from onceover.audit.course.plans import PlanInputs
from onceover.audit.course.rowworkers import RowWorkers
from onceover.audit.model import Finding, Unverifiable
from onceover.audit.ranges.bounds import _Bounding
from onceover.audit.ranges.logs import PartitionLog
from onceover.audit.ranges.snapshot import AuditSelection, AuditSnapshot
from onceover.audit.ranges.tasks import First, LapsedRange, OpenedStretch, RangeDigests, Task
from onceover.audit.records.digest import RunningDigest
from onceover.audit.records.sketch import parse_mark
from onceover.errors import UsageError
from tests.support.worlds.auditstory import Event, live

# With the compiled code, and in soak without it.
pytestmark = pytest.mark.usefixtures("either_way")
_DAMAGE = Event("target damaged", 0, 1, 1)
_SAMPLE = Event("audit a sample", 0, 1, 1)
_COPIED = (Event("produce", 0, 4), Event("copy", 0))
_AUDITED = (*_COPIED, Event("audit"))


# ---- a PASS, or a watermark, without proof


def _absent_is_deleted(patch: pytest.MonkeyPatch) -> None:
    """A key of which a stretch of the source holds no record counts as deleted."""
    real = Cleaned._from_source

    def from_source(self: Cleaned, finding: Finding, offset: int) -> bool:
        absent = parse_mark(finding.target_mark or "").key not in self.source.latest
        return absent or real(self, finding, offset)

    patch.setattr(Cleaned, "_from_source", from_source)


def _latest_values_only(patch: pytest.MonkeyPatch) -> None:
    """Of a compacted topic nothing but the latest value of each key is compared."""
    real = Excused.left

    def left(self: Excused, findings: Iterable[Finding]) -> Iterator[Finding]:
        (cleaned,) = (each for each in self.excuses if isinstance(each, Cleaned))
        for finding in real(self, findings):
            mark, offset = parse_mark(finding.target_mark or ""), finding.target_offset or 0
            if offset >= cleaned.target.latest[mark.key]:
                yield finding

    patch.setattr(Excused, "left", left)


def _size_of_the_source(patch: pytest.MonkeyPatch) -> None:
    """What cannot be read counts as many offsets as the source has there: none, where it has none."""
    real = LapsedRange.unverifiable

    def unverifiable(self: LapsedRange) -> Unverifiable:
        found = real(self)
        return replace(found, offsets=found.offset_to - found.offset_from)

    patch.setattr(LapsedRange, "unverifiable", unverifiable)


def _gaps_are_proven(patch: pytest.MonkeyPatch) -> None:
    """The watermark goes past what could not be compared."""
    patch.setattr(partitions, "_accounted", lambda *_: True)


def _a_finding_renews(patch: pytest.MonkeyPatch) -> None:
    """What was found wrong at the end makes the proof younger all the same."""
    patch.setattr(PartitionResult, "nothing_left", True)


def _unwritten_partitions(patch: pytest.MonkeyPatch) -> None:
    """Only target partitions that the map names are looked at."""
    patch.setattr(PlanInputs, "_unclaimed", lambda _: iter(()))


def _inactive_topics(patch: pytest.MonkeyPatch) -> None:
    """A topic that left the filter is left out, although it is inside again."""
    patch.setattr(AuditSelection, "copies", lambda _, enrolment: enrolment.active)


def _collision(patch: pytest.MonkeyPatch) -> None:
    """Somebody has found records whose digests are the same."""
    patch.setattr(RunningDigest, "_mix", lambda *_: None)


def _digests_are_believed(patch: pytest.MonkeyPatch) -> None:
    """The same, and that a record was seen to differ is forgotten over it."""
    _collision(patch)
    patch.setattr(RangeDigests, "agrees", property(lambda self: self.source.same_content(self.target)))


# ---- no answer at all


def _answers_of_one_kind(patch: pytest.MonkeyPatch) -> None:
    """What a handler could not compare does not come back from those who read."""
    real = RowWorkers.compare

    def compare(self: RowWorkers, work: Sequence[Task]) -> Iterator[First]:
        return (each for each in real(self, work) if not isinstance(each, OpenedStretch))

    patch.setattr(RowWorkers, "compare", compare)


def _a_sample_is_all(patch: pytest.MonkeyPatch) -> None:
    """What a sample has not read is as good as read."""
    real = partitions._sampled
    patch.setattr(partitions, "_sampled", lambda *named: replace(real(*named), complete=True))


def _all_is_visible(patch: pytest.MonkeyPatch) -> None:
    """Nobody else has transactions on the target."""
    patch.setattr(_Bounding, "_visible", lambda _, there, source_to: source_to)


def _proofs_outlive_their_logs(patch: pytest.MonkeyPatch) -> None:
    """What was proven is believed of a log that has lost it."""
    patch.setattr(_Bounding, "_still_there", lambda *_: True)


def _only_ends_tell(patch: pytest.MonkeyPatch) -> None:
    """A log that is as long again is the one of before."""
    patch.setattr("onceover.audit.ranges.parted._lost_ends", lambda *_: {})


# ---- a FAIL where nothing is wrong


def _once_only(patch: pytest.MonkeyPatch) -> None:
    """At least once is taken for exactly once."""
    patch.setattr(AuditSnapshot, "repeats", False)


def _copied_is_held(patch: pytest.MonkeyPatch) -> None:
    """What was copied is on the source still."""
    real = _Bounding._lower

    def lower(
        self: _Bounding, here: PartitionLog, there: PartitionLog, source_to: int, target_to: int
    ) -> tuple[int, int]:
        found = real(self, here, there, source_to, target_to)
        return (source_to, there.start) if here.start >= source_to else found

    patch.setattr(_Bounding, "_lower", lower)


def _nothing_comes_later(patch: pytest.MonkeyPatch) -> None:
    """What a cleaner does is known from the records that are compared."""
    patch.setattr("onceover.audit.compare.opening.held", lambda stretch, _, hidden: held(stretch, (), hidden))


def _a_marker_is_a_gap(patch: pytest.MonkeyPatch) -> None:
    """Where a reader sees nothing, a cleaner can have been."""
    patch.setattr("onceover.audit.compare.opening.held", lambda stretch, behind, _: held(stretch, behind))


def _handlers_write_once(patch: pytest.MonkeyPatch) -> None:
    """No cleaner takes what a handler has made."""
    patch.setattr(plans, "_is_compacted", lambda _: False)


def _nobody_decides(patch: pytest.MonkeyPatch) -> None:
    """What was diverted or skipped is lost."""
    patch.setattr(Decided, "__call__", lambda *_: None)


_BETWEEN = (
    Event("produce", 0, 1),
    Event("copy", 0),
    Event("foreign record", 0, 1, 3),
    Event("produce", 0, 1),
    Event("copy", 0),
)
_AHEAD = (*_COPIED, Event("produce", 0, 4), Event("sent ahead", 0, 3))
_OUTLIVED = (*_COPIED, Event("produce", 0, 4), Event("source expires", 0, 6))
_REWRITTEN = (Event("produce", 0, 3), Event("copy", 0), Event("produce", 0, 3), Event("source is cleaned"))
_CLEANED = (Event("produce", 0, 4), Event("produce", 0, 4), Event("copy", 0, 8), Event("target is cleaned"))
_SKIPPED = (*_COPIED, Event("produce", 0, 4), Event("skip", 0, 2), Event("copy", 0))
_HIDDEN = (*_COPIED, Event("foreign transaction", 0), Event("produce", 0, 4), Event("copy", 0))


@pytest.mark.parametrize(
    ("fault", "kind", "story"),
    [
        (_absent_is_deleted, "compacted", (*_AUDITED, Event("foreign record", 0))),
        (_latest_values_only, "compacted", _BETWEEN),
        (_size_of_the_source, "record", (*_AUDITED, Event("foreign record", 0), _DAMAGE)),
        (
            _gaps_are_proven,
            "record",
            (Event("produce", 0, 5), Event("copy", 0), Event("target expires", 0, 4)),
        ),
        (_a_finding_renews, "record", (*_AUDITED, Event("foreign record", 0))),
        (_unwritten_partitions, "handler", (*_AUDITED, Event("foreign record", 2))),
        (_inactive_topics, "record", (*_COPIED, Event("topic leaves and returns"), Event("produce", 0, 4))),
        (_digests_are_believed, "record", (Event("produce", 0, 4), Event("copy and alter", 0, 4))),
        (_answers_of_one_kind, "handler", (*_COPIED, Event("bad record", 0), Event("copy", 0))),
        (_a_sample_is_all, "handler", (Event("produce", 0, 4), Event("copy and lose", 0, 4), _SAMPLE)),
        (_all_is_visible, "record", _HIDDEN),
        (_proofs_outlive_their_logs, "compacted", (*_AUDITED, Event("target loses its end", 0, 2))),
        (
            _only_ends_tell,
            "compacted",
            (*_AUDITED, Event("source loses its end", 0, 1), Event("produce", 0, 4)),
        ),
        (_once_only, "at-least-once", _AHEAD),
        (_copied_is_held, "record", _OUTLIVED),
        (_nothing_comes_later, "compacted", _REWRITTEN),
        (
            _a_marker_is_a_gap,
            "compacted",
            (Event("produce", 0, 1, 1), Event("copy"), Event("foreign record")),
        ),
        (_handlers_write_once, "handler-compacted", _CLEANED),
        (_nobody_decides, "compacted", _SKIPPED),
    ],
    ids=lambda each: each.__name__.strip("_") if callable(each) else "",
)
def test_a_fault_that_is_put_back_is_found(
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    kind: str,
    story: Sequence[Event],
) -> None:
    """By a short story, which is true without it: an answer that is not true, or none at all."""
    live(kind, story)
    fault(monkeypatch)
    with pytest.raises((AssertionError, KeyError, UsageError)):
        live(kind, story)


def test_digests_alone_do_not_make_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """They only save time: a record that was seen to differ counts, whatever they say."""
    _collision(monkeypatch)
    live("record", (Event("produce", 0, 4), Event("copy and alter", 0, 4)))
