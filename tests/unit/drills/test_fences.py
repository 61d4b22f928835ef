"""Fences without brokers: whose an ACL is, whatever was killed, taken over or edited meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.abort import LeftFence, abort
from onceover.drills.chain import JournalEntry
from onceover.drills.codes import DrillCode
from onceover.drills.leaving.fences import (
    ACLS,
    COMMAND,
    PERSON,
    AclFence,
    CommandFence,
    LiftedFences,
    PersonFence,
    left_behind,
    shut,
)
from onceover.errors import Fenced, NeedsOperator, OnceoverError, UsageError
from onceover.kafka.admin.acls import Acl, AclAdmin, NoAuthorizer
from onceover.kafka.codes import KafkaCode
from tests.unit.drills.test_abort import Journal, Removal, letting_in
from tests.unit.drills.test_switching import enrolment, written


def deny(topic: str, principal: str = "User:*") -> Acl:
    return Acl("LITERAL", topic, principal, "*", "WRITE", "DENY")


def allow(topic: str) -> Acl:
    return Acl("LITERAL", topic, "User:reader", "*", "READ", "ALLOW")


class Cluster:
    """ACLs in memory; ``on_create`` is called once they are there."""

    def __init__(self, *acls: Acl) -> None:
        self.acls = set(acls)
        self.on_create: Callable[[], None] = lambda: None
        self.is_ours = True

    def topic_acls(self) -> frozenset[Acl]:
        return frozenset(self.acls)

    def create(self, acls: Collection[Acl]) -> None:
        self.acls |= set(acls)
        self.on_create()

    def delete(self, acls: Collection[Acl]) -> None:
        self.acls -= set(acls)

    def check_may_change(self) -> None:
        if not self.is_ours:
            raise UsageError("no right", code=KafkaCode.NOT_AUTHORIZED)


class Notes:
    """The journal in memory, for one drill."""

    def __init__(self, chain: Sequence[JournalEntry] = ()) -> None:
        self.chain = list(chain)
        self.ours = self.sure = True

    def read(self) -> Sequence[JournalEntry]:
        return list(self.chain)

    def write(self, what: str, said: Mapping[str, Any]) -> None:
        self.chain.append(chains.next_entry(self.chain, "d1", what, 0, said))

    def check(self) -> None:
        if not self.ours:
            raise Fenced("taken over", code=DrillCode.DRILL_TAKEN_OVER)

    def holds(self) -> bool:
        return self.sure


def fence(cluster: Cluster, *principals: str, is_open: bool = False) -> AclFence:
    return AclFence(cast(AclAdmin, cluster), principals or ("User:*",), lambda _: is_open)


def lifted(cluster: Cluster, *principals: str) -> LiftedFences:
    return LiftedFences({ACLS: lambda: fence(cluster, *principals)})


def test_what_somebody_else_denies_one_of_several_stays() -> None:
    """Only what was made is taken away, of each principal."""
    cluster, notes = Cluster(deny("t", "User:a")), Notes()
    made = fence(cluster, "User:a", "User:b").make(notes, ["t", "u"], Deadline(5.0))
    assert made == {"acls": 3, "inherited": 0, "there_before": 1}
    lifted(cluster).lift(notes, ["t", "u"], Deadline(5.0))
    assert cluster.acls == {deny("t", "User:a")}
    assert chains.fenced(notes.chain) == {}


def test_a_fence_is_lifted_as_it_was_made_whatever_the_file_says_now() -> None:
    """Killed with one list of principals, and ended with another one."""
    cluster, notes = Cluster(deny("t", "User:b")), Notes()
    fence(cluster, "User:a").make(notes, ["t"], Deadline(5.0))
    lifted(cluster, "User:b").lift(notes, ["t"], Deadline(5.0))
    assert cluster.acls == {deny("t", "User:b")}


def test_only_the_topics_named_are_let_in() -> None:
    """What another wave has promoted stays fenced."""
    cluster, notes = Cluster(), Notes()
    fence(cluster).make(notes, ["t", "u"], Deadline(5.0))
    lifted(cluster).lift(notes, ["t"], Deadline(5.0))
    assert cluster.acls == {deny("u")}
    assert chains.fenced_topics(notes.chain) == {"u"}


def test_killed_between_the_word_and_the_acl_it_can_be_lifted() -> None:
    """The journal says first what will be made; what is not there is no error."""
    cluster, notes = Cluster(), Notes()
    notes.write(chains.FENCED, {"kind": ACLS, "marks": [["t", "User:*"]]})
    assert lifted(cluster).lift(notes, ["t"], Deadline(5.0)) == {"acls": 1}


def test_who_is_taken_for_dead_while_it_fences_leaves_nothing() -> None:
    """Whoever has taken over has lifted what it knew of, and comes back to nothing."""
    cluster, notes = Cluster(), Notes()

    def taken() -> None:
        lifted(cluster).lift(notes, ["t"], Deadline(5.0))
        # Ours comes a moment later.
        cluster.acls.add(deny("t"))
        notes.ours = False

    cluster.on_create = taken
    with pytest.raises(Fenced):
        fence(cluster).make(notes, ["t"], Deadline(5.0))
    assert cluster.acls == set()


def test_who_is_taken_for_dead_while_it_fences_leaves_what_the_next_one_goes_on_with() -> None:
    """That one stands behind the very same DENYs, and may have promoted by then."""
    cluster, notes = Cluster(), Notes()
    later = fence(cluster)

    def taken() -> None:
        cluster.on_create = lambda: None
        assert later.make(notes, ["t"], Deadline(5.0))["inherited"] == 1
        notes.ours = False

    cluster.on_create = taken
    with pytest.raises(Fenced):
        fence(cluster).make(notes, ["t"], Deadline(5.0))
    assert cluster.acls == {deny("t")}
    assert later.gone(()) == []


@pytest.mark.parametrize(("goes_on", "words"), [(True, ["fence"]), (False, ["fence", "unfence"])])
def test_a_command_of_who_is_taken_for_dead_undoes_what_nobody_goes_on_with(
    goes_on: bool, words: list[str]
) -> None:
    """Whoever has lifted it meanwhile has done so before it was all there."""
    notes, heard = Notes(), list[str]()

    def run(word: str, topics: Collection[str], _: Deadline) -> Mapping[str, Any]:
        heard.append(word)
        assert list(topics) == ["t"]
        if word == "fence":
            notes.ours = False
            if not goes_on:
                notes.write(chains.UNFENCED, {"kind": COMMAND, "marks": [["t", ""]]})
        return {}

    with pytest.raises(Fenced):
        CommandFence(cast(Any, SimpleNamespace(run=run))).make(notes, ["t"], Deadline(5.0))
    assert heard == words


def test_a_fence_that_somebody_takes_away_is_missed() -> None:
    """Also what stood there before; of what an earlier run has made, as the journal has it."""
    cluster, notes = Cluster(deny("u")), Notes()
    made = fence(cluster)
    made.make(notes, ["t", "u"], Deadline(5.0))
    assert made.gone({("t", "User:*")}) == []
    cluster.acls.clear()
    assert made.gone(()) == ["t", "u"]
    assert fence(cluster, "User:app").gone({("t", "User:*")}) == ["t"]
    assert PersonFence(lambda *_: {}).gone({("t", "")}) == []


def test_without_the_target_what_was_made_is_taken_away_by_memory() -> None:
    """And nothing else: the journal cannot be asked."""
    cluster, notes = Cluster(deny("u")), Notes()
    made = fence(cluster)
    made.make(notes, ["t", "u"], Deadline(5.0))
    assert "1 ACLs" in lifted(cluster).give_up(made, {})
    assert cluster.acls == {deny("u")}


def test_a_fence_of_one_that_was_killed_is_ours() -> None:
    """It is not called somebody else's, and is lifted without the target as well."""
    cluster, notes = Cluster(deny("u")), Notes()
    fence(cluster).make(notes, ["t", "u"], Deadline(5.0))
    again = fence(cluster)
    made = again.make(notes, ["t", "u", "v"], Deadline(5.0))
    assert made == {"acls": 1, "inherited": 1, "there_before": 1}
    assert "2 ACLs" in lifted(cluster).give_up(again, {})
    assert cluster.acls == {deny("u")}


def test_a_fence_of_one_that_was_killed_is_lifted_before_it_is_made_again() -> None:
    """In whichever way it was made; what nobody knows how to lift is named."""
    cluster = Cluster(deny("t"), deny("u"))
    told = lifted(cluster).give_up(
        PersonFence(lambda *_: {}), {ACLS: {("t", "User:*")}, COMMAND: {("u", "")}, PERSON: {("v", "")}}
    )
    assert cluster.acls == {deny("u")}
    for part in ("1 ACLs are deleted", "fenced by command, which", "u", "may start them again"):
        assert part in told, part


def test_where_topics_are_everybodys_a_deny_would_shut_readers_out() -> None:
    """With an ALLOW for its readers, or where nothing is everybody's, it may be made."""
    cluster = Cluster(allow("t"))
    with pytest.raises(UsageError, match="shut their readers out") as caught:
        fence(cluster, is_open=True).check(["t", "u"])
    assert caught.value.where == "u"
    fence(cluster, is_open=True).check(["t"])
    fence(cluster).check(["t", "u"])


def test_who_may_make_no_acls_is_told_before_the_journal_says_that_anybody_is_kept_off() -> None:
    """What it says stands until it is lifted, and that takes the same right."""
    cluster = Cluster(allow("t"))
    cluster.is_ours = False
    with pytest.raises(UsageError, match="no right") as caught:
        fence(cluster).check(["t"])
    assert caught.value.code == KafkaCode.NOT_AUTHORIZED
    assert "switchover.fence" in (caught.value.resolve or "")


@pytest.mark.parametrize(
    ("error", "way"),
    [
        (NoAuthorizer("east has none", code=KafkaCode.NO_AUTHORIZER, resolve="sync"), "have its brokers"),
        (UsageError("no right", code=KafkaCode.NOT_AUTHORIZED, resolve="sync"), "grant the flow's"),
        (NeedsOperator("a new kind", code=KafkaCode.ACL_UNKNOWN, seen="9", resolve="sync"), "use switchover"),
    ],
)
def test_who_cannot_look_at_acls_is_told_what_that_means_for_a_fence(
    monkeypatch: pytest.MonkeyPatch, error: OnceoverError, way: str
) -> None:
    """Who asks for ACLs as a fence has not asked for them to be synced, and cannot switch that off."""
    cluster = Cluster()

    def refuse() -> frozenset[Acl]:
        raise error

    monkeypatch.setattr(cluster, "topic_acls", refuse)
    with pytest.raises(type(error), match=r"^writers cannot be kept off") as told:
        fence(cluster).check(["t"])
    assert (told.value.code, told.value.seen) == (error.code, error.seen)
    resolve = str(told.value.resolve)
    assert resolve.startswith(way) and resolve.endswith("use switchover.fence: command or person")


def test_a_fence_of_a_kind_that_the_file_does_not_know_is_named() -> None:
    """A command that the file names no more: nobody pretends that it was run."""
    notes = Notes()
    notes.write(chains.FENCED, {"kind": COMMAND, "marks": [["t", ""]]})
    with pytest.raises(NeedsOperator, match="fenced by command"):
        lifted(Cluster()).lift(notes, ["t"], Deadline(5.0))
    assert chains.fenced_topics(notes.chain) == {"t"}


def test_a_person_is_told_that_the_producers_may_start() -> None:
    """Who has stopped them starts them."""
    notes = Notes()
    made = PersonFence(lambda step, _: {"by": "ann", "step": step})
    assert made.make(notes, ["t"], Deadline(5.0)) == {"by": "ann", "step": "fence"}
    makers = LiftedFences({PERSON: lambda: made})
    assert makers.lift(notes, ["t"], Deadline(5.0)) == {"start_again": 1}


FENCED = chains.FENCED, {"kind": ACLS, "marks": [["a", "User:*"], ["b", "User:app"]]}


def test_who_is_shut_out_of_a_topic_is_everybody() -> None:
    """The flow that leads back, too; a principal by name, or what a program does, is none of that."""
    by_hand = {"kind": COMMAND, "marks": [["c", ""], ["d", "User:*"]]}
    assert shut(written(("d1", *FENCED), ("d1", chains.FENCED, by_hand))) == {"a"}


@pytest.mark.parametrize(
    ("promoted_by", "mode", "leads_back", "left"),
    [
        # Killed before it has promoted anything.
        ("", "planned", True, {"a", "b"}),
        # Made to stand; the flow that leads back could not write where everybody is kept off.
        ("d1", "planned", False, set()),
        ("d1", "planned", True, {"a"}),
        # It keeps nobody off: somebody before it has.
        ("d2", "unplanned", False, {"a", "b"}),
        ("d2", "unplanned", True, {"a", "b"}),
        # It has gone on with the fence of the one that was killed.
        ("d2", "planned", False, set()),
    ],
)
def test_a_fence_that_nobody_wants_any_more_is_left_behind_also_on_promoted_topics(
    promoted_by: str, mode: str, *, leads_back: bool, left: set[str]
) -> None:
    chain = written(
        ("d1", chains.BEGUN, {"mode": "planned"}), ("d1", *FENCED), ("d2", chains.BEGUN, {"mode": mode})
    )
    enrolled = [enrolment("a", promoted_by), enrolment("b", promoted_by)]
    assert left_behind(chain, enrolled, leads_back=leads_back) == left


def test_what_promotes_while_it_is_asked_to_end_is_not_undone() -> None:
    """Asked before and behind: in between it has passed the point of no return."""
    journal, asked = Journal(True), [{"t"}]
    journal.put("d1", chains.BEGUN)

    def left() -> set[str]:
        if asked:
            return asked.pop()
        raise NeedsOperator("past", code=DrillCode.PAST_RETURN)

    journal.on_ask = lambda: journal.put("d1", chains.ENDED)
    done: list[object] = []
    with pytest.raises(NeedsOperator, match="past"):
        abort(
            cast(Any, journal),
            cast(Any, Removal()),
            LeftFence(left, tuple, lambda: done.append("fenced"), letting_in(done.append)),
            "orders-dr",
            lambda _: False,
        )
    assert done == []
