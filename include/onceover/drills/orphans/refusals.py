"""Why orphans are not exported, and why their topics may not be deleted behind the export. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from onceover.drills.codes import DrillCode
from onceover.drills.orphans.looks import OrphanLook, OrphanView
from onceover.drills.orphans.positions import PositionOnlyHere
from onceover.drills.orphans.terms import OrphanPlace, RebuildTerms
from onceover.drills.orphans.torn import TransactionSpan
from onceover.errors import UsageError
from onceover.planning import commands
from onceover.planning.plan import Refusal
from onceover.shown import some
from onceover.topics.scope import Rules, explain

_NAMED: Final = 3


def check_forgotten(*, forgets: bool, rebuild: bool) -> None:
    """Refuse to give positions up where none is deleted.

    Raises:
        UsageError: no topic is to be rebuilt.
    """
    if forgets and not rebuild:
        raise UsageError(
            "--forget-group means nothing without --rebuild: no position is deleted",
            resolve="leave it out, or add --rebuild",
        )


def untaken_by(back: Rules | None, topics: Collection[str], *, handled: bool) -> dict[str, str]:
    """Return why the flow the other way would not copy topics back as they are, by topic.

    Args:
        back: what that flow takes in, and under which names; None without such a flow.
        handled: it has a handler.
    """
    if back is None:
        return dict.fromkeys(topics, "there is none")
    found = {}
    for topic in topics:
        decision = explain(topic, back)
        if not decision.inside or decision.target_topic != topic:
            found[topic] = f"it does not take it in as {topic}"
        elif handled:
            found[topic] = "its handler would change, drop or move records on their way back"
    return found


def not_remade(place: OrphanPlace, topic: str) -> Refusal:
    """Return why a topic that an earlier run has deleted is not there to be copied into."""
    return Refusal(
        topic,
        DrillCode.MADE_ANEW,
        f"it was deleted on {place.source} to be copied anew, and nothing says that it was made again",
        f"{_rebuild(place)} makes it again as it was, empty",
    )


def _rebuild(place: OrphanPlace) -> str:
    return commands.command("drill", "orphans", "apply", place.flow, "--rebuild")


def open_refusals(place: OrphanPlace, view: OrphanView) -> list[Refusal]:
    """Return what is not decided yet: whether it counts, nobody can know."""
    return [
        Refusal(
            str(look.source),
            DrillCode.ORPHANS_OPEN,
            f"offsets {look.stable} to {look.end - 1} on {place.source} are not decided: "
            f"{_who(look.opened, view.ids)}",
            "wait until it has ended (a broker ends it at its transaction.timeout.ms), or end it: "
            "`kafka-transactions.sh abort`; then run again",
        )
        for look in view.looks
        if not look.is_decided
    ]


def _who(opened: Sequence[TransactionSpan], ids: Mapping[int, str]) -> str:
    named = [
        f"{ids.get(span.producer_id) or f'producer id {span.producer_id}'} has a transaction open from "
        f"{span.first} on"
        for span in opened[:_NAMED]
    ]
    return "; ".join(named) or "a transaction is just ending"


def why_kept(
    place: OrphanPlace,
    topic: str,
    looks: Sequence[OrphanLook],
    view: OrphanView,
    notes: Mapping[str, Sequence[Refusal]],
    rebuild: RebuildTerms,
) -> Refusal | None:
    """Return why a topic may not be deleted although its orphans are exported; None where it may."""
    doubted = [*notes.get(topic, ()), *view.holding]
    if doubted:
        return Refusal(topic, doubted[0].code, f"it stays: {doubted[0].message}", doubted[0].resolve)
    still_open = [look for look in looks if not look.is_decided]
    if still_open:
        text = f"it stays while transactions are open in {still_open[0].source}"
        return Refusal(topic, DrillCode.ORPHANS_OPEN, text, f"{_rebuild(place)} once they have ended")
    for look in looks:
        if look.uncopied is not None:
            text = f"it stays, because {look.source} may hold what is nowhere else: {look.uncopied}"
            way = f"copy what is wanted of it by hand, then delete {topic} on {place.source}, or exclude it"
            return Refusal(topic, DrillCode.NOT_COPIED, text, way)
    if topic in rebuild.untaken or view.copies.get(topic, topic) != topic:
        return not_taken(place, topic, view.copies.get(topic, topic), rebuild.untaken.get(topic, ""))
    shape = rebuild.shapes.get(topic)
    if shape is None:
        text = f"it stays: how it is made on {place.source} is not known, it has just been deleted or made"
        return Refusal(
            topic, DrillCode.LOG_CHANGED, text, f"find out who has changed it, then {_rebuild(place)}"
        )
    if rebuild.factor is not None and rebuild.factor < shape.replication_factor:
        return unfit(place.topic, rebuild.factor, topic, shape.replication_factor)
    return _unplaced(place, topic, rebuild)


def _unplaced(place: OrphanPlace, topic: str, rebuild: RebuildTerms) -> Refusal | None:
    """Return why a topic may not be deleted for the groups that have positions in it."""
    for error in rebuild.positions.unheard:
        text = f"it stays: which groups have positions in it on {place.source} is not known: {error.message}"
        way = error.resolve or f"{_rebuild(place)} once all its brokers answer"
        return Refusal(topic, DrillCode.NOT_READ, text, way)
    only_here = [each for each in rebuild.positions.found.get(topic, ()) if not rebuild.forgets(each.group)]
    return only_here_refusal(place.flow, topic, only_here) if only_here else None


def only_here_refusal(flow: str, topic: str, only_here: Sequence[PositionOnlyHere]) -> Refusal:
    """Return why a topic stays in which groups have positions that would be deleted with it."""
    return Refusal(
        topic,
        DrillCode.GROUPS_LEFT,
        "it stays: positions of groups in it stand nowhere else, and would be deleted with it: "
        f"{some(only_here, _NAMED)}",
        f"{commands.command('groups', 'apply', flow)} puts them in place in the copy, as far as the flow "
        "moves them; `--forget-group REGEX` beside `--rebuild` gives those of a group up",
    )


def not_taken(place: OrphanPlace, topic: str, copy: str, why: str) -> Refusal:
    """Return why a topic may not be deleted: the flow the other way would not copy it anew as it is."""
    if copy != topic:
        text = f"it stays, because its copy is called {copy}: nobody would copy it back under its name"
        way = "use `naming: identity` in both flows; or copy what is wanted of it by hand"
    elif place.back is None:
        text = "it stays, because `switchover.reverse` of the flow file names no flow that would copy it anew"
        way = "name the flow in the other direction there, then run again"
    else:
        text = f"it stays, because flow {place.back} would not copy it anew: {why}"
        way = f"include it in flow {place.back}, with `naming: identity` and no handler, then run again"
    return Refusal(topic, DrillCode.SWITCHOVER_UNSET, text, way)


def unfit(export: str, factor: int, topic: str, wanted: int) -> Refusal:
    """Return why a topic may not be deleted: its export is safe from fewer brokers than it is."""
    return Refusal(
        topic,
        DrillCode.EXPORT_UNFIT,
        f"it stays: it has {wanted} replicas, and {export} would be the only one with {factor}",
        f"give {export} {wanted} replicas (`kafka-reassign-partitions.sh`; `state.replication_factor` of the "
        "flow file, where it is not there yet), then run again",
    )
