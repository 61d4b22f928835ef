"""The state of a flow, from live clusters only (DESIGN 14, ``status``). Reads, never writes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onceover.engine import names
from onceover.engine.enrolment import Enrolment, read_enrolments
from onceover.engine.layout import Layout
from onceover.engine.scope import Rules, explain
from onceover.engine.statelog import StateLog
from onceover.engine.stops import Stop
from onceover.engine.topicstatus import topic_entries
from onceover.engine.verified import Verified, flow_entry, partition_entry, read_verified
from onceover.errors import OnceoverError
from onceover.kafka import calls
from onceover.kafka.cluster import Cluster
from onceover.kafka.fetcher import Fetcher, Position
from onceover.model import TopicPartition, lane_of
from onceover.wire.progress import ProgressMeta
from onceover.wire.records import control_type
from onceover.wire.visibility import visible_batches

# The driver shows a sign of life every 5 s; three missed ones and it counts as gone.
SILENT_AFTER_MS = 20_000
_PEEK_BYTES = 1 << 18
_PEEK_TRIES = 20


@dataclass
class _Facts:
    """Everything that was read, before it is put into shape."""

    layout: Layout | None = None
    heartbeat: Mapping[str, Any] | None = None
    refused: list[dict[str, Any]] = field(default_factory=list)
    known: dict[str, Enrolment] = field(default_factory=dict)
    enrolments: dict[str, Enrolment] = field(default_factory=dict)
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    verified: dict[TopicPartition, Verified] = field(default_factory=dict)
    committed: dict[TopicPartition, calls.CommittedOffset] = field(default_factory=dict)
    lsos: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    target_ends: dict[TopicPartition, int] = field(default_factory=dict)
    oldest_s: dict[TopicPartition, float] = field(default_factory=dict)
    last_commit_ms: int | None = None


def flow_status(flow: str, source: Cluster, target: Cluster, rules: Rules | None = None) -> dict[str, Any]:
    """Return one entry of ``status``'s ``flows``.

    Args:
        flow: name of the flow.
        source: source cluster; ``target`` likewise.
        rules: from the flow file, to say which topics are in and out; None to leave that out.

    Raises:
        Retriable: a cluster is not reachable.
    """
    facts = _Facts()
    topics = target.retry(lambda: target.topics([names.state_topic(flow), names.map_topic(flow)]))
    if names.state_topic(flow) in topics:
        _read_state(facts, flow, target)
        target.retry(lambda: _read_positions(facts, flow, source, target))
        facts.last_commit_ms = target.retry(lambda: _last_commit_ms(target, flow))
    partitions = [_partition(facts, e, tp) for e in facts.enrolments.values() for tp in e.sources()]
    partitions += _refused(facts, rules)
    return {
        "flow": flow,
        "state": _state(facts, partitions),
        "generation": facts.layout.generation if facts.layout else None,
        "lanes": facts.layout.lanes if facts.layout else None,
        "delivery": facts.layout.delivery if facts.layout else None,
        "source": {"alias": source.alias, "cluster_id": source.cluster_id()},
        "target": {"alias": target.alias, "cluster_id": target.cluster_id()},
        "last_commit_ms": facts.last_commit_ms,
        "lag_offsets": sum(p["lag_offsets"] or 0 for p in partitions),
        "oldest_missing_s": max((p["oldest_missing_s"] or 0.0 for p in partitions), default=0.0),
        "verified": flow_entry(p["verified"] for p in partitions if p["partition"] is not None),
        "driver": _driver(facts),
        "partitions": partitions,
        "topics": [] if rules is None else _topics(facts, source, rules),
        "notes": [note for note in facts.refused if not note.get("blocks", True)],
    }


def stopped_partitions(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the partitions, and topics not taken in, that wait for an operator, with the reason."""
    return [
        {"topic": p["topic"], "partition": p["partition"], **p["stop"]}
        for p in status["partitions"]
        if p["stop"]
    ]


# ---- reading


def _read_state(facts: _Facts, flow: str, target: Cluster) -> None:
    topic = names.state_topic(flow)
    leader, others = (
        StateLog(target, topic, names.STATE_LEADER),
        StateLog(target, topic, names.STATE_OTHERS),
    )
    try:
        values = target.retry(lambda: leader.catch_up(wait=False))
        other = target.retry(lambda: others.catch_up(wait=False))
    finally:
        leader.close()
        others.close()
    if names.LAYOUT in values:
        facts.layout = Layout.from_json(values[names.LAYOUT])
    facts.known = read_enrolments(values)
    # Topics that have left the filter are not copied: their lag and their stops are nobody's concern.
    facts.enrolments = {target: e for target, e in facts.known.items() if e.active}
    facts.heartbeat = other.get(names.HEARTBEAT)
    facts.refused = other.get(names.REFUSED, {}).get("refused", [])
    facts.verified = read_verified(other)
    for key, value in other.items():
        if key.startswith(names.STOP_PREFIX):
            facts.stops[TopicPartition(*names.split_partition_key(key))] = Stop.from_json(value)


def _read_positions(facts: _Facts, flow: str, source: Cluster, target: Cluster) -> None:
    pairs = {tp: e.target_of(tp) for e in facts.enrolments.values() for tp in e.sources()}
    source_topics = source.topics(sorted({tp.topic for tp in pairs}))
    target_topics = target.topics(sorted({tp.topic for tp in pairs.values()}))
    here = [
        tp for tp in pairs if tp.topic in source_topics and tp.partition in source_topics[tp.topic].partitions
    ]
    there = [
        tp
        for tp in pairs.values()
        if tp.topic in target_topics and tp.partition in target_topics[tp.topic].partitions
    ]
    facts.committed = target.committed(names.progress_group(flow), list(pairs.values())) if pairs else {}
    facts.lsos = source.list_offsets(here, calls.LATEST)
    facts.high_watermarks = source.list_offsets(here, calls.LATEST, calls.READ_UNCOMMITTED)
    facts.target_ends = target.list_offsets(there, calls.LATEST)
    behind = {
        tp: facts.committed[pairs[tp]].offset
        for tp in here
        if pairs[tp] in facts.committed and facts.committed[pairs[tp]].offset < facts.lsos[tp]
    }
    now_ms = time.time() * 1000
    for tp, timestamp_ms in oldest_timestamps(source, behind).items():
        facts.oldest_s[tp] = max(0.0, (now_ms - timestamp_ms) / 1000)


def oldest_timestamps(source: Cluster, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the timestamp of the first visible record at or after each position, where there is one.

    A position with only markers and aborted records behind it has none.
    """
    found: dict[TopicPartition, int] = {}
    if not positions:
        return found
    fetcher = Fetcher(
        source, isolation=calls.READ_COMMITTED, max_bytes=_PEEK_BYTES, partition_max_bytes=_PEEK_BYTES
    )
    try:
        topics = source.topics(sorted({tp.topic for tp in positions}))
        for tp, offset in positions.items():
            leader = topics[tp.topic].partitions[tp.partition]
            fetcher.assign(
                tp, Position(topics[tp.topic].topic_id, offset, leader.leader, leader.leader_epoch)
            )
        for _ in range(_PEEK_TRIES):
            if not fetcher.positions:
                break
            fetcher.request(max_wait_ms=0, min_bytes=0)
            for tp, answer in fetcher.poll(5.0):
                position = fetcher.positions[tp]
                before = position.offset
                for visible in visible_batches(answer.records, answer.aborted, position.offset, control_type):
                    position.offset = visible.header.next_offset
                    if visible.batch is not None:
                        found[tp] = visible.header.base_timestamp
                        break
                if tp in found or answer.error_code or position.offset == before:
                    fetcher.remove(tp)
    finally:
        fetcher.close()
    return found


def _last_commit_ms(target: Cluster, flow: str) -> int | None:
    """Return the time of the newest record of the offset map (ListOffsets, -3: largest timestamp)."""
    partitions = [TopicPartition(names.map_topic(flow), p) for p in range(names.MAP_PARTITIONS)]
    newest: int | None = None
    ends = target.list_offsets(partitions, calls.LATEST)
    for tp, position in ends.items():
        at_ms = _last_timestamp(target, tp, position)
        if at_ms is not None and (newest is None or at_ms > newest):
            newest = at_ms
    return newest


def _last_timestamp(target: Cluster, tp: TopicPartition, end: int) -> int | None:
    # The last offsets are markers of our transactions; a record lies a few offsets before them.
    start = max(0, end - 50)
    return _peek_last(target, tp, start) if end else None


def _peek_last(target: Cluster, tp: TopicPartition, start: int) -> int | None:
    fetcher = Fetcher(
        target, isolation=calls.READ_COMMITTED, max_bytes=_PEEK_BYTES, partition_max_bytes=_PEEK_BYTES
    )
    try:
        info = target.topics([tp.topic])[tp.topic]
        leader = info.partitions[tp.partition]
        fetcher.assign(tp, Position(info.topic_id, start, leader.leader, leader.leader_epoch))
        fetcher.request(max_wait_ms=0, min_bytes=0)
        last = None
        for _, answer in fetcher.poll(5.0):
            for visible in visible_batches(answer.records, answer.aborted, start, control_type):
                if visible.batch is not None:
                    last = visible.header.max_timestamp
        return last
    finally:
        fetcher.close()


# ---- shape


def _partition(facts: _Facts, enrolment: Enrolment, source: TopicPartition) -> dict[str, Any]:
    target = enrolment.target_of(source)
    committed = facts.committed.get(target)
    position = committed.offset if committed else None
    lso = facts.lsos.get(source)
    lag = max(0, lso - position) if lso is not None and position is not None else None
    stop = facts.stops.get(target)
    return {
        "topic": source.topic,
        "partition": source.partition,
        "target_topic": target.topic,
        "lane": lane_of(source, facts.layout.lanes) if facts.layout else None,
        "state": "stopped" if stop else "caught_up" if lag == 0 else "copying",
        "source_start": enrolment.start[source.partition],
        "lso": lso,
        "high_watermark": facts.high_watermarks.get(source),
        "open_offsets": _open(facts, source, position),
        "position": position,
        "lag_offsets": lag,
        "oldest_missing_s": round(facts.oldest_s[source], 3) if source in facts.oldest_s else 0.0,
        "target_end": _target_end(committed, facts.target_ends.get(target)),
        "verified": _verified(facts, enrolment, target, committed),
        "stop": None
        if stop is None
        else {
            "code": stop.code,
            "message": stop.message,
            "expected": stop.expected,
            "seen": stop.seen,
            "resolve": stop.resolve,
        },
    }


def _open(facts: _Facts, source: TopicPartition, position: int | None) -> int:
    """Return the offsets behind an open source transaction: no lag that will go away by copying."""
    if source not in facts.lsos:
        return 0
    return facts.high_watermarks[source] - max(facts.lsos[source], position or 0)


def _target_end(committed: calls.CommittedOffset | None, end: int | None) -> int | None:
    meta = _meta(committed)
    return end if meta is None else meta.target_end


def _verified(
    facts: _Facts, enrolment: Enrolment, target: TopicPartition, committed: calls.CommittedOffset | None
) -> dict[str, Any] | None:
    meta = _meta(committed)
    # Newer in the progress, after an operator's repair.
    ids = (str(enrolment.source_id), str(enrolment.target_id))
    if meta is not None:
        ids = (meta.source_topic_id, meta.target_topic_id)
    position = None if committed is None else committed.offset
    return partition_entry(facts.verified.get(target), ids, position, time.time() * 1000)


def _meta(committed: calls.CommittedOffset | None) -> ProgressMeta | None:
    """Return what stands beside a position; None where nothing does, or nothing that can be read."""
    if committed is None:
        return None
    try:
        return ProgressMeta.decode(committed.metadata)
    except OnceoverError:
        return None


def _refused(facts: _Facts, rules: Rules | None) -> list[dict[str, Any]]:
    """Return entries for topics that are in the filter but not, or not all of them, taken in."""
    found = []
    for refusal in (r for r in facts.refused if r.get("blocks", True)):
        verdict = None if rules is None else explain(refusal["object"], rules)
        # The filter may have changed since the flow ran last.
        if verdict is None or verdict.inside:
            found.append(_not_enrolled(refusal, verdict.target_topic if verdict else refusal["object"]))
    return found


def _not_enrolled(refusal: Mapping[str, Any], target_topic: str) -> dict[str, Any]:
    return {
        "topic": refusal["object"],
        "partition": None,
        "target_topic": target_topic,
        "lane": None,
        "state": "not_enrolled",
        "source_start": None,
        "lso": None,
        "high_watermark": None,
        "open_offsets": 0,
        "position": None,
        "lag_offsets": None,
        "oldest_missing_s": None,
        "target_end": None,
        "verified": None,
        "stop": {"code": refusal["code"], "message": refusal["message"], "resolve": refusal["resolve"]},
    }


def _topics(facts: _Facts, source: Cluster, rules: Rules) -> list[dict[str, Any]]:
    return topic_entries(rules, source.retry(source.topics), facts.known.values(), facts.refused)


def _driver(facts: _Facts) -> dict[str, Any] | None:
    beat, layout = facts.heartbeat, facts.layout
    if beat is None or layout is None or beat["run"] != layout.run or layout.ended_at_ms is not None:
        return None
    silent_ms = max(0, int(time.time() * 1000) - beat["at_ms"])
    return {
        "host": layout.host,
        "pid": beat["pid"],
        "silent_ms": silent_ms,
        "alive": silent_ms < SILENT_AFTER_MS,
    }


def _state(facts: _Facts, partitions: list[dict[str, Any]]) -> str:
    layout = facts.layout
    if layout is None:
        return "not_started"
    starting_ms = time.time() * 1000 - layout.started_at_ms
    driver = _driver(facts)
    alive = driver["alive"] if driver else starting_ms < SILENT_AFTER_MS
    if layout.ended_at_ms is not None or not alive or not layout.ready:
        return "stopped"
    going = [p for p in partitions if p["state"] not in ("stopped", "not_enrolled")]
    return "caught_up" if all(p["state"] == "caught_up" for p in going) else "copying"
