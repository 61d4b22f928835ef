"""What was read of a flow, put into the shape of ``status``: pure.

Invariants: a number is there only when it is known (a lag that nobody can know is null, never 0); a flow is
"caught up" only when nothing that is in its scope is missing on the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from onceover.acls.codes import AclCode
from onceover.errors import OnceoverError
from onceover.exitstatus import worst
from onceover.model import TopicPartition, lane_of
from onceover.operate.states import CopyState, PartitionState
from onceover.operate.statusfacts import StatusFacts, since_s
from onceover.operate.statusneeds import error_told, is_outside, needs_of
from onceover.operate.statusread import FlowFacts, SourceLogs
from onceover.operate.stuck import stuck_since_ms
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import beside
from onceover.state.records.runstate import FlowRun, RunState, driver_entry, run_of, source_heard_ms
from onceover.state.records.verdicts import AuditFailure, audit_entry
from onceover.state.records.verified import Watermark, flow_entry, partition_entry
from onceover.stops.codes import StopCode
from onceover.stops.record import Stop
from onceover.topics import refusals
from onceover.topics.codes import TopicCode
from onceover.topics.scope import Rules, explain
from onceover.topics.status import topic_entries
from onceover.wire.progress import NOBODY, ProgressMeta

_OVER: Final = (RunState.ENDED, RunState.FAILED, RunState.GONE, RunState.FENCED, RunState.PROMOTED)
# As brokers since 3.6 have it by default (message.timestamp.after.max.ms); older ones take any time.
_MOST_AHEAD_MS: Final = 3_600_000
# Nothing of these topics is on the target (any more).
_COPY_GONE: Final = frozenset({StopCode.TARGET_MISSING, StopCode.TARGET_RECREATED})


def shape(facts: StatusFacts) -> dict[str, Any]:
    """Return one entry of ``status``'s ``flows``."""
    state = facts.state or FlowFacts()
    run = FlowRun(state=RunState.UNKNOWN)
    if facts.is_shortened:
        # Of a run that is not the newest one.
        state = replace(state, layout=None)
    # Without a layout among unreadable values nobody knows whether it was started.
    elif facts.told_generation is not None:
        run = run_of(state.layout, state.heartbeat, facts.now_ms, promoted=_is_promoted(state))
    partitions = [
        _partition(facts, state, enrolment, tp, run)
        for enrolment in state.enrolments
        for tp in enrolment.sources()
    ]
    partitions += _not_enrolled(facts, state)
    facts.source.heard_ms = source_heard_ms(state.layout, state.heartbeat)
    audit = audit_entry(state.verdicts, _open_failures(state), facts.now_ms)
    entry = {
        "flow": facts.flow,
        "state": str(_state(facts, run, partitions)),
        "error": None,
        "fault": None,
        "run": run.document(facts.now_ms),
        "generation": state.layout.generation if state.layout else None,
        "fenced_starts": state.layout.fenced_starts if state.layout else None,
        "restarts": state.layout.restarts if state.layout else None,
        "lanes": state.layout.lanes if state.layout else None,
        "aborted": {str(lane): count for lane, count in sorted(state.aborted.items())},
        "delivery": state.layout.delivery if state.layout else None,
        "source": facts.source.document(),
        "target": facts.target.document(),
        "last_commit_ms": facts.last_commit_ms,
        "last_commit_s": since_s(facts.now_ms, facts.last_commit_ms),
        **_lag(facts, partitions),
        "dead_letters": facts.dead_letters.document() if facts.dead_letters else None,
        "verified": flow_entry(p["verified"] for p in partitions if not is_outside(p)),
        "audit": audit,
        "driver": driver_entry(state.layout, state.heartbeat, facts.now_ms),
        "partitions": partitions,
        "topics": _topics(facts, state),
        "groups": None,
        "notes": [*_remarks(state), *_promoted(facts.flow, state), *_waits(state)],
    }
    needs = needs_of(facts, state, run, entry)
    return {**entry, "needs": needs, "exit": worst(need["exit"] for need in needs)}


def broken_entry(flow: str, path: str, error: OnceoverError) -> dict[str, Any]:
    """Return the entry of a flow of which nothing can be read, mostly as its file is not in order."""
    told, need = error_told(error)
    side = {"alias": None, "cluster_id": None, "error": None, "heard_ms": None}
    nothing = dict.fromkeys(
        ("generation", "fenced_starts", "restarts", "lanes", "delivery", "last_commit_ms", "last_commit_s",
         "lag_offsets", "lag", "oldest_missing_s", "dead_letters", "verified", "audit", "driver", "groups")
    )  # fmt: skip
    return {
        "flow": flow,
        "path": path,
        "state": str(CopyState.UNKNOWN),
        "error": told,
        "fault": None,
        "run": FlowRun(state=RunState.UNKNOWN).document(0),
        "source": side,
        "target": side,
        **nothing,
        "aborted": {},
        **{name: [] for name in ("partitions", "topics", "notes")},
        "needs": [need],
        "exit": told["exit"],
    }


# ---- partitions


def _partition(
    facts: StatusFacts, state: FlowFacts, enrolment: Enrolment, source: TopicPartition, run: FlowRun
) -> dict[str, Any]:
    here, target = facts.here, enrolment.target_of(source)
    committed = facts.there.committed.get(target)
    position = committed.offset if committed else None
    stop = facts.judged.get(source) or state.stops.get(target)
    lag = _lag_of(facts, enrolment, source, position, stop)
    open_offsets = _open_offsets(here, source, position or 0)
    meta = beside(committed).meta
    ids = str(enrolment.source_id), str(enrolment.target_id)
    if meta is not None:  # newer, after an operator's repair
        ids = meta.source_topic_id, meta.target_topic_id
    # Only markers and aborted records behind a position are nothing that could be copied.
    behind = lag is not None and lag > 0 and facts.oldest_ms.get(source) is not None
    stuck_ms = stuck_since_ms(state, run, enrolment, source, position) if behind and stop is None else None
    return {
        "topic": source.topic,
        "partition": source.partition,
        "target_topic": target.topic,
        "lane": lane_of(source, state.layout.lanes) if state.layout else None,
        "state": str(_state_of(stop, lag, stuck_ms, run)),
        "enrolled_ms": enrolment.at_ms,
        "source_start": enrolment.start[source.partition],
        "lso": here.lsos.get(source),
        "high_watermark": here.high_watermarks.get(source),
        "open_offsets": open_offsets,
        "open_transaction": _open_transaction(facts, source) if open_offsets else None,
        "begun": None if meta is None else _has_claimed(state, meta),
        "stuck_s": since_s(facts.now_ms, stuck_ms),
        "position": position,
        "lag_offsets": lag,
        "oldest_missing_s": _oldest_s(facts, [source], lag),
        "oldest_open_s": _age_s(facts, here.open_ms.get(source)) if open_offsets else None,
        "target_end": facts.there.ends.get(target) if meta is None else meta.target_end,
        "verified": partition_entry(_proven(state, enrolment, source), ids, position, facts.now_ms),
        "stop": None if stop is None else _stop(stop, state.stops.get(target)),
    }


def _proven(state: FlowFacts, enrolment: Enrolment, source: TopicPartition) -> Watermark | None:
    found, number = state.verified.get(enrolment.target_of(source)), source.partition
    stands = found is not None and found.stands(enrolment.approval(number), enrolment.placed_by_hand(number))
    return found if stands else None


def _state_of(stop: Stop | None, lag: int | None, stuck_ms: int | None, run: FlowRun) -> PartitionState:
    if stop is not None:
        return PartitionState.STOPPED
    if lag == 0:
        return PartitionState.CAUGHT_UP
    if lag is None:
        return PartitionState.UNKNOWN
    if stuck_ms is not None:
        return PartitionState.STUCK
    if run.state is RunState.UNKNOWN:
        return PartitionState.UNKNOWN
    return PartitionState.IDLE if run.state in _OVER else PartitionState.COPYING


def _open_offsets(here: SourceLogs, source: TopicPartition, position: int) -> int | None:
    """Return how many offsets from ``position`` on wait for open transactions; None where nobody knows."""
    lso, high_watermark = here.lsos.get(source), here.high_watermarks.get(source)
    if lso is None or high_watermark is None:
        return None
    return max(0, high_watermark - max(lso, position))


def _open_transaction(facts: StatusFacts, source: TopicPartition) -> dict[str, Any] | None:
    found = facts.here.open.get(source)
    if found is None:
        return None
    return {
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "first_offset": found.transaction_start,
        "last_write_s": since_s(facts.now_ms, found.last_ms),
    }


def _lag_of(
    facts: StatusFacts, enrolment: Enrolment, source: TopicPartition, position: int | None, stop: Stop | None
) -> int | None:
    lso = facts.here.lsos.get(source)
    if lso is None:
        return None
    if stop is not None and stop.code in _COPY_GONE:
        # Nothing that was copied is there any more.
        return max(0, lso - max(facts.here.starts.get(source, 0), enrolment.start[source.partition]))
    if position is None or (stop is not None and stop.code == StopCode.SOURCE_RECREATED):
        return None
    return max(0, lso - position)


def _oldest_s(facts: StatusFacts, partitions: Sequence[TopicPartition], lag: int | None) -> float | None:
    """Return how old the oldest missing record is; None where that of one that is behind is not known."""
    if lag == 0:
        return 0.0
    lsos, missing = facts.here.lsos, facts.missing
    behind = [tp for tp in partitions if tp not in missing or lsos.get(tp) != missing[tp]]
    if any(tp not in facts.oldest_ms for tp in behind):
        return None
    met = [at_ms for tp in behind if (at_ms := facts.oldest_ms[tp]) is not None]
    if not met:
        return 0.0 if lag is not None else None
    return oldest_of([_age_s(facts, at_ms) for at_ms in met])


def _age_s(facts: StatusFacts, at_ms: int | None) -> float | None:
    """Return the age of a record; None where its time is none, or no clock's that is roughly right."""
    ahead_ms = 0 if at_ms is None else at_ms - facts.now_ms
    return None if ahead_ms > _MOST_AHEAD_MS else since_s(facts.now_ms, at_ms)


def oldest_of(ages_s: Sequence[float | None]) -> float | None:
    """Return the age of the oldest record that partitions lack; at least that, where not all are known.

    None where it could be any: the others' 0 says nothing of one that is behind.
    """
    known = [age for age in ages_s if age is not None]
    if len(known) < len(ages_s):
        return max(filter(None, known), default=None)
    return max(known, default=None)


def _stop(stop: Stop, noted: Stop | None) -> dict[str, Any]:
    """Return a stop; ``since_ms`` is when a lane noted it, None when none has been there yet."""
    return {
        "since_ms": None if noted is None else noted.at_ms,
        "code": stop.code,
        "message": stop.message,
        "expected": stop.expected,
        "seen": stop.seen,
        "resolve": stop.resolve,
    }


def _not_enrolled(facts: StatusFacts, state: FlowFacts) -> list[dict[str, Any]]:
    """Return entries for what is in scope and not copied: topics as a whole, partitions that were added."""
    enrolled = {e.source: e for e in state.enrolments}
    refused = {r["object"]: r for r in state.refused if r["blocks"] and _is_inside(r["object"], facts.rules)}
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in sorted(facts.missing):
        by_topic.setdefault(tp.topic, []).append(tp)
    entries = []
    for topic in sorted(by_topic.keys() | refused.keys()):
        partitions, refusal = by_topic.get(topic, []), refused.get(topic)
        target = _target_name(facts, enrolled.get(topic), topic)
        if topic not in enrolled:
            entries.append(_missing(facts, topic, target, None, partitions, refusal))
            continue
        entries += [_missing(facts, topic, target, tp.partition, [tp], refusal) for tp in partitions]
        if refusal is not None and not partitions:
            entries.append(_missing(facts, topic, target, None, [], refusal))
    return entries


def _is_inside(topic: str, rules: Rules | None) -> bool:
    """Tell whether a topic that the flow refused is still in scope: the filter may have changed since."""
    return rules is None or explain(topic, rules).inside


def _target_name(facts: StatusFacts, enrolment: Enrolment | None, topic: str) -> str:
    if enrolment is not None:
        return enrolment.target
    return topic if facts.rules is None else explain(topic, facts.rules).target_topic


def _missing(
    facts: StatusFacts,
    topic: str,
    target_topic: str,
    partition: int | None,
    partitions: Sequence[TopicPartition],
    refusal: Mapping[str, Any] | None,
) -> dict[str, Any]:
    here = facts.here
    lags = [max(0, here.lsos[tp] - facts.missing[tp]) for tp in partitions if tp in here.lsos]
    lag = sum(lags) if len(lags) == len(partitions) > 0 else None
    waiting = [_open_offsets(here, tp, facts.missing[tp]) for tp in partitions]
    known = [offsets for offsets in waiting if offsets is not None]
    one = partitions[0] if partition is not None else None
    return {
        "topic": topic,
        "partition": partition,
        "partitions": len(partitions),
        "target_topic": target_topic,
        "lane": None,
        "state": str(PartitionState.NOT_ENROLLED),
        "enrolled_ms": None,
        "source_start": None if one is None else facts.missing[one],
        "lso": None if one is None else here.lsos.get(one),
        "high_watermark": None if one is None else here.high_watermarks.get(one),
        "open_offsets": sum(known) if len(known) == len(waiting) else None,
        "open_transaction": None,
        "begun": None,
        "stuck_s": None,
        "position": None,
        "lag_offsets": lag,
        "oldest_missing_s": _oldest_s(facts, partitions, lag),
        "oldest_open_s": None,
        "target_end": None,
        "verified": None,
        "stop": None
        if refusal is None
        else {"code": refusal["code"], "message": refusal["message"], "resolve": refusal["resolve"]},
    }


# ---- the flow


def _remarks(state: FlowFacts) -> list[dict[str, Any]]:
    """Return what keeps no records from being copied, and waits for nobody."""
    return [dict(note) for note in state.refused if not note["blocks"] and note["code"] != AclCode.ACLS_STAY]


def _is_promoted(state: FlowFacts) -> bool:
    return bool(state.known) and all(enrolment.is_promoted for enrolment in state.known.values())


def _promoted(flow: str, state: FlowFacts) -> list[dict[str, Any]]:
    """Return which copies are clients' now, of those that no start of the flow has told of yet."""
    told = {note["object"] for note in state.refused if note["code"] == TopicCode.PROMOTED}
    return [
        refusals.promoted(each.source, each.target, each.promoted.drill, flow).document()
        for each in sorted(state.known.values(), key=lambda each: each.source)
        if each.promoted is not None and each.is_promoted and each.source not in told
    ]


def _waits(state: FlowFacts) -> list[dict[str, Any]]:
    """Return what the lanes of this generation say about partitions that they cannot copy for now, and about
    themselves."""
    generation = state.layout.generation if state.layout else None
    notes = [wait for target, wait in sorted(state.waits.items()) if target not in state.stops]
    notes += [note for _, note in sorted(state.slowed.items())]
    return [
        {name: text for name, text in note.items() if name != "generation"}
        for note in notes
        if note["generation"] == generation
    ]


def _lag(facts: StatusFacts, partitions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the flow's lag; null where a part of it is not known."""
    # A refused topic of which nothing is missing: its other partitions speak for it.
    counted = [p for p in partitions if p.get("partitions", 1)]
    known = [p for p in counted if p["lag_offsets"] is not None]
    unknown = len(counted) - len(known)
    answered = facts.state is not None and facts.source.error is None
    total = sum(p["lag_offsets"] for p in known)
    waiting = [p for p in known if is_outside(p)]
    stopped = [p for p in known if p["stop"] and p["state"] == PartitionState.STOPPED]
    oldest_s = oldest_of([p["oldest_missing_s"] for p in counted])
    if not counted and answered:
        oldest_s = 0.0
    return {
        "lag_offsets": total if answered and not unknown else None,
        "lag": {
            "known_offsets": total,
            "unknown_partitions": unknown,
            "not_enrolled_offsets": sum(p["lag_offsets"] for p in waiting),
            "not_enrolled_topics": len({p["topic"] for p in partitions if is_outside(p)}),
            "stopped_offsets": sum(p["lag_offsets"] for p in stopped),
        },
        "oldest_missing_s": oldest_s,
    }


def _state(facts: StatusFacts, run: FlowRun, partitions: Sequence[Mapping[str, Any]]) -> CopyState:
    if run.state in (RunState.NOT_STARTED, RunState.FENCED, RunState.PROMOTED, RunState.UNKNOWN):
        return CopyState(run.state)
    ready = facts.state is not None and facts.state.layout is not None and facts.state.layout.ready
    if not ready or run.state not in (RunState.STARTING, RunState.RUNNING):
        return CopyState.STOPPED
    if facts.source.error is not None or facts.target.error is not None:
        return CopyState.UNKNOWN
    if all(p["state"] == PartitionState.CAUGHT_UP for p in partitions):
        return CopyState.CAUGHT_UP
    moving = (PartitionState.COPYING, PartitionState.STUCK)
    waits = any(p["state"] in moving for p in partitions) and not _has_begun(facts)
    return CopyState.WAITING if waits else CopyState.COPYING


def _has_begun(facts: StatusFacts) -> bool:
    """Tell whether a lane of this generation has claimed a partition: its driver alone copies nothing."""
    state = facts.state
    metas = [beside(committed).meta for committed in facts.there.committed.values()]
    return state is not None and any(_has_claimed(state, meta) for meta in metas if meta is not None)


def _has_claimed(state: FlowFacts, meta: ProgressMeta) -> bool:
    """Tell whether a lane of this generation has written what stands beside a position."""
    layout = state.layout
    return layout is not None and meta.generation == layout.generation and meta.instance != NOBODY


def _open_failures(state: FlowFacts) -> Any:
    if state.verdicts is None:
        return None
    ids = {e.source: (str(e.source_id), str(e.target_id)) for e in state.enrolments}

    def copied(failure: AuditFailure) -> bool:
        return not any(failure.ids) or ids.get(failure.topic) == failure.ids

    return state.verdicts.open(copied)


def _topics(facts: StatusFacts, state: FlowFacts) -> list[dict[str, Any]]:
    if facts.rules is None or facts.state is None or facts.here.reader is None:
        return []
    return topic_entries(facts.rules, facts.here.topics, state.known.values(), state.refused)
