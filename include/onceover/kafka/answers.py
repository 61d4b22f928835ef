"""What the error code of a request outside a transaction means for whoever has asked. Pure."""

from __future__ import annotations

from onceover.errors import NeedsOperator, NotNow, OnceoverError, UsageError
from onceover.kafka.codes import KafkaCode
from onceover.txn.classify import Action, Api
from onceover.txn.rights import lacking


def failure(alias: str, api: Api, action: Action, code: int, subject: str) -> OnceoverError:
    """Return the exception that an error code of a request outside a transaction calls for."""
    name = api.name.replace("_", " ").lower()
    text = f"{alias} answers error {code} to {name}"
    if action in (Action.RETRY, Action.REFRESH_AND_RETRY):
        return NotNow(text, where=subject)
    if action is Action.UNAUTHORIZED:
        return UsageError(
            f"{alias} refuses {name} (error {code}, {lacking(api, code)})",
            code=KafkaCode.NOT_AUTHORIZED,
            where=subject,
            resolve="grant the flow's principal the rights listed in docs/operations.md",
        )
    return NeedsOperator(text, code=KafkaCode.BROKER_ERROR, where=subject)
