"""Alerts on the metrics: when a person is told, and what they do then. Pure.

Invariants: each has a command that resolves it and a place in docs/operations.md; none is about what nobody
could read, which has alerts of its own: what is not known is neither in order nor broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from onceover.config.codes import ConfigCode
from onceover.drills.codes import DrillCode
from onceover.metrics import catalogue as m
from onceover.metrics.catalogue import MetricSpec

RUNBOOK: Final = "docs/operations.md"
# Somebody has to get up; somebody has to look in the morning.
PAGE: Final = "page"
TICKET: Final = "ticket"
_JOB: Final = "onceover"
# Not there where samples come by a file, or by a collector: then nobody is asked who could be down.
_UP: Final = f'up{{job="{_JOB}"}}'


@dataclass(frozen=True)
class AlertRule:
    """One alert.

    Args:
        name: of it, without the ``Onceover`` before it.
        expr: in PromQL.
        after: for how long that holds before anybody is told.
        severity: ``page`` or ``ticket``.
        summary: what is wrong, for people; ``{{ $labels.flow }}`` is the flow.
        resolve: the command, or what else helps.
        meaning: what it means, and what to do when the command is not enough: its text in the runbook.
    """

    name: str
    expr: str
    after: str
    severity: str
    summary: str
    resolve: str
    meaning: str

    @property
    def alert(self) -> str:
        """Its name in Prometheus."""
        return f"Onceover{self.name}"

    @property
    def anchor(self) -> str:
        """Where it stands in the runbook."""
        return self.alert.lower()

    def document(self) -> dict[str, Any]:
        """Return the rule as Prometheus reads it."""
        return {
            "alert": self.alert,
            "expr": self.expr,
            "for": self.after,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "resolve": self.resolve,
                "runbook_url": f"{RUNBOOK}#{self.anchor}",
            },
        }


def _state(spec: MetricSpec, value: str) -> str:
    return f'{spec.name}{{state="{value}"}} == 1'


_FLOW: Final = "{{ $labels.flow }}"
_STATUS: Final = f"onceover status {_FLOW}"
# Of the same flow by the same exporter: there may be several of one flow, and none fires where two match.
_SAME: Final = "on (job, instance, flow)"
_ACTIVE: Final = f'{m.RUN_STATE.name}{{state=~"running|gone|failed|starting"}} == 1'
_WANTED: Final = f"{_SAME} {m.WANTED.name} == 1"
# Of samples that somebody else keeps, a file or a collector: none comes of a look any more.
_OLD_LOOK: Final = f"time() - {m.LOOK_ENDED.name} > 900"
_UNKNOWN: Final = f'{m.RUN_STATE.name}{{state="unknown"}} == 1'
# Its copies are clients' now: nobody has anything to do for it. As it was known last, since a target that is
# away does not tell; by the same exporter, as one that is gone would go on saying it.
_PROMOTED: Final = f'{_SAME} last_over_time({m.RUN_STATE.name}{{state="promoted"}}[3d:5m]) == 1'
# By whichever exporter: a pod has another name after it was started anew. A weekend, as far as that is known.
_WAS_WANTED: Final = f"on (job, flow) last_over_time({m.WANTED.name}[3d:5m]) == 1"

ALERTS: Final = (
    AlertRule(
        "ExporterDown",
        f"{_UP} == 0 or absent({m.EXPORTER_INFO.name}) unless on () {_UP}",
        "2m",
        PAGE,
        "nobody watches the flows: onceover metrics does not answer",
        "onceover metrics",
        "The process that answers scrapes is gone or cannot be reached. Copies go on without it. Start it "
        "again where it ran; counters begin at 0, which Prometheus expects. Of samples that come by a "
        "collector, or by a file of `--once`, none is left.",
    ),
    AlertRule(
        "LookStale",
        f"{m.LOOK_FRESH.name} == 0 or {_OLD_LOOK}",
        "5m",
        TICKET,
        f"flow {_FLOW} cannot be looked at: everything that is known of it is too old",
        _STATUS,
        "The exporter lives, and a look at this flow does not come to its end: a resolver that hangs, or a "
        "machine without a moment to spare. The command says more; starting the exporter anew gives up what "
        "hangs. Or whatever runs `onceover metrics --once` has not for a quarter of an hour: change the "
        "number where it is to be seldom, or `--interval` is longer.",
    ),
    AlertRule(
        "Unwatched",
        f"max without (state) ({m.LOOK_FRESH.name} == 0 or {_OLD_LOOK} or {_UNKNOWN} "
        f'unless {_SAME} {m.CLUSTER_UP.name}{{side="target"}} == 0) and {_WAS_WANTED}',
        "5m",
        PAGE,
        f"nobody knows how flow {_FLOW} is, and it was to copy when that was known last",
        _STATUS,
        "Whatever was told of it before, such as a stopped partition, is told no longer, and may be so "
        "still: OnceoverLookStale, OnceoverFlowFileBroken or OnceoverNoConnection says why. With none of "
        "them, its state on the target cannot be read. It ends when the flow is seen again, and after three "
        "days.",
    ),
    AlertRule(
        "Forgotten",
        f"last_over_time({m.WANTED.name}[3d:5m]) == 1 "
        f"unless on (job, flow) {m.LOOK_FRESH.name} and on (job) {m.EXPORTER_INFO.name}",
        "15m",
        TICKET,
        f"no exporter has the file of flow {_FLOW} any more, and it was to copy when that was known last",
        f"onceover flow check {_FLOW}",
        "An exporter that was started anew without the file, or with one that it cannot read and that is "
        "called otherwise, knows nothing of the flow: its run may go on, and stop, unseen. Give it the file. "
        "Where that was taken out on purpose this ends after three days; of a flow that was stopped before "
        "there is no such alert.",
    ),
    AlertRule(
        "FlowFileBroken",
        f"{m.FILE_VALID.name} == 0",
        "5m",
        TICKET,
        f"the flow file of {_FLOW}, or one of its clients, is not in order",
        f"onceover flow check {_FLOW}",
        "A run that began before goes on with the file as it was, and so does the exporter, where it has "
        "seen it in order: all other alerts about the flow hold. The next start would be refused. Two files "
        "for one flow ([flow-file.md](flow-file.md)) count as broken, too: the one that is called after it "
        "is looked at.",
    ),
    AlertRule(
        "NoConnection",
        f'{m.NEEDS.name}{{code="{ConfigCode.NO_CONNECTION}"}} > 0',
        "5m",
        TICKET,
        f"flow {_FLOW} cannot be looked at: the exporter is not given its Airflow Connection",
        f"onceover flow check {_FLOW}",
        "The file is in order. A Connection is given to what a DAG starts; the exporter is started by "
        "somebody else, and finds it in its environment as `AIRFLOW_CONN_<ID>` "
        "([metrics.md](metrics.md#flows-with-connections-of-airflow)).",
    ),
    AlertRule(
        "DriverGone",
        _state(m.RUN_STATE, "gone"),
        "1m",
        PAGE,
        f"the driver of flow {_FLOW} is gone, and never said that it ended: nobody copies",
        f"onceover replicate {_FLOW} --until forever",
        "It was killed, or its machine was. Whatever it had begun is not on the target, and whatever is "
        "there is "
        "whole: the next start goes on where it was. Look at its last log before that if it happens again.",
    ),
    AlertRule(
        "RunFailed",
        _state(m.RUN_STATE, "failed"),
        "1m",
        PAGE,
        f"the last run of flow {_FLOW} failed: nobody copies",
        _STATUS,
        "The status says with what, and whether that passes by itself.",
    ),
    AlertRule(
        "PartitionStopped",
        f'{m.PARTITIONS.name}{{state="stopped"}} > 0',
        "1m",
        PAGE,
        f"{{{{ $value }}}} partitions of flow {_FLOW} are stopped and wait for a person",
        _STATUS,
        "To go on would skip or repeat records, so a person decides: the status names the command for "
        "each. The "
        "other partitions go on. [When a partition is stopped](#when-a-partition-is-stopped) has the "
        "reasons.",
    ),
    AlertRule(
        "NotMoving",
        f'{m.PARTITIONS.name}{{state="stuck"}} > 0',
        "1m",
        PAGE,
        f"{{{{ $value }}}} partitions of flow {_FLOW} do not move, and nothing that is known explains it",
        _STATUS,
        "They have stood still for two minutes and more with records behind them (NOT_MOVING in the status, "
        "with "
        "their lane). Stop the flow and start it again: it goes on where it is. If they stand still again, "
        "the log of "
        "the run says what the lane does.",
    ),
    AlertRule(
        "TopicNotCopied",
        f'{m.PARTITIONS.name}{{state="not_enrolled"}} > 0 and {_SAME} ({_ACTIVE} '
        f"or {m.OLDEST.name} > {_SAME} {m.LAG_LIMIT.name}) and {_WANTED}",
        "15m",
        TICKET,
        f"{{{{ $value }}}} partitions that flow {_FLOW} should copy are not copied at all",
        f"onceover topics plan {_FLOW}",
        "New topics are taken in within the discovery interval, or by the next scheduled run. What is still "
        "outside after a quarter of an hour, or behind that, was "
        "refused: [When a topic is not taken in](#when-a-topic-is-not-taken-in).",
    ),
    AlertRule(
        "SourceUnreachable",
        f'{m.CLUSTER_UP.name}{{side="source"}} == 0 unless {_PROMOTED}',
        "2m",
        PAGE,
        f"the source of flow {_FLOW} does not answer, or not fully: its lag is not known",
        _STATUS,
        "If it is lost for good: [drills.md](drills.md) has the failover. What was committed on the target "
        "is "
        "whole up to the last transaction.",
    ),
    AlertRule(
        "TargetUnreachable",
        f'{m.CLUSTER_UP.name}{{side="target"}} == 0 unless {_PROMOTED}',
        "2m",
        PAGE,
        f"the target of flow {_FLOW} does not answer, or not fully: nothing is copied meanwhile",
        _STATUS,
        "Nothing is lost while the source keeps its records: compare its retention with how long this may "
        "take.",
    ),
    AlertRule(
        "LagTooOld",
        f"{m.OLDEST.name} > {_SAME} {m.LAG_LIMIT.name} and {_WANTED}",
        "5m",
        PAGE,
        f"the target of flow {_FLOW} lacks records that are {{{{ $value | humanizeDuration }}}} old",
        _STATUS,
        "Older than `objectives.rpo` of the flow file, where that is a time; else, of a flow that "
        "`schedules.replicate` starts at times of day, than one and a half of its longest waits; else than "
        "five minutes. Copying and too slow: more lanes, or a quota (TARGET_QUOTA in the status). Not "
        "copying: another alert says why. Behind an open transaction of the source nothing may be copied, "
        "which is OnceoverOpenTransaction. A flow that somebody has stopped, or that was done and has no "
        "schedule, is not meant.",
    ),
    AlertRule(
        "ScheduleMissed",
        f"time() - {m.RUN_DUE.name} > 1800",
        "5m",
        TICKET,
        f"flow {_FLOW} should have begun to copy by its schedule {{{{ $value | humanizeDuration }}}} ago",
        _STATUS,
        "`schedules.replicate` asks for a run, and none has begun for half an hour: its DAG is paused, as "
        "new ones are, Airflow's scheduler does not run, or no slot was free. If nobody is to copy, take the "
        "schedule out of the flow file.",
    ),
    AlertRule(
        "NotCommitting",
        f"{m.LOOK_ENDED.name} - {_SAME} {m.LAST_COMMIT.name} > 300 and {_SAME} {m.COPIED_LAG.name} > 0 "
        f'and {_SAME} {m.RUN_STATE.name}{{state="running"}} == 1',
        "5m",
        PAGE,
        f"flow {_FLOW} runs, has records to copy, and has committed nothing for five minutes",
        f"onceover stop {_FLOW}",
        "Its driver shows signs of life and its lanes do not get through: no Spark slot, or a transaction "
        "that fails "
        "again and again (`onceover_lane_transactions_aborted_total` grows). Stop and start it after a "
        "look at the "
        "driver's log.",
    ),
    AlertRule(
        "AbortsOften",
        f"sum without (lane) (increase({m.LANE_ABORTED.name}[15m])) > 20",
        "5m",
        TICKET,
        f"the lanes of flow {_FLOW} have given up {{{{ $value | humanize }}}} transactions in a quarter of "
        "an hour",
        _STATUS,
        "Each costs what had been sent in it, and no record. Brokers that restart, a target topic that "
        "refuses "
        "records now and then, or a network that loses connections; the driver's log has the reason of each.",
    ),
    AlertRule(
        "StartsFenced",
        f"increase({m.TAKEOVERS.name}[30m]) > 2",
        "0m",
        PAGE,
        f"{{{{ $value | humanize }}}} starts of flow {_FLOW} have fenced a run that had not ended, in half "
        "an hour",
        _STATUS,
        "Two starters that take the flow from each other, such as a schedule and a person, or a driver "
        "that is "
        "killed again and again. No record is lost or repeated by that, and little is copied. Leave one of "
        "them.",
    ),
    AlertRule(
        "RestartsOften",
        f"increase({m.RESTARTS.name}[1h]) > 3",
        "0m",
        PAGE,
        f"flow {_FLOW} was started again {{{{ $value | humanize }}}} times within an hour after its run had "
        "failed",
        _STATUS,
        "A copy whose processes are killed is started again at once, within the same task, so its copy goes "
        "on and no "
        "other alert says that it dies again and again. Nothing is lost or repeated; each costs the seconds "
        "of a start. "
        "The logs of the last runs say what they died of: mostly memory (`limits.memory_per_lane`, or the "
        "machine's "
        "own limit).",
    ),
    AlertRule(
        "OpenTransaction",
        f"{m.OPEN_AGE.name} > 900",
        "5m",
        TICKET,
        f"a transaction that has been open for {{{{ $value | humanizeDuration }}}} holds back flow {_FLOW}",
        "kafka-transactions.sh --bootstrap-server SOURCE find-hanging --broker-id N",
        "No reader of the source sees what is behind it, and no flow copies it. A producer holds it open, or "
        "was killed: the broker ends that after the producer's `transaction.timeout.ms`, which brokers allow "
        "to be a quarter of an hour (`transaction.max.timeout.ms`); one that hangs is aborted with "
        "`kafka-transactions.sh abort`. Ask its producer first where a broker was killed: Kafka may have "
        "told it that the records are committed, and forgotten to write so, and the abort drops them. "
        "`onceover status` names the partitions, and whose it is.",
    ),
    AlertRule(
        "DeadLetters",
        f"delta({m.DEAD_LETTERS.name}[15m]) > 0",
        "0m",
        TICKET,
        f"flow {_FLOW} has put records into its dead-letter topic",
        _STATUS,
        "They were refused by the handler or by the target, and stand there with the reason in their headers "
        "([handlers.md](handlers.md)).",
    ),
    AlertRule(
        "AuditFailed",
        f'{m.NEEDS.name}{{exit="1"}} > 0',
        "0m",
        PAGE,
        f"the audit of flow {_FLOW} found records that are not as they should be",
        f"onceover audit {_FLOW}",
        "Its report names every record. It counts until a later audit has compared the very same and found "
        "it right; where the source holds that no more, until it is copied anew ([audit.md](audit.md)).",
    ),
    AlertRule(
        "NotVerified",
        f"(time() - {m.UNPROVEN.name} > {_SAME} 3 * {m.AUDIT_WAIT.name} "
        f"or time() - {m.VERIFIED.name} > 3 * 86400 unless {_SAME} {m.AUDIT_WAIT.name}) and {_WANTED}",
        "1h",
        TICKET,
        f"a part of the copy of flow {_FLOW} was not proven for {{{{ $value | humanizeDuration }}}}",
        f"onceover audit {_FLOW}",
        "Three audits should have been since (`schedules.audit`; without it, three days that somebody has "
        "audited before): is the DAG paused, or does each answer UNVERIFIABLE? `onceover status` says how "
        "many partitions were never proven, and what the last audit answered.",
    ),
    AlertRule(
        "DrillFailed",
        f'{m.DRILL_RESULT.name}{{result!="PASS"}} == 1',
        "0m",
        TICKET,
        f"the last {{{{ $labels.mode }}}} of flow {_FLOW} ended with {{{{ $labels.result }}}}",
        f"onceover drill status {_FLOW}",
        "A failover would not have gone as planned, or would have taken longer than `objectives.rto`. Its "
        "report "
        "has the step; run it again when that is resolved.",
    ),
    AlertRule(
        "NotRehearsed",
        f'time() - {m.DRILL_ENDED.name}{{mode="rehearsal"}} > 30 * 86400 unless {_PROMOTED}',
        "1h",
        TICKET,
        f"a failover of flow {_FLOW} was rehearsed {{{{ $value | humanizeDuration }}}} ago",
        f"onceover drill run {_FLOW}",
        "The plan of a month ago is about other topics and groups. A flow that was never rehearsed has no "
        "such "
        "metric, and no alert.",
    ),
    AlertRule(
        "DrillHangs",
        f"time() - {m.DRILL_RUNNING.name} > 2 * 3600",
        "0m",
        PAGE,
        f"a drill of flow {_FLOW} has not ended for {{{{ $value | humanizeDuration }}}}",
        f"onceover drill status {_FLOW}",
        "It waits for a person, or its process is gone. A rehearsal that was killed is taken away by "
        "`drill abort`; of a switchover its plan says whether there is a way back.",
    ),
    AlertRule(
        "WritersKeptOff",
        f'{m.NEEDS.name}{{code="{DrillCode.STILL_FENCED}"}} > 0',
        "5m",
        PAGE,
        f"writers are kept off source topics of flow {_FLOW}, and no switchover goes on",
        f"onceover drill abort {_FLOW}",
        "A switchover is over and could not let them in again, or was killed. The command does; where it "
        "cannot, it says what keeps it, and producers wait until then ([drills.md](drills.md)).",
    ),
    AlertRule(
        "JournalDamaged",
        f'{m.NEEDS.name}{{code="{DrillCode.JOURNAL_DAMAGED}"}} > 0',
        "5m",
        TICKET,
        f"the journal of the drills of flow {_FLOW} is not as it was written",
        f"onceover drill status {_FLOW}",
        "Nobody knows what was fenced and how drills have ended, and no drill begins: the other alerts on "
        "drills are silent meanwhile. The command says what to keep and what to delete.",
    ),
    AlertRule(
        "ReceiptsPassedOver",
        f"increase({m.RECEIPTS_PASSED.name}[15m]) > 0",
        "15m",
        TICKET,
        f"the counters of flow {_FLOW} lack receipts: there are more than a look reads, or damaged ones",
        "onceover metrics --interval 5s",
        "The rates of records and bytes are too low; everything else is exact. A shorter interval reads "
        "less at once. Records of the offset map that nobody can read are named in the exporter's log.",
    ),
    AlertRule(
        "CanaryLate",
        f"{m.CANARY_WAITING.name} > 60 and {_SAME} {_ACTIVE}",
        "1m",
        PAGE,
        f"a numbered record of flow {_FLOW} has not arrived for {{{{ $value | humanizeDuration }}}}",
        _STATUS,
        "The way from a producer on the source to a reader on the target does not work as a whole, "
        "whatever its "
        "parts say of themselves.",
    ),
    AlertRule(
        "CanaryWrong",
        f"increase({m.CANARY_LOST.name}[15m]) > 0 or increase({m.CANARY_DUPLICATES.name}[15m]) > 0 "
        f"or increase({m.CANARY_DISORDER.name}[15m]) > 0",
        "0m",
        PAGE,
        f"numbered records of flow {_FLOW} were lost, came twice or out of order",
        f"onceover audit {_FLOW}",
        "That must not be with `delivery: exactly_once`: have an audit name the records. At least once, a "
        "record "
        "may come twice after a crash, and earlier ones again behind later ones.",
    ),
    AlertRule(
        "CanaryFails",
        f"increase({m.CANARY_FAILURES.name}[5m]) > 0 unless {_SAME} {m.CLUSTER_UP.name} == 0 "
        f"unless {_PROMOTED}",
        "15m",
        TICKET,
        f"the canary of flow {_FLOW} cannot be written or read",
        _STATUS,
        "Again and again for a quarter of an hour, while both clusters answer. The exporter's log says why: "
        "mostly a right that it lacks, or a topic that the flow does not take in "
        "([metrics.md](metrics.md#canary)).",
    ),
)


def rules_document() -> dict[str, Any]:
    """Return the file of rules as Prometheus reads it."""
    return {"groups": [{"name": _JOB, "rules": [each.document() for each in ALERTS]}]}
