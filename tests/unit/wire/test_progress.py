"""Metadata of positions survives, stays small, and is refused when it is not ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import NeedsOperator
from onceover.wire.progress import ProgressMeta

NUMBERS = st.integers(-1, 2**63 - 1)
META = ProgressMeta("c2FtcGxlLXNvdXJjZQ", "c2FtcGxlLXRhcmdldA", 4, 1200, 7, (12, 2))


@given(
    st.builds(
        ProgressMeta,
        st.text(max_size=36),
        st.text(max_size=36),
        NUMBERS,
        NUMBERS,
        NUMBERS,
        st.tuples(NUMBERS, NUMBERS),
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


def test_no_text_is_no_metadata() -> None:
    assert ProgressMeta.decode("") is None


def test_fields_of_a_later_minor_change_are_ignored() -> None:
    assert ProgressMeta.decode(json.dumps({**json.loads(META.encode()), "extra": 1})) == META


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
    ],
)
def test_a_wrong_field_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(NeedsOperator) as caught:
        ProgressMeta.decode(json.dumps({**json.loads(META.encode()), **changes}))
    assert caught.value.code == "PROGRESS_UNREADABLE"
    assert caught.value.resolve


def test_a_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(NeedsOperator, match="upgrade Onceover"):
        ProgressMeta.decode('{"v":2}')


@pytest.mark.parametrize("text", ["x", "{", "[]", "5", "null", '"v"', "{}", "[" * 100_000, "9" * 5000])
def test_garbage_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(NeedsOperator) as caught:
        ProgressMeta.decode(text)
    assert caught.value.code == "PROGRESS_UNREADABLE"


@given(st.text(min_size=1, max_size=40))
def test_any_text_is_refused_or_read_never_something_else(text: str) -> None:
    with pytest.raises(NeedsOperator):
        ProgressMeta.decode(text)
