"""A filter that reaches nothing is told, and which pattern of it."""

from __future__ import annotations

import pytest

from onceover.planning.plan import Refusal
from onceover.topics.codes import TopicCode
from onceover.topics.namingpolicy import IDENTITY, NamingPolicy
from onceover.topics.scope import Rules, explain
from onceover.topics.scopecheck import nothing_in_scope, scope_remarks
from tests.unit.topics.topicworld import World


def remarks(topics: list[str], include: list[str], exclude: tuple[str, ...] = ()) -> list[Refusal]:
    """Return what is said of a filter over these topics."""
    rules = Rules(tuple(include), exclude, NamingPolicy(IDENTITY, "east", "west"))
    return scope_remarks("f", rules, [explain(topic, rules) for topic in topics])


def test_patterns_that_all_match_are_no_news() -> None:
    """Also one whose topics an earlier pattern has brought in already."""
    assert remarks(["a.b", "c"], ["a[.].*", "a[.]b", "c"]) == []


@pytest.mark.parametrize(
    ("topics", "exclude"),
    [([], ()), (["other"], ()), (["a.b"], ("a.*",)), (["__consumer_offsets"], ())],
    ids=["empty cluster", "misspelt", "excluded", "internal"],
)
def test_flow_that_matches_no_topic_is_told_once(topics: list[str], exclude: tuple[str, ...]) -> None:
    """One sentence with the patterns, not one for each of them."""
    (remark,) = remarks(topics, ["a[.].*", "x" if "other" in topics else "__c.*"], exclude)
    assert (remark.code, remark.blocks) == (TopicCode.NOTHING_IN_SCOPE, False)
    assert "a[.].*" in remark.message
    assert "onceover flow check f --explain" in remark.resolve
    # Brokers leave out what a login may not describe, as if it were not there.
    assert "grant DESCRIBE" in remark.resolve


def test_pattern_that_matches_nothing_is_named() -> None:
    """Beside one that does match."""
    (remark,) = remarks(["orders"], ["orders", "flihgts[.].*"])
    assert (remark.code, remark.blocks) == (TopicCode.PATTERN_WITHOUT_TOPIC, False)
    assert "flihgts[.].* matches no topic" in remark.message
    assert "grant DESCRIBE" in remark.resolve


def test_pattern_whose_topics_are_all_left_out_says_why() -> None:
    """The filter's own exclusions may take away what a pattern brings."""
    (remark,) = remarks(["orders", "test.a"], ["orders", "test[.].*"], ("test.*",))
    assert "only topics that are left out, such as test.a (exclude: test.*)" in remark.message


def test_sentence_is_found_among_documents() -> None:
    """The JSON of a run carries remarks of several kinds."""
    idle = [each.document() for each in remarks(["orders"], ["orders", "x"])]
    nothing = [each.document() for each in remarks([], ["orders"])]
    assert nothing_in_scope(idle) is None
    assert "no topic of the source is in scope of flow f" in str(nothing_in_scope(idle + nothing))


def test_plan_of_topics_carries_the_remark() -> None:
    """So a run logs it, ``status`` notes it, and ``topics plan`` prints it; nothing is blocked by it."""
    plan = World({"t": 1}, include=("nothing.*",)).plan()
    assert [(r.code, r.blocks) for r in plan.refused] == [(TopicCode.NOTHING_IN_SCOPE, False)]
    assert World({"t": 1}, include=("t",)).plan().refused == ()
