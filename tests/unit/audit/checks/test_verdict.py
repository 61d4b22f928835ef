"""The verdict: from the outcomes of the rules, and from nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from onceover.audit.checks.suites import NOT_EVALUATED, RULES, SUITES, Rule, RuleKind, rules_of
from onceover.audit.checks.verdict import RuleOutcome, conclude
from onceover.audit.model import FindingKind
from onceover.state.records.verdicts import Verdict

_ALL_MET = [RuleOutcome(rule, True, checked=3) for rule in RULES]


def _with(rule: Rule, outcome: RuleOutcome) -> list[RuleOutcome]:
    return [outcome if each.rule == rule else each for each in _ALL_MET]


def test_all_rules_met_passes() -> None:
    """Every rule was asked and met: the only way to a PASS."""
    verdict = conclude(_ALL_MET)

    assert (verdict.verdict, verdict.exit_code) == (Verdict.PASS, 0)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_not_met_gives_its_own_answer(rule: Rule) -> None:
    """Each rule alone can turn the verdict, into what the rule says it means."""
    verdict = conclude(_with(rule, RuleOutcome(rule, False, checked=3, unexpected=1)))

    assert verdict.verdict is rule.answer
    assert verdict.exit_code == {Verdict.FAIL: 1, Verdict.UNVERIFIABLE: 3}[rule.answer]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_not_evaluated_is_unverifiable(rule: Rule) -> None:
    """A rule that raised an exception proved nothing, whatever it would have meant."""
    verdict = conclude(_with(rule, RuleOutcome(rule, None, problem="no such column")))

    assert (verdict.verdict, verdict.exit_code) == (Verdict.UNVERIFIABLE, 3)
    told = next(each for each in verdict.outcomes if each.rule == rule).document()
    assert (told["code"], told["problem"]) == (NOT_EVALUATED, "no such column")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_left_out_is_unverifiable(rule: Rule) -> None:
    """What was never asked is not proven."""
    verdict = conclude([each for each in _ALL_MET if each.rule != rule])

    assert verdict.verdict is Verdict.UNVERIFIABLE
    assert len(verdict.outcomes) == len(RULES)


def test_fail_outweighs_unverifiable() -> None:
    """A difference that was seen stays one, however much could not be seen."""
    failing = next(rule for rule in RULES if rule.answer is Verdict.FAIL)
    outcomes = [RuleOutcome(rule, rule != failing and rule.answer is Verdict.FAIL) for rule in RULES]

    assert conclude(outcomes).verdict is Verdict.FAIL


def test_no_rule_answers_pass_when_it_is_not_met() -> None:
    """PASS is never the meaning of a broken expectation."""
    assert {rule.answer for rule in RULES} == {Verdict.FAIL, Verdict.UNVERIFIABLE}


def test_rules_have_names_of_their_own_and_known_suites() -> None:
    """Results are matched to rules by name."""
    assert [name for name, count in Counter(rule.name for rule in RULES).items() if count > 1] == []
    assert {rule.suite for rule in RULES} == set(SUITES)


def test_every_kind_of_finding_has_a_rule_that_fails() -> None:
    """A class of finding without a rule would never reach the verdict."""
    judged = {rule.code: rule for rule in rules_of("topics") if rule.kind is RuleKind.ZERO}

    for kind in FindingKind:
        assert judged[str(kind)].answer is Verdict.FAIL
        assert judged[str(kind)].columns == (str(kind).lower(),)
