"""A copy that may not be read keeps no other topic from being seeded; it is told before anybody is fenced."""

from __future__ import annotations

from pathlib import Path

from tests.unit.seeding.seedscene import SeedScene


def test_a_copy_that_may_not_be_read_is_left_out_and_the_others_are_placed(tmp_path: Path) -> None:
    """One transaction writes the positions of many topics: it would be refused as a whole."""
    scene = SeedScene(tmp_path)
    for topic in ("fine", "shut"):
        scene.east.make_topic(topic, 1)
        scene.west.make_topic(topic, 1)
        scene.grow(topic, 5)
    scene.west.unread.add("shut")
    seeder = scene.seeder()
    assert seeder.plan().refused == (), "who only plans needs no such right"
    done = seeder.apply(scene.caller)
    (told,) = done.plan.refused
    assert (done.exit_code, told.object, told.code) == (3, "shut", "TARGET_UNAUTHORIZED")
    assert "READ" in told.message and "grant" in told.resolve
    assert (scene.progress(), set(scene.enrolled())) == ({"fine:0": 5}, {"fine"})
    scene.west.unread.clear()
    assert seeder.apply(scene.caller).exit_code == 0
    assert scene.progress() == {"fine:0": 5, "shut:0": 5}


def test_nobody_is_fenced_where_nothing_can_be_placed(tmp_path: Path) -> None:
    """Nor is a topic of the flow made."""
    scene = SeedScene(tmp_path)
    for cluster in (scene.east, scene.west):
        cluster.make_topic("shut", 1)
    scene.west.unread.add("shut")
    topics = set(scene.west.all_topics)
    done = scene.seeder().apply(scene.caller)
    assert (done.exit_code, done.generation) == (3, None)
    assert set(scene.west.all_topics) == topics
