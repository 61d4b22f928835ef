"""How source and flow are when nothing is waited for: what a person says yes to in an unplanned switchover.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from onceover.drills.looks.dryrun import TopicLoss, losses_of
from onceover.planning.approval import ObjectState
from onceover.planning.plan import Change
from onceover.state.codes import StateCode
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.runstate import RunState

_LIVES: Final = (RunState.STARTING, RunState.RUNNING)
_AT_LEAST_ONCE: Final = "at_least_once"


@dataclass(frozen=True)
class SourceStanding:
    """What makes the question another one.

    Args:
        flow: its name; ``source`` alias of its source.
        partitions: of the topics; ``answering`` how many of them tell where they end.
        runs: the flow shows signs of life.
        missing: offsets that are on the source alone, by source topic, with those behind open transactions;
            None where that is not known.
        stopped: partitions at which the copy was stopped, with the code.
        copies: id of each copy's topic, None where it is gone, by source topic.
        repeats: its copy runs at least once: no fence keeps what it has in hand from the copies.
        silent: it gives no sign of life, and has not said that it ended; nor has one before a change by hand.
    """

    flow: str
    source: str
    partitions: int
    answering: int
    runs: bool
    missing: Mapping[str, int | None]
    stopped: Mapping[str, str]
    copies: Mapping[str, str | None]
    repeats: bool = False
    silent: bool = False

    @classmethod
    def of(
        cls, entry: Mapping[str, Any], topics: Collection[str], copies: Mapping[str, str | None]
    ) -> SourceStanding:
        """Read an entry of ``status``."""
        mine = [p for p in entry["partitions"] if p["topic"] in topics]
        losses = {loss.topic: loss for loss in losses_of(mine)}
        return cls(
            entry["flow"],
            entry["source"]["alias"],
            len(mine),
            sum(1 for p in mine if p["high_watermark"] is not None),
            entry["run"]["state"] in _LIVES,
            {topic: _missing(losses.get(topic)) for topic in sorted({p["topic"] for p in mine})},
            {f"{p['topic']}:{p['partition']}": p["stop"]["code"] for p in mine if p["stop"]},
            copies,
            entry["delivery"] == _AT_LEAST_ONCE,
            _is_silent(entry),
        )

    @property
    def wakes(self) -> bool:
        """Whether a process that is taken for dead could write to the copies, should it go on."""
        return self.repeats and self.silent

    @property
    def answers(self) -> bool:
        """Whether all of them do: a planned switchover is possible."""
        return 0 < self.partitions == self.answering

    def given_up(self, *, whatever: bool = False) -> list[Change]:
        """Return what is there, and not waited for; ``whatever``: also what is there at another look only."""
        if whatever:
            return [
                Change("give up", f"source {self.source}", "whatever it tells", None, "and whenever"),
                Change("give up", f"flow {self.flow}", "running or not", None, self._goes_on),
                Change("give up", "what follows wherever the copy was stopped", "by then", None, "all of it"),
            ]
        given = []
        if self.answers:
            lossless = "it answers: a planned switchover would lose nothing"
            given.append(Change("give up", f"source {self.source}", "it answers", None, lossless))
        if self.runs:
            more = "it runs: what it would copy yet is not waited for"
            given.append(Change("give up", f"flow {self.flow}", "it runs", None, more))
        for partition, code in sorted(self.stopped.items()):
            text = "nothing behind that was copied"
            given.append(Change("give up", _follows(partition), f"stopped: {code}", None, text))
        if self.wakes:
            twice = "at least once: should it wake, what it has in hand comes again, among clients' records"
            given.append(
                Change("give up", f"a sure end of flow {self.flow}", "it is silent", None, twice, "repeat")
            )
        return given

    @property
    def _goes_on(self) -> str:
        again = ", and what it repeats should it wake" if self.repeats else ""
        return f"what it would copy yet{again}"

    def lost_copies(self, enrolled: Collection[Enrolment]) -> list[Change]:
        """Return the copies that are other topics than the flow has copied into, whatever is there."""
        text = "what the flow has copied went with the topic that it copied into"
        return [
            Change("give up", f"copy {each.target}", "deleted" if now is None else "made anew", None, text)
            for each in enrolled
            if (now := self.copies.get(each.source)) != str(each.target_id)
        ]

    def states(self, enrolled: Collection[Enrolment]) -> dict[str, ObjectState]:
        """Return how what is changed stands, by ``Change.object``: at another one it is another question."""
        stops = {_follows(partition): ObjectState(code) for partition, code in self.stopped.items()}
        topics = {each.target: ObjectState(f"topic {self.copies.get(each.source)}") for each in enrolled}
        return {**topics, **stops}

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        told = {**asdict(self), "answers": self.answers, "wakes": self.wakes}
        shown = "answers", "partitions", "answering", "runs", "missing", "stopped", "copies", "wakes"
        return {key: told[key] for key in shown}

    def __str__(self) -> str:
        if self.answers:
            source = "answers"
        elif self.answering:
            source = (
                f"answers in {self.answering} of {self.partitions} partitions: a planned switchover of the "
                "topics that answer whole, chosen with `--topics`, would lose nothing"
            )
        else:
            source = "does not answer: nobody is asked for what is on it alone"
        return f"{self.source} {source}; flow {self.flow} {'runs' if self.runs else 'does not run'}"


def _follows(partition: str) -> str:
    return f"what follows in {partition}"


def _is_silent(entry: Mapping[str, Any]) -> bool:
    state = entry["run"]["state"]
    fenced = any(need["code"] == StateCode.FENCED for need in entry["needs"])
    return state == RunState.GONE or (state == RunState.FENCED and fenced)


def _missing(loss: TopicLoss | None) -> int | None:
    if loss is None:
        return 0
    return None if loss.offsets is None or loss.open_offsets is None else loss.offsets + loss.open_offsets
