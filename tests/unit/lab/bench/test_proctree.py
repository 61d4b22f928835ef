"""The sampler follows real processes: children, grandchildren, the ended and the orphaned."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from onceover_lab.bench.watching.proctree import ProcessTree
from tests.support.session.wait import wait_until

BURN = "import time\nend=time.process_time()+{s}\nwhile time.process_time()<end: pass\n"
# The parent starts a child that burns and ends, then waits to be told.
PARENT = (
    "import subprocess,sys\n"
    f"subprocess.run([sys.executable,'-c',{BURN.format(s=0.5)!r}],check=True)\n"
    "print('burnt',flush=True)\n"
    "sys.stdin.read()\n"
)
ORPHAN = "import sys,time\nprint('up',flush=True)\ntime.sleep(60)\n"
# Starts a child of the same session and ends at once.
PARENT_OF_ORPHAN = (
    f"import subprocess,sys\nsubprocess.Popen([sys.executable,'-c',{ORPHAN!r}])\nsys.stdin.readline()\n"
)


def start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    with start(PARENT) as process:
        yield process
        process.kill()


def test_ended_child_stays_in_the_account(parent: subprocess.Popen[bytes]) -> None:
    tree = ProcessTree(parent.pid)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"burnt\n"
        wait_until(lambda: tree.cpu_samples()[-1:][0].value >= 0.5, 10, "the child's half second")
    finally:
        tree.close()
    values = [sample.value for sample in tree.cpu_samples()]
    assert values == sorted(values)
    assert 0.5 <= values[-1] < 1.5
    assert tree.peak_memory_bytes() > 1_000_000


def test_orphan_is_still_a_member() -> None:
    """A child whose parent ended is found by its session, and can be ended."""
    with start(PARENT_OF_ORPHAN) as process:
        tree = ProcessTree(process.pid)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.wait(timeout=10)
        finally:
            tree.close()
        (orphan,) = tree.living()
        assert orphan.pid != process.pid
        orphan.kill()
        psutil.wait_procs([orphan], timeout=10)
        assert tree.living() == []


def test_process_that_does_not_exist_is_refused() -> None:
    with start("") as process:
        process.communicate()
    with pytest.raises(psutil.NoSuchProcess):
        ProcessTree(process.pid)
