"""Every alert fires for its reason, and none while all is well: judged by Prometheus' own promtool.

The series are the exporter's: an entry of `status` at the beginning, and another one later.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from onceover.config.codes import ConfigCode
from onceover.config.flow.flowfile import Flow
from onceover.drills.codes import DrillCode
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.metrics import catalogue as m
from onceover.metrics.alerts import ALERTS
from onceover.metrics.catalogue import ALL, MetricSpec
from onceover.metrics.expected import add_expected
from onceover.metrics.figures import Distribution, Figures
from onceover.metrics.fromstatus import add_drills, add_needs, flow_figures
from onceover.operate.statusneeds import with_fault
from onceover.operate.statusshape import broken_entry
from tests.support.worlds.statusentries import partition_entry, running_entry

PROJECT: Final = Path(__file__).parents[3]
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
        up: whether the exporter answers at the end; None where Prometheus does not ask it.
        job: as Prometheus calls what it asks.
        looks: whether it goes on looking, and the samples are not those of its tenth look for ever.
    """

    before: Figures
    after: Figures
    up: bool | None = True
    job: str = "onceover"
    looks: bool = True


def flow_file(replicate: str | None = None, audit: str | None = "@daily") -> Flow:
    return Flow.model_validate(
        {
            "flow": FLOW,
            "source": {"alias": "east", "client": {"bootstrap.servers": "h:1"}},
            "target": {"alias": "west", "client": {"bootstrap.servers": "h:2"}},
            "topics": {"include": ["x"]},
            "schedules": {"replicate": replicate, "audit": audit},
            "path": Path("/x/orders.yaml"),
            "sha256": "0",
        }
    )


def told(file: Flow | None = None, /, **changes: Any) -> Figures:
    """Return the samples of a flow that runs, in order, with changes."""
    return seen(_running(changes), file or flow_file())


def _running(changes: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"last_commit_ms": None, **changes}
    return running_entry(**fields)


def seen(entry: Mapping[str, Any], file: Flow | None) -> Figures:
    """Return the samples of a look.

    Args:
        file: as the flow file was when it was last in order.
    """
    figures = flow_figures(entry)
    if file is not None:
        add_expected(figures, entry, file, 0)
    figures.put(m.EXPORTER_INFO, 1, "0.1")
    figures.put(m.LOOK_FRESH, 1, FLOW)
    figures.put(m.LOOK_ENDED, 0, FLOW)
    return figures


def run(state: str, ended: str | None = None) -> dict[str, Any]:
    told = {**running_entry()["run"], "state": state, "ended": ended, "since_ms": 0}
    return {"run": told, "state": "stopped"}


def with_(*samples: tuple[MetricSpec, float], **changes: Any) -> Figures:
    figures = told(**changes)
    for spec, value in samples:
        figures.put(spec, value, FLOW)
    return figures


def drilled(*, running: bool = False, result: str = "PASS", ended_ms: int = 1_000, **changes: Any) -> Figures:
    figures = told(**changes)
    drill = {"drill": "d1", "mode": "rehearsal", "began_ms": -10_000_000, "result": result, "rto_s": 2.0}
    drill |= {"rpo_offsets": None, "rpo_s": None}
    add_drills(
        figures,
        FLOW,
        {
            "running": "d1" if running else None,
            "drills": [{**drill, "ended_ms": None if running else ended_ms}],
        },
    )
    return figures


def without_files() -> Figures:
    """Return the samples of an exporter that was started anew, and found no flow file."""
    figures = Figures()
    figures.put(m.EXPORTER_INFO, 1, "0.1")
    return figures


def needing(code: DrillCode) -> Figures:
    """Return the samples of a flow whose journal of drills tells of something that waits for somebody."""
    figures = told()
    add_needs(figures, FLOW, [NeedsOperator("x", code=code)])
    return figures


def lost(side: str) -> dict[str, Any]:
    error = {**Retriable("away").as_dict(), "exit": 5}
    return {side: {**running_entry()[side], "error": error}, "exit": 5}


def aborted(count: int) -> Figures:
    return told(aborted={"0": count})


def broken(code: str | None = None) -> Figures:
    """Return the samples of a flow of which nothing is known, as its file was never seen in order."""
    return seen(broken_entry(FLOW, "/x", UsageError("unknown key", code=code)), None)


def beside(**changes: Any) -> Figures:
    """Return the samples of a flow whose file was in order once, and is not any more."""
    entry = _running(changes)
    return seen(with_fault(entry, UsageError("unknown key")), flow_file())


def stale() -> Figures:
    figures = Figures()
    figures.put(m.EXPORTER_INFO, 1, "0.1")
    figures.put(m.LOOK_FRESH, 0, FLOW)
    return figures


def proven(*ages_days: float | None, audit: str | None = "@daily") -> Figures:
    """Return the samples of partitions that were proven so long ago; None: never, and enrolled as long ago as
    the first.
    """
    return told(flow_file(audit=audit), partitions=proven_partitions(*ages_days))


def proven_partitions(*ages_days: float | None) -> list[dict[str, Any]]:
    first_ms = -int((ages_days[0] or 4) * _DAY_S * 1000)
    watermarks = [None if days is None else {"at_ms": -int(days * _DAY_S * 1000)} for days in ages_days]
    return [
        partition_entry(number, verified=verified, enrolled_ms=first_ms)
        for number, verified in enumerate(watermarks)
    ]


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
    "Unwatched": lambda: AlertCase(told(), stale()),
    "Forgotten": lambda: AlertCase(told(), without_files()),
    "FlowFileBroken": lambda: AlertCase(told(), broken()),
    "NoConnection": lambda: AlertCase(told(), broken(ConfigCode.NO_CONNECTION)),
    "DriverGone": lambda: AlertCase(told(), told(**run("gone"))),
    "RunFailed": lambda: AlertCase(told(), told(**run("failed"))),
    "PartitionStopped": lambda: AlertCase(told(), told(partitions=STOPPED)),
    "NotMoving": lambda: AlertCase(told(), told(partitions=STUCK)),
    "TopicNotCopied": lambda: AlertCase(told(), told(partitions=OUTSIDE)),
    "SourceUnreachable": lambda: AlertCase(told(), told(**lost("source"))),
    "TargetUnreachable": lambda: AlertCase(told(), told(**lost("target"))),
    "LagTooOld": lambda: AlertCase(told(), told(**BEHIND)),
    "ScheduleMissed": lambda: AlertCase(told(), told(flow_file("*/10 * * * *"), **run("ended", "done"))),
    "NotCommitting": lambda: AlertCase(told(), told(last_commit_ms=600_000, partitions=COPYING)),
    "AbortsOften": lambda: AlertCase(aborted(0), aborted(40)),
    "StartsFenced": lambda: AlertCase(told(fenced_starts=1), told(fenced_starts=4)),
    "RestartsOften": lambda: AlertCase(told(restarts=1), told(restarts=5)),
    "OpenTransaction": lambda: AlertCase(with_((m.OPEN_AGE, 0)), with_((m.OPEN_AGE, 1_000))),
    "DeadLetters": lambda: AlertCase(told(**LETTERS[0]), told(**LETTERS[1])),
    "AuditFailed": lambda: AlertCase(told(), told(needs=[AUDIT_NEED], exit=1)),
    "NotVerified": lambda: AlertCase(told(), proven(4)),
    "DrillFailed": lambda: AlertCase(drilled(), drilled(result="FAIL")),
    "NotRehearsed": lambda: AlertCase(drilled(), drilled(ended_ms=-40_000 * _DAY_S)),
    "DrillHangs": lambda: AlertCase(told(), drilled(running=True)),
    "WritersKeptOff": lambda: AlertCase(told(), needing(DrillCode.STILL_FENCED)),
    "JournalDamaged": lambda: AlertCase(told(), needing(DrillCode.JOURNAL_DAMAGED)),
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
    by = f'job="{case.job}",instance="{instance}"'
    found = []
    if case.up is not None:
        found.append({"series": f"up{{{by}}}", "values": f"1x{_BEFORE} {int(case.up)}x{_AFTER}"})
    for spec in ALL:
        before, after = case.before.samples(spec), case.after.samples(spec)
        for labels in {**before, **after}:
            named = ",".join(f'{name}="{value}"' for name, value in zip(spec.labels, labels, strict=True))
            values = (
                f"{_value(before.get(labels), _BEFORE)} {_later(spec, before.get(labels), after.get(labels))}"
            )
            if spec is m.LOOK_ENDED and labels in before:
                # The first number is one sample more than those that are counted behind it.
                values = f"0+60x{_BEFORE} {60 * (_BEFORE + 1)}+{60 * case.looks}x{_AFTER}"
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


def judge(tmp_path: Path, tests: list[dict[str, Any]], every: str = "1m") -> subprocess.CompletedProcess[str]:
    path = tmp_path / "tests.yaml"
    # JSON is YAML, and written in no time.
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": every, "tests": tests}))
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
        # An alert about what has just grown is over a quarter of an hour later; of the others only those with
        # an hour's patience take longer than the half hour that a run may be late.
        soon = {"0m": "12m", "1h": "75m"}.get(alert.after, "50m")
        both = [firing(None, case, "9m", 2), firing(alert.alert, case, soon, 2)]
        tests.append({**both[0], "promql_expr_test": [t for each in both for t in each["promql_expr_test"]]})
    said = judge(tmp_path, tests)
    assert said.returncode == 0, said.stdout + said.stderr


def assert_fires(tmp_path: Path, case: AlertCase, *names: str) -> None:
    """These alerts fire in the end, and no others."""
    fires = {
        "expr": 'sum by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": "75m",
        "exp_samples": [{"labels": f'{{alertname="Onceover{name}"}}', "value": 1} for name in names],
    }
    # Rules are what takes time, and all that was to happen is long over.
    said = judge(tmp_path, [{**firing(None, case, "75m"), "promql_expr_test": [fires]}], every="5m")
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("ended", ["done", "asked"])
@pytest.mark.parametrize("schedule", [None, "@once", "@daily"])
def test_a_flow_that_has_ended_is_no_reason_to_wake_anybody(
    tmp_path: Path, ended: str, schedule: str | None
) -> None:
    """Also with a lag, and with topics that its next run would take in."""
    over = told(flow_file(schedule), **run("ended", ended), **BEHIND, partitions=OUTSIDE)
    assert_fires(tmp_path, AlertCase(over, over))


def test_a_scheduled_flow_whose_runs_do_not_come_is_missed(tmp_path: Path) -> None:
    """Its DAG is paused, or the scheduler is dead: nobody ended it, so what it lacks counts."""
    behind = {**BEHIND, "oldest_missing_s": 2 * 3600.0}
    over = told(flow_file("*/30 * * * *"), **run("ended", "done"), **behind, partitions=OUTSIDE)
    assert_fires(tmp_path, AlertCase(over, over), "LagTooOld", "ScheduleMissed", "TopicNotCopied")


def test_a_scheduled_flow_that_somebody_stopped_is_for_the_next_morning(tmp_path: Path) -> None:
    """Whoever stopped it knows that it lags; whether it should have begun again, nobody else asks."""
    behind = {**BEHIND, "oldest_missing_s": 30 * 86_400.0}
    for schedule in ("*/30 * * * *", "@continuous"):
        over = told(flow_file(schedule), **run("ended", "asked"), **behind)
        assert_fires(tmp_path, AlertCase(over, over), "ScheduleMissed")


def test_a_run_that_catches_up_with_what_came_since_the_last_one_is_in_time(tmp_path: Path) -> None:
    """Of a copy that is made once a day, what is missing is a day old when it begins."""
    catches_up = told(flow_file("@daily"), lag_offsets=5, oldest_missing_s=30 * 3600.0)
    assert_fires(tmp_path, AlertCase(catches_up, catches_up))


@pytest.mark.parametrize(
    ("samples", "fires"),
    [
        (proven(4, 0), True),
        # A topic that was taken in since takes nothing from the age of the others.
        (proven(4, None), True),
        (proven(None, 0), True),
        (proven(1, None), False),
        # Each audit was unable to prove anything; or there never was one, though they are asked for.
        (proven(None, None), True),
        (proven(None, None, audit=None), False),
        (proven(4, None, audit=None), True),
        # Three audits of a week.
        (proven(20, audit="@weekly"), False),
        (proven(22, audit="@weekly"), True),
    ],
)
def test_what_is_not_proven_is_told_until_it_is(tmp_path: Path, samples: Figures, fires: bool) -> None:
    """Whether or not anything ever was."""
    assert_fires(tmp_path, AlertCase(samples, samples), *["NotVerified"] * fires)


def test_open_transactions_that_follow_each_other_are_as_it_should_be(tmp_path: Path) -> None:
    """At each look some are, where somebody writes by transactions: none of them for long."""
    busy = with_((m.OPEN_AGE, 30), partitions=OPEN)
    assert_fires(tmp_path, AlertCase(busy, busy))


def test_a_flow_whose_copies_were_promoted_wakes_nobody(tmp_path: Path) -> None:
    """Its source may be gone for good, and nothing is proven against it any more; its canary writes nothing,
    and nobody rehearses it. Of a target that is away nobody knows that, but by what was known last.
    """
    old = {"partitions": proven_partitions(9), **run("promoted")}
    over = with_((m.CANARY_FAILURES, 0), (m.CANARY_WAITING, 900), **old)
    for later in (over, with_((m.CANARY_FAILURES, 9), **old, **lost("source"))):
        assert_fires(tmp_path, AlertCase(over, later))
    both = {name: side for each in ("source", "target") for name, side in lost(each).items()}
    assert_fires(tmp_path, AlertCase(over, told(**run("unknown"), **both)))
    rehearsed = drilled(ended_ms=-40_000 * _DAY_S, **run("promoted"))
    assert_fires(tmp_path, AlertCase(rehearsed, rehearsed))


def test_a_flow_that_is_copied_back_is_one_like_any_other(tmp_path: Path) -> None:
    """Promoted once, and not any more."""
    for side, name in (("source", "SourceUnreachable"), ("target", "TargetUnreachable")):
        case = AlertCase(told(**run("promoted")), told(**lost(side)))
        assert_fires(tmp_path, case, name)


def test_what_nobody_copies_need_not_be_proven_again(tmp_path: Path) -> None:
    """Whoever stopped the flow did so on purpose; between two scheduled runs it is wanted."""
    old = {"partitions": proven_partitions(4)}
    for state, ended, schedule, names in (
        ("ended", "asked", None, ()),
        ("ended", "done", None, ()),
        ("ended", "done", "@daily", ("NotVerified",)),
        ("failed", None, None, ("NotVerified", "RunFailed")),
    ):
        since = {**run(state, ended)["run"], "since_ms": 4_000_000}
        over = told(flow_file(schedule), **{**old, "run": since})
        assert_fires(tmp_path, AlertCase(over, over), *names)


def test_a_canary_that_failed_for_a_moment_is_no_news(tmp_path: Path) -> None:
    """And while a cluster is away that is the news."""
    quiet, failed = with_((m.CANARY_FAILURES, 0)), with_((m.CANARY_FAILURES, 9))
    said = judge(tmp_path, [firing(None, AlertCase(quiet, failed), at) for at in ("12m", "20m")])
    assert said.returncode == 0, said.stdout + said.stderr
    for side, name in (("source", "SourceUnreachable"), ("target", "TargetUnreachable")):
        away = with_((m.CANARY_FAILURES, 9), **lost(side))
        assert_fires(tmp_path, AlertCase(quiet, away), name)


def test_a_typo_in_the_file_of_a_running_flow_ends_no_page(tmp_path: Path) -> None:
    """What waits for a person waits on, and the typo is told beside it."""
    case = AlertCase(told(), beside(partitions=STOPPED, **BEHIND))
    assert_fires(tmp_path, case, "FlowFileBroken", "LagTooOld", "PartitionStopped")


def test_a_flow_that_nobody_sees_any_more_is_paged_for_where_it_was_wanted(tmp_path: Path) -> None:
    """The exporter was started anew over a broken file; or a look hangs. One that had ended wakes nobody."""
    ended = told(**run("ended", "asked"))
    dark = told(**run("unknown"))
    for case, names in (
        (AlertCase(told(), broken()), ("FlowFileBroken", "Unwatched")),
        (AlertCase(ended, broken()), ("FlowFileBroken",)),
        (AlertCase(told(), broken(ConfigCode.NO_CONNECTION)), ("NoConnection", "Unwatched")),
        (AlertCase(told(), stale()), ("LookStale", "Unwatched")),
        (AlertCase(ended, stale()), ("LookStale",)),
        (AlertCase(told(), told(**run("unknown"), **lost("target"))), ("TargetUnreachable",)),
        # The target answers, and what it says of the flow cannot be read.
        (AlertCase(told(), dark), ("Unwatched",)),
        (AlertCase(dark, dark), ()),
    ):
        assert_fires(tmp_path, case, *names)


def test_a_file_that_is_written_now_and_then_fits_the_alerts(tmp_path: Path) -> None:
    """As node_exporter tells it, whose job has another name. Commits are as old as they were at the look; and
    what is told for ever is noticed: nobody looks any more.
    """
    well = told(last_commit_ms=1)
    assert_fires(tmp_path, AlertCase(well, well, job="node"))
    copying = told(last_commit_ms=590_000, partitions=COPYING[:1])
    dead = AlertCase(copying, copying, job="node", looks=False)
    assert_fires(tmp_path, dead, "LookStale", "Unwatched")
    assert_fires(tmp_path, AlertCase(told(), told(partitions=STOPPED), job="node"), "PartitionStopped")


def test_samples_that_a_collector_hands_on_fit_the_alerts(tmp_path: Path) -> None:
    """Prometheus asks nobody then, so nobody is up or down: what comes no more is missed."""
    assert_fires(tmp_path, AlertCase(told(), told(), up=None))
    assert_fires(tmp_path, AlertCase(told(), Figures(), up=None), "ExporterDown")


def test_what_is_not_copied_has_alerts_of_its_own(tmp_path: Path) -> None:
    """A quiet flow with a stopped partition, and one that is not taken in, is asked for no commits."""
    quiet = told(last_commit_ms=1, lag_offsets=8, partitions=[*STOPPED, *OUTSIDE[1:]])
    assert_fires(tmp_path, AlertCase(quiet, quiet), "PartitionStopped", "TopicNotCopied")


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
