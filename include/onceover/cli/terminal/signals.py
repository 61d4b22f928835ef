"""What asks a command that goes on for ever to end: Ctrl-C, SIGTERM, a terminal that is closed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_signals() -> Iterator[threading.Event]:
    """Yield what is set once somebody asks. What is ignored stays so, as under nohup."""
    asked = threading.Event()
    wanted = [number for number in _ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, lambda *_: asked.set()) for number in wanted}
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
