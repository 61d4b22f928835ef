"""What a catalogue hears of a run that lasts longer than the catalogue was away."""

from __future__ import annotations

import threading

import pytest
from openlineage.client.event_v2 import RunEvent, RunState

from onceover_airflow.lineage.about import CopyEvents
from onceover_airflow.lineage.naming import FlowEnds
from onceover_airflow.lineage.toldrun import Teller, ToldRun
from tests.support.session.wait import wait_until

ENDS = FlowEnds("flights", ("kafka://a:1",), ("kafka://b:2",))
RUN_ID = "0199a3c5-0000-7000-8000-000000000001"
TIMEOUT_S = 20.0


def told_run(teller: Teller) -> ToldRun:
    return ToldRun(CopyEvents.of("space", ENDS), RUN_ID, {}, "https://x", teller, lambda: False, TIMEOUT_S)


def test_a_copy_is_told_of_again_while_nothing_changes() -> None:
    heard: list[RunEvent] = []
    teller = Teller(heard.append, lambda: None, again_s=0.001)
    run = told_run(teller)

    def names_topic() -> int:
        return sum(bool(event.outputs) for event in list(heard))

    with run:
        run.copies({"flights.x": "copy.x"})
        wait_until(lambda: names_topic() >= 3, TIMEOUT_S, "the topic is told of again")
    kinds = [event.eventType for event in heard]
    assert kinds[0] is RunState.START
    assert kinds[-1] is RunState.COMPLETE
    assert set(kinds[1:-1]) == {RunState.RUNNING}
    assert [each.name for each in heard[-1].outputs or ()] == ["copy.x"]


def test_what_cannot_be_sent_takes_nothing_from_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    """Such as a Connection that is looked up while Airflow's server restarts: a copy may run for months."""
    heard: list[RunEvent] = []

    def emit(event: RunEvent) -> None:
        if event.eventType is RunState.START:
            raise RuntimeError("secret")
        heard.append(event)

    with told_run(Teller(emit, lambda: None)) as run:
        run.copies({"flights.x": "copy.x"})
    assert [event.eventType for event in heard] == [RunState.RUNNING, RunState.COMPLETE]
    assert "lineage is not told: RuntimeError" in caplog.text
    assert "secret" not in caplog.text


def test_a_copy_goes_on_where_no_thread_is_to_be_had(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    copied = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with told_run(Teller(lambda _: None, lambda: None)) as run:
            run.copies({"flights.x": "copy.x"})
            copied.append(True)
    assert copied
    assert "lineage is not told: RuntimeError" in caplog.text
