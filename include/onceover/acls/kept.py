"""Which topic ACLs of the source a flow keeps on its target. Pure.

Invariants: everything granted or denied on the target names one of the flow's own target topics,
literally; nothing that is created allows changing the copy; nobody is granted what the source forbids,
also where its DENY cannot be carried over; nothing is deleted that this flow did not create; whatever is
created or deleted is what the plan names, to the letter.
docs/topics.md explains the rules to the people who rely on them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceover.acls.codes import AclCode
from onceover.acls.cover import ALL, EVERY_PRINCIPAL, AclsByTopic, limits, stands_for
from onceover.errors import NeedsOperator, OnceoverError
from onceover.kafka.admin.acls import ALLOW, DENY, LITERAL, Acl
from onceover.kafka.codes import KafkaCode
from onceover.planning.plan import Change, Refusal
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.records.value import mapping, readable, text, unreadable, whole_number

VERSION: Final = 1
_DIGEST_CHARACTERS: Final = 16

# What an ALLOW of the source becomes on the target. Whatever is not named here would let somebody write
# beside the flow (WRITE: two writers mix their records, G1) or change the copy behind its back (CREATE,
# DELETE, ALTER, ALTER_CONFIGS), and is not copied.
ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "READ": ("READ",),
    "DESCRIBE": ("DESCRIBE",),
    "DESCRIBE_CONFIGS": ("DESCRIBE_CONFIGS",),
    ALL: ("READ", "DESCRIBE"),
}
# What the flow itself does with its target topics (docs/operations.md): a DENY of one of these that
# matches the flow's principal would stop the copy.
NEEDED: Final = frozenset(
    {"WRITE", "READ", "DESCRIBE", "CREATE", "ALTER", "ALTER_CONFIGS", "DESCRIBE_CONFIGS", ALL}
)


@dataclass(frozen=True)
class AclView:
    """Live state that the plan is computed from.

    Args:
        topics: the flow's topics, source name to target name.
        source: all topic ACLs of the source.
        target: all topic ACLs of the target.
        owned: ACLs on the target that this flow created, or was about to create.
        own_principal: who the flow is on the target, None when that is not known.
        opens: a topic without ACLs is everybody's on the target, and not known to be so on the source.
        both_open: it is on both: there a topic is closed by its ACLs, and nothing else.
    """

    topics: Mapping[str, str]
    source: frozenset[Acl]
    target: frozenset[Acl]
    owned: frozenset[Acl]
    own_principal: str | None
    opens: bool = False
    both_open: bool = False


@dataclass(frozen=True)
class AclPlan:
    """What to do, each list in the order in which it is done: no DENY is missing while its ALLOW is there.

    Args:
        create: missing on the target; becomes ours.
        delete: ours, and the source has no reason for it any more.
        forget: ours by the record only: already gone from the target.
        refused: what is left out although the source has it.
        at_risk: ALLOWs of ours that stay, but not without the DENYs that are to be created.
    """

    create: tuple[Acl, ...] = ()
    delete: tuple[Acl, ...] = ()
    forget: tuple[Acl, ...] = ()
    refused: tuple[Refusal, ...] = ()
    at_risk: tuple[Acl, ...] = ()

    def changes(self) -> list[Change]:
        """Return them in the plan's shape; forgetting a record changes no cluster and is not shown."""
        return [creation(acl) for acl in self.create] + [deletion(acl) for acl in self.delete]


def plan_acls(view: AclView) -> AclPlan:
    """Return what makes the target's ACLs follow the source's.

    Applying the plan and planning again gives an empty one.
    """
    wanted: set[Acl] = set()
    refused: dict[Acl, Refusal] = {}
    foreign = view.target - view.owned
    standing = denials(foreign)
    acls = AclsByTopic(view.source)
    for source, target in view.topics.items():
        here = {copy for acl in acls.of(source) for copy in copies(acl, target)}
        left_out = {acl: why for acl in here if (why := _left_out(acl, view.own_principal)) is not None}
        missing = {acl: why for acl, why in left_out.items() if not _stands(acl, standing)}
        refused |= missing
        withheld = {acl: deny for acl in here - left_out.keys() if (deny := _limit(acl, denials(missing)))}
        refused |= {acl: _withheld(acl, deny, there=acl in foreign) for acl, deny in withheld.items()}
        wanted |= here - left_out.keys() - withheld.keys()
    # A topic that has left the flow keeps its ACLs: its readers go on reading what is there.
    in_flow = set(view.topics.values())
    outdated = {acl for acl in view.owned if acl.name in in_flow} - wanted
    gone = outdated & view.target
    create = wanted - view.target
    denies: dict[str, list[Acl]] = {}
    for acl in denials(create):
        denies.setdefault(acl.name, []).append(acl)
    ours = wanted & view.target & view.owned
    opened = _opened(view, (view.target - gone) | create)
    return AclPlan(
        create=tuple(sorted(create, key=_deny_first)),
        delete=tuple(sorted(gone, key=_deny_first, reverse=True)),
        forget=tuple(sorted(outdated - gone)),
        refused=(
            *([_open()] if view.opens else []),
            *(_left_open(topic) for topic in opened),
            *(refused[acl] for acl in sorted(refused)),
        ),
        at_risk=tuple(sorted(acl for acl in ours if _limit(acl, denies.get(acl.name, ())))),
    )


def _opened(view: AclView, after: Iterable[Acl]) -> list[str]:
    """Return the target topics that nothing closes although their source's ACLs close that.

    Args:
        after: the target's ACLs once the plan is carried out.
    """
    if not view.both_open:
        return []
    here, there = AclsByTopic(view.source), AclsByTopic(after)
    return sorted(t for source, t in view.topics.items() if here.of(source) and not there.of(t))


def denials(acls: Iterable[Acl]) -> tuple[Acl, ...]:
    """Return those that forbid, in their order."""
    return tuple(acl for acl in acls if acl.permission == DENY)


def _deny_first(acl: Acl) -> tuple[bool, Acl]:
    return acl.permission != DENY, acl


def _stands(acl: Acl, standing: Iterable[Acl]) -> bool:
    return acl.permission == DENY and any(stands_for(deny, acl) for deny in standing)


def _limit(acl: Acl, denies: Iterable[Acl]) -> Acl | None:
    """Return the first of some DENYs on its topic that an ALLOW must not be without; None: there is none."""
    if acl.permission == DENY:
        return None
    return min((deny for deny in denies if limits(deny, acl)), default=None)


def copies(acl: Acl, target_topic: str) -> list[Acl]:
    """Return what one source ACL becomes on one target topic; nothing where it is not copied."""
    operations: Iterable[str]
    if acl.permission == DENY:
        operations = (acl.operation,)
    elif acl.permission == ALLOW:
        operations = ALLOWED.get(acl.operation, ())
    else:
        operations = ()
    return [
        Acl(LITERAL, target_topic, acl.principal, acl.host, operation, acl.permission)
        for operation in operations
    ]


def _left_out(acl: Acl, own_principal: str | None) -> Refusal | None:
    """Return why an ACL is not created on the target although the source has it; None: it may be."""
    if acl.is_unknown:
        return _not_known(acl)
    return _refusal(acl, own_principal) if _cuts_off(acl, own_principal) else None


def _cuts_off(acl: Acl, own_principal: str | None) -> bool:
    if acl.permission != DENY or acl.operation not in NEEDED:
        return False
    return acl.principal in (EVERY_PRINCIPAL, own_principal)


def _refusal(acl: Acl, own_principal: str | None) -> Refusal:
    return Refusal(
        acl.name,
        AclCode.ACL_DENIES_ONCEOVER,
        f"the source has an ACL that would become {acl} on the target; it would cut off "
        f"{own_principal or 'the principal that Onceover uses there'} and stop the copy",
        "on the source, deny the principals that are meant by name, or exclude the topic from the flow",
        blocks=False,
    )


def _not_known(acl: Acl) -> Refusal:
    return Refusal(
        acl.name,
        KafkaCode.ACL_UNKNOWN,
        f"the source has {acl.rule}, an operation that this release does not know, and that a target of an "
        "older Kafka does not take; reading and describing are operations of their own, and not concerned",
        "forbid the same on the target by hand, where its brokers know that operation",
        blocks=False,
    )


def _withheld(acl: Acl, deny: Acl, *, there: bool) -> Refusal:
    seen = "has it without that, from somebody else" if there else "would allow what the source forbids"
    return Refusal(
        acl.name,
        AclCode.ACL_WITHHELD,
        f"the source limits {acl} by {deny.rule}, which is not carried over; the target {seen}",
        "resolve that DENY, or forbid the same on the target by hand, where that does not cut off Onceover",
        blocks=False,
    )


def _open() -> Refusal:
    return Refusal(
        "acls",
        AclCode.ACLS_OPEN,
        "on the target a topic without ACLs is everybody's (allow.everyone.if.no.acl.found), and the source "
        "is not known to be like that: what no ACL allows anybody there, everybody may on the target",
        "switch that off on the target; or forbid by hand what has to be, or set topics.sync_acls: false",
        blocks=False,
    )


def _left_open(topic: str) -> Refusal:
    return Refusal(
        topic,
        AclCode.ACLS_OPEN,
        f"{topic} has no ACL on the target, where it is everybody's then (allow.everyone.if.no.acl.found); "
        "on the source it has some, and is for those whom they name: none of them is followed",
        "give it an ACL on the target by hand, for the flow's user at least, or switch that setting off",
        blocks=False,
    )


def creation(acl: Acl) -> Change:
    """Return what the plan shows of a new ACL."""
    return Change("create acl", acl.name, None, acl.rule, "as on the source")


def deletion(acl: Acl) -> Change:
    """Return what the plan shows of an ACL that goes."""
    reason = "created by this flow, and the source has it no more"
    # Without risk to records; and a running flow does the same without asking.
    return Change("delete acl", acl.name, acl.rule, None, reason)


def withdrawal(acl: Acl) -> Change:
    """Return what is told of an ACL that goes since the target does not take a DENY which limits it."""
    return Change("delete acl", acl.name, acl.rule, None, "the target does not take a DENY that limits it")


# ---- ownership records


def acl_key(acl: Acl) -> str:
    """Return the state key of the record that says that this flow created ``acl``."""
    # Keys of names without a NUL are as they have always been; with one, two ACLs could look alike so.
    joined = json.dumps(acl) if "\0" in "".join(acl) else "\0".join(acl)
    # A short name, not a protection; the value says which ACL is meant.
    digest = hashlib.sha1(joined.encode(), usedforsecurity=False).hexdigest()
    return f"{names.ACL_PREFIX}{digest[:_DIGEST_CHARACTERS]}"


def acl_record(acl: Acl, at_ms: int) -> dict[str, Any]:
    """Return the ownership record's value; ``at_ms`` is when it was written."""
    return {"v": VERSION, **acl._asdict(), "at_ms": at_ms}


def owned_acls(state: Mapping[str, Any]) -> frozenset[Acl]:
    """Return the ACLs that this flow created, from the values of what it looks after.

    One whose record cannot be read is none of them: it is not deleted (``unread_acls``).

    Raises:
        NeedsOperator: STATE_VERSION, a record was written by another version.
    """
    found, failed = readable(state, names.ACL_PREFIX, _owned)
    for error in failed.values():
        if error.code == StateCode.STATE_VERSION:
            raise error
    return frozenset(found.values())


def unread_acls(state: Mapping[str, Any]) -> dict[str, OnceoverError]:
    """Return why records of ACLs cannot be read, by key."""
    return readable(state, names.ACL_PREFIX, _owned)[1]


def standing_allowances(state: Mapping[str, Any]) -> int:
    """Return how many ALLOWs this flow has put on the target, by the records of any version."""
    return sum(
        key.startswith(names.ACL_PREFIX) and isinstance(value, Mapping) and value.get("permission") != DENY
        for key, value in state.items()
    )


def _owned(key: str, value: Any) -> Acl:
    fields = mapping(value, "record of an ACL")
    if whole_number(fields["v"]) != VERSION:
        raise NeedsOperator(
            "an ACL record was written by another version of Onceover",
            code=StateCode.STATE_VERSION,
            expected=f"version {VERSION}",
            seen=f"version {fields['v']}",
        )
    acl = Acl(**{field: text(fields[field]) for field in Acl._fields})
    if acl_key(acl) != key:
        raise unreadable(f"value of {key!r}", "the ACL that its key is made of", str(acl))
    if acl.pattern != LITERAL:
        # None is ever created that speaks of other topics, too: to take it back would be about those as well.
        raise unreadable(f"value of {key!r}", "an ACL on one topic", str(acl))
    return acl
