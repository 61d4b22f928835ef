"""The tasks of the DAG ``seed_progress``. Plain functions over the code of ``onceover seed`` and ``adopt``.

Invariant: positions are written only after a person has approved them: the same partitions with the same
risks, while nobody else has changed their progress by hand, and one time. How many offsets a risk concerns
may have changed by then where the flow, or the origin, goes on. A file that the form names is read from one
folder only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from onceover_airflow import forms
from onceover_airflow.approval import MAX_LISTED, FlowApprovalOperator, Question, approved, table
from onceover_airflow.errors import TaskFailed
from onceover_airflow.flowcontext import flow_at_hand, log_text
from onceover_airflow.markdown import code, plain

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.config.flowfile import Flow
    from onceover.planning.approval import Approval
    from onceover.planning.plan import Change
    from onceover.seeding.apply import Seeded
    from onceover.seeding.plan import SeedPlan

log = logging.getLogger(__name__)

APPROVE_TASK: Final = "approve_progress"
SEED: Final = "seed"
ADOPT: Final = "adopt"
_OTHER_FLOW: Final = "flow:"
_FOLDER: Final = "`offset_files` below `ONCEOVER_HOME`"
# Fields that one kind alone looks at.
_OF_SEED: Final = ("origin", "replace", "missing")
_OF_ADOPT: Final = ("mm2_source", "mm2_target", "decided")


def seed_params() -> dict[str, Param]:
    """Return the form's fields.

    Untouched it seeds from the flow's own map, which is exact and writes nothing where nothing is lost.
    """
    return {
        "kind": Param(
            SEED,
            type="string",
            enum=[SEED, ADOPT],
            title="Kind",
            description_md="`seed`: from an origin. `adopt`: take over from a stopped MirrorMaker 2.",
        ),
        "origin": Param(
            "map",
            type="string",
            minLength=1,
            maxLength=forms.MAX_TEXT,
            examples=["map", "group:my-group", "earliest", "timestamp:2026-01-01T00:00:00Z", "flow:other"],
            title="Origin",
            description_md=f"For `seed`: as `onceover seed --from`. A `file:` is one in {_FOLDER}.",
        ),
        "topic": forms.topic_param(),
        "replace": forms.switch("Replace", "Write although there is progress already.", on=False),
        "missing": Param(
            "refuse",
            type="string",
            enum=["refuse", "earliest", "latest"],
            title="Missing partitions",
            description_md="Where partitions begin that the origin leaves out of a topic.",
        ),
        "mm2_source": forms.optional(
            "MirrorMaker's alias of the source", "For `adopt`; empty: as in the flow file."
        ),
        "mm2_target": forms.optional(
            "MirrorMaker's alias of the target", "For `adopt`; empty: as in the flow file."
        ),
        "decided": forms.optional(
            "Decided offsets",
            f"For `adopt`: a file in {_FOLDER}, for partitions that cannot be proven.",
        ),
        "apply": forms.apply_param(),
    }


def plan_progress(flow: str) -> dict[str, Any]:
    """Show the plan in the log; return ids and counts. Changes nothing.

    Raises:
        JobInterrupted: a cluster does not answer; tried again.
        TaskFailed: any other error.
    """
    planned = read_plan(flow, get_current_context()["params"])
    log_text(log, planned.describe())
    return {
        "flow": flow,
        "plan_id": planned.plan_id,
        "positions": len(planned.positions),
        "refused": len(planned.refused),
    }


def read_plan(flow: str, params: Mapping[str, Any]) -> SeedPlan:
    """Return the plan as of now."""
    from onceover.wiring import seeding as seed_runs
    from onceover.wiring.offsetfiles import offset_files, within

    check_fields(params)
    with _flow(flow, params) as loaded:
        read = within(offset_files())
        if params["kind"] == ADOPT:
            return seed_runs.plan_adoption(loaded, _adoption(params), read=read)
        origin, topics = params["origin"], params["topic"] or None
        return seed_runs.plan_seed(loaded, origin, _choice(params), topics, read=read)


def check_fields(params: Mapping[str, Any]) -> None:
    """Refuse fields of the kind that was not picked: somebody means something that would not be done.

    Raises:
        TaskFailed: there are some.
    """
    untouched = {name: param.value for name, param in seed_params().items()}
    others = _OF_SEED if params["kind"] == ADOPT else _OF_ADOPT
    filled = [name for name in others if (params[name] or None) != (untouched[name] or None)]
    if filled:
        raise TaskFailed(
            f"{', '.join(filled)}: not for the kind {params['kind']}; to resolve: start the DAG again with "
            f"the other kind, or without {'it' if len(filled) == 1 else 'them'}"
        )


def apply_progress(flow: str) -> dict[str, Any]:
    """Write the positions that were approved; return what was written.

    Raises:
        AirflowSkipException: only a plan was asked for, or there is nothing to write.
        JobInterrupted: a cluster does not answer; tried again, which goes on from there.
        TaskFailed: other partitions or risks have come since the approval, something is refused
            until somebody decides, or any other error.
    """
    context = get_current_context()
    params = context["params"]
    if not params["apply"]:
        raise AirflowSkipException("only a plan was asked for")
    seeded = _apply(flow, params, approved(context, APPROVE_TASK))
    log_text(log, seeded.describe())
    if seeded.exit_code:
        waiting = [refusal for refusal in seeded.plan.refused if refusal.blocks]
        shown = "; ".join(f"{r.object}: {r.message}; to resolve: {r.resolve}" for r in waiting[:MAX_LISTED])
        raise TaskFailed(f"flow {flow}: {seeded.written} positions written, {len(waiting)} refused: {shown}")
    return {"flow": flow, "written": seeded.written, "generation": seeded.generation}


def _apply(flow: str, params: Mapping[str, Any], approval: Approval) -> Seeded:
    from onceover.wiring import seeding as seed_runs
    from onceover.wiring.offsetfiles import offset_files, within

    def show(planned: SeedPlan) -> None:
        log_text(log, planned.describe())

    with _flow(flow, params) as loaded:
        read = within(offset_files())
        if params["kind"] == ADOPT:
            return seed_runs.apply_adoption(loaded, _adoption(params), show, approval, read=read)
        origin, topics = params["origin"], params["topic"] or None
        return seed_runs.apply_seed(loaded, origin, _choice(params), show, topics, approval, read=read)


@contextmanager
def _flow(flow: str, params: Mapping[str, Any]) -> Iterator[Flow]:
    """Yield the flow; another one that is its origin has its Connections at hand, too."""
    with ExitStack() as stack:
        if params["kind"] == SEED and params["origin"].startswith(_OTHER_FLOW):
            stack.enter_context(flow_at_hand(params["origin"].removeprefix(_OTHER_FLOW)))
        yield stack.enter_context(flow_at_hand(flow))


def _choice(params: Mapping[str, Any]) -> Any:
    from onceover.seeding.plan import Choice

    return Choice(replace=params["replace"], missing=params["missing"])


def _adoption(params: Mapping[str, Any]) -> Any:
    from onceover.wiring.seeding import Adoption

    return Adoption(
        source=params["mm2_source"] or None,
        target=params["mm2_target"] or None,
        decided=params["decided"] or None,
        topics=params["topic"] or None,
    )


class ApprovePositionsOperator(FlowApprovalOperator):
    """Wait until a person approves the positions to write; skipped where there are none.

    Always asked: writing progress fences a running copy. Rejected, or not answered in time, nothing is
    written and nothing is fenced.
    """

    own_task = APPROVE_TASK
    about = "progress to be written"

    def ask(self, context: Context) -> Question:
        """Return the question; skipped where there is nothing to write."""
        if not context["params"]["apply"]:
            raise AirflowSkipException("only a plan was asked for")
        planned = read_plan(self.flow, context["params"])
        if not planned.positions:
            raise AirflowSkipException("nothing to approve")
        return Question(planned.items, question(planned), planned.describe())


def question(planned: SeedPlan) -> str:
    """Return the plan as Markdown: what is repeated or skipped, and why each position is the right one."""
    rows = [
        (plain(c.what), code(c.object), plain(c.from_), plain(c.to), plain(_risk(c)), plain(c.reason))
        for c in planned.changes
    ]
    lines = table(("change", "of", "from", "to", "offsets", "why"), rows)
    lines += [f"**Refused** {code(r.object)}: {plain(r.message)}" for r in planned.refused[:MAX_LISTED]]
    lines.append(
        "A running copy of the flow is fenced and has to be started again. **Reject** changes nothing at all."
    )
    return "\n".join(lines)


def _risk(change: Change) -> str:
    if change.risk == "none":
        return "-"
    return f"{change.risk} {'an unknown number' if change.records is None else change.records}"
