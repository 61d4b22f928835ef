"""What a catalogue is told, in OpenLineage's words: jobs, datasets and facets made from values. No I/O.

Invariant: names, numbers and rules only: no record, and of the clients' keys the servers' addresses alone.
Nothing that was not seen counts as right: what an audit could not compare is a test that did not pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    dataset_type_dataset,
    documentation_job,
    job_type_job,
    lineage,
    symlinks_dataset,
    test_run,
)
from openlineage.client.facet_v2 import (
    data_quality_assertions_dataset as assertions,
)

from onceover.audit.checks.suites import NOT_EVALUATED, TOPICS, RuleKind, rules_of
from onceover.audit.model import DECIDED
from onceover.state.records.verdicts import Verdict
from onceover_airflow.lineage.naming import FlowEnds

# Topics that one event names. A flow may have thousands, and servers refuse a body of some megabytes; the
# events of a run are read together (ACCUMULATIVE).
TOPICS_PER_EVENT: Final = 500
# Partitions that are named where a test did not pass: enough to go on with, the report has them all.
PARTITIONS_NAMED: Final = 50
_TOPIC: Final = "TOPIC"
_ERROR, _WARN = "error", "warn"
_COMPARED: Final = ("compared", "every offset could be compared", "unverifiable")
_PROVEN: Final = ("proven", "everything up to the source's end is proven, by this audit or an earlier one")

Row = Mapping[str, Any]


def copy_job(namespace: str, ends: FlowEnds) -> Job:
    """Return the job of a flow: one for whichever DAG has started it."""
    says = "Copies topics between two Kafka clusters, every committed record once and in order."
    return _job(namespace, f"onceover.{ends.flow}", "STREAMING", says)


def audit_job(namespace: str, ends: FlowEnds) -> Job:
    """Return the job that compares both sides of a flow."""
    says = (
        "Compares both sides of a flow record by record: the tests say what is proven of each target topic."
    )
    return _job(namespace, f"onceover.{ends.flow}.audit", "BATCH", says)


def _job(namespace: str, name: str, processing: str, says: str) -> Job:
    pattern = job_type_job.EmissionPattern(eventTrigger="EVENT_BASED", eventContentMode="ACCUMULATIVE")
    kind = job_type_job.JobTypeJobFacet(
        processingType=processing, integration="ONCEOVER", jobType="JOB", emissionPattern=pattern
    )
    return Job(
        namespace=namespace,
        name=name,
        facets={"jobType": kind, "documentation": documentation_job.DocumentationJobFacet(description=says)},
    )


def portions(topics: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield topics as one event names them, at least one portion."""
    names = sorted(topics)
    for begin in range(0, max(1, len(names)), TOPICS_PER_EVENT):
        yield {name: topics[name] for name in names[begin : begin + TOPICS_PER_EVENT]}


def sources(ends: FlowEnds, topics: Mapping[str, str]) -> list[InputDataset]:
    """Return the source topics."""
    return [
        InputDataset(namespace=ends.source[0], name=topic, facets=_facets(ends.source, topic))
        for topic in topics
    ]


def targets(ends: FlowEnds, topics: Mapping[str, str]) -> list[OutputDataset]:
    """Return the target topics, each with the source topic that it is the copy of, and that for dead letters.

    Args:
        topics: source name to target name.
    """
    subtype = "TRANSFORMATION" if ends.handled else "IDENTITY"
    copies = [_output(ends, copy, [topic], subtype) for topic, copy in topics.items()]
    if ends.dead_letters is not None and topics:
        copies.append(_output(ends, ends.dead_letters, list(topics), "FILTER"))
    return copies


def _output(ends: FlowEnds, topic: str, origins: Sequence[str], subtype: str) -> OutputDataset:
    how = lineage.LineageTransformation(type="DIRECT", subtype=subtype)
    inputs: list[lineage.LineageInput] = [
        lineage.LineageDatasetInput(
            namespace=ends.source[0], name=origin, type="DATASET", transformations=[how]
        )
        for origin in origins
    ]
    facets = {**_facets(ends.target, topic), "lineage": lineage.LineageDatasetFacet(inputs=inputs)}
    return OutputDataset(namespace=ends.target[0], name=topic, facets=facets)


def _facets(names: Sequence[str], topic: str) -> dict[str, DatasetFacet]:
    """Return what is said of every topic: that it is one, and its other names."""
    found: dict[str, DatasetFacet] = {
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(datasetType=_TOPIC, subType="KAFKA")
    }
    if others := [symlinks_dataset.Identifier(namespace=name, name=topic, type=_TOPIC) for name in names[1:]]:
        found["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=others)
    return found


def audited(ends: FlowEnds, partitions: Sequence[Row]) -> list[InputDataset]:
    """Return what an audit read: source topics as they are, target topics with what was found of them.

    Args:
        partitions: as the audit's document has them.
    """
    origins = dict.fromkeys(sorted(row["source_topic"] for row in partitions), "")
    named = {
        row["source_topic"]: row["target_topic"] for row in partitions if row["target_topic"] is not None
    }
    copies: dict[str, list[Row]] = {}
    for row in partitions:
        # A partition that is not taken in has no counterpart, and is what the copy of its topic lacks.
        if (topic := row["target_topic"] or named.get(row["source_topic"])) is not None:
            copies.setdefault(topic, []).append(row)
    found = sources(ends, origins)
    for topic, rows in sorted(copies.items()):
        judged: dict[str, InputDatasetFacet] = {
            "dataQualityAssertions": assertions.DataQualityAssertionsDatasetFacet(
                assertions=list(_asserted(rows))
            )
        }
        facets = _facets(ends.target, topic)
        found.append(InputDataset(namespace=ends.target[0], name=topic, facets=facets, inputFacets=judged))
    return found


def _asserted(rows: Sequence[Row]) -> Iterator[assertions.Assertion]:
    """Yield one test for each rule about a topic's records, with the partitions in which it is not met."""
    for rule in rules_of(TOPICS):
        # The audit's own words for findings; whether every offset was accounted for is told of the whole.
        if rule.kind is RuleKind.ZERO and rule.answer is Verdict.FAIL:
            found = _by_partition((row, row["by_kind"].get(rule.code, 0)) for row in rows)
            yield _assertion((rule.code.lower(), rule.says), found, "records", _ERROR)
    name, says, column = _COMPARED
    yield _assertion((name, says), _by_partition((row, row[column]) for row in rows), "offsets", _WARN)
    yield _assertion(_PROVEN, _by_partition((row, _unproven(row)) for row in rows), "offsets", _WARN)


def _by_partition(counts: Iterable[tuple[Row, int]]) -> Counter[int]:
    """Return the counts of each target partition: several rows may be about one."""
    found: Counter[int] = Counter()
    for row, count in counts:
        number = row["target_partition"]
        found[row["partition"] if number is None else number] += count
    return found


def _unproven(row: Row) -> int:
    """Return how many source offsets nobody has proven, up to where the source ended when the audit began.

    What is not copied, or is in an open transaction, lies behind the audit's upper bound: a stretch says so.
    What is found wrong in offsets that an earlier audit has proven takes that proof away.
    """
    ends = [each["to"] for each in row["stretches"] if each["reason"] not in DECIDED]
    open_ = max([row["source_to"], *ends]) - max(0, row["verified_to"])
    return int(open_ if open_ > 0 else row["findings"])


def _assertion(
    rule: tuple[str, str], found: Mapping[int, int], unit: str, severity: str
) -> assertions.Assertion:
    """Return a test that expects 0 of something in every partition."""
    unmet = {partition: count for partition, count in sorted(found.items()) if count}
    named = dict(list(unmet.items())[:PARTITIONS_NAMED])
    shown = ", ".join(f"{count} in partition {partition}" for partition, count in named.items())
    more = f", and in {len(unmet) - len(named)} more partitions" if len(unmet) > len(named) else ""
    return assertions.Assertion(
        assertion=rule[0],
        success=not unmet,
        severity=severity,
        name=rule[1],
        expected=f"0 {unit} in each of {len(found)} partitions",
        actual=f"0 {unit}" if not unmet else f"{sum(unmet.values())} {unit}: {shown}{more}",
        params={"partitions": {str(partition): count for partition, count in named.items()}},
    )


def tested(expectations: Sequence[Row]) -> test_run.TestRunFacet:
    """Return the rules of a whole audit, as its document has them: met, not met, or not evaluated."""
    return test_run.TestRunFacet(
        tests=[
            test_run.TestExecution(
                name=f"{each['suite']}: {each['expected']}",
                status=_status(each),
                severity=_ERROR if each["answer"] == Verdict.FAIL else _WARN,
                type=each["suite"],
                expected=each["expected"],
                actual=each["observed"],
            )
            for each in expectations
        ]
    )


def _status(expectation: Row) -> str:
    if expectation["code"] == NOT_EVALUATED:
        return "skip"
    return "pass" if expectation["answer"] == Verdict.PASS else "fail"
