"""Exhaustive search: every state that can be reached, breadth first: a trace is as short as can be.

Who expects a violation looks depth first before: most are met there after a few hundred states.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.unit.model.model import Model
from tests.unit.model.scenario import State
from tests.unit.model.world import Violation


@dataclass(frozen=True)
class Found:
    """What a search has found.

    Args:
        states: how many there are.
        violation: the guarantee that does not hold; None where all do.
        trace: the moves that lead there, in order.
        complete: every state was seen.
        stuck: states from which no way leads to the end; counted in complete searches without a violation.
    """

    states: int
    violation: str | None
    trace: tuple[str, ...]
    complete: bool
    stuck: int = 0


class Search:
    """One search. Not to be used twice."""

    def __init__(self, model: Model, most_states: int) -> None:
        self._model = model
        self._most = most_states
        self._known: dict[State, int] = {}
        self._came: list[tuple[int, str]] = []
        self._before: list[list[int]] = []
        self._done: list[int] = []

    def run(self) -> Found:
        """Look at every state until one violates a guarantee, or all are known."""
        layer = [self._add(self._model.first(), -1, "")[1]]
        states = {layer[0]: self._model.first()}
        while states:
            following: dict[int, State] = {}
            for number, state in states.items():
                try:
                    self._model.check(state)
                    for move in self._model.moves(state):
                        is_new, index = self._add(move.state, number, move.text)
                        self._before[index].append(number)
                        if is_new:
                            following[index] = move.state
                except Violation as violation:
                    return Found(len(self._came), str(violation), self._trace(number), complete=False)
            if len(self._came) > self._most:
                return Found(len(self._came), None, (), complete=False)
            states = following
        return self._ended()

    def _add(self, state: State, before: int, text: str) -> tuple[bool, int]:
        index = self._known.setdefault(state, len(self._came))
        if index < len(self._came):
            return False, index
        self._came.append((before, text))
        self._before.append([])
        if self._model.is_done(state):
            self._done.append(index)
        return True, index

    def _trace(self, number: int) -> tuple[str, ...]:
        texts = []
        while number > 0:
            number, text = self._came[number]
            texts.append(text)
        return tuple(reversed(texts))

    def _ended(self) -> Found:
        """Go back from all ends: what is not met on the way can never end."""
        reached, todo = set(self._done), list(self._done)
        while todo:
            for before in self._before[todo.pop()]:
                if before not in reached:
                    reached.add(before)
                    todo.append(before)
        stuck = [number for number in range(len(self._came)) if number not in reached]
        trace = self._trace(stuck[0]) if stuck else ()
        return Found(len(self._came), None, trace, complete=True, stuck=len(stuck))


def search(model: Model, most_states: int = 400_000) -> Found:
    """Return what is found in at most about ``most_states`` states."""
    return Search(model, most_states).run()


def violation_of(model: Model, most_deep: int = 10_000) -> str | None:
    """Return a guarantee that does not hold; None where all do.

    Args:
        most_deep: so many states are looked at depth first, before all are breadth first.
    """
    first = model.first()
    known, todo = {first}, [first]
    while todo and len(known) < most_deep:
        state = todo.pop()
        try:
            model.check(state)
            following = [move.state for move in model.moves(state)]
        except Violation as violation:
            return str(violation)
        todo += [each for each in dict.fromkeys(following) if each not in known]
        known.update(following)
    return search(model).violation
