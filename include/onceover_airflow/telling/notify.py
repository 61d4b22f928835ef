"""Telling a person, through whatever notifier the installation names.

``ONCEOVER_NOTIFIER=package.module:name`` in the environment of Airflow's workers: an Airflow notifier (Slack,
SMTP, Apprise, ...), or any function that takes a context. ``{{ reason }}`` is what there is to tell.

Invariant: of what a notifier raises no text is logged: libraries quote the address that they could not reach,
and that of a webhook is a secret.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from onceover.errors import UsageError
from onceover.handlers.calling import described
from onceover.planning.background import in_background

log = logging.getLogger(__name__)

VARIABLE: Final = "ONCEOVER_NOTIFIER"
_LOADING_S: Final = 20.0


def check_notifier() -> None:
    """Say in the log that the notifier cannot be loaded, before there is something to tell."""
    name = os.environ.get(VARIABLE)
    if not name:
        return
    try:
        # Whatever a module does at its import: nothing waits for it but who is to be told.
        error = in_background(partial(load, name)).exception(_LOADING_S)
        why = None if error is None else _words(error)
    except TimeoutError:
        why = f"it is not loaded after {_LOADING_S:g} s"
    if why is not None:
        log.warning("nobody would be told of a failure: %s=%s: %s", VARIABLE, name, why)


def notify(context: Mapping[str, object], reason: str) -> bool:
    """Hand ``context`` with ``reason`` to the notifier; one that fails is said in the log, no more.

    Returns:
        Whether there is nothing left to tell.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        return True
    try:
        load(name)({**context, "reason": reason})
    # A module may be a script, which ends whoever loads it.
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a notifier may raise anything
        log.error("nobody was told: %s=%s failed: %s", VARIABLE, name, _words(error))  # noqa: TRY400 - without its text
        return False
    return True


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, UsageError) else described(error)


def load(name: str) -> Callable[[Mapping[str, Any]], None]:
    """Return the notifier that ``package.module:name`` names.

    Raises:
        UsageError: there is none.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        # The last may be the module's own word on an address in it.
        why = described(error) if isinstance(error, ValueError) else error
        raise UsageError(
            f"{VARIABLE} names no notifier: {why}",
            expected="package.module:name",
            seen=name,
            resolve="correct it; the module has to be on the workers' PYTHONPATH",
        ) from error
    if not callable(found):
        raise UsageError(f"{name} cannot be called", expected="an Airflow notifier, or a function")
    notifier: Callable[[Mapping[str, Any]], None] = found
    return notifier
