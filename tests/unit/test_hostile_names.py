"""Names of others in every text and page of ours: they are shown, and do nothing.

What Airflow's pages render is tried in ``airflow/test_hostile_names.py``, with the same names.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any, cast

import pytest

from onceover.acls.kept import AclPlan, AclView, plan_acls
from onceover.audit.checks.suites import RULES, SUITES
from onceover.audit.checks.verdict import RuleOutcome, conclude
from onceover.audit.model import Finding, FindingKind
from onceover.audit.report import datadocs, jsonreport
from onceover.audit.report import pages as report
from onceover.cli import main as command_line
from onceover.cli.commands import replicate
from onceover.cli.terminal import output, statustext
from onceover.config.faults import BadConfig, Fault
from onceover.connectors.acltable import Grant, Role, table
from onceover.connectors.model import ConnectorPlan, MigrationPlan, WorkerFacts
from onceover.drills.looks.clients import ClientsSeen, Producer
from onceover.drills.looks.clients import Consumer as DrillConsumer
from onceover.drills.looks.dryrun import DryRun
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.groups.apply import AppliedGroups as GroupsApplied
from onceover.groups.decide import Allowed
from onceover.groups.plan import plan_groups
from onceover.handling import sampled
from onceover.handling.sample import SampleOutcome as Sampled
from onceover.kafka.admin.acls import Acl
from onceover.logs import Formatter
from onceover.model import TopicPartition
from onceover.operate.statusfacts import StatusFacts, StatusSide
from onceover.operate.statusread import FlowFacts
from onceover.operate.statusshape import broken_entry, shape
from onceover.planning.plan import Change, Plan, Refusal
from onceover.seeding.plan import SeedPlan
from onceover.shown import lined, screen, visible
from onceover.topics.plan import TopicPlan
from onceover.topics.sync import AppliedSync, SyncPlan
from onceover.wire.batches.records import DecodedRecord
from tests.support.raw.hostilenames import HOSTILE
from tests.support.worlds import audits
from tests.unit.groups.groupworld import World as GroupWorld

HARMLESS = "orders"
# What hides lines on Airflow's page of a log, wherever it stands in one.
LOG_COMMAND = re.compile(r"::(end)?group::")


def change(name: str) -> Change:
    return Change("move", name, name, name, f"because of {name}", "skip", 3)


def refusal(name: str) -> Refusal:
    return Refusal(name, "CODE", f"it says {name}", f"ask {name}")


# ---- texts


def of_plan(name: str) -> str:
    return Plan(operation="any", flow="f", changes=(change(name),), refused=(refusal(name),)).describe()


def of_topics(name: str) -> str:
    topics = TopicPlan(operation="topics", flow="f", changes=(change(name),), refused=(refusal(name),))
    planned = SyncPlan.of(topics, AclPlan(refused=(refusal(name),)))
    return planned.describe() + AppliedSync(planned, planned, [refusal(name)], changes=1).describe()


def of_groups(name: str) -> str:
    return GroupsApplied(cast(Any, None), refused=[refusal(name)]).describe()


def of_group_tables(name: str) -> str:
    """One that moves, one that is left alone in its partition, and one as a whole."""
    world = GroupWorld(here={name: 7, f"{name}2": 4}, there={f"{name}2": 120}, members={f"{name}2"})
    world.broken[f"{name}3"] = Retriable(f"{name} is away", resolve=f"ask {name}")
    world.here[f"{name}3"] = 7
    return plan_groups(world.read(), Allowed()).describe()


def of_acls(name: str) -> str:
    """What is not copied is told, whatever it is called."""
    acls = frozenset(
        Acl("LITERAL", "t", f"User:{name}{end}", host, operation, "DENY")
        for end, operation in (("\0x", "READ"), ("", "UNKNOWN_15"))
        for host in ("*", name)
    )
    plan = plan_acls(AclView({"t": "t"}, acls, frozenset(), frozenset(), None))
    planned = SyncPlan.of(TopicPlan(operation="topics", flow="f"), plan)
    return planned.describe() + AppliedSync(planned, planned).describe()


def of_drill(name: str) -> str:
    """Whoever may connect names a client; whoever may write names a transactional.id."""
    tp = TopicPartition(name, 0)
    problem = Retriable(f"{name} is away")
    seen = ClientsSeen(
        name, (DrillConsumer(name, name, name, (name,)),), (Producer(7, name, (name,), 1, (tp,)),), (problem,)
    )
    need = {"code": "X", "message": f"{name} waits", "resolve": f"ask {name}", "exit": 3}
    partition = {"topic": name, "lag_offsets": 3, "oldest_missing_s": 1.0, "open_offsets": 2}
    partition["oldest_open_s"] = 2.0
    status: dict[str, Any] = {
        "state": "copying",
        "needs": [need],
        "partitions": [partition],
        "verified": None,
    }
    status |= {"verified": None, "error": None, "source": {"error": None}}
    status["target"] = {"error": None}
    found = DryRun(flow="f", checked_at_ms=0, status=status, clients=seen, problems={"topics": problem})
    return found.describe()


def of_sample(name: str) -> str:
    content = name.encode(errors="replace")
    record = DecodedRecord(0, 0, content, None, ((content, content),))
    return lined(sampled.lines([Sampled(TopicPartition("t", 0), record, failure=name)], payload=True))


def of_seeding(name: str) -> str:
    return SeedPlan(operation="seed", flow="f", changes=(change(name),), untouched=(name,)).describe()


def of_connectors(name: str) -> str:
    facts = WorkerFacts(
        "4.3.0", "k", "g", "connect-offsets", "connect-configs", True, ("http://w:1",), connect="c"
    )
    plan = ConnectorPlan(
        name=name,
        from_topic="t",
        topic="u",
        changes=(change(name),),
        refusals=(refusal(name),),
        warnings=(name,),
    )
    return MigrationPlan.of("migrate", "flights", facts, (plan,)).describe()


def of_rights(name: str) -> str:
    return lined(table([Grant(Role.WORKER, name, name, "Topic", name, ("Read",), name)]))


def of_status(name: str) -> str:
    error = NeedsOperator(f"it is {name}", where=name, resolve=f"ask {name}")
    silent = (
        StatusSide(alias="east", error=Retriable(f"{name} is away")),
        StatusSide(alias="west", cluster_id="w"),
    )
    entry = shape(StatusFacts(flow="f", now_ms=0.0, source=silent[0], target=silent[1], state=FlowFacts()))
    entry["notes"] = [refusal(name).document()]
    return statustext.describe(broken_entry("f", "/f.yaml", error)) + statustext.describe(entry)


def of_copy(name: str) -> str:
    end = {"flow": "f", "records": 1, "transactions": 1, "seconds": 1.0, "generation": 1, "restarts": 1}
    stop = {"topic": "t", "partition": 0, "message": name, "resolve": name}
    return replicate.describe({**end, "stopped": [stop], "warnings": [refusal(name).document()]})


def of_error(name: str) -> str:
    return command_line._explained(UsageError(f"it is {name}", where=name, expected=name, resolve=name))


def of_log(name: str) -> str:
    record = logging.LogRecord("onceover", logging.INFO, __file__, 1, "group %s", (name,), None)
    return Formatter("%(levelname)-7s %(name)s: %(message)s").format(record)


TEXTS = [
    of_plan,
    of_topics,
    of_groups,
    of_group_tables,
    of_acls,
    of_drill,
    of_sample,
    of_seeding,
    of_connectors,
    of_rights,
    of_status,
    of_copy,
    of_error,
    of_log,
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.__name__)
def test_a_name_is_one_part_of_one_line(text: Callable[[str], str]) -> None:
    """As many lines as with a harmless name, each of what can be seen: no command, no turned direction."""
    lines = text(HARMLESS).count("\n")
    for name in filter(None, HOSTILE):
        shown = text(name)
        assert shown.count("\n") == lines, ascii(name)
        assert all(line.isprintable() for line in shown.split("\n")), ascii(name)
        assert visible(name) in shown
        assert not LOG_COMMAND.search(shown), ascii(name)
        assert screen(shown) == shown
        # A lone half of a pair could not even be written.
        shown.encode()


@pytest.mark.parametrize("name", [name for name in HOSTILE if name], ids=ascii)
def test_what_is_said_meanwhile_and_written_over_commands_nothing(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one door of every command's text, and the line of a display."""
    output.say(f"group {name}", aside=True)
    said = capsys.readouterr().err.removesuffix("\n")
    assert all(line.isprintable() for line in said.split("\n"))
    line = output.overwritten(name, "before")
    assert line[0] == "\r"
    assert line[1:].isprintable()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_command_shows_results_and_errors_and_nothing_else(
    as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a text that nobody made line by line, and what is written for programs."""
    name = " ".join(HOSTILE)

    def command(_: Any) -> output.CommandResult:
        return output.CommandResult({"name": name}, f"a group: {name}", 0)

    def failing(_: Any) -> output.CommandResult:
        raise OnceoverError(name, seen=name)

    arguments = ["status", *(["--json"] if as_json else [])]
    for function in (command, failing):
        monkeypatch.setattr(command_line, "_function", lambda _, function=function: function)
        command_line.main(arguments)
    captured = capsys.readouterr()
    for stream in (captured.out, captured.err):
        assert all(line.isprintable() for line in stream.split("\n"))
    if as_json:
        assert json.loads(captured.out.split("\n")[0])["name"] == name


def test_faults_of_a_file_and_a_logs_end_keep_their_lines() -> None:
    """The near-miss: several lines that are ours."""
    faults = [Fault("f.yaml", key, "is wrong", "correct it") for key in ("a", "b")]
    assert command_line._explained(BadConfig(faults)).split("\n")[:2] == [
        "error: f.yaml: a: is wrong; correct it",
        "f.yaml: b: is wrong; correct it",
    ]
    tail = command_line._explained(OnceoverError("it ended", seen="one\n\tat two\n  do       rm"))
    assert tail.split("\n")[1:] == ["  seen     one", "               at two", "             do       rm"]


def test_a_traceback_keeps_its_lines_and_loses_its_commands() -> None:
    """The text of an exception may be anybody's."""
    error = ValueError("\x1b[2Jbad\rname")
    record = logging.LogRecord("o", logging.ERROR, __file__, 1, "failed", (), (ValueError, error, None))
    lines = Formatter("%(message)s").format(record).split("\n")
    assert lines == ["failed", r"ValueError: \x1b[2Jbad\rname"]


# ---- pages


def audit(name: str) -> dict[str, Any]:
    """Return the document of an audit that met a name everywhere."""
    found = Finding(
        FindingKind.ALTERED,
        audits.at(0, name),
        1,
        audits.at(0, name),
        2,
        field=name,
        detail=name,
        payload=name,
    )
    part = audits.partition_result(0, audits.digests(0, 0, 200), findings=[found])
    numbers = ({"what": name, "code": "x", name: name},)
    outcomes = [
        RuleOutcome(rule, False, checked=2, unexpected=1, expectation=name, numbers=numbers) for rule in RULES
    ]
    document = jsonreport.document(audits.result([part]), conclude(outcomes))
    return {**document, "flow": name, "since": name, "source": {"alias": name}, "target": {"alias": name}}


def pages(name: str) -> list[str]:
    """Return every page of an audit."""
    document = audit(name)
    made = [report.page(document), datadocs.index_page(document, has_report=True)]
    return made + [datadocs.suite_page(document, suite) for suite in SUITES]


class Shape(HTMLParser):
    """The elements of a page with the names of their attributes, and the text that is shown."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[Any] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it; addresses with their value."""
        self.elements.append((tag, [(n, v if n in ("href", "src") else "") for n, v in attrs]))
        self.texts += [value or "" for _, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        """Keep it."""
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        """Keep what a reader sees."""
        self.texts.append(data)


@pytest.mark.parametrize("first", range(0, len(HOSTILE), 15))
def test_a_page_is_made_of_what_it_is_made_of_with_a_harmless_name(first: int) -> None:
    """The same elements, attributes and addresses; nothing that turns the text around it."""
    # Drawing a page takes a while: many names at once, and each may be cut off.
    name = " ".join(sorted(HOSTILE[first : first + 15], key=len))
    for page, harmless in zip(pages(name), pages(HARMLESS), strict=True):
        shape, expected = Shape(page), Shape(harmless)
        assert shape.elements == expected.elements
        assert all(line.isprintable() for text in shape.texts for line in text.split("\n"))
        page.encode()


def test_every_page_forbids_itself_everything_from_elsewhere() -> None:
    """Also where it is opened from a disk, without the server's headers."""
    for page in pages(HARMLESS):
        policy = page.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
        assert {part.strip() for part in policy.split(";")} == {
            "default-src 'none'",
            "style-src 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        }


# ---- the functions themselves


def test_no_two_names_look_alike_where_one_has_what_cannot_be_seen() -> None:
    """An escape stands where there was something; what can be seen stays."""
    assert visible("a\nb\u202ec\u3164") == r"a\nb\u202ec\u3164"
    assert visible("a\U00016fe4b\U0001d159\U00013441") == r"a\U00016fe4b\U0001d159\U00013441"
    assert visible("orders.v1 ü группа") == "orders.v1 ü группа"
    assert screen("a\tb\r\n\x1b[1m") == "a   b\\r\n\\x1b[1m"
    assert lined(["a\nb", "c"]) == "a\\nb\nc"
