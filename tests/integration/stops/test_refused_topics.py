"""A topic that is refused is copied, or nobody's concern, once a person does what its refusal says.

Commands and topic names come out of the refusals themselves.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.flows.replica import Replica, delete_topics
from tests.support.flows.waysout import commands
from tests.support.raw.rawkafka import RawRecord

Capture = pytest.CaptureFixture[str]
GOOD = RawRecord(b"k", b"good", (), 1_704_067_200_000)
_DELETE = re.compile(r"^delete target topic (\S+?),? ")
_EXCLUDE = re.compile(r"add (\S+) to topics\.exclude")


def refusals(replica: Replica, capsys: Capture) -> dict[str, dict[str, Any]]:
    """Return what `status` says about topics that are not taken in, or not entirely, by code."""
    _, document = replica.command(capsys, "status", replica.name)
    (flow,) = document["flows"]
    blocked = [{"object": p["topic"], **p["stop"]} for p in flow["partitions"] if p["partition"] is None]
    return {refusal["code"]: refusal for refusal in (*blocked, *flow["notes"])}


def do(replica: Replica, capsys: Capture, resolve: str) -> None:
    """Do the first thing that a refusal proposes."""
    if found := commands(resolve):
        for command in found:
            # Other topics of the flow still wait for somebody.
            command.run(capsys, codes=(0, 3))
    elif topic := _DELETE.match(resolve):
        delete_topics(replica.target_client, [topic[1]])
    else:
        exclude(replica.flow.path, _EXCLUDE.search(resolve)[1])  # pyrefly: ignore[unsupported-operation]  # fails where nothing is said


def exclude(path: Path, topic: str) -> None:
    """Change the flow file as its owner would."""
    document = yaml.safe_load(path.read_text())
    document["topics"]["exclude"] = [*document["topics"].get("exclude", []), topic]
    path.write_text(yaml.safe_dump(document))


@pytest.fixture
def other(replica: Replica, tmp_path: Path) -> Replica:
    """Another flow between the same clusters."""
    folder = tmp_path / "other"
    folder.mkdir()
    return Replica(folder, f"{replica.name[:-1]}x", replica.source_client, replica.target_client)


def test_what_a_refusal_says_settles_it(replica: Replica, other: Replica, capsys: Capture) -> None:
    """Six causes in one flow; the topic that is well is not kept waiting."""
    full, few = replica.topic("full"), replica.topic("few", 3)
    many, dotted, tuned = (
        replica.topic("many"),
        replica.topic("a.b"),
        replica.topic("t", 1, {"segment.ms": "777777"}),
    )
    for topic, partitions in ((full, 1), (few, 1), (many, 2), (dotted.replace(".b", "_b"), 1), (tuned, 1)):
        replica.target_topic(topic, partitions)
    replica.target.plain(full, 0, [GOOD])
    with other:
        shared = other.topic("shared")
        other.source.plain(shared, 0, [GOOD])
        other.copy()
        replica.configure(topics={"include": [f"{replica.name[:-1]}.[.].*"]})
        for topic in (full, few, many, dotted, tuned):
            replica.source.plain(topic, 0, [GOOD])
        assert replica.copy().records == 1

        found = refusals(replica, capsys)
        expected = {
            "TARGET_NOT_EMPTY": full,
            "PARTITION_COUNT": None,
            "NAME_COLLISION": dotted,
            "NOT_MANAGED": tuned,
            "ENROLLED_ELSEWHERE": shared,
        }
        assert set(found) == set(expected)
        assert all(topic in (None, found[code]["object"]) for code, topic in expected.items())
        while found:
            before = set(found)
            do(replica, capsys, found.popitem()[1]["resolve"])
            replica.copy()
            found = refusals(replica, capsys)
            assert set(found) <= before
        other.assert_same()
    replica.assert_same(full, few, many, tuned)
    assert replica.command(capsys, "status", replica.name)[0] == 0
