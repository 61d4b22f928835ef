"""Metadata of positions survives, stays small, and is refused when it is not ours."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import NeedsOperator
from onceover.wire.progress import CopiedBatch, ProgressMeta, PromotedMark, last_before

NUMBERS = st.integers(-1, 2**63 - 1)
BEGINNING = '{"v":'
META = ProgressMeta("c2FtcGxlLXNvdXJjZQ", "c2FtcGxlLXRhcmdldA", 4, 1200, 7, (12, 2))


def text_of(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


@given(
    st.builds(
        ProgressMeta,
        st.text(max_size=36),
        st.text(max_size=36),
        NUMBERS,
        NUMBERS,
        NUMBERS,
        st.tuples(NUMBERS, NUMBERS),
        st.none() | NUMBERS,
        st.none() | NUMBERS,
        st.none() | NUMBERS,
        st.none() | st.builds(CopiedBatch, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    )
)
def test_any_metadata_survives_under_one_kilobyte(meta: ProgressMeta) -> None:
    assert meta == ProgressMeta.decode(meta.encode())
    assert len(meta.encode()) < 1024


def test_the_text_of_version_1_never_changes() -> None:
    assert META.encode() == (
        '{"v":1,"source_id":"c2FtcGxlLXNvdXJjZQ","target_id":"c2FtcGxlLXRhcmdldA",'
        '"epoch":4,"target_end":1200,"generation":7,"instance":[12,2]}'
    )


def test_the_position_stands_at_the_end_and_may_be_left_out() -> None:
    """Releases that did not write it are read, and read what is written now."""
    text = replace(META, position=8).encode()
    assert text == META.encode()[:-1] + ',"at":8}'
    assert ProgressMeta.decode(text) == replace(META, position=8)
    assert ProgressMeta.decode(META.encode()) == META and META.position is None


def test_the_targets_epoch_stands_behind_it_and_may_be_left_out() -> None:
    text = replace(META, position=8, target_epoch=3).encode()
    assert text == META.encode()[:-1] + ',"at":8,"target_epoch":3}'
    assert ProgressMeta.decode(text) == replace(META, position=8, target_epoch=3)


def test_the_last_batch_stands_behind_it_and_may_be_left_out() -> None:
    """An older release reads over it, and drops it at its next commit."""
    told = replace(META, position=8, batch=CopiedBatch(5, 8, 90, 1 << 31))
    assert told.encode() == META.encode()[:-1] + ',"at":8,"batch":[5,8,90,2147483648]}'
    assert ProgressMeta.decode(told.encode()) == told


def test_that_the_copy_is_promoted_stands_behind_it_and_is_left_out_of_all_others() -> None:
    """An older release reads over it: what it reads besides is as it was."""
    told = replace(META, position=8, promoted=PromotedMark("d1", 70, 1300))
    assert told.encode() == META.encode()[:-1] + ',"at":8,"promoted":["d1",70,1300]}'
    assert ProgressMeta.decode(told.encode()) == told


@pytest.mark.parametrize(("position", "held"), [(5, False), (6, True), (8, True), (9, False)])
def test_a_batch_is_told_only_of_a_position_whose_last_offset_it_holds(position: int, held: bool) -> None:
    """Also in the middle of it; anything else would be compared with another batch."""
    batch = CopiedBatch(5, 8, 90, 7)
    assert last_before(position, batch) == (batch if held else None)
    assert last_before(position, None) is None


@pytest.mark.parametrize(
    "text",
    ["", "x", "{", "[]", "5", "null", '"v"', "{}", "\0", '{"owner": "me"}', ' {"v":1}', "[" * 100_000],
)
def test_text_of_others_is_no_metadata(text: str) -> None:
    """None, a zero byte, a note: tools for groups write what they like."""
    assert ProgressMeta.decode(text) is None


def test_fields_of_a_later_minor_change_are_ignored() -> None:
    assert ProgressMeta.decode(text_of({**json.loads(META.encode()), "extra": 1})) == META


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"v": 0},
        {"v": None},
        {"v": True},
        {"source_id": None},
        {"target_id": 5},
        {"epoch": "4"},
        {"target_end": 1.5},
        {"generation": True},
        {"instance": 3},
        {"instance": [1]},
        {"instance": [1, 2, 3]},
        {"instance": [1, "2"]},
        {"at": None},
        {"promoted": ["d1", 70]},
        {"promoted": [1, 70, 1300]},
        {"promoted": ["d1", "70", 1300]},
        {"at": "8"},
        {"target_epoch": None},
        {"producer": "5"},
        {"batch": None},
        {"batch": [1, 2, 3]},
        {"batch": [1, 2, 3, "4"]},
        {"batch": [1, 2, 3, 4, 5]},
    ],
)
def test_a_wrong_field_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(NeedsOperator) as caught:
        ProgressMeta.decode(text_of({**json.loads(META.encode()), **changes}))
    assert caught.value.code == "PROGRESS_UNREADABLE"
    assert caught.value.expected and caught.value.seen


def test_a_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(NeedsOperator, match="use the Onceover that wrote it"):
        ProgressMeta.decode('{"v":2}')


def test_a_zero_byte_behind_ours_is_no_damage() -> None:
    """As a client library leaves it."""
    assert ProgressMeta.decode(META.encode() + "\0") == META


@pytest.mark.parametrize("behind", ["", "1", "1,", "[" * 100_000, "9" * 5000, "1} and more"])
def test_text_of_ours_that_is_damaged_is_refused_and_not_shown(behind: str) -> None:
    with pytest.raises(NeedsOperator) as caught:
        ProgressMeta.decode(BEGINNING + behind)
    assert caught.value.code == "PROGRESS_UNREADABLE"
    assert len(str(caught.value)) < 500


@given(st.text(max_size=40))
def test_any_text_is_refused_or_foreign_never_something_else(text: str) -> None:
    assert text.startswith(BEGINNING) or ProgressMeta.decode(text) is None
    with pytest.raises(NeedsOperator):
        ProgressMeta.decode(BEGINNING + text)
