"""Making the target's topic ACLs follow the source's: reading, applying, and doing so beside a copy.

Invariant: an ACL that this flow created has an ownership record at every moment of its life. The record
is written before the ACL and removed after it, so an interruption leaves at worst a record without an
ACL, which the next plan puts right. ACLs cannot be fenced: of two runs at once, or one that was frozen and
wakes, each looks behind what it wrote, so that whatever stands at the end has its record. Whoever has changed
something looks at the source once more: an ALLOW that was taken back meanwhile goes, although a run that was
taken over from has nothing else to do. At no moment is an ALLOW of this flow there without the DENYs that
limit it on the source: those come before it and go after it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol
from uuid import uuid4

from onceover.acls.codes import AclCode
from onceover.acls.cover import applies
from onceover.acls.kept import (
    AclPlan,
    AclView,
    acl_key,
    acl_record,
    creation,
    deletion,
    denials,
    owned_acls,
    plan_acls,
    standing_allowances,
    withdrawal,
)
from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.admin.acls import DENY, PREFIXED, Acl, AclAdmin, NoAuthorizer
from onceover.kafka.ports import Cluster, Notes
from onceover.planning.plan import Change, Done, Refusal, nobody
from onceover.state import names

log = logging.getLogger(__name__)

# Two requests that name every ACL of a cluster: cheap, but not something to ask for every second.
INTERVAL_S: Final = 60.0
# Changes are looked behind; who changes something again and again is met at the next look.
_LOOKS: Final = 3
# Brokers replay a moment later what the controller has done.
_SHOWN_WITHIN_S: Final = 5.0
# A request each, to find one where the flow's user may not do everything.
_PREFIXES_TRIED: Final = 3


class Acls(Protocol):
    """The ACLs of a cluster, as ``AclAdmin`` and the tests' fake offer them."""

    def topic_acls(self) -> frozenset[Acl]:
        """Return every ACL on topics."""

    def may_read(self, absent: str) -> bool:
        """Tell whether we might read a topic that does not exist."""

    def may_write(self, absent: str) -> bool:
        """Tell the same of writing."""

    def create(self, acls: tuple[Acl, ...]) -> None:
        """Create what is missing."""

    def delete(self, acls: tuple[Acl, ...]) -> None:
        """Delete what is there."""


class OwnedRecords(Protocol):
    """What the flow looks after, as ``OwnedLog`` reads it."""

    def catch_up(self) -> Mapping[str, Any]:
        """Return the latest values."""


def own_principal(properties: Mapping[str, str]) -> str | None:
    """Return who a client is for the broker's authorizer, None where only the broker knows.

    With SASL and a user name it is that user; what a TLS certificate, a token or a ticket is called depends
    on the broker's configuration.
    """
    name = properties.get("sasl.username")
    uses_sasl = properties.get("security.protocol", "plaintext").upper().startswith("SASL_")
    return f"User:{name}" if uses_sasl and name else None


def read_view(
    topics: Mapping[str, str], state: Mapping[str, Any], source: Acls, target: Acls, principal: str | None
) -> AclView:
    """Read both sides.

    Raises:
        NoAuthorizer: one side has no ACLs at all.
        UsageError: the principal may not read them.
        Retriable: a cluster is away.
    """
    here, there = source.topic_acls(), target.topic_acls()
    there_open = is_open(target, there)
    both = there_open and is_open(source, here)
    return AclView(topics, here, there, owned_acls(state), principal, there_open and not both, both)


def is_open(side: Acls, acls: frozenset[Acl]) -> bool:
    """Tell whether everybody may use a topic without ACLs there (``allow.everyone.if.no.acl.found``).

    No broker says so to a flow's user, so it is tried on names that no topic has: who may read what no ACL
    speaks of, and may not write what one does, is no superuser. False where that cannot be told: the flow's
    user is one, or may write wherever prefixes were tried, or there is none.

    Args:
        acls: all topic ACLs of that side.

    Raises:
        Retriable: a cluster is away.
    """
    unique = uuid4().hex
    others = f"{unique}.onceover"
    if any(applies(acl, others) for acl in acls):
        return False
    # The flow's own topics first: its user has rights there, and seldom all of them.
    prefixes = sorted({acl.name for acl in acls if acl.pattern == PREFIXED}, key=_own_first)[:_PREFIXES_TRIED]
    return (
        bool(prefixes)
        and side.may_read(others)
        and not all(side.may_write(f"{prefix}{unique}") for prefix in prefixes)
    )


def _own_first(prefix: str) -> tuple[bool, str]:
    return not prefix.startswith(names.PREFIX), prefix


def apply_acls(plan: AclPlan, target: Acls, notes: Notes, done: Done = nobody) -> None:
    """Do what the plan says; may be interrupted anywhere and run again with a new plan.

    Args:
        done: told of each change that was made.

    Raises:
        Retriable: the target is away; what is left will be in the next plan.
        UsageError: the principal may not change ACLs.
    """
    _record(plan.create, notes)
    try:
        problem = _create(plan, target, done)
    finally:
        # Again: another run may have forgotten them meanwhile, as records without an ACL.
        _record(plan.create, notes)
    _delete(plan.delete, target, done)
    if gone := plan.delete + plan.forget:
        notes.write_all({acl_key(acl): None for acl in gone})
        # Another run that has just made one has written its record before this removed it.
        _record(target.topic_acls() & frozenset(gone), notes)
    if problem is not None:
        raise problem


def _record(acls: Collection[Acl], notes: Notes) -> None:
    if acls:
        at_ms = now_ms()
        notes.write_all({acl_key(acl): acl_record(acl, at_ms) for acl in acls})


def _create(plan: AclPlan, target: Acls, done: Done) -> UsageError | NeedsOperator | None:
    """Create what is missing, DENYs first; return what the target does not take for good.

    It keeps nothing there that is to go. Without a DENY there is no ALLOW either: none is created, and those
    that it would limit go until the target takes it.
    """
    try:
        _create_these(denials(plan.create), target, done)
    except (UsageError, NeedsOperator) as error:
        if plan.at_risk:
            target.delete(plan.at_risk)
            for acl in plan.at_risk:
                done(withdrawal(acl))
        return error
    try:
        _create_these(_allowances(plan.create), target, done)
    except (UsageError, NeedsOperator) as error:
        return error
    return None


def _allowances(acls: tuple[Acl, ...]) -> tuple[Acl, ...]:
    return tuple(acl for acl in acls if acl.permission != DENY)


def _create_these(acls: tuple[Acl, ...], target: Acls, done: Done) -> None:
    if acls:
        target.create(acls)
        for acl in acls:
            done(creation(acl))


def _delete(acls: tuple[Acl, ...], target: Acls, done: Done) -> None:
    for some in (_allowances(acls), denials(acls)):
        if some:
            target.delete(some)
            for acl in some:
                done(deletion(acl))


class AclSync:
    """Keeps a running flow's ACLs in line. Never stops the copy: what it cannot do it reports.

    Args:
        source: source cluster; ``target`` likewise.
        enabled: asked every time, so that the flow file may change meanwhile.
    """

    def __init__(self, source: Cluster, target: Cluster, enabled: Callable[[], bool]) -> None:
        self.refused: list[Refusal] = []
        self._target = target
        self._enabled = enabled
        self._admins: tuple[Acls, Acls] = AclAdmin(source), AclAdmin(target)
        self._topics: Mapping[str, str] = {}
        self._last_s = -math.inf

    def tick(self, read_topics: Callable[[], Mapping[str, str]], state: OwnedRecords, notes: Notes) -> None:
        """Bring the ACLs in line if it is time for it, or if the flow's topics have changed.

        Args:
            read_topics: tells the flow's topics, source name to target name; asked only where ACLs are
                synced, because with thousands of topics the answer is not for nothing.
            state: what the flow looks after.
            notes: writes into it.
        """
        if not self._enabled():
            self.refused = []
            return
        topics, now_s = read_topics(), time.monotonic()
        if now_s < self._last_s + INTERVAL_S and topics == self._topics:
            return
        self._topics = dict(topics)
        self._last_s = now_s
        try:
            self._report(self._sync(state, notes))
        except Retriable as error:
            log.warning("ACLs are not in line yet, tried again in %.0f s: %s", INTERVAL_S, error)
        except (UsageError, NeedsOperator) as error:
            self._report([unavailable(error)])

    def _sync(self, state: OwnedRecords, notes: Notes) -> list[Refusal]:
        """Follow the source, until a look at it finds nothing to do: it may have changed before our changes
        were made, however long this process was frozen in between."""
        refused: list[Refusal] = []
        for _ in range(_LOOKS):
            refused, has_changed = self._follow(state.catch_up(), notes)
            if not has_changed:
                break
        return refused

    def _follow(self, values: Mapping[str, Any], notes: Notes) -> tuple[list[Refusal], bool]:
        """Return what is not followed, and whether anything was changed."""
        source, target = self._admins
        principal = own_principal(self._target.config.properties)
        plan = AclPlan()
        try:
            plan = plan_acls(read_view(self._topics, values, source, target, principal))
            apply_acls(plan, target, notes, _log)
            if plan.changes():
                _await_shown(plan, target)
        except (UsageError, NeedsOperator) as error:
            return [*plan.refused, *not_followed(error, values)], False
        return list(plan.refused), bool(plan.changes())

    def _report(self, refused: list[Refusal]) -> None:
        if refused != self.refused:
            for refusal in refused:
                log.error("not copied: %s; %s", refusal.message, refusal.resolve)
        self.refused = refused


def _await_shown(plan: AclPlan, target: Acls) -> None:
    """Wait until the target shows what was done, or does not in time: a look at what was would undo a record.

    Somebody else may have changed it again meanwhile.
    """
    deadline, backoff = Deadline(_SHOWN_WITHIN_S), Backoff()
    while not _is_shown(plan, target.topic_acls()) and not deadline.passed:
        backoff.wait(deadline)


def _is_shown(plan: AclPlan, acls: frozenset[Acl]) -> bool:
    return acls.issuperset(plan.create) and acls.isdisjoint(plan.delete)


def _log(change: Change) -> None:
    log.info("%s of %s: %s; %s", change.what, change.object, change.to or change.from_, change.reason)


def unavailable(error: OnceoverError) -> Refusal:
    """Return what a plan says when the ACLs cannot be synced at all."""
    seen = f" ({error.seen})" if error.seen else ""
    resolve = error.resolve or "see docs/topics.md"
    return Refusal("acls", error.code, f"{error.message}{seen}", resolve, blocks=False)


def not_followed(error: OnceoverError, state: Mapping[str, Any]) -> list[Refusal]:
    """Return the same, and what it leaves on the target: rights that the source may have taken back.

    Args:
        error: why ACLs cannot be synced.
        state: the values of what the flow looks after.
    """
    told = [unavailable(error)]
    allowed = 0 if isinstance(error, NoAuthorizer) else standing_allowances(state)
    if allowed:
        text = f"{allowed} ALLOWs of this flow stay on the target, whatever the source has forbidden since"
        resolve = f"{told[0].resolve}; until then forbid by hand on the target what has to be"
        told.append(Refusal("acls", AclCode.ACLS_STAY, text, resolve, blocks=False))
    return told
