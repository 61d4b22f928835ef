"""The judge of delivery at least once: each violation with its smallest history, and what is none."""

from __future__ import annotations

import pytest
from tests.support.flows.repeats import without_repeats

from onceover_lab.demo.compare import compare_logs
from onceover_lab.demo.verdict import CopyFaultKind, Log, Partition, digest_record


def log(letters: str) -> Log:
    """A log of one record for each letter; equal letters are equal records."""
    result = Log(Partition("t", 0))
    for offset, letter in enumerate(letters):
        result.append(offset, digest_record(b"k", letter.encode(), None, 1))
    return result


def judged(source: str, target: str) -> tuple[int, dict[CopyFaultKind, int]]:
    """Return the repeats and what is wrong besides."""
    kept, repeats = without_repeats(log(source), log(target))
    verdict = compare_logs([(log(source), kept)])
    return repeats, {kind: verdict.count(kind) for kind in CopyFaultKind if verdict.count(kind)}


@pytest.mark.parametrize(
    ("source", "target", "repeats"),
    [
        ("abc", "abc", 0),
        ("abcd", "ababcd", 2),
        ("abcd", "abcdbcd", 3),
        ("abcd", "abababcd", 4),
        # equal records of the source are as many records, not repeats
        ("aab", "aab", 0),
        ("aab", "aaab", 1),
        ("aba", "ababa", 2),
        ("", "", 0),
    ],
)
def test_repeats_are_counted_and_nothing_is_wrong(source: str, target: str, repeats: int) -> None:
    """What stood on the target before may stand there again."""
    assert judged(source, target) == (repeats, {})


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        ("abc", "ab", CopyFaultKind.LOST),
        # its successor is there twice, which makes up the number and nothing else
        ("abc", "acc", CopyFaultKind.LOST),
        ("aab", "ab", CopyFaultKind.LOST),
        ("abc", "acb", CopyFaultKind.REORDERED),
        ("abc", "abxc", CopyFaultKind.PHANTOM),
    ],
)
def test_everything_else_is_still_named(source: str, target: str, kind: CopyFaultKind) -> None:
    """Repeats excuse nothing."""
    assert kind in judged(source, target)[1]
