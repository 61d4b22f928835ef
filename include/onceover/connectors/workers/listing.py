"""What a Connect cluster runs, and whether what a person asks for is among it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceover.advice import nearest_fix
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import FAILED_STATE, SOURCE, UNKNOWN_TYPE, ConnectorState
from onceover.connectors.workers.lifecycle import failure_of
from onceover.errors import UsageError
from onceover.shown import lined

_MAY_BE_SOURCES: Final = (SOURCE, UNKNOWN_TYPE)
_HEADINGS: Final = ("connector", "type", "state", "tasks", "offsets topic")


@dataclass(frozen=True)
class ConnectorListing:
    """The connectors of a Connect cluster.

    Args:
        connect: its name.
        version: of the worker that answered.
        offsets_topic: the shared one.
        exactly_once: whether the workers have it enabled, as their configuration says.
        connectors: all of them, by name.
    """

    connect: str
    version: str
    offsets_topic: str
    exactly_once: bool
    connectors: tuple[ConnectorState, ...]

    @property
    def sources(self) -> list[str]:
        """Names of the source connectors: sinks keep their position in a consumer group.

        One whose plugin no worker knows may be a source: it is refused by name, and not left out in silence.
        """
        return [state.name for state in self.connectors if state.type in _MAY_BE_SOURCES]

    @property
    def migrated(self) -> list[str]:
        """Names of the source connectors with a topic of their own."""
        own = {state.name for state in self.connectors if state.own_topic(self.offsets_topic)}
        return [name for name in self.sources if name in own]

    def check(self, names: Sequence[str]) -> None:
        """Refuse names that no source connector has, and names that are given twice.

        Raises:
            UsageError: names the nearest connector, or all of them.
        """
        types = {state.name: state.type for state in self.connectors}
        for name in names:
            if name not in types:
                raise UsageError(
                    f"there is no connector {name}",
                    code=ConnectorCode.NO_CONNECTOR,
                    where=f"Connect cluster {self.connect}",
                    expected=f"one of: {', '.join(self.sources) or '(it runs no source connector)'}",
                    resolve=nearest_fix(name, self.sources),
                )
            if types[name] not in _MAY_BE_SOURCES:
                raise UsageError(
                    f"{name} is a {types[name]} connector: it has no source offsets, its position is that of "
                    f"the consumer group connect-{name}",
                    code=ConnectorCode.NOT_A_SOURCE,
                    where=f"Connect cluster {self.connect}",
                    expected=f"one of: {', '.join(self.sources) or '(it runs no source connector)'}",
                    resolve="leave it out; consumer groups are moved by `groups apply`",
                )
        twice = sorted({name for name in names if list(names).count(name) > 1})
        if twice:
            raise UsageError(f"named twice: {', '.join(twice)}", resolve="name each connector once")

    def document(self) -> dict[str, Any]:
        """Return it as it is printed; configurations may hold secrets, so they are not part of it."""
        return {
            "connect": self.connect,
            "version": self.version,
            "offsets_topic": self.offsets_topic,
            "exactly_once": self.exactly_once,
            "connectors": [
                {
                    "name": state.name,
                    "type": state.type,
                    "state": state.state,
                    "tasks": [task.state for task in state.tasks],
                    "failure": failure_of(state) if state.has_failed else None,
                    "offsets_topic": self._topic(state),
                    "own_topic": state.own_topic(self.offsets_topic) is not None,
                }
                for state in self.connectors
            ],
        }

    def describe(self) -> str:
        """Return it as text."""
        mode = "on" if self.exactly_once else "off"
        title = f"Connect cluster {self.connect}: version {self.version}, exactly-once for sources {mode}"
        if not self.connectors:
            return f"{title}\n  no connectors"
        rows = [_HEADINGS, *(self._row(state) for state in self.connectors)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        lines = [
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        failed = [f"  {s.name} has failed: {failure_of(s)}" for s in self.connectors if s.has_failed]
        return lined([title, *lines, *failed])

    def _row(self, state: ConnectorState) -> tuple[str, ...]:
        running = sum(task.state == "RUNNING" for task in state.tasks)
        failed = sum(task.state == FAILED_STATE for task in state.tasks)
        tasks = f"{running}/{len(state.tasks)} running" if state.tasks else "none"
        tasks += f", {failed} failed" if failed else ""
        return state.name, state.type, state.state, tasks, self._topic(state) or "-"

    def _topic(self, state: ConnectorState) -> str | None:
        return (state.own_topic(self.offsets_topic) or self.offsets_topic) if state.type == SOURCE else None
