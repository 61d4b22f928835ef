"""Rights that are missing on a fake cluster, as its answers say."""

from __future__ import annotations

from typing import Final

from onceover.errors import UsageError
from onceover.kafka.answers import failure
from onceover.txn.classify import Action, Api
from tests.support.fakes.fakecluster import FakeCluster

# TOPIC_AUTHORIZATION_FAILED.
NOT_AUTHORIZED: Final = 29


def not_authorized(cluster: FakeCluster, api: Api, where: str) -> UsageError:
    """Return what the concrete cluster makes of such an answer."""
    error = failure(cluster.alias, api, Action.UNAUTHORIZED, NOT_AUTHORIZED, where)
    assert isinstance(error, UsageError)
    return error
