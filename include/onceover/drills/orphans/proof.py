"""Whether an old source is still the log that was copied, and whether its copy is still there.

Invariant: reads only. What is not answered, or what the offset map does not tell, speaks against both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onceover.backoff import Deadline
from onceover.drills.orphans.looks import OrphanLook
from onceover.errors import OnceoverError, UsageError
from onceover.kafka import calls
from onceover.kafka.admin.topics import Admin
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import answers_in_time
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.positions.translate import Translator
from onceover.resume.resume import Problem, with_target_logs
from onceover.resume.sourcelogs import evidence_of, judge_sources, told
from onceover.state.records.enrolment import Enrolment
from onceover.stops.judge import lost_on_target
from onceover.wire.offsetlookup import Translated

# A partition without a leader must not keep the others waiting.
PATIENCE_S: Final = 5.0
_CLEANUP_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"


@dataclass(frozen=True)
class CopyProof:
    """What was found out about partitions, by source partition.

    Args:
        changed: why the old source holds another log than was copied.
        unread: why that is not known at the moment.
        lost: why the copy may not hold what was copied.
    """

    changed: Mapping[TopicPartition, str] = field(default_factory=dict)
    unread: Mapping[TopicPartition, OnceoverError] = field(default_factory=dict)
    lost: Mapping[TopicPartition, str] = field(default_factory=dict)


class CleanupPolicies(NamedTuple):
    """``cleanup.policy`` of a topic, ``here``, and of its copy, ``there``; None where it is not told."""

    here: str | None
    there: str | None

    @property
    def may_have_removed(self) -> bool:
        """Tell whether compaction may have removed of the copy what counts here.

        Where both are compacted, of either the newest record of each key is what counts.
        """
        return _COMPACT in (self.there or "") and _COMPACT not in (self.here or "")


@dataclass(frozen=True)
class CopyProver:
    """Compares both sides with what stands beside the progress. The clusters belong to the caller.

    Args:
        flow: its name.
        source: the old source; ``target`` where the copies are.
        translator: by the flow's offset map.
    """

    flow: str
    source: Cluster
    target: Cluster
    translator: Translator

    def prove(
        self,
        enrolled: Mapping[TopicPartition, Enrolment],
        committed: Mapping[TopicPartition, CommittedOffset],
        topics: Mapping[str, TopicInfo],
    ) -> CopyProof:
        """Return what speaks against partitions.

        Args:
            enrolled: by partition of the old source, with those that have progress.
            committed: that progress, by partition of the copy.
            topics: of the old source.

        Raises:
            Retriable: a cluster is away.
        """
        names = sorted({e.target for e in enrolled.values()})
        copies = self.target.retry(lambda: self.target.topics(names))
        judged = judge_sources(
            self.source,
            {
                tp: evidence_of(
                    self.flow,
                    tp,
                    e,
                    committed[e.target_of(tp)].offset,
                    committed[e.target_of(tp)],
                    topics[tp.topic],
                    copies.get(e.target),
                )
                for tp, e in enrolled.items()
            },
            topics,
        )
        changed = {tp: told(stop) for tp, stop in judged.parted.items()}
        evidence, unread = dict(judged.evidence), judged.unread
        there = {tp: e for tp, e in evidence.items() if e.target_topic is not None}
        untold: dict[TopicPartition, Problem] = {}
        with_target_logs(self.target, there, evidence, untold)
        lost = {tp: told(stop) for tp, e in evidence.items() if (stop := lost_on_target(e)) is not None}
        lost |= {tp: f"whether its copy is whole is not known: {p.error.message}" for tp, p in untold.items()}
        return CopyProof(changed, unread, lost)

    def expired(
        self, looks: Collection[OrphanLook], copies: Mapping[TopicPartition, TopicPartition]
    ) -> dict[TopicPartition, str]:
        """Return where the copy does not go back as far as the old source does.

        Args:
            looks: at partitions of the old source; those that hold nothing that was copied are none.
            copies: of each of them.

        Raises:
            UsageError: a right is missing.
        """
        wanted = [look for look in looks if look.start < look.cut]
        starts = answers_in_time(
            self.target.retry,
            [copies[look.source] for look in wanted],
            lambda some: self.target.each_offset(some, calls.EARLIEST),
            Deadline(PATIENCE_S),
        )
        found: dict[TopicPartition, str] = {}
        here = _policies(self.source, {look.source.topic for look in wanted})
        there = _policies(self.target, {copies[look.source].topic for look in wanted})
        for look in wanted:
            copy = copies[look.source]
            policies = CleanupPolicies(here.get(look.source.topic), there.get(copy.topic))
            try:
                why = self._expired(look, copy, starts.found.get(copy), policies)
            except UsageError:
                raise
            except OnceoverError as error:
                why = f"how far its copy goes back is not known: {error.message}"
            if why is not None:
                found[look.source] = why
        return found

    def _expired(
        self, look: OrphanLook, copy: TopicPartition, start: int | None, policies: CleanupPolicies
    ) -> str | None:
        alias = self.target.alias
        if start is None:
            return f"how far its copy on {alias} goes back is not known: it does not answer"
        # Compaction removes records and leaves the log's start where it is.
        if policies.there is None:
            return (
                f"whether its copy on {alias} is compacted is not known: grant the principal "
                f"DESCRIBE_CONFIGS on {copy.topic}"
            )
        if policies.may_have_removed:
            return f"its copy on {alias} is compacted, unlike it: what was removed there stands here alone"
        if start == 0:
            # Nothing has ever expired there.
            return None
        found = self.translator.to_target(look.source, look.start)
        if not isinstance(found, Translated):
            return (
                f"its copy on {alias} begins at offset {start}, and where that of offset {look.start} lay "
                "the offset map does not tell"
            )
        if found.offset < start:
            return (
                f"its copy on {alias} begins at offset {start} by now, and that of offset {look.start} lay "
                f"at {found.offset}: what has expired there stands here alone"
            )
        return None


def _policies(cluster: Cluster, topics: Collection[str]) -> dict[str, str]:
    """Return the cleanup policies of the topics that tell."""
    standing = Admin(cluster).topic_configs(topics, standing=(_CLEANUP_POLICY,)).standing
    return {topic: held[_CLEANUP_POLICY] for topic, held in standing.items() if _CLEANUP_POLICY in held}
