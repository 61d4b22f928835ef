"""A switchover as an operation: planned, approved, run, and gone on with behind a crash."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from onceover.clock import now_ms
from onceover.drills import chain as chains
from onceover.drills.about import DrillAbout
from onceover.drills.chain import DrillResult, JournalEntry
from onceover.drills.codes import DrillCode
from onceover.drills.course import DrillStep, StepResult, StepState
from onceover.drills.journal import DrillJournal
from onceover.drills.looks.rpo import Loss, Objectives
from onceover.drills.modes import PLANNED, UNPLANNED
from onceover.drills.outcome import DrillOutcome
from onceover.drills.running import DrillRunner, changed, known, new_drill, started
from onceover.drills.switching.common import SwitchoverParts, SwitchSteps
from onceover.drills.switching.course import LOOK, REDIRECT, REVERSE, UNAVAILABLE, VERIFY, course_of
from onceover.drills.switching.earlier import EarlierSwitchover, done_under
from onceover.drills.switching.plan import SwitchoverPlan, changes_of, gone_on
from onceover.drills.switching.probe import Probe
from onceover.drills.switching.standing import SourceStanding
from onceover.drills.switching.steps import PlannedSteps
from onceover.drills.switching.unplanned import UnplannedSteps
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.planning import commands
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller
from onceover.planning.plan import Refusal
from onceover.state.records.enrolment import Enrolment

_NAMED: Final = 3
# Findings that keep it from PASS: something is lost, or will be repeated; everything else was done.
_BREAKS: Final = (DrillCode.WRITTEN_BEHIND, DrillCode.COMMITS_LATE, DrillCode.LOG_CHANGED)


@dataclass(frozen=True)
class SwitchoverOutcome(DrillOutcome):
    """What a switchover came to; ``approval`` who has said yes, and when."""

    plan: SwitchoverPlan
    approval: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mode(self) -> str:
        """``planned`` or ``unplanned``."""
        return self.plan.mode

    @property
    def rto_steps(self) -> tuple[str, ...]:
        """The steps that clients wait for."""
        return UNAVAILABLE[self.plan.mode]

    @property
    def loss(self) -> Loss | None:
        """What is on the source alone: what stands there behind the cut, which is looked for at the end.

        An unplanned one keeps no writers off: what its look has told is less than that.
        """
        seen = self.evidence_of(VERIFY)
        if seen is None:
            return None
        offsets: int = seen["written_behind"]
        if seen["topics_unknown"]:
            return Loss(None, None)
        look = self.evidence_of(LOOK) if self.plan.mode != PLANNED else None
        # What was missing at the look is the oldest of it; what came later is younger than that.
        before = Loss.of(None if look is None or look["partitions_unknown"] else look["losses"])
        return Loss(offsets, 0.0 if offsets == 0 else before.seconds if before.offsets else None)

    @property
    def verdict(self) -> DrillResult | None:
        """PASS or FAIL; None while it runs. What goes on behind an earlier one has no time of its own."""
        if any(code in _BREAKS for code, _ in self.findings) and self.ended_ms is not None:
            return DrillResult.FAIL
        if self.plan.goes_on is None or self.ended_ms is None:
            return super().verdict
        return DrillResult.PASS if self.is_done else DrillResult.FAIL

    def ended(self) -> dict[str, Any]:
        """Return what the journal holds of its end; what *reverse* could not do is done by ``seed``."""
        others = [r for r in self.results if r.name != REVERSE]
        done = all(r.state is StepState.DONE for r in others)
        return {**super().ended(), "done": done, "codes": [code for code, _ in self._broken]}

    @property
    def holds_loss(self) -> bool:
        """Of a planned one always: writers are kept off for it."""
        return self.plan.mode == PLANNED or super().holds_loss

    @property
    def breaking(self) -> tuple[DrillCode, ...]:
        """The findings that keep it from PASS: something is lost, or will be repeated, too."""
        return (*_BREAKS, *super().breaking)

    @property
    def _broken(self) -> list[tuple[str, str]]:
        return [found for found in self.findings if found[0] in self.breaking]

    @property
    def exit_code(self) -> int:
        """As of any drill, and never 5 where it was done: running it again does not do what is left."""
        code = super().exit_code
        again = code != Retriable.exit_code or not self.ended()["done"]
        return code if again else NeedsOperator.exit_code

    @property
    def waiting(self) -> Sequence[Refusal]:
        """What failed; where nothing has, what makes it FAIL all the same."""
        resolve = "see the report; all of it is done, and running it again changes nothing"
        return super().waiting or [
            Refusal(f"switchover {self.drill}", code, text, resolve) for code, text in self._broken
        ]

    def begun(self) -> dict[str, Any]:
        """Return what the journal holds of its beginning."""
        goes_on = {} if self.plan.goes_on is None else {"goes_on": self.plan.goes_on}
        back = {} if self.plan.reverse is None else {"reverse": self.plan.reverse}
        return {**super().begun(), **goes_on, **back, "approval": dict(self.approval)}

    def document(self) -> dict[str, Any]:
        """Return the report."""
        told = super().document()
        before = {"detect_s": self._detect_s, "decide_s": self.approval.get("waited_s")}
        return {**told, "rto": {**told["rto"], "before": before}, "approval": dict(self.approval)}

    @property
    def _detect_s(self) -> float | None:
        """Seconds for which nothing had been copied when an unplanned one began, None elsewhere."""
        evidence = next((r.evidence for r in self.results if r.name == LOOK), {})
        last_ms = evidence.get("last_commit_ms") if self.mode != PLANNED else None
        return None if last_ms is None else round(max(0, self.began_ms - last_ms) / 1000, 3)


@dataclass(frozen=True)
class BoundNotes:
    """The journal, for one drill."""

    journal: DrillJournal
    drill: str

    def read(self) -> Sequence[JournalEntry]:
        """Return all entries."""
        return self.journal.read()

    def write(self, what: str, said: Mapping[str, Any]) -> None:
        """Write the next entry of the drill."""
        self.journal.append(self.drill, what, said)

    def check(self) -> None:
        """Return where it is still this drill that runs."""
        self.journal.check(self.drill)

    def holds(self) -> bool:
        """Tell, without the target, whether nobody can have taken this drill over yet."""
        return self.journal.holds(self.drill)


@dataclass(frozen=True)
class SwitchoverRequest:
    """What a person asks for.

    Args:
        topics: tells whether a source topic is wanted; None for all of the flow.
        fence: what keeps writers off; ``redirect`` what brings clients over; ``reverse`` the flow back.
        mode: ``planned`` or ``unplanned``.
        whatever_is_lost: a yes to an unplanned one holds however source and flow are when it is done.
    """

    mode: str
    topics: Callable[[str], bool] | None
    fence: str
    redirect: str
    reverse: str | None
    whatever_is_lost: bool = False


class Switchover:
    """Plans and runs one. Not thread-safe.

    Args:
        parts: makes what it is made of, given its id.
        request: what was asked for.
        journal: of the flow's drills.
        report: hears of the outcome whenever it is another one, from before the first step on.
        objectives: the flow's.
        about: who, where, of what.
        replication_factor: of what it makes on the target.
    """

    def __init__(
        self,
        parts: Callable[[str], SwitchoverParts],
        request: SwitchoverRequest,
        journal: DrillJournal,
        report: Callable[[DrillOutcome], None],
        objectives: Objectives,
        about: DrillAbout,
        replication_factor: int,
    ) -> None:
        self._parts, self._request, self._journal = parts, request, journal
        self._report, self._objectives, self._about = report, objectives, about
        self._factor = replication_factor

    def plan(self) -> SwitchoverPlan:
        """Return what would be done now. Changes nothing.

        Raises:
            UsageError: NOT_STARTED, NOTHING_CHOSEN, or writers cannot be kept off in this way.
            Retriable: a cluster is away.
        """
        plan, steps, _, _ = self._planned("plan")
        if plan.goes_on is None and plan.mode == PLANNED:
            steps.parts.fence.check(plan.topics)
        return plan

    def apply(
        self, caller: Caller, approval: Approval | None = None
    ) -> SwitchoverOutcome | EarlierSwitchover:
        """Do it, as ``planning.operation`` has it; what was done under the approval is told, and not again.

        Raises:
            NeedsOperator: DRILL_RUNS, another drill of the flow is running; PLAN_CHANGED.
            Others as ``plan``; what a step meets is told in the outcome.
        """
        earlier = None if approval is None else self._done_under(approval)
        if earlier is not None:
            return earlier
        drill = new_drill()
        plan, steps, course, clusters = self._planned(drill)
        caller.announce(plan)
        approved = approval or Approval.of(plan.items)
        approved.check(plan.own_items if self._is_own(plan, approved) else plan.items, plan.title)
        parts = steps.parts
        outcome = SwitchoverOutcome(
            plan,
            drill,
            [StepResult(step.name, step.title, step.deadline_s) for step in course],
            (),
            self._objectives,
            now_ms(),
            known(self._about, clusters, self._journal, parts.flow),
            approval=self._approval(approved),
        )
        runner = DrillRunner(self._journal, self._report)
        try:
            return runner.run(
                outcome,
                course,
                lambda: steps.findings,
                steps.close,
                caller,
                lambda: self._check_again(plan, steps, approved),
            )
        except NeedsOperator:
            # Another try under this very approval may have done it since it was planned.
            earlier = self._done_under(approved)
            if earlier is None:
                raise
            return earlier

    def _check_again(self, plan: SwitchoverPlan, steps: SwitchSteps, approved: Approval) -> None:
        """Ask again, with the journal ours, what was planned while others could still begin.

        Raises:
            NeedsOperator: PLAN_CHANGED.
        """
        state, _ = started(steps.parts.target, plan.flow)
        unfinished = self._unfinished(steps.parts, self._journal.read(), state.enrolled.values())
        now = {each.source: each for each in state.enrolled.values()}
        others = [
            topic
            for topic, before in sorted(steps.enrolled.items())
            if topic not in now or not now[topic].is_still(before)
        ]
        if others:
            named = ", ".join(others[:_NAMED])
            raise changed(plan.flow, f"another one has moved, or promoted, {len(others)} topics: {named}")
        # Clients may have gone back with some of its topics, too.
        now_on = None if unfinished is None else (unfinished[0], {each.source for each in unfinished[1]})
        if now_on != (None if plan.goes_on is None else (plan.goes_on, set(steps.enrolled))):
            raise changed(plan.flow, "another switchover has passed the point of no return, or has finished")
        if plan.standing is not None:
            standing = steps.standing()
            again = replace(plan, **self._asked(steps, list(steps.enrolled.values()), standing))
            approved.check(again.items, plan.title)

    def _is_own(self, plan: SwitchoverPlan, approved: Approval) -> bool:
        """Tell whether what is gone on with was begun under this very approval."""
        begun = [] if plan.goes_on is None else begun_of(self._journal.read(), plan.goes_on)
        return any(chains.approval_of(entry) == approved.id for entry in begun)

    def _done_under(self, approval: Approval) -> EarlierSwitchover | None:
        # Behind it the flow has none of its topics any more, and there would be nothing to plan.
        return done_under(self._journal.read(), self._parts("plan").flow, approval.id)

    def _approval(self, approved: Approval) -> Mapping[str, Any]:
        consent = approved.consent
        who = {"by": self._about.started_by} if consent is None else consent.document()
        return {"id": approved.id, "at_ms": now_ms(), **who}

    def _planned(
        self, drill: str
    ) -> tuple[SwitchoverPlan, SwitchSteps, tuple[DrillStep, ...], tuple[str, str]]:
        parts = self._parts(drill)
        target = parts.target
        state, layout = started(target, parts.flow)
        chain = self._journal.read()
        unfinished = self._unfinished(parts, chain, state.enrolled.values())
        if unfinished is not None:
            self._check_wanted(parts.flow, chain, *unfinished)
        chosen = unfinished[1] if unfinished else self._chosen(state.enrolled.values())
        enrolled = {each.source: each for each in chosen}
        active = [each.source for each in state.enrolled.values() if each.active]
        request = self._request
        kind = PlannedSteps if request.mode == PLANNED else UnplannedSteps
        steps: SwitchSteps = kind(
            parts,
            drill,
            unfinished[0] if unfinished else drill,
            enrolled,
            set(enrolled) >= set(active),
            BoundNotes(self._journal, drill),
            Probe(parts.flow, target, self._factor, lambda: self._journal.check(drill)),
        )
        standing = None if unfinished else steps.standing()
        course = course_of(request.mode, steps, goes_on=unfinished is not None)
        plan = SwitchoverPlan(
            operation="switchover",
            flow=parts.flow,
            mode=request.mode,
            topics=tuple(sorted(enrolled)),
            steps=course,
            goes_on=unfinished[0] if unfinished else None,
            reverse=request.reverse if request.mode == PLANNED else None,
            # What was promoted already is in nobody's hands any more.
            **self._asked(steps, [] if unfinished else list(chosen), standing),
        )
        if unfinished is not None:
            plan = replace(plan, changes=(*gone_on(chosen, unfinished[0]), *plan.changes))
        ids = layout.source_cluster_id, layout.target_cluster_id
        return plan, steps, course, ids

    def _unfinished(
        self, parts: SwitchoverParts, chain: Sequence[JournalEntry], enrolled: Collection[Enrolment]
    ) -> tuple[str, list[Enrolment]] | None:
        """Return the switchover that is gone on with, and for which topics; None where there is none.

        Raises:
            Retriable: the source, which tells whether clients have gone back to it, is away.
        """
        if unfinished_of(chain, enrolled) is None:
            return None
        try:
            gone = parts.gone_back()
        except Retriable as error:
            if self._request.mode != PLANNED:
                # Nobody is there who could have gone back.
                return unfinished_of(chain, enrolled)
            raise _may_be_gone(parts.flow, parts.source.alias, error) from error
        return unfinished_of(chain, [each for each in enrolled if each.target not in gone])

    def _asked(
        self, steps: SwitchSteps, enrolled: Sequence[Enrolment], standing: SourceStanding | None
    ) -> dict[str, Any]:
        """Return what of a plan a person is asked for."""
        request, parts = self._request, steps.parts
        is_planned = request.mode == PLANNED
        return {
            "changes": changes_of(
                enrolled,
                parts.source.alias,
                parts.target.alias,
                request.fence if is_planned and enrolled else None,
                request.redirect,
                request.reverse if is_planned else None,
                standing,
                whatever=request.whatever_is_lost,
            ),
            "standing": standing,
            "states": {} if standing is None else standing.states(enrolled),
        }

    def _check_wanted(
        self, flow: str, chain: Sequence[JournalEntry], drill: str, unfinished: Collection[Enrolment]
    ) -> None:
        """Refuse to do for topics that were not asked for what is behind their promotion.

        Raises:
            NeedsOperator: PAST_RETURN.
        """
        wanted = self._request.topics
        others = [e.source for e in unfinished if wanted is not None and not wanted(e.source)]
        if others:
            raise NeedsOperator(
                f"switchover {drill} has passed the point of no return, and comes first: it is not finished",
                code=DrillCode.PAST_RETURN,
                where=f"flow {flow}",
                expected="`--topics` with all that it has promoted, or without",
                seen=f"{len(others)} of its topics are not asked for: {', '.join(others[:_NAMED])}",
                resolve=f"{goes_on_with(flow, chain, drill)} goes on with it; then run this one",
            )

    def _chosen(self, enrolled: Collection[Enrolment]) -> list[Enrolment]:
        active = sorted((e for e in enrolled if e.active), key=lambda e: e.source)
        wanted = self._request.topics
        found = [e for e in active if wanted is None or wanted(e.source)]
        if not found:
            promoted = sum(1 for e in enrolled if e.is_promoted)
            raise UsageError(
                "the flow copies none of the topics that are asked for",
                code=DrillCode.NOTHING_CHOSEN,
                expected=f"one of {', '.join(e.source for e in active[:5])}" if active else None,
                seen=f"{promoted} topics are promoted already" if promoted else None,
                resolve="correct --topics, or leave it out"
                if wanted is not None
                else self._became_of(promoted),
            )
        return found

    def _became_of(self, promoted: int) -> str:
        flow, back = self._parts("plan").flow, self._request.reverse
        told = f"{commands.command('status', flow)} says what became of its topics"
        if not promoted or back is None:
            return told
        return f"{told}; once clients have gone back {commands.lead_back(flow, back)} has it copy them again"


def begun_of(chain: Sequence[JournalEntry], drill: str) -> list[JournalEntry]:
    """Return the beginning of a drill; none where the journal does not know it. Pure."""
    return [entry for entry in chains.of_drill(chain, drill) if entry.what == chains.BEGUN]


def goes_on_with(flow: str, chain: Sequence[JournalEntry], drill: str) -> str:
    """Return the command that goes on with a switchover, in the mode in which it was begun. Pure."""
    modes = {entry.said.get("mode") for entry in begun_of(chain, drill)}
    return commands.command("drill", "run", flow, "--mode", UNPLANNED if UNPLANNED in modes else PLANNED)


def _may_be_gone(flow: str, source: str, error: Retriable) -> Retriable:
    """Return why a switchover is not gone on with whose source does not answer. Pure."""
    without = commands.command("drill", "run", flow, "--mode", UNPLANNED)
    return Retriable(
        f"whether clients have gone back to {source} since is not known: {error.message}",
        code=error.code,
        where=error.where,
        resolve=f"run it again; if {source} is gone, {without} goes on without it",
    )


def check_turns_back(flow: str, chain: Sequence[JournalEntry], enrolled: Collection[Enrolment]) -> None:
    """Refuse to take a switchover back that has promoted topics, and did not end well. Pure.

    Raises:
        NeedsOperator: PAST_RETURN.
    """
    unfinished = unfinished_of(chain, enrolled)
    if unfinished is not None:
        raise NeedsOperator(
            f"switchover {unfinished[0]} has passed the point of no return: its copies are promoted",
            code=DrillCode.PAST_RETURN,
            where=f"flow {flow}",
            resolve=f"{goes_on_with(flow, chain, unfinished[0])} goes on with it",
        )


def check_brought_over(flow: str, chain: Sequence[JournalEntry], enrolled: Collection[Enrolment]) -> None:
    """Refuse to let writers in behind a promotion that has not brought clients over yet. Pure.

    What they would write there is copied by nobody, and the way back would count it as what it has brought.

    Args:
        enrolled: the topics that are meant.

    Raises:
        NeedsOperator: PAST_RETURN.
    """
    unfinished = unfinished_of(chain, enrolled)
    if unfinished is None:
        return
    drill, _ = unfinished
    later = {e.drill for e in chain if e.what == chains.BEGUN and e.said.get("goes_on") == drill}
    if any(e.drill in later | {drill} and chains.is_at(e, REDIRECT, StepState.DONE) for e in chain):
        return
    raise NeedsOperator(
        f"switchover {drill} has not brought clients over yet: let in, they would write behind its promotion",
        code=DrillCode.PAST_RETURN,
        where=f"flow {flow}",
        resolve=f"{goes_on_with(flow, chain, drill)} goes on with it; then run this again: who is to stay "
        "goes back by a switchover of the flow that leads back",
    )


def unfinished_of(
    chain: Sequence[JournalEntry], enrolled: Collection[Enrolment]
) -> tuple[str, list[Enrolment]] | None:
    """Return the switchover that has promoted topics and did not end well, with these topics. Pure.

    One that goes on behind another one ends that one with it. One that the journal does not know was before
    the journal, which was deleted: nobody knows whether it was finished, and it is not done again.

    Args:
        enrolled: the flow's topics, but for those that clients have gone back to since: for these it is over,
            and what is behind the promotion would bring clients to a copy that lacks what they wrote since.
    """
    by_drill: dict[str, list[Enrolment]] = {}
    for each in enrolled:
        if each.promoted is not None and each.is_promoted:
            by_drill.setdefault(each.promoted.drill, []).append(each)
    done = {e.drill for e in chain if e.what == chains.ENDED and e.said.get("done") is True}
    begun = [e for e in chain if e.what == chains.BEGUN and e.drill in done]
    done |= {str(entry.said["goes_on"]) for entry in begun if "goes_on" in entry.said}
    known = {e.drill for e in chain if e.what == chains.BEGUN}
    for drill in sorted(by_drill.keys() & known - done):
        return drill, sorted(by_drill[drill], key=lambda e: e.source)
    return None
