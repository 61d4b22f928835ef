"""Where the program begins: interrupted at any moment, it ends like any other command.

Loading a command takes a second, and many on a busy machine. Nothing has been begun by then, so an
interrupt ends the process on the spot: an exception in the middle of an import can be lost, or be told as a
traceback of whatever was being loaded.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NoReturn

# `kill`, `timeout`, an orchestrator, and a terminal that is closed end a command as Ctrl-C does.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What argcomplete's functions of the shells set: nobody has typed a command to its end.
_ASKED_BY_SHELL: Final = {"_ARGCOMPLETE", "COMP_LINE", "COMP_POINT"}
# As ``exitstatus`` has it, which is not loaded yet.
_INTERRUPTED: Final = 130


def run() -> int:
    """Run the command that was typed; return its exit code."""
    arguments = sys.argv[1:]
    # What is ignored stays so, as under nohup.
    wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    _on(wanted, lambda: _leave("", as_json=False))
    # Not before: it takes a tenth of a second, and more on a busy machine.
    from onceover.cli.terminal import streams
    from onceover.cli.terminal.output import interrupted_document

    streams.complete()
    if os.environ.keys() >= _ASKED_BY_SHELL:
        from onceover.cli.completion import complete

        complete()
    _on(wanted, lambda: _leave(interrupted_document(arguments[:1]), as_json="--json" in arguments))
    from onceover.cli.main import main

    def begin() -> None:
        for number in wanted:
            signal.signal(number, signal.default_int_handler)

    try:
        return main(arguments, loaded=begin)
    except KeyboardInterrupt:
        # The command has said already how it ended.
        return _INTERRUPTED
    finally:
        # Only Python's own end is left: a late interrupt ends that without a word.
        for number in wanted:
            signal.signal(number, signal.SIG_DFL)
        streams.settle()


def _on(wanted: Iterable[int], leave: Callable[[], NoReturn]) -> None:
    for number in wanted:
        signal.signal(number, lambda *_: leave())


def _leave(document: str, *, as_json: bool) -> NoReturn:
    if as_json:
        _tell(1, document)
    _tell(2, "error: interrupted")
    os._exit(_INTERRUPTED)


def _tell(descriptor: int, line: str) -> None:
    # The terminal may be the one that was closed.
    with suppress(OSError):
        os.write(descriptor, f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(run())
