"""Names and reasons that want to be more than text on the page by which a person decides.

Whoever may create a group or a connector chooses what stands there. It is rendered with all that a renderer
can do: tables, HTML, links made of anything that looks like one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import onceover_airflow
from onceover.acls.kept import AclPlan
from onceover.connectors.model import ConnectorPlan, MigrationPlan, WorkerFacts
from onceover.errors import NeedsOperator
from onceover.operate.repair import Repair
from onceover.planning.plan import Change, Refusal
from onceover.seeding.plan import SeedPlan
from onceover.spark.launch.submit import SparkJob
from onceover.state.records.enrolment import Enrolment
from onceover.topics.plan import TopicPlan
from onceover.topics.sync import SyncPlan
from onceover_airflow.access.flowcontext import errors_of_ours, log_text
from onceover_airflow.approvals.markdown import code, plain
from onceover_airflow.errors import JobInterrupted, TaskFailed
from onceover_airflow.jobs.hooks import SparkJobHook
from onceover_airflow.jobs.tasklog import show_records
from onceover_airflow.tasks.connectors import MIGRATION
from onceover_airflow.tasks.groups import GROUPS
from onceover_airflow.tasks.repair import REPAIR
from onceover_airflow.tasks.seeding import PROGRESS
from onceover_airflow.tasks.topics import TOPICS
from tests.support.raw.hostilenames import HOSTILE

# What the pages themselves are made of.
OURS = {"table", "thead", "tbody", "tr", "th", "td", "p", "strong", "code", "ul", "li", "br", ""}


def change(name: str) -> Change:
    return Change("move", name, name, name, f"because of {name}, so", "skip", 3)


def refusal(name: str) -> Refusal:
    return Refusal(name, "CODE", f"it says {name}, and stops", "decide")


def of_topics(name: str) -> str:
    plan = TopicPlan(operation="topics", flow="f", changes=(change(name),))
    return TOPICS.question(SyncPlan.of(plan, AclPlan()))


def of_groups(name: str) -> str:
    row = type("Row", (), {"change": change(name)})
    return GROUPS.question(cast(Any, type("Planned", (), {"risky": [row]})))


def of_seeding(name: str) -> str:
    return PROGRESS.question(
        SeedPlan(operation="seed", flow="f", changes=(change(name),), refused=(refusal(name),))
    )


def of_repair(name: str) -> str:
    enrolment = Enrolment("orders", "orders", UUID(int=1), UUID(int=2), {3: 0}, 0)
    return REPAIR.question(
        Repair(operation="skip-to", flow="f", sources=(), changes=(change(name),), enrolment=enrolment)
    )


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
        warnings=(f"look at {name}, please",),
    )
    return MIGRATION.question(MigrationPlan.of("migrate", "flights", facts, (plan,)))


QUESTIONS = [of_topics, of_groups, of_seeding, of_repair, of_connectors]


def tokens(body: str) -> list[Token]:
    """Return everything on the page, blocks and what is in them."""
    # Whatever looks like a link is made one where it stands as text, as Airflow's pages do.
    blocks = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(body)
    return [token for block in blocks for token in (block, *(block.children or ()))]


def shape(body: str) -> list[str]:
    """Return what the page is made of, without what stands in it."""
    return [token.type for token in tokens(body) if token.type not in ("text", "code_inline")]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_name_is_shown_and_does_nothing(question: Callable[[str], str], name: str) -> None:
    """The page has the blocks, rows and cells of a harmless name, and every text on it is inert."""
    body = question(name)
    found = tokens(body)
    assert {token.tag for token in found} <= OURS
    assert not [token for token in found if token.type.startswith(("html", "image", "link"))]
    assert shape(body) == shape(question("orders"))
    for token in found:
        if token.type == "text":
            assert "://" not in token.content
            assert "www." not in token.content
            assert "@" not in token.content
    assert all(char.isprintable() or char == "\n" for char in body)


def test_what_cannot_be_seen_is_written_out() -> None:
    """Two names that differ look different, and none can pretend to be another one."""
    assert code("a\nb") == r"`a\nb`"
    assert code(r"a\nb") == r"`a\\nb`"
    assert len({code(name) for name in HOSTILE}) == len(HOSTILE)
    assert plain("moved\nto \u202eb") == r"moved&#92;nto &#92;u202eb"


def test_a_harmless_name_stays_as_it_is() -> None:
    """Also one of another language, and a sentence of ours."""
    assert code("orders.v1_a-b 0 -> ü") == "`orders.v1_a-b 0 -> ü`"
    assert plain("its cleanup.policy is delete (was: compact); 5/9") == (
        "its cleanup.policy is delete (was: compact); 5/9"
    )
    assert plain("the worker at http://w:1 answers") == "the worker at `http://w:1` answers"
    assert (plain(None), plain(0), code(None)) == ("-", "0", "-")


def page_of_log(lines: list[str]) -> list[str]:
    """Return what Airflow's page shows of a log before anybody opens what is folded, as it does (3.3.2)."""
    shown, folds = list[str](), list[str]()
    for line in (part for each in lines for part in each.split("\n")):
        if "::group::" in line:
            folds.append(line)
        elif "::endgroup::" in line:
            folds = folds[:-1]
        elif not folds:
            shown.append(line)
    return shown


PLAIN = "orders"


def logged_text(name: str, log: logging.Logger) -> None:
    log_text(log, f"plan\n  move {name} to 5\nend")


def logged_record(name: str, log: logging.Logger) -> None:
    log.warning("left alone: %s: %s", name, {"name": 1})
    log.info(f"a group: {name}")  # noqa: G004 - whatever a module of ours does
    log.warning("%(object)s: why", {"object": name})


def logged_reason(name: str, log: logging.Logger) -> None:
    for error in (JobInterrupted(f"it is {name}"), TaskFailed(f"it is {name}")):
        log.error("%s", error)


def logged_cause(name: str, log: logging.Logger) -> None:
    """As Airflow logs an error: it and its causes."""
    with pytest.raises(TaskFailed) as caught, errors_of_ours():
        raise NeedsOperator(f"it is {name}", where=name, seen=name, expected=name, resolve=name)
    for error in (caught.value, caught.value.__cause__):
        # Not through a record of ours.
        logging.getLogger("task").error("%s", error)


def logged_by_job(name: str, log: logging.Logger) -> None:
    """What the driver says, and Java, which asks nobody how."""
    hook = SparkJobHook(SparkJob(Path(), "local", {}, [], {}, Path()), name="x", environment={})
    lines = [f"2026-11-22 05:15:46,299 WARNING onceover.x: group {name}", f"java: {name}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hook, "_log", logging.getLogger("task"))
        hook._process_spark_submit_log(iter(lines))


@pytest.mark.parametrize(
    "log_it",
    [logged_text, logged_record, logged_reason, logged_cause, logged_by_job],
    ids=lambda log_it: log_it.__name__,
)
@pytest.mark.parametrize("logger", ["onceover.topics.plan", "onceover_airflow.tasks.groups"])
def test_every_line_of_a_log_is_seen(
    log_it: Callable[[str, logging.Logger], None], logger: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever names a group hides no row of a plan that somebody approves, and begins none."""

    def shown(name: str) -> list[str]:
        caplog.clear()
        log_it(name, logging.getLogger(logger))
        return page_of_log(caplog.messages)

    with caplog.at_level(logging.INFO):
        expected = len(shown(PLAIN))
        for name in HOSTILE:
            # Lines that a job writes are lines, and a name in our plans is escaped where they are made.
            harmless = name if log_it is logged_record else name.split("\n")[0].split("\r")[0]
            lines = shown(harmless)
            assert len(lines) == expected, ascii(name)
            assert all(line.isprintable() for line in lines), ascii(name)


def test_errors_of_tasks_are_made_in_one_place() -> None:
    """Airflow's own would show a name as it comes."""
    folder = Path(onceover_airflow.__file__).parent
    raw = [path.name for path in folder.glob("*.py") if "AirflowFailException(" in path.read_text()]
    assert raw == []


def test_a_record_can_be_made_of_another_one() -> None:
    """As Airflow's own logging does with each: without a name at first."""
    show_records()
    original = logging.getLogger("onceover.x").makeRecord("onceover.x", 30, "f", 1, "a\nb", (), None)
    assert logging.makeLogRecord(original.__dict__).getMessage() == "a\\nb"
