"""The words of ``onceover drill``."""

from __future__ import annotations

import argparse
from typing import Final

from onceover.cli.numbers import whole
from onceover.cli.parser import Parser, Subparsers, Work, add_actions, add_command, add_flow, end
from onceover.drills.modes import BY_HAND

DRY_RUN: Final = "dry-run"
REHEARSAL: Final = "rehearsal"
SWITCHOVERS: Final = ("planned", "unplanned")
SAMPLE: Final = 1000
CANARIES: Final = 200
_LEAST_CANARIES: Final = 12
# They are written one batch a partition and kind: more would only take longer.
_MOST_CANARIES: Final = 100_000
_MOST_SAMPLE: Final = 1_000_000

_EXAMPLES: Final = """examples:
  onceover drill plan flights-dr                     what a failover would cost now, what is in its way
  onceover drill plan flights-dr --mode rehearsal    what a rehearsal would do
  onceover drill run flights-dr                      rehearse a failover beside the running flow
  onceover drill plan flights-dr --mode planned      what a planned switchover would do, step by step
  onceover drill run flights-dr --mode planned       switch over, once somebody has said yes
  onceover drill run flights-dr --mode unplanned     the source is gone: promote what was copied
  onceover drill confirm flights-dr redirect         tell the drill that waits that the clients were moved
  onceover drill orphans plan flights-dr             the source is back: what it holds and nobody has copied
  onceover drill status flights-dr                   the drills until now
  onceover drill abort flights-dr                    end the one that runs; remove what a killed one has left
"""
_PLAN: Final = """examples:
  onceover drill plan flights-dr           what a failover would cost now, and what stands in its way
  onceover drill plan flights-dr --json    the same as one JSON document

It changes nothing, and may be asked at any time: what is on the source alone, by topic; where every consumer
group would go on; what topics, configuration and ACLs lack on the target; and who uses the source.

Exit code 0: ready. 2: the flow was never started, or a client of it is not in order. 3: somebody has to
decide something first, or to grant a right: see the lines that begin with `first` and `not looked at`. 5: a
cluster is away, or something may pass: run again.
"""
_RUN: Final = """examples:
  onceover drill run flights-dr                                   the first topics, their newest records
  onceover drill run flights-dr --topics 'flights\\..*' --sample 20000
  onceover drill run flights-dr --group 'billing-.*' --json
  onceover drill run flights-dr --mode planned                    asks before anything is done
  onceover drill run flights-dr --mode planned --topics 'flights\\.jfk' --approve

A rehearsal touches no client, and may run while production runs. Numbered records go through a topic of
their own and a copy like the flow's; a consumer group fails over and has to go on with exactly its next
record; everything is compared, and everything is taken away again, also when it fails or is interrupted.

A planned switchover keeps writers off the source, copies the rest, puts every group in place, compares, and
gives the copies to clients. Until then a run that fails or is interrupted undoes itself; from then on it only
goes forward: run it again, and it goes on. An unplanned one waits for nothing of the source, and names what
is known to be missing.

Exit code 0: PASS. 3: FAIL, see the report. 5: a cluster is away: run again. 2: nothing was done. 4: it was
taken for dead, and ended by somebody else.
"""
_CONFIRM: Final = """examples:
  onceover drill confirm flights-dr fence       the producers are stopped
  onceover drill confirm flights-dr redirect    the clients were moved to the target

It is for flows whose switchover.fence or switchover.redirect is `person`; the word goes into the journal.
"""
_ORPHANS: Final = """examples:
  onceover drill orphans plan flights-dr             what the old source holds alone; changes nothing
  onceover drill orphans apply flights-dr            export it, once somebody has said yes
  onceover drill orphans apply flights-dr --rebuild  and empty those topics there: they are copied anew

For when the source is back behind an unplanned switchover. Orphans are the records that were written there
and never copied. They are exported, each of them once, to the topic __onceover.<flow>.orphans on the target
and to a file below ONCEOVER_HOME/<flow>/orphans; both are read back. An interrupted export goes on when it
is run again. Source transactions that were torn, with one part copied and another one not, are named.

Exit code 0: done. 3: something is refused, see the plan; the rest is done. 5: a transaction is open, or a
cluster is away: run again. 2: nothing was done.
"""
_ORPHANS_PLAN: Final = """examples:
  onceover drill orphans plan flights-dr                            what was never copied, by partition
  onceover drill orphans plan flights-dr --topics 'flights\\..*' --json
  onceover drill orphans plan flights-dr --rebuild                  and which topics could be deleted

It changes nothing: how many records of each partition, from which offset to which, of which time;
transactions that are open there, and those that were torn.
"""
_ORPHANS_APPLY: Final = """examples:
  onceover drill orphans apply flights-dr                 shows the plan, asks, exports, reads back
  onceover drill orphans apply flights-dr --approve --json
  onceover drill orphans apply flights-dr --rebuild       deletes those topics there, behind it
  onceover drill orphans apply flights-dr --rebuild --forget-group 'old-.*'

--rebuild deletes a topic of the old source only behind a whole export that was read back, while nobody writes
to it, and where everything else in it is known to be on the target; then it makes it again, as it was, empty.
The flow the other way has it anew: onceover seed apply BACK --from promoted:flights-dr --replace
A topic stays where a group has a position in it, and none in the copy: put it in place there (onceover groups
apply flights-dr), or give it up by the group's name with --forget-group.
"""
_STATUS: Final = """examples:
  onceover drill status flights-dr
  onceover drill status flights-dr --json
"""
_ABORT: Final = """examples:
  onceover drill abort flights-dr              end the drill that runs, or remove what a killed one has left
  onceover drill abort flights-dr --if-dead    leave one alone that runs; wait for a cluster that is away
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    about = "rehearse a failover, switch over, or ask what it would cost"
    parser = add_command(subparsers, "drill", about, _EXAMPLES)
    actions = add_actions(parser, "plan", "run", "confirm", "orphans", "status", "abort")
    plan = add_command(actions, "plan", "look at everything; change nothing", _PLAN)
    add_flow(plan)
    plan.add_argument(
        "--mode",
        choices=(DRY_RUN, REHEARSAL, *SWITCHOVERS),
        default=DRY_RUN,
        help=f"of what (default: {DRY_RUN})",
    )
    _add_choice(plan)
    end(plan, Work("drill", "plan"))
    run = add_command(actions, "run", "rehearse a failover, or switch over", _RUN)
    add_flow(run)
    run.add_argument(
        "--mode",
        choices=(REHEARSAL, *SWITCHOVERS),
        default=REHEARSAL,
        help=f"what is run (default: {REHEARSAL})",
    )
    run.add_argument("--approve", action="store_true", help="of a switchover: do what the plan says, unasked")
    _add_choice(run)
    end(run, Work("drill"))
    confirm = add_command(actions, "confirm", "tell the drill that waits that a step was done", _CONFIRM)
    add_flow(confirm)
    confirm.add_argument("step", choices=BY_HAND, help="what was done by hand")
    end(confirm, Work("drill", "confirm"))
    _add_orphans(add_command(actions, "orphans", "the source is back: what was never copied", _ORPHANS))
    status = add_command(actions, "status", "the drills until now, and the one that runs", _STATUS)
    add_flow(status)
    end(status, Work("drill", "status"))
    abort = add_command(actions, "abort", "end the drill that runs, or remove what is left of one", _ABORT)
    add_flow(abort)
    abort.add_argument(
        "--if-dead",
        action="store_true",
        help="remove what a killed one has left, and nothing else: one that runs goes on, and what was "
        "approved may be tried again",
    )
    end(abort, Work("drill", "abort"))


def _add_orphans(parser: Parser) -> None:
    actions = add_actions(parser, "plan", "apply")
    plan = add_command(actions, "plan", "say what was never copied; change nothing", _ORPHANS_PLAN)
    add_flow(plan)
    _add_orphan_choice(plan)
    end(plan, Work("drill", "plan_orphans"))
    apply = add_command(actions, "apply", "export it to a topic and a file", _ORPHANS_APPLY)
    add_flow(apply)
    apply.add_argument("--approve", action="store_true", help="do what the plan says, unasked")
    _add_orphan_choice(apply)
    end(apply, Work("drill", "apply_orphans"))


def _add_orphan_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topics",
        metavar="REGEX",
        action="append",
        default=[],
        help="only these source topics (anchored); may be given again (default: all that were promoted)",
    )
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="behind the export: delete topics with orphans on the source and make them again empty, so that "
        "they are copied anew",
    )
    parser.add_argument(
        "--forget-group",
        metavar="REGEX",
        action="append",
        default=[],
        help="with --rebuild: positions of these groups (anchored) that stand nowhere else may go with those "
        "topics; may be given again",
    )


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="of a switchover: also move groups that somebody else has committed for on the target",
    )
    parser.add_argument(
        "--whatever-is-lost",
        action="store_true",
        help="of an unplanned switchover: a yes holds however the source is when it is done, also where it "
        "comes and goes",
    )
    parser.add_argument(
        "--topics",
        metavar="REGEX",
        action="append",
        default=[],
        help="topics whose newest records are copied, or that are switched over; may be given again "
        "(default: the first few, or all)",
    )
    parser.add_argument(
        "--group",
        metavar="REGEX",
        action="append",
        default=[],
        help="groups that are put in place under other names; may be given again (default: the first few)",
    )
    parser.add_argument(
        "--sample",
        metavar="N",
        type=whole("number of offsets", 1, _MOST_SAMPLE),
        default=SAMPLE,
        help="how many of the newest offsets of each of their partitions are copied (default: 1000)",
    )
    parser.add_argument(
        "--canaries",
        metavar="N",
        type=whole("number of canaries", _LEAST_CANARIES, _MOST_CANARIES),
        default=CANARIES,
        help="how many numbered records (default: 200)",
    )
