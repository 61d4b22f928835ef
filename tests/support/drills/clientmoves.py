"""A planned switchover with applications of several client libraries: who stays up, and who is started anew.

The topic's offsets differ on both sides, each way: in partition AHEAD the source's numbers are far ahead of
the target's, because its beginning had expired before it was copied; in BEHIND the target's are ahead: it
holds a marker for each transaction that copied.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from onceover.cli import main as command_line
from onceover.drills.leaving import commits
from tests.support.brokers.moving import Moving
from tests.support.brokers.tcpswitch import Lever
from tests.support.drills.movers import (
    ASSIGNED,
    KAFKA_PYTHON,
    PLAIN,
    SUBSCRIBED,
    TRANSACTIONAL,
    Applications,
    Role,
    Said,
)
from tests.support.drills.switching import Switched, switched
from tests.support.flows.grants import GROUP, TOPIC, TRANSACTIONAL_ID, granted
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.replica import delete_before, read_records
from tests.support.session.wait import wait_until

AHEAD, BEHIND = 0, 1
# What an application is: kind, partition, settings.
CLASSIC, CONSUMER = "classic", "consumer"
ASSIGNED_AHEAD, ASSIGNED_BEHIND = "assigned-ahead", "assigned-behind"
_PARTS: Final = {
    CLASSIC: (SUBSCRIBED, AHEAD),
    CONSUMER: (SUBSCRIBED, AHEAD),
    ASSIGNED_AHEAD: (ASSIGNED, AHEAD),
    ASSIGNED_BEHIND: (ASSIGNED, BEHIND),
    PLAIN: (PLAIN, BEHIND),
    TRANSACTIONAL: (TRANSACTIONAL, AHEAD),
}
_EXPIRED: Final = 1000
_TIMEOUT_S: Final = 90.0
_EARLY, _LATE = "early", "late"
_COUNT: Final = 5


@dataclass(frozen=True)
class Cast:
    """Applications with one library.

    Args:
        parts: what they are.
        moves: those that are waited for until they go on behind the switchover.
        ends: those that are waited for until they say that something went wrong, and some of the words.
        anew: they are ended before the switch is pulled, and started again behind it.
        settings: by the library's names.
        tag: tells two casts with one library apart.
    """

    library: str
    parts: Sequence[str]
    moves: Sequence[str] = ()
    ends: Mapping[str, str] = field(default_factory=dict)
    anew: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    tag: str = "stays"

    def role(self, prefix: str, part: str, topic: str, client: dict[str, Any]) -> Role:
        """Return one of them."""
        kind, partition = _PARTS[part]
        settings = {**client, **self.settings}
        if kind in (SUBSCRIBED, ASSIGNED):
            key = "auto_offset_reset" if self.library == KAFKA_PYTHON else "auto.offset.reset"
            settings[key] = "earliest"
        if part == CONSUMER:
            settings["group.protocol"] = "consumer"
        return Role(self.name(prefix, part), kind, topic, partition, settings=settings)

    def name(self, prefix: str, part: str) -> str:
        """Return what it is called."""
        return f"{prefix}-{self.library}-{'anew' if self.anew else self.tag}-{part}"


class Gone(Enum):
    """What becomes of the source for its clients, once the name leads elsewhere."""

    SHUT = auto()
    """They are cut off, and refused."""
    SILENT = auto()
    """Nothing answers, and nothing is refused, as where a host dies."""
    NOT = auto()
    """Nothing: it answers as ever."""


@dataclass
class Course:
    """What happened. Each application is named by its library and its part."""

    replica: Switched
    topic: str
    flip_s: float = 0.0
    running: list[Applications] = field(default_factory=list)
    placed: dict[tuple[str, int], int] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    def role(self, library: str, part: str, *, anew: bool = False, tag: str = "stays") -> Role:
        """Return one of them."""
        end = Cast(library, (), anew=anew, tag=tag).name("", part)
        return next(r for each in self.running for r in each.roles if r.name.endswith(end))

    def said(self, role: Role) -> list[Said]:
        """Return all that it has said, by however many processes."""
        found = [s for each in self.running for r in each.roles if r.name == role.name for s in each.said(r)]
        return sorted(found)

    def behind(self, role: Role, *whats: str) -> list[Said]:
        """Return what it has said of such things since the switch was pulled."""
        return [each for each in self.said(role) if each.at_s >= self.flip_s and each.what in whats]

    def faults(self, role: Role) -> list[str]:
        """Return what went wrong for it since the switch was pulled."""
        return [each.words for each in self.behind(role, "failed", "died")]

    def seconds(self, role: Role) -> float | None:
        """Return how long after the pull it had, or wrote, its first record; None where that never was."""
        found = self.behind(role, "read", "acked")
        return found[0].at_s - self.flip_s if found else None

    @cached_property
    def there(self) -> dict[int, dict[int, str]]:
        """What is on the target, once all is over: values by offset, by partition."""
        client = self.replica.target_client
        return {
            partition: {
                o: (r.value or b"").decode() for o, r in read_records(client, self.topic, partition).items()
            }
            for partition in (AHEAD, BEHIND)
        }

    def values_read(self, role: Role, partition: int) -> list[str]:
        """Return what it has read of a partition, in its order."""
        return [s.words for s in self.said(role) if (s.what, s.partition) == ("read", partition)]

    def acknowledged(self, role: Role) -> list[str]:
        """Return what a producer was told is there."""
        return [each.words for each in self.said(role) if each.what == "acked"]

    def assert_exact(self, role: Role) -> None:
        """Of what it has read, or was told is there, nothing was lost, repeated or out of order."""
        if role.reads:
            for partition in (AHEAD, BEHIND) if role.kind == SUBSCRIBED else (role.partition,):
                read = self.values_read(role, partition)
                assert read == list(self.there[partition].values())[: len(read)], role.name
            return
        written = [v for v in self.there[role.partition].values() if v.startswith(f"{role.name}-")]
        values = self.acknowledged(role)
        # Whoever was ended may have written one more than it was told.
        assert written[: len(values)] == values, role.name

    def assert_complete(self, role: Role) -> None:
        """It has missed nothing, and what it has committed since is not before where it was placed."""
        for partition in (AHEAD, BEHIND):
            there = list(self.there[partition].values())
            read = self.values_read(role, partition)
            assert set(read) >= set(there[: there.index(read[-1])]), role.name
            committed = [s.offset for s in self.behind(role, "committed") if s.partition == partition]
            assert min(committed) > self.place(role, partition), role.name

    def place(self, role: Role, partition: int) -> int:
        """Return where `place` has put it on the target."""
        return self.placed[role.name, partition]


@contextmanager
def clients_switched_over(
    moving: Moving, folder: Path, name: str, casts: Sequence[Cast], gone: Gone = Gone.SHUT
) -> Iterator[Course]:
    """Let applications work, switch over, start some anew; yield what happened, once all that move have.

    ``gone`` counts where brokers have addresses of their own.
    """
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(commits, "COMMITS_S", 0.5)
        patch.setenv("ONCEOVER_HOME", str(folder / "var"))
        replica = stack.enter_context(switched(moving.pair, folder, name, moving.inside))
        rights = [(TOPIC, name, True, "WRITE READ DESCRIBE"), (GROUP, name, True, "READ")]
        rights.append((TRANSACTIONAL_ID, name, True, "WRITE DESCRIBE"))
        for cluster in moving.pair:
            stack.enter_context(granted(cluster, rights))
        course = Course(replica, _topic(replica))
        anew = _started(moving, folder, course, casts)
        for each in course.running:
            stack.callback(each.end)
        with replica.running(seconds=_TIMEOUT_S * 3):
            wait_until(lambda: all(_busy(course, r) for r in _roles(course)), _TIMEOUT_S, "all work")
            _switch_over(moving, folder, course, gone, [each for each, cast in anew if cast.anew])
        for index, (each, cast) in enumerate(anew):
            if cast.anew:
                again = Applications(
                    [replace(r, first=_acknowledged(course, r)) for r in each.roles],
                    folder / f"again-{index}",
                    cast.library,
                )
                course.running.append(again)
                stack.callback(again.end)
                again.start()
        _await_moves(course, name, casts)
        for each in course.running:
            each.end()
        yield course


def _topic(replica: Switched) -> str:
    """Make the topic; its offsets differ from the copy's, and both coordinators have begun to work."""
    topic = replica.topic(partitions=2)
    replica.source.plain(topic, AHEAD, replica.source.records(_EXPIRED))
    delete_before(replica.source_client, topic, _EXPIRED)
    commit(replica.source_client, f"{replica.name}-first", topic, {AHEAD: _EXPIRED})
    return topic


def _started(
    moving: Moving, folder: Path, course: Course, casts: Sequence[Cast]
) -> list[tuple[Applications, Cast]]:
    found = []
    for index, cast in enumerate(casts):
        client = moving.settings(cast.library)
        roles = [cast.role(course.replica.name, part, course.topic, client) for part in cast.parts]
        applications = Applications(roles, folder / f"applications-{index}", cast.library)
        applications.start()
        course.running.append(applications)
        found.append((applications, cast))
    return found


def _roles(course: Course) -> list[Role]:
    return [role for each in course.running for role in each.roles]


def _busy(course: Course, role: Role) -> bool:
    said = [each for each in course.said(role) if each.what in ("read", "acked")]
    wanted = 40 if role.partition == BEHIND else 20
    return len(said) >= wanted


def _acknowledged(course: Course, role: Role) -> int:
    return sum(each.what == "acked" for each in course.said(role))


def _switch_over(
    moving: Moving, folder: Path, course: Course, gone: Gone, ended: Sequence[Applications]
) -> None:
    """Run the drill, whose command flips the switch; somebody else writes on the target at once."""

    def pulled(_: str) -> None:
        for each in ended:
            each.end()
        for role in _roles(course):
            for partition in (AHEAD, BEHIND):
                at = offset_of(course.replica.target_client, role.name, course.topic, partition)
                if role.reads and at is not None:
                    course.placed[role.name, partition] = at
        course.flip_s = time.time()
        write(course, _EARLY)
        moving.lead_to(moving.pair[1])
        if not moving.through and gone is not Gone.NOT:
            (moving.listener.shut if gone is Gone.SHUT else moving.listener.swallow)()

    lever = Lever(pulled)
    lever.write_program(folder / "switch")
    with lever, redirect_stdout(io.StringIO()) as printed:
        path = str(course.replica.flow.path)
        code = command_line.main(["drill", "run", path, "--mode", "planned", "--approve", "--json"])
    course.report = json.loads(printed.getvalue())
    assert code == 0, printed.getvalue()


def write(course: Course, word: str) -> None:
    """Write records into both partitions on the target, as somebody who was there all the time."""
    producer = Producer(course.replica.target_client)
    for number in range(_COUNT):
        for partition in (AHEAD, BEHIND):
            producer.produce(course.topic, value=f"{word}-{number}".encode(), partition=partition)
    producer.flush(_TIMEOUT_S)


def _await_moves(course: Course, name: str, casts: Sequence[Cast]) -> None:
    """Write the last records, once all writers that move have written; wait until readers have them."""
    expected = [
        cast.role(name, part, course.topic, {})
        for cast in casts
        for part in (cast.parts if cast.anew else cast.moves)
    ]
    writers, readers = [r for r in expected if not r.reads], [r for r in expected if r.reads]

    def missing_writers() -> list[str]:
        return [r.name for r in writers if len(course.behind(r, "acked")) < _COUNT]

    wait_until(lambda: not missing_writers(), _TIMEOUT_S, f"{[r.name for r in writers]} write on")
    write(course, _LATE)
    last = f"{_LATE}-{_COUNT - 1}"

    def missing_readers() -> list[str]:
        return [
            r.name
            for r in readers
            for partition in ((AHEAD, BEHIND) if r.kind == SUBSCRIBED else (r.partition,))
            if last not in course.values_read(r, partition)
        ]

    wait_until(lambda: not missing_readers(), _TIMEOUT_S, f"{[r.name for r in readers]} read on")
    ends = [(cast.role(name, part, course.topic, {}), w) for cast in casts for part, w in cast.ends.items()]

    def silent() -> list[str]:
        return [role.name for role, words in ends if not any(words in each for each in course.faults(role))]

    wait_until(lambda: not silent(), _TIMEOUT_S, f"{[role.name for role, _ in ends]} say what is wrong")
