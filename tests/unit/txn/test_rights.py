"""A refusal names the right that is missing."""

from __future__ import annotations

import pytest

from onceover.kafka.answers import failure
from onceover.kafka.produce import requests as produce
from onceover.txn.classify import Action, Api
from onceover.txn.rights import lacking

TOPIC, GROUP, CLUSTER, SASL_FAILED, TXN_ID = 29, 30, 31, 58, 53


@pytest.mark.parametrize(
    ("api", "code", "right"),
    [
        (Api.FETCH, TOPIC, "READ on the topic"),
        (Api.METADATA, TOPIC, "DESCRIBE on the topic"),
        (Api.FIND_COORDINATOR, GROUP, "DESCRIBE on the group"),
        (Api.OFFSET_COMMIT, GROUP, "READ on the group"),
        (Api.INIT_PRODUCER_ID, TXN_ID, "WRITE on the transactional id"),
        # Brokers give a producer id to whoever may write to any topic (KIP-679): the cluster is not needed.
        (Api.INIT_PRODUCER_ID, CLUSTER, "WRITE on the topic"),
        (Api.LIST_GROUPS, CLUSTER, "DESCRIBE on the cluster"),
    ],
)
def test_what_is_lacking_is_named(api: Api, code: int, right: str) -> None:
    assert lacking(api, code) == f"not authorized, it takes {right}"


@pytest.mark.parametrize("api", list(Api))
def test_every_request_has_a_right_and_a_login_that_is_not_taken_is_none(api: Api) -> None:
    """Whatever the broker answers to it."""
    assert "it takes" in " ".join(lacking(api, code) for code in (TOPIC, GROUP, TXN_ID))
    assert lacking(api, SASL_FAILED) == "not authorized"


def test_errors_of_both_kinds_of_requests_say_it() -> None:
    """Those that read, and those of a transaction."""
    read = failure("west", Api.FETCH, Action.UNAUTHORIZED, TOPIC, "t:0")
    assert read.message == "west refuses fetch (error 29, not authorized, it takes READ on the topic)"

    class West:
        alias = "west"

    wrote = produce.failure(West(), "id", Api.PRODUCE, TOPIC, "t:0")  # pyrefly: ignore[bad-argument-type]
    assert wrote.message == "west answers error 29 to produce: not authorized, it takes WRITE on the topic"
