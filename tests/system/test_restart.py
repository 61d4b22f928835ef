"""An Airflow of which a part was killed is made whole, and tells where it is meanwhile."""

from __future__ import annotations

import psutil
import pytest

from onceover_lab.embed.airflow import AirflowStandalone, State
from onceover_lab.embed.up import airflow as upairflow
from tests.system.conftest import PROJECT


@pytest.mark.soak
def test_killed_scheduler_comes_back_beside_what_runs(
    airflow: AirflowStandalone, airflow_environ: dict[str, str]
) -> None:
    """kill -9: status names it, `up` starts it alone, on the same port; a second `up` starts nothing."""
    before = State.read(airflow.home)
    scheduler = psutil.Process(before.processes["scheduler"])
    workers = scheduler.children(recursive=True)
    scheduler.kill()
    psutil.wait_procs([scheduler])
    notes: list[str] = []

    def up() -> State:
        again = upairflow.up(
            airflow.home,
            dags=PROJECT / "dags",
            plugins=PROJECT / "plugins",
            environ=airflow_environ,
            note=notes.append,
        )
        assert again.url == airflow.url
        return State.read(airflow.home)

    killed = upairflow.status(airflow.home)
    back = up()
    again = up()
    status = upairflow.status(airflow.home)

    assert killed is not None
    assert (killed["missing"], killed["healthy"], killed["url"]) == (["scheduler"], False, airflow.url)
    assert {name for name, pid in back.processes.items() if pid != before.processes[name]} == {"scheduler"}
    assert (back.mark, again, notes) == (before.mark, back, [])
    assert status is not None
    assert (status["missing"], status["healthy"]) == ([], True)
    assert psutil.wait_procs(workers, timeout=0)[1] == []
