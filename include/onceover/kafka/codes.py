"""What clusters, and the way to them, answer. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class KafkaCode(Code):
    """Errors of one cluster, one topic, partition, group or ACL, whoever asks."""

    # The address, the line, the login.
    BAD_ADDRESS = auto()
    WRONG_PROTOCOL = auto()
    TLS_REFUSED = auto()
    NOT_KAFKA = auto()
    NO_KERBEROS = auto()
    NO_TICKET = auto()
    NO_SIGNER = auto()
    NO_TOKEN = auto()
    # The Python that we run in.
    PYTHON_OPTIMIZED = auto()
    FOREIGN_CLUSTER = auto()
    # Rights.
    NOT_AUTHORIZED = auto()
    NO_AUTHORIZER = auto()
    ACL_UNKNOWN = auto()
    # Topics, partitions, groups.
    TOPIC_EXISTS = auto()
    TOPIC_MISSING = auto()
    INVALID_CONFIG = auto()
    POLICY_VIOLATION = auto()
    MISSING = auto()
    # Nobody leads the partition. It passes when its broker is back, whenever that is.
    NO_LEADER = auto()
    # A transaction that writes the group's offsets has not ended for the coordinator of the group.
    PENDING_OFFSETS = auto()
    # The partition has fewer replicas than its topic wants for a write.
    FEW_REPLICAS = auto()
    HAS_MEMBERS = auto()
    # What else a broker refuses.
    WRITE_REFUSED = auto()
    # The same of a record without which the flow does not go on.
    OWN_RECORD_REFUSED = auto()
    ADMIN_REFUSED = auto()
    BROKER_SETTING = auto()
    BROKER_ERROR = auto()
