"""The Data Docs: every suite and every expectation on pages that need nothing but themselves."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from onceover.audit.checks import suites
from onceover.audit.checks.suites import RULES, SUITES, RuleKind
from onceover.audit.checks.verdict import RuleOutcome, conclude
from onceover.audit.report import datadocs, jsonreport
from onceover.errors import UsageError
from onceover.state.records.verdicts import Verdict
from tests.support.worlds import audits

_NASTY = "\"><script>alert('&')</script><a href='http://evil'>"
_ROW = {"what": "orders:0 [0, 100)", "code": "records", "source_records": 100, "target_records": 99}


def told(unmet: set[str] | None = None, **numbers: Any) -> dict[str, Any]:
    """Return the document of an audit in which some rules were not met."""
    wrong = unmet or set()
    outcomes = [
        RuleOutcome(
            rule,
            rule.name not in wrong,
            checked=4,
            unexpected=3 if rule.name in wrong else 0,
            expectation=f"expect_something(column={rule.columns})",
            **(numbers if rule.name in wrong else {}),
        )
        for rule in RULES
    ]
    return jsonreport.document(audits.result(), conclude(outcomes))


class Links(HTMLParser):
    """Every address that a page names, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what matters."""
        self.tags.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.found += [value or "" for name, value in attrs if name in ("href", "src")]


def written(tmp_path: Path, document: dict[str, Any]) -> Path:
    """Write the pages beside a report and the results, as an audit does; return their folder."""
    folder = tmp_path / "data_docs"
    folder.mkdir(exist_ok=True)
    for suite in SUITES:
        (folder / f"{suite}.json").write_text("{}")
    (tmp_path / "report.html").write_text("")
    assert datadocs.write(document, tmp_path) == folder / "index.html"
    return folder


@pytest.mark.parametrize("unmet", [set(), {"digests.records", "groups.not_checked"}], ids=["pass", "fail"])
def test_every_link_of_every_page_leads_to_a_file_beside_it(tmp_path: Path, unmet: set[str]) -> None:
    """No script, no other host, no broken link, from a disk as well as from a server."""
    folder = written(tmp_path, told(unmet, numbers=(_ROW,)))

    pages = sorted(folder.glob("*.html"))
    assert [page.stem for page in pages] == sorted(["index", *SUITES])
    for page in pages:
        links = Links(page.read_text())
        assert not links.tags & {"script", "iframe", "img", "object", "base", "form"}
        assert links.handlers == []
        for link in links.found:
            assert link == "data:," or (page.parent / link).is_file(), link
        assert "default-src 'none'" in page.read_text()
    assert {f"{suite}.html" for suite in SUITES} <= set(Links((folder / "index.html").read_text()).found)


def test_index_lists_suites_with_their_verdict_and_counts(tmp_path: Path) -> None:
    """A person sees where to look."""
    index = (written(tmp_path, told({"digests.records", "groups.not_checked"})) / "index.html").read_text()

    rows = dict(re.findall(r'<tr id="(\w+)">(.*?)</tr>', index))
    assert list(rows) == list(SUITES)
    of = {suite: len(suites.rules_of(suite)) for suite in SUITES}
    assert "FAIL" in rows["digests"] and f">{of['digests'] - 1} of {of['digests']}<" in rows["digests"]
    assert "UNVERIFIABLE" in rows["groups"] and f">{of['groups'] - 1} of {of['groups']}<" in rows["groups"]
    assert "PASS" in rows["topics"] and f">{of['topics']} of {of['topics']}<" in rows["topics"]
    assert ">FAIL</h1>" in index


def test_page_of_a_suite_has_each_expectation_with_what_was_seen(tmp_path: Path) -> None:
    """In words, as Great Expectations evaluated it, and the rows in which it was not so."""
    folder = written(tmp_path, told({"digests.records"}, numbers=(_ROW,)))

    page = (folder / "digests.html").read_text()
    for rule in suites.rules_of("digests"):
        assert rule.says in page
        assert f"expect_something(column={rule.columns})" in unescape(page)
    assert "not so in 3 of 4 rows" in page
    assert "so in all 4 rows" in page
    for cell in ("orders:0 [0, 100)", "source_records", ">100<", ">99<"):
        assert cell in page
    assert "2 more rows are in" in page


@pytest.mark.parametrize(
    ("kind", "met", "checked", "seen"),
    [
        (RuleKind.ROWS, True, 1, "1 row"),
        (RuleKind.ROWS, False, 0, "no rows"),
        (RuleKind.ZERO, True, 0, "no rows to look at"),
        (RuleKind.ZERO, True, 1, "so in the only row"),
        (RuleKind.ZERO, False, 1, "not so in 1 of 1 rows"),
        (RuleKind.ZERO, None, 0, "not evaluated: no such column"),
    ],
)
def test_observed_value_is_said_in_words(kind: RuleKind, met: bool | None, checked: int, seen: str) -> None:
    """An empty table meets every expectation about its rows: it has to be seen that it is empty."""
    rule = next(each for each in RULES if each.kind is kind)
    problem = "no such column" if met is None else None
    outcome = RuleOutcome(rule, met, checked=checked, unexpected=0 if met else 1, problem=problem)
    assert outcome.observed == seen


def test_names_from_kafka_are_text_and_nothing_else(tmp_path: Path) -> None:
    """Topics, keys and groups may be called anything."""
    row = {"what": _NASTY, "code": _NASTY, _NASTY: _NASTY}
    document: dict[str, Any] = {**told({"digests.records"}, numbers=(row,)), "source": {"alias": _NASTY}}
    document["expectations"][0]["problem"] = document["expectations"][0]["observed"] = _NASTY

    for page in written(tmp_path, document).glob("*.html"):
        links = Links(page.read_text())
        assert "script" not in links.tags
        assert not any("evil" in link for link in links.found)


def test_report_elsewhere_is_not_linked(tmp_path: Path) -> None:
    """With ``--report`` it is where its author put it, and nowhere else."""
    datadocs.write(told(), tmp_path)
    assert "../report.html" not in (tmp_path / "data_docs" / "index.html").read_text()


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The verdict stands, the pages do not."""
    (tmp_path / "data_docs").write_text("")
    with pytest.raises(UsageError, match="Data Docs cannot be written"):
        datadocs.write(told(), tmp_path)


def test_verdict_of_a_suite_is_its_worst_answer() -> None:
    """FAIL outweighs UNVERIFIABLE outweighs PASS, as for the audit."""
    expectations = told({"groups.skipped", "groups.not_checked"})["expectations"]
    of = {suite: datadocs.verdict_of([e for e in expectations if e["suite"] == suite]) for suite in SUITES}
    assert (of["groups"], of["map"]) == (Verdict.FAIL, Verdict.PASS)
