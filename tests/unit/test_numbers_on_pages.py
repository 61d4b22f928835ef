"""Limits and times that pages tell are those of the code: whoever changes one changes its sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

DOCS: Final = Path(__file__).parents[2] / "docs"
_WORDS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_MORE: Final = {12: "twelve", 16: "sixteen", 20: "twenty"}


def word(number: float) -> str:
    """Return a number as it is written out."""
    return _MORE.get(int(number)) or _WORDS[int(number)]


def digits(number: float) -> str:
    """Return a number as it is written in figures."""
    return f"{number:,.10g}"


Figures = Callable[[float], str]


def each(unit: float, figures: Figures = digits) -> Figures:
    """Return how a number is written that is told in another unit than it is kept in."""
    return lambda number: figures(number / unit)


def title(number: float) -> str:
    """Return a number as a sentence begins with it."""
    return word(number).title()


def tenths(share: float) -> str:
    """Return a share in tenths."""
    return word(round(share * 10))


def with_a_flush(seconds: float) -> str:
    """Return seconds with the interval in which Connect's workers write offsets, a minute by default."""
    return digits(seconds + 60)


MINUTES: Final = each(60, word)
MIB: Final = each(1 << 20)

# Of each: the page, its words with the number left out, where in `onceover` that is kept, how it is written.
CLAIMS: Final[list[tuple[str, str, str, Figures]]] = [
    ("airflow.md", "The newest {} audits of a flow are kept", "audit.report.runs:_KEEP_RUNS", word),
    ("airflow.md", "with more than {} topics", "onceover_airflow.jobs.operators:MOST_TOPIC_ASSETS", digits),
    ("airflow.md", "give up after {} more tries", "onceover_airflow.jobs.retrying:FEW_RETRIES", word),
    ("airflow.md", "after {} more tries while a cluster", "onceover_airflow.tasks.audit:RETRIES", word),
    ("airflow.md", "a minute apart, {} times)", "onceover_airflow.jobs.retrying:RETRIES", digits),
    ("airflow.md", "ends so {} times in a row", "onceover_airflow.jobs.retrying:MAX_KILLED", word),
    ("airflow.md", "next try comes after {} seconds", "onceover_airflow.jobs.retrying:FIRST_DELAY_S", digits),
    ("airflow.md", "last for {} minutes", "onceover_airflow.jobs.retrying:TELL_AFTER_S", MINUTES),
    ("airflow.md", "looks again every {} seconds", "onceover_airflow.serving.board:FRESH_S", word),
    ("airflow.md", "looks every {} s whether", "onceover_airflow.tasks.failback:_LOOK_S", digits),
    ("architecture.md", "{} or more small batches", "copy.partition:_MERGE_FROM", title),
    ("architecture.md", "those of up to {} records", "copy.partition:_TINY_RECORDS", digits),
    ("architecture.md", "those of up to {} KB that are not", "copy.partition:_SMALL_BYTES", each(1024)),
    ("architecture.md", "a {}th of `limits.memory_per_lane`", "copy.lane:_ROUND_SHARE", digits),
    ("architecture.md", "newest {} runs' stay", "spark.driver:_KEEP_RUNS", word),
    ("architecture.md", "longer than {} s three times", "handling.pace:TOO_LONG_S", digits),
    ("audit.md", "of the last {} audits that left", "audit.report.runs:_KEEP_RUNS", word),
    ("audit.md", "has not answered for {} s", "audit.ranges.logs:_LED_S", digits),
    ("audit.md", "more than {} MiB, and to more", "audit.records.batches:LARGEST_RECORD_BYTES", MIB),
    ("audit.md", "more than {} headers", "audit.records.batches:_MOST_HEADERS", digits),
    ("audit.md", "of about {} MiB", "audit.ranges.tiling:RANGE_BYTES", MIB),
    ("audit.md", "and {} random ones a partition", "audit.checks.offsetmap:SAMPLES", digits),
    ("audit.md", "Lists are cut at {}", "audit.report.jsonreport:MAX_LISTED", str),
    ("audit.md", "differs, {} findings", "audit.compare.sides:MAX_FINDINGS", digits),
    ("connectors.md", "stands still ({} s; without", "connectors.planning.foresight:STANDSTILL_S", digits),
    ("connectors.md", "more, {} s by default", "connectors.planning.foresight:STANDSTILL_S", with_a_flush),
    ("connectors.md", "interval, and {} s at least", "connectors.moving.context:_LEAST_WATCH_S", digits),
    ("connectors.md", "names more than {} tasks", "connectors.planning.view:_MOST_TASKS", digits),
    ("drills.md", "sign of life for {} s in which", "drills.journal:SILENT_S", digits),
    ("drills.md", "is younger than {} s", "drills.journal:_SURE_S", digits),
    ("drills.md", "by default the first {} topics", "drills.rehearsing.choice:TOPICS", digits),
    ("drills.md", "and the first {} groups", "drills.rehearsing.choice:GROUPS", digits),
    ("drills.md", "partitions are copied ({})", "drills.rehearsing.choice:SAMPLE", str),
    ("drills.md", "numbers there are ({})", "drills.rehearsing.choice:CANARIES", digits),
    ("drills.md", "reads {} tenths of the canaries", "drills.rehearsing.steps:_READ_SHARE", tenths),
    ("drills.md", "with {} lane,", "drills.rehearsing.shadow:LANES", word),
    ("drills.md", "has not moved for {} s", "drills.leaving.commits:COMMITS_S", digits),
    ("drills.md", "what is more than {} of them", "drills.leaving.watch:_COUNTED", digits),
    ("drills.md", "| look | {} s for the source", "wiring.failovers.switchovers:_GLANCE_S", digits),
    ("drills.md", "`groups apply` ({} s for what", "wiring.failovers.switchovers:_PLACES_S", digits),
    ("drills.md", "older than {} s when the drill begins", "drills.switching.unplanned:_GOOD_S", digits),
    ("drills.md", "No more than {} MiB of an export", "drills.orphans.exporttopic:_COMMIT_BYTES", MIB),
    ("drills.md", "up to {} topics are asked", "drills.orphans.rebuild:_TOGETHER", digits),
    ("drills.md", "no more than {} s before each", "drills.orphans.rebuild:_GOOD_S", digits),
    ("drills.md", "further than {} offsets before a cut", "drills.orphans.view:_BACK_OFFSETS", digits),
    ("drills.md", "of the last {} drills", "drills.about:EARLIER", word),
    ("drills.md", "until when to keep it ({} years)", "drills.about:KEPT_YEARS", digits),
    ("flow-file.md", "waits for up to {} minutes", "kafka.link.login:REPLACED_WITHIN_S", MINUTES),
    ("groups.md", "looked at twice, {} s apart", "groups.apply:WATCH_S", digits),
    ("groups.md", "nobody leads it for {} s", "positions.translate:_PATIENCE_S", digits),
    ("groups.md", "stays open for {} s (at", "positions.reader:_SETTLE_S", digits),
    ("groups.md", "next looks of `follow`, {} s)", "positions.fresh:_BRIEF_S", digits),
    ("groups.md", "no longer than {} s a look", "groups.view:_SOURCE_PATIENCE_S", digits),
    ("groups.md", "wait up to {} s should we be killed", "groups.settle:_ALONE_S", digits),
    ("groups.md", "more than {} partitions, so that none", "groups.entries:ENTRIES_AT_MOST", digits),
    ("handlers.md", "takes longer than {} s three times", "handling.pace:TOO_LONG_S", digits),
    ("handlers.md", "may stay open for {} s", "handlers.within:LONGEST_S", digits),
    ("handlers.md", "back within {} s has failed", "handlers.within:LONGEST_S", digits),
    ("handlers.md", "at most {} bytes", "handling.handling:MAX_BATCH_BYTES", digits),
    ("handlers.md", "`max.message.bytes` {} MiB", "handling.deadletter:_MAX_MESSAGE_BYTES", MIB),
    ("handlers.md", "gets at most {} headers", "wire.batches.records:MOST_HEADERS", digits),
    ("handlers.md", "a header counts {} bytes more", "wire.batches.columns:PAIR_BYTES", digits),
    ("handlers.md", "after {} minutes `status` calls", "lead.movement:STILL_AFTER_S", MINUTES),
    ("limits.md", "| {} s for a record in a handler", "handling.pace:TOO_LONG_S", digits),
    ("limits.md", "keeps its newest {} reports", "audit.report.runs:_KEEP_RUNS", word),
    ("limits.md", "| {} partitions a topic", "state.records.enrolment:MOST_PARTITIONS", digits),
    ("limits.md", "1 to {} lanes a flow", "model:MOST_LANES", digits),
    ("limits.md", "| {} characters for the name of a copy", "topics.namingpolicy:MAX_TOPIC_NAME", digits),
    ("limits.md", "stay open for {} s on the target", "state.fencing:LANE_TIMEOUT_MS", each(1000)),
    ("limits.md", "| {} runs of a DAG by hand", "onceover_airflow.starting.pools:_FEWEST_RUNS", digits),
    ("limits.md", "or {} for each slot", "onceover_airflow.starting.pools:_RUNS_A_SLOT", word),
    ("limits.md", "partitions in metrics: {} a flow", "metrics.fromstatus:MAX_PARTITIONS", digits),
    ("lineage.md", "(the first {}; the report", "onceover_airflow.lineage.events:PARTITIONS_NAMED", digits),
    ("lineage.md", "More than {} topics", "onceover_airflow.lineage.events:TOPICS_PER_EVENT", digits),
    ("metrics.md", "more than {} receipts", "metrics.tallies:_MOST_RECEIPTS", digits),
    ("metrics.md", "more than {} (`--partitions`)", "metrics.fromstatus:MAX_PARTITIONS", digits),
    ("metrics.md", "known for {} minutes where", "metrics.looks:_SELDOM_KEPT_S", MINUTES),
    ("metrics.md", "Of {} records and more", "metrics.canary.track:MOST_WAITING", digits),
    ("operations.md", "after {} s of waiting in vain", "wiring.status:PATIENCE_S", digits),
    ("operations.md", "only live clusters, {} flows", "wiring.status:_AT_ONCE", word),
    ("operations.md", "Spark's start: {} s at most", "state.fencing:START_DEADLINE_S", digits),
    ("operations.md", "sign of life in the last {} s", "state.records.runstate:SILENT_AFTER_MS", each(1000)),
    ("operations.md", "and of {} partitions at most", "operate.statusread:_OPEN_ASKED", digits),
    ("operations.md", "In JSON the {} first", "groups.standing:_GROUPS", digits),
    ("operations.md", "executors are gone for {} s", "spark.slots:PATIENCE_S", digits),
    ("operations.md", "waits at most {} seconds, for a", "cli.completion:_DEADLINE_S", word),
    ("operations.md", "for a cluster {};", "cli.clusternames:_PATIENCE_S", word),
    ("operations.md", "The newest {} of each command", "spark.launch.runfiles:KEPT_RUNS", word),
    ("operations.md", "looks every {} s where each", "lead.movement:_LOOK_S", digits),
    ("operations.md", "have not moved for {} minutes", "lead.movement:STILL_AFTER_S", MINUTES),
    ("operations.md", "and {} seconds more for each", "lead.movement:TURN_S", word),
    ("operations.md", "as long as {} MiB do", "lead.movement:BATCH_BYTES", MIB),
    ("operations.md", "more than {} MiB of others' records", "resume.beyond:_MOST_BYTES", MIB),
    ("operations.md", "more than {} s; and while nothing", "kafka.logs.batchat:_THROTTLED_S", digits),
    ("operations.md", "run again) after {} minutes", "spark.driver:_GIVE_UP_S", MINUTES),
    ("positions.md", "with at most {} segments", "positions.merge:_MAX_SEGMENTS", digits),
    ("positions.md", "older than {} minutes and joined", "positions.merge:_MIN_AGE_MS", each(60_000, word)),
    ("positions.md", "aborted by its successor or after {} s", "positions.merge:_TIMEOUT_MS", each(1000)),
    ("positions.md", "`segment.ms={}`", "topics.own:_SEGMENT_MS", str),
    ("positions.md", "`delete.retention.ms={}`", "topics.own:_TOMBSTONES_MS", str),
    ("scale.md", "created {} to a request", "topics.apply:_PER_REQUEST", digits),
    ("scale.md", "most {} partitions to a transaction", "lead.enroller:_PARTITIONS_PER_TRANSACTION", str),
    ("scale.md", "asked for {} to a request", "kafka.groups.offsets:GROUPS_AT_ONCE", digits),
    ("scale.md", "{} of which are under way", "kafka.groups.admin:_IN_FLIGHT", digits),
    ("scale.md", "a single value above {} MiB", "state.records.value:VALUE_BYTES", MIB),
    ("scale.md", "or {} parts, counts", "state.records.value:VALUE_PARTS", digits),
    ("topics.md", "at least {} s after it was met", "copy.returns:_APART_S", digits),
    ("topics.md", "within the first {} of a batch", "copy.returns:_RECORDS", digits),
]  # fmt: skip


@cache
def text(page: str) -> str:
    """Return a page's words, wherever its lines are broken."""
    return re.sub(r"\s+", " ", (DOCS / page).read_text())


@pytest.mark.parametrize(
    ("page", "words", "place", "written"), CLAIMS, ids=[f"{page}: {words}" for page, words, *_ in CLAIMS]
)
def test_a_page_tells_the_number_that_the_code_goes_by(
    page: str, words: str, place: str, written: Figures
) -> None:
    """In the sentence that promises it."""
    module, _, name = place.partition(":")
    module = module if module.startswith("onceover_airflow.") else f"onceover.{module}"
    assert "{}" in words
    assert words.format(written(getattr(import_module(module), name))) in text(page)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("comparison.md", "running flow of Onceover holds about {} GB"),
        ("deployment.md", "Each running copy takes {} GB"),
        ("limits.md", "| {} GB of memory for each running flow"),
        ("scale.md", "Each takes about {} GB with two lanes"),
    ],
)
def test_a_running_flow_takes_as_much_memory_as_was_measured(page: str, words: str) -> None:
    """At the most, by the benchmark that is on the pages, to a twentieth of a gigabyte."""
    measured = json.loads((DOCS / "benchmark" / "bench.json").read_text())["workloads"]
    ours = [workload["summary"].get("onceover", {}) for workload in measured]
    peaks = [figures["peak_memory_mb"]["high"] for figures in ours if "peak_memory_mb" in figures]
    assert words.format(round(max(peaks) / 50) / 20) in text(page)
