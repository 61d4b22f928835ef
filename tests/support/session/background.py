"""Something that is done again and again beside a test, in a thread of its own."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

_ENDS_WITHIN_S = 180.0


class Background:
    """Calls ``step`` again and again, from ``start`` to ``end``, or as a context manager.

    What a step raises ends it, and is raised by ``end``.

    Args:
        name: of its thread.
        pause_s: between two steps.
    """

    def __init__(self, name: str, pause_s: float = 0.0) -> None:
        self.name = name
        self.pause_s = pause_s
        self.ending = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def step(self) -> None:
        """Do it once."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask_to_end(self) -> None:
        """Let the step of now be the last one."""
        self.ending.set()

    def end(self) -> None:
        """Ask it to end, wait for it; raise what failed in it.

        Raises:
            TimeoutError: it does not end.
        """
        self.ask_to_end()
        if self._thread.ident is None:
            return
        self._thread.join(_ENDS_WITHIN_S)
        if self._thread.is_alive():
            raise TimeoutError(f"{self.name} does not end within {_ENDS_WITHIN_S:g} s")
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            while not self.ending.wait(self.pause_s):
                self.step()
        except BaseException as error:  # noqa: BLE001 - raised by end(), in the test's own thread
            self._problem = error
