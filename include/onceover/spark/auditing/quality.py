"""Great Expectations over an audit's tables: the one place that evaluates ``audit.checks.suites``.

Invariant: the verdict is computed from Great Expectations' results, never beside them; a rule that raised
an exception, or has no result, was not met. Nothing leaves the machine: analytics are off.

What is judged is what the workers have counted, a row for a range and not for a record: it is on the driver
already, and Great Expectations looks at it there. Over DataFrames of Spark each of its metrics is a job: 30
CPU-seconds for every audit, whatever its size (measured), against 3.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from onceover.audit.checks.suiterows import CODE, WHAT, columns_of
from onceover.audit.checks.suites import RULES, SUITES, Rule, RuleKind, rules_of
from onceover.audit.checks.verdict import QualityVerdict, RuleOutcome, conclude
from onceover.audit.model import Row
from onceover.audit.report.datadocs import results_file

_SITE: Final = "audit"
_RULE: Final = "rule"
# A report with more rows is not read; how many there were is counted all the same.
MAX_NUMBERS: Final = 200
_RESULT_FORMAT: Final = {
    "result_format": "COMPLETE",
    "unexpected_index_column_names": [WHAT, CODE],
    "return_unexpected_index_query": False,
}


def judge(rows: Mapping[str, Sequence[Row]], home: Path) -> QualityVerdict:
    """Evaluate every rule, keep the results, return the verdict.

    Args:
        rows: of every suite, as ``audit.checks.suiterows.suite_rows`` makes them.
        home: folder of this audit; Great Expectations' results go to ``datadocs.results_file``, as JSON.
    """
    context = _context()
    outcomes: list[RuleOutcome] = []
    source = context.data_sources.add_pandas(_SITE)
    for suite in SUITES:
        # As Python's own objects: pandas would make floats of numbers where one is missing.
        frame = pd.DataFrame(rows[suite], columns=columns_of(suite), dtype=object)
        found = _evaluate(context, source, suite, frame)
        _keep(found, results_file(home, suite))
        outcomes += [_outcome(each) for each in found["results"]]
    return conclude(outcomes)


def _context() -> Any:
    # Read when the library is imported, so it has to stand before that.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    # They would go to the log, a line for every metric.
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    # Its pages need scripts and the web; ``audit.report.datadocs`` makes ours.
    for name in list(context.get_site_names()):
        context.delete_data_docs_site(name)
    return context


def _evaluate(context: Any, source: Any, suite: str, frame: pd.DataFrame) -> dict[str, Any]:
    """Return Great Expectations' results of a suite, as JSON."""
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
    (result,) = answered.run_results.values()
    found: dict[str, Any] = result.to_json_dict()
    return found


def _keep(results: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")


def _expectation(rule: Rule) -> Any:
    import great_expectations.expectations as gxe

    told = {"meta": {_RULE: rule.name}, "notes": rule.says}
    match rule.kind:
        case RuleKind.EQUAL:
            first, second = rule.columns
            return gxe.ExpectColumnPairValuesToBeEqual(column_A=first, column_B=second, **told)
        case RuleKind.ZERO:
            return gxe.ExpectColumnValuesToBeBetween(column=rule.columns[0], max_value=0, **told)
        case RuleKind.TRUE:
            return gxe.ExpectColumnValuesToBeInSet(column=rule.columns[0], value_set=[True], **told)
        case RuleKind.KNOWN:
            return gxe.ExpectColumnValuesToNotBeNull(column=rule.columns[0], **told)
        case RuleKind.ROWS:
            return gxe.ExpectTableRowCountToBeBetween(min_value=1, **told)


def _outcome(result: Mapping[str, Any]) -> RuleOutcome:
    """Read one result of Great Expectations."""
    names = {rule.name: rule for rule in RULES}
    config = result["expectation_config"]
    rule, asked = names[config["meta"][_RULE]], _expectation_text(config)
    problem = _problem(result.get("exception_info") or {})
    if problem is not None:
        return RuleOutcome(rule, None, problem=problem, expectation=asked)
    details = result["result"]
    if rule.kind is RuleKind.ROWS:
        seen = details["observed_value"]
        missing = 0 if result["success"] else 1
        return RuleOutcome(rule, bool(result["success"]), checked=seen, unexpected=missing, expectation=asked)
    numbers = details.get("unexpected_index_list") or []
    return RuleOutcome(
        rule,
        bool(result["success"]),
        checked=details["element_count"],
        unexpected=details["unexpected_count"],
        numbers=tuple(numbers[:MAX_NUMBERS]),
        expectation=asked,
    )


def _expectation_text(config: Mapping[str, Any]) -> str:
    """Return an expectation by the library's own names, as somebody would look it up."""
    given = {key: value for key, value in config["kwargs"].items() if key != "batch_id"}
    return f"{config['type']}({', '.join(f'{key}={value}' for key, value in given.items())})"


def _problem(info: Mapping[str, Any]) -> str | None:
    """Return why a rule could not be evaluated; the library reports one exception, or one for each metric."""
    each = [info] if "raised_exception" in info else [one for one in info.values() if isinstance(one, dict)]
    texts = [str(one.get("exception_message")) for one in each if one.get("raised_exception")]
    return "; ".join(texts) if texts else None
