"""The child process of ``apart``: makes one function of ours, and answers for it, a line of JSON each.

Invariant: what a handler prints goes to standard error, and what it reads is empty; between parent and child
is nothing but questions and answers. It ends with its parent, whose end of the pipe closes.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

from onceover.errors import OnceoverError, unexpected
from onceover.logs import quiet_libraries


def main() -> None:
    """Answer until there are no more questions."""
    questions, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    quiet_libraries()
    serve(questions, answers)
    # Threads that a handler has started are not waited for.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def serve(questions: IO[str], answers: IO[str]) -> None:
    """Answer every question; errors are answers, too."""
    made: Callable[..., Any] | None = None
    for line in questions:
        question = json.loads(line)
        try:
            if made is None:
                made, value = _made(question), None
            else:
                value = made(*question["arguments"])
            answer = {"value": value}
        except OnceoverError as error:
            answer = {"error": _told(error)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent has to hear of it
            answer = {"error": _told(unexpected(error))}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _made(question: Mapping[str, Any]) -> Callable[..., Any]:
    module, _, name = question["make"].partition(":")
    made: Callable[..., Any] = getattr(importlib.import_module(module), name)(**question["told"])
    return made


def _told(error: OnceoverError) -> dict[str, Any]:
    # Without what resolves an error of its kind anyway: the parent's has that, too.
    fields = {
        "message": error.message,
        "code": error.code,
        "where": error.where,
        "expected": error.expected,
        "seen": error.seen,
        "resolve": error.resolve,
    }
    known = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == OnceoverError.__module__]
    return {"kind": known[0], "fields": fields}


if __name__ == "__main__":
    main()
