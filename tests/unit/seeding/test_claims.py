"""Topics that another flow has claimed: each is left out alone, and no claim is left lying about."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from onceover.errors import NeedsOperator
from onceover.kafka.admin.topics import Admin
from onceover.lead.leader import FlowIdentity, Leader
from onceover.seeding import apply
from onceover.state import names
from onceover.state.records.ownership import Claim, read_claims
from onceover.topics.own import StateSettings, create_flow_topics
from tests.unit.seeding.seedscene import SeedScene
from tests.unit.seeding.test_fence_order import Fenced, promoted

# Goes first among rivals, by its name.
OTHER = "another"


@pytest.fixture
def scene(tmp_path: Path) -> SeedScene:
    """Return two topics, of which another flow has claimed one before it was interrupted."""
    made = SeedScene(tmp_path)
    for name in ("a", "b"):
        made.east.make_topic(name, 1)
        made.grow(name, 100)
    create_flow_topics(Admin(made.west), OTHER, StateSettings(1, 24 * 3600_000))
    with closing(Leader(FlowIdentity(OTHER, 1, "0" * 64), made.east, made.west)) as leader:
        leader.seize()
        leader.put({names.claim_key("b"): Claim("b", "b", 1).to_json()})
    return made


def claimed(scene: SeedScene) -> set[str]:
    return set(read_claims(scene.records()))


def test_the_others_are_seeded(scene: SeedScene) -> None:
    outcome = scene.seeder().apply(scene.caller)
    assert [(r.object, r.code) for r in outcome.waiting] == [("b", "CLAIMED_ELSEWHERE")]
    assert (outcome.written, outcome.exit_code) == (1, 3)
    assert (scene.progress(), set(scene.enrolled()), claimed(scene)) == ({"a:0": 100}, {"a"}, set())
    assert scene.shown[-1].refused == tuple(outcome.waiting)
    assert "b" not in scene.west.all_topics


def test_and_the_next_try_has_that_one_left_to_say(scene: SeedScene) -> None:
    approval = scene.approved(scene.seeder().plan())
    for generation in (1, 2):
        outcome = scene.seeder().apply(scene.caller, approval)
        assert ([r.object for r in outcome.waiting], outcome.generation) == (["b"], generation)
    assert (scene.progress(), claimed(scene)) == ({"a:0": 100}, set())


def test_for_nothing_no_fence_is_lifted(scene: SeedScene) -> None:
    origin = Fenced([promoted])
    outcome = scene.seeder(origin, topics="b").apply(scene.caller)
    assert ([r.object for r in outcome.waiting], origin.events) == (["b"], ["look", "look"])
    assert (scene.progress(), claimed(scene)) == ({}, set())


def test_what_is_looked_at_again_behind_a_fence_leaves_it_out_again(scene: SeedScene) -> None:
    origin = Fenced([promoted])
    outcome = scene.seeder(origin).apply(scene.caller)
    assert origin.events == ["look", "look", "lifted", "look"]
    assert ([r.object for r in outcome.waiting], scene.progress()) == (["b"], {"a:0": 40})
    assert claimed(scene) == set()


def test_claims_that_come_to_nothing_are_given_back(
    scene: SeedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until somebody runs it again they would keep every other flow off."""

    def refuse(*_: object) -> None:
        assert claimed(scene) == {"a"}
        raise NeedsOperator("the target refuses it", code="NOT_AUTHORIZED")

    monkeypatch.setattr(apply, "make_targets", refuse)
    with pytest.raises(NeedsOperator, match="the target refuses it"):
        scene.seeder().apply(scene.caller)
    assert (scene.progress(), claimed(scene)) == ({}, set())
