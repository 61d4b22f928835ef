"""What a person is told about a live Connect cluster, and what is asked of them for no reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onceover.connectors.steps import StepName
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import Workers
from tests.support.connect.connect_tool import Case, Tool, write_raw


@pytest.fixture
def case(workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path) -> Iterator[Case]:
    """Connectors on the exactly-once workers."""
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        yield case


@pytest.mark.soak
def test_a_topic_that_was_named_once_is_kept(case: Case) -> None:
    """Every later run without ``--topic`` finds it in order, and asks for no decision."""
    case.begin()
    topic = f"{case.name}-mine"
    first = case.tool.apply(case.name, options=["--topic", topic])
    assert (first.code, case.connect.config(case.name)["offsets.storage.topic"]) == (0, topic), first

    # From where to where it went is said, not only that it did.
    (position, *_) = first.of(case.name)["positions"]
    assert position["from"].startswith("count ") and position["from"] != position["to"]
    assert f"{position['from']} -> " in first.of(case.name)["message"]
    planned, again = case.tool.plan(case.name), case.tool.apply(case.name)

    assert (planned.code, planned.document["changes"]) == (0, [])
    assert (again.code, again.outcome(case.name)) == (0, "done"), again
    # Another one that is named is another matter.
    other = case.tool.plan(case.name, options=["--topic", f"{topic}-2"])
    assert (other.code, other.codes()) == (3, {"OTHER_TOPIC"})


def test_a_plan_says_how_long_a_connector_stands(
    workers: Workers, target_cluster: SharedCluster, case: Case, tmp_path: Path
) -> None:
    """And that it stays so, where it does: until its workers are changed."""
    case.begin()
    planned = case.tool.plan(case.name).of(case.name)
    assert 0 < planned["outage_s"] < 60 and "stands still for about" in planned["notes"][0]
    soft = case.tool.run("downgrade", "--connector", case.name, "--mode", "soft").of(case.name)
    assert soft["outage_s"] is None and "stays STOPPED" in soft["notes"][0]
    # Nothing fences a task without exactly-once: two looks, an interval of commits apart.
    with Case(tmp_path, f"{case.name}-plain", workers.plain, target_cluster.client) as plain:
        plain.begin()
        assert plain.tool.plan(plain.name).of(plain.name)["outage_s"] > planned["outage_s"]


@pytest.mark.soak
def test_every_worker_is_named_once(case: Case) -> None:
    """A worker that is counted twice, or found by itself, hides one that nobody has asked for its tasks."""
    first, second = case.cluster.urls
    case.begin()
    for names, told in (
        ([first], f"nobody named {second}"),
        ([first, first.replace("127.0.0.1", "localhost")], "lead to the same worker"),
    ):
        case.tool.ask(*names)
        refused = case.tool.plan(case.name)
        error = refused.document["error"]
        assert (refused.code, error["code"]) == (3, "WORKERS_DIFFER"), refused
        assert told in error["seen"]
    # By another name, and in another order, it is the same worker.
    case.tool.ask(second.replace("127.0.0.1", "localhost"), first)
    assert case.tool.plan(case.name).code == 0


@pytest.mark.soak
def test_a_file_that_does_not_say_the_mode_is_asked_to(case: Case, tmp_path: Path) -> None:
    """Taken for workers without exactly-once, these would have what their tasks aborted copied."""
    case.begin()
    lines = case.cluster.properties_path.read_text().splitlines()
    short = tmp_path / "short.properties"
    short.write_text("\n".join(line for line in lines if not line.startswith("exactly.once.source.support")))
    tool = Tool(tmp_path / "short", case.cluster, keys={"worker_config": str(short)})

    planned = tool.plan(case.name)

    assert (planned.code, planned.codes()) == (3, {"WORKER_MODE"}), planned
    assert case.tool.plan(case.name).code == 0


def test_a_path_that_no_worker_has_is_nothing_to_wait_for(case: Case) -> None:
    """A worker answers there in words of its own; whoever repeats the command would do so for ever."""
    urls = [f"{url}/foo" for url in case.cluster.urls]
    case.tool.ask(*urls)

    listed = case.tool.run("list")

    assert (listed.code, listed.document["error"]["code"]) == (2, "NO_WORKER"), listed
    assert listed.document["error"]["where"] == urls[0]


def once(wanted: StepName, act: Callable[[], None]) -> Callable[[StepName], None]:
    """Return a listener that acts the first time that a step is reached."""
    left = [act]

    def listen(step: StepName) -> None:
        if step is wanted and left:
            left.pop()()

    return listen


@pytest.mark.soak
@pytest.mark.parametrize("step", [StepName.BEGIN, StepName.STOPPED], ids=lambda s: s.name)
def test_a_downgrade_that_comes_too_late_leaves_the_shared_topic_alone(case: Case, step: StepName) -> None:
    """A person was quicker: the topic of its own, which the run has looked at, is not the truth any more."""
    case.begin()
    case.migrate()

    def take_back() -> None:
        case.connect.stop(case.name)
        case.connect.update(case.name, "offsets.storage.topic")
        case.connect.resume(case.name)
        case.connect.await_more(case.topic)

    late = case.tool.heard(once(step, take_back), "downgrade", case.name)

    assert (late.code, late.of(case.name)["error"]["code"]) == (3, "CHANGED_SINCE"), late
    assert case.connect.states(case.name)[0] == "RUNNING"
    # There is nothing to go on with: the run had come too late.
    again = case.tool.downgrade(case.name)
    assert (again.code, again.of(case.name)["message"]) == (0, "it has no topic of its own"), again
    case.connect.await_more(case.topic)
    case.assert_never_back()


@pytest.mark.soak
@pytest.mark.parametrize("step", [StepName.COPY_BEGIN, StepName.STOPPED], ids=lambda s: s.name)
def test_nothing_is_copied_from_under_a_connector_that_was_resumed(case: Case, step: StepName) -> None:
    """What was read is old by then, also where the workers' status does not tell yet."""
    case.begin()

    late = case.tool.heard(once(step, lambda: case.connect.resume(case.name)), "apply", case.name)

    assert (late.code, late.of(case.name)["error"]["code"]) == (3, "CHANGED_SINCE"), late
    assert case.connect.offsets(case.name, case.own_topic).values == {}
    case.migrate()
    case.assert_goes_on()
    case.assert_never_back()


@pytest.mark.soak
def test_a_connector_that_the_run_has_stopped_is_never_said_to_do_what_it_did(case: Case) -> None:
    """A person puts the configuration of before: its status flips for a second, and it stays stopped."""
    case.begin()

    def put_back() -> None:
        case.connect.update(case.name, "offsets.storage.topic")

    late = case.tool.heard(once(StepName.RESUME, put_back), "apply", case.name)

    found = late.of(case.name)
    assert (late.code, found["outcome"], found["state"]) == (3, "unfinished", "STOPPED"), found
    assert f"onceover connectors apply trial --connector {case.name}`" in found["message"]
    back = case.tool.rollback(case.name)
    assert (back.code, back.outcome(case.name)) == (0, "done"), back
    case.assert_goes_on()


@pytest.mark.soak
def test_a_run_is_over_once_a_person_has_resumed_the_connector(case: Case) -> None:
    """Whatever became of its offsets since is not this run's to judge by stopping it."""
    case.begin()
    case.tool.killed_at(StepName.WATCH, "apply", case.name)
    case.connect.await_more(case.topic)
    case.connect.stop(case.name)
    own = case.connect.offsets(case.name, case.own_topic)
    first = [(min(own.partitions[key]), key, values[0]) for key, values in own.history.items()]
    write_raw(case.client, case.own_topic, first)
    case.connect.resume(case.name)
    case.connect.await_more(case.topic)

    planned, applied = case.tool.plan(case.name), case.tool.apply(case.name)

    assert (planned.code, planned.document["changes"]) == (0, [])
    assert applied.outcome(case.name) in ("done", "failed"), applied
    assert case.connect.config(case.name)["offsets.storage.topic"] == case.own_topic
    assert case.connect.states(case.name)[0] == "RUNNING"


@pytest.mark.soak
def test_a_connector_that_a_person_stopped_stays_stopped(case: Case) -> None:
    """Also where a run had stopped it before, and was killed: somebody has resumed it since."""
    case.begin()
    case.tool.killed_at(StepName.COPY_BEGIN, "apply", case.name)
    case.connect.resume(case.name)
    case.connect.await_more(case.topic)
    case.connect.stop(case.name)

    case.migrate(outcome="unverifiable")

    case.connect.await_stopped(case.name)
    case.connect.resume(case.name)
    case.assert_goes_on()
    case.assert_never_back()


@pytest.mark.soak
def test_an_offset_that_is_deleted_stops_nobody(case: Case) -> None:
    """As a task does that is through with a file: while it is watched, and later."""
    case.begin()

    def delete() -> None:
        found = case.connect.offsets(case.name, case.own_topic).partitions
        key = min(found)
        write_raw(case.client, case.own_topic, [(min(found[key]), key, None)])

    watched = case.tool.heard(once(StepName.WATCH, delete), "apply", case.name)
    case.connect.await_more(case.topic)
    case.connect.stop(case.name)
    delete()
    later = case.tool.verify(case.name).of(case.name)

    assert watched.outcome(case.name) == "done", watched
    assert (later["ended"], later["forward"], later["back"]) == (1, 1, 0), later
    # Somebody has stopped it since: that it goes on, nobody can say.
    assert later["outcome"] == "unverifiable", later
