"""A flow with its Connections at hand, for the tasks that call the same code as the command line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onceover.errors import OnceoverError, Retriable
from onceover.private import privately
from onceover.shown import screen
from onceover_airflow.access.secrets import environment
from onceover_airflow.errors import JobInterrupted, TaskFailed, shown
from onceover_airflow.flows import by_name

if TYPE_CHECKING:
    from onceover.config.flow.flowfile import Flow


@contextmanager
def flow_at_hand(ref: str) -> Iterator[Flow]:
    """Yield the flow with its Connections in the environment; errors of ours leave as Airflow's.

    Raises:
        JobInterrupted: a temporary failure (exit code 5); tried again.
        TaskFailed: any other error of ours.
    """
    from onceover.config.flow.load import load_flow
    from onceover_airflow.access.connections import connection_environment

    with errors_of_ours():
        loaded = load_flow(by_name(ref))
        with environment(connection_environment(loaded)), privately():
            yield loaded


@contextmanager
def errors_of_ours() -> Iterator[None]:
    """Let errors of ours leave as Airflow's.

    Raises:
        JobInterrupted: a temporary failure (exit code 5); tried again.
        TaskFailed: any other error of ours.
    """
    try:
        yield
    except Retriable as error:
        raise JobInterrupted(str(error)) from shown(error)
    except OnceoverError as error:
        raise TaskFailed(str(error)) from shown(error)


def log_text(log: logging.Logger, text: str) -> None:
    """Log a text as a person reads it: Airflow shows one event a line."""
    for line in screen(text).split("\n"):
        log.info("%s", line)
