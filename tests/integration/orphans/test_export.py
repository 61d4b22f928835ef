"""``onceover drill orphans``: what others do to the topic of an export, and to its file."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from onceover.drills.orphans import exporttopic
from tests.support.drills.orphaned import DECIDE, DONE, Capture, Orphaned
from tests.support.flows.replica import delete_topics

_TIMEOUT_S = 30.0


def export_topic(replica: Orphaned) -> str:
    return f"__onceover.{replica.name}.orphans"


def test_behind_somebodys_open_transaction_nothing_is_exported_again(
    replica: Orphaned, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands behind it cannot be read, so nobody knows where to go on."""
    monkeypatch.setattr(exporttopic, "_TIMEOUT_MS", 5_000)
    topic = replica.orphaned_topic(capsys)
    assert replica.orphans(capsys, "apply")[0] == DONE
    replica.source.plain(topic, 0, replica.source.records(3))
    stranger = replica.target.transaction(export_topic(replica))
    stranger.send(0, replica.target.records(1))
    code, told = replica.orphans(capsys, "apply")
    assert (code, told["error"]["code"]) == (DECIDE, "HANGING")
    stranger.abort()
    code, told = replica.orphans(capsys, "apply")
    assert (code, told["written"]) == (DONE, 3)
    offsets = [one.offset for one in replica.exported()]
    assert offsets == sorted(set(offsets))


@pytest.mark.parametrize(
    "origin",
    [
        pytest.param({"onceover.flow": b"\xff\xfe", "onceover.source.offset": b"1"}, marks=pytest.mark.soak),
        {"onceover.flow": b"{flow}", "onceover.source.offset": b"9" * 5_000},
        pytest.param({"onceover.flow": b"another", "onceover.source.offset": b"1"}, marks=pytest.mark.soak),
    ],
    ids=["no text", "no number", "another flow"],
)
def test_a_record_that_somebody_has_written_there_is_said_to_be_none(
    replica: Orphaned, capsys: Capture, origin: dict[str, bytes]
) -> None:
    """Whatever it says of itself."""
    replica.orphaned_topic(capsys)
    assert replica.orphans(capsys, "apply")[0] == DONE
    whole = {
        "onceover.flow": b"",
        "onceover.source.cluster": b"east",
        "onceover.source.topic": b"t",
        "onceover.source.topic.id": b"x",
        "onceover.source.partition": b"0",
        "onceover.source.offset": b"0",
    } | {name: value.replace(b"{flow}", replica.name.encode()) for name, value in origin.items()}
    producer = Producer(replica.target_client)
    producer.produce(export_topic(replica), b"forged", headers=list(whole.items()))
    assert producer.flush(_TIMEOUT_S) == 0
    for action in ("plan", "apply"):
        code, told = replica.orphans(capsys, action)
        assert (code, told["error"]["code"]) == (DECIDE, "EXPORT_DIFFERS")


def test_the_file_is_never_replaced_by_one_that_lacks_its_records(replica: Orphaned, capsys: Capture) -> None:
    """The topic was deleted, as a message may have advised: the file is the last copy of what it held."""
    replica.orphaned_topic(capsys)
    assert replica.orphans(capsys, "apply", "--rebuild")[0] == DONE
    before = replica.orphan_file.read_bytes()
    assert len(before.splitlines()) == 5
    delete_topics(replica.target_client, [export_topic(replica)])
    assert replica.orphans(capsys, "apply")[0] == DONE
    assert before in [path.read_bytes() for path in replica.orphan_file.parent.iterdir()]


def test_a_file_that_is_lost_is_written_again(replica: Orphaned, capsys: Capture) -> None:
    """Also when nothing is left to be exported."""
    replica.orphaned_topic(capsys)
    assert replica.orphans(capsys, "apply", "--rebuild")[0] == DONE
    before = replica.orphan_file.read_bytes()
    replica.orphan_file.unlink()
    code, told = replica.orphans(capsys, "apply")
    assert (code, told["export"]["records"]) == (DONE, 5)
    assert replica.orphan_file.read_bytes() == before
