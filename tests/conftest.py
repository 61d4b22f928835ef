"""Fixtures of all tests: real clusters on demand, nothing left behind."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.support.brokers.clusters import (
    ClusterFactory,
    SharedCluster,
    make_session_directory,
    shared_clusters,
)
from tests.support.brokers.sharing import WORKER_KEY, Host, forget, hosted_clusters
from tests.support.connect.connect import Workers, connect_workers
from tests.support.flows import template
from tests.support.session.leftovers import SESSION_VARIABLE, leftover_processes, own_listening_ports
from tests.support.session.reaper import reaper
from tests.support.session.scheduling import SharedSystems, in_order, make_scheduler
from tests.support.session.wait import wait_until

# Airflow reads its home when it is imported, and creates files there: this has to come before any
# test module is loaded. Great Expectations would report its use over the network.
_SESSION_HOME = make_session_directory()
_SESSION = uuid.uuid4().hex
os.environ["AIRFLOW_HOME"] = str(_SESSION_HOME / "airflow")
# The project's own folder may hold the note of a driver that runs, which a test would stop.
os.environ["ONCEOVER_HOME"] = str(_SESSION_HOME / "var")
os.environ["GX_ANALYTICS_ENABLED"] = "false"
os.environ[SESSION_VARIABLE] = _SESSION
_LEFTOVER_GRACE_S = 10.0
_HOST = pytest.StashKey[Host]()
_PAIR = pytest.StashKey[Mapping[str, SharedCluster]]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep ``tmp_path`` in the session's directory; end like Ctrl-C on SIGTERM, so that fixtures clean up."""
    if config.option.basetemp is None:
        config.option.basetemp = str(_SESSION_HOME / "tmp")
    signal.signal(signal.SIGTERM, _interrupt)
    # A shell that starts the tests in the background has them ignore Ctrl-C, and so would every child.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedSystems:
    """Keep together what shares expensive fixtures."""
    return make_scheduler(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where it finds the clusters that all of them share."""
    if _HOST not in node.config.stash:
        folder = _SESSION_HOME / "shared"
        folder.mkdir()
        node.config.stash[_HOST] = Host(folder, partial(shared_clusters, folder))
        node.config.stash[_HOST].start()
    node.workerinput[WORKER_KEY] = str(node.config.stash[_HOST].folder)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let nobody look for garbage among ten thousand tests, and all of Airflow, again and again.

    Who parses all modules of the product took 12 s for it that way, and takes 2. Behind it, less often than
    by default: of 2,700 unit tests' CPU a twelfth went into it, and a thirtieth does.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items[:] = in_order(items)


def pytest_unconfigure(config: pytest.Config) -> None:
    try:
        if _HOST in config.stash:
            config.stash[_HOST].close()
    finally:
        shutil.rmtree(_SESSION_HOME)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt("SIGTERM")


@pytest.fixture(scope="session", autouse=True)
def no_leftovers() -> Iterator[None]:
    """Fail when a process or a port of this session outlives it. Set up first, so it ends last."""
    with reaper(_SESSION, _SESSION_HOME), template.closed_at_the_end():
        yield
    try:
        wait_until(lambda: not leftover_processes(_SESSION), _LEFTOVER_GRACE_S, "no process is left")
    except TimeoutError:
        pytest.fail("left running: " + "; ".join(leftover_processes(_SESSION)))
    ports = own_listening_ports()
    if ports:
        pytest.fail(f"still listening on ports {ports}")


@pytest.fixture(scope="session")
def session_home(no_leftovers: None) -> Path:
    """A directory for the whole session, removed at its end."""
    return _SESSION_HOME


@pytest.fixture(scope="session")
def cluster_pair(session_home: Path, pytestconfig: pytest.Config) -> Iterator[Mapping[str, SharedCluster]]:
    """Both shared clusters, started at the same time when the first test of all workers asks for one."""
    hosted = getattr(pytestconfig, "workerinput", {}).get(WORKER_KEY)
    pair = shared_clusters(session_home) if hosted is None else hosted_clusters(Path(hosted))
    with pair as clusters:
        pytestconfig.stash[_PAIR] = clusters
        yield clusters
        del pytestconfig.stash[_PAIR]


@pytest.fixture(scope="session")
def source_cluster(cluster_pair: Mapping[str, SharedCluster]) -> SharedCluster:
    """One broker, shared by the run; ONCEOVER_SOURCE_BOOTSTRAP names another."""
    return cluster_pair["source"]


@pytest.fixture(scope="session")
def target_cluster(cluster_pair: Mapping[str, SharedCluster]) -> SharedCluster:
    """One broker, shared by the run; ONCEOVER_TARGET_BOOTSTRAP names another."""
    return cluster_pair["target"]


@pytest.fixture(scope="session")
def workers(session_home: Path, target_cluster: SharedCluster) -> Iterator[Workers]:
    """Two Connect workers with exactly-once, and one without, on the target cluster."""
    # An external cluster may still hold the topics of an older session.
    name = f"connect-{uuid.uuid4().hex[:8]}"
    with connect_workers(session_home / name, target_cluster.bootstrap, name) as workers:
        yield workers


@pytest.fixture
def start_cluster(session_home: Path) -> Iterator[ClusterFactory]:
    """Start clusters for this test alone: ``start_cluster("name", brokers=3, version="3.9.1", ...)``."""
    home = Path(tempfile.mkdtemp(prefix="clusters-", dir=session_home))
    factory = ClusterFactory(home)
    try:
        yield factory
    finally:
        factory.close()
        shutil.rmtree(home)


@pytest.fixture
def unique_name(pytestconfig: pytest.Config) -> Iterator[str]:
    """A name for topics, groups and flows that no other test uses; what bears it is deleted at the end."""
    name = f"t{uuid.uuid4().hex[:12]}"
    yield name
    for cluster in pytestconfig.stash.get(_PAIR, {}).values():
        forget(cluster.bootstrap, name)
