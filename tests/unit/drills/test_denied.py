"""Whose DENYs keep clients off the copies: everybody's but ours, to the letter."""

from __future__ import annotations

from typing import Any, cast

import pytest

from onceover.drills.leaving.fences import denials
from onceover.drills.switching.lettingin import denied
from onceover.kafka.admin.acls import Acl, AclAdmin

MARK = ("orders.x", "User:orders")
(OURS,) = denials([MARK])
THEIRS = [
    Acl("LITERAL", "orders.x", "User:orders", "*", "ALL", "DENY"),
    Acl("LITERAL", "orders.x", "User:orders", "10.0.0.7", "WRITE", "DENY"),
    Acl("PREFIXED", "orders", "User:orders", "*", "WRITE", "DENY"),
    Acl("LITERAL", "orders.x", "User:*", "*", "WRITE", "DENY"),
]


@pytest.mark.parametrize("theirs", THEIRS, ids=str)
def test_what_somebody_else_denies_stands_when_ours_is_lifted(
    theirs: Acl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for whom we keep off: clients would arrive at copies that they may not write to."""
    monkeypatch.setattr(AclAdmin, "topic_acls", lambda _: frozenset({OURS, theirs}))
    assert denied(cast(Any, None), ["orders.x"], lambda: {MARK}) == [str(theirs)]
    assert denied(cast(Any, None), ["other"], lambda: {MARK}) == []
    assert denied(cast(Any, None), ["orders.x"], set) == sorted(map(str, (OURS, theirs)))
