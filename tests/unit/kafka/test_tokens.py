"""Tokens of OAUTHBEARER, as brokers read them."""

from __future__ import annotations

import base64
import json
import time

import pytest

from onceover.kafka.link.tokens import TokenProvider


def claims(token: str) -> dict[str, float | str]:
    _, payload, _ = token.split(".")
    read: dict[str, float | str] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return read


@pytest.mark.parametrize("now_s", [1_795_230_742.0, 1_795_230_742.98304, 1_795_230_742.0005])
def test_an_unsecured_token_is_never_issued_in_the_future(
    now_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers compare ``iat`` with a clock that was cut to whole milliseconds."""
    monkeypatch.setattr(time, "time", lambda: now_s)
    settings = {"sasl.oauthbearer.config": "principal=admin lifeSeconds=60"}

    read = claims(TokenProvider(settings).token())

    issued, expires = float(read["iat"]), float(read["exp"])
    assert now_s - 1 < issued <= int(now_s * 1000) / 1000
    assert expires - issued == 60
    assert read["sub"] == "admin"


def test_an_unsecured_token_carries_its_extensions_beside_it() -> None:
    """As librdkafka reads them (KIP-342)."""
    settings = {"sasl.oauthbearer.config": "principal=admin extension_pool=p-1 extension_area=b"}
    assert TokenProvider(settings).extensions() == {"pool": "p-1", "area": "b"}
