"""ACLs fail closed: nobody may do on the target what the source forbids, at no moment of a sync."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.acls.kept import AclView, owned_acls, plan_acls
from onceover.acls.sync import apply_acls
from onceover.errors import NeedsOperator, Retriable
from onceover.kafka.admin.acls import Acl
from tests.support.brokers.authorizer import TOPIC_OPERATIONS, Question, allows
from tests.support.session.examples import examples
from tests.unit.acls.test_kept import FakeAcls, FakeNotes, Killed, Life

OWN, ANN, BOB, ALL_USERS = "User:onceover", "User:ann", "User:bob", "User:*"
HERE, THERE = "10.0.0.1", "10.0.0.2"
SOURCES = ("flights", "flights.jfk")
TARGETS = {name: f"east.{name}" for name in SOURCES}


def acl(
    operation: str = "READ",
    principal: str = ANN,
    *,
    deny: bool = False,
    name: str = "flights",
    host: str = "*",
    pattern: str = "LITERAL",
) -> Acl:
    return Acl(pattern, name, principal, host, operation, "DENY" if deny else "ALLOW")


def copied(one: Acl, topic: str = "flights") -> Acl:
    """Return what an ACL is on the copy of a topic."""
    return one._replace(pattern="LITERAL", name=TARGETS[topic])


def view(source: set[Acl], target: FakeAcls, notes: FakeNotes, principal: str | None = OWN) -> AclView:
    owned = owned_acls(notes.values)
    return AclView({"flights": "east.flights"}, frozenset(source), frozenset(target.acls), owned, principal)


class Side(FakeAcls):
    """A target that can refuse what it is to create."""

    def __init__(self, *acls: Acl) -> None:
        super().__init__(set(acls))
        self.refuses: tuple[Acl, Exception] | None = None

    def create(self, acls: tuple[Acl, ...]) -> None:
        if self.refuses is not None and self.refuses[0] in acls:
            raise self.refuses[1]
        super().create(acls)


def sync(source: set[Acl], target: FakeAcls, notes: FakeNotes, principal: str | None = OWN) -> list[str]:
    """Bring the target in line; return what was refused."""
    plan = plan_acls(view(source, target, notes, principal))
    apply_acls(plan, target, notes)
    return [refusal.code for refusal in plan.refused]


# ---- where a topic without ACLs is everybody's


@pytest.mark.parametrize("pattern", ["LITERAL", "PREFIXED"])
@pytest.mark.parametrize(
    ("source", "told"),
    [
        # Nothing becomes of it on the target, or what would is withheld.
        ({acl("WRITE")}, ["ACLS_OPEN"]),
        ({acl("ALL", OWN, deny=True)}, ["ACLS_OPEN", "ACL_DENIES_ONCEOVER"]),
        (
            {acl("READ", OWN), acl("ALL", OWN, deny=True, host=HERE), acl("WRITE")},
            ["ACLS_OPEN", "ACL_DENIES_ONCEOVER", "ACL_WITHHELD"],
        ),
        # Near misses: it is open on the source, too; or something closes the copy.
        (set(), []),
        ({acl("READ", name="other")}, []),
        ({acl("READ")}, []),
        ({acl("WRITE", deny=True)}, []),
    ],
)
def test_a_copy_that_nothing_closes_is_told_where_both_clusters_are_open(
    source: set[Acl], told: list[str], pattern: str
) -> None:
    """The source's ACLs close the topic there; on a target that is open as well, only its own would."""
    source = {one._replace(pattern=pattern) for one in source}
    seen = view(source, FakeAcls(set()), FakeNotes())
    both = plan_acls(replace(seen, both_open=True))
    assert sorted({refusal.code for refusal in both.refused}) == sorted(told)
    assert all(r.object == "east.flights" for r in both.refused if r.code == "ACLS_OPEN")
    assert "ACLS_OPEN" not in [refusal.code for refusal in plan_acls(seen).refused]


@pytest.mark.parametrize("name", ["east.flights", "east.fl", "*"])
def test_a_copy_that_somebody_has_closed_is_not_open(name: str) -> None:
    """By hand: for the topic, a prefix, or all topics."""
    pattern = "PREFIXED" if name == "east.fl" else "LITERAL"
    target = FakeAcls({acl("READ", OWN, name=name, pattern=pattern)})
    seen = view({acl("WRITE")}, target, FakeNotes())
    assert plan_acls(replace(seen, both_open=True)).refused == ()


def test_a_copy_whose_last_acl_goes_is_open_from_then_on() -> None:
    """The source still has one, for writing: the plan that deletes says so, and so does every later one."""
    target, notes = FakeAcls(set()), FakeNotes()
    sync({acl("READ"), acl("WRITE")}, target, notes)
    for _ in range(2):
        plan = plan_acls(replace(view({acl("WRITE")}, target, notes), both_open=True))
        assert [refusal.code for refusal in plan.refused] == ["ACLS_OPEN"]
        apply_acls(plan, target, notes)
    assert target.acls == set()


# ---- a DENY that is not carried over


@pytest.mark.parametrize(
    ("denied", "allowed", "left_out"),
    [
        (acl("READ", ALL_USERS, deny=True), acl("READ"), {"READ"}),
        (acl("READ", ALL_USERS, deny=True), acl("ALL"), {"READ"}),
        (acl("ALL", ALL_USERS, deny=True), acl("ALL"), {"READ", "DESCRIBE"}),
        (acl("ALL", ALL_USERS, deny=True), acl("DESCRIBE_CONFIGS"), {"DESCRIBE_CONFIGS"}),
        # Reading implies describing.
        (acl("DESCRIBE", ALL_USERS, deny=True), acl("READ"), {"READ"}),
        (acl("DESCRIBE", ALL_USERS, deny=True), acl("DESCRIBE_CONFIGS"), set()),
        (acl("DESCRIBE_CONFIGS", ALL_USERS, deny=True), acl("DESCRIBE_CONFIGS"), {"DESCRIBE_CONFIGS"}),
        (acl("WRITE", ALL_USERS, deny=True), acl("READ"), set()),
        # However the two name the topic.
        (acl("READ", ALL_USERS, deny=True, name="fl", pattern="PREFIXED"), acl("READ", name="*"), {"READ"}),
        (acl("READ", ALL_USERS, deny=True, name="*"), acl("READ"), {"READ"}),
        (acl("READ", ALL_USERS, deny=True, name="other"), acl("READ"), set()),
        # The flow's own user is among everybody, and is nobody else.
        (acl("READ", OWN, deny=True), acl("READ", ALL_USERS), {"READ"}),
        (acl("READ", OWN, deny=True), acl("READ", OWN), {"READ"}),
        (acl("READ", OWN, deny=True), acl("READ", BOB), set()),
        # Hosts that can be one.
        (acl("READ", ALL_USERS, deny=True, host=HERE), acl("READ"), {"READ"}),
        (acl("READ", ALL_USERS, deny=True), acl("READ", host=HERE), {"READ"}),
        (acl("READ", ALL_USERS, deny=True, host=HERE), acl("READ", host=HERE), {"READ"}),
        (acl("READ", ALL_USERS, deny=True, host=HERE), acl("READ", host=THERE), set()),
    ],
)
def test_an_allow_is_not_copied_without_the_deny_that_limits_it(
    denied: Acl, allowed: Acl, left_out: set[str]
) -> None:
    """It is named with the reason; what the DENY does not speak of is copied."""
    plan = plan_acls(view({denied, allowed}, FakeAcls(set()), FakeNotes()))
    alone = plan_acls(view({allowed}, FakeAcls(set()), FakeNotes()))
    assert {one.operation for one in alone.create} - {one.operation for one in plan.create} == left_out
    told = [refusal for refusal in plan.refused if refusal.code == "ACL_WITHHELD"]
    assert {refusal.object for refusal in told} == ({"east.flights"} if left_out else set())
    assert len(told) == len(left_out)
    for refusal in told:
        assert f"ALLOW {sorted(left_out)[0]}" in told[0].message
        assert f"DENY {denied.operation} to {denied.principal} from {denied.host}" in refusal.message
        assert not refusal.blocks


@pytest.mark.parametrize(
    "denied",
    [
        acl("READ", "User:ann\0", deny=True),
        acl("READ", ANN, deny=True, host="*\0"),
        acl("READ", f"{OWN}\0", deny=True),
        acl("ALL", "User:*\0", deny=True),
    ],
)
def test_a_deny_with_a_nul_is_carried_over_and_is_nobody_elses(denied: Acl) -> None:
    """Whom it means may not; it is neither the flow's own user nor everybody."""
    target, notes, allowed = FakeAcls(set()), FakeNotes(), acl("READ", ALL_USERS)
    assert sync({denied, allowed}, target, notes) == []
    assert target.acls == {copied(denied), copied(allowed)}


def test_what_an_earlier_sync_copied_goes_when_the_source_forbids_it() -> None:
    """The ALLOW was right, then came a DENY that is not carried over; it comes back when that has gone."""
    target, notes, one = FakeAcls(set()), FakeNotes(), acl()
    sync({one}, target, notes)
    assert target.acls == {copied(one)}
    codes = sync({one, acl("READ", ALL_USERS, deny=True)}, target, notes)
    assert sorted(codes) == ["ACL_DENIES_ONCEOVER", "ACL_WITHHELD"]
    assert target.acls == set()
    assert sync({one}, target, notes) == []
    assert target.acls == {copied(one)}


def test_a_deny_that_becomes_the_flows_own_takes_its_allows_along() -> None:
    """The flow logs in as another user from now on: the DENY it copied for that one has to go."""
    target, notes = FakeAcls(set()), FakeNotes()
    source = {acl("READ", ALL_USERS), acl("READ", BOB, deny=True)}
    sync(source, target, notes)
    assert target.acls == {copied(one) for one in source}
    sync(source, target, notes, principal=BOB)
    assert target.acls == set()


@pytest.mark.parametrize("standing", [acl("READ", ALL_USERS, deny=True), acl("ALL", ALL_USERS, deny=True)])
@pytest.mark.parametrize(
    "where", [{"name": "east.flights"}, {"name": "ea", "pattern": "PREFIXED"}, {"name": "*"}]
)
def test_a_deny_that_somebody_put_on_the_target_makes_its_allows_safe(
    standing: Acl, where: dict[str, str]
) -> None:
    """Where the flow's user is a superuser, an operator may well forbid everybody what the source does."""
    target, notes, one = FakeAcls({standing._replace(**where)}), FakeNotes(), acl()
    assert sync({one, acl("READ", ALL_USERS, deny=True)}, target, notes) == []
    assert copied(one) in target.acls


@pytest.mark.parametrize(
    "standing",
    [
        acl("READ", ALL_USERS, deny=True, name="west.flights"),
        acl("READ", ALL_USERS, deny=True, name="east.flights", host=HERE),
        acl("READ", ANN, deny=True, name="east.flights"),
        acl("DESCRIBE", ALL_USERS, deny=True, name="east.flights"),
        acl("READ", ALL_USERS, name="east.flights"),
    ],
)
def test_a_deny_on_the_target_that_forbids_less_makes_nothing_safe(standing: Acl) -> None:
    """Near misses: another topic, one host, one user, another operation, and no DENY at all."""
    target, notes, one = FakeAcls({standing}), FakeNotes(), acl()
    sync({one, acl("READ", ALL_USERS, deny=True)}, target, notes)
    assert copied(one) not in target.acls


# ---- in which order


def test_what_the_target_does_not_forbid_it_does_not_allow_either() -> None:
    """It refuses one DENY: nothing is allowed, and what was allowed before and is forbidden now goes."""
    bobs, everybodys = acl("READ", BOB, deny=True), acl("READ", ALL_USERS)
    target, notes = Side(), FakeNotes()
    sync({everybodys, acl("DESCRIBE")}, target, notes)
    target.refuses = copied(bobs), NeedsOperator("the target knows no such user", code="ADMIN_REFUSED")
    source = {everybodys, bobs, acl("READ")}
    for _ in range(2):
        with pytest.raises(NeedsOperator):
            sync(source, target, notes)
        assert target.acls == set()
    target.refuses = None
    sync(source, target, notes)
    assert target.acls == {copied(one) for one in source}


def test_what_the_source_no_longer_allows_goes_although_something_else_is_refused() -> None:
    """An ALLOW that the target does not take keeps no other one there."""
    old, new = acl("READ"), acl("READ", BOB)
    target, notes = Side(), FakeNotes()
    sync({old}, target, notes)
    target.refuses = copied(new), NeedsOperator("no", code="ADMIN_REFUSED")
    with pytest.raises(NeedsOperator):
        sync({new}, target, notes)
    assert target.acls == set()


def test_a_target_that_is_away_in_the_middle_is_tried_again() -> None:
    """The next round ends where the first one would have."""
    source = {acl("READ", BOB, deny=True), acl("READ", ALL_USERS)}
    target, notes = Side(), FakeNotes()
    target.refuses = copied(acl("READ", BOB, deny=True)), Retriable("away")
    with pytest.raises(Retriable):
        sync(source, target, notes)
    assert target.acls == set()
    target.refuses = None
    sync(source, target, notes)
    assert target.acls == {copied(one) for one in source}


# ---- whatever there is

rules: dict[str, Any] = {
    "principal": st.sampled_from((ANN, BOB, ALL_USERS, OWN, f"{ANN}\0", "User:*\0")),
    "host": st.sampled_from(("*", "*", HERE, f"{HERE}\0")),
    "operation": st.sampled_from(
        ("READ", "READ", "ALL", "DESCRIBE", "DESCRIBE_CONFIGS", "WRITE", "ALTER_CONFIGS", "UNKNOWN_15")
    ),
    "permission": st.sampled_from(("ALLOW", "DENY")),
}
source_sets = st.frozensets(
    st.builds(
        lambda place, **rule: Acl(*place, **rule),
        st.sampled_from(
            (("LITERAL", "flights"), ("LITERAL", "flights.jfk"), ("PREFIXED", "fl"), ("LITERAL", "*"))
        ),
        **rules,
    ),
    max_size=6,
)
foreign_sets = st.frozensets(
    st.builds(
        lambda place, **rule: Acl(*place, **rule),
        st.sampled_from((("LITERAL", "east.flights"), ("PREFIXED", "east."), ("LITERAL", "*"))),
        **rules,
    ),
    max_size=2,
)
QUESTIONS = [
    (Question(who, host, operation, source), Question(who, host, operation, target))
    for who, host, operation, (source, target) in product(
        (ANN, BOB, OWN, "User:eve", f"{ANN}\0"), (HERE, THERE), TOPIC_OPERATIONS, TARGETS.items()
    )
]


def gained(
    source: frozenset[Acl], before: set[Acl], foreign: frozenset[Acl], now: set[Acl]
) -> list[Question]:
    """Return what is allowed on the target, and neither by the source, nor by what others put there, nor
    was it before."""
    return [
        there
        for here, there in QUESTIONS
        if allows(now, there)
        and not allows(source, here)
        and not allows(foreign, there)
        and not allows(before, there)
    ]


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(source_sets, min_size=1, max_size=3),
    foreign_sets,
    st.sampled_from((OWN, None)),
    st.integers(1, 12),
)
def test_nobody_gains_on_the_target_what_the_source_denies(
    history: list[frozenset[Acl]], foreign: frozenset[Acl], principal: str | None, effect: int
) -> None:
    """After each sync, and wherever one is killed; others' own rights on the target are theirs to give."""
    target, notes = FakeAcls(set(foreign)), FakeNotes()
    for source in history:
        before = set(target.acls)
        target.life = Life(effect)
        view_now = AclView(TARGETS, source, frozenset(before), owned_acls(notes.values), principal)
        try:
            apply_acls(plan_acls(view_now), target, notes)
        except Killed:
            assert gained(source, before, foreign, target.acls) == []
        target.life = Life()
        again = AclView(TARGETS, source, frozenset(target.acls), owned_acls(notes.values), principal)
        apply_acls(plan_acls(again), target, notes)
        assert gained(source, set(), foreign, target.acls) == []
        assert foreign <= target.acls


@settings(max_examples=examples(50), deadline=None)
@given(source_sets)
def test_readers_keep_what_the_source_allows_them_where_every_deny_is_carried_over(
    source: frozenset[Acl],
) -> None:
    """The near-miss: nothing is withheld because of a DENY that is there, too."""
    carried = frozenset(
        one
        for one in source
        if one.permission == "ALLOW" or (one.principal in (ANN, BOB) and one.host in ("*", HERE))
    )
    target, notes = FakeAcls(set()), FakeNotes()
    apply_acls(plan_acls(AclView(TARGETS, carried, frozenset(), frozenset(), OWN)), target, notes)
    for here, there in QUESTIONS:
        if here.operation == "READ" and here.principal in (ANN, BOB, OWN, "User:eve"):
            assert allows(target.acls, there) == allows(carried, here)
