"""The workers of a run get the same clusters: started for the first who wants them, ended with the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.brokers.clusters import ExternalCluster, SharedCluster
from tests.support.brokers.sharing import Host, hosted_clusters

PAIR = {name: ExternalCluster(f"127.0.0.1:{port}", name) for name, port in (("source", 1), ("target", 2))}


class Starter:
    """Counts what it starts and ends; or fails."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.started = self.ended = 0
        self._problem = problem

    @contextmanager
    def __call__(self) -> Iterator[Mapping[str, SharedCluster]]:
        if self._problem is not None:
            raise self._problem
        self.started += 1
        yield PAIR
        self.ended += 1


def test_every_worker_gets_the_same_pair_until_the_end(tmp_path: Path) -> None:
    """Started once."""
    starter = Starter()
    host = Host(tmp_path, starter)
    host.start()
    for _ in range(2):
        with hosted_clusters(tmp_path) as clusters:
            assert clusters == PAIR
    assert (starter.started, starter.ended) == (1, 0)
    host.close()
    assert (starter.started, starter.ended) == (1, 1)


def test_nothing_is_started_for_nobody(tmp_path: Path) -> None:
    """Unit tests want no clusters."""
    starter = Starter()
    host = Host(tmp_path, starter)
    host.start()
    host.close()
    assert (starter.started, starter.ended) == (0, 0)


def test_what_kept_them_from_starting_is_told_to_every_worker(tmp_path: Path) -> None:
    """Nobody waits for what does not come, and the run fails, too."""
    host = Host(tmp_path, Starter(OSError("no Java")))
    host.start()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no Java"), hosted_clusters(tmp_path):
            pytest.fail("there are none")
    with pytest.raises(OSError, match="no Java"):
        host.close()
