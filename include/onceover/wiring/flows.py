"""The composition root: turns a flow file into clusters, and into what is said of the flow everywhere.

Invariant: what only a run needs is in ``runs``. Every command loads this, and answers at once.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from onceover.config.clients.resolve import ClientConfig
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import run_dir
from onceover.config.flow.sides import resolve_clients
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.ports import Cluster
from onceover.lead.leader import FlowIdentity
from onceover.planning.journal import Journal, OpenJournal
from onceover.topics.namingpolicy import NamingPolicy
from onceover.topics.scope import Rules

T = TypeVar("T")


def login() -> str:
    """Return who runs this, as this machine calls them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        # A user id without a name, as in containers.
        return f"user {os.geteuid()}"


def open_clusters(flow: Flow, environ: Mapping[str, str] | None = None) -> tuple[Cluster, Cluster]:
    """Return source and target, not connected yet. The caller closes them.

    Args:
        environ: read instead of the process's environment.
    """
    return open_clients(*resolve_clients(flow, environ))


def open_clients(source: ClientConfig, target: ClientConfig) -> tuple[Cluster, Cluster]:
    """Return source and target of clients that were resolved before. The caller closes them."""
    return LiveCluster(source), LiveCluster(target)


@contextmanager
def opened(flow: Flow, make: Callable[[Flow, Cluster, Cluster], AbstractContextManager[T]]) -> Iterator[T]:
    """Yield what ``make`` makes of the flow and its clusters, which are closed at the end."""
    source, target = open_clusters(flow)
    with source, target, make(flow, source, target) as made:
        yield made


def journal_of(flow: Flow, operation: str) -> OpenJournal:
    """Return what opens the flow's journal of an operation."""
    return partial(Journal, run_dir(flow) / "journal" / f"{operation}.jsonl")


def identity(flow: Flow) -> FlowIdentity:
    """Return what the layout says about the flow."""
    return FlowIdentity(flow.flow, flow.lanes, flow.sha256, flow.delivery, flow.handler is not None)


def rules(
    flow: Flow, *, run: Flow | None = None, target_partitions: Callable[[int], int] | None = None
) -> Rules:
    """Return what decides which topics are in.

    Args:
        flow: the flow file as it is now.
        run: the flow file as it was when the run began: naming and the clusters' names stay as they were.
        target_partitions: what the flow's handler says; None where only names are asked for.
    """
    begun = run or flow
    naming = NamingPolicy(begun.topics.naming, begun.source.alias, begun.target.alias)
    found = Rules(flow.topics.include, flow.topics.exclude, naming, one_to_one=begun.handler is None)
    return found if target_partitions is None else replace(found, target_partitions=target_partitions)
