"""What became of a connector that a run left on its way: in which state, and the ways on and back.

Invariant: what is told lasts. A status flips for seconds after every order, and a stop whose answer was lost
may still be obeyed: so the workers' word is compared with what was asked of them last.
"""

from __future__ import annotations

import logging
import shlex
import time
from typing import Final

from onceover.backoff import Deadline
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import (
    FAILED_STATE,
    PAUSED,
    RUNNING,
    STOPPED,
    UNASSIGNED,
    ConnectorOutcome,
    ConnectorState,
    EndState,
)
from onceover.connectors.moving.context import HARD, SOFT, Context
from onceover.connectors.offsets.configtopic import STARTED
from onceover.connectors.planning.view import ConnectorView
from onceover.connectors.record.commands import asking_command, connector_words, rollback_command
from onceover.connectors.record.orders import asked_for, standing
from onceover.connectors.workers.lifecycle import described
from onceover.errors import (
    Fenced,
    MustReset,
    NeedsOperator,
    OnceoverError,
    Retriable,
    UsageError,
    unexpected,
)

log = logging.getLogger(__name__)

MIGRATION: Final = "connectors"
ROLLBACK: Final = "connectors rollback"
# A stop takes a second, and 5 s where a task does not end by itself; a connector gets its tasks within two.
_SETTLE_S: Final = 15.0
_POLL_S: Final = 0.5
_APPLY: Final = "--apply"


def own_error(error: Exception) -> OnceoverError:
    """Return an error as one of ours: what nobody foresaw about one connector is its outcome, too."""
    if isinstance(error, OnceoverError):
        return error
    log.debug("nobody foresaw this", exc_info=error)
    return unexpected(error, resolve="run it again with ONCEOVER_LOG=DEBUG for the traceback")


def outcome_of(name: str, error: Exception) -> ConnectorOutcome:
    """Return what an error means for one connector of several."""
    ours = own_error(error)
    if isinstance(ours, Retriable | MustReset):
        outcome = EndState.RETRIABLE
    elif isinstance(ours, Fenced):
        outcome = EndState.FENCED
    elif isinstance(ours, NeedsOperator | UsageError):
        outcome = EndState.REFUSED
    else:
        outcome = EndState.FAILED
    return ConnectorOutcome(name, outcome, str(ours), ours.as_dict(name))


def ended(context: Context, operation: str, view: ConnectorView, error: Exception) -> ConnectorOutcome:
    """Return what became of a connector that was left on the way, how it was left, and what to do next."""
    told = outcome_of(view.name, error)
    ways = GoOnCommands(context, operation, view.name)
    try:
        now, asked = settled(context, view.name)
    except Exception as silent:  # noqa: BLE001 - what ended the run is not to be hidden by a look
        words = own_error(silent)
        if words.code == ConnectorCode.NO_CONNECTOR:
            return told.left("it is gone: somebody has deleted it", None, unfinished=True)
        return told.left(
            f"its state is not known now ({words.message}): {ways.stopped}{_perhaps(context, view)}",
            None,
            unfinished=True,
        )
    text = f"it is {described(now)}"
    if not _agrees(now, asked):
        text += f", and {asked} is asked of it"
    if told.outcome is EndState.FENCED:
        return told.left(f"another run has it now; {text}", now.state)
    stopped = STOPPED in (now.state, asked) and view.initial_state != STOPPED
    moved = now.offsets_topic != view.state.offsets_topic
    if stopped or moved:
        text += f": {_on(context, view, asked, ways) if stopped else ways.moved}"
    return told.left(text, now.state, unfinished=stopped or moved)


def _on(context: Context, view: ConnectorView, asked: str | None, ways: GoOnCommands) -> str:
    """Return the way on from a stop, which is another one where the next run takes it for somebody's."""
    if asked is None:
        return f"{ways.stopped}{_perhaps(context, view)}"
    try:
        records, newest = context.observer.config_records(), context.newest(view.name)
    except Exception as error:  # noqa: BLE001 - as above
        log.info("%s: what the next run makes of it is not known: %s", view.name, error)
        return f"{ways.stopped}{_perhaps(context, view)}"
    stays = standing(records, newest, context.facts.workers[0])
    return f"{stays}; then {ways.stopped}" if stays else ways.stopped


def _perhaps(context: Context, view: ConnectorView) -> str:
    command = asking_command(context.facts.workers[0], view.name, asked_for(view.initial_state))
    return f"; if it stays stopped then, `{command}`"


def settled(context: Context, name: str) -> tuple[ConnectorState, str | None]:
    """Wait until a connector is what was asked of it; return what it is then, or in the end, and what was
    asked: ``STARTED``, ``PAUSED`` or ``STOPPED``, None where that is not known.

    Raises:
        OnceoverError: the workers do not tell.
    """
    deadline = Deadline(_SETTLE_S)
    knows = True
    asked: str | None = None
    while True:
        # First, so that a state that is as asked was so after the asking.
        if knows:
            try:
                asked = context.observer.config_records().target(name)
            except OnceoverError as error:
                log.info("%s: what is asked of it is not known: %s", name, error)
                knows = False
        now = context.access.rest.state(name)
        if _agrees(now, asked) or deadline.passed:
            return now, asked
        time.sleep(_POLL_S)


def _agrees(now: ConnectorState, asked: str | None) -> bool:
    """Tell whether a connector is what was asked of it, with its tasks, so that nothing more is to come."""
    if now.state == STOPPED:
        return asked in (STOPPED, None) and now.is_stopped
    if now.state == PAUSED:
        return asked in (PAUSED, None)
    if now.state == FAILED_STATE:
        return asked in (STARTED, None)
    has_tasks = bool(now.tasks) and all(task.state != UNASSIGNED for task in now.tasks)
    return now.state == RUNNING and asked in (STARTED, None) and has_tasks


class GoOnCommands:
    """The commands that go on with a run, and back, as a person copies them.

    Args:
        operation: of the run, as a report names it.
        name: of the connector.
    """

    def __init__(self, context: Context, operation: str, name: str) -> None:
        self._connect = context.access.settings.name
        self._topic = context.request.topic
        self._name = name
        self._operation = operation

    @property
    def stopped(self) -> str:
        """Of a connector that the run has stopped."""
        if self._operation == ROLLBACK:
            return f"run again with `{self._again()}`"
        back = rollback_command(self._connect, self._name)
        return f"run again with `{self._again()}`, or take it back with `{back}`"

    @property
    def moved(self) -> str:
        """Of one that goes on with another topic than before: its offsets are carried along either way."""
        back = self._apply() if self._operation == f"{MIGRATION} {HARD}" else self._downgrade("hard")
        return f"run again with `{self._again()}`, or take it back with `{back}`"

    def _again(self) -> str:
        if self._operation == MIGRATION:
            return self._apply()
        if self._operation == ROLLBACK:
            return rollback_command(self._connect, self._name)
        return self._downgrade("soft" if self._operation == f"{MIGRATION} {SOFT}" else "hard")

    def _apply(self) -> str:
        topic = ["--topic", self._topic] if self._topic else []
        return self._command("apply", *topic)

    def _downgrade(self, mode: str) -> str:
        return self._command("downgrade", "--mode", mode, _APPLY)

    def _command(self, action: str, *options: str) -> str:
        words = ["onceover", "connectors", action, self._connect, *connector_words([self._name]), *options]
        return shlex.join(words)
