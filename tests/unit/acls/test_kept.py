"""ACLs: what the target gets, what it never gets, and that interruptions leave nothing unowned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.acls.cover import AclsByTopic, applies
from onceover.acls.kept import (
    ALLOWED,
    AclPlan,
    AclView,
    acl_key,
    acl_record,
    owned_acls,
    plan_acls,
    unread_acls,
)
from onceover.acls.sync import AclSync, apply_acls, is_open, own_principal
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.kafka.admin.acls import Acl, NoAuthorizer
from tests.support.brokers.authorizer import Question, allows
from tests.support.fakes.fakecluster import FakeCluster

OWN = "User:onceover"
TOPICS = ("flights.jfk", "flights.lax", "flights", "other", "flightsx")
OPERATIONS = (
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
)  # fmt: skip


def acl(
    operation: str = "READ",
    *,
    name: str = "flights",
    principal: str = "User:ann",
    permission: str = "ALLOW",
    pattern: str = "LITERAL",
) -> Acl:
    return Acl(pattern, name, principal, "*", operation, permission)


def view(
    source: set[Acl],
    *,
    target: frozenset[Acl] = frozenset(),
    owned: frozenset[Acl] = frozenset(),
    topics: Mapping[str, str] | None = None,
    principal: str | None = OWN,
) -> AclView:
    named = {"flights": "east.flights"} if topics is None else topics
    return AclView(named, frozenset(source), target, owned, principal)


acls = st.builds(
    Acl,
    pattern=st.sampled_from(("LITERAL", "PREFIXED")),
    name=st.sampled_from((*TOPICS, "*", "fli", "east.flights", "east.other")),
    principal=st.sampled_from(("User:ann", "User:bob", "User:*", OWN, "User:*\0x", "User:ann\0")),
    host=st.sampled_from(("*", "*", "10.0.0.1", "10.0.0.1\0")),
    operation=st.sampled_from((*OPERATIONS, "UNKNOWN_15")),
    permission=st.sampled_from(("ALLOW", "DENY")),
)
names = st.sets(st.sampled_from(TOPICS))
views = st.builds(
    lambda topics, prefix, source, target, owned, principal: AclView(
        {name: prefix + name for name in topics}, source, target, owned, principal
    ),
    names,
    st.sampled_from(("", "east.")),
    st.frozensets(acls, max_size=12),
    st.frozensets(acls, max_size=12),
    st.frozensets(acls, max_size=6),
    st.sampled_from((OWN, None)),
)


@given(st.frozensets(acls), st.sampled_from((*TOPICS, "fli", "east.flights")))
def test_acls_are_found_by_their_topic(some: frozenset[Acl], topic: str) -> None:
    """All of them, each once, and no others."""
    found = AclsByTopic(some).of(topic)
    assert sorted(found) == sorted(each for each in some if applies(each, topic))


def test_of_thousands_of_acls_a_topic_is_asked_about_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver does nothing else meanwhile, and counts as gone when it is silent for 20 s."""
    looked_at = 0
    of = AclsByTopic.of

    def counted(acls: AclsByTopic, topic: str) -> list[Acl]:
        nonlocal looked_at
        found = of(acls, topic)
        looked_at += len(found)
        return found

    monkeypatch.setattr(AclsByTopic, "of", counted)
    count = 300
    topics = {f"shop.t{n}": f"east.shop.t{n}" for n in range(count)}
    source = {acl(name=name, principal=f"User:{n}") for name in topics for n in range(3)}
    source |= {acl(name=f"other{n}", pattern="PREFIXED") for n in range(count)}
    first = plan_acls(view(source, topics=topics))
    made = frozenset(first.create)
    assert len(made) == 3 * count
    assert not plan_acls(view(source, topics=topics, target=made, owned=made)).changes()
    assert 3 * count <= looked_at < 100 * count


def applied(plan: AclPlan, before: AclView) -> AclView:
    """Return what both sides look like after the plan."""
    gone = set(plan.delete) | set(plan.forget)
    return AclView(
        before.topics,
        before.source,
        (before.target | frozenset(plan.create)) - frozenset(plan.delete),
        (before.owned | frozenset(plan.create)) - gone,
        before.own_principal,
    )


@given(views)
def test_a_second_plan_after_the_first_was_applied_is_empty(before: AclView) -> None:
    """Whatever both sides held."""
    again = plan_acls(applied(plan_acls(before), before))
    assert (again.create, again.delete, again.forget) == ((), (), ())


@given(views)
def test_nothing_outside_the_flows_target_topics_is_touched(before: AclView) -> None:
    """Every change names one target topic of the flow, literally."""
    plan = plan_acls(before)
    for change in plan.create + plan.delete + plan.forget:
        assert change.name in before.topics.values()
    assert all(change.pattern == "LITERAL" for change in plan.create)


@given(views)
def test_nobody_is_allowed_to_change_the_copy(before: AclView) -> None:
    """Neither WRITE nor ALL nor anything else beyond reading."""
    allowed = {change.operation for change in plan_acls(before).create if change.permission == "ALLOW"}
    assert allowed <= {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}


@given(views)
def test_only_what_this_flow_created_is_deleted(before: AclView) -> None:
    """Somebody else's ACL on a topic of the flow stays."""
    plan = plan_acls(before)
    assert set(plan.delete) | set(plan.forget) <= before.owned
    assert not set(plan.create) & before.target


@given(views)
def test_the_flow_never_denies_itself(before: AclView) -> None:
    """A DENY that matches its principal is refused, with a text."""
    plan = plan_acls(before)
    for change in plan.create:
        if change.permission == "DENY" and change.principal in ("User:*", before.own_principal):
            assert change.operation == "DELETE"
    codes = {refusal.code for refusal in plan.refused}
    assert codes <= {"ACL_DENIES_ONCEOVER", "ACL_WITHHELD", "ACL_UNKNOWN"}
    assert not any(refusal.blocks for refusal in plan.refused)


@given(views)
def test_an_operation_that_is_not_known_is_never_created(before: AclView) -> None:
    """Nobody knows what it would mean on the target."""
    assert all(not change.operation.startswith("UNKNOWN") for change in plan_acls(before).create)


@pytest.mark.parametrize(
    "odd",
    [acl(principal="User:*\0x"), acl()._replace(host="*\0x"), acl(principal="User:ann\0", permission="DENY")],
)
def test_a_name_with_a_nul_is_a_name(odd: Acl) -> None:
    """Copied as it is, owned, and gone with the source's; the name before the NUL is somebody else's."""
    cut = odd._replace(
        name="east.flights", principal=odd.principal.split("\0")[0], host=odd.host.split("\0")[0]
    )
    target, notes = FakeAcls({cut}), FakeNotes()
    apply_acls(plan_now({odd}, target, notes), target, notes)
    assert target.acls == {cut, odd._replace(name="east.flights")}
    assert plan_now({odd}, target, notes) == AclPlan()
    apply_acls(plan_now(set(), target, notes), target, notes)
    assert (target.acls, notes.values) == ({cut}, {})


def test_records_of_names_with_a_nul_are_told_apart() -> None:
    """Where one name ends and the next begins is part of the key."""
    one = acl(principal="User:a\0b")._replace(host="c")
    other = acl(principal="User:a")._replace(host="b\0c")
    assert acl_key(one) != acl_key(other)
    assert owned_acls({acl_key(each): acl_record(each, 7) for each in (one, other)}) == {one, other}


def test_a_deny_of_an_operation_that_is_not_known_is_told_and_the_rest_is_copied() -> None:
    """It limits neither reading nor describing; an ALLOW of it is one that is not copied."""
    source = {acl("UNKNOWN_15", permission="DENY", principal="User:*"), acl("READ"), acl("UNKNOWN_16")}
    plan = plan_acls(view(source))
    assert plan.create == (acl("READ", name="east.flights"),)
    assert [told.code for told in plan.refused] == ["ACL_UNKNOWN"]
    assert "DENY UNKNOWN_15 to User:* from *" in plan.refused[0].message


def test_an_operation_that_is_not_known_on_another_topic_is_nobodys_concern() -> None:
    """The flow has nothing there."""
    elsewhere = acl("UNKNOWN_15", name="other", permission="DENY")
    assert plan_acls(view({acl("READ"), elsewhere})) == plan_acls(view({acl("READ")}))


@given(acls, st.sampled_from(TOPICS))
def test_an_acl_applies_where_the_broker_says_so(one: Acl, topic: str) -> None:
    """Literal by name, prefixed by prefix, the literal star for all."""
    expected = topic.startswith(one.name) if one.pattern == "PREFIXED" else one.name in (topic, "*")
    assert applies(one, topic) is expected


@pytest.mark.parametrize(
    ("source", "created"),
    [
        (acl("READ"), {"READ"}),
        (acl("ALL"), {"READ", "DESCRIBE"}),
        (acl("WRITE"), set()),
        (acl("ALTER_CONFIGS"), set()),
        (acl("DESCRIBE_CONFIGS"), {"DESCRIBE_CONFIGS"}),
        (acl("WRITE", permission="DENY"), {"WRITE"}),
        (acl("ALL", permission="DENY"), {"ALL"}),
        (acl("READ", name="fl", pattern="PREFIXED"), {"READ"}),
        (acl("READ", name="fl"), set()),
        (acl("READ", name="*"), {"READ"}),
        (acl("READ", name="flights.jfk"), set()),
    ],
)
def test_each_source_acl_becomes_what_the_documentation_says(source: Acl, created: set[str]) -> None:
    """ALL is cut down to reading, WRITE stays behind, DENY is copied as it is."""
    plan = plan_acls(view({source}))
    assert {one.operation for one in plan.create} == created
    assert {(one.name, one.permission) for one in plan.create} <= {("east.flights", source.permission)}


def test_an_acl_of_ours_goes_with_its_reason_and_a_foreign_one_stays() -> None:
    """The source dropped both; only the one with our record is deleted."""
    ours, foreign = acl(name="east.flights"), acl(name="east.flights", principal="User:bob")
    plan = plan_acls(view(set(), target=frozenset({ours, foreign}), owned=frozenset({ours})))
    assert plan.delete == (ours,)
    assert plan.create == plan.forget == ()


def test_an_acl_that_existed_before_is_never_owned() -> None:
    """It is wanted and there: nothing is written, so nothing will be removed later."""
    existing = acl(name="east.flights")
    assert plan_acls(view({acl()}, target=frozenset({existing}))) == AclPlan()


def test_a_topic_that_left_the_flow_keeps_its_acls() -> None:
    """Readers go on reading what was copied."""
    ours = acl(name="east.flights")
    plan = plan_acls(view(set(), target=frozenset({ours}), owned=frozenset({ours}), topics={}))
    assert plan == AclPlan()


def test_changes_are_told_with_their_reasons() -> None:
    """A person reads who gets what on which topic."""
    ours = acl("DESCRIBE", name="east.flights")
    plan = plan_acls(view({acl()}, target=frozenset({ours}), owned=frozenset({ours})))
    create, delete = plan.changes()
    assert (create.object, create.to) == ("east.flights", "ALLOW READ to User:ann from *")
    assert (delete.what, delete.from_, delete.to) == ("delete acl", "ALLOW DESCRIBE to User:ann from *", None)


def test_a_record_round_trips_and_another_version_is_refused() -> None:
    """The next start knows what is ours."""
    one, two = acl(), acl("DESCRIBE")
    state = {acl_key(each): acl_record(each, 7) for each in (one, two)}
    assert owned_acls({**state, "layout": {"v": 1}}) == {one, two}
    assert len(acl_key(one)) == len("acl/") + 16
    with pytest.raises(NeedsOperator, match="another version"):
        owned_acls({acl_key(one): {**acl_record(one, 7), "v": 2}})


def test_an_acl_on_more_than_one_topic_is_nobodys_to_remove() -> None:
    """No flow creates one: a record that says so is somebody else's."""
    wide = acl("READ", name="east.flights", permission="DENY", pattern="PREFIXED")
    state = {acl_key(wide): acl_record(wide, 7)}
    assert owned_acls(state) == frozenset()
    assert unread_acls(state).keys() == state.keys()
    assert plan_acls(view(set(), target=frozenset({wide}), owned=owned_acls(state))).delete == ()


def test_the_table_of_allowed_operations_grants_reading_only() -> None:
    """A new entry needs a decision."""
    assert {operation for granted in ALLOWED.values() for operation in granted} == {
        "READ", "DESCRIBE", "DESCRIBE_CONFIGS",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "principal"),
    [
        ({"security.protocol": "SASL_SSL", "sasl.username": "onceover"}, OWN),
        ({"security.protocol": "sasl_plaintext", "sasl.username": "onceover"}, OWN),
        ({"security.protocol": "SSL", "sasl.username": "onceover"}, None),
        ({"security.protocol": "SASL_SSL"}, None),
        ({}, None),
    ],
)
def test_own_principal_is_known_only_with_a_user_name(
    properties: dict[str, str], principal: str | None
) -> None:
    """A certificate's or token's principal is the broker's business."""
    assert own_principal(properties) == principal


# ---- applying


class Killed(Exception):
    """The process dies here."""


class Life:
    """Counts effects and dies before or after the n-th."""

    def __init__(self, effect: int | None = None, *, after: bool = False) -> None:
        self._left, self._after = effect, after

    def pass_through(self, effect: Any) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Killed
        effect()
        if self._left == 0:
            raise Killed


class FakeAcls:
    """A cluster's ACLs in memory."""

    def __init__(self, acls: set[Acl], life: Life | None = None) -> None:
        self.acls = set(acls)
        self.life = life or Life()
        self.problem: Exception | None = None
        self.asked = 0
        self.open = self.superuser = False

    def topic_acls(self) -> frozenset[Acl]:
        self.asked += 1
        if self.problem is not None:
            raise self.problem
        return frozenset(self.acls)

    def may_read(self, absent: str) -> bool:
        return self._may("READ", absent)

    def may_write(self, absent: str) -> bool:
        return self._may("WRITE", absent)

    def _may(self, operation: str, topic: str) -> bool:
        """Answer as a broker does, for the flow's own user."""
        if self.superuser or (self.open and not any(applies(one, topic) for one in self.acls)):
            return True
        return allows(self.acls, Question(OWN, "10.0.0.1", operation, topic))

    def create(self, acls: tuple[Acl, ...]) -> None:
        for one in acls:
            self.life.pass_through(lambda one=one: self.acls.add(one))

    def delete(self, acls: tuple[Acl, ...]) -> None:
        for one in acls:
            self.life.pass_through(lambda one=one: self.acls.discard(one))


class FakeNotes:
    """The state's second partition in memory: written to, and read as the log."""

    def __init__(self, life: Life | None = None) -> None:
        self.values: dict[str, Any] = {}
        self.life = life or Life()

    def write_all(self, records: Mapping[str, Mapping[str, Any] | None]) -> None:
        for key, value in records.items():
            self.life.pass_through(lambda key=key, value=value: self._put(key, value))

    def _put(self, key: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def catch_up(self) -> dict[str, Any]:
        return self.values


def plan_now(source: set[Acl], target: FakeAcls, notes: FakeNotes) -> AclPlan:
    return plan_acls(view(source, target=frozenset(target.acls), owned=owned_acls(notes.values)))


OLD = {acl("READ"), acl("ALL", principal="User:bob")}
NEW = {acl("READ"), acl("DESCRIBE_CONFIGS"), acl("WRITE", permission="DENY", principal="User:eve")}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("effect", range(1, 11))
def test_killed_at_any_effect_and_run_again_the_end_is_the_same(effect: int, after: bool) -> None:
    """And at no moment is there an ACL of ours without a record, so removals are always followed."""
    foreign = acl("WRITE", name="east.flights", principal="User:foreign")
    target, notes = FakeAcls({foreign}), FakeNotes()
    apply_acls(plan_now(OLD, target, notes), target, notes)
    life = Life(effect, after=after)
    target.life = notes.life = life
    # 2 records, 2 creations, 2 records again, 2 deletions, 2 tombstones: ten effects.
    with pytest.raises(Killed):
        apply_acls(plan_now(NEW, target, notes), target, notes)
    assert target.acls - {foreign} <= owned_acls(notes.values)
    target.life = notes.life = Life()
    apply_acls(plan_now(NEW, target, notes), target, notes)
    assert plan_now(NEW, target, notes) == AclPlan()
    assert target.acls - {foreign} == owned_acls(notes.values)
    apply_acls(plan_now(set(), target, notes), target, notes)
    assert target.acls == {foreign}
    assert notes.values == {}


class Frozen(Life):
    """Stops before the n-th effect until ``meanwhile`` has happened, and goes on."""

    def __init__(self, effect: int, meanwhile: Callable[[], None]) -> None:
        self._before, self._meanwhile = effect, meanwhile

    def pass_through(self, effect: Any) -> None:
        self._before -= 1
        if self._before == 0:
            self._meanwhile()
        effect()


@pytest.mark.parametrize("effect", range(1, 11))
@pytest.mark.parametrize(
    ("before", "older", "newer"),
    [(set(), OLD, set()), (OLD, NEW, OLD), (OLD, set(), OLD), (OLD, NEW, set()), (set(), OLD, NEW)],
    ids=["taken back", "turned round", "given again", "all taken back", "changed"],
)
@pytest.mark.parametrize("planned_first", [False, True])
def test_a_writer_that_wakes_leaves_no_acl_that_nobody_would_remove(
    before: set[Acl], older: set[Acl], newer: set[Acl], effect: int, *, planned_first: bool
) -> None:
    """Frozen before any of its effects, while another one follows a newer source with a plan of its own.

    ACLs cannot be fenced: what it writes late is put right by the next one, if that knows whose it is.
    """
    foreign = acl("WRITE", name="east.flights", principal="User:foreign")
    target, notes = FakeAcls({foreign}), FakeNotes()
    other, others = FakeAcls(set()), FakeNotes()
    other.acls, others.values = target.acls, notes.values
    apply_acls(plan_now(before, target, notes), target, notes)
    old = plan_now(older, target, notes)
    new = plan_now(newer, other, others) if planned_first else None

    def meanwhile() -> None:
        apply_acls(new or plan_now(newer, other, others), other, others)

    target.life = notes.life = Frozen(effect, meanwhile)
    apply_acls(old, target, notes)
    assert target.acls - {foreign} <= owned_acls(notes.values)
    apply_acls(plan_now(set(), other, others), other, others)
    assert target.acls == {foreign}


# ---- beside a running copy


class Beside:
    """An AclSync whose clusters are fakes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, source: set[Acl]) -> None:
        self.source, self.target, self.notes = FakeAcls(source), FakeAcls(set()), FakeNotes()
        self.enabled = True
        self.now_s = 1000.0
        sides = iter((self.source, self.target))
        monkeypatch.setattr("onceover.acls.sync.AclAdmin", lambda _: next(sides))
        monkeypatch.setattr("onceover.acls.sync.time.monotonic", lambda: self.now_s)
        cluster = FakeCluster()
        self.sync = AclSync(cluster, cluster, lambda: self.enabled)

    def tick(self, **topics: str) -> None:
        state: Any = self.notes
        self.sync.tick(lambda: topics, state, self.notes)


def test_acls_follow_each_minute_and_at_once_when_the_topics_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at every tick: two requests name every ACL of a cluster."""
    beside = Beside(monkeypatch, {acl(name="*")})
    beside.tick(flights="flights")
    asked = beside.source.asked
    beside.tick(flights="flights")
    assert beside.source.asked == asked
    beside.tick(flights="flights", other="other")
    assert {one.name for one in beside.target.acls} == {"flights", "other"}
    beside.source.acls.clear()
    beside.now_s += 61
    beside.tick(flights="flights", other="other")
    assert beside.target.acls == set()


@pytest.mark.parametrize("effect", [1, 2, 3])
def test_a_run_that_wakes_looks_at_the_source_once_more(monkeypatch: pytest.MonkeyPatch, effect: int) -> None:
    """Frozen between its look and its changes: it may have been taken over from, and does nothing after."""
    beside = Beside(monkeypatch, {acl()})
    beside.target.life = beside.notes.life = Frozen(effect, beside.source.acls.clear)
    beside.tick(flights="flights")
    assert beside.target.acls == set()
    assert beside.notes.values == {}


def test_a_target_that_trails_behind_costs_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not show yet is not taken for gone when the source has taken it back meanwhile."""
    beside = Beside(monkeypatch, {acl()})
    shown, creates = beside.target.topic_acls, beside.target.create
    late: list[frozenset[Acl]] = [frozenset(), frozenset()]

    def create(acls: tuple[Acl, ...]) -> None:
        creates(acls)
        beside.source.acls.clear()
        monkeypatch.setattr(beside.target, "topic_acls", lambda: late.pop() if late else shown())

    monkeypatch.setattr(beside.target, "create", create)
    beside.tick(flights="flights")
    assert beside.target.acls == set()
    assert beside.notes.values == {}


def test_a_flow_that_wants_no_acls_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one whose file changes begins or ends without restart."""
    beside = Beside(monkeypatch, {acl()})
    beside.enabled = False
    beside.tick(flights="flights")
    assert beside.source.asked == 0
    beside.enabled = True
    beside.tick(flights="flights")
    assert len(beside.target.acls) == 1


def test_what_cannot_be_done_is_said_once_and_the_copy_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No authorizer, no right to ask: a remark in the flow's status, one line in its log."""
    beside = Beside(monkeypatch, {acl()})
    beside.source.problem = NoAuthorizer("east has no authorizer", code="NO_AUTHORIZER", resolve="do")
    for _ in range(3):
        beside.tick(flights="flights")
        beside.now_s += 61
    assert [(r.object, r.code, r.blocks) for r in beside.sync.refused] == [("acls", "NO_AUTHORIZER", False)]
    assert caplog.text.count("east has no authorizer") == 1
    beside.source.problem = None
    beside.tick(flights="flights")
    assert beside.sync.refused == []
    beside.source.problem = UsageError("east says no", code="NOT_AUTHORIZED")
    beside.now_s += 61
    beside.tick(flights="flights")
    assert [r.code for r in beside.sync.refused] == ["NOT_AUTHORIZED", "ACLS_STAY"]


OWN_TOPICS = acl(name="__onceover.", principal=OWN, pattern="PREFIXED")
WRITES = acl("WRITE", name="__onceover.", principal=OWN, pattern="PREFIXED")


@pytest.mark.parametrize(
    ("acls", "is_so", "superuser", "found"),
    [
        ({OWN_TOPICS}, True, False, True),
        ({OWN_TOPICS}, False, False, False),
        ({OWN_TOPICS}, True, True, False),
        ({OWN_TOPICS}, False, True, False),
        # Nothing tells a superuser from everybody.
        (set(), True, False, False),
        # Then every topic has an ACL.
        ({OWN_TOPICS, acl(name="*")}, True, False, False),
        ({OWN_TOPICS, acl(name="*", principal=OWN)}, True, False, False),
        ({WRITES}, True, False, False),
        # There is a prefix of somebody else, or one that may be read only.
        ({WRITES, acl(name="fl", pattern="PREFIXED")}, True, False, True),
        ({acl(name="fl", principal=OWN, pattern="PREFIXED")}, True, False, True),
        ({acl(name="fl", principal=OWN, pattern="PREFIXED")}, False, False, False),
        # A literal name may be that of a topic: nobody tries to write there.
        ({acl(name="flights")}, True, False, False),
    ],
)
def test_a_cluster_that_is_open_without_acls_is_found_where_that_can_be_told(
    acls: set[Acl], is_so: bool, superuser: bool, found: bool
) -> None:
    """Never a closed one, whoever the flow's user is."""
    side = FakeAcls(acls)
    side.open, side.superuser = is_so, superuser
    assert is_open(side, side.topic_acls()) is found


@pytest.mark.parametrize(
    ("source_too", "more", "told"),
    [
        (False, set(), [("ACLS_OPEN", "acls")]),
        (True, set(), []),
        (True, {acl("WRITE", name="gates")}, [("ACLS_OPEN", "gates")]),
    ],
)
def test_an_open_target_is_told_unless_the_source_is_as_open_and_acls_are_followed(
    monkeypatch: pytest.MonkeyPatch, source_too: bool, more: set[Acl], told: list[tuple[str, str]]
) -> None:
    """Of an open source the copy is as open as it was, but for topics that only their ACLs close there."""
    beside = Beside(monkeypatch, {acl(), OWN_TOPICS} | more)
    beside.target.acls.add(OWN_TOPICS)
    beside.target.open, beside.source.open = True, source_too
    beside.tick(flights="flights", gates="gates")
    assert [(refusal.code, refusal.object) for refusal in beside.sync.refused] == told
    assert acl() in beside.target.acls


@pytest.mark.parametrize(
    ("problem", "stays"),
    [
        (UsageError("east says no", code="NOT_AUTHORIZED"), True),
        (NeedsOperator("east has others", code="ACL_UNKNOWN", seen="ResourcePatternType 9"), True),
        (NoAuthorizer("east has no authorizer", code="NO_AUTHORIZER"), False),
    ],
)
def test_allows_that_cannot_follow_the_source_any_more_are_told(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, stays: bool
) -> None:
    """Whatever the source forbids from then on stays allowed; near misses: none of ours, no authorizer."""
    beside = Beside(monkeypatch, {acl(), acl("WRITE", permission="DENY")})
    beside.tick(flights="flights")
    beside.source.problem = problem
    beside.now_s += 61
    beside.tick(flights="flights")
    told = {refusal.code: refusal for refusal in beside.sync.refused}
    assert ("ACLS_STAY" in told) is stays
    if stays:
        assert told["ACLS_STAY"].message.startswith("1 ALLOWs of this flow stay on the target")
    beside.notes.values.clear()
    beside.now_s += 61
    beside.tick(flights="flights")
    assert [refusal.code for refusal in beside.sync.refused] == [problem.code]  # pyrefly: ignore[missing-attribute]


def test_allows_that_the_target_does_not_let_go_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source has taken the right back, and the flow may not."""
    beside = Beside(monkeypatch, {acl()})
    beside.tick(flights="flights")
    beside.source.acls.clear()

    def refuse(_: object) -> None:
        raise UsageError("west says no", code="NOT_AUTHORIZED")

    monkeypatch.setattr(beside.target, "delete", refuse)
    beside.now_s += 61
    beside.tick(flights="flights")
    assert [refusal.code for refusal in beside.sync.refused] == ["NOT_AUTHORIZED", "ACLS_STAY"]


def test_a_cluster_that_is_away_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure is never read as "no ACLs": nothing is deleted, the next round tries again."""
    beside = Beside(monkeypatch, {acl()})
    beside.tick(flights="flights")
    beside.source.problem = Retriable("east is away")
    beside.now_s += 61
    with caplog.at_level(logging.WARNING):
        beside.tick(flights="flights")
    assert len(beside.target.acls) == 1
    assert "east is away" in caplog.text
    assert beside.sync.refused == []
