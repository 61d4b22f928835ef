"""What an error code means for the caller, by request: the table of docs/facts.md as data.

Invariant: nothing that could have broken a transaction is ever answered with "go on". Inside an open
transaction everything is a RESET except: the same request may be repeated, the content is refused, the
topic is gone, or a person has to act. RESET is always safe, because resuming rereads the truth
(docs/protocol.md); it only costs a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class Api(Enum):
    """The requests whose error codes are classified."""

    INIT_PRODUCER_ID = auto()
    ADD_PARTITIONS = auto()
    ADD_OFFSETS = auto()
    PRODUCE = auto()
    PRODUCE_IDEMPOTENT = auto()
    """Produce outside a transaction, by a producer id alone."""
    TXN_OFFSET_COMMIT = auto()
    END_TXN = auto()
    OFFSET_FETCH = auto()
    FETCH = auto()
    LIST_OFFSETS = auto()
    FIND_COORDINATOR = auto()
    METADATA = auto()
    OFFSET_FOR_LEADER_EPOCH = auto()
    DESCRIBE_PRODUCERS = auto()
    LIST_GROUPS = auto()
    OFFSET_COMMIT = auto()
    """OffsetCommit outside a transaction, for a group without members."""
    OFFSET_DELETE = auto()


class Action(Enum):
    """What the caller does next."""

    OK = auto()
    RETRY = auto()
    """Send the same request again after a short, jittered pause, under a deadline."""
    REFRESH_AND_RETRY = auto()
    """Find the leader or coordinator again, then send the same request, under a deadline."""
    RESET = auto()
    """Drop the producer and its connections, begin again at fencing with fresh metadata; never commit."""
    CONTENT = auto()
    """The broker refuses these records: abort, then re-encode, split, or stop the partition."""
    MISSING = auto()
    """The topic is gone or another one bears its name: abort what is open, stop its partitions (G5)."""
    NOTHING_OPEN = auto()
    """There is no transaction to abort: as good as aborted, epoch and sequences unchanged."""
    OUT_OF_RANGE = auto()
    """The log no longer, or not yet, has this offset: truncated, recreated or expired; stop (G5)."""
    UNAUTHORIZED = auto()
    """A person has to grant a right or correct a login; the text names principal and resource."""
    OPERATOR = auto()
    """A broker setting, or somebody else in the progress group, is in the way: a person has to act."""
    FATAL = auto()
    """Not foreseen by the protocol at this place: a bug of ours, or an unknown broker. Never retried."""


IN_TRANSACTION: Final = frozenset(
    {
        Api.ADD_PARTITIONS,
        Api.ADD_OFFSETS,
        Api.PRODUCE,
        Api.PRODUCE_IDEMPOTENT,
        Api.TXN_OFFSET_COMMIT,
        Api.END_TXN,
    }
)

# Kafka's names, for the tables below to be read without the protocol guide.
_UNKNOWN_SERVER_ERROR, _OFFSET_OUT_OF_RANGE, _CORRUPT_MESSAGE, _UNKNOWN_TOPIC_OR_PARTITION = -1, 1, 2, 3
_LEADER_NOT_AVAILABLE, _NOT_LEADER, _REQUEST_TIMED_OUT, _BROKER_NOT_AVAILABLE = 5, 6, 7, 8
_REPLICA_NOT_AVAILABLE, _MESSAGE_TOO_LARGE, _OFFSET_METADATA_TOO_LARGE = 9, 10, 12
_COORDINATOR_LOADING, _COORDINATOR_NOT_AVAILABLE, _NOT_COORDINATOR, _INVALID_TOPIC = 14, 15, 16, 17
_RECORD_LIST_TOO_LARGE, _NOT_ENOUGH_REPLICAS, _NOT_ENOUGH_AFTER_APPEND = 18, 19, 20
_ILLEGAL_GENERATION, _UNKNOWN_MEMBER = 22, 25
_TOPIC_AUTHORIZATION, _GROUP_AUTHORIZATION, _CLUSTER_AUTHORIZATION, _INVALID_TIMESTAMP = 29, 30, 31, 32
_UNSUPPORTED_SASL, _ILLEGAL_SASL_STATE, _UNSUPPORTED_FOR_FORMAT, _POLICY_VIOLATION = 33, 34, 43, 44
_OUT_OF_ORDER_SEQUENCE, _UNKNOWN_PRODUCER_ID = 45, 59
_INVALID_PRODUCER_EPOCH, _INVALID_TXN_STATE, _INVALID_TXN_TIMEOUT, _CONCURRENT_TRANSACTIONS = 47, 48, 50, 51
_TXN_ID_AUTHORIZATION, _SECURITY_DISABLED, _STORAGE_ERROR, _SASL_FAILED = 53, 54, 56, 58
_TOKEN_AUTHORIZATION, _TOKEN_EXPIRED, _FETCH_SESSION_ID, _FETCH_SESSION_EPOCH = 65, 66, 70, 71
_LISTENER_NOT_FOUND, _FENCED_LEADER_EPOCH, _UNKNOWN_LEADER_EPOCH, _UNSUPPORTED_COMPRESSION = 72, 74, 75, 76
_OFFSET_NOT_AVAILABLE, _FENCED_INSTANCE, _INVALID_RECORD, _UNSTABLE_OFFSET = 78, 82, 87, 88
_THROTTLING_QUOTA, _PRODUCER_FENCED, _UNKNOWN_TOPIC_ID, _INCONSISTENT_TOPIC_ID = 89, 90, 100, 103
_FETCH_SESSION_TOPIC_ID: Final = 106


def _codes(action: Action, *codes: int) -> dict[int, Action]:
    return dict.fromkeys(codes, action)


_UNAUTHORIZED: Final = _codes(
    Action.UNAUTHORIZED,
    _TOPIC_AUTHORIZATION,
    _GROUP_AUTHORIZATION,
    _CLUSTER_AUTHORIZATION,
    _UNSUPPORTED_SASL,
    _ILLEGAL_SASL_STATE,
    _TXN_ID_AUTHORIZATION,
    _SECURITY_DISABLED,
    _SASL_FAILED,
    _TOKEN_AUTHORIZATION,
    _TOKEN_EXPIRED,
)

_COORDINATOR: Final = {
    **_codes(Action.REFRESH_AND_RETRY, _COORDINATOR_NOT_AVAILABLE, _NOT_COORDINATOR),
    # Loading is done by the same broker: asking where it is would only add load.
    **_codes(Action.RETRY, _COORDINATOR_LOADING, _REQUEST_TIMED_OUT, _THROTTLING_QUOTA),
}

# On requests that change nothing. Metadata decides whether an unknown topic is gone: a broker that
# has just become leader answers UNKNOWN_TOPIC_OR_PARTITION until it knows.
_LEADER: Final = {
    **_codes(
        Action.REFRESH_AND_RETRY,
        _LEADER_NOT_AVAILABLE,
        _NOT_LEADER,
        _BROKER_NOT_AVAILABLE,
        _REPLICA_NOT_AVAILABLE,
        _STORAGE_ERROR,
        _LISTENER_NOT_FOUND,
        _FENCED_LEADER_EPOCH,
        _UNKNOWN_LEADER_EPOCH,
    ),
    **_codes(Action.RETRY, _REQUEST_TIMED_OUT, _OFFSET_NOT_AVAILABLE, _THROTTLING_QUOTA),
}

_MISSING: Final = _codes(
    Action.MISSING, _UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC_ID, _INCONSISTENT_TOPIC_ID
)

# Somebody really consumes with the progress group, or the broker allows less metadata than 1 KB.
# Resetting would run into the same answer for ever.
_GROUP_TAKEN: Final = _codes(
    Action.OPERATOR, _OFFSET_METADATA_TOO_LARGE, _ILLEGAL_GENERATION, _UNKNOWN_MEMBER, _FENCED_INSTANCE
)

_CONTENT: Final = {
    **_codes(
        Action.CONTENT,
        _UNKNOWN_SERVER_ERROR,
        _CORRUPT_MESSAGE,
        _MESSAGE_TOO_LARGE,
        _RECORD_LIST_TOO_LARGE,
        _INVALID_TIMESTAMP,
        _UNSUPPORTED_FOR_FORMAT,
        _UNSUPPORTED_COMPRESSION,
        _INVALID_RECORD,
    ),
    **_codes(Action.OPERATOR, _POLICY_VIOLATION, _INVALID_TOPIC),
}

_TABLE: Final[Mapping[Api, Mapping[int, Action]]] = {
    Api.INIT_PRODUCER_ID: {
        **_COORDINATOR,
        **_codes(Action.RETRY, _CONCURRENT_TRANSACTIONS),
        **_codes(Action.RESET, _INVALID_PRODUCER_EPOCH, _PRODUCER_FENCED),
        **_codes(Action.OPERATOR, _INVALID_TXN_TIMEOUT),
    },
    Api.ADD_PARTITIONS: {**_COORDINATOR, **_MISSING, **_codes(Action.RETRY, _CONCURRENT_TRANSACTIONS)},
    Api.ADD_OFFSETS: {**_COORDINATOR, **_codes(Action.RETRY, _CONCURRENT_TRANSACTIONS)},
    Api.PRODUCE: {
        **_MISSING,
        # Only the first round of a transaction can meet these two (the previous transaction closes, or
        # replicas are short), and that round is awaited before anything is sent behind it. A moved
        # leader (5, 6) resets instead: batches behind the refused one may be in its log or not.
        **_codes(Action.RETRY, _NOT_ENOUGH_REPLICAS, _CONCURRENT_TRANSACTIONS),
        **_CONTENT,
    },
    Api.PRODUCE_IDEMPOTENT: {
        **_MISSING,
        # Repeated under the same sequence, which a broker that has appended it already notices: without
        # that, replicas that stay short would be a new copy of the same records at every reset.
        **_codes(Action.RETRY, _NOT_ENOUGH_REPLICAS, _NOT_ENOUGH_AFTER_APPEND, _REQUEST_TIMED_OUT),
        **_CONTENT,
    },
    Api.TXN_OFFSET_COMMIT: {
        **_COORDINATOR,
        **_MISSING,
        **_GROUP_TAKEN,
        # The progress group's coordinator may not have seen the end of the previous transaction.
        **_codes(Action.RETRY, _CONCURRENT_TRANSACTIONS),
    },
    Api.END_TXN: {**_COORDINATOR, **_codes(Action.RETRY, _CONCURRENT_TRANSACTIONS)},
    Api.OFFSET_FETCH: {**_COORDINATOR, **_MISSING, **_codes(Action.RETRY, _UNSTABLE_OFFSET)},
    Api.FETCH: {
        **_LEADER,
        **_MISSING,
        **_codes(Action.OUT_OF_RANGE, _OFFSET_OUT_OF_RANGE),
        **_codes(Action.REFRESH_AND_RETRY, _FETCH_SESSION_ID, _FETCH_SESSION_EPOCH, _FETCH_SESSION_TOPIC_ID),
        # The broker's own log is damaged; another replica may become leader and have it whole.
        **_codes(Action.OPERATOR, _CORRUPT_MESSAGE),
    },
    Api.LIST_OFFSETS: {**_LEADER, **_codes(Action.REFRESH_AND_RETRY, _UNKNOWN_TOPIC_OR_PARTITION)},
    Api.FIND_COORDINATOR: {**_COORDINATOR, **_codes(Action.RETRY, _COORDINATOR_NOT_AVAILABLE)},
    Api.METADATA: {**_LEADER, **_MISSING, **_codes(Action.OPERATOR, _INVALID_TOPIC)},
    Api.OFFSET_FOR_LEADER_EPOCH: {
        **_LEADER,
        **_codes(Action.REFRESH_AND_RETRY, _UNKNOWN_TOPIC_OR_PARTITION),
    },
    Api.DESCRIBE_PRODUCERS: {
        **_LEADER,
        **_codes(Action.REFRESH_AND_RETRY, _UNKNOWN_TOPIC_OR_PARTITION),
    },
    Api.LIST_GROUPS: _COORDINATOR,
    Api.OFFSET_COMMIT: {**_COORDINATOR, **_MISSING, **_GROUP_TAKEN},
    Api.OFFSET_DELETE: {**_COORDINATOR, **_MISSING},
}


# Said of one partition, whatever else a request or a transaction holds: its topic, leader, replicas, rights.
# Codes about the producer's identity, the transaction or the group are not among them. A gap in sequences, or
# a log that knows nothing of the producer, is its partition's own where it comes again and again.
_OF_PARTITION: Final = frozenset(
    {
        *_LEADER,
        *_MISSING,
        _TOPIC_AUTHORIZATION,
        _INVALID_TOPIC,
        _POLICY_VIOLATION,
        _NOT_ENOUGH_REPLICAS,
        _NOT_ENOUGH_AFTER_APPEND,
        _OUT_OF_ORDER_SEQUENCE,
        _UNKNOWN_PRODUCER_ID,
    }
)


def concerns_partition(error_code: int) -> bool:
    """Tell whether an error code says something about its partition alone, so that others may go on."""
    return error_code in _OF_PARTITION


def lacks_replicas(error_code: int) -> bool:
    """Tell whether it says that too few replicas are there, as while a broker is being started again."""
    return error_code in (_NOT_ENOUGH_REPLICAS, _NOT_ENOUGH_AFTER_APPEND)


def says_taken(error_code: int) -> bool:
    """Tell whether it says that a newer producer has the transactional id.

    Brokers say the same of a transaction that they have ended because it took too long.
    """
    return error_code in (_INVALID_PRODUCER_EPOCH, _PRODUCER_FENCED)


def classify(api: Api, error_code: int, *, first_end_txn: bool = False, committing: bool = True) -> Action:
    """Return what to do after ``error_code`` in the answer to ``api``.

    ``first_end_txn`` is True for the first EndTxn of a transaction. Its CONCURRENT_TRANSACTIONS does not
    stem from an EndTxn of ours, so somebody else ends our transaction: a timeout, or a fence.
    ``committing`` tells the two kinds of EndTxn apart: an abort that finds nothing open has its wish.

    A code that is in no table is RESET inside a transaction, because what the broker did is unknown and
    starting over is safe, and FATAL elsewhere, because repeating what nobody foresaw can go on for ever
    and hide a bug.
    """
    if error_code == 0:
        return Action.OK
    if error_code in _UNAUTHORIZED:
        return _UNAUTHORIZED[error_code]
    if api is Api.END_TXN:
        if error_code == _INVALID_TXN_STATE and not committing:
            return Action.NOTHING_OPEN
        if error_code == _CONCURRENT_TRANSACTIONS and first_end_txn:
            return Action.RESET
    fallback = Action.RESET if api in IN_TRANSACTION else Action.FATAL
    return _TABLE[api].get(error_code, fallback)
