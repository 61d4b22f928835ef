"""The checker of chaos: the least history of every anomaly is named, and what looks like one is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pytest
from tests.chaos.checker import Entry, Facts, Fate, GroupAt, Kind, Place, Sent, Written, check, numbered

P, Q = Place("t", 0), Place("t", 1)
OTHER = Place("other", 0)


def log(names: str, *, first: int = 0, epochs: Sequence[int] = ()) -> list[Entry]:
    """Return one record for each letter; a space is an offset that no reader sees, a marker for one."""
    numbers = range(first, first + len(names))
    letters = [(number, name) for number, name in zip(numbers, names, strict=True) if name != " "]
    of = list(epochs) or [1] * len(letters)
    return [Entry(at, name, f"d-{name}", (7, epoch)) for (at, name), epoch in zip(letters, of, strict=True)]


def facts(source: str, target: str, position: int | None = None, /, **changes: object) -> Facts:
    """Return the facts of one partition; everything of the source is copied if nothing else is said."""
    at = len(source) if position is None else position
    plain = Facts({P: log(source)}, {P: log(target)}, progress=[{P: at}])
    return dataclasses.replace(plain, **changes)  # pyrefly: ignore[bad-argument-type]


def kinds(found: Facts) -> list[Kind]:
    return [anomaly.kind for anomaly in check(found)]


def sent(**fates: Fate) -> Mapping[str, Sent]:
    return {name: Sent(P, fate) for name, fate in fates.items()}


TOLD = sent(a=Fate.COMMITTED, b=Fate.COMMITTED, x=Fate.ABORTED, u=Fate.UNKNOWN)


@pytest.mark.parametrize(
    "fine",
    [
        facts("abc", "abc"),
        # The source's markers and holes are not there on the target, or elsewhere.
        facts("a b c ", "abc "),
        facts("abc", " ab  c"),
        # Not copied yet.
        facts("abc", "ab", 2),
        facts("abc", "", 0),
        # What a person gave up.
        facts("abc", "ac", skipped={P: [(1, 2)]}),
        # Twice on the source as well: a producer without idempotence.
        facts("abbc", "abbc"),
        facts("abc", "abc", sent=TOLD),
        # Its producer never heard of it, and a reader sees it.
        facts("aub", "aub", sent=TOLD),
        facts("ab", "ab", progress=[{P: 0}, {P: 1}, {P: 1}, {}, {P: 2}]),
        facts("ab", "ab", written={P: [Written(1, 0, 1), Written(1, 1, 2), Written(3, 2, 7)]}),
        # Where the copy began is nobody's hole.
        facts("  ab", "ab", written={P: [Written(1, 2, 4)]}),
        facts("ab", "ab", target={P: log("ab", epochs=[3, 4])}),
        facts("a b c", "ab c", groups=[GroupAt("g", P, 3, 2)]),
        # On a marker: there is nothing between.
        facts("a b c", "ab c", groups=[GroupAt("g", P, 1, 1), GroupAt("g", P, 2, 1), GroupAt("g", P, 5, 4)]),
        facts("abc", "abab c", repeats=True),
        # Behind what came twice, and still in front of every unread one.
        facts("abc", "ababc", repeats=True, groups=[GroupAt("g", P, 2, 4), GroupAt("g", P, 1, 3)]),
        # A run that was paused sends what it had in hand, between its successor's.
        facts("abc", "abcbc", repeats=True, target={P: log("abcbc", epochs=[1, 1, 2, 1, 1])}),
    ],
)
def test_what_may_be_is_no_anomaly(fine: Facts) -> None:
    """The near misses of everything below."""
    assert check(fine) == []


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (facts("abc", "ac"), Kind.LOST),
        (facts("abc", "ab"), Kind.LOST),
        (facts("abc", ""), Kind.LOST),
        (facts("abbc", "abc"), Kind.LOST),
        (facts("abc", "abbc"), Kind.DUP),
        (facts("abc", "abcabc"), Kind.DUP),
        (facts("ab", "abx", sent=TOLD), Kind.ABORTED),
        (facts("ab", "aub", sent=TOLD), Kind.ABORTED),
        (facts("abc", "acb"), Kind.REORDER),
        (facts("abc", "cab"), Kind.REORDER),
        (facts("abc", "abc", 2), Kind.EARLY),
        (facts("abc", "a", 0), Kind.EARLY),
        (facts("ab", "abz"), Kind.LEAK),
        # Right, but of another partition.
        (facts("ab", "abc", sent={"c": Sent(Q, Fate.COMMITTED)}), Kind.LEAK),
        (facts("ab", "ab", target={P: log("ab"), OTHER: log("z")}), Kind.LEAK),
        (facts("ab", "ab", target={P: log("ab", epochs=[4, 3])}), Kind.ZOMBIE),
        (facts("ab", "ab", written={P: [Written(2, 0, 1), Written(1, 1, 2)]}), Kind.ZOMBIE),
        (facts("ab", "ab", written={P: [Written(1, 0, 1), Written(2, 2, 3)]}), Kind.MAP),
        (facts("ab", "ab", written={P: [Written(1, 0, 2), Written(1, 1, 3)]}), Kind.MAP),
        (facts("ab", "ab", progress=[{P: 2}, {P: 1}, {P: 2}]), Kind.REWIND),
        (facts("abc", "abc", groups=[GroupAt("g", P, 1, 2)]), Kind.SKIP),
        (facts("abc", "abc", groups=[GroupAt("g", P, 2, 1)]), Kind.REWIND),
        (facts("a", "a", sent=TOLD), Kind.BROKER),
        # Given up, and there nevertheless.
        (facts("abc", "abc", skipped={P: [(1, 2)]}), Kind.EARLY),
        # At least once is no excuse.
        (facts("abc", "aab", repeats=True), Kind.LOST),
        (facts("abc", "abcb", repeats=True, groups=[GroupAt("g", P, 1, 3)]), Kind.SKIP),
        (facts("ab", "abx", repeats=True, sent=sent(x=Fate.ABORTED)), Kind.ABORTED),
    ],
)
def test_the_least_history_of_every_anomaly_is_named(wrong: Facts, kind: Kind) -> None:
    """By its kind, and by no other."""
    assert kinds(wrong) == [kind], check(wrong)


def test_another_content_is_corrupt() -> None:
    """Of the same record."""
    other = [log("abc")[0], log("abc")[1]._replace(digest="d-other"), log("abc")[2]]
    assert kinds(facts("abc", "abc", target={P: other})) == [Kind.CORRUPT]


def test_each_partition_is_judged_by_itself() -> None:
    """Of two, one is right."""
    both = Facts(
        {P: log("ab"), Q: log("ab")},
        {P: log("ab"), Q: log("b")},
        progress=[{P: 2, Q: 2}],
        groups=[GroupAt("g", Q, 0, 0)],
    )
    assert [(anomaly.kind, anomaly.where) for anomaly in check(both)] == [(Kind.LOST, "t:1")]


def test_equal_records_without_a_name_are_told_apart_by_number() -> None:
    """So that one too many of them is one too many, and one too few is lost."""
    plain = [Entry(at, "=5", "5") for at in range(3)]
    assert [entry.identity for entry in numbered(plain)] == ["=5#1", "=5#2", "=5#3"]

    def judged(there: Sequence[Entry]) -> list[Kind]:
        return kinds(Facts({P: numbered(plain)}, {P: numbered(there)}, progress=[{P: 3}]))

    assert judged([*plain, plain[0]]) == [Kind.DUP]
    assert judged(plain[1:]) == [Kind.LOST]
    assert judged(plain) == []


def test_equal_records_that_come_again_are_not_skipped() -> None:
    """At least once: the second of them on the target may be the source's first."""
    there = numbered([Entry(at, "=5", "5") for at in range(2)])
    again = Facts({P: there[:1]}, {P: there}, progress=[{P: 1}], repeats=True, groups=[GroupAt("g", P, 0, 1)])
    assert kinds(again) == []
