"""What is seen of an old source: its partitions, and what of them was copied. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from onceover.drills.orphans.tally import OrphanTally
from onceover.drills.orphans.torn import TornTransaction, TransactionSpan
from onceover.model import TopicPartition
from onceover.planning.plan import Refusal


@dataclass(frozen=True)
class OrphanLook:
    """One promoted partition of the old source.

    Args:
        topic_id: of the topic that was looked at.
        start: of its log; ``stable`` its last stable offset and ``end`` its high watermark.
        cut: the first offset that was never copied.
        tally: the records that count from there to ``stable``.
        aborted: transactions behind the cut that are none.
        opened: those that have not ended: what they hold may count yet, and what stands behind them is not
            counted.
        uncopied: why records before the cut may be nowhere else; None where all were copied, and are there.
    """

    source: TopicPartition
    topic_id: str
    start: int
    stable: int
    end: int
    cut: int
    tally: OrphanTally = field(default_factory=OrphanTally)
    aborted: int = 0
    opened: tuple[TransactionSpan, ...] = ()
    uncopied: str | None = None

    @property
    def first_wanted(self) -> int:
        """Where the records begin that may be orphans: what has expired is nowhere any more."""
        return max(self.cut, self.start)

    @property
    def is_decided(self) -> bool:
        """Tell whether nothing in it is open."""
        return self.stable >= self.end and not self.opened


@dataclass(frozen=True)
class TopicShape:
    """How a topic is made.

    Args:
        topic_id: of the topic that was looked at.
        config: what is set on the topic itself.
    """

    topic_id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TopicShape:
        """Read what ``document`` returned; other keys beside it say something else."""
        config = {str(key): str(each) for key, each in dict(value["config"]).items()}
        return cls(str(value["topic_id"]), int(value["partitions"]), int(value["replication_factor"]), config)

    def __str__(self) -> str:
        own = ", ".join(f"{key}={value}" for key, value in sorted(self.config.items()))
        return (
            f"{self.partitions} partitions, replication factor {self.replication_factor}, "
            f"{own or 'nothing set on the topic itself'}"
        )


@dataclass(frozen=True)
class OrphanView:
    """What was seen.

    Args:
        looks: one for each promoted partition that is there, in their order.
        torn: source transactions of which a part was copied.
        short: partitions in which not as far back was looked as the other part of one may lie.
        ids: transactional ids that the coordinators know, by producer id.
        notes: topics that hold nothing of ours any more, and what cannot be told about.
        holding: those of them because of which no topic at all may be deleted.
        copies: what the copies of promoted topics are called.
        gone: promoted topics that are not there any more.
        unseen: promoted topics that were not looked at: what was torn between them and others is not known.
    """

    looks: tuple[OrphanLook, ...]
    torn: tuple[TornTransaction, ...]
    short: tuple[TopicPartition, ...]
    ids: Mapping[int, str]
    notes: tuple[Refusal, ...]
    holding: tuple[Refusal, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()

    def copy_of(self, source: TopicPartition) -> TopicPartition:
        """Return the copy of a partition that was looked at."""
        return TopicPartition(self.copies.get(source.topic, source.topic), source.partition)
