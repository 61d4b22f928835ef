"""A run that gives an order: what came beside it, and what it does about that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest

from onceover.connectors.moving import holding
from onceover.connectors.moving.context import MIGRATE, Context
from onceover.connectors.moving.holding import HeldRun
from onceover.connectors.offsets.configtopic import CONFIG, TARGET, ConfigRecords, Order
from onceover.connectors.planning.access import ConnectAccess
from onceover.connectors.planning.view import Observer
from onceover.connectors.record.manifest import Manifest
from onceover.connectors.record.runrecords import RunClaim, RunRecords
from onceover.connectors.settings import ConnectorRequest
from onceover.connectors.workers.lifecycle import Lifecycle
from onceover.connectors.workers.rest import ConnectRest
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable
from tests.unit.connectors.views import GLOBAL, OWN, facts, view

Act = Callable[[], object]


@dataclass
class Topic:
    """The workers' configuration topic: what was asked of connector ``c``."""

    given: dict[str, list[Order]] = field(default_factory=dict)
    ends: int = 100

    def write(self, what: str, asked: Any) -> int:
        """Take an order; return its offset."""
        self.ends += 1
        self.given.setdefault(what, []).append(Order(self.ends, self.ends, asked))
        return self.ends

    def records(self) -> ConfigRecords:
        """Return what a reader finds."""
        keys = {CONFIG: "connector-c", TARGET: "target-state-c"}
        last = {keys[what]: some[-1] for what, some in self.given.items()}
        return ConfigRecords(
            {key: {"state.v2": order.asked} for key, order in last.items()},
            {key: order.offset for key, order in last.items()},
            {keys[what]: tuple(some) for what, some in self.given.items()},
        )


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """A running connector's."""
    found = Topic()
    found.write(CONFIG, {"name": "c"})
    found.write(TARGET, "STARTED")
    monkeypatch.setattr(Observer, "config_records", lambda _: found.records())
    monkeypatch.setattr(holding, "_WRITTEN_S", 0.0)
    monkeypatch.setattr(holding, "_LOST_S", 0.0)
    return found


@pytest.fixture
def run(topic: Topic, tmp_path: Any) -> HeldRun:
    """A run that has looked, and holds its claim."""
    access = mock.Mock(spec=ConnectAccess)
    access.rest = mock.Mock(spec=ConnectRest, sent=0)
    access.records = mock.Mock(spec=RunRecords)
    access.records.load.return_value, access.records.place.return_value = None, "kafka/g"
    access.records.claim.return_value = mock.Mock(spec=RunClaim)
    access.settings = mock.Mock(home=tmp_path)
    access.config_topic, access.worker_cluster = "connect-configs", mock.Mock(alias="kafka")
    manifest = Manifest.begin(MIGRATE, "c", (GLOBAL, OWN), "RUNNING", {}, {}, exactly_once=True)
    context = Context(access, facts(), ConnectorRequest(("c",)), mock.Mock())
    found = HeldRun(context, view([], records=topic.records()), manifest.with_step("begin"), mock.Mock())
    found.lifecycle = mock.Mock(spec=Lifecycle)
    return found


def give(run: HeldRun, what: str, wanted: Any, send: Callable[[Act], object], *, sent: int = 1) -> None:
    """Give an order; ``sent``: how many times the workers may have taken it."""
    rest: Any = run.context.access.rest
    with run.alone(), run.ordering(what, wanted) as taken:
        rest.sent += sent
        send(taken)


def stop(
    run: HeldRun,
    topic: Topic,
    before: Act = lambda: None,
    behind: Act = lambda: None,
    *,
    sent: int = 1,
) -> None:
    """Ask for a stop; somebody does something while that is on its way."""

    def send(taken: Act) -> None:
        before()
        topic.write(TARGET, "STOPPED")
        behind()
        taken()

    give(run, TARGET, "STOPPED", send, sent=sent)


def claim_of(run: HeldRun) -> Any:
    """Return the claim that a run gets."""
    records: Any = run.context.access.records
    return records.claim.return_value


def lifecycle_of(run: HeldRun) -> Any:
    """Return what the run commands the connector with."""
    return run.lifecycle


def test_order_that_is_alone_is_the_runs(run: HeldRun, topic: Topic) -> None:
    """It goes on with it, and notes it for the others."""
    stop(run, topic)
    assert run.manifest.left == topic.records().orders("c")
    assert (run.manifest.asking, run.manifest.given) == ("", (topic.ends,))
    run.check_orders()


@pytest.mark.parametrize(("what", "wanted"), [(TARGET, "STOPPED"), (CONFIG, {"name": "c"})])
def test_order_that_nobody_has_written_down_went_to_other_workers(
    run: HeldRun, what: str, wanted: Any
) -> None:
    """What follows would be done to one connector by what another one of its name has read."""
    with pytest.raises(NeedsOperator) as caught:
        give(run, what, wanted, lambda taken: taken())
    assert caught.value.code == "WORKERS_DIFFER"
    assert "curl -X PUT http://w:8083/connectors/c/resume" in (caught.value.resolve or "")


def test_order_that_was_sent_twice_and_taken_twice_is_the_runs(run: HeldRun, topic: Topic) -> None:
    """A proxy gave up on the first one, and the workers did not: nobody else was there."""
    stop(run, topic, behind=lambda: topic.write(TARGET, "STOPPED"), sent=2)
    assert run.manifest.left == topic.records().orders("c")
    assert run.manifest.given == (topic.ends - 1, topic.ends)
    run.check_orders()


def test_order_beyond_what_was_sent_is_somebody_elses(run: HeldRun, topic: Topic) -> None:
    """Two were sent, and three came."""

    def behind() -> None:
        topic.write(TARGET, "STOPPED")
        topic.write(TARGET, "STOPPED")

    with pytest.raises(NeedsOperator) as caught:
        stop(run, topic, behind=behind, sent=2)
    assert caught.value.code == "CHANGED_SINCE"
    assert "this run's among them, sent 2 times" in str(caught.value.seen)
    assert run.manifest.overtaken(topic.records())


def test_repetition_that_comes_late_is_told_as_possible(run: HeldRun, topic: Topic) -> None:
    """It may be a person's as well, so the run is over; but nobody is blamed for sure."""
    stop(run, topic, sent=2)
    topic.write(TARGET, "STOPPED")
    with pytest.raises(NeedsOperator) as caught:
        run.check_orders()
    assert "or this run's, which it had to send again" in str(caught.value.seen)


def test_configuration_of_somebody_else_is_not_taken_for_the_runs(run: HeldRun, topic: Topic) -> None:
    """Where the run's own was not written, or is not yet."""

    def put(taken: Act) -> None:
        topic.write(CONFIG, {"name": "c", "batch": "7"})
        taken()

    with pytest.raises(NeedsOperator):
        give(run, CONFIG, {"name": "c", "offsets.storage.topic": OWN}, put)
    assert not run.manifest.given


@pytest.mark.parametrize(("asked", "word"), [("STARTED", "resume"), ("PAUSED", "resume")])
def test_order_that_the_runs_came_behind_is_given_back(
    run: HeldRun, topic: Topic, asked: str, word: str
) -> None:
    """And the run is over: the next one knows that somebody has commanded the connector."""
    with pytest.raises(NeedsOperator) as caught:
        stop(run, topic, before=lambda: topic.write(TARGET, asked))
    assert caught.value.code == "CHANGED_SINCE"
    assert f"{asked} was asked for again" in str(caught.value.resolve)
    getattr(lifecycle_of(run), word).assert_called_once()
    assert run.manifest.overtaken(topic.records())


@pytest.mark.parametrize("asked", ["STARTED", "STOPPED"])
def test_order_behind_the_runs_is_left_alone(run: HeldRun, topic: Topic, asked: str) -> None:
    """It is what the workers obey."""
    with pytest.raises(NeedsOperator) as caught:
        stop(run, topic, behind=lambda: topic.write(TARGET, asked))
    assert caught.value.code == "CHANGED_SINCE"
    assert not lifecycle_of(run).mock_calls
    assert run.manifest.overtaken(topic.records())


def test_giving_back_that_fails_names_the_command(run: HeldRun, topic: Topic) -> None:
    """Nobody else would know."""
    lifecycle_of(run).resume.side_effect = Retriable("no worker answers")
    with pytest.raises(NeedsOperator) as caught:
        stop(run, topic, before=lambda: topic.write(TARGET, "STARTED"))
    assert "no worker answers" in str(caught.value.resolve)
    assert "`curl -X PUT http://w:8083/connectors/c/resume`" in str(caught.value.resolve)


def overtaken(run: HeldRun, topic: Topic, *, noted: bool = True) -> Act:
    """Return the deed of another run: it takes over, stops the connector, and lets it run again."""

    def act() -> None:
        claim_of(run).write.side_effect = Fenced("another run")
        given = [topic.write(TARGET, asked) for asked in ("STOPPED", "STARTED")]
        other = Manifest.begin(MIGRATE, "c", (GLOBAL, OWN), "RUNNING", {}, {}, exactly_once=True)
        for offset in given if noted else ():
            other = other.with_given(offset)
        run.context.access.records.load.return_value = other  # pyrefly: ignore[missing-attribute]

    return act


def test_late_order_of_a_run_that_was_overtaken_is_taken_back(run: HeldRun, topic: Topic) -> None:
    """The newer run has noted which orders were its own."""
    with pytest.raises(Fenced) as caught:
        stop(run, topic, before=overtaken(run, topic))
    assert "asked for STOPPED all the same" in caught.value.message
    assert "STARTED was asked for again" in str(caught.value.resolve)
    lifecycle_of(run).resume.assert_called_once_with("c", "RUNNING")


def test_late_order_that_nobody_can_tell_from_anothers_is_told(run: HeldRun, topic: Topic) -> None:
    """Nothing is commanded on a guess; the command is named."""
    with pytest.raises(Fenced) as caught:
        stop(run, topic, before=overtaken(run, topic, noted=False))
    assert not lifecycle_of(run).mock_calls
    assert "nobody can tell" in str(caught.value.resolve)
    assert "/connectors/c/resume`" in str(caught.value.resolve)


def test_run_that_was_overtaken_before_its_order_sends_nothing(run: HeldRun, topic: Topic) -> None:
    """What it notes first is what tells it."""
    claim_of(run).write.side_effect = Fenced("another run")
    with pytest.raises(Fenced, match="another run"):
        stop(run, topic)
    assert topic.records().target("c") == "STARTED"


@pytest.mark.parametrize("ended", [Retriable, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("arrives", "sent", "own"),
    [
        (["STOPPED"], 1, True),
        ([], 1, False),
        (["STARTED", "STOPPED"], 1, False),
        (["STOPPED", "STOPPED"], 3, True),
        (["STOPPED", "STOPPED"], 1, False),
        # Ended before it was sent: it cannot be its own.
        (["STOPPED"], 0, False),
    ],
)
def test_order_without_an_answer_is_the_runs_where_it_is_alone(
    run: HeldRun, topic: Topic, *, arrives: list[str], sent: int, own: bool, ended: type[BaseException]
) -> None:
    """Of the time in which it was on its way; of any other the next run does not know whose it is."""

    def lose(_taken: Act) -> None:
        for asked in arrives:
            topic.write(TARGET, asked)
        raise ended("no answer")

    with pytest.raises(ended, match="no answer"):
        give(run, TARGET, "STOPPED", lose, sent=sent)
    assert bool(run.manifest.given) is own
    topic.write(TARGET, "STOPPED")
    assert run.manifest.overtaken(topic.records())
    assert (run.manifest.asking == "STOPPED") is (not own)


def test_wait_that_ends_because_of_somebody_says_so(run: HeldRun, topic: Topic) -> None:
    """Not that the connector does not stop: somebody wants it to run."""

    def wait(taken: Act) -> None:
        topic.write(TARGET, "STOPPED")
        taken()
        topic.write(TARGET, "STARTED")
        raise Retriable("did not become stopped")

    with pytest.raises(NeedsOperator, match="what is asked of it changed"):
        give(run, TARGET, "STOPPED", wait)


@pytest.mark.parametrize(("state", "put_back"), [("STOPPED", True), ("STARTED", False)])
def test_configuration_is_put_back_while_nothing_runs_with_the_runs(
    run: HeldRun, topic: Topic, state: str, *, put_back: bool
) -> None:
    """Tasks that have begun with another offsets topic would repeat records on the way back."""
    theirs, ours = {"name": "c", "batch": "7"}, {"name": "c", "offsets.storage.topic": OWN}

    def put(taken: Act) -> None:
        topic.write(CONFIG, theirs)
        topic.write(CONFIG, ours)
        topic.write(TARGET, state)
        taken()

    with pytest.raises(NeedsOperator) as caught:
        give(run, CONFIG, ours, put)
    assert caught.value.code == "CHANGED_SINCE"
    assert "batch" not in str(caught.value.as_dict())
    # Put again as it was, theirs would have it go on from the other topic all the same.
    line = "put the other one again, with offsets.storage.topic as it has it now"
    assert (line in (caught.value.resolve or "")) is not put_back
    calls = [mock.call("c", theirs)] if put_back else []
    assert lifecycle_of(run).configure.call_args_list == calls


def test_connector_that_was_deleted_and_made_anew_by_the_runs_order_is_told_of(
    run: HeldRun, topic: Topic
) -> None:
    """Nobody else would know that it runs again."""
    ours = {"name": "c", "offsets.storage.topic": OWN}

    def put(taken: Act) -> None:
        topic.write(CONFIG, None)
        topic.write(CONFIG, ours)
        taken()

    with pytest.raises(NeedsOperator) as caught:
        give(run, CONFIG, ours, put)
    assert "curl -X DELETE http://w:8083/connectors/c`" in (caught.value.resolve or "")


def test_configuration_that_a_deleted_connector_was_made_anew_with_is_put_back(
    run: HeldRun, topic: Topic
) -> None:
    """Somebody has deleted it and made it otherwise: to delete that one again is nobody's wish."""
    ours, theirs = ({"name": "c", "offsets.storage.topic": each} for each in (OWN, "theirs"))
    topic.write(TARGET, "STOPPED")

    def put(taken: Act) -> None:
        topic.write(CONFIG, None)
        topic.write(CONFIG, theirs)
        topic.write(CONFIG, ours)
        taken()

    run._orders = topic.records().orders("c")
    with pytest.raises(NeedsOperator) as caught:
        give(run, CONFIG, ours, put)
    assert "DELETE" not in (caught.value.resolve or "")
    assert lifecycle_of(run).configure.call_args_list == [mock.call("c", theirs)]


def test_connector_that_was_deleted_behind_the_runs_order_is_gone(run: HeldRun, topic: Topic) -> None:
    """It does not run, so there is nothing to delete again."""
    ours = {"name": "c", "offsets.storage.topic": OWN}

    def put(taken: Act) -> None:
        topic.write(CONFIG, ours)
        topic.write(CONFIG, None)
        taken()

    with pytest.raises(NeedsOperator) as caught:
        give(run, CONFIG, ours, put)
    assert "DELETE" not in (caught.value.resolve or "")


def test_error_of_a_cluster_that_is_away_hides_no_record_that_was_read(run: HeldRun, topic: Topic) -> None:
    """What other runs have noted cannot be read: then nobody can tell whose is whose."""
    run.context.access.records.load.side_effect = OnceoverError("away")  # pyrefly: ignore[missing-attribute]
    with pytest.raises(Fenced) as caught:
        stop(run, topic, before=overtaken(run, topic))
    assert "nobody can tell" in str(caught.value.resolve)


def test_order_that_the_cluster_cannot_be_told_of_is_known_at_this_machine(
    run: HeldRun, topic: Topic
) -> None:
    """The next run goes on: the record was the run's own, and it knew."""

    def away(_manifest: Manifest) -> None:
        if topic.records().target("c") == "STOPPED":
            raise Retriable("away")

    claim_of(run).write.side_effect = away
    with pytest.raises(Retriable, match="away"):
        stop(run, topic)
    found = run.context.store.load("c", MIGRATE)
    assert found is not None and not found.overtaken(topic.records())
    assert (found.asking, found.given) == ("", (topic.ends,))


def test_order_is_noted_as_soon_as_the_cluster_can_be_told(run: HeldRun, topic: Topic) -> None:
    """Before the run ends: whoever goes on may sit at another machine."""
    told: list[Manifest] = []
    away = [True]

    def write(manifest: Manifest) -> None:
        if topic.records().target("c") == "STOPPED" and away:
            away.pop()
            raise Retriable("away")
        told.append(manifest)

    claim_of(run).write.side_effect = write
    with pytest.raises(Retriable):
        stop(run, topic)
    assert not told[-1].overtaken(topic.records())
