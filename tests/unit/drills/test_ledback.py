"""What the way back asks both flows' states, and what of it the flow that leads back is seeded for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.config.flow.flowfile import Flow
from onceover.drills import chain as chains
from onceover.errors import OnceoverError, Retriable
from onceover.state.records.enrolment import Enrolment
from onceover.wiring.failovers import failback, orphans, switchovers
from onceover.wiring.failovers.drills import both
from tests.unit.drills.test_failback import gone_back, gone_over
from tests.unit.drills.test_reversing import Chain

FLOW, BACK = (cast(Flow, SimpleNamespace(flow=name)) for name in ("orders", "back"))
ENDS = {0: 9}
EAST = SimpleNamespace(
    retry=lambda attempt: attempt(),
    topics=lambda wanted: {name: SimpleNamespace(topic_id=UUID(int=1)) for name in wanted},
)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Enrolment]]:
    """What each flow has on record: topic a was led back, and clients have gone back with it; b was not."""
    known = {
        "orders": [gone_over(name, 50, ENDS, {0: 5}) for name in "ab"],
        "back": [gone_back("a", 60, ENDS)],
    }

    @contextmanager
    def opened(flow: Flow, making: Callable[..., Any]) -> Iterator[Any]:
        yield (EAST, EAST) if making is both else making(flow)

    for module in (failback, switchovers):
        monkeypatch.setattr(module, "opened", opened)
        monkeypatch.setattr(module, "enrolled_of", lambda flow, _: known[flow.flow])
    monkeypatch.setattr(failback, "seeder", lambda _, request: request)
    monkeypatch.setattr(failback, "behind", lambda _, copies: copies)
    return known


def asked_for(*copies: str) -> Any:
    """Return the topics that the flow that leads back would be seeded for."""
    with failback.way_back_seeder(FLOW, BACK, copies) as asked:
        return asked


def test_clients_keep_what_they_have_gone_back_with(records: dict[str, list[Enrolment]]) -> None:
    """A position there would have the flow write to it again, behind what they have written."""
    assert asked_for("a", "b") == ["b"]
    assert failback.gone_back(FLOW, BACK) == frozenset("a")
    led = switchovers.led_back(FLOW, BACK, cast(Any, EAST))
    assert (sorted(led.copies), sorted(led.gone)) == (["a"], ["a"])
    assert failback.check_led_back(FLOW, BACK, ["a"]) is False
    records["back"] = [gone_back("a", 60, ENDS).back()]
    assert failback.check_led_back(FLOW, BACK, ["a"]) is True


def test_a_copy_that_was_deleted_is_told_from_one_that_is_not_taken_in(
    records: dict[str, list[Enrolment]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice about filters would have a person search for what is not there."""
    assert records
    assert not switchovers.led_back(FLOW, BACK, cast(Any, EAST)).deleted
    west: Any = SimpleNamespace(retry=lambda attempt: attempt(), topics=lambda _: {"a": None})
    led = switchovers.led_back(FLOW, BACK, west)
    assert (sorted(led.missing("ab")), sorted(led.deleted)) == (["b"], ["b"])


def test_a_way_back_of_before_is_led_again(records: dict[str, list[Enrolment]]) -> None:
    """The topics have gone over once more since."""
    records["back"] = [gone_back("a", 40, {0: 5})]
    assert asked_for("a", "b") == ["a", "b"]


@pytest.mark.parametrize(("done", "over"), [(None, False), (False, False), (True, True)])
def test_what_a_switchover_has_left_is_still_to_be_done(
    records: dict[str, list[Enrolment]], monkeypatch: pytest.MonkeyPatch, done: bool | None, over: bool
) -> None:
    """It was killed behind its promotion, or could not do all of it."""
    chain = Chain()
    chain.add("d1", chains.BEGUN)
    if done is not None:
        chain.add("d1", chains.ENDED, {"done": done})

    @contextmanager
    def journal(*_: object) -> Iterator[Any]:
        yield chain.journal(is_alive=False)

    monkeypatch.setattr(failback, "drill_journal", journal)
    assert failback.went_back(FLOW, BACK, ["a"]) is over
    assert failback.went_back(FLOW, BACK, ["a", "b"]) is False


@pytest.mark.parametrize(("topics", "wanted"), [((), ["b", "c"]), (("a|b",), ["b"])])
def test_a_topic_that_is_left_alone_is_none_that_was_asked_for(
    topics: tuple[str, ...], wanted: list[str]
) -> None:
    asked = orphans._wanted(orphans.OrphanOptions(topics, besides={"a"}))
    assert asked is not None
    assert [topic for topic in "abc" if asked(topic)] == wanted


def test_whoever_ends_a_drill_leaves_out_whom_clients_have_gone_back_to(
    records: dict[str, list[Enrolment]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a source that is silent nobody knows; the writers that are kept off do not wait for it."""
    monkeypatch.setattr(switchovers, "reverse_flow", lambda *_: BACK)
    flow = cast(Flow, SimpleNamespace(flow="orders", switchover=SimpleNamespace(reverse="back")))

    @contextmanager
    def hasty(error: OnceoverError | None) -> Iterator[Any]:
        def cluster_id() -> str:
            if error is not None:
                raise error
            return "east"

        yield SimpleNamespace(cluster_id=cluster_id)

    for error, left in ((None, ["b"]), (Retriable("east is away"), ["a", "b"])):
        source: Any = SimpleNamespace(hasty=lambda _, error=error: hasty(error))
        still = switchovers._still_over(flow, source, cast(Any, EAST))
        assert [each.target for each in still] == left
    assert records
