"""The journal of a flow's drills, on the target and as a file.

Invariant: one drill of a flow runs at a time. An entry is written under a transactional id, by whoever came
last, and only behind a chain in which the writer's own drill is the one that runs: of two that begin at once
one is refused before it has touched anything, and one that was taken for dead writes, and does, nothing more.
What the topic has lost at its end, to an unclean election, say, is known to the machine that has written it,
which writes it again before anything else.
"""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.drills import chain as chains
from onceover.drills.chain import ChainReader, JournalEntry
from onceover.drills.codes import DrillCode
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable
from onceover.kafka.admin.topics import Admin, TopicSpec, await_leaders
from onceover.kafka.ports import Cluster
from onceover.kafka.produce.notes import NoteWriter
from onceover.model import TopicPartition
from onceover.planning.background import begin
from onceover.state import names
from onceover.state.fenced import write_last
from onceover.state.log import StateLog
from onceover.state.records.value import MALFORMED, mapping, whole_number
from onceover.topics.own import STATE_CONFIG

log = logging.getLogger(__name__)

ALIVE: Final = "alive"
_BEAT_S: Final = 2.0
# Of a drill that gives no sign for so long nobody is there any more. Clocks are not compared: its sign has to
# change while we look.
SILENT_S: Final = 4 * _BEAT_S
# What is begun within it is done before anybody else can have taken the drill over.
_SURE_S: Final = SILENT_S - _BEAT_S
# A journal that is slow at every look holds nobody up for longer.
_SLOW_S: Final = 60.0
# A reply that was lost, or somebody else who writes, is over by then.
_WRITE_S: Final = 30.0
# More than the report of a drill with some topics.
_ROOM_BYTES: Final = 64 << 10
_FILE: Final = "journal.jsonl"
# What a log has lost at its end is of the newest ones.
_FILES: Final = 4


class DrillJournal:
    """The journal. Not thread-safe; a context manager.

    Args:
        target: the flow's target; belongs to the caller.
        flow: its name.
        replication_factor: of the topic, should it have to be made.
        folder: where the file of each drill is written.
        pause: waits so many seconds; True when it was asked to stop meanwhile.
    """

    def __init__(
        self,
        target: Cluster,
        flow: str,
        replication_factor: int,
        folder: Path,
        pause: Callable[[float], bool],
    ) -> None:
        self._target = target
        self._flow = flow
        self._factor = replication_factor
        self._folder = folder
        self._pause = pause
        self._tp = TopicPartition(names.drills_topic(flow), 0)
        self._log = StateLog(target, *self._tp)
        self._topic_id: UUID | None = None
        self._reader = ChainReader()
        self._beats: Heartbeat | None = None
        # Of our own: the last that was written, and its offset; what this machine's files have.
        self._last: tuple[int, JournalEntry] | None = None
        self._filed: list[JournalEntry] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    def check_folder(self) -> None:
        """Return where the files of a drill can be written: asked before anything is on the target.

        Raises:
            OSError: they cannot; the error names the folder.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder) as room:
                room.write(bytes(_ROOM_BYTES))
        except OSError as error:
            # That of a full disk names nothing.
            raise OSError(error.errno, error.strerror, str(self._folder)) from error

    def prepare(self) -> None:
        """Make the topic where it is missing."""
        topic = self._tp.topic
        if topic not in self._target.retry(lambda: self._target.topics([topic])):
            Admin(self._target).make_topics([TopicSpec(topic, 1, self._factor, STATE_CONFIG)])
        else:
            await_leaders(self._target, {topic: 1})

    def read(self) -> list[JournalEntry]:
        """Return all entries; none where there never was a drill.

        Raises:
            NeedsOperator: JOURNAL_DAMAGED.
            Retriable: the target is away.
        """
        told = self._reader.read(self._values(), self._tp.topic)
        return [*told, *self._lost(told)]

    def _read_whole(self) -> list[JournalEntry]:
        """Do as ``read`` for who acts by the last entry."""
        told = self._told_whole()
        return [*told, *self._lost(told)]

    def _told_whole(self) -> list[JournalEntry]:
        """Return the entries that stand in the topic, for who writes the next one."""
        if self._last is None:
            # What was read before may not be there any more.
            self._topic_id = None
        else:
            self._look_again(*self._last)
        values = self._values(StateLog.read_whole)
        if self._last is not None and not _holds(values, self._last[1]):
            log.warning("%s does not hold entry %s any more", self._tp, self._last[1].number)
            # What was read before may not be there, either.
            self._last, self._topic_id, self._reader = None, None, ChainReader()
            values = self._values(StateLog.read_whole)
        return self._reader.read(values, self._tp.topic)

    def _look_again(self, offset: int, last: JournalEntry) -> None:
        """See whether our last entry still stands, and what others have written behind it."""
        behind = [key for key in self._log.values if key.startswith(chains.KEY_PREFIX) and key > last.key]
        for key in (last.key, *behind):
            self._log.read_again(key, offset)

    def _lost(self, told: Sequence[JournalEntry]) -> list[JournalEntry]:
        """Return the entries behind those that are told, as this machine has written them."""
        return chains.continued(told, self._kept())

    def _kept(self) -> list[JournalEntry]:
        """Return what this machine's files have of the last drills, and what we have written since."""
        if self._filed is None:
            self._filed = list(self._in_files())
        return self._filed

    def _in_files(self) -> Iterator[JournalEntry]:
        # A drill is called after its time.
        for path in sorted(self._folder.glob(f"*/{_FILE}"), reverse=True)[:_FILES]:
            try:
                lines = path.read_text().splitlines()
            except (OSError, UnicodeDecodeError) as error:
                log.warning("%s cannot be read: %s", path, error)
                continue
            for line in lines:
                with suppress(*MALFORMED):
                    yield _filed(json.loads(line))

    def check(self, drill: str) -> None:
        """Return where a drill is the one that runs.

        Raises:
            Fenced: DRILL_TAKEN_OVER, it was taken for dead.
            NeedsOperator: JOURNAL_DAMAGED, or somebody has deleted it meanwhile.
            Retriable: the target is away.
        """
        self._check(self._read_whole(), drill)

    def begin(self, drill: str, said: Mapping[str, Any]) -> None:
        """Begin a drill; what one has left that died is ended first.

        Raises:
            NeedsOperator: DRILL_RUNS, another one is alive; DRILL_ABORTED, somebody has ended one that was
                begun under the same approval.
            Retriable: DRILL_RUNS, what another one has left is being taken away; the target is away.
        """
        self.prepare()
        other = chains.running(self.read())
        if other is not None:
            self.end_dead(other)

        def news(chain: Sequence[JournalEntry]) -> JournalEntry | None:
            now = chains.running(chain)
            if now is not None and now.drill != drill:
                raise self._busy(now)
            if now is not None:
                return None
            entry = chains.next_entry(chain, drill, chains.BEGUN, now_ms(), said)
            approval = chains.approval_of(entry)
            if approval is not None and chains.is_withdrawn(chain, approval):
                raise self._withdrawn()
            return entry

        self._write(drill, news)

    def end_dead(self, other: JournalEntry) -> None:
        """End a drill in the journal whose process is not there any more.

        Raises:
            NeedsOperator: DRILL_RUNS, it gives signs of life.
            Retriable: DRILL_RUNS likewise, and it only takes away what another one has left.
        """
        if self.is_alive(other.drill):
            raise self._busy(other)

        def news(chain: Sequence[JournalEntry]) -> JournalEntry | None:
            now = chains.running(chain)
            if now is None or now.drill != other.drill:
                return None
            said = {"result": chains.DrillResult.DIED}
            return chains.next_entry(chain, other.drill, chains.ENDED, now_ms(), said)

        self._write(other.drill, news)

    def append(self, drill: str, what: str, said: Mapping[str, Any]) -> None:
        """Write the next entry of the drill that runs.

        Raises:
            Fenced: DRILL_TAKEN_OVER, it was taken for dead.
            Retriable: the target is away.
        """

        def news(chain: Sequence[JournalEntry]) -> JournalEntry | None:
            last = chain[-1] if chain else None
            if last is not None and (last.drill, last.what, dict(last.said)) == (drill, what, dict(said)):
                # Written by the try before this one, whose reply was lost.
                return None
            self._check(chain, drill)
            return chains.next_entry(chain, drill, what, now_ms(), said)

        self._write(drill, news)

    def is_alive(self, drill: str) -> bool:
        """Tell whether a drill gives signs of life; takes some seconds where it does not."""
        before = self._sign(drill)
        deadline, limit = Deadline(SILENT_S), Deadline(_SLOW_S)
        while not deadline.passed:
            if self._pause(min(_BEAT_S / 2, deadline.left_s)):
                # Nobody is dead before the time is over.
                return True
            began = Deadline(_BEAT_S)
            now = self._sign(drill)
            if now is not None and now != before:
                return True
            if began.passed and not limit.passed:
                # While we were not answered the drill could give no sign either.
                deadline = Deadline(SILENT_S)
        return False

    def heartbeat(self, drill: str) -> Heartbeat:
        """Return what gives signs of life while it is open."""
        self._beats = Heartbeat(self._target, self._tp, drill)
        return self._beats

    def holds(self, drill: str) -> bool:
        """Tell, without the target, whether nobody can have taken our own drill for dead yet."""
        beats = self._beats
        return beats is not None and beats.drill == drill and beats.silent_s < _SURE_S

    def _values(self, read: Callable[[StateLog], Mapping[str, Any]] = StateLog.catch_up) -> Mapping[str, Any]:
        """Return the latest values; none where there is no topic. One that was made anew is read anew."""
        topic = self._tp.topic
        info = self._target.retry(lambda: self._target.topics([topic])).get(topic)
        if info is None:
            return {}
        if info.topic_id != self._topic_id:
            self._log.close()
            self._log, self._topic_id = StateLog(self._target, *self._tp), info.topic_id
        return self._target.retry(lambda: read(self._log))

    def _check(self, chain: Sequence[JournalEntry], drill: str) -> None:
        now = chains.running(chain)
        if not chains.of_drill(chain, drill):
            raise NeedsOperator(
                f"the journal of drills knows nothing of drill {drill}, which it held before",
                code=DrillCode.JOURNAL_DAMAGED,
                where=self._tp.topic,
                expected="the topic that was there when the drill began",
                seen="one that was made anew" if chain else "none, or an empty one",
                resolve="find out who has deleted it; what the drill could not take back is in its report",
            )
        if now is None or now.drill != drill:
            raise Fenced(
                f"drill {drill} was taken for dead, and is over",
                code=DrillCode.DRILL_TAKEN_OVER,
                where=self._tp.topic,
                resolve=f"see `onceover drill status {self._flow}`",
            )

    def _sign(self, drill: str) -> int | None:
        """Return the newest sign of a drill; None where the newest one is another's, or none."""
        value = self._values().get(ALIVE)
        try:
            sign = mapping(value, "sign of life")
            return whole_number(sign["count"]) if sign["drill"] == drill else None
        except MALFORMED:
            return None

    def _withdrawn(self) -> NeedsOperator:
        return NeedsOperator(
            f"somebody has ended what was approved for flow {self._flow}: nothing was done now",
            code=DrillCode.DRILL_ABORTED,
            where=self._tp.topic,
            expected="an approval under which no drill was ended by `drill abort`",
            resolve="plan again when there is time for it: somebody has to say yes once more",
        )

    def _busy(self, other: JournalEntry) -> NeedsOperator | Retriable:
        if other.said.get("mode") == chains.ABORT_MODE:
            return Retriable(
                f"what a drill of flow {self._flow} has left is being taken away",
                code=DrillCode.DRILL_RUNS,
                where=f"{self._tp.topic}, {other.drill}",
                resolve="run it again: that takes seconds",
            )
        return NeedsOperator(
            f"drill {other.drill} of flow {self._flow} is running",
            code=DrillCode.DRILL_RUNS,
            where=self._tp.topic,
            expected="one drill of a flow at a time",
            resolve=f"wait for it (`onceover drill status {self._flow}`), "
            f"or end it with `onceover drill abort {self._flow}`",
        )

    def _write(self, drill: str, news: Callable[[Sequence[JournalEntry]], JournalEntry | None]) -> None:
        written: list[JournalEntry] = []
        tried: list[JournalEntry] = []
        landed: list[JournalEntry] = []

        def records() -> Mapping[str, Any]:
            written.clear()
            told = self._told_whole()
            lost = self._lost(told)
            landed[:] = [each for each in tried if any(other.hash == each.hash for other in told)]
            entry = news([*told, *lost])
            if entry is not None:
                written.append(entry)
                tried.append(entry)
            return {each.key: each.to_json() for each in (*lost, *written)}

        deadline, backoff = Deadline(_WRITE_S), Backoff()
        while True:
            try:
                offset = write_last(self._target, names.drills_id(self._flow), self._tp, records)
                break
            except Retriable as error:
                backoff.pause(deadline, error)
        for entry in landed:
            # By a try whose reply was lost: where it lies is not known.
            self._last = None
            self._keep(drill, entry)
        for entry in written:
            self._last = offset, entry
            self._keep(drill, entry)

    def _keep(self, drill: str, entry: JournalEntry) -> None:
        """Write the entry into the drill's file, too; the topic is what counts."""
        self._kept().append(entry)
        path = self._folder / drill / _FILE
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
            try:
                os.write(descriptor, f"{json.dumps({**entry.to_json(), 'hash': entry.hash})}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("%s cannot be written: %s", path, error.strerror)


def _filed(line: Any) -> JournalEntry:
    """Read a line of a drill's file; one that is not as it was written raises as ``from_json``."""
    entry = JournalEntry.from_json(line)
    if line.get("hash") != entry.hash:
        raise ValueError("an entry that was changed")
    return entry


def _holds(values: Mapping[str, Any], entry: JournalEntry) -> bool:
    try:
        return JournalEntry.from_json(values.get(entry.key)).hash == entry.hash
    except MALFORMED:
        return False


class _Moment:
    """Now, on both clocks: one stands still while a machine sleeps, the other one may be set back."""

    def __init__(self) -> None:
        self._at = time.monotonic(), time.time()

    @property
    def age_s(self) -> float:
        """Seconds since then, rather too many than too few."""
        steady_s, wall_s = self._at
        return max(time.monotonic() - steady_s, time.time() - wall_s)


class Heartbeat:
    """Signs of life of a drill, from a thread with connections of its own. A context manager."""

    def __init__(self, target: Cluster, tp: TopicPartition, drill: str) -> None:
        self._cluster = target.another()
        self._tp = tp
        self.drill = drill
        self._heard: _Moment | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="drill-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        begin(self._thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_WRITE_S)

    @property
    def silent_s(self) -> float:
        """Seconds since a sign was begun that the target has taken; without end where it has taken none."""
        heard = self._heard
        return math.inf if heard is None else heard.age_s

    def _beat(self) -> None:
        notes = NoteWriter(self._cluster, self._tp)
        count = 0
        try:
            while not self._over.is_set():
                count += 1
                began = _Moment()
                try:
                    notes.write(ALIVE, {"v": 1, "drill": self.drill, "count": count, "at_ms": now_ms()})
                    self._heard = began
                except OnceoverError as error:
                    # Whoever takes the drill for dead is told by the journal's own writes.
                    log.debug("no sign of life: %s", error)
                self._over.wait(_BEAT_S)
        finally:
            notes.close()
            self._cluster.close()
