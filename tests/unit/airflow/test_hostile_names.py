"""Names and reasons that want to be more than text on the page by which a person decides.

Whoever may create a group or a connector chooses what stands there. It is rendered with all that a renderer
can do: tables, HTML, links made of anything that looks like one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from onceover.connectors.model import ConnectorPlan, MigrationPlan, WorkerFacts
from onceover.engine.enrolment import Enrolment
from onceover.engine.plan import Change, Refusal
from onceover.engine.repair import Repair
from onceover.engine.seed import SeedPlan
from onceover_airflow import connectors, groups, repair, seeding, topics
from onceover_airflow.markdown import code, plain
from tests.support.hostilenames import HOSTILE

# What the pages themselves are made of.
OURS = {"table", "thead", "tbody", "tr", "th", "td", "p", "strong", "code", "ul", "li", "br", ""}


def change(name: str) -> Change:
    return Change("move", name, name, name, f"because of {name}, so", "skip", 3)


def refusal(name: str) -> Refusal:
    return Refusal(name, "CODE", f"it says {name}, and stops", "decide")


def of_topics(name: str) -> str:
    plan = SeedPlan(operation="topics", flow="f", changes=(change(name),))
    return topics.question(cast(Any, type("Planned", (), {"plan": plan, "risky": plan})))


def of_groups(name: str) -> str:
    return groups.question([cast(Any, type("Row", (), {"change": change(name)}))])


def of_seeding(name: str) -> str:
    return seeding.question(
        SeedPlan(operation="seed", flow="f", changes=(change(name),), refused=(refusal(name),))
    )


def of_repair(name: str) -> str:
    enrolment = Enrolment("orders", "orders", UUID(int=1), UUID(int=2), {3: 0}, 0)
    return repair.question(
        Repair(operation="skip-to", flow="f", sources=(), changes=(change(name),), enrolment=enrolment)
    )


def of_connectors(name: str) -> str:
    facts = WorkerFacts("4.3.0", "k", "g", "connect-offsets", "connect-configs", True, ("http://w:1",))
    plan = ConnectorPlan(
        name=name,
        from_topic="t",
        topic="u",
        changes=(change(name),),
        refusals=(refusal(name),),
        warnings=(f"look at {name}, please",),
    )
    return connectors.question(MigrationPlan.of("migrate", "flights", facts, (plan,)))


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
