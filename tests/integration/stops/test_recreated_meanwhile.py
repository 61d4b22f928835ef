"""A target topic that is deleted and made anew between any two steps of a transaction (G1, G5).

The progress of the copy is kept by the topic's name: what is committed at this moment must not be taken for
the progress of its namesake, and no record may be left in a topic that no progress speaks of.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onceover.state import steps
from onceover.state.steps import Step
from tests.support.flows.replica import Replica, delete_topics
from tests.support.flows.scene import Capture, Scene


class Neighbour:
    """Somebody who makes the target topic anew when a step is reached for the first time."""

    def __init__(self, scene: Scene, step: Step, foreign: int) -> None:
        self._scene, self._step, self._foreign = scene, step, foreign
        self.done = False

    def __call__(self, step: Step) -> None:
        if step is self._step and not self.done:
            self.done = True
            delete_topics(self._scene.replica.target_client, [self._scene.topic])
            self._scene.replica.target_topic(self._scene.topic)
            if self._foreign:
                adversary = self._scene.replica.target
                adversary.plain(self._scene.topic, 0, adversary.records(self._foreign))


@pytest.fixture(autouse=True)
def nobody_listens_afterwards() -> Iterator[None]:
    yield
    steps.listen(lambda _: None)


@pytest.mark.parametrize(
    "step",
    [
        Step.COMMIT,
        *(
            pytest.param(step, marks=pytest.mark.soak)
            for step in (Step.DATA_SENT, Step.DATA_ACKED, Step.MAP_SENT, Step.PROGRESS_SENT, Step.COMMITTED)
        ),
    ],
    ids=lambda step: step.name,
)
def test_progress_is_never_that_of_a_namesake(replica: Replica, capsys: Capture, step: Step) -> None:
    """The partition stops, its neighbour in the same transaction goes on, and a reseed copies all, once."""
    scene = raced(replica, step)
    assert replica.target_records(scene.topic) == {}
    scene.expect_stop(capsys, "TARGET_RECREATED", "topic id")
    scene.resolve(capsys, "reseed")
    scene.expect_copied(15)
    scene.expect_clear(capsys)
    replica.assert_same(scene.topic)


@pytest.mark.parametrize(
    "step", [Step.DATA_SENT, pytest.param(Step.COMMIT, marks=pytest.mark.soak)], ids=lambda step: step.name
)
def test_nothing_is_written_behind_what_a_namesake_holds(
    replica: Replica, capsys: Capture, step: Step
) -> None:
    """Somebody has filled it further than the copy was: no offset tells that it is another topic."""
    scene = raced(replica, step, foreign=25)
    assert len(replica.target_records(scene.topic)) == 25
    scene.expect_stop(capsys, "TARGET_RECREATED", "topic id")


def raced(replica: Replica, step: Step, *, foreign: int = 0) -> Scene:
    """Copy twice, the target topic made anew at the step of the first run's first transaction.

    Args:
        foreign: records that the new one holds at once.
    """
    replica.configure(lanes=1)
    scene = Scene(replica)
    scene.feed(5)
    neighbour = Neighbour(scene, step, foreign)
    steps.listen(neighbour)
    replica.copy()
    replica.copy()
    assert neighbour.done
    return scene
