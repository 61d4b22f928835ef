"""Records in MirrorMaker 2's formats, byte by byte as its own classes pack them (docs/facts.md)."""

from __future__ import annotations

from onceover.model import TopicPartition
from onceover.wire.mirroroutput import encode_checkpoint, encode_heartbeat, encode_offset_sync


def test_a_checkpoint_is_packed_as_mirrormaker_does() -> None:
    """Checkpoint(grp1, A.orders-3, 1234->1201, "")."""
    key, value = encode_checkpoint("grp1", TopicPartition("A.orders", 3), 1234, 1201, "")
    assert key.hex() == "0004677270310008412e6f726465727300000003"
    assert value.hex() == "000000000000000004d200000000000004b10000"


def test_metadata_and_names_are_utf8_with_their_length_in_bytes() -> None:
    key, value = encode_checkpoint("grüße", TopicPartition("t", 0), 1, 2, "ü")
    assert key == b"\x00\x07gr\xc3\xbc\xc3\x9fe\x00\x01t\x00\x00\x00\x00"
    assert value[18:] == b"\x00\x02\xc3\xbc"


def test_an_offset_sync_is_packed_as_mirrormaker_does() -> None:
    """OffsetSync(orders-3, 1234->1200), which carries no version."""
    key, value = encode_offset_sync(TopicPartition("orders", 3), 1234, 1200)
    assert key.hex() == "00066f726465727300000003"
    assert value.hex() == "00000000000004d200000000000004b0"


def test_a_heartbeat_is_packed_as_mirrormaker_does() -> None:
    """Heartbeat(A->B, 1700000000000)."""
    key, value = encode_heartbeat("A", "B", 1_700_000_000_000)
    assert (key.hex(), value.hex()) == ("000141000142", "00000000018bcfe56800")
