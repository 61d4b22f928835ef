"""What a catalogue hears of a run that lasts longer than the catalogue was away."""

from __future__ import annotations

from openlineage.client.event_v2 import RunEvent, RunState

from onceover_airflow.lineage.about import CopyEvents
from onceover_airflow.lineage.naming import FlowEnds
from onceover_airflow.lineage.toldrun import Teller, ToldRun
from tests.support.session.wait import wait_until

ENDS = FlowEnds("flights", ("kafka://a:1",), ("kafka://b:2",))
RUN_ID = "0199a3c5-0000-7000-8000-000000000001"
TIMEOUT_S = 20.0


def test_a_copy_is_told_of_again_while_nothing_changes() -> None:
    heard: list[RunEvent] = []
    teller = Teller(heard.append, lambda: None, again_s=0.001)
    run = ToldRun(CopyEvents.of("space", ENDS), RUN_ID, {}, "https://x", teller, lambda: False, TIMEOUT_S)

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
