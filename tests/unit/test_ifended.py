"""What is looked after once a process was asked to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.session.wait import wait_until

SCRIPT = """
import os, signal, sys
from pathlib import Path
import psutil
from onceover.process.ifended import done_if_asked_to_end

how, log = sys.argv[1], Path(sys.argv[2])
say = "import os; print('done', os.environ['WHOSE'])"
with done_if_asked_to_end([sys.executable, "-c", say], log) as asked:
    print(psutil.Process().children()[0].pid, flush=True)
    if "asked" in how:
        asked()
    if "twice" in how:
        asked()
    if "killed" in how:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("how", "code", "is_done"),
    [
        ("asked and killed", -signal.SIGKILL, True),
        ("asked twice and killed", -signal.SIGKILL, True),
        # Whoever starts it anew goes on.
        ("killed", -signal.SIGKILL, False),
        # It may not have got everything done that it wanted to.
        ("asked", 0, True),
        ("asked twice", 0, True),
        ("", 0, False),
    ],
)
def test_it_is_done_behind_the_end_that_was_asked_for(
    tmp_path: Path, how: str, code: int, is_done: bool
) -> None:
    """In the environment of the moment at which it was arranged."""
    log = tmp_path / "new" / "log"
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, how, str(log)],
        check=False,
        timeout=60,
        capture_output=True,
        env={"WHOSE": "ours"},
    )
    assert ended.returncode == code, ended.stderr
    wait_until(lambda: not psutil.pid_exists(int(ended.stdout)), 60, "the process beside it has ended")
    assert log.read_text() == ("done ours\n" if is_done else "")


def test_it_is_done_though_somebody_who_was_forked_meanwhile_lives_on(tmp_path: Path) -> None:
    """The pipe is open there, too."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from onceover.process.ifended import done_if_asked_to_end\n"
        "say = \"import os, signal; print('done'); os.kill(int(os.environ['FORKED']), signal.SIGKILL)\"\n"
        "os.environ['FORKED'] = str(forked := os.fork())\n"
        "if not forked:\n"
        "    signal.pause()\n"
        "with done_if_asked_to_end([sys.executable, '-c', say], Path(sys.argv[1])) as asked:\n"
        "    asked()\n"
    )
    log = tmp_path / "log"
    subprocess.run([sys.executable, "-c", script, str(log)], check=True, timeout=60)
    wait_until(lambda: log.read_text() == "done\n", 60, "it is done")


def test_nothing_is_left_of_one_that_is_not_needed(tmp_path: Path) -> None:
    """No process, and no open file; also where one that was forked meanwhile lives on."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "import psutil\n"
        "from onceover.process.ifended import done_if_asked_to_end\n"
        "before = set(os.listdir('/proc/self/fd'))\n"
        "with done_if_asked_to_end([sys.executable, '-c', ''], Path(sys.argv[1])):\n"
        "    forked = os.fork()\n"
        "    if not forked:\n"
        "        signal.pause()\n"
        "    assert len(psutil.Process().children()) == 2\n"
        "assert [each.pid for each in psutil.Process().children()] == [forked]\n"
        "os.kill(forked, signal.SIGKILL)\n"
        "assert set(os.listdir('/proc/self/fd')) == before\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "log")], check=True, timeout=60)
