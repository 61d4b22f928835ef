"""How a connector was left on the way: what lasts is told, with the commands that go on and back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from onceover.connectors.model import ConnectorOutcome, ConnectorState, EndState, TaskState
from onceover.connectors.moving import ending
from onceover.connectors.moving.context import HARD, MIGRATE, SOFT, Context
from onceover.connectors.moving.ending import MIGRATION, ROLLBACK, ended, outcome_of
from onceover.connectors.offsets.configtopic import ConfigRecords, Order
from onceover.connectors.planning.view import ConnectorView
from onceover.connectors.record.manifest import Manifest
from onceover.errors import Fatal, Fenced, MustReset, NeedsOperator, OnceoverError, Retriable, UsageError
from tests.unit.connectors.views import GLOBAL, OWN, facts

CHANGED = NeedsOperator("its configuration changed", code="CHANGED_SINCE", where="c", resolve="run again")
APPLY = "`onceover connectors apply trial --connector c`"
DOWNGRADE = "`onceover connectors downgrade trial --connector c --mode hard --apply`"
BACK = "`onceover connectors rollback trial --connector c --apply`"

RESUME = "`curl -X PUT http://w:8083/connectors/c/resume`"


def state(word: str, *tasks: str, topic: str | None = None) -> ConnectorState:
    """Return a connector as the workers report it."""
    config = {"name": "c"} if topic is None else {"name": "c", "offsets.storage.topic": topic}
    found = tuple(TaskState(number, task, "w:8083") for number, task in enumerate(tasks))
    return ConnectorState("c", "source", word, found, config)


class Clusters:
    """Workers that report these states, one after the other; the last one, or an error, stays."""

    def __init__(self, asked: str | OnceoverError | None, *reports: ConnectorState | Exception) -> None:
        self.asked = asked
        self.reports = list(reports)
        self.asked_for = 0
        self.run: Manifest | OnceoverError | None = None

    def newest(self, _name: str) -> Manifest | None:
        if isinstance(self.run, OnceoverError):
            raise self.run
        return self.run

    def state(self, _name: str) -> ConnectorState:
        found = self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]
        if isinstance(found, Exception):
            raise found
        return found

    def config_records(self) -> ConfigRecords:
        self.asked_for += 1
        if isinstance(self.asked, OnceoverError):
            raise self.asked
        if self.asked is None:
            return ConfigRecords()
        order = Order(7, 7000, self.asked)
        key = "target-state-c"
        return ConfigRecords({key: {"state.v2": self.asked}}, {key: 7}, {key: (order,)})

    def context(self, topic: str | None = None) -> Context:
        found = SimpleNamespace(
            observer=self,
            newest=self.newest,
            facts=facts(),
            access=SimpleNamespace(rest=self, settings=SimpleNamespace(name="trial")),
            request=SimpleNamespace(topic=topic),
        )
        return cast(Context, found)

    def end(
        self, error: Exception = CHANGED, *, operation: str = MIGRATION, initial: str = "RUNNING"
    ) -> ConnectorOutcome:
        view = ConnectorView(state(initial, *(["RUNNING"] if initial == "RUNNING" else [])), facts(), OWN)
        return ended(self.context(), operation, view, error)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time pass between two looks, and no more of them than in the time that they have."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    class Deadline:
        def __init__(self, seconds: float) -> None:
            self.at_s = now[0] + seconds

        @property
        def passed(self) -> bool:
            return now[0] >= self.at_s

    monkeypatch.setattr(ending, "Deadline", Deadline)
    monkeypatch.setattr("time.sleep", sleep)


@pytest.mark.parametrize(
    "flips",
    [
        [state("UNASSIGNED")],
        [state("STOPPED", "RUNNING")],
        # A stop whose answer was lost is obeyed a second later.
        [state("RUNNING", "RUNNING"), state("UNASSIGNED")],
        [state("RESTARTING", "RUNNING")],
    ],
)
def test_second_in_which_a_status_flips_is_waited_through(flips: list[ConnectorState]) -> None:
    """A connector that the run has stopped is never told to do what it did."""
    found = Clusters("STOPPED", *flips, state("STOPPED")).end()
    assert (found.outcome, found.facts["state"]) == (EndState.UNFINISHED, "STOPPED")
    assert "it is STOPPED, tasks: none" in found.message
    assert APPLY in found.message and BACK in found.message


@pytest.mark.parametrize(
    ("asking", "words"), [("STOPPED", "nobody can tell: it stays so"), ("", "no known run of this tool")]
)
def test_stop_that_the_next_run_takes_for_somebodys_has_the_command_that_ends_it(
    asking: str, words: str
) -> None:
    """To run it again would leave it stopped."""
    clusters = Clusters("STOPPED", state("STOPPED"))
    begun = Manifest.begin(MIGRATE, "c", (GLOBAL, OWN), "RUNNING", {}, {}, exactly_once=True)
    clusters.run = begun.with_orders({}, asking)
    found = clusters.end(Retriable("away"))
    assert words in found.message and RESUME in found.message
    assert found.message.index(RESUME) < found.message.index(APPLY)
    clusters.run = begun.with_orders({"target": 7})
    assert RESUME not in clusters.end(Retriable("away")).message


@pytest.mark.parametrize("away", [True, False])
def test_where_nobody_can_tell_what_the_next_run_makes_of_it_both_are_named(*, away: bool) -> None:
    """The broker with the runs is away, or the one with the orders."""
    clusters = Clusters(Retriable("away") if away else "STOPPED", state("STOPPED"))
    clusters.run = Retriable("away")
    found = clusters.end(Retriable("away"))
    assert APPLY in found.message and f"if it stays stopped then, {RESUME}" in found.message


def test_connector_that_does_what_it_did_is_left_as_refused() -> None:
    """Nothing has to be undone, so nothing is named."""
    found = Clusters("STARTED", state("RUNNING"), state("RUNNING", "RUNNING")).end()
    assert (found.outcome, found.facts["state"]) == (EndState.REFUSED, "RUNNING")
    assert "rollback" not in found.message


def test_stop_that_is_still_asked_of_it_is_told_after_the_time() -> None:
    """Its task ends in its own time."""
    found = Clusters("STOPPED", state("RUNNING", "RUNNING")).end()
    assert (found.outcome, found.facts["state"]) == (EndState.UNFINISHED, "RUNNING")
    assert "it is RUNNING, tasks: 0 RUNNING, and STOPPED is asked of it" in found.message
    assert BACK in found.message


def test_connector_that_was_stopped_before_is_left_as_it_was() -> None:
    """Nobody owes it anything."""
    found = Clusters("STOPPED", state("STOPPED")).end(initial="STOPPED")
    assert found.outcome is EndState.REFUSED


def test_without_the_workers_records_a_state_that_lasts_is_enough() -> None:
    """Their Kafka cluster is away; it is asked once."""
    clusters = Clusters(Retriable("away"), state("UNASSIGNED"), state("STOPPED"))
    found = clusters.end(Retriable("away"))
    assert (found.outcome, found.facts["state"], clusters.asked_for) == (EndState.RETRIABLE, "STOPPED", 1)
    assert APPLY in found.message


@pytest.mark.parametrize(
    ("operation", "on", "back"),
    [
        (MIGRATION, "apply trial --connector c`", "downgrade trial --connector c --mode hard --apply"),
        (
            f"connectors {HARD}",
            "downgrade trial --connector c --mode hard --apply",
            "apply trial --connector c`",
        ),
    ],
)
def test_connector_that_goes_on_with_another_topic_has_its_ways(operation: str, on: str, back: str) -> None:
    """Created anew by a person, say: its offsets are carried along either way."""
    found = Clusters("STARTED", state("RUNNING", "RUNNING", topic="x")).end(operation=operation)
    assert (found.outcome, found.facts["state"]) == (EndState.UNFINISHED, "RUNNING")
    assert found.message.index(on) < found.message.index(back)


def test_each_operation_is_gone_on_with_by_its_own_command() -> None:
    """And a way back has no way back."""
    for operation, on in (
        (f"connectors {SOFT}", "downgrade trial --connector c --mode soft --apply`, or take it back"),
        (f"connectors {HARD}", "downgrade trial --connector c --mode hard --apply`, or take it back"),
        (ROLLBACK, "run again with `onceover connectors rollback trial --connector c --apply`"),
    ):
        found = Clusters("STOPPED", state("STOPPED")).end(operation=operation)
        assert on in found.message
        assert found.message.count("`") == (2 if operation == ROLLBACK else 4)


def test_topic_that_was_asked_for_is_part_of_the_way_on() -> None:
    clusters = Clusters("STOPPED", state("STOPPED"))
    view = ConnectorView(state("RUNNING", "RUNNING"), facts(), OWN)
    found = ended(clusters.context("it's"), MIGRATION, view, CHANGED)
    assert """apply trial --connector c --topic 'it'"'"'s'`""" in found.message


@pytest.mark.parametrize("silent", [Retriable("no worker answers"), KeyError("status")])
def test_what_nobody_can_look_at_may_be_stopped(silent: Exception) -> None:
    """What ended the run is told all the same, whatever the look meets."""
    found = Clusters("STOPPED", silent).end()
    assert (found.outcome, found.facts["state"]) == (EndState.UNFINISHED, None)
    assert "its configuration changed" in found.message and "its state is not known now" in found.message
    assert APPLY in found.message and BACK in found.message


def test_connector_that_was_deleted_is_told_so() -> None:
    """There is nothing to go on with."""
    gone = UsageError("there is no such connector", code="NO_CONNECTOR")
    found = Clusters(None, gone).end()
    assert (found.outcome, found.message.endswith("somebody has deleted it")) == (EndState.UNFINISHED, True)


def test_run_that_was_fenced_leaves_its_ways_to_the_other() -> None:
    found = Clusters("STOPPED", state("STOPPED")).end(Fenced("fenced"))
    assert (found.outcome, found.facts["state"]) == (EndState.FENCED, "STOPPED")
    assert "another run has it now; it is STOPPED" in found.message and "rollback" not in found.message


@pytest.mark.parametrize(
    ("error", "expected", "code"),
    [
        (Retriable("x"), 5, "Retriable"),
        (MustReset("x"), 5, "MustReset"),
        (Fenced("x"), 4, "Fenced"),
        (NeedsOperator("x"), 3, "NeedsOperator"),
        (UsageError("x"), 3, "UsageError"),
        (Fatal("x"), 1, "Fatal"),
        (SystemError("x"), 1, "UNEXPECTED"),
    ],
)
def test_error_of_one_connector_has_its_exit_code(error: Exception, expected: int, code: str) -> None:
    """A refusal of one of several is for a person to decide about; what nobody foresaw is its failure."""
    found = outcome_of("c", error)
    assert (found.outcome.exit_code, (found.error or {})["code"]) == (expected, code)
    # Whoever reads the document alone learns where, and what to do.
    assert (found.error or {})["where"] and (found.error or {})["resolve"]
