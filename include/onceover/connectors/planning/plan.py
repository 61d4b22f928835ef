"""What moving a connector's offsets would do, and what stands in its way. Pure: a view in, a plan out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import (
    OFFSETS_TOPIC_KEY,
    RUNNING,
    SOURCE,
    STOPPED,
    UNKNOWN_TYPE,
    ConnectorOffsets,
    ConnectorPlan,
    ConnectorState,
)
from onceover.connectors.offsets.keys import (
    OffsetMove,
    compare,
    holds_null,
    in_snapshot,
    is_unusual_order,
    named,
    parse_key,
    parsed_json,
    partition_of,
)
from onceover.connectors.offsets.scan import Scan
from onceover.connectors.planning import debezium
from onceover.connectors.planning.access import version_of
from onceover.connectors.planning.view import ConnectorView, TopicView, is_topic_name
from onceover.connectors.record.commands import plan_command
from onceover.connectors.record.manifest import CHANGED, COPIED, Manifest
from onceover.connectors.workers.lifecycle import failure_of
from onceover.planning.plan import Change, Refusal

_KIP: Final = "KIP-618; where something else manages its configuration, the line belongs there, too"
COMPACT: Final = "compact"
# Stopping, and reading offsets over REST, came with it (KIP-875).
_OLDEST: Final = (3, 5)


def default_topic(global_topic: str, connector: str) -> str:
    """Return the name of a connector's own topic where none was asked for."""
    return f"{global_topic}-{connector}"


def unasked_topic(state: ConnectorState, global_topic: str) -> str:
    """Return the topic that a connector's offsets are meant to be in where none was asked for."""
    return state.own_topic(global_topic) or default_topic(global_topic, state.name)


def plan_migration(view: ConnectorView, manifest: Manifest | None) -> ConnectorPlan:
    """Return what moving the offsets to the connector's own topic would do from here on.

    Args:
        manifest: of the newest run, for what an interrupted one still owes.
    """
    if view.configured == view.topic:
        return _configured(view, manifest)
    refusals = (*view.problems, *_migration_refusals(view), *_anothers_refusals(view, manifest))
    base, own = view.base_offsets(), view.own_offsets()
    offsets = base.offsets if base else {}
    stale = stale_keys(own, offsets)
    changes = [] if refusals and any(r.blocks for r in refusals) else list(_migration_changes(view, stale))
    return ConnectorPlan(
        name=view.name,
        from_topic=view.facts.offsets_topic,
        topic=view.topic,
        offsets=len(offsets),
        stale=len(stale),
        changes=tuple(changes),
        refusals=refusals,
        warnings=(*migration_warnings(view), *_anothers_warnings(view, manifest)),
    )


def stale_keys(own: ConnectorOffsets | None, offsets: Iterable[bytes]) -> list[bytes]:
    """Return the keys of a topic that hold offsets which are no longer there."""
    return [] if own is None else sorted(own.offsets.keys() - set(offsets))


def _configured(view: ConnectorView, manifest: Manifest | None) -> ConnectorPlan:
    owed: list[Change] = []
    if unfinished(manifest, view.topic) and view.state.is_stopped and manifest is not None:
        owed = list(resume_changes(view.name, manifest.initial_state))
    own = view.own_offsets()
    return ConnectorPlan(
        name=view.name,
        from_topic=view.facts.offsets_topic,
        topic=view.topic,
        offsets=len(own.offsets) if own else 0,
        changes=tuple(owed),
        refusals=(*view.problems, *common_refusals(view)),
        warnings=tuple(_settled_warnings(view))
        if not unfinished(manifest, view.topic)
        else owed_warnings(view),
    )


def owed_warnings(view: ConnectorView) -> tuple[str, ...]:
    """Return what an interrupted run still does to a connector that it has resumed."""
    if view.state.is_stopped:
        return ()
    return ("an interrupted run has resumed it: it is watched, and stopped if an offset has gone back",)


def _settled_warnings(view: ConnectorView) -> Iterator[str]:
    yield "it has its own topic already"
    if view.standing:
        yield view.standing
    elif view.state.state == STOPPED:
        yield "it is STOPPED, and no run that would resume it is known"


def unfinished(manifest: Manifest | None, to_topic: str) -> bool:
    """Tell whether a run has read the offsets, to bring them to this topic, and not come to its end."""
    if manifest is None or manifest.finished or manifest.has_step(CHANGED):
        return False
    return manifest.offsets is not None and manifest.to_topic == to_topic


# ---- refusals


def common_refusals(view: ConnectorView) -> Iterator[Refusal]:
    """Yield what stands in the way of every operation."""
    if view.state.type == UNKNOWN_TYPE:
        yield Refusal(
            view.name,
            ConnectorCode.NO_PLUGIN,
            f"no worker that answers has its plugin {view.state.config.get('connector.class')}: nobody can "
            "tell whether it is a source connector",
            "install the plugin on every worker, or leave the connector out",
        )
    elif view.state.type != SOURCE:
        yield Refusal(
            view.name,
            ConnectorCode.NOT_A_SOURCE,
            f"it is a {view.state.type} connector; only source connectors have source offsets",
            "leave it out",
        )
    if version_of(view.facts.version) < _OLDEST:
        yield Refusal(
            view.name,
            ConnectorCode.WORKER_VERSION,
            f"the workers are {view.facts.version}: connectors can be stopped from Kafka 3.5 on",
            "upgrade the workers first",
        )
    if view.facts.exactly_once and view.records.runs_unfenced(view.state):
        yield Refusal(
            view.name,
            ConnectorCode.WORKER_MODE,
            "the workers' configuration says exactly-once, but its tasks run without having been fenced",
            "correct exactly.once.source.support in the Connect file: it must be what the workers have",
        )
    if not view.facts.says_mode and view.records.fenced_since_commit(view.name):
        # Without the key workers are without exactly-once. Taken for such, what its tasks have aborted would
        # be copied, and that the workers fence would be noticed once they had gone on from it.
        yield Refusal(
            view.name,
            ConnectorCode.WORKER_MODE,
            "the Connect file does not say whether the workers run exactly-once, and its tasks were fenced, "
            "as only such workers do",
            "set exactly.once.source.support in the Connect file: enabled, or disabled if that is past",
        )


def _migration_refusals(view: ConnectorView) -> Iterator[Refusal]:
    yield from common_refusals(view)
    if view.state.has_failed:
        yield Refusal(
            view.name,
            ConnectorCode.CONNECTOR_FAILED,
            f"it has failed ({failure_of(view.state)}): nothing could show that it goes on",
            "resolve what the trace says and restart it, or stop it: then it is moved, and stays stopped",
        )
    if view.configured is not None:
        yield Refusal(
            view.name,
            ConnectorCode.OTHER_TOPIC,
            f"its offsets are in {view.configured} already",
            "name that topic, or take it back first, as "
            f"`{plan_command('downgrade', view.facts.connect, view.name)}` plans it: {view.topic} gets what "
            "the shared topic holds",
        )
    if view.topic == view.facts.offsets_topic or not is_topic_name(view.topic):
        yield Refusal(
            view.name,
            ConnectorCode.TOPIC_NAME,
            f"{view.topic} cannot be its own topic",
            "name one with --topic: letters, digits, '.', '_', '-', and not the workers' own",
        )
    base = view.base_offsets()
    if base is not None and view.base is not None:
        yield from value_refusals(base, view.base.scan.partitions)
    yield from elsewhere_refusals(view, base)
    yield from stop_refusals(view, base)
    if view.own is not None:
        yield from own_topic_refusals(view, view.own)


def elsewhere_refusals(view: ConnectorView, base: ConnectorOffsets | None) -> Iterator[Refusal]:
    """Yield that the workers know offsets, and the topic none of them: a copy would have it begin at zero."""
    shown = {_canonical(partition) for partition, offset in view.shown or () if offset is not None}
    if base is None or not shown or view.configured is not None or shown & _by_partition(base).keys():
        return
    yield Refusal(
        f"{view.name} in {base.topic}",
        ConnectorCode.WORKER_CONFIG,
        f"the workers show offsets of {len(shown)} source partitions of it, and none of them is in this "
        "topic: with what is there it would begin anew",
        "correct offset.storage.topic in the Connect file: it must be what the workers have; if it is, the "
        "topic was emptied, and they know the offsets from before",
    )


def value_refusals(snapshot: ConnectorOffsets, partitions: int) -> Iterator[Refusal]:
    """Yield what makes the offsets of a connector ambiguous or no offsets."""
    where = f"{snapshot.connector} in {snapshot.topic}"
    null = [key for key, value in snapshot.values.items() if holds_null(key, value)]
    if null:
        yield Refusal(
            where,
            ConnectorCode.NULL_OFFSET,
            f"{named(null)}: null where a map belongs; to copy it would make the task begin at zero",
            "find out who wrote it; nothing was changed",
        )
    odd = [key for key in sorted(snapshot.conflicts) if snapshot.chosen[key] != partition_of(key, partitions)]
    if odd:
        yield Refusal(
            where,
            ConnectorCode.KEY_TWICE,
            f"{named(odd)}: two partitions hold different offsets, and the newer one is not where the "
            "workers write",
            "find out who wrote it, and which offset is right",
        )


def stop_refusals(view: ConnectorView, offsets: ConnectorOffsets | None) -> Iterator[Refusal]:
    """Yield why a connector is better not stopped now; none where it stands already.

    Args:
        offsets: by which it goes.
    """
    if view.state.is_stopped:
        return
    if debezium.loses_its_slot(view.state.config):
        yield Refusal(
            view.name,
            ConnectorCode.SLOT_DROPPED,
            "it has slot.drop.on.stop=true: its stop would drop the replication slot, and what the database "
            "writes until the next start would never be read",
            "set slot.drop.on.stop=false (the default), then run again",
        )
    busy = [key for key, value in offsets.offsets.items() if in_snapshot(value)] if offsets else []
    if busy and offsets is not None:
        yield Refusal(
            f"{offsets.connector} in {offsets.topic}",
            ConnectorCode.SNAPSHOT_RUNS,
            f"{named(busy)}: in the middle of its first snapshot, which a stop begins anew: all that it has "
            "read so far would be written again",
            f"wait until it is through, as `{plan_command('plan', view.facts.connect, view.name)}` tells, "
            "then run again",
        )


def empty_refusals(own: ConnectorOffsets) -> Iterator[Refusal]:
    """Yield why a topic cannot be the truth about a connector."""
    if not own.values and not own.sentinels:
        yield Refusal(
            f"{own.connector} in {own.topic}",
            ConnectorCode.NEVER_MIGRATED,
            "its own topic holds nothing of it, not even a sentinel: taking it back would delete its offsets "
            "from the shared topic",
            f"stop it and remove {OFFSETS_TOPIC_KEY} by hand; the shared topic may hold its offsets still",
        )


def own_topic_refusals(view: ConnectorView, own: TopicView) -> Iterator[Refusal]:
    """Yield why a topic that exists cannot be the connector's own."""
    if own.policy != COMPACT:
        yield Refusal(
            view.topic,
            ConnectorCode.NOT_COMPACTED,
            f"its cleanup.policy is {own.policy or 'the broker default'}: offsets would expire, and Connect "
            "refuses such a topic",
            f"name another topic, or set cleanup.policy={COMPACT} on it",
        )
    strangers = own.scan.connectors() - view.connectors
    if own.scan.foreign() or strangers:
        seen = f"{own.scan.foreign()} records that are no source offsets" if own.scan.foreign() else ""
        names = f"offsets of {', '.join(sorted(strangers))}, unknown here" if strangers else ""
        yield Refusal(
            view.topic,
            ConnectorCode.FOREIGN_KEYS,
            f"it holds {' and '.join(filter(None, (seen, names)))}",
            "name another topic with --topic",
        )
    misplaced = misplaced_keys(own.scan, view.name)
    if misplaced:
        yield Refusal(
            view.topic,
            ConnectorCode.KEY_MISPLACED,
            f"{named(misplaced)}: not (only) in the partition that the workers write; tasks would go back at "
            "a later restart, and a tombstone there could hide the right one",
            "name another topic with --topic",
        )


def _anothers_refusals(view: ConnectorView, manifest: Manifest | None) -> Iterator[Refusal]:
    """Yield that a topic holds what this connector has not read yet: it may be in use, by another's tasks.

    What an earlier use has left there is behind the shared topic, which the workers go on writing.
    """
    own, base = view.own_offsets(), view.base_offsets()
    if own is None or base is None or _is_known(view, manifest):
        return
    both = own.offsets.keys() & base.offsets.keys()
    ahead = [key for key in both if compare(base.offsets[key], own.offsets[key]) is OffsetMove.FORWARD]
    if ahead:
        yield Refusal(
            view.topic,
            ConnectorCode.FOREIGN_KEYS,
            f"it holds later offsets than the shared topic ({named(ahead)}), and no known run has brought "
            "them there: a connector of this name on another Connect cluster may use it, and would go back",
            "name another topic with --topic; or delete this one, if nobody uses it",
        )


def _is_known(view: ConnectorView, manifest: Manifest | None) -> bool:
    """Tell whether a run has brought offsets to the topic before: then what is there is this connector's."""
    return manifest is not None and manifest.to_topic == view.topic and manifest.has_step(COPIED)


def _anothers_warnings(view: ConnectorView, manifest: Manifest | None) -> Iterator[str]:
    """Yield that offsets are overwritten of which nobody knows whose they are; later ones are refused."""
    own = view.own_offsets()
    if own is not None and own.offsets and view.configured is None and not _is_known(view, manifest):
        yield (
            f"{view.topic} holds offsets of a connector of this name, which no known run has brought there, "
            "and they are overwritten: see to it that none of another Connect cluster uses it"
        )


def misplaced_keys(scan: Scan, connector: str) -> list[bytes]:
    """Return the connector's keys with a record in any partition but that of Kafka's partitioner."""
    places = scan.snapshot(connector).places
    return sorted(k for k, some in places.items() if some != (partition_of(k, scan.partitions),))


# ---- warnings


def failed_warnings(view: ConnectorView) -> Iterator[str]:
    """Yield that a connector does not run now, where that keeps nobody from moving it."""
    if view.state.has_failed:
        yield f"it has failed ({failure_of(view.state)}); when it is resumed is seen whether it goes on"


def migration_warnings(view: ConnectorView) -> Iterator[str]:
    """Yield what deserves a look and stands in nobody's way."""
    yield from view.doubts
    yield from filter(None, [view.standing])
    base = view.base_offsets()
    if base is None or view.base is None:
        return
    if not base.offsets and (view.state.tasks or view.state.state == RUNNING):
        yield "it runs and has no offset yet: what it reads now, a first snapshot too, begins anew"
    if base.duplicates:
        yield f"{named(base.duplicates)}: in more than one partition of {base.topic}; the newest is copied"
    odd = [key for key in base.offsets if is_unusual_order(key)]
    if odd:
        yield (
            f"{named(odd)}: PATCH of the workers' REST API would write such a partition under a key that no "
            "task looks up; only its bytes are copied"
        )
    if view.shown is not None and _shown_otherwise(view.shown, base, values=view.state.is_stopped):
        yield "GET offsets shows something else than the topic holds; what the topic holds is copied"
    if not view.facts.exactly_once and view.records.fenced_since_commit(view.name):
        yield (
            "its tasks were fenced once: make sure that exactly.once.source.support is really off for the "
            "workers, or aborted offsets are taken for real"
        )
    if view.own is not None:
        shared = sorted((view.own.scan.connectors() & view.connectors) - {view.name})
        if shared:
            yield f"{view.topic} also holds offsets of {', '.join(shared)}"


def _shown_otherwise(seen: list[tuple[Any, Any]], base: ConnectorOffsets, *, values: bool) -> bool:
    """Tell whether GET shows others than the scan; a running connector's values move meanwhile."""
    raw = {
        partition: _canonical(parsed_json(value)) if values else ""
        for partition, value in _by_partition(base).items()
    }
    rest = {_canonical(p): _canonical(o) if values else "" for p, o in seen if o is not None}
    return raw != rest


def _by_partition(base: ConnectorOffsets) -> dict[str, bytes]:
    """Return the offsets by source partition, whatever the order of its fields."""
    parsed = ((parse_key(key), value) for key, value in base.offsets.items())
    return {
        _canonical(json.loads(key.partition)): value
        for key, value in parsed
        if key is not None and key.partition is not None
    }


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


# ---- changes


def _migration_changes(view: ConnectorView, stale: list[bytes]) -> Iterator[Change]:
    base = view.base_offsets()
    if view.own is None and view.spec is not None:
        # Workers may leave that to the brokers: -1.
        count = str(view.spec.partitions) if view.spec.partitions > 0 else "the brokers' number of"
        kind = f"{count} partitions, compacted"
        yield Change("create topic", view.topic, None, kind, "as the workers would create it")
    yield from stop_changes(view)
    count = len(base.offsets) if base else 0
    reason = (
        "key and value bytes, in one transaction, before the workers look there"
        if count
        else "there is no offset: a sentinel says that this was looked at (KIP-618)"
    )
    yield Change("copy offsets", f"{view.facts.offsets_topic} -> {view.topic}", None, count, reason)
    if stale:
        yield Change(
            "remove stale offsets",
            view.topic,
            len(stale),
            0,
            "keys that the shared topic does not have; Connect would believe them",
            "destructive",
            len(stale),
        )
    yield Change(f"set {OFFSETS_TOPIC_KEY}", view.name, view.state.offsets_topic, view.topic, _KIP)
    yield from resume_changes(view.name, view.initial_state)


def stop_changes(view: ConnectorView) -> Iterator[Change]:
    """Yield stopping and fencing."""
    if not view.state.is_stopped:
        yield Change("stop", view.name, view.state.state, STOPPED, "no task may write meanwhile")
    if view.fence_ids:
        ids = f"{view.fence_ids[0]}..{len(view.fence_ids) - 1}"
        yield Change("fence", ids, "its tasks'", "fenced", "a frozen worker's task may still write")


def resume_changes(name: str, initial_state: str, reason: str = "and watch its offsets") -> Iterator[Change]:
    """Yield bringing it back to what it did before."""
    if initial_state != STOPPED:
        yield Change("resume", name, STOPPED, initial_state, reason)
