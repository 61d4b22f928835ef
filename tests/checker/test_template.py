"""A flow that is forked is a process like one that was started anew."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.flows.flows import FlowProcess
from tests.support.flows.template import Template
from tests.support.session.wait import wait_until

_TIMEOUT_S = 60.0


@pytest.fixture
def template() -> Iterator[Template]:
    """One of the test's own, ended after it."""
    template = Template()
    yield template
    template.close()


def test_forked_or_fresh_it_says_the_same(tmp_path: Path) -> None:
    """Exit code and output of a flow whose file is not there."""
    ends = []
    for fresh in (True, False):
        with FlowProcess(tmp_path / "flow.yaml", tmp_path / f"{fresh}.log", fresh=fresh) as process:
            ends.append((process.wait(_TIMEOUT_S), process.child.tail(3)))
    assert ends[0] == ends[1]
    assert "name a flow file" in ends[0][1]


def test_what_is_forked_is_killed_and_told_apart(template: Template, tmp_path: Path) -> None:
    """Each in a session of its own, with the environment of now; killed, it says by what."""
    os.mkfifo(tmp_path / "never.yaml")
    first, second = (template.start([str(tmp_path / "never.yaml")], tmp_path / "log") for _ in range(2))
    assert os.getsid(first.pid) == first.pid != second.pid == os.getsid(second.pid)
    first.kill()
    assert (first.returncode, first.alive, second.alive) == (-signal.SIGKILL, False, True)
    second.kill()


def test_what_is_forked_ends_with_the_template(tmp_path: Path) -> None:
    """Whoever kills the tests leaves nothing behind."""
    os.mkfifo(tmp_path / "never.yaml")
    template = Template()
    child = template.start([str(tmp_path / "never.yaml")], tmp_path / "log")
    process = psutil.Process(child.pid)
    template.close()
    wait_until(lambda: not process.is_running(), _TIMEOUT_S, "it ends with the template")
