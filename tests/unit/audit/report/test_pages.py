"""The audit's document and its page: what matters is on it, and nothing that does not belong there."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from onceover.audit.checks.evidence import BookkeepingChecks, Commit
from onceover.audit.checks.result import Area, AuditResult
from onceover.audit.checks.suites import NOT_EVALUATED, RULES
from onceover.audit.checks.verdict import RuleOutcome, conclude
from onceover.audit.model import Finding, FindingKind, Reason, Unverifiable
from onceover.audit.report import datadocs, jsonreport
from onceover.audit.report import pages as report
from onceover.audit.report.nextsteps import first_wrong, next_steps
from onceover.audit.report.runs import keep_answer
from onceover.errors import NeedsOperator, UsageError
from onceover.state.records.verdicts import Verdict
from tests.support.worlds import audits

_NASTY = "<script>alert('&')</script>"
_VOID = {"meta", "link", "br", "path", "circle", "use", "img", "rect"}


def told(result: AuditResult | None = None, unmet: set[str] | None = None, **numbers: Any) -> dict[str, Any]:
    """Return the document of an audit in which some rules were not met."""
    outcomes = [
        RuleOutcome(rule, rule.name not in (unmet or set()), checked=2, unexpected=1, **numbers)
        for rule in RULES
    ]
    seen = result or audits.result()
    commits = tuple(
        Commit(audits.at(0), end, end, audits.STARTED_MS - 60_000 + end + 40) for end in (50, 100, 200)
    )
    return jsonreport.document(seen, conclude(outcomes), BookkeepingChecks((), commits))


def failing() -> dict[str, Any]:
    """Return the document of an audit with one finding of each kind, and what could not be compared."""
    wrong = audits.partition_result(
        0,
        audits.digests(0, 0, 100, target_records=99) + audits.digests(0, 100, 150),
        findings=[audits.finding(kind) for kind in FindingKind],
        unverifiable=[audits.stretch(Reason.RETENTION, 0, 150, 200)],
        verified_to=42,
    )
    checks = [audits.check(area, ok=False, skipped=3) for area in Area]
    numbers = ({"what": "orders:0 [0, 100)", "code": "records", "source_records": 100, "target_records": 99},)
    return told(
        audits.result([wrong, audits.good_partition(1)], checks),
        {"topics.lost", "digests.records", "unverifiable.offsets"},
        numbers=numbers,
    )


class Balanced(HTMLParser):
    """Fails where an element is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        self.tags.add(tag)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element that is closed at once."""
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        if tag not in _VOID:
            assert self.open.pop() == tag


def test_document_is_json_and_counts_everything() -> None:
    """One document for machines; the HTML knows nothing else."""
    document = json.loads(json.dumps(failing()))

    assert document["verdict"] == Verdict.FAIL
    assert document["findings"]["total"] == len(FindingKind)
    assert document["findings"]["by_kind"] == dict.fromkeys(map(str, FindingKind), 1)
    assert document["unverifiable"]["by_reason"] == {"RETENTION": 50}
    assert document["records"] == {"source": 350, "target": 349}
    assert document["checks"]["by_area"]["groups"] == {"made": 1, "wrong": 1, "not_checked": 0}
    assert document["verified"]["offsets_after"] == 200 - 42
    assert len(document["expectations"]) == len(RULES)


def test_lists_are_cut_and_counts_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is wrong as a whole fills no disk."""
    monkeypatch.setattr(jsonreport, "MAX_LISTED", 3)
    document = failing()

    assert len(document["findings"]["listed"]) == 3
    assert document["findings"]["total"] == len(FindingKind)
    assert document["findings"]["more"] == len(FindingKind) - 3
    assert f"{len(FindingKind) - 3} more findings are counted" in report.page(document)


def test_findings_that_are_counted_only_are_in_every_number_and_said_to_be_more() -> None:
    """A list that was cut where records were read must not pass for all there is."""
    partition = audits.partition_result(
        0,
        audits.digests(0, 0, 200, target_records=99),
        findings=[audits.finding(FindingKind.LOST), audits.finding(FindingKind.PHANTOM)],
        unlisted=[audits.more(FindingKind.LOST, 12_000), audits.more(FindingKind.ALTERED, 5)],
    )
    document = told(audits.result([partition]), {"topics.lost"})

    found = document["findings"]
    assert (found["total"], len(found["listed"]), found["more"]) == (12_007, 2, 12_005)
    assert {kind: count for kind, count in found["by_kind"].items() if count} == {
        "LOST": 12_001,
        "ALTERED": 5,
        "PHANTOM": 1,
    }
    assert document["partitions"][0]["findings"] == 12_007
    assert document["partitions"][0]["by_kind"]["LOST"] == 12_001
    assert "12,007 records" in jsonreport.summary(document)
    assert "12,005 of them are counted only." in jsonreport.summary(document)
    page = report.page(document)
    assert "12,005 more findings are counted, and listed nowhere." in page
    assert "The first records by name." in page


def test_payload_is_left_out_unless_it_was_asked_for() -> None:
    """Not even an empty field hints at it."""
    shown = Finding(FindingKind.LOST, audits.at(0), 1, None, None, payload="k=v")
    partition = audits.partition_result(
        0, audits.digests(0, 0, 200), findings=[audits.finding(FindingKind.LOST), shown]
    )

    listed = told(audits.result([partition]))["findings"]["listed"]

    assert ["payload" in each for each in listed] == [False, True]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (told(), "400 records are the same on both sides, every one and in order."),
        (failing(), "7 records are not as they should be: 1 lost, 1 repeated"),
        (told(unmet={"map.map"}), "Not so: the offset map agrees with the records."),
        (told(unmet={"groups.not_checked"}), "but this could not be shown: all groups could be checked."),
    ],
)
def test_summary_says_it_in_one_sentence(document: dict[str, Any], text: str) -> None:
    """The first thing that anybody reads."""
    assert text in jsonreport.summary(document)


@pytest.mark.parametrize(
    ("proven", "text", "nothing"),
    [
        (False, "Nothing was compared, so nothing is proven: neither side holds a record in scope.", True),
        (True, "No record has come since the last audit; what was proven then still stands.", False),
    ],
)
def test_audit_of_no_record_says_so(proven: bool, text: str, nothing: bool) -> None:
    """Both pass: all there is was seen. Only one of them stands on proof."""
    empty = audits.partition_result(0, (), source_to=0, verified_to=0)
    at_ms = audits.STARTED_MS - 1000 if proven else -1
    document = told(audits.result([replace(empty, verified_timestamp_ms=at_ms)]))
    assert (jsonreport.summary(document), document["nothing_compared"]) == (text, nothing)


def test_audit_since_a_time_that_no_record_has_stands_on_nothing() -> None:
    """What was proven before was not what was asked for."""
    empty = audits.partition_result(0, (), source_to=0, verified_to=0)
    document = told(replace(audits.result([empty]), since="2026-01-31"))
    text = "Nothing was compared, so nothing is proven: no record is as young as 2026-01-31."
    assert jsonreport.summary(document) == text


def test_audit_behind_an_adoption_does_not_say_that_both_sides_are_empty() -> None:
    """They hold what somebody else has copied, which no audit compares: the copy begins behind that."""
    behind = replace(
        audits.partition_result(0, (), source_to=200, verified_to=200),
        source_from=200,
        target_from=200,
        begin=200,
        verified_timestamp_ms=-1,
    )
    document = told(audits.result([behind, behind]))
    assert (document["verdict"], document["nothing_compared"], document["begun_behind"]) == (
        "PASS",
        True,
        400,
    )
    assert jsonreport.summary(document) == (
        "Nothing was compared, so nothing is proven: no record has come since the copies began. The 400 "
        "source offsets before that were not copied by this flow, and are not looked at."
    )


def test_sample_is_called_one() -> None:
    """A PASS of a sample must not be taken for a PASS of everything."""
    part = audits.partition_result(0, audits.digests(0, 0, 100), complete=False)
    document = told(audits.result([part]))

    assert "100 records of the sample" in jsonreport.summary(document)
    assert "a sample" in report.page(document)


@pytest.mark.parametrize("document", [told(), failing()], ids=["pass", "fail"])
def test_page_stands_alone_and_is_whole(document: dict[str, Any]) -> None:
    """It loads nothing, runs nothing, and every element is closed."""
    page = report.page(document)
    parser = Balanced()
    parser.feed(page)

    assert parser.open == []
    assert not parser.tags & {"script", "iframe", "img", "object"}
    assert re.findall(r"""(?:src|href)=["'](?!#)([^"']*)""", page) == ["data:,"]
    assert "default-src 'none'" in page


def test_page_shows_findings_reasons_and_failed_numbers() -> None:
    """What a person has to know who was called at night."""
    page = report.page(failing())

    assert ">FAIL</h1>" in page
    for kind in FindingKind:
        assert f'<span class="pill">{kind}</span>' in page
    assert "orders:0 @ 42" in page
    assert "RETENTION" in page
    assert "source_records=100, target_records=99" in page
    assert page.count("<svg") == 3


def test_names_from_elsewhere_are_escaped() -> None:
    """Details, payload and numbers may hold anything."""
    nasty = Finding(
        FindingKind.ALTERED, audits.at(0), 1, audits.at(0), 2, field=_NASTY, detail=_NASTY, payload=_NASTY
    )
    part = audits.partition_result(0, audits.digests(0, 0, 200), findings=[nasty])
    document = told(audits.result([part]), {"topics.altered"}, numbers=({"what": _NASTY, "code": "x"},))

    page = report.page({**document, "source": {"alias": _NASTY}})

    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 5


def test_rule_that_was_not_evaluated_says_why() -> None:
    """It is no PASS, and the reason is on the page."""
    outcomes = [
        RuleOutcome(rule, None if i == 0 else True, problem="no such column") for i, rule in enumerate(RULES)
    ]
    document = jsonreport.document(audits.result(), conclude(outcomes))

    assert document["expectations"][0]["code"] == NOT_EVALUATED
    assert "not evaluated: no such column" in report.page(document)


def test_same_document_is_the_same_page() -> None:
    """No dates, no chance: a report can be compared with another."""
    assert report.page(failing()) == report.page(failing())


def test_old_record_times_are_not_shown_as_lag() -> None:
    """Records that tell of past years arrive when they arrive."""
    document = told()
    assert "<h2>Lag</h2>" in report.page(document)
    old = [[at_ms, 10**11] for at_ms, _ in document["age_at_commit"]]
    page = report.page({**document, "age_at_commit": old})
    assert "<h2>Lag</h2>" not in page
    assert "<h2>Copied over time</h2>" in page


def test_report_replaces_an_older_one_in_one_step(tmp_path: Path) -> None:
    """The folder is made; nothing else stays behind."""
    path = tmp_path / "deep" / "report.html"
    report.write(told(), path)
    report.write(failing(), path)

    assert ">FAIL</h1>" in path.read_text()
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The verdict stands, the file does not."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="report cannot be written") as caught:
        report.write(told(), tmp_path / "file" / "report.html")
    assert caught.value.code == "REPORT"


def test_full_disk_is_no_bad_usage_and_the_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was compared is kept by then: a person makes room, and corrects nothing."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    document = failing()
    for write in (
        lambda: report.write(document, tmp_path / "report.html"),
        lambda: keep_answer(tmp_path, document),
        lambda: datadocs.write(document, tmp_path),
    ):
        with pytest.raises(NeedsOperator, match="No space left on device") as caught:
            write()
        assert "make room" in str(caught.value.resolve)
        assert f"FAIL: {jsonreport.summary(document)}" in str(caught.value.seen)


def evidence(document: dict[str, Any]) -> dict[str, Any]:
    """Return it as the driver completes it."""
    sides = {side: {"alias": side[:4], "cluster_id": f"id-of-{side}"} for side in ("source", "target")}
    about = {
        "flow_file": "flows/f.yaml", "flow_sha256": "a" * 64, "running_sha256": "b" * 64, "generation": 7,
        "started_by": f"ann{_NASTY}", "host": "h", "versions": {"onceover": "9.8.7", "python": "3.99"},
    }  # fmt: skip
    answer = {"verdict": "PASS", "started_ms": 0, "since": "start", "topics": [], "complete": True}
    earlier = [{**answer, "run": "r1", "link": "../r1/report.html"}, {**answer, "run": "r0", "link": None}]
    return {**document, **sides, "about": about, "earlier": earlier}


def test_page_says_of_what_it_is_evidence() -> None:
    """Clusters, flow version, generation, who; earlier audits; where it goes wrong first, and what next."""
    document = evidence(failing())
    page = report.page(document)
    Balanced().feed(page)
    told = ("id-of-source", "id-of-target", "a" * 16, "(the flow runs bbbbbbbbbbbbbbbb)", ">7<", "ann", "9.8")
    assert [said for said in told if said not in page] == []
    assert _NASTY not in page and page.count("../r1/report.html") == 1
    first = first_wrong(document)
    assert first is not None and first in page
    assert "onceover partition reseed" in page
    assert "Of what this is evidence" not in report.page(failing()), "a document of an older release"


def test_next_step_is_about_what_was_seen() -> None:
    """Who writes beside the copy is another matter than a copy that is wrong; a PASS wants nothing."""
    document = failing()
    wrong = next_steps(document)
    assert "`onceover partition reseed" in wrong[0] and wrong[-1].endswith("--full`")
    beside = dict.fromkeys(document["findings"]["by_kind"], 0) | {str(FindingKind.PHANTOM): 1}
    steps = next_steps({**document, "findings": {**document["findings"], "by_kind": beside}})
    assert "take WRITE" in steps[0] and "reseed" not in steps[0]
    assert "`kafka-delete-records`" in steps[1] and "partition reseed flights-dr orders:0`" in steps[1]
    assert steps[-1] == wrong[-1]
    assert next_steps(told()) == []
    late = told(
        audits.result(
            [
                audits.partition_result(
                    0,
                    audits.digests(0, 0, 100),
                    unverifiable=[audits.stretch(Reason.NOT_COPIED_YET, 0, 100, 200)],
                )
            ]
        ),
        {"unverifiable.offsets"},
    )
    assert late["verdict"] == "UNVERIFIABLE" and "--until caught-up" in next_steps(late)[0]


def test_next_step_names_each_topic_that_could_not_be_read_and_why() -> None:
    """One line a topic, however many partitions it has: the next one would not be seen behind them."""
    why = "east refuses metadata (error 29, not authorized, it takes DESCRIBE on the topic); {}; grant it"
    shut = [
        replace(audits.partition_result(each.partition, ()), source=each, unverifiable=(gap,))
        for topic in "abcde"
        for each in (audits.at(0, topic), audits.at(1, topic))
        for gap in [Unverifiable(Reason.UNREADABLE, each, 0, 9, 9, why.format(topic))]
    ]
    *named, more = next_steps(told(audits.result(shut), {"unverifiable.offsets"}))
    assert [step.split(" ", 1)[0] for step in named] == ["a", "b", "c"] and "2 more topics" in more
    assert all("it takes DESCRIBE on the topic" in step and "`onceover audit" in step for step in named)


def test_first_record_is_named_by_its_place_alone() -> None:
    """Never by what is in it."""
    document = failing()
    document["findings"]["listed"][0]["payload"] = "secret"
    document["findings"]["listed"][0]["detail"] = "secret"
    assert "secret" not in str(first_wrong(document))
    assert first_wrong(told()) is None
