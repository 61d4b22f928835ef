"""What delivery at least once promises, judged independently: all there, in order, some of it again."""

from __future__ import annotations

import time
from collections.abc import Mapping

from onceover_lab.demo.compare import compare_logs
from onceover_lab.demo.judge import Reader
from onceover_lab.demo.verdict import Log, Partition


def without_repeats(source: Log, target: Log) -> tuple[Log, int]:
    """Return the target without records that only repeat what stood before them, and how many those were.

    A record that is the next one of the source is taken as that one, however often it was there before. Any
    other record is a repeat if the source has it among those taken already, and is kept for the judge to
    name if not.
    """
    wanted = source.items()
    kept = Log(target.partition, broker_stamped=target.broker_stamped, notes=target.notes)
    taken: set[bytes] = set()
    repeats = at = 0
    for offset, digest in zip(target.offsets, target.items(), strict=True):
        if at < len(wanted) and digest == wanted[at]:
            taken.add(digest)
            at += 1
        elif digest in taken:
            repeats += 1
            continue
        kept.append(offset, digest)
    return kept, repeats


def count_repeats(
    source: Mapping[str, str], target: Mapping[str, str], topics: list[str], *, timeout_s: float = 60.0
) -> int:
    """Return how many records are on the target more than once.

    Raises:
        AssertionError: a record is lost, altered or from elsewhere, or first occurrences are out of order.
    """
    deadline = time.monotonic() + timeout_s
    left, right = _read("source", source, topics, deadline), _read("target", target, topics, deadline)
    pairs, total = [], 0
    for partition, log in left.items():
        kept, repeats = without_repeats(log, right.get(partition, Log(partition)))
        pairs.append((log, kept))
        total += repeats
    verdict = compare_logs(pairs)
    if not verdict.ok:
        raise AssertionError(f"not counting {total} repeats: {verdict.explain()}")
    return total


def _read(side: str, client: Mapping[str, str], topics: list[str], deadline: float) -> dict[Partition, Log]:
    reader = Reader(side, client, deadline, None)
    return reader.read(reader.bounds(topics, {}))
