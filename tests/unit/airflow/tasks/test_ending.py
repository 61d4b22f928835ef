"""A task that is told to end takes back what it was at, as a command does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onceover_airflow.errors import JobInterrupted
from onceover_airflow.tasks.ending import ends_as_a_command
from tests.support.session.wait import wait_until


def at_work(undone: list[str]) -> None:
    with ends_as_a_command("flow orders"):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            undone.append("went on")
        finally:
            undone.append("taken back")


def test_sigterm_interrupts_what_is_done_and_what_takes_it_back_is_run() -> None:
    """Airflow asks once and kills five seconds later: without it the work would go on until then."""
    undone: list[str] = []

    def handler(_number: int, _frame: object) -> None:
        undone.append("asked")

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(JobInterrupted, match="flow orders: the task was told to end"):
            at_work(undone)
        assert undone == ["taken back"]
        # Afterwards it is Airflow's again.
        os.kill(os.getpid(), signal.SIGTERM)
        assert undone == ["taken back", "asked"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_process_that_was_forked_meanwhile_has_nothing_to_take_back() -> None:
    """It would run the parent's own undoing."""
    script = (
        "import os, signal, sys\n"
        "from onceover_airflow.tasks.ending import ends_as_a_command\n"
        "with ends_as_a_command('x'):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        os._exit(7)\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 7


def test_what_airflow_leaves_no_time_for_is_done_by_a_command(tmp_path: Path) -> None:
    """It asks once and kills soon; what a process that is killed unasked leaves is in test_ifended."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from onceover_airflow.tasks.ending import Undoing, ends_as_a_command\n"
        "undoing = Undoing(('--version',), Path(sys.argv[1]))\n"
        "with ends_as_a_command('x') as ending, ending.looked_after(undoing):\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    finally:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    log = tmp_path / "abort.log"
    ended = subprocess.run([sys.executable, "-c", script, str(log)], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    wait_until(lambda: log.read_text().startswith("onceover "), 60, "the command has run")
