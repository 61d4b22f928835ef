"""Why a topic is copied, or is not: one answer to every name, and none where nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from onceover.errors import Retriable, UsageError
from onceover.operate.why import explain_name, with_plan
from onceover.planning.plan import Refusal
from onceover.topics.namingpolicy import PREFIX, NamingPolicy
from onceover.topics.scope import Rules, ScopeDecision, explain

RULES = Rules(("shop.*",), (r"shop\.tmp",), NamingPolicy(PREFIX, "east", "west"))
_STOP = {"code": "SOURCE_DAMAGED", "message": "a batch fails its CRC", "resolve": "repair it"}
_AWAY = {"code": "SOURCE_UNREACHABLE", "message": "away", "resolve": "bring it back", "exit": 5}


def decide(name: str) -> ScopeDecision:
    return explain(name, RULES)


def row(partition: int | None = 0, topic: str = "shop.orders", **changes: Any) -> dict[str, Any]:
    """Return a partition of which everything is copied."""
    return {
        "topic": topic,
        "partition": partition,
        "partitions": 4,
        "target_topic": f"east.{topic}",
        "lane": 1,
        "state": "caught_up",
        "lso": 10,
        "open_offsets": 0,
        "open_transaction": None,
        "begun": True,
        "stuck_s": None,
        "position": 10,
        "lag_offsets": 0,
        "oldest_missing_s": None,
        "verified": None,
        "stop": None,
        **changes,
    }


def behind(partition: int = 0, **changes: Any) -> dict[str, Any]:
    """Return one that lacks three offsets."""
    lacks = {"state": "copying", "position": 7, "lag_offsets": 3, "oldest_missing_s": 4.0}
    fields: dict[str, Any] = {**lacks, **changes}
    return row(partition, **fields)


def missing(**changes: Any) -> dict[str, Any]:
    """Return a topic that is not taken in."""
    lacks = {"state": "not_enrolled", "position": None, "lag_offsets": 3, "lane": None}
    fields: dict[str, Any] = {**lacks, **changes}
    return row(None, **fields)


def listed(name: str, **changes: Any) -> dict[str, Any]:
    """Return a topic's entry, as the flow file decides about it."""
    decision = decide(name)
    return {
        "topic": name,
        "target_topic": decision.target_topic,
        "in": decision.inside,
        "reason": decision.reason,
        "rule": str(decision.ruling.rule),
        "pattern": decision.ruling.pattern,
        "on_source": True,
        "enrolled": False,
        "promoted": None,
        "partitions": 4,
        **changes,
    }


def status(*partitions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a flow's status, with these partitions."""
    topics = [listed(name) for name in ("other", "shop.orders", "shop.tmp")]
    return {
        "flow": "f",
        "path": "flows/f.yaml",
        "state": "copying",
        "error": None,
        "run": {"state": "running", "since_s": 1.0, "host": "h"},
        "source": {"alias": "east", "error": None},
        "target": {"alias": "west", "error": None},
        "last_commit_s": 1.0,
        "partitions": list(partitions),
        "topics": topics,
        "notes": [],
        "needs": [],
        **changes,
    }


@pytest.mark.parametrize(
    ("partition", "answer", "exit_code", "words"),
    [
        (row(), "copied", 0, "copied to east.shop.orders:0, all up to source offset 10"),
        (behind(), "behind", 0, "up to source offset 7, 3 offsets behind, the oldest 4.0 s old"),
        (behind(begun=False), "waiting", 0, "lane 1 has not come to it since the start"),
        (row(open_offsets=5), "held", 0, "5 offsets wait for a transaction of the source"),
        (behind(state="stuck", stuck_s=300.0), "stuck", 3, "NOT_MOVING"),
        (row(state="stopped", stop=_STOP), "stopped", 3, "SOURCE_DAMAGED: a batch fails its CRC"),
        (missing(stop={**_STOP, "code": "NAME_TAKEN"}), "refused", 3, "not copied: NAME_TAKEN"),
        (missing(), "not_taken_in", 0, "the flow does so at its next look for topics"),
        (behind(state="idle"), "idle", 0, "nobody copies"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_partition_has_one_answer(partition: dict[str, Any], answer: str, exit_code: int, words: str) -> None:
    """In one line, with what to do where somebody has to do something."""
    found = explain_name(status(partition), "shop.orders", partition["partition"])
    assert (str(found.answer), found.exit_code) == (answer, exit_code)
    assert words in found.line and "\n" not in found.line
    assert found.resolve or exit_code == 0
    assert found.document()["line"] == found.line == found.describe().splitlines()[0]


def test_of_a_state_that_has_lost_its_end_nobody_knows_who_copies_and_no_broker_is_blamed() -> None:
    """Both clusters have answered; the way out is that of the status."""
    need = {"code": "STATE_SHORTENED", "message": "it is of before", "resolve": "`onceover replicate f`"}
    run = {"state": "unknown", "since_s": None, "host": None}
    lost = status(behind(state="unknown"), needs=[{**need, "exit": 3}], run=run, state="unknown")
    found = explain_name(lost, "shop.orders", 0)
    assert (str(found.answer), found.code, found.resolve) == ("unknown", need["code"], need["resolve"])
    assert "3 offsets behind" in found.line and "it is of before" in found.line
    assert "does not answer" not in found.line


def test_a_cluster_that_does_not_answer_has_the_code_of_status() -> None:
    """The class of an error of ours is no code; of what is no matter of time, its own stays."""
    away = {"alias": "east", "error": {**Retriable("away").as_dict(), "exit": 5}}
    dark = {**status(), "partitions": [], "topics": [], "source": away}
    assert explain_name(dark, "shop.orders").code == "SOURCE_UNREACHABLE"
    lost = {**status(row(state="unknown", lag_offsets=None)), "source": away}
    assert explain_name(lost, "shop.orders").code == "SOURCE_UNREACHABLE"
    refused = {
        "alias": "east",
        "error": {**UsageError("no right", code="NOT_AUTHORIZED").as_dict(), "exit": 2},
    }
    assert explain_name({**lost, "source": refused}, "shop.orders").code == "NOT_AUTHORIZED"


def test_of_a_flow_that_cannot_be_read_nothing_is_called_missing() -> None:
    """Its file may be broken, which somebody has to correct."""
    error = {**UsageError("unknown key tarket", code="bad_config", resolve="correct it").as_dict(), "exit": 2}
    found = explain_name({**status(), "partitions": [], "topics": [], "error": error}, "shop.orders")
    assert (str(found.answer), found.exit_code, found.resolve) == ("unknown", 3, "correct it")


def test_topic_is_as_its_worst_partition() -> None:
    """And says how the others are."""
    found = explain_name(status(row(0), behind(1), row(2, state="stopped", stop=_STOP)), "shop.orders")
    assert (str(found.answer), found.exit_code, found.code) == ("stopped", 3, "SOURCE_DAMAGED")
    assert found.line.startswith("1 of 3 partitions of shop.orders: shop.orders:2 is stopped")
    assert [line.partition(" ")[0] for line in found.details] == ["shop.orders:1", "shop.orders:0"]
    many = explain_name(status(*(row(n) for n in range(1000))), "shop.orders")
    assert many.line == "shop.orders is copied to east.shop.orders, all of its 1000 partitions"
    assert len(many.details) < 10, "nobody reads a thousand"


@pytest.mark.parametrize(
    ("name", "answer", "rule", "pattern", "words"),
    [
        ("shop.tmp", "left_out", "excluded", r"shop\.tmp", "topics.exclude has `shop\\.tmp`"),
        ("other", "left_out", "not_included", None, "no pattern of topics.include matches"),
        ("__consumer_offsets", "left_out", "internal", None, "internal"),
        ("shop.ordres", "missing", "included", "shop.*", "not on east"),
        ("ohter", "no_such", "not_included", None, "not on east"),
    ],
)
def test_what_is_out_says_by_which_rule(
    name: str, answer: str, rule: str, pattern: str | None, words: str
) -> None:
    """The list, the pattern; a name that is close to another one says so."""
    found = explain_name(status(row()), name, None, decide)
    assert (str(found.answer), found.rule, found.pattern) == (answer, rule, pattern)
    assert words in found.line
    assert found.exit_code == (2 if answer in ("missing", "no_such") else 0)
    close = {"shop.ordres": ("shop.orders", "east.shop.orders"), "ohter": ("other",)}
    assert found.close == close.get(name, ())


def test_name_of_a_copy_is_answered_with_its_source() -> None:
    """Whoever looks at the target knows no other."""
    found = explain_name(status(row()), "east.shop.orders", 0, decide)
    assert (found.topic, found.asked_as) == ("shop.orders", "east.shop.orders")
    assert found.line.startswith("east.shop.orders:0 is the copy of shop.orders:0: shop.orders:0 is copied")


def test_partition_that_is_not_there() -> None:
    """However the topic is."""
    assert explain_name(status(row()), "shop.orders", 9).line.startswith("shop.orders has no partition 9")
    assert explain_name(status(missing()), "shop.orders", 9).exit_code == 2
    assert explain_name(status(missing()), "shop.orders", 3).exit_code == 0
    assert explain_name(status(missing()), "shop.tmp", 9).exit_code == 2


def test_silent_cluster_makes_nothing_missing() -> None:
    """Where a partition stands is told; what it lacks, and whether another topic is there, nobody knows."""
    silent = {"alias": "east", "error": _AWAY}
    known = status(row(state="unknown", lso=None, lag_offsets=None), source=silent, topics=[])
    found = explain_name(known, "shop.orders", 0, decide)
    assert (str(found.answer), found.exit_code, found.code) == ("unknown", 5, "SOURCE_UNREACHABLE")
    assert "up to source offset 10; what it lacks is not known: east does not answer" in found.line
    other = explain_name(known, "shop.new", None, decide)
    assert (str(other.answer), other.exit_code) == ("unknown", 5)
    dark = status(target={"alias": "west", "error": _AWAY}, topics=[])
    assert explain_name(dark, "shop.orders", None, decide).line.endswith("west cannot be asked")


def test_who_may_not_look_is_told_which_right_and_waits_for_a_person() -> None:
    """The cluster has answered: to run it again brings nothing."""
    no = {"code": "NOT_AUTHORIZED", "message": "east refuses it: READ on t", "resolve": "grant it", "exit": 2}
    silent = {"alias": "east", "error": no}
    known = status(row(state="unknown", lso=None, lag_offsets=None), source=silent, topics=[])
    dark = status(source=silent, topics=[])
    lost = status(error=no, topics=[])
    for found in (
        explain_name(known, "shop.orders", 0, decide),
        explain_name(dark, "shop.orders", None, decide),
        explain_name(lost, "shop.orders", None, decide),
    ):
        assert (str(found.answer), found.exit_code, found.code) == ("unknown", 3, "NOT_AUTHORIZED")
        assert "east refuses it: READ on t" in found.line and found.resolve == "grant it"
        assert "does not answer" not in found.line


def test_copy_that_was_given_away_says_from_where_on() -> None:
    """The cut of each partition, where it is known."""
    promoted = {"drill": "d1", "cuts": {"0": 7, "1": 9}}
    known = status(topics=[listed("shop.orders", enrolled=True, promoted=promoted)])
    found = explain_name(known, "shop.orders", 1)
    assert (str(found.answer), found.exit_code) == ("promoted", 0)
    assert found.details == ("partition 1: records from source offset 9 on are not copied",)


@pytest.mark.parametrize(
    ("note", "code"),
    [({"object": "shop.orders:0"}, "WAITING"), ({"object": "lane 1"}, "TARGET_QUOTA")],
)
def test_what_a_lane_waits_for_is_why(note: dict[str, Any], code: str) -> None:
    """A note about the partition, or its lane."""
    told = {**note, "code": code, "message": "m", "resolve": "r"}
    found = explain_name(status(behind(), notes=[told]), "shop.orders", 0)
    assert (str(found.answer), found.code, found.resolve) == ("waiting", code, "r")
    assert explain_name(status(row(), notes=[told]), "shop.orders", 0).code is None, "it lacks nothing"


def test_plan_says_what_a_topic_waits_for() -> None:
    """What is to be done before, or why it will be refused."""
    found = explain_name(status(missing()), "shop.orders")
    planned = with_plan(found, ["create topic east.shop.orders"], ())
    assert planned.details[0] == "planned, and not done yet: create topic east.shop.orders"
    refused = with_plan(found, (), [Refusal("shop.orders", "NAME_TAKEN", "m", "r")])
    assert (str(refused.answer), refused.code, refused.resolve) == ("refused", "NAME_TAKEN", "r")
    assert refused.exit_code == 3
