"""How writers are kept off the source's topics, and let in again.

Invariant: what is made for a fence is written into the journal before it is made, so that whoever comes after
a process that was killed knows what to take away; and what was there before is never taken away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from onceover.backoff import Backoff, Deadline
from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.codes import DrillCode
from onceover.errors import NeedsOperator, NotNow, Retriable
from onceover.kafka.admin.acls import DENY, LITERAL, Acl, AclAdmin
from onceover.process.children import ChildProcess

# Of a name of 249 characters each: they stay within one record of 1 MiB.
_PER_ENTRY: Final = 1000
_EVERY_HOST: Final = "*"
_WRITE: Final = "WRITE"
# What of our environment a user's command gets: what finds programs, and nothing that may be secret.
_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
_LOOK_S: Final = 0.2


class DrillNotes(Protocol):
    """What a fence needs of the journal, for one drill."""

    def read(self) -> Sequence[JournalEntry]:
        """Return all entries."""

    def write(self, what: str, said: Mapping[str, Any]) -> None:
        """Write the next entry of the drill."""

    def check(self) -> None:
        """Return where it is still this drill that runs."""


class Fence(Protocol):
    """Keeps writers off topics of the source."""

    @property
    def how(self) -> str:
        """What it does, as a plan says it."""

    def check(self) -> None:
        """Return where it can be made here; changes nothing.

        Raises:
            UsageError, NeedsOperator: it cannot.
        """

    def make(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Make it; return the evidence."""

    def lift(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Take away what it has made of it for these topics, and nothing else."""


@dataclass(frozen=True)
class AclFence:
    """DENY WRITE on each topic, for all principals or for some.

    Super users are kept off by no ACL: whoever is one shows in the ends of the logs.

    Args:
        acls: of the source.
        principals: whom it keeps off, such as ``User:*``.
    """

    acls: AclAdmin
    principals: Sequence[str]

    @property
    def how(self) -> str:
        """What it does, as a plan says it."""
        return f"DENY WRITE for {', '.join(self.principals)}"

    def check(self) -> None:
        """Return where the cluster has an authorizer that may be asked."""
        self.acls.topic_acls()

    def make(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Create what is missing; return once the brokers show it."""
        wanted = self._acls(topics)
        missing = wanted - self.acls.topic_acls()
        for some in _portions(sorted({acl.name for acl in missing})):
            notes.write(chains.FENCED, {"topics": some})
        notes.check()
        self.acls.create(missing)
        self._await(lambda: wanted <= self.acls.topic_acls(), deadline)
        return {"acls": len(missing), "there_before": len(wanted) - len(missing)}

    def lift(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Delete what the flow's drills have created for these topics."""
        made = chains.fenced(notes.read()) & set(topics)
        acls = self._acls(made)
        notes.check()
        self.acls.delete(acls)
        self._await(lambda: not acls & self.acls.topic_acls(), deadline)
        for some in _portions(sorted(made)):
            notes.write(chains.UNFENCED, {"topics": some})
        return {"acls": len(acls)}

    def _acls(self, topics: Collection[str]) -> frozenset[Acl]:
        return frozenset(
            Acl(LITERAL, topic, principal, _EVERY_HOST, _WRITE, DENY)
            for topic in topics
            for principal in self.principals
        )

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
        folder.mkdir(parents=True, exist_ok=True)
        listed, printed = folder / "topics.txt", folder / f"{word}.log"
        listed.write_text("".join(f"{topic}\n" for topic in sorted(topics)))
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        env = {**kept, **self.facts, "ONCEOVER_TOPICS": str(listed)}
        try:
            child = ChildProcess.start(
                [*self.argv, word], name=f"switchover {word}", log_path=printed, env=env, cwd=self.cwd
            )
        except OSError as error:
            raise self._failed(word, printed, f"{error.strerror}") from error
        try:
            code = child.wait(max(1.0, deadline.left_s))
        except Retriable as error:
            raise self._failed(word, printed, "it has not ended in time, and was killed") from error
        finally:
            child.kill()
        if code != 0:
            raise self._failed(word, printed, f"exit code {code}")
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


@dataclass(frozen=True)
class CommandFence:
    """A user's command fences and unfences."""

    command: UserCommand

    @property
    def how(self) -> str:
        """What it does, as a plan says it."""
        return f"{self.command.argv[0]} fence"

    def check(self) -> None:
        """Return: whether it works shows when it is run."""

    def make(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Run it; what it does once more has to be as what it does once."""
        for some in _portions(sorted(set(topics) - chains.fenced(notes.read()))):
            notes.write(chains.FENCED, {"topics": some})
        notes.check()
        return self.command.run("fence", topics, deadline)

    def lift(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Run it for those that it was run for."""
        made = sorted(chains.fenced(notes.read()) & set(topics))
        notes.check()
        evidence = self.command.run("unfence", made, deadline) if made else {}
        for some in _portions(made):
            notes.write(chains.UNFENCED, {"topics": some})
        return evidence


@dataclass(frozen=True)
class PersonFence:
    """A person stops the producers, and says so."""

    confirmed: Callable[[str, Deadline], Mapping[str, Any]]

    @property
    def how(self) -> str:
        """What it does, as a plan says it."""
        return "a person stops the producers, and confirms it"

    def check(self) -> None:
        """Return: nothing is needed."""

    def make(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Wait for the confirmation."""
        for some in _portions(sorted(set(topics) - chains.fenced(notes.read()))):
            notes.write(chains.FENCED, {"topics": some})
        return self.confirmed("fence", deadline)

    def lift(self, notes: DrillNotes, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Note that the producers may be started again; who has stopped them does it."""
        made = sorted(chains.fenced(notes.read()) & set(topics))
        for some in _portions(made):
            notes.write(chains.UNFENCED, {"topics": some})
        return {"start_again": len(made)}


def _portions(topics: Sequence[str]) -> Iterator[list[str]]:
    return (list(topics[at : at + _PER_ENTRY]) for at in range(0, len(topics), _PER_ENTRY))
