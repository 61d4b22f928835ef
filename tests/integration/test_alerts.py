"""Every alert fires for its reason, and none while all is well: judged by Prometheus' own promtool.

The series are the exporter's: an entry of `status` at the beginning, and another one later.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from onceover.errors import Retriable, UsageError
from onceover.metrics import catalogue as m
from onceover.metrics.alerts import ALERTS
from onceover.metrics.catalogue import ALL, MetricSpec
from onceover.metrics.figures import Distribution, Figures
from onceover.metrics.fromstatus import add_drills, flow_figures
from onceover.operate.statusshape import broken_entry
from tests.support.statusentries import partition_entry, running_entry

PROJECT: Final = Path(__file__).parents[2]
RULES: Final = PROJECT / "docker" / "monitoring" / "alerts.yaml"
# Ten looks at how it was, then a long time of how it is.
_BEFORE: Final = 10
_AFTER: Final = 80
_DAY_S: Final = 86_400
FLOW: Final = "orders"
FILES: Final = (("rules", RULES.name), ("config", "prometheus.yaml"), ("config", "prometheus-compose.yaml"))


class AlertCase(NamedTuple):
    """What makes an alert fire.

    Args:
        before: samples at the beginning; ``after`` from the tenth look on.
        up: whether the exporter answers.
    """

    before: Figures
    after: Figures
    up: bool = True


def told(**changes: Any) -> Figures:
    """Return the samples of a flow that runs, in order, with changes."""
    figures = flow_figures(running_entry(**{"last_commit_ms": None, **changes}))
    figures.put(m.LOOK_FRESH, 1, FLOW)
    return figures


def run(state: str) -> dict[str, Any]:
    return {"run": {**running_entry()["run"], "state": state}, "state": "stopped"}


def with_(*samples: tuple[MetricSpec, float], **changes: Any) -> Figures:
    figures = told(**changes)
    for spec, value in samples:
        figures.put(spec, value, FLOW)
    return figures


def drilled(*, running: bool = False, result: str = "PASS", ended_ms: int = 1_000) -> Figures:
    figures = told()
    drill = {"drill": "d1", "mode": "rehearsal", "began_ms": -10_000_000, "result": result, "rto_s": 2.0}
    add_drills(
        figures,
        FLOW,
        {
            "running": "d1" if running else None,
            "drills": [{**drill, "ended_ms": None if running else ended_ms}],
        },
    )
    return figures


def lost(side: str) -> dict[str, Any]:
    error = {**Retriable("away").as_dict(), "exit": 5}
    return {side: {**running_entry()[side], "error": error}, "exit": 5}


def aborted(count: int) -> Figures:
    return told(aborted={"0": count})


def broken() -> Figures:
    figures = flow_figures(broken_entry(FLOW, "/x", UsageError("unknown key")))
    figures.put(m.LOOK_FRESH, 1, FLOW)
    return figures


def stale() -> Figures:
    figures = Figures()
    figures.put(m.LOOK_FRESH, 0, FLOW)
    return figures


COPYING = [partition_entry(0, "copying", 5), partition_entry(1, open_offsets=9)]
STOPPED = [partition_entry(0), partition_entry(1, "stopped", 4)]
STUCK = [partition_entry(0), partition_entry(1, "stuck", 4)]
OUTSIDE = [partition_entry(0), partition_entry(None, "not_enrolled", 4, partitions=3)]
OPEN = [partition_entry(0, open_offsets=9)]
BEHIND = {"lag_offsets": 5, "oldest_missing_s": 400.0}
AUDIT_NEED = {"code": "AUDIT_FAILED", "message": "x", "resolve": "x", "exit": 1}
LETTERS = [{"dead_letters": {"topic": "bad", "at_most": count}} for count in (2, 5)]

CASES: Final[Mapping[str, Callable[[], AlertCase]]] = {
    "ExporterDown": lambda: AlertCase(told(), Figures(), up=False),
    "LookStale": lambda: AlertCase(told(), stale()),
    "FlowFileBroken": lambda: AlertCase(told(), broken()),
    "DriverGone": lambda: AlertCase(told(), told(**run("gone"))),
    "RunFailed": lambda: AlertCase(told(), told(**run("failed"))),
    "PartitionStopped": lambda: AlertCase(told(), told(partitions=STOPPED)),
    "NotMoving": lambda: AlertCase(told(), told(partitions=STUCK)),
    "TopicNotCopied": lambda: AlertCase(told(), told(partitions=OUTSIDE)),
    "SourceUnreachable": lambda: AlertCase(told(), told(**lost("source"))),
    "TargetUnreachable": lambda: AlertCase(told(), told(**lost("target"))),
    "LagTooOld": lambda: AlertCase(told(), told(**BEHIND)),
    "NotCommitting": lambda: AlertCase(told(), told(last_commit_ms=600_000, partitions=COPYING)),
    "AbortsOften": lambda: AlertCase(aborted(0), aborted(40)),
    "StartsFenced": lambda: AlertCase(told(fenced_starts=1), told(fenced_starts=4)),
    "RestartsOften": lambda: AlertCase(told(restarts=1), told(restarts=5)),
    "OpenTransaction": lambda: AlertCase(told(), told(partitions=OPEN)),
    "DeadLetters": lambda: AlertCase(told(**LETTERS[0]), told(**LETTERS[1])),
    "AuditFailed": lambda: AlertCase(told(), told(needs=[AUDIT_NEED], exit=1)),
    "NotVerified": lambda: AlertCase(told(), with_((m.VERIFIED, -4 * _DAY_S))),
    "DrillFailed": lambda: AlertCase(drilled(), drilled(result="FAIL")),
    "NotRehearsed": lambda: AlertCase(drilled(), drilled(ended_ms=-40_000 * _DAY_S)),
    "DrillHangs": lambda: AlertCase(told(), drilled(running=True)),
    "ReceiptsPassedOver": lambda: AlertCase(with_((m.RECEIPTS_PASSED, 0)), with_((m.RECEIPTS_PASSED, 9))),
    "CanaryLate": lambda: AlertCase(with_((m.CANARY_WAITING, 1)), with_((m.CANARY_WAITING, 80))),
    "CanaryWrong": lambda: AlertCase(with_((m.CANARY_LOST, 0)), with_((m.CANARY_LOST, 1))),
    "CanaryFails": lambda: AlertCase(with_((m.CANARY_FAILURES, 0)), with_((m.CANARY_FAILURES, 9))),
}
# What has begun to grow goes on.
_GROWING: Final = {
    m.LANE_ABORTED.name: 4,
    m.TAKEOVERS.name: 1,
    m.RECEIPTS_PASSED.name: 1,
    m.CANARY_FAILURES.name: 1,
}


def promtool() -> str:
    """Return the program; scripts/promtool sees to one."""
    found = shutil.which("promtool", path=None) or shutil.which(
        "promtool", path=str(PROJECT / ".cache" / "promtool" / "usr" / "bin")
    )
    assert found is not None, "no promtool: run scripts/promtool"
    return found


def series(case: AlertCase, instance: str) -> list[dict[str, str]]:
    """Return all series of a case, by one exporter; one that is not there any more is not there."""
    by = f'job="onceover",instance="{instance}"'
    found = [{"series": f"up{{{by}}}", "values": f"1x{_BEFORE} {int(case.up)}x{_AFTER}"}]
    for spec in ALL:
        before, after = case.before.samples(spec), case.after.samples(spec)
        for labels in {**before, **after}:
            named = ",".join(f'{name}="{value}"' for name, value in zip(spec.labels, labels, strict=True))
            values = (
                f"{_value(before.get(labels), _BEFORE)} {_later(spec, before.get(labels), after.get(labels))}"
            )
            found.append({"series": f"{spec.name}{{{by},{named}}}", "values": values})
    return found


def _value(value: float | Distribution | None, times: int) -> str:
    return f"_x{times}" if value is None else f"{value}x{times}"


def _later(spec: MetricSpec, before: float | Distribution | None, value: float | Distribution | None) -> str:
    step = _GROWING.get(spec.name)
    grows = step is not None and value is not None and value != before
    return f"{value}+{step}x{_AFTER}" if grows else _value(value, _AFTER)


def firing(alert: str | None, case: AlertCase, at: str, exporters: int = 1) -> dict[str, Any]:
    """Return a promtool test: what fires ``at`` that time, for each exporter; None for nothing at all."""
    selector = (
        'ALERTS{alertstate="firing"}'
        if alert is None
        else f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    )
    count = {
        "expr": f"count({selector}) or vector(0)",
        "eval_time": at,
        "exp_samples": [{"value": 0 if alert is None else exporters}],
    }
    told_by = [each for number in range(exporters) for each in series(case, f"host{number}:9464")]
    return {"interval": "1m", "input_series": told_by, "promql_expr_test": [count]}


def judge(tmp_path: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    return subprocess.run(
        [promtool(), "test", "rules", str(path)], capture_output=True, text=True, check=False
    )


def test_every_alert_has_a_case() -> None:
    assert list(CASES) == [alert.name for alert in ALERTS]


def test_each_alert_fires_for_its_reason(tmp_path: Path) -> None:
    """And is not there while all is well; with two exporters of the same flow it fires for either."""
    tests = []
    for alert in ALERTS:
        case = CASES[alert.name]()
        # An alert about what has just grown is over a quarter of an hour later.
        soon = "12m" if alert.after == "0m" else "75m"
        tests += [firing(None, case, "9m", 2), firing(alert.alert, case, soon, 2)]
    said = judge(tmp_path, tests)
    assert said.returncode == 0, said.stdout + said.stderr


def test_a_flow_that_has_ended_is_no_reason_to_wake_anybody(tmp_path: Path) -> None:
    """Also with a lag, and with topics that its next run would take in."""
    ended = told(**run("ended"), **BEHIND, partitions=OUTSIDE)
    said = judge(tmp_path, [firing(None, AlertCase(ended, ended), "75m")])
    assert said.returncode == 0, said.stdout + said.stderr


def test_what_is_not_copied_has_alerts_of_its_own(tmp_path: Path) -> None:
    """A quiet flow with a stopped partition, and one that is not taken in, is asked for no commits."""
    quiet = told(last_commit_ms=1, lag_offsets=8, partitions=[*STOPPED, *OUTSIDE[1:]])
    names = ("PartitionStopped", "TopicNotCopied")
    fires = {
        "expr": 'sum by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": "75m",
        "exp_samples": [{"labels": f'{{alertname="Onceover{name}"}}', "value": 1} for name in names],
    }
    said = judge(tmp_path, [{**firing(None, AlertCase(quiet, quiet), "75m"), "promql_expr_test": [fires]}])
    assert said.returncode == 0, said.stdout + said.stderr


def test_what_was_lost_once_pages_no_longer_than_it_is_news(tmp_path: Path) -> None:
    """It never comes, so nothing would ever end a page for as long as it is missing."""
    said = judge(tmp_path, [firing(None, CASES["CanaryWrong"](), "75m")])
    assert said.returncode == 0, said.stdout + said.stderr


def test_what_does_not_fire_is_noticed(tmp_path: Path) -> None:
    """The judge judges: without its reason an alert does not fire, and promtool says so."""
    said = judge(tmp_path, [firing("OnceoverDriverGone", AlertCase(told(), told()), "75m")])
    assert said.returncode == 1


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_prometheus_takes_the_files(kind: str, name: str) -> None:
    path = RULES.with_name(name)
    said = subprocess.run([promtool(), "check", kind, str(path)], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
