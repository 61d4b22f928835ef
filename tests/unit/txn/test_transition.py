"""Legal steps lead where they should, illegal ones are refused, for every pair of phase and event."""

from __future__ import annotations

import pytest

from onceover.txn.txnstate import Event, IllegalTransition, Phase, transition

LEGAL: dict[Phase, dict[Event, Phase]] = {
    Phase.UNINITIALIZED: {Event.INIT_SENT: Phase.INITIALIZING},
    Phase.INITIALIZING: {Event.INIT_SENT: Phase.INITIALIZING, Event.INIT_OK: Phase.READY},
    Phase.READY: {Event.PART_SENT: Phase.IN_TRANSACTION},
    Phase.IN_TRANSACTION: {
        Event.PART_SENT: Phase.IN_TRANSACTION,
        Event.PART_OK: Phase.IN_TRANSACTION,
        Event.PART_REFUSED: Phase.MUST_ABORT,
        Event.COMMIT_SENT: Phase.COMMITTING,
        Event.ABORT_SENT: Phase.ABORTING,
    },
    Phase.MUST_ABORT: {
        Event.PART_OK: Phase.MUST_ABORT,
        Event.PART_REFUSED: Phase.MUST_ABORT,
        Event.ABORT_SENT: Phase.ABORTING,
    },
    Phase.COMMITTING: {Event.COMMIT_SENT: Phase.COMMITTING, Event.END_OK: Phase.READY},
    Phase.ABORTING: {Event.ABORT_SENT: Phase.ABORTING, Event.END_OK: Phase.READY},
    Phase.NEEDS_RESET: {},
    Phase.CLOSED: {},
}


def expected(phase: Phase, event: Event) -> Phase | None:
    if event is Event.CLOSED or phase is Phase.CLOSED:
        return Phase.CLOSED if event in (Event.CLOSED, Event.LOST) else None
    always = {
        Event.LOST: Phase.NEEDS_RESET,
        Event.RESET: Phase.UNINITIALIZED,
    }
    return always.get(event) or LEGAL[phase].get(event)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", Event)
def test_each_pair_of_phase_and_event(phase: Phase, event: Event) -> None:
    following = expected(phase, event)
    if following is None:
        with pytest.raises(IllegalTransition, match=f"{event.name} while {phase.name}"):
            transition(phase, event)
    else:
        assert transition(phase, event) is following


def test_nothing_but_a_reset_or_the_end_leads_out_of_lost() -> None:
    ways = {event: expected(Phase.NEEDS_RESET, event) for event in Event}
    assert {event for event, phase in ways.items() if phase not in (None, Phase.NEEDS_RESET)} == {
        Event.RESET,
        Event.CLOSED,
    }
