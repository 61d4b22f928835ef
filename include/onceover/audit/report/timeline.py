"""Series for the plots of a report, from digests and commits. Pure.

What is known of a range are its first and last timestamp: its records are spread evenly between them. That
is a picture, not evidence; evidence are the digests.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from onceover.audit.checks.evidence import Commit
from onceover.audit.model import Digest, Side
from onceover.model import TopicPartition

# About one bar for every ten pixels of the plot.
BARS: Final = 90
# More points than that are one line on a screen.
MAX_POINTS: Final = 2_000


class TimeSpan(NamedTuple):
    """A stretch of time in ms since 1970; the end is inclusive."""

    begin_ms: int
    end_ms: int


def histogram(digests: Sequence[Digest], bars: int = BARS) -> dict[str, Any] | None:
    """Return how many records each side holds by record time; None without a timestamp.

    Returns:
        ``begin_ms``, ``width_ms`` and for each side a list of ``bars`` counts, which add up to its records.
    """
    dated = [each for each in digests if each.records and each.first_timestamp_ms >= 0]
    if not dated:
        return None
    begin_ms = min(each.first_timestamp_ms for each in dated)
    end_ms = max(each.last_timestamp_ms for each in dated)
    width_ms = max(1, -(-(end_ms - begin_ms + 1) // bars))
    counts = {side: [0.0] * bars for side in Side}
    for digest in dated:
        span = TimeSpan(digest.first_timestamp_ms - begin_ms, digest.last_timestamp_ms - begin_ms)
        _spread(counts[digest.side], span, digest.records, width_ms)
    return {
        "begin_ms": begin_ms,
        "width_ms": width_ms,
        **{str(side): [round(count, 3) for count in counts[side]] for side in Side},
    }


def _spread(counts: list[float], span: TimeSpan, records: int, width_ms: int) -> None:
    first, last = span.begin_ms // width_ms, span.end_ms // width_ms
    length_ms = span.end_ms - span.begin_ms + 1
    for bar in range(first, last + 1):
        begin_ms = max(span.begin_ms, bar * width_ms)
        end_ms = min(span.end_ms + 1, (bar + 1) * width_ms)
        counts[bar] += records * (end_ms - begin_ms) / length_ms


def committed(commits: Sequence[Commit], bars: int = BARS) -> dict[str, Any] | None:
    """Return how many records were committed on the target over time; None without a commit.

    Returns:
        ``begin_ms``, ``width_ms`` and ``records``, a list of ``bars`` counts.
    """
    if not commits:
        return None
    times = [commit.commit_ms for commit in commits]
    begin_ms = min(times)
    width_ms = max(1, -(-(max(times) - begin_ms + 1) // bars))
    counts = [0] * bars
    for commit in commits:
        counts[(commit.commit_ms - begin_ms) // width_ms] += commit.records
    return {"begin_ms": begin_ms, "width_ms": width_ms, "records": counts}


def ages(digests: Iterable[Digest], commits: Sequence[Commit]) -> list[tuple[int, int]]:
    """Return (commit time, age of the newest record then) in ms, in the order of time.

    The record time at a commit's end is interpolated in the range that holds it; commits outside of all
    compared ranges are left out.
    """
    ranges: dict[TopicPartition, list[Digest]] = {}
    for digest in digests:
        if digest.side is Side.SOURCE and digest.records and digest.first_timestamp_ms >= 0:
            ranges.setdefault(digest.range.source, []).append(digest)
    for each in ranges.values():
        each.sort(key=lambda digest: digest.range.source_to)
    points = []
    for commit in commits:
        at_ms = _time_at(ranges.get(commit.source, []), commit.source_end)
        if at_ms is not None and commit.records:
            points.append((commit.commit_ms, commit.commit_ms - at_ms))
    points.sort()
    return points[:: max(1, -(-len(points) // MAX_POINTS))]


def _time_at(ranges: Sequence[Digest], offset: int) -> int | None:
    """Return when the record before ``offset`` was written, as far as the range tells."""
    index = bisect_left(ranges, offset, key=lambda digest: digest.range.source_to)
    if index == len(ranges) or ranges[index].range.source_from >= offset:
        return None
    found = ranges[index]
    width = found.range.source_to - found.range.source_from
    share = (offset - found.range.source_from) / width
    return round(found.first_timestamp_ms + share * (found.last_timestamp_ms - found.first_timestamp_ms))
