"""Short stories in which an audit once said what is not so; ``live`` holds every answer against the truth."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from onceover.errors import Retriable, UsageError
from onceover.model import TopicPartition
from onceover.state.records.verdicts import START, WATERMARK, Verdict
from tests.support.worlds import auditworld
from tests.support.worlds.auditoracle import Answer, audit, check, keep
from tests.support.worlds.auditstory import EVENTS, Event, live
from tests.support.worlds.auditworld import EPOCH_MS, KINDS, LETTERS, SOURCE, World

# With the compiled code, and in soak without it.
pytestmark = pytest.mark.usefixtures("either_way")
WRITTEN = (Event("produce", 0, 4), Event("copy", 0))


def told(kind: str, *story: Event, since: str = WATERMARK) -> Answer:
    """Return what the audit says at the end of a story; every answer on the way, and this one, is true."""
    world = live(kind, story, audits=())
    answer = audit(world, since)
    check(world, answer)
    return answer


def reasons(answer: Answer) -> set[str]:
    """Return why offsets could not be compared."""
    return {str(each.reason) for each in answer.result.unverifiable}


# ---- a PASS, or a watermark, without proof


def test_foreign_tombstone_of_a_verified_key_is_seen_incrementally() -> None:
    """That a key without a record is as good as deleted is so from a log's start only."""
    story = (*WRITTEN, Event("audit"), Event("foreign record", 0, 1, 0))
    assert told("compacted", *story).verdict is Verdict.FAIL


def test_foreign_value_between_two_copied_ones_is_seen_while_all_history_is_there() -> None:
    """Its key's latest value is right; the record is nobody's all the same."""
    story = (
        Event("produce", 0, 1),
        Event("copy", 0),
        Event("foreign record", 0, 1, 3),
        Event("produce", 0, 1),
        Event("copy", 0),
    )
    for since in (WATERMARK, START):
        assert told("compacted", *story, since=since).verdict is Verdict.FAIL


@pytest.mark.parametrize("since", [WATERMARK, START])
@pytest.mark.parametrize("partition", [0, 2], ids=["that the handler writes to", "beyond the source's"])
def test_what_nobody_claims_stays_wrong_when_the_map_has_forgotten(partition: int, since: str) -> None:
    """It is looked for only as far as the map tells, so that a later answer says nothing of it."""
    story = (*WRITTEN, Event("audit"), Event("foreign record", partition), Event("audit"))
    later = (Event("produce", 0, 4), Event("copy", 0), Event("map expires", size=1))
    world = live("handler", (*story, *later), audits=())
    keep(world, audit(world, since))
    assert world.verdicts is not None
    failed = world.verdicts.open(lambda _: True)
    assert failed is not None and failed.failures[0].partition == partition


@pytest.mark.parametrize("away", [Event("bad record", 0), Event("skip", 0, 1)], ids=["diverted", "skipped"])
def test_what_was_never_to_be_there_keeps_no_cleaner_from_having_taken_what_was(away: Event) -> None:
    """Of two records that lack at one place the target's log has a hole for one: the one it has held."""
    story = (Event("produce", 0, 1), away) if away.name == "skip" else (away,)
    rest = (Event("produce", 0, 4, 3), Event("copy", 0, 4), Event("target is cleaned", 0, 4, 4))
    for kind in ("compacted", "handler-compacted"):
        assert told(kind, *story, *rest).verdict is Verdict.UNVERIFIABLE


def test_what_nobody_claims_stays_wrong_whoever_is_away_when_it_is_found_and_later() -> None:
    """The later audit looks through nothing that nobody claims: the broker that may claim it is away."""
    first, later = Event("audit without a leader", 1, 4, 3), Event("audit without a leader", 0, 1, 2)
    live("handler-compacted", (Event("foreign record", 0), first, later), audits=())
    live("handler", (Event("foreign record", 0), first, later), audits=())


def test_what_nobody_claims_stays_wrong_beside_what_nobody_can_read() -> None:
    """The batch before it is damaged, so that its partition was not looked through again."""
    story = (Event("foreign record", 0), Event("foreign record", 0), Event("audit"))
    told("handler", *story, Event("target damaged", 0))


@pytest.mark.parametrize("ends", [1, 2], ids=["committed", "aborted"])
@pytest.mark.parametrize("surplus", [3, 1], ids=["tombstone", "value"])
@pytest.mark.parametrize("kind", ["compacted", "handler-compacted"])
def test_no_cleaner_was_where_the_source_holds_what_no_reader_sees(
    kind: str, surplus: int, ends: int
) -> None:
    """A transaction's marker, an aborted record: a surplus record cannot have been there on the source."""
    story = (Event("produce", 0, 1, ends), Event("copy"), Event("foreign record", 0, 1, surplus))
    for more in ((), (Event("produce", 0, 1, surplus), Event("copy"))):
        for since in (WATERMARK, START):
            assert told(kind, *story, *more, since=since).verdict is Verdict.FAIL


def test_no_cleaner_was_where_the_target_holds_a_marker() -> None:
    """A record that the copy went past is lost, whatever value its key has later."""
    story = (Event("produce", 0, 1, 3), Event("copy"), Event("produce", 0, 1, 3), Event("overlook", 0, 1))
    answer = told("compacted", *story, Event("produce", 0, 1, 3), Event("copy"))
    assert answer.verdict is Verdict.FAIL and not reasons(answer)


@pytest.mark.parametrize("side", ["source", "target"])
def test_what_a_cleaner_can_have_taken_is_counted(side: str) -> None:
    """Earlier values of a key that one side no longer holds: not wrong, and not seen."""
    story = (*WRITTEN, Event("produce"), Event("copy"), Event(f"{side} is cleaned"))
    answer = told("compacted", *story)
    assert answer.verdict is Verdict.UNVERIFIABLE
    assert reasons(answer) == {"COMPACTED_HISTORY"}


def test_copy_that_the_targets_cleaner_has_kept_of_two_is_the_one_that_belongs_there() -> None:
    """The same record came twice and the cleaner took the first one: both sides hold it once."""
    story = (Event("produce", 0, 1), Event("copy and repeat", 0), Event("target is cleaned", 0))
    assert told("compacted", *story).verdict is Verdict.PASS
    named = told("compacted", *story[:2], Event("audit"), *story[2:], Event("audit fully"))
    assert named.verdict is Verdict.PASS


def test_altered_copy_of_a_tombstone_that_the_source_has_cleaned_is_told_once() -> None:
    """Nothing is left to hold it against."""
    story = (Event("produce", 0, 1, 1), Event("copy and alter", 0), Event("source is cleaned", 0, 1, 1))
    answer = told("compacted", *story)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"COMPACTED_HISTORY"})
    assert told("compacted", *story, Event("audit")).verdict is Verdict.PASS


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("kind", ["record", "compacted", "handler"])
def test_damaged_data_never_pass(kind: str, side: str) -> None:
    """Also where the damage lies over no source offset at all."""
    story = (*WRITTEN, Event("audit"), Event("foreign record", 0), Event(f"{side} damaged", 0, 1, 1))
    told(kind, *story)
    for variant in (0, 1):
        broken = Event(f"{side} damaged", 0, 1, variant)
        assert told(kind, *WRITTEN, broken).verdict is Verdict.UNVERIFIABLE


@pytest.mark.parametrize("kind", ["handler", "handler-compacted"])
def test_what_nobody_can_read_stays_unread_when_another_target_partition_was_opened(kind: str) -> None:
    """The same source offsets, and offsets alike on both target partitions."""
    story = (Event("bad record", 0), Event("produce"), Event("produce"), Event("copy", 0))
    told(kind, *story, Event("target damaged", 0))
    told(kind, *story[1:], Event("produce"), Event("copy and lose"), Event("target damaged", 0))


def test_foreign_batch_that_nobody_can_read_is_no_pass() -> None:
    """It lies over an empty range of the source."""
    story = (*WRITTEN, Event("audit"), Event("foreign record", 0), Event("target damaged", 0, 1, 1))
    answer = told("record", *story)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"UNREADABLE"})


def test_what_was_never_proven_stays_named_until_it_is_gone_from_the_source() -> None:
    """The target has lost what no audit has seen; the next audit knows no more than this one."""
    gone = (Event("produce", 0, 5), Event("copy", 0), Event("target expires", 0, 4))
    for story in (gone, (*gone, Event("audit"))):
        answer = told("record", *story)
        assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"RETENTION"})
    after = (*gone, Event("audit"), Event("source expires", 0, 4), Event("audit"))
    assert told("record", *after).verdict is Verdict.PASS


def test_finding_at_the_end_makes_nothing_younger() -> None:
    """What was proven was proven then."""
    told("record", *WRITTEN, Event("audit"), Event("foreign record", 0), Event("audit"))


@pytest.mark.parametrize("variant", [0, 1], ids=["its readers find out", "its broker finds out"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_nobody_can_read_behind_the_position_makes_no_proof_younger(kind: str, variant: int) -> None:
    """With at_least_once it is looked at apart from what was copied: data goes before its progress."""
    foreign, broken = Event("foreign record", 0, 1, 1), Event("target damaged", 0, 1, variant)
    for before in ((), (*WRITTEN, Event("audit"))):
        told(kind, *before, foreign, foreign, broken, Event("audit"))


def test_target_partition_that_the_flow_never_wrote_to_is_looked_at() -> None:
    """A handler flow, an incremental audit."""
    story = (Event("foreign record", 2),)
    for more in ((), (Event("audit"),), (*WRITTEN, Event("audit"))):
        assert told("handler", *more, *story).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", KINDS)
def test_topic_that_left_and_is_inside_again_is_no_pass(kind: str) -> None:
    """Before the flow runs again, its new records are nowhere."""
    story = (*WRITTEN, Event("topic leaves and returns"), Event("produce", 0, 4))
    answer = told(kind, *story)
    assert answer.verdict is Verdict.UNVERIFIABLE
    assert "NOT_COPIED_YET" in reasons(answer)


@pytest.mark.parametrize("kind", KINDS)
def test_records_that_nobody_skipped_are_lost_whatever_the_map_does_not_say(kind: str) -> None:
    """A flow that goes past records by mistake writes no map record for them, as after a skip by hand."""
    story = (*WRITTEN, Event("produce", 0, 4), Event("overlook", 0, 4))
    for more in ((), (Event("produce", 0, 4), Event("copy", 0))):
        assert told(kind, *story, *more).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", KINDS)
def test_foreign_records_are_seen_where_the_target_has_lost_others(kind: str) -> None:
    """Nothing was copied yet, and the first of two surplus records has expired."""
    foreign = Event("foreign record", 0, 1, 1)
    assert told(kind, foreign, foreign, Event("target expires")).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", KINDS)
def test_audit_since_a_time_proves_nothing_of_a_target_that_it_did_not_read(kind: str) -> None:
    """No record is so young: nothing was asked for, and the next audit begins where it would have."""
    told(kind, Event("foreign record", 0, 1, 1), Event("audit since a time", 0, 4, 5))
    story = (Event("produce"), Event("foreign record", 0, 1, 1), Event("audit since a time", 0, 4, 5))
    assert told(kind, *story, Event("copy", 0)).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", KINDS)
def test_surplus_record_where_the_source_is_empty_is_in_an_audit_since_any_time(kind: str) -> None:
    """No offset lies before that time: what is on the target is looked at from its beginning."""
    story = (Event("foreign record", 0, 1, 1), Event("produce", 1, 3), Event("copy", 1))
    assert told(kind, *story, since=str(EPOCH_MS)).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("later", [1, 5])
def test_surplus_record_that_was_named_stays_whatever_later_audits_look_at(kind: str, later: int) -> None:
    """Neither a failure nor a watermark goes past it."""
    named = (Event("foreign record", 0, 1, 1), Event("audit"))
    written, since = (Event("produce", 0, 3), Event("copy", 0)), Event("audit since a time", 0, 4, later)
    for story in ((*named, since, *written, since), (*written, Event("audit"), *named, *written, since)):
        assert told(kind, *story, Event("audit a sample", 0, 1, 1)).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", KINDS)
def test_surplus_record_that_was_removed_from_the_beginning_counts_no_more(kind: str) -> None:
    """As the report advises where nothing was copied before it."""
    story = (Event("foreign record", 0, 1, 1), Event("audit"))
    for later in ((), (Event("produce", 0, 3), Event("copy", 0))):
        world = live(kind, (*story, Event("target expires", 0, 1), *later), audits=(WATERMARK, START))
        assert world.verdicts is not None
        assert world.verdicts.open(lambda failure: True) is None


# ---- no answer at all


@pytest.mark.parametrize("kind", ["handler", "handler-compacted"])
def test_record_that_the_handler_fails_on_is_an_answer(kind: str) -> None:
    """Diverted, or of a handler that is another one now."""
    story = (*WRITTEN, Event("bad record", 0), Event("copy", 0))
    answer = told(kind, *story)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"DEAD_LETTER"})
    assert told(kind, *story, Event("audit")).verdict is Verdict.PASS


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sample_of_a_handler_flow_is_an_answer_and_proves_nothing(size: int) -> None:
    """A third of the target partitions says nothing about what the source's records became."""
    told("handler", *WRITTEN, Event("audit a sample", 0, size, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_foreign_open_transaction_on_the_target_is_an_answer(kind: str) -> None:
    """What lies behind it is hidden from every reader: said so, and no more."""
    hidden = (*WRITTEN, Event("foreign transaction", 0), Event("produce", 0, 4), Event("copy", 0))
    for story in (hidden, (*WRITTEN, Event("audit"), *hidden[2:])):
        answer = told(kind, *story)
        assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"OPEN_TRANSACTION"})


# ---- a FAIL where nothing is wrong


def test_repeats_of_what_a_handler_makes_are_what_they_are() -> None:
    """Whoever was killed has sent it to several partitions, and nothing in the map speaks of it."""
    ahead = (*WRITTEN, Event("produce", 0, 4), Event("sent ahead", 0, 3))
    answer = told("handler-at-least-once", *ahead)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"NOT_COPIED_YET"})
    answer = told("handler-at-least-once", *ahead, Event("copy", 0))
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"AT_LEAST_ONCE"})
    foreign = told("handler-at-least-once", *ahead, Event("copy", 0), Event("foreign record", 0, 1, 3))
    assert foreign.verdict is Verdict.FAIL


def test_data_ahead_of_its_progress_is_no_phantom_and_its_repeats_are_what_they_are() -> None:
    """At least once: records can be there before their progress, and again after it."""
    ahead = (*WRITTEN, Event("produce", 0, 4), Event("sent ahead", 0, 3))
    assert reasons(told("at-least-once", *ahead)) == {"NOT_COPIED_YET"}
    again = (*ahead, Event("copy", 0))
    answer = told("at-least-once", *again)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"AT_LEAST_ONCE"})
    assert told("at-least-once", *again, Event("audit")).verdict is Verdict.PASS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [(), (Event("audit"),)])
def test_flow_that_was_down_for_longer_than_the_source_keeps_is_not_wrong(
    kind: str, before: tuple[Event, ...]
) -> None:
    """Also where the source's log begins in what an operator skipped."""
    story = (*WRITTEN, *before, Event("produce", 0, 4), Event("source expires", 0, 6))
    assert told(kind, *story).verdict is Verdict.UNVERIFIABLE
    assert told(kind, *story, Event("skip", 0, 4), Event("copy", 0)).verdict is not Verdict.FAIL


@pytest.mark.parametrize("skipped", [(), (Event("skip", 0, 1),)], ids=["waits", "skipped"])
def test_what_was_sent_ahead_is_no_phantom_when_the_source_has_lost_it(skipped: tuple[Event, ...]) -> None:
    """A flow that was killed before its progress was written, and down for longer than the source keeps."""
    ahead = (Event("produce", 0, 4), Event("sent ahead", 0, 3))
    for taken in (2, 4):
        answer = told("at-least-once", *ahead, Event("source expires", 0, taken), *skipped)
        assert answer.verdict is Verdict.UNVERIFIABLE
        assert "RETENTION" in reasons(answer)


@pytest.mark.parametrize("skipped", [(), (Event("skip", 0, 1),)], ids=["waits", "skipped"])
def test_foreign_record_that_was_named_stays_when_the_source_has_lost_what_was_sent(
    skipped: tuple[Event, ...],
) -> None:
    """It cannot be told from what was sent ahead any more; that does not make it right."""
    foreign = (Event("foreign record", 0, 1, 1), Event("produce", 0, 4), Event("audit"))
    told("at-least-once", *foreign, Event("source expires", 0, 2), *skipped)


def test_record_that_was_sent_ahead_and_then_skipped_is_no_false_receipt() -> None:
    """It is on the target, as on the source, and no receipt can speak of it."""
    story = (*WRITTEN, Event("produce", 0, 2), Event("sent ahead", 0, 1), Event("skip", 0, 1))
    for more in ((Event("copy", 0),), (Event("produce", 0, 2), Event("copy", 0))):
        assert told("at-least-once", *story, *more).verdict is Verdict.UNVERIFIABLE


def test_compacted_source_that_rewrites_keys_beyond_the_position_is_not_wrong() -> None:
    """The copy still has what the source has replaced already."""
    story = (Event("produce", 0, 3), Event("copy", 0), Event("produce", 0, 3), Event("source is cleaned"))
    answer = told("compacted", *story)
    assert reasons(answer) == {"NOT_COPIED_YET", "COMPACTED_HISTORY"}


@pytest.mark.parametrize("side", ["source", "target"])
def test_handler_on_a_compacted_topic_is_not_wrong_when_it_is_cleaned(side: str) -> None:
    """What it made may be gone, and so may be what it made it from."""
    story = (Event("produce", 0, 4), Event("produce", 0, 4), Event("copy", 0, 8), Event(f"{side} is cleaned"))
    told("handler-compacted", *story)


@pytest.mark.parametrize("kind", ["record", "prefix", "compacted"])
@pytest.mark.parametrize("passed", ["bad record", "skip"])
def test_record_that_was_not_to_be_copied_is_no_half_of_an_altered_one(kind: str, passed: str) -> None:
    """Another partition's record stands where it would be: that one is misrouted, this one is not lost."""
    first = Event("bad record") if passed == "bad record" else Event("produce")
    then = Event("copy") if passed == "bad record" else Event("skip")
    story = (first, then, Event("produce", 1), Event("copy and misroute", 1))
    answer = told(kind, *story)
    assert [str(each.kind) for each in answer.result.findings] == ["MISROUTED"]
    assert reasons(answer) == {"DEAD_LETTER" if passed == "bad record" else "SKIPPED"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_diverted_or_skipped_is_told_once(kind: str) -> None:
    """In every mode it is what it is, and the next audit goes on behind it."""
    diverted = (*WRITTEN, Event("bad record", 0), Event("produce", 0, 2), Event("copy", 0))
    skipped = (*WRITTEN, Event("produce", 0, 4), Event("skip", 0, 2), Event("copy", 0))
    for story, reason in ((diverted, "DEAD_LETTER"), (skipped, "SKIPPED")):
        answer = told(kind, *story)
        assert answer.verdict is Verdict.UNVERIFIABLE
        assert reasons(answer) == {reason}
        assert told(kind, *story, Event("audit")).verdict is Verdict.PASS


DIVERTED = (*WRITTEN, Event("bad record", 0), Event("produce", 0, 2), Event("copy", 0))
HELD_UP = (Event("letters are held up"), *DIVERTED)


@pytest.mark.parametrize("ends", [0, 1], ids=["committed", "aborted"])
@pytest.mark.parametrize("kind", KINDS)
def test_dead_letter_behind_an_open_transaction_is_no_loss(kind: str, ends: int) -> None:
    """No reader of committed records sees it until somebody else's transaction is over; then it is one."""
    for since in (WATERMARK, START):
        answer = told(kind, *HELD_UP, since=since)
        assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"OPEN_TRANSACTION"})
        later = (Event("audit"), Event("letters are held up", 0, 1, ends))
        answer = told(kind, *HELD_UP, *later, since=since)
        assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"DEAD_LETTER"})


@pytest.mark.parametrize("kind", KINDS)
def test_dead_letters_that_nobody_leads_are_an_answer(kind: str) -> None:
    """Whatever is missing may be one of them: it is named, and no watermark goes past it."""
    world = live(kind, DIVERTED, audits=())
    world.target.all_topics[LETTERS].leaders[0] = -1
    answer = audit(world)
    check(world, answer)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"NO_LEADER"})
    world.target.all_topics[LETTERS].leaders.clear()
    answer = audit(world)
    check(world, answer)
    assert reasons(answer) == {"DEAD_LETTER"}


def test_broker_that_holds_the_dead_letters_and_does_not_answer_is_away_alone() -> None:
    """The others have told all about the copies."""
    world = live("record", DIVERTED, audits=())
    world.target.away[TopicPartition(LETTERS, 0)] = Retriable("broker 7 does not answer")
    answer = audit(world)
    check(world, answer)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"NO_LEADER"})


@pytest.mark.parametrize("older_release", [False, True], ids=["by id", "by time"])
@pytest.mark.parametrize("kind", ["record", "at-least-once"])
def test_dead_letters_of_a_source_topic_that_was_deleted_excuse_nothing(
    kind: str, *, older_release: bool
) -> None:
    """Another topic of the name has another record at that offset; its own dead letters count."""
    world = World(KINDS[kind])
    world.older_release = older_release
    world.produce(0, 4, 0)
    world.bad(0)
    world.copy(0, 9)
    answer = audit(world, START)
    assert [(str(e.reason), e.offset_from) for e in answer.result.unverifiable] == [("DEAD_LETTER", 4)]
    world.copy_anew()
    world.produce(0, 7, 0)
    world.bad(0)
    world.copy(0, 9)
    for home in world.truth.homes[0, 4]:
        world.change(home, None)
    answer = audit(world, START)
    assert {(str(e.kind), e.source_offset) for e in answer.result.findings} == {("LOST", 4)}
    assert [(str(e.reason), e.offset_from) for e in answer.result.unverifiable] == [("DEAD_LETTER", 7)]


@pytest.mark.parametrize("target", [True, False], ids=["into another topic", "into the same"])
@pytest.mark.parametrize("older_release", [False, True], ids=["by id", "by time"])
@pytest.mark.parametrize("kind", ["record", "at-least-once"])
def test_dead_letters_of_an_earlier_copy_of_the_topic_excuse_nothing(
    kind: str, *, older_release: bool, target: bool
) -> None:
    """What had refused the record was mended, and the topic copied again: it was copied then."""
    world = World(KINDS[kind])
    world.older_release = older_release
    world.bad(0)
    world.copy(0, 9)
    assert reasons(audit(world, START)) == {"DEAD_LETTER"}
    world.copy_anew(source=False, target=target)
    world.refuses = False
    world.produce(0, 3, 0)
    world.copy(0, 9)
    assert audit(world, START).verdict is Verdict.PASS
    world.change(world.truth.homes[0, 0][0], None)
    answer = audit(world, START)
    assert [(str(e.kind), e.source_offset) for e in answer.result.findings] == [("LOST", 0)]


def test_dead_letters_of_an_earlier_copy_that_began_before_this_one_excuse_nothing() -> None:
    """The map still tells of what the source has deleted since."""
    world = World(KINDS["record"])
    world.produce(0, 1, 0)
    world.copy(0, 9)
    world.bad(0)
    world.copy(0, 9)
    world.expire(0, 1, target=False)
    world.copy_anew(source=False, target=False)
    world.refuses = False
    world.copy(0, 9)
    world.change(world.truth.homes[0, 1][0], None)
    answer = audit(world, START)
    assert [(str(e.kind), e.source_offset) for e in answer.result.findings] == [("LOST", 1)]


def test_dead_letters_of_a_copy_whose_beginning_the_map_has_forgotten_are_what_they_are() -> None:
    """Nobody knows when it was."""
    world = World(KINDS["record"])
    world.bad(0)
    world.copy(0, 9)
    world.copy_anew(source=False, target=False)
    world.copy(0, 9)
    world.now_ms = count(next(world.now_ms) + 3_600_000)
    world.produce(0, 3, 0)
    world.copy(0, 9)
    world.forget(2)
    answer = audit(world, START)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"DEAD_LETTER"})


@pytest.mark.parametrize("since", [{0: 1}, {}], ids=["from another topic", "from the same"])
def test_dead_letters_of_a_partition_whose_neighbour_was_copied_again_are_what_they_are(
    since: dict[int, int],
) -> None:
    """The enrolment's time is the neighbour's then; this partition has had one topic all along."""
    world = World(KINDS["record"])
    world.older_release = True
    world.produce(1, 4, 0)
    world.bad(1)
    world.copy(1, 9)
    later_ms = next(world.now_ms) + 3_600_000
    world.enrolment = replace(world.enrolment, since=since, changed={0: "approval"}, at_ms=later_ms)
    answer = audit(world, START)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"DEAD_LETTER"})


RENAMED = (*DIVERTED, Event("letters are renamed"))


@pytest.mark.parametrize("kind", KINDS)
def test_dead_letters_in_a_topic_of_before_are_what_they_are(kind: str) -> None:
    """The flow file names another topic since: what was diverted stays where it is."""
    more = (Event("bad record", 0), Event("produce", 0, 2), Event("copy", 0))
    for story in (RENAMED, (*RENAMED, *more), (*RENAMED, *more, Event("letters are renamed"))):
        answer = told(kind, *story, since=START)
        assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"DEAD_LETTER"})


@pytest.mark.parametrize("kind", KINDS)
def test_dead_letters_in_a_topic_that_is_gone_are_no_loss(kind: str) -> None:
    """Nor is it known that they were any: it is named, and no watermark goes past it."""
    story = (*RENAMED, Event("letters are removed"))
    for more in ((), (Event("audit"),), (Event("produce", 0, 2), Event("copy", 0))):
        answer = told(kind, *story, *more)
        assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"DELETED"})


@pytest.mark.parametrize("kind", ["record", "handler", "at-least-once"])
def test_dead_letters_in_a_topic_that_may_not_be_read_are_no_loss(kind: str) -> None:
    """No audit ends by it, and what was copied since cannot be among them."""
    more = (Event("produce", 0, 4), Event("copy and lose", 0, 4))
    for story, findings in ((RENAMED, []), ((*RENAMED, *more), ["LOST"])):
        world = live(kind, story, audits=())
        world.target.unanswered[LETTERS] = UsageError("west refuses metadata")
        answer = audit(world)
        check(world, answer)
        assert [str(each.kind) for each in answer.result.findings] == findings
        assert reasons(answer) == {"UNREADABLE"}


@pytest.mark.parametrize("kind", ["record", "handler", "at-least-once"])
def test_what_was_lost_since_another_dead_letter_topic_is_used_is_lost(kind: str) -> None:
    """It cannot have been diverted to one that is gone."""
    story = (*RENAMED, Event("letters are removed"), Event("produce", 0, 4))
    answer = told(kind, *story, Event("copy and lose", 0, 4))
    assert [str(each.kind) for each in answer.result.findings] == ["LOST"]
    assert reasons(answer) == {"DELETED"}


@pytest.mark.parametrize("kind", ["record", "handler", "at-least-once"])
def test_record_that_no_dead_letter_names_is_lost_whatever_is_open_on_their_topic(kind: str) -> None:
    """What waits behind the transaction is known by name."""
    answer = told(kind, *HELD_UP, Event("produce", 0, 4), Event("copy and lose", 0, 4))
    assert answer.verdict is Verdict.FAIL
    assert [str(each.kind) for each in answer.result.findings] == ["LOST"]
    assert reasons(answer) == {"OPEN_TRANSACTION"}


def test_loss_of_what_was_proven_is_told_while_nobody_leads_the_dead_letters() -> None:
    """It was right once: that excuses nothing that is missing now."""
    world = live("record", (*WRITTEN, Event("audit")), audits=())
    world.change((0, 0), None)
    world.truth.lost.add((0, 0))
    world.target.all_topics[LETTERS].leaders[0] = -1
    answer = audit(world, START)
    assert not answer.result.findings and reasons(answer) == {"NO_LEADER"}
    world.target.all_topics[LETTERS].leaders.clear()
    assert [str(each.kind) for each in audit(world, START).result.findings] == ["LOST"]


def test_map_that_has_forgotten_a_skip_is_no_loss() -> None:
    """Nor is it known that it was one."""
    story = (Event("produce", 0, 2), Event("skip"), Event("copy", 0), Event("map expires"))
    answer = told("record", *story)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"NOT_IN_MAP"})


@pytest.mark.parametrize("kind", ["record", "prefix"])
def test_what_the_map_has_forgotten_behind_an_open_transaction_is_hidden_too(kind: str) -> None:
    """The target shows nothing, and the map begins with the second record: the first one is not lost."""
    story = (
        *(Event("produce"), Event("produce"), Event("foreign transaction")),
        *(Event("copy and repeat"), Event("copy"), Event("map expires")),
    )
    answer = told(kind, *story)
    assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"OPEN_TRANSACTION"})


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("kind", ["record", "prefix", "at-least-once"])
def test_what_is_lost_beside_a_partition_that_nobody_leads_is_found(kind: str, side: str) -> None:
    """A broker that is away takes the answer from its own partitions only."""
    story = (Event("produce", 0, 4), Event("produce", 1, 4), Event("copy", 0), Event("copy and lose", 1, 4))
    world = live(kind, story, audits=())
    topic = (
        world.target.all_topics[world.kind.target] if side == "target" else world.source.all_topics[SOURCE]
    )
    topic.leaders[0] = -1
    answer = audit(world, START)
    check(world, answer)
    assert answer.verdict is Verdict.FAIL
    assert {each.source.partition for each in answer.result.findings if each.source is not None} == {1}
    assert ("NO_LEADER", 0) in {(str(e.reason), e.source.partition) for e in answer.result.unverifiable}


@pytest.mark.parametrize("partition", [0, 2], ids=["that a source partition has, too", "beyond the source's"])
def test_what_a_handler_may_have_put_where_nobody_leads_is_not_called_lost(partition: int) -> None:
    """Its records are in any partition of the target: none of the source's can be compared then."""
    story = (Event("produce", 0, 4), Event("produce", 1, 4), Event("copy", 0), Event("copy", 1))
    world = live("handler", story, audits=())
    world.target.all_topics[world.kind.target].leaders[partition] = -1
    answer = audit(world, START)
    check(world, answer)
    assert answer.verdict is Verdict.UNVERIFIABLE
    assert {e.source.partition for e in answer.result.unverifiable} >= {0, 1}


def test_every_event_can_happen_in_every_world() -> None:
    """None of them is a story that cannot be told."""
    for kind in KINDS:
        for name in EVENTS:
            live(kind, [*WRITTEN, Event(name, 0, 2, 1)])
    assert isinstance(World(KINDS["record"]).state().others, dict)


@pytest.mark.parametrize("kind", ["record", "at-least-once"])
def test_a_record_that_belongs_elsewhere_makes_no_proof_younger(kind: str) -> None:
    """It is a finding of the partition that misses it, and lies in another one that was proven before."""
    live(kind, (Event("produce"), Event("copy and misroute")))


def test_what_was_proven_counts_wherever_a_handler_has_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in the target partition of the source's number, which ends before where all of it is."""
    monkeypatch.setattr(auditworld, "spread", lambda record: [record.replace(partition=2)])
    story = (*WRITTEN, Event("audit"), Event("source expires", 0, 2))
    answer = told("handler", *story)
    assert (answer.verdict, answer.result.partitions[0].source_from) == (Verdict.PASS, 4)


def test_a_position_behind_a_dead_letter_is_right_where_the_map_tells_of_that_alone() -> None:
    """What it told of the copied records before has expired."""
    letter = Event("bad record")
    answer = told("prefix", Event("produce"), Event("copy"), letter, Event("map expires"), Event("copy"))
    assert answer.verdict is Verdict.UNVERIFIABLE and reasons(answer) == {"DEAD_LETTER"}


# ---- put elsewhere by an operator after an audit: what is proven then, and what of it is looked at again

TWICE = (Event("produce", 0, 4), Event("copy", 0), Event("produce", 0, 4), Event("copy", 0), Event("audit"))


def put(kind: str, offset: int, *before: Event) -> World:
    """Return a world that was audited, then something happened, and the flow was put somewhere else."""
    world = live(kind, (*TWICE, *before), audits=())
    world.put(0, offset)
    return world


@pytest.mark.parametrize("kind", ["record", "prefix", "compacted"])
def test_what_is_copied_again_where_it_was_lost_is_looked_at(kind: str) -> None:
    """What was proven was the copy that is gone: FAIL where the new one is wrong, PASS where it is not."""
    lost = Event("target loses its end", 0, 2)
    world = put(kind, 4, lost)
    world.copy(0, 9, "alter")
    answer = audit(world)
    check(world, answer)
    assert answer.verdict is Verdict.FAIL
    # In smaller transactions it reaches further than the one that was proven.
    world = put(kind, 4, lost)
    for records in (1, 1, 9):
        world.copy(0, records)
    for _ in range(2):
        answer = audit(world)
        check(world, answer)
        assert answer.verdict is Verdict.PASS
    assert answer.result.partitions[0].source_from == 8


@pytest.mark.parametrize("offset", [4, 8], ids=["copied", "passed over"])
@pytest.mark.parametrize("kind", ["record", "prefix", "compacted"])
def test_what_the_source_holds_instead_of_what_was_proven_is_looked_at(kind: str, offset: int) -> None:
    """Its log has lost what was copied, and others stand there: what was proven was of those it lost."""
    more = Event("produce", 0, 4)
    world = put(kind, offset, Event("source loses its end", 0, 1), more, more)
    world.copy(0, 9)
    answer = audit(world)
    check(world, answer)
    assert answer.verdict is Verdict.FAIL
    assert {each.target_offset for each in answer.result.findings} == {5, 6, 7, 8}


@pytest.mark.parametrize("kind", ["record", "prefix", "compacted"])
def test_what_is_copied_again_is_no_repeat_where_the_target_holds_it_no_more(kind: str) -> None:
    """Somebody has deleted the records of the copy, and had them copied again into the same topic."""
    world = put(kind, 0, Event("target expires", 0, 99))
    world.copy(0, 9)
    answer = audit(world)
    check(world, answer)
    assert answer.verdict is Verdict.PASS


@pytest.mark.parametrize("ahead", [False, True], ids=["back", "back and ahead again"])
@pytest.mark.parametrize("kind", ["record", "prefix", "compacted"])
def test_what_was_passed_over_and_is_copied_after_all_is_no_repeat(kind: str, *, ahead: bool) -> None:
    """An audit has told of what an operator had skipped, and went on behind it."""
    world = live(kind, (*WRITTEN, Event("produce", 0, 4), Event("skip", 0, 4), Event("audit")), audits=())
    world.put(0, 4)
    world.copy(0, 9)
    world.truth.skipped.clear()
    if ahead:
        world.produce(0, 2, 0)
        world.put(0, 10)
    answer = audit(world)
    assert (answer.verdict is Verdict.PASS, reasons(answer)) == (not ahead, {"SKIPPED"} if ahead else set())


@pytest.mark.parametrize("kind", ["record", "prefix", "compacted"])
def test_what_is_there_twice_since_it_was_proven_is_named(kind: str) -> None:
    """The records that were copied again, and no others."""
    world = put(kind, 4)
    world.copy(0, 9)
    answer = audit(world)
    check(world, answer)
    assert [(str(e.kind), e.source_offset) for e in answer.result.findings] == [
        ("REPEATED", offset) for offset in range(4, 8)
    ]


@pytest.mark.parametrize("kind", ["record", "prefix", "compacted"])
def test_nothing_is_nobodys_before_the_flow_has_got_to_where_it_was(kind: str) -> None:
    """An audit between the operator's command and the flow's next start, or amid what it copies again."""
    world = put(kind, 4)
    for _ in range(3):
        answer = audit(world)
        keep(world, answer)
        assert (answer.verdict, reasons(answer)) == (Verdict.UNVERIFIABLE, {"NOT_COPIED_YET"})
        world.copy(0, 1)
    world.copy(0, 9)
    answer = audit(world)
    check(world, answer)
    assert {(str(e.kind), e.source_offset) for e in answer.result.findings} == {
        ("REPEATED", offset) for offset in range(4, 8)
    }


def test_what_was_proven_counts_where_an_operator_has_gone_ahead_of_it() -> None:
    """A compacted topic that was cleaned since: nobody could prove it again."""
    story = (
        *TWICE,
        Event("target is cleaned"),
        Event("produce", 0, 4),
        Event("skip", 0, 1),
        Event("copy", 0),
    )
    answer = told("compacted", *story)
    assert (answer.result.partitions[0].source_from, reasons(answer)) == (8, {"SKIPPED"})


@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "grown again"])
@pytest.mark.parametrize("kind", ["handler", "handler-compacted"])
def test_what_a_handler_had_put_where_the_target_lost_its_end_is_looked_at(kind: str, *, grown: bool) -> None:
    """It is of a source partition of another number, whose own target partition holds everything still."""
    copied = [Event(name, partition, 4) for partition in (0, 1) for name in ("produce", "copy")]
    world = live(kind, (*copied, Event("audit"), Event("target loses its end", 0)), audits=())
    if grown:
        world.stops.clear()
        world.produce(1, 4, 0)
        world.copy(1, 8)
    # Also when one partition was found right again.
    for _ in range(2):
        answer = audit(world)
        check(world, answer)
        assert {each.source for each in answer.result.findings} == {TopicPartition(SOURCE, 1)}


@pytest.mark.parametrize("since", [WATERMARK, START])
@pytest.mark.parametrize("kind", ["handler", "handler-compacted"])
def test_what_a_handler_made_of_records_that_the_source_has_lost_is_nobodys(kind: str, since: str) -> None:
    """The map claims it for source offsets at which there is nothing any more."""
    story = (*WRITTEN, Event("audit"), Event("source loses its end", 0))
    assert told(kind, *story, since=since).verdict is Verdict.FAIL
