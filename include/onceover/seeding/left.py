"""What is left of a seeding's plan: without what an earlier try has written, or another flow claims. Pure.

Invariant: a position that was written under an approval is done under it, wherever its origin, or the flow,
has gone since. It is neither written again nor refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from onceover.operate.repair import PROMOTION
from onceover.planning.approval import Approval
from onceover.planning.plan import Change, Refusal
from onceover.seeding.codes import SeedingCode
from onceover.seeding.plan import Seat, SeatedTopic, SeedPlan
from onceover.state.records.enrolment import PlacedProgress


def has_written(plan: SeedPlan, approved: Approval) -> bool:
    """Tell whether anything that a plan has looked at was written under an approval."""
    return any(approved.has_changed(standing) for standing in plan.standing.values())


def left_of(plan: SeedPlan, approved: Approval) -> SeedPlan:
    """Return what is left to write of a plan: without what was written under the approval already."""
    done = {name for name, standing in plan.standing.items() if approved.has_changed(standing)}
    kept = _reduced(plan, lambda seat: str(seat.source) not in done)
    return replace(kept, refused=tuple(r for r in plan.refused if r.object not in done))


def without(plan: SeedPlan, refused: Sequence[Refusal]) -> SeedPlan:
    """Return the plan without the source topics that ``refused`` names, and with the reasons."""
    left_out = {refusal.object for refusal in refused}
    kept = _reduced(plan, lambda seat: seat.source.topic not in left_out)
    return replace(kept, refused=(*plan.refused, *refused))


def saying_who(refusal: Refusal, placed: Mapping[str, PlacedProgress]) -> Refusal:
    """Return a refusal that tells of what may have been an earlier try of this, where it may.

    Without an approval nobody knows; who is told to add `--replace` skips what has come since.

    Args:
        placed: where partitions were put by hand that nothing was copied of since.
    """
    at = placed.get(refusal.object)
    if at is None or refusal.code != SeedingCode.PROGRESS_EXISTS:
        return refusal
    return replace(
        refusal,
        message=f"{refusal.message}; `seed`, `adopt`, `reseed` or `skip-to` has put it at {at.offset}, in "
        f"generation {at.generation}, and nothing was copied since",
        resolve=f"nothing, where that was an earlier try of this: it is done; otherwise {refusal.resolve}",
    )


def placed_and_idle(topic: SeatedTopic) -> dict[str, PlacedProgress]:
    """Return where partitions of a topic were put by hand that nothing was copied of since."""
    if topic.enrolment is None:
        return {}
    found = {}
    for seat in topic.seats:
        at = topic.enrolment.placed_by_hand(seat.source.partition)
        if at is not None and at.offset == seat.position and seat.doubt is None:
            found[str(seat.source)] = at
    return found


def _reduced(plan: SeedPlan, wanted: Callable[[Seat], bool]) -> SeedPlan:
    """Return a plan with some of its positions only, and with what these take.

    What precedes the positions as a whole, such as a fence, is made while any of them is left.
    """
    positions = {tp: position for tp, position in plan.positions.items() if wanted(position.seat)}
    if len(positions) == len(plan.positions):
        return plan
    topics = tuple(t for t in plan.topics if any(seat.source in positions for seat in t.seats))
    sources = {topic.source.name for topic in topics}
    made = plan.topic_plan
    steps = () if made is None else tuple(step for step in made.steps if step.source in sources)
    over = [] if made is None else [step.change for step in made.steps if step not in steps]
    gone = {str(tp) for tp in plan.positions.keys() - positions.keys()}
    left = {topic.target for topic in plan.topics} - {topic.target for topic in topics}

    def stays(change: Change) -> bool:
        if change.what == "position":
            return change.object not in gone
        return change not in over and not (change.what == PROMOTION and change.object in left)

    return replace(
        plan,
        changes=tuple(change for change in plan.changes if stays(change)) if positions else (),
        topics=topics,
        positions=positions,
        topic_plan=None if made is None else replace(made, steps=steps),
    )
