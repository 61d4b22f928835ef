"""Whether a connector's own topic is right, and whether the connector goes on from what was copied. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from onceover.connectors.model import OFFSETS_TOPIC_KEY, RUNNING, ConnectorOutcome, EndState
from onceover.connectors.moving.watching import OffsetProgress, undecided
from onceover.connectors.offsets.keys import holds_null, is_place, named
from onceover.connectors.planning.foresight import quiet_hint
from onceover.connectors.planning.plan import COMPACT, misplaced_keys
from onceover.connectors.planning.view import ConnectorView
from onceover.connectors.record.manifest import Manifest
from onceover.connectors.workers.lifecycle import failure_of


def judge(view: ConnectorView, manifest: Manifest | None) -> ConnectorOutcome:
    """Return the verdict about a connector as it is now.

    FAILED for what would make a task go back, UNVERIFIABLE where nothing shows that it goes on, DONE
    otherwise.
    """
    if view.problems:
        first = view.problems[0]
        return ConnectorOutcome(view.name, EndState.REFUSED, f"{first.message}; {first.resolve}")
    if view.configured is None and manifest is not None and manifest.is_settled:
        return ConnectorOutcome(
            view.name,
            EndState.FAILED,
            f"it was migrated, and since then {OFFSETS_TOPIC_KEY}={manifest.to_topic} was taken out of its "
            f"configuration: it goes on from {view.facts.offsets_topic}, which may be behind or ahead; "
            # Put in alone, the line has tasks begin where that topic ends: what came since is repeated.
            "keep what manages its configuration away from it, `apply` again, which carries its offsets "
            "along and puts the line in, and only then put it in where it is managed: before, it would go "
            f"back to what {manifest.to_topic} held" + "".join(f"; {failure}" for failure in _failures(view)),
        )
    if view.configured is None and view.state.has_failed:
        return ConnectorOutcome(view.name, EndState.FAILED, "; ".join(_failures(view)))
    if view.configured is None:
        return ConnectorOutcome(
            view.name,
            EndState.UNVERIFIABLE,
            f"its offsets are in {view.facts.offsets_topic}, with all others'"
            + (f"; {view.owed}" if view.owed else ""),
        )
    wrong = [*_failures(view), *_violations(view)]
    if wrong:
        return ConnectorOutcome(view.name, EndState.FAILED, "; ".join(wrong))
    return _progress(view, manifest)


def _failures(view: ConnectorView) -> Iterator[str]:
    if view.state.has_failed:
        yield f"it has failed and writes nothing: {failure_of(view.state)}"


def _violations(view: ConnectorView) -> Iterator[str]:
    own = view.own_offsets()
    if own is None or view.own is None:
        yield f"topic {view.configured} does not exist"
        return
    if view.own.policy != COMPACT:
        yield f"cleanup.policy of {view.configured} is {view.own.policy}: offsets expire"
    misplaced = misplaced_keys(view.own.scan, view.name)
    if misplaced:
        yield f"{named(misplaced)}: not in the one partition that the workers write"
    null = [key for key, value in own.values.items() if holds_null(key, value)]
    if null:
        yield f"{named(null)}: null where a map belongs"
    if not own.values and not own.sentinels:
        yield f"{view.configured} holds nothing of it, not even a sentinel: it was never migrated"


def _progress(view: ConnectorView, manifest: Manifest | None) -> ConnectorOutcome:
    own = view.own_offsets()
    if own is None or manifest is None or manifest.offsets is None or manifest.to_topic != view.configured:
        return ConnectorOutcome(
            view.name,
            EndState.UNVERIFIABLE,
            f"{view.configured} is in order, but there is no manifest to compare its offsets with",
        )
    # Who begins at zero in another topic of that name has soon gone on.
    if view.own is not None and manifest.is_elsewhere(view.own.scan.topic_id):
        return ConnectorOutcome(
            view.name,
            EndState.FAILED,
            f"{view.configured} was deleted and made anew since the offsets were copied there: wherever they "
            "are now, the connector may have begun at zero; compare what it wrote with what it had written "
            "before, then `downgrade --apply` and `apply`: it is judged from there on",
        )
    progress = OffsetProgress.between(manifest.values, own, again=_again(view, manifest))
    if progress.back and _compacted(view, manifest, progress):
        outcome, message = (
            EndState.UNVERIFIABLE,
            f"{named(progress.back)}: gone, as one is that its task, or somebody, has deleted, once "
            "compaction has taken its tombstone; or lost with a broker's log: see whether it was through",
        )
    elif progress.back:
        outcome, message = (
            EndState.FAILED,
            f"{named(progress.back)}: lower than what was copied, or gone",
        )
    elif progress.went_on:
        went = progress.describe()
        told = f": {went}" if went else ""
        outcome, message = EndState.DONE, f"went on from what was copied to {view.configured}{told}"
    elif told := undecided(progress):
        outcome, message = EndState.UNVERIFIABLE, told
    else:
        hint = quiet_hint(view.state.config)
        outcome, message = (
            EndState.UNVERIFIABLE,
            "byte-equal to what was copied: it has not gone on yet",
        )
        message += f"; {hint}" if hint else ""
    if view.state.state != RUNNING:
        message += f"; it is {view.state.state} now"
    if view.standing:
        # It went on once; that it still does, nobody can say.
        outcome = EndState.UNVERIFIABLE if outcome is EndState.DONE else outcome
        message += f": {view.standing}"
    return ConnectorOutcome(view.name, outcome, message, facts=progress.facts())


def _compacted(view: ConnectorView, manifest: Manifest, progress: OffsetProgress) -> bool:
    """Tell whether compaction may have taken all that is back: tombstones of the topic that was copied to."""
    own = view.own_offsets()
    is_there = view.own is not None and manifest.is_there(view.own.scan.topic_id)
    return is_there and own is not None and not any(key in own.values for key in progress.back)


def _again(view: ConnectorView, manifest: Manifest) -> frozenset[bytes]:
    """Return the keys whose place was written once more since what was copied."""
    written = view.own.scan.latest.items() if view.own is not None else ()
    return frozenset(
        key
        for (key, partition), record in written
        if partition in manifest.landed
        and record.offset >= manifest.landed[partition]
        and record.value == manifest.values.get(key)
        and is_place(record.value)
    )
