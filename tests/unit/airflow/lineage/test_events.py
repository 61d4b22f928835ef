"""What a catalogue is told of topics and of audits, as the JSON that it gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from openlineage.client.event_v2 import Dataset
from openlineage.client.serde import Serde

from onceover.audit.checks.suites import RULES
from onceover.audit.checks.verdict import RuleOutcome, conclude
from onceover.audit.model import FindingKind, Reason
from onceover.audit.report import jsonreport
from onceover_airflow.lineage import events
from onceover_airflow.lineage.naming import FlowEnds
from tests.support.worlds import audits

HERE, THERE = ("kafka://a:1",), ("kafka://b:1", "kafka://c:1")
ENDS = FlowEnds("flights", HERE, THERE)
# What OpenLineage's schemas demand of the facets used here, beside `_producer` and `_schemaURL`.
REQUIRED = {
    "jobType": {"processingType", "integration"},
    "documentation": {"description"},
    "datasetType": {"datasetType"},
    "symlinks": set[str](),
    "lineage": set[str](),
    "dataQualityAssertions": {"assertions"},
    "test": {"tests"},
}


def plain(made: Any) -> dict[str, Any]:
    """Return it as it is sent; every facet has what its schema demands."""
    found: dict[str, Any] = json.loads(Serde.to_json(made))
    for name, facet in [*found.get("facets", {}).items(), *found.get("inputFacets", {}).items()]:
        assert REQUIRED[name] | {"_producer", "_schemaURL"} <= facet.keys()
        assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")
    return found


def by_name(made: list[Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return datasets by namespace and name."""
    assert all(isinstance(each, Dataset) for each in made)
    return {(each["namespace"], each["name"]): each for each in map(plain, made)}


def test_a_copy_is_a_streaming_job_named_after_its_flow() -> None:
    """One for whichever DAG has started it: `replicate` starts all flows, and would be a job of them all."""
    job = plain(events.copy_job("prod", ENDS))
    assert (job["namespace"], job["name"]) == ("prod", "onceover.flights")
    assert job["facets"]["jobType"]["processingType"] == "STREAMING"
    assert plain(events.audit_job("prod", ENDS))["name"] == "onceover.flights.audit"


@pytest.mark.parametrize(("handled", "how"), [(False, "IDENTITY"), (True, "TRANSFORMATION")])
def test_each_target_topic_says_which_topic_it_is_the_copy_of(handled: bool, how: str) -> None:
    """A job of many topics would otherwise look as if each came from all."""
    ends, topics = FlowEnds("f", HERE, THERE, handled=handled), {"x": "east.x", "y": "east.y"}
    assert by_name(events.sources(ends, topics)).keys() == {("kafka://a:1", "x"), ("kafka://a:1", "y")}
    found = by_name(events.targets(ends, topics))
    assert found.keys() == {("kafka://b:1", "east.x"), ("kafka://b:1", "east.y")}
    (origin,) = found["kafka://b:1", "east.x"]["facets"]["lineage"]["inputs"]
    assert (origin["namespace"], origin["name"], origin["type"]) == ("kafka://a:1", "x", "DATASET")
    assert origin["transformations"] == [{"type": "DIRECT", "subtype": how}]


def test_other_bootstrap_servers_are_symlinks() -> None:
    """Whoever names the cluster by another server means the same topic."""
    (copy,) = map(plain, events.targets(ENDS, {"x": "y"}))
    assert copy["facets"]["symlinks"]["identifiers"] == [
        {"namespace": "kafka://c:1", "name": "y", "type": "TOPIC"}
    ]
    (origin,) = map(plain, events.sources(ENDS, {"x": "y"}))
    assert origin["facets"].keys() == {"datasetType"}


def test_dead_letters_are_an_output_of_what_is_copied() -> None:
    """Of nothing there are none."""
    ends = FlowEnds("f", HERE, THERE, dead_letters="letters")
    found = by_name(events.targets(ends, {"x": "x", "y": "y"}))
    inputs = found["kafka://b:1", "letters"]["facets"]["lineage"]["inputs"]
    assert [each["name"] for each in inputs] == ["x", "y"]
    assert events.targets(ends, {}) == []


def test_thousands_of_topics_are_told_in_portions() -> None:
    """A catalogue's server refuses a body of some megabytes; no topics are one portion."""
    topics = {f"t{number:04}": f"u{number:04}" for number in range(2 * events.TOPICS_PER_EVENT + 1)}
    portions = list(events.portions(topics))
    assert [len(each) for each in portions] == [events.TOPICS_PER_EVENT, events.TOPICS_PER_EVENT, 1]
    assert {name: copy for each in portions for name, copy in each.items()} == topics
    assert list(events.portions({})) == [{}]


def told(result: Any) -> dict[str, Any]:
    """Return the document of an audit whose rules are all met; the numbers in it are the result's."""
    return jsonreport.document(result, conclude([RuleOutcome(rule, True) for rule in RULES]))


def judged(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tests of the target topic by their short name."""
    found = by_name(events.audited(ENDS, document["partitions"]))
    assert found.keys() == {("kafka://a:1", audits.TOPIC), ("kafka://b:1", audits.TOPIC)}
    assert (
        "inputFacets" not in found["kafka://a:1", audits.TOPIC]
        or not found["kafka://a:1", audits.TOPIC]["inputFacets"]
    )
    listed = found["kafka://b:1", audits.TOPIC]["inputFacets"]["dataQualityAssertions"]["assertions"]
    return {each["assertion"]: each for each in listed}


def test_a_pass_passes_every_test_of_its_topics() -> None:
    """One test for each kind of finding, that all was compared, and that all is proven."""
    found = judged(told(audits.result()))
    kinds = {str(kind).lower() for kind in FindingKind}
    assert found.keys() == kinds | {"compared", "proven"}
    assert {each["success"] for each in found.values()} == {True}
    assert found["lost"]["actual"] == "0 records"


def test_a_finding_fails_its_test_and_names_the_partition() -> None:
    """Only that one, and that the rest is proven no further."""
    wrong = audits.partition_result(
        1, audits.digests(1, 0, 200), findings=[audits.finding(FindingKind.LOST)], verified_to=90
    )
    right = audits.partition_result(0, audits.digests(0, 0, 200))
    found = judged(told(audits.result([right, wrong])))
    assert {name for name, each in found.items() if not each["success"]} == {"lost", "proven"}
    assert found["lost"]["actual"] == "1 records: 1 in partition 1"
    assert found["lost"]["params"] == {"partitions": {"1": 1}}
    assert (found["lost"]["severity"], found["proven"]["severity"]) == ("error", "warn")
    assert found["proven"]["actual"] == "110 offsets: 110 in partition 1"


def test_what_could_not_be_compared_did_not_pass() -> None:
    """UNVERIFIABLE is never right; it is a warning, because nothing wrong was seen."""
    unseen = audits.partition_result(
        0, audits.digests(0, 0, 200), unverifiable=[audits.stretch(Reason.RETENTION, 0, 0, 9)], verified_to=-1
    )
    found = judged(told(audits.result([unseen])))
    assert {name for name, each in found.items() if not each["success"]} == {"compared", "proven"}
    assert {found[name]["severity"] for name in ("compared", "proven")} == {"warn"}


@pytest.mark.parametrize("reason", [Reason.NOT_COPIED_YET, Reason.STOPPED, Reason.OPEN_TRANSACTION])
def test_what_the_source_holds_beyond_the_copy_is_not_proven(reason: Reason) -> None:
    """The audit's upper bound is the copy's position: all below it is proven, and the source goes on."""
    behind = audits.partition_result(
        0, audits.digests(0, 0, 200), unverifiable=[audits.stretch(reason, 0, 200, 350)]
    )
    proven = judged(told(audits.result([behind])))["proven"]
    assert (proven["success"], proven["severity"]) == (False, "warn")
    assert proven["actual"] == "150 offsets: 150 in partition 0"


def test_what_a_person_decided_is_no_gap_in_the_proof() -> None:
    """Nor is a repeat that the mode of delivery allows: the audit passes it, wherever its record is."""
    decided = [audits.stretch(Reason.SKIPPED, 0, 10, 20), audits.stretch(Reason.AT_LEAST_ONCE, 0, 200, 201)]
    row = audits.partition_result(0, audits.digests(0, 0, 200), unverifiable=decided)
    assert judged(told(audits.result([row])))["proven"]["success"]


def test_a_finding_in_what_was_proven_before_is_no_proof() -> None:
    """An audit from the beginning: the watermark never goes back, and is wrong."""
    wrong = audits.partition_result(
        0, audits.digests(0, 0, 200), findings=[audits.finding(FindingKind.LOST)], verified_to=200
    )
    proven = judged(told(audits.result([wrong])))["proven"]
    assert proven["actual"] == "1 offsets: 1 in partition 0"


def test_rows_of_the_same_target_partition_count_together() -> None:
    """What is behind a position is a row of its own: it hid what was found of the copy."""
    copy = audits.partition_result(
        0, audits.digests(0, 0, 200), findings=[audits.finding(FindingKind.LOST)], verified_to=90
    )
    ahead = audits.partition_result(0, ())
    found = judged(told(audits.result([copy, ahead])))
    assert {name for name, each in found.items() if not each["success"]} == {"lost", "proven"}


def test_a_partition_that_is_not_taken_in_counts_for_the_copy_of_its_topic() -> None:
    """Nothing of it is on the target: neither compared nor proven."""
    gap = audits.stretch(Reason.NOT_ENROLLED, 1, 0, 70)
    absent = replace(audits.partition_result(1, (), source_to=0, unverifiable=[gap]), target=None)
    found = judged(told(audits.result([audits.good_partition(0), replace(absent, verified_to=-1)])))
    assert {name for name, each in found.items() if not each["success"]} == {"compared", "proven"}
    assert found["proven"]["params"] == {"partitions": {"1": 70}}


def test_partitions_beyond_some_are_counted() -> None:
    """A topic of thousands of partitions that is wrong as a whole is no event of megabytes."""
    many = [
        audits.partition_result(number, audits.digests(number, 0, 9), source_to=9, verified_to=-1)
        for number in range(events.PARTITIONS_NAMED + 2)
    ]
    proven = judged(told(audits.result(many)))["proven"]
    assert len(proven["params"]["partitions"]) == events.PARTITIONS_NAMED
    assert proven["actual"].endswith("and in 2 more partitions")


def test_a_partition_without_a_counterpart_is_read_on_the_source_alone() -> None:
    """It has no target topic to say anything of."""
    rows = [{"source_topic": "x", "target_topic": None}]
    assert by_name(events.audited(ENDS, rows)).keys() == {("kafka://a:1", "x")}


def test_the_rules_of_the_whole_audit_are_its_run() -> None:
    """Met, not met, not evaluated: three answers."""
    broken, open_, never = RULES[1], RULES[0], RULES[2]
    outcomes = [RuleOutcome(rule, rule not in (broken, open_), checked=1, unexpected=1) for rule in RULES]
    quality = conclude([each for each in outcomes if each.rule is not never])
    document = jsonreport.document(audits.result(), quality)
    facet = json.loads(Serde.to_json(events.tested(document["expectations"])))
    found = {each["name"]: each for each in facet["tests"]}
    assert len(found) == len(RULES)
    status = {rule: found[f"{rule.suite}: {rule.says}"] for rule in (broken, open_, never, RULES[3])}
    assert [(each["status"], each["severity"]) for each in status.values()] == [
        ("fail", "error"),
        ("fail", "warn"),
        ("skip", "warn"),
        ("pass", "warn"),
    ]
