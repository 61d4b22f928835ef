"""What makes a run the only one at its connector: its claim, and whose orders the connector obeys.

Connect takes the order that comes last, whoever gives it: nobody can make one depend on another. So a run
looks before each, and looks again once the workers have taken it. What came between the two is somebody's: it
is given back where this run's order came behind it, and the run is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from onceover.backoff import Deadline
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import OFFSETS_TOPIC_KEY, PAUSED, RUNNING, STOPPED
from onceover.connectors.moving.context import OPERATIONS, Context, MarkDone
from onceover.connectors.offsets.configtopic import CONFIG, STARTED, TARGET, Order
from onceover.connectors.planning.view import ConnectorView
from onceover.connectors.record.commands import asking_command, deleting_command
from onceover.connectors.record.manifest import CHANGED, CONFIGURED, Manifest
from onceover.connectors.record.orders import OrderOwners, alike, asked_for, share, told
from onceover.connectors.record.runrecords import RunClaim
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable, UsageError

log = logging.getLogger(__name__)

# Between a worker's yes and the record: some releases answer before the broker has it.
_WRITTEN_S: Final = 10.0
# A command without an answer arrives soon, or not at all, or when its worker wakes up: nobody waits for that.
_LOST_S: Final = 2.0
_POLL_S: Final = 0.1


class HeldRun:
    """One operation on one connector, as long as nobody else is at it.

    Invariant: it writes offsets, and commands the connector, only while nobody else has commanded it since
    this run looked.

    Args:
        context: of the run.
        view: the connector as it was planned with.
        manifest: what this run writes down.
        done: told each change that was made.
    """

    def __init__(self, context: Context, view: ConnectorView, manifest: Manifest, done: MarkDone) -> None:
        self.context = context
        self.view = view
        self.lifecycle = context.lifecycle()
        self._done = done
        self._claim: RunClaim | None = None
        self._orders = view.records.orders(view.name)
        self._sent_before = 0
        # Orders of this run that may still come: sent, and not seen among those that were written.
        self._unheard: dict[str, int] = {}
        # From the first note on: whoever commands the connector after a kill at any step is known to have.
        self.manifest = manifest if manifest.left is not None else manifest.with_orders(self._orders)

    @property
    def name(self) -> str:
        return self.view.name

    def tell(self, text: str) -> None:
        """Say what happens."""
        self.context.tell(f"{self.name}: {text}")

    # ---- alone

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Take the connector over from every other run, and notice when another one does so.

        Raises:
            Fenced: another run has begun: whatever this one stumbled over is of that one's making.
            OnceoverError: as raised inside, and as ``RunRecords.claim``.
        """
        self._claim = self.context.access.records.claim(self.name)
        try:
            yield
        except Fenced:
            raise
        except OnceoverError as error:
            self._blame_another(error)
            raise
        finally:
            self._claim.close()
            self._claim = None

    def hold(self) -> None:
        """See to it that no other run has taken over.

        Raises:
            Fenced: one has.
        """
        if self._claim is not None:
            self._claim.write(self.manifest)

    def _blame_another(self, error: OnceoverError) -> None:
        try:
            self.hold()
        except Fenced as fenced:
            raise fenced from error
        except OnceoverError as silent:
            log.info("%s: whether another run has begun is not known: %s", self.name, silent)

    def note(self, step: str, *kinds: str, finished: bool = False) -> None:
        """Write a step down as done; ``kinds`` are those of the plan's changes that it made."""
        self.manifest = self.manifest.with_step(step, finished=finished)
        # First where a run that was taken over learns of it: the file may be the other's by now.
        self.hold()
        self.context.store.save(self.manifest)
        self._done(*kinds)

    # ---- not beside others

    def check_orders(self) -> None:
        """See to it that nobody has commanded the connector since this run looked.

        Raises:
            NeedsOperator: CHANGED_SINCE.
        """
        records = self.context.observer.config_records()
        now = records.orders(self.name)
        if now.get(CONFIG) != self._orders.get(CONFIG):
            raise self._changed("its configuration", self.name, f"another configuration{self._or(CONFIG)}")
        if now.get(TARGET) != self._orders.get(TARGET):
            asked = records.target(self.name) or "nothing"
            raise self._changed(
                "what is asked of it", self.name, f"{asked}, by somebody else{self._or(TARGET)}"
            )

    def _or(self, what: str) -> str:
        """Return that it may be this run's own, which came late: then nobody is to blame."""
        return ", or this run's, which it had to send again" if self._unheard.get(what) else ""

    def _changed(self, what: str, where: str, seen: str) -> NeedsOperator:
        """Write down that this run is over, unless it is past the point; return the error."""
        if self.manifest.steps and not self.manifest.has_step(CONFIGURED):
            self.note(CHANGED)
        return NeedsOperator(
            f"{what} changed since this run looked at {self.name}",
            code=ConnectorCode.CHANGED_SINCE,
            where=where,
            expected="as it was, or as this run left it",
            seen=seen,
            resolve="find out who did it, then run again: it begins anew with what is there then",
        )

    @contextmanager
    def ordering(self, what: str, wanted: Any) -> Iterator[Callable[[], None]]:
        """Command the connector inside; what is this run's own is known afterwards, also to the next one.

        Yields what is called once the workers have taken the command.

        Args:
            what: ``TARGET`` or ``CONFIG``.
            wanted: the state that is asked for, in the word of the configuration topic; or the configuration.

        Raises:
            Fenced: another run has begun. Unless the text says more, nothing was sent.
            NeedsOperator: CHANGED_SINCE, somebody else has commanded it; as ``check_orders``, or meanwhile.
        """
        self.check_orders()
        self._note_orders(wanted if what == TARGET else "")
        self._sent_before, answered = self.context.access.rest.sent, []

        def taken() -> None:
            self._learn(what, wanted)
            answered.append(True)

        try:
            yield taken
        except (Retriable, KeyboardInterrupt) as error:
            if not answered:
                with suppress(Retriable, NeedsOperator, UsageError):
                    self._learn_lost(what, wanted)
            elif isinstance(error, Retriable):
                # What was waited for may not come because somebody wants something else.
                self.check_orders()
            raise

    def _learn(self, what: str, wanted: Any) -> None:
        """Find out which record the command has written, and whether it was the only one."""
        before = self._orders.get(what)
        found = self._shared(what, wanted, _WRITTEN_S)
        try:
            self._own(what, found)
        except Fenced as fenced:
            raise self._late(what, wanted, before) from fenced
        if found.others:
            raise self._crossed(what, wanted, found)
        if not found.own:
            raise self._unwritten(wanted)

    def _unwritten(self, wanted: Any) -> NeedsOperator:
        """Return the error for an order that the workers have taken, and not written where they should."""
        access, asked = self.context.access, asked_for(self.view.initial_state)
        return NeedsOperator(
            f"this run {_asked(wanted)}, the workers took it, and none of it is in {access.config_topic}",
            code=ConnectorCode.WORKERS_DIFFER,
            where=self.name,
            expected=f"a record in it on {access.worker_cluster.alias}, as workers of that topic write",
            seen=f"none within {_WRITTEN_S:g} s",
            resolve="see to it that `rest` and the workers' configuration are of the same Connect cluster; "
            f"what was asked may stand all the same: `{self._asking(asked)}` for what it did before",
        )

    def _learn_lost(self, what: str, wanted: Any) -> None:
        """Look whether a command has arrived to which no answer came, or for whose answer nobody waits.

        The records of the time in which it was on its way are taken for its own, where there are no more than
        it was sent. One that comes later is not: by then it may as well be somebody's.
        """
        before = self._orders.get(what)
        found = self._shared(what, wanted, _LOST_S)
        try:
            if found.own and not found.others:
                self._own(what, found)
            else:
                self.hold()
        except Fenced as fenced:
            raise self._late(what, wanted, before) from fenced

    def _own(self, what: str, found: OrderOwners) -> None:
        for order in found.own:
            self.manifest = self.manifest.with_given(order.offset)
        if found.own:
            self._unheard[what] = self._sent - len(found.own)
            if not found.others:
                self._orders = {**self._orders, what: found.own[-1].offset}
        self._note_orders()

    def _since(self, what: str, before: int | None) -> tuple[Order, ...]:
        return self.context.observer.config_records().since(self.name, what, before)

    @property
    def _sent(self) -> int:
        """How many times the workers may have taken the order that is being given."""
        return self.context.access.rest.sent - self._sent_before

    def _shared(self, what: str, wanted: Any, limit_s: float) -> OrderOwners:
        """Wait for the order's record, and a little for those of its repetitions; return whose is whose."""
        sent, deadline, repeated = self._sent, Deadline(limit_s), Deadline(min(limit_s, _LOST_S))
        while True:
            since = self._since(what, self._orders.get(what))
            found = len(alike(since, wanted))
            if found >= sent or deadline.passed or (found and repeated.passed):
                return share(since, wanted, sent=sent)
            time.sleep(_POLL_S)

    def _crossed(self, what: str, wanted: Any, found: OrderOwners) -> NeedsOperator:
        """Return the error for orders of somebody else that came while this run gave its own."""
        back = self._give_back(what, wanted, found)
        others = told(found.others)
        if not found.own:
            one = self._sent == 1
            others += (
                ", one of which is this run's" if one else f", this run's among them, sent {self._sent} times"
            )
        kind = "its configuration" if what == CONFIG else "what is asked of it"
        error = self._changed(kind, self.name, f"{others}, while this run {_asked(wanted)}")
        error.resolve = f"{back}{error.resolve}"
        return error

    def _late(self, what: str, wanted: Any, before: int | None) -> Fenced:
        """Return the error for a command that was on its way when another run took over."""
        # The other run knows its own: what is left is this run's, or a person's.
        known = {offset for run in self._runs() for offset in run.given}
        found = share(self._since(what, before), wanted, known, self._sent)
        back = self._give_back(what, wanted, found)
        others = f"; beside it: {told(found.others)}" if found.others else ""
        return Fenced(
            f"another run for {self.name} has begun, and this one {_asked(wanted)} all the same: that was "
            f"on its way to the workers already{others}",
            code=ConnectorCode.FENCED,
            where=self.name,
            expected="no order of a run that was overtaken",
            seen=f"this run {_asked(wanted)}",
            resolve=f"{back}see where the other run has left it",
        )

    def _runs(self) -> list[Manifest]:
        runs = []
        for operation in OPERATIONS:
            with suppress(OnceoverError):
                run = self.context.access.records.load(self.name, operation)
                runs += [run] if run is not None else []
        return runs

    def _give_back(self, what: str, wanted: Any, found: OrderOwners) -> str:
        """Ask again for what this run's order has displaced; return what became of that, for a person."""
        own, displaced = found.own, found.displaced
        if what == CONFIG and _is_behind_deletion(found):
            # Workers make a connector of a configuration for which they have none, and start it.
            again = deleting_command(self.context.facts.workers[0], self.name)
            return f"if it was made anew behind its deletion, by this run's order, it runs: `{again}`; "
        if not own or displaced is None:
            doubtful = not own and any(order.asked != wanted for order in found.others)
            return self._cannot_tell(wanted) if doubtful and what == TARGET else ""
        asked = displaced.asked
        try:
            if self._since(what, own[-1].offset):
                return "somebody has commanded it once more since; "
            if what == CONFIG:
                return self._put_back(asked)
            self.tell(f"asking for {asked} again, which this run's {wanted} came behind")
            if asked == STOPPED:
                self.lifecycle.stop(self.name)
            else:
                self.lifecycle.resume(self.name, PAUSED if asked == PAUSED else RUNNING)
        except OnceoverError as error:
            if what == CONFIG:
                return f"to put the other configuration back failed ({error.message}): put it again; "
            return f"to ask for {asked} again failed ({error.message}): `{self._asking(asked)}`; "
        return f"{asked} was asked for again; "

    def _put_back(self, config: Mapping[str, str]) -> str:
        if self.context.observer.config_records().target(self.name) != STOPPED:
            # Its tasks have begun with the other offsets topic: a change back could repeat records.
            line = f"with {OFFSETS_TOPIC_KEY} as it has it now"
            return f"it runs with the configuration that this run put: put the other one again, {line}; "
        self.lifecycle.configure(self.name, config)
        return "the other configuration was put back; "

    def _cannot_tell(self, wanted: Any) -> str:
        other = STARTED if wanted == STOPPED else STOPPED
        return (
            f"which of them is this run's nobody can tell, so none was given back: if {wanted} is not what "
            f"is meant, `{self._asking(other)}`; "
        )

    def _asking(self, state: str) -> str:
        return asking_command(self.context.facts.workers[0], self.name, state)

    def _note_orders(self, asking: str = "") -> None:
        self.manifest = self.manifest.with_orders(self._orders, asking)
        try:
            self.hold()
        except Retriable:
            # What the cluster is not told, this machine's next run knows all the same.
            self.context.store.save(self.manifest)
            raise
        self.context.store.save(self.manifest)


def _is_behind_deletion(found: OrderOwners) -> bool:
    """Tell whether a run's order came right behind a deletion: nobody else has made the connector anew."""
    if not found.own or not found.others:
        return False
    last = found.others[-1]
    return last.asked is None and found.own[-1].offset > last.offset


def _asked(wanted: Any) -> str:
    return f"asked for {wanted}" if isinstance(wanted, str) else "put its configuration"
