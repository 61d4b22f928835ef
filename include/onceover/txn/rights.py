"""Which right a request lacks, by the error code that a broker answers it with. Pure."""

from __future__ import annotations

from typing import Final

from onceover.txn.classify import Api

_TOPIC, _GROUP, _CLUSTER, _TXN_ID = 29, 30, 31, 53
_RESOURCES: Final = {
    _TOPIC: "the topic",
    _GROUP: "the group",
    _CLUSTER: "the cluster",
    _TXN_ID: "the transactional id",
}
# Since 2.8 (KIP-679) brokers give a producer id to whoever may write to any topic at all, and answer others
# with the cluster's code. What was to be written to is what is missing, not a right on the cluster.
_WRITE_SOMEWHERE: Final = "WRITE on the topic"
# What brokers ask for with a request (Kafka's documentation, "Protocols and operations").
_OPERATIONS: Final = {
    Api.INIT_PRODUCER_ID: {_TXN_ID: "WRITE", _CLUSTER: _WRITE_SOMEWHERE},
    Api.ADD_PARTITIONS: {_TXN_ID: "WRITE", _TOPIC: "WRITE"},
    Api.ADD_OFFSETS: {_TXN_ID: "WRITE", _GROUP: "READ"},
    Api.PRODUCE: {_TXN_ID: "WRITE", _TOPIC: "WRITE"},
    Api.PRODUCE_IDEMPOTENT: {_TOPIC: "WRITE"},
    Api.TXN_OFFSET_COMMIT: {_TXN_ID: "WRITE", _GROUP: "READ", _TOPIC: "READ"},
    Api.END_TXN: {_TXN_ID: "WRITE"},
    Api.OFFSET_FETCH: {_GROUP: "DESCRIBE", _TOPIC: "DESCRIBE"},
    Api.FETCH: {_TOPIC: "READ"},
    Api.LIST_OFFSETS: {_TOPIC: "DESCRIBE"},
    Api.FIND_COORDINATOR: {_GROUP: "DESCRIBE", _TXN_ID: "DESCRIBE"},
    Api.METADATA: {_TOPIC: "DESCRIBE"},
    Api.OFFSET_FOR_LEADER_EPOCH: {_TOPIC: "DESCRIBE"},
    Api.DESCRIBE_PRODUCERS: {_TOPIC: "READ"},
    Api.LIST_GROUPS: {_GROUP: "DESCRIBE", _CLUSTER: "DESCRIBE"},
    Api.OFFSET_COMMIT: {_GROUP: "READ", _TOPIC: "READ"},
    Api.OFFSET_DELETE: {_GROUP: "DELETE", _TOPIC: "READ"},
}


def lacking(api: Api, code: int) -> str:
    """Return what a person reads who is to grant it, such as ``not authorized, it takes READ on the topic``.

    A login that is not taken, and what else is no ACL's business, is ``not authorized`` alone.
    """
    operation = _OPERATIONS[api].get(code)
    if operation is None:
        return "not authorized"
    right = operation if operation == _WRITE_SOMEWHERE else f"{operation} on {_RESOURCES[code]}"
    return f"not authorized, it takes {right}"
