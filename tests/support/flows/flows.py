"""Running a flow in the test's own process, or in a process that can be killed: no Spark, same lanes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from onceover.copy.identity import LaneIdentity
from onceover.copy.loop import Until
from onceover.lead.ends import EndCheck
from onceover.lead.supervisor import Supervisor
from onceover.operate.status import flow_status
from onceover.process.children import ChildProcess
from onceover.state.records.layout import Layout
from onceover.wire.offsetmap import MapRecord
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.runs import lane_task, supervisor
from onceover.wiring.watch import FlowWatch
from onceover_lab.demo.judge import compare_topics
from tests.support.flows import template
from tests.support.session.wait import wait_until

_SCRIPT = Path(__file__).with_name("flow_process.py")


def write_flow(
    folder: Path,
    name: str,
    source: Mapping[str, str],
    target: Mapping[str, str],
    topics: list[str],
    /,
    **changes: Any,
) -> Path:
    """Write a flow file; secrets of the clients go into 0600 client files."""
    document: dict[str, Any] = {
        "flow": name,
        "source": {"alias": "east", "client_file": _client_file(folder / f"{name}-source.yaml", source)},
        "target": {"alias": "west", "client_file": _client_file(folder / f"{name}-target.yaml", target)},
        "topics": {"include": topics, "discovery_interval": "1s"},
        "lanes": 2,
        "transaction": {"max_interval": "100ms"},
        "spark": {"task_length": "10s"},
    }
    for key, value in changes.items():
        document[key] = {**document[key], **value} if isinstance(document.get(key), dict) else value
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _client_file(path: Path, client: Mapping[str, str]) -> str:
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(dict(client)))
    return str(path)


@dataclass
class Outcome:
    """What one run did."""

    layout: Layout
    receipts: list[MapRecord]

    @property
    def records(self) -> int:
        """Records copied."""
        return sum(r.records for r in self.receipts)


class InlineFlow:
    """A flow whose lanes run in threads of this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.watch = FlowWatch(path)
        self.name = self.watch.flow.flow

    def copy(self, *, seconds: float | None = None, token: int = 1) -> Outcome:
        """Start a generation and copy: everything that is there, or for so many seconds.

        Raises:
            Whatever a lane raised.
        """
        with self.running() as (lead, layout):
            return self.finish(lead, layout, seconds=seconds, token=token)

    def finish(
        self, lead: Supervisor, layout: Layout, *, seconds: float | None = None, token: int = 1
    ) -> Outcome:
        """Run the lanes of a flow that was started, until everything is copied, then end the run."""
        ends = None
        if seconds is None:
            planner = EndCheck(self.name, layout.run)
            planner.open(*open_clusters(self.watch.flow))
            ends = planner.ends()
            planner.close()
        receipts = self.lanes(layout, Until(time.monotonic() + (seconds or 60.0), ends), token=token)
        lead.end()
        return Outcome(layout, receipts)

    @contextmanager
    def running(self) -> Iterator[tuple[Supervisor, Layout]]:
        """Lead the flow: started, discovered, enrolled; the caller runs lanes."""
        source, target = open_clusters(self.watch.flow)
        lead = supervisor(self.watch, source, target)
        try:
            layout = lead.start()
            target.retry(lead.discover)
            target.retry(lead.tick)
            yield lead, layout
        finally:
            lead.close()
            source.close()
            target.close()

    def lanes(self, layout: Layout, until: Until, *, token: int = 1) -> list[MapRecord]:
        """Run every lane to its end; return what they committed."""
        receipts: list[MapRecord] = []
        problems: list[BaseException] = []

        def run(lane: int) -> None:
            try:
                receipts.extend(self.lane(layout, lane, Until(until.deadline_s, until.ends), token=token))
            except BaseException as error:  # noqa: BLE001 - handed to the test below
                problems.append(error)

        threads = [threading.Thread(target=run, args=(lane,)) for lane in range(layout.lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        return receipts

    def lane(self, layout: Layout, lane: int, until: Until, *, token: int = 1) -> list[MapRecord]:
        """Run one lane in this thread."""
        source, target = open_clusters(self.watch.flow)
        me = LaneIdentity(self.name, layout.generation, layout.run, lane, layout.lanes, (token, lane + 1))
        try:
            task = lane_task(self.watch, me, source, target, give_up_s=30.0)
            return [record for records in task.run(until) for record in records]
        finally:
            source.close()
            target.close()

    def status(self) -> dict[str, Any]:
        """Return the flow's status document."""
        source, target = open_clusters(self.watch.flow)
        with source, target:
            return flow_status(self.name, source, target, rules(self.watch.current()))


class FlowProcess:
    """A flow in a process of its own, to be killed, paused, or started twice. As a context manager it
    is killed at the end, if it still runs.

    Args:
        path: the flow file.
        log: where its output goes.
        seconds: how long it copies at most.
        kill_at: name of the step at which it kills itself with -9; ``pause_at`` likewise with SIGSTOP.
        kill_count: at which occurrence of the step.
        forever: copy until asked to stop, not only what is there at the start.
        clock: a file with the seconds by which its wall clock is wrong.
        fresh: a Python of its own from the start, for who looks at its memory; others are forked, at once.
    """

    def __init__(
        self,
        path: Path,
        log: Path,
        *,
        seconds: float = 60.0,
        kill_at: str = "",
        pause_at: str = "",
        kill_count: int = 1,
        forever: bool = False,
        clock: Path | None = None,
        fresh: bool = False,
    ) -> None:
        arguments = [str(path), "--seconds", str(seconds), *(["--forever"] if forever else [])]
        if kill_at or pause_at:
            arguments += ["--at", kill_at or pause_at, "--signal", "KILL" if kill_at else "STOP"]
            arguments += ["--count", str(kill_count)]
        if clock is not None:
            arguments += ["--clock", str(clock)]
        start = _start_fresh if fresh else template.shared().start
        self.child = start(arguments, log)

    def __enter__(self) -> FlowProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()

    @property
    def paused(self) -> bool:
        """True when it has stopped itself, or was paused."""
        return psutil.Process(self.child.pid).status() == psutil.STATUS_STOPPED

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; return the exit code, negative for a signal."""
        return self.child.wait(timeout_s)

    def wait_paused(self, timeout_s: float) -> None:
        """Wait until it has paused itself."""
        wait_until(lambda: self.paused or not self.child.alive, timeout_s, "the flow pauses itself")
        if not self.child.alive:
            raise AssertionError(f"it ended instead of pausing: {self.child.tail()}")

    def kill(self) -> None:
        """Kill it with -9."""
        self.child.kill()

    def terminate(self) -> None:
        """Ask it to end."""
        self.child.send_signal(signal.SIGTERM)


def _start_fresh(arguments: Sequence[str], log: Path) -> ChildProcess:
    # The very code that this test runs, also when that is a copy of the project.
    paths = [str(_SCRIPT.parents[3]), str(_SCRIPT.parents[3] / "include")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return ChildProcess.start([sys.executable, str(_SCRIPT), *arguments], name="flow", log_path=log, env=env)


def assert_same(
    source: Mapping[str, str],
    target: Mapping[str, str],
    topics: list[str] | Mapping[str, str],
    *,
    timeout_s: float = 60.0,
) -> None:
    """Fail unless the independent judge finds both sides equal, record by record.

    Args:
        topics: names, or source names with what their copies are called.
    """
    verdict = compare_topics(dict(source), dict(target), topics, timeout_s=timeout_s)
    if not verdict.ok:
        raise AssertionError(verdict.explain())
