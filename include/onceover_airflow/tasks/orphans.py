"""The tasks of the DAG ``export_orphans``: what ``onceover drill orphans`` does.

Invariant: nothing is exported, and no topic deleted, that a person was not shown and has not said yes to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow.sdk import Param

from onceover_airflow.access.flowcontext import flow_at_hand
from onceover_airflow.approvals.approval import MAX_LISTED, table
from onceover_airflow.approvals.markdown import Inline, code, plain
from onceover_airflow.jobs.starter import starter
from onceover_airflow.starting import forms
from onceover_airflow.tasks.operation import OperationTasks

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.drills.orphans.export import OrphanExport
    from onceover.drills.orphans.plan import OrphansPlan
    from onceover.planning.plan import Change

_COLUMNS: Final = ("change", "of", "to", "risk", "how")


def orphan_params() -> dict[str, Param]:
    """Return the form's fields, beside the flow."""
    return {
        "topics": forms.optional("Topics", "Regular expression for whole source topics. Empty: all."),
        "rebuild": forms.switch(
            "Rebuild",
            "Behind the export: delete topics with orphans on the old source and make them again empty, so "
            "that the flow the other way copies them anew. There is no way back from that.",
            on=False,
        ),
        "forget_groups": forms.optional(
            "Forget groups",
            "With *Rebuild*: regular expression for whole names of groups whose positions may go with those "
            "topics, although they have none in the copies. Empty: such topics stay.",
        ),
        "apply": forms.apply_param(),
    }


class OrphanTasks(OperationTasks["OrphansPlan"]):
    """Plan, approve and export what an old source holds alone."""

    plan_task = "plan_orphans"
    approve_task = "approve_orphans"
    apply_task = "apply_orphans"
    subject = "Flow {{ params.flow }}: records that were never copied"
    needs_answer = True

    @contextmanager
    def opened(self, name: str, context: Context) -> Iterator[OrphanExport]:
        """Yield the export that the form asks for, with both clusters at hand."""
        from onceover.planning.operation import wait
        from onceover.wiring import flows
        from onceover.wiring.failovers import orphans

        params = context["params"]
        topics, forget = (tuple(filter(None, [params[name]])) for name in ("topics", "forget_groups"))
        options = orphans.OrphanOptions(
            topics, params["rebuild"], forget, starter(context), self.besides(name)
        )
        with (
            flow_at_hand(name) as flow,
            flows.opened(flow, partial(orphans.orphan_export, options=options, pause=wait)) as operation,
        ):
            yield operation

    def besides(self, name: str) -> Collection[str]:
        """Return source topics that are left alone, although the form asks for them."""
        return ()

    def question(self, planned: OrphansPlan) -> str:
        """Return the plan as Markdown: all that is deleted first; what is exported, what was torn."""
        from onceover.drills.orphans.plan import CREATE, DELETE, FORGET

        lasting = (DELETE, FORGET, CREATE)
        for_good = _rows(c for c in planned.changes if c.what in lasting)
        lines: list[str] = []
        # A topic that nobody was shown is not deleted, however many there are.
        for first in range(0, len(for_good), MAX_LISTED):
            lines += table(_COLUMNS, for_good[first : first + MAX_LISTED])
        lines += table(_COLUMNS, _rows(c for c in planned.changes if c.what not in lasting))
        lines += _listed(f"**Refused** {code(r.object)}: {plain(r.message)}" for r in planned.refused)
        lines += _listed(f"**Torn** {plain(each.describe())}" for each in planned.view.torn)
        notes = [note for note in planned.view.notes if not note.blocks]
        lines += _listed(f"**Note** {code(note.object)}: {plain(note.message)}" for note in notes)
        lines += _listed(f"**Not looked at** {code(topic)}" for topic in planned.view.unseen)
        if planned.rebuild:
            lines.append(
                "The point of no return is the first *delete*: it is done only behind a whole export "
                "that was read back, and only while nobody writes."
            )
        lines.append("**Reject** changes nothing at all.")
        return "\n".join(lines)


def _rows(changes: Iterable[Change]) -> list[tuple[Inline, ...]]:
    return [
        (plain(c.what), code(c.object), plain(c.to or "-"), plain(c.risk), plain(c.reason)) for c in changes
    ]


def _listed(several: Iterable[str]) -> list[str]:
    """Return the first lines, and where the others are."""
    lines = list(several)
    more = len(lines) - MAX_LISTED
    return lines[:MAX_LISTED] + ([f"and {more} more: see the log of this task."] if more > 0 else [])


ORPHANS: Final = OrphanTasks()
