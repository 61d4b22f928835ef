"""The tasks of the DAG ``seed_progress``.

Invariant: positions are written only after a person has approved them: the same partitions with the same
risks, while nobody else has changed their progress by hand, and one time. How many offsets a risk concerns
may have changed by then where the flow, or the origin, goes on. A file that the form names is read from one
folder only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param

from onceover_airflow.access.flowcontext import flow_at_hand
from onceover_airflow.approvals.approval import MAX_LISTED, table
from onceover_airflow.approvals.markdown import code, plain
from onceover_airflow.errors import TaskFailed
from onceover_airflow.starting import forms
from onceover_airflow.tasks.operation import OperationTasks

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.config.flow.flowfile import Flow
    from onceover.planning.plan import Change
    from onceover.seeding.apply import Seeder
    from onceover.seeding.plan import SeedPlan
    from onceover.wiring.failovers.seeding import AdoptionOptions, SeedingOptions

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
            description_md=f"For `seed`: as `--from` of `seed plan`. A `file:` is one in {_FOLDER}.",
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


class SeedTasks(OperationTasks["SeedPlan"]):
    """Plan, approve and apply progress. Always asked: writing it fences a running copy."""

    plan_task = "plan_progress"
    approve_task = "approve_progress"
    apply_task = "apply_progress"
    subject = "Flow {{ params.flow }}: progress to be written"

    @contextmanager
    def opened(self, name: str, context: Context) -> Iterator[Seeder]:
        """Yield what is to be seeded or adopted, with both clusters open."""
        from onceover.wiring import flows
        from onceover.wiring.failovers import seeding
        from onceover.wiring.offsetfiles import offset_files, within

        params = context["params"]
        check_fields(params)
        with _flow(name, params) as flow:
            read = within(offset_files())
            making = (
                partial(seeding.adopter, request=_adoption(params), read=read)
                if params["kind"] == ADOPT
                else partial(seeding.seeder, request=_seeding(params), read=read)
            )
            with flows.opened(flow, making) as operation:
                yield operation

    def question(self, planned: SeedPlan) -> str:
        """Return the plan as Markdown: what is repeated or skipped, and why each position is right."""
        rows = [
            (plain(c.what), code(c.object), plain(c.from_), plain(c.to), plain(_risk(c)), plain(c.reason))
            for c in planned.changes
        ]
        lines = table(("change", "of", "from", "to", "offsets", "why"), rows)
        lines += [f"**Refused** {code(r.object)}: {plain(r.message)}" for r in planned.refused[:MAX_LISTED]]
        lines.append(
            "A running copy of the flow is fenced and has to be started again. **Reject** changes nothing at "
            "all."
        )
        return "\n".join(lines)


PROGRESS: Final = SeedTasks()


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


@contextmanager
def _flow(flow: str, params: Mapping[str, Any]) -> Iterator[Flow]:
    """Yield the flow; another one that is its origin has its Connections at hand, too."""
    with ExitStack() as stack:
        if params["kind"] == SEED and params["origin"].startswith(_OTHER_FLOW):
            stack.enter_context(flow_at_hand(params["origin"].removeprefix(_OTHER_FLOW)))
        yield stack.enter_context(flow_at_hand(flow))


def _seeding(params: Mapping[str, Any]) -> SeedingOptions:
    from onceover.seeding.plan import Choice
    from onceover.wiring.failovers.seeding import SeedingOptions

    choice = Choice(replace=params["replace"], missing=params["missing"])
    return SeedingOptions(params["origin"], choice, params["topic"] or None)


def _adoption(params: Mapping[str, Any]) -> AdoptionOptions:
    from onceover.wiring.failovers.seeding import AdoptionOptions

    return AdoptionOptions(
        source=params["mm2_source"] or None,
        target=params["mm2_target"] or None,
        decided=params["decided"] or None,
        topics=params["topic"] or None,
    )


def _risk(change: Change) -> str:
    if change.risk == "none":
        return "-"
    return f"{change.risk} {'an unknown number' if change.records is None else change.records}"
