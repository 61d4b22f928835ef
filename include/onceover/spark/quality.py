"""Great Expectations over an audit's tables: the one place that evaluates the rules of ``audit.suites``.

Invariant: the verdict is computed from Great Expectations' results, never beside them; a rule that raised
an exception, or has no result, was not met. Nothing leaves the machine: analytics are off.

Needs a classic Spark session (Great Expectations 1.24 does not know Spark Connect).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from onceover.audit.suites import RULES, SUITES, Kind, Rule, rules_of
from onceover.audit.verdict import Outcome, QualityVerdict, conclude
from onceover.spark.frames import CODE, WHAT, suite_frames

log = logging.getLogger(__name__)

_SITE: Final = "audit"
_RULE: Final = "rule"
# A report with more rows is not read; how many there were is counted all the same.
MAX_NUMBERS: Final = 200
_RESULT_FORMAT: Final = {
    "result_format": "COMPLETE",
    "unexpected_index_column_names": [WHAT, CODE],
    "return_unexpected_index_query": False,
}


def judge(spark: SparkSession, tables: Mapping[str, DataFrame], home: Path) -> QualityVerdict:
    """Evaluate every rule, write the Data Docs, return the verdict.

    Args:
        spark: a classic session; a Connect session cannot be judged in.
        tables: by name, with the schemas of ``audit.tables.SCHEMAS``. Each is computed once.
        home: folder of this audit; the Data Docs go to ``home/data_docs``.
    """
    context = _context(home / "data_docs")
    outcomes: list[Outcome] = []
    with _cached(tables) as audited, _cached(suite_frames(audited)) as frames:
        source = context.data_sources.add_spark(_SITE, persist=False)
        for suite in SUITES:
            outcomes += _evaluate(context, source, suite, frames[suite])
    return conclude(outcomes, _write_docs(context, home / "data_docs"))


@contextmanager
def _cached(frames: Mapping[str, DataFrame]) -> Iterator[dict[str, DataFrame]]:
    # Great Expectations asks a frame several times; a lazy one would read both clusters each time.
    cached = {name: frame.persist() for name, frame in frames.items()}
    try:
        yield cached
    finally:
        for frame in cached.values():
            frame.unpersist()


def _context(docs: Path) -> Any:
    # Read when the library is imported, so it has to stand before that.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    # They would go to the log, a line for every metric.
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    for name in list(context.get_site_names()):
        context.delete_data_docs_site(name)
    context.add_data_docs_site(
        site_name=_SITE,
        site_config={
            "class_name": "SiteBuilder",
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
            "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs)},
        },
    )
    return context


def _evaluate(context: Any, source: Any, suite: str, frame: DataFrame) -> list[Outcome]:
    import great_expectations as gx

    batches = source.add_dataframe_asset(suite).add_batch_definition_whole_dataframe("all")
    expected = context.suites.add(gx.ExpectationSuite(suite))
    for rule in rules_of(suite):
        expected.add_expectation(_expectation(rule))
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name=suite, data=batches, suite=expected)
    )
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(name=suite, validation_definitions=[definition], result_format=_RESULT_FORMAT)
    )
    answered = checkpoint.run(batch_parameters={"dataframe": frame})
    results = [each for run in answered.run_results.values() for each in run.results]
    return [_outcome(each.to_json_dict()) for each in results]


def _expectation(rule: Rule) -> Any:
    import great_expectations.expectations as gxe

    told = {"meta": {_RULE: rule.name}, "notes": rule.says}
    match rule.kind:
        case Kind.EQUAL:
            first, second = rule.columns
            return gxe.ExpectColumnPairValuesToBeEqual(column_A=first, column_B=second, **told)
        case Kind.ZERO:
            return gxe.ExpectColumnValuesToBeBetween(column=rule.columns[0], max_value=0, **told)
        case Kind.TRUE:
            return gxe.ExpectColumnValuesToBeInSet(column=rule.columns[0], value_set=[True], **told)
        case Kind.KNOWN:
            return gxe.ExpectColumnValuesToNotBeNull(column=rule.columns[0], **told)
        case Kind.ROWS:
            return gxe.ExpectTableRowCountToBeBetween(min_value=1, **told)


def _outcome(result: Mapping[str, Any]) -> Outcome:
    """Read one result of Great Expectations."""
    names = {rule.name: rule for rule in RULES}
    rule = names[result["expectation_config"]["meta"][_RULE]]
    problem = _problem(result.get("exception_info") or {})
    if problem is not None:
        return Outcome(rule, None, problem=problem)
    details = result["result"]
    if rule.kind is Kind.ROWS:
        seen = details["observed_value"]
        return Outcome(rule, bool(result["success"]), checked=seen, unexpected=0 if result["success"] else 1)
    numbers = details.get("unexpected_index_list") or []
    return Outcome(
        rule,
        bool(result["success"]),
        checked=details["element_count"],
        unexpected=details["unexpected_count"],
        numbers=tuple(numbers[:MAX_NUMBERS]),
    )


def _problem(info: Mapping[str, Any]) -> str | None:
    """Return why a rule could not be evaluated; the library reports one exception, or one for each metric."""
    each = [info] if "raised_exception" in info else [one for one in info.values() if isinstance(one, dict)]
    texts = [str(one.get("exception_message")) for one in each if one.get("raised_exception")]
    return "; ".join(texts) if texts else None


def _write_docs(context: Any, docs: Path) -> Path:
    context.build_data_docs()
    log.info("Data Docs: %s", docs / "index.html")
    return docs / "index.html"
