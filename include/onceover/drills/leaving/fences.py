"""How writers are kept off the source's topics, and let in again.

Invariant: what is made for a fence is written into the journal before it is made, so that whoever comes after
a process that was killed knows what to take away; and what was there before is never taken away.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from onceover.acls.cover import AclsByTopic
from onceover.backoff import Backoff, Deadline
from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.codes import DrillCode
from onceover.drills.modes import PLANNED, UNPLANNED
from onceover.errors import Fenced, NeedsOperator, NotNow, Retriable, UsageError
from onceover.kafka.admin.acls import ALLOW, DENY, LITERAL, Acl, AclAdmin
from onceover.kafka.codes import KafkaCode
from onceover.process.children import ChildProcess
from onceover.state.records.enrolment import Enrolment

log = logging.getLogger(__name__)

# Of a name of 249 characters each: they stay within one record of 1 MiB.
_PER_ENTRY: Final = 1000
_EVERY_HOST: Final = "*"
_WRITE: Final = "WRITE"
# What of our environment a user's command gets: what finds programs, and nothing that may be secret.
_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
_LOOK_S: Final = 0.2
_LISTED: Final = "topics.txt"
# More than a program prints that lets writers in; one that cannot print may fail.
_ROOM_BYTES: Final = 64 << 10
# A folder of our own is made there, which nobody else may read.
_MEMORY: Final = Path("/dev/shm")  # noqa: S108
_GIVE_UP_S: Final = 60.0
# Of those who press Ctrl-C again while a program is ended.
_INTERRUPTS: Final = 5
ACLS: Final = "acls"
COMMAND: Final = "command"
PERSON: Final = "person"
EVERYBODY: Final = "User:*"
_OTHERWISE: Final = "use switchover.fence: command or person"
# What else helps where ACLs do not work, by the code of the error.
_FIRST: Final[Mapping[str, str]] = {
    KafkaCode.NO_AUTHORIZER: "have its brokers run with one, or ",
    KafkaCode.NOT_AUTHORIZED: "grant the flow's principal that right, as docs/operations.md lists it, or ",
}


class DrillNotes(Protocol):
    """What a fence needs of the journal, for one drill."""

    def read(self) -> Sequence[JournalEntry]:
        """Return all entries."""

    def write(self, what: str, said: Mapping[str, Any]) -> None:
        """Write the next entry of the drill."""

    def check(self) -> None:
        """Return where it is still this drill that runs."""

    def holds(self) -> bool:
        """Tell, without asking, whether nobody can have taken this drill over yet."""


Mark = tuple[str, str]
# Of how many topics a person has to start the producers: nothing here can.
START_AGAIN: Final = "start_again"


class Fence(Protocol):
    """Keeps writers off topics of the source."""

    @property
    def kind(self) -> str:
        """By which the journal tells it from others."""

    @property
    def how(self) -> str:
        """What it does, as a plan says it."""

    def check(self, topics: Collection[str]) -> None:
        """Return where it can be made here; changes nothing.

        Raises:
            UsageError, NeedsOperator: it cannot.
        """

    def make(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Make it; return the evidence."""

    def lift(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Take away what was made of this kind for these topics, and nothing else."""

    def gone(self, marks: Collection[Mark]) -> list[str]:
        """Return the topics that writers are not kept off any more, as far as that shows.

        Args:
            marks: what stands by the journal, beside what this object has seen stand.
        """

    def give_up(self, marks: Collection[Mark]) -> str:
        """Take away what this object has made, though nobody can be told; return what was done.

        Args:
            marks: what others of this kind have made before, which the journal has told.
        """


@contextmanager
def _for_a_fence() -> Iterator[None]:
    """Tell what keeps ACLs from being read or changed to who wanted a fence by them, and syncs none."""
    try:
        yield
    except (UsageError, NeedsOperator) as error:
        raise type(error)(
            f"writers cannot be kept off: {error.message}",
            code=error.code,
            where=error.where,
            expected=error.expected,
            seen=error.seen,
            resolve=f"{_FIRST.get(error.code, '')}{_OTHERWISE}",
        ) from error


def denials(marks: Iterable[Mark]) -> frozenset[Acl]:
    """Return the ACLs that keep these principals from writing to these topics. Pure."""
    return frozenset(Acl(LITERAL, topic, principal, _EVERY_HOST, _WRITE, DENY) for topic, principal in marks)


@dataclass
class AclFence:
    """DENY WRITE on each topic, for all principals or for some.

    Super users are kept off by no ACL: whoever is one shows in the ends of the logs.

    Args:
        acls: of the source.
        principals: whom it keeps off, such as ``User:*``.
        is_open: tells whether a topic without ACLs is everybody's there, given all ACLs.
    """

    acls: AclAdmin
    principals: Sequence[str]
    is_open: Callable[[frozenset[Acl]], bool]
    kind: str = ACLS
    _made: frozenset[Acl] = frozenset()
    _seen: frozenset[Acl] = frozenset()

    @property
    def how(self) -> str:
        """What it does, as a plan says it."""
        return f"DENY WRITE for {', '.join(self.principals)}"

    def check(self, topics: Collection[str]) -> None:
        """Return where the cluster has an authorizer that may be asked, and a DENY keeps off writers alone.

        Raises:
            UsageError: SOURCE_OPEN, a topic without ACLs is everybody's, and would be nobody's with one; the
                cluster has no authorizer; or ACLs may not be changed. Who finds that out by making it has
                written down that it stands, and may not lift it either.
            NeedsOperator: one of its ACLs is of a kind that this release does not know.
        """
        with _for_a_fence():
            standing = self.acls.topic_acls()
        allowed = AclsByTopic(acl for acl in standing if acl.permission == ALLOW)
        bare = [topic for topic in topics if not allowed.of(topic)]
        if bare and self.is_open(standing):
            raise UsageError(
                f"{len(bare)} topics have no ALLOW, and are everybody's: a DENY would shut their readers out",
                code=DrillCode.SOURCE_OPEN,
                where=", ".join(sorted(bare)[:3]),
                expected="an ALLOW for whoever reads them, or brokers without allow.everyone.if.no.acl.found",
                resolve=f"grant their readers READ first, or {_OTHERWISE}",
            )
        with _for_a_fence():
            self.acls.check_may_change()

    def make(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Create what is missing; return once the brokers show it. What a killed drill has made is ours."""
        wanted = denials((topic, principal) for topic in topics for principal in self.principals)
        inherited = denials(_standing(notes, self.kind, topics))
        missing = wanted - self.acls.topic_acls()
        _note(notes, chains.FENCED, self.kind, {(acl.name, acl.principal) for acl in missing})
        notes.check()
        self._made = missing | inherited
        self.acls.create(missing)
        try:
            notes.check()
        except Fenced:
            # Whoever has taken the drill over has lifted what it knew of, or goes on with it: that is theirs.
            self.acls.delete(missing - denials(_standing(notes, self.kind, topics)))
            raise
        self._await(lambda: wanted <= self.acls.topic_acls(), deadline)
        self._seen = wanted
        there = wanted - missing
        return {
            "acls": len(missing),
            "inherited": len(there & inherited),
            "there_before": len(there - inherited),
        }

    def lift(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Delete what the flow's drills have created for these topics."""
        marks = _standing(notes, self.kind, topics)
        acls = denials(marks)
        notes.check()
        self.acls.delete(acls)
        self._await(lambda: not acls & self.acls.topic_acls(), deadline)
        _note(notes, chains.UNFENCED, self.kind, marks)
        return {"acls": len(acls)}

    def gone(self, marks: Collection[Mark]) -> list[str]:
        """Return the topics of which a DENY is not there."""
        return sorted({acl.name for acl in (self._seen | denials(marks)) - self.acls.topic_acls()})

    def give_up(self, marks: Collection[Mark]) -> str:
        """Delete what this object has created, and what has been before."""
        ours = self._made | denials(marks)
        self.acls.delete(ours)
        return f"{len(ours)} ACLs are deleted"

    @staticmethod
    def _await(is_shown: Callable[[], bool], deadline: Deadline) -> None:
        backoff = Backoff(cap_s=_LOOK_S)
        while not is_shown():
            backoff.pause(deadline, NotNow("the source's brokers do not show the ACLs yet"))


@dataclass(frozen=True)
class UserCommand:
    """A user's own program, told by its last argument what is to be done: fence, unfence or redirect.

    It gets ``ONCEOVER_FLOW``, ``ONCEOVER_DRILL``, ``ONCEOVER_SOURCE``, ``ONCEOVER_TARGET`` (the clusters'
    aliases) and ``ONCEOVER_TOPICS``, the path of a file with a source topic a line. What it prints goes into
    a file beside the report, and nowhere else.

    Args:
        argv: of the program.
        facts: the variables that are the same for all of its runs.
        folder: where its file of topics and what it prints are kept, by drill.
        cwd: where it is started.
    """

    argv: Sequence[str]
    facts: Mapping[str, str]
    folder: Callable[[], Path]
    cwd: Path

    def run(self, word: str, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Run it to its end.

        Raises:
            NeedsOperator: COMMAND_FAILED, it cannot be run, or does not end with 0 in time.
        """
        folder = self.folder()
        listed = _listed(folder, topics)
        printed = listed.parent / f"{word}.log"
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        env = {**kept, **self.facts, "ONCEOVER_TOPICS": str(listed)}
        try:
            # What it has begun to do may not be done behind whoever takes it back once we were killed.
            child = ChildProcess.start(
                [*self.argv, word],
                name=f"switchover {word}",
                log_path=printed,
                env=env,
                cwd=self.cwd,
                with_family=True,
            )
        except OSError as error:
            raise self._failed(word, printed, f"{error.strerror}") from error
        try:
            code = child.wait(max(1.0, deadline.left_s))
        except Retriable as error:
            raise self._failed(word, printed, "it has not ended in time, and was killed") from error
        finally:
            _end(child)
        if code != 0:
            raise self._failed(word, printed, f"exit code {code}")
        if listed.parent != folder:
            shutil.rmtree(listed.parent, ignore_errors=True)
        return {"exit_code": code}

    def _failed(self, word: str, printed: Path, seen: str) -> NeedsOperator:
        return NeedsOperator(
            f"the switchover's command did not {word}",
            code=DrillCode.COMMAND_FAILED,
            where=f"{self.argv[0]} {word}",
            expected="exit code 0",
            seen=seen,
            resolve=f"what it has printed is in {printed}",
        )


def _end(child: ChildProcess) -> None:
    """Kill a program, also where we are interrupted once more: it would go on beside what takes it back."""
    interrupted: KeyboardInterrupt | None = None
    for _ in range(_INTERRUPTS):
        try:
            child.kill()
            break
        except KeyboardInterrupt as error:
            interrupted = interrupted or error
    if interrupted is not None:
        raise interrupted


def _listed(folder: Path, topics: Collection[str]) -> Path:
    """Return the file of topics, beside which the program prints: in memory where the disk is full, as
    writers wait for the program.

    Raises:
        OSError: it cannot be written there either.
    """
    text = "".join(f"{topic}\n" for topic in sorted(topics))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A file that is there already takes its old text's room on a full disk, and nothing else does.
        with tempfile.TemporaryFile(dir=folder) as room:
            room.write(bytes(_ROOM_BYTES))
        return _with_text(folder / _LISTED, text)
    except OSError as error:
        memory = _MEMORY if _MEMORY.is_dir() else None
        there = Path(tempfile.mkdtemp(prefix="onceover-switchover-", dir=memory))
        log.warning("%s takes nothing (%s): the program's files are in %s", folder, error.strerror, there)
        return _with_text(there / _LISTED, text)


def _with_text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@dataclass(frozen=True)
class CommandFence:
    """A user's command fences and unfences; what it does twice has to be as what it does once."""

    command: UserCommand
    kind: str = COMMAND
    _made: list[str] = field(default_factory=list)

    @property
    def how(self) -> str:
        """What it does, as a plan says it."""
        return f"{self.command.argv[0]} fence"

    def check(self, topics: Collection[str]) -> None:
        """Return: whether it works shows when it is run."""

    def make(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Run it."""
        _note(notes, chains.FENCED, self.kind, _missing(notes, self.kind, topics))
        notes.check()
        self._made[:] = topics
        evidence = self.command.run("fence", topics, deadline)
        try:
            notes.check()
        except Fenced:
            if left := set(topics) - {topic for topic, _ in _standing(notes, self.kind, topics)}:
                self.command.run("unfence", sorted(left), Deadline(_GIVE_UP_S))
            raise
        return evidence

    def lift(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Run it for those that it was run for."""
        marks = _standing(notes, self.kind, topics)
        notes.check()
        evidence = self.command.run("unfence", [topic for topic, _ in marks], deadline) if marks else {}
        _note(notes, chains.UNFENCED, self.kind, marks)
        return evidence

    def gone(self, marks: Collection[Mark]) -> list[str]:
        """Return none: what it has done shows in the logs alone."""
        return []

    def give_up(self, marks: Collection[Mark]) -> str:
        """Run it for what this object has had fenced, and what has been before."""
        topics = {*self._made, *(topic for topic, _ in marks)}
        if not topics:
            return "nothing was fenced"
        self.command.run("unfence", sorted(topics), Deadline(_GIVE_UP_S))
        return f"{self.command.argv[0]} unfence was run"


@dataclass(frozen=True)
class PersonFence:
    """A person stops the producers, and says so."""

    confirmed: Callable[[str, Deadline], Mapping[str, Any]]
    kind: str = PERSON

    @property
    def how(self) -> str:
        """What it does, as a plan says it."""
        return "a person stops the producers, and confirms it"

    def check(self, topics: Collection[str]) -> None:
        """Return: nothing is needed."""

    def make(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Wait for the confirmation."""
        _note(notes, chains.FENCED, self.kind, _missing(notes, self.kind, topics))
        return self.confirmed("fence", deadline)

    def lift(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Note that the producers may be started again; who has stopped them does it."""
        marks = _standing(notes, self.kind, topics)
        _note(notes, chains.UNFENCED, self.kind, marks)
        return {START_AGAIN: len(marks)}

    def gone(self, marks: Collection[Mark]) -> list[str]:
        """Return none: who writes shows in the logs alone."""
        return []

    def give_up(self, marks: Collection[Mark]) -> str:
        """Say whose turn it is."""
        return "whoever has stopped the producers may start them again"


def unknown_fence(kind: str, topics: Sequence[str]) -> NeedsOperator:
    """Return why writers of these topics cannot be let in: their flow's file says no more how. Pure."""
    return NeedsOperator(
        f"{len(topics)} topics are fenced by {kind}, which the file of their flow does not know any more",
        code=DrillCode.SWITCHOVER_UNSET,
        where=", ".join(topics[:3]),
        resolve=f"name `switchover.{kind}` there again, which lets their writers in, then run this again; "
        "where they write already, one that does nothing, `[/bin/true]`, has it written down",
    )


@dataclass(frozen=True)
class LiftedFences:
    """Lifts what the journal says is fenced, as it was made, whatever the flow file says now.

    Args:
        makers: makes a fence of each kind.
    """

    makers: Mapping[str, Callable[[], Fence]]

    def lift(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> dict[str, Any]:
        """Let writers of these topics in again, and nobody else's.

        Raises:
            NeedsOperator: one was made in a way that is not known here any more.
        """
        evidence: dict[str, Any] = {}
        for kind, named in chains.fenced_kinds(notes.read(), topics).items():
            if kind not in self.makers:
                raise unknown_fence(kind, named)
            evidence |= self.makers[kind]().lift(notes, named, deadline)
        return evidence

    def give_up(self, made: Fence, inherited: Mapping[str, Collection[Mark]]) -> str:
        """Let in again whom ``made`` keeps off, though nobody can be told; return what was done.

        Args:
            inherited: what was made before, by kind, which the journal has told while it could be read.
        """
        told = []
        for kind in sorted({made.kind, *inherited}):
            marks = inherited.get(kind, ())
            if kind == made.kind:
                told.append(made.give_up(marks))
            elif kind in self.makers:
                told.append(self.makers[kind]().give_up(marks))
            else:
                topics = ", ".join(sorted({topic for topic, _ in marks})[:3])
                told.append(f"{topics} is fenced by {kind}, which this flow file does not know")
        return "; ".join(told)


def check_not_carried_over(mode: str, kind: str, denied: Collection[str], *, sync_acls: bool) -> None:
    """Refuse a fence that the flow would copy.

    Args:
        kind: of the fence; ``denied`` the principals that one of ACLs keeps off.
        sync_acls: the flow carries ACLs over. It leaves a DENY of everybody where it is.

    Raises:
        UsageError: SWITCHOVER_UNSET.
    """
    if mode == PLANNED and kind == ACLS and sync_acls and EVERYBODY not in denied:
        raise UsageError(
            "the flow would carry the DENYs over to the copies, and keep clients off the target",
            code=DrillCode.SWITCHOVER_UNSET,
            where="switchover.deny",
            expected="User:* there, or topics.sync_acls: false",
            resolve="change one of both, or use switchover.fence: command",
        )


def shut(chain: Iterable[JournalEntry]) -> set[str]:
    """Return the topics that everybody is kept off by ACLs, the flow that leads back among them. Pure."""
    return {topic for topic, principal in chains.fenced(chain).get(ACLS, ()) if principal == EVERYBODY}


def left_behind(
    chain: Sequence[JournalEntry], enrolled: Collection[Enrolment], *, leads_back: bool
) -> set[str]:
    """Return the source topics whose writers are kept off, and should not be while no drill runs. Pure.

    Until its topics come back the fence of a planned switchover stands, but where it would keep off the flow
    that leads them back. An unplanned one has none: what stands is what one before it has left.

    Args:
        enrolled: the flow's topics; ``leads_back`` whether it names a flow that leads them back.
    """
    unplanned = {e.drill for e in chain if e.what == chains.BEGUN and e.said.get("mode") == UNPLANNED}
    promoted = {e.source: e.promoted.drill for e in enrolled if e.promoted is not None and e.is_promoted}
    wanted = {topic for topic, drill in promoted.items() if drill not in unplanned}
    return chains.fenced_topics(chain) - (wanted - shut(chain) if leads_back else wanted)


def _standing(notes: DrillNotes, kind: str, topics: Collection[str]) -> set[Mark]:
    """Return what of these topics is fenced in this way."""
    return {mark for mark in chains.fenced(notes.read()).get(kind, ()) if mark[0] in topics}


def _missing(notes: DrillNotes, kind: str, topics: Collection[str]) -> set[Mark]:
    """Return what of these topics is not fenced in this way yet."""
    return {(topic, "") for topic in topics} - _standing(notes, kind, topics)


def _note(notes: DrillNotes, what: str, kind: str, marks: Collection[Mark]) -> None:
    ordered = sorted(marks)
    for at in range(0, len(ordered), _PER_ENTRY):
        some = [list(mark) for mark in ordered[at : at + _PER_ENTRY]]
        notes.write(what, {"kind": kind, "marks": some})
