"""What taking a connector back would do: rollback before it was resumed, downgrade after it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import OFFSETS_TOPIC_KEY, STOPPED, ConnectorPlan
from onceover.connectors.offsets.keys import differing, named
from onceover.connectors.planning.copying import overwrite_entries
from onceover.connectors.planning.plan import (
    common_refusals,
    elsewhere_refusals,
    empty_refusals,
    failed_warnings,
    owed_warnings,
    resume_changes,
    stop_changes,
    stop_refusals,
    unfinished,
    value_refusals,
)
from onceover.connectors.planning.view import ConnectorView
from onceover.connectors.record.commands import plan_command
from onceover.connectors.record.manifest import Manifest
from onceover.planning.plan import Change, Refusal


def plan_hard(view: ConnectorView, manifest: Manifest | None) -> ConnectorPlan:
    """Return what the way back to the shared topic would do from here on."""
    to_topic = view.facts.offsets_topic
    if view.configured is None:
        owed = unfinished(manifest, to_topic) and view.state.is_stopped and manifest is not None
        changes = tuple(resume_changes(view.name, manifest.initial_state)) if owed and manifest else ()
        warnings = owed_warnings(view) if unfinished(manifest, to_topic) else ("it has no topic of its own",)
        problems = (*view.problems, *_owed_refusals(view, manifest))
        return ConnectorPlan(view.name, None, to_topic, 0, 0, changes, problems, warnings)
    own = view.own_offsets()
    refusals = [*view.problems, *common_refusals(view), *stop_refusals(view, own)]
    if own is None:
        refusals.append(
            Refusal(
                view.name,
                ConnectorCode.OFFSETS_TOPIC_MISSING,
                f"its topic {view.configured} does not exist",
                "find out what happened to it: the shared topic may be a transaction ahead",
            )
        )
    elif view.own is not None:
        refusals += [*value_refusals(own, view.own.scan.partitions), *empty_refusals(own)]
    blocked = any(refusal.blocks for refusal in refusals)
    return ConnectorPlan(
        name=view.name,
        from_topic=view.configured,
        topic=to_topic,
        offsets=len(own.offsets) if own else 0,
        stale=len(_gone(view)),
        changes=() if blocked else tuple(_hard_changes(view)),
        refusals=tuple(refusals),
        warnings=(*view.doubts, *filter(None, [view.standing]), *failed_warnings(view)),
    )


def _owed_refusals(view: ConnectorView, manifest: Manifest | None) -> Iterator[Refusal]:
    """Yield that a run of another kind comes first: what it has begun is not told as done."""
    if view.owed and view.configured is None and (manifest is None or manifest.finished):
        yield Refusal(view.name, ConnectorCode.INTERRUPTED, view.owed, "nothing was changed by this command")


def _gone(view: ConnectorView) -> list[bytes]:
    own, base = view.own_offsets(), view.base_offsets()
    return sorted(base.offsets.keys() - own.offsets.keys()) if own and base else []


def _hard_changes(view: ConnectorView) -> Iterator[Change]:
    yield from stop_changes(view)
    own, base, gone = view.own_offsets(), view.base_offsets(), _gone(view)
    other = len(differing(own.offsets, base.offsets)) if own and base else None
    yield Change(
        "overwrite offsets",
        f"{view.configured} -> {view.facts.offsets_topic}",
        None,
        len(own.offsets) if own else 0,
        f"its own topic is the truth; {other} differ now",
    )
    if gone:
        yield Change(
            "remove offsets",
            view.facts.offsets_topic,
            len(gone),
            0,
            f"{named(gone)}: not in its own topic, so not committed",
            "destructive",
            len(gone),
        )
    yield Change(f"set {OFFSETS_TOPIC_KEY}", view.name, view.configured, None, "back to the shared topic")
    yield from resume_changes(view.name, view.initial_state)


def plan_soft(view: ConnectorView, manifest: Manifest | None) -> ConnectorPlan:
    """Return what preparing for workers without exactly-once would do, or what is left after they changed."""
    to_topic = view.facts.offsets_topic
    refusals = (*view.problems, *common_refusals(view), *_owed_refusals(view, manifest))
    changes: list[Change] = []
    warnings: tuple[str, ...] = ()
    if view.configured is not None:
        warnings = ("its own topic is read read_committed also without exactly-once: nothing to do",)
    elif view.facts.exactly_once:
        base = view.base_offsets()
        refusals = (*refusals, *stop_refusals(view, base), *elsewhere_refusals(view, base))
        warnings = (*_required_warnings(view), *filter(None, [view.standing]))
        changes = [*stop_changes(view), *_settle_changes(view)]
    elif unfinished(manifest, to_topic) and manifest is not None:
        changes = list(resume_changes(view.name, manifest.initial_state))
    else:
        warnings = ("the workers are without exactly-once already, and nothing was prepared",)
    return ConnectorPlan(
        view.name,
        to_topic,
        to_topic,
        changes=() if any(r.blocks for r in refusals) else tuple(changes),
        refusals=refusals,
        warnings=warnings,
    )


def _required_warnings(view: ConnectorView) -> Iterator[str]:
    if view.state.config.get("exactly.once.support", "").lower() == "required":
        yield (
            "it has exactly.once.support=required: workers without exactly-once resume it, and refuse every "
            "later change of its configuration until that is taken out"
        )


def _settle_changes(view: ConnectorView) -> Iterator[Change]:
    base = view.base_offsets()
    yield Change(
        "settle offsets",
        view.facts.offsets_topic,
        None,
        len(base.offsets) if base else 0,
        "the committed value is written behind whatever was aborted: workers without exactly-once read it",
    )


def plan_rollback(view: ConnectorView, manifest: Manifest | None) -> ConnectorPlan:
    """Return what taking back an interrupted run would do.

    Only before the connector was resumed: until then both topics hold what the manifest has.
    """
    if manifest is None or manifest.finished:
        refusal = Refusal(
            view.name,
            ConnectorCode.NOTHING_TO_ROLL_BACK,
            "there is no interrupted run",
            f"to take back one that was finished: `{_downgrade(view)}` plans it",
        )
        return ConnectorPlan(view.name, None, None, refusals=(refusal,))
    now = view.state.offsets_topic
    refusals = [*view.problems, *_rollback_refusals(view, manifest)]
    changes: list[Change] = []
    if now != manifest.former:
        reason = "as before the run"
        changes.append(Change(f"set {OFFSETS_TOPIC_KEY}", view.name, now, manifest.former, reason))
    if view.state.is_stopped or view.state.has_failed:
        changes += resume_changes(view.name, manifest.initial_state, "as before the run")
    blocked = any(refusal.blocks for refusal in refusals)
    return ConnectorPlan(
        view.name,
        now,
        manifest.former,
        changes=() if blocked else tuple(changes),
        refusals=tuple(refusals),
        warnings=tuple(filter(None, [view.standing])),
    )


def _downgrade(view: ConnectorView) -> str:
    return plan_command("downgrade", view.facts.connect, view.name)


def _rollback_refusals(view: ConnectorView, manifest: Manifest) -> Iterator[Refusal]:
    if (view.state.offsets_topic or None) == manifest.former:
        return
    if not view.state.is_stopped and view.records.target(view.name) != STOPPED:
        yield Refusal(
            view.name,
            ConnectorCode.RESUMED,
            "it has been resumed: its offsets may have moved on",
            f"take it back with what `{_downgrade(view)}` plans: it carries them along",
        )
    places = [(view.own, view.own_offsets()), (view.base, view.base_offsets())]
    for topic, snapshot in places:
        if topic is None or snapshot is None:
            continue
        wrong = {entry.key for entry in overwrite_entries(manifest.values, topic.scan, view.name)}
        if wrong:
            yield Refusal(
                view.name,
                ConnectorCode.MOVED_ON,
                f"{named(wrong)} in {snapshot.topic}: not as in the manifest any more",
                f"take it back with what `{_downgrade(view)}` plans: it carries them along",
            )
