"""What the demo found, as data: what was fed, what arrived, what was killed when. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onceover_lab.demo.feed import Tally
from onceover_lab.demo.verdict import CopyFaultKind, CopyVerdict


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One line of the final table."""

    topic: str
    codec: str
    produced: int
    aborted: int
    copied: int
    found: Mapping[CopyFaultKind, int]


@dataclass(frozen=True, slots=True)
class Kill:
    """The kill -9 and what followed."""

    pid: int
    jvm_pid: int
    at_fraction: float
    at_s: float
    generation_before: int
    generation_after: int
    tries: int
    new_driver_after_s: float
    copying_after_s: float


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a rehearsal of a failover came to; ``report`` is the path of its page."""

    verdict: str
    rto_s: float | None
    report: str

    @property
    def ok(self) -> bool:
        return self.verdict == "PASS"


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The whole outcome. ``ok``: each record arrived once, in order, unchanged, and a rehearsal passed."""

    rows: tuple[TopicRow, ...]
    verdict: CopyVerdict
    kill: Kill
    rehearsed: Rehearsed
    aborted_transactions: int
    compare_s: float
    total_s: float
    airflow: Mapping[str, str]
    notes: tuple[str, ...] = field(default=())

    @property
    def produced(self) -> int:
        return sum(row.produced for row in self.rows)

    @property
    def ok(self) -> bool:
        """An empty or partial comparison never counts as success."""
        fed_is_seen = self.produced == self.verdict.source_records == self.verdict.target_records
        return self.verdict.ok and self.produced > 0 and fed_is_seen and self.rehearsed.ok

    def as_dict(self) -> dict[str, Any]:
        return {
            "records": self.produced,
            "aborted_records": sum(row.aborted for row in self.rows),
            "aborted_transactions": self.aborted_transactions,
            "topics": [
                {
                    "topic": row.topic,
                    "codec": row.codec,
                    "produced": row.produced,
                    "aborted": row.aborted,
                    "copied": row.copied,
                    **{kind.value: row.found.get(kind, 0) for kind in CopyFaultKind},
                }
                for row in self.rows
            ],
            "killed": {
                "pid": self.kill.pid,
                "jvm_pid": self.kill.jvm_pid,
                "at_fraction": round(self.kill.at_fraction, 3),
                "at_s": round(self.kill.at_s, 1),
                "generation_before": self.kill.generation_before,
                "generation_after": self.kill.generation_after,
                "tries": self.kill.tries,
                "new_driver_after_s": round(self.kill.new_driver_after_s, 1),
                "copying_after_s": round(self.kill.copying_after_s, 1),
            },
            "rehearsal": {
                "verdict": self.rehearsed.verdict,
                "rto_s": self.rehearsed.rto_s,
                "report": self.rehearsed.report,
            },
            "comparison": self.verdict.as_dict(),
            "compare_s": round(self.compare_s, 1),
            "total_s": round(self.total_s, 1),
            "airflow": dict(self.airflow),
            "notes": list(self.notes),
        }


def make_rows(tally: Tally, verdict: CopyVerdict, codecs: Mapping[str, str]) -> tuple[TopicRow, ...]:
    """Return one row per topic that was fed, in the order of ``codecs``."""
    copied: Counter[str] = Counter()
    found: dict[str, Counter[CopyFaultKind]] = {name: Counter() for name in codecs}
    for partition in verdict.partitions:
        copied[partition.source.topic] += partition.target_records
        found[partition.source.topic].update(partition.counts)
    return tuple(
        TopicRow(name, codec, tally.produced[name], tally.aborted[name], copied[name], found[name])
        for name, codec in codecs.items()
    )
