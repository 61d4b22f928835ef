"""What a copy and an audit have to tell a catalogue, from the driver's note and report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset
from openlineage.client.facet_v2 import RunFacet

from onceover_airflow.lineage.events import (
    TOPICS_PER_EVENT,
    audit_job,
    audited,
    copy_job,
    portions,
    sources,
    targets,
    tested,
)
from onceover_airflow.lineage.naming import FlowEnds


@dataclass
class CopyEvents:
    """What is told of a copy.

    Args:
        ends: of the flow.
        job: of the flow, in the catalogue.
        topics: that are copied, as far as is known.
    """

    ends: FlowEnds
    job: Job
    topics: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, namespace: str, ends: FlowEnds) -> Self:
        """Return what is told of a flow's copy before anything is known of it."""
        return cls(ends, copy_job(namespace, ends))

    def saw(self, report: Mapping[str, Any]) -> None:
        """Know the topics from the job's report, where it got so far."""
        topics = report.get("topics")
        self.topics = dict(topics) if isinstance(topics, dict) and topics else self.topics

    def reached_its_end(self, failed: bool) -> bool:
        """Tell whether the run has done what it is for."""
        return not failed

    def facets(self) -> dict[str, RunFacet]:
        """Nothing more is known of the run than of its topics."""
        return {}

    def datasets(self) -> Iterable[tuple[list[InputDataset], list[OutputDataset]]]:
        """Yield sources and targets, as one event each names them."""
        for some in portions(self.topics):
            yield sources(self.ends, some), targets(self.ends, some)


@dataclass
class AuditEvents:
    """What is told of an audit: nothing is known before its report."""

    ends: FlowEnds
    job: Job
    report: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, namespace: str, ends: FlowEnds) -> Self:
        """Return what is told of a flow's audit before anything is known of it."""
        return cls(ends, audit_job(namespace, ends))

    def saw(self, report: Mapping[str, Any]) -> None:
        """Keep the document of an audit that has reached a verdict."""
        self.report = report if "verdict" in report else {}

    def reached_its_end(self, failed: bool) -> bool:
        """An audit that finds something wrong has done its work: its tests say what."""
        return bool(self.report)

    def facets(self) -> dict[str, RunFacet]:
        """Return the rules of the whole audit, met or not."""
        return {"test": tested(self.report["expectations"])} if self.report else {}

    def datasets(self) -> Iterable[tuple[list[InputDataset], list[OutputDataset]]]:
        """Yield what was read, as one event each names it."""
        read = audited(self.ends, self.report["partitions"]) if self.report else []
        for begin in range(0, max(1, len(read)), TOPICS_PER_EVENT):
            yield read[begin : begin + TOPICS_PER_EVENT], []
