"""The tasks of the DAG ``migrate_connector_offsets``: to topics of connectors' own and back.

Invariant: no connector is stopped and no offset written before a person has approved exactly those changes
of exactly those connectors; what the cluster says anew is compared with what was approved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Asset, AssetAlias, Param, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from onceover.config.connect.connectfile import find_connect_files
from onceover.logs import quiet_libraries
from onceover.private import privately
from onceover.shown import lined, visible
from onceover_airflow.access.flowcontext import errors_of_ours, log_text
from onceover_airflow.access.secrets import environment
from onceover_airflow.approvals.approval import ANSWER_WITHIN, MAX_LISTED, table
from onceover_airflow.approvals.markdown import code, plain
from onceover_airflow.errors import TaskFailed
from onceover_airflow.flows import by_name
from onceover_airflow.starting import forms
from onceover_airflow.tasks.operation import OperationTasks
from onceover_airflow.telling.assets import proven_uri

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.config.connect.connectfile import ConnectFile
    from onceover.connectors.model import MigrationPlan
    from onceover.connectors.moving.migration import ConnectorOperation
    from onceover.connectors.settings import ConnectorRequest

log = logging.getLogger(__name__)

# Outlet under which migrated connectors are announced: which they are is known at run time only.
MIGRATED_ALIAS: Final = "onceover_connectors_migrated"
LIST_TASK: Final = "list_connectors"
PICK_TASK: Final = "pick_connectors"
MIGRATE: Final = "migrate"
# As ``connectors.settings.ConnectorMove`` has them, which is not loaded while DAG files are read.
_OPERATIONS: Final = (MIGRATE, "rollback", "downgrade", "downgrade-soft")
_UNASKED: Final = "connectors are listed when the question is put"


def connect_params() -> dict[str, Param]:
    """Return the form's fields. Which connectors there are is asked of the live cluster, after the start."""
    names = sorted(path.stem for path in find_connect_files())
    return {
        "connect": forms.pick(
            "Connect cluster", names, "A file in the directory of Connect files, without `.yaml`."
        ),
        "operation": Param(
            MIGRATE,
            type="string",
            enum=list(_OPERATIONS),
            title="Operation",
            description_md="`migrate`: to topics of their own. `rollback`: take back what was interrupted "
            "before it was resumed. `downgrade`: back to the shared topic. `downgrade-soft`: before "
            "exactly-once is switched off; once more after it.",
        ),
        "connectors": Param(
            [],
            type="array",
            items={"type": "string", "maxLength": forms.MAX_TEXT},
            maxItems=forms.MAX_TEXT,
            title="Connectors",
            description_md="One name a line. Empty: the run asks, and shows what the live cluster has.",
        ),
        "topic": forms.optional(
            "Offsets topic",
            "To migrate, for all of them. Empty: the one that it has, or `<shared topic>-<connector>`.",
        ),
        "apply": forms.apply_param(),
    }


def list_connectors(connect: str) -> dict[str, Any]:
    """Ask the live cluster what it runs; return the names that can be meant. Changes nothing.

    Raises:
        JobInterrupted: no worker, or no broker, answers; tried again.
        TaskFailed: it runs no source connector, or not those that the form names; any other error.
    """
    from onceover.connectors.moving.selection import MEANT
    from onceover.connectors.settings import ConnectorMove
    from onceover.wiring import connectors as runs

    with connect_at_hand(connect) as file:
        listing = runs.list_connectors(file)
        log_text(log, listing.describe())
        params = get_current_context()["params"]
        # A line of the form that was left empty names nobody.
        named = [name for name in params["connectors"] if name.strip()]
        if named:
            listing.check(named)
            sources = listing.sources
        else:
            meant = MEANT[ConnectorMove(params["operation"])]
            sources = list(runs.meant_by_all(file, listing, meant))
    return {"connect": connect, "sources": sources, "named": named}


class MigrationTasks(OperationTasks["MigrationPlan"]):
    """Plan, approve and apply a move of connectors' offsets. Always asked: they are stopped for a while."""

    plan_task = "plan_migration"
    approve_task = "approve_migration"
    apply_task = "apply_migration"
    field = "connect"
    subject = "Connect cluster {{ params.connect }}: offsets to be moved ({{ params.operation }})"
    needs_answer = True

    @contextmanager
    def opened(self, name: str, context: Context) -> Iterator[ConnectorOperation]:
        """Yield the move that the form asks for."""
        from onceover.connectors.settings import ConnectorMove
        from onceover.wiring.connectors import connector_operation

        move = ConnectorMove(context["params"]["operation"])
        with connect_at_hand(name) as file, connector_operation(file, move, _request(context)) as operation:
            yield operation

    def check(self, planned: MigrationPlan) -> None:
        """Fail where nothing can be done for any connector."""
        if all(plan.blocked for plan in planned.connectors):
            shown = [f"{r.object}: {r.message}; to resolve: {r.resolve}" for r in planned.refused if r.blocks]
            name = planned.flow
            raise TaskFailed(lined([f"Connect cluster {name}: nothing can be done:", *shown[:MAX_LISTED]]))

    def question(self, planned: MigrationPlan) -> str:
        """Return the plan as Markdown: every change in its order, what is refused, what deserves a look."""
        rows = [
            (plain(c.what), code(c.object), plain(c.from_), plain(c.to), plain(c.reason))
            for c in planned.changes
        ]
        lines = table(("change", "of", "from", "to", "why"), rows)
        lines += _listed("Refused", [f"{code(r.object)}: {plain(r.message)}" for r in planned.refused])
        for heading, texts in (("Look at", planned.warnings), ("Note", planned.notes)):
            # Of whom, then what: neither a connector's name nor what workers say is taken for Markdown.
            pairs = (text.partition(": ") for text in texts)
            lines += _listed(heading, [f"{code(who)}: {plain(what)}" for who, _, what in pairs])
        lines.append(
            "Connectors are done one after the other, and stopped meanwhile. **Reject** changes nothing."
        )
        return "\n".join(lines)

    def verify(self, name: str) -> dict[str, Any]:
        """Prove from the live cluster that the migrated connectors go on in their own topics; announce them.

        Raises:
            AirflowSkipException: nothing was applied, or connectors went back, which ``apply`` has judged.
            JobInterrupted: no worker, or no broker, answers; tried again.
            TaskFailed: something is not as it should be, or cannot be proven.
        """
        from onceover.wiring import connectors as runs

        context = get_current_context()
        if context["ti"].xcom_pull(task_ids=self.apply_task) is None:
            raise AirflowSkipException("nothing was applied")
        if context["params"]["operation"] != MIGRATE:
            raise AirflowSkipException(
                "there is no topic of their own to verify: the last task has judged them"
            )
        with connect_at_hand(name) as file:
            report = runs.verify_connectors(file, _request(context))
        log_text(log, report.describe())
        verdict = self.finish(name, context, report)
        for connector in verdict["connectors"]:
            uri = migrated_uri(name, connector)
            context["outlet_events"][AssetAlias(MIGRATED_ALIAS)].add(
                Asset(uri), extra={"connector": connector}
            )
            log.info("migrated: %s", uri)
        return verdict


MIGRATION: Final = MigrationTasks()


def migrated_uri(connect: str, connector: str) -> str:
    """Return the asset of a connector's offsets: whatever it is called, nobody else's."""
    return proven_uri(connect, f"{quote(connector, safe='')}.offsets")


@contextmanager
def connect_at_hand(ref: str) -> Iterator[ConnectFile]:
    """Yield the Connect file with its Connections in the environment; errors of ours leave as Airflow's.

    Raises:
        JobInterrupted: a temporary failure (exit code 5); tried again.
        TaskFailed: any other error of ours.
    """
    from onceover.config.connect.connectfile import load_connect
    from onceover_airflow.access.connections import connect_environment

    quiet_libraries()
    with errors_of_ours():
        file = load_connect(by_name(ref))
        with environment(connect_environment(file)), privately():
            yield file


def _request(context: Context) -> ConnectorRequest:
    from onceover.connectors.settings import ConnectorRequest

    listed = context["ti"].xcom_pull(task_ids=LIST_TASK)
    names = listed["named"]
    if not names:
        picked = context["ti"].xcom_pull(task_ids=PICK_TASK)
        offered = _offered(listed["sources"])
        names = [offered.get(option, option) for option in (picked["chosen_options"] if picked else [])]
    migrates = context["params"]["operation"] == MIGRATE
    return ConnectorRequest(
        connectors=tuple(names), topic=(context["params"]["topic"] if migrates else None) or None
    )


def _offered(names: Sequence[str]) -> dict[str, str]:
    """Return the connectors by what a person is shown of each: as it is, and like no other one."""
    # A backslash of its own could pretend to be an escape.
    return {visible(name.replace("\\", r"\\")): name for name in names}


class PickConnectorsOperator(HITLOperator):
    """Let a person choose among the source connectors that the live cluster has; skipped when the form did.

    :param connect: the Connect file's name (templated)
    """

    template_fields = ("connect", "subject")

    def __init__(self, *, connect: str, **kwargs: Any) -> None:
        super().__init__(
            subject="Connect cluster {{ params.connect }}: connectors to {{ params.operation }}",
            # What there is to choose is known when the question is put; Airflow demands something before.
            options=[_UNASKED],
            multiple=True,
            response_timeout=ANSWER_WITHIN,
            **kwargs,
        )
        self.connect = connect

    def execute(self, context: Context) -> Any:
        """Put the question, or skip it.

        Raises:
            AirflowSkipException: the form named connectors.
        """
        listed = context["ti"].xcom_pull(task_ids=LIST_TASK)
        if listed["named"]:
            raise AirflowSkipException("the form names the connectors")
        self.options = list(_offered(listed["sources"]))
        self.body = (
            f"Source connectors of {code(self.connect)}, as its workers list them now. Nothing is changed "
            "before the plan was shown and approved."
        )
        return super().execute(context)

    def validate_chosen_options(self, chosen_options: list[str]) -> None:
        """Leave the comparison to the API, which knows the options that were really offered."""


def _listed(heading: str, texts: Sequence[str]) -> list[str]:
    return [f"- **{heading}** {text}" for text in texts[:MAX_LISTED]] + ([""] if texts else [])
