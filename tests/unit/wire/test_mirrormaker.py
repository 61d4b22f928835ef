"""MirrorMaker 2's own records: captured forms, other connectors' keys, damage."""

from __future__ import annotations

import pytest

from onceover.errors import NeedsOperator
from onceover.wire.mirrormaker import (
    OffsetSync,
    SourceConnector,
    SourceOffset,
    decode_offset_sync,
    decode_source_connector,
    decode_source_offset,
    decode_task,
)

_KEY = b'["MirrorSourceConnector",{"cluster":"A","partition":3,"topic":"orders"}]'


def test_a_source_offset_is_the_last_one_copied() -> None:
    """As MirrorSourceTask writes it, and with the fields of its key in another order."""
    expected = SourceOffset("MirrorSourceConnector", "A", "orders", 3, 1234)
    assert decode_source_offset(_KEY, b'{"offset":1234}') == expected
    other = b'["MirrorSourceConnector",{"topic":"orders","cluster":"A","partition":3}]'
    assert decode_source_offset(other, b'{"offset":1234}') == expected


@pytest.mark.parametrize("value", [None, b"null"])
def test_a_forgotten_offset_is_none(value: bytes | None) -> None:
    """A tombstone, and what a worker without a position writes."""
    entry = decode_source_offset(_KEY, value)
    assert entry is not None and entry.offset is None


@pytest.mark.parametrize(
    "key",
    [
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]',
        b'["MirrorCheckpointConnector",{"group":"g","topic":"orders","partition":3}]',
        b'["file",{"filename":"x"}]',
        b'["MirrorSourceConnector"]',
        b"\x00\xff",
    ],
)
def test_other_connectors_are_left_alone(key: bytes) -> None:
    """Their values may be anything."""
    assert decode_source_offset(key, b"anything") is None


def test_a_damaged_offset_is_an_error() -> None:
    """It is ours by its key: what it says is not guessed."""
    for value in (b"{}", b'{"offset":"1"}', b"\xff"):
        with pytest.raises(NeedsOperator):
            decode_source_offset(_KEY, value)


def test_an_offset_sync_of_a_real_mirrormaker() -> None:
    """Source offset 1234 of orders, partition 3, is at 1200."""
    key = bytes.fromhex("00066f726465727300000003")
    value = bytes.fromhex("00000000000004d200000000000004b0")
    assert decode_offset_sync(key, value) == OffsetSync("orders", 3, 1234, 1200)
    with pytest.raises(NeedsOperator):
        decode_offset_sync(key[:5], value)
    with pytest.raises(NeedsOperator):
        decode_offset_sync(key, value[:5])


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"task-MirrorSourceConnector-3", b"{}", ("MirrorSourceConnector", 4)),
        (b"task-a-b-0", None, ("a-b", 1)),
        (b"tasks-fencing-MirrorSourceConnector", b'{"task-count":7}', ("MirrorSourceConnector", 7)),
        (b"tasks-fencing-MirrorSourceConnector", None, None),
        (b"connector-MirrorSourceConnector", b"{}", None),
        (b"session-key", b"{}", None),
    ],
)
def test_tasks_are_counted(key: bytes, value: bytes | None, expected: tuple[str, int] | None) -> None:
    """From each task's own record and from what was fenced before."""
    assert decode_task(key, value) == expected


_CLASS = b'"connector.class":"org.apache.kafka.connect.mirror.MirrorSourceConnector"'


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (
            b"connector-MirrorSourceConnector",
            b'{"properties":{%s,"source.cluster.alias":"A","target.cluster.alias":"B","name":"x"}}' % _CLASS,
            SourceConnector("A", "B", "source"),
        ),
        (
            b"connector-mine",
            b'{"properties":{"connector.class":"MirrorSourceConnector","source.cluster.alias":"A",'
            b'"offset-syncs.topic.location":"target"}}',
            SourceConnector("A", "target", "target"),
        ),
        (
            b"connector-MirrorCheckpointConnector",
            b'{"properties":{"connector.class":"org.apache.kafka.connect.mirror.MirrorCheckpointConnector",'
            b'"source.cluster.alias":"A"}}',
            None,
        ),
        (b"connector-MirrorSourceConnector", None, None),
        (b"connector-MirrorSourceConnector", b"{}", None),
        (b"connector-MirrorSourceConnector", b"\xff", None),
        (b"task-MirrorSourceConnector-0", b'{"properties":{%s,"source.cluster.alias":"A"}}' % _CLASS, None),
        (b"target-state-MirrorSourceConnector", b'{"state":"STARTED"}', None),
    ],
)
def test_a_source_connector_says_where_its_offset_syncs_are(
    key: bytes, value: bytes | None, expected: SourceConnector | None
) -> None:
    """By default on the source; a connector that was deleted says nothing any more."""
    assert decode_source_connector(key, value) == expected
